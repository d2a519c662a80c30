"""The content of one answer for a reader, the same on the screen and in a file: verdict, claims, sources, gaps.

    content = build_answer_content(answer)

All texts of documents and models in it are one printable line each, so a renderer only has to lay them out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from epicrisis.core.answers import Answer, Citation, Claim, Confidence, Notice
from epicrisis.core.computed_values import COMPUTATION
from epicrisis.core.printable import agree, count_noun, printable, split_printable_lines
from epicrisis.core.prompts import MARK_LABELS
from epicrisis.core.references import Link
from epicrisis.core.study_identity import CitedArticle, StudyGroups, group_studies
from epicrisis.core.types import ArticleMark, SupportState
from epicrisis.report.computed_table import (
    HEADING,
    ValueTable,
    build_computed_table,
    describe_left_out,
    list_computed_numbers,
)
from epicrisis.report.shown_citation import show_citation

EVIDENCE = "evidence"
"""The strategy whose answer is a list of sentences."""
QUIET_NOTICES = frozenset({"retried", "asked-again", "restarted", "cache"})
"""Kinds of notices about the path of an answer. They change nothing that a reader relies on."""
_GAPS = frozenset({"left-out", "re-partitioned", "search", "timeline"})
"""Kinds of notices about evidence that was not read, or not at once."""
SUPPORT_LABELS: Mapping[SupportState, str] = {
    "supported": "supported",
    "contradicted": "contradicted",
    "not-checked": "not checked",
}
"""What is printed of a claim, and of a source for the claims that cite it."""
_WORST_FIRST: tuple[SupportState, ...] = ("contradicted", "not-checked", "supported")
CHOSEN = "chosen by the program"
NEAREST = "nearest result, cited by no claim"
SUPPORT_NOTICE = (
    "“Supported” and “contradicted” are read by a program, which may be wrong: read the sentences. “Not checked” says "
    "that it could not tell."
)
CONTRADICTS_COMPUTED = "CONTRADICTS the computed answer"
MAX_MARKERS = 4
"""Citations of a computed sentence that are written one by one."""
_NARROWING = {
    "kept": "From the notes of the time in the question; --setting timeline=false reads the complete record.",
    "lifted": "From the complete record: the notes of the time in the question did not answer it.",
}
_CONFIDENCE_COMPONENTS = {
    "parts": "agreement of the parts",
    "votes": "share of the votes",
    "probability": "probability of the letter",
    "claims": "share of supported claims",
}
_READ_BY_RULES = "Directions are read from single sentences by a program: read the sentences of both sides."
_MARKER = re.compile(r"\[(\d{1,4})\]")


@dataclass(frozen=True, slots=True)
class SourceEntry:
    """A source in the list, or a sentence of the strategy evidence with its source."""

    label: str
    """The markers of its citations, such as `[1][3]`."""
    text: str
    """The reference, or the sentence in quotation marks."""
    warning: str = ""
    """What became of the article, in capitals, such as `RETRACTED`."""
    details: tuple[str, ...] = ()
    """Further lines: the study type, the quoted sentences, the place in the document."""
    links: tuple[Link, ...] = ()


@dataclass(frozen=True, slots=True)
class AnswerSection:
    """A heading with sources, lines or a table."""

    heading: str
    entries: tuple[SourceEntry, ...] = ()
    lines: tuple[str, ...] = ()
    lead: str = ""
    """A sentence above the table."""
    table: ValueTable | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerContent:
    """Everything that a reader is shown of an answer, in order."""

    question: str
    head: str
    """`Answer`, `Evidence` or `No answer (...)`."""
    verdict: tuple[str, ...]
    """The chosen option, the first claim, the text or the reason. Several lines if the text has them."""
    is_answered: bool = True
    failed: bool = False
    """The reason in `verdict` is that of a failure, which the command prints on standard error."""
    claims: tuple[str, ...] = ()
    """Further claims, with their markers."""
    warnings: tuple[str, ...] = ()
    """Reasons not to rely on the answer."""
    remarks: tuple[str, ...] = ()
    """What the answer rests on: votes, notes of a record."""
    sections: tuple[AnswerSection, ...] = field(default=())


def build_answer_content(
    answer: Answer,
    references: AnswerSection | None = None,
    *,
    sources: AnswerSection | None = None,
    with_places: bool = True,
) -> AnswerContent:
    """Return what a reader is shown of an answer. `references`: the sources in a citation style, if wanted.

    `sources` takes the place of the list of sources. Without `with_places` it has no document ids and offsets.
    """
    marks = {citation.number: citation.marks for citation in answer.citations}
    verdict, claims = _state_verdict(answer, marks)
    sections = (
        _describe_computed(answer),
        sources or _list_sources(answer, with_places=with_places),
        references or AnswerSection(""),
        _list_conflicts(answer),
        AnswerSection("Not found, left out or failed", lines=_list_gaps(answer)),
        AnswerSection("Notes", lines=_list_notes(answer)),
    )
    return AnswerContent(
        question=printable(answer.question.text),
        head=_head(answer),
        verdict=verdict,
        is_answered=answer.state == "answered",
        failed=answer.state not in ("answered", "abstained"),
        claims=claims,
        warnings=tuple(_warn(answer)),
        remarks=tuple(_remark(answer)),
        sections=tuple(filter(_is_filled, sections)),
    )


def _is_filled(section: AnswerSection) -> bool:
    return bool(section.entries or section.lines or section.lead or section.table)


def _head(answer: Answer) -> str:
    if answer.state != "answered":
        is_computed = answer.computed is not None and answer.computed.state == "answered"
        return f"No answer of the chat model ({answer.state})" if is_computed else f"No answer ({answer.state})"
    return "Evidence" if answer.strategy == EVIDENCE else "Answer"


def _state_verdict(
    answer: Answer, marks: Mapping[int, Sequence[ArticleMark]]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the lines of the verdict, and the claims below it."""
    if answer.strategy == EVIDENCE and answer.citations:
        count = len(answer.citations) - len(list_computed_numbers(answer))
        computed = tuple(_describe_claim(claim, marks) for claim in answer.claims if claim.is_computed)
        sentences = f"{count} sentence{'' if count == 1 else 's'} of the library, best first"
        if answer.state != "answered":
            return (*computed, f"nothing chose among the options. {sentences}:"), ()
        if answer.choice is not None and answer.choice in answer.distribution:
            probability = answer.distribution[answer.choice]
            choice = (
                f"{describe_choice(answer, answer.choice)} (probability {probability:.2f}, read from the sentences)"
            )
            return (*computed, choice, f"{sentences}. No chat model wrote or checked anything."), ()
        return (*computed, f"{sentences}. No chat model wrote or checked anything."), ()
    if answer.state != "answered":
        return _state_reason(answer), ()
    choice = describe_choice(answer, answer.choice)
    if not answer.claims:
        first, *rest = split_printable_lines(_mark_numbers(answer.text, marks))
        return (f"{choice} — {first}" if choice else first, *rest), ()
    claims = [_describe_claim(claim, marks) for claim in answer.claims]
    if choice:
        return (choice,), tuple(claims)
    return (claims[0],), tuple(claims[1:])


def _state_reason(answer: Answer) -> tuple[str, ...]:
    if answer.withheld is not None:
        return (f"The model's answer is not trusted: {printable(answer.withheld.reason)}.",)
    if answer.failure is not None:
        return (printable(answer.failure.message),)
    return tuple(split_printable_lines(answer.text or "the evidence does not answer it"))


def describe_choice(answer: Answer, choice: str | None) -> str:
    """Return the letter and the text of an option on one printable line, or an empty text without a choice."""
    return printable(f"{choice}. {answer.question.options[choice]}") if choice else ""


def _describe_claim(claim: Claim, marks: Mapping[int, Sequence[ArticleMark]]) -> str:
    markers = "".join(_marker(number, marks.get(number, ())) for number in claim.citations)
    if claim.is_computed:
        markers = format_markers(claim.citations)
    reason = f": {claim.reason}" if claim.reason and not claim.is_computed else ""
    return printable(f"{claim.text}{f' {markers}' if markers else ''} ({label_support(claim)}{reason})")


def label_support(claim: Claim) -> str:
    """Return what the sentences of a claim say about it, or the computed answer, in words."""
    if claim.is_computed:
        return "computed"
    if claim.checked_by == COMPUTATION:
        return CONTRADICTS_COMPUTED
    return SUPPORT_LABELS[claim.support]


def judge_support(answer: Answer, number: int) -> SupportState:
    """Return whether the claims that cite this number are supported: the worst state of them.

    A sentence of the strategy `evidence` is its own claim, so it counts as not checked.
    """
    if answer.strategy == EVIDENCE:
        return "not-checked"
    states = {claim.support for claim in answer.claims if number in claim.citations}
    return next((state for state in _WORST_FIRST if state in states), "not-checked")


def describe_check(answer: Answer, citation: Citation) -> str:
    """Return what was checked of a source, in words: the support of its claims, and who chose it."""
    if not citation.verified:
        return "NOT found in its document"
    if citation in answer.nearest:
        return NEAREST
    facts = [SUPPORT_LABELS[judge_support(answer, citation.number)]]
    if citation.in_title:
        facts.append("its title")
    if citation.chosen_by_program:
        facts.append(CHOSEN)
    return ", ".join(facts)


def format_markers(numbers: Sequence[int]) -> str:
    """Return the markers of the citations; of more than MAX_MARKERS, consecutive ones are a range: `[3]-[9]`."""
    if len(numbers) <= MAX_MARKERS:
        return "".join(f"[{number}]" for number in numbers)
    markers: list[str] = []
    first = last = min(numbers)
    for number in (*sorted(numbers)[1:], None):
        if number == last + 1:
            last = number
            continue
        markers.append(f"[{first}]" if first == last else f"[{first}]-[{last}]")
        first = last = number or 0
    return "".join(markers)


def _marker(number: int, marks: Sequence[ArticleMark]) -> str:
    """Return `[1]`, or `[1: RETRACTED]`."""
    words = describe_marks(marks)
    return f"[{number}: {words}]" if words else f"[{number}]"


def _mark_numbers(text: str, marks: Mapping[int, Sequence[ArticleMark]]) -> str:
    """Return the text with the marks of articles in its citation markers."""
    return _MARKER.sub(lambda match: _marker(int(match[1]), marks.get(int(match[1]), ())), text)


def describe_marks(marks: Iterable[ArticleMark]) -> str:
    """Return the marks of an article in capitals, so that they do not depend on colour."""
    return ", ".join(MARK_LABELS[mark] for mark in marks)


def _warn(answer: Answer) -> Iterable[str]:
    # The ranking of a search has marks and links, but no warnings.
    from epicrisis.report.answer_warnings import list_warnings

    yield from map(printable, list_warnings(answer))
    for claim in answer.withheld_claims:
        yield printable(f"Withheld, {SUPPORT_LABELS[claim.support]}: “{claim.text}”: {claim.reason}.")
    if answer.model_outcome is not None:
        yield from _describe_model_outcome(answer)
    if answer.withheld is not None:
        choice = describe_choice(answer, answer.withheld.choice)
        yield printable(f"The model answered: {choice + ' — ' if choice else ''}{answer.withheld.text}")


def _describe_model_outcome(answer: Answer) -> Iterable[str]:
    """Yield why the chat model gave no answer beside the computed one."""
    assert answer.model_outcome is not None
    outcome = answer.model_outcome
    if answer.withheld is not None:
        yield printable(
            f"The chat model's answer is not trusted: {answer.withheld.reason}. The computed one stands alone."
        )
        return
    reason = outcome.text if outcome.failure is None else outcome.failure.message
    words = f": {reason}" if reason.strip() else "."
    yield printable(f"The chat model found no answer in the documents{words}")


def _describe_confidence(confidence: Confidence) -> str:
    """Return the confidence with its components; without a calibration it is called so."""
    parts = [f"{_CONFIDENCE_COMPONENTS.get(name, name)} {share:.2f}" for name, share in confidence.components.items()]
    basis = f"{confidence.value:.2f} from {', '.join(parts)}"
    if confidence.calibrated is None:
        return f"Confidence {basis}; not calibrated, so no probability of being right"
    return f"Calibrated confidence {confidence.calibrated:.2f} ({basis})"


def _remark(answer: Answer) -> Iterable[str]:
    if answer.strategy != EVIDENCE and {claim.is_computed for claim in answer.claims} == {True, False}:
        yield "The sentence marked “computed” is from structured entries; the others are words of the chat model."
    if answer.narrowing != "none":
        yield _NARROWING[answer.narrowing]
    # The verdict of a list of sentences has the probability of its direction.
    if answer.distribution and answer.strategy != EVIDENCE:
        shares = sorted(answer.distribution.items(), key=lambda pair: -pair[1])
        percentages = ", ".join(f"{letter} {share:.0%}" for letter, share in shares)
        basis = "probability of the next token"
        if answer.votes:
            choices = sum(vote.choice is not None for vote in answer.votes)
            basis = f"{choices} of {len(answer.votes)} votes"
        if answer.margin is not None:
            basis = f"{sum(answer.margin.votes.values())} votes of {answer.margin.read} {answer.margin.unit} read alone"
        yield printable(f"{basis}: {percentages}; by {answer.decided_by}")
    # A list of sentences claims nothing that could be right or wrong.
    if answer.confidence is not None and answer.strategy != EVIDENCE:
        yield _describe_confidence(answer.confidence)
    if answer.margin is not None and answer.margin.choice is not None:
        margin = answer.margin
        yield (
            f"Margin: at least {margin.needed} of the {margin.read} {margin.unit} read would have to be false to "
            "change this answer."
        )
    if answer.patient is not None:
        name = f" ({answer.patient_name})" if answer.patient_name else ""
        yield f"Record read: patient {printable(answer.patient + name)}"


def _list_sources(answer: Answer, *, with_places: bool) -> AnswerSection:
    tabled = list_computed_numbers(answer)
    visible = tuple(citation for citation in answer.citations if citation.number not in tabled)
    if answer.strategy == EVIDENCE:
        return AnswerSection("Sentences", list_sentences(visible))
    citations = answer.withheld.citations if answer.withheld is not None else visible or answer.nearest
    by_document: dict[str, list[Citation]] = {}
    for citation in citations:
        by_document.setdefault(citation.document_id, []).append(citation)
    same = describe_same_studies(citations)
    entries: list[SourceEntry] = []
    for id_, group in by_document.items():
        entries.append(_describe_source(answer, group, same.get(id_, ""), with_places=with_places))
    return AnswerSection(name_sources(answer), tuple(entries))


def name_sources(answer: Answer, kind: str = "Sources") -> str:
    """Return the heading above the shown sources. `kind`: what sources of the answer are called."""
    if answer.withheld is not None:
        return f"{kind} that the model named"
    return kind if answer.citations else "Nearest results"


def group_citations(citations: Iterable[Citation]) -> StudyGroups:
    """Return which of the cited documents are one study."""
    return group_studies(
        CitedArticle(citation.document_id, citation.title, citation.reference) for citation in citations
    )


def describe_same_studies(citations: Sequence[Citation]) -> dict[str, str]:
    """Return a line such as `Same study as [1]` for each document whose study was cited before, by document id."""
    studies = group_citations(citations)
    sure_numbers: dict[str, int] = {}
    numbers: dict[str, int] = {}
    lines: dict[str, str] = {}
    documents: dict[str, int] = {}
    for citation in citations:
        documents.setdefault(citation.document_id, citation.number)
    for id_, number in documents.items():
        sure, first = studies.find_sure(id_), studies.find(id_)
        if sure in sure_numbers:
            lines[id_] = f"Same study as [{sure_numbers[sure]}]"
        elif first in numbers:
            lines[id_] = f"Probably the same study as [{numbers[first]}]"
        sure_numbers.setdefault(sure, number)
        numbers.setdefault(first, number)
    return lines


def _describe_source(
    answer: Answer, citations: Sequence[Citation], same_study: str, *, with_places: bool
) -> SourceEntry:
    """Return the entry of one document with all its quoted sentences."""
    shown = [show_citation(citation) for citation in citations]
    details = [same_study] if same_study else []
    # What is known of a document may have been read in one of its passages only.
    details += [f"{name}: {text}" for name, text in dict(fact for each in shown for fact in each.facts).items()]
    for citation, words in zip(citations, shown, strict=True):
        number = f"[{citation.number}] " if len(citations) > 1 else ""
        # The heading says of all of them that they are the nearest results.
        check = "" if answer.nearest else describe_check(answer, citation)
        place = words.place if citation.verified and not with_places else ""
        facts = ", ".join(filter(None, (check, place)))
        details.append(f"{number}“{words.quotation}”{f' ({facts})' if facts else ''}")
        if with_places:
            details.append(words.offsets)
    label = "".join(f"[{citation.number}]" for citation in citations)
    return SourceEntry(label, shown[0].reference, shown[0].marks, tuple(details), shown[0].links)


def list_sentences(citations: Sequence[Citation]) -> tuple[SourceEntry, ...]:
    """Return the sentences in their order, each with its source. A repeated source is named by its first number."""
    entries: list[SourceEntry] = []
    first_numbers: dict[str, int] = {}
    same_studies = describe_same_studies(citations)
    for citation in citations:
        shown = show_citation(citation)
        text, label = f"“{shown.quotation}”", f"[{citation.number}]"
        if citation.document_id in first_numbers:
            same = f"Same source as [{first_numbers[citation.document_id]}]; {shown.offsets}"
            entries.append(SourceEntry(label, text, shown.marks, (same,)))
            continue
        first_numbers[citation.document_id] = citation.number
        details = [shown.reference]
        if citation.document_id in same_studies:
            details.append(same_studies[citation.document_id])
        details += [f"{name}: {fact}" for name, fact in shown.facts]
        entries.append(SourceEntry(label, text, shown.marks, (*details, shown.offsets), shown.links))
    return tuple(entries)


def _describe_computed(answer: Answer) -> AnswerSection:
    """Return the computed answer with its table, or an empty section."""
    computed = answer.computed
    if computed is None:
        return AnswerSection("")
    lines = [*computed.remarks, describe_left_out(computed)]
    if computed.planned_by != "rules":
        lines.append(f"The question was read by {computed.planned_by}: {computed.operation} of {computed.subject}.")
    remarks = tuple(map(printable, filter(None, lines)))
    # The statement is shown once: as the first claim of the answer, if it is one.
    lead = "" if any(claim.is_computed for claim in answer.claims) else printable(computed.statement)
    return AnswerSection(HEADING, (), remarks, lead, build_computed_table(answer))


def _list_conflicts(answer: Answer) -> AnswerSection:
    """Return one line for each disagreement of the evidence: both sides, their sources, and what decided."""
    lines = [printable(conflict.describe()) for conflict in answer.conflicts]
    if any(conflict.basis == "sentences" for conflict in answer.conflicts):
        lines.append(_READ_BY_RULES)
    return AnswerSection("Disagreements", lines=tuple(lines))


def _list_gaps(answer: Answer) -> tuple[str, ...]:
    """Return what was not found, left out or failed, one line each."""
    lines: list[str] = []
    total = len(answer.partials)
    unread = [partial for partial in answer.partials if partial.is_unread]
    for partial in unread:
        reason = partial.failure.message if partial.failure else "no reason given"
        lines.append(f"Part {partial.partition + 1} of {total} could not be read: {reason}")
    empty = sum(partial.state == "nothing" for partial in answer.partials)
    if empty:
        parts = f"{empty} of {count_noun(total, 'part')} of the evidence {agree(empty, 'contains', 'contain')}"
        lines.append(f"{parts} nothing relevant to the question.")
    missing = sum(not citation.verified for citation in answer.citations)
    if missing:
        quotations = f"{missing} of {count_noun(len(answer.citations), 'quotation')} {agree(missing, 'is', 'are')}"
        lines.append(f"{quotations} not in the document named.")
    for notice in _list_notices(answer):
        # The lines above name these parts with the reason.
        if notice.kind in _GAPS and not (notice.kind == "left-out" and unread):
            lines.append(notice.message)
    return tuple(dict.fromkeys(map(printable, lines)))


def _list_notes(answer: Answer) -> tuple[str, ...]:
    """Return the notices about the models and the library."""
    # The section of the computed answer has the reason for none.
    said = {*_GAPS, "facts"} if answer.computed is not None else _GAPS
    lines = [notice.message for notice in _list_notices(answer) if notice.kind not in said]
    return tuple(dict.fromkeys(map(printable, lines)))


def _list_notices(answer: Answer) -> list[Notice]:
    """Return the notices that matter for trust in the answer."""
    return [event for event in answer.trace if isinstance(event, Notice) and event.kind not in QUIET_NOTICES]
