"""The chat model that grades answers or writes questions, opened from the settings, and the cost of grading."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from statistics import fmean

from epicrisis.answering.structured_request import ModelClient
from epicrisis.core.answers import Usage
from epicrisis.core.prompts import Prompt
from epicrisis.core.types import Scope
from epicrisis.evaluation.grading.human_scores import sample_items
from epicrisis.evaluation.grading.measurers import FORMAT, render_notes_prompt, render_prompt
from epicrisis.evaluation.grading.scored_answers import ScoredAnswer
from epicrisis.models.chat.prices import build_cost_function
from epicrisis.pipeline.pipeline import Pipeline
from epicrisis.pipeline.plan.cost_plan import CostPlan, CostRange, StrategyPlan
from epicrisis.pipeline.plan.strategy_plans import QUICK_SAMPLE, threshold_question
from epicrisis.pipeline.question_evidence import build_context
from epicrisis.settings.settings import ModelsByRole, ModelSettings, Settings

CHARACTERS_PER_TOKEN = 4
"""Of notes: a run stores their places without their texts."""


@asynccontextmanager
async def open_model_client(settings: Settings, role: str = "writer") -> AsyncGenerator[ModelClient, None]:
    """Yield the model of this role, with the cache, budget, retries and recording of the settings.

    Raises UserError before any call is made.
    """
    overrides = {"strategy": "closed-book", "models": ModelsByRole(writer=settings.model_for(role))}
    async with Pipeline.open(settings.model_copy(update=overrides), None) as pipeline:
        context = build_context(pipeline, lambda event: None, Scope())
        recipe = pipeline.recipe()["models"]["writer"]
        model, sampling = context.models["writer"], context.sampling["writer"]
        yield ModelClient(model, sampling, context.options.seed, recipe, pipeline.concurrency)


async def cost_question(
    client: ModelClient,
    settings: Settings,
    model: ModelSettings,
    answers: Sequence[ScoredAnswer],
    against_notes: Sequence[ScoredAnswer] = (),
) -> str | None:
    """Return the question to ask before grading, or None if it is cheap.

    `answers` are graded against their references, `against_notes` against their notes. The prompts of a sample are
    counted; the tokens of notes are estimated from their lengths.
    """
    cost = build_cost_function(model)
    free = cost(Usage(prompt_tokens=1_000_000, completion_tokens=1_000_000)) == 0
    with_notes = list(filter(lambda answer: answer.cited or answer.given, against_notes))
    n, reply_tokens = len(answers) + len(with_notes), FORMAT.max_tokens
    if not n or free or settings.cache.mode == "replay":
        return None
    prompts = [render_prompt(a.question, a.references[0], a.answer) for a in sample_items(answers, QUICK_SAMPLE, 0)]
    bare_prompts: list[Prompt] = []
    for answer in sample_items(with_notes, QUICK_SAMPLE, 0):
        bare_prompts.append(render_notes_prompt(answer.question, answer.answer, (), Scope()))
    # The notes of a prompt are those that the answer cites, or else all it is based on.
    characters = 0
    for answer in with_notes:
        characters += sum(note.end - note.start for note in answer.cited or answer.given)
    note_tokens = characters / CHARACTERS_PER_TOKEN
    prompt_tokens = len(answers) * await _mean_tokens(client, prompts)
    prompt_tokens += len(with_notes) * await _mean_tokens(client, bare_prompts) + note_tokens
    # At most, each answer is requested twice, and each reply has the greatest length.
    usages = []
    for attempts, tokens in ((1, reply_tokens / 8), (1, reply_tokens / 3), (2, 2 * reply_tokens)):
        usages.append(Usage(prompt_tokens=round(prompt_tokens * attempts), completion_tokens=round(n * tokens)))
    usd = list(map(cost, usages))
    plan = StrategyPlan(
        strategy="judge",
        calls=CostRange(n, n, 2 * n),
        prompt_tokens=CostRange(*(usage.prompt_tokens for usage in usages)),
        completion_tokens=CostRange(*(usage.completion_tokens for usage in usages)),
        usd=None if None in usd else CostRange(*(amount or 0.0 for amount in usd)),
        seconds=None,
        exact=False,
        states={},
    )
    sample_size = len(prompts) + len(bare_prompts)
    cost_plan = CostPlan(
        questions=n,
        planned=sample_size,
        models=(model.name,),
        exact_counts=False,
        strategies=(plan,),
        speeds={},
        at_once={},
    )
    return threshold_question(cost_plan, settings, of_cases=True)


async def _mean_tokens(client: ModelClient, prompts: Sequence[Prompt]) -> float:
    if not prompts:
        return 0.0
    return fmean([await client.model.count_tokens(prompt.messages) for prompt in prompts])
