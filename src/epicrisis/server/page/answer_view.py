"""An answer as the page shows it: verdict, claims with numbered citations, table, map, disagreements, gaps.

    view = build_answer_view(stored)

The words are those of `epicrisis.report.answer_content`, so the page, the screen and the files say the same. All texts
are printable; the templates escape them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from epicrisis.core.answers import Answer, Citation, Claim, Conflict, ConflictSide
from epicrisis.core.printable import count_noun, printable, split_printable_lines
from epicrisis.core.references import name_document
from epicrisis.core.types import Passage, SupportState
from epicrisis.reading.comparisons import read_comparison
from epicrisis.report.answer_content import (
    EVIDENCE,
    MAX_MARKERS,
    AnswerContent,
    build_answer_content,
    describe_check,
    describe_choice,
    judge_support,
    label_support,
)
from epicrisis.report.computed_table import HEADING, ValueTable
from epicrisis.report.shown_citation import show_citation
from epicrisis.report.study_table import build_study_table, list_shown_citations
from epicrisis.server.page.citation_cards import CitationView, excerpt_passage
from epicrisis.server.page.evidence_map import EvidenceMap, build_evidence_map, list_ranked_passages
from epicrisis.server.page.patient_view import list_time_messages
from epicrisis.server.page.plain_words import leave_out_commands
from epicrisis.server.page.stored_answers import StoredAnswer
from epicrisis.server.page.study_view import StudyFigures, StudyView, view_figures, view_studies

_ALSO = "also searched"
"""The beginning of a notice of the search that is no gap."""
_LONGEST_OUTCOME = 8
"""Words of an outcome that a headline names."""
_MARKER = re.compile(r"\[(\d{1,4})\]")
_BASES = {
    "parts": "The parts of the evidence chose different options.",
    "sentences": "The quoted sentences point in different directions.",
    "votes": "The votes of the model differ.",
    "facts": "A note and structured entries of the record say different things.",
}


@dataclass(frozen=True, slots=True)
class TextRun:
    """A piece of an answer's text, or a citation in it."""

    text: str = ""
    citation: CitationView | None = None


@dataclass(frozen=True, slots=True)
class ClaimView:
    """One claim with its citations."""

    runs: tuple[TextRun, ...]
    support: SupportState = "not-checked"
    support_label: str = ""
    """Empty for a line that is no claim, and where all claims have the same."""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SideView:
    """One side of a disagreement."""

    label: str
    summary: str
    is_answer: bool
    citations: tuple[CitationView, ...]
    sources: tuple[str, ...]
    parts: str


@dataclass(frozen=True, slots=True)
class ConflictView:
    """A disagreement of the evidence, with its sides next to each other."""

    basis: str
    rule: str
    sides: tuple[SideView, ...]


@dataclass(frozen=True, slots=True)
class ComputedRowView:
    """A row of the computed answer: its cells without the last one, and its citations."""

    cells: tuple[str, ...]
    citations: tuple[CitationView, ...]


@dataclass(frozen=True, slots=True)
class ComputedView:
    """What was computed from structured entries."""

    statement: str
    lines: tuple[str, ...]
    table: ValueTable | None
    rows: tuple[ComputedRowView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerPageView:
    """Everything the page shows of an answer."""

    id: str
    href: str
    question: str
    options: tuple[str, ...]
    head: str
    state: str
    strategy: str
    is_evidence: bool
    verdict: tuple[ClaimView, ...]
    """The chosen option, the first claim, or the reason, line by line. Empty for sentences without a direction."""
    quote: CitationView | None
    """The best sentence, for an answer of sentences that has no verdict in words."""
    basis: tuple[str, ...]
    """What the verdict rests on, in a line each."""
    claims: tuple[ClaimView, ...]
    warnings: tuple[str, ...]
    remarks: tuple[str, ...]
    gaps: tuple[str, ...]
    notes: tuple[str, ...]
    citations: tuple[CitationView, ...]
    studies: tuple[StudyView, ...]
    sources_name: str
    """`Studies`, `Notes` or `Sources`."""
    """The cited studies or notes, without citations that only the table of computed values has."""
    figures: StudyFigures
    computed: ComputedView | None
    conflicts: tuple[ConflictView, ...]
    map: EvidenceMap
    time_filter: tuple[str, ...]
    """What the time filter left out of the record and why. Empty without a patient."""
    is_withheld: bool
    patient: str
    calls: int
    tokens: int
    settings: str
    """The strategy and filters, which a follow-up question has too."""
    previous: str = ""
    """Address of the answer that this one follows."""
    words: str = ""
    """The follow-up question as it was typed."""
    follow_up_notice: str = ""
    """Why the words alone were asked, if they were."""


def build_answer_view(stored: StoredAnswer) -> AnswerPageView:
    """Return the view of a stored answer."""
    answer = stored.answer
    content = build_answer_content(answer)
    href = f"/answers/{stored.id}"
    passages = (*stored.passages, *list_ranked_passages(answer))
    citations = tuple(_view_citation(answer, citation, href, passages) for citation in list_shown_citations(answer))
    if len({citation.check for citation in citations if citation.is_verified}) > 1:
        citations = tuple(replace(citation, badge=citation.check) for citation in citations)
    else:
        citations = tuple(
            replace(citation, badge="" if citation.is_verified else citation.check) for citation in citations
        )
    by_number = {citation.number: citation for citation in citations}
    studies = view_studies(build_study_table(answer, passages), by_number)
    verdict, claims = _view_claims(answer, content, by_number)
    basis: tuple[str, ...] = ()
    quote = None
    if answer.strategy == EVIDENCE and answer.citations and answer.state == "answered":
        headline, reading = _summarize_findings(answer, studies)
        if headline and answer.choice is None:
            verdict = (*verdict, ClaimView((TextRun(headline),)))
        elif not verdict and studies:
            quote = studies[0].sentences[0]
        basis = (reading, _count_sentences(answer, studies))
    elif claims or verdict:
        verdict, claims, basis = _say_once(verdict, claims)
    sections = {section.heading: section.lines for section in content.sections}
    options = tuple(describe_choice(answer, letter) for letter in answer.question.options)
    gaps = sections.get("Not found, left out or failed", ())
    follow_up = stored.follow_up
    usage = answer.usage if follow_up is None else answer.usage + follow_up.usage
    time_filter = list_time_messages(answer)
    searches = [line for line in gaps if line.startswith(_ALSO)]
    return AnswerPageView(
        id=stored.id,
        href=href,
        question=content.question,
        options=options,
        head=content.head,
        state=answer.state,
        strategy=answer.strategy,
        is_evidence=answer.strategy == EVIDENCE,
        verdict=verdict,
        quote=quote,
        basis=tuple(filter(None, basis)),
        claims=claims,
        warnings=leave_out_commands(content.warnings),
        remarks=leave_out_commands(content.remarks),
        gaps=leave_out_commands(line for line in gaps if line not in (*time_filter, *searches)),
        time_filter=leave_out_commands(time_filter),
        notes=leave_out_commands((*searches, *sections.get("Notes", ()))),
        citations=citations,
        studies=studies,
        sources_name=_name_sources(studies),
        figures=view_figures(studies),
        computed=_view_computed(answer, content, by_number),
        conflicts=tuple(_view_conflict(conflict, by_number) for conflict in answer.conflicts),
        map=build_evidence_map(answer),
        is_withheld=answer.withheld is not None,
        patient=printable(stored.patient or ""),
        calls=usage.calls,
        tokens=usage.prompt_tokens + usage.completion_tokens,
        settings=printable(", ".join((answer.strategy, *(f"{name} {text}" for name, text in stored.settings.items())))),
        previous="" if follow_up is None else f"/answers/{follow_up.previous}",
        words="" if follow_up is None else printable(follow_up.words),
        follow_up_notice="" if follow_up is None else printable(follow_up.notice),
    )


def _view_computed(
    answer: Answer, content: AnswerContent, by_number: Mapping[int, CitationView]
) -> ComputedView | None:
    """Return the computed answer with a citation for each row, or None without one."""
    section = next((section for section in content.sections if section.heading == HEADING), None)
    if section is None or answer.computed is None:
        return None
    rows: list[ComputedRowView] = []
    if section.table is not None:
        # The last column has the places of the citations.
        for cells, row in zip(section.table.rows, answer.computed.rows[-len(section.table.rows) :], strict=True):
            cited = tuple(by_number[number] for number in row.citations if number in by_number)
            rows.append(ComputedRowView(cells[:-1], cited))
    return ComputedView(section.lead, section.lines, section.table, tuple(rows))


def _view_citation(answer: Answer, citation: Citation, href: str, passages: Sequence[Passage]) -> CitationView:
    support = judge_support(answer, citation.number)
    reference, shown = citation.reference, show_citation(citation)
    return CitationView(
        number=citation.number,
        href=f"{href}/sources/{citation.number}",
        title=printable(name_document(citation.title, citation.document_id)),
        quotation=shown.quotation,
        reference=shown.reference,
        year=printable(reference.year),
        design=printable(reference.note_type or (reference.study.label if reference.study else "")),
        marks=shown.marks,
        support=support,
        check="" if answer.strategy == EVIDENCE and citation.verified else describe_check(answer, citation),
        is_verified=citation.verified,
        place=shown.place,
        facts=shown.facts,
        is_note=bool(reference.note_type),
        identifier="".join(f"{link.label} {link.identifier}" for link in reference.links[:1]),
        excerpt=excerpt_passage(citation, passages),
    )


def _view_claims(
    answer: Answer, content: AnswerContent, by_number: Mapping[int, CitationView]
) -> tuple[tuple[ClaimView, ...], tuple[ClaimView, ...]]:
    """Return the verdict and the claims below it. The words are those of the content."""
    if answer.strategy == EVIDENCE and answer.state == "answered":
        computed = tuple(_view_claim(claim, by_number) for claim in answer.claims if claim.is_computed)
        if answer.choice is None:
            return computed, ()
        return (*computed, ClaimView((TextRun(describe_choice(answer, answer.choice)),))), ()
    if answer.state != "answered":
        computed = tuple(_view_claim(claim, by_number) for claim in answer.claims if claim.is_computed)
        plain = [
            ClaimView((TextRun(_capitalize(line.rstrip(":"))),))
            for line in leave_out_commands(content.verdict[len(computed) :])
        ]
        return (*computed, *plain), ()
    if not answer.claims:
        lines = split_printable_lines(answer.text)
        choice = describe_choice(answer, answer.choice)
        text = tuple(ClaimView(_split_markers(line, by_number)) for line in lines if line)
        return ((ClaimView((TextRun(choice),)),), text) if choice else (text, ())
    claims = tuple(_view_claim(claim, by_number) for claim in answer.claims)
    if answer.choice:
        return (ClaimView((TextRun(describe_choice(answer, answer.choice)),)),), claims
    return claims[:1], claims[1:]


def _summarize_findings(answer: Answer, studies: Sequence[StudyView]) -> tuple[str, str]:
    """Return what the sentences say of the outcome in words, and what that was read from.

    It is the range of the ratios, if several studies state one, or else the direction, if it is sure for every study.
    Empty for others: the verdict never generalises from some of the studies. Nothing is counted or pooled.
    """
    sound = [study for study in studies if not study.row.warning]
    ratios = [study.row.ratio for study in sound if study.row.ratio is not None]
    if len(ratios) > 1 and ratios[0] is studies[0].row.ratio:
        values = [ratio.value for ratio in ratios]
        return _name_outcome(answer, f"ratios from {min(values):g} to {max(values):g}"), ""
    if not sound or not all(study.row.direction for study in sound):
        return "", ""
    by_direction: dict[str, list[str]] = {}
    for study in sound:
        words = f"[{study.row.citations[0]}] ({study.row.probability:.2f})"
        by_direction.setdefault(study.direction, []).append(words)
    places = [f"{direction}: {', '.join(words)}" for direction, words in by_direction.items()]
    if len(by_direction) > 1:
        return _name_outcome(answer, "the studies differ"), f"Read by a program, {'; '.join(places)}."
    (direction,) = by_direction
    reading = f"Read by a program from {', '.join(by_direction[direction])}, with its probability."
    return _name_outcome(answer, direction), reading


def _name_outcome(answer: Answer, finding: str) -> str:
    """Return the outcome of the question with what was found of it. A question without comparison has none."""
    comparison = read_comparison(answer.question.text)
    outcome = printable(comparison.outcome)
    is_short = comparison.intervention and len(outcome.split()) <= _LONGEST_OUTCOME
    return _capitalize(f"{outcome}: {finding}" if is_short else finding)


def _capitalize(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def _name_sources(studies: Sequence[StudyView]) -> str:
    """Return what the cited documents are, for the heading above them."""
    kinds = {sentence.is_note for study in studies for sentence in study.sentences}
    return "Sources" if len(kinds) > 1 else "Notes" if True in kinds else "Studies"


def _count_sentences(answer: Answer, studies: Sequence[StudyView]) -> str:
    """Return how many sentences are shown, and that no chat model wrote them."""
    number = sum(len(study.sentences) for study in studies)
    if not number:
        return "No chat model wrote this."
    units = "1 study" if len(studies) == 1 else f"{len(studies)} studies"
    if any(sentence.is_note for study in studies for sentence in study.sentences):
        units = count_noun(len(studies), "document")
    probability = answer.distribution.get(answer.choice or "")
    chosen = "" if probability is None else f"Chosen with a probability of {probability:.2f}. "
    return f"{chosen}{count_noun(number, 'sentence')} of {units}, best first. No chat model wrote this."


def _say_once(
    verdict: Sequence[ClaimView], claims: Sequence[ClaimView]
) -> tuple[tuple[ClaimView, ...], tuple[ClaimView, ...], tuple[str, ...]]:
    """Return verdict and claims without a label that all of them have, and a line that says it once."""
    labelled = [claim for claim in (*verdict, *claims) if claim.support_label]
    labels = {(claim.support, claim.support_label, claim.reason) for claim in labelled}
    if len(labelled) < 2 or labels != {("supported", "supported", "")}:
        return tuple(verdict), tuple(claims), ()

    def strip(views: Sequence[ClaimView]) -> tuple[ClaimView, ...]:
        return tuple(replace(view, support_label="") for view in views)

    return strip(verdict), strip(claims), ("Each sentence is supported by the words it cites.",)


def _view_claim(claim: Claim, by_number: Mapping[int, CitationView]) -> ClaimView:
    runs = [TextRun(printable(claim.text))]
    citations = [TextRun(citation=by_number[number]) for number in claim.citations if number in by_number]
    if claim.is_computed and len(citations) > MAX_MARKERS:
        # The table below cites each row.
        citations = [citations[0], TextRun(" …"), citations[-1]]
    runs += citations
    return ClaimView(tuple(runs), claim.support, label_support(claim), printable(claim.reason))


def _split_markers(text: str, by_number: Mapping[int, CitationView]) -> tuple[TextRun, ...]:
    """Return the text with its citation markers as citations. Other numbers in brackets stay text."""
    runs: list[TextRun] = []
    position = 0
    for match in _MARKER.finditer(text):
        citation = by_number.get(int(match[1]))
        if citation is None:
            continue
        if match.start() > position:
            runs.append(TextRun(text[position : match.start()]))
        runs.append(TextRun(citation=citation))
        position = match.end()
    if position < len(text):
        runs.append(TextRun(text[position:]))
    return tuple(runs)


def _view_conflict(conflict: Conflict, by_number: Mapping[int, CitationView]) -> ConflictView:
    sides = tuple(_view_side(side, by_number) for side in conflict.sides)
    return ConflictView(_BASES[conflict.basis], printable(conflict.rule), sides)


def _view_side(side: ConflictSide, by_number: Mapping[int, CitationView]) -> SideView:
    sources: list[str] = []
    for source in side.sources:
        design = f" ({source.study.label})" if source.study is not None else ""
        retracted = "RETRACTED: " if source.is_retracted else ""
        probably = "" if source.is_same_study_sure else "probably "
        same = f": {probably}the same study as {source.same_study_as}" if source.same_study_as else ""
        sources.append(printable(f"{retracted}{source.title or source.document_id}{design}{same}"))
    return SideView(
        label=printable(side.label),
        summary=printable(side.summary),
        is_answer=side.is_answer,
        citations=tuple(by_number[number] for number in side.citations if number in by_number),
        sources=tuple(sources),
        parts=_describe_parts(side.partitions),
    )


def _describe_parts(partitions: Sequence[int]) -> str:
    if not partitions:
        return ""
    numbers = ", ".join(str(partition + 1) for partition in partitions)
    return f"part {numbers}" if len(partitions) == 1 else f"parts {numbers}"
