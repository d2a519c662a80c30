"""The body of a chat call, and what becomes of it where an endpoint does not take all of it. Knows no client.

Endpoints differ in the parameters they take. None is guessed from a name: what an endpoint refuses, naming it, is left
out from then on, and every reply made so says so.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from epicrisis.models.chat.endpoints.failures import ErrorResponse, is_overflow
from epicrisis.models.chat.endpoints.probing import plain
from epicrisis.models.chat.token_estimates import compute_max_reply_tokens
from epicrisis.protocols import ChatRequest

_SCHEMA_WORDS = re.compile(r"response_format|json_schema|json schema|guided|grammar|structured output", re.IGNORECASE)
_REFUSING_CODES = ("unsupported_parameter", "unsupported_value", "unknown_parameter", "extra_forbidden")
_REFUSING_WORDS = re.compile(
    r"unsupported|not support|extra_forbidden|n[o']t (?:be )?(?:permitted|allowed|accepted|available|enabled)"
    r"|not implemented|unknown|unrecogni[sz]ed|unexpected|not recogni[sz]ed|deprecated|cannot both|only the default",
    re.IGNORECASE,
)
_TOO_MANY = re.compile(r"greater than|less than|at most|max|must be|between|<=|too (?:many|large|high)", re.IGNORECASE)

_OPTIONAL = (
    "stream_options",
    "seed",
    "top_p",
    "temperature",
    "top_logprobs",
    "logprobs",
    "stream",
    "max_tokens",
)
"""What an endpoint may refuse, the least needed first: a refusal may name several."""

_NOTES = {
    "response_format": "the endpoint takes no JSON schema: it was asked without",
    "seed": "the endpoint takes no seed: asked again it may answer otherwise",
    "temperature": "the endpoint takes no temperature: it used its own",
    "top_p": "the endpoint takes no top_p: it used its own",
}

TOP_LOGPROBS = (20, 5)
"""How many tokens are asked for, the next number where an endpoint finds that too many."""


def build_body(
    request: ChatRequest, model: str, extra: Mapping[str, Any], refused: frozenset[str], *, stream: bool
) -> dict[str, Any]:
    """`extra` goes over all else. `refused` names what the endpoint does not take (`top_logprobs:20`: not so many)."""
    limit = "max_completion_tokens" if "max_tokens" in refused else "max_tokens"
    body: dict[str, Any] = {
        "model": model,
        "messages": plain(request.messages),
        limit: compute_max_reply_tokens(request),
    }
    if request.options:
        # Some endpoints tell what is left after temperature and top-p: at 1 that is all there was.
        body |= {"temperature": 1.0, "top_p": 1.0, "logprobs": True}
        most = next((most for most in TOP_LOGPROBS if f"top_logprobs:{most}" not in refused), None)
        body |= {} if most is None else {"top_logprobs": most}
    else:
        body |= {"temperature": request.temperature, "top_p": request.top_p, "seed": derive_seed(request)}
    if request.schema is not None:
        schema = {"name": "reply", "strict": True, "schema": dict(request.schema)}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    if stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    taken = {name: value for name, value in body.items() if name not in refused}
    if "stream" not in taken:
        taken.pop("stream_options", None)
    return taken | dict(extra)


def find_refused_parameter(refusal: ErrorResponse, body: Mapping[str, Any]) -> str | None:
    """Which of `body` this refusal is about and can be done without; `None` where it is about none of them."""
    if refusal.status not in (400, 403, 422) or is_overflow(refusal):
        return None
    named = _parameter(refusal)
    if "logprobs" in body and (re.search("logprob", refusal.said, re.IGNORECASE) or (named or "").endswith("logprobs")):
        most = body.get("top_logprobs")
        fewer = most in TOP_LOGPROBS[:-1] and _TOO_MANY.search(refusal.said)
        return f"top_logprobs:{most}" if fewer else "logprobs"
    if refusal.status == 403:
        return None
    if "response_format" in body and (_SCHEMA_WORDS.search(refusal.said) or named == "response_format"):
        return "response_format"
    if refusal.body.get("code") not in _REFUSING_CODES and not _REFUSING_WORDS.search(refusal.said):
        return None
    sent = [name for name in _OPTIONAL if name in body]
    if named is not None:
        return named if named in sent else None
    return next((name for name in sent if _is_named(name, refusal.said)), None)


def _is_named(name: str, said: str) -> bool:
    """As a parameter: a refusal may repeat the prompt, in which a patient has a temperature too."""
    marks = "[`'\"]"
    return (
        re.search(
            rf"(?:^|{marks}){name}(?:{marks}|:)|\b(?:argument|parameter|field|option)s?\b[^.]{{0,30}}?\b{name}\b", said
        )
        is not None
    )


def _parameter(refusal: ErrorResponse) -> str | None:
    """As OpenAI says it (`param`), or FastAPI (`loc`)."""
    detail = refusal.body.get("detail")
    places = detail[0].get("loc") if isinstance(detail, list) and detail and isinstance(detail[0], dict) else None
    named = places[-1] if isinstance(places, list) and places else refusal.body.get("param")
    return named.partition(".")[0] if isinstance(named, str) and named else None


def list_notes(refused: frozenset[str], request: ChatRequest) -> tuple[str, ...]:
    """What a reader must know of a reply that was asked for without these."""
    told = refused - ({"seed", "temperature", "top_p"} if request.options else set())
    told -= set() if request.schema is not None else {"response_format"}
    return tuple(note for name, note in _NOTES.items() if name in told)


def derive_seed(request: ChatRequest) -> int:
    """The seed to send, 31 bits: the request's own for sample 0, another for each further sample."""
    if request.sample == 0:
        return request.seed & 0x7FFFFFFF
    digest = hashlib.sha256(f"{request.seed}/{request.sample}".encode()).digest()
    return int.from_bytes(digest[:4], "big") & 0x7FFFFFFF
