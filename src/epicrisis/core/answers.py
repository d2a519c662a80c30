"""Answers with their citations, votes and drafts, and the events of a question in progress."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from epicrisis.core.computed_values import COMPUTATION, ComputedAnswer
from epicrisis.core.display import NotebookDisplay, load_displays
from epicrisis.core.printable import count_noun, shorten
from epicrisis.core.references import Reference
from epicrisis.core.studies import StudyRow
from epicrisis.core.study_types import StudyTypeMatch
from epicrisis.core.types import (
    AnswerState,
    ArticleMark,
    CountUnit,
    EvidenceSpan,
    Preflight,
    Question,
    Ranking,
    SearchTops,
    SentenceSelector,
    SupportState,
)

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Calls, tokens, seconds and cost, including retries. `cost` is in US dollars; `None` is unknown, never 0."""

    calls: int = 0
    failed_calls: int = 0
    uncounted_calls: int = 0
    """Calls with an unknown number of tokens, mostly failed ones. The tokens here are then a lower bound."""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    """Prompt tokens the endpoint had in its prefix cache."""
    completion_tokens: int = 0
    reasoning_tokens: int = 0
    """Completion tokens of the reasoning."""
    seconds: float = 0.0
    """The sum over the calls. With concurrent calls it exceeds the wall-clock time."""
    cost: float | None = 0.0
    replayed_calls: int = 0
    """Replies from the cache, not included in the figures above."""
    replayed_tokens: int = 0
    """Prompt and completion tokens of the original calls behind these replies."""

    def __add__(self, other: Usage) -> Usage:
        sums: dict[str, Any] = {}
        for field_ in fields(self):
            one, two = getattr(self, field_.name), getattr(other, field_.name)
            sums[field_.name] = None if one is None or two is None else one + two
        return Usage(**sums)


NOT_IN_LIBRARY = "NotInLibrary"
"""The kind of the failure of a question that no document answers."""


@dataclass(frozen=True, slots=True)
class Failure:
    """The reason for a failure, in words a user can act on."""

    kind: str
    message: str


@dataclass(frozen=True, slots=True)
class Quotation:
    """Words a model quotes from a document. `start`/`end` are their offsets, if the text contains them verbatim."""

    passage_id: str
    """The passage with these words, or the passage the model named if none has them."""
    text: str
    start: int | None = None
    end: int | None = None
    in_title: bool = False
    """True if the words are in the title of the document and not in its text."""
    chosen_by_program: bool = False
    """Whether the program chose the sentence, and not the model."""

    @property
    def verified(self) -> bool:
        """Whether the text or title of the document contains the words verbatim."""
        return self.start is not None or self.in_title


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialAnswer:
    """The result of one map call. `nothing`: the model found nothing relevant. `unparsed`: its reply cannot be read.
    `failed`: the call was not made or not answered."""

    partition: int
    """The number of the partition, from 0."""
    passages: tuple[str, ...]
    state: Literal["relevant", "nothing", "unparsed", "failed"]
    text: str = ""
    choice: str | None = None
    quotations: tuple[Quotation, ...] = ()
    usage: Usage = Usage()
    failure: Failure | None = None
    rationale: str = ""
    """Why the passages say so, by the model (setting `map_confidence`)."""
    confidence: float | None = None
    """How well the passages support the finding, by the model: from 0 to 5 (setting `map_confidence`). Not a
    probability. None if the model was not asked, or did not say."""

    @property
    def is_unread(self) -> bool:
        """Whether nothing is known of the part: its call was lost, or its reply cannot be read."""
        return self.state in ("unparsed", "failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Vote:
    """One of several sampled answers to a question (self-consistency). Only votes in state `answered` count."""

    number: int
    """From 0."""
    letter_order: tuple[str, ...] = field(metadata={"json": "shown"})
    """The original letters of the options, in the order of the prompt."""
    state: AnswerState
    choice: str | None = None
    """The original letter of the option."""
    text: str = ""
    usage: Usage = Usage()
    failure: Failure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """One of the open answers OpenMedprompt writes before the final one."""

    number: int
    """From 0."""
    state: AnswerState
    text: str = ""
    choice: str | None = None
    critique: str = ""
    """The criticism by the model itself (self-reflection)."""
    rewards: Mapping[str, float] = field(default_factory=dict)
    """Scores by attribute; empty without a reward model."""
    usage: Usage = Usage()
    """Usage of the answer, without the critique."""
    failure: Failure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Citation:
    """The source of a claim, `[number]` in the answer text. `start`/`end` are the offsets of the verified quotation in
    the document, else those of the passage."""

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
    """True if the quotation is in the title of the document. `start`/`end` are then those of the passage."""
    marks: tuple[ArticleMark, ...] = ()
    """Warnings about the document: `retracted`, `expression-of-concern`, `corrected`."""
    reference: Reference = field(default_factory=Reference)
    """The source as a reader would cite it."""
    chosen_by_program: bool = False
    """Whether the program chose the sentence for a claim, because the model named none that passed the check."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One sentence of an answer, with the citations that show it."""

    text: str
    """Without citation markers."""
    citations: tuple[int, ...] = ()
    """Numbers of `Answer.citations`."""
    support: SupportState = "not-checked"
    reason: str = ""
    """Why the check decided so, in one sentence for the reader."""
    checked_by: str = ""
    """`rules`, `verbatim`, `computation`, or the name of the verifier. Empty if nothing could decide."""

    @property
    def is_computed(self) -> bool:
        """Whether a program computed the sentence from structured entries. Others are words of a model or a note."""
        return self.checked_by == COMPUTATION and self.support == "supported"

    @property
    def is_doubtful(self) -> bool:
        """Whether a check found a reason not to rely on the claim: a contradiction, or words that no sentence has."""
        return self.checked_by not in ("", COMPUTATION) and self.support != "supported"


@dataclass(frozen=True, slots=True)
class Confidence:
    """How far the parts, votes, probabilities and claims behind an answer agree, from 0 to 1."""

    value: float
    """The mean of the components."""
    components: Mapping[str, float]
    """Shares by name: `parts`, `votes`, `probability`, `claims`. Unknown ones are absent."""
    calibrated: float | None = None
    """The probability that the answer is right, by a fitted calibration. None without one for answers of this kind."""


@dataclass(frozen=True, slots=True)
class VoteMargin:
    """The votes of documents or passages, each read alone, and how many would have to be false."""

    unit: CountUnit
    read: int
    """How many were read. Those without a vote are included."""
    votes: Mapping[str, int]
    """The number of votes by option."""
    choice: str | None = None
    """The option with the most votes. None for a tie, or without a vote."""
    needed: int = 0
    """The least number of false documents or passages that could change the answer. 0 without a choice."""


@dataclass(frozen=True, slots=True)
class WithheldAnswer:
    """An untrusted answer of the model, with the reason. It is displayed and does not count as an answer."""

    text: str
    reason: str
    choice: str | None = None
    citations: tuple[Citation, ...] = ()


@dataclass(frozen=True, slots=True)
class ModelOutcome:
    """How the chat model answered, where the answer is a computed one because the model gave none."""

    state: AnswerState
    text: str = ""
    """The words of the model."""
    failure: Failure | None = None


ConflictBasis: TypeAlias = Literal["parts", "sentences", "votes", "facts"]
"""What disagrees: the options that the parts chose, the directions read by rules from cited sentences, votes, or a note
and structured entries of the record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConflictSource:
    """A document on one side of a conflict."""

    document_id: str
    title: str = ""
    study: StudyTypeMatch | None = None
    """None for notes of a record and for studies of an unknown type."""
    is_note: bool = False
    """Whether it is a note of a patient's record."""
    is_retracted: bool = False
    """Whether it is a retracted article or a retraction notice. Such a source is shown and does not count."""
    same_study_as: str = ""
    """The document of the same side that counts for the study, if that is another one."""
    is_same_study_sure: bool = True
    """False if the documents are probably one study: by title, without the year or first author of both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConflictSide:
    """What one side of a conflict says, and who says it."""

    label: str
    """An option, such as `A (yes)`, or `an increase`, `a decrease`, `no difference`, `an effect`."""
    summary: str
    """The sources by type of study, such as `2 randomised trials, 1 cohort study`."""
    count: int
    """Studies that are not retracted, parts without a verified quotation, or votes."""
    choice: str | None = None
    """The letter of the option."""
    is_answer: bool = False
    """Whether the answer takes this side."""
    citations: tuple[int, ...] = ()
    """Numbers of `Answer.citations`."""
    partitions: tuple[int, ...] = ()
    """Numbers of the parts, from 0."""
    votes: tuple[int, ...] = ()
    """Numbers of the votes, from 0."""
    sources: tuple[ConflictSource, ...] = ()


@dataclass(frozen=True, slots=True)
class Conflict:
    """A disagreement of the evidence, with both sides and the rule that decided."""

    basis: ConflictBasis
    sides: tuple[ConflictSide, ...]
    """The side of the answer first, then by the number of sources."""
    rule: str
    """What decided, in words: `reduce call, against the majority of parts`."""

    def describe(self) -> str:
        """Return the sides on one line: `2 for A (yes): 2 randomised trials [1][3]; 1 for B (no): ...`."""
        lines: list[str] = []
        for side in self.sides:
            markers = "".join(f"[{number}]" for number in side.citations)
            lines.append(f"{side.count} for {side.label}: {side.summary} {markers}".rstrip())
        return f"{'; '.join(lines)}. Decided by: {self.rule}"


Narrowing: TypeAlias = Literal["none", "kept", "lifted"]
"""Whether time expressions of the question excluded notes. `kept`: the answer comes from the remaining notes.
`lifted`: these gave no answer, and the answer comes from a second attempt with the whole record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer(NotebookDisplay):
    """The outcome of a question, with everything that led to it."""

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
    """The share of each option among the votes with a choice, or its next-token probability."""
    decided_by: str = ""
    """For votes: `majority`, the tie rule, `tie` without one, or `citations`. For open answers: the selected draft."""
    drafts: tuple[Draft, ...] = ()
    withheld: WithheldAnswer | None = None
    """The answer of the model, if it is not trusted. The model's state is then `abstained`."""
    patient: str | None = None
    """The id of the patient whose record was read, even if the question has a record number. None: no record."""
    patient_name: str | None = None
    """The name, if a source has one."""
    narrowing: Narrowing = "none"
    claims: tuple[Claim, ...] = ()
    """The answer sentence by sentence, each with its citations. Empty for strategies without documents."""
    withheld_claims: tuple[Claim, ...] = ()
    """Doubtful claims of the model, each with the reason. They are no part of the answer."""
    nearest: tuple[Citation, ...] = ()
    """The best results on the question that were read, numbered from 1, where no claim cites a sentence. They prove no
    claim."""
    margin: VoteMargin | None = None
    """The count of isolated votes. None for other answers."""
    conflicts: tuple[Conflict, ...] = ()
    """Disagreements of the evidence. Empty if the sources agree, or if nothing could be compared."""
    computed: ComputedAnswer | None = None
    """What the structured entries of the record say. None for a question that is not about them."""
    model_outcome: ModelOutcome | None = None
    """How the chat model answered, if it gave no answer and the computed one stands alone. None for other answers."""
    confidence: Confidence | None = None
    """None if nothing is known, and for answers of strategies that were not asked through a pipeline."""

    @property
    def model_state(self) -> AnswerState:
        """The state of the chat model's own answer. It differs from `state` if only the computed answer stands."""
        return self.state if self.model_outcome is None else self.model_outcome.state

    @property
    def shown_citations(self) -> tuple[Citation, ...]:
        """What a reader is shown: the citations of the withheld answer and of the answer, or else `nearest`."""
        withheld = () if self.withheld is None else self.withheld.citations
        return (*withheld, *self.citations) or self.nearest

    @property
    def studies(self) -> tuple[StudyRow, ...]:
        """One row for each cited study, in the order of the answer: reference, type, year, direction, sentence, link.

        What is not known, or not sure, is empty.
        """
        return load_displays().list_studies(self)  # type: ignore[no-any-return]

    def to_dataframe(self) -> pandas.DataFrame:
        """Return the studies as a table, with the fields of `StudyRow`. Raises ModelMissing without pandas."""
        return load_displays().tabulate_studies(self)

    def save(self, path: Path | str) -> None:
        """Write the answer with its sources, readable by its owner only; the suffix says how.

        `.docx`, `.md`, `.html` and `.json` are the answer; `.bib`, `.ris` and `.csl.json` its sources. A file that
        this program did not write is not replaced. Raises InputError and StorageError.
        """
        load_displays().save(self, path)

    def __str__(self) -> str:
        """Return what `epicrisis ask` prints: the answer with its sources."""
        return load_displays().draw_text(self)  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        """Return one short line. `epicrisis.to_json` has everything."""
        outcome = self.text
        if self.choice:
            outcome = f"{self.choice}. {self.question.options.get(self.choice, '')}"
        if self.state != "answered":
            outcome = self.failure.message if self.failure else self.text
        sources = count_noun(len(self.citations), "citation")
        return f"<Answer {self.state} by {self.strategy}: {shorten(outcome)} ({sources})>"


@dataclass(frozen=True, slots=True)
class Retrieved:
    """The ranking for the strategy is ready."""

    ranking: Ranking


@dataclass(frozen=True, slots=True)
class SentencesSelected:
    """Sentences of the library were selected for the question, best first."""

    sentences: tuple[EvidenceSpan, ...]
    tops: SearchTops | None = None
    """Of the hybrid search that found their passages."""


@dataclass(frozen=True, slots=True)
class PreflightChecked:
    """The preflight check has a verdict."""

    verdict: Preflight


@dataclass(frozen=True, slots=True)
class ExamplesFound:
    """Solved questions for the prompt were selected, best first."""

    ids: tuple[str, ...]
    left_out: tuple[str, ...] = ()
    """Ids of examples excluded because they are the question itself, by id or text."""
    models: tuple[str, ...] = ()
    """The distinct models that wrote the examples, with an empty name for unknown ones."""


@dataclass(frozen=True, slots=True)
class Voted:
    """One vote finished or failed."""

    vote: Vote


@dataclass(frozen=True, slots=True)
class Drafted:
    """One draft of an open answer finished or failed."""

    draft: Draft


@dataclass(frozen=True, slots=True)
class MapStarted:
    """One map call started."""

    partition: int
    passages: tuple[str, ...]
    sentences: int = 0
    """Sentences whose numbers the reply may name; 0 for a reply that quotes."""
    selected_by: SentenceSelector | None = None


@dataclass(frozen=True, slots=True)
class MapFinished:
    """One map call finished or failed."""

    partial: PartialAnswer


@dataclass(frozen=True, slots=True)
class AnswerStarted:
    """The call for the answer started: the reduce call, or the only call of other strategies."""

    stage: str
    documents: int
    sentences: int = 0
    """Sentences whose numbers the reply may name; 0 for a reply that quotes or cites nothing."""
    selected_by: SentenceSelector | None = None
    """What selected these sentences. None for those of findings."""


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the streamed reply, before it is checked. Traces leave it out, as the answer has the whole text."""

    stage: str
    text: str
    claim: int = 0
    """Number of the claim that the text belongs to, from 0. Replies without a list of claims have one."""
    choice: str | None = None
    """Letter of the option that the reply names. The piece that has it has no text."""
    quotations: tuple[Quotation, ...] = ()
    """The sentences that the claim names. The piece that has them has no text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCalled:
    """One call of a chat model ended. Only the hash of the prompt is kept, so traces can be shared without it."""

    stage: str
    model: str
    prompt_sha256: str
    template: str
    """The name and hash of the prompt file."""
    seed: int
    sample: int
    finish_reason: str
    usage: Usage
    at: float
    """Seconds since the epoch; differs between runs."""


@dataclass(frozen=True, slots=True)
class Notice:
    """A remark for the reader: a question cut at the encoder's window, a retry, a new partition, a fallback."""

    kind: str
    message: str


@dataclass(frozen=True, slots=True)
class Answered:
    """The last event of every question."""

    answer: Answer


Event: TypeAlias = (
    Retrieved
    | SentencesSelected
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
"""Anything that happens while a question is answered. `serialization.EVENT_NAMES` has the names of the JSON form."""

Trace: TypeAlias = tuple[Event, ...]
"""The recorded events of one question, in order, without `TextDelta` and `Answered`."""
