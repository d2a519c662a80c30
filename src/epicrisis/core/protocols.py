"""Protocols for everything with I/O or a network: encoders, rerankers, scorers, passage stores and chat models.

`epicrisis.testing` has a fake and a contract check for each; a new implementation must pass the check. Arrays are
C-contiguous float32; `n` texts in `d` dimensions give the shape `(n, d)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, runtime_checkable

from epicrisis.core.answers import Usage
from epicrisis.core.errors import InputError
from epicrisis.core.types import CharacterSpan, Document, Origin, Passage, Scope

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

Vectors: TypeAlias = "npt.NDArray[np.float32]"


class Encoder(Protocol):
    """Turns texts into vectors. Their inner product is the similarity of the texts."""

    @property
    def fingerprint(self) -> str:
        """Identifies the vectors by name, hash of the weights and pooling. A library stores it."""

    @property
    def dimensions(self) -> int: ...

    @property
    def max_tokens(self) -> int:
        """The longest passage in content tokens, without special tokens."""

    @property
    def max_query_tokens(self) -> int:
        """The longest query in content tokens. Longer queries are cut, with a notice by the retriever."""

    def token_spans(self, text: str) -> Sequence[CharacterSpan]:
        """Return the spans of all content tokens of the text, in order, never cut."""

    def encode_queries(self, texts: Sequence[str]) -> Vectors:
        """Return an array of shape `(n, d)`, in the order of the texts."""

    def encode_passages(self, texts: Sequence[tuple[str, str]]) -> Vectors:
        """Return an array of shape `(n, d)` for pairs (title, text), in order. An empty title is no title."""


@runtime_checkable
class ParallelEncoder(Encoder, Protocol):
    """Encodes passages on other cores or machines while this process does something else."""

    def start_passages(self, texts: Sequence[tuple[str, str]]) -> Callable[[], Vectors]:
        """Begin `encode_passages` and return a function that waits for its result, or raises its error.

        Texts of similar length should be neighbours.
        """


@dataclass(frozen=True, slots=True)
class TokenVectors:
    """The vectors of the tokens of a text, in order, including special tokens."""

    vectors: Vectors
    """Shape `(tokens, d)`, as the network returns them."""
    content: npt.NDArray[np.bool_]
    """Shape `(tokens,)`, False for special tokens."""


class TokenEncoder(Protocol):
    """Turns texts into one vector per token."""

    @property
    def name(self) -> str:
        """The model, and its layer unless it is the last: `bio-clinicalbert_L9`."""

    def encode_tokens(self, texts: Sequence[str]) -> Sequence[TokenVectors]:
        """Return the token vectors of each text, in order. Raises ContextOverflow for a text beyond the window."""


class SparseEncoder(Protocol):
    """Turns texts into weights of vocabulary words. Their inner product is the similarity of the texts."""

    @property
    def name(self) -> str: ...

    def encode_queries(self, texts: Sequence[str]) -> Sequence[Mapping[int, float]]:
        """Return weights greater than 0 by word id for each text, in order.

        Raises ContextOverflow for a text beyond the window.
        """

    def encode_passages(self, texts: Sequence[str]) -> Sequence[Mapping[int, float]]:
        """Return the weights of passages, in the form of `encode_queries`."""


class Reranker(Protocol):
    """Scores passages against one query."""

    def score(self, query: str, passages: Sequence[str]) -> npt.NDArray[np.float32]:
        """Return scores of shape `(n,)` in the order of the passages. Higher is better."""

    def notes(self, query: str, passages: Sequence[str]) -> tuple[str, ...]:
        """Return remarks for the reader, such as texts beyond the window, without quoting the texts."""


class RewardModel(Protocol):
    """Scores an answer to a question by several attributes. Higher is better."""

    @property
    def attributes(self) -> tuple[str, ...]:
        """The names of the attributes, in order."""

    def score(self, question: str, answer: str) -> Mapping[str, float]:
        """Return one score per attribute on the model's scale. Raises ContextOverflow for texts beyond the window."""


class NliModel(Protocol):
    """Decides whether a text follows from another (natural language inference)."""

    def probabilities(self, pairs: Sequence[tuple[str, str]]) -> Vectors:
        """Return an array of shape `(n, 3)` for pairs (premise, hypothesis).

        The columns are the probabilities of entailment, neutral and contradiction. Raises ContextOverflow for a pair
        beyond the window.
        """


@dataclass(frozen=True, slots=True)
class SupportScore:
    """The probabilities that sentences support and contradict a claim; otherwise they do not address it."""

    supported: float = 0.0
    contradicted: float = 0.0
    failure: str = ""
    """Why the pair could not be checked, without its text. The probabilities are then 0."""


class Verifier(Protocol):
    """Decides whether sentences support a claim."""

    @property
    def name(self) -> str:
        """The model, for the reader."""

    async def verify(self, pairs: Sequence[tuple[str, str]]) -> Sequence[SupportScore]:
        """Return one score for each pair (sentences, claim), in order. Sentences are separated by line breaks.

        A pair that cannot be checked (a failed call, a text beyond the window) has a `failure`.
        """


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A document for a store: its passages in order, and their vectors of shape `(len(passages), d)`."""

    id: str
    content_hash: str
    """32 hexadecimal digits over everything a search or citation can display."""
    passages: tuple[Passage, ...]
    vectors: Vectors
    revision: str | None = None
    """See `Document.revision`."""
    origin: Origin | None = None
    """The source file, if known and without a revision. A store may ignore it."""


class FileReader(Protocol):
    """Reads documents from the files of one format, for a format of another package."""

    @property
    def suffixes(self) -> Sequence[str]:
        """The endings of its files, in lower case: `.abc`. Endings that epicrisis reads itself are never used."""

    def read(self, path: Path, name: str) -> Iterator[Document | str]:
        """Yield the documents of a file, or a text that says why it, or a part, was not read (without its content).

        `name` is the path without the folder that the user named; an id made from it is `file:<name>`.
        """


@dataclass(frozen=True, slots=True)
class ScoredId:
    """The id of a passage with its score in a search. A higher score is better."""

    id: str
    score: float
    is_retracted: bool = False
    """See `Passage.is_retracted`."""


class PassageStore(Protocol):
    """Stores passages and finds them.

    A search returns ids, best first, and equal scores are ordered by passage id. The passages are fetched later, and
    only those that a reader is shown.
    """

    def add(self, documents: Sequence[StoredDocument]) -> None:
        """Add documents, or replace existing ones completely. Durable on return."""

    def delete(self, document_ids: Sequence[str]) -> None:
        """Delete documents. Durable on return. Unknown ids are ignored."""

    def search_vectors(self, vector: Vectors, k: int, scope: Scope) -> tuple[ScoredId, ...]:
        """Return the k passages with the highest inner product with `vector`, of shape `(d,)`."""

    def search_words(
        self, query: str, k: int, scope: Scope, within: Sequence[str] | None = None
    ) -> tuple[ScoredId, ...]:
        """Return the k passages with the highest BM25 score, with IDF over the whole library.

        Passages without a word of the query are not found. `within` limits the search to these passage ids.
        """

    def fetch(self, passage_ids: Sequence[str], scope: Scope) -> tuple[Passage, ...]:
        """Return the passages in this order. Ids that are unknown or outside the scope are left out."""

    def fetch_record(self, scope: Scope) -> tuple[Passage, ...]:
        """Return all passages of the scope's patient that the scope admits, by document id and ordinal.

        Literature is never included. Without a patient the result is empty.
        """

    def content_hashes(self, document_ids: Sequence[str]) -> Mapping[str, str]:
        """Return the `content_hash` of each existing document."""

    def count(self) -> tuple[int, int]:
        """Return the numbers of documents and passages."""


def fetch_all(store: PassageStore, passage_ids: Sequence[str], scope: Scope) -> tuple[Passage, ...]:
    """Return the passages in this order. Raises InputError for an id that is unknown or outside the scope."""
    passages = store.fetch(passage_ids, scope)
    present = {passage.id for passage in passages}
    for passage_id in passage_ids:
        if passage_id not in present:
            raise InputError(f"no passage {passage_id!r} in this scope: check the id, the patient and the date")
    return passages


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a chat."""

    role: Literal["system", "user", "assistant"]
    content: str


ANY_OBJECT: Mapping[str, Any] = {"type": "object"}
"""The schema of any JSON object. Endpoints have a mode of their own for it, which asks for no properties."""


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """Everything that changes a reply. With the fingerprint of the model it is the key of the cache."""

    messages: tuple[Message, ...]
    _: KW_ONLY
    max_tokens: int
    """The longest answer, without reasoning."""
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0
    sample: int = 0
    """Distinguishes several samples of the same prompt."""
    schema: Mapping[str, Any] | None = None
    """The JSON schema of the reply, enforced if the model can; ANY_OBJECT for any JSON object. See
    `ChatReply.conforms`."""
    options: tuple[str, ...] = ()
    """Option letters: return the probability of each as the next token, and generate no text. Not with `schema`, as
    probabilities under a grammar are not those of the next token."""
    max_reasoning_tokens: int = 0
    """The longest reasoning, in addition to `max_tokens`."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Parameters of a particular endpoint."""

    def __post_init__(self) -> None:
        if self.options and self.schema is not None:
            raise ValueError("option probabilities cannot be requested under a schema")


@dataclass(frozen=True, slots=True)
class OptionLogprobs:
    """The log-probability of each option as the next token, normalised over the options."""

    values: Mapping[str, float]
    """Natural logarithms by option, for options among the tokens returned. Their probabilities add up to 1."""
    mass: float
    """The probability of all options together before normalisation, 0 to 1. Near 0 the model meant something else."""
    missing: tuple[str, ...] = ()
    """Options not among the tokens returned. They are less probable than any of these tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatReply:
    """The reply of a chat model. Its usage includes failed attempts of this call."""

    text: str
    finish_reason: str
    """As the endpoint reports it: `stop`, `length`, ..."""
    model: str
    usage: Usage
    reasoning: str = ""
    """The reasoning before the answer, if the endpoint returns it. Never part of `text`."""
    conforms: bool | None = None
    """Whether the text satisfies the schema of the request. None without a schema."""
    option_logprobs: OptionLogprobs | None = None
    notes: tuple[str, ...] = ()
    """Remarks for the reader, such as a parameter the endpoint does not accept."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a model can do, detected or declared, never guessed from its name."""

    context_tokens: int | None
    """The context window, None if unknown."""
    json_schema: bool
    exact_token_counts: bool
    """False: `count_tokens` returns an upper bound."""
    option_logprobs: bool | None = None
    """None: unknown before the first call that requests them."""


DeltaCallback: TypeAlias = Callable[[str | None], None]
"""Receives each piece of a streamed reply, or None if the reply broke off and starts again from the beginning."""


class ChatModel(Protocol):
    """Completes a chat. Wrappers (cache, retry, budget, recording) are ChatModels too."""

    @property
    def name(self) -> str: ...

    async def complete(self, request: ChatRequest, on_delta: DeltaCallback | None = None) -> ChatReply:
        """Return one reply, streamed to `on_delta` if given. Cancelling the call stops the work at the endpoint.

        Raises ChatError (retryable or not) with the usage of failed attempts.
        """

    async def count_tokens(self, messages: Sequence[Message]) -> int:
        """Return the prompt tokens of these messages, including the chat template."""

    async def capabilities(self) -> Capabilities: ...

    async def fingerprint(self) -> str:
        """Return an identifier of the replies: weights, or endpoint and model, with their parameters. No API key."""

    async def aclose(self) -> None:
        """Free connections and memory. Idempotent."""


async def refresh_capabilities(model: ChatModel) -> None:
    """Let the model forget capabilities that an earlier process found, if it remembers any (method `refresh`)."""
    refresh = getattr(model, "refresh", None)
    if refresh is not None:
        await refresh()
