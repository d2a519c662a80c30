"""What a reply cost: as its endpoint tells, else counted by the model's own tokenizer, else estimated.

Knows no client; whether what is told can be true says `counting`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from epicrisis.answers import Usage
from epicrisis.errors import ChatError
from epicrisis.models.chat.endpoints import counting
from epicrisis.models.chat.endpoints.probing import EndpointProbe
from epicrisis.models.chat.endpoints.reply import CompletedReply
from epicrisis.models.chat.token_estimates import estimate_prompt_tokens, estimate_tokens
from epicrisis.protocols import ChatRequest


async def measure_usage(
    received: CompletedReply,
    request: ChatRequest,
    model: str,
    probing: EndpointProbe,
    price: Callable[[Usage], float | None],
) -> Usage:
    """The usage of one call that came back. Estimates are from above, have no price, and are in `uncounted_calls`.

    Thinking that is shown without its tokens being told is counted by the tokenizer where there is one. A reply is not
    lost because its tokens cannot be counted. Of what is no reply only the endpoint knows the tokens.
    """
    told = counting.read_reported_usage(received.usage, request, bool(received.text or received.thinking))
    if told is None and received.flaw:
        return Usage(calls=1, uncounted_calls=1, cost=None)
    exact = True
    if told is None:
        prompt, prompt_exact = await _prompt_tokens(request, model, probing)
        thought, thought_exact = await _tokens(received.thinking, model, probing)
        text, text_exact = (1, True) if request.options else await _tokens(received.text, model, probing)
        told = counting.ReportedUsage(prompt, thought + text, reasoning=thought)
        exact = prompt_exact and thought_exact and text_exact
    elif told.reasoning is None:
        thought, _ = await _tokens(received.thinking, model, probing)
        told = replace(told, reasoning=min(thought, told.completion))
    usage = Usage(
        calls=1,
        uncounted_calls=int(not exact),
        prompt_tokens=told.prompt,
        cached_tokens=told.cached,
        completion_tokens=told.completion,
        reasoning_tokens=told.reasoning or 0,
    )
    return replace(usage, cost=price(usage) if exact else None)


async def _prompt_tokens(request: ChatRequest, model: str, probing: EndpointProbe) -> tuple[int, bool]:
    try:
        return await probing.count(model, request.messages)
    except ChatError:
        return estimate_prompt_tokens(request.messages), False


async def _tokens(text: str, model: str, probing: EndpointProbe) -> tuple[int, bool]:
    try:
        count = await probing.count_text(model, text)
    except ChatError:
        count = None
    return (estimate_tokens(text), False) if count is None else (count, True)
