"""Errors in the form of OpenAI's, for the clients of the OpenAI-compatible endpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.responses import JSONResponse, Response

from epicrisis.server.errors import Problem

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
    """Return the response of an error."""
    headers = {"Cache-Control": "no-store"}
    if problem.retry_after is not None:
        headers["Retry-After"] = str(problem.retry_after)
    if problem.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse(to_openai_error(problem, parameter), status_code=problem.status, headers=headers)
