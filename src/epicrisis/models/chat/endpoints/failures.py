"""Errors of a chat call, mapped to the package's own exceptions, and the wait an endpoint asks for.

Messages quote the server only if its words repeat neither the prompt nor a key. Every exception carries the usage of
its call: if tokens may have been computed without a report, they are uncounted and their cost is unknown.
"""

from __future__ import annotations

import math
import re
import ssl
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

from epicrisis.core.answers import Usage
from epicrisis.core.errors import (
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
from epicrisis.models.chat.call_costs import UNKNOWN_USAGE
from epicrisis.settings.model_services import find_service

FAILED_CALL = Usage(calls=1, failed_calls=1)
"""The usage of a call that the endpoint certainly did not process."""
_OVERFLOW_CODES = (
    *("exceed_context_size_error", "context_length_exceeded", "context_window_exceeded", "prompt_too_long"),
    *("model_max_prompt_tokens_exceeded", "string_above_max_length", "input_too_long"),
)
_OVERFLOW_WORDS = re.compile(
    r"maximum (?:context|model) length|context (?:size|window|length)|(?:prompt|input) is too long|input token count"
    r"|longer than the model|reduce the length",
    re.IGNORECASE,
)
_PROMPT = (
    r"\b(?:prompt|inputs?|context|messages|conversation|history|(?<!stop )sequence|request|tokens?|n_ctx"
    r"|max_(?:seq_len|num_tokens|input_len|model_len|kv_size|position_embeddings|total_tokens))\b"
)
_EXCESS = (
    r"(?:exceed(?:s|ed|ing)?|too (?:long|large|big|many)|(?:longer|larger|greater|more|bigger) than"
    r"|supports only|only supports|(?:do(?:es)? not|doesn't|don't|cannot|can't|will not|won't) fit)\b"
)
_EXCESS_WORDS = re.compile(
    rf"{_PROMPT}.{{0,80}}?\b{_EXCESS}|\b{_EXCESS}.{{0,40}}?{_PROMPT}"
    # xAI, TensorRT-LLM; LiteLLM; DashScope; text generation inference
    r"|maximum (?:prompt|input|sequence) length|context ?window ?exceeded|range of (?:input|prompt) length"
    r"|inputs`? tokens \+|inputs`? must have less than",
    re.IGNORECASE,
)
"""Words that say that a prompt is too long, whatever the status."""
_OTHER_LIMITS = re.compile(
    r"rate[ _-]?limit|quota|per (?:second|minute|hour|day|month)|\b[rt]p[mhd]\b|concurren|input should"
    r"|\b(?:time limit|time-?out|timed out|deadline|seconds)\b"
    r"|\b(?:images?|audio|videos?|files?|tools?|body|headers?|temperature|top_\w{1,9})\b",
    re.IGNORECASE,
)
_OUTPUT_TOKENS = re.compile(
    r"\bmax_(?:new_|output_|completion_)?tokens\b|\b(?:output|completion|new) tokens\b", re.IGNORECASE
)
_FILTER_CODES = ("content_filter", "content_policy_violation", "ResponsibleAIPolicyViolation")
_GATEWAY_TIMEOUTS = (408, 504, 524)
"""A gateway gave up; the model behind it may still be working."""
_PERMANENT_SERVER_ERRORS = (501, 505)
"""Status codes of 500 and above that a second try does not change."""
_MAX_QUOTE = 200
_ECHO_LENGTH = 16
"""A server's message is not quoted if it shares this many characters with a secret."""
_MAX_MESSAGE = 10_000
"""Characters of a server's message that are read. Its subject is in the first of them."""


@dataclass(frozen=True, slots=True)
class ErrorResponse:
    """A server's refusal of a call. `status` is None if neither the response nor its body has one."""

    status: int | None
    body: Mapping[str, Any]
    message: str
    headers: Mapping[str, str] = field(default_factory=dict)


class ErrorInReply(ValueError):
    """An error object in the place of a reply or of a stream's event. Its text may repeat the prompt."""

    def __init__(self, body: object) -> None:
        super().__init__("an error within a reply")
        self.body = body


class RefusedCall(Exception):
    """A response of a server that is no success. The words of the server may repeat the prompt."""

    def __init__(self, response: ErrorResponse) -> None:
        super().__init__("a refused call")
        self.response = response


class CredentialsMissing(Exception):
    """No credentials of AWS were found, or they could not be read."""


def get_foreign_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions of a connection and of parsing. Several failed addresses raise a group."""
    import httpx2

    return (
        RefusedCall,
        CredentialsMissing,
        httpx2.HTTPError,
        httpx2.InvalidURL,
        TimeoutError,
        ValueError,
        RecursionError,
        ExceptionGroup,
    )


def read_error_response(error: Exception) -> ErrorResponse | None:
    """Return the server's refusal that the exception carries, if any."""
    if isinstance(error, RefusedCall):
        return error.response
    return parse_error_body(error.body) if isinstance(error, ErrorInReply) else None


def parse_error_body(
    body: object, status: int | None = None, headers: Mapping[str, str] | None = None
) -> ErrorResponse:
    """Parse the JSON of an error of OpenAI, vLLM, FastAPI (`detail`), Google (a list) or watsonx (`errors`)."""
    headers = headers or {}
    if isinstance(body, list) and body:
        body = body[0]
    if isinstance(body, dict) and isinstance(body.get("error"), dict):
        body = body["error"]
    elif isinstance(body, dict) and isinstance(body.get("errors"), list) and body["errors"]:
        body = body["errors"][0]
    if not isinstance(body, dict):
        return ErrorResponse(status, {}, body[:_MAX_MESSAGE] if isinstance(body, str) else "", headers)
    message = body.get("message") or body.get("detail") or body.get("error") or ""
    return ErrorResponse(status or _parse_number(body.get("code")), body, str(message)[:_MAX_MESSAGE], headers)


def map_error(error: Exception, host: str, timeout: float | None, secrets: Sequence[str]) -> EpicrisisError:
    """Return the package's exception for one of `get_foreign_errors`. No message repeats one of `secrets`."""
    import httpx2

    causes = list(walk_causes(error))

    def is_caused_by(*kinds: type[BaseException]) -> bool:
        return any(isinstance(cause, kinds) for cause in causes)

    for cause in causes:
        if isinstance(cause, NetworkRefused):
            return cause
    if (refusal := read_error_response(error)) is not None:
        return map_error_response(refusal, host, secrets, partial=isinstance(error, ErrorInReply))
    if is_caused_by(ssl.SSLError):
        message = f"{host} failed the TLS check: correct the URL, or set SSL_CERT_FILE to its certificate authority"
        return EndpointRejected(message, usage=FAILED_CALL)
    if isinstance(error, CredentialsMissing):
        message = f"no credentials were found for {host}: set those of AWS, or api_key_file"
        return EndpointRejected(message, usage=FAILED_CALL)
    if is_caused_by(httpx2.ConnectError, httpx2.ConnectTimeout):
        message = f"nothing answers at {host}: start the server, or choose another endpoint with --model"
        return EndpointUnreachable(message, usage=FAILED_CALL)
    if is_caused_by(TimeoutError, httpx2.TimeoutException):
        within = f" in {timeout:g} s" if timeout else ""
        message = f"no answer from {host}{within}: is it overloaded? raise timeout_seconds"
        return EndpointTimeout(message, usage=UNKNOWN_USAGE)
    if isinstance(error, (httpx2.HTTPError, ExceptionGroup)):
        message = f"{host} broke off the connection: try again, or see its log"
        return EndpointUnreachable(message, usage=UNKNOWN_USAGE)
    message = f"{host} did not send a chat reply: is its URL right (does it end in /v1)?"
    return ReplyInvalid(message, usage=UNKNOWN_USAGE)


def map_error_response(
    response: ErrorResponse, host: str, secrets: Sequence[str], *, partial: bool = False
) -> ChatError:
    """Return the exception for a server's refusal. `partial`: the server had already begun its reply."""
    error = _map_status(response, host, _quote(response.message, secrets))
    uncertain = partial or response.status is None or response.status in _GATEWAY_TIMEOUTS
    error.usage = UNKNOWN_USAGE if uncertain else FAILED_CALL
    if isinstance(error, EndpointBusy):
        error.retry_after = read_retry_after(response.headers, response.message, limited=response.status == 429)
    return error


def _map_status(response: ErrorResponse, host: str, reason: str) -> ChatError:
    status = response.status
    if is_overflow(response):
        prompt, window = response.body.get("n_prompt_tokens"), response.body.get("n_ctx")
        has_counts = _parse_number(prompt) and _parse_number(window)
        counts = f" ({prompt} tokens, the window holds {window})" if has_counts else ""
        return ContextOverflow(
            f"prompt and reply do not fit the context window of the model at {host}{counts}: "
            "use fewer documents (-k), smaller partitions, or a model with a larger window"
        )
    inner = response.body.get("innererror")
    codes = (response.body.get("code"), inner.get("code") if isinstance(inner, dict) else None)
    if any(code in _FILTER_CODES for code in codes):
        return EndpointRejected(f"the content filter of {host} rejects the prompt: use another model, or reword it")
    if response.body.get("code") == "insufficient_quota":
        return _reject_all(f"the account at {host} has no credit left ({status}): check its billing")
    if status == 429:
        return EndpointBusy(f"{host} accepts no more calls for now (429){reason}: lower the concurrency or wait")
    if status is None or (status >= 500 and status not in _PERMANENT_SERVER_ERRORS) or status == 408:
        return EndpointBusy(f"{host} failed ({status or 'within the reply'}){reason}: try again, or see its log")
    if status in (401, 403):
        service = find_service(host)
        key_name = f"{service.key_variable}, " if service is not None else ""
        error = _reject_all(
            f"{host} rejects the key ({status}): check {key_name}the variable that api_key_env names, or api_key_file"
        )
        # A key may be valid without the right to list models, for which services return 403.
        error.rejects_key = status == 401
        return error
    if status == 404:
        return _reject_all(f"{host} has no such model or path (404){reason}: check the URL and the model's name")
    if status < 400:
        address = "another address"
        with suppress(ValueError):
            parts = urlsplit(response.headers.get("location", ""))
            address = f"{parts.scheme}://{parts.hostname}" if parts.hostname else address
        return _reject_all(f"{host} redirects to {address} ({status}): use that address")
    return EndpointRejected(f"{host} rejects the request ({status}){reason}: check the model's name and parameters")


def _reject_all(message: str) -> EndpointRejected:
    """Return the error of an endpoint that rejects every request."""
    error = EndpointRejected(message)
    error.rejects_all = True
    return error


def is_overflow(response: ErrorResponse) -> bool:
    """Return whether the prompt is too long. Such messages often name a parameter too (`max_tokens` is too large)."""
    if response.body.get("type") in _OVERFLOW_CODES or response.body.get("code") in _OVERFLOW_CODES:
        return True
    if response.status == 413:
        return True
    if response.status in (400, 422) and _OVERFLOW_WORDS.search(response.message):
        return True
    # Some servers refuse such a prompt as if they had failed, or within the reply.
    may_refuse = response.status is None or response.status in (400, 422, 424) or response.status >= 500
    if not may_refuse or _OTHER_LIMITS.search(response.message):
        return False
    return _EXCESS_WORDS.search(_OUTPUT_TOKENS.sub(" ", response.message)) is not None


def _parse_number(value: object) -> int | None:
    if isinstance(value, (int, str)) and re.fullmatch(r"\d{1,9}", str(value), re.ASCII):
        return int(value)
    return None


def _quote(message: str, secrets: Sequence[str]) -> str:
    """Return `: MESSAGE` on one line, or nothing if it is markup, escaped, or repeats a secret."""
    # A secret may begin at the end of the quotation.
    line = " ".join(message.split())[: _MAX_QUOTE + _ECHO_LENGTH]
    if not line or "<" in line or "\\u" in line or not line.isprintable():
        return ""
    ends = range(_ECHO_LENGTH, max(_ECHO_LENGTH, len(line)) + 1)
    for secret in (" ".join(secret.split()) for secret in secrets):
        if 4 <= len(secret) <= _ECHO_LENGTH and secret in line:
            return ""
        if any(line[end - _ECHO_LENGTH : end] in secret for end in ends):
            return ""
    return f": {line[:_MAX_QUOTE].rstrip('.')}"


def walk_causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the exception, its causes and contexts, and the members of groups."""
    visited: set[int] = set()
    queue: list[BaseException | None] = [error]
    while queue:
        cause = queue.pop()
        if cause is None or id(cause) in visited:
            continue
        visited.add(id(cause))
        yield cause
        queue += [cause.__cause__, cause.__context__]
        if isinstance(cause, BaseExceptionGroup):
            queue += cause.exceptions


_NUMBER = r"\d{1,400}+(?:\.\d{1,400}+)?"
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION_PART = re.compile(
    rf"(?<![\d.])({_NUMBER})\s*+(ms|milliseconds?|s|seconds?|secs?|m|minutes?|mins?|h|hours?|d|days?)(?![a-z])", re.I
)
_RETRY_HINT = re.compile(rf"\b(?:again|retry)\s++(?:in|after)\s++((?:{_NUMBER}\s*+[a-z]++[\s,]*+)++)", re.IGNORECASE)
_RATE_LIMITS = (
    ("x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"),
    ("x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"),
)


def read_retry_after(headers: Mapping[str, str], message: str = "", *, limited: bool = True) -> float | None:
    """Return the seconds to wait by the headers and message of a refusal, or None. There is no upper limit.

    The first readable of these counts: `retry-after-ms`; `retry-after` in seconds, or as a date (0 if it is past); "try
    again in 1.2s" in the message; for a `limited` call, the reset of the exhausted rate limit, else the earliest reset.
    """
    retry_after = headers.get("retry-after", "")
    waits = [
        _parse_scaled(headers.get("retry-after-ms", ""), 0.001),
        _parse_scaled(retry_after, 1.0),
        _parse_date(retry_after, headers.get("date", "")),
    ]
    if hint := _RETRY_HINT.search(message):
        waits.append(_sum_parts(_DURATION_PART.findall(hint[1])))
    if limited:
        # Endpoints send these headers with every reply, failures included.
        resets, exhausted = [], []
        for remaining_header, reset_header in _RATE_LIMITS:
            reset = headers.get(reset_header, "")
            # `6m0s`, `120ms`, or a number of seconds
            is_duration = re.fullmatch(rf"(?:{_NUMBER}(?:ms|[smhd]))+", reset.strip(), re.ASCII)
            seconds = _sum_parts(_DURATION_PART.findall(reset)) if is_duration else _parse_scaled(reset, 1.0)
            if seconds is not None:
                resets.append(seconds)
                if headers.get(remaining_header, "").strip() == "0":
                    exhausted.append(seconds)
        waits.append(max(exhausted) if exhausted else min(resets, default=None))
    return next((wait for wait in waits if wait is not None), None)


def _parse_scaled(text: str, unit: float) -> float | None:
    return _finite(float(text.strip()) * unit) if re.fullmatch(_NUMBER, text.strip(), re.ASCII) else None


def _parse_date(text: str, now: str) -> float | None:
    """Return the seconds until a date by the server's clock, if `now` tells its time, else by this machine's."""
    try:
        end = parsedate_to_datetime(text).timestamp()
    except (TypeError, ValueError, OverflowError):
        return None
    try:
        start = parsedate_to_datetime(now).timestamp()
    except (TypeError, ValueError, OverflowError):
        start = time.time()
    return max(0.0, end - start)


def _sum_parts(parts: Iterable[tuple[str, str]]) -> float | None:
    amounts = []
    for number, word in parts:
        unit = "ms" if word.lower().startswith(("ms", "milli")) else word[0].lower()
        amounts.append(float(number) * _UNITS[unit])
    return _finite(sum(amounts)) if amounts else None


def _finite(seconds: float) -> float | None:
    return seconds if math.isfinite(seconds) else None
