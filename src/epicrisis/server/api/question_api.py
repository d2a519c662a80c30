"""The routes of `/api/v1`. They translate between HTTP and the library, and decide nothing."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from pydantic import Field
from starlette.responses import Response

from epicrisis.core.printable import printable_json
from epicrisis.core.serialization import to_json
from epicrisis.core.types import ReferenceFormat
from epicrisis.report.citation_styles import check_reference_format, write_references
from epicrisis.server.base.http_errors import describe_failure, send_problem
from epicrisis.server.base.users import CurrentCaller
from epicrisis.server.libraries.asked_questions import QuestionBody, Questions
from epicrisis.server.libraries.streaming import EventStream, keep_alive, run_while_connected, stream_events

PREFIX = "/api/v1"
_EVENT_SCHEMA = {
    "type": "object",
    "description": "One event.",
    "required": ["event", "data"],
    "properties": {"event": {"type": "string"}, "data": {"type": "string", "description": "JSON"}},
}
_ASK_EXAMPLE = {
    "state": "answered",
    "text": "Yes. [1]",
    "references": "1. Rolnik DL. Aspirin versus Placebo. The New England journal of medicine. 2017;377(7):613-22.\n",
}
_ASK_RESPONSE: dict[str, Any] = {
    "description": "The answer, or its events as `event: NAME` and `data: JSON`; the last is `answered` or `error`.",
    "content": {
        "application/json": {"schema": {"type": "object"}, "example": _ASK_EXAMPLE},
        "text/event-stream": {"schema": _EVENT_SCHEMA, "example": 'event: delta\ndata: {"text": "Yes."}\n\n'},
    },
}


class AskBody(QuestionBody):
    """A question, how to answer it, and in which form to send the answer."""

    stream: bool = Field(False, description="Send every step as a server-sent event, in place of the whole answer.")
    trace: bool = Field(False, description="Include the events behind a whole answer.")
    references: ReferenceFormat | None = Field(
        None,
        description="Add the cited documents to the answer as `references`, a text in a citation style (which needs "
        "the extra `citations` on the server) or for a reference manager.",
    )


class DataResponse(JSONResponse):
    """Values of the library as JSON, with control characters escaped. Never cached."""

    def __init__(self, content: Any, **options: Any) -> None:
        super().__init__(content, **options)
        self.headers["Cache-Control"] = "no-store"

    def render(self, content: Any) -> bytes:
        """Return the content as JSON."""
        return printable_json(super().render(to_json(content)).decode()).encode()


def make_question_routes(questions: Questions) -> APIRouter:
    """Return the route that answers questions."""
    router = APIRouter(prefix=PREFIX, tags=["Questions"])
    hide = questions.resources.hide_paths

    @router.post("/ask", summary="Answer a question", response_model=None, responses={200: _ASK_RESPONSE})
    async def ask(body: AskBody, request: Request, caller: CurrentCaller) -> Response:
        """Answer a question from the documents of a library, whole or as a stream of events."""
        inquiry = await questions.prepare(body, caller)
        if body.references is not None:
            check_reference_format(body.references)
        if body.stream:
            place = questions.take_place(caller)
            events = questions.events(inquiry, place=place)
            return EventStream(keep_alive(stream_events(events, hide, body.references)), on_end=place.close)
        answer = await run_while_connected(questions.answer(inquiry), request.receive)
        data = to_json(answer)
        if not body.trace:
            data.pop("trace")
        if body.references is not None:
            data["references"] = await asyncio.to_thread(write_references, answer, body.references)
        if answer.state == "failed":
            return send_problem(describe_failure(answer.failure, hide), answer=data)
        return DataResponse(data)

    return router


def make_health_routes(questions: Questions) -> APIRouter:
    """Return the routes of health and readiness. They need no key, and tell nothing of the libraries."""
    router = APIRouter(tags=["Operation"])

    @router.get("/healthz", summary="Whether the process runs")
    async def health() -> dict[str, str]:
        """Return ok as long as the process answers."""
        return {"status": "ok"}

    @router.get("/readyz", summary="Whether questions are accepted", responses={503: {"description": "Stopping."}})
    async def readiness() -> JSONResponse:
        """Return 200 while questions are accepted, and 503 while the server is stopping."""
        if questions.is_stopping:
            return JSONResponse({"status": "stopping"}, status_code=503)
        return JSONResponse({"status": "ready"})

    return router
