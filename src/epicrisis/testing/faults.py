"""Faults of chat calls, and the responses they produce.

The formats are those of OpenAI, Azure, vLLM, llama.cpp and gateways. `hostile` sends the responses.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import replace
from email.utils import formatdate
from enum import Enum
from typing import Any

from epicrisis.testing.wire import (
    DONE,
    OverflowFormat,
    WireReply,
    WireResponse,
    build_error,
    build_event,
    build_json_response,
    build_overflow_error,
    build_success,
    build_usage,
    split_words,
)

_HTML = b"<!DOCTYPE html><html><head><title>Bad gateway</title></head><body><h1>Bad gateway</h1></body></html>\n"
_TEXT = b'"content": "'
_POLICY = (
    "The response was filtered due to the prompt triggering Azure OpenAI's content management policy. "
    "Please modify your prompt and retry."
)


class Fault(Enum):
    """A fault of a chat call. `slow` and `retry_after` (429 and 503) are parameters of the server."""

    SLOW = "healthy, but `slow` seconds late"
    BUSY_SECONDS = "429, Retry-After in whole seconds"
    BUSY_FRACTION = "429, Retry-After with a fraction of a second"
    BUSY_DATE = "429, Retry-After as an HTTP date"
    BUSY_MS = "429, retry-after-ms"
    BUSY_HINT = "429, the time only in the message, in seconds, as OpenAI says it"
    BUSY_HINT_MS = "429, the time only in the message, in milliseconds, as OpenAI says it"
    BUSY_SILENT = "429, no word of when"
    BUSY_NONSENSE = "429, a Retry-After that is no time"
    BUSY_NEGATIVE = "429, a Retry-After below zero"
    SERVER_ERROR = "500, its message repeats the prompt"
    BAD_GATEWAY = "502 with a page of HTML"
    UNAVAILABLE = "503 with Retry-After"
    RESET_AT_ONCE = "connection reset before any byte"
    RESET_MIDWAY = "connection reset in the middle of the promised body, or of the stream"
    CUT = "closed in the middle of the promised body; a stream ends in order, but without finish_reason and [DONE]"
    ENDLESS_TEXT = "content for ever"
    ENDLESS_COMMENTS = "keep-alives for ever: comments in a stream, else blank lines before the body"
    MALFORMED_JSON = "a body, or an event of the stream, in single quotes"
    TRUNCATED_JSON = "half a body of the right Content-Length, or half an event and the stream is over"
    HTML = "200 with a page of HTML"
    WRONG_SCHEMA = "a text that is JSON, but not what the schema asks for: it tells of an error"
    EMPTY_CHOICES = "no choice, only usage"
    EMPTY_TEXT = "a text of no characters"
    NULL_TEXT = "content null"
    FILTERED_REPLY = "half a text, finish_reason content_filter"
    FILTERED_PROMPT = "400, code content_filter, as Azure says it"
    USAGE_MISSING = "no usage"
    USAGE_NULL = "usage null"
    USAGE_ZERO = "usage of nothing but zeros"
    USAGE_NEGATIVE = "usage below zero"
    USAGE_WORDS = "usage that is no numbers"
    USAGE_CACHED = "more cached tokens than the prompt has; the rest is right"
    ERROR_WITHIN = "200 and an error in place of the body, or as an event in the middle of the stream"
    OVERFLOW_OPENAI = "400, the prompt exceeds the window, as OpenAI says it"
    OVERFLOW_VLLM = "400, the prompt exceeds the window, as vLLM says it"
    OVERFLOW_VLLM_016 = "400, the prompt exceeds the window, as vLLM says it since 0.16"
    OVERFLOW_LLAMA_CPP = "400, the prompt exceeds the window, as llama.cpp says it"


def respond(reply: WireReply, fault: Fault | None, seconds: float, slow: float) -> WireResponse:
    """Return the response for a fault. `seconds`: retry time of a busy server. `slow`: delay of SLOW in seconds."""
    if fault is None:
        return build_success(reply)
    if fault is Fault.SLOW:
        return replace(build_success(reply), late=slow)
    return _refusal(reply, fault, seconds) or _odd_reply(reply, fault) or _broken(reply, fault)


_OVERFLOWS: Mapping[Fault, OverflowFormat] = {
    Fault.OVERFLOW_OPENAI: "openai",
    Fault.OVERFLOW_VLLM: "vllm",
    Fault.OVERFLOW_VLLM_016: "vllm-0.16",
    Fault.OVERFLOW_LLAMA_CPP: "llama.cpp",
}


def _refusal(reply: WireReply, fault: Fault, seconds: float) -> WireResponse | None:
    """Return a well-formed response with an error status, or None for other faults."""
    match fault:
        case Fault.SERVER_ERROR:
            return build_error(500, f"no reply to: {reply.prompt[:400]}", "server_error")
        case Fault.BAD_GATEWAY:
            return WireResponse(502, (_HTML,), "text/html")
        case Fault.UNAVAILABLE:
            return build_error(
                503, "the model is loading", "unavailable", None, {"Retry-After": str(math.ceil(seconds))}
            )
        case Fault.FILTERED_PROMPT:
            inner = {
                "code": "ResponsibleAIPolicyViolation",
                "content_filter_result": {"self_harm": {"filtered": True, "severity": "medium"}},
            }
            return build_error(400, _POLICY, None, "content_filter", param="prompt", status=400, innererror=inner)
    if fault in _OVERFLOWS:
        return build_overflow_error(_OVERFLOWS[fault], reply.tokens[0], reply.tokens[0] // 2)
    return _busy(fault, seconds) if fault.name.startswith("BUSY") else None


def _busy(fault: Fault, seconds: float) -> WireResponse:
    headers = {
        Fault.BUSY_SECONDS: {"Retry-After": str(math.ceil(seconds))},
        Fault.BUSY_FRACTION: {"Retry-After": f"{seconds:.3f}"},
        Fault.BUSY_DATE: {"Retry-After": formatdate(time.time() + math.ceil(seconds), usegmt=True)},
        Fault.BUSY_MS: {"retry-after-ms": str(round(seconds * 1000))},
        Fault.BUSY_NONSENSE: {"Retry-After": "soon"},
        Fault.BUSY_NEGATIVE: {"Retry-After": "-1"},
    }.get(fault)
    hint = {
        Fault.BUSY_HINT: f" Please try again in {seconds:.3f}s.",
        Fault.BUSY_HINT_MS: f" Please try again in {round(seconds * 1000)}ms.",
    }.get(fault, "")
    message = f"Rate limit reached on tokens per min (TPM): Limit 30000, Used 29937, Requested 385.{hint}"
    return build_error(429, message, "tokens", "rate_limit_exceeded", headers)


def _odd_reply(reply: WireReply, fault: Fault) -> WireResponse | None:
    """Return a complete response with status 200 and unusable text or wrong usage, or None for other faults."""
    prompt, completion = reply.tokens
    usages: dict[Fault, dict[str, Any]] = {
        Fault.USAGE_MISSING: {},
        Fault.USAGE_NULL: {"usage": None},
        Fault.USAGE_ZERO: {"usage": build_usage(0, 0)},
        Fault.USAGE_NEGATIVE: {"usage": build_usage(-1, -1)},
        Fault.USAGE_WORDS: {"usage": dict.fromkeys(build_usage(0, 0), "n/a")},
        Fault.USAGE_CACHED: {
            "usage": build_usage(prompt, completion) | {"prompt_tokens_details": {"cached_tokens": 10 * prompt + 1}}
        },
    }
    if fault in usages:
        return build_success(reply, usages[fault])
    pieces = split_words(reply.text or "")
    changes: dict[Fault, dict[str, Any]] = {
        Fault.WRONG_SCHEMA: {"text": '{"error": "the model could not be reached", "confidence": 1}'},
        Fault.EMPTY_CHOICES: {"choices": False},
        Fault.EMPTY_TEXT: {"text": ""},
        Fault.NULL_TEXT: {"text": None},
        Fault.FILTERED_REPLY: {"text": "".join(pieces[: len(pieces) // 2]), "finish": "content_filter"},
    }
    return build_success(replace(reply, **changes[fault])) if fault in changes else None


def _broken(reply: WireReply, fault: Fault) -> WireResponse:
    """Return a response damaged by the connection or the server, without usage."""
    good = build_success(reply)
    stream, damaged, body = reply.streams, replace(good, tokens=None, usage_is_right=False), good.pieces[0]
    # A stream's first event brings no text, those after it a word each.
    at = 1 + len(split_words(reply.text or "")) // 2
    beginning = good.pieces[:at] if stream else (body[: len(body) // 2],)
    middle = good.pieces[at] if stream else body
    promised = None if stream else len(body)
    failed = {"error": {"message": "the engine has died", "type": "server_error", "code": 500}}
    match fault:
        case Fault.HTML:
            return WireResponse(200, (_HTML,), "text/html")
        case Fault.RESET_AT_ONCE:
            return replace(damaged, status=0, pieces=(), ending="reset")
        case Fault.RESET_MIDWAY:
            return replace(damaged, pieces=beginning, promised=promised, ending="reset")
        case Fault.CUT:
            return replace(damaged, pieces=beginning, promised=promised, ending="whole" if stream else "closed")
        case Fault.ENDLESS_TEXT:
            text = body.index(_TEXT) + len(_TEXT) if not stream else 0
            return replace(
                damaged, pieces=beginning if stream else (body[:text],), repeated=middle if stream else b"and "
            )
        case Fault.ENDLESS_COMMENTS:
            return replace(damaged, pieces=(), repeated=b": keep-alive\n\n" if stream else b"\n")
        case Fault.MALFORMED_JSON:
            malformed = middle.replace(b'"', b"'")
            return replace(damaged, pieces=(*beginning, malformed, *good.pieces[at + 1 :]) if stream else (malformed,))
        case Fault.TRUNCATED_JSON:
            return replace(
                damaged, pieces=(*beginning, middle[: len(middle) // 2] + b"\n\n", DONE) if stream else beginning
            )
        case _:
            return (
                replace(damaged, pieces=(*beginning, build_event(failed), DONE))
                if stream
                else build_json_response(failed)
            )
