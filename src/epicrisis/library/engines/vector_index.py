"""The vector index of a large library in a folder: build it, and find the fewest probes with the required recall."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from epicrisis.core.protocols import Vectors
from epicrisis.library.base.engine_errors import translate_errors
from epicrisis.library.base.manifest import sync_path
from epicrisis.library.engines.index_recall import IndexReport, K, draw_sample, parse_report, read_time
from epicrisis.library.engines.vector_search import EXACT_LIMIT, MIN_INDEX_SHARE, IndexSearchParameters, VectorSearch

NAME = "index.json"
MAX_PARTITIONS = 256
_REFINEMENTS = (4, 10, 40)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReport(IndexReport):
    """The measurement of an index of partitions, as saved in `index.json`."""

    partitions: int
    probes: int
    refine: int

    @property
    def parameters(self) -> str:
        return f"{self.probes} of {self.partitions} partitions searched"

    @property
    def effect_below_recall(self) -> str:
        return "searches scan all passages"


def read_report(folder: Path) -> PartitionReport | None:
    """Return the report of the last `optimize`, or None without a valid report. Searches are then exact."""
    try:
        return parse_report(PartitionReport, (folder / NAME).read_bytes())
    except OSError:
        return None


def read_search_parameters(folder: Path) -> IndexSearchParameters | None:
    """Return the parameters for searches in the index, or None if searches must not use it."""
    report = read_report(folder)
    return IndexSearchParameters(report.probes, report.refine) if report is not None and report.good else None


def write_report(folder: Path, report: PartitionReport) -> None:
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
) -> PartitionReport:
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
) -> PartitionReport:
    """Return the report with the fewest probes (doubled from 1) that reach the recall, or the best report."""
    on_step("finding the exact neighbours of a sample")
    # Searches among fewer passages are scans and do not use the index.
    sample = draw_sample(search, passages, lambda rows: rows > EXACT_LIMIT and rows / passages > MIN_INDEX_SHARE)
    reports = []
    for refine in _REFINEMENTS:
        probes, previous_recall = 1, -1.0
        while True:
            on_step(f"measuring {probes} probes")
            find = partial(_search, search, sample.newer_share, IndexSearchParameters(probes, refine))
            recall, filtered_recall = sample.measure(find)
            report = PartitionReport(
                passages=passages,
                partitions=partitions,
                probes=probes,
                refine=refine,
                recall=recall,
                filtered_recall=filtered_recall,
                queries=len(sample.ids),
                asked=min_recall,
                measured=read_time(),
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


def _search(
    search: VectorSearch, newer_share: float, parameters: IndexSearchParameters, vector: Vectors, since: int | None
) -> list[tuple[str, float]]:
    if since is None:
        return search.approximate(vector, K + 1, "", 1.0, parameters)
    return search.approximate(vector, K + 1, f"last_day >= {since}", newer_share, parameters)
