"""Add documents to a library: read, compare with the journal, cut into passages, encode, and commit in batches.

`ingest_batches` encodes and commits. After a kill the next run skips acknowledged documents. A passage is encoded only
if its title or text is new.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np

from epicrisis.core.errors import EncoderMismatch, InputError, LibraryError
from epicrisis.core.protocols import Encoder, Vectors
from epicrisis.core.serialization import to_json
from epicrisis.core.types import Document, Origin, Scope, SplitterName
from epicrisis.corpus.base import reader_base as readers
from epicrisis.corpus.base.chunking import DEFAULT_OVERLAP
from epicrisis.corpus.base.reader_base import FileDocument, ReaderItem
from epicrisis.library.base.manifest import PRECOMPUTED, check_encoder, complete_manifest
from epicrisis.library.base.passage_table import find_fault, find_vector_fault
from epicrisis.library.base.splitters import check_chunks, check_fits_window, split_document
from epicrisis.library.core.earlier_facts import add_facts, find_unstated, has_facts, replace_facts
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.core.patients import NotesAndLiterature, read_document_patients
from epicrisis.library.write import ingest_batches
from epicrisis.library.write.document_export import restore_document

_SAME_ID_OTHER_TEXT = "same id, different text"
_PROGRESS_EVERY = 500
_GROUP_ITEMS, _GROUP_SECONDS = 500, 0.5
"""Items whose documents are looked up together, and the seconds after which a slow reader's group ends."""
_COMPARED_VECTORS = 4
_DIGITS = re.compile(r"~[0-9a-f]{8,64}$")
_MIN_DIGITS = 8
_MIN_COSINE = 0.99


def open_or_create(
    path: Path,
    encoder: Encoder,
    encoder_name: str,
    overlap: int = DEFAULT_OVERLAP,
    splitter: SplitterName | None = None,
    ready_made: bool = False,
    chunk_tokens: int | None = None,
) -> LibraryStore:
    """Open the library at `path` for writing, or create one for this encoder. An interrupted creation is repeated.

    `overlap` and `splitter` apply to a new library. `ready_made` means that documents come with vectors of an encoder
    with this name. `chunk_tokens` is the maximum length of a passage, by default the encoder's window.

    Raise EncoderMismatch for a library of another encoder, LibraryError for one with another splitter or chunk length,
    InputError for chunks longer than the encoder reads, and the errors of `LibraryStore.open` and of its `create`.
    """
    if chunk_tokens is not None:
        check_chunks(chunk_tokens, encoder, encoder_name, overlap, splitter, ready_made)
    if complete_manifest(path) is None:
        return LibraryStore.create(
            path,
            encoder_fingerprint=f"{PRECOMPUTED}{encoder_name}" if ready_made else encoder.fingerprint,
            encoder_name=encoder_name,
            dimensions=encoder.dimensions,
            max_tokens=chunk_tokens or encoder.max_tokens,
            overlap=overlap,
            splitter=splitter or ("whole" if ready_made else "tokens"),
        )
    library = LibraryStore.open(path, write=True, encoder_fingerprint=encoder.fingerprint)
    manifest = library.manifest
    fault = ""
    if splitter not in (None, manifest.splitter):
        fault = f"cuts documents by {manifest.splitter}, not by {splitter}: leave --splitter out"
    elif chunk_tokens not in (None, manifest.max_tokens):
        fault = f"has chunks of {manifest.max_tokens} tokens, not of {chunk_tokens}: leave --chunk-tokens out"
    if fault:
        library.close()
        raise LibraryError(f"{path} {fault}, or create another library")
    return library


def check_vectors(library: LibraryStore, encoder: Encoder) -> None:
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
    library: LibraryStore,
    items: Iterable[ReaderItem],
    encoder: Encoder,
    *,
    on_progress: Callable[[ingest_batches.IngestProgress], None] | None = None,
    seconds_between_commits: float = 10.0,
    passages_per_batch: int = 8192,
    replace: bool = False,
    literature: bool | None = None,
) -> ingest_batches.IngestReport:
    """Add new documents, replace changed ones, and report what was skipped and why.

    Of several documents with one id the latest revision is used, in any order; a deletion is a revision, too. Of
    documents without a revision the first is used, and other ones are skipped. A document from a file (`FromFile`)
    replaces only one of the same file (see `_FileDocumentIds`), unless `replace` is True.

    Documents are acknowledged at least every `seconds_between_commits`, estimated from the encoder's speed, unless a
    single document takes longer. Ctrl-C takes effect after the current commit. Acknowledged documents are durable.

    A library holds either patients' notes or literature. `literature=True` allows both, and questions about every
    patient then use all documents without a patient. `literature=False` skips such documents in a library of notes and
    refuses notes in a library of literature. `literature=None` allows both, and questions come with a notice.

    A library that has grown too large for SQLite moves to LanceDB, if that is installed.

    Raise EncoderMismatch, StorageError, LibraryError, InputError if one patient id may mean two people, and the
    errors of `items`.
    """
    check_encoder(library.path, library.manifest, encoder.fingerprint)
    library.prepare_statements()
    batch = ingest_batches.BatchWriter(library, encoder, on_progress, seconds_between_commits, passages_per_batch)
    reader = _ItemReader(batch, encoder, replace, literature)
    with closing(reader.first_hashes):
        for group in _group_items(items):
            reader.look_up(group)
            for item in group:
                reader.read(item)
                if batch.counts.documents % _PROGRESS_EVERY == 0:
                    batch.report_progress()
    batch.patients.record()
    batch.finish()
    reader.kinds.save()
    return batch.report()


def _group_items(items: Iterable[ReaderItem]) -> Iterator[list[ReaderItem]]:
    """Yield the items in groups. Those that were read before an error come before the error."""
    group: list[ReaderItem] = []
    started = time.monotonic()
    try:
        for item in items:
            group.append(item)
            if len(group) == _GROUP_ITEMS or time.monotonic() - started > _GROUP_SECONDS:
                yield group
                group, started = [], time.monotonic()
    except Exception:
        yield group
        raise
    yield group


class _ItemReader:
    """Reads the items of one ingestion and passes what is new to the batch."""

    def __init__(
        self, batch: ingest_batches.BatchWriter, encoder: Encoder, replace: bool, literature: bool | None
    ) -> None:
        self._batch = batch
        self._library = batch.library
        self._counts = batch.counts
        self._encoder = encoder
        self.kinds = NotesAndLiterature(batch.library, literature)
        self._file_ids = _FileDocumentIds(batch.library, batch.counts, replace)
        self._states: dict[str, _DocumentState] = {}
        self.first_hashes = _FirstHashes()
        self._stated: readers.StatedSources | None = None

    def look_up(self, items: Sequence[ReaderItem]) -> None:
        """Read the states of the documents of these items, which come next, from the library."""
        ids = []
        for item in items:
            if isinstance(item, readers.EncodedDocument | FileDocument):
                ids.append(item.document.id)
            elif isinstance(item, Document):
                ids.append(item.id)
        # The next commit changes the states of pending documents.
        self._states = _read_states(self._library, [id_ for id_ in ids if not self._batch.is_pending(id_)])

    def _read_state(self, document_id: str) -> _DocumentState:
        """Return the state of a document. Each one that was looked up serves once, as the document may be written."""
        if document_id not in self._states:
            return _read_states(self._library, [document_id])[document_id]
        return self._states.pop(document_id)

    def read(self, item: ReaderItem) -> None:
        if isinstance(item, readers.PatientIdentity):
            self._batch.patients.add(item)
            return
        self._batch.patients.record()
        if self._read_remark(item):
            return
        self._counts.documents += 1
        if isinstance(item, readers.Skipped):
            self._counts.add_skipped(item)
        elif isinstance(item, readers.DeletedDocument):
            self._read_deletion(item)
        elif isinstance(item, readers.ArticleStatement):
            self._batch.add_statement(item)
        elif isinstance(item, readers.EncodedDocument):
            self._read_document(item.document, vector=item.vector)
        elif isinstance(item, FileDocument):
            resolved = self._file_ids.resolve(item) if item.origin.name else item
            if resolved is None:
                self._counts.already_there += 1
                self._counts.unchanged += 1
            else:
                self._read_document(resolved.document, origin=resolved.origin)
        elif isinstance(item, Document):
            self._read_document(self._add_earlier_facts(item))

    def _read_remark(self, item: ReaderItem) -> bool:
        """Read what is said of files and of other items, and return whether this is such an item."""
        if isinstance(item, readers.FileFingerprint):
            self._batch.whole_files.append(item)
        elif isinstance(item, readers.FileRemark):
            self._counts.add_file_remark(item)
        elif isinstance(item, readers.StatedSources):
            self._stated = item
        else:
            return False
        return True

    def _read_deletion(self, item: readers.DeletedDocument) -> None:
        """Delete the document, unless the library has a later revision."""
        self._batch.commit_if_pending(item.id)
        self._states.pop(item.id, None)
        if item.every_version:
            self._delete_versions(item)
            return
        if not item.revision:
            earlier = self._find_earlier(item.id, item.patient)
            if self._stated is not None and earlier is not None and (rest := find_unstated(earlier, self._stated)):
                self._counts.earlier_facts += len(rest)
                self._read_document(replace_facts(earlier, rest))
                return
            # Later documents with this id do not restore it in this ingestion.
            self.first_hashes.add(item.id, "")
            patient = read_document_patients(self._library, [item.id]).get(item.id, "")
            if patient == item.patient or (item.any_patient and patient):
                self._counts.deleted += 1
                with ingest_batches.uninterrupted():
                    self._library.delete([item.id])
            return
        revision = self._library.revisions([item.id]).get(item.id)
        if revision is not None and revision > item.revision:
            self._counts.outdated += 1
            return
        self._counts.deleted += item.id in self._library.content_hashes([item.id])
        with ingest_batches.uninterrupted():
            self._library.delete([item.id], {item.id: item.revision})

    def _delete_versions(self, item: readers.DeletedDocument) -> None:
        """Delete the patient's documents that the deletion names."""
        self._batch.commit()
        record = self._library.fetch_record(Scope(patient=item.patient))
        versions = sorted({passage.document_id for passage in record if item.names(passage.document_id)})
        for version in versions:
            self._states.pop(version, None)
        self._counts.deleted += len(versions)
        with ingest_batches.uninterrupted():
            self._library.delete(versions)

    def _find_earlier(self, document_id: str, patient: str | None) -> Document | None:
        """Return the library's document with this id, if the addition states structured facts for its patient."""
        if self._stated is None or patient is None or patient != self._stated.patient:
            return None
        passages = [stored.passage for stored in self._library.open_table().passages_of([document_id])]
        return restore_document(passages) if passages else None

    def _add_earlier_facts(self, document: Document) -> Document:
        """Return a document of structured facts with those of its earlier version that the addition does not state."""
        if self._stated is None or not has_facts(document):
            return document
        state = self._states.get(document.id) or _read_states(self._library, [document.id])[document.id]
        if state.content_hash in (None, content_hash(document)):
            return document
        earlier = self._find_earlier(document.id, document.patient)
        rest = find_unstated(earlier, self._stated) if earlier is not None else []
        self._counts.earlier_facts += len(rest)
        return add_facts(document, rest) if rest else document

    def _read_document(
        self, document: Document, *, vector: Vectors | None = None, origin: Origin | None = None
    ) -> None:
        manifest = self._library.manifest
        fault = find_fault(document) or self.kinds.find_fault(document)
        if fault is None and vector is not None:
            fault = find_vector_fault(vector, manifest.dimensions)
        if fault is not None:
            self._counts.skip(document.id, fault)
            return
        digest = content_hash(document)
        first = self.first_hashes.add(document.id, digest) if document.revision is None else None
        if first not in (None, digest):
            self._counts.skip(
                document.id, _SAME_ID_OTHER_TEXT if document.patient is None else ingest_batches.SAME_ID_OTHER_NOTE
            )
            return
        if first is None:
            self._batch.commit_if_pending(document.id)
        state = self._read_state(document.id)
        revision, existing = state.revision, state.content_hash
        # A deletion wins over a version of the same revision, in any order.
        is_deleted = revision is not None and existing is None and revision == document.revision
        if is_deleted or (revision or "") > (document.revision or ""):
            self._counts.outdated += 1
        elif existing == digest or first is not None:
            self._counts.unchanged += 1
            if first is None and origin is not None:
                recorded = self._library.origins([document.id]).get(document.id)
                if self._file_ids.is_better(origin, recorded):
                    self._batch.add_origin(document.id, origin)
        elif existing is None or origin is None or self._file_ids.may_replace(document.id, origin):
            # A document with a precomputed vector is one passage.
            splitter = "whole" if vector is not None else manifest.splitter
            spans = self._encoder.token_spans
            passages = split_document(document, splitter, spans, manifest.max_tokens, manifest.overlap)
            check_fits_window(document, passages, manifest.splitter, self._encoder)
            self._counts.add_language(document.text)
            self._batch.add(ingest_batches.PendingDocument(document, digest, passages, vector, origin))


@dataclasses.dataclass(frozen=True, slots=True)
class _DocumentState:
    """What the library has of a document."""

    content_hash: str | None
    """None for a document that is not there."""
    revision: str | None
    """The revision of the document or of its deletion."""


def _read_states(library: LibraryStore, document_ids: Sequence[str]) -> dict[str, _DocumentState]:
    """Map these documents to their states, with as many queries as for one of them."""
    if not document_ids:
        return {}
    revisions, hashes = library.revisions(document_ids), library.content_hashes(document_ids)
    return {id_: _DocumentState(hashes.get(id_), revisions.get(id_)) for id_ in document_ids}


def content_hash(document: Document) -> str:
    """Return the first 32 digits of the SHA-256 of the whole document as canonical JSON."""
    canonical = json.dumps(to_json(document), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:32]


class _FirstHashes:
    """The content hash of the first document of each id in an ingestion, stored on disk when there are many.

    The file lies outside the library, and ids may name patients, so only hashes of the ids are stored.
    """

    def __init__(self) -> None:
        self._db = sqlite3.connect("", isolation_level=None)
        self._db.execute("CREATE TABLE seen(id BLOB PRIMARY KEY, content_hash TEXT NOT NULL) WITHOUT ROWID")
        self._db.execute("BEGIN")

    def add(self, document_id: str, digest: str) -> str | None:
        """Return the first hash of the id. If there is none, store this one and return None."""
        key = hashlib.sha256(document_id.encode()).digest()
        if self._db.execute("INSERT OR IGNORE INTO seen VALUES (?, ?)", (key, digest)).rowcount:
            return None
        return str(self._db.execute("SELECT content_hash FROM seen WHERE id = ?", (key,)).fetchone()[0])

    def close(self) -> None:
        self._db.close()


def _choose_shown_name(stored: str, origin: Origin) -> str:
    """Return the name of a file for its readers: the one in the library, or its own if it was renamed or moved."""
    path = Path(origin.path).as_posix()
    if path.endswith(f"/{_DIGITS.sub('', stored)}"):
        return stored
    return origin.name if path.endswith(f"/{origin.name}") else Path(path).name


class _FileDocumentIds:
    """Resolves the ids of documents from files during one ingestion: new, a version of a document, or a copy.

    A document with an id made from its file's name is replaced only by the file at the same path, or by a file with
    the same content after that path has lost it (the folder was moved). Another file with the same name gets a
    different id. A copy gets the id of the original. A document with its own id is replaced only by the same file, or
    with `replace`.
    """

    def __init__(self, library: LibraryStore, counts: ingest_batches.IngestCounts, replace: bool) -> None:
        self._library = library
        self._counts = counts
        self._replace = replace
        self._by_path: dict[str, str | None] = {}
        self._by_name: dict[str, Origin] = {}
        self._by_content: dict[str, Origin] = {}

    def resolve(self, item: FileDocument) -> FileDocument | None:
        """Return the document with the id of its file in the library, or None for a copy of a file in the library."""
        origin = item.origin
        if origin.path not in self._by_path:
            name = self._choose_name(origin)
            self._by_path[origin.path] = name
            if name is not None:
                renamed = dataclasses.replace(origin, name=name)
                self._by_name[name] = renamed
                self._by_content.setdefault(origin.sha256, renamed)
        name = self._by_path[origin.path]
        if name is None:
            return None
        document, old = item.document, origin.name
        if name != old:
            source, shown = document.source, _choose_shown_name(name, origin)
            document = dataclasses.replace(
                document,
                id=f"file:{name}{document.id.removeprefix(f'file:{old}')}",
                source=shown + source.removeprefix(old) if source.startswith(old) else source,
                # A document without its own title has the file's name as its title.
                title=Path(shown).stem if document.title == Path(old).stem else document.title,
            )
        return FileDocument(document, dataclasses.replace(origin, name=name))

    def may_replace(self, document_id: str, origin: Origin) -> bool:
        """Return whether a changed document may replace the existing one. Otherwise count it as skipped."""
        existing = self._library.origins([document_id]).get(document_id)
        if existing is None or self._replace or origin.path == existing.path:
            return True
        if origin.name and origin.sha256 == existing.sha256:
            return True
        other = readers.printable_path(Path(existing.path).name)
        self._counts.skip(
            document_id,
            f"same id as a document of another file ({other}), but another text: pass --replace to replace it, or give "
            "this document its own id",
        )
        return False

    def is_better(self, origin: Origin, existing: Origin | None) -> bool:
        """Return whether `origin` should replace the recorded file of an unchanged document."""
        if existing is None or origin.name or origin.path == existing.path:
            return origin != existing
        return not Path(existing.path).is_file()

    def _choose_name(self, origin: Origin) -> str | None:
        """Return the name of the file in the library, or None for a copy."""
        at_path = self._library.find_origin(path=origin.path)
        if at_path is not None and at_path.name not in self._by_name:
            return at_path.name
        same = self._by_content.get(origin.sha256)
        if same is None:
            stored = self._library.find_origin(sha256=origin.sha256)
            # Another file of this ingestion may have taken the name, with its document not yet committed.
            same = stored if stored is not None and stored.name not in self._by_name else None
        if same is not None:
            path = Path(same.path)
            try:
                still_exists = path.is_file() and readers.fingerprint_file(path).sha256 == same.sha256
            except (InputError, OSError):
                still_exists = True
            if not still_exists:
                return same.name
            self._counts.add_remark(f"{readers.printable_path(origin.path)}: already there as file:{same.name}")
            return None
        if not self._is_taken(origin.name):
            return origin.name
        digits = _MIN_DIGITS
        while self._is_taken(name := f"{origin.name}~{origin.sha256[:digits]}"):
            digits += 1
        self._counts.add_remark(
            f"{readers.printable_path(origin.path)}: file:{origin.name} is another file, so this one is file:{name}; "
            "if it is a new version of that file, delete this one and add it with --replace"
        )
        return name

    def _is_taken(self, name: str) -> bool:
        """Return whether another file, or a document of a file with many documents, has this name.

        A document without a recorded file is assumed to be from this file.
        """
        if name in self._by_name:
            return True
        id_ = f"file:{name}"
        exists = id_ in self._library.content_hashes([id_])
        return exists and not self._replace and id_ in self._library.origins([id_])
