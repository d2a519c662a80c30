"""The nouns of answering: how a question ended with all that led there, and the events that tell of it meanwhile.

Knows what is read and found (`types`), and nothing of who answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Literal, TypeAlias

from epicrisis.facets import ArticleMark
from epicrisis.types import AnswerState, Preflight, Question, Ranking

# -- what is answered -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Usage:
    """What was spent, retries and failed tries included. `cost` in US dollars; `None` is unknown, never 0."""

    calls: int = 0
    failed_calls: int = 0
    uncounted_calls: int = 0
    """Calls, most of them failed, whose tokens nobody told: then the tokens here are a lower bound."""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    """Those of the prompt's tokens that the endpoint had computed before."""
    completion_tokens: int = 0
    reasoning_tokens: int = 0
    """Those of the completion's tokens that were thinking."""
    seconds: float = 0.0
    """Summed over the calls: concurrent calls add up to more than the wall clock."""
    cost: float | None = 0.0
    replayed_calls: int = 0
    """Replies that came out of the cache: they are in none of the figures above."""
    replayed_tokens: int = 0
    """What those had cost when they were made, prompt and completion."""

    def __add__(self, other: Usage) -> Usage:
        known = self.cost is not None and other.cost is not None
        sums = {f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self) if f.name != "cost"}
        return Usage(**sums, cost=(self.cost or 0.0) + (other.cost or 0.0) if known else None)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why something did not work, in words a user can act on."""

    kind: str
    message: str


@dataclass(frozen=True, slots=True)
class Quotation:
    """Words said to stand in a document. `start`/`end` are offsets into its text where they stand there verbatim."""

    passage_id: str
    """The passage in which the words stand; where they were not found, the one that was named."""
    text: str
    start: int | None = None
    end: int | None = None
    in_title: bool = False
    """True when the words stand in the document's title and not in its text."""

    @property
    def verified(self) -> bool:
        """True when the words stand verbatim in the document's text or title."""
        return self.start is not None or self.in_title


@dataclass(frozen=True, slots=True)
class PartialAnswer:
    """What one map call found. `nothing` is a report; `failed` is not: it says nothing about the passages."""

    partition: int
    """Number of the partition, from 0."""
    passages: tuple[str, ...]
    state: Literal["relevant", "nothing", "failed"]
    text: str = ""
    choice: str | None = None
    quotations: tuple[Quotation, ...] = ()
    usage: Usage = Usage()
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Vote:
    """One of several draws of an answer to the same question (self-consistency). Only one that is `answered` counts."""

    number: int
    """From 0."""
    shown: tuple[str, ...]
    """The question's own letters, in the order in which their texts were shown."""
    state: AnswerState
    choice: str | None = None
    """The question's own letter, whatever it was shown under."""
    text: str = ""
    usage: Usage = Usage()
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Draft:
    """One of the open answers that OpenMedprompt makes on its way to the last."""

    number: int
    """From 0."""
    state: AnswerState
    text: str = ""
    choice: str | None = None
    critique: str = ""
    """What the model itself had to say against it (self-reflection)."""
    rewards: Mapping[str, float] = field(default_factory=dict)
    """By attribute; empty where nobody scored it."""
    usage: Usage = Usage()
    """Of the answer alone, not of its critique."""
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Citation:
    """`[number]` in the answer's text: where a claim stands. `start`/`end`: the quotation in the document, where it
    was verified, else the passage."""

    number: int
    passage_id: str
    document_id: str
    title: str
    source: str
    date: str | None
    start: int
    end: int
    quotation: str
    verified: bool
    in_title: bool = False
    """True when the quotation stands in the document's title; then `start`/`end` are those of the passage."""
    marks: tuple[ArticleMark, ...] = ()
    """What a reader must know of the document: `retracted`, `expression-of-concern`, `corrected`."""


@dataclass(frozen=True, slots=True)
class WithheldAnswer:
    """What the model answered where that is not trusted, and why not. It is shown and counts as no answer."""

    text: str
    reason: str
    choice: str | None = None
    citations: tuple[Citation, ...] = ()


Narrowing: TypeAlias = Literal["none", "kept", "lifted"]


@dataclass(frozen=True, slots=True)
class Answer:
    """How a question ended, with everything that led there."""

    question: Question
    strategy: str
    state: AnswerState
    text: str = ""
    choice: str | None = None
    citations: tuple[Citation, ...] = ()
    partials: tuple[PartialAnswer, ...] = ()
    preflight: Preflight | None = None
    usage: Usage = Usage()
    failure: Failure | None = None
    trace: Trace = ()
    votes: tuple[Vote, ...] = ()
    distribution: Mapping[str, float] = field(default_factory=dict)
    """How votes, or the probability of the next token, spread over the options: shares of those that state one."""
    decided_by: str = ""
    """Of votes: `majority`, the rule that broke a tie, `tie` where none did; of open answers which was taken."""
    drafts: tuple[Draft, ...] = ()
    withheld: WithheldAnswer | None = None
    """What the model answered, where the state is `abstained` because it is not trusted."""
    patient: str | None = None
    """Whose record was read, by id, whatever the question calls the patient; None where none was."""
    patient_name: str | None = None
    """Where a source gave one."""
    narrowing: Narrowing = "none"
    """Whether notes were left out by what the question says of time: `kept`: the answer comes from the notes that were
    left in; `lifted`: these did not answer, and it comes from a second asking of the whole record."""

    @property
    def confidence(self) -> float | None:
        """The choice's share; `None` where there is no choice, or nothing that spreads."""
        return None if self.choice is None else self.distribution.get(self.choice)


# -- what happens meanwhile -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Retrieved:
    """The ranking that the strategy will read."""

    ranking: Ranking


@dataclass(frozen=True, slots=True)
class PreflightChecked:
    """The two lists were compared."""

    verdict: Preflight


@dataclass(frozen=True, slots=True)
class ExamplesFound:
    """The solved questions that the prompt will show, best first."""

    ids: tuple[str, ...]
    left_out: tuple[str, ...] = ()
    """Those that were found and are the question itself, by id or by text: nobody may read its answer there."""
    models: tuple[str, ...] = ()
    """Who wrote those that are shown, each once; an empty name where that is not known of one."""


@dataclass(frozen=True, slots=True)
class Voted:
    """One vote came back, or was given up."""

    vote: Vote


@dataclass(frozen=True, slots=True)
class Drafted:
    """One draft of an open answer came back, or was given up."""

    draft: Draft


@dataclass(frozen=True, slots=True)
class MapStarted:
    """One map call was sent."""

    partition: int
    passages: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MapFinished:
    """One map call came back, or was given up."""

    partial: PartialAnswer


@dataclass(frozen=True, slots=True)
class AnswerStarted:
    """The call that writes the answer was sent: the reduce call, or the only call of the other strategies."""

    stage: str
    documents: int


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the answer's text as it streams. Not kept in the trace: the whole is in the answer."""

    stage: str
    text: str


@dataclass(frozen=True, slots=True)
class ModelCalled:
    """One call of a chat model ended. The prompt is named by its hash, so that a trace can be shared without it."""

    stage: str
    model: str
    prompt_sha256: str
    template: str
    """Name and hash of the prompt file."""
    seed: int
    sample: int
    finish_reason: str
    usage: Usage
    at: float
    """Seconds since the epoch (volatile)."""


@dataclass(frozen=True, slots=True)
class Notice:
    """Something a reader must know: a question cut at the encoder's window, a retry, a re-partition, a fallback."""

    kind: str
    message: str


@dataclass(frozen=True, slots=True)
class Answered:
    """The last event, always."""

    answer: Answer


Event: TypeAlias = (
    Retrieved
    | PreflightChecked
    | ExamplesFound
    | MapStarted
    | MapFinished
    | Voted
    | Drafted
    | AnswerStarted
    | TextDelta
    | ModelCalled
    | Notice
    | Answered
)

Trace: TypeAlias = tuple[Event, ...]
"""The recorded events of one question, in order, without `TextDelta` and `Answered`."""

EVENT_NAMES: Mapping[type, str] = {
    Retrieved: "retrieved",
    PreflightChecked: "preflight",
    ExamplesFound: "examples",
    MapStarted: "map-started",
    MapFinished: "map-finished",
    Voted: "voted",
    Drafted: "drafted",
    AnswerStarted: "answer-started",
    TextDelta: "delta",
    ModelCalled: "called",
    Notice: "notice",
    Answered: "answered",
}
