"""The nouns: frozen values that travel along the path of the evidence.

This module knows nothing of where values come from or what is done with them. Every value is immutable and typed in
full; `plain.to_json` turns any of them into JSON data.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeAlias

from .dates import first_day, last_day
from .facets import RETRACTED, facets

Metadata: TypeAlias = Mapping[str, Any]
"""JSON data that a source tells of a document."""

State: TypeAlias = Literal["answered", "abstained", "unparsed", "failed"]
"""How a question ended. Anything but `answered` is counted and shown, never scored as a letter."""

Form: TypeAlias = Literal["choice", "extractive", "open"]
By: TypeAlias = Literal["dense", "bm25", "hybrid"]
Remedy: TypeAlias = Literal["cut", "last-sentence-first", "segments"]
"""What is done where a question is longer than an encoder's window; `cut`: nothing, it reads the beginning."""

SignalKind: TypeAlias = Literal["overlap", "rank-biased-overlap", "dense-gap", "bm25-gap", "reranker-overlap"]
"""What a preflight check looks at; see `retrieval.signals`."""

Splitter: TypeAlias = Literal["tokens", "medrag", "whole"]
StrategyName: TypeAlias = Literal["brief-context", "rag", "closed-book", "chain-of-thought"]
"""How they are answered from."""


# -- what is read ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Document:
    """One abstract, chapter, note or file. `id` is unique in its source (`pubmed:12377809`)."""

    id: str
    text: str
    title: str = ""
    source: str = ""
    date: str | None = None
    """As published: `2015`, `2015-06` or `2015-06-30`."""
    patient: str | None = None
    """Whose record this is; `None` for literature. An access boundary, see `Scope`."""
    metadata: Metadata = field(default_factory=dict)
    """Filters look at `publication_types` (a list), `journal` and `retracted` (true or not there)."""
    revision: str | None = None
    """Of two versions of a document the one whose revision sorts later wins, in whatever order they come."""


@dataclass(frozen=True, slots=True)
class Passage:
    """A span of a document: `text == document.text[start:end]`, offsets in characters."""

    id: str
    """`<document id>#<ordinal>`, ordinals from 0."""
    document_id: str
    ordinal: int
    start: int
    end: int
    text: str
    title: str = ""
    source: str = ""
    date: str | None = None
    patient: str | None = None
    metadata: Metadata = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked. `options` keep their letters and their order; `gold` is a letter or a text, where it is known."""

    text: str
    options: Mapping[str, str] = field(default_factory=dict)
    form: Form = "open"
    id: str = ""
    gold: str | None = None
    gold_documents: tuple[str, ...] = ()
    patient: str | None = None

    @property
    def key(self) -> str:
        """Its id and a hash of what is asked, so that a changed question is another question."""
        asked = json.dumps([self.text, dict(self.options), self.patient], ensure_ascii=False)
        return f"{self.id}:{hashlib.sha256(asked.encode()).hexdigest()[:16]}"


@dataclass(frozen=True, slots=True)
class Scope:
    """What a search may see. Required by every search and fetch of a store, checked again where a prompt is made.

    A passage of a patient's record is seen only under that patient's scope; literature (no patient) is always seen.
    `as_of` hides whatever may have appeared after that date, undated documents included. `hidden` holds document ids.

    The rest are filters: `since` keeps what may have appeared on that day or later (nothing undated); of
    `publication_types` and `journals`, in any case of letters, one must be the document's; `without_retracted` hides
    what was retracted.
    """

    patient: str | None = None
    as_of: str | None = None
    hidden: frozenset[str] = frozenset()
    since: str | None = None
    publication_types: frozenset[str] = frozenset()
    journals: frozenset[str] = frozenset()
    without_retracted: bool = False

    def admits(self, passage: Passage) -> bool:
        """True when the passage may be seen under this scope."""
        if passage.patient is not None and passage.patient != self.patient:
            return False
        if passage.document_id in self.hidden:
            return False
        day = None if passage.date is None else last_day(passage.date)
        if self.as_of is not None and (day is None or day > last_day(self.as_of)):
            return False
        if self.since is not None and (day is None or day < first_day(self.since)):
            return False
        has = facets(passage.metadata)
        if self.without_retracted and RETRACTED in has:
            return False
        return all(wanted & has for wanted in self.wanted_facets())

    def wanted_facets(self) -> tuple[frozenset[str], ...]:
        """Of each of these sets a passage must have one, in the form of `facets`; none for no filter."""
        wanted = (
            frozenset(f"type:{name.casefold()}" for name in self.publication_types),
            frozenset(f"journal:{name.casefold()}" for name in self.journals),
        )
        return tuple(names for names in wanted if names)


# -- what is found --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Hit:
    """A passage in a ranking: `rank` from 0, a higher `score` is better."""

    passage: Passage
    score: float
    rank: int


@dataclass(frozen=True, slots=True)
class Ranking:
    """Hits in order, best first, ties broken by passage id. Says what made it."""

    hits: tuple[Hit, ...]
    retriever: str
    """`dense`, `bm25` or `hybrid`."""
    parameters: Metadata = field(default_factory=dict)
    """Encoder, k, RRF constant: whatever the order depends on."""
    notes: tuple[str, ...] = ()
    """What a reader must know of how it was made, such as a question cut at the encoder's window."""

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(hit.passage.id for hit in self.hits)

    @property
    def passages(self) -> tuple[Passage, ...]:
        return tuple(hit.passage for hit in self.hits)


@dataclass(frozen=True, slots=True)
class Preflight:
    """The verdict of the preflight check (BriefContext, Methods): do two rankings of the same hits agree?

    `rankings_agree` True means that no position problem is expected, so map-reduce is *not* needed. By the signals that
    look at one ranking alone it means that the ranking is clear about its first hit.
    """

    rankings_agree: bool
    value: float
    """Of the signal (`retrieval.signals`), higher is safer: an overlap is 0 to 1, a gap is in the ranker's scores."""
    n: int
    threshold: float
    depth: int
    """How many dense hits were ranked anew."""
    dense_top: tuple[str, ...]
    bm25_top: tuple[str, ...]
    """Empty where the signal looks at no words, or where no word was found."""
    reason: str
    """One sentence for a reader."""
    signal: SignalKind = "overlap"
    reranked_top: tuple[str, ...] = ()
    """Empty but for `reranker-overlap`."""


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
    """Words said to stand in a passage. `start`/`end` are offsets into the document's text where they were found."""

    passage_id: str
    text: str
    start: int | None = None
    end: int | None = None

    @property
    def verified(self) -> bool:
        """True when the words were found verbatim in the passage."""
        return self.start is not None


@dataclass(frozen=True, slots=True)
class Partial:
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


@dataclass(frozen=True, slots=True)
class Answer:
    """How a question ended, with everything that led there."""

    question: Question
    strategy: str
    state: State
    text: str = ""
    choice: str | None = None
    citations: tuple[Citation, ...] = ()
    partials: tuple[Partial, ...] = ()
    preflight: Preflight | None = None
    usage: Usage = Usage()
    failure: Failure | None = None
    trace: Trace = ()


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
class MapStarted:
    """One map call was sent."""

    partition: int
    passages: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MapFinished:
    """One map call came back, or was given up."""

    partial: Partial


@dataclass(frozen=True, slots=True)
class AnswerStarted:
    """The call that writes the answer was sent: the reduce call, or the only call of the other strategies."""

    stage: str
    documents: int


@dataclass(frozen=True, slots=True)
class Delta:
    """A piece of the answer's text as it streams. Not kept in the trace: the whole is in the answer."""

    stage: str
    text: str


@dataclass(frozen=True, slots=True)
class Called:
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
    Retrieved | PreflightChecked | MapStarted | MapFinished | AnswerStarted | Delta | Called | Notice | Answered
)

Trace: TypeAlias = tuple[Event, ...]
"""The recorded events of one question, in order, without `Delta` and `Answered`."""

EVENT_NAMES: Mapping[type, str] = {
    Retrieved: "retrieved",
    PreflightChecked: "preflight",
    MapStarted: "map-started",
    MapFinished: "map-finished",
    AnswerStarted: "answer-started",
    Delta: "delta",
    Called: "called",
    Notice: "notice",
    Answered: "answered",
}
