"""The routes of `/api/v1` that read libraries: search, evidence, documents, passages and patients.

What concerns a patient is a POST, so that no address, and no log of addresses, contains an id of a patient or a note.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path

from epicrisis.server.api.question_api import PREFIX, DataResponse
from epicrisis.server.base.users import CurrentCaller
from epicrisis.server.libraries.reading import LibraryReader, LibrarySummary, PatientBody, ReadBody, SearchBody

Name = Annotated[str, Path(min_length=1, max_length=255, description="Name of a library.")]
ItemId = Annotated[str, Path(min_length=1, max_length=2_000, description="Id of a document or passage of literature.")]


def make_search_routes(reader: LibraryReader) -> APIRouter:
    """Return the routes that list and search libraries."""
    router = APIRouter(prefix=PREFIX, tags=["Libraries"])

    @router.get("/libraries", summary="List the libraries")
    async def libraries(caller: CurrentCaller) -> list[LibrarySummary]:
        """Return the libraries that the caller may read."""
        return await reader.list_libraries(caller)

    @router.get("/libraries/{library}/patients", summary="List the patients of a library")
    async def patients(library: Name, caller: CurrentCaller) -> DataResponse:
        """Return the patients assigned to the caller, with their numbers of notes and no text."""
        return DataResponse(await reader.list_patients(library, caller))

    @router.post("/search", summary="Find passages")
    async def search(body: SearchBody, caller: CurrentCaller) -> DataResponse:
        """Return the passages nearest to a query, best first."""
        return DataResponse(await reader.search(body, caller))

    @router.post("/evidence", summary="Find sentences")
    async def evidence(body: SearchBody, caller: CurrentCaller) -> DataResponse:
        """Return the sentences that bear on a query, best first, each with its passage."""
        ranking = await reader.find_evidence(body, caller)
        sentences: list[dict[str, Any]] = []
        for hit in ranking.hits:
            sentence = hit.sentence
            place = {"text": sentence.text, "start": sentence.start, "end": sentence.end}
            sentences.append({**place, "score": float(hit.score), "rank": hit.rank, "passage": sentence.passage})
        return DataResponse({"sentences": sentences, "parameters": ranking.parameters, "notes": ranking.notes})

    return router


def make_document_routes(reader: LibraryReader) -> APIRouter:
    """Return the routes that read documents, passages and patients by id."""
    router = APIRouter(prefix=PREFIX, tags=["Documents"])

    @router.get("/libraries/{library}/documents/{id:path}", summary="Read a document of literature")
    async def document(library: Name, id: ItemId, caller: CurrentCaller) -> DataResponse:
        """Return a document of literature by id. Notes of patients are read with POST."""
        return DataResponse(await reader.read_document(ReadBody(id=id, library=library), caller))

    @router.get("/libraries/{library}/passages/{id:path}", summary="Read a passage of literature")
    async def passage(library: Name, id: ItemId, caller: CurrentCaller) -> DataResponse:
        """Return a passage of literature by id. Notes of patients are read with POST."""
        return DataResponse(await reader.read_passage(ReadBody(id=id, library=library), caller))

    @router.post("/document", summary="Read a document or note")
    async def any_document(body: ReadBody, caller: CurrentCaller) -> DataResponse:
        """Return a document by id. A note is found only with its patient."""
        return DataResponse(await reader.read_document(body, caller))

    @router.post("/passage", summary="Read a passage")
    async def any_passage(body: ReadBody, caller: CurrentCaller) -> DataResponse:
        """Return a passage by id. A passage of a note is found only with its patient."""
        return DataResponse(await reader.read_passage(body, caller))

    @router.post("/patient", summary="List the notes of a patient")
    async def patient(body: PatientBody, caller: CurrentCaller) -> DataResponse:
        """Return a patient, and the notes of the record in the order of time, without their text."""
        return DataResponse(await reader.read_patient(body, caller))

    return router
