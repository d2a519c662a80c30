"""A document as the page shows it: its text in pieces, with the cited sentence in a piece of its own.

view = build_document_view(passages, Highlight((120, 180)), complete=True)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import attrgetter

from epicrisis.core.printable import split_printable_lines
from epicrisis.core.references import Reference, build_reference, find_document_study
from epicrisis.core.types import CharacterSpan, Passage
from epicrisis.corpus.documents.pdf_pages import PageBoxes
from epicrisis.server.base.white_space import fill_gap

SHOWN_CHARACTERS = 40_000
"""Characters of a document on one page. A longer one is shown around the highlight, and the page says so."""


@dataclass(frozen=True, slots=True)
class Highlight:
    """The place to highlight in a document."""

    span: CharacterSpan
    in_title: bool = False
    is_passage: bool = False
    """Whether the place is a whole passage, because no sentence in it was found."""


@dataclass(frozen=True, slots=True)
class TextPiece:
    """A piece of a document's text. The pieces in order are the shown text."""

    text: str
    is_highlighted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentView:
    """Everything the page shows of a document."""

    source: Passage
    """The passage at the highlight, which tells what the document is."""
    reference: Reference
    design: str
    """The kind of a note, or the type of a study."""
    pieces: tuple[TextPiece, ...]
    title_is_highlighted: bool = False
    remarks: tuple[str, ...] = ()
    """What the reader should know of the shown text: parts left out, a highlight that is not there."""
    sheets: tuple[PageBoxes, ...] = ()
    """The pages of a PDF file on which the highlight is, or all of them if `is_reading`."""
    address: str = ""
    """What the addresses of the images of its pages begin with."""
    is_reading: bool = False
    """Whether the pages are shown to read, without a place to mark."""

    @property
    def highlight(self) -> str:
        """The highlighted words."""
        return "".join(piece.text for piece in self.pieces if piece.is_highlighted)

    def with_remark(self, remark: str) -> DocumentView:
        """Return this view with one more remark, before the others."""
        return replace(self, remarks=(remark, *self.remarks))


def build_document_view(passages: Sequence[Passage], highlight: Highlight | None, *, complete: bool) -> DocumentView:
    """Return the view of a document from its passages. `complete`: these are all passages of the document.

    `passages` are of one document, at least one.
    """
    ordered = sorted(passages, key=attrgetter("start", "end"))
    is_reading, highlight = highlight is None, highlight or Highlight((0, 0))
    start = highlight.span[0]
    source = next((passage for passage in ordered if passage.start <= start < passage.end), ordered[0])
    reference = build_reference(source)
    study = find_document_study(source.document_id, ordered)
    pieces, remarks = _split_text(ordered, highlight, complete)
    if highlight.in_title:
        remarks.append("The quoted words are in the title of the document.")
    elif not is_reading and not any(piece.is_highlighted for piece in pieces):
        remarks.append("The cited place is not in the text that the library holds now.")
    elif highlight.is_passage:
        remarks.append("The document does not contain the quoted words. The highlight is the passage that was read.")
    return DocumentView(
        source=source,
        reference=reference,
        design=reference.note_type or (study.label if study else ""),
        pieces=tuple(pieces),
        title_is_highlighted=highlight.in_title,
        remarks=tuple(remarks),
    )


def read_span(passages: Sequence[Passage], span: CharacterSpan) -> str:
    """Return the words of a document between two offsets, as far as its passages hold them."""
    words: list[str] = []
    position = span[0]
    for passage in sorted(passages, key=attrgetter("start", "end")):
        start, end = max(position, passage.start), min(span[1], passage.end)
        if start < end:
            words.append(passage.text[start - passage.start : end - passage.start])
            position = end
    return "".join(words)


def is_unchanged(current: Sequence[Passage], stored: Sequence[Passage], span: CharacterSpan) -> bool:
    """Return whether the words between two offsets are those of the stored passages. White space may differ."""
    return read_span(current, span).split() == read_span(stored, span).split()


def _split_text(passages: Sequence[Passage], highlight: Highlight, complete: bool) -> tuple[list[TextPiece], list[str]]:
    """Return the pieces of the text in order, and remarks about what is left out."""
    start, end = (0, 0) if highlight.in_title else highlight.span
    first = max(0, start - SHOWN_CHARACTERS // 2)
    last = max(end, first + SHOWN_CHARACTERS)
    pieces: list[TextPiece] = []
    position: int | None = None
    previous: Passage | None = None
    before = after = 0
    for passage in passages:
        begin = passage.start if position is None else max(position, passage.start)
        if begin >= passage.end:
            continue
        if begin < first:
            before += min(passage.end, first) - begin
        if passage.end > last:
            after += passage.end - max(begin, last)
        # A long gap is white space, or passages that are not here.
        gap = "" if previous is None else fill_gap(previous, passage)[-2:]
        position, previous = passage.end, passage
        shown_start, shown_end = max(begin, first), min(passage.end, last)
        if shown_start >= shown_end:
            continue
        if gap:
            pieces.append(TextPiece(gap, start < begin < end))
        pieces += _cut_passage(passage, (shown_start, shown_end), (start, end))
    remarks: list[str] = []
    for count, where in ((before, "before"), (after, "after")):
        if count:
            remarks.append(f"{count:,} characters {where} the text below are not shown.")
    if not complete:
        remarks.append("Only the passages that were read for this answer are shown, not the whole document.")
    return _join_pieces(pieces), remarks


def _cut_passage(passage: Passage, visible: CharacterSpan, highlight: CharacterSpan) -> list[TextPiece]:
    """Return the visible text of a passage, cut at the edges of the highlight."""
    cuts = sorted({visible[0], visible[1], *(edge for edge in highlight if visible[0] < edge < visible[1])})
    pieces: list[TextPiece] = []
    for start, end in pairwise(cuts):
        raw = passage.text[start - passage.start : end - passage.start]
        text = "\n".join(split_printable_lines(raw))
        pieces.append(TextPiece(text, highlight[0] <= start and end <= highlight[1]))
    return pieces


def _join_pieces(pieces: Sequence[TextPiece]) -> list[TextPiece]:
    """Return the pieces with neighbours of one kind joined, so that the highlight is one piece."""
    joined: list[TextPiece] = []
    for piece in pieces:
        if joined and joined[-1].is_highlighted == piece.is_highlighted:
            joined[-1] = TextPiece(joined[-1].text + piece.text, piece.is_highlighted)
        else:
            joined.append(piece)
    return joined
