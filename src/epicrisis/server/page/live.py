"""The steps of a question as pieces of HTML, sent as server-sent events while it is answered.

The first piece replaces the answer on the page, the next ones add steps and words of the draft, and the last one is the
whole answer. htmx reads them (`hx-sse`); `<hx-partial>` names the element that a piece goes to.
"""

from __future__ import annotations

from fastapi.sse import format_sse_event
from markupsafe import Markup, escape

from epicrisis.answers import (
    AnswerStarted,
    Drafted,
    Event,
    MapFinished,
    MapStarted,
    Notice,
    PreflightChecked,
    Retrieved,
    SentencesSelected,
    TextDelta,
    Voted,
)
from epicrisis.printable import printable
from epicrisis.report.answer_content import QUIET_NOTICES

_PARTIAL = Markup('<hx-partial hx-target="#{}" hx-swap="{}">{}</hx-partial>')
_STATES = {"relevant": "found evidence", "nothing": "found nothing relevant", "failed": "could not be read"}


def frame(html: str) -> bytes:
    """Return a piece of HTML in the wire format of an unnamed event."""
    return format_sse_event(data_str=html)


def render_step(event: Event) -> str:
    """Return the piece of HTML for one event, or an empty text for an event without one."""
    if isinstance(event, TextDelta):
        return _PARTIAL.format("draft", "beforeend", escape(printable(event.text, lines=True)))
    if isinstance(event, Notice) and event.kind == "restarted":
        return _PARTIAL.format("draft", "innerHTML", "")
    words, is_trouble = describe_step(event)
    if not words:
        return ""
    return add_step(words, is_trouble=is_trouble)


def add_step(words: str, *, is_trouble: bool = False) -> str:
    """Return the piece of HTML that adds a step."""
    item = Markup('<li class="trouble">{}</li>' if is_trouble else "<li>{}</li>").format(printable(words))
    return _PARTIAL.format("steps", "beforeend", item)


def describe_step(event: Event) -> tuple[str, bool]:
    """Return an event in plain words, and whether it tells of a problem. Empty for events nobody needs to see."""
    match event:
        case Retrieved():
            return f"The search found {_count(len(event.ranking.hits), 'passage')}.", not event.ranking.hits
        case SentencesSelected():
            return f"Selected {_count(len(event.sentences), 'sentence')}.", False
        case PreflightChecked():
            agree = "agree" if event.verdict.rankings_agree else "disagree"
            return f"The rankings {agree}: {event.verdict.reason}.", False
        case MapStarted():
            return f"Reading part {event.partition + 1}: {_count(len(event.passages), 'passage')}.", False
        case MapFinished():
            state = event.partial.state
            return f"Part {event.partial.partition + 1} {_STATES[state]}.", state == "failed"
        case Voted():
            return f"Vote {event.vote.number + 1}: {event.vote.state}.", False
        case Drafted():
            return f"Draft {event.draft.number + 1}: {event.draft.state}.", False
        case AnswerStarted():
            return "Writing the answer.", False
        case Notice() if event.kind not in QUIET_NOTICES:
            return event.message, True
    return "", False


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
