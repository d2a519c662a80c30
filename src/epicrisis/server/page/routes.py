"""The routes of the page. Questions arrive only in the body of a POST; the address of an answer cannot be guessed.

    app.include_router(make_page_routes(questions, AnswerStore(folder)))

Each route returns a whole page, or for a request of htmx the part of a page that it asked for.
"""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from epicrisis.server.api.question_api import PREFIX, DataResponse
from epicrisis.server.base.http_errors import NotFound
from epicrisis.server.base.users import CurrentCaller
from epicrisis.server.libraries.asked_questions import Questions
from epicrisis.server.libraries.shelves import Shelves
from epicrisis.server.page.answer_routes import AnswerPages, add_answer_pages, add_source_pages
from epicrisis.server.page.asking import add_asking
from epicrisis.server.page.library_routes import add_library_pages
from epicrisis.server.page.overview import Overviews
from epicrisis.server.page.page_route import PageRoute
from epicrisis.server.page.patient_routes import add_patient_pages
from epicrisis.server.page.question_form import build_form
from epicrisis.server.page.rendering import html_response, render
from epicrisis.server.page.static_files import read_static_files
from epicrisis.server.page.upload_routes import add_upload_pages
from epicrisis.server.state.stored_answers import AnswerStore
from epicrisis.server.work.uploads import Uploads

_STATIC_HEADERS = {"Cache-Control": "public, max-age=31536000, immutable", "X-Content-Type-Options": "nosniff"}


def make_page_routes(
    questions: Questions,
    shelves: Shelves,
    answers: AnswerStore,
    uploads: Uploads | None = None,
) -> APIRouter:
    """Return the routes of the page. `uploads`: those of the server, if it has them."""
    reader = shelves.reader
    router = APIRouter(route_class=PageRoute, include_in_schema=False, default_response_class=Response)
    resources = questions.resources

    overviews = Overviews(shelves)

    @router.get("/")
    async def ask_page(caller: CurrentCaller) -> Response:
        form = build_form(resources, caller)
        return html_response(render("ask", form=form, overviews=await overviews.list_overviews(caller), page="ask"))

    @router.get("/history")
    async def history() -> Response:
        limits = {"keep_days": f"{answers.keep_days:g}", "keep": f"{answers.keep:,}"}
        return html_response(render("history", page="history", **limits))

    pages = AnswerPages(reader, answers)
    add_asking(router, questions, pages)
    add_answer_pages(router, pages)
    add_source_pages(router, pages)
    add_patient_pages(router, pages)
    add_library_pages(router, shelves, pages.viewer, uploads)
    if uploads is not None:
        add_upload_pages(router, uploads)

    @router.get("/static/{name}")
    async def static_file(name: str) -> Response:
        file = read_static_files().get(name)
        if file is None:
            raise NotFound("the server has no such file")
        return Response(file.content, media_type=file.media_type, headers=_STATIC_HEADERS)

    return router


def make_absent_run_routes() -> APIRouter:
    """Return the routes of a server without runs and reviews: the page says so, and the list of the API is empty."""
    router = APIRouter(route_class=PageRoute, include_in_schema=False, default_response_class=Response)

    @router.get("/runs")
    async def run_page(_: CurrentCaller) -> Response:
        return html_response(render("runs", runs={}, has_folder=False, page="runs"))

    @router.get(f"{PREFIX}/runs")
    async def run_list(_: CurrentCaller) -> DataResponse:
        return DataResponse({})

    return router
