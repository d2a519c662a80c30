"""The experiments about patients' records on the command line: the library of a set's notes, the run, its measures."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from epicrisis.cli.common import fail, plain_name
from epicrisis.cli.measure import NOT_MEASURED
from epicrisis.cli.running import folder_of, run_cases, show_runs
from epicrisis.cli.terminal import open_console, say

if TYPE_CHECKING:
    from epicrisis.evaluation.datasets.patient_records.recordset import RecordSet
    from epicrisis.evaluation.experiments.experiment import Request
    from epicrisis.evaluation.runs.case import Case
    from epicrisis.evaluation.runs.run_folder import RunManifest, RunPlan
    from epicrisis.library.ingest_report import IngestReport
    from epicrisis.pipeline import Pipeline
    from epicrisis.settings import Settings

STUDIED = {"fusion_times": 2, "unverified": "keep"}
"""The study's settings where none are named: twice as many hits of each ranking as chunks, and every answer counts."""


@dataclass(frozen=True, slots=True)
class Measures:
    """What the answers are measured by, beside what needs no model."""

    judges: tuple[str, ...] = ()
    nli: tuple[str, ...] = ()
    bertscore: tuple[str, ...] = ()
    against_notes: bool = False
    """Whether the judges hold the answers against the notes as well."""


def asked(
    name: str,
    request: Request,
    flags: dict[str, Any],
    config: Path | None,
    library: Path | None,
    output: Path | None,
    measures: Measures,
    chunk_tokens: int | None,
    *,
    yes: bool,
    json: bool,
    also: Sequence[str] = (),
) -> None:
    """Runs the experiment, or goes on with it, measures its answers, and shows what it came to.

    Without a library one is made of the set's notes, beside the runs; the set's other experiments find it there.
    """
    from epicrisis.configuration import load_settings, merge_tables
    from epicrisis.evaluation.experiments.record_cases import load_record_sets, plan_record_experiment
    from epicrisis.evaluation.experiments.registry import find_experiment as called
    from epicrisis.evaluation.experiments.run_findings import read_findings

    wanted = called(name)
    sets = load_record_sets(wanted, request)
    for one in sets:
        for notice in one.notices:
            say(f"note: {one.name}: {notice}", err=True)
    if request.reranker is not None:
        flags = {**flags, "rerank": {"name": request.reranker}}
    runs: dict[Path, RunManifest] = {}
    failed = 0
    for each in (None, *also):
        changes: dict[str, Any] = {} if each is None else {"models": {"writer": {"name": each}}}
        settings = load_settings(
            merge_tables(merge_tables({**STUDIED, "strategy": wanted.strategy}, flags), changes), config
        )
        path = library or _library_of(sets, request.data or Path(), settings, chunk_tokens)
        _fill(path, sets, settings, chunk_tokens, quiet=json)
        model = settings.model_for("writer").name
        folder = (
            folder_of(output, wanted.name, model) if not also else folder_of(output, wanted.name) / plain_name(model)
        )

        async def planned(pipeline: Pipeline, settings: Settings = settings) -> tuple[RunPlan, Sequence[Case]]:
            return await plan_record_experiment(wanted, request, sets, settings, pipeline)

        runs[folder] = asyncio.run(run_cases(settings, path, folder, planned, yes=yes, quiet=json))
        failed += _measure(folder, measures, settings, path, yes=yes, quiet=json)
    show_runs(read_findings(list(runs)), runs, json=json)
    if failed:
        fail(f"{failed} measures failed; the same command makes them again", NOT_MEASURED)


def _library_of(sets: Sequence[RecordSet], data: Path, settings: Settings, chunk_tokens: int | None) -> Path:
    """Where the library of these sets is, or will be: its name says what it is made of and with. Other files, or files
    that changed, have another: a record must not be joined with one of the same name from elsewhere."""
    from epicrisis.components import DEFAULT_ENCODER

    files = sorted(data.rglob("*")) if data.is_dir() else [data]
    stats = [(str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns) for file in files if file.is_file()]
    digest = hashlib.sha256(repr(stats).encode()).hexdigest()[:8]
    names = [each.name for each in sets] + [settings.encoder or DEFAULT_ENCODER]
    parts = [*names, *([str(chunk_tokens)] if chunk_tokens else []), digest]
    return Path("runs") / f"library-{'-'.join(map(plain_name, parts))}"


def _fill(path: Path, sets: Sequence[RecordSet], settings: Settings, chunk_tokens: int | None, *, quiet: bool) -> None:
    from rich.status import Status

    from epicrisis.evaluation.experiments.record_cases import add_notes

    with Status("Reading the notes", console=open_console(stderr=True, quiet=quiet)) as status:
        report = add_notes(
            path,
            sets,
            settings,
            chunk_tokens,
            lambda now: status.update(f"Reading the notes: {now.documents} read, {now.passages} chunks"),
        )
    _tell(path, report)


def _tell(path: Path, report: IngestReport) -> None:
    """Says on standard error what was put in, and what was not."""
    if report.added or report.replaced:
        say(f"{report.added + report.replaced} notes, {report.passages} chunks in {path}", err=True)
    for item in report.first_skipped:
        say(f"epicrisis: {', '.join(filter(None, (item.path, item.where)))}: {item.reason}", err=True)


def _measure(folder: Path, measures: Measures, settings: Settings, library: Path, *, yes: bool, quiet: bool) -> int:
    """Measures what can be measured of the answers; how many measures failed."""
    from epicrisis.cli.measure import measure_run
    from epicrisis.evaluation.grading.scored_answers import read_answers

    if not any(each.measurable for each in read_answers(folder)):
        return 0
    against = library if measures.judges and measures.against_notes else None
    return measure_run(
        folder, measures.judges, measures.nli, measures.bertscore, settings, against, yes=yes, quiet=quiet
    )
