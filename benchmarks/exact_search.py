"""Exact search of 100,000 x 384 on one core, by the library's own matrix in memory. One line a figure.

Guide: under 15 ms. Knows nothing of disks: loading the matrix is not in the figure.
"""

from __future__ import annotations

import os
import statistics
import time

# Read once, when numpy is imported.
os.environ.update({"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"})

import numpy as np

from epicrisis.core.types import Scope
from epicrisis.library.engines.vector_matrix import VectorMatrix

ROWS, DIMENSIONS, QUERIES, K = 100_000, 384, 50, 10


def main() -> None:
    dice = np.random.default_rng(7)
    vectors = dice.standard_normal((ROWS, DIMENSIONS), dtype=np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    ids = [f"doc:{number}#0" for number in range(ROWS)]
    columns = {
        "id": ids,
        "document_id": [each.removesuffix("#0") for each in ids],
        "patient": [None if number % 2 else f"p{number % 100}" for number in range(ROWS)],
        "facets": [[f"type:{number % 7}"] for number in range(ROWS)],
        "last_day": [20150000 + number % 1231 for number in range(ROWS)],
        "vector": vectors.astype(np.float16),
    }
    began = time.perf_counter()
    matrix = VectorMatrix.build(1, [columns], DIMENSIONS)
    print(f"making the matrix of {ROWS} x {DIMENSIONS}: {time.perf_counter() - began:.2f} s")
    for name, scope in (
        ("everything", Scope(patient=None)),
        ("one patient, as of a date", Scope(patient="p4", as_of="2015-06", hidden=frozenset({"doc:5"}))),
    ):
        times = []
        for _ in range(QUERIES):
            query = dice.standard_normal(DIMENSIONS, dtype=np.float32)
            began = time.perf_counter()
            matrix.nearest(query, K, scope)
            times.append(1000 * (time.perf_counter() - began))
        print(f"exact search, {name}: median {statistics.median(times):.1f} ms, slowest {max(times):.1f} ms")


if __name__ == "__main__":
    main()
