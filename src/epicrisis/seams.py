"""The Protocols where the outside world plugs in, and nothing else.

Each has a shipped fake and a contract check in `epicrisis.testing`: a new implementation passes its check or it is
not one. Arrays are C-contiguous float32; `n` texts of dimension `d` give `(n, d)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from .types import Hit, Passage, Scope, Usage

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


class Reranker(Protocol):
    """Scores passages against one query."""

    def score(self, query: str, passages: Sequence[str]) -> npt.NDArray[np.float32]:
        """`(n,)`, higher is better, in the order of the passages."""

    def notes(self, query: str, passages: Sequence[str]) -> tuple[str, ...]:
        """What a reader must know of such a scoring: texts that are longer than its window. No text of theirs."""


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
    """All that changes a reply. `sample` tells N draws of the same prompt apart (part of a cache's key)."""

    messages: tuple[Message, ...]
    max_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0
    sample: int = 0
    schema: Mapping[str, Any] | None = None
    """JSON schema the reply must satisfy, where the model can be held to one. Always validate what comes back."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Parameters of one endpoint alone."""


@dataclass(frozen=True, slots=True)
class ChatReply:
    """`finish_reason` as the endpoint says (`stop`, `length`...); usage counts failed tries of this call as well."""

    text: str
    finish_reason: str
    model: str
    usage: Usage


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a model can do, probed or declared, never guessed from its name."""

    context_tokens: int | None
    """The window; `None` where nobody says."""
    json_schema: bool
    exact_token_counts: bool
    """False: `count_tokens` is an estimate from above."""


class ChatModel(Protocol):
    """Completes a chat. Wrappers (cache, retry, budget, recording) are ChatModels too."""

    @property
    def name(self) -> str: ...

    async def complete(self, request: ChatRequest, on_delta: Callable[[str], None] | None = None) -> ChatReply:
        """One reply. With `on_delta` it is streamed: called with each piece of text as it comes.

        Raises ChatError (retryable or not), carrying the usage of the failed tries.
        """

    async def count_tokens(self, messages: Sequence[Message]) -> int:
        """Prompt tokens of these messages, template included."""

    async def capabilities(self) -> Capabilities: ...

    async def aclose(self) -> None:
        """Frees connections and memory. Idempotent."""
