"""The citations of an answer, and its studies: each once, with its sentences, its direction and its ratio.

    studies = view_studies(rows, citations)
    figures = view_figures(studies)

The number of a citation opens a card with the sentence among the words around it. They come from the passages stored
with the answer, so that a card needs no request and no script. Directions and ratios stand side by side. They are never
counted as votes, and never pooled.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from epicrisis.core.answers import Citation
from epicrisis.core.printable import printable
from epicrisis.core.studies import StudyRow
from epicrisis.core.types import Passage, SupportState
from epicrisis.server.page.document_view import Highlight, TextPiece, build_document_view
from epicrisis.server.state.stored_answers import touches

CONTEXT_CHARACTERS = 200
"""Most characters shown before and after the sentence. Cuts are marked, and the document has the rest."""
_ELLIPSIS = "\u2026"
_TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)
PLOT_WIDTH, ROW_HEIGHT, _EDGE = 140, 20, 7
_TICK_DISTANCE = 26
"""The least distance of two labels of the axis."""


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


@dataclass(frozen=True, slots=True)
class StudyView:
    """One study, or one note of a record, with the sentences that the answer cites."""

    row: StudyRow
    number: int
    """Its row in the evidence table, from 1."""
    sentences: tuple[CitationView, ...]
    """The result sentence first."""

    @property
    def facts(self) -> tuple[str, ...]:
        """Type, year and identifier, as far as they are known."""
        identifier = self.sentences[0].identifier if self.sentences else ""
        return tuple(filter(None, (self.row.kind, self.row.date or self.row.year, identifier)))

    @property
    def direction(self) -> str:
        """The direction of its result sentence in words. A study that shows no difference does not show equality."""
        return "no difference shown" if self.row.direction == "no difference" else self.row.direction

    @property
    def tone(self) -> str:
        """A word for the style of its direction: that nothing differs is no weaker, but another, result."""
        return "same" if self.row.direction == "no difference" else "differs"


@dataclass(frozen=True, slots=True)
class RatioMark:
    """A ratio with its interval on a logarithmic axis, in the units of the drawing."""

    x: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class StudyFigure:
    """The direction and the ratio of one study."""

    study: StudyView
    mark: RatioMark | None


@dataclass(frozen=True, slots=True)
class StudyFigures:
    """The directions and ratios of the studies, side by side."""

    rows: tuple[StudyFigure, ...] = ()
    ticks: tuple[tuple[float, str], ...] = ()
    """Place and label of each tick of the axis. Empty without a plot."""
    one: float = 0.0
    """The place of no difference."""
    heading: str = ""

    @property
    def has_ratios(self) -> bool:
        """Whether a study states a ratio."""
        return any(row.study.row.ratio for row in self.rows)


def view_studies(rows: Sequence[StudyRow], by_number: Mapping[int, CitationView]) -> tuple[StudyView, ...]:
    """Return the studies of the evidence table with their sentences."""
    studies: list[StudyView] = []
    for number, row in enumerate(rows, 1):
        sentences = tuple(by_number[citation] for citation in row.citations if citation in by_number)
        studies.append(StudyView(row, number, sentences))
    return tuple(studies)


def view_figures(studies: Sequence[StudyView]) -> StudyFigures:
    """Return the studies with a direction or a ratio. Two ratios and more are drawn on one axis."""
    shown = [study for study in studies if study.row.direction or study.row.ratio]
    if not shown:
        return StudyFigures()
    ratios = [study.row.ratio for study in shown if study.row.ratio]
    levels = {ratio.level for ratio in ratios}
    level = f"{levels.pop()} % interval" if len(levels) == 1 and levels != {""} else "interval"
    heading = f"Ratio and {level}" if ratios else "Direction"
    if len(ratios) < 2:
        return StudyFigures(tuple(StudyFigure(study, None) for study in shown), heading=heading)
    low = math.log(min(1.0, *(ratio.low for ratio in ratios)))
    high = math.log(max(1.0, *(ratio.high for ratio in ratios)))

    def place(value: float) -> float:
        return round(_EDGE + (math.log(value) - low) / (high - low) * (PLOT_WIDTH - 2 * _EDGE), 1)

    rows: list[StudyFigure] = []
    for study in shown:
        ratio = study.row.ratio
        mark = None if ratio is None else RatioMark(place(ratio.value), place(ratio.low), place(ratio.high))
        rows.append(StudyFigure(study, mark))
    ticks: list[tuple[float, str]] = [(place(1.0), "1")]
    for value in sorted(_TICKS, key=lambda tick: abs(math.log(tick))):
        near = any(abs(place(value) - x) < _TICK_DISTANCE for x, _ in ticks)
        if low <= math.log(value) <= high and not near:
            ticks.append((place(value), f"{value:g}"))
    return StudyFigures(tuple(rows), tuple(sorted(ticks)), place(1.0), heading)
