"""The vector index of a large library: built, measured against exact search, and used only where it is good enough.

Recall@16 is the share of the 16 nearest passages (inner product) that the index finds, over QUERIES of the library's
own passages, each left out of its own neighbours. The search of a filtered tenth of the passages, by date, is measured
as well. Knows nothing of texts.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import numpy.typing as npt

from epicrisis.library.engine_errors import translate_errors
from epicrisis.library.manifest import sync_folder
from epicrisis.library.vector_search import EXACT_LIMIT, MIN_INDEX_SHARE, IndexSearchParameters, VectorSearch
from epicrisis.protocols import Vectors

NAME = "index.json"
K = 16
QUERIES = 200
DEFAULT_RECALL = 0.95
MAX_PARTITIONS = 256
_REFINEMENTS = (10, 40)
_TENTH = 0.1
_SEED = 0


@dataclass(frozen=True, slots=True)
class IndexReport:
    """A measured index. `filtered_recall` is that of a search among a tenth of the passages; `None`: no dates.

    `passages` are those of the library when it was measured; `queries` how many were asked; `asked` the recall wanted.
    """

    passages: int
    partitions: int
    probes: int
    refine: int
    recall: float
    filtered_recall: float | None
    queries: int
    asked: float
    measured: str

    @property
    def good(self) -> bool:
        """True when it is used; searches scan otherwise."""
        return min(self.recall, 1.0 if self.filtered_recall is None else self.filtered_recall) >= self.asked


def read_report(folder: Path) -> IndexReport | None:
    """What the last `optimize` found; `None` where there is nothing that can be understood: searches are exact then."""
    try:
        report = IndexReport(**json.loads((folder / NAME).read_bytes()))
    except (OSError, ValueError, TypeError, RecursionError):
        return None
    counts: tuple[object, ...] = (report.passages, report.partitions, report.probes, report.refine, report.queries)
    tenth = 1.0 if report.filtered_recall is None else report.filtered_recall
    shares: tuple[object, ...] = (report.recall, report.asked, tenth)
    sound = all(type(each) is int and each > 0 for each in counts) and all(
        type(each) in (int, float) for each in shares
    )
    return report if sound else None


def read_search_parameters(folder: Path) -> IndexSearchParameters | None:
    """How the index is to be searched; `None`: not at all."""
    report = read_report(folder)
    return IndexSearchParameters(report.probes, report.refine) if report is not None and report.good else None


def write_report(folder: Path, report: IndexReport) -> None:
    """Whole or not at all, and durable when it returns. Raises StorageError."""
    new = folder / f"{NAME}.new"
    with translate_errors(folder):
        with new.open("w", encoding="utf-8") as file:
            json.dump(dataclasses.asdict(report), file, indent=2)
            file.flush()
            os.fsync(file.fileno())
        new.replace(folder / NAME)
        sync_folder(folder)


def count_partitions(passages: int) -> int:
    """As many as the square root, at most MOST_PARTITIONS."""
    return int(min(MAX_PARTITIONS, max(1, round(passages**0.5))))


def refresh_index(
    folder: Path, neighbours: VectorSearch, passages: int, asked: float, rebuild: bool, on_step: Callable[[str], None]
) -> IndexReport:
    """The index as it is now needed: built where it is not there or no longer fits, measured, its report written."""
    known = read_report(folder)
    on_step("indexing what filters look at")
    neighbours.build_filters()
    partitions = count_partitions(passages)
    if rebuild or known is None or not neighbours.indexed or passages > 2 * known.passages:
        on_step(f"building an index of {partitions} partitions")
        # What was measured of the old index says nothing of this one: searches are exact until it is measured too.
        with translate_errors(folder):
            (folder / NAME).unlink(missing_ok=True)
            sync_folder(folder)
        neighbours.build_index(partitions)
    else:
        partitions = known.partitions
    report = measure_index(neighbours, passages, partitions, asked, on_step)
    write_report(folder, report)
    return report


def measure_index(
    neighbours: VectorSearch, passages: int, partitions: int, asked: float, on_step: Callable[[str], None]
) -> IndexReport:
    """The fewest probes, doubled from 1, that reach the asked recall, or the best there is.

    Reads every vector once for the exact answers: at 24 million passages of 768 dimensions minutes, and 2 GB at most.
    """
    on_step("finding the exact neighbours of a sample")
    sample = _sample(neighbours, passages)
    best: IndexReport | None = None
    for refine in _REFINEMENTS:
        probes = 1
        while True:
            on_step(f"measuring {probes} probes")
            found = sample.recall(neighbours, IndexSearchParameters(probes, refine))
            tenth = sample.filtered_recall(neighbours, IndexSearchParameters(probes, refine))
            report = IndexReport(
                passages=passages,
                partitions=partitions,
                probes=probes,
                refine=refine,
                recall=found,
                filtered_recall=tenth,
                queries=len(sample.ids),
                asked=asked,
                measured=datetime.now(UTC).isoformat(timespec="seconds"),
            )
            if report.good:
                return report
            best = max(filter(None, (best, report)), key=_worth)
            if probes >= partitions:
                break
            probes = min(probes * 2, partitions)
    assert best is not None, "each refinement is measured at least once"
    return best


def _worth(report: IndexReport) -> float:
    return report.recall if report.filtered_recall is None else min(report.recall, report.filtered_recall)


@dataclass(frozen=True, slots=True)
class _Sample:
    """Passages and the inner products `(queries, K)` of their nearest others: of all, and of the tenth that
    `day_condition` admits; -inf where there are fewer."""

    ids: list[str]
    vectors: Vectors
    exact: Vectors
    day_condition: str
    day_share: float
    exact_of_tenth: Vectors

    def recall(self, neighbours: VectorSearch, probing: IndexSearchParameters) -> float:
        return self._found(neighbours, read_search_parameters, "", 1.0, self.exact)

    def filtered_recall(self, neighbours: VectorSearch, probing: IndexSearchParameters) -> float | None:
        if not self.day_condition:
            return None
        return self._found(neighbours, read_search_parameters, self.day_condition, self.day_share, self.exact_of_tenth)

    def _found(
        self, neighbours: VectorSearch, probing: IndexSearchParameters, condition: str, share: float, exact: Vectors
    ) -> float:
        found = wanted = 0
        for id_, vector, scores in zip(self.ids, self.vectors, exact, strict=True):
            hits = neighbours.approximate(vector, K + 1, condition, share, read_search_parameters)
            there = scores[np.isfinite(scores)]
            # By score, not by name: of equal passages any will do. The slack is float32's.
            least = there.min(initial=np.inf) - 1e-5 * float(vector @ vector)
            found += sum(score >= least for score in [score for hit, score in hits if hit != id_][:K])
            wanted += len(there)
        return int(found) / max(wanted, 1)


def _sample(neighbours: VectorSearch, passages: int) -> _Sample:
    offsets = np.random.default_rng(_SEED).choice(passages, min(QUERIES, passages), replace=False)
    ids, vectors = neighbours.rows_at(sorted(int(offset) for offset in offsets))
    since = neighbours.newest(_TENTH)
    exact, exact_of_tenth, within = _exact(neighbours.blocks(), ids, vectors, since)
    # Fewer than that would be scanned, not looked up.
    measurable = since is not None and within > EXACT_LIMIT and within / passages > MIN_INDEX_SHARE
    return _Sample(
        ids=ids,
        vectors=vectors,
        exact=exact,
        day_condition=f"last_day >= {since}" if measurable else "",
        day_share=within / passages,
        exact_of_tenth=exact_of_tenth,
    )


def _exact(
    blocks: Iterator[tuple[list[str], npt.NDArray[np.int32], Vectors]],
    ids: list[str],
    vectors: Vectors,
    since: int | None,
) -> tuple[Vectors, Vectors, int]:
    """The K highest inner products of each vector with other rows, of all and of those since that day; how many the
    latter are."""
    best = best_of_tenth = np.full((len(ids), K), -np.inf, dtype=np.float32)
    queries = {id_: row for row, id_ in enumerate(ids)}
    within = 0
    for names, days, rows in blocks:
        scores = vectors @ rows.T
        for column, name in enumerate(names):
            if name in queries:
                scores[queries[name], column] = -np.inf
        best = _highest(best, scores)
        if since is not None:
            newer = np.flatnonzero(days >= since)
            within += len(newer)
            best_of_tenth = _highest(best_of_tenth, scores[:, newer])
    return best, best_of_tenth, within


def _highest(best: Vectors, scores: Vectors) -> Vectors:
    """The K highest of each row of both, in no order."""
    return np.partition(np.concatenate([best, scores], axis=1), -K, axis=1)[:, -K:]
