"""Known services of chat models: the short names of their addresses, and the variables that hold their keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class ModelService:
    """A service that answers as OpenAI's API does."""

    title: str
    url: str
    """The base URL: of this machine, at the port that the server uses by default, or of the company's API."""
    key_variable: str | None = None
    """The environment variable with the key, under the service's own name. It is sent to the host of `url` only."""
    model_prefix: str = ""
    """How the names of its models begin, if only its do."""
    accepts_schema: bool | None = None
    """Whether it enforces a JSON schema. None: found out at the first call."""


SERVICES: Mapping[str, ModelService] = {
    "ollama": ModelService("Ollama", "http://127.0.0.1:11434/v1"),
    "lmstudio": ModelService("LM Studio", "http://127.0.0.1:1234/v1"),
    "vllm": ModelService("vLLM", "http://127.0.0.1:8000/v1"),
    "llamacpp": ModelService("llama.cpp", "http://127.0.0.1:8080/v1"),
    "openai": ModelService("OpenAI", "https://api.openai.com/v1", "OPENAI_API_KEY", "gpt"),
    # Its documentation says that it ignores `response_format`: platform.claude.com/docs/en/api/openai-sdk.
    "anthropic": ModelService("Anthropic", "https://api.anthropic.com/v1", "ANTHROPIC_API_KEY", "claude", False),
}


def expand_model_name(name: str) -> str:
    """Return the address of `SERVICE:MODEL` as URL#MODEL, and any other name unchanged.

    A server on this machine may be named without a model (`ollama:`): the first model it lists is used. Raise
    ValueError if another machine's service is named without one.
    """
    prefix, colon, model = name.strip().partition(":")
    service = SERVICES.get(prefix.lower())
    # `vllm://...` is a URL of an unknown scheme.
    if not colon or service is None or model.startswith("//"):
        return name
    if model.strip():
        return f"{service.url}#{model.strip()}"
    if service.key_variable is not None:
        raise ValueError(f"name the model of {service.title}: {prefix.lower()}:MODEL")
    return service.url


def find_service(url: str) -> ModelService | None:
    """Return the service with a key at this URL, or None. Only its exact host, encrypted, at the usual port counts."""
    try:
        parts = urlsplit(url)
        host = (parts.scheme, parts.hostname, parts.port or 443)
    except ValueError:
        return None
    for service in SERVICES.values():
        if service.key_variable is not None and host == ("https", urlsplit(service.url).hostname, 443):
            return service
    return None
