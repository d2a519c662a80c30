"""How many tokens a call may need and did need, where no tokenizer is asked. Knows no prices and no limits."""

from __future__ import annotations

import json
from collections.abc import Sequence

from epicrisis.answers import Usage
from epicrisis.protocols import ChatRequest, Message

_TEMPLATE_TOKENS = 64
"""What chat templates put before all messages (some write a system message of their own), from above."""
_MESSAGE_TOKENS = 16
"""What they put around one message, from above."""

_BYTES_A_TOKEN = 3
"""No vocabulary in use needs more than one for so many bytes of running text."""

UNKNOWN_USAGE = Usage(calls=1, failed_calls=1, uncounted_calls=1, cost=None)
"""A call that may have been worked on, and charged, and of which nobody told anything."""


def estimate_tokens(text: str) -> int:
    """From above for running text."""
    return -(-len(text.encode(errors="surrogatepass")) // _BYTES_A_TOKEN)


def estimate_prompt_tokens(messages: Sequence[Message]) -> int:
    """From above for running text."""
    return sum(estimate_tokens(message.content) + 8 for message in messages)


def compute_max_prompt_tokens(request: ChatRequest) -> int:
    """From above for any text: a token is at least one byte. Schema and parameters count, as some endpoints put them
    into the prompt. About four times the truth in English."""
    texts = [message.content for message in request.messages]
    texts += [json.dumps(dict(part)) for part in (request.schema, request.extra) if part]
    return (
        _TEMPLATE_TOKENS
        + _MESSAGE_TOKENS * len(request.messages)
        + sum(len(text.encode(errors="surrogatepass")) for text in texts)
    )


def compute_max_reply_tokens(request: ChatRequest) -> int:
    """What the endpoint may write, thinking included; one, where only the next is asked for."""
    return 1 if request.options else request.max_tokens + request.max_reasoning_tokens


def count_used_tokens(usage: Usage, most: int) -> int:
    """Prompt and completion together; where nobody told all of them, at least what the call could need at most."""
    counted = usage.prompt_tokens + usage.completion_tokens
    return max(counted, most) if usage.uncounted_calls else counted
