"""One table from classes of errors to HTTP status codes, and the body of an error (RFC 9457, problem details).

    {"title": "The request cannot be processed", "status": 422, "kind": "InputError", "detail": "...", "cure": "..."}

Bodies repeat no input: it may be a question about a patient.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from epicrisis import errors
from epicrisis.answers import Failure
from epicrisis.errors import EpicrisisError
from epicrisis.printable import printable

MEDIA_TYPE = "application/problem+json"
MAX_PROBLEMS = 10
"""The most faults of a body that one reply lists."""


class RequestError(EpicrisisError):
    """The server refuses a request. `retry_after`: seconds after which it may succeed."""

    retry_after: int | None = None

    def __init__(self, message: str, *, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class NotFound(RequestError):
    """The server has no such library, document, passage, patient, answer, job or run, or hides it from this user."""


class KeyRequired(RequestError):
    """The request has no key, or one of nobody."""


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
    """The file of users is damaged, so nobody is let in."""


class ShuttingDown(RequestError):
    """The server finishes the running questions and accepts no new ones."""


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
    errors.StorageError: Status(507, "The disk of the server is full or read-only", _ASK_OPERATOR),
    errors.ScopeViolation: Status(500, "A document outside the scope was stopped", _ASK_OPERATOR),
    errors.BudgetExceeded: Status(503, "The budget of the server is spent", _ASK_OPERATOR),
    errors.RunStopped: Status(503, "Too many questions failed", _ASK_OPERATOR),
    errors.ChatError: Status(502, "The chat model failed", _ASK_OPERATOR),
    errors.EndpointTimeout: Status(504, "The chat model did not answer in time", _TRY_LATER),
    errors.EndpointBusy: Status(503, "The chat model is busy", _TRY_LATER),
    errors.ContextOverflow: Status(422, "The prompt does not fit the chat model", "Reduce k, or shorten the question."),
    NotFound: Status(404, "Not found", "Check the id. GET /api/v1/libraries lists the libraries."),
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
    UnsupportedParameter: Status(400, "The parameter is not supported", "Leave the parameter out."),
    BodyTooLarge: Status(413, "The body is too large", "Send a shorter body."),
    BodyTooSlow: Status(408, "The body arrived too slowly", "Send the body at once."),
    TooManyRequests: Status(429, "Too many requests", "Wait for the seconds in Retry-After."),
    ServerBusy: Status(503, "The server is busy", "Wait for the seconds in Retry-After."),
    UsersUnreadable: Status(503, "The users cannot be read", _ASK_OPERATOR),
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
        return {
            "title": self.title,
            "status": self.status,
            "kind": self.kind,
            "detail": self.detail,
            "cure": self.cure,
        }


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
    """Return the problem body of an error. `hide` removes paths of the server from its message."""
    status = find_status(type(error))
    retry_after = getattr(error, "retry_after", None)
    seconds = None if retry_after is None else max(1, round(retry_after))
    return Problem(status.title, status.code, type(error).__name__, hide(error.message), status.cure, seconds)


def describe_failure(failure: Failure | None, hide: Callable[[str], str] = str) -> Problem:
    """Return the problem body of a failed answer, by the class named in its failure."""
    kind = getattr(errors, failure.kind, EpicrisisError) if failure is not None else EpicrisisError
    if not (isinstance(kind, type) and issubclass(kind, EpicrisisError)):
        kind = EpicrisisError
    status = find_status(kind)
    message = "the answer failed without a reason" if failure is None else failure.message
    return Problem(status.title, status.code, kind.__name__, hide(printable(message)), status.cure)


def describe_validation(problems: Sequence[Mapping[str, Any]]) -> Problem:
    """Return the problem body of a request that does not fit its schema, without the values of the request."""
    if any(problem["type"] == "json_invalid" for problem in problems):
        status = find_status(BodyRefused)
        return Problem(status.title, status.code, BodyRefused.__name__, "the body is not valid JSON", status.cure)
    faults: list[str] = []
    for problem in problems[:MAX_PROBLEMS]:
        place = ".".join(map(str, problem["loc"][1:])) or str(problem["loc"][0])
        faults.append(f"{place}: {problem['msg']}")
    status = find_status(errors.InputError)
    detail = printable("; ".join(faults))
    return Problem(status.title, status.code, errors.InputError.__name__, detail, status.cure)


def send_problem(problem: Problem, **more: Any) -> JSONResponse:
    """Return the response of a problem. `more` are further members of its body."""
    headers = {"Cache-Control": "no-store"}
    if problem.retry_after is not None:
        headers["Retry-After"] = str(problem.retry_after)
    if problem.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse(
        {**problem.to_json(), **more}, status_code=problem.status, headers=headers, media_type=MEDIA_TYPE
    )


def add_error_handlers(app: FastAPI, hide: Callable[[str], str]) -> None:
    """Make every error of the application a problem body. `hide` removes paths of the server from messages."""

    async def on_error(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, EpicrisisError)
        return send_problem(describe_error(error, hide))

    async def on_invalid(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        return send_problem(describe_validation(error.errors()))

    async def on_http(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        title = "Not found" if error.status_code == 404 else "The request is refused"
        cure = "GET /openapi.json lists the paths and methods."
        problem = Problem(title, error.status_code, "RequestError", printable(str(error.detail)), cure)
        response = send_problem(problem)
        response.headers.update(error.headers or {})
        return response

    app.add_exception_handler(EpicrisisError, on_error)
    app.add_exception_handler(RequestValidationError, on_invalid)
    app.add_exception_handler(HTTPException, on_http)
