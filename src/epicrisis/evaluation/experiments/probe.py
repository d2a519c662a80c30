"""Does this model lose the middle of a long prompt on these documents, and is map-reduce worth its cost for it?

A small positions study, over a question set or over questions from the library's own documents (`cloze`), with two
plain answers first. No figure of a paper.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from epicrisis.core.printable import count_noun
from epicrisis.core.types import Passage, Question, Ranking
from epicrisis.evaluation.analysis.grouping import correct_p_values
from epicrisis.evaluation.analysis.sample_size import ALPHA
from epicrisis.evaluation.analysis.statistics import Difference, Mean
from epicrisis.evaluation.analysis.table import Cell, Table
from epicrisis.evaluation.analysis.table_text import format_p_equation
from epicrisis.evaluation.experiments import cloze, positions
from epicrisis.evaluation.experiments.definition import Experiment, Grid, Runs
from epicrisis.evaluation.experiments.outcome_groups import OutcomesByModel, read_outcomes
from epicrisis.evaluation.experiments.passage_source import PassageSource
from epicrisis.evaluation.experiments.token_costs import INPUT_PLOT, CaseCost, measured_table, read_costs, token_ratio

NAME = "probe"
K = 16
PLACES = (0, 50, 100)
ARMS = ("rag", "brief-context", "oracle", "closed-book")
N = 40
"""Questions, by default."""

_LOOKUP = (
    "Where no question set was named the questions are sentences of the library with a number left out: a reader who "
    "finds the sentence knows the answer. A model that finds it may still lose the middle where evidence must be "
    "weighed."
)
_MIDDLE, _WORTH = "Does it lose the middle?", "Is map-reduce worth it?"


def use_key_passages(source: PassageSource, keys: Mapping[str, Passage]) -> PassageSource:
    """Return the source with one key passage for each question id in `keys`, instead of the whole of its document."""

    def gold_passages(question: Question) -> Mapping[str, tuple[Passage, ...]]:
        key = keys.get(question.id)
        return source.gold_passages(question) if key is None else {key.document_id: (key,)}

    def retrieve(question: Question, k: int) -> Ranking:
        # The rest of the key's document is no distractor, so more must be retrieved.
        extra = sum(map(len, source.gold_passages(question).values())) if question.id in keys else 0
        return source.retrieve(question, k + extra)

    return replace(source, gold_passages=gold_passages, retrieve=retrieve)


def tables(
    runs: OutcomesByModel, costs: Mapping[str, Sequence[CaseCost]], remarks: Sequence[str] = ()
) -> tuple[Table, ...]:
    """Build the answers, the tables of `positions`, and the cost of each arm."""
    averages, by_place, middle = positions.tables(runs, remarks=remarks)
    cost_tables = map(measured_table, costs.values(), costs)
    return _answers_table(averages, middle, costs), by_place, averages, middle, *cost_tables


def _answers_table(averages: Table, middle: Table, costs: Mapping[str, Sequence[CaseCost]]) -> Table:
    """Build the answers to the probe's two questions, for each run and k. Their p values are a family of their own."""
    gains = {row[:2]: row[-2] for row in averages.rows if row[2] == "brief-context"}
    labels: list[tuple[Cell, Cell, str]] = []
    differences: list[Difference | None] = []
    for row in middle.rows:
        if row[2] == "rag":
            for question, value in ((_MIDDLE, row[3]), (_WORTH, gains.get(row[:2]))):
                labels.append((row[0], row[1], question))
                differences.append(value if isinstance(value, Difference) else None)
    corrected = correct_p_values(differences)
    rows: list[tuple[Cell, ...]] = []
    for (model, k, question), difference, p in zip(labels, differences, corrected, strict=True):
        if question == _MIDDLE:
            answer = _answer_middle(difference, p)
        else:
            answer = _answer_worth(difference, p, token_ratio(costs[str(model)], k))
        rows.append((model, k, question, answer))
    # Whether the model answers from the passage at all, for each model and k.
    bounds: list[str] = []
    shares = {row[:3]: row[3].value for row in averages.rows if isinstance(row[3], Mean)}
    for model, k in dict.fromkeys(row[:2] for row in averages.rows):
        alone, without = shares.get((model, k, "oracle")), shares.get((model, k, "closed-book"))
        if alone is not None and without is not None:
            bounds.append(
                f"{model}: right in {100 * alone:.1f} % with that passage alone, in {100 * without:.1f} % without any. "
                "If the model cannot answer from the passage alone, the position of the passage cannot matter."
            )
    n = len(corrected) - corrected.count(None)
    notes = (
        *bounds,
        f"An effect is called shown if its p is at most {ALPHA:g}, corrected by Holm for the {n} tests of this table.",
        _LOOKUP,
    )
    return Table("Answers", ("model", "k", "question", "answer"), tuple(rows), notes)


def _answer_middle(loss: Difference | None, p: float | None) -> str:
    if loss is None or p is None:
        return "Unknown: the ends and the middle were not both asked."
    amount = (
        f"{100 * loss.value:+.1f} points ({_interval(loss)}; {format_p_equation(p)}, "
        f"{count_noun(loss.clusters, 'question')})"
    )
    if p > ALPHA:
        return f"Not shown: ends less middle {amount}. A loss within that interval is possible."
    if loss.value > 0:
        return f"Yes: at the ends it is right more often than in the middle, {amount}."
    return f"No, the reverse: it is right more often in the middle, ends less middle {amount}."


def _answer_worth(gain: Difference | None, p: float | None, ratio: float | None) -> str:
    if gain is None or p is None:
        return "Unknown: RAG and BriefContext were not both asked."
    tokens = "" if ratio is None else f" It takes {ratio:.2f} times the tokens."
    test = f"{_interval(gain)}; {format_p_equation(p)}, {count_noun(gain.clusters, 'question')}"
    amount = f"{100 * gain.value:+.1f} points against RAG ({test})"
    if p <= ALPHA:
        return f"{'Yes, it answers better' if gain.value > 0 else 'No, it answers worse'}: {amount}.{tokens}"
    if ratio is None or ratio < 1:
        return f"Not shown: {amount}.{tokens}"
    return f"Not shown: {amount}.{tokens} Plain RAG is the cheaper choice until more questions show otherwise."


def _interval(difference: Difference) -> str:
    interval = difference.interval
    return f"95 % interval {100 * interval.low:+.1f} to {100 * interval.high:+.1f}"


def _tables_of_runs(runs: Runs, remarks: Sequence[str]) -> tuple[Table, ...]:
    return tables(read_outcomes(runs), {run.name: read_costs(run) for run in runs}, remarks)


EXPERIMENT = Experiment(
    name=NAME,
    question="Does this model lose the middle of a long prompt, and is map-reduce worth its cost for it?",
    cases=positions.build_cases,
    tables=_tables_of_runs,
    sets=(cloze.NAME,),
    grid=Grid(ARMS, (K,), PLACES),
    plots=(*positions.PLOTS, (INPUT_PLOT,)),
)
