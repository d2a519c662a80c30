"""A preflight rule for one's own documents: signal, n and threshold fitted on recorded rankings, and its savings.

The fitted rule has the highest specificity (it saves most needless map-reduce) among those that miss no more of the
issue than requested. Its value is estimated by k-fold cross-validation: in each fold signal, n and threshold are chosen
on the other questions alone. Tokens are estimated without a chat model, by the equations of `token_costs`.
"""

from __future__ import annotations

import hashlib
import json
import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter, methodcaller
from statistics import fmean

from epicrisis.answering.reply_parsing import AnswerFormat
from epicrisis.answering.strategy_context import PROMPTS
from epicrisis.core.answers import Usage
from epicrisis.core.errors import InputError
from epicrisis.core.printable import count_noun
from epicrisis.core.prompts import format_passage, render
from epicrisis.core.protocols import PassageStore, fetch_all
from epicrisis.core.types import Question, Scope
from epicrisis.evaluation.analysis.grouping import group_by
from epicrisis.evaluation.analysis.statistics import Difference, holm, paired_difference
from epicrisis.evaluation.analysis.table import Cell, Table
from epicrisis.evaluation.experiments import preflight_rules, token_costs
from epicrisis.evaluation.experiments.recorded_rankings import QuestionRankings
from epicrisis.models.chat.call_costs import estimate_prompt_tokens, estimate_tokens
from epicrisis.retrieval.preflight import Signal

SAMPLE = 100
"""Questions whose passages are measured, evenly spaced among all in their order."""
THOUSAND = 1_000
"""Questions for which money is shown."""
FOLDS = 5
SIGNALS = (
    *map(partial(Signal, "overlap"), (1, 2, 3, 5, 8, 10)),
    *map(partial(Signal, "rank-biased-overlap"), (3, 5, 10, 16)),
    *map(partial(Signal, "dense-gap"), (2, 3, 5, 10, 16)),
    *map(partial(Signal, "bm25-gap"), (2, 3, 5, 10, 16)),
    *map(partial(Signal, "reranker-overlap"), (1, 3, 5)),
)
"""Candidates; those with a reranker only where one was recorded."""


@dataclass(frozen=True, slots=True)
class HeldOutResult:
    """The label of a held-out question, and the verdict of each of the two rules (whether the rankings agree)."""

    key: str
    label: preflight_rules.Label
    fitted: bool
    papers: bool
    percentile: float = 0.0
    """Share of the fitting questions with a lower value of the fold's signal: comparable between folds."""


@dataclass(frozen=True, slots=True)
class PreflightCalibration:
    """A fitted rule, and the results of such rules on questions that they were not fitted on."""

    rule: preflight_rules.Rule
    """Fitted on all questions: the rule to use."""
    definition: preflight_rules.Definition
    recall: float | None
    """Requested recall; None: that of the papers' rule on the same questions."""
    folds: tuple[preflight_rules.Rule, ...]
    """The rule of each fold, fitted on the other questions."""
    results: tuple[HeldOutResult, ...]
    """Every question, by the rule of the fold in which it was held out."""

    @property
    def held_out(self) -> preflight_rules.Confusion:
        """Matrix of the fitted rules."""
        return preflight_rules.confusion((result.label, result.fitted) for result in self.results)

    @property
    def papers(self) -> preflight_rules.Confusion:
        """Matrix of the papers' rule on the same questions."""
        return preflight_rules.confusion((result.label, result.papers) for result in self.results)

    def at_recall(self, recall: float) -> preflight_rules.Confusion:
        """Return the matrix of the folds' signals under one threshold with at least this recall on all questions."""
        labels, percentiles = (list(map(attrgetter(name), self.results)) for name in ("label", "percentile"))
        points = preflight_rules.threshold_curve(labels, percentiles)
        return preflight_rules.specificity_at(points, recall).confusion

    @property
    def differences(self) -> tuple[Difference, Difference]:
        """Fitted less papers' rule, in recall and in specificity: the share of right verdicts on the questions with the
        issue, and on those without. `p` is McNemar's, exact, corrected by Holm for the two."""
        by_label = group_by(self.results, attrgetter("label"))
        by_kind: list[Difference] = []
        for label, right_verdict in (("issue", False), ("no-issue", True)):
            fitted: dict[str, float] = {}
            papers: dict[str, float] = {}
            for result in by_label.get(label, ()):
                fitted[result.key] = float(result.fitted == right_verdict)
                papers[result.key] = float(result.papers == right_verdict)
            by_kind.append(paired_difference(fitted, papers))
        recall, specificity = by_kind
        corrected = holm([recall.p, specificity.p])
        return replace(recall, p=corrected[0]), replace(specificity, p=corrected[1])


def fit_rule(
    recorded: Sequence[QuestionRankings],
    definition: preflight_rules.Definition = preflight_rules.BEYOND_3,
    recall: float | None = None,
    *,
    signals: Sequence[Signal] = SIGNALS,
    depth: int = 16,
) -> preflight_rules.Rule:
    """Return the rule of highest specificity whose recall on these questions is at least `recall`.

    The default recall is that of the papers' rule on them. Of equal rules the one with the higher recall wins, then the
    earlier signal. Raises InputError without questions of both kinds, or where that recall is 0.
    """
    labels = [definition.label(item) for item in recorded]
    counts = Counter(labels)
    if not counts["issue"] or not counts["no-issue"]:
        raise InputError(
            f"{count_noun(counts['issue'], 'question')} with the issue and {counts['no-issue']} without: fitting a "
            "rule needs both "
            "kinds; give more questions whose gold documents are in the library"
        )
    if recall is None:
        recall = preflight_rules.confusion(zip(labels, _papers_verdicts(recorded), strict=True)).recall.value
    if recall <= 0:
        # The best rule of no recall never runs map-reduce, and settings cannot hold its threshold.
        raise InputError(
            f"the papers' rule detects none of {count_noun(counts['issue'], 'question')} with the issue, so its recall "
            "cannot be the "
            "target: give one with --recall, or give more questions"
        )
    cut = list(map(methodcaller("at_depth", depth), recorded))
    best: tuple[tuple[float, float], preflight_rules.Rule] | None = None
    for signal in signals:
        signal_labels, values = preflight_rules.label_rankings(cut, signal, definition, depth)
        if len(values) < len(cut):
            continue
        point = preflight_rules.specificity_at(preflight_rules.threshold_curve(signal_labels, values), recall)
        worth = (point.confusion.specificity.value, point.confusion.recall.value)
        if best is None or worth > best[0]:
            best = worth, preflight_rules.Rule(signal, point.threshold, depth)
    if best is None:
        raise InputError(
            "none of the signals was recorded for every question: record them with the reranker, or leave it out"
        )
    return best[1]


def calibrate(
    recorded: Sequence[QuestionRankings],
    definition: preflight_rules.Definition = preflight_rules.BEYOND_3,
    recall: float | None = None,
    *,
    signals: Sequence[Signal] = SIGNALS,
    depth: int = 16,
    folds: int = FOLDS,
    seed: int = 0,
) -> PreflightCalibration:
    """Fit the rule, and test such rules by cross-validation; a question's fold depends on seed and key alone.

    Raises InputError where a part of the questions lacks one of the two kinds.
    """
    results: dict[str, HeldOutResult] = {}
    rules: list[preflight_rules.Rule] = []
    for fold in range(folds):
        held_out: list[QuestionRankings] = []
        others: list[QuestionRankings] = []
        for rankings in recorded:
            (held_out if fold_of(rankings.key, folds, seed) == fold else others).append(rankings)
        rule = fit_rule(others, definition, recall, signals=signals, depth=depth)
        rules.append(rule)
        values = sorted(preflight_rules.label_rankings(others, rule.signal, definition, depth)[1])
        for rankings, papers in zip(held_out, _papers_verdicts(held_out), strict=True):
            value = preflight_rules.signal_value(rule.signal, rankings, depth)
            below = 0.0 if value is None else bisect_left(values, value) / len(values)
            label, fitted = definition.label(rankings), bool(rule.agree(rankings))
            results[rankings.key] = HeldOutResult(rankings.key, label, fitted, papers, below)
    return PreflightCalibration(
        rule=fit_rule(recorded, definition, recall, signals=signals, depth=depth),
        definition=definition,
        recall=recall,
        folds=tuple(rules),
        results=tuple(results[rankings.key] for rankings in recorded),
    )


def _papers_verdicts(recorded: Sequence[QuestionRankings]) -> list[bool]:
    return list(map(bool, map(preflight_rules.PAPERS_RULE.agree, recorded)))


def fold_of(key: str, folds: int, seed: int) -> int:
    """Return the fold of a question, from 0. All folds are equally likely."""
    return int.from_bytes(hashlib.sha256(f"{seed}:{key}".encode()).digest()[:8]) % folds


def settings_text(calibration: PreflightCalibration) -> str:
    """Return the TOML table `preflight` of the settings for this rule, with its results on held-out questions."""
    fitted, papers = calibration.held_out, calibration.papers
    lines = [
        "[preflight]",
        f"# Fitted on {count_noun(fitted.n, 'question')}, {fitted.issues} of them with the issue: key document "
        f"{calibration.definition.name}.",
        f"# Held out: {fitted.fn} of {fitted.issues} with the issue missed, {fitted.fp} of {fitted.fp + fitted.tn} "
        f"others read in parts for nothing; the papers' rule: {papers.fn} and {papers.fp}.",
    ]
    rule = calibration.rule
    settings = {"signal": rule.signal.kind, "n": rule.signal.n, "threshold": rule.threshold, "depth": rule.depth}
    for key, value in settings.items():
        lines.append(f"{key} = {json.dumps(value)}")
    return "\n".join(lines) + "\n"


def signals_table(
    recorded: Sequence[QuestionRankings],
    definition: preflight_rules.Definition = preflight_rules.BEYOND_3,
    depth: int = 16,
) -> Table:
    """Build the table of each signal's ROC area, and its specificity at the recall of the papers' rule."""
    labels = (definition.label(item) for item in recorded)
    papers = preflight_rules.confusion(zip(labels, _papers_verdicts(recorded), strict=True))
    rows: list[tuple[Cell, ...]] = []
    for signal in SIGNALS:
        signal_labels, values = preflight_rules.label_rankings(recorded, signal, definition, depth)
        if signal_labels:
            point = preflight_rules.specificity_at(
                preflight_rules.threshold_curve(signal_labels, values), papers.recall.value
            )
            matrix, area = point.confusion, preflight_rules.roc_area(signal_labels, values)
            rows.append((str(signal), area, point.threshold, matrix.recall, matrix.specificity, matrix.skipped))
    notes = (
        f"The issue: key document {definition.name}. The papers' rule ({preflight_rules.PAPERS_RULE}) has recall "
        f"{papers.recall.value:.3f} and specificity {papers.specificity.value:.3f} here.",
        "Area: how often a question without the issue has the higher signal than one with it; 0.5 is chance (DeLong).",
        "Thresholds are chosen and tested on the same questions, so this table is optimistic for every signal.",
    )
    columns = ("signal", "area", "threshold", "recall", "specificity", "skipped")
    return Table("Predictive value of each signal", columns, tuple(rows), notes)


def calibration_table(calibration: PreflightCalibration, k: int = 16, partition: int = 4) -> Table:
    """Build the table of the fitted rule on held-out questions against the papers' rule: error rates, calls saved."""
    fitted, papers = calibration.held_out, calibration.papers
    recall, specificity = calibration.differences
    parts = math.ceil(k / partition)

    def row(name: str, matrix: preflight_rules.Confusion) -> tuple[Cell, ...]:
        rates = (matrix.recall, matrix.specificity, matrix.precision, matrix.skipped)
        # Where the rule skips, one call replaces the parts and the reduce call.
        return (name, matrix.n, *rates, matrix.skipped.value * parts, matrix.apart)

    rows = (
        row("fitted, held out", fitted),
        row("papers' rule", papers),
        ("difference", recall.n + specificity.n, recall, specificity, None, None, None, None),
        row("fitted, at its recall", calibration.at_recall(papers.recall.value)),
    )
    requested = "that of the papers' rule" if calibration.recall is None else f"{calibration.recall:g}"
    signals = Counter(str(fold.signal) for fold in calibration.folds)
    chosen = ", ".join(f"{name} ({times})" for name, times in signals.most_common())
    notes = (
        f"The issue: key document {calibration.definition.name}. Asked for: recall at least {requested}, on the "
        "questions used for fitting; held out it may be lower.",
        f"Fitted on all questions: {calibration.rule}. In the {len(calibration.folds)} folds: {chosen}.",
        "Errors: 1 - recall of the questions with the issue are read in one prompt, 1 - specificity of the others in "
        f"parts for nothing. Calls saved a question, of {parts + 1}, against always map-reduce.",
        "At its recall: each fold's signal, chosen on the other questions, under one threshold that gives the papers' "
        "rule's recall on these.",
        "p: McNemar's exact test on the same questions, corrected by Holm for the two; intervals of differences by "
        "bootstrap over questions, of rates Wilson's.",
    )
    columns = ("rule", "questions", "recall", "specificity", "precision", "skipped", "calls saved", "apart")
    return Table("A rule fitted on these documents", columns, rows, notes)


def errors_table(calibration: PreflightCalibration, source: str = "") -> Table:
    """Build the table of both error rates of the papers' rule and the fitted one, and of what they skip."""
    papers = calibration.papers
    # Errors are the verdicts that are not right.
    recall, specificity = calibration.differences

    def row(name: str, matrix: preflight_rules.Confusion) -> tuple[Cell, ...]:
        missed = preflight_rules.proportion(matrix.fn, matrix.issues)
        needless = preflight_rules.proportion(matrix.fp, matrix.fp + matrix.tn)
        return (name, matrix.n, missed, needless, matrix.skipped, matrix.apart)

    rows = (
        row("papers' rule", papers),
        row("fitted, held out", calibration.held_out),
        ("fitted, held out, less papers'", papers.n, -recall, -specificity, None, None),
        row("fitted, at the papers' rule's recall", calibration.at_recall(papers.recall.value)),
    )
    request = "Asked for: to miss no more than the papers' rule."
    if calibration.recall is not None:
        request = f"Asked for: a recall of at least {calibration.recall:g}; held out it may fall short."
    columns = ("rule", "questions", "missed where needed", "run where not needed", "skipped", "apart")
    notes = (
        f"The issue: key document {calibration.definition.name}. Missed where needed: of the questions with the issue, "
        "those that are answered from one prompt. Run where not needed: of the others, those that are read in parts.",
        f"Fitted on all questions: {calibration.rule}. Held out: by rules fitted on the other folds' questions, which "
        f"shows the value of such a rule on new ones. {request}",
        "Skipped: share of all questions, including those without a label. Intervals: Wilson's, of differences by "
        "bootstrap over questions; p: McNemar's exact test, corrected by Holm for the two.",
    )
    return Table("Both errors of a preflight rule", columns, rows, notes, source)


def estimated_shape(
    pairs: Sequence[tuple[Question, QuestionRankings]],
    store: PassageStore,
    scope: Callable[[Question], Scope],
    *,
    k: int,
    partition: int,
) -> token_costs.PromptShape:
    """Return the mean shape of a question's prompts for `k` documents or passages, `partition` per map call.

    Tokens are estimated from above (three bytes each), for the first `k` of each ranking. A reply is assumed to be half
    as long as its form allows.
    """
    sample = [pair for pair in pairs[:: max(1, len(pairs) // SAMPLE)] if pair[1].read]
    if not sample:
        return token_costs.PromptShape(0, 0, 0, 0)
    shapes: list[tuple[float, float, float, float]] = []
    for question, rankings in sample:
        passages = fetch_all(store, rankings.passages_read(k), scope(question))
        context = sum(map(estimate_tokens, map(format_passage, passages)))
        prompt = render(PROMPTS, "rag", question=question.text, options=question.options, about=(), documents="")
        # Four characters a token in running text, where the form assumes two.
        output = AnswerFormat(question.options, documents=k).max_tokens / 4
        parts = math.ceil(len(rankings.documents_read(k)) / partition)
        shapes.append((context, estimate_prompt_tokens(prompt.messages), output, parts))
    return token_costs.PromptShape(*map(fmean, zip(*shapes, strict=True)))


def savings_table(
    shape: token_costs.PromptShape,
    skipped: Mapping[str, float],
    cost: Callable[[Usage], float | None],
    price: str,
) -> Table:
    """Build the table of the cost of each rule, and its savings against always using map-reduce.

    `skipped` maps the name of each rule to the share of questions that it answers from one prompt. `cost` returns
    dollars, and `price` names the price used. The first row is always map-reduce, the last is never map-reduce.
    """
    rules = [("always map-reduce", 0.0, token_costs.map_reduce_tokens(shape))]
    for name, share in skipped.items():
        rules.append((name, share, token_costs.preflight_tokens(shape, share)))
    rules.append(("never map-reduce", 1.0, token_costs.rag_tokens(shape)))
    costs = []
    rows: list[tuple[Cell, ...]] = []
    for name, share, tokens in rules:
        usage = Usage(prompt_tokens=round(tokens.input), completion_tokens=round(tokens.output))
        costs.append((tokens.input + tokens.output, cost(usage)))
        (all_tokens, always), (own_tokens, usd) = costs[0], costs[-1]
        saved_tokens = 1 - own_tokens / all_tokens if all_tokens else None
        saved = None if usd is None or always is None else THOUSAND * (always - usd)
        dollars = None if usd is None else THOUSAND * usd
        rows.append((name, share, tokens.calls, tokens.input, tokens.output, saved_tokens, dollars, saved))
    notes = (
        "Means a question by equations 4 and 5, with the reduce call's input (errata B5). Assumed: "
        f"{shape.context:,.0f} tokens of passages, {shape.instruction:,.0f} of instruction and question a call, "
        f"{shape.output:,.0f} of output a call, {shape.parts:.1f} parts; tokens from above (three bytes each), replies "
        "half as long as they may be, no prefix cache, no retries.",
        f"Price: {price}.",
    )
    tokens_of = ("calls", "input tokens", "output tokens", "tokens saved")
    columns = ("rule", "skipped", *tokens_of, "US dollars for 1,000 questions", "US dollars saved")
    return Table("What a preflight rule saves", columns, tuple(rows), notes)
