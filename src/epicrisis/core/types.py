"""Values for questions, documents, passages, rankings and scopes. All are immutable and fully typed.

`serialization.to_json` converts any of them to JSON data.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal, TypeAlias

from epicrisis.core.dates import first_day, last_day
from epicrisis.core.display import NotebookDisplay
from epicrisis.core.printable import count_noun, shorten

Metadata: TypeAlias = Mapping[str, Any]
"""JSON data about a document, as its source provides it."""

CharacterSpan: TypeAlias = tuple[int, int]
"""Start and end of a piece of text, as character offsets."""

AnswerState: TypeAlias = Literal["answered", "abstained", "unparsed", "failed", "over-window"]
"""How a question ended. All states except `answered` are counted and displayed, and never scored as a letter.
`over-window`: the evidence does not fit the model's context window, so no model was called and nothing was cut."""

ArticleMark: TypeAlias = Literal["retracted", "retraction-notice", "expression-of-concern", "corrected"]
"""A warning about an article. Articles with one of the first two marks are not evidence."""

QuestionForm: TypeAlias = Literal["choice", "extractive", "open"]
SearchMode: TypeAlias = Literal["dense", "bm25", "hybrid"]
LongQuestionPolicy: TypeAlias = Literal["cut", "last-sentence-first", "segments"]
"""How to search with a question longer than the encoder's window. `cut`: the encoder reads only its beginning."""

SignalKind: TypeAlias = Literal["overlap", "rank-biased-overlap", "dense-gap", "bm25-gap", "reranker-overlap"]
"""The signal of a preflight check; see `retrieval.preflight`."""

TieRule: TypeAlias = Literal["abstain", "first-vote"]
"""How to decide a tied vote. `first-vote` takes the leading option with the earliest vote, as the code of the
context-retrieval study does."""

DraftSelection: TypeAlias = Literal["last", "best"]
"""Which draft of self-reflection becomes the answer: the last, as published, or the one with the highest reward
(errata P8)."""

SplitterName: TypeAlias = Literal["tokens", "medrag", "whole"]
RouteTarget: TypeAlias = Literal["off", "brief-context", "full-context"]
"""Where a question goes whose documents do not answer it in one prompt."""

CountUnit: TypeAlias = Literal["documents", "passages"]
"""The unit of `k`, of a partition and of the preflight check."""

RuleName: TypeAlias = Literal["fitted", "paper"]
"""Named rules of the preflight check; see `retrieval.preflight`."""

EvidenceUnit: TypeAlias = Literal["chunk", "note"]
"""What a model reads of a patient record: the retrieved passages, or the whole notes around them."""

EvidenceOrder: TypeAlias = Literal["rank", "time"]
"""The order of the evidence in a prompt: best first, or chronological."""

ExtractionTarget: TypeAlias = Literal["sentence", "span"]
"""What answers an extractive question: a short sentence, as published, or words found verbatim in a note."""

PreferenceMode: TypeAlias = Literal["first", "only"]
"""What preferred study types change: they are moved forward in a ranking, or all others are left out."""

ChatCheck: TypeAlias = Literal["model", "med-v1", "minicheck"]
"""How a chat model is asked whether sentences support a claim."""

SupportCheck: TypeAlias = Literal["off", "rules", "nli", "model", "med-v1", "minicheck"]
"""How the claims of an answer are checked against the sentences they cite."""

SupportState: TypeAlias = Literal["supported", "contradicted", "not-checked"]
"""What the sentences of a claim say about it. `not-checked`: no check was requested, or none could decide."""

UnsupportedPolicy: TypeAlias = Literal["withhold", "mark"]
"""What to do with doubtful claims: leave them out of the answer and say why, or mark them in their place."""

AbsencePolicy: TypeAlias = Literal["abstain", "ask"]
UnverifiedPolicy: TypeAlias = Literal["abstain", "keep"]
"""What happens to an answer without a verified quotation: it counts as an abstention, or remains an answer."""

CitingMode: TypeAlias = Literal["quotes", "numbers"]
"""How a reply names its evidence: by words copied from a document, or by the numbers of sentences in the prompt."""
SentenceSelector: TypeAlias = Literal["ranker", "encoder", "words"]
"""What selects the sentences with a number: trained trees for literature; for notes an encoder and words, or words."""

CitationStyle: TypeAlias = Literal["vancouver", "ama", "apa"]
"""How references are written, see `report.citation_styles`."""
ReferenceFormat: TypeAlias = Literal["vancouver", "ama", "apa", "bibtex", "ris", "csl-json"]
"""How a list of references is written: in a citation style, or for a reference manager."""

RETRACTED = "retracted"
RETRACTION_NOTICE = "retraction-notice"
MARKED_BY_OTHERS = "marked"
"""The facet of a document with a mark from a retraction notice or a retraction list."""

_NOTICE_TYPES = ("retraction of publication", "retraction notice", "retraction")
RETRACTION_FACETS = frozenset({RETRACTED, RETRACTION_NOTICE, *(f"type:{kind}" for kind in _NOTICE_TYPES)})
"""Every retracted article and every retraction notice has at least one of these facets."""

_CORRECTIONS: Mapping[str, ArticleMark] = {
    "ExpressionOfConcernIn": "expression-of-concern",
    "ErratumIn": "corrected",
    "CorrectedandRepublishedIn": "corrected",
}
"""Marks by the `RefType` of PubMed. The PubMed reader sets `retracted` for retractions."""
_MARK_ORDER: tuple[ArticleMark, ...] = ("retracted", "retraction-notice", "expression-of-concern", "corrected")


@dataclass(frozen=True, slots=True)
class Document:
    """An abstract, chapter, note or file. The id is unique in its source (`pubmed:12377809`)."""

    id: str
    text: str
    _: KW_ONLY
    title: str = ""
    source: str = ""
    date: str | None = None
    """The publication date: `2015`, `2015-06` or `2015-06-30`."""
    patient: str | None = None
    """The patient of this record, `None` for literature. An access boundary, see `Scope`."""
    metadata: Metadata = field(default_factory=dict)
    """Filters read `publication_types` (a list), `journal`, `retracted` and `retraction_notice` (true or absent), and
    `marks`, added by the library."""
    revision: str | None = None
    """Of two versions of a document, the later revision in sort order replaces the other, whichever is added first."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The file a document was read from."""

    path: str
    """Absolute, with links resolved."""
    name: str = ""
    """The file name, if the document id contains it (`report.md` in `file:report.md`)."""
    sha256: str = ""
    """The hash of the file, if `name` is set."""


@dataclass(frozen=True, slots=True, kw_only=True)
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
        """The warnings about the article, most serious first."""
        return list_article_marks(self.metadata)

    @property
    def is_retracted(self) -> bool:
        """Whether the article is retracted, or is a retraction notice."""
        return is_retracted(self.metadata)


@dataclass(frozen=True, slots=True)
class EvidenceSpan:
    """The position of a piece of evidence in a document, offsets in characters."""

    document_id: str
    start: int
    end: int
    fact: str = ""
    """A name for the fact stated there. One span per fact is enough. Empty: a fact of its own."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question. `options` keep their letters and order; `gold` is the right letter or text, if known."""

    text: str
    _: KW_ONLY
    options: Mapping[str, str] = field(default_factory=dict)
    form: QuestionForm = "open"
    id: str = ""
    gold: str | None = None
    gold_documents: tuple[str, ...] = ()
    patient: str | None = None
    other_answers: tuple[str, ...] = field(default=(), metadata={"json": "also"})
    """Other answers as right as `gold`. Empty for a question with options."""
    evidence: tuple[EvidenceSpan, ...] = ()
    """All spans needed for the answer, if known."""
    category: str = ""
    """The kind of question (`specific-fact`, `temporal`, ...), if known."""

    @property
    def key(self) -> str:
        """The id with a hash of text, options and patient, so that an edited question gets another key."""
        content = json.dumps([self.text, dict(self.options), self.patient], ensure_ascii=False)
        return f"{self.id}:{hashlib.sha256(content.encode()).hexdigest()[:16]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A solved question for a prompt."""

    id: str
    text: str
    answer: str
    """One or two sentences. For an open question the complete answer."""
    options: Mapping[str, str] = field(default_factory=dict)
    choice: str | None = None
    """The letter of the right option, `None` without options."""
    reasoning: str = ""
    """The steps that lead to the answer, if available."""
    model: str = ""
    """The model that wrote the solution, if known."""


@dataclass(frozen=True, slots=True)
class Examples:
    """Solved questions for one prompt, best first."""

    examples: tuple[Example, ...]
    left_out: tuple[str, ...] = ()
    """Ids of examples excluded because they are the question itself."""
    notes: tuple[str, ...] = ()
    """Remarks of the search, such as a cut question or too few examples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The passages a search may return. Every search and fetch requires a scope; prompt rendering checks it again.

    Patient notes are visible only in the scope of their patient. Literature is always visible. `as_of` hides all
    documents possibly newer than this date, and undated ones. `hidden` contains document ids.

    The other fields are filters. `since` keeps documents possibly dated on that day or later, and no undated ones. A
    document needs one of `publication_types` and one of `journals`, compared without case. `without_retracted` hides
    retracted articles and retraction notices of any date.
    """

    patient: str | None = None
    as_of: str | None = None
    hidden: frozenset[str] = frozenset()
    since: str | None = None
    publication_types: frozenset[str] = frozenset()
    journals: frozenset[str] = frozenset()
    without_retracted: bool = False

    def admits(self, passage: Passage) -> bool:
        """Return whether the passage is visible in this scope."""
        if passage.patient is not None and passage.patient != self.patient:
            return False
        if passage.document_id in self.hidden:
            return False
        day = None if passage.date is None else last_day(passage.date)
        if self.as_of is not None and (day is None or day > last_day(self.as_of)):
            return False
        if self.since is not None and (day is None or day < first_day(self.since)):
            return False
        facets = list_facets(passage.metadata)
        if self.without_retracted and RETRACTION_FACETS & facets:
            return False
        return not any(facets.isdisjoint(required) for required in self.required_facets())

    def required_facets(self) -> tuple[frozenset[str], ...]:
        """Return one set of facets per active filter. A passage must have at least one facet of each set."""
        types = frozenset(_prefix_facets("type", self.publication_types))
        journals = frozenset(_prefix_facets("journal", self.journals))
        return tuple(filter(None, (types, journals)))


@dataclass(frozen=True, slots=True)
class Hit:
    """A passage in a ranking. `rank` counts from 0; a higher `score` is better."""

    passage: Passage
    score: float
    rank: int


@dataclass(frozen=True, slots=True)
class SearchTops:
    """The first documents of the search by meaning and of the search by words, before a hybrid search fused them."""

    dense: tuple[str, ...]
    """Document ids, best first."""
    bm25: tuple[str, ...]
    titles: Mapping[str, str]
    """The title of each document, by its id."""
    similarity: float | None = None
    """Of the question and the nearest passage, in the unit of the encoder that the ranking names."""


@dataclass(frozen=True, slots=True)
class Ranking(NotebookDisplay):
    """Hits in order, best first. Ties are ordered by passage id. Iterating yields the hits."""

    hits: tuple[Hit, ...]
    retriever: str
    """`dense`, `bm25` or `hybrid`."""
    parameters: Metadata = field(default_factory=dict)
    """Everything the order depends on, such as encoder, k and RRF constant."""
    notes: tuple[str, ...] = ()
    """Remarks for the reader, such as a question cut at the encoder's window."""
    tops: SearchTops | None = None
    """Of a hybrid search, for the reader. No order depends on it."""

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)

    def __len__(self) -> int:
        return len(self.hits)

    def __getitem__(self, index: int) -> Hit:
        return self.hits[index]

    def __repr__(self) -> str:
        """Return one short line."""
        first = f": {shorten(self.hits[0].passage.title or self.hits[0].passage.text)}" if self.hits else ""
        return f"<Ranking by {self.retriever}: {count_noun(len(self.hits), 'passage')}{first}>"

    @property
    def ids(self) -> tuple[str, ...]:
        """The passage ids in order."""
        return tuple(hit.passage.id for hit in self.hits)

    @property
    def ranks(self) -> dict[str, int]:
        """The rank of each passage by the search, from 0, also for hits in order of time. Empty if nothing ranked."""
        if self.parameters.get("order") != "time":
            return {hit.passage.id: hit.rank for hit in self.hits}
        return {id_: rank for rank, id_ in enumerate(self.parameters.get("ranked", ()))}

    @property
    def scored_ids(self) -> tuple[tuple[str, float], ...]:
        """The passage ids with their scores."""
        return tuple((hit.passage.id, hit.score) for hit in self.hits)

    @property
    def document_ids(self) -> tuple[str, ...]:
        """The document id of each passage."""
        return tuple(hit.passage.document_id for hit in self.hits)

    @property
    def passages(self) -> tuple[Passage, ...]:
        """The passages in order."""
        return tuple(hit.passage for hit in self.hits)


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence of a passage: the characters `start` to `end` of its document."""

    passage: Passage
    start: int
    end: int

    @property
    def text(self) -> str:
        """The words, verbatim."""
        return self.passage.text[self.start - self.passage.start : self.end - self.passage.start]


@dataclass(frozen=True, slots=True)
class SentenceHit:
    """A sentence in a ranking. `rank` counts from 0; a higher `score` is better."""

    sentence: Sentence
    score: float
    rank: int


@dataclass(frozen=True, slots=True)
class SentenceRanking(NotebookDisplay):
    """Sentences in order, best first, without near-duplicates. Iterating yields the hits."""

    hits: tuple[SentenceHit, ...]
    parameters: Metadata = field(default_factory=dict)
    """Everything the order depends on."""
    notes: tuple[str, ...] = ()
    """Remarks for the reader."""
    tops: SearchTops | None = None
    """Of the hybrid search that found the passages, if they were searched for."""
    relevance: float | None = None
    """The highest probability that one of the documents answers the question, of sentences listed for a reader. None
    for notes of patients, and for sentences that a prompt gets."""
    absence: str = ""
    """Why no document of the library answers the question. Empty if one may."""

    def __iter__(self) -> Iterator[SentenceHit]:
        return iter(self.hits)

    def __len__(self) -> int:
        return len(self.hits)

    def __getitem__(self, index: int) -> SentenceHit:
        return self.hits[index]

    def __repr__(self) -> str:
        """Return one short line."""
        first = f": {shorten(self.hits[0].sentence.text)}" if self.hits else ""
        return f"<SentenceRanking of {count_noun(len(self.hits), 'sentence')}{first}>"

    @property
    def sentences(self) -> tuple[Sentence, ...]:
        """The sentences in order."""
        return tuple(hit.sentence for hit in self.hits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Preflight:
    """The verdict of the preflight check (BriefContext, Methods): do two rankings of the same hits agree?

    If they agree, no position problem is expected, and map-reduce is *not* needed. For signals of a single ranking,
    agreement means a clear lead of the first hit.
    """

    rankings_agree: bool
    value: float
    """The signal (`retrieval.preflight`), higher is safer. An overlap is 0 to 1; a gap has the ranker's unit."""
    n: int
    threshold: float
    depth: int
    """How many documents or passages of the dense ranking were ranked again."""
    dense_top: tuple[str, ...]
    bm25_top: tuple[str, ...]
    """Empty if the signal uses no words, or no word matched."""
    reason: str
    """One sentence for the reader."""
    signal: SignalKind = "overlap"
    reranked_top: tuple[str, ...] = ()
    """Only for `reranker-overlap`."""
    count: CountUnit = "passages"
    """The unit of `n`, `depth` and the top lists. A document counts by its best passage."""
    rule: str = ""
    """The source of signal, n and threshold. Empty if the user set them."""


def list_facets(metadata: Metadata) -> frozenset[str]:
    """Return the facets of a document for fast filtering, in lower case.

    These are `type:review` for each of `publication_types`, `journal:the lancet`, `retracted`, `retraction-notice`,
    and `marked` for marks added by a notice or a list. Values of an unexpected type are ignored.
    """
    types, journal = metadata.get("publication_types"), metadata.get("journal")
    facets = set(_prefix_facets("type", types if isinstance(types, list) else ()))
    facets.update(_prefix_facets("journal", [journal]))
    marks = set(_added_marks(metadata))
    if metadata.get("retracted") is True or RETRACTED in marks:
        facets.add(RETRACTED)
    if metadata.get("retraction_notice") is True:
        facets.add(RETRACTION_NOTICE)
    if marks:
        facets.add(MARKED_BY_OTHERS)
    return frozenset(facets)


def is_retracted(metadata: Metadata) -> bool:
    """Return whether the document is retracted, or is a retraction notice."""
    return not RETRACTION_FACETS.isdisjoint(list_facets(metadata))


def list_article_marks(metadata: Metadata) -> tuple[ArticleMark, ...]:
    """Return the marks of a document, most serious first, from its own record and from notices and lists."""
    facets = list_facets(metadata)
    marks = set(_added_marks(metadata))
    if RETRACTED in facets:
        marks.add(RETRACTED)
    elif RETRACTION_FACETS & facets:
        marks.add(RETRACTION_NOTICE)
    corrections = metadata.get("corrections")
    for entry in corrections if isinstance(corrections, list) else ():
        if isinstance(entry, Mapping) and isinstance(entry.get("type"), str):
            marks.add(_CORRECTIONS.get(entry["type"], ""))
    return tuple(mark for mark in _MARK_ORDER if mark in marks)


def _prefix_facets(prefix: str, names: Iterable[object]) -> Iterator[str]:
    for name in names:
        if isinstance(name, str):
            yield f"{prefix}:{name.casefold()}"


def _added_marks(metadata: Metadata) -> Iterator[str]:
    """Yield the marks added by a notice or a list (`library.retraction_marking` writes them)."""
    entries = metadata.get("marks")
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, Mapping) and isinstance(entry.get("mark"), str):
            yield entry["mark"]
