"""Send every error of the application in the form that its client reads: a problem, OpenAI's form, or a page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from epicrisis.core.errors import EpicrisisError
from epicrisis.server.base.http_errors import (
    Problem,
    describe_error,
    describe_refusal,
    describe_validation,
    list_headers,
    send_problem,
)

OPENAI_PREFIX = "/v1"
_ERROR_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}

_ERROR_CONTENT = {
    "application/json": {
        "schema": {
            "type": "object",
            "required": ["error"],
            "properties": {
                "error": {
                    "type": "object",
                    "required": ["message", "type", "param", "code"],
                    "properties": {
                        "message": {"type": "string", "description": "What failed, why, and what to do."},
                        "type": {"type": "string"},
                        "param": {"type": ["string", "null"], "description": "The field that is wrong."},
                        "code": {"type": "string", "description": "The class of the error."},
                    },
                }
            },
        },
        "example": {
            "error": {
                "message": "messages: is missing. Change the request as the detail says.",
                "type": "invalid_request_error",
                "param": "messages",
                "code": "InputError",
            }
        },
    }
}
OPENAI_RESPONSES: Mapping[int | str, dict[str, Any]] = {
    422: {"description": "The request cannot be processed.", "content": _ERROR_CONTENT},
    "default": {"description": "An error in OpenAI's form.", "content": _ERROR_CONTENT},
}
"""The errors of every route of the endpoint in the OpenAPI description."""


def to_openai_error(problem: Problem, parameter: str | None = None) -> dict[str, Any]:
    """Return the body of an error as OpenAI writes it, with what to do in its message."""
    kind = "server_error" if problem.status >= 500 else _ERROR_TYPES.get(problem.status, "invalid_request_error")
    detail = problem.detail.rstrip(".")
    return {"error": {"message": f"{detail}. {problem.cure}", "type": kind, "param": parameter, "code": problem.kind}}


def send_openai_error(problem: Problem, parameter: str | None = None) -> Response:
    """Return the response of an error in OpenAI's form."""
    return JSONResponse(to_openai_error(problem, parameter), problem.status, headers=list_headers(problem))


def send_error(path: str, problem: Problem) -> Response:
    """Return the response of an error, in the form that clients of this path read."""
    is_openai = path.startswith(f"{OPENAI_PREFIX}/")
    return send_openai_error(problem) if is_openai else send_problem(problem)


def add_error_handlers(app: FastAPI, hide: Callable[[str], str]) -> None:
    """Make every error of the application a response. `hide` removes paths of the server from messages."""

    async def on_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, EpicrisisError)
        return send_error(request.url.path, describe_error(error, hide))

    async def on_invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return send_error(request.url.path, describe_validation(error.errors()))

    async def on_http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        response = send_error(request.url.path, describe_refusal(error.status_code, str(error.detail)))
        response.headers.update(error.headers or {})
        return response

    app.add_exception_handler(EpicrisisError, on_error)
    app.add_exception_handler(RequestValidationError, on_invalid)
    app.add_exception_handler(HTTPException, on_http)
