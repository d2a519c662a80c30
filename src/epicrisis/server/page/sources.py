"""Open what an answer cites: the document of a citation, a cell of the evidence table, or a place in the ranking."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from epicrisis.core.answers import Answer, Citation
from epicrisis.core.references import find_document_study, list_page_starts
from epicrisis.core.studies import StudyRow
from epicrisis.core.types import Passage, Scope
from epicrisis.library.passage_lookup import read_document_passages
from epicrisis.pipeline.components import build_scope
from epicrisis.pipeline.evidence import find_time_restriction
from epicrisis.report.study_table import build_study_table, list_shown_citations
from epicrisis.server.errors import NotFound
from epicrisis.server.page.document_view import (
    DocumentView,
    Highlight,
    build_document_view,
    is_unchanged,
)
from epicrisis.server.page.evidence_map import list_ranked_documents, list_ranked_passages
from epicrisis.server.page.pdf_view import PageImage, PdfViewer, find_file
from epicrisis.server.page.stored_answers import AnswerStore, FollowUp, StoredAnswer
from epicrisis.server.page.study_view import touches
from epicrisis.server.questions import Inquiry
from epicrisis.server.reading import offload
from epicrisis.server.resources import OpenLibrary

CHANGED = "The document in the library has changed since this answer. You see the passages as they were read."


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


async def collect_cited_passages(library: OpenLibrary, answer: Answer) -> tuple[Passage, ...]:
    """Return the passages to store with an answer: those that its citations touch, and the first of each document.

    The first passage of an article states its size and population.
    """
    citations = list_shown_citations(answer)
    document_ids = list(dict.fromkeys(citation.document_id for citation in citations))
    cited_passages: list[Passage] = []
    for passage in await read_documents(library, answer.patient, document_ids):
        touched = any(touches(citation, passage) for citation in citations)
        if touched or passage.ordinal == 0:
            cited_passages.append(passage)
    return tuple(cited_passages)


def settle_study_types(answer: Answer, passages: Sequence[Passage]) -> Answer:
    """Return the answer with one study type for all citations of a document: that of its first passage.

    The type may stand in the abstract alone, and a sentence of a later passage would have none.
    """

    def settle(citations: Sequence[Citation]) -> tuple[Citation, ...]:
        settled: list[Citation] = []
        for citation in citations:
            study = find_document_study(citation.document_id, passages) or citation.reference.study
            settled.append(replace(citation, reference=replace(citation.reference, study=study)))
        return tuple(settled)

    withheld = answer.withheld
    if withheld is not None:
        withheld = replace(withheld, citations=settle(withheld.citations))
    return replace(answer, citations=settle(answer.citations), withheld=withheld)


async def store_answer(
    answers: AnswerStore,
    inquiry: Inquiry,
    answer: Answer,
    settings: Mapping[str, str] = MappingProxyType({}),
    follow_up: FollowUp | None = None,
) -> StoredAnswer:
    """Keep the answer to a question with the passages it cites, so that its page shows them later."""
    passages = await collect_cited_passages(inquiry.library, answer)
    stored = StoredAnswer(
        answer=settle_study_types(answer, passages),
        passages=passages,
        library=inquiry.library.name,
        owner=inquiry.caller.owner,
        reason=inquiry.reason,
        left_out=await list_left_out(inquiry, answer),
        settings=dict(settings),
        follow_up=follow_up,
    )
    return await asyncio.to_thread(answers.add, stored)


async def list_left_out(inquiry: Inquiry, answer: Answer) -> tuple[str, ...]:
    """Return the ids of the notes that the time filter left out of the first attempt, in order."""
    if answer.narrowing == "none":
        return ()
    pipeline = inquiry.pipeline
    scope = build_scope(pipeline.settings.scope, inquiry.question.patient)
    restriction = await find_time_restriction(pipeline, inquiry.question, scope)
    return tuple(sorted(restriction.hidden))


def find_citation(stored: StoredAnswer, number: int) -> Citation:
    """Return the citation with this number. Raises NotFound."""
    for citation in list_shown_citations(stored.answer):
        if citation.number == number:
            return citation
    raise NotFound("the answer has no source of this number")


def find_study(stored: StoredAnswer, number: int) -> StudyRow:
    """Return a row of the evidence table by its number, from 1. Raises NotFound."""
    rows = build_study_table(stored.answer, (*stored.passages, *list_ranked_passages(stored.answer)))
    if not 1 <= number <= len(rows):
        raise NotFound("the evidence table has no such row")
    return rows[number - 1]


def find_ranked(stored: StoredAnswer, rank: int) -> tuple[str, Highlight]:
    """Return the document at a rank, from 1, and its place: the cited sentence, else the passage. Raises NotFound."""
    ranked = list_ranked_documents(stored.answer)
    if not 1 <= rank <= len(ranked):
        raise NotFound("the ranking has no such place")
    passage_id, document_id, _ = ranked[rank - 1]
    for citation in list_shown_citations(stored.answer):
        if citation.document_id == document_id and passage_id in ("", citation.passage_id):
            return document_id, build_highlight(citation)
    passages = {passage.id: passage for passage in list_ranked_passages(stored.answer)}
    passage = passages[passage_id]
    return document_id, Highlight((passage.start, passage.end))


def build_highlight(citation: Citation) -> Highlight:
    """Return the place of a citation. Without a verified quotation it is the passage that was read."""
    span = (citation.start, citation.end)
    if citation.in_title:
        return Highlight(span, in_title=True)
    return Highlight(span, is_passage=not citation.verified)


async def open_document(
    stored: StoredAnswer, library: OpenLibrary | None, document_id: str, highlight: Highlight, viewer: PdfViewer
) -> DocumentView:
    """Return the view of a document with the place highlighted, in a PDF file also on its pages.

    The text is the library's if it still has the same words, else the stored passages', without pages. `library` is
    None if the server no longer serves it. Raises NotFound if neither has the document.
    """
    current: Sequence[Passage] = ()
    if library is not None:
        current = await read_documents(library, stored.answer.patient, [document_id])
    stored_passages = _unique((*stored.passages, *list_ranked_passages(stored.answer)), document_id)
    if (
        library is not None
        and current
        and (not stored_passages or is_unchanged(current, stored_passages, highlight.span))
    ):
        view = build_document_view(current, highlight, complete=True)
        number = list_document_ids(stored).index(document_id)
        address = f"/answers/{stored.id}/documents/{number}"
        return await viewer.add_pages(view, library, current, highlight, address)
    if not stored_passages:
        raise NotFound("the document is no longer in the library")
    view = build_document_view(stored_passages, highlight, complete=False)
    return view.with_remark(CHANGED) if current else view


def list_document_ids(stored: StoredAnswer) -> list[str]:
    """Return the ids of all documents that the page of an answer can open. A place in this list names a document."""
    cited = [citation.document_id for citation in list_shown_citations(stored.answer)]
    stored_ids = [passage.document_id for passage in stored.passages]
    ranked = [document_id for _, document_id, _ in list_ranked_documents(stored.answer)]
    return list(dict.fromkeys((*cited, *stored_ids, *ranked)))


async def draw_page(
    stored: StoredAnswer, library: OpenLibrary | None, number: int, page: int, viewer: PdfViewer
) -> PageImage:
    """Return the image of a page of a PDF file. `number` is the place of the document in `list_document_ids`.

    Raises NotFound if the document is gone, is no PDF file, or the file has changed.
    """
    ids = list_document_ids(stored)
    if library is None or not 0 <= number < len(ids):
        raise NotFound("the answer has no such document")
    passages = await read_documents(library, stored.answer.patient, [ids[number]])
    if not list_page_starts(passages) or passages[0].patient is not None:
        raise NotFound("the document has no pages: it is no PDF file, or it is no longer in the library")
    return await viewer.draw(await find_file(library, ids[number]), page)


def _unique(passages: Iterable[Passage], document_id: str) -> tuple[Passage, ...]:
    """Return the passages of a document, each once."""
    by_id = {passage.id: passage for passage in passages if passage.document_id == document_id}
    return tuple(by_id.values())
