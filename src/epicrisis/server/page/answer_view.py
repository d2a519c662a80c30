"""An answer as the page shows it: verdict, claims with numbered citations, table, map, disagreements, gaps.

    view = build_answer_view(stored)

The words are those of `epicrisis.report.answer_content`, so the page, the screen and the files say the same. All texts
are printable; the templates escape them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from epicrisis.core.answers import Answer, Citation, Claim, Usage
from epicrisis.core.printable import count_noun, printable, split_printable_lines
from epicrisis.core.references import name_document
from epicrisis.core.types import Passage, SupportState
from epicrisis.reading.comparisons import read_comparison
from epicrisis.report.answer_content import (
    EVIDENCE,
    MAX_MARKERS,
    AnswerContent,
    AnswerSection,
    build_answer_content,
    describe_check,
    describe_choice,
    judge_support,
    label_support,
    name_sources,
)
from epicrisis.report.computed_table import HEADING
from epicrisis.report.shown_citation import show_citation
from epicrisis.report.study_table import build_study_table
from epicrisis.server.page.evidence_map import EvidenceMap, build_evidence_map, list_ranked_passages
from epicrisis.server.page.patient_view import list_time_messages
from epicrisis.server.page.plain_words import leave_out_commands
from epicrisis.server.page.study_view import (
    CitationView,
    StudyFigures,
    StudyView,
    excerpt_passage,
    view_figures,
    view_studies,
)
from epicrisis.server.state.stored_answers import StoredAnswer

_ALSO = "also searched"
"""The beginning of a notice of the search that is no gap."""
_LONGEST_OUTCOME = 8
"""Words of an outcome that a headline names."""
_MARKER = re.compile(r"\[(\d{1,4})\]")


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


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerPageView:
    """Everything the page shows of an answer."""

    stored: StoredAnswer
    content: AnswerContent
    verdict: tuple[ClaimView, ...]
    """The chosen option, the first claim, or the reason, line by line. Empty for sentences without a direction."""
    quote: CitationView | None
    """The best sentence, for an answer of sentences that has no verdict in words."""
    basis: tuple[str, ...]
    """What the verdict rests on, in a line each."""
    claims: tuple[ClaimView, ...]
    gaps: tuple[str, ...]
    notes: tuple[str, ...]
    by_number: Mapping[int, CitationView]
    """The citations by their numbers."""
    studies: tuple[StudyView, ...]
    """The cited studies or notes, without citations that only the table of computed values has."""
    figures: StudyFigures
    map: EvidenceMap
    time_filter: tuple[str, ...]
    """What the time filter left out of the record and why. Empty without a patient."""

    @property
    def answer(self) -> Answer:
        """The answer itself."""
        return self.stored.answer

    @property
    def href(self) -> str:
        """The address of its page."""
        return f"/answers/{self.stored.id}"

    @property
    def is_evidence(self) -> bool:
        """Whether the answer is the sentences alone."""
        return self.answer.strategy == EVIDENCE

    @property
    def usage(self) -> Usage:
        """The calls behind the answer, and the one that completed its question."""
        follow_up = self.stored.follow_up
        return self.answer.usage if follow_up is None else self.answer.usage + follow_up.usage

    @property
    def computed(self) -> AnswerSection | None:
        """What was computed from structured entries, without the citations of its rows."""
        sections = self.content.sections if self.answer.computed is not None else ()
        return next((section for section in sections if section.heading == HEADING), None)

    @property
    def sources_name(self) -> str:
        """What the cited documents are, for the heading above them."""
        kinds = {sentence.is_note for study in self.studies for sentence in study.sentences}
        return name_sources(self.answer, "Sources" if len(kinds) > 1 else "Notes" if True in kinds else "Studies")

    @property
    def settings(self) -> str:
        """The strategy and filters, which a follow-up question has too."""
        return ", ".join((self.answer.strategy, *(f"{name} {text}" for name, text in self.stored.settings.items())))


def build_answer_view(stored: StoredAnswer) -> AnswerPageView:
    """Return the view of a stored answer."""
    answer = stored.answer
    content = build_answer_content(answer)
    passages = (*stored.passages, *list_ranked_passages(answer))
    citations = [_view_citation(stored, citation, passages) for citation in answer.shown_citations]
    is_mixed = len({citation.check for citation in citations if citation.is_verified}) > 1
    by_number: dict[int, CitationView] = {}
    for citation in citations:
        badge = citation.check if is_mixed or not citation.is_verified else ""
        by_number[citation.number] = replace(citation, badge=badge)
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
    gaps = sections.get("Not found, left out or failed", ())
    time_filter = list_time_messages(answer)
    searches = [line for line in gaps if line.startswith(_ALSO)]
    return AnswerPageView(
        stored=stored,
        content=content,
        verdict=verdict,
        quote=quote,
        basis=tuple(filter(None, basis)),
        claims=claims,
        gaps=leave_out_commands(line for line in gaps if line not in (*time_filter, *searches)),
        notes=leave_out_commands((*searches, *sections.get("Notes", ()))),
        by_number=by_number,
        studies=studies,
        figures=view_figures(studies),
        map=build_evidence_map(answer),
        time_filter=leave_out_commands(time_filter),
    )


def _view_citation(stored: StoredAnswer, citation: Citation, passages: Sequence[Passage]) -> CitationView:
    answer = stored.answer
    reference, shown = citation.reference, show_citation(citation)
    return CitationView(
        number=citation.number,
        href=f"/answers/{stored.id}/sources/{citation.number}",
        title=printable(name_document(citation.title, citation.document_id)),
        quotation=shown.quotation,
        reference=shown.reference,
        year=printable(reference.year),
        design=printable(reference.note_type or (reference.study.label if reference.study else "")),
        marks=shown.marks,
        support=judge_support(answer, citation.number),
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
