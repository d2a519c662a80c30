"""The vectors of a library in memory, for exact search. Imports numpy, so it is imported at the first such search."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from epicrisis.core.dates import first_day, last_day
from epicrisis.core.protocols import Vectors
from epicrisis.core.types import RETRACTION_FACETS, Scope
from epicrisis.library.base.passage_table import Columns

_NO_DAY = np.iinfo(np.int32).max
_SLICE = 4096
_TRANSPOSED_ROWS = 256
_MIN_SHARE = 10
_DIGITS = 9
MATRIX_COLUMNS = ("id", "document_id", "patient", "facets", "last_day", "vector")


@dataclass(frozen=True, slots=True)
class TextColumn:
    """A column of strings as integers, for fast comparison."""

    codes: npt.NDArray[np.int32]
    """`(n,)`; -1 for null."""
    code_of: Mapping[str, int]

    @classmethod
    def build(cls, values: Sequence[str | None]) -> TextColumn:
        code_of: dict[str | None, int] = {None: -1}
        codes = np.fromiter((code_of.setdefault(value, len(code_of) - 1) for value in values), np.int32, len(values))
        return cls(codes, {name: code for name, code in code_of.items() if name is not None})

    def is_in(self, names: Iterable[str]) -> npt.NDArray[np.bool_]:
        """Return a mask `(n,)` of the rows with one of these names."""
        return np.isin(self.codes, [self.code_of[name] for name in names if name in self.code_of])


@dataclass(frozen=True, slots=True)
class FacetColumn:
    """The facets of every row. Rows with the same facets share a code."""

    codes: npt.NDArray[np.int32]
    codes_of: Mapping[str, Sequence[int]]
    """The codes of the rows with a facet."""

    @classmethod
    def build(cls, lists: Sequence[Sequence[str]]) -> FacetColumn:
        code_of: dict[tuple[str, ...], int] = {}
        codes = np.fromiter((code_of.setdefault(tuple(names), len(code_of)) for names in lists), np.int32, len(lists))
        codes_of: dict[str, list[int]] = defaultdict(list)
        for names, code in code_of.items():
            for name in names:
                codes_of[name].append(code)
        return cls(codes, codes_of)

    def is_in(self, names: Iterable[str]) -> npt.NDArray[np.bool_]:
        """Return a mask `(n,)` of the rows with one of these facets."""
        codes: list[int] = []
        for name in names:
            codes += self.codes_of.get(name, ())
        return np.isin(self.codes, codes)


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorMatrix:
    """One version of the table in memory. Rows are ordered by passage id, so that the lower row wins a tie."""

    version: int
    ids: Sequence[str]
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
    def build(cls, version: int, batches: Iterable[Columns], dimensions: int) -> VectorMatrix:
        """Build the matrix from the columns id, document_id, patient, facets, last_day and vector."""
        values: Columns = {name: [] for name in MATRIX_COLUMNS}
        for batch in batches:
            for name in MATRIX_COLUMNS[:-1]:
                values[name] += batch[name]
            values["vector"].append(batch["vector"])
        ids = values["id"]
        order = sorted(range(len(ids)), key=ids.__getitem__)
        days = [_NO_DAY if day is None else day for day in values["last_day"]]
        half = np.concatenate([np.empty((0, dimensions), dtype=np.float16), *values["vector"]])
        columns = np.empty((dimensions, len(ids)), dtype=np.float32)
        # Small blocks stay in the processor's cache, which takes a third of the time.
        for first in range(0, len(ids), _TRANSPOSED_ROWS):
            block = slice(first, first + _TRANSPOSED_ROWS)
            columns[:, block] = half[order[block]].astype(np.float32).T
        norms = np.sqrt(np.einsum("ij,ij->j", columns, columns))
        return cls(
            version=version,
            ids=[ids[row] for row in order],
            documents=TextColumn.build([values["document_id"][row] for row in order]),
            patients=TextColumn.build([values["patient"][row] for row in order]),
            facets=FacetColumn.build([values["facets"][row] for row in order]),
            last_days=np.asarray(days, dtype=np.int32)[order],
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
        masks += (self.facets.is_in(facet) for facet in scope.required_facets())
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
        return [(self.ids[int(near[i])], float(exact[i])) for i in best]


def score_exactly(columns: Vectors, selection: npt.NDArray[np.intp], vector: Vectors) -> npt.NDArray[np.float64]:
    """Return the inner products with the selected columns in rounded float64, equal for equal columns."""
    exact = vector.astype(np.float64)
    parts = [np.empty(0)]
    for first in range(0, len(selection), _SLICE):
        parts.append(exact @ columns[:, selection[first : first + _SLICE]].astype(np.float64))
    return np.asarray(np.round(np.concatenate(parts), _DIGITS) + 0.0, dtype=np.float64)
