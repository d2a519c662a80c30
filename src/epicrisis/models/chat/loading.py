"""From what a user writes after `--model` to a bare ChatModel; the layers around it are made elsewhere.

Contacts nothing and loads no weights.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from epicrisis.models.chat.prices import compute_cost
from epicrisis.models.model_download import find_model
from epicrisis.protocols import ChatModel
from epicrisis.settings import ModelSettings


def load_chat(wanted: ModelSettings, home: Path, threads: int | None = None) -> ChatModel:
    """The chat model of these settings.

    A name with `://` is an endpoint (its forms: `endpoint.parse_endpoint`); its key is read when its client is made.
    Anything else is a name of the catalogue or a `.gguf` file, run in this process without a timeout.
    Raises ModelMissing and, where the file of a key is not there, SettingsError, both with the cure.
    """
    if wanted.is_endpoint:
        from epicrisis.models.chat.endpoints.endpoint import read_key
        from epicrisis.models.chat.openai_compatible import OpenAICompatibleModel

        key = partial(read_key, wanted.api_key_file, wanted.api_key_env)
        key()
        return OpenAICompatibleModel(
            wanted.name,
            api_key=key,
            timeout_seconds=wanted.timeout_seconds,
            context_tokens=wanted.context_tokens,
            concurrency=wanted.concurrency,
            json_schema=wanted.json_schema,
            option_logprobs=wanted.option_logprobs,
            price=None if wanted.price is None else partial(compute_cost, price=wanted.price),
            extra=wanted.extra,
        )
    from epicrisis.models.chat.embedded import EmbeddedModel

    found = find_model(wanted.name, "chat", home)
    name, file = next(each for each in found.files.items() if each[0].endswith(".gguf"))
    return EmbeddedModel(file, found.name, wanted.context_tokens, threads, weights_sha256=found.sha256.get(name))
