"""Does BriefContext answer better where nothing is placed? (BriefContext, Figure 3 and Supplementary Table 3.)

Whole question sets with the passages in the order of the search, read by RAG and by BriefContext with and without its
preflight check, and chain of thought without passages: one model, one library, one ranking per question (errata B7).
The arm `mirage` is plain RAG as MIRAGE ran it, 32 passages of all retrievers fused: the papers' rival (B6).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from operator import mul, sub
from statistics import fmean
from typing import Any

import numpy as np

from epicrisis.core.answers import Retrieved
from epicrisis.core.errors import InputError
from epicrisis.core.types import Preflight, Question, Ranking
from epicrisis.evaluation.analysis import grouping, statistics
from epicrisis.evaluation.analysis.published import load_published
from epicrisis.evaluation.analysis.statistics import Difference, Interval, Mean, paired_difference, uniform_interval
from epicrisis.evaluation.analysis.table import Cell, Table, points_plot
from epicrisis.evaluation.experiments import outcome_groups, token_costs
from epicrisis.evaluation.experiments.arms import UNPLACED, QuestionPassages, Study, check_names, unique_cases
from epicrisis.evaluation.experiments.definition import CaseInputs, Experiment, Grid, Runs
from epicrisis.evaluation.experiments.passage_source import PassageSource
from epicrisis.evaluation.experiments.positions import PUBMEDQA
from epicrisis.evaluation.runs.outcomes import Outcome
from epicrisis.pipeline.recording.answer_record import RunRecord
from epicrisis.pipeline.recording.case import Case
from epicrisis.retrieval.preflight import BM25_SIGNALS, choose_rule, compare_rankings
from epicrisis.retrieval.rankings import take_first
from epicrisis.settings.tables import PreflightSettings

NAME = "integration"
SETS = ("mirage/medmcqa", "mirage/pubmedqa", "mirage/bioasq")
K, MIRAGE_K = 16, 32
COT, RAG, BRIEF, CHECKED, MIRAGE = "chain-of-thought", "rag", "brief-context", "brief-context+preflight", "mirage"
ARMS = (COT, RAG, BRIEF, CHECKED, MIRAGE)
CLOSED = "closed-book"
"""Asked only where it is named: the size of a prompt without documents (`cost`)."""
MACRO, MICRO = "macro average", "micro average"

RELEASED_MODEL, RELEASED = "GPT-3.5-turbo-0125", (58.04, 67.40, 90.29)
"""RAG by MIRAGE's leaderboard and released outputs, in percent: not the row printed in the papers (errata B6)."""

_COMPARISONS = ((RAG, (*ARMS, CLOSED)), (MIRAGE, (RAG, BRIEF, CHECKED)), (BRIEF, (CHECKED,)))
"""Each baseline with the arms that are compared with it."""
_AVERAGES = (
    "Macro average: over the sets, whatever their size (as in the papers, errata B8); its interval resamples each "
    "set's questions within the set. Micro average: over the questions.",
    "Passages in the order of the search; nothing is placed, and a key document may be missing among them.",
)


def build_cases(inputs: CaseInputs) -> tuple[Case, ...]:
    """Build the cases of questions by set. Conditions: `dataset`, `arm`, `repeat`, and `k` of arms that read passages.

    All arms but `mirage` read the first k documents or passages of one ranking, and the preflight check inspects the
    same ranking. Raises InputError where a question has no gold letter, an arm lacks what it needs, or the settings
    have a reranker.
    """
    settings, study, arms = inputs.settings, inputs.study, inputs.grid.arms
    if settings.rerank.name is not None:
        raise InputError("this experiment reads passages in the order of the search: leave rerank out of the settings")
    # The check of the protocol, unless the settings have their own.
    check = study.protocol.preflight if settings.preflight == PreflightSettings() else settings.preflight
    check_names(arms, (*ARMS, CLOSED))
    built: list[Case] = []
    for k in inputs.grid.ks:
        depth = max(k, check.depth) if CHECKED in arms else k
        for dataset, questions in inputs.questions.items():
            for passages in study.retrieve(questions, depth):
                for arm in arms:
                    built += _arm_cases(study, passages, {"dataset": dataset, "arm": arm}, k, check)
    return unique_cases(built)


def _arm_cases(
    study: Study,
    passages: QuestionPassages,
    condition: Mapping[str, str],
    k: int,
    check: PreflightSettings,
) -> list[Case]:
    arm, source = condition["arm"], study.source
    if arm in UNPLACED:
        return study.cases(passages, condition)
    if arm == MIRAGE:
        return study.cases(passages, {**condition, "k": MIRAGE_K}, source.fused(passages.question, MIRAGE_K))
    verdict: bool | Preflight = False
    if arm == CHECKED and check.enabled:
        verdict = preflight_verdict(source, passages.question, passages.retrieved, check)
    return study.cases(passages, {**condition, "k": k}, take_first(passages.retrieved, k, source.count), verdict)


def preflight_verdict(
    source: PassageSource, question: Question, ranking: Ranking, check: PreflightSettings
) -> Preflight:
    """Return the verdict on this ranking, whose first hits are ranked again by words if the signal requires it.

    A signal with a reranker needs one in the settings, which this experiment refuses.
    """
    top = take_first(ranking, check.depth, source.count)
    rule = choose_rule(
        check.rule,
        top.parameters,
        source.count,
        question.patient is not None,
        signal=check.signal,
        n=check.n,
        threshold=check.threshold,
    )
    words = source.words(question, top.ids) if top.hits and rule.signal in BM25_SIGNALS else ()
    # The best passage of each document comes before its others.
    best_first = sorted(((hit.passage.id, hit.score) for hit in top.hits), key=lambda score: score[1], reverse=True)
    return compare_rankings(best_first, words, None, rule, depth=check.depth, count=source.count)


def _build_cases_of_one_k(inputs: CaseInputs) -> tuple[Case, ...]:
    if len(inputs.grid.ks) > 1:
        raise InputError(f"{NAME} reads one k: give -k once, and run it again for another")
    return build_cases(inputs)


def mirage_remarks(records: Iterable[RunRecord]) -> tuple[str, ...]:
    """Return a remark on the retrievers of the arm `mirage`, as named in its rankings; none without that arm."""
    encoders: dict[str, Any] = {}
    for record in records:
        for event in record.answer.trace if record.condition.get("arm") == MIRAGE else ():
            if isinstance(event, Retrieved):
                encoder = event.ranking.parameters.get("encoder")
                encoders[json.dumps(encoder)] = encoder
    if not encoders:
        return ()
    retrievers: list[str] = []
    for encoder in encoders.values():
        names = [encoder] if isinstance(encoder, str) else encoder or []
        retrievers.append(" and ".join(["BM25", *names]))
    return (
        "Arm mirage: MIRAGE fused four retrievers (BM25, Contriever, SPECTER, MedCPT) over four corpora; here "
        f"{'; '.join(retrievers)} over this library replaced them.",
    )


def tables(runs: outcome_groups.OutcomesByModel, *, remarks: Sequence[str] = ()) -> tuple[Table, ...]:
    """Build the tables of finished runs: all arms against RAG, against RAG as MIRAGE ran it, and the check's effect.

    The last table holds what the papers print, averaged both ways. `remarks` stand under all others.
    """
    run_arms = set(outcome_groups.values_of(outcome_groups.all_outcomes(runs), "arm"))
    compared = []
    for baseline, arms in _COMPARISONS:
        if baseline == RAG or (baseline in run_arms and run_arms & set(arms)):
            others = [arm for arm in arms if arm in run_arms and arm != baseline]
            compared.append(_comparison_table(runs, (baseline, *others), remarks))
    return *compared, published_table()


def _comparison_table(runs: outcome_groups.OutcomesByModel, arms: Sequence[str], remarks: Sequence[str]) -> Table:
    """Build the table of these arms. The first one is the baseline."""
    baseline = arms[0]
    compared = [outcome for outcome in outcome_groups.all_outcomes(runs) if outcome.condition["arm"] in arms]
    rows: list[tuple[Cell, ...]] = []
    differences: list[Difference | None] = []
    share_bounds: list[Interval | None] = []
    difference_bounds: list[Interval | None] = []
    for model, outcomes in runs.items():
        sets = sorted(map(str, outcome_groups.values_of(outcomes, "dataset")))
        sets.sort(key=lambda name: SETS.index(name) if name in SETS else len(SETS))
        averages = (MACRO, MICRO) if len(sets) > 1 else ()
        for part, arm in product((*sets, *averages), arms):
            in_part = outcomes if part in averages else outcome_groups.select(outcomes, dataset=part)
            here = outcome_groups.select(in_part, arm=arm)
            if not here:
                continue
            against = outcome_groups.select(in_part, arm=baseline) if arm != baseline else []
            labels = (model, part, arm, here[0].condition.get("k"))
            group = grouping.Group(labels, here, against, ("repeat",))
            mean: Callable[[Sequence[Outcome]], Mean] = grouping.mean_score
            compare: Callable[[grouping.Group], Difference | None] = grouping.compare_to_baseline
            counts: tuple[Cell, ...] = grouping.count_endings(here)
            if part == MACRO:
                mean, compare, counts = macro_mean, _compare_macro, (None,) * len(grouping.STATES)
            rows.append((*labels, mean(here), *counts))
            differences.append(compare(group))
            share_bounds.append(grouping.bound_share(here, mean))
            difference_bounds.append(grouping.bound_difference(group, compare))
    tested = len(differences) - differences.count(None)
    bounds = {grouping.SHARE_BOUNDS: share_bounds, grouping.DIFFERENCE_BOUNDS: difference_bounds}
    columns, rows, note = grouping.add_bounds(("model", "set", "arm", "k", *grouping.FIGURES), rows, bounds)
    omitted = grouping.describe_omitted_parts(compared)
    notes = (*note, *grouping.describe_chance(compared), *omitted, *_AVERAGES, *remarks)
    return Table(
        f"Accuracy with real rankings, against {baseline}",
        (*columns, f"difference to {baseline}", grouping.P_COLUMN),
        grouping.add_differences(rows, differences),
        grouping.make_notes(tested, notes),
    )


def _compare_macro(group: grouping.Group) -> Difference | None:
    return macro_difference(group.outcomes, group.against)


def macro_mean(outcomes: Sequence[Outcome]) -> Mean:
    """Return the mean of the sets' means; a question that was asked several times counts by its mean."""
    sets = [list(scores.values()) for scores in _scores_by_set(outcomes).values()]
    unscored = list(map(grouping.score_outcome, outcomes)).count(None)
    if not sets:
        return Mean(float("nan"), Interval(float("nan"), float("nan")), 0, unscored)
    return Mean(fmean(map(fmean, sets)), _interval(sets, (0.0, 1.0)), len(outcomes) - unscored, unscored)


def macro_difference(first: Sequence[Outcome], second: Sequence[Outcome]) -> Difference | None:
    """Return the mean of the sets' mean differences, over the questions with a score in both.

    Returns None where a set has no such question. `p` flips the signs of whole questions, each with the weight of its
    set.
    """
    ours, theirs = _scores_by_set(first), _scores_by_set(second)
    if not ours or ours.keys() != theirs.keys():
        return None
    by_set = dict(
        zip(ours, map(outcome_groups.subtract_scores, ours.values(), (theirs[key] for key in ours)), strict=True)
    )
    if not all(by_set.values()):
        return None
    n = sum(map(len, by_set.values()))
    weighted: dict[tuple[str, grouping.PairingKey], float] = {}
    for name, differences in by_set.items():
        for pair, value in differences.items():
            weighted[name, pair] = value * n / (len(by_set) * len(differences))
    flipped = paired_difference(weighted, dict.fromkeys(weighted, 0.0))
    sets = [list(differences.values()) for differences in by_set.values()]
    return replace(flipped, interval=_interval(sets, (-1.0, 1.0)))


def _scores_by_set(outcomes: Iterable[Outcome]) -> dict[str, dict[grouping.PairingKey, float]]:
    """Return the mean score of each question by set, the sets by name; sets without a score are left out."""
    by_set: dict[str, dict[grouping.PairingKey, float]] = {}
    for name, in_set in sorted(grouping.group_by(outcomes, lambda outcome: str(outcome.condition["dataset"])).items()):
        scores = grouping.mean_by_pair(in_set, ())
        if scores:
            by_set[name] = scores
    return by_set


def _interval(sets: Sequence[Sequence[float]], limits: tuple[float, float]) -> Interval:
    """Return the interval of the mean of the sets' means, each set's questions resampled. `limits`: of a score."""
    if all(max(values) - min(values) < 1e-9 for values in sets):
        intervals = [uniform_interval(values[0], len(values), limits) for values in sets]
        return Interval(fmean(interval.low for interval in intervals), fmean(interval.high for interval in intervals))
    resampled = []
    for seed, values in enumerate(sets):
        # Few values differ, so their counts are drawn.
        distinct, frequencies = np.unique(np.asarray(values, dtype=np.float64), return_counts=True)
        n = len(values)
        samples = np.random.default_rng(seed).multinomial(n, frequencies / n, size=statistics.RESAMPLES)
        resampled.append(samples @ distinct / n)
    low, high = np.quantile(np.mean(resampled, axis=0), [0.025, 0.975])
    return Interval(float(low), float(high))


def published_table() -> Table:
    """Build Supplementary Table 3 averaged both ways, with RAG as MIRAGE released it and BriefContext's gains."""
    printed = load_published()["integration"].table
    sets = ("MedMCQA", "PubMedQA", "BioASQ")
    sizes = [float(str(load_published()["datasets"].figure("questions", name))) for name in (*sets[:2], "BioASQ-Y/N")]
    rows: list[tuple[str, str, tuple[float, ...]]] = []
    for model, method, *cells, _ in printed.rows:
        rows.append((str(model), str(method), tuple(map(float, map(str, cells)))))
    rows.append((RELEASED_MODEL, "RAG, as MIRAGE released it", RELEASED))
    ours = {name: shares for name, strategy, shares in rows if strategy == "BriefContext"}

    def average(shares: Sequence[float]) -> tuple[float, float]:
        return fmean(shares), sum(map(mul, shares, sizes)) / sum(sizes)

    built: list[tuple[Cell, ...]] = []
    for name, strategy, shares in rows:
        gains: tuple[Cell, ...] = (None, None)
        if strategy != "BriefContext":
            gains = tuple(map(sub, average(ours[name]), average(shares)))
        built.append((name, strategy, *shares, *average(shares), *gains))
    remarks = (
        "In percent. Averages and gains are computed from the printed shares. The arms differ in more than the "
        "strategy (errata B7): CoT and RAG are from MIRAGE's benchmark, 32 passages of four retrievers, four corpora "
        "and other prompts.",
        "The RAG row printed for GPT-3.5 is not the one that MIRAGE released (B6).",
    )
    columns = ("model", "method", *sets, MACRO, MICRO, "BriefContext gains, macro", "BriefContext gains, micro")
    return Table("What the papers print, averaged both ways", columns, tuple(built), remarks, printed.source)


def _tables_of_runs(runs: Runs, remarks: Sequence[str]) -> tuple[Table, ...]:
    """Build the tables, and those of the cost where a run has the arms for them."""
    retrievers: dict[str, None] = {}
    for run in runs:
        retrievers |= dict.fromkeys(mirage_remarks(run.records()))
    costs = [table for table in token_costs.tables(runs, remarks) if table.rows]
    return (*tables(outcome_groups.read_outcomes(runs), remarks=(*remarks, *retrievers)), *costs)


EXPERIMENT = Experiment(
    name=NAME,
    question="Are reasoning, RAG and BriefContext right on the passages of a real search? (BriefContext, Figure 3)",
    cases=_build_cases_of_one_k,
    tables=_tables_of_runs,
    sets=SETS,
    grid=Grid(ARMS, (K,)),
    published=("integration", "integration-averages"),
    plots=(
        (
            points_plot(
                "Share right by arm",
                grouping.SHARE_COLUMN,
                along=("arm",),
                series=("arm",),
                panel=("model", "set"),
                method_columns=("arm",),
            ),
            points_plot(
                "Differences by arm", "difference to *", along=("arm",), series=("arm",), panel=("model", "set")
            ),
        ),
    ),
    whole_sets=True,
    places_documents=False,
)
COST = Experiment(
    name="cost",
    question="What does map-reduce cost, predicted and measured? (BriefContext, equations 4 and 5)",
    cases=build_cases,
    tables=token_costs.tables,
    sets=(PUBMEDQA,),
    grid=Grid((RAG, BRIEF, CHECKED, CLOSED), (K,)),
    published=("cost",),
    plots=(
        (token_costs.INPUT_PLOT,),
        (points_plot("Input tokens, predicted and measured", "input", along=("what",), measured_prefix="measured"),),
    ),
    places_documents=False,
)
"""Experiment on the cost of map-reduce, over the same cases of any number of k."""
