"""The nouns of what is read, asked and found: frozen values that travel along the path of the evidence.

This module knows nothing of where values come from or what is done with them. Every value is immutable and typed in
full; `plain.to_json` turns any of them into JSON data.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from epicrisis.dates import first_day, last_day
from epicrisis.facets import RETRACTION_FACETS, ArticleMark, is_retracted, list_article_marks, list_facets

Metadata: TypeAlias = Mapping[str, Any]
"""JSON data that a source tells of a document."""

AnswerState: TypeAlias = Literal["answered", "abstained", "unparsed", "failed", "over-window"]
"""How a question ended. Anything but `answered` is counted and shown, never scored as a letter. `over-window`: what
was to be read does not fit the model's window, so nobody was asked and nothing was cut."""

QuestionForm: TypeAlias = Literal["choice", "extractive", "open"]
SearchMode: TypeAlias = Literal["dense", "bm25", "hybrid"]
LongQuestionPolicy: TypeAlias = Literal["cut", "last-sentence-first", "segments"]
"""What is done where a question is longer than an encoder's window; `cut`: nothing, it reads the beginning."""

SignalKind: TypeAlias = Literal["overlap", "rank-biased-overlap", "dense-gap", "bm25-gap", "reranker-overlap"]
"""What a preflight check looks at; see `retrieval.signals`."""

TieRule: TypeAlias = Literal["abstain", "first-vote"]
"""What comes of votes that are tied; `first-vote`: of the leading options the one that a vote stated first, as the
context-retrieval study's code does."""

DraftSelection: TypeAlias = Literal["last", "best"]
"""Which draft of self-reflection is the answer: the last, as published; or the one of highest reward (errata P8)."""

SplitterName: TypeAlias = Literal["tokens", "medrag", "whole"]
StrategyName: TypeAlias = Literal[
    "brief-context",
    "rag",
    "closed-book",
    "chain-of-thought",
    "zero-shot",
    "self-consistency",
    "medprompt",
    "ensemble-refining",
    "self-reflection",
    "full-context",
]
"""How they are answered from."""

CountUnit: TypeAlias = Literal["documents", "passages"]
"""What `k`, a part and the preflight check count."""

RuleName: TypeAlias = Literal["fitted", "paper"]
"""Rules of the preflight check that have a name; see `retrieval.preflight`."""

EvidenceUnit: TypeAlias = Literal["chunk", "note"]
"""What of a record is read: the passages that were found, or the whole notes that they stand in."""

EvidenceOrder: TypeAlias = Literal["rank", "time"]
"""How what was found is put before a model: best first, or as it was written."""

ExtractionTarget: TypeAlias = Literal["sentence", "span"]
UnverifiedPolicy: TypeAlias = Literal["abstain", "keep"]
"""What answers an extractive question: a short sentence, as published; or words of a note, found there again."""


def first_same_option(options: Mapping[str, str], letter: str) -> str:
    """Return the first letter whose option has the same text as this letter's, blanks aside: often the letter itself.

    Published exams have questions with one text under two letters; then either letter says the same.
    """
    wanted = options.get(letter, "").split()
    return next((other for other, text in options.items() if text.split() == wanted), letter)


def is_same_option(options: Mapping[str, str], one: str | None, other: str | None) -> bool:
    """Return whether two letters say the same: they are equal, or their options have the same text."""
    if one is None or other is None:
        return one is other
    return first_same_option(options, one) == first_same_option(options, other)


def chance_accuracy(options: Mapping[str, str], gold: str | None) -> float | None:
    """Return the share of the options that are right, one where nobody says which; None without options."""
    if not options:
        return None
    right = sum(is_same_option(options, letter, gold) for letter in options)
    return max(right, 1) / len(options)


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
    """Filters look at `publication_types` (a list), `journal`, `retracted` and `retraction_notice` (true or not
    there), and `marks`, which the library adds."""
    revision: str | None = None
    """Of two versions of a document the one whose revision sorts later wins, in whatever order they come."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The file a document was read from."""

    path: str
    """Absolute, links resolved."""
    name: str = ""
    """Where the document's id is made of the file's name: that name (`report.md` of `file:report.md`)."""
    sha256: str = ""
    """Of the file, where there is a name."""


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

    @property
    def marks(self) -> tuple[ArticleMark, ...]:
        """What became of the article since it appeared, the gravest first: `retracted`, ..."""
        return list_article_marks(self.metadata)

    @property
    def is_withheld(self) -> bool:
        """Whether the article is retracted, or the notice of a retraction: no evidence."""
        return is_retracted(self.metadata)


@dataclass(frozen=True, slots=True)
class EvidenceSpan:
    """Where in a document something stands, offsets in characters."""

    document_id: str
    start: int
    end: int
    fact: str = ""
    """What is said there, by any name: of the places of one fact one is enough. Empty: a fact of its own."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked. `options` keep their letters and their order; `gold` is a letter or a text, where it is known."""

    text: str
    options: Mapping[str, str] = field(default_factory=dict)
    form: QuestionForm = "open"
    id: str = ""
    gold: str | None = None
    gold_documents: tuple[str, ...] = ()
    patient: str | None = None
    also: tuple[str, ...] = ()
    """Other answers that are as right as `gold`; none of a question with options."""
    evidence: tuple[EvidenceSpan, ...] = ()
    """Where the answer stands, all of it, where that is known."""
    category: str = ""
    """What kind of question it is (`specific-fact`, `temporal`, ...), where somebody says."""

    @property
    def key(self) -> str:
        """Its id and a hash of what is asked, so that a changed question is another question."""
        asked = json.dumps([self.text, dict(self.options), self.patient], ensure_ascii=False)
        return f"{self.id}:{hashlib.sha256(asked.encode()).hexdigest()[:16]}"


@dataclass(frozen=True, slots=True)
class Example:
    """A solved question as a prompt shows it: the question, and a reply that came to its answer."""

    id: str
    text: str
    answer: str
    """One or two sentences; of an open question the whole answer."""
    options: Mapping[str, str] = field(default_factory=dict)
    choice: str | None = None
    """The right option's letter; `None` without options."""
    reasoning: str = ""
    """The steps to it, where they were written out."""
    model: str = ""
    """Who wrote it, where that is known."""


@dataclass(frozen=True, slots=True)
class Examples:
    """Solved questions for one prompt, best first; and the ids of those left out, for they are the question itself."""

    shown: tuple[Example, ...]
    left_out: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """What their search has to say: what it did not read, or that there are fewer than were wanted."""


@dataclass(frozen=True, slots=True)
class Scope:
    """What a search may see. Required by every search and fetch of a store, checked again where a prompt is made.

    A passage of a patient's record is seen only under that patient's scope; literature (no patient) is always seen.
    `as_of` hides whatever may have appeared after that date, undated documents included. `hidden` holds document ids.

    The rest are filters: `since` keeps what may have appeared on that day or later (nothing undated); of
    `publication_types` and `journals`, in any case of letters, one must be the document's; `without_retracted` hides
    what was retracted, whenever that was, and the notices of retractions.
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
        has = list_facets(passage.metadata)
        if self.without_retracted and RETRACTION_FACETS & has:
            return False
        return all(wanted & has for wanted in self.wanted_facets())

    def wanted_facets(self) -> tuple[frozenset[str], ...]:
        """Of each of these sets a passage must have one, in the form of `list_facets`; none for no filter."""
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
    """How many dense documents or passages were ranked anew."""
    dense_top: tuple[str, ...]
    bm25_top: tuple[str, ...]
    """Empty where the signal looks at no words, or where no word was found."""
    reason: str
    """One sentence for a reader."""
    signal: SignalKind = "overlap"
    reranked_top: tuple[str, ...] = ()
    """Empty but for `reranker-overlap`."""
    count: CountUnit = "passages"
    """What `n`, `depth` and the tops count: documents, each by its best passage, or passages."""
    rule: str = ""
    """Where signal, n and threshold come from; empty where they were given."""
