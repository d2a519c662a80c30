"""The vector index of a large library: build it, measure its recall, and report whether searches may use it.

Recall@16 is the share of the 16 nearest passages (by inner product) that the index finds. The queries are passages of
the library, excluded from their own neighbours. Recall is also measured for a search among the newest tenth of the
passages.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from epicrisis.library.engine_errors import translate_errors
from epicrisis.library.manifest import sync_path
from epicrisis.library.vector_search import EXACT_LIMIT, MIN_INDEX_SHARE, IndexSearchParameters, VectorSearch
from epicrisis.protocols import Vectors

NAME = "index.json"
K = 16
QUERIES = 200
DEFAULT_RECALL = 0.95
MAX_PARTITIONS = 256
_REFINEMENTS = (4, 10, 40)
_TENTH = 0.1
_SEED = 0


@dataclass(frozen=True, slots=True)
class IndexReport:
    """The measurement of a vector index, as saved in `index.json`."""

    passages: int
    """Passages of the library at the time of the measurement."""
    partitions: int
    probes: int
    refine: int
    recall: float
    filtered_recall: float | None
    """Recall of a search among the newest tenth of the passages. None if too few have a date."""
    queries: int
    asked: float
    """The required recall."""
    measured: str
    """Time of the measurement, ISO 8601, UTC."""

    @property
    def worst_recall(self) -> float:
        """The lower of the two recalls."""
        return self.recall if self.filtered_recall is None else min(self.recall, self.filtered_recall)

    @property
    def good(self) -> bool:
        """True if searches use the index. Otherwise they scan."""
        return self.worst_recall >= self.asked


def read_report(folder: Path) -> IndexReport | None:
    """Return the report of the last `optimize`, or None without a valid report. Searches are then exact."""
    try:
        report = IndexReport(**json.loads((folder / NAME).read_bytes()))
    except (OSError, ValueError, TypeError, RecursionError):
        return None
    counts: tuple[object, ...] = (report.passages, report.partitions, report.probes, report.refine, report.queries)
    filtered_recall = 1.0 if report.filtered_recall is None else report.filtered_recall
    shares: tuple[object, ...] = (report.recall, report.asked, filtered_recall)
    if not all(type(count) is int and count > 0 for count in counts):
        return None
    return report if all(type(share) in (int, float) for share in shares) else None


def read_search_parameters(folder: Path) -> IndexSearchParameters | None:
    """Return the parameters for searches in the index, or None if searches must not use it."""
    report = read_report(folder)
    return IndexSearchParameters(report.probes, report.refine) if report is not None and report.good else None


def write_report(folder: Path, report: IndexReport) -> None:
    """Write the report atomically and durably. Raise StorageError."""
    new = folder / f"{NAME}.new"
    with translate_errors(folder):
        with new.open("w", encoding="utf-8") as file:
            json.dump(dataclasses.asdict(report), file, indent=2)
            file.flush()
            os.fsync(file.fileno())
        new.replace(folder / NAME)
        sync_path(folder)


def refresh_index(
    folder: Path, search: VectorSearch, passages: int, min_recall: float, rebuild: bool, on_step: Callable[[str], None]
) -> IndexReport:
    """Build the index if it is missing or outdated, measure it, and write its report."""
    old = read_report(folder)
    on_step("indexing the filter columns")
    search.build_filters()
    # The square root of the passages.
    partitions = int(min(MAX_PARTITIONS, max(1, round(passages**0.5))))
    if rebuild or old is None or search.index_name() is None or passages > 2 * old.passages:
        on_step(f"building an index of {partitions} partitions")
        # The old report does not apply to the new index. Without a report searches are exact.
        with translate_errors(folder):
            (folder / NAME).unlink(missing_ok=True)
            sync_path(folder)
        search.build_index(partitions)
    else:
        partitions = old.partitions
    report = measure_index(search, passages, partitions, min_recall, on_step)
    write_report(folder, report)
    return report


def measure_index(
    search: VectorSearch, passages: int, partitions: int, min_recall: float, on_step: Callable[[str], None]
) -> IndexReport:
    """Return the report with the fewest probes (doubled from 1) that reach the recall, or the best report.

    Every vector is read once. For 24 million passages of 768 dimensions this takes minutes and up to 2 GB of memory.
    """
    on_step("finding the exact neighbours of a sample")
    sample = _draw_sample(search, passages)
    reports = []
    for refine in _REFINEMENTS:
        probes, previous_recall = 1, -1.0
        while True:
            on_step(f"measuring {probes} probes")
            parameters = IndexSearchParameters(probes, refine)
            filtered_recall = None
            if sample.day_condition:
                filtered_recall = sample.measure(
                    search, parameters, sample.day_condition, sample.day_share, sample.filtered_scores
                )
            report = IndexReport(
                passages=passages,
                partitions=partitions,
                probes=probes,
                refine=refine,
                recall=sample.measure(search, parameters, "", 1.0, sample.scores),
                filtered_recall=filtered_recall,
                queries=len(sample.ids),
                asked=min_recall,
                measured=datetime.now(UTC).isoformat(timespec="seconds"),
            )
            if report.good:
                return report
            reports.append(report)
            # If more partitions do not help, the codes lose the neighbours: compare more full vectors.
            if probes >= partitions or report.worst_recall <= previous_recall:
                break
            previous_recall = report.worst_recall
            probes = min(probes * 2, partitions)
    return max(reports, key=lambda report: report.worst_recall)


@dataclass(frozen=True, slots=True)
class _Sample:
    """Query passages and the exact inner products `(queries, K)` of their nearest neighbours, -inf for missing ones."""

    ids: list[str]
    vectors: Vectors
    scores: Vectors
    """Of the nearest among all passages."""
    day_condition: str
    """SQL for the newest tenth of the passages. Empty if too few passages have a date."""
    day_share: float
    filtered_scores: Vectors
    """Of the nearest among the newest tenth."""

    def measure(
        self, search: VectorSearch, parameters: IndexSearchParameters, condition: str, share: float, exact: Vectors
    ) -> float:
        """Measure the recall of searches with the condition, which a `share` of the rows meets."""
        import numpy as np

        correct = total = 0
        for id_, vector, scores in zip(self.ids, self.vectors, exact, strict=True):
            hits = search.approximate(vector, K + 1, condition, share, parameters)
            neighbours = scores[np.isfinite(scores)]
            # Scores decide, not ids, because any of several equal passages is correct. The slack is float32's.
            threshold = neighbours.min(initial=np.inf) - 1e-5 * float(vector @ vector)
            hit_scores = [score for hit, score in hits if hit != id_][:K]
            correct += sum(score >= threshold for score in hit_scores)
            total += len(neighbours)
        return int(correct) / max(total, 1)


def _draw_sample(search: VectorSearch, passages: int) -> _Sample:
    import numpy as np

    offsets = np.random.default_rng(_SEED).choice(passages, min(QUERIES, passages), replace=False)
    ids, vectors = search.rows_at(sorted(map(int, offsets)))
    since = search.newest(_TENTH)
    # Both arrays hold the K highest inner products of each query with other rows, the second with rows since that day.
    best = best_newer = np.full((len(ids), K), -np.inf, dtype=np.float32)
    query_of = dict(zip(ids, range(len(ids)), strict=True))
    newer_rows = 0
    for names, days, rows in search.blocks():
        scores = vectors @ rows.T
        for column, name in enumerate(names):
            if name in query_of:
                scores[query_of[name], column] = -np.inf
        best = _select_highest(best, scores)
        if since is not None:
            newer = np.flatnonzero(days >= since)
            newer_rows += len(newer)
            best_newer = _select_highest(best_newer, scores[:, newer])
    share = newer_rows / passages
    # Searches among fewer passages are scans and do not use the index.
    is_measurable = since is not None and newer_rows > EXACT_LIMIT and share > MIN_INDEX_SHARE
    return _Sample(
        ids=ids,
        vectors=vectors,
        scores=best,
        day_condition=f"last_day >= {since}" if is_measurable else "",
        day_share=share,
        filtered_scores=best_newer,
    )


def _select_highest(best: Vectors, scores: Vectors) -> Vectors:
    """Return the K highest scores of each row of both arrays, in no particular order."""
    import numpy as np

    return np.partition(np.concatenate([best, scores], axis=1), -K, axis=1)[:, -K:]
