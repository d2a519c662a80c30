"""The value of a preflight rule: both kinds of its errors, and the tokens and money that it saves.

Tokens are estimated without a chat model, by the equations of `token_costs`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from epicrisis.answering.reply_parsing import AnswerFormat
from epicrisis.answering.strategy_context import PROMPTS
from epicrisis.answers import Usage
from epicrisis.evaluation.analysis.table import Cell, Table
from epicrisis.evaluation.experiments.preflight_calibration import PreflightCalibration
from epicrisis.evaluation.experiments.preflight_rules import Confusion, proportion
from epicrisis.evaluation.experiments.recorded_rankings import QuestionRankings
from epicrisis.evaluation.experiments.token_costs import (
    PromptShape,
    TokenTotals,
    map_reduce_tokens,
    preflight_tokens,
    rag_tokens,
)
from epicrisis.models.chat.call_costs import estimate_prompt_tokens, estimate_tokens
from epicrisis.prompts import format_passage, render
from epicrisis.protocols import PassageStore
from epicrisis.types import Question, Scope

SAMPLE = 100
"""Questions whose passages are measured, evenly spaced among all in their order."""
THOUSAND = 1_000
"""Questions for which money is shown."""


def errors_table(calibration: PreflightCalibration, source: str = "") -> Table:
    """Build the table of both error rates of the papers' rule and the fitted one, and of what they skip."""
    papers = calibration.papers
    # Errors are the verdicts that are not right.
    recall, specificity = calibration.differences

    def row(name: str, matrix: Confusion) -> tuple[Cell, ...]:
        missed, needless = proportion(matrix.fn, matrix.issues), proportion(matrix.fp, matrix.fp + matrix.tn)
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
        "Skipped: of all questions, those without a label (apart) included. Intervals: Wilson's, of differences by "
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
) -> PromptShape:
    """Return the mean shape of a question's prompts for `k` documents or passages, `partition` per map call.

    Tokens are estimated from above (three bytes each), for the first `k` of each ranking. A reply is assumed to be half
    as long as its form allows.
    """
    sample = [pair for pair in pairs[:: max(1, len(pairs) // SAMPLE)] if pair[1].read]
    if not sample:
        return PromptShape(0, 0, 0, 0)
    shapes: list[tuple[float, float, float, float]] = []
    for question, rankings in sample:
        passages = store.fetch(rankings.passages_read(k), scope(question))
        context = sum(map(estimate_tokens, map(format_passage, passages)))
        prompt = render(PROMPTS, "rag", question=question.text, options=question.options, about=(), documents="")
        # Four characters a token in running text, where the form assumes two.
        output = AnswerFormat(question.options, documents=k).max_tokens / 4
        parts = math.ceil(len(rankings.documents_read(k)) / partition)
        shapes.append((context, estimate_prompt_tokens(prompt.messages), output, parts))
    return PromptShape(*map(fmean, zip(*shapes, strict=True)))


@dataclass(frozen=True, slots=True)
class RuleSavings:
    """The mean cost of a question where the share `skipped` of them is answered from one prompt."""

    name: str
    skipped: float
    tokens: TokenTotals
    usd: float | None
    """None for an unknown price."""


def estimate_savings(
    shape: PromptShape, skipped: Mapping[str, float], price: Callable[[Usage], float | None]
) -> tuple[RuleSavings, ...]:
    """Return always map-reduce, then each rule by its name with the share that it skips, then never map-reduce."""
    rules = [("always map-reduce", 0.0, map_reduce_tokens(shape))]
    rules += [(name, share, preflight_tokens(shape, share)) for name, share in skipped.items()]
    rules.append(("never map-reduce", 1.0, rag_tokens(shape)))
    savings: list[RuleSavings] = []
    for name, share, tokens in rules:
        usage = Usage(prompt_tokens=round(tokens.input), completion_tokens=round(tokens.output))
        savings.append(RuleSavings(name, share, tokens, price(usage)))
    return tuple(savings)


def savings_table(savings: Sequence[RuleSavings], shape: PromptShape, price: str, source: str = "") -> Table:
    """Build the table of each rule's cost, and its savings against always map-reduce. `price` names the price used."""
    always = savings[0]
    all_tokens = always.tokens.input + always.tokens.output
    rows: list[tuple[Cell, ...]] = []
    for rule in savings:
        tokens = rule.tokens
        saved_tokens = 1 - (tokens.input + tokens.output) / all_tokens if all_tokens else None
        usd = None if rule.usd is None else THOUSAND * rule.usd
        saved_usd = None if rule.usd is None or always.usd is None else THOUSAND * (always.usd - rule.usd)
        rows.append((rule.name, rule.skipped, tokens.calls, tokens.input, tokens.output, saved_tokens, usd, saved_usd))
    notes = (
        "Means a question by equations 4 and 5, with the reduce call's input (errata B5). Assumed: "
        f"{shape.context:,.0f} tokens of passages, {shape.instruction:,.0f} of instruction and question a call, "
        f"{shape.output:,.0f} of output a call, {shape.parts:.1f} parts; tokens from above (three bytes each), replies "
        "half as long as they may be, no prefix cache, no retries.",
        f"Price: {price}.",
    )
    tokens_of = ("calls", "input tokens", "output tokens", "tokens saved")
    columns = ("rule", "skipped", *tokens_of, "US dollars for 1,000 questions", "US dollars saved")
    return Table("What a preflight rule saves", columns, tuple(rows), notes, source)
