"""The common parts of experiments on votes and solved questions: cases, the order of rows, and cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from epicrisis.core.errors import InputError
from epicrisis.core.types import Question
from epicrisis.evaluation.analysis.grouping import group_by
from epicrisis.evaluation.analysis.statistics import estimate_mean
from epicrisis.evaluation.analysis.table import Cell, PlotSpec, Table, points_plot
from epicrisis.evaluation.experiments.arms import condition_order
from epicrisis.evaluation.experiments.definition import CaseInputs, Runs
from epicrisis.evaluation.experiments.outcome_groups import group_conditions
from epicrisis.evaluation.runs.outcomes import Outcome, score_records
from epicrisis.evaluation.runs.recorded_run import RecordedRun
from epicrisis.pipeline.recording.answer_record import RunRecord
from epicrisis.settings.tables import VoteSettings

T = TypeVar("T", Outcome, RunRecord)

ZERO, COT, SC, SHUFFLED = "zero-shot", "chain-of-thought", "self-consistency", "self-consistency+shuffling"
MEDPROMPT = "medprompt"
NO_EXAMPLES = "none"
"""Value of the condition `examples` for cases without solved questions."""
QUESTION_SETS = ("careqa", "mirage/medmcqa", "mirage/medqa", "mirage/mmlu")
"""Multiple-choice sets of the context-retrieval study."""


def set_votes(inputs: CaseInputs, n: int, *, shuffle: bool) -> VoteSettings:
    """Return the user's settings of votes with `n` votes, with or without shuffled options."""
    return inputs.settings.votes.model_copy(update={"n": n, "shuffle": shuffle})


def single_votes(inputs: CaseInputs, name: str) -> int:
    """Return the one number of votes of the grid. Raises InputError for several."""
    if len(inputs.grid.votes) != 1:
        raise InputError(f"{name} takes one number of votes: give --votes once")
    return inputs.grid.votes[0]


def preferred_size(n: int, sizes: Sequence[int]) -> int:
    """Return `n` where it is one of the sizes, else the largest of them."""
    return n if n in sizes else max(sizes)


def check_choices(questions: Iterable[Question]) -> None:
    """Raise InputError for a question without options or without a gold letter."""
    for question in questions:
        if question.gold not in question.options:
            raise InputError(
                f"question {question.id!r} has no options or no gold letter: this experiment needs both, so take "
                "another question set"
            )


def sort_outcomes(run: RecordedRun, outcomes: Iterable[Outcome]) -> list[Outcome]:
    """Sort outcomes by set, source of examples (in the order of the plan), condition and question."""
    sources = list(run.manifest.plan.arguments.get("examples", ())) if run.manifest else []

    def place(outcome: Outcome) -> tuple[Any, ...]:
        source = str(outcome.condition.get("examples"))
        rank = sources.index(source) if source in sources else -1
        return str(outcome.condition.get("set", "")), rank, condition_order(outcome.condition), outcome.question

    return sorted(outcomes, key=place)


def split_sets(cases_by_model: Mapping[str, Iterable[T]]) -> dict[str, list[T]]:
    """Return the cases by model; of several sets by model and set, the sets by name."""
    split: dict[str, list[T]] = {}
    for model, cases in cases_by_model.items():
        by_set = group_by(cases, lambda case: str(case.condition.get("set", "")))
        for name in sorted(by_set):
            split[f"{model}, {name}" if name else model] = by_set[name]
    return split


def vote_tables(
    build: Callable[..., tuple[Table, ...]], by: Sequence[str]
) -> Callable[[Runs, Sequence[str]], tuple[Table, ...]]:
    """Adapt a function from outcomes to tables: it takes finished runs, and adds their usage by these conditions.

    Each set is separate, unless `set` is one of the conditions.
    """

    def tables_of_runs(runs: Runs, remarks: Sequence[str]) -> tuple[Table, ...]:
        outcomes: Mapping[str, list[Outcome]] = {
            run.name: sort_outcomes(run, score_records(run.records())) for run in runs
        }
        if "set" not in by:
            outcomes = split_sets(outcomes)
        return (*build(outcomes, remarks=remarks), usage_of_runs(runs, by))

    return tables_of_runs


_USAGE_NOTES = (
    "Means per case with 95 % intervals. Cached replies count with their original cost, so each row shows the cost of "
    "its votes as if they were drawn for it alone.",
)


def usage_plots(**fields: Any) -> tuple[PlotSpec, ...]:
    """Return the plots of the tokens and of the calls a case, with these fields."""
    tokens, calls = (
        points_plot("Tokens a case", "tokens"),
        points_plot("Calls a case", "calls"),
    )
    return replace(tokens, **fields), replace(calls, **fields)


def usage_of_runs(runs: Runs, by: Sequence[str]) -> Table:
    """Build the table of calls and tokens of finished runs, each set separate, unless `set` is in `by`."""
    records = {run.name: run.records() for run in runs}
    return usage_table(records if "set" in by else split_sets(records), by)


def usage_table(runs: Mapping[str, Iterable[RunRecord]], by: Sequence[str]) -> Table:
    """Build the table of calls and tokens per case, by these conditions; failed cases are left out and counted."""

    def order(labels: tuple[Cell, ...]) -> list[tuple[bool, float, str]]:
        # Numbers by size, before names.
        keys: list[tuple[bool, float, str]] = []
        for label in labels:
            if isinstance(label, int | float):
                keys.append((False, float(label), ""))
            else:
                keys.append((True, 0.0, str(label or "")))
        return keys

    rows: list[tuple[Cell, ...]] = []
    for model, records in runs.items():
        groups = group_conditions(records, *by)
        for labels in sorted(groups, key=order):
            questions: list[str] = []
            calls: list[float | None] = []
            tokens: list[float | None] = []
            for record in groups[labels]:
                if record.answer.state != "failed":
                    usage = record.answer.usage
                    questions.append(record.question_key)
                    calls.append(usage.calls + usage.replayed_calls)
                    tokens.append(usage.prompt_tokens + usage.completion_tokens + usage.replayed_tokens)
            n = len(groups[labels])
            means: list[Cell] = [None, None]
            if questions:
                means = [estimate_mean(values, questions, shares=False) for values in (calls, tokens)]
            rows.append((model, *labels, n, n - len(questions), *means))
    columns = ("model", *by, "cases", "not counted", "calls", "tokens")
    return Table("What it took", columns, tuple(rows), _USAGE_NOTES)
