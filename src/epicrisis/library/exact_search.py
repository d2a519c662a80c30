"""Exact vector search over a matrix in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from epicrisis.dates import first_day, last_day
from epicrisis.protocols import Vectors
from epicrisis.types import RETRACTION_FACETS, Scope

if TYPE_CHECKING:
    import pyarrow as pa

_NO_DAY = np.iinfo(np.int32).max
_SLICE = 4096
_MIN_SHARE = 10
_DIGITS = 9


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
