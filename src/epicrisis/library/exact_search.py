"""Exact search over a matrix in memory: no index, nothing to tune, nothing missed.

Knows ids, vectors and what a scope looks at; does not know texts, nor where the rows come from.
"""

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
_FEW = 10
_DIGITS = 9


@dataclass(frozen=True, slots=True)
class Column:
    """Names by row as numbers, which compare fast. `codes` `(n,)`, -1 for null; `code_of` by name."""

    codes: npt.NDArray[np.int32]
    code_of: Mapping[str, int]

    @classmethod
    def of(cls, values: pa.ChunkedArray | pa.Array) -> Column:
        import pyarrow.compute as pc

        encoded = pc.dictionary_encode(values.combine_chunks() if hasattr(values, "combine_chunks") else values)
        names = {name: code for code, name in enumerate(encoded.dictionary.to_pylist())}
        return cls(pc.fill_null(encoded.indices, -1).to_numpy(), names)

    def among(self, names: Iterable[str]) -> npt.NDArray[np.bool_]:
        """`(n,)`: rows that have one of these names."""
        return np.isin(self.codes, [self.code_of[name] for name in names if name in self.code_of])


@dataclass(frozen=True, slots=True)
class Facets:
    """The facets of every row: `row_of` says to which row each of `names` belongs."""

    names: Column
    row_of: npt.NDArray[np.int64]
    rows: int

    @classmethod
    def of(cls, values: pa.ChunkedArray) -> Facets:
        import pyarrow.compute as pc

        lists = values.combine_chunks()
        return cls(Column.of(pc.list_flatten(lists)), pc.list_parent_indices(lists).to_numpy(), len(lists))

    def among(self, names: Iterable[str]) -> npt.NDArray[np.bool_]:
        """`(n,)`: rows that have one of these names."""
        found = np.zeros(self.rows, dtype=np.bool_)
        found[self.row_of[self.names.among(names)]] = True
        return found


@dataclass(frozen=True, slots=True)
class Matrix:
    """One version of the table. Rows in the order of the passage ids, so that of equal scores the lower row wins."""

    version: int
    ids: Any
    """Arrow array of passage ids."""
    documents: Column
    patients: Column
    """Null for literature."""
    facets: Facets
    last_days: npt.NDArray[np.int32]
    columns: Vectors
    """`(d, n)`: in this layout one core computes the product with a vector twice as fast as in rows."""
    longest: float
    """The largest norm of a row: bounds the error of the float32 product."""

    @classmethod
    def of(cls, version: int, table: pa.Table, dimensions: int) -> Matrix:
        """From the columns id, document_id, patient, facets, last_day and vector."""
        import pyarrow.compute as pc

        order = pc.sort_indices(table["id"])
        half = table["vector"].combine_chunks().flatten().to_numpy(zero_copy_only=False).reshape(-1, dimensions)
        columns = half[order.to_numpy()].T.astype(np.float32, order="C")
        norms = np.sqrt(np.einsum("ij,ij->j", columns, columns))
        return cls(
            version=version,
            ids=table["id"].take(order).combine_chunks(),
            documents=Column.of(table["document_id"].take(order)),
            patients=Column.of(table["patient"].take(order)),
            facets=Facets.of(table["facets"].take(order)),
            last_days=pc.fill_null(table["last_day"].take(order), int(_NO_DAY)).to_numpy(),
            columns=columns,
            longest=float(norms.max(initial=0.0)),
        )

    def nearest(self, vector: Vectors, k: int, scope: Scope) -> list[tuple[str, float]]:
        """(passage id, inner product) of the k best the scope admits, best first, ties by passage id."""
        n = self.columns.shape[1]
        mask = self._admitted(scope)
        rows = np.arange(n) if mask is None else np.flatnonzero(mask)
        k = min(k, len(rows))
        if k == 0:
            return []
        # One patient's rows are taken out sooner than all are multiplied.
        few = len(rows) < n // _FEW
        scores = vector @ self.columns[:, rows] if few else (vector @ self.columns)[rows]
        kth = np.partition(scores, len(scores) - k)[len(scores) - k]
        # The float32 product gives equal rows unequal last bits: all rows near the cut are scored again, exactly.
        slack = 1e-5 * self.longest * float(np.linalg.norm(vector)) + 1e-30
        near = rows[scores >= kth - slack]
        exact = rescored(self.columns, near, vector)
        best = np.lexsort((near, -exact))[:k]
        return [(self.ids[int(near[i])].as_py(), float(exact[i])) for i in best]

    def _admitted(self, scope: Scope) -> npt.NDArray[np.bool_] | None:
        """Rows that `scope.admits`; `None` for all."""
        masks: list[npt.NDArray[np.bool_]] = []
        if self.patients.code_of:
            own = -1 if scope.patient is None else self.patients.code_of.get(scope.patient, -1)
            masks.append((self.patients.codes == -1) | (self.patients.codes == own))
        if scope.as_of is not None:
            masks.append(self.last_days <= last_day(scope.as_of))
        if scope.since is not None:
            masks.append((self.last_days >= first_day(scope.since)) & (self.last_days != _NO_DAY))
        masks += [self.facets.among(names) for names in scope.required_facets()]
        if scope.without_retracted:
            masks.append(~self.facets.among(RETRACTION_FACETS))
        if scope.hidden:
            masks.append(~self.documents.among(scope.hidden))
        return np.logical_and.reduce(masks) if masks else None


def rescored(columns: Vectors, near: npt.NDArray[np.intp], vector: Vectors) -> npt.NDArray[np.float64]:
    """Inner products with these columns, equal for equal columns: float64, rounded above its own rounding errors."""
    exact = vector.astype(np.float64)
    parts = [exact @ columns[:, near[i : i + _SLICE]].astype(np.float64) for i in range(0, len(near), _SLICE)]
    return np.asarray(np.round(np.concatenate([np.empty(0), *parts]), _DIGITS) + 0.0, dtype=np.float64)
