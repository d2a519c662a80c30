"""Split documents into passages: at sentence boundaries to fit an encoder, or by characters as MedRAG does.

A span is a pair (start, end) of offsets in characters, the end excluded.
"""

from __future__ import annotations

import itertools
import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from epicrisis.core.types import Document, Passage

TextSpan: TypeAlias = tuple[int, int]

DEFAULT_OVERLAP = 32
"""Default maximum of tokens shared by adjacent passages of a new library."""

_BLOCK = 65_536
"""Maximum length of a text, in characters, that a tokenizer or a pattern gets at once."""

_NEWLINE = "\n\r\v\f\x85\u2028\u2029"
# Each alternative begins at one fixed character and ends greedily, so the search is linear in the text's length.
_BOUNDARY = re.compile(rf"(?P<mark>[.!?…])[\"'”’»)\]]{{0,4}}(?P<gap>\s+)|[{_NEWLINE}]\s*")
_LONGEST_MARK = 5
"""Characters of a boundary before its white space."""
_LINE_END = re.compile(f"[{_NEWLINE}]")
_NON_SPACE = re.compile(r"\S")
# Units (`30 min.`) are not listed: they end sentences about as often as not.
_ABBREVIATIONS = frozenset(
    "al approx ca cf dept dr eds eg eq eqs esp et fig figs ie inc jr ltd mr mrs ms nos pp prof ref refs resp sect sp "  # noqa: SIM905
    "spp sr ssp st staph strep subsp suppl viz vol vs".split()
)
_LONGEST_ABBREVIATION = 12
_NAMED_BY_LETTER = re.compile(r"\b(?:vitamin|hepatitis|influenza|group|arm|protein|factor|class|type)\s[A-Z]\Z", re.I)
"""`vitamin D`: its letter is no initial of a name."""
_SEPARATORS = (re.compile("\n\n"), re.compile("\n"), re.compile(" "))


class _Tokens(NamedTuple):
    """Where the tokens of a text start and end, in characters. Pairs would take ten times the memory."""

    starts: array[int]
    ends: array[int]


class _Piece(NamedTuple):
    """A sentence, or a fragment of a long one, from character `start` to `end`; it shares tokens `first` to `last`."""

    start: int
    end: int
    first: int
    last: int
    is_sentence: bool


def chunk_document(
    document: Document, spans: Callable[[str], Sequence[TextSpan]], max_tokens: int, overlap: int
) -> tuple[Passage, ...]:
    """Return the document's passages in order, each of at most `max_tokens` tokens; `spans` returns token offsets.

    A document that fits becomes one passage, white space alone none. Otherwise consecutive passages share complete
    sentences of up to `overlap` tokens. A sentence longer than a passage is cut, between words if possible, and shares
    nothing. Passages contain every character except white space, neither begin nor end with it, and their starts
    strictly increase. A passage exceeds the limit only if a single character has more than `max_tokens` tokens.

    `spans` gets at most 65,536 characters at a time, cut before white space if there is any: a tokenizer takes many
    times the memory of its text.

    The encoder reads title and passage together, so the title's tokens plus one are subtracted from `max_tokens`, down
    to half of it: smaller passages would say too little. Raises ValueError unless max_tokens > overlap >= 0.
    """
    if not max_tokens > overlap >= 0:
        raise ValueError(f"max_tokens must be greater than overlap, and overlap 0 or more: {max_tokens}, {overlap}")
    text = document.text
    tokens = _tokenize(text, spans)
    limit = max_tokens
    if document.title:
        limit = max(max_tokens - len(spans(document.title)) - 1, max_tokens // 2, 1)
    if len(tokens.starts) <= limit:
        span = _strip_span(text, (0, len(text)))
        return build_passages(document, [span] if span[0] < span[1] else [])
    pieces = list(_sentence_pieces(text, tokens, limit))
    packs = _pack_pieces(pieces, limit, overlap)
    return build_passages(document, [(pieces[first].start, pieces[last - 1].end) for first, last in packs])


def split_by_characters(document: Document, size: int = 1000, overlap: int = 200) -> tuple[Passage, ...]:
    """Return the document's passages in order, each of at most `size` characters, sharing up to `overlap` characters.

    The passages are those of langchain's `RecursiveCharacterTextSplitter` with its default separators for the stripped
    text, as MedRAG splits its textbooks and its Wikipedia, but as offsets into the document. They may exceed an
    encoder's window.

    A text is cut before the coarsest separator in it: blank line, line end, space, or any character. A piece still too
    long is cut again, and neighbouring pieces are merged as far as they fit. Pieces of different coarseness are never
    merged, so a passage can be short. Raises ValueError unless size > 1 and size > overlap >= 0.
    """
    if not (size > 1 and size > overlap >= 0):
        raise ValueError(f"size must be greater than 1 and than overlap, and overlap 0 or more: {size}, {overlap}")
    text = document.text
    ranges = []
    for span in _split_span(text, _strip_span(text, (0, len(text))), 0, size, overlap):
        start, end = _strip_span(text, span)
        if start < end:
            ranges.append((start, end))
    return build_passages(document, ranges)


def build_passages(document: Document, ranges: Iterable[TextSpan]) -> tuple[Passage, ...]:
    """Return the passages of the document's text at these offsets, numbered in order."""
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


def find_sentences(text: str) -> Iterator[TextSpan]:
    """Yield the sentences' spans in order, without the white space between them. A line end always ends a sentence."""
    start = len(text) - len(text.lstrip())
    for match in _find_boundaries(text, start):
        if match["mark"] == "." and not _LINE_END.search(match["gap"]) and _abbreviates(text, start, match.start()):
            continue
        stop = match.start("gap") if match["mark"] else match.start()
        yield start, start + len(text[start:stop].rstrip())
        start = match.end()
    if start < len(text):
        yield start, start + len(text[start:].rstrip())


def _find_boundaries(text: str, start: int) -> Iterator[re.Match[str]]:
    """Yield the matches from `start` on. One search in a long text would hold the interpreter until its end."""
    while start < len(text):
        end = start + _BLOCK
        match = _BOUNDARY.search(text, start, end)
        if match is not None and match.end() == end:
            match = _BOUNDARY.match(text, match.start())
        if match is None:
            start = end - _LONGEST_MARK
        else:
            yield match
            start = match.end()


def _abbreviates(text: str, start: int, dot: int) -> bool:
    """Return whether the full stop at `dot` belongs to its word: `e.g.`, `vs.`, `Fig.`, `b.i.d.`, `J.`."""
    before = text[max(start, dot - _LONGEST_ABBREVIATION) : dot]
    word = before.split()[-1].lstrip("([\"'“‘") if before and not before[-1].isspace() else ""
    parts = word.split(".")
    if len(parts) == 1:
        is_initial = len(word) == 1 and word.isalpha() and _NAMED_BY_LETTER.search(text, start, dot) is None
        return word.lower() in _ABBREVIATIONS or is_initial
    return all(part.isalpha() and len(part) <= 2 for part in parts)


def _strip_span(text: str, span: TextSpan) -> TextSpan:
    """Return the span without the white space at its ends; an empty span at its end if there is nothing else."""
    first = _NON_SPACE.search(text, *span)
    if first is None:
        return span[1], span[1]
    return first.start(), span[0] + len(text[slice(*span)].rstrip())


def _tokenize(text: str, spans: Callable[[str], Sequence[TextSpan]]) -> _Tokens:
    """Return the tokens of a text of any length."""
    tokens = _Tokens(array("I"), array("I"))
    begin = 0
    while begin < len(text):
        end = begin + _BLOCK
        if end < len(text):
            space = max(text.rfind(mark, begin + 1, end) for mark in " \n")
            end = space if space > 0 else end
        for first, last in spans(text[begin:end]):
            tokens.starts.append(begin + first)
            tokens.ends.append(begin + last)
        begin = end
    return tokens


def _pack_pieces(pieces: Sequence[_Piece], limit: int, overlap: int) -> Iterator[TextSpan]:
    """Yield passages as ranges of pieces. Each takes as many as fit; the next steps back over complete sentences."""
    begin = end = 0
    while end < len(pieces):
        end += 1
        while end < len(pieces) and pieces[end].last - pieces[begin].first <= limit:
            end += 1
        yield begin, end
        if end == len(pieces):
            return
        back = end
        # Step back only as far as leaves room for a new piece, so that every passage says something new.
        while (
            back - 1 > begin
            and pieces[back - 1].is_sentence
            and pieces[end - 1].last - pieces[back - 1].first <= overlap
            and pieces[end].last - pieces[back - 1].first <= limit
        ):
            back -= 1
        begin = back


def _sentence_pieces(text: str, tokens: _Tokens, limit: int) -> Iterator[_Piece]:
    """Yield the sentences, those longer than a passage in fragments."""
    for start, end in find_sentences(text):
        first = bisect_right(tokens.ends, start)
        last = bisect_left(tokens.starts, end)
        is_sentence = last - first <= limit
        while last - first > limit:
            cut = _find_cut(text, tokens, first, last, limit)
            if cut == last:
                break
            following = _NON_SPACE.search(text, tokens.starts[cut], end)
            assert following is not None, "a sentence does not end with white space, and the token begins before it"
            fragment_end = start + len(text[start : tokens.starts[cut]].rstrip())
            yield _Piece(start, fragment_end, first, cut, is_sentence=False)
            start = following.start()
            first = max(cut, bisect_right(tokens.ends, start, lo=cut, hi=last))
        yield _Piece(start, end, first, last, is_sentence)


def _find_cut(text: str, tokens: _Tokens, first: int, last: int, limit: int) -> int:
    """Return the index of the token beginning the next fragment, or `last` if there is no place to cut."""
    # A cut between words is preferred, because half a word has other tokens than the complete word.
    for token in range(first + limit, first + limit // 2, -1):
        place = tokens.starts[token]
        around = text[max(place - 1, 0) : place + 1]
        if len(around.strip()) < len(around) and place >= tokens.ends[token - 1]:
            return token
    # Otherwise cut between two tokens, never within a character shared by several tokens.
    for token in itertools.chain(range(first + limit, first, -1), range(first + limit + 1, last)):
        if tokens.starts[token] >= tokens.ends[token - 1]:
            return token
    return last


def _split_span(text: str, span: TextSpan, level: int, size: int, overlap: int) -> Iterator[TextSpan]:
    """Yield the passages of one span, not yet stripped. `level` is the index of the coarsest separator to try."""
    while level < len(_SEPARATORS) and not _SEPARATORS[level].search(text, *span):
        level += 1
    start, end = span
    cuts: Iterable[int] = range(start + 1, end)
    if level < len(_SEPARATORS):
        cuts = map(re.Match.start, _SEPARATORS[level].finditer(text, start, end))
    pieces = (piece for piece in itertools.pairwise((start, *cuts, end)) if piece[0] < piece[1])
    for is_short, group in itertools.groupby(pieces, key=lambda piece: piece[1] - piece[0] < size):
        if is_short:
            yield from _merge_pieces(list(group), size, overlap)
        else:
            for piece in group:
                yield from _split_span(text, piece, level + 1, size, overlap)


def _merge_pieces(pieces: Sequence[TextSpan], size: int, overlap: int) -> Iterator[TextSpan]:
    """Yield spans of as many neighbouring pieces as fit; the next span steps back over complete pieces of overlap."""
    first = 0
    for last, (start, end) in enumerate(pieces):
        if end - pieces[first][0] > size:
            yield pieces[first][0], start
            while first < last and (start - pieces[first][0] > overlap or end - pieces[first][0] > size):
                first += 1
    yield pieces[first][0], pieces[-1][1]
