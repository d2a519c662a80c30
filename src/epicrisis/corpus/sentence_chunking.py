"""Documents are cut into passages that fit an encoder, at sentence boundaries.

Does not know the encoder: it is handed the encoder's token offsets. Does not know what language a text is in: the
splitter goes by punctuation and line ends, which is enough to cut between sentences nearly always.
"""

from __future__ import annotations

import itertools
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from epicrisis.types import CharacterSpan, Document, Passage

_NEWLINE = "\n\r\v\f\x85\u2028\u2029"
# Each alternative begins at one fixed character and ends greedily: the search is linear in any text.
_BOUNDARY = re.compile(rf"(?P<mark>[.!?…])[\"'”’»)\]]{{0,4}}(?P<gap>\s+)|[{_NEWLINE}]\s*")
_LINE_END = re.compile(f"[{_NEWLINE}]")
_INK = re.compile(r"\S")
# Units (`30 min.`) are left out: they end sentences as often as not.
_ABBREVIATIONS = frozenset(
    "al approx ca cf dept dr eds eg eq eqs esp et fig figs ie inc jr ltd mr mrs ms nos pp prof ref refs resp sect sp "  # noqa: SIM905
    "spp sr ssp st staph strep subsp suppl viz vol vs".split()
)
_LONGEST_ABBREVIATION = 12


class _Piece(NamedTuple):
    """A sentence, or a fragment of one too long for a passage: characters `start` to `end`, tokens `first` to `last`.

    The tokens are those that share a character with it.
    """

    start: int
    end: int
    first: int
    last: int
    whole: bool


def chunk(
    document: Document, spans: Callable[[str], Sequence[CharacterSpan]], max_tokens: int, overlap: int
) -> tuple[Passage, ...]:
    """The document's passages in order, each of at most `max_tokens` tokens by the offsets that `spans` gives.

    A document that fits is one passage; one of white space is none. Otherwise consecutive passages share whole
    sentences of up to `overlap` tokens; a sentence longer than a passage is cut, between words where there are words,
    and shares nothing. Passages hold every character but white space, begin and end with none, and their starts
    strictly increase. Only a single character of more than `max_tokens` tokens makes a passage that is longer.

    The encoder reads title and passage together, with a separator between, so the title's tokens and one are taken off
    `max_tokens`, down to half of it. Beyond that the title is the odd one: the passages stay half a window long, and
    the encoder, which cuts what is over, has the passage whole or nearly so; smaller ones would say too little.

    `spans` is called once for the text and once for the title. Raises ValueError unless max_tokens > overlap >= 0.
    """
    if not max_tokens > overlap >= 0:
        raise ValueError(f"max_tokens must be greater than overlap, and overlap 0 or more: {max_tokens}, {overlap}")
    text = document.text
    tokens = spans(text)
    limit = max_tokens
    if document.title:
        limit = max(max_tokens - len(spans(document.title)) - 1, max_tokens // 2, 1)
    if len(tokens) <= limit:
        ranges = [(len(text) - len(text.lstrip()), len(text.rstrip()))] if text.strip() else []
    else:
        pieces = list(_pieces(text, tokens, limit))
        ranges = [(pieces[i].start, pieces[j - 1].end) for i, j in _pack(pieces, limit, overlap)]
    return passages(document, ranges)


def passages(document: Document, ranges: Iterable[CharacterSpan]) -> tuple[Passage, ...]:
    """The spans of the document's text that these offsets give, numbered in their order."""
    return tuple(
        Passage(
            id=f"{document.id}#{ordinal}",
            document_id=document.id,
            ordinal=ordinal,
            start=start,
            end=end,
            text=document.text[start:end],
            title=document.title,
            source=document.source,
            date=document.date,
            patient=document.patient,
            metadata=document.metadata,
        )
        for ordinal, (start, end) in enumerate(ranges)
    )


def _pack(pieces: Sequence[_Piece], limit: int, overlap: int) -> Iterator[CharacterSpan]:
    """Passages as ranges of pieces: each takes as many as fit, the next steps back over whole sentences.

    It steps back only as far as leaves room for a new piece, so that every passage says something new.
    """
    begin = end = 0
    while end < len(pieces):
        end += 1
        while end < len(pieces) and pieces[end].last - pieces[begin].first <= limit:
            end += 1
        yield begin, end
        if end == len(pieces):
            return
        back = end
        while (
            back - 1 > begin
            and pieces[back - 1].whole
            and pieces[end - 1].last - pieces[back - 1].first <= overlap
            and pieces[end].last - pieces[back - 1].first <= limit
        ):
            back -= 1
        begin = back


def _pieces(text: str, tokens: Sequence[CharacterSpan], limit: int) -> Iterator[_Piece]:
    for start, end in sentences(text):
        first = bisect_right(tokens, start, key=lambda span: span[1])
        last = bisect_left(tokens, end, key=lambda span: span[0])
        if last - first <= limit:
            yield _Piece(start, end, first, last, whole=True)
        else:
            yield from _fragments(text, tokens, _Piece(start, end, first, last, whole=False), limit)


def _fragments(text: str, tokens: Sequence[CharacterSpan], sentence: _Piece, limit: int) -> Iterator[_Piece]:
    start, first = sentence.start, sentence.first
    while sentence.last - first > limit:
        cut = _cut(text, tokens, first, sentence.last, limit)
        if cut == sentence.last:
            break
        ink = _INK.search(text, tokens[cut][0], sentence.end)
        assert ink is not None, "a sentence ends with ink, and the token begins before its end"
        end = start + len(text[start : tokens[cut][0]].rstrip())
        yield _Piece(start, end, first, cut, whole=False)
        start = ink.start()
        first = max(cut, bisect_right(tokens, start, lo=cut, hi=sentence.last, key=lambda span: span[1]))
    yield _Piece(start, sentence.end, first, sentence.last, whole=False)


def _cut(text: str, tokens: Sequence[CharacterSpan], first: int, last: int, limit: int) -> int:
    """The token that begins the next fragment, or `last` where there is no place to cut.

    Between words where there is such a place in the second half, because half a word makes other tokens than in the
    whole; else between two tokens; never within a character that several tokens share.
    """
    for token in range(first + limit, first + limit // 2, -1):
        around = text[max(tokens[token][0] - 1, 0) : tokens[token][0] + 1]
        if len(around.strip()) < len(around) and tokens[token][0] >= tokens[token - 1][1]:
            return token
    for token in itertools.chain(range(first + limit, first, -1), range(first + limit + 1, last)):
        if tokens[token][0] >= tokens[token - 1][1]:
            return token
    return last


def sentences(text: str) -> Iterator[CharacterSpan]:
    """Offsets of the sentences in order, without the white space between them. A line end always ends one."""
    start = len(text) - len(text.lstrip())
    for match in _BOUNDARY.finditer(text, start):
        if match["mark"] == "." and not _LINE_END.search(match["gap"]) and _abbreviates(text, start, match.start()):
            continue
        stop = match.start("gap") if match["mark"] else match.start()
        yield start, start + len(text[start:stop].rstrip())
        start = match.end()
    if start < len(text):
        yield start, start + len(text[start:].rstrip())


def _abbreviates(text: str, start: int, dot: int) -> bool:
    """True when the full stop at `dot` belongs to its word: `e.g.`, `vs.`, `Fig.`, `b.i.d.`, `J.`."""
    before = text[max(start, dot - _LONGEST_ABBREVIATION) : dot]
    word = before.split()[-1].lstrip("([\"'“‘") if before and not before[-1].isspace() else ""
    parts = word.split(".")
    if len(parts) == 1:
        return word.lower() in _ABBREVIATIONS or (len(word) == 1 and word.isalpha())
    return all(part.isalpha() and len(part) <= 2 for part in parts)
