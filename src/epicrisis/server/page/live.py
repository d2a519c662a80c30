"""A question while it is answered, as pieces of HTML that are sent as server-sent events.

The first piece replaces the answer on the page. The next ones add steps, and the verdict and claims of the reply with
the sentences that they name as they arrive, marked as not checked. The last one is the whole answer. htmx reads them
(`hx-sse`); `<hx-partial>` names the element that a piece goes to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fastapi.sse import format_sse_event
from markupsafe import Markup, escape

from epicrisis.core.answers import (
    AnswerStarted,
    Drafted,
    Event,
    MapFinished,
    MapStarted,
    Notice,
    PreflightChecked,
    Quotation,
    Retrieved,
    SentencesSelected,
    TextDelta,
    Voted,
)
from epicrisis.core.printable import count_noun, printable
from epicrisis.core.references import name_document
from epicrisis.core.types import Passage
from epicrisis.report.answer_content import QUIET_NOTICES
from epicrisis.server.page.answer_view import AnswerPageView
from epicrisis.server.page.plain_words import leave_out_command
from epicrisis.server.page.rendering import render

_PARTIAL = Markup('<hx-partial hx-target="#{}" hx-swap="{}">{}</hx-partial>')
_CLAIM = Markup(
    '<li><span id="live-claim-{0}">{1}</span> <span class="support">not checked yet</span>'
    '<span class="named" id="live-named-{0}"></span></li>'
)
_NUMBER = Markup(' <span class="cite">{}</span>')
_NAMED = Markup('<li class="quote"><span class="cite">{}</span> <q>{}</q> <cite>{}</cite></li>')
_STATES = {
    "relevant": "found evidence",
    "nothing": "found nothing relevant",
    "unparsed": "has a reply that could not be read",
    "failed": "could not be read",
}
_DISCARDED = frozenset({"restarted", "asked-again"})
"""Kinds of notices after which the reply so far does not count."""
SEARCHING, READING, WRITING = "Searching the library", "Reading the evidence", "Writing the answer"


def frame(html: str) -> bytes:
    """Return a piece of HTML in the wire format of an unnamed event."""
    return format_sse_event(data_str=html)


class LiveAnswer:
    """The part of the page that shows a question while it is answered.

    A screen reader hears only its phases: searching, reading, writing. Steps and words of the reply are not announced.
    """

    def __init__(
        self, question: str, options: Mapping[str, str], words: str = "", *, shows_found: bool = False
    ) -> None:
        """`shows_found`: the sentences that the program finds are shown beside it."""
        self.shows_found = shows_found
        self._question = question
        self._options = options
        self._words = words
        self._phase = SEARCHING
        self._claims = 0
        self._passages: dict[str, Passage] = {}
        self._named: dict[Quotation, int] = {}

    def render_start(self) -> str:
        """Return the part without steps. `words` of a follow-up question are shown until it is completed."""
        options = [printable(f"{letter}. {text}") for letter, text in self._options.items()]
        question = printable(self._question)
        return render("live", question=question, options=options, words=printable(self._words), phase=self._phase)

    def render_event(self, event: Event) -> str:
        """Return the pieces of HTML for one event, or an empty text for an event without one."""
        if isinstance(event, TextDelta):
            return self._add_reply(event)
        if isinstance(event, Retrieved):
            self._passages.update((hit.passage.id, hit.passage) for hit in event.ranking.hits)
        pieces: list[str] = []
        if isinstance(event, Notice) and event.kind in _DISCARDED:
            pieces += self._discard_reply()
        if phase := _find_phase(event):
            pieces.append(self._enter(phase))
        words, is_trouble = describe_step(event)
        if words:
            pieces.append(add_step(words, is_trouble=is_trouble))
        return "".join(pieces)

    def _enter(self, phase: str) -> str:
        """Return the piece that announces a phase, or an empty text for the announced one."""
        if phase == self._phase:
            return ""
        self._phase = phase
        return _PARTIAL.format("live-phase", "innerHTML", phase)

    def _add_reply(self, event: TextDelta) -> str:
        """Return the pieces for new words of the reply: of its verdict, or of a claim below it."""
        pieces = [self._enter(WRITING)]
        if event.choice is not None:
            choice = f"{event.choice}. {self._options.get(event.choice, '')}"
            pieces.append(_PARTIAL.format("live-verdict", "innerHTML", printable(choice)))
        # A question with options has the chosen one as its verdict, others the first claim, as the answer has.
        claim = event.claim if self._options else event.claim - 1
        if event.quotations:
            pieces += self._add_named(claim, event.quotations)
        if not event.text:
            return "".join(pieces)
        text = escape(printable(event.text, lines=True))
        if claim < self._claims:
            target = "live-verdict" if claim < 0 else f"live-claim-{claim + 1}"
            pieces.append(_PARTIAL.format(target, "beforeend", text))
        # A new claim has its first words with it: htmx finds the places of all pieces before it fills any.
        while self._claims <= claim:
            self._claims += 1
            first_words = text.lstrip() if self._claims > claim else ""
            pieces.append(_PARTIAL.format("live-claims", "beforeend", _CLAIM.format(self._claims, first_words)))
        return "".join(pieces)

    def _add_named(self, claim: int, quotations: Sequence[Quotation]) -> list[str]:
        """Return the pieces for the sentences that a claim names: their numbers, and the new ones beside the claims."""
        numbers = Markup("")
        pieces: list[str] = []
        for quotation in quotations:
            if quotation not in self._named:
                self._named[quotation] = len(self._named) + 1
                pieces.append(_PARTIAL.format("live-sources", "beforeend", self._describe_named(quotation)))
            numbers += _NUMBER.format(self._named[quotation])
        target = "live-named" if claim < 0 else f"live-named-{claim + 1}"
        return [_PARTIAL.format(target, "innerHTML", numbers), *pieces]

    def _describe_named(self, quotation: Quotation) -> Markup:
        """Return a sentence with its number, and the name and year of its document."""
        passage = self._passages.get(quotation.passage_id)
        facts = () if passage is None else (name_document(passage.title, passage.document_id), (passage.date or "")[:4])
        source = printable(", ".join(filter(None, facts)))
        return _NAMED.format(self._named[quotation], printable(quotation.text), source)

    def _discard_reply(self) -> list[str]:
        """Return the pieces that remove the reply so far."""
        self._claims = 0
        self._named.clear()
        return [
            _PARTIAL.format(name, "innerHTML", "")
            for name in ("live-verdict", "live-named", "live-claims", "live-sources")
        ]


def _find_phase(event: Event) -> str:
    """Return the phase that an event begins, or an empty text."""
    if isinstance(event, MapStarted):
        return READING
    return WRITING if isinstance(event, AnswerStarted) else ""


def replace_question(question: str) -> str:
    """Return the piece that shows a completed follow-up question in place of the typed words."""
    return _PARTIAL.format("asked", "innerHTML", printable(question))


def show_found(html: str) -> str:
    """Return the piece that shows the sentences found, beside the answer that is being written."""
    return _PARTIAL.format("live-proof", "innerHTML", Markup(html))


def replace_follow_up_form(view: AnswerPageView) -> str:
    """Return the piece with the form for a question that follows this answer.

    It is a piece of its own after the answer: the form that was sent must stay on the page until its stream ends.
    """
    return _PARTIAL.format("follow-up-form", "innerHTML", Markup(render("follow_up", view=view)))


def add_step(words: str, *, is_trouble: bool = False) -> str:
    """Return the piece of HTML that adds a step."""
    words = leave_out_command(words)
    if not words:
        return ""
    item = Markup('<li class="trouble">{}</li>' if is_trouble else "<li>{}</li>").format(printable(words))
    return _PARTIAL.format("steps", "beforeend", item)


def describe_step(event: Event) -> tuple[str, bool]:
    """Return an event in plain words, and whether it tells of a problem. Empty for events that are not displayed."""
    match event:
        case Retrieved():
            return f"The search found {count_noun(len(event.ranking.hits), 'passage')}.", not event.ranking.hits
        case SentencesSelected():
            return f"Selected {count_noun(len(event.sentences), 'sentence')}.", False
        case PreflightChecked():
            agree = "agree" if event.verdict.rankings_agree else "disagree"
            return f"The rankings {agree}: {event.verdict.reason}.", False
        case MapStarted():
            return f"Reading part {event.partition + 1}: {count_noun(len(event.passages), 'passage')}.", False
        case MapFinished():
            state = event.partial.state
            return f"Part {event.partial.partition + 1} {_STATES[state]}.", event.partial.is_unread
        case Voted():
            return f"Vote {event.vote.number + 1}: {event.vote.state}.", False
        case Drafted():
            return f"Draft {event.draft.number + 1}: {event.draft.state}.", False
        case AnswerStarted():
            return "Writing the answer.", False
        case Notice() if event.kind not in QUIET_NOTICES:
            return event.message, True
    return "", False
