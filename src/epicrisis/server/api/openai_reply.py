"""An answer as the message of a chat: the text with its citations, and where each citation stands and leads.

Texts of documents and models cannot add Markdown: no image or link of theirs is ever shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from epicrisis.core.answers import Answer, Citation, Claim, Usage
from epicrisis.core.printable import printable
from epicrisis.report.answer_content import (
    EVIDENCE,
    AnswerContent,
    build_answer_content,
    describe_check,
    describe_marks,
    label_support,
    name_sources,
)
from epicrisis.report.answer_files import escape_markdown
from epicrisis.report.shown_citation import show_citation
from epicrisis.server.libraries.question_completion import CompletedQuestion


@dataclass(frozen=True, slots=True)
class ReplyMessage:
    """The message of an answer, in lines."""

    lines: tuple[str, ...]
    annotations: tuple[Mapping[str, Any], ...]
    """One `url_citation` for each marker of a claim. `content[start_index:end_index]` is the marker."""

    @property
    def content(self) -> str:
        """The whole text."""
        return "\n".join(self.lines)


class ReplyWriter:
    """Writes the lines of a message, and notes where the markers stand."""

    def __init__(self, page: str) -> None:
        self._page = page
        self._lines: list[str] = []
        self._size = 0
        self._annotations: list[Mapping[str, Any]] = []

    def add_line(self, line: str = "") -> None:
        """Add a line of Markdown."""
        self._lines.append(line)
        self._size += len(line) + 1

    def add_claim(self, claim: Claim, citations: Mapping[int, Citation], *, shows_support: bool) -> None:
        """Add a claim with its markers, and note their places."""
        line = f"* {escape_markdown(claim.text)} "
        for number in claim.citations:
            citation = citations.get(number)
            words = "" if citation is None else describe_marks(citation.marks)
            marker = f"[{number}: {words}]" if words else f"[{number}]"
            if citation is not None:
                start = self._size + len(line)
                place = {
                    "start_index": start,
                    "end_index": start + len(marker),
                    "title": show_citation(citation).reference,
                    "url": f"{self._page}/sources/{number}",
                }
                self._annotations.append({"type": "url_citation", "url_citation": place})
            line += marker
        if shows_support or claim.is_computed:
            reason = f": {escape_markdown(claim.reason)}" if claim.reason and not claim.is_computed else ""
            line += f" ({label_support(claim)}{reason})"
        self.add_line(line.rstrip())

    def finish(self) -> ReplyMessage:
        """Return the message."""
        return ReplyMessage(tuple(self._lines), tuple(self._annotations))


def write_reply(answer: Answer, completed: CompletedQuestion, page: str, unused: Sequence[str]) -> ReplyMessage:
    """Return the message of an answer. `page` is the address of its page, where the sources are shown."""
    content = build_answer_content(answer)
    writer = ReplyWriter(page)
    if completed.by == "chat-model":
        writer.add_line(f"*Question, completed from the conversation:* {escape_markdown(completed.text)}")
        writer.add_line()
    _add_verdict(writer, answer, content)
    for warning in content.warnings:
        writer.add_line(f"**Warning:** {escape_markdown(warning)}")
    for remark in content.remarks:
        writer.add_line(escape_markdown(remark))
    citations = answer.shown_citations
    if citations:
        writer.add_line()
        writer.add_line(f"**{'Sentences' if answer.strategy == EVIDENCE else name_sources(answer)}**")
        writer.add_line()
    for citation in citations:
        check = "" if answer.strategy == EVIDENCE else describe_check(answer, citation)
        writer.add_line(_describe_citation(citation, page, check))
    for section in content.sections:
        if section.lines or section.lead:
            writer.add_line()
            writer.add_line(f"**{section.heading}**")
            writer.add_line()
        if section.lead:
            writer.add_line(escape_markdown(section.lead))
        for line in section.lines:
            writer.add_line(f"* {escape_markdown(line)}")
    _add_notes(writer, completed, unused)
    writer.add_line()
    writer.add_line(f"The whole answer with its evidence: {page}")
    return writer.finish()


def _add_verdict(writer: ReplyWriter, answer: Answer, content: AnswerContent) -> None:
    citations = {citation.number: citation for citation in answer.citations}
    is_computed = any(claim.is_computed for claim in answer.claims)
    # The computed sentence is among the claims, with its markers.
    verdict = content.verdict[1:] if is_computed and answer.strategy == EVIDENCE else content.verdict
    first, *rest = verdict
    is_claim = answer.state == "answered" and answer.claims and not answer.choice and answer.strategy != EVIDENCE
    writer.add_line(f"**{content.head}:**" if is_claim else f"**{content.head}:** {escape_markdown(first)}")
    for line in () if is_claim else rest:
        writer.add_line(escape_markdown(line))
    if answer.state != "answered" and answer.strategy != EVIDENCE:
        return
    if answer.claims:
        writer.add_line()
    shows_support = answer.strategy != EVIDENCE
    for claim in answer.claims:
        writer.add_claim(claim, citations, shows_support=shows_support)


def _add_notes(writer: ReplyWriter, completed: CompletedQuestion, unused: Sequence[str]) -> None:
    """Add what did not influence the answer."""
    if completed.notice or unused:
        writer.add_line()
    if completed.notice:
        writer.add_line(escape_markdown(completed.notice))
    if unused:
        writer.add_line(escape_markdown(f"Without influence on this answer: {', '.join(unused)}."))


def _describe_citation(citation: Citation, page: str, check: str) -> str:
    shown = show_citation(citation)
    marks = f" **{shown.marks}**" if shown.marks else ""
    pieces = [f"* [{citation.number}]{marks} {escape_markdown(shown.reference)}"]
    pieces += [escape_markdown(f"{name}: {text}") for name, text in shown.facts]
    if check:
        pieces.append(f"“{escape_markdown(shown.quotation)}” ({check})")
    return f"{'; '.join(pieces)}. {page}/sources/{citation.number}"


def count_usage(usage: Usage) -> dict[str, Any]:
    """Return the usage of an answer as OpenAI names it."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


def describe_outcome(
    answer: Answer, completed: CompletedQuestion, page: str, unused: Sequence[str], library: str
) -> dict[str, Any]:
    """Return what a chat completion has no field for: the state, the asked question, what was not used."""
    usage = answer.usage + completed.usage
    return {
        "state": answer.state,
        "model_state": answer.model_state,
        "strategy": answer.strategy,
        "library": library,
        "choice": answer.choice,
        "text": printable(answer.text, lines=True),
        "question": printable(completed.text),
        "question_by": completed.by,
        "page": page,
        "unused": list(unused),
        "model_calls": usage.calls,
        "replayed_calls": usage.replayed_calls,
        "uncounted_calls": usage.uncounted_calls,
    }
