"""The conflict ledger: where the evidence disagrees, who says what, and which rule decided.

Three things are compared: the options that the parts of map-reduce chose; without those, the directions that rules read
from the cited sentences, one per document; and the votes. Retracted sources are shown and do not count.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter

from epicrisis.answering.strategies.evidence import NAME as EVIDENCE
from epicrisis.core.answers import (
    Answer,
    Citation,
    Conflict,
    ConflictBasis,
    ConflictSide,
    ConflictSource,
    Event,
    PartialAnswer,
    Retrieved,
)
from epicrisis.core.question_options import first_same_option
from epicrisis.core.references import build_reference, find_document_study
from epicrisis.core.study_identity import CitedArticle, StudyGroups, group_studies
from epicrisis.core.study_types import StudyType
from epicrisis.core.types import ArticleMark, Passage
from epicrisis.reading.directions import Effect, describe_effect, find_effect, match_options

_STUDY_NAMES: Mapping[StudyType, tuple[str, str]] = {
    "guideline": ("guideline", "guidelines"),
    "systematic-review": ("systematic review or meta-analysis", "systematic reviews or meta-analyses"),
    "randomised-trial": ("randomised trial", "randomised trials"),
    "clinical-trial": ("clinical trial", "clinical trials"),
    "cohort": ("cohort study", "cohort studies"),
    "case-control": ("case-control study", "case-control studies"),
    "cross-sectional": ("cross-sectional study", "cross-sectional studies"),
    "case-report": ("case report", "case reports"),
    "narrative-review": ("narrative review", "narrative reviews"),
    "opinion": ("editorial, letter or comment", "editorials, letters or comments"),
    "protocol": ("study protocol", "study protocols"),
    "preprint": ("preprint", "preprints"),
    "laboratory": ("animal or laboratory study", "animal or laboratory studies"),
}
_UNKNOWN = ("source of unknown study type", "sources of unknown study type")
_NOTE = ("note of the record", "notes of the record")
_COPIES: Mapping[bool, tuple[str, str]] = {
    True: ("more document of the same study", "more documents of the same studies"),
    False: ("more document of probably the same study", "more documents of probably the same studies"),
}
_NOT_EVIDENCE: frozenset[ArticleMark] = frozenset({"retracted", "retraction-notice"})
_ASKS_FOR_EFFECT = re.compile(
    r"\b(?:effect\w*|reduc\w*|increas\w*|decreas\w*|improv\w*|prevent\w*|associat\w*|better|worse|benefi\w*|risk\w*|"
    r"affect\w*|influenc\w*|higher|lower|superior\w*|efficac\w*|impact|work|works|help|helps|predict\w*|cause[sd]?|"
    r"protect\w*|differ\w*|alter\w*|lead|safe\w*|useful|compar\w*)\b",
    re.IGNORECASE,
)


@dataclass(slots=True, kw_only=True)
class _Side:
    """A side while it is collected."""

    label: str
    choice: str | None = None
    citations: list[int] = field(default_factory=list)
    partitions: list[int] = field(default_factory=list)
    votes: list[int] = field(default_factory=list)
    sources: dict[str, ConflictSource] = field(default_factory=dict)
    unsourced: int = 0
    """Parts without a verified quotation."""
    is_answer: bool = False
    """Whether only the chat model's answer says so."""
    shared: int = 0
    """Studies of which another document is on another side."""

    @property
    def count(self) -> int:
        """The number of studies, parts and votes that count."""
        return len(self.valid_sources) + self.unsourced + len(self.votes) + self.is_answer

    @property
    def valid_sources(self) -> list[ConflictSource]:
        """One source of each study that counts."""
        return [source for source in self.sources.values() if not source.is_retracted and not source.same_study_as]

    @property
    def copies(self) -> list[ConflictSource]:
        """Further documents of studies that count."""
        return [source for source in self.sources.values() if not source.is_retracted and source.same_study_as]


def watch_passages(emit: Callable[[Event], None]) -> tuple[Callable[[Event], None], Mapping[str, Passage]]:
    """Return a function that passes events on to `emit`, and the passages of the rankings it has seen, by id."""
    passages: dict[str, Passage] = {}

    def watch(event: Event) -> None:
        if isinstance(event, Retrieved):
            for passage in event.ranking.passages:
                # The strategy focused cites spans with ids of their own: any passage describes the document.
                passages.setdefault(passage.document_id, passage)
                passages[passage.id] = passage
        emit(event)

    return watch, passages


def find_conflicts(answer: Answer, passages: Mapping[str, Passage], *, is_record: bool = False) -> tuple[Conflict, ...]:
    """Return the disagreements behind an answer. `passages` are those that were read, by id.

    Sentences of a patient's record are not compared: values of different days differ without a conflict.
    """
    conflicts: list[Conflict] = []
    studies = _group_cited(answer, passages)
    if any(partial.choice for partial in answer.partials):
        conflicts += _compare_parts(answer, passages, studies)
    elif not is_record and _ASKS_FOR_EFFECT.search(answer.question.text):
        conflicts += _compare_sentences(answer, passages, studies)
    conflicts += _compare_votes(answer)
    return tuple(conflicts)


@dataclass(frozen=True, slots=True)
class _Studies:
    """The studies of the cited documents, and those of them that are retracted."""

    groups: StudyGroups
    retracted: frozenset[str]
    """By the first of the documents that are surely the study."""

    def mark(self, sources: Mapping[str, ConflictSource]) -> dict[str, ConflictSource]:
        """Return the sources of a side. One of each study counts: the first of a known study type, else the first."""
        find_sure = self.groups.find_sure
        marked: dict[str, ConflictSource] = {}
        for id_, source in sources.items():
            marked[id_] = replace(source, is_retracted=source.is_retracted or find_sure(id_) in self.retracted)
        counted: dict[str, str] = {}
        for source in sorted(marked.values(), key=lambda source: source.study is None):
            if not source.is_retracted:
                counted.setdefault(self.groups.find(source.document_id), source.document_id)
        for id_, source in marked.items():
            first = counted.get(self.groups.find(id_), id_)
            if first != id_ and not source.is_retracted:
                is_sure = find_sure(first) == find_sure(id_)
                marked[id_] = replace(source, same_study_as=first, is_same_study_sure=is_sure)
        return marked


def _group_cited(answer: Answer, passages: Mapping[str, Passage]) -> _Studies:
    """Return the studies of the documents with quotations, and of retracted documents that were read."""
    articles = [CitedArticle(citation.document_id, citation.title, citation.reference) for citation in answer.citations]
    quoted = {quotation.passage_id for partial in answer.partials for quotation in partial.quotations}
    retracted: set[str] = set()
    for id_, passage in passages.items():
        is_retracted = passage.patient is None and "retracted" in passage.marks
        if is_retracted:
            retracted.add(passage.document_id)
        if is_retracted or id_ in quoted:
            articles.append(CitedArticle(passage.document_id, passage.title, build_reference(passage)))
    groups = group_studies(articles)
    return _Studies(groups, frozenset(groups.find_sure(id_) for id_ in retracted))


def _compare_parts(answer: Answer, passages: Mapping[str, Passage], studies: _Studies) -> Iterable[Conflict]:
    """Yield the conflict of the options that the parts chose."""
    options = answer.question.options
    sides: dict[str, _Side] = {}
    parts_by_choice: Counter[str] = Counter()
    for partial in answer.partials:
        if partial.state != "relevant" or partial.choice is None:
            continue
        choice = first_same_option(options, partial.choice)
        side = sides.setdefault(choice, _Side(label=_label_option(choice, options), choice=choice))
        side.partitions.append(partial.partition)
        sources = _list_sources(partial, passages)
        side.sources |= sources
        side.unsourced += not sources
        side.citations += _list_citations(partial, answer.citations)
        parts_by_choice[choice] += not sources or not all(map(attrgetter("is_retracted"), sources.values()))
    _mark_studies(sides, studies)
    if sum(side.count > 0 for side in sides.values()) > 1:
        chosen = None if answer.choice is None else first_same_option(options, answer.choice)
        yield _build_conflict("parts", sides, chosen, _name_rule(answer, parts_by_choice, chosen))


def _mark_studies(sides: Mapping[str, _Side], studies: _Studies) -> None:
    """Mark the documents that do not count, because another one of their study does, and count studies on two sides."""
    documents: dict[str, set[str]] = {}
    for side in sides.values():
        side.sources = studies.mark(side.sources)
        for source in side.valid_sources:
            documents.setdefault(studies.groups.find(source.document_id), set()).add(source.document_id)
    for side in sides.values():
        ids = [source.document_id for source in side.valid_sources]
        side.shared = sum(documents[studies.groups.find(id_)] != {id_} for id_ in ids)


@dataclass(frozen=True, slots=True)
class _DirectionReader:
    """Reads the direction of a study's first sentence."""

    question: str
    groups: StudyGroups
    directions: dict[str, Effect] = field(default_factory=dict)
    """By the first document of the study."""
    documents: set[str] = field(default_factory=set)

    def read(self, document_id: str, quotation: str, title: str) -> Effect | None:
        """Return the direction of the first sentence of a document; None for the others, and without one.

        Further documents of a study have a direction if it is that of the first.
        """
        effect = None if document_id in self.documents else find_effect(self.question, quotation, title)
        self.documents.add(document_id)
        if effect is None:
            return None
        first = self.directions.setdefault(self.groups.find_sure(document_id), effect.direction)
        return effect.direction if effect.direction == first else None


def _compare_sentences(answer: Answer, passages: Mapping[str, Passage], studies: _Studies) -> Iterable[Conflict]:
    """Yield the conflict of the directions of quoted sentences. A study counts by its first sentence alone."""
    sides: dict[str, _Side] = {}
    reader = _DirectionReader(answer.question.text, studies.groups)

    def add(document_id: str, quotation: str, title: str) -> _Side | None:
        direction = reader.read(document_id, quotation, title)
        return None if direction is None else _find_side(sides, direction)

    for citation in answer.citations:
        if citation.verified and (side := add(citation.document_id, citation.quotation, citation.title)):
            side.citations.append(citation.number)
            side.sources[citation.document_id] = _source_of_citation(citation, passages)
    for partial in answer.partials:
        for quotation in partial.quotations if partial.state == "relevant" else ():
            passage = passages.get(quotation.passage_id)
            if passage is None or not quotation.verified:
                continue
            if side := add(passage.document_id, quotation.text, passage.title):
                side.sources[passage.document_id] = _source_of_passage(passage, passages)
                side.partitions.append(partial.partition)
    _mark_studies(sides, studies)
    stated = _read_answer(answer)
    if sides and stated is not None and stated not in sides:
        _find_side(sides, stated).is_answer = True
    if len([side for side in sides.values() if side.count]) > 1:
        yield _build_conflict("sentences", sides, stated, _name_rule(answer, Counter(), None))


def _find_side(sides: dict[str, _Side], direction: Effect) -> _Side:
    return sides.setdefault(direction, _Side(label=describe_effect(direction)))


def _read_answer(answer: Answer) -> Effect | None:
    """Return the direction that a chat model's answer states, by its option or by its words, if it is sure."""
    if answer.state != "answered" or answer.strategy == EVIDENCE:
        return None
    for direction, letter in match_options(answer.question.options).items():
        if letter == answer.choice:
            return direction
    effect = find_effect(answer.question.text, answer.text, answer.text)
    return None if effect is None else effect.direction


def _compare_votes(answer: Answer) -> Iterable[Conflict]:
    """Yield the conflict of the options of the votes."""
    options = answer.question.options
    sides: dict[str, _Side] = {}
    for vote in answer.votes:
        if vote.state == "answered" and vote.choice is not None:
            choice = first_same_option(options, vote.choice)
            sides.setdefault(choice, _Side(label=_label_option(choice, options), choice=choice)).votes.append(
                vote.number
            )
    if len(sides) > 1:
        chosen = None if answer.choice is None else first_same_option(options, answer.choice)
        yield _build_conflict("votes", sides, chosen, f"votes ({answer.decided_by or 'majority'})")


def _name_rule(answer: Answer, parts_by_choice: Counter[str], chosen: str | None) -> str:
    """Return what decided, and how it relates to the majority of the parts."""
    if answer.strategy == EVIDENCE:
        return "nothing; no model chose among the sentences"
    if answer.state != "answered":
        return f"nothing; the question is {answer.state}"
    rule = answer.decided_by or ("reduce call" if answer.partials else "answer call")
    if chosen is None or not parts_by_choice:
        return rule
    most = max(parts_by_choice.values())
    leaders = [choice for choice, number in parts_by_choice.items() if number == most]
    if len(leaders) > 1:
        return f"{rule}, as the parts are tied"
    return f"{rule}, {'with' if leaders == [chosen] else 'against'} the majority of parts"


def _build_conflict(basis: ConflictBasis, sides: Mapping[str, _Side], chosen: str | None, rule: str) -> Conflict:
    """Return the conflict, with the side of the answer first and then the larger sides."""
    ordered = sorted(sides.items(), key=lambda item: (item[0] != chosen, -item[1].count))
    finished: list[ConflictSide] = []
    for name, side in ordered:
        finished.append(
            ConflictSide(
                label=side.label,
                summary=_describe_side(side),
                count=side.count,
                choice=side.choice,
                is_answer=name == chosen,
                citations=tuple(sorted(set(side.citations))),
                partitions=tuple(side.partitions),
                votes=tuple(side.votes),
                sources=tuple(side.sources.values()),
            )
        )
    return Conflict(basis, tuple(finished), rule)


def _describe_side(side: _Side) -> str:
    """Return the sources by type of study, strongest types of the table first, then what does not count."""
    names: Counter[tuple[str, str]] = Counter()
    for source in side.valid_sources:
        names[_name_source(source)] += 1
    order = [*_STUDY_NAMES.values(), _NOTE, _UNKNOWN]
    pieces = [_count(names[name], name) for name in order if names[name]]
    if side.unsourced:
        pieces.append(
            _count(side.unsourced, ("part without a verified quotation", "parts without a verified quotation"))
        )
    if side.is_answer:
        pieces.append("the chat model's answer alone")
    if side.votes:
        pieces.append(_count(len(side.votes), ("vote", "votes")))
    for is_sure, name in _COPIES.items():
        copies = sum(source.is_same_study_sure == is_sure for source in side.copies)
        if copies:
            pieces.append(f"{_count(copies, name)}, not counted")
    if side.shared:
        pieces.append(f"of which {side.shared} probably also on another side, by another document")
    retracted = sum(source.is_retracted for source in side.sources.values())
    if retracted:
        pieces.append(f"{retracted} retracted, not counted")
    return ", ".join(pieces)


def _name_source(source: ConflictSource) -> tuple[str, str]:
    if source.is_note:
        return _NOTE
    return _UNKNOWN if source.study is None else _STUDY_NAMES[source.study.type]


def _count(number: int, name: tuple[str, str]) -> str:
    return f"{number} {name[0] if number == 1 else name[1]}"


def _label_option(choice: str, options: Mapping[str, str]) -> str:
    return f"{choice} ({options[choice]})" if choice in options else choice


def _list_sources(partial: PartialAnswer, passages: Mapping[str, Passage]) -> dict[str, ConflictSource]:
    """Return the documents with the verified quotations of a part, by id."""
    sources: dict[str, ConflictSource] = {}
    for quotation in partial.quotations:
        passage = passages.get(quotation.passage_id)
        if quotation.verified and passage is not None:
            sources[passage.document_id] = _source_of_passage(passage, passages)
    return sources


def _list_citations(partial: PartialAnswer, citations: Sequence[Citation]) -> list[int]:
    """Return the numbers of the citations with a quotation of this part."""
    quoted = {(quotation.passage_id, quotation.text) for quotation in partial.quotations}
    return [citation.number for citation in citations if (citation.passage_id, citation.quotation) in quoted]


def _source_of_passage(passage: Passage, passages: Mapping[str, Passage]) -> ConflictSource:
    study = find_document_study(passage.document_id, passages.values())
    is_note = passage.patient is not None
    return ConflictSource(
        document_id=passage.document_id,
        title=passage.title,
        study=study,
        is_note=is_note,
        is_retracted=passage.is_retracted,
    )


def _source_of_citation(citation: Citation, passages: Mapping[str, Passage]) -> ConflictSource:
    passage = passages.get(citation.passage_id) or passages.get(citation.document_id)
    if passage is not None:
        return _source_of_passage(passage, passages)
    reference = citation.reference
    is_retracted = not _NOT_EVIDENCE.isdisjoint(citation.marks)
    return ConflictSource(
        document_id=citation.document_id,
        title=citation.title,
        study=reference.study,
        is_note=bool(reference.note_type),
        is_retracted=is_retracted,
    )
