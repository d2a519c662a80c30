"""The sentences of the library that bear on a question, readable while a chat model writes its answer.

    piece = await render_found(reader, inquiry, settings)

They are found by the program at once, as for answers without a model, and are no answer.
"""

from __future__ import annotations

from epicrisis.answering.strategy import writes_citations
from epicrisis.core.errors import EpicrisisError
from epicrisis.core.references import find_document_study
from epicrisis.core.types import Passage, Sentence, SentenceRanking
from epicrisis.server.libraries.asked_questions import Inquiry
from epicrisis.server.libraries.reading import LibraryReader, SearchBody
from epicrisis.server.libraries.resources import RequestSettings
from epicrisis.server.page.rendering import render


async def render_found(reader: LibraryReader, inquiry: Inquiry, settings: RequestSettings) -> str:
    """Return the sentences as HTML. Empty if the strategy cites nothing, and if they cannot be searched for.

    The access log has their documents before they are returned.
    """
    if not writes_citations(inquiry.pipeline.settings.strategy):
        return ""
    body = SearchBody(
        query=inquiry.question.text,
        library=inquiry.library.name,
        patient=inquiry.question.patient,
        settings=settings,
        break_glass=inquiry.reason,
    )
    try:
        ranking = await reader.find_evidence(body, inquiry.caller)
    except EpicrisisError:
        # The question itself fails for the same reason, and says so.
        return ""
    documents = _describe_documents(ranking)
    return render("found", documents=documents, library=inquiry.library.name) if documents else ""


def _describe_documents(ranking: SentenceRanking) -> list[tuple[Passage, list[str], list[Sentence]]]:
    """Return a passage of each document, its kind and date, and its sentences, in the order of their best one."""
    by_document: dict[str, list[Sentence]] = {}
    for sentence in ranking.sentences:
        by_document.setdefault(sentence.passage.document_id, []).append(sentence)
    documents: list[tuple[Passage, list[str], list[Sentence]]] = []
    for document_id, sentences in by_document.items():
        first = sentences[0].passage
        study = find_document_study(document_id, [sentence.passage for sentence in sentences])
        is_note = first.patient is not None
        kind = str(first.metadata.get("note_type") or "") if is_note else study.name if study else ""
        date = (first.date or "")[: 10 if is_note else 4]
        documents.append((first, list(filter(None, (kind, date))), sentences))
    return documents
