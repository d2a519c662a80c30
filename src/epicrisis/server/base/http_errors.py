"""One table from classes of errors to HTTP status codes, and the body of an error (RFC 9457, problem details).

    {"title": "The request cannot be processed", "status": 422, "kind": "InputError", "detail": "...", "cure": "..."}

Bodies repeat no input: it may be a question about a patient.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from fastapi.responses import JSONResponse

from epicrisis.core import errors
from epicrisis.core.answers import Failure
from epicrisis.core.errors import EpicrisisError
from epicrisis.core.printable import printable
from epicrisis.server.base.error_log import is_logged, log_error
from epicrisis.server.base.hidden_paths import hide_file_paths

MEDIA_TYPE = "application/problem+json"
MAX_PROBLEMS = 10
"""The most faults of a body that one reply lists."""
MAX_NAME = 60
"""The most characters of the name of a field in a reply. An unknown field has the name that the client gave it."""
_FORM = re.compile(r"\[|^(?:constrained-)?(?:str|int|float|bool)$")
"""A part of a place that names one of several forms of a field, `list[constrained-str]`, and no field."""
_OTHER_FORMS = frozenset({"dict_type", "list_type", "string_type", "model_type", "model_attributes_type"})
_PLAIN_WORDS = {
    "missing": "is missing",
    "extra_forbidden": "the request has no such field",
    "model_attributes_type": "must be a JSON object",
    "model_type": "must be a JSON object",
    "dict_type": "must be a JSON object",
    "list_type": "must be a list",
    "tuple_type": "must be a list",
    "string_type": "must be a text",
}


class RequestError(EpicrisisError):
    """The server refuses a request. `retry_after`: seconds after which it may succeed."""

    retry_after: int | None = None

    def __init__(self, message: str, *, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class NotFound(RequestError):
    """The server has no such library, document, passage, patient, answer, job or run, or hides it from this user."""


class AnswerRemoved(RequestError):
    """The server removed the answer for its age, or for newer ones."""


class KeyRequired(RequestError):
    """The request has no key, or an unknown one."""


class AccessDenied(RequestError):
    """The role of the user does not allow this."""


class TokenRefused(KeyRequired):
    """The access token is expired, forged, or meant for another server."""


class SignInRefused(RequestError):
    """A sign-in with the identity provider failed, or its answer was not meant for this browser."""


class NoRole(AccessDenied):
    """The identity provider signed the user in, and gives no role of this server."""


class ProviderFailed(RequestError):
    """The identity provider cannot be reached, or answers with something else than OpenID Connect."""


class HostRefused(RequestError):
    """The request names a host or an origin that is not this server (DNS rebinding)."""


class BodyRefused(RequestError):
    """The body is no JSON object of this form."""


class UploadRefused(RequestError):
    """The body of an upload is no form with files."""


class UnsupportedParameter(RequestError):
    """The OpenAI endpoint does not do what a parameter asks for. `parameter` is its name, if it has one."""

    def __init__(self, message: str, parameter: str | None = None) -> None:
        super().__init__(message)
        self.parameter = parameter


class BodyTooLarge(RequestError):
    """The body exceeds the limit."""


class BodyTooSlow(RequestError):
    """The body did not arrive in time."""


class TooManyRequests(RequestError):
    """The user exceeds a limit of requests or of running questions."""


class ServerBusy(RequestError):
    """The server answers as many questions as it can."""


class UsersUnreadable(RequestError, exit_code=2):
    """The file of users is damaged, so all requests are refused."""


class ShuttingDown(RequestError):
    """The server finishes the running questions and accepts no new ones."""


class StateUnavailable(RequestError, exit_code=2):
    """The database with users, sessions and stored work cannot be used, without `retry_after` until it is mended."""


class StateUncertain(StateUnavailable, exit_code=2):
    """The connection to the database broke while a change was confirmed: it may be stored, or not."""


class Status(NamedTuple):
    """The HTTP status of a class of errors, with a title and what to do about it."""

    code: int
    title: str
    cure: str


_ASK_OPERATOR = "Tell the person who runs the server; its standard error has the details."
_TRY_LATER = "Send the same request again later."

STATUS: Mapping[type[EpicrisisError], Status] = {
    EpicrisisError: Status(500, "The server failed", _ASK_OPERATOR),
    errors.UserError: Status(422, "The request cannot be processed", "Change the request as the detail says."),
    errors.LibraryError: Status(503, "The library cannot be used", _ASK_OPERATOR),
    errors.LibraryBusy: Status(503, "The library is being changed", _TRY_LATER),
    errors.ModelMissing: Status(503, "A model is not installed", _ASK_OPERATOR),
    errors.ModelFileInvalid: Status(503, "A model cannot be used", _ASK_OPERATOR),
    errors.NetworkRefused: Status(503, "The model is on another machine", _ASK_OPERATOR),
    errors.StorageError: Status(507, "The disk or the database of the server cannot be used", _ASK_OPERATOR),
    errors.ScopeViolation: Status(500, "A document outside the scope was stopped", _ASK_OPERATOR),
    errors.BudgetExceeded: Status(503, "The budget of the server is spent", _ASK_OPERATOR),
    errors.RunStopped: Status(503, "Too many questions failed", _ASK_OPERATOR),
    errors.ChatError: Status(502, "The chat model failed", _ASK_OPERATOR),
    errors.EndpointTimeout: Status(504, "The chat model did not answer in time", _TRY_LATER),
    errors.EndpointBusy: Status(503, "The chat model is busy", _TRY_LATER),
    errors.ContextOverflow: Status(422, "The prompt does not fit the chat model", "Reduce k, or shorten the question."),
    NotFound: Status(404, "Not found", "Check the id. GET /api/v1/libraries lists the libraries."),
    AnswerRemoved: Status(410, "The answer was removed", "Ask the question again, and export answers to keep them."),
    KeyRequired: Status(401, "A key is required", "Send the header Authorization: Bearer KEY."),
    AccessDenied: Status(403, "Your role does not allow this", "Ask an administrator of the server for the role."),
    TokenRefused: Status(401, "The access token is refused", "Ask the identity provider for a new token."),
    SignInRefused: Status(
        403, "You are not signed in", "Sign in again, and tell the person who runs the server if it fails again."
    ),
    NoRole: Status(
        403, "Your account has no role here", "Ask those who manage accounts in your hospital for a role of epicrisis."
    ),
    ProviderFailed: Status(503, "The identity provider cannot be used", _ASK_OPERATOR),
    HostRefused: Status(421, "Another host", "Use the address that the server printed, or start it with --host-name."),
    BodyRefused: Status(400, "The body cannot be read", "Send a JSON object, as GET /openapi.json describes."),
    UploadRefused: Status(
        400, "The upload cannot be read", "Send the files as multipart/form-data, in fields with the name files."
    ),
    UnsupportedParameter: Status(400, "The parameter is not supported", "Leave it out."),
    BodyTooLarge: Status(413, "The body is too large", "Send a shorter body."),
    BodyTooSlow: Status(408, "The body arrived too slowly", "Send the body at once."),
    TooManyRequests: Status(429, "Too many requests", "Wait for the seconds in Retry-After."),
    ServerBusy: Status(503, "The server is busy", "Wait for the seconds in Retry-After."),
    UsersUnreadable: Status(503, "The users cannot be read", _ASK_OPERATOR),
    StateUnavailable: Status(
        503, "The database of the server cannot be used", "Wait for the seconds in Retry-After, if it is given."
    ),
    # Proxies repeat a request after 503, which would do the same twice.
    StateUncertain: Status(
        504, "The change may be stored, or not", "Look whether it is there, and repeat the request only if it is not."
    ),
    ShuttingDown: Status(503, "The server is stopping", _TRY_LATER),
}
"""The only table of status codes. A class without an entry has that of its nearest base."""


@dataclass(frozen=True, slots=True)
class Problem:
    """The body of an error."""

    title: str
    status: int
    kind: str
    """The class of the error."""
    detail: str
    """What failed and why, in one printable line."""
    cure: str
    retry_after: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the body as JSON data."""
        values = asdict(self)
        del values["retry_after"]
        return values


_PROBLEM_CONTENT = {
    MEDIA_TYPE: {
        "schema": {
            "type": "object",
            "required": ["title", "status", "kind", "detail", "cure"],
            "properties": {
                "title": {"type": "string"},
                "status": {"type": "integer"},
                "kind": {"type": "string", "description": "The class of the error."},
                "detail": {"type": "string", "description": "What failed and why."},
                "cure": {"type": "string", "description": "What to do about it."},
            },
        },
        "example": {
            "title": "Not found",
            "status": 404,
            "kind": "NotFound",
            "detail": "no library is called 'trials': GET /api/v1/libraries lists them",
            "cure": "Check the id. GET /api/v1/libraries lists the libraries.",
        },
    }
}
PROBLEM_RESPONSES: Mapping[int | str, dict[str, Any]] = {
    422: {"description": "The request cannot be processed.", "content": _PROBLEM_CONTENT},
    "default": {"description": "A problem (RFC 9457).", "content": _PROBLEM_CONTENT},
}
"""The responses of every route in the OpenAPI description, in addition to its own."""


def find_status(kind: type[EpicrisisError]) -> Status:
    """Return the entry of the table for this class, or of its nearest base."""
    return next(STATUS[base] for base in kind.__mro__ if base in STATUS)


def describe_error(error: EpicrisisError, hide: Callable[[str], str] = str) -> Problem:
    """Return the problem body of an error, and log it if its status is 500 or more.

    `hide` removes paths of the server from its message; paths of files are removed in any case.
    """
    status = find_status(type(error))
    if is_logged(type(error), status.code):
        log_error(type(error).__name__, status.code, error)
    retry_after = getattr(error, "retry_after", None)
    seconds = None if retry_after is None else max(1, round(retry_after))
    message = hide_file_paths(hide(error.message))
    return Problem(status.title, status.code, type(error).__name__, message, status.cure, seconds)


def describe_failure(failure: Failure | None, hide: Callable[[str], str] = str) -> Problem:
    """Return the problem body of a failed answer, by the class named in its failure. `log_failure` logged it."""
    kind = find_failure_class(failure)
    status = find_status(kind)
    message = "the answer failed without a reason" if failure is None else failure.message
    detail = hide_file_paths(hide(printable(message)))
    return Problem(status.title, status.code, kind.__name__, detail, status.cure)


def find_failure_class(failure: Failure | None) -> type[EpicrisisError]:
    """Return the class of errors that a failure names."""
    kind = getattr(errors, failure.kind, EpicrisisError) if failure is not None else EpicrisisError
    return kind if isinstance(kind, type) and issubclass(kind, EpicrisisError) else EpicrisisError


def log_failure(failure: Failure | None) -> None:
    """Log and count a failed answer of any interface."""
    kind = find_failure_class(failure)
    log_error(f"failed answer, {kind.__name__}", find_status(kind).code)


def describe_refusal(code: int, detail: str) -> Problem:
    """Return the problem body of a request without a route, or with an unreadable body."""
    if code == 400:
        return _describe_unreadable()
    title = "Not found" if code == 404 else "The request is refused"
    return Problem(title, code, "RequestError", printable(detail), "GET /openapi.json lists the paths and methods.")


def describe_validation(problems: Sequence[Mapping[str, Any]]) -> Problem:
    """Return the problem body of a request that does not fit its schema, without the values of the request."""
    if any(problem["type"] == "json_invalid" for problem in problems):
        return _describe_unreadable()
    status = find_status(errors.InputError)
    detail = describe_faults(problems, 1)
    return Problem(status.title, status.code, errors.InputError.__name__, detail, status.cure)


def describe_faults(problems: Sequence[Mapping[str, Any]], skip: int = 0) -> str:
    """Return the faults of a body as `FIELD: what is wrong; ...`. The first `skip` parts of a place are left out.

    A field may have several forms (options as a list or as an object). Where its parts have faults, the fault that it
    has another form, or too few parts, is left out.
    """
    faults: dict[tuple[str, str], bool] = {}
    for problem in problems[:MAX_PROBLEMS]:
        parts = [str(part) for part in problem["loc"][skip:]]
        names = [part[:MAX_NAME] for part in parts if not _FORM.search(part)]
        is_form = (len(names) < len(parts) and problem["type"] in _OTHER_FORMS) or problem["type"] == "too_short"
        words = _PLAIN_WORDS.get(problem["type"], problem["msg"].removeprefix("Value error, "))
        faults[".".join(names) or "body", words] = is_form
    exact_places = [place for (place, _), is_form in faults.items() if not is_form]
    lines: list[str] = []
    for (place, words), is_form in faults.items():
        has_own = any(other == place or other.startswith(f"{place}.") for other in exact_places)
        if not (is_form and has_own):
            lines.append(f"{place}: {words}")
    return printable("; ".join(lines))


def _describe_unreadable() -> Problem:
    status = find_status(BodyRefused)
    return Problem(status.title, status.code, BodyRefused.__name__, "the body is not valid JSON", status.cure)


def list_headers(problem: Problem) -> dict[str, str]:
    """Return the headers of the response of a problem in any form."""
    headers = {"Cache-Control": "no-store"}
    if problem.retry_after is not None:
        headers["Retry-After"] = str(problem.retry_after)
    if problem.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return headers


def send_problem(problem: Problem, **members: Any) -> JSONResponse:
    """Return the response of a problem. `members` are further members of its body."""
    body = {**problem.to_json(), **members}
    return JSONResponse(body, problem.status, headers=list_headers(problem), media_type=MEDIA_TYPE)
