"""Can it be foreseen that the key document is lost in the middle? (BriefContext, Supplementary Table 4; preflight.)

From recorded rankings to tables: what the issue is, by several definitions; what a rule says; how often it is right.
Pure functions. A verdict "the rankings agree" skips map-reduce, so "true positive" is: an issue, and map-reduce runs.
Searches nothing and fits nothing: see `rankings` and `calibration`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np

from epicrisis.evaluation.analysis.published import published
from epicrisis.evaluation.analysis.statistics import Interval, Mean, wilson
from epicrisis.evaluation.analysis.table import Cell, Table
from epicrisis.evaluation.experiments.recorded_rankings import QuestionRankings
from epicrisis.retrieval.document_ranking import document_of
from epicrisis.retrieval.ranking_signals import Signal, measured

Label: TypeAlias = Literal["issue", "no-issue", "not-retrieved", "no-key"]
"""`not-retrieved`: the library holds a key document, and none is among those read. `no-key`: the library holds none,
or none may be seen, so nobody can say."""


@dataclass(frozen=True, slots=True)
class Definition:
    """When a question has the issue (errata B13). Places are those of documents in the ranking that is read, or of
    passages where the record counts these."""

    name: str
    top: int = 3
    """A key document among so many first places is seen."""
    bottom: int = 0
    """And among so many last ones: the other spotlight."""
    k: int = 16
    """Documents, or passages, read."""
    gold: Literal["best", "all"] = "best"
    """Of several key documents the best-placed one counts, or each must be seen."""
    missing: Literal["issue", "apart"] = "issue"
    """What a key document is that is not among those read: no strategy finds it there."""

    def label(self, each: QuestionRankings) -> Label:
        """What the question counts as."""
        if not each.held:
            return "no-key"
        read = documents = each.documents_read(self.k)
        places = [documents.index(name) for name in each.held if name in documents]
        if not places:
            return "issue" if self.missing == "issue" else "not-retrieved"
        if self.gold == "all":
            lacking = self.missing == "issue" and len(places) < len(each.held)
            return "issue" if lacking or any(self._lost(place, len(read)) for place in places) else "no-issue"
        return "issue" if self._lost(min(places), len(read)) else "no-issue"

    def _lost(self, place: int, read: int) -> bool:
        return place >= self.top and place < read - self.bottom


PUBLISHED = Definition("beyond 3, or not retrieved")
"""The papers' definition, what is not retrieved being beyond any place."""
BEYOND_3 = Definition("beyond 3, of those retrieved", missing="apart")
"""The one that decides money: what is not retrieved no map call finds."""


def definitions(k: int = 16) -> tuple[Definition, ...]:
    """All that are told apart where `k` documents or passages are read, the papers' first."""
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
    """The rankings agree where the signal is greater than the threshold, `depth` dense documents (or passages) ranked
    anew."""

    signal: Signal
    threshold: float
    depth: int = 16

    def agree(self, each: QuestionRankings) -> bool | None:
        """Whether map-reduce is skipped; `None` where the signal was not recorded."""
        value = signal_value(self.signal, each, self.depth)
        return None if value is None else value > self.threshold

    def __str__(self) -> str:
        if math.isinf(self.threshold):
            return "always map-reduce" if self.threshold > 0 else "never map-reduce"
        return f"{self.signal} > {self.threshold:.4g}, depth {self.depth}"


PAPERS_RULE = Rule(Signal("overlap", 3), 0.2)
AS_CODED = Rule(Signal("overlap", 3), 0.3, depth=64)
"""Of the notebooks, which call it nowhere (errata B2, C2, C12)."""
ALWAYS, NEVER = Rule(Signal("overlap", 3), math.inf), Rule(Signal("overlap", 3), -math.inf)


def signal_value(signal: Signal, each: QuestionRankings, depth: int = 16) -> float | None:
    """The signal's value for a question; `None` where it was not recorded."""
    cut = each.at_depth(depth)
    return measured(signal, cut.dense, cut.bm25, cut.reranked)


@dataclass(frozen=True, slots=True)
class Confusion:
    """Counts of questions. Rows of the papers' matrix are, read rightly (errata B3), the truth: (tp, fn), (fp, tn)."""

    tp: int
    fn: int
    fp: int
    tn: int
    apart: int = 0
    """Without a label: in no rate but the share skipped."""
    apart_skipped: int = 0

    @property
    def n(self) -> int:
        return self.tp + self.fn + self.fp + self.tn

    @property
    def issues(self) -> int:
        return self.tp + self.fn

    @property
    def precision(self) -> Mean:
        return proportion(self.tp, self.tp + self.fp)

    @property
    def recall(self) -> Mean:
        return proportion(self.tp, self.tp + self.fn)

    @property
    def specificity(self) -> Mean:
        """Of the questions without the issue, those that skip map-reduce: the papers' "true negatives filtered"."""
        return proportion(self.tn, self.fp + self.tn)

    @property
    def accuracy(self) -> Mean:
        return proportion(self.tp + self.tn, self.n)

    @property
    def skipped(self) -> Mean:
        """Of all questions, labelled or not, those that skip map-reduce: what is saved (errata B4)."""
        return proportion(self.tn + self.fn + self.apart_skipped, self.n + self.apart)

    def f1(self, resamples: int = 10_000, seed: int = 0) -> Mean:
        """Harmonic mean of precision and recall; its interval is a bootstrap of the labelled questions."""
        if 2 * self.tp + self.fp + self.fn == 0:
            return Mean(math.nan, Interval(math.nan, math.nan), 0)
        cells = np.array([self.tp, self.fn, self.fp, self.tn])
        tp, fn, fp, _ = np.random.default_rng(seed).multinomial(self.n, cells / self.n, size=resamples).T
        drawn = 2 * tp / np.maximum(2 * tp + fp + fn, 1)
        low, high = np.quantile(drawn, [0.025, 0.975])
        return Mean(2 * self.tp / (2 * self.tp + self.fp + self.fn), Interval(float(low), float(high)), self.n)


def proportion(part: int, whole: int) -> Mean:
    """A proportion with Wilson's interval; not a number where there is nothing to share."""
    return Mean(part / whole if whole else math.nan, wilson(part, whole), whole)


def confusion(judged: Iterable[tuple[Label, bool]]) -> Confusion:
    """Counts of (label, whether the rankings agree)."""
    counts = Counter(judged)
    apart = {agree: counts["not-retrieved", agree] + counts["no-key", agree] for agree in (True, False)}
    return Confusion(
        tp=counts["issue", False],
        fn=counts["issue", True],
        fp=counts["no-issue", False],
        tn=counts["no-issue", True],
        apart=sum(apart.values()),
        apart_skipped=apart[True],
    )


def evaluate_rule(recorded: Iterable[QuestionRankings], rule: Rule, definition: Definition) -> Confusion:
    """The rule's matrix under the definition, of the questions that have its signal."""
    pairs = [(definition.label(each), rule.agree(each)) for each in recorded]
    return confusion((label, agree) for label, agree in pairs if agree is not None)


@dataclass(frozen=True, slots=True)
class Point:
    """The matrix at one threshold."""

    threshold: float
    confusion: Confusion


def threshold_curve(labels: Sequence[Label], values: Sequence[float]) -> tuple[Point, ...]:
    """Every threshold that makes a difference, rising: from never (minus infinity) to always map-reduce."""
    order = sorted(range(len(values)), key=lambda i: values[i])
    disagreeing: Counter[Label] = Counter()
    agreeing = Counter(labels)
    points = [Point(-math.inf, _counted(disagreeing, agreeing))]
    for at, i in enumerate(order):
        disagreeing[labels[i]] += 1
        agreeing[labels[i]] -= 1
        if at + 1 == len(order) or values[order[at + 1]] > values[i]:
            points.append(Point(values[i], _counted(disagreeing, agreeing)))
    return tuple(points)


def _counted(disagreeing: Counter[Label], agreeing: Counter[Label]) -> Confusion:
    apart_skipped = agreeing["not-retrieved"] + agreeing["no-key"]
    return Confusion(
        tp=disagreeing["issue"],
        fn=agreeing["issue"],
        fp=disagreeing["no-issue"],
        tn=agreeing["no-issue"],
        apart=apart_skipped + disagreeing["not-retrieved"] + disagreeing["no-key"],
        apart_skipped=apart_skipped,
    )


def specificity_at(points: Sequence[Point], recall: float) -> Point:
    """The point of highest specificity among those of at least this recall. Ties: the higher recall."""
    enough = [each for each in points if each.confusion.recall.value >= recall - 1e-12]
    if not enough:
        raise ValueError("no threshold has that recall: no question has the issue")
    return max(enough, key=lambda each: (each.confusion.specificity.value, each.confusion.recall.value))


def roc_area(labels: Sequence[Label], values: Sequence[float]) -> Mean:
    """How often a question without the issue has the higher signal than one with it (ties half): 0.5 is chance.

    The area under the receiver's curve; interval by DeLong, DeLong and Clarke-Pearson, Biometrics 1988.
    """
    fine = np.array([value for label, value in zip(labels, values, strict=True) if label == "no-issue"])
    lost = np.array([value for label, value in zip(labels, values, strict=True) if label == "issue"])
    if len(fine) < 2 or len(lost) < 2:
        return Mean(math.nan, Interval(math.nan, math.nan), len(fine) + len(lost))
    wins = (fine[:, None] > lost[None, :]) + 0.5 * (fine[:, None] == lost[None, :])
    value = float(wins.mean())
    variance = wins.mean(axis=1).var(ddof=1) / len(fine) + wins.mean(axis=0).var(ddof=1) / len(lost)
    reach = 1.959964 * math.sqrt(float(variance))
    return Mean(value, Interval(max(0.0, value - reach), min(1.0, value + reach)), len(fine) + len(lost))


# -- tables -----------------------------------------------------------------------------------------------------------

_COUNTS = ("TP", "FN", "FP", "TN")
_RATES = ("precision", "recall", "specificity", "F1", "skipped", "apart")
_APART = "Apart: questions without a label, in no rate but the share skipped."


def published_confusion() -> Confusion:
    """The papers' matrix, its rows read as the truth, which alone gives the rates in the text (errata B3)."""
    (tp, fn), (fp, tn) = (row[1:] for row in published()["preflight"].table.rows)
    return Confusion(*(int(str(cell)) for cell in (tp, fn, fp, tn)))


def rules_table(
    recorded: Sequence[QuestionRankings],
    rules: Sequence[Rule] = (PAPERS_RULE, ALWAYS, NEVER),
    k: int = 16,
    source: str = "",
) -> Table:
    """Supplementary Table 4 for each definition of the issue and each rule, and the papers' own matrix first."""
    rows = [("as published", "overlap > 0.2, n not stated", *_cells(published_confusion()))]
    for definition in definitions(k):
        for rule in rules:
            rows.append((definition.name, str(rule), *_cells(evaluate_rule(recorded, rule, definition))))
    notes = (
        _APART,
        "The published row is of other questions, another encoder and another library: no replication.",
        f"The papers' rule is taken to be {PAPERS_RULE}, for they state no n; the notebooks have {AS_CODED}, call it "
        "nowhere (errata C2), and count words among the ranked passages alone (C6), where these rules go by the whole "
        "library's. At n = 3 both thresholds are one test, but where BM25 finds fewer than 3 of the passages (B2).",
        "Intervals: Wilson's, F1's by bootstrap over questions.",
    )
    columns = ("issue: key document", "rule", *_COUNTS, *_RATES)
    return Table("Is the issue foreseen?", columns, tuple(rows), notes, source)


def _cells(each: Confusion) -> tuple[Cell, ...]:
    rates = (each.precision, each.recall, each.specificity, each.f1(), each.skipped)
    return (each.tp, each.fn, each.fp, each.tn, *rates, each.apart)


def places_table(recorded: Sequence[QuestionRankings], k: int = 16, source: str = "") -> Table:
    """Where the best-placed key document of each question stands, by question set."""
    heads = ("place 1", "2 to 3", f"4 to {k}", f"not among {k}", "not in the library")
    counts: dict[str, Counter[str]] = {}
    for each in recorded:
        documents = each.documents_read(k)
        place = min((documents.index(name) for name in each.held if name in documents), default=None)
        if place is not None:
            head = heads[0] if place == 0 else heads[1] if place < 3 else heads[2]
        else:
            head = heads[3] if each.held else heads[4]
        counts.setdefault(each.dataset, Counter())[head] += 1
    rows: list[tuple[Cell, ...]] = [
        (name, count.total(), *(count[head] for head in heads)) for name, count in counts.items()
    ]
    return Table("Where the key documents stand", ("set", "questions", *heads), tuple(rows), source=source)


def counts_table(recorded: Sequence[QuestionRankings], source: str = "") -> Table:
    """Return how often the papers' rule lets two passages of one document pass for two documents, by question set.

    Both countings look at the same recorded rankings of passages.
    """
    by_set: dict[str, Counter[str]] = {}
    for each in recorded:
        counts = by_set.setdefault(each.dataset, Counter())
        counts["questions"] += 1
        cut = replace(each, count="passages").at_depth(PAPERS_RULE.depth)
        by_documents = bool(PAPERS_RULE.agree(replace(each, count="documents")))
        counts["documents"] += by_documents
        if not PAPERS_RULE.agree(cut):
            counts["only documents"] += by_documents
            continue
        shared = {id_ for id_, _ in cut.dense[:3]} & {id_ for id_, _ in cut.bm25[:3]}
        counts["passages"] += 1
        counts["one document"] += len({document_of(id_) for id_ in shared}) == 1
        counts["only passages"] += not by_documents
    heads = ("questions", "passages", "one document", "only passages", "documents", "only documents")
    rows: list[tuple[Cell, ...]] = [(name, *(counts[head] for head in heads)) for name, counts in by_set.items()]
    total = sum(by_set.values(), Counter())
    if len(rows) > 1:
        rows.append(("all", *(total[head] for head in heads)))
    columns = (
        "set",
        "questions",
        "agree by passages",
        "of these share one document alone",
        "of these disagree by documents",
        "agree by documents",
        "of these disagree by passages",
    )
    notes = (f"By the papers' rule, {PAPERS_RULE}: of documents, each by its best passage, or of passages.",)
    return Table("What is counted", columns, tuple(rows), notes, source)


def curve_table(
    recorded: Sequence[QuestionRankings], signal: Signal, definition: Definition, depth: int = 16, source: str = ""
) -> Table:
    """What every threshold of one signal gives, from never to always map-reduce."""
    labels, values = label_rankings(recorded, signal, definition, depth)
    rows: list[tuple[Cell, ...]] = []
    for point in threshold_curve(labels, values):
        of = point.confusion
        precision, f1 = (each if each.n else None for each in (of.precision, of.f1()))
        rates = (precision, of.recall, of.specificity, f1, of.skipped)
        threshold = None if math.isinf(point.threshold) else point.threshold
        rows.append((threshold, of.tp, of.fn, of.fp, of.tn, *rates, of.apart))
    notes = (
        _APART,
        f"The issue: key document {definition.name}. Map-reduce runs where the signal is not above the "
        "threshold; without one it never runs.",
    )
    return Table(f"Every threshold of {signal}", ("threshold", *_COUNTS, *_RATES), tuple(rows), notes, source)


def guards_table(
    arms: Mapping[str, Sequence[QuestionRankings]],
    rules: Sequence[Rule] = (PAPERS_RULE,),
    k: int = 16,
    source: str = "",
) -> Table:
    """What the rules say where a question may not find its own source (errata B15), beside where it may."""
    rows: list[tuple[Cell, ...]] = []
    for guard, recorded in arms.items():
        gone = [each for each in recorded if not each.held]
        lost = [each for each in recorded if each.held and replace(PUBLISHED, top=k, k=k).label(each) == "issue"]
        for rule in rules:
            of = [[rule.agree(each) for each in part] for part in (recorded, lost, gone)]
            skipped = (proportion(sum(map(bool, part)), sum(said is not None for said in part)) for part in of)
            rows.append((guard, str(rule), len(recorded), len(lost), len(gone), *skipped))
    columns = (
        "guard",
        "rule",
        "questions",
        "key not retrieved",
        "no key to find",
        "skipped",
        "skipped, key not retrieved",
        "skipped, no key",
    )
    notes = (
        "Skipped though no key document is read: the rule is sure of a ranking that cannot hold the answer.",
        "A guard by date leaves out the questions none of whose documents has one.",
    )
    return Table("Preflight under leak guards", columns, tuple(rows), notes, source)


def label_rankings(
    recorded: Iterable[QuestionRankings], signal: Signal, definition: Definition, depth: int = 16
) -> tuple[list[Label], list[float]]:
    """Labels and the signal's values, of the questions that have it, in their order."""
    values = [(definition.label(each), signal_value(signal, each, depth)) for each in recorded]
    known = [(label, value) for label, value in values if value is not None]
    return [label for label, _ in known], [value for _, value in known]
