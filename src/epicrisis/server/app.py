"""Build the application: routes, errors and guards around shared resources.

    app = create_app(await Resources.open(settings, [library]))

Each part of the server adds its router here. A router gets `Questions`, through which every question is asked.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import version

from fastapi import FastAPI, Request
from starlette.responses import Response

from epicrisis.server.api import make_health_routes, make_question_routes
from epicrisis.server.errors import add_error_handlers
from epicrisis.server.guards import IdentifyCaller
from epicrisis.server.mcp_http import McpEndpoint
from epicrisis.server.questions import MAX_RUNNING, Questions
from epicrisis.server.resources import Resources
from epicrisis.server.streaming import ClientGone

STOP_SECONDS = 60.0
"""How long running questions may finish when the server stops."""


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """How the server behaves. Requests choose none of it."""

    max_running: int = MAX_RUNNING
    """Questions that are answered at the same time."""
    stop_seconds: float = STOP_SECONDS


def create_app(resources: Resources, options: ServerOptions | None = None) -> FastAPI:
    """Return the application over these resources, which the caller closes."""
    options = options or ServerOptions()
    questions = Questions(resources, options.max_running)
    assistants = McpEndpoint(questions)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with assistants.run():
            yield
            await questions.stop(options.stop_seconds)

    app = FastAPI(
        title="epicrisis",
        version=version("epicrisis"),
        summary="Answers medical questions from long evidence, with checked quotations. Not a medical device.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )
    app.state.questions = questions
    app.include_router(make_question_routes(questions))
    app.include_router(make_health_routes(questions))
    app.router.routes.extend(assistants.routes)
    add_error_handlers(app, resources.hide_paths)
    app.add_exception_handler(ClientGone, _send_nothing)
    app.add_middleware(IdentifyCaller)
    return app


async def _send_nothing(_: Request, __: Exception) -> Response:
    """Return the response to a client that is gone."""
    return Response(status_code=499)
