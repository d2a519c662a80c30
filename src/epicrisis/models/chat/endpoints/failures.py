"""Foreign errors of a chat call, mapped to the tree of errors: the one table.

Messages name the host and the cure. What a server says is passed on only where it repeats neither the prompt nor a
key. Every error says what its call may have cost: tokens that were perhaps computed and that nobody told are uncounted,
and their price is unknown.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from epicrisis.answers import Usage
from epicrisis.errors import (
    ChatError,
    ContextOverflow,
    EndpointBusy,
    EndpointRejected,
    EndpointTimeout,
    EndpointUnreachable,
    EpicrisisError,
    NetworkRefused,
    ReplyInvalid,
)
from epicrisis.models.chat.endpoints.retry_after import read_retry_after
from epicrisis.models.chat.token_estimates import UNKNOWN_USAGE

FAILED_CALL = Usage(calls=1, failed_calls=1)
"""A call that surely was not worked on."""

_OVERFLOW_CODES = ("exceed_context_size_error", "context_length_exceeded")
_OVERFLOW_WORDS = re.compile(
    r"maximum (?:context|model) length|context (?:size|window|length)|(?:prompt|input) is too long|input token count"
    r"|longer than the model|reduce the length",
    re.IGNORECASE,
)
_FILTER_CODES = ("content_filter", "content_policy_violation", "ResponsibleAIPolicyViolation")
_GATEWAY_TIMEOUTS = (408, 504, 524)
"""Somebody between us and the model gave up; the model perhaps did not."""

_NOT_THERE = (501, 505)
"""Above 500, and yet asking again changes nothing."""

_QUOTED = 200
"""Characters of a server's words that are passed on at most."""

_ECHO = 16
"""A server's words that share this many characters with the prompt are not passed on."""


@dataclass(frozen=True, slots=True)
class ErrorResponse:
    """What a server says of a call that it does not answer. `status` is None where nobody says it."""

    status: int | None
    body: Mapping[str, Any]
    """The error's own object, where there is one."""
    said: str
    headers: Mapping[str, str] = field(default_factory=dict)


_LONGEST_SAID = 10_000
"""Characters of an error's message that are looked at: it says what it is about in the first."""


class ErrorInReply(ValueError):
    """An error where a reply, or an event of it, should be; not ours yet, as it may repeat what it was sent."""

    def __init__(self, body: object) -> None:
        super().__init__("an error within a reply")
        self.body = body


def get_foreign_errors() -> tuple[type[Exception], ...]:
    """What a call over OpenAI's client may raise that is not of our tree: the client's, its transports', and those of
    reading what came. A group comes from connecting to several addresses of a host."""
    import aiohttp
    import httpx2
    import openai

    return (
        openai.OpenAIError,
        aiohttp.ClientError,
        httpx2.HTTPError,
        httpx2.InvalidURL,
        TimeoutError,
        ValueError,
        RecursionError,
        ExceptionGroup,
    )


def read_error_response(error: Exception) -> ErrorResponse | None:
    """What the server says, where the error carries it."""
    import openai

    if isinstance(error, ErrorInReply):
        return parse_error_body(error.body)
    if not isinstance(error, openai.APIError) or isinstance(error, openai.APIConnectionError):
        return None
    response = getattr(error, "response", None)
    refusal = parse_error_body(error.body, getattr(error, "status_code", None))
    said = refusal.said or ("" if error.body is not None else error.message[:_LONGEST_SAID])
    return ErrorResponse(refusal.status, refusal.body, said, {} if response is None else response.headers)


def parse_error_body(body: object, status: int | None = None) -> ErrorResponse:
    """What the JSON of an error says, in the forms of OpenAI, vLLM, FastAPI (`detail`) and Google (a list of one)."""
    if isinstance(body, list) and body:
        body = body[0]
    if isinstance(body, dict) and isinstance(body.get("error"), dict):
        body = body["error"]
    if not isinstance(body, dict):
        return ErrorResponse(status, {}, body[:_LONGEST_SAID] if isinstance(body, str) else "")
    said = body.get("message") or body.get("detail") or body.get("error") or ""
    return ErrorResponse(status or _number(body.get("code")), body, str(said)[:_LONGEST_SAID])


def map_error(error: Exception, host: str, timeout: float | None, secrets: Sequence[str]) -> EpicrisisError:
    """The error of the tree for one of openai's, of its transport, of JSON or of pydantic, with the usage of one call.

    `secrets`: texts no message may repeat.
    """
    import aiohttp
    import openai

    chain = list(walk_causes(error))
    if refused := next((cause for cause in chain if isinstance(cause, NetworkRefused)), None):
        return refused
    if (refusal := read_error_response(error)) is not None:
        return map_error_response(refusal, host, secrets, begun=not isinstance(error, openai.APIStatusError))
    if any(isinstance(cause, ssl.SSLError) for cause in chain):
        message = f"{host} cannot prove who it is (TLS): check the URL, or point SSL_CERT_FILE to its authority"
        return EndpointRejected(message, usage=FAILED_CALL)
    if any(isinstance(cause, (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)) for cause in chain):
        message = f"nothing answers at {host}: is the server running? name another with --model"
        return EndpointUnreachable(message, usage=FAILED_CALL)
    if any(isinstance(cause, TimeoutError) for cause in chain):
        within = f" in {timeout:g} s" if timeout else ""
        message = f"no answer from {host}{within}: is it overloaded? raise timeout_seconds"
        return EndpointTimeout(message, usage=UNKNOWN_USAGE)
    if isinstance(error, (openai.APIConnectionError, ExceptionGroup)):
        return EndpointUnreachable(f"{host} broke off the connection: try again, or see its log", usage=UNKNOWN_USAGE)
    if isinstance(error, openai.OpenAIError):
        message = f"{host} cannot be asked: no credentials were found, set those of AWS, or api_key_file"
        return EndpointRejected(message, usage=FAILED_CALL)
    message = f"{host} answers with something that is no chat reply: is its URL right (does it end in /v1)?"
    return ReplyInvalid(message, usage=UNKNOWN_USAGE)


def map_error_response(refusal: ErrorResponse, host: str, secrets: Sequence[str], *, begun: bool = False) -> ChatError:
    """By what the server says and its status. `begun`: it had begun to answer."""
    error = _by_status(refusal, host, _quotable(refusal.said, secrets))
    unsure = begun or refusal.status is None or refusal.status in _GATEWAY_TIMEOUTS
    error.usage = UNKNOWN_USAGE if unsure else FAILED_CALL
    if isinstance(error, EndpointBusy):
        error.retry_after = read_retry_after(refusal.headers, refusal.said, limited=refusal.status == 429)
    return error


def _by_status(refusal: ErrorResponse, host: str, reason: str) -> ChatError:
    status = refusal.status
    if is_overflow(refusal):
        return ContextOverflow(
            f"the prompt, with room for its reply, does not fit the window of the model at {host}"
            f"{_counts(refusal.body)}: use fewer documents (-k), smaller partitions, or a model with a larger window"
        )
    if _is_filtered(refusal.body):
        return EndpointRejected(f"the content filter of {host} refuses the prompt: use another model, or reword it")
    if refusal.body.get("code") == "insufficient_quota":
        return EndpointRejected(f"the account at {host} has nothing left to spend ({status}): see its billing")
    if status == 429:
        return EndpointBusy(f"{host} takes no more calls for now (429){reason}: lower the concurrency or wait")
    if status is None or (status >= 500 and status not in _NOT_THERE) or status == 408:
        return EndpointBusy(f"{host} failed ({status or 'within the reply'}){reason}: try again, or see its log")
    if status in (401, 403):
        return EndpointRejected(
            f"{host} refuses the key ({status}): check the variable that api_key_env names, or api_key_file"
        )
    if status == 404:
        return EndpointRejected(f"{host} knows no such model or path (404){reason}: check the URL and the model's name")
    if status < 400:
        return EndpointRejected(f"{host} sends calls on{_place(refusal.headers)} ({status}): name that address")
    return EndpointRejected(f"{host} refuses the request ({status}){reason}: check the model's name and parameters")


def is_overflow(refusal: ErrorResponse) -> bool:
    """Whether the prompt is too long; parameters are often named in the same breath (`max_tokens` is too large)."""
    if refusal.body.get("type") in _OVERFLOW_CODES or refusal.body.get("code") in _OVERFLOW_CODES:
        return True
    if refusal.status == 413:
        return True
    return refusal.status in (400, 422) and _OVERFLOW_WORDS.search(refusal.said) is not None


def _is_filtered(body: Mapping[str, Any]) -> bool:
    inner = body.get("innererror")
    return body.get("code") in _FILTER_CODES or (isinstance(inner, dict) and inner.get("code") in _FILTER_CODES)


def _counts(body: Mapping[str, Any]) -> str:
    prompt, window = body.get("n_prompt_tokens"), body.get("n_ctx")
    return f" ({prompt} tokens, the window holds {window})" if _number(prompt) and _number(window) else ""


def _place(headers: Mapping[str, str]) -> str:
    try:
        parts = urlsplit(headers.get("location", ""))
        return f" to {parts.scheme}://{parts.hostname}" if parts.hostname else " to another address"
    except ValueError:
        return " to another address"


def _number(value: object) -> int | None:
    return int(value) if isinstance(value, (int, str)) and re.fullmatch(r"\d{1,9}", str(value), re.ASCII) else None


def _quotable(said: str, secrets: Sequence[str]) -> str:
    """`: what the server says`, one line, or nothing where it is markup, escaped, or repeats a secret."""
    # A secret may begin where the quotation ends.
    line = " ".join(said.split())[: _QUOTED + _ECHO]
    windows = [line[start : start + _ECHO] for start in range(max(1, len(line) - _ECHO + 1))]
    echoes = any(
        (4 <= len(secret) <= _ECHO and secret in line) or any(window in secret for window in windows)
        for secret in (" ".join(secret.split()) for secret in secrets)
    )
    unreadable = "<" in line or "\\u" in line or not line.isprintable()
    return "" if not line or unreadable or echoes else f": {line[:_QUOTED]}"


def walk_causes(error: BaseException) -> Iterator[BaseException]:
    """The error and all that caused it, groups opened: the guard's refusal comes wrapped in the client's errors."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        cause = waiting.pop()
        if cause is None or id(cause) in seen:
            continue
        seen.add(id(cause))
        yield cause
        waiting += [cause.__cause__, cause.__context__]
        if isinstance(cause, BaseExceptionGroup):
            waiting += cause.exceptions
