"""A citation as a reader is shown it: on a terminal, on the page, in files, in a chat and by MCP.

What is known of a source beyond its reference is one of its `facts`, which all of them print.
"""

from __future__ import annotations

from dataclasses import dataclass

from epicrisis.core.answers import Citation
from epicrisis.core.printable import printable
from epicrisis.core.prompts import MARK_LABELS
from epicrisis.core.references import Link, name_document


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownCitation:
    """The words of a citation. Every text is one printable line."""

    number: int
    title: str
    reference: str
    """The source as a reader would cite it, or the document's id if nothing else is known."""
    quotation: str
    marks: str
    """What became of the article, in capitals, so that it does not depend on colour."""
    facts: tuple[tuple[str, str], ...]
    """Further facts on the source, each with its name: `("Study type", "randomised trial")`."""
    place: str
    """Where the sentence stands, for a reader: `section Results, page 3`."""
    offsets: str
    """Where it stands, for a program: document, place and characters."""
    links: tuple[Link, ...] = ()


def show_citation(citation: Citation) -> ShownCitation:
    """Return the words of a citation."""
    reference = citation.reference
    title = name_document(citation.title, citation.document_id) if citation.title else ""
    is_in_title = citation.title.casefold().startswith(reference.note_type.casefold())
    kind = "" if is_in_title else f" ({reference.note_type})"
    described = printable(reference.describe(title, citation.source, citation.date) + kind)
    place = printable(reference.describe_place())
    document = printable(citation.document_id)
    facts = {"Study type": reference.study.label if reference.study is not None else ""}
    return ShownCitation(
        number=citation.number,
        title=printable(title),
        reference=described or document,
        quotation=printable(citation.quotation),
        marks=", ".join(MARK_LABELS[mark] for mark in citation.marks),
        facts=tuple((name, printable(text)) for name, text in facts.items() if text),
        place=place,
        offsets=f"{document}{f', {place}' if place else ''}, characters {citation.start} to {citation.end}",
        links=reference.links,
    )
