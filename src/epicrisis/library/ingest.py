"""Add documents to a library: read, compare with the journal, cut into passages, encode, and commit in batches.

`ingest_reading` holds the first three stages, `ingest_encoding` the fourth and `ingest_batches` the last. After a kill
the next run skips acknowledged documents. A passage is encoded only if its title or text is new.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path

import numpy as np

from epicrisis.corpus.reader_base import ReaderItem
from epicrisis.errors import EncoderMismatch, LibraryError
from epicrisis.library.ingest_batches import BatchWriter
from epicrisis.library.ingest_encoding import PassageEncoder
from epicrisis.library.ingest_patients import PatientRegistration
from epicrisis.library.ingest_reading import ItemReader
from epicrisis.library.ingest_report import IngestCounts, IngestProgress, IngestReport
from epicrisis.library.library import Library
from epicrisis.library.manifest import PRECOMPUTED, check_encoder, complete_manifest
from epicrisis.library.splitters import check_chunks
from epicrisis.protocols import Encoder
from epicrisis.types import SplitterName

DEFAULT_OVERLAP = 32
"""Default maximum of tokens shared by adjacent passages of a new library."""
_PROGRESS_EVERY = 500
_COMPARED_VECTORS = 4
_MIN_COSINE = 0.99


def open_or_create(
    path: Path,
    encoder: Encoder,
    encoder_name: str,
    overlap: int = DEFAULT_OVERLAP,
    splitter: SplitterName | None = None,
    ready_made: bool = False,
    chunk_tokens: int | None = None,
) -> Library:
    """Open the library at `path` for writing, or create one for this encoder. An interrupted creation is repeated.

    `overlap` and `splitter` apply to a new library. `ready_made` means that documents come with vectors of an encoder
    with this name. `chunk_tokens` is the maximum length of a passage, by default the encoder's window.

    Raise EncoderMismatch for a library of another encoder, LibraryError for one with another splitter or chunk length,
    InputError for chunks longer than the encoder reads, and the errors of `Library.open` and `Library.create`.
    """
    if chunk_tokens is not None:
        check_chunks(chunk_tokens, encoder, encoder_name, overlap, splitter, ready_made)
    if complete_manifest(path) is None:
        return Library.create(
            path,
            encoder_fingerprint=f"{PRECOMPUTED}{encoder_name}" if ready_made else encoder.fingerprint,
            encoder_name=encoder_name,
            dimensions=encoder.dimensions,
            max_tokens=chunk_tokens or encoder.max_tokens,
            overlap=overlap,
            splitter=splitter or ("whole" if ready_made else "tokens"),
        )
    library = Library.open(path, write=True, encoder_fingerprint=encoder.fingerprint)
    manifest = library.manifest
    if splitter not in (None, manifest.splitter):
        library.close()
        raise LibraryError(
            f"{path} cuts documents by {manifest.splitter}, not by {splitter}: leave --splitter out, or create another "
            "library"
        )
    if chunk_tokens not in (None, manifest.max_tokens):
        library.close()
        raise LibraryError(
            f"{path} has chunks of {manifest.max_tokens} tokens, not of {chunk_tokens}: leave --chunk-tokens out, or "
            "create another library"
        )
    return library


def check_vectors(library: Library, encoder: Encoder) -> None:
    """Encode a few passages of a library with precomputed vectors, and compare the vectors.

    Raise EncoderMismatch if they differ by more than rounding (cosine below 0.99).
    """
    if not library.manifest.encoder_fingerprint.startswith(PRECOMPUTED):
        return
    for title, text, vector in library.open_table().some_vectors(_COMPARED_VECTORS):
        encoded = encoder.encode_passages([(title, text)])[0]
        min_product = _MIN_COSINE * np.linalg.norm(encoded) * np.linalg.norm(vector)
        if encoded.shape != vector.shape or encoded @ vector < min_product:
            raise EncoderMismatch(
                f"{library.path} holds vectors of another encoder: select their encoder with --encoder"
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
    """Add new documents, replace changed ones, and report what was skipped and why.

    Of several documents with one id the latest revision is used, in any order; a deletion is a revision, too. Of
    documents without a revision the first is used, and other ones are skipped. A document from a file (`FromFile`)
    replaces only one of the same file (see `document_ids`), unless `replace` is True.

    Documents are acknowledged at least every `seconds_between_commits`, estimated from the encoder's speed, unless a
    single document takes longer. Ctrl-C takes effect after the current commit. Acknowledged documents are durable.

    A library holds either patients' notes or literature. `literature=True` allows both, and questions about every
    patient then use all documents without a patient. `literature=False` skips such documents in a library of notes and
    refuses notes in a library of literature. `literature=None` allows both, and questions come with a notice.

    Raise EncoderMismatch, StorageError, LibraryError, InputError if one patient id may mean two people, and the
    errors of `items`.
    """
    check_encoder(library.path, library.manifest, encoder.fingerprint)
    library.prepare_statements()
    counts, patients = IngestCounts(), PatientRegistration(library)
    passage_encoder = PassageEncoder(encoder, library.manifest)
    batch = BatchWriter(
        library, passage_encoder, patients, counts, on_progress, seconds_between_commits, passages_per_batch
    )
    reader = ItemReader(library, encoder, batch, patients, counts, replace=replace, literature=literature)
    with closing(reader):
        for item in items:
            reader.read(item)
            if counts.documents % _PROGRESS_EVERY == 0:
                batch.report_progress()
    patients.record()
    batch.finish()
    reader.record_kinds()
    return batch.report()
