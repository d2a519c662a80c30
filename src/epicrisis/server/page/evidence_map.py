"""The evidence map of an answer: the ranking as a strip, who read what and what each said, and two rankings compared.

    evidence_map = build_evidence_map(answer)

The map holds positions in the units of its SVG drawings. Colour is never the only carrier: parts have numbers, and what
a part said has a sign.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from epicrisis.core.answers import Answer, PartialAnswer, Retrieved, SentencesSelected
from epicrisis.core.printable import count_noun, printable, shorten
from epicrisis.core.question_options import first_same_option
from epicrisis.core.references import name_document
from epicrisis.core.types import CharacterSpan, CountUnit, Passage, SearchTops

PartVerdict: TypeAlias = Literal["supports", "contradicts", "relevant", "nothing", "failed", "unread"]
"""What a part said about the answer, or what a document says that was read without parts."""

STATEMENT_LABELS: Mapping[PartVerdict, str] = {
    "supports": "supports the answer",
    "contradicts": "against the answer",
    "relevant": "relevant, takes no side",
    "nothing": "nothing relevant found",
    "failed": "could not be read",
    "unread": "not cited",
}
_COLUMNS = 16
_CELL, _GAP, _ROW_GAP = 20, 2, 12
_PART_COLOURS = 8
_RANK_ROW, _CHART_TOP, _CHART_WIDTH = 22, 26, 352
_LINE_LEFT, _LINE_RIGHT = 150, 202
_LABEL_CHARACTERS = 18


@dataclass(frozen=True, slots=True, kw_only=True)
class StripCell:
    """One passage of the ranking in the strip, best first."""

    rank: int
    """From 1."""
    x: int
    y: int
    part: int | None
    """The number of the part that read it, from 1."""
    colour: int
    """The number of the part's colour in the style sheet."""
    statement: PartVerdict
    title: str
    citations: tuple[int, ...]
    """Numbers of the citations in it."""

    @property
    def description(self) -> str:
        """The cell in words, for its tooltip and for screen readers."""
        part = "" if self.part is None else f"; read in part {self.part}"
        cited = f"; cited as {', '.join(map(str, self.citations))}" if self.citations else ""
        return f"Rank {self.rank}: {self.title}{part}: {STATEMENT_LABELS[self.statement]}{cited}"


@dataclass(frozen=True, slots=True)
class MapPart:
    """One part of the evidence, and what it said."""

    partial: PartialAnswer
    statement: PartVerdict
    ranks: str
    """The ranks it read, such as `1-8`."""

    @property
    def colour(self) -> int:
        """The number of its colour in the style sheet."""
        return self.partial.partition % _PART_COLOURS


@dataclass(frozen=True, slots=True)
class RankedName:
    """A document in one of the two rankings."""

    y: int
    rank: int
    label: str
    title: str
    is_shared: bool
    """Whether it is in both rankings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankingChart:
    """The search by meaning and the search by words, drawn against each other."""

    left: tuple[RankedName, ...]
    right: tuple[RankedName, ...]
    lines: tuple[tuple[int, int], ...]
    """The heights of both ends of each line, between the places of a shared document."""
    height: int
    reason: str
    summary: str
    width: int = _CHART_WIDTH
    line_left: int = _LINE_LEFT
    line_right: int = _LINE_RIGHT


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceMap:
    """The drawings of an answer."""

    cells: tuple[StripCell, ...]
    parts: tuple[MapPart, ...]
    statements: tuple[tuple[PartVerdict, str], ...]
    """The statements in the strip, with their labels, for its legend."""
    width: int
    height: int
    rankings: RankingChart | None
    warnings: tuple[str, ...]
    """Reasons to doubt the search."""

    @property
    def is_telling(self) -> bool:
        """Whether something in it takes a side, or was read in parts."""
        return bool(self.parts) or any(cell.statement in ("supports", "contradicts") for cell in self.cells)


def list_ranked_passages(answer: Answer) -> tuple[Passage, ...]:
    """Return the passages of the last ranking of an answer, best first. Empty for answers without one."""
    passages: tuple[Passage, ...] = ()
    for event in answer.trace:
        if isinstance(event, Retrieved):
            passages = event.ranking.passages
    return passages


def build_evidence_map(answer: Answer) -> EvidenceMap:
    """Return the map of an answer: empty drawings where it has no ranking or no preflight check."""
    cells = _place_cells(answer)
    used = {cell.statement for cell in cells}
    rows = -(-len(cells) // _COLUMNS)
    has_parts = any(cell.part is not None for cell in cells)
    height = rows * (2 * _CELL + _ROW_GAP + _GAP) - _ROW_GAP if has_parts else rows * (_CELL + _ROW_GAP) - _ROW_GAP
    return EvidenceMap(
        cells=cells,
        parts=tuple(_describe_part(answer, partial, cells) for partial in answer.partials),
        statements=tuple((name, label) for name, label in STATEMENT_LABELS.items() if name in used),
        # As wide with few cells, so that all maps have one scale.
        width=_COLUMNS * (_CELL + _GAP) - _GAP,
        height=max(1, height),
        rankings=_draw_rankings(answer),
        warnings=tuple(_warn(answer)),
    )


def _place_cells(answer: Answer) -> tuple[StripCell, ...]:
    parts: dict[str, PartialAnswer] = {}
    for partial in answer.partials:
        for passage_id in partial.passages:
            parts.setdefault(passage_id, partial)
    places = {passage.id: (passage.start, passage.end) for passage in list_ranked_passages(answer)}
    cells: list[StripCell] = []
    row_height = 2 * _CELL + _ROW_GAP + _GAP if parts else _CELL + _ROW_GAP
    for index, (passage_id, document_id, title) in enumerate(list_ranked_documents(answer)):
        read_in = parts.get(passage_id)
        number = None if read_in is None else read_in.partition + 1
        numbers = _find_citations(answer, document_id, places.get(passage_id))
        statement = _judge_document(answer, document_id, numbers) if read_in is None else _judge_part(answer, read_in)
        cells.append(
            StripCell(
                rank=index + 1,
                x=index % _COLUMNS * (_CELL + _GAP),
                y=index // _COLUMNS * row_height,
                part=number,
                colour=0 if number is None else (number - 1) % _PART_COLOURS,
                statement=statement,
                title=printable(name_document(title, document_id)),
                citations=numbers,
            )
        )
    return tuple(cells)


def _find_citations(answer: Answer, document_id: str, place: CharacterSpan | None) -> tuple[int, ...]:
    """Return the numbers of the citations of a document that touch this place of it, or of all without a place."""
    numbers: list[int] = []
    for citation in answer.shown_citations:
        touches = place is None or (citation.start < place[1] and place[0] < citation.end)
        if citation.document_id == document_id and touches:
            numbers.append(citation.number)
    return tuple(numbers)


def list_ranked_documents(answer: Answer) -> list[tuple[str, str, str]]:
    """Return passage id, document id and title in the order of the ranking, or of the selected sentences."""
    ranked = [(passage.id, passage.document_id, passage.title) for passage in list_ranked_passages(answer)]
    if ranked:
        return ranked
    tops = find_search_tops(answer)
    titles = {} if tops is None else dict(tops.titles)
    titles |= {citation.document_id: citation.title for citation in answer.citations}
    for event in answer.trace:
        if isinstance(event, SentencesSelected):
            documents = dict.fromkeys(span.document_id for span in event.sentences)
            ranked = [("", document_id, titles.get(document_id, "")) for document_id in documents]
    return ranked


def _judge_part(answer: Answer, partial: PartialAnswer) -> PartVerdict:
    if partial.is_unread:
        return "failed"
    if partial.state == "nothing":
        return "nothing"
    if partial.choice is not None and answer.choice is not None:
        options = answer.question.options
        same = first_same_option(options, partial.choice) == first_same_option(options, answer.choice)
        return "supports" if same else "contradicts"
    for conflict in answer.conflicts:
        if not any(side.is_answer for side in conflict.sides):
            continue
        for side in conflict.sides:
            if partial.partition in side.partitions:
                return "supports" if side.is_answer else "contradicts"
    return "relevant"


def _judge_document(answer: Answer, document_id: str, citations: tuple[int, ...]) -> PartVerdict:
    """Return the statement of a document outside all parts: the side it takes in a disagreement, or whether it is
    cited."""
    for conflict in answer.conflicts:
        has_answer = any(side.is_answer for side in conflict.sides)
        for side in conflict.sides if has_answer else ():
            if any(source.document_id == document_id for source in side.sources):
                return "supports" if side.is_answer else "contradicts"
    return "relevant" if citations else "unread"


def _describe_part(answer: Answer, partial: PartialAnswer, cells: tuple[StripCell, ...]) -> MapPart:
    ranks = [cell.rank for cell in cells if cell.part == partial.partition + 1]
    words = _join_ranks(ranks) or count_noun(len(partial.passages), "passage")
    return MapPart(partial, _judge_part(answer, partial), words)


def _join_ranks(ranks: list[int]) -> str:
    """Return ranks in short: `1-8, 11`."""
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def _name_passages(answer: Answer) -> Mapping[str, str]:
    """Map passage ids and document ids to titles."""
    titles: dict[str, str] = {}
    for citation in answer.citations:
        titles[citation.passage_id] = titles[citation.document_id] = citation.title
    for passage in list_ranked_passages(answer):
        titles[passage.id] = titles[passage.document_id] = passage.title
    return titles


def find_search_tops(answer: Answer) -> SearchTops | None:
    """Return the first documents of both searches of the last hybrid search of an answer."""
    tops = None
    for event in answer.trace:
        if isinstance(event, Retrieved):
            tops = event.ranking.tops or tops
        elif isinstance(event, SentencesSelected):
            tops = event.tops or tops
    return tops


def _list_compared(answer: Answer) -> tuple[Sequence[str], Sequence[str]] | None:
    """Return the first results by meaning and by words if both searches found any, else None."""
    preflight, tops = answer.preflight, find_search_tops(answer)
    if preflight is not None and preflight.signal == "overlap" and preflight.dense_top and preflight.bm25_top:
        return preflight.dense_top, preflight.bm25_top
    return (tops.dense, tops.bm25) if tops is not None and tops.dense and tops.bm25 else None


def _draw_rankings(answer: Answer) -> RankingChart | None:
    """Return the chart of the rankings that the preflight check compared, else of both searches of a hybrid one."""
    preflight, tops = answer.preflight, find_search_tops(answer)
    titles = _name_passages(answer)
    if preflight is not None and preflight.dense_top and preflight.bm25_top:
        lists = preflight.dense_top, preflight.bm25_top
        return _draw_chart(*lists, titles, preflight.count, f"Check before reading: {printable(preflight.reason)}.")
    if tops is None or not tops.dense or not tops.bm25:
        return None
    return _draw_chart(tops.dense, tops.bm25, {**titles, **tops.titles}, "documents")


def _draw_chart(
    dense: Sequence[str], words: Sequence[str], titles: Mapping[str, str], count: CountUnit, reason: str = ""
) -> RankingChart:
    shared = set(dense) & set(words)
    heights: list[dict[str, int]] = []
    columns: list[tuple[RankedName, ...]] = []
    for ids in (dense, words):
        places = {identifier: _CHART_TOP + index * _RANK_ROW for index, identifier in enumerate(ids)}
        heights.append(places)
        names: list[RankedName] = []
        for index, identifier in enumerate(ids):
            title = printable(titles.get(identifier) or identifier)
            names.append(
                RankedName(
                    places[identifier], index + 1, shorten(title, _LABEL_CHARACTERS), title, identifier in shared
                )
            )
        columns.append(tuple(names))
    lines = tuple((heights[0][identifier], heights[1][identifier]) for identifier in dense if identifier in shared)
    longest = max(len(dense), len(words))
    return RankingChart(
        left=columns[0],
        right=columns[1],
        lines=lines,
        height=_CHART_TOP + longest * _RANK_ROW,
        reason=reason,
        summary=(
            f"{len(shared)} of the first {longest} {count} are the same in the search by meaning and in the search by "
            "words."
        ),
    )


def _warn(answer: Answer) -> list[str]:
    """Return plain warnings about a poor search."""
    warnings: list[str] = []
    compared = _list_compared(answer)
    if compared is not None and not set(compared[0]) & set(compared[1]):
        warnings.append(
            "The search may have missed the evidence: the search by meaning and the search by words have none of their "
            f"first {max(map(len, compared))} results in common. The library may not answer this question. Read the "
            "sentences before you rely on the answer."
        )
    if answer.partials and not any(partial.state == "relevant" for partial in answer.partials):
        warnings.append("No part of the evidence contains anything relevant. The library may not answer this question.")
    unread = sum(partial.is_unread for partial in answer.partials)
    if unread:
        warnings.append(
            f"{unread} of {count_noun(len(answer.partials), 'part')} could not be read, so evidence may be missing."
        )
    if any(isinstance(event, Retrieved) and not event.ranking.hits for event in answer.trace):
        warnings.append("The search found nothing in the library.")
    return warnings
