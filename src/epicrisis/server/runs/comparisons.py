"""Two finished runs of the server's folder, compared as `epicrisis compare` does, with the questions that changed."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

from epicrisis.core.errors import InputError
from epicrisis.evaluation.analysis.changed_cases import ChangedCase, list_changed_cases
from epicrisis.evaluation.analysis.findings import Findings
from epicrisis.evaluation.analysis.run_comparison import compare_runs
from epicrisis.evaluation.runs.recorded_run import RecordedRun, open_runs, refuse_mismatched_records
from epicrisis.evaluation.runs.run_folder import RECORDS
from epicrisis.pipeline.recording.record import RunRecord
from epicrisis.server.errors import NotFound
from epicrisis.server.runs.run_routes import RunFolder
from epicrisis.server.users import Caller

_KEPT = 8
"""Comparisons that are remembered, as pages and exports of one read the same records."""


@dataclass(frozen=True, slots=True)
class RunPair:
    """Two runs, and what is different."""

    first: str
    second: str
    findings: Findings
    changes: tuple[ChangedCase, ...]
    runs: tuple[RecordedRun, RecordedRun]


class RunComparisons:
    """Compares the runs of a folder for callers."""

    def __init__(self, runs: RunFolder) -> None:
        self._runs = runs
        self._kept: OrderedDict[tuple[object, ...], RunPair] = OrderedDict()

    async def compare(self, first: str, second: str, caller: Caller) -> RunPair:
        """Return the comparison of two runs that the caller may read. The access log has both if they are of patients.

        Raises NotFound, and InputError for the same run twice and for runs without records.
        """
        return await asyncio.to_thread(self._compare, first, second, caller)

    def _compare(self, first: str, second: str, caller: Caller) -> RunPair:
        if first == second:
            raise InputError("a comparison needs two runs: choose another one on one side")
        folders = [self._runs.find(name, caller) for name in (first, second)]
        key = (first, second, *map(_describe_state, folders))
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        with refuse_mismatched_records(folders):
            one, other = open_runs(folders)
            pair = RunPair(first, second, compare_runs([one, other]), list_changed_cases(one, other), (one, other))
        self._kept[key] = pair
        while len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
        return pair

    async def find_answers(self, pair: RunPair, number: int) -> tuple[ChangedCase, RunRecord, RunRecord]:
        """Return a changed case by its number, from 1, with both records. Raises NotFound."""
        if not 1 <= number <= len(pair.changes):
            raise NotFound("the comparison has no such question")
        case = pair.changes[number - 1]
        first = await asyncio.to_thread(_find_record, pair.runs[0], case.first.key)
        second = await asyncio.to_thread(_find_record, pair.runs[1], case.second.key)
        return case, first, second


def _describe_state(folder: Path) -> tuple[int, int]:
    """Return what changes when records are added to a run."""
    try:
        status = (folder / RECORDS).stat()
    except FileNotFoundError:
        raise InputError(f"the run {folder.name} has no records: choose another one") from None
    return status.st_size, status.st_mtime_ns


def _find_record(run: RecordedRun, key: str) -> RunRecord:
    for record in run.records():
        if record.key == key:
            return record
    raise NotFound("the record is no longer in the run: compare the runs again")
