"""Routes that answer in HTML: errors are pages in plain words, and htmx gets the part of a page it asks for."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.responses import Response

from epicrisis.core.errors import EpicrisisError
from epicrisis.server.base.http_errors import Problem, describe_error, describe_validation
from epicrisis.server.page.rendering import CALLER, MENU, html_response, render


class PageRoute(APIRoute):
    """A route whose errors are pages in plain words."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler, with errors rendered as HTML."""
        handle = super().get_route_handler()

        async def handle_with_pages(request: Request) -> Response:
            CALLER.set(request.scope.get("epicrisis.caller"))
            MENU.set(request.app.state.menu)
            try:
                return await handle(request)
            except EpicrisisError as error:
                hide = request.app.state.questions.resources.hide_paths
                return _error_response(request, describe_error(error, hide))
            except RequestValidationError as error:
                return _error_response(request, describe_validation(error.errors()))

        return handle_with_pages


def _error_response(request: Request, problem: Problem) -> Response:
    template = "error" if is_part(request) else "error_page"
    response = html_response(render(template, problem=problem), problem.status)
    if problem.retry_after is not None:
        response.headers["Retry-After"] = str(problem.retry_after)
    return response


def is_part(request: Request) -> bool:
    """Return whether htmx asks for a part of a page."""
    return request.headers.get("HX-Request") == "true"
