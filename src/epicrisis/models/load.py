"""From what a user writes after `--model` to a ChatModel that retries. Contacts nothing and loads no weights."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import parse_qs, urlsplit, urlunsplit

from epicrisis.models.chat.retry import RetryingModel
from epicrisis.models.pull import find
from epicrisis.seams import ChatModel


def load_chat(
    name: str,
    home: Path,
    *,
    api_key_env: str = "EPICRISIS_API_KEY",
    timeout_seconds: float = 600.0,
    context_tokens: int | None = None,
    threads: int | None = None,
) -> ChatModel:
    """The chat model of that name, wrapped in retries.

    `http(s)://host/v1` is an endpoint, and `#model-name` (or `?model=model-name`) picks one of its models, else it is
    the first it lists; its key is the value of the environment variable `api_key_env` when a client is made. Anything
    else is a name of the catalogue or a `.gguf` file, run in this process without a timeout.
    Raises ModelMissing with the cure.
    """
    if name.startswith(("http://", "https://")):
        from epicrisis.models.chat.openai_compatible import OpenAICompatibleModel

        url, model = _split(name)
        return RetryingModel(
            OpenAICompatibleModel(
                url, model, lambda: os.environ.get(api_key_env) or None, timeout_seconds, context_tokens
            )
        )
    from epicrisis.models.chat.embedded import EmbeddedModel

    found = find(name, "chat", home)
    return RetryingModel(EmbeddedModel(found.files["model.gguf"], found.name, context_tokens, threads))


def _split(address: str) -> tuple[str, str | None]:
    """(base URL, model or None). A fragment is taken whole: names of models may hold slashes and colons."""
    parts = urlsplit(address)
    model = parts.fragment or parse_qs(parts.query).get("model", [""])[0]
    return urlunsplit((parts.scheme, parts.netloc, parts.path, "", "")), model or None
