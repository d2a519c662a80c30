"""Which way of reading answers best for the same number of tokens? (No paper has published this comparison.)

RAG, BriefContext and rivals that need no training read one ranking of passages. Each may spend the same number of
prompt tokens on a question, all its calls together, and reads as much of the ranking as that pays for. Questions with
the place of their evidence (Evidence Inference) are asked about that document alone: a lost-in-the-middle test in real
articles, without a planted key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

import numpy as np
import numpy.typing as npt

from epicrisis.answering.prompt_budget import DOCUMENT_ORDER
from epicrisis.answering.strategies.focused import MAX_SENTENCES
from epicrisis.core.errors import InputError
from epicrisis.core.partitioning import mark_largest_gap, take_before_gap
from epicrisis.core.printable import count_noun
from epicrisis.core.types import Passage, Question, Ranking, SentenceRanking
from epicrisis.evaluation.analysis import grouping
from epicrisis.evaluation.analysis.statistics import Difference, Floats, Mean, estimate_mean
from epicrisis.evaluation.analysis.table import Cell, Table, line_plot, points_plot
from epicrisis.evaluation.experiments import outcome_groups
from epicrisis.evaluation.experiments.arms import check_names, check_questions
from epicrisis.evaluation.experiments.definition import CaseInputs, Experiment, Grid, Runs
from epicrisis.evaluation.experiments.token_costs import CaseCost, case_costs
from epicrisis.evaluation.runs.outcomes import Outcome
from epicrisis.pipeline.overrides import RunOverrides
from epicrisis.pipeline.recording.case import Case, Condition
from epicrisis.settings.settings import Settings

NAME = "focused"
SETS = ("evidence-inference/validation", "pubmedqa", "med-evidence")
PASSAGES = 48
"""Passages of the ranking that every arm may read."""
PROMPT_TOKENS = (1500, 3000, 6000)
ROTATIONS = 3
PARTITION = 4
"""Passages per map call, where the protocol has no number."""
PLACES = ("beginning", "middle", "end")
"""Thirds of a document."""
SEVERAL = "several"

RAG, BRIEF_CONTEXT, CLOSED_BOOK = "rag", "brief-context", "closed-book"
ARMS = {
    RAG: RunOverrides(options={"strategy": "rag"}),
    "in-order": RunOverrides(options={"strategy": "rag"}),
    "adaptive-k": RunOverrides(options={"strategy": "rag"}),
    "rotations": RunOverrides(options={"strategy": "rag", "rotations": ROTATIONS}),
    BRIEF_CONTEXT: RunOverrides(options={"strategy": "brief-context"}),
    "brief-context+confidence": RunOverrides(options={"strategy": "brief-context", "map_confidence": True}),
    "focused": RunOverrides(options={"strategy": "focused"}),
    "focused-3": RunOverrides(options={"strategy": "focused"}),
    "focused-4": RunOverrides(options={"strategy": "focused"}),
    "focused-8": RunOverrides(options={"strategy": "focused"}),
    "rag+route": RunOverrides(options={"strategy": "rag", "route": "brief-context"}),
    "focused+route": RunOverrides(options={"strategy": "focused", "route": "brief-context"}),
    "focused-4+route": RunOverrides(options={"strategy": "focused", "route": "brief-context"}),
    "focused-8+route": RunOverrides(options={"strategy": "focused", "route": "brief-context"}),
    CLOSED_BOOK: RunOverrides(options={"strategy": "closed-book"}),
}
"""The arms, with what each changes, in the order of the rows at one limit.

`in-order`: RAG, the passages in the order of their documents (order-preserving RAG). `adaptive-k`: RAG, only what ranks
before the largest gap in the scores. `rotations`: RAG asked several times, the passages rotated, whose answers vote.
`confidence`: findings with a rationale and a stated confidence (LLM x MapReduce). `route`: a question that the
documents in one prompt do not answer goes to BriefContext (Self-Route).
"""
SENTENCES = {"focused-3": 3, "focused-4": 4, "focused-8": 8, "focused-4+route": 4, "focused-8+route": 8}
"""Sentences of the arms of `focused` that read fewer than the tokens pay for."""

BASELINES = (RAG, BRIEF_CONTEXT)
LIMIT, SPENT, OVER = "prompt tokens", "spent", "above the limit"
TOKENS, FRONTIER, RESAMPLED = "tokens of a question", "on the frontier", "in resamples"

_EQUAL = (
    "Prompt tokens: the limit for all prompts of a question together, by the model's own count. Every arm reads as "
    "much of one ranking as that pays for. Spent: prompt tokens in the mean. Above the limit: cases that spent more, "
    "as one passage or sentence alone is longer, findings were longer than expected, or a reply was requested again.",
    "closed-book reads no document: a bound, not tested.",
)
_FAMILY = (
    "The family of Holm's correction is this table: all arms at all limits against both baselines, on one question set."
)
_FRONTIER = (
    "Tokens of a question: prompts and replies in the mean of the questions that every arm answered at every limit, "
    "with all tokens known.",
    "On the frontier: no other row costs at most as much and is right at least as often, and is better in one of the "
    "two. In resamples: the share of 1,000 resamples of the questions in which the row is on the frontier; far below "
    "100 %, another sample may give another frontier.",
)
RESAMPLES = 1000


def build_cases(inputs: CaseInputs) -> tuple[Case, ...]:
    """Build the cases. Conditions: `dataset`, `arm`, `prompt_tokens`, `repeat`, and `evidence` if its place is known.

    Raises InputError for an unknown arm, a question without gold letter, or a library without a gold document.
    """
    check_names(inputs.grid.arms, ARMS)
    _refuse_settings(inputs.settings)
    if len(inputs.grid.ks) > 1:
        raise InputError(f"{NAME} reads one ranking: give -k once, and run it again for another")
    built: list[Case] = []
    for dataset, questions in inputs.questions.items():
        check_questions(questions, gold_documents=False)
        for question, gold in zip(questions, inputs.study.read_gold_passages(questions), strict=True):
            place = find_evidence_place(question, gold)
            condition = {"dataset": dataset, **({"evidence": place} if place else {})}
            built += _question_cases(inputs, question, condition)
    return tuple(built)


def _refuse_settings(settings: Settings) -> None:
    """Raise InputError for settings that would change all arms alike."""
    changed: list[str] = []
    for name in ("route", "rotations", "adaptive_k", "focus_tokens", "map_confidence"):
        if getattr(settings, name) != Settings.model_fields[name].default:
            changed.append(name)
    if changed:
        raise InputError(f"{NAME} compares {', '.join(changed)} itself: leave it out of the settings")


def _question_cases(inputs: CaseInputs, question: Question, condition: Condition) -> list[Case]:
    """Return the cases of a question. All arms read one ranking of passages, and one of its sentences."""
    grid, source, protocol = inputs.grid, inputs.study.source, inputs.study.protocol
    ranking = source.rank_passages(question, grid.ks[0])
    sentences: SentenceRanking | None = None
    if any(ARMS[arm].strategy == "focused" for arm in grid.arms):
        sentences = source.rank_sentences(question, ranking, MAX_SENTENCES)
    cases: list[Case] = []
    for arm in grid.arms:
        overrides = replace(
            ARMS[arm],
            preflight=False,
            temperature=protocol.temperature,
            top_p=protocol.top_p,
            paper_prompts=protocol.prompts,
        )
        if arm == CLOSED_BOOK:
            cases += inputs.repeat(question, {**condition, "arm": arm}, overrides)
            continue
        partition = PARTITION if protocol.partition == "half" else protocol.partition
        overrides = replace(overrides.change(count="passages", partition=partition), ranking=_order_for(arm, ranking))
        if overrides.strategy == "focused" and sentences is not None:
            # An arm without a number reads what the tokens pay for.
            best = replace(sentences, hits=sentences.hits[: SENTENCES.get(arm)])
            overrides = replace(overrides, sentences=best)
        if "rotations" in overrides.options:
            overrides = overrides.change(rotations=grid.votes[0])
        for limit in grid.prompt_tokens:
            limited = replace(overrides, prompt_tokens=limit)
            cases += inputs.repeat(question, {**condition, "arm": arm, "prompt_tokens": limit}, limited)
    return cases


def _order_for(arm: str, ranking: Ranking) -> Ranking:
    """Return the ranking as an arm reads it."""
    if arm == "adaptive-k":
        return take_before_gap(mark_largest_gap(ranking, "passages"))
    if arm == "in-order":
        return replace(ranking, parameters={**ranking.parameters, DOCUMENT_ORDER: True})
    return ranking


def find_evidence_place(question: Question, documents: Mapping[str, tuple[Passage, ...]]) -> str:
    """Return the third of the document in which the middle of each marked span lies, or SEVERAL if they differ.

    Returns an empty string for a question without marked spans. The document ends with its last passage.
    """
    places: set[str] = set()
    for span in question.evidence:
        passages: Sequence[Passage] = documents.get(span.document_id, ())
        length = max((passage.end for passage in passages), default=0)
        if length:
            third = 3 * (span.start + span.end) // (2 * length)
            places.add(PLACES[min(2, third)])
    if len(places) > 1:
        return SEVERAL
    return next(iter(places), "")


def tables(runs: Runs, remarks: Sequence[str]) -> tuple[Table, ...]:
    """Build the tables of finished runs, for each question set; the remarks are notes under each table."""
    outcomes = outcome_groups.read_outcomes(runs)
    costs = {run.name: case_costs(run.records()) for run in runs}
    built: list[Table] = []
    for dataset in outcome_groups.values_of(outcome_groups.all_outcomes(outcomes), "dataset"):
        in_set = {model: outcome_groups.select(cases, dataset=dataset) for model, cases in outcomes.items()}
        costs_in_set = {model: outcome_groups.select(cases, dataset=dataset) for model, cases in costs.items()}
        built.append(accuracy_table(dataset, in_set, costs_in_set))
        if outcome_groups.with_condition(outcome_groups.all_outcomes(in_set), "evidence"):
            built.append(place_table(dataset, in_set))
        built.append(frontier_table(dataset, in_set, costs_in_set))
    return outcome_groups.add_notes(built, remarks)


def accuracy_table(
    dataset: str, runs: outcome_groups.OutcomesByModel, costs: Mapping[str, Sequence[CaseCost]]
) -> Table:
    """Build the table of every arm at every limit, against RAG and against BriefContext at the same limit."""
    rows: list[tuple[Cell, ...]] = []
    changes: list[Difference | None] = []
    tested: list[Difference | None] = []
    groups_by_baseline: dict[str, list[grouping.Group]] = {baseline: [] for baseline in BASELINES}
    for model, outcomes in runs.items():
        groups = outcome_groups.group_conditions(outcomes, "prompt_tokens", "arm")
        prompt_tokens = outcome_groups.group_conditions(costs[model], "prompt_tokens", "arm")
        for limit, arm in _sort_rows(groups):
            here = groups[limit, arm]
            spending = _measure_spending(prompt_tokens.get((limit, arm), ()), limit)
            rows.append((model, limit, arm, grouping.mean_score(here), *grouping.count_endings(here), *spending))
            for baseline in BASELINES:
                against = groups.get((limit, baseline), []) if limit else []
                # RAG and BriefContext are compared once.
                is_compared = arm not in (baseline, CLOSED_BOOK, RAG)
                group = grouping.Group((), here, against if is_compared else (), ("repeat",))
                groups_by_baseline[baseline].append(group)
                changes.append(grouping.compare_to_baseline(group))
                tested.append(changes[-1])
    bounds = {grouping.SHARE_BOUNDS: [grouping.bound_share(group.outcomes) for group in groups_by_baseline[RAG]]}
    for baseline, compared in groups_by_baseline.items():
        bounds[f"{grouping.DIFFERENCE_BOUNDS} ({baseline})"] = list(map(grouping.bound_difference, compared))
    headings: tuple[str, ...] = ("model", LIMIT, "arm", *grouping.FIGURES, SPENT, OVER)
    headings, rows, note = grouping.add_bounds(headings, rows, bounds)
    p_values = grouping.correct_p_values(tested)
    cells: list[tuple[Cell, ...]] = []
    for index, row in enumerate(rows):
        ends: list[Cell] = []
        for column in range(len(BASELINES)):
            place = index * len(BASELINES) + column
            ends += [changes[place], p_values[place]]
        cells.append((*row, *ends))
    every = outcome_groups.all_outcomes(runs)
    comparisons = len(p_values) - p_values.count(None)
    remarks = (*note, *grouping.describe_chance(every), *grouping.describe_omitted_parts(every), *_EQUAL, _FAMILY)
    differences = (
        f"difference to {RAG}",
        grouping.P_COLUMN,
        f"difference to {BRIEF_CONTEXT}",
        f"{grouping.P_COLUMN} of that",
    )
    return Table(
        f"Accuracy at equal tokens: {dataset}",
        (*headings, *differences),
        tuple(cells),
        grouping.make_notes(comparisons, remarks),
    )


def _sort_rows(groups: Iterable[tuple[int | None, str]]) -> list[tuple[int | None, str]]:
    """Return the groups by limit, the bound without one first, and in the order of ARMS."""
    return sorted(groups, key=lambda group: (group[0] or 0, list(ARMS).index(group[1])))


def _measure_spending(cases: Sequence[CaseCost], limit: int | None) -> tuple[Mean | None, int | None]:
    """Return the mean of the prompt tokens, and the number of cases above the limit."""
    inputs = [case.total.input for case in cases if case.counted]
    questions = [case.question for case in cases if case.counted]
    if not inputs:
        return None, None
    above = None if limit is None else sum(tokens > limit for tokens in inputs)
    return estimate_mean(inputs, questions, shares=False), above


def place_table(dataset: str, runs: outcome_groups.OutcomesByModel) -> Table:
    """Build the table of accuracy by the place of the evidence in its document."""

    def build_groups(model: str, outcomes: Sequence[Outcome]) -> Iterable[grouping.Group]:
        groups = outcome_groups.group_conditions(outcomes, "prompt_tokens", "arm", "evidence")
        for limit, arm in _sort_rows(outcome_groups.group_conditions(outcomes, "prompt_tokens", "arm")):
            for place in ("beginning", "middle", "end", "several"):
                here = groups.get((limit, arm, place))
                if here:
                    against = groups.get((limit, RAG, place), ()) if limit and arm != RAG else ()
                    yield grouping.Group((model, limit, arm, place), here, against, ("repeat",))

    about = (
        "Place: the third of the document in which the middle of the marked evidence lies; `several` if marks are in "
        "different thirds. Other questions have their evidence at other places: differences between arms at one place "
        "are paired, those between places are not.",
    )
    return grouping.make_accuracy_table(
        f"Accuracy by the place of the evidence: {dataset}",
        ("model", LIMIT, "arm", "evidence"),
        outcome_groups.collect_groups(runs, build_groups),
        baseline=f"{RAG} at that place",
        remarks=(*about, *_EQUAL),
    )


@dataclass(frozen=True, slots=True)
class _Measured:
    """Score and tokens of an arm at a limit, by question."""

    limit: int | None
    arm: str
    scores: Mapping[grouping.PairingKey, float]
    tokens: Mapping[str, float]
    calls: Mapping[str, float]


def frontier_table(
    dataset: str, runs: outcome_groups.OutcomesByModel, costs: Mapping[str, Sequence[CaseCost]]
) -> Table:
    """Build the accuracy-cost frontier of each model, by the tokens of prompts and replies, cheapest first."""
    rows: list[tuple[Cell, ...]] = []
    notes: list[str] = []
    for model, outcomes in runs.items():
        measurements = _measure(outcomes, costs[model])
        shared = _list_shared_questions(measurements)
        total = len({outcome.question for outcome in outcomes})
        notes.append(f"{model}: {len(shared)} of {count_noun(total, 'question')}.")
        if not shared:
            continue
        points = compare_points(
            [[measurement.tokens[question] for question in shared] for measurement in measurements],
            [[measurement.scores[(question,)] for question in shared] for measurement in measurements],
        )
        for measurement, point in sorted(zip(measurements, points, strict=True), key=lambda pair: pair[1].cost):
            scores = [measurement.scores[(question,)] for question in shared]
            calls = sum(measurement.calls[question] for question in shared) / len(shared)
            rows.append(
                (
                    model,
                    measurement.arm,
                    measurement.limit,
                    round(point.cost),
                    round(calls, 2),
                    estimate_mean(scores),
                    "yes" if point.is_on_frontier else "no",
                    f"{100 * point.share_of_resamples:.0f} %",
                )
            )
    columns = ("model", "arm", LIMIT, TOKENS, "calls", grouping.SHARE_COLUMN, FRONTIER, RESAMPLED)
    title = f"Accuracy and cost: {dataset}"
    return Table(title, columns, tuple(rows), (*_FRONTIER, *notes, grouping.INTERVALS))


def _measure(outcomes: Sequence[Outcome], costs: Sequence[CaseCost]) -> list[_Measured]:
    prompt_tokens = outcome_groups.group_conditions(costs, "prompt_tokens", "arm")
    groups = outcome_groups.group_conditions(outcomes, "prompt_tokens", "arm")
    measurements: list[_Measured] = []
    for limit, arm in _sort_rows(groups):
        counted = [case for case in prompt_tokens.get((limit, arm), ()) if case.counted]
        tokens = grouping.mean_by(counted, attrgetter("question"), lambda case: case.total.input + case.total.output)
        calls = grouping.mean_by(counted, attrgetter("question"), attrgetter("total.calls"))
        scores = grouping.mean_by_pair(groups[limit, arm], ())
        measurements.append(_Measured(limit, arm, scores, tokens, calls))
    return measurements


def _list_shared_questions(measurements: Sequence[_Measured]) -> list[str]:
    """Return the questions with a score and known tokens in every row, in an order that does not depend on the run."""
    if not measurements:
        return []
    shared = set(measurements[0].tokens)
    for measurement in measurements:
        shared &= {question for question in measurement.tokens if (question,) in measurement.scores}
    return sorted(shared)


@dataclass(frozen=True, slots=True)
class FrontierPoint:
    """One system among those compared."""

    cost: float
    score: float
    is_on_frontier: bool
    share_of_resamples: float
    """The share of resamples of the questions, 0 to 1, in which the point is on the frontier."""


def find_frontier(costs: Sequence[float], scores: Sequence[float]) -> list[bool]:
    """Return for each point whether it is on the frontier.

    A point is not on it if another one costs at most as much and scores at least as high, and is better in one of the
    two. Points that are equal in both are on it together.
    """
    return [bool(value) for value in _undominated(np.array([costs], float), np.array([scores], float))[0]]


def compare_points(
    costs: Sequence[Sequence[float]], scores: Sequence[Sequence[float]], seed: int = 0
) -> list[FrontierPoint]:
    """Return the points of systems, by their mean cost and score. Each row has a system's figures by question.

    All rows are about the same questions in the same order, which are resampled together.
    """
    cost_table, score_table = np.array(costs, float), np.array(scores, float)
    questions = cost_table.shape[1]
    picks = np.random.default_rng(seed).integers(questions, size=(RESAMPLES, questions))
    weights = np.zeros((RESAMPLES, questions))
    np.add.at(weights, (np.arange(RESAMPLES)[:, None], picks), 1.0)
    shares = _undominated(weights @ cost_table.T / questions, weights @ score_table.T / questions).mean(axis=0)
    mean_costs, mean_scores = cost_table.mean(axis=1), score_table.mean(axis=1)
    on_frontier = find_frontier(mean_costs.tolist(), mean_scores.tolist())
    points: list[FrontierPoint] = []
    for index, is_on_frontier in enumerate(on_frontier):
        point = FrontierPoint(float(mean_costs[index]), float(mean_scores[index]), is_on_frontier, float(shares[index]))
        points.append(point)
    return points


def _undominated(costs: Floats, scores: Floats) -> npt.NDArray[np.bool_]:
    """Return which points are on the frontier. Each row is one set of points."""
    # Sums in another order differ in the last digits: equal points must stay equal.
    costs, scores = costs.round(9), scores.round(9)
    cheaper, better = costs[:, :, None] < costs[:, None, :], scores[:, :, None] > scores[:, None, :]
    no_dearer, no_worse = costs[:, :, None] <= costs[:, None, :], scores[:, :, None] >= scores[:, None, :]
    dominates = no_dearer & no_worse & (cheaper | better)
    undominated: npt.NDArray[np.bool_] = np.logical_not(np.any(dominates, axis=1))
    return undominated


PLOTS = (
    (
        points_plot(
            "Share right by the place of the evidence",
            grouping.SHARE_COLUMN,
            along=("evidence",),
            series=("arm",),
            panel=("model", LIMIT),
        ),
    ),
    (
        line_plot(
            "Accuracy and cost",
            grouping.SHARE_COLUMN,
            along=(TOKENS,),
            series=("arm",),
            panel=("model",),
            axis_title="tokens of a question, prompts and replies",
            log2=True,
        ),
    ),
    (
        points_plot(
            "Share right at equal tokens",
            grouping.SHARE_COLUMN,
            along=("arm",),
            series=("arm",),
            panel=("model", LIMIT),
        ),
        points_plot(
            "Differences at equal tokens", "difference to *", along=("arm",), series=("arm",), panel=("model", LIMIT)
        ),
    ),
)
EXPERIMENT = Experiment(
    name=NAME,
    question="Which way of reading the evidence answers best for the same number of tokens?",
    cases=build_cases,
    tables=tables,
    sets=SETS,
    grid=Grid(arms=tuple(ARMS), ks=(PASSAGES,), votes=(ROTATIONS,), prompt_tokens=PROMPT_TOKENS),
    plots=PLOTS,
    places_documents=False,
    brings_documents=True,
)
"""The comparison of `focused` with RAG, BriefContext and the others."""
