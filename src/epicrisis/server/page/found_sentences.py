"""The sentences of the library that bear on a question, readable while a chat model writes its answer.

    piece = await render_found(reader, inquiry, settings)

They are found by the program at once, as for answers without a model, and are no answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from epicrisis.answering.strategy import writes_citations
from epicrisis.core.errors import EpicrisisError
from epicrisis.core.printable import printable
from epicrisis.core.references import find_document_study, name_document
from epicrisis.core.types import Sentence, SentenceRanking
from epicrisis.server.page.rendering import render
from epicrisis.server.questions import Inquiry
from epicrisis.server.reading import LibraryReader, SearchBody
from epicrisis.server.resources import RequestSettings


@dataclass(frozen=True, slots=True)
class SentenceGroup:
    """A document with its sentences, the best first."""

    title: str
    facts: tuple[str, ...]
    """Type of study or note, and year or date."""
    href: str
    """The address of the document in its library. Empty for notes."""
    sentences: tuple[str, ...]


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
    documents = group_sentences(ranking, inquiry.library.name)
    return render("found", documents=documents) if documents else ""


def group_sentences(ranking: SentenceRanking, library: str) -> tuple[SentenceGroup, ...]:
    """Return the documents of the sentences, in the order of their best one."""
    by_document: dict[str, list[Sentence]] = {}
    for sentence in ranking.sentences:
        by_document.setdefault(sentence.passage.document_id, []).append(sentence)
    documents: list[SentenceGroup] = []
    for document_id, sentences in by_document.items():
        first = sentences[0].passage
        study = find_document_study(document_id, [sentence.passage for sentence in sentences])
        is_note = first.patient is not None
        kind = str(first.metadata.get("note_type") or "") if is_note else study.name if study else ""
        date = (first.date or "")[: 10 if is_note else 4]
        address = f"/libraries/{quote(library, safe='')}/documents/{quote(document_id, safe=':')}"
        documents.append(
            SentenceGroup(
                printable(name_document(first.title, document_id)),
                tuple(filter(None, (printable(kind), printable(date)))),
                "" if is_note else address,
                tuple(printable(sentence.text) for sentence in sentences),
            )
        )
    return tuple(documents)
