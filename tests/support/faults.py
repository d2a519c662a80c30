"""Responses of a chat endpoint as bytes: complete and streamed replies, errors, and faults of calls.

The formats are those of OpenAI, Azure, vLLM, llama.cpp and gateways. One word is one token. `hostile` sends the
responses.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace
from email.utils import formatdate
from enum import Enum
from functools import partial
from typing import Any, Literal, TypeAlias

from epicrisis.testing.chat import count_words
from tests.support.replies import content_text

OverflowFormat: TypeAlias = Literal["openai", "vllm", "vllm-0.16", "llama.cpp"]
"""The wording of the error for a prompt beyond the window. vLLM changed it in version 0.16."""

DONE = b"data: [DONE]\n\n"
_MAX_TOKENS = (
    "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
)
_HTML = b"<!DOCTYPE html><html><head><title>Bad gateway</title></head><body><h1>Bad gateway</h1></body></html>\n"
_TEXT = b'"content": "'
_POLICY = (
    "The response was filtered due to the prompt triggering Azure OpenAI's content management policy. "
    "Please modify your prompt and retry."
)


@dataclass(frozen=True, slots=True)
class WireReply:
    """The reply of a healthy endpoint to a request."""

    text: str | None
    finish: str
    prompt: str
    model: str
    streams: bool
    has_usage: bool
    """Whether the reply includes its usage. A stream does so only on request."""
    choices: bool = True

    @property
    def tokens(self) -> tuple[int, int]:
        """The prompt and completion tokens."""
        return count_words(self.prompt), count_words(self.text or "")


@dataclass(frozen=True, slots=True)
class WireResponse:
    """A response. A stream has one chunk per event; others are one piece with a Content-Length."""

    status: int
    """0: without a status line."""
    pieces: tuple[bytes, ...]
    kind: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    promised: int | None = None
    """A Content-Length different from the actual length."""
    repeated: bytes = b""
    """Sent endlessly after the pieces, in chunks."""
    ending: Literal["whole", "closed", "reset"] = "whole"
    late: float = 0.0
    """Seconds before the first byte."""
    tokens: tuple[int, int] | None = None
    """Prompt and completion tokens of a reply sent completely."""
    usage_is_right: bool = False
    """Whether the reported usage has these tokens."""

    @property
    def chunked(self) -> bool:
        return bool(self.repeated) or self.kind == "text/event-stream"


def build_reply(body: Mapping[str, Any], text: str, model: str) -> WireReply:
    """Return a reply with this text, cut by length if it has more words than the request allows."""
    pieces = split_words(text)
    limit = read_token_limit(body) or len(pieces)
    streams = bool(body.get("stream"))
    return WireReply(
        text="".join(pieces[:limit]),
        finish="stop" if limit >= len(pieces) else "length",
        prompt=read_prompt(body),
        model=model,
        streams=streams,
        has_usage=not streams or bool((body.get("stream_options") or {}).get("include_usage")),
    )


def read_token_limit(body: Mapping[str, Any]) -> int | None:
    """Return the token limit of the reply, by its old or new name."""
    return body.get("max_tokens") or body.get("max_completion_tokens")


def read_prompt(body: Mapping[str, Any]) -> str:
    """Return the texts of all messages."""
    return "\n".join(content_text(message.get("content")) for message in body.get("messages", ()))


def build_success(reply: WireReply, usage: dict[str, Any] | None = None) -> WireResponse:
    """Return the complete reply, or a stream with one word per event. `usage` replaces the right usage."""
    prompt, completion = reply.tokens
    if usage is None:
        usage = {"usage": build_usage(prompt, completion)}
    stated = usage.get("usage") or {}
    usage_is_right = reply.has_usage and (stated.get("prompt_tokens"), stated.get("completion_tokens")) == reply.tokens
    if not reply.streams:
        message = {"role": "assistant", "content": reply.text}
        choice = {"index": 0, "message": message, "finish_reason": reply.finish}
        body = _head(reply, "chat.completion") | {"choices": [choice] if reply.choices else []} | usage
        return WireResponse(200, (json.dumps(body).encode(),), tokens=reply.tokens, usage_is_right=usage_is_right)
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": None if reply.text is None else ""}]
    deltas += [{"content": piece} for piece in split_words(reply.text or "")]
    events: list[bytes] = []
    if reply.choices:
        events += [*map(partial(_delta, reply), deltas), _delta(reply, {}, reply.finish)]
    if reply.has_usage and usage:
        events.append(build_event(_head(reply, "chat.completion.chunk") | {"choices": []} | usage))
    return WireResponse(200, (*events, DONE), "text/event-stream", tokens=reply.tokens, usage_is_right=usage_is_right)


def build_error(
    status: int,
    message: str,
    kind: str | None,
    code: object = None,
    headers: Mapping[str, str] | None = None,
    /,
    **fields: Any,
) -> WireResponse:
    """Return an error in OpenAI's format, with further fields."""
    return build_json_response(
        {"error": {"message": message, "type": kind, "param": None, "code": code} | fields}, status, headers
    )


def build_json_response(
    data: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None
) -> WireResponse:
    """Return a response with JSON data."""
    return WireResponse(status, (json.dumps(data).encode(),), headers=headers or {})


def refuse_unsupported(body: Mapping[str, Any], refuses: Set[str]) -> WireResponse | None:
    """Return the error for an unsupported parameter of OpenAI's reasoning models and old servers, or None."""
    for name in sorted(refuses & body.keys()):
        value, code = body[name], None
        if name == "max_tokens":
            message, code = _MAX_TOKENS, "unsupported_parameter"
        elif name in ("temperature", "top_p"):
            if value == 1:
                continue
            code = "unsupported_value"
            message = (
                f"Unsupported value: '{name}' does not support {value} with this model. "
                "Only the default (1) value is supported."
            )
        else:
            message = f"Unrecognized request argument supplied: {name}"
        return build_error(400, message, "invalid_request_error", code, param=name)
    return None


def build_overflow_error(form: OverflowFormat, prompt_tokens: int, window: int, reply_tokens: int = 0) -> WireResponse:
    """Return the error for a prompt and reply beyond the window, in one of four formats."""
    total_tokens = prompt_tokens + reply_tokens
    longest = f"This model's maximum context length is {window} tokens. However, "
    match form:
        case "openai":
            message = (
                f"{longest}your messages resulted in {total_tokens} tokens. Please reduce the length of the messages."
            )
            return build_error(400, message, "invalid_request_error", "context_length_exceeded", param="messages")
        case "llama.cpp":
            message = f"request ({total_tokens} tokens) exceeds the available context size ({window} tokens), "
            message += "try increasing it"
            inner = {"code": 400, "message": message, "type": "exceed_context_size_error"}
            inner |= {"n_prompt_tokens": total_tokens, "n_ctx": window}
            return build_json_response({"error": inner}, 400)
        case "vllm":
            message = (
                f"{longest}you requested {total_tokens} tokens ({prompt_tokens} in the messages, {reply_tokens} in the "
                "completion). Please reduce the length of the messages or completion."
            )
            flat = {"object": "error", "message": message, "type": "BadRequestError", "param": None, "code": 400}
            return build_json_response(flat, 400)
        case _:
            message = (
                f"You passed {prompt_tokens} input tokens and requested {reply_tokens} output tokens. However, the "
                f"model's context length is only {window} tokens, resulting in a maximum input length of "
                f"{max(0, window - reply_tokens)} tokens. Please reduce the length of the input prompt."
            )
            return build_error(400, message, "BadRequestError", 400, param="input_tokens")


def split_words(text: str) -> list[str]:
    """Return the words, each with the blanks before it."""
    return re.findall(r"\s*\S+|\s+$", text)


def build_usage(prompt: int, completion: int) -> dict[str, Any]:
    """Return the usage for these numbers of tokens."""
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def _head(reply: WireReply, kind: str) -> dict[str, Any]:
    return {"id": "chatcmpl-hostile", "object": kind, "created": 0, "model": reply.model}


def _delta(reply: WireReply, delta: Mapping[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return build_event(_head(reply, "chat.completion.chunk") | {"choices": [choice]})


def build_event(data: Mapping[str, Any]) -> bytes:
    """Return one event of a stream."""
    return b"data: " + json.dumps(data).encode() + b"\n\n"


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
    if not fault.name.startswith("BUSY"):
        return None
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
