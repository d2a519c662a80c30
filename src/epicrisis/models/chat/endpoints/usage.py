"""The usage of a call: as its endpoint reports it, else counted by the model's tokenizer, else estimated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from epicrisis.answers import Usage
from epicrisis.errors import ChatError
from epicrisis.models.chat.endpoints.probing import EndpointProbe
from epicrisis.models.chat.endpoints.reply import CompletedReply
from epicrisis.models.chat.token_estimates import (
    compute_max_prompt_tokens,
    compute_max_reply_tokens,
    count_bytes,
    estimate_prompt_tokens,
    estimate_tokens,
)
from epicrisis.protocols import ChatRequest

_MAX_TEMPLATE_TOKENS = 10_000
"""More tokens than any chat template, or the endpoint's own prompt, adds to the request."""
_MAX_BYTES_PER_TOKEN = 12


@dataclass(frozen=True, slots=True)
class ReportedUsage:
    """Tokens of one call. `cached` is part of the prompt, `reasoning` of the completion, None if not reported."""

    prompt: int
    completion: int
    cached: int = 0
    reasoning: int | None = None


async def measure_usage(
    reply: CompletedReply,
    request: ChatRequest,
    model: str,
    probe: EndpointProbe,
    compute_cost: Callable[[Usage], float | None],
) -> Usage:
    """Return the usage of one completed call.

    Estimates are upper bounds without a cost and count in `uncounted_calls`. Thinking without a reported number of
    tokens is counted by the tokenizer, if there is one. A failed count never loses the reply. For an invalid reply only
    the endpoint's report counts.
    """
    reported = read_reported_usage(reply.usage, request, bool(reply.text or reply.thinking))
    if reported is None and reply.flaw:
        return Usage(calls=1, uncounted_calls=1, cost=None)
    exact = True
    if reported is None:
        prompt, prompt_exact = await _count_prompt(request, model, probe)
        thinking, thinking_exact = await _count_text(reply.thinking, model, probe)
        text, text_exact = (1, True) if request.options else await _count_text(reply.text, model, probe)
        reported = ReportedUsage(prompt, thinking + text, reasoning=thinking)
        exact = prompt_exact and thinking_exact and text_exact
    elif reported.reasoning is None:
        thinking, _ = await _count_text(reply.thinking, model, probe)
        reported = replace(reported, reasoning=min(thinking, reported.completion))
    usage = Usage(
        calls=1,
        uncounted_calls=int(not exact),
        prompt_tokens=reported.prompt,
        cached_tokens=reported.cached,
        completion_tokens=reported.completion,
        reasoning_tokens=reported.reasoning or 0,
    )
    return replace(usage, cost=compute_cost(usage) if exact else None)


async def _count_prompt(request: ChatRequest, model: str, probe: EndpointProbe) -> tuple[int, bool]:
    """Return the tokens of the prompt, and whether they are exact."""
    try:
        return await probe.count(model, request.messages)
    except ChatError:
        return estimate_prompt_tokens(request.messages), False


async def _count_text(text: str, model: str, probe: EndpointProbe) -> tuple[int, bool]:
    """Return the tokens of a text, and whether they are exact."""
    try:
        count = await probe.count_text(model, text)
    except ChatError:
        count = None
    return (estimate_tokens(text), False) if count is None else (count, True)


def read_reported_usage(raw: object, request: ChatRequest, has_text: bool) -> ReportedUsage | None:
    """Return the usage that the endpoint reports, or None if it is missing or impossible.

    Impossible are: other values than whole numbers from 0, no tokens for a prompt or for a reply with text, more cached
    tokens than the prompt has, more prompt tokens than the prompt has bytes, more reply tokens than allowed. Some
    endpoints (xAI, Google) count thinking in the total only; it is added to the completion.
    """
    if not isinstance(raw, Mapping):
        return None
    reported_reasoning = _read_detail(raw, "completion_tokens_details", "reasoning_tokens")
    prompt, completion = _read_count(raw.get("prompt_tokens")), _read_count(raw.get("completion_tokens"))
    cached = _read_count(_read_detail(raw, "prompt_tokens_details", "cached_tokens"))
    reasoning, total = _read_count(reported_reasoning), _read_count(raw.get("total_tokens"))
    if prompt is None or completion is None or cached is None or reasoning is None:
        return None
    extra = max(0, (total or 0) - prompt - completion)
    completion, reasoning = completion + extra, max(reasoning, extra)
    max_completion = 2 * compute_max_reply_tokens(request) + 1000
    if not 0 < prompt <= compute_max_prompt_tokens(request) + _MAX_TEMPLATE_TOKENS or cached > prompt:
        return None
    if completion > max_completion or reasoning > completion or (has_text and completion == 0):
        return None
    is_reported = reported_reasoning is not None or extra > 0
    return ReportedUsage(prompt, completion, cached, reasoning if is_reported else None)


def is_prompt_truncated(request: ChatRequest, prompt_tokens: int) -> bool:
    """Return whether the prompt has too many bytes for so few tokens: some servers cut what exceeds their window."""
    size = sum(count_bytes(message.content) for message in request.messages)
    return size > _MAX_BYTES_PER_TOKEN * (prompt_tokens + 20)


def _read_detail(raw: Mapping[str, object], table: str, key: str) -> object:
    details = raw.get(table)
    return details.get(key) if isinstance(details, Mapping) else None


def _read_count(value: object) -> int | None:
    """Return a count: 0 for a missing value, None for an invalid one."""
    if value is None:
        return 0
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
