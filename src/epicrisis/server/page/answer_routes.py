"""The pages of a stored answer: the answer, its sources, its files and its deletion."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Literal

from fastapi import APIRouter, Request
from markupsafe import Markup
from starlette.responses import RedirectResponse, Response

from epicrisis.core.printable import printable
from epicrisis.report.answer_content import describe_check, judge_support
from epicrisis.server.base.http_errors import AnswerRemoved, NotFound
from epicrisis.server.base.users import Caller, CurrentCaller
from epicrisis.server.libraries.reading import LibraryReader
from epicrisis.server.page.answer_view import build_answer_view
from epicrisis.server.page.cited_passages import (
    build_highlight,
    draw_page,
    find_citation,
    find_ranked,
    find_study,
    open_document,
)
from epicrisis.server.page.document_view import DocumentView, Highlight
from epicrisis.server.page.exports import list_exports, list_formats
from epicrisis.server.page.page_route import is_part
from epicrisis.server.page.pdf_view import PdfViewer, send_image
from epicrisis.server.page.question_form import FormFields, build_form
from epicrisis.server.page.rendering import HEADERS, html_response, render
from epicrisis.server.state.stored_answer_files import AnswerRemoval
from epicrisis.server.state.stored_answers import AnswerStore, StoredAnswer

CellName = Literal["size", "population", "sentence"]
_UNKNOWN_ANSWER = "the server has no such answer: it was deleted, or it belongs to another user"


class AnswerPages:
    """Finds stored answers for a caller, and renders their documents."""

    def __init__(self, reader: LibraryReader, answers: AnswerStore) -> None:
        self.reader = reader
        self.resources = reader.resources
        self.answers = answers
        self.viewer = PdfViewer()

    async def find(self, answer_id: str, caller: Caller) -> StoredAnswer:
        """Return the answer, once the access log has it.

        Raises NotFound for an unknown id and another user's answer, AnswerRemoved if the server removed it, and
        AccessDenied if the caller may no longer read the record behind it.
        """
        stored = await asyncio.to_thread(self.answers.find, answer_id, caller.owner)
        if stored is None:
            removal = await asyncio.to_thread(self.answers.find_removal, answer_id, caller.owner)
            if removal is not None:
                raise AnswerRemoved(describe_removal(removal, self.answers))
            raise NotFound(_UNKNOWN_ANSWER)
        library = self.resources.libraries.get(stored.library)
        if library is None:
            if stored.patient is not None:
                raise NotFound("the library of this answer is not served, so who may read the record is not known")
            return stored
        await self.reader.access.check(caller, "answer", library, stored.patient, stored.reason)
        documents = [citation.document_id for citation in stored.answer.shown_citations]
        await self.reader.access.record(caller, "answer", library, stored.patient, documents, stored.reason)
        return stored

    async def show_earlier(self, stored: StoredAnswer, caller: Caller) -> Markup:
        """Return the answer that a follow-up question follows, in short. Empty for others, and if it was deleted."""
        if stored.follow_up is None:
            return Markup()
        try:
            previous = await self.find(stored.follow_up.previous, caller)
        except NotFound:
            return Markup()
        return Markup(render("earlier", view=build_answer_view(previous)))

    async def show_document(
        self,
        request: Request,
        caller: Caller,
        stored: StoredAnswer,
        document_id: str,
        highlight: Highlight,
        number: int | None = None,
    ) -> Response:
        """Return the page of a document, or its part for htmx, once the access log has the document.

        `number`: the citation that is opened. Documents that were found and not cited can be opened too.
        """
        library = self.resources.libraries.get(stored.library)
        if library is not None:
            await self.reader.access.record(caller, "document", library, stored.patient, [document_id], stored.reason)
        document = await open_document(stored, library, document_id, highlight, self.viewer)
        return html_response(render_document(stored, document, number, as_part=is_part(request)))


def fill_form(stored: StoredAnswer) -> FormFields:
    """Return the form as it was sent for an answer, so that its question can be changed."""
    question = stored.answer.question
    options = list(question.options.values())
    # The form separates options by commas.
    is_listed = not any("," in option for option in options)
    return FormFields(
        {
            **stored.settings,
            "question": question.text,
            "library": stored.library,
            "patient": stored.patient or "",
            "break_glass": stored.reason or "",
            "options": ", ".join(options) if is_listed else "",
            "strategy": stored.answer.strategy,
        }
    )


def describe_removal(removal: AnswerRemoval, answers: AnswerStore) -> str:
    """Return when and why an answer was removed."""
    day = datetime.fromtimestamp(removal.at, UTC).date().isoformat()
    if removal.reason == "age":
        return f"the server removed this answer on {day}: it keeps answers for {answers.keep_days:g} days"
    return f"the server removed this answer on {day}: it keeps the newest {answers.keep:,} answers of each user"


def add_answer_pages(router: APIRouter, pages: AnswerPages) -> None:
    """Add the page of an answer, its files and its deletion."""

    @router.get("/answers/{answer_id}")
    async def answer_page(answer_id: str, caller: CurrentCaller) -> Response:
        stored = await pages.find(answer_id, caller)
        form = build_form(pages.resources, caller, fill_form(stored))
        earlier = await pages.show_earlier(stored, caller)
        page = render("answer_page", view=build_answer_view(stored), form=form, exports=list_exports(), earlier=earlier)
        return html_response(page)

    @router.get("/answers/{answer_id}/export.{suffix}")
    async def export(answer_id: str, suffix: str, caller: CurrentCaller) -> Response:
        stored = await pages.find(answer_id, caller)
        formats = list_formats()
        if suffix not in formats:
            raise NotFound(f"an answer is exported as {', '.join(formats)}")
        chosen = formats[suffix]
        headers = {**HEADERS, "Content-Disposition": f'attachment; filename="answer.{suffix}"'}
        content = await asyncio.to_thread(chosen.write, stored)
        return Response(content, media_type=chosen.media_type, headers=headers)

    @router.post("/answers/{answer_id}/delete")
    async def delete(answer_id: str, caller: CurrentCaller) -> Response:
        await pages.find(answer_id, caller)
        await asyncio.to_thread(pages.answers.remove, answer_id, caller.owner)
        return RedirectResponse("/history", status_code=303)


def add_source_pages(router: APIRouter, pages: AnswerPages) -> None:
    """Add the pages of an answer's documents: by citation, by cell of the evidence table, by rank."""

    @router.get("/answers/{answer_id}/sources/{number}")
    async def source(request: Request, answer_id: str, number: int, caller: CurrentCaller) -> Response:
        stored = await pages.find(answer_id, caller)
        citation = find_citation(stored, number)
        highlight = build_highlight(citation)
        return await pages.show_document(request, caller, stored, citation.document_id, highlight, number)

    @router.get("/answers/{answer_id}/studies/{number}/{cell}")
    async def study(request: Request, answer_id: str, number: int, cell: CellName, caller: CurrentCaller) -> Response:
        stored = await pages.find(answer_id, caller)
        row = find_study(stored, number)
        if cell == "sentence":
            citation = find_citation(stored, row.citations[0])
            highlight = build_highlight(citation)
            return await pages.show_document(request, caller, stored, row.document_id, highlight, citation.number)
        place = row.size if cell == "size" else row.population
        if place is None:
            raise NotFound("the document does not state this")
        return await pages.show_document(request, caller, stored, place.document_id, Highlight(place.span))

    @router.get("/answers/{answer_id}/ranks/{rank}")
    async def ranked(request: Request, answer_id: str, rank: int, caller: CurrentCaller) -> Response:
        stored = await pages.find(answer_id, caller)
        document_id, highlight = find_ranked(stored, rank)
        return await pages.show_document(request, caller, stored, document_id, highlight)

    @router.get("/answers/{answer_id}/documents/{number}/pages/{page}.png")
    async def page_image(request: Request, answer_id: str, number: int, page: int, caller: CurrentCaller) -> Response:
        stored = await pages.find(answer_id, caller)
        image = await draw_page(stored, pages.resources.libraries.get(stored.library), number, page, pages.viewer)
        return send_image(request, image)


def render_document(stored: StoredAnswer, document: DocumentView, number: int | None, *, as_part: bool) -> str:
    """Return a document with the state of the claims that cite it."""
    support = "not-checked" if number is None else judge_support(stored.answer, number)
    check = ""
    unverified: list[str] = []
    if number is not None:
        citation = find_citation(stored, number)
        check = describe_check(stored.answer, citation)
        if not citation.verified:
            unverified.append(printable(citation.quotation))
    return render(
        "document" if as_part else "document_page",
        document=document,
        support=support if number is not None else "",
        support_label=check,
        unverified=unverified,
        back=f"/answers/{stored.id}",
    )
