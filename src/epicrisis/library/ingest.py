"""Documents into a library: what is new or changed is cut, encoded and committed, in batches that can be resumed.

Run again after a kill, it skips what was acknowledged. A vector is made only where a passage's title or text is new: a
revision that changes nothing else, and a document that brings its vector, cost no encoding. Does not know where
documents come from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path

import numpy as np

from epicrisis.corpus.reader_base import FileFingerprint, PatientIdentity, ReaderItem
from epicrisis.errors import EncoderMismatch, LibraryError
from epicrisis.library.duplicate_ids import Seen
from epicrisis.library.ingest_batches import Addition
from epicrisis.library.ingest_checks import check_chunks
from epicrisis.library.ingest_report import IngestProgress, IngestReport
from epicrisis.library.interrupts import uninterrupted
from epicrisis.library.library import Library
from epicrisis.library.manifest import PRECOMPUTED, check_encoder, complete_manifest
from epicrisis.protocols import Encoder
from epicrisis.types import SplitterName

DEFAULT_OVERLAP = 32
"""Tokens that neighbouring passages of a new library share, at most."""
_PROGRESS_EVERY = 500
_COMPARED = 4


def open_or_create(
    path: Path,
    encoder: Encoder,
    encoder_name: str,
    overlap: int = DEFAULT_OVERLAP,
    splitter: SplitterName | None = None,
    ready_made: bool = False,
    chunk_tokens: int | None = None,
) -> Library:
    """The library at `path`, open for writing; a new one, cut for this encoder, where there is none.

    A library whose creation was interrupted holds nothing, and is created again from these arguments.

    `splitter` is that of a new library; `ready_made`: its vectors come along, made for whole documents by an encoder of
    that name whose files nobody knows; `chunk_tokens`: the most of a new passage, where not said as many as the
    encoder reads. Raises EncoderMismatch where the library was made by another encoder, LibraryError where with another
    splitter or other chunks, InputError for chunks that the encoder does not read to their end, and what `Library.open`
    and `Library.create` raise.
    """
    if chunk_tokens is not None:
        check_chunks(chunk_tokens, encoder, encoder_name, overlap, splitter, ready_made)
    if complete_manifest(path) is not None:
        library = Library.open(path, write=True, encoder_fingerprint=encoder.fingerprint)
        made = library.manifest
        if splitter not in (None, made.splitter):
            library.close()
            raise LibraryError(
                f"{path} cuts documents by {made.splitter}, not by {splitter}: leave the splitter out, or make another "
                "library"
            )
        if chunk_tokens not in (None, made.max_tokens):
            library.close()
            raise LibraryError(
                f"{path} has chunks of {made.max_tokens} tokens, not of {chunk_tokens}: leave --chunk-tokens out, or "
                "make another library"
            )
        return library
    return Library.create(
        path,
        encoder_fingerprint=f"{PRECOMPUTED}{encoder_name}" if ready_made else encoder.fingerprint,
        encoder_name=encoder_name,
        dimensions=encoder.dimensions,
        max_tokens=chunk_tokens or encoder.max_tokens,
        overlap=overlap,
        splitter=splitter or ("whole" if ready_made else "tokens"),
    )


def check_vectors(library: Library, encoder: Encoder) -> None:
    """Whether ready-made vectors are this encoder's: a few of the library's passages are encoded anew and compared.

    Nothing to do for a library of vectors that were made here.

    Raises EncoderMismatch where the two differ by more than rounding (cosine below 0.99).
    """
    if not library.manifest.encoder_fingerprint.startswith(PRECOMPUTED):
        return
    for title, text, vector in library.some_vectors(_COMPARED):
        made = encoder.encode_passages([(title, text)])[0]
        if made.shape != vector.shape or made @ vector < 0.99 * np.linalg.norm(made) * np.linalg.norm(vector):
            raise EncoderMismatch(
                f"{library.path} holds vectors that this encoder does not make: name the encoder they were made with "
                "(--encoder)"
            )


def add_documents(
    library: Library,
    items: Iterable[ReaderItem],
    encoder: Encoder,
    *,
    on_progress: Callable[[IngestProgress], None] | None = None,
    seconds_between_commits: float = 10.0,
    passages_per_batch: int = 8192,
    replace: bool = False,
    literature: bool | None = None,
) -> IngestReport:
    """Adds what is new, replaces what has changed, leaves the rest, and says what it left out and why.

    Of several documents with one id the latest revision counts, in whatever order they come, and a deletion counts as
    one; of those without a revision the first of this addition does, and the others are skipped unless they are the
    same. A document from a file (`FromFile`) replaces only one of the same file, see `identity`; with `replace`, any of
    its id. Everything is acknowledged at least every `seconds_between_commits`, judged by the encoder's speed so far;
    only a single document that takes longer by itself breaks that. Ctrl-C waits for the commit under way; what is
    acknowledged stays.

    A library holds patients' notes or literature. `literature` True says that both may be in this one, where every
    patient's questions read the documents of no patient. With False these are skipped in a library of notes, and notes
    are refused in a library of literature. With None both are let in, and whoever asks is told of it.

    Raises EncoderMismatch, StorageError, LibraryError, InputError where a patient's id may stand for two people, and
    whatever `items` raises.
    """
    check_encoder(library.path, library.manifest, encoder.fingerprint)
    library.prepare_marks()
    addition = Addition(library, encoder, on_progress, seconds_between_commits, passages_per_batch, replace, literature)
    with closing(Seen()) as seen:
        for item in items:
            addition.read += not isinstance(item, FileFingerprint | PatientIdentity)
            addition.take(item, seen)
            if addition.read % _PROGRESS_EVERY == 0:
                addition.tell()
    addition.meet_patients()
    addition.commit()
    with uninterrupted():
        addition.marked = library.mark_due()
    if addition.passages:
        with uninterrupted():
            library.compact()
    addition.kinds.close()
    return addition.report()
