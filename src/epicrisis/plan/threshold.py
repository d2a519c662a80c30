"""Whether a run should be asked about before it begins. Knows no screen: it gives the question to ask."""

from __future__ import annotations

from collections.abc import Sequence

from epicrisis.answers import Usage
from epicrisis.models.chat.prices import price_of
from epicrisis.pipeline import Pipeline
from epicrisis.plan.figures import Plan, dollars
from epicrisis.plan.planning import planned
from epicrisis.settings import Settings
from epicrisis.types import Question

QUICK_SAMPLE = 20


async def ask_first(pipeline: Pipeline, settings: Settings, questions: Sequence[Question]) -> str | None:
    """What to ask before these questions are answered by the settings' strategy; `None` where they are cheap enough.

    Plans a sample of 20; nothing at all where no model charges, or where kept replies alone are replayed. Raises what
    `planned` raises.
    """
    million = Usage(prompt_tokens=1_000_000, completion_tokens=1_000_000)
    free = all(price_of(settings.model_for(role))(million) == 0 for role in settings.roles)
    if not questions or free or settings.cache.mode == "replay":
        return None
    return check_threshold(
        await planned(pipeline, settings, questions, [settings.strategy], sample=QUICK_SAMPLE), settings
    )


def check_threshold(plan: Plan, settings: Settings) -> str | None:
    """The question to ask where a strategy is expected to exceed `settings.plan`, else `None`."""
    limits = settings.plan
    for each in plan.strategies:
        asked = f"{plan.questions:,} questions with {each.strategy} on {' and '.join(plan.models)} are expected to"
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
