"""A layer of a chat model: it replaces identifiers before a prompt is sent, and restores them in the reply.

It is the outermost layer, so the cache and recordings below it hold prompts and replies without identifiers.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from epicrisis.core.answers import Event, Notice
from epicrisis.core.protocols import ChatModel, ChatReply, ChatRequest, DeltaCallback, Message
from epicrisis.models.chat.layers import Layer
from epicrisis.privacy.deidentification.deidentifier import Deidentifier, ReplacedTexts
from epicrisis.privacy.deidentification.spans import IdentifierKind

_HELD_BACK = 80
"""Characters of a streamed reply that are shown only when more follow: a surrogate may continue."""


class DeidentifiedModel(Layer):
    """Replaces the identifiers in prompts and restores them in replies. Raises ModelMissing without the extra.

    `deidentifier` is called once, in a thread, before the first prompt. `report` receives the number of replaced
    identifiers of each kind, for each completion.
    """

    def __init__(
        self,
        inner: ChatModel,
        deidentifier: Callable[[], Deidentifier],
        report: Callable[[Mapping[IdentifierKind, int]], None] = lambda counts: None,
    ) -> None:
        super().__init__(inner)
        self._deidentifier = deidentifier
        self._report = report

    async def complete(self, request: ChatRequest, on_delta: DeltaCallback | None = None) -> ChatReply:
        replaced = await self._replace(request.messages)
        self._report(replaced.counts)
        stream = None if on_delta is None else RestoredStream(replaced, on_delta)
        sent = replace(request, messages=_make_messages(request.messages, replaced))
        reply = await self._inner.complete(sent, None if stream is None else stream.feed)
        text = replaced.restore(reply.text)
        if stream is not None:
            stream.finish(text)
        notes = tuple(replaced.restore(note) for note in reply.notes)
        return replace(reply, text=text, reasoning=replaced.restore(reply.reasoning), notes=notes)

    async def count_tokens(self, messages: Sequence[Message]) -> int:
        replaced = await self._replace(messages)
        return await self._inner.count_tokens(_make_messages(messages, replaced))

    async def _replace(self, messages: Sequence[Message]) -> ReplacedTexts:
        def work() -> ReplacedTexts:
            return self._deidentifier().replace([message.content for message in messages])

        return await asyncio.to_thread(work)


def _make_messages(messages: Sequence[Message], replaced: ReplacedTexts) -> tuple[Message, ...]:
    pairs = zip(messages, replaced.texts, strict=True)
    return tuple(replace(message, content=text) for message, text in pairs)


class RestoredStream:
    """Passes a streamed reply on with its originals, except the last characters: a surrogate may continue."""

    def __init__(self, replaced: ReplacedTexts, on_delta: DeltaCallback) -> None:
        self._replaced = replaced
        self._on_delta = on_delta
        self._text = ""
        self._shown = ""

    def feed(self, piece: str | None) -> None:
        """Take the next piece, or None if the reply starts again."""
        if piece is None:
            self._text = self._shown = ""
            self._on_delta(None)
            return
        self._text += piece
        cut = self._text.rfind(" ", 0, max(0, len(self._text) - _HELD_BACK))
        if cut > 0:
            self._show(self._replaced.restore(self._text[:cut]))

    def finish(self, text: str) -> None:
        """Show the rest of the restored reply."""
        if text:
            self._show(text)

    def _show(self, restored: str) -> None:
        if not restored.startswith(self._shown):
            # A surrogate went on behind the cut after all.
            self._on_delta(None)
            self._shown = ""
        if len(restored) > len(self._shown):
            self._on_delta(restored[len(self._shown) :])
            self._shown = restored


def describe_counts(counts: Mapping[IdentifierKind, int]) -> str:
    """Return the number of replaced identifiers by kind, such as `name: 3, date: 2`."""
    ordered = sorted(Counter(counts).items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{kind}: {count}" for kind, count in ordered) or "none"


def deidentify_models(
    models: Mapping[str, ChatModel], deidentifier: Callable[[], Deidentifier], emit: Callable[[Event], None]
) -> dict[str, ChatModel]:
    """Return the chat model of each role in a layer that replaces identifiers and emits their number."""

    def report(counts: Mapping[IdentifierKind, int]) -> None:
        emit(Notice("de-identified", f"replaced before the prompt was sent: {describe_counts(counts)}"))

    protected = {model: DeidentifiedModel(model, deidentifier, report) for model in models.values()}
    return {role: protected[model] for role, model in models.items()}
