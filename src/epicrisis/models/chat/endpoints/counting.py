"""Whether the usage that an endpoint tells can be believed, and estimates where it cannot. Pure; asks nobody."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from epicrisis.models.chat.token_estimates import compute_max_prompt_tokens, compute_max_reply_tokens
from epicrisis.protocols import ChatRequest

_MOST_TEMPLATE = 10_000
"""More tokens than any template, or prompt of the endpoint's own, puts around ours."""
_CHARACTERS_A_TOKEN = 6
_MOST_BYTES_A_TOKEN = 12


@dataclass(frozen=True, slots=True)
class ReportedUsage:
    """Tokens of one call. `cached` are of the prompt's, `reasoning` of the completion's; `None`: not told."""

    prompt: int
    completion: int
    cached: int = 0
    reasoning: int | None = None


def read_reported_usage(raw: object, request: ChatRequest, said: bool) -> ReportedUsage | None:
    """What the wire's usage says; `None` where there is none, or none that can be true: no numbers, numbers below zero,
    no tokens for a prompt or a text that was `said`, more cached tokens than the prompt has, more prompt than it has
    bytes, more reply than was allowed.

    Some endpoints (xAI, Google) leave thinking out of the completion and count it in the total alone: it is added.
    """
    if not isinstance(raw, Mapping):
        return None
    prompt, completion = _count(raw.get("prompt_tokens")), _count(raw.get("completion_tokens"))
    cached = _count(_detail(raw, "prompt_tokens_details", "cached_tokens"))
    reasoning = _detail(raw, "completion_tokens_details", "reasoning_tokens")
    thought, total = _count(reasoning), _count(raw.get("total_tokens"))
    if prompt is None or completion is None or cached is None or thought is None:
        return None
    beside = max(0, (total or 0) - prompt - completion)
    completion, thought = completion + beside, max(thought, beside)
    most = 2 * compute_max_reply_tokens(request) + 1000
    if not 0 < prompt <= compute_max_prompt_tokens(request) + _MOST_TEMPLATE or cached > prompt:
        return None
    if completion > most or thought > completion or (said and completion == 0):
        return None
    return ReportedUsage(prompt, completion, cached, None if reasoning is None and not beside else thought)


def is_prompt_truncated(request: ChatRequest, prompt_tokens: int) -> bool:
    """Whether a prompt of so many tokens cannot have been all of it. Some servers drop what exceeds their window."""
    size = sum(len(message.content.encode(errors="surrogatepass")) for message in request.messages)
    return size > _MOST_BYTES_A_TOKEN * (prompt_tokens + 20)


def _detail(raw: Mapping[str, object], table: str, key: str) -> object:
    details = raw.get(table)
    return details.get(key) if isinstance(details, Mapping) else None


def _count(value: object) -> int | None:
    """A count; 0 where nothing is said, `None` where what is said is none."""
    if value is None:
        return 0
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def compute_min_tokens(characters: int, events: int) -> int:
    """Of a stream of running text, from below: an event is a token at least, but where it has hardly a letter."""
    return max(min(events, characters // 2), characters // _CHARACTERS_A_TOKEN)
