"""Open what an answer cites: the document of a citation, a cell of the evidence table, or a place in the ranking."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from epicrisis.core.answers import Citation
from epicrisis.core.references import list_page_starts
from epicrisis.core.studies import StudyRow
from epicrisis.core.types import Passage
from epicrisis.report.study_table import build_study_table
from epicrisis.server.base.http_errors import NotFound
from epicrisis.server.libraries.reading import read_documents
from epicrisis.server.libraries.resources import OpenLibrary
from epicrisis.server.page.document_view import (
    DocumentView,
    Highlight,
    build_document_view,
    is_unchanged,
)
from epicrisis.server.page.evidence_map import list_ranked_documents, list_ranked_passages
from epicrisis.server.page.pdf_view import PageImage, PdfViewer, find_file
from epicrisis.server.state.stored_answers import StoredAnswer

CHANGED = "The document in the library has changed since this answer. You see the passages as they were read."


def find_citation(stored: StoredAnswer, number: int) -> Citation:
    """Return the citation with this number. Raises NotFound."""
    for citation in stored.answer.shown_citations:
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
    for citation in stored.answer.shown_citations:
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
    cited = [citation.document_id for citation in stored.answer.shown_citations]
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
