"""Whether a run should be asked about before it begins. Knows no screen: it gives the question to ask."""

from __future__ import annotations

from collections.abc import Sequence

from epicrisis.answers import Usage
from epicrisis.models.chat.prices import build_cost_function
from epicrisis.overrides import AS_SET, RunOverrides
from epicrisis.pipeline import Pipeline
from epicrisis.plan.cost_plan import CostPlan, dollars
from epicrisis.plan.planning import planned, planned_cases
from epicrisis.settings import Settings
from epicrisis.types import Question

QUICK_SAMPLE = 20


async def ask_first(
    pipeline: Pipeline, settings: Settings, questions: Sequence[Question], treatments: Sequence[RunOverrides] = ()
) -> str | None:
    """What to ask before these questions are answered; `None` where they are cheap enough.

    `treatments`: how each of them is answered, where not all are as the settings say. Plans a sample of 20; nothing at
    all where no model charges, or where kept replies alone are replayed. Raises what `planned` raises.
    """
    million = Usage(prompt_tokens=1_000_000, completion_tokens=1_000_000)
    free = all(build_cost_function(settings.model_for(role))(million) == 0 for role in settings.roles)
    if not questions or free or settings.cache.mode == "replay":
        return None
    if all(treatment == AS_SET for treatment in treatments):
        return check_threshold(
            await planned(pipeline, settings, questions, [settings.strategy], sample=QUICK_SAMPLE), settings
        )
    cases = list(zip(questions, treatments, strict=True))
    made = await planned_cases(pipeline, settings, cases, sample=QUICK_SAMPLE)
    return check_threshold(made, settings, of_cases=True)


def check_threshold(plan: CostPlan, settings: Settings, *, of_cases: bool = False) -> str | None:
    """The question to ask where a strategy (`of_cases`: all cases together) is expected to exceed `settings.plan`, else
    `None`."""
    limits = settings.plan
    for each in plan.strategies:
        what = "cases" if of_cases else f"questions with {each.strategy}"
        asked = f"{plan.questions:,} {what} on {' and '.join(plan.models)} are expected to"
        if each.usd is not None:
            if each.usd.expected > limits.ask_above_usd:
                return (
                    f"{asked} cost {dollars(each.usd.expected)} (at least {dollars(each.usd.least)}, at most "
                    f"{dollars(each.usd.most)}), above plan.ask_above_usd ({dollars(limits.ask_above_usd)}). Go on?"
                )
            continue
        prompt, completion = each.prompt_tokens, each.completion_tokens
        if prompt.expected + completion.expected > limits.ask_above_tokens:
            return (
                f"{asked} take {prompt.expected + completion.expected:,.0f} tokens (at least "
                f"{prompt.least + completion.least:,.0f}, at most {prompt.most + completion.most:,.0f}) at an unknown "
                f"price, above plan.ask_above_tokens ({limits.ask_above_tokens:,}). Go on?"
            )
    return None
