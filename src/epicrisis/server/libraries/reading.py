"""Read open libraries for callers: passages near a query, sentences, documents, passages and patients.

Every function checks the access of the caller, and writes to the access log what it read of a patient's record before
it returns it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, ParamSpec, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from epicrisis.core.errors import InputError
from epicrisis.core.types import Metadata, Passage, Ranking, Scope, SentenceRanking
from epicrisis.library.core.checked_store import CheckedStore
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.core.passage_lookup import read_document_passages
from epicrisis.library.core.patients import PatientRecord
from epicrisis.pipeline.components import LibrarySearch
from epicrisis.pipeline.passage_search import search_passages, search_sentences
from epicrisis.pipeline.pipeline import Pipeline
from epicrisis.privacy.access_log import AccessLog
from epicrisis.retrieval.record_context import rank_record, restore_notes
from epicrisis.server.base.http_errors import NotFound
from epicrisis.server.base.request_body import RequestBody
from epicrisis.server.base.users import Caller
from epicrisis.server.base.white_space import join_text
from epicrisis.server.libraries.asked_questions import MAX_QUESTION_CHARACTERS, LibraryName, PatientId
from epicrisis.server.libraries.caller_access import AccessControl, AccessReason
from epicrisis.server.libraries.resources import OpenLibrary, RequestSettings, Resources

P = ParamSpec("P")
T = TypeVar("T")
FetchPassages: TypeAlias = Callable[[LibraryStore | CheckedStore, Scope], Sequence[Passage]]
DocumentId = Annotated[str, Field(min_length=1, max_length=2_000, description="Id of a document or passage.")]


class SearchBody(RequestBody):
    """A query, and where to search."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"query": "aspirin in pregnancy", "settings": {"k": 5, "by": "hybrid"}}]}
    )

    query: str = Field(min_length=1, max_length=MAX_QUESTION_CHARACTERS, description="Words or a question.")
    library: LibraryName = None
    patient: PatientId = None
    settings: RequestSettings = RequestSettings()
    break_glass: AccessReason = None


class ReadBody(RequestBody):
    """The id of a document or passage, and the patient whose record holds it."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"id": "pubmed:28657417"}]})

    id: DocumentId
    library: LibraryName = None
    patient: PatientId = None
    break_glass: AccessReason = None


class PatientBody(RequestBody):
    """A patient of a library."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"patient": "10083814"}]})

    patient: Annotated[str, Field(min_length=1, max_length=200, description="Id or record number of the patient.")]
    library: LibraryName = None
    break_glass: AccessReason = None


class LibrarySummary(BaseModel):
    """A library of the server."""

    name: str
    holds_patients: bool
    documents: int
    passages: int
    version: int | None
    """Grows with every change. Servers of one library with the same version give the same results."""
    strategies: tuple[str, ...]
    """The strategies that requests may choose."""
    strategy: str
    """The strategy of requests that choose none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentText:
    """A document of a library with its text, as its passages give it."""

    id: str
    library: str
    title: str
    source: str
    date: str | None
    patient: str | None
    marks: tuple[str, ...]
    metadata: Metadata
    start: int
    """Offset of the first character of `text` in the document."""
    text: str
    passages: tuple[str, ...]
    """Ids of the passages, in order."""

    def to_passage(self) -> Passage:
        """Return the whole document as one passage."""
        return Passage(
            id=self.passages[0],
            document_id=self.id,
            ordinal=0,
            start=self.start,
            end=self.start + len(self.text),
            text=self.text,
            title=self.title,
            source=self.source,
            date=self.date,
            patient=self.patient,
            metadata=self.metadata,
        )


@dataclass(frozen=True, slots=True)
class NoteEntry:
    """A note of a patient's record, without its text."""

    id: str
    title: str
    date: str | None
    metadata: Metadata


@dataclass(frozen=True, slots=True)
class PatientNotes:
    """A patient, and the notes of the record in the order of time."""

    patient: PatientRecord
    notes: tuple[NoteEntry, ...]


class LibraryReader:
    """Reads the libraries of the server for callers."""

    def __init__(self, resources: Resources, log: AccessLog | None = None) -> None:
        self.resources = resources
        self.access = AccessControl(log)

    async def list_libraries(self, caller: Caller) -> list[LibrarySummary]:
        """Return the libraries that the caller may read."""
        summaries: list[LibrarySummary] = []
        for library in self.resources.libraries.values():
            pipeline = library.pipeline
            if library.holds_patients and not caller.has("patient-reader"):
                continue
            assert pipeline.search is not None
            documents, passages = await offload(pipeline, pipeline.search.store.count)
            summary = LibrarySummary(
                name=library.name,
                holds_patients=library.holds_patients,
                documents=documents,
                passages=passages,
                version=await offload(pipeline, read_table_version, pipeline.search),
                strategies=library.strategies,
                strategy=pipeline.settings.strategy,
            )
            summaries.append(summary)
        return summaries

    async def search(self, body: SearchBody, caller: Caller) -> Ranking:
        """Return the passages nearest to the query. Raises NotFound, AccessDenied and InputError."""
        library, patient = await self._open(caller, "search", body.library, body.patient, body.break_glass)
        pipeline = library.with_settings(body.settings)
        assert pipeline.search is not None
        search = partial(search_passages, pipeline.settings, pipeline.search, body.query, patient)
        ranking = await self._search(caller, "search", library, body, patient, search)
        await self.access.record(caller, "search", library, patient, ranking.document_ids, body.break_glass)
        return ranking

    async def find_evidence(self, body: SearchBody, caller: Caller) -> SentenceRanking:
        """Return the sentences that bear on the query, best first. Raises as `search`, and without an encoder."""
        library, patient = await self._open(caller, "evidence", body.library, body.patient, body.break_glass)
        pipeline = library.with_settings(body.settings)
        search = partial(_select_sentences, pipeline, body.query, patient)
        ranking = await self._search(caller, "evidence", library, body, patient, search)
        documents = [sentence.passage.document_id for sentence in ranking.sentences]
        await self.access.record(caller, "evidence", library, patient, documents, body.break_glass)
        return ranking

    async def read_document(self, body: ReadBody, caller: Caller) -> DocumentText:
        """Return a document by id. A note needs its patient. Raises NotFound, also for what the caller may not read."""

        def fetch(store: LibraryStore | CheckedStore, scope: Scope) -> Sequence[Passage]:
            return read_document_passages(store, [body.id], scope).get(body.id, ())

        library, passages = await self._fetch(body, caller, "document", fetch)
        return _join_passages(library.name, passages)

    async def read_passage(self, body: ReadBody, caller: Caller) -> Passage:
        """Return a passage by id. Raises as `read_document`."""
        _, passages = await self._fetch(body, caller, "passage", lambda store, scope: store.fetch([body.id], scope))
        return passages[0]

    async def _fetch(
        self,
        body: ReadBody,
        caller: Caller,
        action: str,
        fetch: Callable[[LibraryStore | CheckedStore, Scope], Sequence[Passage]],
    ) -> tuple[OpenLibrary, Sequence[Passage]]:
        """Return the library, and what the first of its stores has. The access log has it. Raises NotFound."""
        library, patient = await self._open(caller, action, body.library, body.patient, body.break_glass)
        search = library.pipeline.search
        assert search is not None
        for place, store in enumerate((search.store, *search.literature)):
            # Notes of the libraries beside the first belong to other people.
            scope = Scope(patient=patient if place == 0 else None)
            if passages := await offload(library.pipeline, fetch, store, scope):
                documents = [passages[0].document_id]
                await self.access.record(caller, action, library, patient, documents, body.break_glass)
                return library, passages
        await self.access.record(caller, action, library, patient, (), body.break_glass, outcome="refused")
        raise NotFound(f"the library has no {action} of this id that you may read: check the id, and the patient")

    async def list_patients(self, name: str, caller: Caller) -> tuple[PatientRecord, ...]:
        """Return the patients whose records the caller may read without a reason. Raises NotFound, AccessDenied."""
        library = self.resources.find(name)
        await self.access.check(caller, "patients", library, None)
        if not library.holds_patients:
            raise NotFound(f"the library {library.name} holds no patients: its documents are literature")
        assert library.pipeline.search is not None
        records = await offload(library.pipeline, library.pipeline.search.rosters[0].patients)
        listed = [record for record in records.values() if caller.is_assigned(record.id)]
        await self.access.record(caller, "patients", library, None, (), None)
        return tuple(listed)

    async def read_patient(self, body: PatientBody, caller: Caller) -> PatientNotes:
        """Return a patient with the list of notes, without their text. Raises NotFound, AccessDenied, InputError."""
        notes, _ = await self.read_record(body, caller)
        return notes

    async def read_record(self, body: PatientBody, caller: Caller) -> tuple[PatientNotes, tuple[Passage, ...]]:
        """Return a patient with the list of notes, and their passages. Raises as `read_patient`."""
        library, patient = await self._open(caller, "patient", body.library, body.patient, body.break_glass)
        search = library.pipeline.search
        assert search is not None
        assert patient is not None
        records = await offload(library.pipeline, search.rosters[0].patients)
        record = records.get(patient)
        if record is None:
            raise NotFound("the library has no such patient: GET /api/v1/libraries/NAME/patients lists them")
        passages = await offload(library.pipeline, search.retriever.store.fetch_record, Scope(patient=patient))
        notes: dict[str, NoteEntry] = {}
        for passage in rank_record(passages).passages:
            note = NoteEntry(passage.document_id, passage.title, passage.date, passage.metadata)
            notes.setdefault(passage.document_id, note)
        await self.access.record(caller, "patient", library, patient, list(notes), body.break_glass)
        return PatientNotes(record, tuple(notes.values())), tuple(passages)

    async def _search(
        self,
        caller: Caller,
        action: str,
        library: OpenLibrary,
        body: SearchBody,
        patient: str | None,
        search: Callable[..., T],
    ) -> T:
        """Return the result of a search by a caller, who may not learn of other patients. A refusal is logged."""
        try:
            return await offload(library.pipeline, search, readable=caller.list_readable(patient))
        except InputError:
            await self.access.record(caller, action, library, patient, (), body.break_glass, outcome="refused")
            raise

    async def _open(
        self, caller: Caller, action: str, name: str | None, patient: str | None, reason: str | None
    ) -> tuple[OpenLibrary, str | None]:
        """Return the library, and the id of the patient, whose record the caller may read."""
        library = self.resources.find(name)
        await self.access.check(caller, action, library, patient, reason, library_only=True)
        return library, await self.access.find_patient(caller, action, library, patient, reason)


async def offload(pipeline: Pipeline, work: Callable[P, T], *arguments: P.args, **keywords: P.kwargs) -> T:
    """Return the result of synchronous work in a thread. The pipeline limits how much runs at the same time."""
    async with pipeline.searches:
        return await asyncio.to_thread(work, *arguments, **keywords)


async def read_documents(library: OpenLibrary, patient: str | None, document_ids: Sequence[str]) -> tuple[Passage, ...]:
    """Return all passages of literature, and of notes of the patient, in order. Missing documents are left out."""
    pipeline = library.pipeline
    if pipeline.search is None or not document_ids:
        return ()
    passages_by_id: dict[str, tuple[Passage, ...]] = {}
    for place, store in enumerate((pipeline.search.store, *pipeline.search.literature)):
        # Notes of the libraries beside the first belong to other people.
        scope = Scope(patient=patient if place == 0 else None)
        for document_id, passages_of_one in (
            await offload(pipeline, read_document_passages, store, document_ids, scope)
        ).items():
            passages_by_id.setdefault(document_id, passages_of_one)
    passages: list[Passage] = []
    for document_id in document_ids:
        passages += passages_by_id.get(document_id, ())
    return tuple(passages)


def _select_sentences(
    pipeline: Pipeline, query: str, patient: str | None, *, readable: frozenset[str] | None
) -> SentenceRanking:
    settings, search = pipeline.settings, pipeline.search
    assert search is not None
    if search.retriever.encoder is None:
        raise InputError("the server has no encoder, so it cannot rank sentences: use search")
    return search_sentences(settings, search, query, patient, readable=readable)


def _join_passages(library: str, passages: Sequence[Passage]) -> DocumentText:
    # Prompts fill a single missing character with a blank; readers see the line breaks of a note.
    (note,) = restore_notes(passages)
    return DocumentText(
        id=note.document_id,
        library=library,
        title=note.title,
        source=note.source,
        date=note.date,
        patient=note.patient,
        marks=note.marks,
        metadata=note.metadata,
        start=note.start,
        text=join_text(passages),
        passages=tuple(passage.id for passage in passages),
    )


def read_table_version(search: LibrarySearch) -> int | None:
    """Return a number that grows with every change of the library, or None for a store of another package."""
    return None if search.has_own_store else search.library.open_table().version
