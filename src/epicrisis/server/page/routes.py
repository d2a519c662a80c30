"""The routes of the page. Questions arrive only in the body of a POST; an answer has an address that nobody can guess.

    app.include_router(make_page_routes(questions, AnswerStore(folder)))

Each route returns a whole page, or for a request of htmx the part of a page that it asked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from epicrisis.answers import Answer, Answered
from epicrisis.errors import EpicrisisError, InputError
from epicrisis.printable import printable
from epicrisis.server.errors import NotFound, describe_error
from epicrisis.server.page.answer_routes import AnswerPages, add_answer_pages, add_source_pages
from epicrisis.server.page.answer_view import build_answer_view
from epicrisis.server.page.exports import list_exports
from epicrisis.server.page.live import frame, render_step
from epicrisis.server.page.page_route import PageRoute, is_part
from epicrisis.server.page.patient_routes import add_patient_pages
from epicrisis.server.page.question_form import FormFields, build_form, describe_setup
from epicrisis.server.page.rendering import html_response, render
from epicrisis.server.page.sources import collect_cited_passages, list_left_out
from epicrisis.server.page.static_files import read_static_files
from epicrisis.server.page.stored_answers import AnswerStore, StoredAnswer
from epicrisis.server.questions import AskedQuestion, Questions
from epicrisis.server.reading import LibraryReader
from epicrisis.server.streaming import EventStream, keep_alive, run_while_connected
from epicrisis.server.users import CurrentCaller

_STATIC_HEADERS = {"Cache-Control": "public, max-age=31536000, immutable", "X-Content-Type-Options": "nosniff"}


def make_page_routes(questions: Questions, reader: LibraryReader, answers: AnswerStore) -> APIRouter:
    """Return the routes of the page."""
    router = APIRouter(route_class=PageRoute, include_in_schema=False, default_response_class=Response)
    resources = questions.resources

    @router.get("/")
    async def ask_page(caller: CurrentCaller) -> Response:
        return html_response(render("ask", form=build_form(resources, caller), page="ask"))

    @router.get("/history")
    async def history() -> Response:
        return html_response(render("history", page="history"))

    @router.get("/libraries")
    async def libraries(caller: CurrentCaller) -> Response:
        views: list[dict[str, Any]] = []
        for summary in await reader.list_libraries(caller):
            facts = [("Documents", f"{summary['documents']:,}"), ("Passages", f"{summary['passages']:,}")]
            facts += describe_setup(resources.find(summary["name"]))
            facts.append(("Patients", "yes" if summary["holds_patients"] else "no"))
            views.append({**summary, "facts": facts})
        return html_response(render("libraries", libraries=views, page="libraries"))

    add_asking(router, questions, answers)
    pages = AnswerPages(reader, answers)
    add_answer_pages(router, pages)
    add_source_pages(router, pages)
    add_patient_pages(router, pages)

    @router.get("/static/{name}")
    async def static_file(name: str) -> Response:
        file = read_static_files().get(name)
        if file is None:
            raise NotFound("the server has no such file")
        return Response(file.content, media_type=file.media_type, headers=_STATIC_HEADERS)

    return router


def add_asking(router: APIRouter, questions: Questions, answers: AnswerStore) -> None:
    """Add the route that answers the question of the form: as a stream of page parts, or with the answer's address."""
    resources = questions.resources

    @router.post("/ask")
    async def ask(request: Request, caller: CurrentCaller) -> Response:
        fields = FormFields.parse(await request.body())
        try:
            asked = await questions.prepare(fields.to_body(), caller)
        except InputError as error:
            problem = describe_error(error, resources.hide_paths)
            if is_part(request):
                return html_response(render("error", problem=problem), problem.status)
            form = build_form(resources, caller, fields, [problem.detail])
            return html_response(render("ask", form=form, page="ask"), problem.status)
        if "text/event-stream" in request.headers.get("Accept", ""):
            return EventStream(keep_alive(_stream_page(questions, answers, asked)))
        stored = await run_while_connected(_store_answer(questions, answers, asked), request.receive)
        return RedirectResponse(f"/answers/{stored.id}", status_code=303)


async def _finish(answers: AnswerStore, asked: AskedQuestion, answer: Answer) -> StoredAnswer:
    """Store a finished answer with the passages it cites."""
    passages = await collect_cited_passages(asked.library, answer)
    left_out = await list_left_out(asked, answer)
    return await asyncio.to_thread(
        answers.add,
        answer,
        passages,
        library=asked.library.name,
        owner=asked.caller.name,
        reason=asked.reason,
        left_out=left_out,
    )


async def _store_answer(questions: Questions, answers: AnswerStore, asked: AskedQuestion) -> StoredAnswer:
    """Return the stored answer to a question."""
    async with aclosing(questions.events(asked)) as events:
        async for event in events:
            if isinstance(event, Answered):
                return await _finish(answers, asked, event.answer)
    raise RuntimeError("the last event of a question is its answer")


async def _stream_page(questions: Questions, answers: AnswerStore, asked: AskedQuestion) -> AsyncGenerator[bytes, None]:
    """Yield the pieces of a question's page as events. An error is the last piece. Closing cancels the question."""
    yield frame(render("live", question=printable(asked.question.text)))
    try:
        async with aclosing(questions.events(asked)) as events:
            async for event in events:
                if isinstance(event, Answered):
                    stored = await _finish(answers, asked, event.answer)
                    yield frame(render("answer", view=build_answer_view(stored), exports=list_exports()))
                elif step := render_step(event):
                    yield frame(step)
    except EpicrisisError as error:
        problem = describe_error(error, questions.resources.hide_paths)
        yield frame(render("error", problem=problem))
