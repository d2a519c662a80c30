"""Options against instructions and false statements in documents, in addition to the fence of `prompts`.

`Context.ask` applies them to every prompt and reply, so that no strategy can leave them out. docs/design/prompts.md
says what each option does and costs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from epicrisis.answering.reply_parsing import ParsedReply
from epicrisis.answering.structured_request import ReplyFormat
from epicrisis.core.prompts import (
    DATAMARK,
    Prompt,
    datamark_prompt,
    remove_datamarks_from_json,
    repeat_instructions,
)
from epicrisis.settings.tables import DefenceSettings

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Defence:
    """What the options against documents that attack the reader do to prompts and replies."""

    options: DefenceSettings

    def protect_prompt(self, prompt: Prompt) -> Prompt:
        """Return the prompt as the model reads it."""
        if self.options.repeat:
            prompt = repeat_instructions(prompt)
        return datamark_prompt(prompt) if self.options.datamarking else prompt

    def protect_format(self, reply_format: ReplyFormat[T], role: str) -> ReplyFormat[T]:
        """Return the format with a reader that undoes datamarks, and drops free text of map replies."""
        drops_text = self.options.structured_findings and role == "map"
        if not self.options.datamarking and not drops_text:
            return reply_format
        return _ProtectedFormat(reply_format, self.options.datamarking, drops_text)

    def remove_marks(self, piece: str) -> str:
        """Return a piece of a streamed reply as it is shown."""
        return piece.replace(DATAMARK, " ") if self.options.datamarking else piece


@dataclass(frozen=True, slots=True)
class _ProtectedFormat(Generic[T]):
    """A format whose replies lose datamarks and, of findings, the free text."""

    inner: ReplyFormat[T]
    datamarking: bool
    drops_text: bool

    @property
    def max_tokens(self) -> int:
        """Double the room if a reply may copy datamarks: each may be a token."""
        return self.inner.max_tokens * (2 if self.datamarking else 1)

    @property
    def takes_first_reply(self) -> bool:
        """Whether the first reply counts as it is."""
        return getattr(self.inner, "takes_first_reply", False)

    def schema(self) -> Mapping[str, Any] | None:
        """Return the JSON schema of the format, or None."""
        return self.inner.schema()

    def parse(self, text: str) -> T:
        """Return the value of a reply. Raises Unreadable."""
        value = self.inner.parse(remove_datamarks_from_json(text) if self.datamarking else text)
        if self.drops_text and isinstance(value, ParsedReply):
            return replace(value, text="", rationale="")
        return value
