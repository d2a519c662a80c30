"""Documents are cut by characters, as MedRAG cuts its textbooks and its Wikipedia: 1,000 of them, 200 shared.

The same passages as langchain's `RecursiveCharacterTextSplitter` with its default separators gives for the stripped
text, but as offsets into the document. MedRAG then folds each run of white space into one space; that is left to those
who read a passage, because a passage here is the document's own text. Knows no encoder: a passage may be longer than
one reads.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence

from epicrisis.corpus.sentence_chunking import passages
from epicrisis.types import CharacterSpan, Document, Passage

_SEPARATORS = (re.compile("\n\n"), re.compile("\n"), re.compile(" "))
_INK = re.compile(r"\S")


def split(document: Document, size: int = 1000, overlap: int = 200) -> tuple[Passage, ...]:
    """The document's passages in order, each of at most `size` characters, consecutive ones sharing up to `overlap`.

    A text is cut before the coarsest of blank line, line end, space and any character that it holds; a piece that is
    still too long is cut in the same way, and pieces are put together again as far as they fit. Passages are stripped
    of white space; one of nothing else is left out. Pieces of different coarseness are never put together, so that a
    passage can be short.

    Raises ValueError unless size > 1 and size > overlap >= 0.
    """
    if not (size > 1 and size > overlap >= 0):
        raise ValueError(f"size must be greater than 1 and than overlap, and overlap 0 or more: {size}, {overlap}")
    text = document.text
    whole = _stripped(text, (0, len(text)))
    ranges = (_stripped(text, span) for span in _split(text, whole, 0, size, overlap)) if whole[0] < whole[1] else ()
    return passages(document, (span for span in ranges if span[0] < span[1]))


def _split(text: str, span: CharacterSpan, level: int, size: int, overlap: int) -> Iterator[CharacterSpan]:
    """Passages of one span, not yet stripped. `level` is the coarsest separator that may be looked for."""
    level = next((n for n in range(level, len(_SEPARATORS)) if _SEPARATORS[n].search(text, *span)), len(_SEPARATORS))
    for short, pieces in itertools.groupby(_pieces(text, span, level), key=lambda piece: piece[1] - piece[0] < size):
        if short:
            yield from _merged(list(pieces), size, overlap)
        else:
            for piece in pieces:
                yield from _split(text, piece, level + 1, size, overlap)


def _pieces(text: str, span: CharacterSpan, level: int) -> Iterator[CharacterSpan]:
    """The span cut before each separator, without gaps; at the finest level, between all characters."""
    start, end = span
    if level == len(_SEPARATORS):
        cuts: Iterator[int] = iter(range(start + 1, end))
    else:
        cuts = (match.start() for match in _SEPARATORS[level].finditer(text, start, end))
    yield from ((a, b) for a, b in itertools.pairwise((start, *cuts, end)) if a < b)


def _merged(pieces: Sequence[CharacterSpan], size: int, overlap: int) -> Iterator[CharacterSpan]:
    """As many neighbouring pieces as fit, again and again; the next steps back over whole pieces of the overlap."""
    first = 0
    for last, (start, end) in enumerate(pieces):
        if end - pieces[first][0] > size:
            yield pieces[first][0], start
            while first < last and (start - pieces[first][0] > overlap or end - pieces[first][0] > size):
                first += 1
    yield pieces[first][0], pieces[-1][1]


def _stripped(text: str, span: CharacterSpan) -> CharacterSpan:
    ink = _INK.search(text, *span)
    if ink is None:
        return span[1], span[1]
    return ink.start(), span[0] + len(text[slice(*span)].rstrip())
