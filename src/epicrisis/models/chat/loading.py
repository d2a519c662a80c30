"""Builds the chat model that a user names with `--model`, without the layers around it."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from epicrisis.models.chat.prices import compute_cost
from epicrisis.models.model_download import find_model
from epicrisis.protocols import ChatModel
from epicrisis.settings import ModelSettings


def load_chat(settings: ModelSettings, home: Path, threads: int | None = None) -> ChatModel:
    """Return the chat model of these settings. Nothing is contacted, and no weights are loaded.

    A name with `://` is an endpoint, as `parse_endpoint` reads it; its key is read when its client is created. Any
    other name is a model of the catalogue or a `.gguf` file, which runs in this process without a timeout.
    Raise ModelMissing, or SettingsError if the key's file cannot be read, both with a remedy.
    """
    if settings.is_endpoint:
        from epicrisis.models.chat.endpoints.endpoint import read_key
        from epicrisis.models.chat.openai_compatible import OpenAICompatibleModel

        api_key = partial(read_key, settings.api_key_file, settings.api_key_env)
        api_key()
        return OpenAICompatibleModel(
            settings.name,
            api_key=api_key,
            timeout_seconds=settings.timeout_seconds,
            context_tokens=settings.context_tokens,
            concurrency=settings.concurrency,
            json_schema=settings.json_schema,
            option_logprobs=settings.option_logprobs,
            price=None if settings.price is None else partial(compute_cost, price=settings.price),
            extra=settings.extra,
        )
    from epicrisis.models.chat.embedded import EmbeddedModel

    files = find_model(settings.name, "chat", home)
    name = next(name for name in files.files if name.endswith(".gguf"))
    return EmbeddedModel(
        files.files[name], files.name, settings.context_tokens, threads, weights_sha256=files.sha256.get(name)
    )
