"""Passages and vectors of a large library, in a Lance table. Needs the extra `large`.

A handle sees the version of its last refresh. This module can be imported without LanceDB; `LanceTable` needs it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from epicrisis.core.errors import LibraryDamaged, LibraryError
from epicrisis.core.types import RETRACTION_FACETS, Passage
from epicrisis.library.base.engine_errors import REPAIR, translate_errors
from epicrisis.library.base.manifest import sync_path
from epicrisis.library.base.passage_table import (
    BATCH_ROWS,
    Columns,
    PassageTable,
    sql_in,
    sql_text,
)

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

TABLE = "passages"
NAME = f"{TABLE}.lance"
HINT = "latest_version_hint.json"
"""The only file of the table that Lance rewrites."""
CACHED_PASSAGES = 4096
"""Passages that stay in memory for the next search, about 3 KB each."""
CACHED_HASHES = 65_536
"""Content hashes that stay in memory for the next search, about 200 bytes each."""
INSTALL = "pip install 'epicrisis[large]'"
_OLD_VERSIONS_LIFETIME = timedelta(minutes=10)
_COMPRESSED = {b"lance-encoding:compression": b"zstd"}

V = TypeVar("V")


def has_lance() -> bool:
    """Return whether the extra `large` is installed."""
    return find_spec("lancedb") is not None and find_spec("pyarrow") is not None


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


class LanceTable(PassageTable):
    """The passages of a large library. Raises LibraryError without the extra `large`."""

    name = NAME

    def __init__(self, folder: Path, dimensions: int, *, create: bool = False) -> None:
        super().__init__(folder, dimensions)
        if not has_lance():
            raise LibraryError(f"{folder} is a large library, and these need LanceDB: {INSTALL}")
        import lancedb

        self._synced: set[Path] = set()
        self._passages = VersionCache[Passage](CACHED_PASSAGES)
        self._hashes = VersionCache[str](CACHED_HASHES)
        self._retracted: tuple[int, frozenset[str]] = (-1, frozenset())
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
        with translate_errors(self._folder):
            return int(self.lance.version)

    def refresh(self) -> None:
        with translate_errors(self._folder):
            self.lance.checkout_latest()

    def count(self, condition: str = "") -> int:
        with translate_errors(self._folder):
            return int(self.lance.count_rows(condition or None))

    def check(self) -> None:
        """Raise LibraryDamaged if a file of the table is missing or truncated. One narrow column is read."""
        readable, expected = self.count("ordinal >= 0"), self.count()
        if readable != expected:
            raise LibraryDamaged(f"{self._folder / NAME} holds {readable} of its {expected} passages: {REPAIR}")

    def read_columns(self, names: Sequence[str], condition: str = "", limit: int | None = None) -> Iterator[Columns]:
        with translate_errors(self._folder):
            search = self.lance.search().select(list(names))
            if condition:
                search = search.where(condition)
            if limit is not None:
                search = search.limit(limit)
            for batch in search.to_batches(BATCH_ROWS):
                columns: Columns = {}
                for name in names:
                    columns[name] = self.read_vectors(batch[name]) if name == "vector" else batch[name].to_pylist()
                yield columns

    def read_vectors(self, column: pa.Array) -> npt.NDArray[np.float16]:
        """Return the vectors of an Arrow column as an array `(n, d)`."""
        import numpy as np

        flat = column.flatten().to_numpy(zero_copy_only=False)
        return np.asarray(flat.reshape(-1, self.dimensions))

    def facet_condition(self, names: Iterable[str]) -> str:
        return f"array_has_any(facets, [{', '.join(map(sql_text, sorted(names)))}])"

    def append(self, columns: Columns, replaced: Sequence[str] = ()) -> None:
        rows = self._to_arrow(columns)
        with translate_errors(self._folder):
            if replaced:
                merge = self.lance.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
                merge.when_not_matched_by_source_delete(sql_in("document_id", replaced)).execute(rows)
            else:
                self.lance.add(rows)
        self.sync()

    def update(self, columns: Columns) -> None:
        rows = self._to_arrow(columns)
        with translate_errors(self._folder):
            self.lance.merge_insert("id").when_matched_update_all().execute(rows)
        self.sync()

    def _to_arrow(self, columns: Columns) -> pa.Table:
        import pyarrow as pa

        schema = _schema(self.dimensions)
        arrays = [pa.array(columns[field.name], field.type) for field in list(schema)[:-1]]
        arrays.append(pa.FixedSizeListArray.from_arrays(pa.array(columns["vector"].ravel()), self.dimensions))
        return pa.Table.from_arrays(arrays, schema=schema)

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

    def rewrite(self) -> None:
        with translate_errors(self._folder):
            import lancedb

            rows = self.lance.search().to_batches(BATCH_ROWS)
            lancedb.connect(str(self._folder)).create_table(
                TABLE, data=rows, schema=_schema(self.dimensions), mode="overwrite"
            )
            self.lance.checkout_latest()
            # Without the shortest time Lance warns that readers of earlier versions fail.
            self.lance.optimize(cleanup_older_than=timedelta(milliseconds=1), delete_unverified=True)
        self.sync()

    def purge(self) -> None:
        """Do nothing: a compaction removes the files of old versions ten minutes after they were replaced."""

    def close(self) -> None:
        """Do nothing: Lance opens its files for each read."""

    def sync(self) -> None:
        """Make new files durable. Lance never calls fsync, so a power cut could lose acknowledged data."""
        with translate_errors(self._folder):
            for folder in sorted((self._folder / NAME).glob("**/")):
                new = [path for path in folder.iterdir() if path not in self._synced and path.is_file()]
                for path in (*new, folder) if new else ():
                    sync_path(path)
                # Lance rewrites only its hint, which need not be durable.
                self._synced.update(new)

    def fetch(self, passage_ids: Sequence[str]) -> dict[str, Passage]:
        present = self._passages.find(self.version, passage_ids)
        others = super().fetch([passage_id for passage_id in passage_ids if passage_id not in present])
        self._passages.add(others)
        return present | others

    def hashes(self, passage_ids: Sequence[str]) -> dict[str, str]:
        present = self._hashes.find(self.version, passage_ids)
        others = super().hashes([passage_id for passage_id in passage_ids if passage_id not in present])
        self._hashes.add(others)
        return present | others

    def find_retracted(self, passage_ids: Sequence[str]) -> frozenset[str]:
        version = self.version
        if self._retracted[0] != version:
            # One passage in a thousand: all of a version are read at once and stay in memory.
            rows = self.rows(["id"], self.facet_condition(RETRACTION_FACETS))
            self._retracted = version, frozenset(row["id"] for row in rows)
        return self._retracted[1].intersection(passage_ids)


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
