"""Responses of a correct chat endpoint as bytes: complete and streamed replies, and errors.

The formats are those of OpenAI, vLLM and llama.cpp. One word is one token.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, TypeAlias

from epicrisis.testing.chat import count_words
from epicrisis.testing.replies import content_text

OverflowFormat: TypeAlias = Literal["openai", "vllm", "vllm-0.16", "llama.cpp"]
"""The wording of the error for a prompt beyond the window. vLLM changed it in version 0.16."""

DONE = b"data: [DONE]\n\n"
_MAX_TOKENS = (
    "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
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
