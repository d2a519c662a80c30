"""Vector search over the passage table: exact in memory, by the vector index, or by a scan."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from epicrisis.dates import first_day, last_day
from epicrisis.library.engine_errors import translate_errors
from epicrisis.library.passage_table import PassageTable, sql_in, sql_text
from epicrisis.protocols import Vectors
from epicrisis.types import RETRACTION_FACETS, Scope

if TYPE_CHECKING:
    import pyarrow as pa

EXACT_LIMIT = 100_000
"""Libraries up to this many passages are searched in memory. Larger ones use an index or a scan."""
MIN_INDEX_SHARE = 0.02
"""Scopes with a smaller share of the passages, or with at most EXACT_LIMIT of them, are scanned."""
_NO_DAY = np.iinfo(np.int32).max
_SLICE = 4096
_MIN_SHARE = 10
_DIGITS = 9
_SCAN_MARGIN = 64
_INDEX_MARGIN = 16
_MATRIX_COLUMNS = ["id", "document_id", "patient", "facets", "last_day", "vector"]


@dataclass(frozen=True, slots=True)
class IndexSearchParameters:
    """Parameters of a search in the vector index."""

    probes: int
    """Number of partitions to search."""
    refine: int
    """Full vectors to compare, as a multiple of `k`."""


class VectorSearch:
    """Vector search over the table of one library. Raises StorageError or LibraryDamaged for errors of Lance."""

    def __init__(self, folder: Path, table: PassageTable, dimensions: int) -> None:
        self._folder = folder
        self._table = table
        self._lance = table.lance
        self._dimensions = dimensions
        self._matrix: VectorMatrix | None = None
        self._counts_version = -1
        self._counts: dict[str, int] = {}

    def close(self) -> None:
        """Release the memory of the matrix."""
        self._matrix = None

    def nearest(
        self, vector: Vectors, k: int, scope: Scope, parameters: IndexSearchParameters | None
    ) -> list[tuple[str, float]]:
        """Return (passage id, inner product) of the `k` best passages in scope, best first, ties by passage id.

        The result is exact unless `parameters` are given and the scope contains many passages of a large table.
        """
        rows = self._table.count()
        if rows <= EXACT_LIMIT:
            version = self._table.version
            if self._matrix is None or self._matrix.version != version:
                with translate_errors(self._folder):
                    table = self._lance.search().select(_MATRIX_COLUMNS).to_arrow()
                self._matrix = VectorMatrix.from_arrow(version, table, self._dimensions)
            return self._matrix.nearest(vector, k, scope)
        self._matrix = None
        condition = scope_condition(scope, patients=self.has_patients())
        share = self._count_rows(condition) / rows
        if parameters is None or share * rows <= EXACT_LIMIT or share < MIN_INDEX_SHARE:
            return self.scan(vector, k, condition)
        return self.approximate(vector, k, condition, share, parameters)

    def approximate(
        self, vector: Vectors, k: int, condition: str, share: float, parameters: IndexSearchParameters
    ) -> list[tuple[str, float]]:
        """Search the vector index. A condition met by a `share` of the rows searches 1 / share times the partitions."""
        probes = ceil(parameters.probes / share)
        return self._search_lance(
            lambda search: search.nprobes(probes).refine_factor(parameters.refine), vector, k, _INDEX_MARGIN, condition
        )

    def scan(self, vector: Vectors, k: int, condition: str) -> list[tuple[str, float]]:
        """Search all rows that meet the condition, exactly."""
        return self._search_lance(lambda search: search.bypass_vector_index(), vector, k, _SCAN_MARGIN, condition)

    def _search_lance(
        self, configure: Callable[[Any], Any], vector: Vectors, k: int, margin: int, condition: str
    ) -> list[tuple[str, float]]:
        limit = k + margin
        while True:
            with translate_errors(self._folder):
                search = self._lance.search(vector, vector_column_name="vector").distance_type("dot").limit(limit)
                if condition:
                    search = search.where(condition, prefilter=True)
                rows = configure(search.select(["id", "vector", "_distance"])).to_arrow()
            columns = self._read_vectors(rows).T.astype(np.float32)
            scores = score_exactly(columns, np.arange(rows.num_rows), vector).tolist()
            ranking = sorted(zip(rows["id"].to_pylist(), scores, strict=True), key=lambda pair: (-pair[1], pair[0]))
            # Lance does not order ties. Fetch more rows until no unfetched row can tie with the last result.
            if len(ranking) < limit or ranking[k - 1][1] > ranking[-1][1]:
                return ranking[:k]
            limit *= 4

    def _read_vectors(self, rows: pa.Table) -> npt.NDArray[np.float16]:
        flat = rows["vector"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
        return np.asarray(flat.reshape(-1, self._dimensions))

    def has_patients(self) -> bool:
        """Return whether any passage of this version of the table belongs to a patient's record."""
        return self._count_rows("patient IS NOT NULL") > 0

    def _count_rows(self, condition: str) -> int:
        """Count the rows that meet the condition. Counts are cached for this version of the table."""
        version = self._table.version
        if self._counts_version != version:
            self._counts_version, self._counts = version, {}
        if condition not in self._counts:
            with translate_errors(self._folder):
                self._counts[condition] = int(self._lance.count_rows(condition or None))
        return self._counts[condition]

    def index_name(self) -> str | None:
        """Return the name of the vector index regardless of its quality, or None without one."""
        with translate_errors(self._folder):
            for index in self._lance.list_indices():
                if index.columns == ["vector"]:
                    return str(index.name)
        return None

    def unindexed(self) -> int:
        """Return the number of rows missing from the vector index. Searches scan them."""
        name = self.index_name()
        with translate_errors(self._folder):
            statistics = None if name is None else self._lance.index_stats(name)
        return self._table.count() if statistics is None else int(statistics.num_unindexed_rows)

    def build_index(self, partitions: int) -> None:
        """Build a new vector index (IVF with one-bit RaBitQ codes, inner product) and replace the old one.

        The codes need a multiple of eight dimensions. Other vectors are indexed uncompressed.
        """
        from lancedb.index import IvfFlat, IvfRq

        kind = IvfFlat if self._dimensions % 8 else IvfRq
        with translate_errors(self._folder):
            self._lance.create_index("vector", config=kind(distance_type="dot", num_partitions=partitions))
        self._table.sync()

    def build_filters(self) -> None:
        """Build the missing indexes of the columns that filters and fetches use."""
        from lancedb.index import Bitmap, BTree, LabelList

        with translate_errors(self._folder):
            existing = {index.columns[0] for index in self._lance.list_indices()}
            for column, kind in (
                ("document_id", BTree),
                ("last_day", BTree),
                ("facets", LabelList),
                ("patient", Bitmap),
            ):
                if column not in existing:
                    self._lance.create_index(column, config=kind())
        self._table.sync()

    def rows_at(self, offsets: Sequence[int]) -> tuple[list[str], Vectors]:
        """Return passage ids and vectors `(n, d)` of the rows at these offsets."""
        with translate_errors(self._folder):
            rows = self._lance.take_offsets(list(offsets)).select(["id", "vector"]).to_arrow()
        return rows["id"].to_pylist(), self._read_vectors(rows).astype(np.float32)

    def newest(self, share: float) -> int | None:
        """Return the first day of about the newest `share` of the dated passages, or None if under half are dated."""
        import pyarrow.compute as pc

        with translate_errors(self._folder):
            days = self._lance.search().select(["last_day"]).to_arrow()["last_day"]
        if days.null_count * 2 > len(days):
            return None
        return int(pc.quantile(days, 1 - share, interpolation="lower")[0].as_py())

    def blocks(self) -> Iterator[tuple[list[str], npt.NDArray[np.int32], Vectors]]:
        """Yield all rows in blocks: ids, last days (0 for none) and vectors `(n, d)`."""
        import pyarrow as pa

        with translate_errors(self._folder):
            for batch in self._lance.search().select(["id", "last_day", "vector"]).to_batches(8192):
                rows = pa.Table.from_batches([batch])
                days = rows["last_day"].fill_null(0).to_numpy()
                yield rows["id"].to_pylist(), days, self._read_vectors(rows).astype(np.float32)


@dataclass(frozen=True, slots=True)
class TextColumn:
    """A column of strings as integers, for fast comparison."""

    codes: npt.NDArray[np.int32]
    """`(n,)`; -1 for null."""
    code_of: Mapping[str, int]

    @classmethod
    def from_arrow(cls, values: pa.ChunkedArray | pa.Array) -> TextColumn:
        import pyarrow.compute as pc

        encoded = pc.dictionary_encode(values.combine_chunks() if hasattr(values, "combine_chunks") else values)
        names = encoded.dictionary.to_pylist()
        code_of = dict(zip(names, range(len(names)), strict=True))
        return cls(pc.fill_null(encoded.indices, -1).to_numpy(), code_of)

    def is_in(self, names: Iterable[str]) -> npt.NDArray[np.bool_]:
        """Return a mask `(n,)` of the rows with one of these names."""
        return np.isin(self.codes, [self.code_of[name] for name in names if name in self.code_of])


@dataclass(frozen=True, slots=True)
class FacetColumn:
    """The facets of every row."""

    names: TextColumn
    row_of: npt.NDArray[np.int64]
    """The row of each of `names`."""
    rows: int

    @classmethod
    def from_arrow(cls, values: pa.ChunkedArray) -> FacetColumn:
        import pyarrow.compute as pc

        lists = values.combine_chunks()
        names = TextColumn.from_arrow(pc.list_flatten(lists))
        return cls(names, pc.list_parent_indices(lists).to_numpy(), len(lists))

    def is_in(self, names: Iterable[str]) -> npt.NDArray[np.bool_]:
        """Return a mask `(n,)` of the rows with one of these facets."""
        mask = np.zeros(self.rows, dtype=np.bool_)
        mask[self.row_of[self.names.is_in(names)]] = True
        return mask


@dataclass(frozen=True, slots=True)
class VectorMatrix:
    """One version of the table in memory. Rows are ordered by passage id, so that the lower row wins a tie."""

    version: int
    ids: Any
    """Arrow array of passage ids."""
    documents: TextColumn
    patients: TextColumn
    """Null for literature."""
    facets: FacetColumn
    last_days: npt.NDArray[np.int32]
    columns: Vectors
    """`(d, n)`. In this layout a product with a vector takes half the time of `(n, d)` on one core."""
    max_norm: float
    """The largest norm of a row. It bounds the error of the float32 product."""

    @classmethod
    def from_arrow(cls, version: int, table: pa.Table, dimensions: int) -> VectorMatrix:
        """Build the matrix from the columns id, document_id, patient, facets, last_day and vector."""
        import pyarrow.compute as pc

        order = pc.sort_indices(table["id"])
        half = table["vector"].combine_chunks().flatten().to_numpy(zero_copy_only=False).reshape(-1, dimensions)
        columns = half[order.to_numpy()].T.astype(np.float32, order="C")
        norms = np.sqrt(np.einsum("ij,ij->j", columns, columns))
        return cls(
            version=version,
            ids=table["id"].take(order).combine_chunks(),
            documents=TextColumn.from_arrow(table["document_id"].take(order)),
            patients=TextColumn.from_arrow(table["patient"].take(order)),
            facets=FacetColumn.from_arrow(table["facets"].take(order)),
            last_days=pc.fill_null(table["last_day"].take(order), int(_NO_DAY)).to_numpy(),
            columns=columns,
            max_norm=float(norms.max(initial=0.0)),
        )

    def nearest(self, vector: Vectors, k: int, scope: Scope) -> list[tuple[str, float]]:
        """Return (passage id, inner product) of the `k` best passages in scope, best first, ties by passage id."""
        n = self.columns.shape[1]
        masks: list[npt.NDArray[np.bool_]] = []
        if self.patients.code_of:
            code = -1 if scope.patient is None else self.patients.code_of.get(scope.patient, -1)
            masks.append((self.patients.codes == -1) | (self.patients.codes == code))
        if scope.as_of is not None:
            masks.append(self.last_days <= last_day(scope.as_of))
        if scope.since is not None:
            masks.append((self.last_days >= first_day(scope.since)) & (self.last_days != _NO_DAY))
        masks += map(self.facets.is_in, scope.required_facets())
        if scope.without_retracted:
            masks.append(~self.facets.is_in(RETRACTION_FACETS))
        if scope.hidden:
            masks.append(~self.documents.is_in(scope.hidden))
        rows = np.flatnonzero(np.logical_and.reduce(masks)) if masks else np.arange(n)
        k = min(k, len(rows))
        if k == 0:
            return []
        # Selecting one patient's few rows takes less time than multiplying all rows.
        is_small = len(rows) < n // _MIN_SHARE
        scores = vector @ self.columns[:, rows] if is_small else (vector @ self.columns)[rows]
        kth = np.partition(scores, len(scores) - k)[len(scores) - k]
        # The float32 products of equal rows may differ in their last bits, so rows near the cut are scored exactly.
        slack = 1e-5 * self.max_norm * float(np.linalg.norm(vector)) + 1e-30
        near = rows[scores >= kth - slack]
        exact = score_exactly(self.columns, near, vector)
        best = np.lexsort((near, -exact))[:k]
        return [(self.ids[int(near[i])].as_py(), float(exact[i])) for i in best]


def score_exactly(columns: Vectors, selection: npt.NDArray[np.intp], vector: Vectors) -> npt.NDArray[np.float64]:
    """Return the inner products with the selected columns in rounded float64, equal for equal columns."""
    exact = vector.astype(np.float64)
    parts = [np.empty(0)]
    for first in range(0, len(selection), _SLICE):
        parts.append(exact @ columns[:, selection[first : first + _SLICE]].astype(np.float64))
    return np.asarray(np.round(np.concatenate(parts), _DIGITS) + 0.0, dtype=np.float64)


def scope_condition(scope: Scope, patients: bool) -> str:
    """Return SQL for the passages in scope, empty for all. `patients` tells whether any passage has a patient."""
    conditions = []
    if patients:
        alternative = "" if scope.patient is None else f" OR patient = {sql_text(scope.patient)}"
        conditions.append(f"(patient IS NULL{alternative})")
    if scope.as_of is not None:
        conditions.append(f"last_day <= {last_day(scope.as_of)}")
    if scope.since is not None:
        conditions.append(f"last_day >= {first_day(scope.since)}")
    conditions += map(_facet_condition, scope.required_facets())
    if scope.without_retracted:
        conditions.append("NOT " + _facet_condition(RETRACTION_FACETS))
    if scope.hidden:
        conditions.append("NOT " + sql_in("document_id", sorted(scope.hidden)))
    return " AND ".join(conditions)


def _facet_condition(names: Iterable[str]) -> str:
    return f"array_has_any(facets, [{', '.join(map(sql_text, sorted(names)))}])"
