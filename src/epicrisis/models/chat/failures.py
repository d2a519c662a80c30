"""Foreign errors of a chat call, mapped to the tree of errors: the one table.

Messages name the host and the cure. What a server says is passed on only where it repeats neither the prompt nor a
key.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

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

_OVERFLOW_CODES = ("exceed_context_size_error", "context_length_exceeded")
_OVERFLOW_WORDS = re.compile(r"maximum context length|maximum model length|context size|context window", re.IGNORECASE)
_SCHEMA_WORDS = re.compile(r"response_format|json_schema|json schema|guided|grammar", re.IGNORECASE)

_ECHO = 16
"""A server's words that share this many characters with the prompt are not passed on."""


def chat_error(error: Exception, host: str, timeout: float | None, secrets: Sequence[str]) -> EpicrisisError:
    """The error of the tree for one of openai's, of JSON or of pydantic. `secrets`: texts no message may repeat.

    A group comes from connecting to several addresses of a host.
    """
    import httpx2
    import openai

    if refused := next((cause for cause in causes(error) if isinstance(cause, NetworkRefused)), None):
        return refused
    not_even_connected = any(isinstance(cause, httpx2.ConnectTimeout) for cause in causes(error))
    if isinstance(error, (openai.APITimeoutError, TimeoutError)) and not not_even_connected:
        within = f" in {timeout:g} s" if timeout else ""
        return EndpointTimeout(f"no answer from {host}{within}: is it overloaded? raise timeout_seconds")
    if isinstance(error, (openai.APIConnectionError, ExceptionGroup)):
        return EndpointUnreachable(f"nothing answers at {host}: is the server running? name another with --model")
    if isinstance(error, openai.APIError):
        return _status_error(error, host, secrets)
    return ReplyInvalid(f"{host} answers with something that is no chat reply: is its URL right (does it end in /v1)?")


def refuses_schema(error: Exception) -> bool:
    """Whether the endpoint refuses a request because of its schema, and would take it without."""
    import openai

    status = isinstance(error, (openai.BadRequestError, openai.UnprocessableEntityError))
    return status and _SCHEMA_WORDS.search(_said(error)) is not None


def _status_error(error: Exception, host: str, secrets: Sequence[str]) -> ChatError:
    """By status; an error event within a stream has its status in the body, or none."""
    body = _body(error)
    status = getattr(error, "status_code", None) or _number(body.get("code"))
    said = _said(error)
    if _is_overflow(body, status, said):
        return ContextOverflow(
            f"the prompt does not fit the window of the model at {host}{_counts(body)}: use fewer documents (-k), "
            "smaller partitions, or a model with a larger window"
        )
    reason = _quotable(said, secrets)
    if status == 429:
        return EndpointBusy(f"{host} takes no more calls for now (429){reason}: lower the concurrency or wait")
    if status is None or status >= 500:
        return EndpointBusy(f"{host} failed ({status or 'within the stream'}){reason}: try again, or see its log")
    if status in (401, 403):
        return EndpointRejected(f"{host} refuses the key ({status}): check the variable that api_key_env names")
    if status == 404:
        return EndpointRejected(f"{host} knows no such model or path (404){reason}: check the URL and the model's name")
    return EndpointRejected(f"{host} refuses the request ({status}){reason}: check the model's name and parameters")


def _is_overflow(body: dict[str, object], status: int | None, said: str) -> bool:
    if body.get("type") in _OVERFLOW_CODES or body.get("code") in _OVERFLOW_CODES:
        return True
    return status in (400, 413, 422) and _OVERFLOW_WORDS.search(said) is not None


def _counts(body: dict[str, object]) -> str:
    prompt, window = body.get("n_prompt_tokens"), body.get("n_ctx")
    return f" ({prompt} tokens, the window holds {window})" if prompt and window else ""


def _body(error: Exception) -> dict[str, object]:
    body = getattr(error, "body", None)
    return body if isinstance(body, dict) else {}


def _said(error: Exception) -> str:
    body = _body(error)
    return str(body.get("message") or body.get("detail") or getattr(error, "message", ""))


def _number(value: object) -> int | None:
    return int(value) if isinstance(value, (int, str)) and str(value).isdecimal() else None


def _quotable(said: str, secrets: Sequence[str]) -> str:
    """`: what the server says`, one line, or nothing where it is markup or repeats a secret."""
    line = " ".join(said.split())[:200]
    windows = [line[start : start + _ECHO] for start in range(max(1, len(line) - _ECHO + 1))]
    echoes = any(
        (4 <= len(secret) <= _ECHO and secret in line) or any(window in secret for window in windows)
        for secret in (" ".join(secret.split()) for secret in secrets)
    )
    return "" if not line or "<" in line or echoes else f": {line}"


def causes(error: BaseException) -> Iterator[BaseException]:
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
