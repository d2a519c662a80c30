"""What a preflight rule is worth: both its errors, and the tokens and the money that it saves.

Tokens are estimated: no chat model is asked and none need be there. The cost equations are those of `cost`. Knows no
fitting; searches nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from epicrisis.answering.baselines import PROMPTS
from epicrisis.answering.reply_parsing import ReplyForm
from epicrisis.answers import Usage
from epicrisis.evaluation.analysis.statistics import Mean
from epicrisis.evaluation.analysis.table import Cell, Table
from epicrisis.evaluation.experiments.preflight import Confusion, proportion
from epicrisis.evaluation.experiments.preflight_calibration import PreflightCalibration
from epicrisis.evaluation.experiments.recorded_rankings import QuestionRankings
from epicrisis.evaluation.experiments.token_costs import (
    PromptShape,
    TokenTotals,
    map_reduce_tokens,
    preflight_tokens,
    rag_tokens,
)
from epicrisis.models.chat.estimates import likely_prompt_tokens, likely_tokens
from epicrisis.prompts import passage_text, render
from epicrisis.protocols import PassageStore
from epicrisis.types import Question, Scope

SAMPLE = 100
"""Questions whose passages are measured, evenly drawn from all in their order."""
THOUSAND = 1_000
"""Questions whose money is told."""


def errors_table(each: PreflightCalibration, source: str = "") -> Table:
    """The papers' rule and the fitted one on the same questions: how often each errs, either way, and what it skips."""
    told = (
        ("papers' rule", each.papers),
        ("fitted, held out", each.held_out),
        ("fitted, at the papers' rule's recall", each.at_recall(each.papers.recall.value)),
    )
    rows: list[tuple[Cell, ...]] = [(name, of.n, *_errors(of), of.skipped, of.apart) for name, of in told]
    # Of the errors, which are what is not judged rightly.
    recall, specificity = each.differences
    rows.insert(2, ("fitted, held out, less papers'", each.papers.n, -recall, -specificity, None, None))
    columns = ("rule", "questions", "missed where needed", "run where not needed", "skipped", "apart")
    notes = (
        f"The issue: key document {each.definition.name}. Missed where needed: of the questions with the issue, those "
        "that are answered from one prompt. Run where not needed: of the others, those that are read in parts.",
        f"Fitted on all questions: {each.rule}. Held out: by rules fitted on the other folds' questions, so it tells "
        f"what such a rule is worth on new ones. {_asked_for(each)}",
        "Skipped: of all questions, those without a label (apart) included. Intervals: Wilson's, of differences by "
        "bootstrap over questions; p: McNemar's exact test, corrected by Holm for the two.",
    )
    return Table("Both errors of a preflight rule", columns, tuple(rows), notes, source)


def _asked_for(each: PreflightCalibration) -> str:
    if each.recall is None:
        return "Asked for: to miss no more than the papers' rule."
    return f"Asked for: a recall of at least {each.recall:g}; held out it may fall short."


def _errors(of: Confusion) -> tuple[Mean, Mean]:
    return proportion(of.fn, of.issues), proportion(of.fp, of.fp + of.tn)


# -- tokens and money -------------------------------------------------------------------------------------------------


def estimated_shape(
    asked: Sequence[tuple[Question, QuestionRankings]],
    store: PassageStore,
    scope: Callable[[Question], Scope],
    *,
    k: int,
    partition: int,
) -> PromptShape:
    """The mean shape of a question's prompts where `k` documents or passages are read, `partition` to a map call:
    tokens from above (three bytes each), of the first `k` of each ranking; a reply is taken to be half as long as its
    form allows."""
    drawn = [each for each in asked[:: max(1, len(asked) // SAMPLE)] if each[1].read]
    measured = [_measured(question, recorded, k, store, scope(question)) for question, recorded in drawn]
    if not measured:
        return PromptShape(0, 0, 0, 0)
    return PromptShape(
        context=fmean(context for context, _ in measured),
        instruction=fmean(instruction for _, instruction in measured),
        # Four characters a token in running text, where the form reckons with two.
        output=fmean(ReplyForm(question.options, documents=k).max_tokens / 4 for question, _ in drawn),
        parts=fmean(math.ceil(len(recorded.documents_read(k)) / partition) for _, recorded in drawn),
    )


def _measured(question: Question, each: QuestionRankings, k: int, store: PassageStore, scope: Scope) -> tuple[int, int]:
    """(tokens of the passages, of instruction and question)."""
    passages = store.fetch(each.passages_read(k), scope)
    prompt = render(PROMPTS, "rag", question=question.text, options=question.options, about=(), documents="")
    context = sum(likely_tokens(passage_text(passage)) for passage in passages)
    return context, likely_prompt_tokens(prompt.messages)


@dataclass(frozen=True, slots=True)
class RuleSavings:
    """What a question takes on average where this share of them is answered from one prompt."""

    name: str
    skipped: float
    tokens: TokenTotals
    usd: float | None
    """`None` where the price is not known."""


def estimate_savings(
    shape: PromptShape, skipped: Mapping[str, float], price: Callable[[Usage], float | None]
) -> tuple[RuleSavings, ...]:
    """Always map-reduce first, then each rule by its name with the share that it skips, then never map-reduce."""
    taken = [
        ("always map-reduce", 0.0, map_reduce_tokens(shape)),
        *((name, part, preflight_tokens(shape, part)) for name, part in skipped.items()),
        ("never map-reduce", 1.0, rag_tokens(shape)),
    ]
    return tuple(RuleSavings(name, part, tokens, price(_usage(tokens))) for name, part, tokens in taken)


def _usage(tokens: TokenTotals) -> Usage:
    return Usage(prompt_tokens=round(tokens.input), completion_tokens=round(tokens.output))


def savings_table(rows: Sequence[RuleSavings], shape: PromptShape, price: str, source: str = "") -> Table:
    """What each rule takes, and how much less than always map-reduce. `price` says which it was."""
    always = rows[0]
    made: list[tuple[Cell, ...]] = [
        (
            each.name,
            each.skipped,
            each.tokens.calls,
            each.tokens.input,
            each.tokens.output,
            1 - _all(each.tokens) / _all(always.tokens) if _all(always.tokens) else None,
            None if each.usd is None else THOUSAND * each.usd,
            None if each.usd is None or always.usd is None else THOUSAND * (always.usd - each.usd),
        )
        for each in rows
    ]
    notes = (
        "Means a question by equations 4 and 5, with the reduce call's input (errata B5). Assumed: "
        f"{shape.context:,.0f} tokens of passages, {shape.instruction:,.0f} of instruction and question a call, "
        f"{shape.output:,.0f} of output a call, {shape.parts:.1f} parts; tokens from above (three bytes each), replies "
        "half as long as they may be, no prefix cache, no retries.",
        f"Price: {price}.",
    )
    columns = (
        "rule",
        "skipped",
        "calls",
        "input tokens",
        "output tokens",
        "tokens saved",
        "US dollars for 1,000 questions",
        "US dollars saved",
    )
    return Table("What a preflight rule saves", columns, tuple(made), notes, source)


def _all(tokens: TokenTotals) -> float:
    return tokens.input + tokens.output
