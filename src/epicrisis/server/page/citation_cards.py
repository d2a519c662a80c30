"""A citation on the page of an answer, and what its number opens: its sentence among the words around it.

The words come from the passages stored with the answer, so that a card needs no request and no script.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from epicrisis.core.answers import Citation
from epicrisis.core.printable import printable
from epicrisis.core.types import Passage, SupportState
from epicrisis.server.page.document_view import Highlight, TextPiece, build_document_view

CONTEXT_CHARACTERS = 200
"""Most characters shown before and after the sentence. Cuts are marked, and the document has the rest."""
_ELLIPSIS = "\u2026"


@dataclass(frozen=True, slots=True, kw_only=True)
class CitationView:
    """A numbered citation."""

    number: int
    href: str
    title: str
    quotation: str
    reference: str
    year: str
    design: str
    marks: str
    """What became of the article, in capitals."""
    support: SupportState
    check: str
    """What was checked of it, in words. Empty for a sentence that is its own claim."""
    is_verified: bool
    place: str
    facts: tuple[tuple[str, str], ...] = ()
    """Further facts on the source, with their names."""
    is_note: bool = False
    identifier: str = ""
    """`PMID 29768149` and the like."""
    badge: str = ""
    """What was checked of it, unless it is the same for all citations."""
    excerpt: tuple[TextPiece, ...] = ()
    """The sentence, highlighted, among the words around it. Empty if the document does not contain it."""

    @property
    def description(self) -> str:
        """The citation in words, for screen readers."""
        facts = (self.marks, self.design, self.year, self.check)
        return f"Source {self.number}: {self.title}. {', '.join(filter(None, facts))}"


def excerpt_passage(citation: Citation, passages: Sequence[Passage]) -> tuple[TextPiece, ...]:
    """Return the cited sentence, highlighted, with the words around it.

    Empty if the quotation was not found in the document, or if no passage of it was stored. A quotation of the title is
    alone.
    """
    if not citation.verified:
        return ()
    if citation.in_title:
        return (TextPiece(printable(citation.title), is_highlighted=True),)
    touched: dict[str, Passage] = {}
    for passage in passages:
        if touches(citation, passage):
            touched[passage.id] = passage
    if not touched:
        return ()
    view = build_document_view(list(touched.values()), Highlight((citation.start, citation.end)), complete=True)
    marked = [number for number, piece in enumerate(view.pieces) if piece.is_highlighted]
    if not marked:
        return ()
    before = "".join(piece.text for piece in view.pieces[: marked[0]])
    after = "".join(piece.text for piece in view.pieces[marked[-1] + 1 :])
    return (TextPiece(_cut_start(before)), TextPiece(view.highlight, is_highlighted=True), TextPiece(_cut_end(after)))


def touches(citation: Citation, passage: Passage) -> bool:
    """Return whether the quotation of a citation is in a passage, or partly."""
    is_same = citation.document_id == passage.document_id
    return is_same and citation.start < passage.end and passage.start < citation.end


def _cut_start(text: str) -> str:
    """Return the last words of a text. A mark replaces the words before."""
    if len(text) <= CONTEXT_CHARACTERS:
        return text
    _, _, words = text[-CONTEXT_CHARACTERS:].partition(" ")
    return f"{_ELLIPSIS} {words}"


def _cut_end(text: str) -> str:
    """Return the first words of a text. A mark replaces the words after."""
    if len(text) <= CONTEXT_CHARACTERS:
        return text
    words, _, _ = text[:CONTEXT_CHARACTERS].rpartition(" ")
    return f"{words} {_ELLIPSIS}"
