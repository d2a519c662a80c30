"""Quotations and citations: the place of a claim in a document, found word for word or marked as not found."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from operator import attrgetter

from epicrisis.core.answers import Answer, Citation, Claim, Quotation
from epicrisis.core.prompts import unescape
from epicrisis.core.references import build_reference, find_document_study
from epicrisis.core.types import Passage

MIN_WORDS = 3
"""A shorter quotation would match almost anywhere, so a match would show nothing."""
_NAME = r"(?:docs?|documents?|evidence|findings?)"
_MARKER = re.compile(
    rf"(?<!\s)\s*+\[(?:\s*+\d++|{_NAME}\s*+\d++(?:\s*+[,;]\s*+(?:{_NAME}\s*+)?\d++)*+)\]", re.IGNORECASE
)
_BEGINS, _ENDS = re.compile(r"(?<!\w)(?<!\d[.,/])"), re.compile(r"(?!\w|[.,/]\d)")
"""Match the beginning and the end of a complete word or number."""
_WORD = re.compile(r"\S+")
_EDGES = " \t\n\"'“”‘’.…"


def locate(quote: str, passage: Passage, passages: Sequence[Passage] = ()) -> Quotation:
    """Return the quotation with its place in the document of `passage`, if the document contains its words.

    White space may differ. The search covers the passage, then those of `passages` from the same document, joined if
    they touch or overlap, then the document's title. Offsets are characters of the document's text; both are None if
    the words are not found, or only in the title. For words on both sides of a gap, return the longer part.
    """
    return max(_find_places(quote, passage, passages), key=lambda quotation: len(quotation.text))


def locate_span(span: str, passage: Passage) -> Quotation:
    """Return the first place of complete words in `passage`: `5 mg` is not found in `15 mg`, nor `5` in `5.5`."""
    quotation = _in_text(unescape(span).strip(_EDGES).split(), passage, complete=True)
    return quotation or Quotation(passage.id, span)


def _find_places(quote: str, passage: Passage, passages: Sequence[Passage]) -> Sequence[Quotation]:
    words = unescape(quote).strip(_EDGES).split()
    if len(words) < MIN_WORDS:
        return (Quotation(passage.id, quote),)
    if quotation := _in_text(words, passage):
        return (quotation,)
    for run in _runs(passage, passages):
        if (quotation := _in_text(words, run)) and quotation.start is not None and quotation.end is not None:
            # The white space of a gap between two passages is unknown, so a quotation across it becomes two pieces.
            pieces = list[Quotation]()
            for solid in _runs(passage, passages, across_gaps=False):
                start, end = max(quotation.start, solid.start), min(quotation.end, solid.end)
                if start < end:
                    same = [other for other in passages if other.document_id == solid.document_id]
                    source = next(other for other in same if other.start <= start < other.end)
                    text = solid.text[start - solid.start : end - solid.start]
                    pieces.append(Quotation(source.id, text, start, end))
            long = [piece for piece in pieces if len(piece.text.split()) >= MIN_WORDS]
            return long or sorted(pieces, key=lambda piece: len(piece.text))[-1:] or (quotation,)
    place = _find(" ".join(words), passage.title, complete=False)
    if place is None:
        return (Quotation(passage.id, quote),)
    return (Quotation(passage.id, passage.title[place[0] : place[1]], in_title=True),)


def _in_text(words: Sequence[str], passage: Passage, *, complete: bool = False) -> Quotation | None:
    place = _find(" ".join(words), passage.text, complete=complete) if words else None
    if place is None:
        return None
    start, end = place
    return Quotation(passage.id, passage.text[start:end], passage.start + start, passage.start + end)


def _find(words: str, text: str, *, complete: bool) -> tuple[int, int] | None:
    """Return the first place of these words in a text with any white space. A regular expression would be too slow."""
    spaced, starts, origins = _spaced(text)
    at = spaced.find(words)
    while at >= 0:
        first, last = bisect_right(starts, at) - 1, bisect_right(starts, at + len(words) - 1) - 1
        start = origins[first] + at - starts[first]
        end = origins[last] + at + len(words) - starts[last]
        if not complete or (_BEGINS.match(text, start) and _ENDS.match(text, end)):
            return start, end
        at = spaced.find(words, at + 1)
    return None


@lru_cache(maxsize=32)
def _spaced(text: str) -> tuple[str, Sequence[int], Sequence[int]]:
    """Return the text with one blank between its words, and the offset of every word in it and in the text."""
    words, starts, origins = list[str](), array("q"), array("q")
    length = 0
    for match in _WORD.finditer(text):
        words.append(match[0])
        starts.append(length)
        origins.append(match.start())
        length += len(match[0]) + 1
    return " ".join(words), starts, origins


def _runs(passage: Passage, passages: Sequence[Passage], *, across_gaps: bool = True) -> list[Passage]:
    """Return the passages of the passage's document, joined if they touch or overlap.

    With `across_gaps`, neighbours are joined too, with one blank for each character between them.
    """
    runs: list[Passage] = []
    same = [other for other in passages if other.document_id == passage.document_id]
    for part in sorted(same, key=attrgetter("start")):
        last = runs[-1] if runs else None
        # Only white space separates passages of consecutive ordinals.
        if last is None or (part.start > last.end and not (across_gaps and part.ordinal == last.ordinal + 1)):
            runs.append(part)
        elif part.end > last.end:
            gap = " " * max(0, part.start - last.end)
            text = last.text + gap + part.text[max(0, last.end - part.start) :]
            runs[-1] = replace(part, start=last.start, text=text)
    return runs


def locate_all(quotes: Sequence[tuple[int, str]], passages: Sequence[Passage]) -> tuple[Quotation, ...]:
    """Return the places of quotes with document numbers from 1. A quote across a gap has a place on each side."""
    quotations = list[Quotation]()
    for number, quote in quotes:
        quotations += _find_places(quote, passages[number - 1], passages)
    return tuple(quotations)


def cite(text: str, quotations: Sequence[Quotation], passages: Sequence[Passage]) -> tuple[str, tuple[Citation, ...]]:
    """Return the text followed by `[1]`, `[2]`..., and the citations with these numbers, verified quotations first.

    The model's own markers are removed, because their numbers differ. An unverified quotation's place is its passage.
    """
    cited, citations, _ = cite_claims([(text, quotations)], passages)
    return cited, citations


def cite_claims(
    claims: Iterable[tuple[str, Sequence[Quotation]]], passages: Sequence[Passage]
) -> tuple[str, tuple[Citation, ...], tuple[Claim, ...]]:
    """Return the texts of claims, each followed by its markers, the citations with these numbers, and the claims.

    A quotation of several claims has one number. The quotations of a claim are numbered verified ones first.
    """
    by_id = {passage.id: passage for passage in passages}
    citations: dict[Quotation, Citation] = {}
    texts: list[str] = []
    numbered: list[Claim] = []
    for text, quotations in claims:
        ordered = sorted(dict.fromkeys(quotations), key=lambda quotation: not quotation.verified)
        for quotation in ordered:
            if quotation not in citations:
                citations[quotation] = build_citation(len(citations) + 1, quotation, by_id[quotation.passage_id])
        clean = _MARKER.sub("", text).strip()
        numbers = tuple(citations[quotation].number for quotation in ordered)
        markers = "".join(map("[{}]".format, numbers))
        texts.append(f"{clean} {markers}" if markers else clean)
        numbered.append(Claim(clean, numbers))
    return " ".join(texts), tuple(citations.values()), tuple(numbered)


def settle_study_types(answer: Answer, passages: Sequence[Passage]) -> Answer:
    """Return the answer with one study type for all citations of a document, from its passages among these.

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
    return replace(answer, citations=settle(answer.citations), nearest=settle(answer.nearest), withheld=withheld)


def build_citation(number: int, quotation: Quotation, passage: Passage) -> Citation:
    return Citation(
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
        in_title=quotation.in_title,
        marks=passage.marks,
        reference=build_reference(passage, quotation.start, quotation.end),
        chosen_by_program=quotation.chosen_by_program,
    )
