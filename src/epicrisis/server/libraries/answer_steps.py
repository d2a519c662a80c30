"""The steps on the way to an answer in words, for clients that show progress."""

from __future__ import annotations

from epicrisis.core.answers import (
    AnswerStarted,
    Drafted,
    Event,
    ExamplesFound,
    MapFinished,
    MapStarted,
    PreflightChecked,
    Retrieved,
    SentencesSelected,
    Voted,
)
from epicrisis.core.printable import count_noun


def describe_step(event: Event) -> str:
    """Return a step on the way to an answer in words, without any text of a document or model; empty for others."""
    match event:
        case Retrieved():
            return f"Found {count_noun(len(event.ranking.hits), 'passage')}"
        case SentencesSelected():
            return f"Selected {count_noun(len(event.sentences), 'sentence')}"
        case PreflightChecked():
            return "One prompt is enough" if event.verdict.rankings_agree else "Reading the evidence in parts"
        case ExamplesFound():
            return f"Chose {count_noun(len(event.ids), 'solved question')}"
        case MapStarted():
            return f"Reading part {event.partition + 1}"
        case MapFinished():
            return f"Part {event.partial.partition + 1}: {event.partial.state}"
        case Voted():
            return f"Vote {event.vote.number + 1}: {event.vote.state}"
        case Drafted():
            return f"Draft {event.draft.number + 1}: {event.draft.state}"
        case AnswerStarted():
            return "Writing the answer"
    return ""
