"""The body of a chat call, and how it adapts to an endpoint that rejects one of its parameters.

Endpoints accept different parameters. None is guessed from a model's name: a parameter that an endpoint rejects by name
is left out from then on, and every reply made without it has a note.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from epicrisis.models.chat.endpoints.failures import ErrorResponse, is_overflow
from epicrisis.models.chat.token_estimates import compute_max_reply_tokens
from epicrisis.protocols import ChatRequest, Message

_SCHEMA_WORDS = re.compile(r"response_format|json_schema|json schema|guided|grammar|structured output", re.IGNORECASE)
_REJECTION_CODES = ("unsupported_parameter", "unsupported_value", "unknown_parameter", "extra_forbidden")
_REJECTION_WORDS = re.compile(
    r"unsupported|not support|extra_forbidden|n[o']t (?:be )?(?:permitted|allowed|accepted|available|enabled)"
    r"|not implemented|unknown|unrecogni[sz]ed|unexpected|not recogni[sz]ed|deprecated|cannot both|only the default",
    re.IGNORECASE,
)
_TOO_MANY = re.compile(r"greater than|less than|at most|max|must be|between|<=|too (?:many|large|high)", re.IGNORECASE)

_OPTIONAL = ("stream_options", "seed", "top_p", "temperature", "top_logprobs", "logprobs", "stream", "max_tokens")
"""Parameters that an endpoint may reject. If a message names several, the first of these is left out."""

_NOTES = {
    "response_format": "the endpoint accepts no JSON schema: the request was sent without one",
    "seed": "the endpoint accepts no seed: the same request may get another answer",
    "temperature": "the endpoint accepts no temperature: it used its own",
    "top_p": "the endpoint accepts no top_p: it used its own",
}

TOP_LOGPROBS = (20, 5)
"""How many token probabilities are requested; the next number if an endpoint finds that too many."""


def build_body(
    request: ChatRequest, model: str, extra: Mapping[str, Any], rejected: frozenset[str], *, stream: bool
) -> dict[str, Any]:
    """Build the JSON body of a call. `extra` overrides all other parameters.

    `rejected` names parameters that the endpoint does not accept; `top_logprobs:20` rejects that number only.
    """
    limit = "max_completion_tokens" if "max_tokens" in rejected else "max_tokens"
    body: dict[str, Any] = {
        "model": model,
        "messages": build_messages(request.messages),
        limit: compute_max_reply_tokens(request),
    }
    if request.options:
        # Some endpoints report probabilities after temperature and top-p. At 1 these change nothing.
        body |= {"temperature": 1.0, "top_p": 1.0, "logprobs": True}
        count = next((count for count in TOP_LOGPROBS if f"top_logprobs:{count}" not in rejected), None)
        if count is not None:
            body["top_logprobs"] = count
    else:
        body |= {"temperature": request.temperature, "top_p": request.top_p, "seed": derive_seed(request)}
    if request.schema is not None:
        schema = {"name": "reply", "strict": True, "schema": dict(request.schema)}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    if stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    for name in rejected:
        body.pop(name, None)
    if "stream" not in body:
        body.pop("stream_options", None)
    return body | dict(extra)


def build_messages(messages: Sequence[Message]) -> list[dict[str, str]]:
    """Build the JSON of the messages."""
    return [{"role": message.role, "content": message.content} for message in messages]


def find_rejected_parameter(response: ErrorResponse, body: Mapping[str, Any]) -> str | None:
    """Return the optional parameter of `body` that the server rejects, or None if it rejects something else."""
    if response.status not in (400, 403, 422) or is_overflow(response):
        return None
    message, parameter = response.message, _read_parameter(response)
    names_logprobs = re.search("logprob", message, re.IGNORECASE) or (parameter or "").endswith("logprobs")
    if "logprobs" in body and names_logprobs:
        count = body.get("top_logprobs")
        too_many = count in TOP_LOGPROBS[:-1] and _TOO_MANY.search(message)
        return f"top_logprobs:{count}" if too_many else "logprobs"
    if response.status == 403:
        return None
    if "response_format" in body and (_SCHEMA_WORDS.search(message) or parameter == "response_format"):
        return "response_format"
    if response.body.get("code") not in _REJECTION_CODES and not _REJECTION_WORDS.search(message):
        return None
    optional = [name for name in _OPTIONAL if name in body]
    if parameter is not None:
        return parameter if parameter in optional else None
    return next((name for name in optional if _mentions_parameter(message, name)), None)


def _mentions_parameter(message: str, name: str) -> bool:
    """Return whether the message names a parameter. It may repeat the prompt, which may mention a temperature too."""
    marks = "[`'\"]"
    quoted = rf"(?:^|{marks}){name}(?:{marks}|:)"
    introduced = rf"\b(?:argument|parameter|field|option)s?\b[^.]{{0,30}}?\b{name}\b"
    return re.search(f"{quoted}|{introduced}", message) is not None


def _read_parameter(response: ErrorResponse) -> str | None:
    """Return the parameter in the error object of OpenAI (`param`) or FastAPI (`loc`)."""
    detail = response.body.get("detail")
    path = detail[0].get("loc") if isinstance(detail, list) and detail and isinstance(detail[0], dict) else None
    parameter = path[-1] if isinstance(path, list) and path else response.body.get("param")
    return parameter.partition(".")[0] if isinstance(parameter, str) and parameter else None


def list_notes(rejected: frozenset[str], request: ChatRequest) -> tuple[str, ...]:
    """Return the notes of a reply to a request that was sent without the rejected parameters."""
    irrelevant = {"seed", "temperature", "top_p"} if request.options else set()
    if request.schema is None:
        irrelevant.add("response_format")
    return tuple(note for name, note in _NOTES.items() if name in rejected - irrelevant)


def derive_seed(request: ChatRequest) -> int:
    """Return the seed to send, 31 bits: the request's own for sample 0, another for each further sample."""
    if request.sample == 0:
        return request.seed & 0x7FFFFFFF
    digest = hashlib.sha256(f"{request.seed}/{request.sample}".encode()).digest()
    return int.from_bytes(digest[:4], "big") & 0x7FFFFFFF
