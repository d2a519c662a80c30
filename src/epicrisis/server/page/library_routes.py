"""The pages of libraries: the list, the contents and health of one, its documents, and a complete check."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from epicrisis.server.base.http_errors import NotFound
from epicrisis.server.base.users import Caller, CurrentCaller
from epicrisis.server.libraries.reading import ReadBody, read_documents
from epicrisis.server.libraries.shelves import Shelves, may_maintain
from epicrisis.server.libraries.streaming import EventStream, keep_alive
from epicrisis.server.page.library_view import DocumentSearch, describe_documents, describe_library
from epicrisis.server.page.live import frame
from epicrisis.server.page.page_route import is_part
from epicrisis.server.page.patient_routes import view_note
from epicrisis.server.page.pdf_view import PdfViewer, find_file, send_image
from epicrisis.server.page.question_form import describe_setup
from epicrisis.server.page.rendering import find_document_address, html_response, render
from epicrisis.server.page.upload_routes import build_upload_form
from epicrisis.server.work.uploads import Uploads

_POLL_SECONDS = 0.3


def add_library_pages(router: APIRouter, shelves: Shelves, viewer: PdfViewer, uploads: Uploads | None = None) -> None:
    """Add the list of libraries, the page of each with its documents, and the check of its health."""
    reader = shelves.reader

    @router.get("/libraries")
    async def libraries(caller: CurrentCaller) -> Response:
        summaries = await reader.list_libraries(caller)
        resources = reader.resources
        facts = [describe_setup(resources.find(summary.name), resources.sign_in_host) for summary in summaries]
        pairs = zip(summaries, facts, strict=True)
        return html_response(render("libraries", libraries=pairs, page="libraries"))

    @router.get("/libraries/{name}")
    async def library(name: str, caller: CurrentCaller) -> Response:
        return html_response(await show_library(shelves, uploads, name, caller, DocumentSearch()))

    @router.post("/libraries/{name}")
    async def search(name: str, request: Request, caller: CurrentCaller) -> Response:
        """Show the matching documents. A POST: the words may be a question, and browsers and logs keep addresses."""
        query = DocumentSearch.parse(await request.body())
        if is_part(request):
            page = await shelves.list_documents(name, caller, query.filter, query.offset)
            return html_response(render("library_documents", **describe_documents(name, page, query)))
        return html_response(await show_library(shelves, uploads, name, caller, query))

    @router.get("/libraries/{name}/documents/{document_id:path}/pages/{page}.png")
    async def page_image(name: str, document_id: str, page: int, request: Request, caller: CurrentCaller) -> Response:
        await reader.read_document(ReadBody(id=document_id, library=name), caller)
        library = await shelves.find(name, caller)
        return send_image(request, await viewer.draw(await find_file(library, document_id), page))

    @router.get("/libraries/{name}/documents/{document_id:path}")
    async def document(name: str, document_id: str, request: Request, caller: CurrentCaller) -> Response:
        view = view_note(await reader.read_document(ReadBody(id=document_id, library=name), caller))
        library = await shelves.find(name, caller)
        passages = await read_documents(library, None, [document_id])
        view = await viewer.add_all_pages(view, library, passages, find_document_address(name, document_id))
        template = "document" if is_part(request) else "document_page"
        return html_response(render(template, document=view, support="", unverified=(), back=""))

    _add_check_pages(router, shelves)


def _add_check_pages(router: APIRouter, shelves: Shelves) -> None:
    """Add the routes that start a complete check and stream its progress."""

    @router.post("/libraries/{name}/check")
    async def start_check(name: str, caller: CurrentCaller) -> Response:
        await shelves.start_check(name, caller)
        return RedirectResponse(f"/libraries/{quote(name)}#health", status_code=303)

    @router.get("/libraries/{name}/check")
    async def follow_check(name: str, request: Request, caller: CurrentCaller) -> Response:
        if await shelves.latest_check(name, caller) is None:
            raise NotFound("the library was not checked since the server started")
        if not is_part(request):
            return RedirectResponse(f"/libraries/{quote(name)}#health", status_code=303)
        return EventStream(keep_alive(_stream_check(shelves, name, caller)))


async def show_library(
    shelves: Shelves, uploads: Uploads | None, name: str, caller: Caller, search: DocumentSearch
) -> str:
    """Return the page of a library. Raises NotFound, AccessDenied and errors of the library."""
    library = await shelves.find(name, caller)
    contents = await shelves.read_contents(name, caller)
    contents = replace(contents, findings=tuple(map(shelves.resources.hide_paths, contents.findings)))
    documents: dict[str, Any] = {"library": name, "listed": None}
    if not library.holds_patients:
        page = await shelves.list_documents(name, caller, search.filter, search.offset)
        documents = describe_documents(name, page, search)
    return render(
        "library",
        **describe_library(contents, holds_patients=library.holds_patients),
        **documents,
        setup=describe_setup(library, shelves.resources.sign_in_host),
        holds_patients=library.holds_patients,
        check=await shelves.latest_check(name, caller),
        may_maintain=may_maintain(caller),
        upload_form=build_upload_form(uploads, name, caller),
        page="libraries",
    )


async def _stream_check(shelves: Shelves, name: str, caller: Caller) -> AsyncGenerator[bytes, None]:
    """Yield the state of a check as pieces of the page until it has ended."""
    last_check = None
    while True:
        check = await shelves.latest_check(name, caller)
        if check is not None and check != last_check:
            last_check = check
            yield frame(render("library_check", check=check, library=name, may_maintain=may_maintain(caller)))
        if check is None or not check.is_running:
            return
        await asyncio.sleep(_POLL_SECONDS)
