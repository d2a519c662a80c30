"""A run of cases on the command line: asked before a dear one begins, shown as it goes on, summed up at its end."""

from __future__ import annotations

import signal
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from epicrisis.cli.common import INTERRUPTED, fail, plain_name
from epicrisis.cli.tables import show_data, show_findings
from epicrisis.cli.terminal import open_console, say, say_above
from epicrisis.printable import quote_for_shell

if TYPE_CHECKING:
    from collections.abc import Iterator

    from epicrisis.answers import Answer
    from epicrisis.evaluation.analysis.findings import Findings
    from epicrisis.evaluation.analysis.run_progress import RunProgress
    from epicrisis.evaluation.analysis.statistics import Mean
    from epicrisis.evaluation.runs.case import Case
    from epicrisis.evaluation.runs.energy import SessionEnergy
    from epicrisis.evaluation.runs.run_folder import RunManifest, RunPlan
    from epicrisis.pipeline import Pipeline
    from epicrisis.settings import Settings

NOT_ANSWERED = 2
_OF_ALL = frozenset({"cache", "model"})
"""Notices, by their kind, that hold for more than the one answer: each is shown once a run."""


def folder_of(named: Path | None, *parts: str) -> Path:
    """The folder that was named, else `runs/` and a name made of the parts."""
    if named is not None:
        return named
    return Path("runs") / "-".join(map(plain_name, parts))


async def run_cases(
    settings: Settings,
    library: Path | None,
    folder: Path,
    planned: Callable[[Pipeline], Awaitable[tuple[RunPlan, Sequence[Case]]]],
    *,
    yes: bool,
    quiet: bool,
) -> RunManifest:
    """Asks what has no record in the folder yet. `planned` says what the run asks, over the open pipeline."""
    from epicrisis.errors import InputError
    from epicrisis.evaluation.analysis.run_progress import RunProgress
    from epicrisis.evaluation.runs.energy import SessionEnergy, measure_energy
    from epicrisis.evaluation.runs.outcomes import score_record
    from epicrisis.evaluation.runs.record import read_records
    from epicrisis.evaluation.runs.run_folder import MANIFEST, RECORDS, Run
    from epicrisis.evaluation.runs.runner import answer_cases
    from epicrisis.pipeline import Pipeline
    from epicrisis.plan.confirmation import confirmation_question

    async def agreed(left: Sequence[Case]) -> None:
        questions, treatments = [case.question for case in left], [case.treatment for case in left]
        if not yes and (asked := await confirmation_question(pipeline, settings, questions, treatments)) is not None:
            confirm(asked)

    async with Pipeline.open(settings, library) as pipeline:
        if pipeline.search is not None and pipeline.search.library.count() == (0, 0):
            add = f"epicrisis library add {quote_for_shell(str(library))}"
            raise InputError(f"{library} holds no document: add some with `{add} FILES`")
        note_demo(settings, settings.roles)
        with _working("Preparing the cases", quiet):
            plan, cases = await planned(pipeline)
            await pipeline.check_questions(case.question for case in cases)
        # A run that is not agreed to leaves no folder behind, which would bar another one.
        if not (begun := (folder / MANIFEST).exists()):
            await agreed(cases)
        with Run.open(folder, plan, cases) as run:
            # Stands where nothing is asked.
            run.record_energy(SessionEnergy(0.0, settings.energy.kg_co2_per_kwh, ()))
            if begun:
                await agreed([case for case in cases if not run.records.is_done(case.key)])
            standing = RunProgress()
            if run.records.states:
                standing.add_earlier(map(score_record, read_records(folder / RECORDS)))
            told: set[str] = set()
            keep = run.record_energy if run.remaining else _forget
            with _bars(cases, standing, quiet) as show, measure_energy(settings, keep) as meter:
                async for case, answer in answer_cases(pipeline, cases, run.records, pipeline.concurrency):
                    if answer is not None:
                        meter.calls += answer.usage.calls
                        standing.add(case, answer)
                        show(_remarks(case, answer, told))
            _tell_long(cases, run.records.long_questions, settings)
            return run.close()


def _forget(_: SessionEnergy) -> None:
    """Of a finished run."""


def _remarks(case: Case, answer: Answer, told: set[str]) -> list[str]:
    """What is to be said of the answer while the run goes on: why it failed, and what no answer before it had said."""
    from epicrisis.answers import Notice

    notices = [event.message for event in answer.trace if isinstance(event, Notice) and event.kind in _OF_ALL]
    new = [f"note: {message}" for message in dict.fromkeys(notices) if message not in told]
    told.update(notices)
    failed = answer.failure if answer.state == "failed" else None
    return [*new, *([f"{case.question.id}: {failed.message}"] if failed else [])]


def _tell_long(cases: Sequence[Case], long: Set[str], settings: Settings) -> None:
    """Says on standard error how many questions the encoder could not read whole."""
    questions = {case.question.key for case in cases}
    found = {case.question.key for case in cases if case.key in long}
    if found:
        how = f"(done about it: {settings.long_questions})"
        say(f"note: {len(found)} of {len(questions)} questions are longer than the encoder reads {how}", err=True)


def note_demo(settings: Settings, roles: Sequence[str]) -> None:
    """Says on standard error which of these roles' models are for demonstration: none to rely on."""
    from epicrisis.models.catalogue import is_demo

    for name in filter(is_demo, dict.fromkeys(settings.model_for(role).name for role in roles)):
        told = f"note: {name} is a small model for demonstration, not for use"
        say(f"{told}: name a better one with --model", err=True)


def confirm(question: str) -> None:
    """Goes on where a person says yes."""
    if not sys.stdin.isatty():
        fail(f"{question.removesuffix('. Go on?')}: give --yes to go on", NOT_ANSWERED)
    try:
        with _stoppable():
            agreed = typer.confirm(question, err=True)
    except typer.Abort:
        say(err=True)
        fail("stopped; nothing was asked", INTERRUPTED)
    if not agreed:
        fail("nothing was asked", NOT_ANSWERED)


def show_runs(
    findings: Sequence[Findings], runs: Mapping[Path, RunManifest], *, json: bool, answers_alone: bool = False
) -> None:
    """What the runs came to, by their folders, or their first table alone. Ends the command with exit code 2 where a
    case failed."""
    from epicrisis.answers import Usage
    from epicrisis.cli.screen import usage_line

    if json:
        told = [{"folder": str(folder), "manifest": manifest} for folder, manifest in runs.items()]
        show_data({**(told[0] if len(told) == 1 else {"runs": told}), "findings": findings})
    else:
        for each in findings:
            show_findings(replace(each, tables=each.tables[:1], conclusions=()) if answers_alone else each)
        for folder, manifest in runs.items():
            states = ", ".join(f"{count} {state}" for state, count in manifest.states.items())
            say()
            report = f"epicrisis report {quote_for_shell(folder)} -o report.html"
            say(f"{states or 'nothing was asked'}; kept in {folder} ({report})")
            say(usage_line(Usage(**manifest.usage)))
    if failed := sum(manifest.states.get("failed", 0) for manifest in runs.values()):
        fail(f"{failed} cases failed; the same command asks them again", NOT_ANSWERED)


@contextmanager
def _working(what: str, quiet: bool) -> Iterator[None]:

    with open_console(stderr=True, quiet=quiet).status(what), _stoppable():
        yield


@contextmanager
def _stoppable() -> Iterator[None]:
    """Ctrl-C stops at once what runs here; asyncio's own handler would wait for its end."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _bars(cases: Sequence[Case], standing: RunProgress, quiet: bool) -> Iterator[Callable[[Sequence[str]], None]]:
    """A bar for each arm with its share right so far, and one for all with what was spent. The function that is given
    draws them anew, with these lines above them."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from epicrisis.evaluation.analysis.run_progress import ALL_CASES, find_arm

    totals = Counter(map(find_arm, cases))
    columns: tuple[Any, ...] = (
        TextColumn("{task.description}", markup=False),
        BarColumn(20),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[so_far]}", markup=False),
    )
    with Progress(*columns, console=open_console(stderr=True), disable=quiet) as progress:
        arms = {arm: progress.add_task(arm, total=n, so_far="") for arm, n in totals.items() if arm != ALL_CASES}
        whole = progress.add_task("all", total=len(cases), so_far="")

        def show(lines: Sequence[str]) -> None:
            for line in lines:
                say_above(progress, line)
            for arm, task in arms.items():
                progress.update(task, completed=standing.finished[arm], so_far=_share(standing.share_right(arm)))
            spent = _spent(standing)
            so_far = f"{_share(standing.share_right(ALL_CASES))}  {spent}" if standing.scored[ALL_CASES] else spent
            progress.update(whole, completed=sum(standing.finished.values()), so_far=so_far)

        show(())
        yield show


def _share(share: Mean | None) -> str:
    if share is None:
        return ""
    low, high = share.interval.low, share.interval.high
    failed = f", {share.unscored} failed" if share.unscored else ""
    return f"right {share.value:.1%} ({low:.0%} to {high:.0%}){failed}"


def _spent(standing: RunProgress) -> str:
    usage = standing.usage
    tokens = f"{usage.prompt_tokens + usage.completion_tokens:,} tokens"
    return tokens if usage.cost is None else f"{tokens}, ${usage.cost:,.2f}"
