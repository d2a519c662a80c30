"""Preflight rules: when a question has the issue, what a rule says of it, and how often the rule is right.

The issue is a key document lost in the middle of the ranking. A verdict "the rankings agree" skips map-reduce, so a
true positive is a question with the issue for which map-reduce runs.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np

from epicrisis.evaluation.analysis.statistics import Interval, Mean, wilson
from epicrisis.evaluation.experiments.passage_source import WordStatistics
from epicrisis.evaluation.experiments.recorded_rankings import QuestionRankings
from epicrisis.retrieval.preflight import Signal, measure_signal

Label: TypeAlias = Literal["issue", "no-issue", "not-retrieved", "no-key"]
"""`not-retrieved`: the library has a key document, and none is among those read. `no-key`: the library has none, or the
scope hides them all, so the question has no label."""


@dataclass(frozen=True, slots=True)
class Definition:
    """A definition of the issue (errata B13). Places count documents of the ranking that is read, or passages."""

    name: str
    top: int = 3
    """A key document among the first `top` places is found."""
    bottom: int = 0
    """So is one among the last `bottom` places."""
    k: int = 16
    """Number of documents, or passages, read."""
    gold: Literal["best", "all"] = "best"
    """Of several key documents the best-placed one counts, or all of them."""
    missing: Literal["issue", "apart"] = "issue"
    """Label of a question whose key document is not among those read, where no strategy finds it."""

    def label(self, rankings: QuestionRankings) -> Label:
        """Return the label of a question."""
        if not rankings.held:
            return "no-key"
        documents = rankings.documents_read(self.k)
        places = [documents.index(item) for item in rankings.held if item in documents]
        if not places:
            return "issue" if self.missing == "issue" else "not-retrieved"
        if self.gold == "all" and self.missing == "issue" and len(places) < len(rankings.held):
            return "issue"
        counted = places if self.gold == "all" else [min(places)]
        middle = range(self.top, len(documents) - self.bottom)
        return "no-issue" if set(middle).isdisjoint(counted) else "issue"


PUBLISHED = Definition("beyond 3, or not retrieved")
"""The papers' definition; a document that is not retrieved is beyond any place."""
BEYOND_3 = Definition("beyond 3, of those retrieved", missing="apart")
"""The definition that decides the cost: no map call finds a document that is not retrieved."""


def definitions(k: int = 16) -> tuple[Definition, ...]:
    """Return all definitions for `k` documents or passages, the papers' first."""
    return (
        replace(PUBLISHED, k=k),
        replace(BEYOND_3, k=k),
        Definition("neither among the first 3 nor the last 3, of those retrieved", bottom=3, k=k, missing="apart"),
        Definition("not retrieved", top=k, k=k),
        Definition("one of several beyond 3, or not retrieved", k=k, gold="all"),
        Definition("one of several beyond 3, of those retrieved", k=k, gold="all", missing="apart"),
    )


@dataclass(frozen=True, slots=True)
class Rule:
    """The rankings agree where the signal is above the threshold, with `depth` dense documents (or passages) ranked
    again."""

    signal: Signal
    threshold: float
    depth: int = 16
    word_statistics: WordStatistics = "library"

    def agree(self, rankings: QuestionRankings) -> bool | None:
        """Return whether map-reduce is skipped, or None where the signal was not recorded."""
        value = signal_value(self.signal, rankings, self.depth, self.word_statistics)
        return None if value is None else value > self.threshold

    def __str__(self) -> str:
        if math.isinf(self.threshold):
            return "always map-reduce" if self.threshold > 0 else "never map-reduce"
        words = ", BM25 of the candidates" if self.word_statistics == "candidates" else ""
        return f"{self.signal} > {self.threshold:.4g}, depth {self.depth}{words}"


PAPERS_RULE = Rule(Signal("overlap", 3), 0.2)
AS_CODED = Rule(Signal("overlap", 3), 0.3, depth=64, word_statistics="candidates")
"""The rule of the notebooks, which never call it (errata B2, C2, C6, C12)."""
CODED_NUMBERS = replace(AS_CODED, word_statistics="library")
"""The numbers of the notebooks with the BM25 of the library."""
ALWAYS, NEVER = Rule(Signal("overlap", 3), math.inf), Rule(Signal("overlap", 3), -math.inf)


def signal_value(
    signal: Signal, rankings: QuestionRankings, depth: int = 16, word_statistics: WordStatistics = "library"
) -> float | None:
    """Return the signal's value for a question, or None where it was not recorded."""
    cut = rankings.at_depth(depth)
    bm25 = cut.bm25 if word_statistics == "library" else cut.candidate_bm25
    return None if bm25 is None else measure_signal(signal, cut.dense, bm25, cut.reranked)


@dataclass(frozen=True, slots=True)
class Confusion:
    """Counts of questions. The rows of the papers' matrix are the truth (errata B3): (tp, fn), (fp, tn)."""

    tp: int
    fn: int
    fp: int
    tn: int
    apart: int = 0
    """Questions without a label: in no rate except the share skipped."""
    apart_skipped: int = 0

    @property
    def n(self) -> int:
        """Questions with a label."""
        return self.tp + self.fn + self.fp + self.tn

    @property
    def issues(self) -> int:
        """Questions with the issue."""
        return self.tp + self.fn

    @property
    def precision(self) -> Mean:
        """Share with the issue among the questions for which map-reduce runs."""
        return proportion(self.tp, self.tp + self.fp)

    @property
    def recall(self) -> Mean:
        """Share of the questions with the issue for which map-reduce runs."""
        return proportion(self.tp, self.tp + self.fn)

    @property
    def specificity(self) -> Mean:
        """Share of the questions without the issue that skip map-reduce: the papers' "true negatives filtered"."""
        return proportion(self.tn, self.fp + self.tn)

    @property
    def skipped(self) -> Mean:
        """Share of all questions, with or without a label, that skip map-reduce: the saving (errata B4)."""
        return proportion(self.tn + self.fn + self.apart_skipped, self.n + self.apart)

    def f1(self, resamples: int = 10_000, seed: int = 0) -> Mean:
        """Return the harmonic mean of precision and recall, with a bootstrap interval over the labelled questions."""
        if 2 * self.tp + self.fp + self.fn == 0:
            return Mean(math.nan, Interval(math.nan, math.nan), 0)
        cells = np.array([self.tp, self.fn, self.fp, self.tn])
        tp, fn, fp, _ = np.random.default_rng(seed).multinomial(self.n, cells / self.n, size=resamples).T
        samples = 2 * tp / np.maximum(2 * tp + fp + fn, 1)
        low, high = np.quantile(samples, [0.025, 0.975])
        return Mean(2 * self.tp / (2 * self.tp + self.fp + self.fn), Interval(float(low), float(high)), self.n)


def proportion(part: int, total: int) -> Mean:
    """Return a proportion with Wilson's interval; not a number where `whole` is 0."""
    return Mean(part / total if total else math.nan, wilson(part, total), total)


def confusion(verdicts: Iterable[tuple[Label, bool]]) -> Confusion:
    """Return the counts of (label, whether the rankings agree)."""
    agreeing: Counter[Label] = Counter()
    disagreeing: Counter[Label] = Counter()
    for label, agree in verdicts:
        (agreeing if agree else disagreeing)[label] += 1
    return _count(disagreeing, agreeing)


def evaluate_rule(recorded: Iterable[QuestionRankings], rule: Rule, definition: Definition) -> Confusion:
    """Return the rule's matrix under the definition, over the questions with its signal."""
    labels, values = label_rankings(recorded, rule.signal, definition, rule.depth, rule.word_statistics)
    return confusion((label, value > rule.threshold) for label, value in zip(labels, values, strict=True))


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """The matrix at one threshold."""

    threshold: float
    confusion: Confusion


def threshold_curve(labels: Sequence[Label], values: Sequence[float]) -> tuple[CurvePoint, ...]:
    """Return every distinct threshold, ascending: from never (minus infinity) to always map-reduce."""
    order = sorted(range(len(values)), key=lambda i: values[i])
    disagreeing: Counter[Label] = Counter()
    agreeing = Counter(labels)
    points = [CurvePoint(-math.inf, _count(disagreeing, agreeing))]
    for rank, i in enumerate(order, 1):
        disagreeing[labels[i]] += 1
        agreeing[labels[i]] -= 1
        if rank == len(order) or values[order[rank]] > values[i]:
            points.append(CurvePoint(values[i], _count(disagreeing, agreeing)))
    return tuple(points)


def _count(disagreeing: Counter[Label], agreeing: Counter[Label]) -> Confusion:
    apart_skipped = agreeing["not-retrieved"] + agreeing["no-key"]
    return Confusion(
        tp=disagreeing["issue"],
        fn=agreeing["issue"],
        fp=disagreeing["no-issue"],
        tn=agreeing["no-issue"],
        apart=apart_skipped + disagreeing["not-retrieved"] + disagreeing["no-key"],
        apart_skipped=apart_skipped,
    )


def specificity_at(points: Sequence[CurvePoint], recall: float) -> CurvePoint:
    """Return the point of highest specificity with at least this recall; of ties the one with the higher recall."""
    enough = [point for point in points if point.confusion.recall.value >= recall - 1e-12]
    if not enough:
        raise ValueError("no threshold has that recall: no question has the issue")
    return max(enough, key=lambda point: (point.confusion.specificity.value, point.confusion.recall.value))


def roc_area(labels: Sequence[Label], values: Sequence[float]) -> Mean:
    """Return the area under the ROC curve: how often a question without the issue has the higher signal than one with
    it (ties half); 0.5 is chance.

    Interval by DeLong, DeLong and Clarke-Pearson, Biometrics 1988.
    """
    label_array, value_array = np.array(labels, dtype=str), np.array(values)
    fine, issues = value_array[label_array == "no-issue"], value_array[label_array == "issue"]
    if len(fine) < 2 or len(issues) < 2:
        return Mean(math.nan, Interval(math.nan, math.nan), len(fine) + len(issues))
    wins = (fine[:, None] > issues[None, :]) + 0.5 * (fine[:, None] == issues[None, :])
    value = float(wins.mean())
    variance = wins.mean(axis=1).var(ddof=1) / len(fine) + wins.mean(axis=0).var(ddof=1) / len(issues)
    reach = 1.959964 * math.sqrt(float(variance))
    return Mean(value, Interval(max(0.0, value - reach), min(1.0, value + reach)), len(fine) + len(issues))


def label_rankings(
    recorded: Iterable[QuestionRankings],
    signal: Signal,
    definition: Definition,
    depth: int = 16,
    word_statistics: WordStatistics = "library",
) -> tuple[list[Label], list[float]]:
    """Return labels and signal values of the questions with the signal, in their order."""
    labels: list[Label] = []
    values: list[float] = []
    for rankings in recorded:
        value = signal_value(signal, rankings, depth, word_statistics)
        if value is not None:
            labels.append(definition.label(rankings))
            values.append(value)
    return labels, values
