"""What an OpenAI-compatible endpoint sends, read strictly enough to trust and loosely enough to survive dialects.

Knows nothing of connections. Whatever does not fit is a pydantic ValidationError.
"""

from __future__ import annotations

from pydantic import BaseModel, Field


class PromptDetails(BaseModel):
    """How the prompt's tokens were come by."""

    cached_tokens: int | None = None


class WireUsage(BaseModel):
    """Tokens of one call."""

    prompt_tokens: int
    completion_tokens: int = 0
    prompt_tokens_details: PromptDetails | None = None

    @property
    def cached_tokens(self) -> int:
        details = self.prompt_tokens_details
        return min((details and details.cached_tokens) or 0, self.prompt_tokens)


class Piece(BaseModel):
    """A whole message, or what a stream adds to it."""

    content: str | None = None


class Choice(BaseModel):
    """The one reply asked for; `message` where it comes whole, `delta` where it streams."""

    message: Piece | None = None
    delta: Piece | None = None
    finish_reason: str | None = None


class Completion(BaseModel):
    """A reply, or one event of a stream. A stream's last event may have no choices, only the usage."""

    model: str | None = None
    choices: list[Choice] = Field(default_factory=list)
    usage: WireUsage | None = None


class ModelMeta(BaseModel):
    """llama.cpp's additions to the list of models."""

    n_ctx: int | None = None


class ListedModel(BaseModel):
    """One entry of /v1/models; `max_model_len` is vLLM's."""

    id: str
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


class Tokens(BaseModel):
    """llama.cpp's /tokenize."""

    tokens: list[int]


class Count(BaseModel):
    """vLLM's /tokenize."""

    count: int
