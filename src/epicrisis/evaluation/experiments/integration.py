"""Does BriefContext answer better where nothing is placed? (BriefContext, Figure 3 and Supplementary Table 3.)

Whole question sets, the passages as they were retrieved, read by RAG and by BriefContext with and without its preflight
check, beside chain of thought without passages: one model, one library, one ranking a question (errata B7). The arm
`mirage` is plain RAG as MIRAGE ran it, 32 passages by all retrievers fused: what the papers compare with (B6).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np
import numpy.typing as npt

from epicrisis.errors import InputError
from epicrisis.evaluation.analysis import statistics
from epicrisis.evaluation.analysis.grouping import (
    FIGURES,
    STATES,
    AccuracyMeasure,
    Group,
    P,
    PairingKey,
    by_pair,
    chance,
    corrected_p,
    counts,
    difference,
    left_out,
    mean,
    notes,
    score,
)
from epicrisis.evaluation.analysis.published import published
from epicrisis.evaluation.analysis.statistics import Difference, Interval, Mean, of_all_alike, paired_difference
from epicrisis.evaluation.analysis.table import Cell, Table
from epicrisis.evaluation.experiments.arms import UNPLACED, QuestionPassages, Study
from epicrisis.evaluation.experiments.passage_source import PassageSource
from epicrisis.evaluation.runs.case import Case
from epicrisis.evaluation.runs.outcomes import Outcome, RunRecord
from epicrisis.retrieval.document_ranking import first
from epicrisis.retrieval.preflight import rankings_agree, rule_for
from epicrisis.retrieval.ranking_signals import BY_WORDS
from epicrisis.retrieval.rerank import reranked
from epicrisis.settings import PreflightSettings
from epicrisis.types import Preflight, Question, Ranking

NAME = "integration"
SETS = ("mirage/medmcqa", "mirage/pubmedqa", "mirage/bioasq")
K, MIRAGE_K = 16, 32
COT, RAG, BRIEF, CHECKED, MIRAGE = "chain-of-thought", "rag", "brief-context", "brief-context+preflight", "mirage"
ARMS = (COT, RAG, BRIEF, CHECKED, MIRAGE)
CLOSED = "closed-book"
"""Asked where it is named: what a prompt without documents takes (`cost`)."""
PUBLISHED = ("integration", "integration-averages")
"""Tables of `published` to set beside these."""
MACRO, MICRO = "macro average", "micro average"

RELEASED_MODEL, RELEASED = "GPT-3.5-turbo-0125", [58.04, 67.40, 90.29]
"""RAG by MIRAGE's leaderboard and its released outputs, in percent: not the row that the papers print (errata B6)."""

_COMPARED = ((RAG, (*ARMS, CLOSED)), (MIRAGE, (RAG, BRIEF, CHECKED)), (BRIEF, (CHECKED,)))
"""Each baseline with what is held against it."""
_AVERAGES = (
    "Macro average: of the sets, whatever their size (as the papers', errata B8); its interval draws each set's "
    "questions anew within the set. Micro average: of the questions.",
    "Passages in the order in which they were found; nothing is placed, and a key document may not be among them.",
)


def cases(
    questions: Mapping[str, Sequence[Question]],
    study: Study,
    *,
    k: int = K,
    mirage_k: int = MIRAGE_K,
    arms: Sequence[str] = ARMS,
    check: PreflightSettings | None = None,
) -> tuple[Case, ...]:
    """Of questions by the name of their set. Conditions `dataset`, `arm` and `repeat`, of arms that read passages `k`.

    All arms but `mirage` read the first `k` documents or passages of one ranking, and the preflight check looks at that
    very ranking, by `check` (`None`: as the protocol has it). Raises InputError where a question has no gold letter, or
    an arm lacks what it needs.
    """
    check = check or study.protocol.preflight
    _check(study.evidence, arms, check)
    depth = max(k, check.depth) if CHECKED in arms else k
    made: list[Case] = []
    for dataset, asked in questions.items():
        for material in study.found(asked, depth):
            for arm in arms:
                made += _cases(study, material, {"dataset": dataset, "arm": arm}, k, mirage_k, check)
    return tuple(made)


def _cases(
    study: Study,
    material: QuestionPassages,
    condition: Mapping[str, str],
    k: int,
    mirage_k: int,
    check: PreflightSettings,
) -> list[Case]:
    arm = condition["arm"]
    if arm in UNPLACED:
        return study.cases(material, condition)
    if arm == MIRAGE and study.evidence.fused is not None:
        fused = study.evidence.fused(material.question, mirage_k)
        return study.cases(material, {**condition, "k": mirage_k}, fused)
    ranking = first(material.retrieved, k, study.evidence.count)
    verdict = (
        arm == CHECKED
        and check.enabled
        and preflight_verdict(study.evidence, material.question, material.retrieved, check)
    )
    return study.cases(material, {**condition, "k": k}, ranking, verdict)


def _check(evidence: PassageSource, arms: Sequence[str], check: PreflightSettings) -> None:
    known = (*ARMS, CLOSED)
    if unknown := [arm for arm in arms if arm not in known]:
        raise InputError(f"no arm is called {unknown[0]}: known are {', '.join(known)}")
    if MIRAGE in arms and evidence.fused is None:
        raise InputError("the arm mirage needs a search by several retrievers: give one, or leave the arm out")
    if CHECKED not in arms or not check.enabled:
        return
    signal = check.signal or "overlap"
    if signal in BY_WORDS and evidence.words is None:
        raise InputError(f"the preflight check by {signal} needs a search by words: give one, or leave it out")
    if check.signal == "reranker-overlap" and evidence.reranker is None:
        raise InputError("the preflight check by reranker-overlap needs a reranker: name one, or take another signal")


def preflight_verdict(
    evidence: PassageSource, question: Question, ranking: Ranking, check: PreflightSettings
) -> Preflight:
    """The verdict on this ranking, its first hits ranked anew as the signal asks."""
    top = first(ranking, check.depth, evidence.count)
    rule = rule_for(
        check.rule,
        top,
        evidence.count,
        question.patient is not None,
        signal=check.signal,
        n=check.n,
        threshold=check.threshold,
    )
    words = evidence.words(question, top.ids) if evidence.words and top.hits and rule.signal in BY_WORDS else ()
    again = None
    if evidence.reranker is not None and rule.signal == "reranker-overlap":
        name, reranker = evidence.reranker
        again = _scored(reranked(top, question.text, reranker, name, len(top.hits)))
    return rankings_agree(
        _best_first(top),
        words,
        again,
        signal=rule.signal,
        n=rule.n,
        threshold=rule.threshold,
        depth=check.depth,
        count=evidence.count,
        origin=rule.origin,
    )


def _best_first(ranking: Ranking) -> list[tuple[str, float]]:
    """Ids and scores, the best passage of each document before its others."""
    return sorted(_scored(ranking), key=lambda pair: -pair[1])


def _scored(ranking: Ranking) -> list[tuple[str, float]]:
    return [(hit.passage.id, hit.score) for hit in ranking.hits]


def mirage_remarks(records: Iterable[RunRecord]) -> tuple[str, ...]:
    """A remark on the retrievers of the arm `mirage`, as its rankings name them; none where it was not asked."""
    found = dict.fromkeys(
        json.dumps(event["ranking"]["parameters"].get("encoder"))
        for record in records
        if record.get("condition", {}).get("arm") == MIRAGE
        for event in record["answer"]["trace"]
        if event["event"] == "retrieved"
    )
    encoders = [json.loads(each) for each in found]
    named = ["BM25" if each is None else " and ".join(["BM25", *_listed(each)]) for each in encoders]
    if not named:
        return ()
    return (
        "Arm mirage: MIRAGE fused four retrievers (BM25, Contriever, SPECTER, MedCPT) over four corpora; here "
        f"{'; '.join(named)} over this library stood in for them.",
    )


def _listed(encoder: str | list[str]) -> list[str]:
    return [encoder] if isinstance(encoder, str) else encoder


# -- tables -----------------------------------------------------------------------------------------------------------


def tables(
    runs: Mapping[str, Sequence[Outcome]],
    *,
    measure: AccuracyMeasure = "right",
    remarks: Sequence[str] = (),
    seed: int = 0,
) -> tuple[Table, ...]:
    """Of finished runs, by the name of their model: all arms against RAG; where these were asked BriefContext against
    RAG as MIRAGE ran it, and with its check against without; and what the papers print, averaged both ways. `remarks`
    (the protocol's notes, `stood_in`) stand under each but the last."""
    asked = {str(each.condition["arm"]) for outcomes in runs.values() for each in outcomes}
    made = [
        _table(runs, baseline, [arm for arm in arms if arm in asked and arm != baseline], measure, remarks, seed)
        for baseline, arms in _COMPARED
        if baseline == RAG or (baseline in asked and asked & set(arms))
    ]
    return *made, published_table()


@dataclass(frozen=True, slots=True)
class _Row:
    cells: tuple[Cell, ...]
    difference: Difference | None


def _table(
    runs: Mapping[str, Sequence[Outcome]],
    baseline: str,
    arms: Sequence[str],
    measure: AccuracyMeasure,
    remarks: Sequence[str],
    seed: int,
) -> Table:
    rows = [row for model, of in runs.items() for row in _rows(model, of, (baseline, *arms), measure, seed)]
    corrected = corrected_p([row.difference for row in rows])
    everyone = [each for outcomes in runs.values() for each in outcomes if each.condition["arm"] in (baseline, *arms)]
    compared = sum(p is not None for p in corrected)
    more = (*chance(everyone), *left_out(everyone), *_AVERAGES, *remarks)
    return Table(
        f"Accuracy with real rankings, against {baseline}",
        ("model", "set", "arm", "k", *FIGURES, f"difference to {baseline}", P),
        tuple((*row.cells, row.difference, p) for row, p in zip(rows, corrected, strict=True)),
        notes(measure, compared, more),
    )


def _rows(
    model: str, outcomes: Sequence[Outcome], arms: Sequence[str], measure: AccuracyMeasure, seed: int
) -> Iterator[_Row]:
    """The first of the arms is the baseline. One set alone has no averages."""
    of = {arm: [each for each in outcomes if each.condition["arm"] == arm] for arm in arms}
    names = {str(each.condition["dataset"]) for each in outcomes}
    sets = sorted(names, key=lambda name: (SETS.index(name) if name in SETS else len(SETS), name))
    for part in (*sets, *((MACRO, MICRO) if len(sets) > 1 else ())):
        for arm, mine in of.items():
            here, against = _of(part, mine), _of(part, of[arms[0]])
            if not here:
                continue
            labels = (model, part, arm, here[0].condition.get("k"))
            group = Group(labels, here, against if arm != arms[0] else (), ("repeat",))
            figures: tuple[Cell, ...]
            if part == MACRO:
                figures = (macro_mean(here, measure, seed), *[None] * len(STATES))
                less = macro_difference(here, group.against, measure, seed)
            else:
                figures = (mean(here, measure, seed), *counts(here))
                less = difference(group, measure, seed)
            yield _Row((*labels, *figures), less)


def _of(part: str, outcomes: Sequence[Outcome]) -> list[Outcome]:
    return [each for each in outcomes if part in (MACRO, MICRO, each.condition["dataset"])]


# -- averages of sets -------------------------------------------------------------------------------------------------


def macro_mean(outcomes: Sequence[Outcome], measure: AccuracyMeasure, seed: int = 0) -> Mean:
    """The mean of the sets' means; a question that was asked several times counts by its mean."""
    sets = list(_by_set(outcomes, measure).values())
    unscored = sum(score(each, measure) is None for each in outcomes)
    if not sets:
        return Mean(float("nan"), Interval(float("nan"), float("nan")), 0, unscored)
    value = fmean(fmean(of.values()) for of in sets)
    interval = _interval([list(of.values()) for of in sets], (0.0, 1.0), seed)
    return Mean(value, interval, len(outcomes) - unscored, unscored)


def macro_difference(
    first: Sequence[Outcome], second: Sequence[Outcome], measure: AccuracyMeasure, seed: int = 0
) -> Difference | None:
    """The mean of the sets' mean differences, over the questions that both have scored; `None` where a set has none
    such. `p` flips the signs of whole questions, each weighing as its set has it."""
    mine, theirs = _by_set(first, measure), _by_set(second, measure)
    both = {
        name: {pair: mine[name][pair] - theirs[name][pair] for pair in mine[name] if pair in theirs[name]}
        for name in mine
        if name in theirs
    }
    if not both or set(both) != {*mine, *theirs} or not all(both.values()):
        return None
    n = sum(map(len, both.values()))
    weighed = {
        (name, pair): value * n / (len(both) * len(of)) for name, of in both.items() for pair, value in of.items()
    }
    flipped = paired_difference(weighed, dict.fromkeys(weighed, 0.0), seed=seed)
    interval = _interval([list(of.values()) for of in both.values()], (-1.0, 1.0), seed)
    return replace(flipped, interval=interval)


def _by_set(outcomes: Iterable[Outcome], measure: AccuracyMeasure) -> dict[str, dict[PairingKey, float]]:
    """The mean score of each question by its set, the sets by name."""
    parts: dict[str, list[Outcome]] = {}
    for each in outcomes:
        parts.setdefault(str(each.condition["dataset"]), []).append(each)
    scored = {name: by_pair(part, (), measure) for name, part in sorted(parts.items())}
    return {name: of for name, of in scored.items() if of}


def _interval(sets: Sequence[Sequence[float]], limits: tuple[float, float], seed: int) -> Interval:
    """Of the mean of the sets' means, each set's questions drawn with replacement. `limits`: of a score."""
    if all(max(values) - min(values) < 1e-9 for values in sets):
        alike = [of_all_alike(values[0], len(values), limits) for values in sets]
        return Interval(fmean(each.low for each in alike), fmean(each.high for each in alike))
    drawn = np.mean([_redrawn(values, seed + number) for number, values in enumerate(sets)], axis=0)
    low, high = np.quantile(drawn, [0.025, 0.975])
    return Interval(float(low), float(high))


def _redrawn(values: Sequence[float], seed: int) -> npt.NDArray[np.float64]:
    """Means of as many values as there are, drawn with replacement. Few of them differ, so their counts are drawn."""
    distinct, counted = np.unique(np.asarray(values, dtype=np.float64), return_counts=True)
    n = len(values)
    drawn = np.random.default_rng(seed).multinomial(n, counted / n, size=statistics.RESAMPLES)
    means: npt.NDArray[np.float64] = drawn @ distinct / n
    return means


# -- what the papers print --------------------------------------------------------------------------------------------


def published_table() -> Table:
    """Supplementary Table 3 averaged both ways, with RAG as MIRAGE released it and what BriefContext gains on each."""
    printed = published()["integration"].table
    sets = ("MedMCQA", "PubMedQA", "BioASQ")
    sizes = [
        float(str(published()["datasets"].figure("questions", name))) for name in ("MedMCQA", "PubMedQA", "BioASQ-Y/N")
    ]
    rows = [
        (str(model), str(method), [float(str(each)) for each in shares]) for model, method, *shares, _ in printed.rows
    ]
    rows.append((RELEASED_MODEL, "RAG, as MIRAGE released it", RELEASED))
    ours = {model: shares for model, method, shares in rows if method == "BriefContext"}

    def averages(shares: Sequence[float]) -> tuple[float, float]:
        return fmean(shares), sum(share * size for share, size in zip(shares, sizes, strict=True)) / sum(sizes)

    made: list[tuple[Cell, ...]] = []
    for model, method, shares in rows:
        macro, micro = averages(shares)
        best = averages(ours[model])
        gains = (None, None) if method == "BriefContext" else (best[0] - macro, best[1] - micro)
        made.append((model, method, *shares, macro, micro, *gains))
    remarks = (
        "In percent. Averages and gains are computed from the printed shares. The arms differ in more than the "
        "strategy (errata B7): CoT and RAG are of MIRAGE's benchmark, 32 passages of four retrievers, four corpora "
        "and other prompts.",
        "The RAG row printed for GPT-3.5 is not the one that MIRAGE released (B6).",
    )
    columns = ("model", "method", *sets, MACRO, MICRO, "BriefContext gains, macro", "BriefContext gains, micro")
    return Table("What the papers print, averaged both ways", columns, tuple(made), remarks, printed.source)
