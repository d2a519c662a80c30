"""Hide paths of this machine in messages for clients: they show the folders of the server."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from epicrisis.core.answers import (
    Answer,
    Answered,
    Draft,
    Drafted,
    Event,
    MapFinished,
    Notice,
    PartialAnswer,
    Vote,
    Voted,
)

_PATH = re.compile(r"(?<![\w/:.@-])/([^\s/'\"`;:,()<>]+)(?:/[^\s'\"`;:,()<>]*)?")
_HIDDEN = "a file of the server"
T = TypeVar("T", PartialAnswer, Vote, Draft, Answer)


def hide_file_paths(message: str) -> str:
    """Return the message without absolute paths. Addresses of the server, such as `/api/v1/runs`, stay."""

    def hide(match: re.Match[str]) -> str:
        return _HIDDEN if os.path.lexists(f"/{match[1]}") else match[0]

    return _PATH.sub(hide, message)


def hide_in_event(event: Event, hide: Callable[[str], str]) -> Event:
    """Return the event with `hide` applied to its failures and notices, those of a trace included."""
    match event:
        case Notice():
            return replace(event, message=hide(event.message))
        case MapFinished():
            return replace(event, partial=_hide_failure(event.partial, hide))
        case Voted():
            return replace(event, vote=_hide_failure(event.vote, hide))
        case Drafted():
            return replace(event, draft=_hide_failure(event.draft, hide))
        case Answered():
            return replace(event, answer=_hide_in_answer(event.answer, hide))
        case _:
            return event


def _hide_in_answer(answer: Answer, hide: Callable[[str], str]) -> Answer:
    trace = tuple(hide_in_event(event, hide) for event in answer.trace)
    partials = tuple(_hide_failure(partial, hide) for partial in answer.partials)
    votes = tuple(_hide_failure(vote, hide) for vote in answer.votes)
    drafts = tuple(_hide_failure(draft, hide) for draft in answer.drafts)
    return _hide_failure(replace(answer, trace=trace, partials=partials, votes=votes, drafts=drafts), hide)


def _hide_failure(item: T, hide: Callable[[str], str]) -> T:
    if item.failure is None:
        return item
    return replace(item, failure=replace(item.failure, message=hide(item.failure.message)))
