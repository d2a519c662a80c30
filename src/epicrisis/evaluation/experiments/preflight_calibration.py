"""A preflight rule for one's own documents: signal, n and threshold fitted on recorded rankings, judged on others.

Fitted is the rule of highest specificity (most needless map-reduce saved) among those that miss no more of the issue
than asked. What it is worth is told by k-fold cross-validation: in each fold signal, n and threshold are chosen on the
other questions alone. Pure functions; knows no library and writes no file.
"""

from __future__ import annotations

import hashlib
import json
import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from epicrisis.errors import InputError
from epicrisis.evaluation.analysis.statistics import Difference, holm, paired_difference
from epicrisis.evaluation.analysis.table import Cell, Table
from epicrisis.evaluation.experiments.preflight import (
    BEYOND_3,
    PAPERS_RULE,
    Confusion,
    Definition,
    Label,
    Point,
    Rule,
    confusion,
    label_rankings,
    roc_area,
    signal_value,
    specificity_at,
    threshold_curve,
)
from epicrisis.evaluation.experiments.recorded_rankings import QuestionRankings
from epicrisis.retrieval.ranking_signals import Signal

FOLDS = 5
SIGNALS = (
    *(Signal("overlap", n) for n in (1, 2, 3, 5, 8, 10)),
    *(Signal("rank-biased-overlap", n) for n in (3, 5, 10, 16)),
    *(Signal("dense-gap", n) for n in (2, 3, 5, 10, 16)),
    *(Signal("bm25-gap", n) for n in (2, 3, 5, 10, 16)),
    *(Signal("reranker-overlap", n) for n in (1, 3, 5)),
)
"""What is tried; those with a reranker only where there is one."""


@dataclass(frozen=True, slots=True)
class HeldOutResult:
    """One question held out: its label, and what each of the two rules said of it (whether the rankings agree)."""

    key: str
    label: Label
    fitted: bool
    papers: bool
    percentile: float = 0.0
    """The share of the questions fitted on whose value of the fold's signal is less: comparable between folds."""


@dataclass(frozen=True, slots=True)
class PreflightCalibration:
    """A fitted rule, and what such a rule does on questions that it was not fitted on."""

    rule: Rule
    """Fitted on all questions: the one to use."""
    definition: Definition
    recall: float | None
    """What was asked for; `None`: the recall of the papers' rule on the same questions."""
    folds: tuple[Rule, ...]
    """Fitted in each fold on the other questions."""
    judged: tuple[HeldOutResult, ...]
    """Every question, by the rule of the fold in which it was held out."""

    @property
    def held_out(self) -> Confusion:
        return confusion((each.label, each.fitted) for each in self.judged)

    @property
    def papers(self) -> Confusion:
        return confusion((each.label, each.papers) for each in self.judged)

    def at_recall(self, recall: float) -> Confusion:
        """Held out, at least this recall: the folds' signals, under one threshold for all that is moved until then."""
        points = threshold_curve([each.label for each in self.judged], [each.percentile for each in self.judged])
        return specificity_at(points, recall).confusion

    @property
    def differences(self) -> tuple[Difference, Difference]:
        """Fitted less papers' rule, in recall and in specificity: the share judged rightly of the questions with the
        issue, and of those without. `p` is McNemar's, exact, corrected by Holm for the two."""
        recall, specificity = self._difference("issue"), self._difference("no-issue")
        corrected = holm([recall.p, specificity.p])
        return replace(recall, p=corrected[0]), replace(specificity, p=corrected[1])

    def _difference(self, label: Label) -> Difference:
        of = [each for each in self.judged if each.label == label]
        mine = {each.key: float(each.fitted == (label == "no-issue")) for each in of}
        theirs = {each.key: float(each.papers == (label == "no-issue")) for each in of}
        return paired_difference(mine, theirs)


def fit_rule(
    recorded: Sequence[QuestionRankings],
    definition: Definition = BEYOND_3,
    recall: float | None = None,
    *,
    signals: Sequence[Signal] = SIGNALS,
    depth: int = 16,
) -> Rule:
    """The rule of highest specificity whose recall on these questions is at least `recall` (default: that of the
    papers' rule on them). Of equal ones the higher recall, then the earlier signal.

    Raises InputError where not both kinds of question are there, or where that recall is 0.
    """
    labels = [definition.label(each) for each in recorded]
    counts = Counter(labels)
    if not counts["issue"] or not counts["no-issue"]:
        raise InputError(
            f"{counts['issue']} questions with the issue and {counts['no-issue']} without: a rule needs some of both; "
            "give more questions whose gold documents the library holds"
        )
    if recall is None:
        recall = confusion(zip(labels, _papers(recorded), strict=True)).recall.value
    if recall <= 0:
        # The best rule of no recall never runs map-reduce, and is no threshold that settings could hold.
        raise InputError(
            f"the papers' rule foresees none of {counts['issue']} questions with the issue, so its recall is nothing "
            "to fit to: name one with --recall, or give more questions"
        )
    cut = [each.at_depth(depth) for each in recorded]
    best: tuple[tuple[float, float], Rule] | None = None
    for signal in signals:
        of, values = label_rankings(cut, signal, definition, depth)
        if len(values) < len(cut):
            continue
        point = specificity_at(threshold_curve(of, values), recall)
        worth = (point.confusion.specificity.value, point.confusion.recall.value)
        if best is None or worth > best[0]:
            best = worth, Rule(signal, point.threshold, depth)
    if best is None:
        raise InputError(
            "none of the signals was recorded for every question: record them with the reranker, or drop it"
        )
    return best[1]


def calibrate(
    recorded: Sequence[QuestionRankings],
    definition: Definition = BEYOND_3,
    recall: float | None = None,
    *,
    signals: Sequence[Signal] = SIGNALS,
    depth: int = 16,
    folds: int = FOLDS,
    seed: int = 0,
) -> PreflightCalibration:
    """Fits the rule, and judges such rules by cross-validation; a question's fold depends on seed and key alone.

    Raises InputError where a part of the questions does not have both kinds.
    """
    parts = [fold_of(each.key, folds, seed) for each in recorded]
    judged: dict[str, HeldOutResult] = {}
    rules = []
    for fold in range(folds):
        learnt = [each for each, part in zip(recorded, parts, strict=True) if part != fold]
        rule = fit_rule(learnt, definition, recall, signals=signals, depth=depth)
        rules.append(rule)
        held = [each for each, part in zip(recorded, parts, strict=True) if part == fold]
        values = sorted(label_rankings(learnt, rule.signal, definition, depth)[1])
        for each, papers in zip(held, _papers(held), strict=True):
            value = signal_value(rule.signal, each, depth)
            below = 0.0 if value is None else bisect_left(values, value) / len(values)
            judged[each.key] = HeldOutResult(each.key, definition.label(each), bool(rule.agree(each)), papers, below)
    return PreflightCalibration(
        rule=fit_rule(recorded, definition, recall, signals=signals, depth=depth),
        definition=definition,
        recall=recall,
        folds=tuple(rules),
        judged=tuple(judged[each.key] for each in recorded),
    )


def _papers(recorded: Sequence[QuestionRankings]) -> list[bool]:
    return [bool(PAPERS_RULE.agree(each)) for each in recorded]


def fold_of(key: str, folds: int, seed: int) -> int:
    """From 0, each as likely as any other; the same question is always in the same fold."""
    return int.from_bytes(hashlib.sha256(f"{seed}:{key}".encode()).digest()[:8]) % folds


def calls_saved(each: Confusion, k: int = 16, partition: int = 4) -> float:
    """Calls a question that the rule saves against always map-reduce: the parts and the reduce call become one."""
    return each.skipped.value * math.ceil(k / partition)


def rule_settings(rule: Rule) -> Mapping[str, Any]:
    """The table `preflight` of the settings that says this rule."""
    return {"signal": rule.signal.kind, "n": rule.signal.n, "threshold": rule.threshold, "depth": rule.depth}


def settings_text(each: PreflightCalibration) -> str:
    """The same in TOML, with what such rules did on questions that they were not fitted on."""
    of = each.held_out
    lines = [
        "[preflight]",
        f"# Fitted on {of.n} questions, {of.issues} of them with the issue: key document {each.definition.name}.",
        f"# Held out: {of.fn} of {of.issues} with the issue missed, {of.fp} of {of.fp + of.tn} others read in parts "
        f"for nothing; the papers' rule: {each.papers.fn} and {each.papers.fp}.",
    ]
    return (
        "\n".join([*lines, *(f"{key} = {json.dumps(value)}" for key, value in rule_settings(each.rule).items())]) + "\n"
    )


# -- tables -----------------------------------------------------------------------------------------------------------


def signals_table(
    recorded: Sequence[QuestionRankings], definition: Definition = BEYOND_3, depth: int = 16, source: str = ""
) -> Table:
    """What each signal tells at all, and its specificity at the recall of the papers' rule, on the same questions."""
    papers = confusion((definition.label(each), bool(PAPERS_RULE.agree(each))) for each in recorded)
    rows: list[tuple[Cell, ...]] = []
    for signal in SIGNALS:
        labels, values = label_rankings(recorded, signal, definition, depth)
        if labels:
            point: Point = specificity_at(threshold_curve(labels, values), papers.recall.value)
            of = point.confusion
            rows.append((str(signal), roc_area(labels, values), point.threshold, of.recall, of.specificity, of.skipped))
    notes = (
        f"The issue: key document {definition.name}. The papers' rule ({PAPERS_RULE}) has recall "
        f"{papers.recall.value:.3f} and specificity {papers.specificity.value:.3f} here.",
        "Area: how often a question without the issue has the higher signal than one with it; 0.5 is chance (DeLong).",
        "Thresholds are chosen on the very questions they are judged on, so this table flatters every signal.",
    )
    columns = ("signal", "area", "threshold", "recall", "specificity", "skipped")
    return Table("What each signal tells", columns, tuple(rows), notes, source)


def calibration_table(each: PreflightCalibration, k: int = 16, partition: int = 4, source: str = "") -> Table:
    """The fitted rule on questions held out against the papers' rule on the same: both error rates, and calls saved."""
    rows: list[tuple[Cell, ...]] = []
    matched = each.at_recall(each.papers.recall.value)
    told = (("fitted, held out", each.held_out), ("papers' rule", each.papers), ("fitted, at its recall", matched))
    for name, of in told:
        rows.append(
            (name, of.n, of.recall, of.specificity, of.precision, of.skipped, calls_saved(of, k, partition), of.apart)
        )
    recall, specificity = each.differences
    rows.insert(2, ("difference", recall.n + specificity.n, recall, specificity, None, None, None, None))
    chosen = Counter(str(rule.signal) for rule in each.folds)
    notes = (
        f"The issue: key document {each.definition.name}. Asked for: recall at least "
        + ("that of the papers' rule" if each.recall is None else f"{each.recall:g}")
        + ", on the questions fitted on; held out it may fall short.",
        f"Fitted on all questions: {each.rule}. In the {len(each.folds)} folds: "
        + ", ".join(f"{name} ({times})" for name, times in chosen.most_common())
        + ".",
        "Errors: 1 - recall of the questions with the issue are read in one prompt, 1 - specificity of the others in "
        f"parts for nothing. Calls saved a question, of {math.ceil(k / partition) + 1}, against always map-reduce.",
        "At its recall: each fold's signal, chosen on the other questions, under one threshold that gives the papers' "
        "rule's recall on these.",
        "p: McNemar's exact test on the same questions, corrected by Holm for the two; intervals of differences by "
        "bootstrap over questions, of rates Wilson's.",
    )
    columns = ("rule", "questions", "recall", "specificity", "precision", "skipped", "calls saved", "apart")
    return Table("A rule fitted on these documents", columns, tuple(rows), notes, source)
