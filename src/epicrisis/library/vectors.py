"""Passages and their vectors in a Lance table: the library's one source of truth.

Every write is one atomic Lance commit. Knows nothing of the word index nor of what was acknowledged. A handle sees the
version it was last refreshed to.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from epicrisis.errors import LibraryDamaged
from epicrisis.seams import StoredDocument, Vectors
from epicrisis.types import Passage, Scope, last_day, to_json

from .exact import Matrix, rescored
from .foreign import REPAIR, ours
from .manifest import sync_folder

if TYPE_CHECKING:
    import pyarrow as pa

TABLE = "passages"
NAME = f"{TABLE}.lance"
EXACT_LIMIT = 100_000
"""Up to this many passages are searched in memory, exactly; above, Lance scans the table."""
_OVER = 64
_READERS_TIME = timedelta(hours=1)
_SEARCHED = ["id", "document_id", "patient", "last_day", "vector"]
_PASSAGE = [
    "id", "document_id", "ordinal", "start", "end", "text", "title", "source", "date", "patient", "metadata",
    "content_sha256",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class StoredPassage:
    """A passage and the content hash of the document version it belongs to."""

    passage: Passage
    content_sha256: str


class PassageTable:
    """The Lance table of one library. Raises StorageError or LibraryDamaged whatever Lance itself raises."""

    def __init__(self, folder: Path, dimensions: int, *, create: bool = False) -> None:
        import lancedb

        self._folder = folder
        self._dimensions = dimensions
        self._matrix: Matrix | None = None
        self._synced: set[Path] = set()
        with ours(folder):
            # Its own annotations have gaps.
            database: Any = lancedb.connect(str(folder))
            if create:
                self._table = database.create_table(TABLE, schema=_schema(dimensions))
                self._sync()
            else:
                self._table = database.open_table(TABLE)

    @property
    def version(self) -> int:
        """Grows with every commit."""
        with ours(self._folder):
            return int(self._table.version)

    def refresh(self) -> None:
        """Moves on to what a writer has committed since."""
        with ours(self._folder):
            self._table.checkout_latest()

    def close(self) -> None:
        self._matrix = None

    def count(self) -> int:
        with ours(self._folder):
            return int(self._table.count_rows())

    def check(self) -> None:
        """Raises LibraryDamaged where a file of the table is missing or cut short. Reads one narrow column."""
        with ours(self._folder):
            read, said = self._table.count_rows("ordinal >= 0"), self._table.count_rows()
        if read != said:
            raise LibraryDamaged(f"{self._folder / NAME} holds {read} of its {said} passages: {REPAIR}")

    # -- writing ------------------------------------------------------------------------------------------------------

    def write(self, documents: Sequence[StoredDocument], replaced: Iterable[str]) -> None:
        """Puts all documents in with one commit; the old passages of `replaced` go with the same one."""
        old = sorted(replaced)
        rows = _rows(documents, self._dimensions)
        with ours(self._folder):
            if old:
                merge = self._table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
                merge.when_not_matched_by_source_delete(_among("document_id", old)).execute(rows)
            else:
                self._table.add(rows)
        self._sync()

    def delete(self, document_ids: Sequence[str]) -> None:
        with ours(self._folder):
            self._table.delete(_among("document_id", document_ids))
        self._sync()

    def compact(self) -> None:
        """Joins small fragments and drops old versions; a reader still has an hour to leave an old one."""
        with ours(self._folder):
            # Only the holder of the write lock comes here, so that no unverified file belongs to anyone else.
            self._table.optimize(cleanup_older_than=_READERS_TIME, delete_unverified=True)
        self._sync()

    def _sync(self) -> None:
        """Lance never calls fsync: without this the journal could outlive, in a power cut, what it acknowledges."""
        with ours(self._folder):
            for place in sorted((self._folder / NAME).glob("*/")):
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
        return self._where(_among("document_id", document_ids)) if document_ids else []

    def fetch(self, passage_ids: Sequence[str]) -> dict[str, StoredPassage]:
        """Those that are there, by id."""
        found = self._where(_among("id", passage_ids)) if passage_ids else []
        return {stored.passage.id: stored for stored in found}

    def batches(self) -> Iterator[list[StoredPassage]]:
        """All passages, piece by piece, in no order."""
        with ours(self._folder):
            for batch in self._table.search().select(_PASSAGE).to_batches(4096):
                yield [_stored(row) for row in batch.to_pylist()]

    def nearest(self, vector: Vectors, k: int, scope: Scope) -> list[tuple[str, float]]:
        """(passage id, inner product) of the k best the scope admits, best first, ties by passage id."""
        if self.count() > EXACT_LIMIT:
            return self._scan(vector, k, scope)
        version = self.version
        if self._matrix is None or self._matrix.version != version:
            with ours(self._folder):
                columns = self._table.search().select(_SEARCHED).to_arrow()
            self._matrix = Matrix.of(version, columns, self._dimensions)
        return self._matrix.nearest(vector, k, scope)

    def _scan(self, vector: Vectors, k: int, scope: Scope) -> list[tuple[str, float]]:
        """The same by Lance, also exact."""
        self._matrix = None
        limit = k + _OVER
        while True:
            with ours(self._folder):
                search = self._table.search(vector, vector_column_name="vector").distance_type("dot").limit(limit)
                search = search.where(_in_scope(scope), prefilter=True)
                found = search.select(["id", "vector", "_distance"]).to_arrow()
            half = found["vector"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
            columns = half.reshape(-1, self._dimensions).T.astype(np.float32)
            scores = rescored(columns, np.arange(found.num_rows), vector).tolist()
            ranked = sorted(zip(found["id"].to_pylist(), scores, strict=True), key=lambda pair: (-pair[1], pair[0]))
            # Lance knows no order among equals: go on until no row that was not fetched can tie with the last one.
            if len(ranked) < limit or ranked[k - 1][1] > ranked[-1][1]:
                return ranked[:k]
            limit *= 4

    def _where(self, condition: str) -> list[StoredPassage]:
        with ours(self._folder):
            rows = self._table.search().where(condition).select(_PASSAGE).to_list()
        return [_stored(row) for row in rows]


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
            pa.field("text", text, nullable=False),
            pa.field("title", text, nullable=False),
            pa.field("source", text, nullable=False),
            pa.field("date", text),
            pa.field("patient", text),
            pa.field("metadata", text, nullable=False),
            pa.field("last_day", number),
            pa.field("content_sha256", text, nullable=False),
            pa.field("vector", pa.list_(pa.float16(), dimensions), nullable=False),
        ]
    )


def _rows(documents: Sequence[StoredDocument], dimensions: int) -> pa.Table:
    import pyarrow as pa

    schema = _schema(dimensions)
    records = [_record(passage, document.content_sha256) for document in documents for passage in document.passages]
    columns = [pa.array([record[field.name] for record in records], field.type) for field in list(schema)[:-1]]
    half = np.concatenate([document.vectors for document in documents]).astype(np.float16)
    columns.append(pa.FixedSizeListArray.from_arrays(pa.array(half.ravel()), dimensions))
    return pa.Table.from_arrays(columns, schema=schema)


def _record(passage: Passage, content_sha256: str) -> dict[str, Any]:
    record = {name: getattr(passage, name) for name in _PASSAGE[:-1]}
    record["metadata"] = json.dumps(to_json(passage.metadata), sort_keys=True)
    record["last_day"] = None if passage.date is None else last_day(passage.date)
    record["content_sha256"] = content_sha256
    return record


def _stored(row: dict[str, Any]) -> StoredPassage:
    values = {name: row[name] for name in _PASSAGE[:-1]}
    values["metadata"] = json.loads(values["metadata"])
    return StoredPassage(Passage(**values), row["content_sha256"])


def _quoted(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _among(column: str, values: Sequence[str]) -> str:
    return f"{column} IN ({', '.join(map(_quoted, values))})"


def _in_scope(scope: Scope) -> str:
    conditions = [
        "patient IS NULL" if scope.patient is None else f"(patient IS NULL OR patient = {_quoted(scope.patient)})"
    ]
    if scope.as_of is not None:
        conditions.append(f"last_day <= {last_day(scope.as_of)}")
    if scope.hidden:
        conditions.append("NOT " + _among("document_id", sorted(scope.hidden)))
    return " AND ".join(conditions)
