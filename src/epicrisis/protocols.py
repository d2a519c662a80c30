"""The Protocols where the outside world plugs in, and nothing else.

Each has a shipped fake and a contract check in `epicrisis.testing`: a new implementation passes its check or it is
not one. Arrays are C-contiguous float32; `n` texts of dimension `d` give `(n, d)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from epicrisis.answers import Usage
from epicrisis.types import Hit, Origin, Passage, Scope

Vectors: TypeAlias = npt.NDArray[np.float32]


class Encoder(Protocol):
    """Turns texts into vectors whose inner product is their similarity."""

    @property
    def fingerprint(self) -> str:
        """Changes whenever the vectors would: name, weights' hash, pooling. A library keeps it."""

    @property
    def dimensions(self) -> int: ...

    @property
    def max_tokens(self) -> int:
        """Content tokens that fit one passage, special tokens already taken off."""

    @property
    def max_query_tokens(self) -> int:
        """Content tokens that fit one query; what is longer is cut, and the retriever says so."""

    def token_spans(self, text: str) -> Sequence[tuple[int, int]]:
        """Character offsets `(start, end)` of the text's content tokens, in order, never cut."""

    def encode_queries(self, texts: Sequence[str]) -> Vectors:
        """`(n, d)`, in the order of the texts."""

    def encode_passages(self, texts: Sequence[tuple[str, str]]) -> Vectors:
        """`(n, d)` for pairs (title, text), in their order; an empty title is no title."""


@dataclass(frozen=True, slots=True)
class TokenVectors:
    """A text token by token, in order, special tokens included."""

    vectors: Vectors
    """`(tokens, d)`, as the network gives them."""
    content: npt.NDArray[np.bool_]
    """`(tokens,)`: false for what the tokenizer put around the text."""


class TokenEncoder(Protocol):
    """Turns texts into one vector a token."""

    @property
    def name(self) -> str:
        """The model, and its layer where that is not the last: `bio-clinicalbert_L9`."""

    def encode_tokens(self, texts: Sequence[str]) -> Sequence[TokenVectors]:
        """In the order of the texts. Raises ContextOverflow where one does not fit the window: nothing is cut."""


class SparseEncoder(Protocol):
    """Turns texts into weights of a vocabulary's words, whose inner product is their similarity."""

    @property
    def name(self) -> str: ...

    def encode_queries(self, texts: Sequence[str]) -> Sequence[Mapping[int, float]]:
        """Word id -> weight, greater than 0, in the order of the texts. Raises ContextOverflow where one does not fit
        the window: nothing is cut."""

    def encode_passages(self, texts: Sequence[str]) -> Sequence[Mapping[int, float]]:
        """As for queries."""


class Reranker(Protocol):
    """Scores passages against one query."""

    def score(self, query: str, passages: Sequence[str]) -> npt.NDArray[np.float32]:
        """`(n,)`, higher is better, in the order of the passages."""

    def notes(self, query: str, passages: Sequence[str]) -> tuple[str, ...]:
        """What a reader must know of such a scoring: texts that are longer than its window. No text of theirs."""


class RewardModel(Protocol):
    """Scores an answer to a question by several attributes, higher is better."""

    @property
    def attributes(self) -> tuple[str, ...]:
        """Their names, in order."""

    def score(self, question: str, answer: str) -> Mapping[str, float]:
        """One figure for each attribute, on the model's own scale. Raises ContextOverflow where both do not fit its
        window: nothing is cut."""


class NliModel(Protocol):
    """Does one text follow from another?"""

    def probabilities(self, pairs: Sequence[tuple[str, str]]) -> Vectors:
        """`(n, 3)` for pairs (premise, hypothesis): of entailment, neutral, contradiction; each row adds up to 1.

        Raises ContextOverflow where a pair does not fit the window.
        """


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """One document as a store takes it: its passages in order and their vectors `(len(passages), d)`.

    `content_hash`, 32 hexadecimal digits, covers everything of the document that a search or a citation can show.
    """

    id: str
    content_hash: str
    passages: tuple[Passage, ...]
    vectors: Vectors
    revision: str | None = None
    """See `Document.revision`."""
    origin: Origin | None = None
    """The file it came from, where that is known and it has no revision. A store may leave it."""


class PassageStore(Protocol):
    """Keeps passages and finds them again. Equal scores are ordered by passage id."""

    def add(self, documents: Sequence[StoredDocument]) -> None:
        """Durable when it returns. A document that is there already is replaced whole."""

    def delete(self, document_ids: Sequence[str]) -> None:
        """Durable when it returns. Unknown ids are no error."""

    def search_vectors(self, vector: Vectors, k: int, scope: Scope) -> tuple[Hit, ...]:
        """The k passages of highest inner product with `vector`, shape `(d,)`."""

    def search_words(self, query: str, k: int, scope: Scope, within: Sequence[str] | None = None) -> tuple[Hit, ...]:
        """The k passages of highest BM25 score, IDF over the whole library; `within` limits to these passage ids.

        Passages that share no word with the query are not hits.
        """

    def fetch(self, passage_ids: Sequence[str], scope: Scope) -> tuple[Passage, ...]:
        """The passages in the order asked. An id that is not there, or outside the scope, raises InputError."""

    def record(self, scope: Scope) -> tuple[Passage, ...]:
        """Every passage of the scope's patient that the scope admits, by document id and ordinal; none of literature,
        and none without a patient."""

    def content_hashes(self, document_ids: Sequence[str]) -> Mapping[str, str]:
        """`content_hash` of those of the documents that are there."""

    def count(self) -> tuple[int, int]:
        """(documents, passages)."""


# -- chat -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a chat."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """All that changes a reply, and so all of a cache's key beside the model's fingerprint."""

    messages: tuple[Message, ...]
    max_tokens: int
    """Of the answer; thinking has its own room."""
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0
    sample: int = 0
    """Tells N draws of the same prompt apart. See `draws`."""
    schema: Mapping[str, Any] | None = None
    """JSON schema the reply must satisfy, where the model can be held to one. The reply says whether it does."""
    options: tuple[str, ...] = ()
    """Letters of options: how probable is each as the very next token? No text is generated. Not with `schema`: under
    a grammar the probabilities told are not those of what may come."""
    max_reasoning_tokens: int = 0
    """Room for the thinking of a reasoning model, beside `max_tokens`."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Parameters of one endpoint alone."""

    def __post_init__(self) -> None:
        if self.options and self.schema is not None:
            raise ValueError("option probabilities cannot be asked for under a schema")

    def draws(
        self, n: int, temperature: tuple[float, float] | None = None, top_p: tuple[float, float] | None = None
    ) -> tuple[ChatRequest, ...]:
        """N draws of this request, `sample` counted on from its own. A range (lowest, highest) is walked evenly, as
        OpenMedprompt varies temperature and top-p."""
        return tuple(
            replace(
                self,
                sample=self.sample + i,
                temperature=self.temperature if temperature is None else _step(temperature, i, n),
                top_p=self.top_p if top_p is None else _step(top_p, i, n),
            )
            for i in range(n)
        )


def _step(ends: tuple[float, float], i: int, n: int) -> float:
    low, high = ends
    return low if n == 1 else low + (high - low) * i / (n - 1)


@dataclass(frozen=True, slots=True)
class OptionLogprobs:
    """How probable each option is as the very next token, renormalised over the options (natural logarithms)."""

    values: Mapping[str, float]
    """Option -> log-probability; only those among the tokens the endpoint told. Their probabilities add up to 1."""
    mass: float
    """What share of all probability these options had before, 0 to 1: near 0 the model meant to say something else."""
    missing: tuple[str, ...] = ()
    """Options that were not among the tokens told: less probable than every token that was."""


@dataclass(frozen=True, slots=True)
class ChatReply:
    """`finish_reason` as the endpoint says (`stop`, `length`...); usage counts failed tries of this call as well."""

    text: str
    finish_reason: str
    model: str
    usage: Usage
    reasoning: str = ""
    """The thinking that came before the answer, where the endpoint shows it; never part of `text`."""
    conforms: bool | None = None
    """Whether the text satisfies the request's schema; `None` where none was asked for."""
    option_logprobs: OptionLogprobs | None = None
    notes: tuple[str, ...] = ()
    """What a reader must know of how it came about, such as a parameter the endpoint does not take."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a model can do, probed or declared, never guessed from its name."""

    context_tokens: int | None
    """The window; `None` where nobody says."""
    json_schema: bool
    exact_token_counts: bool
    """False: `count_tokens` is an estimate from above."""
    option_logprobs: bool | None = None
    """`None`: not known before the first call that asks for them."""


DeltaCallback: TypeAlias = Callable[[str | None], None]
"""Called with each piece of a reply's text as it comes; with `None` where the reply broke off and starts over, so that
what came before is void."""


class ChatModel(Protocol):
    """Completes a chat. Wrappers (cache, retry, budget, recording) are ChatModels too."""

    @property
    def name(self) -> str: ...

    async def complete(self, request: ChatRequest, on_delta: DeltaCallback | None = None) -> ChatReply:
        """One reply; with `on_delta` it is streamed. Cancelling the call stops the work at the endpoint.

        Raises ChatError (retryable or not), carrying the usage of the failed tries.
        """

    async def count_tokens(self, messages: Sequence[Message]) -> int:
        """Prompt tokens of these messages, template included."""

    async def capabilities(self) -> Capabilities: ...

    async def fingerprint(self) -> str:
        """Changes whenever replies to the same request would: weights, or endpoint and model, with their parameters.
        Holds no key."""

    async def aclose(self) -> None:
        """Frees connections and memory. Idempotent."""
