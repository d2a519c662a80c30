"""Decide whether to ask for confirmation before an expensive run, and with which question."""

from __future__ import annotations

from collections.abc import Sequence

from epicrisis.answers import Usage
from epicrisis.models.chat.call_costs import build_cost_function
from epicrisis.overrides import NO_OVERRIDES, RunOverrides
from epicrisis.pipeline import Pipeline
from epicrisis.plan.cost_plan import CostPlan, format_dollars
from epicrisis.plan.planning import plan_cases, plan_questions
from epicrisis.settings import Settings
from epicrisis.types import Question

QUICK_SAMPLE = 20


async def confirmation_question(
    pipeline: Pipeline, settings: Settings, questions: Sequence[Question], overrides: Sequence[RunOverrides] = ()
) -> str | None:
    """Return the question to ask before this run, or None if the run is cheap enough.

    `overrides` has one entry per question, if some differ from the settings. Plans a sample of 20 questions, or none
    if no model charges or only cached replies are used. Raises the exceptions of `plan_questions`.
    """
    million = Usage(prompt_tokens=1_000_000, completion_tokens=1_000_000)
    free = all(build_cost_function(settings.model_for(role))(million) == 0 for role in settings.roles)
    if not questions or free or settings.cache.mode == "replay":
        return None
    if overrides.count(NO_OVERRIDES) == len(overrides):
        plan = await plan_questions(pipeline, settings, questions, [settings.strategy], sample=QUICK_SAMPLE)
        return threshold_question(plan, settings)
    cases = list(zip(questions, overrides, strict=True))
    plan = await plan_cases(pipeline, settings, cases, sample=QUICK_SAMPLE)
    return threshold_question(plan, settings, of_cases=True)


def threshold_question(plan: CostPlan, settings: Settings, *, of_cases: bool = False) -> str | None:
    """Return the question to ask if a strategy is expected to exceed `settings.plan`, or None.

    With `of_cases`, the plan is for all cases together.
    """
    limits = settings.plan
    for strategy in plan.strategies:
        items = "cases" if of_cases else f"questions with {strategy.strategy}"
        subject = f"{plan.questions:,} {items} on {' and '.join(plan.models)} are expected to"
        if strategy.usd is not None:
            if strategy.usd.expected > limits.ask_above_usd:
                usd = strategy.usd
                return (
                    f"{subject} cost {format_dollars(usd.expected)} (at least {format_dollars(usd.least)}, at most "
                    f"{format_dollars(usd.most)}), above plan.ask_above_usd ({format_dollars(limits.ask_above_usd)}). "
                    "Go on?"
                )
            continue
        prompt, completion = strategy.prompt_tokens, strategy.completion_tokens
        if prompt.expected + completion.expected > limits.ask_above_tokens:
            return (
                f"{subject} take {prompt.expected + completion.expected:,.0f} tokens (at least "
                f"{prompt.least + completion.least:,.0f}, at most {prompt.most + completion.most:,.0f}) at an unknown "
                f"price, above plan.ask_above_tokens ({limits.ask_above_tokens:,}). Go on?"
            )
    return None
