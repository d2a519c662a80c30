"""Measure each call of a chat model as a span, by the conventions of OpenTelemetry for generative AI.

https://github.com/open-telemetry/semantic-conventions-genai (in development; read in November 2026). No text of a
prompt or reply is in a span, and no name that an endpoint chose: its model and reasons to finish could be any text.
"""

from __future__ import annotations

from epicrisis.core.answers import Usage
from epicrisis.core.errors import EpicrisisError
from epicrisis.core.protocols import ChatModel, ChatReply, ChatRequest, DeltaCallback
from epicrisis.models.chat.layers import Layer
from epicrisis.settings.settings import ModelSettings
from epicrisis.system.logs import FINISH_REASONS, safe_name
from epicrisis.system.telemetry import is_recording, span

_PROVIDERS = {"azure": "azure.ai.openai", "bedrock": "aws.bedrock", "openai": "openai"}
_IN_PROCESS = "llama.cpp"


class TracedModel(Layer):
    """Measures each completion as a span: every try, without the wait for a place."""

    def __init__(self, inner: ChatModel, settings: ModelSettings) -> None:
        super().__init__(inner)
        self._settings = settings
        self._target: dict[str, str] | None = None

    async def complete(self, request: ChatRequest, on_delta: DeltaCallback | None = None) -> ChatReply:
        if not is_recording():
            return await self._inner.complete(request, on_delta)
        target = self._describe_target()
        attributes: dict[str, str | int | float | bool] = {
            **target,
            "gen_ai.request.max_tokens": request.max_tokens,
            "gen_ai.request.temperature": request.temperature,
            "gen_ai.request.top_p": request.top_p,
            "gen_ai.request.seed": request.seed,
            "gen_ai.request.stream": on_delta is not None,
            "gen_ai.output.type": "text" if request.schema is None else "json",
        }
        with span(f"chat {target['gen_ai.request.model']}", attributes, kind="CLIENT") as step:
            try:
                reply = await self._inner.complete(request, on_delta)
            except EpicrisisError as error:
                step.set(_describe_usage(error.usage))
                raise
            reason = reply.finish_reason if reply.finish_reason in FINISH_REASONS else "other"
            step.set({"gen_ai.response.finish_reasons": [reason], **_describe_usage(reply.usage)})
        return reply

    def _describe_target(self) -> dict[str, str]:
        """Return operation, provider and model of the calls."""
        if self._target is None:
            provider = _IN_PROCESS
            if self._settings.is_endpoint:
                from epicrisis.models.chat.endpoints.endpoint import parse_endpoint

                # Those of a pool serve one model. The client of each adds its address to the span.
                provider = _PROVIDERS[parse_endpoint(self._settings.endpoints[0].name).kind]
            self._target = {
                "gen_ai.operation.name": "chat",
                "gen_ai.provider.name": provider,
                "gen_ai.request.model": safe_name(self.name.partition(" at ")[0]),
            }
        return self._target


def _describe_usage(usage: Usage) -> dict[str, int]:
    return {
        "gen_ai.usage.input_tokens": usage.prompt_tokens,
        "gen_ai.usage.output_tokens": usage.completion_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning_tokens,
    }
