"""Passages by their vectors: in memory, by an index, or by a scan, under every scope.

Knows the rows of the table and nothing of texts. Does not judge the index: it is told how to probe it, or not to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from epicrisis.dates import first_day, last_day
from epicrisis.library.engine_errors import ours
from epicrisis.library.exact_search import Matrix, rescored
from epicrisis.library.passage_table import PassageTable, among, quoted
from epicrisis.protocols import Vectors
from epicrisis.types import RETRACTION_FACETS, Scope

if TYPE_CHECKING:
    import pyarrow as pa

EXACT_LIMIT = 100_000
"""Up to this many passages are searched in memory, exactly; above, by an index or by a scan of the table."""
FEW = 0.02
"""Where a scope admits a smaller share of the passages than this, or EXACT_LIMIT of them, these are scanned."""
_OVER = 64
_INDEX_OVER = 16
_SEARCHED = ["id", "document_id", "patient", "facets", "last_day", "vector"]


@dataclass(frozen=True, slots=True)
class IndexSearchParameters:
    """How the vector index is searched: `probes` of its partitions, `refine` times as many vectors looked at again."""

    probes: int
    refine: int


class Neighbours:
    """Search by vector over the table of one library. Raises StorageError or LibraryDamaged for Lance's own errors."""

    def __init__(self, folder: Path, table: PassageTable, dimensions: int) -> None:
        self._folder = folder
        self._table = table
        self._lance = table.lance
        self._dimensions = dimensions
        self._matrix: Matrix | None = None
        self._counts: tuple[int, dict[str, int]] = (-1, {})

    def close(self) -> None:
        """Frees the memory."""
        self._matrix = None

    def nearest(
        self, vector: Vectors, k: int, scope: Scope, probing: IndexSearchParameters | None
    ) -> list[tuple[str, float]]:
        """(passage id, inner product) of the k best the scope admits, best first, ties by passage id.

        Exact, but where `probing` is given and the scope admits many passages of a large table.
        """
        rows = self._table.count()
        if rows <= EXACT_LIMIT:
            return self._by_matrix(vector, k, scope)
        self._matrix = None
        condition = self._condition(scope)
        share = self._passing(condition) / rows
        if probing is None or share * rows <= EXACT_LIMIT or share < FEW:
            return self.scan(vector, k, condition)
        return self.approximate(vector, k, condition, share, probing)

    def _by_matrix(self, vector: Vectors, k: int, scope: Scope) -> list[tuple[str, float]]:
        version = self._table.version
        if self._matrix is None or self._matrix.version != version:
            with ours(self._folder):
                columns = self._lance.search().select(_SEARCHED).to_arrow()
            self._matrix = Matrix.of(version, columns, self._dimensions)
        return self._matrix.nearest(vector, k, scope)

    def approximate(
        self, vector: Vectors, k: int, condition: str, share: float, probing: IndexSearchParameters
    ) -> list[tuple[str, float]]:
        """The same by the index, not exact. A scope that admits a `share` of the rows probes the more partitions."""
        probes = ceil(probing.probes / share)
        return self._nearest_by(
            lambda search: search.nprobes(probes).refine_factor(probing.refine), vector, k, _INDEX_OVER, condition
        )

    def scan(self, vector: Vectors, k: int, condition: str) -> list[tuple[str, float]]:
        """The same by reading every row that the condition admits; exact."""
        return self._nearest_by(lambda search: search.bypass_vector_index(), vector, k, _OVER, condition)

    def _nearest_by(
        self, way: Callable[[Any], Any], vector: Vectors, k: int, over: int, condition: str
    ) -> list[tuple[str, float]]:
        limit = k + over
        while True:
            with ours(self._folder):
                found = way(self._search(vector, limit, condition)).to_arrow()
            ranked = self._ranked(found, vector)
            # Lance knows no order among equals: go on until no row that was not fetched can tie with the last one.
            if len(ranked) < limit or ranked[k - 1][1] > ranked[-1][1]:
                return ranked[:k]
            limit *= 4

    def _search(self, vector: Vectors, limit: int, condition: str) -> Any:
        search = self._lance.search(vector, vector_column_name="vector").distance_type("dot").limit(limit)
        if condition:
            search = search.where(condition, prefilter=True)
        return search.select(["id", "vector", "_distance"])

    def _ranked(self, found: pa.Table, vector: Vectors) -> list[tuple[str, float]]:
        columns = self._matrix_of(found).T.astype(np.float32)
        scores = rescored(columns, np.arange(found.num_rows), vector).tolist()
        return sorted(zip(found["id"].to_pylist(), scores, strict=True), key=lambda pair: (-pair[1], pair[0]))

    def _matrix_of(self, rows: pa.Table) -> npt.NDArray[np.float16]:
        half = rows["vector"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
        return np.asarray(half.reshape(-1, self._dimensions))

    def _condition(self, scope: Scope) -> str:
        """SQL for what the scope admits; empty for everything."""
        return in_scope(scope, patients=self.any_patients())

    def any_patients(self) -> bool:
        """True when some passage of this version of the table is of a patient's record."""
        return self._passing("patient IS NOT NULL") > 0

    def _passing(self, condition: str) -> int:
        """Rows that meet the condition, remembered for this version of the table."""
        version = self._table.version
        if self._counts[0] != version:
            self._counts = (version, {})
        counts = self._counts[1]
        if condition not in counts:
            with ours(self._folder):
                counts[condition] = int(self._lance.count_rows(condition or None))
        return counts[condition]

    # -- the vector index ---------------------------------------------------------------------------------------------

    @property
    def indexed(self) -> bool:
        """True when there is a vector index, whatever its quality."""
        with ours(self._folder):
            return any(index.columns == ["vector"] for index in self._lance.list_indices())

    def unindexed(self) -> int:
        """Rows that the vector index does not hold yet; they are scanned beside it. All where there is none."""
        with ours(self._folder):
            names = [index.name for index in self._lance.list_indices() if index.columns == ["vector"]]
            statistics = self._lance.index_stats(names[0]) if names else None
        return self._table.count() if statistics is None else int(statistics.num_unindexed_rows)

    def build_index(self, partitions: int) -> None:
        """A new vector index in the place of the old one (IVF, RaBitQ codes of one bit a dimension, inner product).

        Such codes need a multiple of eight dimensions; other vectors are indexed whole.
        """
        from lancedb.index import IvfFlat, IvfRq

        kind = IvfFlat if self._dimensions % 8 else IvfRq
        with ours(self._folder):
            self._lance.create_index("vector", config=kind(distance_type="dot", num_partitions=partitions))
        self._table.sync()

    def build_filters(self) -> None:
        """Indexes for the columns that filters and fetches look at, where they are not there yet."""
        from lancedb.index import Bitmap, BTree, LabelList

        with ours(self._folder):
            there = {index.columns[0] for index in self._lance.list_indices()}
            for column, kind in (
                ("document_id", BTree),
                ("last_day", BTree),
                ("facets", LabelList),
                ("patient", Bitmap),
            ):
                if column not in there:
                    self._lance.create_index(column, config=kind())
        self._table.sync()

    def rows_at(self, offsets: Sequence[int]) -> tuple[list[str], Vectors]:
        """Passage ids and vectors `(n, d)` of these rows, 0 to count() - 1."""
        with ours(self._folder):
            rows = self._lance.take_offsets(list(offsets)).select(["id", "vector"]).to_arrow()
        return rows["id"].to_pylist(), self._matrix_of(rows).astype(np.float32)

    def newest(self, share: float) -> int | None:
        """The day since which about that share of the dated passages are; `None` where fewer than half are dated."""
        import pyarrow.compute as pc

        with ours(self._folder):
            days = self._lance.search().select(["last_day"]).to_arrow()["last_day"]
        if days.null_count * 2 > len(days):
            return None
        return int(pc.quantile(days, 1 - share, interpolation="lower")[0].as_py())

    def blocks(self) -> Iterator[tuple[list[str], npt.NDArray[np.int32], Vectors]]:
        """All rows piece by piece: ids, last days (0 for none) and vectors `(n, d)`."""
        import pyarrow as pa

        with ours(self._folder):
            for batch in self._lance.search().select(["id", "last_day", "vector"]).to_batches(8192):
                rows = pa.Table.from_batches([batch])
                days = rows["last_day"].fill_null(0).to_numpy()
                yield rows["id"].to_pylist(), days, self._matrix_of(rows).astype(np.float32)


def in_scope(scope: Scope, patients: bool) -> str:
    """SQL for what the scope admits. `patients`: whether any passage is of a patient's record."""
    conditions = []
    if patients:
        own = "" if scope.patient is None else f" OR patient = {quoted(scope.patient)}"
        conditions.append(f"(patient IS NULL{own})")
    if scope.as_of is not None:
        conditions.append(f"last_day <= {last_day(scope.as_of)}")
    if scope.since is not None:
        conditions.append(f"last_day >= {first_day(scope.since)}")
    conditions += [_with_facet(names) for names in scope.required_facets()]
    if scope.without_retracted:
        conditions.append("NOT " + _with_facet(RETRACTION_FACETS))
    if scope.hidden:
        conditions.append("NOT " + among("document_id", sorted(scope.hidden)))
    return " AND ".join(conditions)


def _with_facet(names: Iterable[str]) -> str:
    return f"array_has_any(facets, [{', '.join(map(quoted, sorted(names)))}])"
