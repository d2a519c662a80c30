"""What is found for one question, by the settings: passages or whole notes, of the time that is asked of, as many as
fit, and in which order.

Knows the settings, the search and what a prompt takes; opens nothing, and does not know what is done with the ranking.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from epicrisis.answering.document_answers import build_documents_request
from epicrisis.answering.strategy_context import Context, fits
from epicrisis.prompts import format_passage
from epicrisis.protocols import Message
from epicrisis.retrieval.event_mentions import stating, telling
from epicrisis.retrieval.record_context import in_time, within_budget
from epicrisis.retrieval.retriever import Retriever
from epicrisis.retrieval.time_expressions import read
from epicrisis.retrieval.timeline import NoteTime, resolve
from epicrisis.settings import Settings
from epicrisis.types import Passage, Question, Ranking, Scope


@dataclass(frozen=True, slots=True)
class TimeRestriction:
    """What a question says of time, held against the times of the notes that it may be answered from."""

    hidden: frozenset[str] = frozenset()
    """Notes left out: their own times lie elsewhere."""
    notes: int = 0
    """How many notes the record has."""
    undated: int = 0
    """How many of those left out have no time of their own: by their stay or type they are not meant."""
    told: tuple[str, ...] = ()
    """What its words mean in this record, a sentence each."""
    unresolved: tuple[str, ...] = ()
    """What of them could not be told; then no note is left out."""

    @property
    def said(self) -> tuple[str, ...]:
        """What is told of it, with what is left out by it."""
        if not self.hidden:
            return self.told
        n = len(self.hidden)
        undated = f" ({self.undated} without a time, by their stay or type)" if self.undated else ""
        are = "is" if n == 1 else "are"
        return (
            *self.told,
            f"{n} of {self.notes} notes {are} left out: by their times and types they seem to be about another time"
            f"{undated}",
        )

    @property
    def whole(self) -> TimeRestriction:
        """The same with no note left out."""
        return replace(self, hidden=frozenset(), undated=0)

    @property
    def open(self) -> tuple[str, ...]:
        """What is told of what could not be."""
        return tuple(f"{each}: no note is left out" for each in self.unresolved)


NO_RESTRICTION = TimeRestriction()
RETRY_MESSAGE = "the notes that were left in do not answer it: asked once more with the whole record"
EMPTY_MESSAGE = "nothing is found in the notes that were left in: the whole record is searched"


def resolve_time_restriction(text: str, notes: Callable[[], Sequence[Passage]]) -> TimeRestriction:
    """Of a question about a record; `notes` gives the record, and is not called where the question says no time."""
    if not read(text):
        return NO_RESTRICTION
    record = notes()
    find_evidence = resolve(
        text,
        NoteTime.of(record),
        lambda event: telling(event, record),
        lambda time, years: stating(time, record, years),
    )
    dates = {note.document_id: note.date for note in record}
    left = frozenset() if find_evidence.documents is None else dates.keys() - find_evidence.documents
    undated = sum(dates[document] is None for document in left)
    return TimeRestriction(frozenset(left), len(dates), undated, find_evidence.told, find_evidence.unresolved)


def find_evidence(settings: Settings, retriever: Retriever, text: str, scope: Scope) -> Ranking:
    """The best `k` documents, passages or whole notes, best first. Literature alone has no notes."""
    search = retriever.notes if settings.unit == "note" and scope.patient is not None else retriever.found
    return search(text, settings.k, settings.by, scope, settings.count_unit(scope.patient))


def order_evidence(settings: Settings, patient: str | None, ranking: Ranking) -> Ranking:
    """The ranking as it is read: by time or as it is."""
    return in_time(ranking) if is_chronological(settings, patient) else ranking


def is_chronological(settings: Settings, patient: str | None) -> bool:
    """Whether what is found stands in the order of time."""
    return settings.order == "time" or (settings.order is None and patient is not None)


async def fit_notes(question: Question, context: Context, ranking: Ranking, tokens: int | None) -> Ranking:
    """The first notes of the ranking that fit into so many tokens, or without a figure into the writer's window, whole.

    What is left out is said. The best note is kept however long it is: whether it can be read the window decides.
    """
    if tokens is None:
        kept = await _within_window(question, context, ranking.passages)
        budget = "what the model's window leaves"
    else:
        model = context.models["writer"]
        counts = {
            passage.id: await model.count_tokens((Message("user", format_passage(passage)),))
            for passage in ranking.passages
        }
        kept, _ = within_budget(ranking.passages, tokens, lambda passage: counts[passage.id])
        budget = f"the budget of {tokens:,} tokens"
    n = max(1, len(kept))
    left = [passage.document_id for passage in ranking.passages[n:]]
    if not left:
        return ranking
    said = f"{len(left)} of {len(ranking.hits)} notes do not fit {budget} whole, and are left out: {', '.join(left)}"
    told = {**ranking.parameters, "left_out": left}
    return replace(ranking, hits=ranking.hits[:n], parameters=told, notes=(*ranking.notes, said))


async def _within_window(question: Question, context: Context, notes: tuple[Passage, ...]) -> tuple[Passage, ...]:
    while notes and not await fits(context, "writer", *build_documents_request(question, context, notes)):
        notes = notes[:-1]
    return notes
