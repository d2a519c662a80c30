"""Limits and estimates of the tokens of a call, for when no tokenizer is asked, and the cost of tokens in dollars."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from epicrisis.core.answers import Usage
from epicrisis.core.protocols import ChatRequest, Message

_TEMPLATE_TOKENS = 64
"""Upper bound of what a chat template adds before all messages. Some add a system message."""
_MESSAGE_TOKENS = 16
_BYTES_PER_TOKEN = 3
"""Every vocabulary in use needs at most one token for this many bytes of running text."""
_WORD_OR_SIGN = re.compile(
    r"(?P<syllable>[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af])|(?P<word>[^\W\d_\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]++)"
    r"|(?P<digits>\d{1,3})|[^\w\s]++|_++|\n++"
)
UNKNOWN_USAGE = Usage(calls=1, failed_calls=1, uncounted_calls=1, cost=None)
"""The usage of a failed call that may have been processed and charged without a report of its tokens."""


def estimate_tokens(text: str) -> int:
    """Return an upper estimate of the tokens of running text."""
    return -(-count_bytes(text) // _BYTES_PER_TOKEN)


def estimate_least_tokens(text: str) -> float:
    """Return about the tokens that the most economical tokenizers make of a text (OpenAI's o200k, Llama 3, Qwen).

    Of 1,260 texts of medicine half had 1.01 times as many, and none less than 0.92 times.
    """
    tokens = 0.0
    for match in _WORD_OR_SIGN.finditer(text):
        if match["syllable"]:
            tokens += 0.65
        elif match["digits"]:
            tokens += 1.25
        elif match["word"] and (length := len(match[0])) > 8:
            tokens += 1.5 if length < 12 else 2.0
        else:
            tokens += 1.0
    return tokens


def estimate_prompt_tokens(messages: Sequence[Message]) -> int:
    """Return an upper estimate of the prompt tokens of running text, template included."""
    return sum(estimate_tokens(message.content) + 8 for message in messages)


def compute_max_prompt_tokens(request: ChatRequest) -> int:
    """Return an upper bound of the prompt tokens, schema included: a token has at least one byte."""
    total = _TEMPLATE_TOKENS
    for message in request.messages:
        total += _MESSAGE_TOKENS + count_bytes(message.content)
    for part in (request.schema, request.extra):
        if part:
            total += len(json.dumps(dict(part)))
    return total


def compute_max_reply_tokens(request: ChatRequest) -> int:
    """Return how many tokens the endpoint may generate, thinking included: one for option probabilities."""
    return 1 if request.options else request.max_tokens + request.max_reasoning_tokens


def count_used_tokens(usage: Usage, maximum: int) -> int:
    """Return prompt and completion tokens; at least `maximum`, the most the call could need, if some are unknown."""
    tokens = usage.prompt_tokens + usage.completion_tokens
    return max(tokens, maximum) if usage.uncounted_calls else tokens


def count_bytes(text: str) -> int:
    """Return the length of the text in UTF-8, with unpaired surrogates."""
    return len(text.encode(errors="surrogatepass"))
