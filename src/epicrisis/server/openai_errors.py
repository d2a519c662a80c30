"""Errors in the form of OpenAI's, for the clients of the OpenAI-compatible endpoint."""

from __future__ import annotations

from typing import Any

from starlette.responses import JSONResponse, Response

from epicrisis.server.errors import Problem

OPENAI_PREFIX = "/v1"
_ERROR_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


def to_openai_error(problem: Problem, parameter: str | None = None) -> dict[str, Any]:
    """Return the body of an error as OpenAI writes it, with what to do in its message."""
    kind = "server_error" if problem.status >= 500 else _ERROR_TYPES.get(problem.status, "invalid_request_error")
    detail = problem.detail.rstrip(".")
    return {"error": {"message": f"{detail}. {problem.cure}", "type": kind, "param": parameter, "code": problem.kind}}


def send_openai_error(problem: Problem, parameter: str | None = None) -> Response:
    """Return the response of an error."""
    headers = {"Cache-Control": "no-store"}
    if problem.retry_after is not None:
        headers["Retry-After"] = str(problem.retry_after)
    if problem.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse(to_openai_error(problem, parameter), status_code=problem.status, headers=headers)
