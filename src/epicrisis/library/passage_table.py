"""Passages and their vectors in a Lance table, the library's source of truth.

Every write is one atomic Lance commit. A handle sees the version of its last refresh. Documents, vectors and scopes are
checked against the limits of the engines.
"""

from __future__ import annotations

import json
import string
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from epicrisis.dates import last_day
from epicrisis.errors import InputError, LibraryDamaged
from epicrisis.library.engine_errors import REPAIR, translate_errors
from epicrisis.library.manifest import sync_path
from epicrisis.protocols import StoredDocument, Vectors
from epicrisis.serialization import to_json
from epicrisis.types import Document, Passage, Scope, list_facets

if TYPE_CHECKING:
    import pyarrow as pa

TABLE = "passages"
NAME = f"{TABLE}.lance"
HINT = "latest_version_hint.json"
"""The only file of the table that Lance rewrites."""
CACHED_PASSAGES = 4096
"""Passages that stay in memory for the next search, about 3 KB each."""
CACHED_HASHES = 65_536
"""Content hashes that stay in memory for the next search, about 200 bytes each."""
_OLD_VERSIONS_LIFETIME = timedelta(minutes=10)
_BATCH_ROWS = 4096
_MAX_ID = 1000
_TEXT_FIELDS = ["id", "document_id", "text", "title", "source", "metadata"]
_NUMBER_FIELDS = ["ordinal", "start", "end"]
_PASSAGE_FIELDS = [*_TEXT_FIELDS, *_NUMBER_FIELDS, "date", "patient"]
_COLUMNS = [*_PASSAGE_FIELDS, "content_hash", "revision"]
_COMPRESSED = {b"lance-encoding:compression": b"zstd"}


@dataclass(frozen=True, slots=True)
class StoredPassage:
    """A passage with the content hash and the revision of its document."""

    passage: Passage
    content_hash: str
    revision: str | None = None


V = TypeVar("V")


class VersionCache(Generic[V]):
    """What was read last of the passages of one version of the table. Any read of Lance takes milliseconds."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._version = -1
        self._values: OrderedDict[str, V] = OrderedDict()

    def find(self, version: int, passage_ids: Iterable[str]) -> dict[str, V]:
        """Map the remembered passages among these ids to their values. Another version forgets all."""
        if version != self._version:
            self._version = version
            self._values.clear()
        present: dict[str, V] = {}
        for passage_id in passage_ids:
            if passage_id in self._values:
                self._values.move_to_end(passage_id)
                present[passage_id] = self._values[passage_id]
        return present

    def add(self, values: Mapping[str, V]) -> None:
        """Remember these values of the version that was named last. The least used ones are forgotten."""
        self._values.update(values)
        while len(self._values) > self._size:
            self._values.popitem(last=False)


class PassageTable:
    """The Lance table of one library. Raises StorageError or LibraryDamaged for errors of Lance."""

    def __init__(self, folder: Path, dimensions: int, *, create: bool = False) -> None:
        import lancedb

        self._folder = folder
        self._dimensions = dimensions
        self._synced: set[Path] = set()
        self._passages = VersionCache[StoredPassage](CACHED_PASSAGES)
        self._hashes = VersionCache[str](CACHED_HASHES)
        with translate_errors(folder):
            # lancedb's own annotations are incomplete.
            database: Any = lancedb.connect(str(folder))
            if create:
                self.lance = database.create_table(TABLE, schema=_schema(dimensions))
                self.sync()
            else:
                self.lance = database.open_table(TABLE)
                width = getattr(self.lance.schema.field("vector").type, "list_size", None)
                if width != dimensions:
                    raise LibraryDamaged(
                        f"{folder}: vectors have {width} dimensions, and the manifest says {dimensions}: copy the "
                        "whole folder again"
                    )

    @property
    def version(self) -> int:
        """Version number. It grows with every commit."""
        with translate_errors(self._folder):
            return int(self.lance.version)

    def refresh(self) -> None:
        """Move to the newest committed version."""
        with translate_errors(self._folder):
            self.lance.checkout_latest()

    def count(self) -> int:
        with translate_errors(self._folder):
            return int(self.lance.count_rows())

    def has_notes(self) -> bool:
        """Return whether any passage belongs to a patient's record."""
        return self._has("patient IS NOT NULL")

    def has_literature(self) -> bool:
        """Return whether any passage belongs to no patient."""
        return self._has("patient IS NULL")

    def _has(self, condition: str) -> bool:
        with translate_errors(self._folder):
            return bool(self.lance.search().where(condition).select(["patient"]).limit(1).to_list())

    def check(self) -> None:
        """Raise LibraryDamaged if a file of the table is missing or truncated. One narrow column is read."""
        with translate_errors(self._folder):
            readable, expected = self.lance.count_rows("ordinal >= 0"), self.lance.count_rows()
        if readable != expected:
            raise LibraryDamaged(f"{self._folder / NAME} holds {readable} of its {expected} passages: {REPAIR}")

    def write(self, documents: Sequence[StoredDocument], replaced: Iterable[str]) -> None:
        """Write all documents with one commit. It also removes the old passages of the `replaced` document ids."""
        old = sorted(replaced)
        rows = self._to_table(documents)
        with translate_errors(self._folder):
            if old:
                merge = self.lance.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
                merge.when_not_matched_by_source_delete(sql_in("document_id", old)).execute(rows)
            else:
                self.lance.add(rows)
        self.sync()

    def _to_table(self, documents: Sequence[StoredDocument]) -> pa.Table:
        import pyarrow as pa

        schema = _schema(self._dimensions)
        values: dict[str, list[Any]] = {name: [] for name in schema.names[:-1]}
        for document in documents:
            for passage in document.passages:
                for name in _PASSAGE_FIELDS:
                    if name != "metadata":
                        values[name].append(getattr(passage, name))
                values["metadata"].append(json.dumps(to_json(passage.metadata), sort_keys=True))
                values["last_day"].append(None if passage.date is None else last_day(passage.date))
                values["facets"].append(sorted(list_facets(passage.metadata)))
                values["content_hash"].append(bytes.fromhex(document.content_hash))
                values["revision"].append(document.revision)
        columns = [pa.array(values[field.name], field.type) for field in list(schema)[:-1]]
        vectors = np.concatenate([document.vectors for document in documents]).astype(np.float16)
        columns.append(pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), self._dimensions))
        return pa.Table.from_arrays(columns, schema=schema)

    def write_marks(self, marks: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        """Set the marks of these documents with one commit. Texts and vectors do not change."""
        import pyarrow as pa

        with translate_errors(self._folder):
            rows = self.lance.search().where(sql_in("document_id", sorted(marks))).to_arrow()
            metadata_column, facets_column = [], []
            for document_id, text in zip(rows["document_id"].to_pylist(), rows["metadata"].to_pylist(), strict=True):
                metadata = replace_marks(json.loads(text), marks[document_id])
                metadata_column.append(json.dumps(metadata, sort_keys=True))
                facets_column.append(sorted(list_facets(metadata)))
            for name, values in (("metadata", metadata_column), ("facets", facets_column)):
                index = rows.schema.get_field_index(name)
                field = rows.schema.field(name)
                rows = rows.set_column(index, field, pa.array(values, field.type))
            self.lance.merge_insert("id").when_matched_update_all().execute(rows)
        self.sync()

    def literature(self, condition: str) -> Iterator[tuple[str, dict[str, Any], str | None]]:
        """Yield (id, metadata, date) of the documents without a patient whose first passage meets the condition."""
        first_passages = f"ordinal = 0 AND patient IS NULL AND ({condition})"
        with translate_errors(self._folder):
            search = self.lance.search().where(first_passages).select(["document_id", "metadata", "date"])
            for batch in search.to_batches(_BATCH_ROWS):
                for row in batch.to_pylist():
                    yield row["document_id"], json.loads(row["metadata"]), row["date"]

    def delete(self, document_ids: Sequence[str]) -> None:
        with translate_errors(self._folder):
            self.lance.delete(sql_in("document_id", document_ids))
        self.sync()

    def compact(self) -> None:
        """Join small fragments and remove versions older than ten minutes, the time readers have to leave them."""
        with translate_errors(self._folder):
            # The caller holds the write lock, so all unverified files are its own.
            self.lance.optimize(cleanup_older_than=_OLD_VERSIONS_LIFETIME, delete_unverified=True)
        self.sync()

    def sync(self) -> None:
        """Make new files durable. Lance never calls fsync, so a power cut could lose acknowledged data."""
        with translate_errors(self._folder):
            for folder in sorted((self._folder / NAME).glob("**/")):
                new = [path for path in folder.iterdir() if path not in self._synced and path.is_file()]
                for path in (*new, folder) if new else ():
                    sync_path(path)
                # Lance rewrites only its hint, which need not be durable.
                self._synced.update(new)

    def passages_of(self, document_ids: Sequence[str]) -> list[StoredPassage]:
        """Return all passages of these documents, in no particular order."""
        return self.select(sql_in("document_id", document_ids)) if document_ids else []

    def fetch(self, passage_ids: Sequence[str]) -> dict[str, StoredPassage]:
        """Map the existing passages among these ids to their content."""
        present = self._passages.find(self.version, passage_ids)
        missing = [passage_id for passage_id in passage_ids if passage_id not in present]
        if missing:
            read = {stored.passage.id: stored for stored in self.select(_passages_condition(missing))}
            self._passages.add(read)
            present |= read
        return present

    def hashes(self, passage_ids: Sequence[str]) -> dict[str, str]:
        """Map the existing passages among these ids to the content hashes of their documents."""
        present = self._hashes.find(self.version, passage_ids)
        missing = [passage_id for passage_id in passage_ids if passage_id not in present]
        if missing:
            with translate_errors(self._folder):
                search = self.lance.search().where(_passages_condition(missing))
                rows = search.select(["id", "content_hash"]).to_list()
            read = {row["id"]: row["content_hash"].hex() for row in rows}
            self._hashes.add(read)
            present |= read
        return present

    def vectors_of(self, document_ids: Sequence[str]) -> dict[tuple[str, str], Vectors]:
        """Map (title, text) of all passages of these documents to their vectors `(d,)`."""
        if not document_ids:
            return {}
        rows = self._read_vectors(self.lance.search().where(sql_in("document_id", document_ids)))
        return {(title, text): vector for title, text, vector in rows}

    def some_vectors(self, count: int) -> list[tuple[str, str, Vectors]]:
        """Return (title, text, vector) of the first rows."""
        return self._read_vectors(self.lance.search().limit(count))

    def _read_vectors(self, search: Any) -> list[tuple[str, str, Vectors]]:
        with translate_errors(self._folder):
            rows = search.select(["title", "text", "vector"]).to_list()
        return [(row["title"], row["text"], np.asarray(row["vector"], dtype=np.float32)) for row in rows]

    def batches(self) -> Iterator[list[StoredPassage]]:
        """Yield all passages in batches, in no particular order."""
        with translate_errors(self._folder):
            for batch in self.lance.search().select(_COLUMNS).to_batches(_BATCH_ROWS):
                yield list(map(self._parse_row, batch.to_pylist()))

    def select(self, condition: str) -> list[StoredPassage]:
        """Return all passages that meet the SQL condition, in no particular order."""
        with translate_errors(self._folder):
            rows = self.lance.search().where(condition).select(_COLUMNS).to_list()
            return list(map(self._parse_row, rows))

    def _parse_row(self, row: dict[str, Any]) -> StoredPassage:
        """Return the passage of a row. Raise LibraryDamaged if a column has a value of a wrong type."""
        texts = [row[name] for name in _TEXT_FIELDS]
        numbers = [row[name] for name in _NUMBER_FIELDS]
        is_valid = set(map(type, texts)) == {str} and set(map(type, numbers)) == {int}
        is_valid = is_valid and isinstance(row["content_hash"], bytes)
        metadata = json.loads(row["metadata"]) if is_valid else None
        if not isinstance(metadata, dict):
            raise LibraryDamaged(f"{self._folder / NAME} contains an unreadable passage: {REPAIR}")
        values = {name: row[name] for name in _PASSAGE_FIELDS}
        values["metadata"] = metadata
        if values["date"] is not None:
            last_day(values["date"])
        return StoredPassage(Passage(**values), row["content_hash"].hex(), row["revision"])


def replace_marks(metadata: Mapping[str, Any], marks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the metadata with these marks instead of earlier ones."""
    new = dict(metadata)
    new.pop("marks", None)
    if marks:
        new["marks"] = list(marks)
    return new


def _passages_condition(passage_ids: Sequence[str]) -> str:
    """Return SQL for these passages. Their document ids are included because only these have an index."""
    documents = sorted({passage_id.rpartition("#")[0] for passage_id in passage_ids})
    return f"{sql_in('document_id', documents)} AND {sql_in('id', passage_ids)}"


def _schema(dimensions: int) -> pa.Schema:
    import pyarrow as pa

    text, number = pa.string(), pa.int32()
    return pa.schema(
        [
            pa.field("id", text, nullable=False),
            pa.field("document_id", text, nullable=False),
            pa.field("ordinal", number, nullable=False),
            pa.field("start", pa.int64(), nullable=False),
            pa.field("end", pa.int64(), nullable=False),
            pa.field("text", text, nullable=False, metadata=_COMPRESSED),
            pa.field("title", text, nullable=False, metadata=_COMPRESSED),
            pa.field("source", text, nullable=False),
            pa.field("date", text),
            pa.field("patient", text),
            pa.field("metadata", text, nullable=False, metadata=_COMPRESSED),
            pa.field("last_day", number),
            pa.field("facets", pa.list_(text), nullable=False),
            pa.field("content_hash", pa.binary(16), nullable=False),
            pa.field("revision", text),
            pa.field("vector", pa.list_(pa.float16(), dimensions), nullable=False),
        ]
    )


def sql_text(value: str) -> str:
    """Return the value as an SQL string literal."""
    return "'" + value.replace("'", "''") + "'"


def sql_in(column: str, values: Sequence[str]) -> str:
    """Return SQL that is true if the column has one of the values."""
    return f"{column} IN ({', '.join(map(sql_text, values))})"


def find_fault(item: Document | Passage) -> str | None:
    """Return why the item cannot be stored, or None. The reason quotes none of the content."""
    name = item.document_id if isinstance(item, Passage) else item.id
    if not name or len(name) > _MAX_ID or "\0" in name:
        return f"its id is empty, longer than {_MAX_ID} characters or holds a NUL"
    if not item.text.strip():
        return "no text"
    try:
        if item.date is not None:
            last_day(item.date)
    except ValueError:
        return "its date is not of the form YYYY, YYYY-MM or YYYY-MM-DD"
    try:
        "".join((item.id, item.text, item.title, item.source, item.patient or "")).encode()
    except UnicodeEncodeError:
        return "its text has half a surrogate pair"
    return None


def find_vector_fault(vector: Vectors, dimensions: int) -> str | None:
    """Return why a precomputed vector cannot be stored, or None."""
    if vector.shape != (dimensions,):
        return f"its vector has {vector.size} numbers, not {dimensions}: create a separate library for these"
    if not (np.abs(vector) <= np.finfo(np.float16).max).all():
        return "its vector is not finite, or too large for float16"
    return None


def check_documents(documents: Sequence[StoredDocument], dimensions: int) -> None:
    """Raise ValueError, with the document's id, unless all documents fit this library."""
    if len({document.id for document in documents}) < len(documents):
        raise ValueError("a batch contains a document twice")
    for document in documents:
        if document.vectors.shape != (len(document.passages), dimensions) or not document.passages:
            raise ValueError(
                f"{document.id!r}: {len(document.passages)} passages of dimension {dimensions} (at least one) need "
                f"vectors of that shape, got {document.vectors.shape}"
            )
        if len(document.content_hash) != 32 or not set(document.content_hash) <= set(string.hexdigits):
            raise ValueError(f"{document.id!r}: its content hash is not 32 hexadecimal digits")
        if not (np.abs(document.vectors) <= np.finfo(np.float16).max).all():
            raise ValueError(f"{document.id!r}: its vectors are not finite, or too large for float16")
        for ordinal, passage in enumerate(document.passages):
            if (passage.id, passage.document_id) != (f"{document.id}#{ordinal}", document.id):
                raise ValueError(f"{document.id!r}: passage {ordinal} has the id {passage.id!r} of another document")
            if reason := find_fault(passage):
                raise ValueError(f"{passage.id!r} cannot be stored: {reason}")


def check_scope(scope: Scope) -> None:
    """Raise InputError if `as_of` or `since` is not a date."""
    for name, date in (("as of", scope.as_of), ("since", scope.since)):
        try:
            if date is not None:
                last_day(date)
        except ValueError as error:
            raise InputError(f"{name}: {error}; write it as 2015, 2015-06 or 2015-06-30") from error
