"""Send every error of the application in the form that its client reads: a problem, OpenAI's form, or a page."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from epicrisis.core.errors import EpicrisisError
from epicrisis.server.errors import Problem, describe_error, describe_refusal, describe_validation, send_problem
from epicrisis.server.openai_errors import OPENAI_PREFIX, send_openai_error


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
