"""Texts for the log, where it was opened with them: a layer. Knows nothing of files."""

from __future__ import annotations

from epicrisis.errors import ChatError
from epicrisis.logs import log_call
from epicrisis.models.chat.layers.layer import Layer
from epicrisis.protocols import ChatReply, ChatRequest, DeltaCallback


class LoggedModel(Layer):
    """Wraps a ChatModel; each prompt and what came of it goes to the log (see `logs.log_call`)."""

    async def complete(self, request: ChatRequest, on_delta: DeltaCallback | None = None) -> ChatReply:
        try:
            reply = await self._inner.complete(request, on_delta)
        except ChatError as error:
            log_call(request, error)
            raise
        log_call(request, reply)
        return reply
