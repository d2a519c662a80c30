"""The pages of patients: the list, the timeline of a record, and the reader of notes.

A patient's id and a note's id are sent in bodies, so they are in no address and no log of a proxy. Every reading is
checked and written to the access log by `LibraryReader`.
"""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from epicrisis.library.core.patients import PatientRecord
from epicrisis.server.base.http_errors import NotFound
from epicrisis.server.base.users import Caller, CurrentCaller
from epicrisis.server.libraries.reading import DocumentText, LibraryReader, PatientBody
from epicrisis.server.page.answer_routes import AnswerPages
from epicrisis.server.page.document_view import DocumentView, build_document_view
from epicrisis.server.page.page_route import is_part
from epicrisis.server.page.patient_view import (
    NoteMarks,
    describe_record,
    list_time_messages,
    mark_notes,
)
from epicrisis.server.page.question_form import FormFields
from epicrisis.server.page.rendering import html_response, render
from epicrisis.server.state.stored_answers import StoredAnswer


def add_patient_pages(router: APIRouter, pages: AnswerPages) -> None:
    """Add the list of patients, the timeline of a record, alone and for an answer, and the reader of notes."""
    reader = pages.reader

    @router.get("/patients")
    async def patients(caller: CurrentCaller) -> Response:
        libraries: list[tuple[str, tuple[PatientRecord, ...]]] = []
        for library in reader.resources.libraries.values():
            if library.holds_patients:
                libraries.append((library.name, await reader.list_patients(library.name, caller)))
        return html_response(render("patients", libraries=libraries, page="patients"))

    @router.post("/patients/record")
    async def record(request: Request, caller: CurrentCaller) -> Response:
        fields = FormFields.parse(await request.body())
        return html_response(await show_record(reader, caller, fields.to_patient(), fields))

    @router.post("/patients/note")
    async def note(request: Request, caller: CurrentCaller) -> Response:
        body = FormFields.parse(await request.body()).to_note()
        view = view_note(await reader.read_document(body, caller))
        template = "document" if is_part(request) else "document_page"
        return html_response(render(template, document=view, support="", unverified=(), back=""))

    @router.get("/answers/{answer_id}/record")
    async def record_of_answer(answer_id: str, caller: CurrentCaller) -> Response:
        stored = await pages.find(answer_id, caller)
        if stored.patient is None:
            raise NotFound("no record of a patient was read for this answer")
        body = PatientBody(patient=stored.patient, library=stored.library, break_glass=stored.reason)
        fields = FormFields({"library": stored.library, "patient": body.patient, "break_glass": stored.reason or ""})
        return html_response(await show_record(reader, caller, body, fields, stored))


async def show_record(
    reader: LibraryReader, caller: Caller, body: PatientBody, fields: FormFields, stored: StoredAnswer | None = None
) -> str:
    """Return the page of a record. `stored`: the answer whose citations and time filter are marked in it.

    Raises NotFound, AccessDenied and InputError. The access log has the notes before they are returned.
    """
    notes, passages = await reader.read_record(body, caller)
    library = reader.resources.find(body.library).name
    marks = NoteMarks() if stored is None else mark_notes(stored)
    record = describe_record(notes, library, marks, passages)
    return render(
        "record",
        record=record,
        reason=body.break_glass or "",
        answer=None if stored is None else f"/answers/{stored.id}",
        question="" if stored is None else stored.answer.question.text,
        messages=() if stored is None else list_time_messages(stored.answer),
        narrowing="none" if stored is None else stored.answer.narrowing,
        page="patients",
    )


def view_note(document: DocumentText) -> DocumentView:
    """Return the view of a whole note, without a highlight."""
    return build_document_view([document.to_passage()], None, complete=True)
