"""What an OpenAI-compatible endpoint sends, read strictly enough to trust and loosely enough to survive dialects.

Knows nothing of connections. Whatever does not fit is a pydantic ValidationError.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from pydantic import AfterValidator, BaseModel, Field, ValidationError

from epicrisis.printable import replace_surrogates

Name: TypeAlias = Annotated[str, AfterValidator(replace_surrogates)]
"""A text that is stored or shown as it is. A message's own text is repaired where its pieces are put together."""

MOST_CHOICES = 128
"""One is asked for."""
MOST_POSITIONS = 10_000
"""Of the tokens of a reply whose first one alone is read."""


class Piece(BaseModel):
    """A whole message, or what a stream adds to it."""

    content: str | list[Any] | None = None
    """A list of parts is Mistral's form."""
    reasoning_content: Any = None
    reasoning: Any = None
    """Thinking: the older name and the newer one (vLLM, OpenRouter); texts, or nothing we read."""
    refusal: str | None = None

    @property
    def text(self) -> str:
        if isinstance(self.content, list):
            return _joined(self.content, "text")
        return self.content or ""

    @property
    def thinking(self) -> str:
        told = [self.reasoning_content or self.reasoning]
        if isinstance(self.content, list):
            told += [_joined(part["thinking"], "text") for part in _of_type(self.content, "thinking")]
        return "".join(text for text in told if isinstance(text, str))


def _of_type(parts: object, kind: str) -> list[dict[str, Any]]:
    rows = parts if isinstance(parts, list) else []
    return [part for part in rows if isinstance(part, dict) and part.get("type") == kind and kind in part]


def _joined(parts: object, kind: str) -> str:
    return "".join(str(part[kind]) for part in _of_type(parts, kind))


class Token(BaseModel):
    """One that could have come next."""

    token: Name
    logprob: float


class Position(Token):
    """The token that did come, and those that could have."""

    top_logprobs: list[Token] = Field(default_factory=list, max_length=MOST_CHOICES)

    @property
    def likely(self) -> list[Token]:
        """All that are told of, each once. Several may have the same text: some servers take a token's blank off."""
        came = [] if any(each.token == self.token for each in self.top_logprobs) else [self]
        return [*came, *self.top_logprobs]


class Logprobs(BaseModel):
    """Of a reply, token by token."""

    content: list[Position] | None = Field(default=None, max_length=MOST_POSITIONS)


class CompletionChoice(BaseModel):
    """The one reply asked for; `message` where it comes whole, `delta` where it streams."""

    message: Piece | None = None
    delta: Piece | None = None
    finish_reason: Name | None = None
    logprobs: Any = None
    """Not read here either: in another form they are none."""

    @property
    def positions(self) -> list[Position]:
        """The probabilities of the reply's tokens, in order; empty where they are not told in OpenAI's form."""
        try:
            return Logprobs.model_validate(self.logprobs).content or []
        except ValidationError:
            return []


class Completion(BaseModel):
    """A reply, or one event of a stream. A stream's last event may have no choices, only the usage."""

    model: Name | None = None
    choices: list[CompletionChoice] = Field(default_factory=list, max_length=MOST_CHOICES)
    usage: Any = None
    """Not read here: a reply is a good one whatever is wrong with its usage. See `counting`."""
    error: Any = None


class ModelMeta(BaseModel):
    """llama.cpp's additions to the list of models."""

    n_ctx: int | None = None


class ListedModel(BaseModel):
    """One entry of /v1/models; `max_model_len` is vLLM's."""

    id: Name
    max_model_len: int | None = None
    meta: ModelMeta | None = None


class ModelList(BaseModel):
    """/v1/models."""

    data: list[ListedModel] = Field(default_factory=list)


class Generation(BaseModel):
    """llama.cpp's default_generation_settings; its window is one slot's."""

    n_ctx: int | None = None


class Props(BaseModel):
    """llama.cpp's /props."""

    default_generation_settings: Generation


class Template(BaseModel):
    """llama.cpp's /apply-template."""

    prompt: str


class TokenizeReply(BaseModel):
    """llama.cpp's /tokenize."""

    tokens: list[int]


class TokenCountReply(BaseModel):
    """vLLM's /tokenize."""

    count: int
