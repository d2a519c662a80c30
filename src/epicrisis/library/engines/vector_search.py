"""Vector search over the table of a library: exact in memory for a small one; in Lance also by an index or a scan."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from epicrisis.core.dates import first_day, last_day
from epicrisis.core.errors import InputError
from epicrisis.core.protocols import Vectors
from epicrisis.core.types import RETRACTION_FACETS, Scope
from epicrisis.library.base.engine_errors import translate_errors
from epicrisis.library.base.manifest import LibraryManifest
from epicrisis.library.base.passage_table import PassageTable, sql_in
from epicrisis.library.engines.lance_table import INSTALL, LanceTable

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from epicrisis.library.engines.vector_matrix import VectorMatrix

EXACT_LIMIT = 100_000
"""Libraries up to this many passages are searched in memory. Larger ones use an index or a scan."""
OUTGROWN = (
    f"more than {EXACT_LIMIT:,} passages are searched faster, and in less memory, by LanceDB: {INSTALL}, then run "
    "`epicrisis library optimize`"
)
"""What to say of a larger library in SQLite."""
MIN_INDEX_SHARE = 0.02
"""Scopes with a smaller share of the passages, or with at most EXACT_LIMIT of them, are scanned."""
_SCAN_MARGIN = 64
_INDEX_MARGIN = 16
_BITS = 2
"""Bits of the codes of the vector index for each dimension."""
_SEED = 0


@dataclass(frozen=True, slots=True)
class IndexSearchParameters:
    """Parameters of a search in the vector index."""

    probes: int
    """Number of partitions to search."""
    refine: int
    """Full vectors to compare, as a multiple of `k`."""


class MatrixSearch:
    """Exact vector search over the table of one library. Raises StorageError or LibraryDamaged."""

    def __init__(self, table: PassageTable) -> None:
        self._table = table
        self._matrix: VectorMatrix | None = None

    def close(self) -> None:
        """Release the memory of the matrix."""
        self._matrix = None

    def nearest(
        self, vector: Vectors, k: int, scope: Scope, parameters: IndexSearchParameters | None
    ) -> list[tuple[str, float]]:
        """Return (passage id, inner product) of the `k` best passages in scope, best first, ties by passage id.

        `parameters` are for subclasses with an index.
        """
        from epicrisis.library.engines.vector_matrix import MATRIX_COLUMNS, VectorMatrix

        version = self._table.version
        if self._matrix is None or self._matrix.version != version:
            self._matrix = VectorMatrix.build(version, self._table.read_columns(MATRIX_COLUMNS), self._table.dimensions)
        return self._matrix.nearest(vector, k, scope)

    def has_patients(self) -> bool:
        """Return whether any passage of this version of the table belongs to a patient's record."""
        return self._table.has_notes()

    def unindexed(self) -> int:
        """Return the number of rows missing from the vector index."""
        return 0

    def build_filters(self) -> None:
        """Build the missing indexes of the columns that filters and fetches use."""


class VectorSearch(MatrixSearch):
    """Vector search over a Lance table. Raises StorageError or LibraryDamaged for errors of Lance."""

    def __init__(self, folder: Path, table: LanceTable) -> None:
        super().__init__(table)
        self._folder = folder
        self._table: LanceTable = table
        self._lance = table.lance
        self._counts_version = -1
        self._counts: dict[str, int] = {}

    def nearest(
        self, vector: Vectors, k: int, scope: Scope, parameters: IndexSearchParameters | None
    ) -> list[tuple[str, float]]:
        """Return (passage id, inner product) of the `k` best passages in scope, best first, ties by passage id.

        The result is exact unless `parameters` are given and the scope contains many passages of a large table.
        """
        rows = self._table.count()
        if rows <= EXACT_LIMIT:
            return super().nearest(vector, k, scope, None)
        self.close()
        condition = scope_condition(scope, self._table, patients=self.has_patients())
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
        import numpy as np

        from epicrisis.library.engines.vector_matrix import score_exactly

        limit = k + margin
        while True:
            with translate_errors(self._folder):
                search = self._lance.search(vector, vector_column_name="vector").distance_type("dot").limit(limit)
                if condition:
                    search = search.where(condition, prefilter=True)
                rows = configure(search.select(["id", "vector", "_distance"])).to_arrow()
            columns = self._read_vectors(rows).T
            scores = score_exactly(columns, np.arange(rows.num_rows), vector).tolist()
            ranking = sorted(zip(rows["id"].to_pylist(), scores, strict=True), key=lambda pair: (-pair[1], pair[0]))
            # Lance does not order ties. Fetch more rows until no unfetched row can tie with the last result.
            if len(ranking) < limit or ranking[k - 1][1] > ranking[-1][1]:
                return ranking[:k]
            limit *= 4

    def _read_vectors(self, rows: pa.Table) -> Vectors:
        return self._table.read_vectors(rows["vector"].combine_chunks()).astype("float32")

    def has_patients(self) -> bool:
        """Return whether any passage of this version of the table belongs to a patient's record."""
        return self._count_rows("patient IS NOT NULL") > 0

    def _count_rows(self, condition: str) -> int:
        """Count the rows that meet the condition. Counts are cached for this version of the table."""
        version = self._table.version
        if self._counts_version != version:
            self._counts_version, self._counts = version, {}
        if condition not in self._counts:
            self._counts[condition] = self._table.count(condition)
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
        """Build a new vector index (IVF with RaBitQ codes, inner product) and replace the old one.

        The codes need a multiple of eight dimensions. Other vectors are indexed uncompressed.
        """
        from lancedb.index import IvfFlat, IvfRq

        config: IvfFlat | IvfRq = IvfFlat(distance_type="dot", num_partitions=partitions)
        if self._table.dimensions % 8 == 0:
            config = IvfRq(distance_type="dot", num_partitions=partitions, num_bits=_BITS)
        with translate_errors(self._folder):
            self._lance.create_index("vector", config=config)
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

    def draw(self, count: int) -> tuple[list[str], Vectors]:
        """Return passage ids and vectors `(count, d)` of random rows, the same each time."""
        import numpy as np

        offsets = np.random.default_rng(_SEED).choice(self._table.count(), count, replace=False)
        with translate_errors(self._folder):
            rows = self._lance.take_offsets(sorted(map(int, offsets))).select(["id", "vector"]).to_arrow()
        return rows["id"].to_pylist(), self._read_vectors(rows)

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
                yield rows["id"].to_pylist(), days, self._read_vectors(rows)


def check_query_vector(vector: Vectors, manifest: LibraryManifest) -> Vectors:
    """Return the vector in float32. Raise InputError for one of another dimension, or not finite."""
    import numpy as np

    vector = np.ascontiguousarray(vector, dtype=np.float32)
    if vector.shape != (manifest.dimensions,) or not np.isfinite(vector).all():
        raise InputError(
            f"the query's vector must be {manifest.dimensions} finite numbers, got shape {vector.shape}: encode it "
            f"with {manifest.encoder_name}"
        )
    return vector


def scope_condition(scope: Scope, table: PassageTable, *, patients: bool = True) -> str:
    """Return SQL for the passages in scope, empty for all. `patients` tells whether any passage has a patient."""
    conditions = []
    if patients:
        alternative = "" if scope.patient is None else f" OR {sql_in('patient', [scope.patient])}"
        conditions.append(f"(patient IS NULL{alternative})")
    if scope.as_of is not None:
        conditions.append(f"last_day <= {last_day(scope.as_of)}")
    if scope.since is not None:
        conditions.append(f"last_day >= {first_day(scope.since)}")
    conditions += (table.facet_condition(facet) for facet in scope.required_facets())
    if scope.without_retracted:
        conditions.append("NOT " + table.facet_condition(RETRACTION_FACETS))
    if scope.hidden:
        conditions.append("NOT " + sql_in("document_id", sorted(scope.hidden)))
    return " AND ".join(conditions)
