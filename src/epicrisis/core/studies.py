"""One row of an answer's table of studies."""

from __future__ import annotations

from dataclasses import dataclass

from epicrisis.core.types import CharacterSpan


@dataclass(frozen=True, slots=True)
class StudyCell:
    """Words of a document in one cell of the table, with their place in the document's text."""

    text: str
    span: CharacterSpan
    document_id: str


@dataclass(frozen=True, slots=True)
class StatedRatio:
    """A ratio with its interval, as a sentence states it."""

    measure: str
    """`risk ratio`, `hazard ratio`, with `adjusted` before it if the sentence says so."""
    value: float
    low: float
    high: float
    text: str
    """`0.35 (0.15 to 0.81)`, in the digits of the sentence."""
    level: str = ""
    """The level of the interval in per cent, such as `95`. Empty if the sentence does not say it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyRow:
    """One study. Texts are printable; cells that the document does not state are None or empty."""

    document_id: str
    title: str
    reference: str
    year: str
    design: str
    direction: str
    """Read from the sentence, such as `a decrease`. Empty if it is not sure."""
    probability: float | None = None
    """Of the direction."""
    sentence: str
    span: CharacterSpan
    citations: tuple[int, ...]
    """Numbers of `Answer.citations`. The sentence is that of the first."""
    warning: str = ""
    """What became of the article, in capitals."""
    note: str = ""
    """Further documents of the study, or the earlier row that is probably the same study."""
    kind: str = ""
    """The type of the study without what it was read from, or the kind of a note."""
    author: str = ""
    """The family name of the first author."""
    date: str = ""
    """The day of a note."""
    ratio: StatedRatio | None = None
    """The first ratio with an interval that the sentence states, if the sentence is about the question."""
    size: StudyCell | None = None
    population: StudyCell | None = None
    place: str = ""
    """Where the sentence stands, such as `page 3`."""
    link: str = ""
    """The address of the article."""
