"""Quotations and citations: where in a document a claim stands, found word for word or marked as not found.

Pure functions. Citing everything is citing nothing: only what the answer names is cited.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from epicrisis.answers import Citation, Quotation
from epicrisis.prompts import unescape
from epicrisis.types import Passage

MIN_WORDS = 3
"""A quotation of fewer words is found almost anywhere, so finding it shows nothing."""

_NAME = r"(?:docs?|documents?|evidence|findings?)"
_MARKER = re.compile(rf"\s*\[(?:{_NAME}?\s*\d+|{_NAME}\s*\d+(?:\s*[,;]\s*{_NAME}?\s*\d+)*)\]", re.IGNORECASE)
_WHOLE = r"(?<!\w)(?<!\d[.,/])", r"(?!\w|[.,/]\d)"
"""What stands before and behind a whole word or number."""
_EDGES = " \t\n\"'“”‘’.…"


def locate(quote: str, passage: Passage) -> Quotation:
    """The quotation with its place in the document, where it stands there word for word; white space may differ.

    Offsets are characters of the document's text; both are None where the words were not found.
    """
    words = unescape(quote).strip(_EDGES).split()
    return _found(quote, words if len(words) >= MIN_WORDS else [], passage)


def locate_span(span: str, passage: Passage) -> Quotation:
    """As `locate`, of an answer that may be one word or number: a whole one, so that `5 mg` is not found in `15 mg`,
    nor `5` in `5.5`. Of several places it is the first."""
    return _found(span, unescape(span).strip(_EDGES).split(), passage, *_WHOLE)


def _found(quote: str, words: Sequence[str], passage: Passage, before: str = "", behind: str = "") -> Quotation:
    found = re.search(before + r"\s+".join(map(re.escape, words)) + behind, passage.text) if words else None
    if found is None:
        return Quotation(passage.id, quote)
    return Quotation(passage.id, found.group(), passage.start + found.start(), passage.start + found.end())


def locate_all(quotes: Sequence[tuple[int, str]], passages: Sequence[Passage]) -> tuple[Quotation, ...]:
    """Quotes as (number of the document from 1, words), each looked for in the passage of that number."""
    return tuple(locate(words, passages[number - 1]) for number, words in quotes)


def cite(
    text: str, quotations: Sequence[Quotation], passages: Mapping[str, Passage]
) -> tuple[str, tuple[Citation, ...]]:
    """The text with `[1]`, `[2]`... behind it and the citations they stand for, in the order of the quotations.

    Markers that the model wrote itself count in another system and are taken out. Verified quotations come first; of
    an unverified one the whole passage is the place.
    """
    ordered = sorted(dict.fromkeys(quotations), key=lambda quotation: not quotation.verified)
    citations = []
    for number, quotation in enumerate(ordered, 1):
        passage = passages[quotation.passage_id]
        citations.append(
            Citation(
                number=number,
                passage_id=passage.id,
                document_id=passage.document_id,
                title=passage.title,
                source=passage.source,
                date=passage.date,
                start=passage.start if quotation.start is None else quotation.start,
                end=passage.end if quotation.end is None else quotation.end,
                quotation=quotation.text,
                verified=quotation.verified,
                marks=passage.marks,
            )
        )
    clean = _MARKER.sub("", text).strip()
    markers = "".join(f"[{citation.number}]" for citation in citations)
    return (f"{clean} {markers}" if markers else clean), tuple(citations)
