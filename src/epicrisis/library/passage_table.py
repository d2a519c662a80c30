"""Passages and their vectors in a Lance table: the library's one source of truth.

Every write is one atomic Lance commit. Knows nothing of the word index nor of what was acknowledged, and of how vectors
are searched. A handle sees the version it was last refreshed to.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from epicrisis.dates import last_day
from epicrisis.errors import LibraryDamaged
from epicrisis.library.engine_errors import REPAIR, ours
from epicrisis.library.manifest import sync_folder
from epicrisis.library.retraction_statements import with_marks
from epicrisis.protocols import StoredDocument, Vectors
from epicrisis.serialization import to_json
from epicrisis.types import Passage, list_facets

if TYPE_CHECKING:
    import pyarrow as pa

TABLE = "passages"
NAME = f"{TABLE}.lance"
HINT = "latest_version_hint.json"
"""The one file of the table that Lance rewrites."""
_READERS_TIME = timedelta(minutes=10)
_PASSAGE = [
    "id",
    "document_id",
    "ordinal",
    "start",
    "end",
    "text",
    "title",
    "source",
    "date",
    "patient",
    "metadata",
    "content_hash",
    "revision",
]
_PACKED = {b"lance-encoding:compression": b"zstd"}


@dataclass(frozen=True, slots=True)
class StoredPassage:
    """A passage, with the content hash and the revision of the document version it belongs to."""

    passage: Passage
    content_hash: str
    revision: str | None = None


def stored_passages(documents: Sequence[StoredDocument]) -> list[StoredPassage]:
    """All passages of these documents, as the table will hold them."""
    return [
        StoredPassage(passage, document.content_hash, document.revision)
        for document in documents
        for passage in document.passages
    ]


class PassageTable:
    """The Lance table of one library. Raises StorageError or LibraryDamaged whatever Lance itself raises."""

    def __init__(self, folder: Path, dimensions: int, *, create: bool = False) -> None:
        import lancedb

        self._folder = folder
        self._dimensions = dimensions
        self._synced: set[Path] = set()
        with ours(folder):
            # Its own annotations have gaps.
            database: Any = lancedb.connect(str(folder))
            if create:
                self.lance = database.create_table(TABLE, schema=_schema(dimensions))
                self.sync()
            else:
                self.lance = database.open_table(TABLE)
                self._check_width()

    def _check_width(self) -> None:
        """Raise LibraryDamaged where the vectors are of another dimension than the manifest says."""
        column = self.lance.schema.field("vector").type
        width = getattr(column, "list_size", None)
        if width != self._dimensions:
            raise LibraryDamaged(
                f"{self._folder}: vectors have {width} dimensions, the manifest says {self._dimensions}: copy the "
                "whole folder again"
            )

    @property
    def version(self) -> int:
        """Grows with every commit."""
        with ours(self._folder):
            return int(self.lance.version)

    def refresh(self) -> None:
        """Moves on to what a writer has committed since."""
        with ours(self._folder):
            self.lance.checkout_latest()

    def count(self) -> int:
        with ours(self._folder):
            return int(self.lance.count_rows())

    def has_notes(self) -> bool:
        """Return whether a passage is of a patient's record."""
        return self._has("patient IS NOT NULL")

    def has_literature(self) -> bool:
        """Return whether a passage is of no patient."""
        return self._has("patient IS NULL")

    def _has(self, condition: str) -> bool:
        with ours(self._folder):
            return bool(self.lance.search().where(condition).select(["patient"]).limit(1).to_list())

    def check(self) -> None:
        """Raises LibraryDamaged where a file of the table is missing or cut short. Reads one narrow column."""
        with ours(self._folder):
            read, said = self.lance.count_rows("ordinal >= 0"), self.lance.count_rows()
        if read != said:
            raise LibraryDamaged(f"{self._folder / NAME} holds {read} of its {said} passages: {REPAIR}")

    # -- writing ------------------------------------------------------------------------------------------------------

    def write(self, documents: Sequence[StoredDocument], replaced: Iterable[str]) -> None:
        """Puts all documents in with one commit; the old passages of `replaced` go with the same one."""
        old = sorted(replaced)
        rows = _rows(documents, self._dimensions)
        with ours(self._folder):
            if old:
                merge = self.lance.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
                merge.when_not_matched_by_source_delete(among("document_id", old)).execute(rows)
            else:
                self.lance.add(rows)
        self.sync()

    def remark(self, marks: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        """Give these documents these marks with one commit; texts and vectors stay as they are."""
        import pyarrow as pa

        with ours(self._folder):
            rows = self.lance.search().where(among("document_id", sorted(marks))).to_arrow()
            kept = zip(rows["document_id"].to_pylist(), rows["metadata"].to_pylist(), strict=True)
            metadata = [with_marks(json.loads(told), marks[document_id]) for document_id, told in kept]
            columns = {
                "metadata": [json.dumps(each, sort_keys=True) for each in metadata],
                "facets": [sorted(list_facets(each)) for each in metadata],
            }
            for name, values in columns.items():
                place = rows.schema.get_field_index(name)
                rows = rows.set_column(place, rows.schema.field(name), pa.array(values, rows.schema.field(name).type))
            self.lance.merge_insert("id").when_matched_update_all().execute(rows)
        self.sync()

    def known_by(self, condition: str) -> Iterator[tuple[str, dict[str, Any], str | None]]:
        """Yield id, metadata and date of the documents of the literature whose rows meet the condition."""
        literature = f"ordinal = 0 AND patient IS NULL AND ({condition})"
        with ours(self._folder):
            search = self.lance.search().where(literature).select(["document_id", "metadata", "date"])
            for batch in search.to_batches(4096):
                for row in batch.to_pylist():
                    yield row["document_id"], json.loads(row["metadata"]), row["date"]

    def delete(self, document_ids: Sequence[str]) -> None:
        with ours(self._folder):
            self.lance.delete(among("document_id", document_ids))
        self.sync()

    def compact(self) -> None:
        """Joins small fragments and drops old versions; a reader still has ten minutes to leave an old one."""
        with ours(self._folder):
            # Only the holder of the write lock comes here, so that no unverified file belongs to anyone else.
            self.lance.optimize(cleanup_older_than=_READERS_TIME, delete_unverified=True)
        self.sync()

    def sync(self) -> None:
        """Lance never calls fsync: without this the journal could outlive, in a power cut, what it acknowledges."""
        with ours(self._folder):
            for place in sorted((self._folder / NAME).glob("**/")):
                new = [path for path in place.iterdir() if path not in self._synced and path.is_file()]
                for path in new:
                    handle = os.open(path, os.O_RDONLY)
                    try:
                        os.fsync(handle)
                    finally:
                        os.close(handle)
                if new:
                    sync_folder(place)
                # The hint is the one file that Lance rewrites; it is only a hint.
                self._synced.update(new)

    # -- reading ------------------------------------------------------------------------------------------------------

    def passages_of(self, document_ids: Sequence[str]) -> list[StoredPassage]:
        """All passages of these documents, in no order."""
        return self._where(among("document_id", document_ids)) if document_ids else []

    def of_patient(self, patient: str) -> list[StoredPassage]:
        """All passages of the patient's record, in no order."""
        return self._where(among("patient", [patient]))

    def fetch(self, passage_ids: Sequence[str]) -> dict[str, StoredPassage]:
        """Those that are there, by id."""
        found = self._where(_these(passage_ids)) if passage_ids else []
        return {stored.passage.id: stored for stored in found}

    def hashes(self, passage_ids: Sequence[str]) -> dict[str, str]:
        """The content hash of those that are there, by id: whether a passage is still the one that is meant."""
        if not passage_ids:
            return {}
        with ours(self._folder):
            rows = self.lance.search().where(_these(passage_ids)).select(["id", "content_hash"]).to_list()
        return {row["id"]: row["content_hash"].hex() for row in rows}

    def vectors_of(self, document_ids: Sequence[str]) -> dict[tuple[str, str], Vectors]:
        """(title, text) -> vector `(d,)` of all passages of these documents."""
        if not document_ids:
            return {}
        rows = self._with_vectors(self.lance.search().where(among("document_id", document_ids)))
        return {(title, text): vector for title, text, vector in rows}

    def some_vectors(self, count: int) -> list[tuple[str, str, Vectors]]:
        """(title, text, vector) of the first rows."""
        return self._with_vectors(self.lance.search().limit(count))

    def _with_vectors(self, search: Any) -> list[tuple[str, str, Vectors]]:
        with ours(self._folder):
            rows = search.select(["title", "text", "vector"]).to_list()
        return [(row["title"], row["text"], np.asarray(row["vector"], dtype=np.float32)) for row in rows]

    def batches(self) -> Iterator[list[StoredPassage]]:
        """All passages, piece by piece, in no order."""
        with ours(self._folder):
            for batch in self.lance.search().select(_PASSAGE).to_batches(4096):
                yield [self._stored(row) for row in batch.to_pylist()]

    def _where(self, condition: str) -> list[StoredPassage]:
        with ours(self._folder):
            rows = self.lance.search().where(condition).select(_PASSAGE).to_list()
            return [self._stored(row) for row in rows]

    def _stored(self, row: dict[str, Any]) -> StoredPassage:
        """Return the passage of a row. Raises LibraryDamaged where a column holds what was never written there."""
        texts = ("id", "document_id", "text", "title", "source")
        numbers = ("ordinal", "start", "end")
        whole = all(isinstance(row[name], str) for name in texts) and all(type(row[name]) is int for name in numbers)
        whole = whole and isinstance(row["content_hash"], bytes) and isinstance(row["metadata"], str)
        metadata = json.loads(row["metadata"]) if whole else None
        if not isinstance(metadata, dict):
            raise LibraryDamaged(f"{self._folder / NAME} holds a passage that cannot be read: {REPAIR}")
        values = {name: row[name] for name in _PASSAGE[:-2]}
        values["metadata"] = metadata
        if values["date"] is not None:
            last_day(values["date"])
        return StoredPassage(Passage(**values), row["content_hash"].hex(), row["revision"])


def _these(passage_ids: Sequence[str]) -> str:
    """SQL for these passages. The index is on the documents: a passage's id begins with its document's."""
    documents = sorted({passage_id.rpartition("#")[0] for passage_id in passage_ids})
    return f"{among('document_id', documents)} AND {among('id', passage_ids)}"


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
            pa.field("text", text, nullable=False, metadata=_PACKED),
            pa.field("title", text, nullable=False, metadata=_PACKED),
            pa.field("source", text, nullable=False),
            pa.field("date", text),
            pa.field("patient", text),
            pa.field("metadata", text, nullable=False, metadata=_PACKED),
            pa.field("last_day", number),
            pa.field("facets", pa.list_(text), nullable=False),
            pa.field("content_hash", pa.binary(16), nullable=False),
            pa.field("revision", text),
            pa.field("vector", pa.list_(pa.float16(), dimensions), nullable=False),
        ]
    )


def _rows(documents: Sequence[StoredDocument], dimensions: int) -> pa.Table:
    import pyarrow as pa

    schema = _schema(dimensions)
    records = [_record(passage, document) for document in documents for passage in document.passages]
    columns = [pa.array([record[field.name] for record in records], field.type) for field in list(schema)[:-1]]
    half = np.concatenate([document.vectors for document in documents]).astype(np.float16)
    columns.append(pa.FixedSizeListArray.from_arrays(pa.array(half.ravel()), dimensions))
    return pa.Table.from_arrays(columns, schema=schema)


def _record(passage: Passage, document: StoredDocument) -> dict[str, Any]:
    record = {name: getattr(passage, name) for name in _PASSAGE[:-2]}
    record["metadata"] = json.dumps(to_json(passage.metadata), sort_keys=True)
    record["last_day"] = None if passage.date is None else last_day(passage.date)
    record["facets"] = sorted(list_facets(passage.metadata))
    record["content_hash"], record["revision"] = bytes.fromhex(document.content_hash), document.revision
    return record


def quoted(value: str) -> str:
    """The value as SQL."""
    return "'" + value.replace("'", "''") + "'"


def among(column: str, values: Sequence[str]) -> str:
    """SQL that is true where the column has one of the values."""
    return f"{column} IN ({', '.join(map(quoted, values))})"
