"""Whether a judging should be asked about before it begins. Knows no screen: it gives the question to ask."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from epicrisis.answering.structured_request import ModelClient
from epicrisis.answers import Usage
from epicrisis.evaluation.grading.human_scores import sample_items
from epicrisis.evaluation.grading.rubric import FORM, render_notes_prompt, render_prompt
from epicrisis.evaluation.grading.scored_answers import ScoredAnswer
from epicrisis.models.chat.prices import build_cost_function
from epicrisis.plan.confirmation import QUICK_SAMPLE, threshold_question
from epicrisis.plan.cost_plan import CostPlan, CostRange, StrategyPlan
from epicrisis.prompts import Prompt
from epicrisis.settings import ModelSettings, Settings
from epicrisis.types import Scope

CHARACTERS = 4
"""Of a note a token: a run keeps the places of notes without their words."""


async def cost_question(
    asker: ModelClient,
    settings: Settings,
    model: ModelSettings,
    answers: Sequence[ScoredAnswer],
    against_notes: Sequence[ScoredAnswer] = (),
) -> str | None:
    """What to ask before `answers` are judged against their references, and `against_notes` against their notes; `None`
    where that is cheap enough.

    The prompts of a sample are counted; notes are estimated from the lengths of the passages that are judged against.
    """
    price = build_cost_function(model)
    free = price(Usage(prompt_tokens=1_000_000, completion_tokens=1_000_000)) == 0
    read = [each for each in against_notes if each.cited or each.given]
    n, reply = len(answers) + len(read), FORM.max_tokens
    if not n or free or settings.cache.mode == "replay":
        return None
    shown = [
        render_prompt(each.question, each.references[0], each.answer) for each in sample_items(answers, QUICK_SAMPLE, 0)
    ]
    bare = [
        render_notes_prompt(each.question, each.answer, (), Scope()) for each in sample_items(read, QUICK_SAMPLE, 0)
    ]
    tokens = len(answers) * await _mean(asker, shown) + len(read) * await _mean(asker, bare) + _of_notes(read)
    # At most each is asked for twice, and each reply is as long as it may be.
    sizes = [
        Usage(prompt_tokens=round(tokens * tries), completion_tokens=round(n * written))
        for tries, written in ((1, reply / 8), (1, reply / 3), (2, 2 * reply))
    ]
    usd = [price(size) for size in sizes]
    plan = StrategyPlan(
        strategy="judge",
        calls=CostRange(n, n, 2 * n),
        prompt_tokens=CostRange(*(size.prompt_tokens for size in sizes)),
        completion_tokens=CostRange(*(size.completion_tokens for size in sizes)),
        usd=None if None in usd else CostRange(*(each or 0.0 for each in usd)),
        seconds=None,
        exact=False,
        states={},
    )
    named = (model.name,)
    counted = len(shown) + len(bare)
    return threshold_question(CostPlan(n, counted, named, False, (plan,), {}, {}), settings, of_cases=True)


async def _mean(asker: ModelClient, prompts: Sequence[Prompt]) -> float:
    return fmean([await asker.model.count_tokens(prompt.messages) for prompt in prompts]) if prompts else 0.0


def _of_notes(answers: Sequence[ScoredAnswer]) -> float:
    """Tokens of what these answers are judged against: what they cite, else what they were given."""
    return sum(note.end - note.start for each in answers for note in each.cited or each.given) / CHARACTERS
