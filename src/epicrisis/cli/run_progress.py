"""A run of cases on the command line: confirmed if expensive, shown while it goes on, summed up at its end."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from epicrisis.cli.command import exit_code, fail
from epicrisis.cli.progress import open_progress, say_above
from epicrisis.cli.terminal import interruptible, say, show_data, show_findings
from epicrisis.core.answers import Answer, Notice, Usage
from epicrisis.core.errors import InputError
from epicrisis.core.printable import agree, count_noun, quote_for_shell

if TYPE_CHECKING:
    from collections.abc import Iterator

    from epicrisis.evaluation.analysis.findings import Findings
    from epicrisis.evaluation.analysis.statistics import Mean
    from epicrisis.evaluation.runs.outcomes import Outcome
    from epicrisis.evaluation.runs.run_folder import RunManifest, RunPlan
    from epicrisis.library.base.skipped_items import SkippedReason
    from epicrisis.library.write.ingest_batches import IngestReport
    from epicrisis.models.cluster import ClusterAddress
    from epicrisis.pipeline.pipeline import Pipeline
    from epicrisis.pipeline.recording.case import Case
    from epicrisis.settings.settings import Settings

_NOTICES_OF_A_RUN = frozenset({"cache", "model"})
"""Kinds of notices about the whole run: each text is shown once."""


def file_name_part(name: str) -> str:
    """Return `name` as part of a file name: letters, digits and dots, with hyphens for everything else."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-")


def run_folder(folder: Path | None, *parts: str) -> Path:
    """Return `folder`, or a folder in `runs/` with a name made of `parts`."""
    if folder is not None:
        return folder
    return Path("runs") / "-".join(map(file_name_part, parts))


async def run_cases(
    settings: Settings,
    library: Path | None,
    folder: Path,
    prepare: Callable[[Pipeline], Awaitable[tuple[RunPlan, Sequence[Case]]]],
    *,
    yes: bool,
    quiet: bool,
    cluster: ClusterAddress | None = None,
) -> RunManifest:
    """Ask the cases that have no record in `folder` yet, and return the run's manifest.

    `prepare` returns the plan and the cases of the run, given the open pipeline. With a `cluster`, its nodes search.
    """
    from epicrisis.evaluation.runs.energy import SessionEnergy, measure_energy
    from epicrisis.evaluation.runs.outcomes import score_record
    from epicrisis.evaluation.runs.run_folder import MANIFEST, RECORDS, Run
    from epicrisis.models.model_pool import ModelPool
    from epicrisis.pipeline.cluster_search import search_on_cluster
    from epicrisis.pipeline.pipeline import Pipeline
    from epicrisis.pipeline.plan.strategy_plans import confirmation_question
    from epicrisis.pipeline.recording.answer_record import read_records
    from epicrisis.pipeline.recording.runner import answer_cases, check_strategies

    async def prepare_calls(cases: Sequence[Case]) -> None:
        """Confirm an expensive run with its user, and refuse strategies that the model cannot answer with."""
        overrides = [case.treatment for case in cases]
        if not yes:
            questions = [case.question for case in cases]
            confirm(await confirmation_question(pipeline, settings, questions, overrides))
        await check_strategies(pipeline, [item.strategy or settings.strategy for item in overrides])

    # Arms, places and questions select sentences of the same documents again and again.
    async with Pipeline.open(settings, library, pool=ModelPool(remembers=True)) as pipeline:
        if pipeline.search is not None and pipeline.search.library.count() == (0, 0):
            add = f"epicrisis library add {quote_for_shell(str(library))}"
            raise InputError(f"{library} contains no document: add some with `{add} FILES`")
        warn_about_demo_models(settings, settings.roles)
        with open_progress(quiet=quiet, transient=True) as progress, interruptible():
            progress.add_task("Preparing the cases", total=None)
            plan, cases = await prepare(pipeline)
            await pipeline.check_questions(case.question for case in cases)
        # A run that is not confirmed leaves no folder, which would bar another run.
        continued = (folder / MANIFEST).exists()
        if not continued:
            await prepare_calls(cases)
        with Run.open(folder, plan, cases) as run:
            run.record_energy(SessionEnergy(0.0, settings.energy.kg_co2_per_kwh, ()))
            if continued:
                await prepare_calls([case for case in cases if not run.records.is_done(case.key)])
            standing = RunProgress()
            if run.records.states:
                standing.add_earlier(map(score_record, read_records(folder / RECORDS)))
            notices: set[str] = set()
            # The energy of a session that asks nothing is not recorded.
            record_energy = run.record_energy if run.remaining else lambda energy: None
            with (
                search_on_cluster(pipeline, settings, library, cluster if run.remaining else None) as pool,
                _arm_progress(cases, standing, quiet) as show,
                measure_energy(settings, record_energy) as meter,
            ):
                async for case, answer in answer_cases(pool, cases, run.records, pool.concurrency):
                    if answer is not None:
                        meter.calls += answer.usage.calls
                        standing.add(case, answer)
                        show(_remarks(case, answer, notices))
            _say_long_questions(cases, run.records.long_questions, settings)
            return run.close()


def _remarks(case: Case, answer: Answer, notices: set[str]) -> list[str]:
    """Return new notices of the answer, and its failure. New notices are added to `notices`."""
    lines = []
    for event in answer.trace:
        if isinstance(event, Notice) and event.kind in _NOTICES_OF_A_RUN and event.message not in notices:
            notices.add(event.message)
            lines.append(f"note: {event.message}")
    if answer.state == "failed" and answer.failure is not None:
        lines.append(f"{case.question.id}: {answer.failure.message}")
    return lines


def _say_long_questions(cases: Sequence[Case], long_cases: Set[str], settings: Settings) -> None:
    """Print the number of questions beyond the encoder's window to standard error."""
    questions = {case.question.key for case in cases}
    long_questions = {case.question.key for case in cases if case.key in long_cases}
    if n := len(long_questions):
        say(
            f"note: {n} of {count_noun(len(questions), 'question')} {agree(n, 'is', 'are')} longer than the encoder "
            f"can read (long_questions = {settings.long_questions})",
            err=True,
        )


def warn_about_demo_models(settings: Settings, roles: Sequence[str]) -> None:
    """Print the demonstration models among `roles` to standard error."""
    from epicrisis.models.catalogue import is_demo

    names = dict.fromkeys(settings.model_for(role).name for role in roles)
    for name in filter(is_demo, names):
        say(f"note: {name} is a small model for demonstration only: choose a better one with --model", err=True)


def say_skipped(reasons: Iterable[SkippedReason], listed_in: Path | None = None) -> None:
    """Warn on standard error about skipped items: one line for each reason, with its cure.

    `listed_in`: the file with all of them.
    """
    count = 0
    for reason in reasons:
        count += reason.count
        names = "; ".join(reason.names)
        if reason.count == 1:
            say(f"warning: {names}: {reason.reason}" if names else f"warning: {reason.reason}", err=True)
            continue
        others = f"; {reason.count - len(reason.names):,} more" if reason.count > len(reason.names) else ""
        say(f"warning: {reason.count:,} skipped: {reason.reason} ({names}{others})", err=True)
    if count:
        where = f"; {quote_for_shell(str(listed_in))} lists all" if listed_in is not None else ""
        say(f"warning: {count_noun(count, 'item')} {agree(count, 'was', 'were')} skipped{where}", err=True)


def say_remarks(report: IngestReport) -> None:
    """Write remarks about read files on standard error."""
    for remark in report.remarks:
        say(f"note: {remark}", err=True)
    if report.more_remarks:
        say(f"note: {count_noun(report.more_remarks, 'more file')} already in the library, or renamed", err=True)


def say_report_skipped(report: IngestReport, library: Path) -> None:
    """Warn about the skipped items of an addition. End the command with an error if nothing else was read."""
    from epicrisis.library.base.skipped_items import SKIPPED_FILE

    say_skipped(report.reasons, library / SKIPPED_FILE)
    documents = report.added + report.replaced + report.unchanged + report.outdated + report.deleted
    if report.skipped and not documents and not report.statements:
        fail("nothing was added: all that was read was skipped, for the reasons above")


def confirm(question: str | None, refused: str = "nothing was asked") -> None:
    """Return if there is no question, or a person answers yes; else end the command with `refused`.

    Without a terminal no answer is possible: the command ends with a hint at `--yes`.
    """
    if question is None:
        return
    if not sys.stdin.isatty():
        fail(f"{question.removesuffix('. Go on?')}: add --yes to run it")
    try:
        with interruptible():
            agreed = typer.confirm(question, err=True)
    except typer.Abort:
        say(err=True)
        fail(f"stopped; {refused}", exit_code())
    if not agreed:
        fail(refused)


def show_runs(
    findings: Sequence[Findings], runs: Mapping[Path, RunManifest], *, json: bool, first_table_only: bool = False
) -> None:
    """Show findings and state of runs, by folder. End the command with an error if a case failed."""
    from epicrisis.evaluation.analysis import energy_tables

    if json:
        rows = [{"folder": str(folder), "manifest": manifest} for folder, manifest in runs.items()]
        run_data = rows[0] if len(rows) == 1 else {"runs": rows}
        show_data({**run_data, "findings": findings})
    else:
        for finding in findings:
            # The report has the tables on energy, whose notes are longer than the results of a small run.
            tables = [table for table in finding.tables if table.title not in energy_tables.TITLES]
            conclusions = finding.conclusions
            if first_table_only:
                tables, conclusions = tables[:1], ()
            show_findings(replace(finding, tables=tuple(tables), conclusions=conclusions))
        for folder, manifest in runs.items():
            states = ", ".join(f"{count} {state}" for state, count in manifest.states.items())
            say()
            report = f"epicrisis report {quote_for_shell(folder)} -o report.html"
            say(f"{states or 'nothing was asked'}; saved in {folder} ({report})")
            say(usage_line(Usage(**manifest.usage)))
    failed = sum(manifest.states.get("failed", 0) for manifest in runs.values())
    if failed:
        fail(f"{count_noun(failed, 'case')} failed; the same command asks them again")


@contextmanager
def _arm_progress(
    cases: Sequence[Case], standing: RunProgress, quiet: bool
) -> Iterator[Callable[[Sequence[str]], None]]:
    """Show a bar for each arm and one for all cases. The function given redraws them, with these lines above."""

    totals = Counter(map(find_arm, cases))
    with open_progress("so_far", quiet=quiet) as progress:
        tasks = {
            arm: progress.add_task(arm, total=total, so_far="") for arm, total in totals.items() if arm != ALL_CASES
        }
        overall = progress.add_task("all", total=len(cases), so_far="")

        def show(lines: Sequence[str]) -> None:
            for line in lines:
                say_above(progress, line)
            for arm, task in tasks.items():
                progress.update(task, completed=standing.finished[arm], so_far=_accuracy(standing, arm))
            so_far = tokens_spent(standing.usage)
            if standing.scored[ALL_CASES]:
                so_far = f"{_accuracy(standing, ALL_CASES)}  {so_far}"
            progress.update(overall, completed=sum(standing.finished.values()), so_far=so_far)

        show(())
        yield show


def _accuracy(standing: RunProgress, arm: str) -> str:
    share = standing.share_right(arm)
    if share is None:
        return ""
    failed = f", {standing.failed[arm]} failed" if standing.failed[arm] else ""
    return f"right {share.value:.1%} ({share.interval.low:.0%} to {share.interval.high:.0%}){failed}"


def tokens_spent(usage: Usage) -> str:
    """Return prompt and completion tokens together, and the cost in US dollars where it is known."""
    tokens = f"{count_noun(usage.prompt_tokens + usage.completion_tokens, 'token')}"
    return tokens if usage.cost is None else f"{tokens}, ${usage.cost:,.2f}"


def usage_line(usage: Usage) -> str:
    """Return calls, tokens, seconds and cost in one line."""
    cost = "cost unknown" if usage.cost is None else "no charge" if usage.cost == 0 else f"${usage.cost:.4f}"
    failed = f" ({usage.failed_calls} failed)" if usage.failed_calls else ""
    calls = f"{usage.calls:,} call{'' if usage.calls == 1 else 's'}"
    cached = f"{usage.replayed_calls:,} cached repl{'y' if usage.replayed_calls == 1 else 'ies'}"
    replayed = f" and {cached}" if usage.replayed_calls else ""
    thought = f" ({usage.reasoning_tokens:,} of them thinking)" if usage.reasoning_tokens else ""
    uncounted = f", the tokens of {count_noun(usage.uncounted_calls, 'call')} unknown" if usage.uncounted_calls else ""
    return (
        f"{calls}{failed}{replayed}, {usage.prompt_tokens:,} prompt tokens "
        f"({usage.cached_tokens:,} cached), {usage.completion_tokens:,} completion tokens{thought}{uncounted}, "
        f"{usage.seconds:.1f} s of model time, {cost}"
    )


ALL_CASES = "all"
"""The arm of cases without one."""


class RunProgress:
    """Counts of finished cases, by arm."""

    def __init__(self) -> None:
        self.usage = Usage()
        """The usage of this session."""
        self.finished: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self.right: Counter[str] = Counter()
        self.scored: Counter[str] = Counter()

    def add_earlier(self, outcomes: Iterable[Outcome]) -> None:
        """Count cases of earlier sessions, except failed ones, which are answered again."""
        for outcome in outcomes:
            if outcome.state != "failed":
                self._count(outcome)

    def add(self, case: Case, answer: Answer) -> None:
        """Count a case that has just been answered."""
        self.usage += answer.usage
        from epicrisis.evaluation.runs.outcomes import score_case

        self._count(score_case(case, answer))

    def _count(self, outcome: Outcome) -> None:
        from epicrisis.evaluation.analysis.grouping import score_outcome

        arm = str(outcome.condition.get("arm", ALL_CASES))
        value = score_outcome(outcome, "right")
        self.finished[arm] += 1
        self.failed[arm] += outcome.state == "failed"
        if value is None or outcome.chance is None:
            return
        self.scored[arm] += 1
        self.right[arm] += int(value)

    def share_right(self, arm: str) -> Mean | None:
        """Return the share right among the cases of an arm that can be scored, or None if there are none.

        The interval is Wilson's, as if each question occurred once.
        """
        from epicrisis.evaluation.analysis.statistics import Mean, wilson

        n = self.scored[arm]
        if not n:
            return None
        return Mean(self.right[arm] / n, wilson(self.right[arm], n), n)


def find_arm(case: Case) -> str:
    """Return the arm under which a case is counted."""
    return str(case.condition.get("arm", ALL_CASES))
