"""What to say to a name that is no model: how models are written, similar names, and the servers running here."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from urllib.parse import urlsplit

from epicrisis.settings.model_services import SERVICES, ModelService

PROBE_SECONDS = 0.3
"""Limit of connecting to a port of this machine, and of each piece of its reply."""
MAX_REPLY_BYTES = 1 << 18
_MAX_MODELS, _MAX_NAME = 4, 80
_OWN_SERVER = "epicrisis"
"""The owner that `epicrisis serve` states for its models, which answer from a library and are no chat models."""
_VLLM = "vllm"
"""The owner that vLLM states. Its port, 8000, is the default of many other servers."""


@dataclass(frozen=True, slots=True)
class LocalServer:
    """A server that answers on loopback: the short name of its service, and the models it lists."""

    prefix: str
    models: tuple[str, ...]


def find_local_servers(services: Mapping[str, ModelService] = SERVICES) -> list[LocalServer]:
    """Return the servers that run on this machine at the usual ports, with their models. Contacts nothing else."""
    servers: list[LocalServer] = []
    for prefix, service in services.items():
        if service.key_variable is None and (models := _list_models(service.url, prefix)):
            servers.append(LocalServer(prefix, models))
    return servers


def describe_unknown_model(name: str, catalogue: Sequence[str]) -> str:
    """Return one line on a name that no chat model has: similar names, running servers, and how models are written."""
    sentences: list[str] = []
    similar = _find_similar(name, catalogue)
    if similar:
        sentences.append(f"Did you mean {' or '.join(similar)}?")
    servers = find_local_servers()
    for server in servers:
        models = ", ".join(server.models[:_MAX_MODELS]) + (", ..." if len(server.models) > _MAX_MODELS else "")
        example = "" if similar else f": write {server.prefix}:{server.models[0]}"
        sentences.append(f"{SERVICES[server.prefix].title} is running here with {models}{example}.")
    if not servers:
        titles = [service.title for service in SERVICES.values() if service.key_variable is None]
        sentences.append(f"No server of {', '.join(titles[:-1])} or {titles[-1]} is running here.")
    sentences.append(
        f"A model is a name of `epicrisis models list`, a .gguf file, SERVICE:MODEL ({', '.join(SERVICES)}), or "
        "http://HOST:PORT/v1#MODEL."
    )
    return f"no chat model is called {name!r}. {' '.join(sentences)}"


def _find_similar(name: str, catalogue: Sequence[str]) -> list[str]:
    """Return up to two models with similar names, or the same name at the service with such names."""
    for prefix, service in SERVICES.items():
        if service.model_prefix and name.lower().startswith(service.model_prefix):
            return [f"{prefix}:{name}"]
    prefix, colon, model = name.partition(":")
    if not colon:
        return difflib.get_close_matches(name, catalogue, n=2, cutoff=0.6)
    return [f"{match}:{model}" for match in difflib.get_close_matches(prefix, SERVICES, n=1, cutoff=0.6)]


def _list_models(url: str, prefix: str) -> tuple[str, ...]:
    """Return the models that a server of this machine lists, or none if it is not there or not such a server."""
    parts = urlsplit(url)
    # No proxy is asked, as urllib would, and no redirection followed.
    connection = HTTPConnection(parts.hostname or "", parts.port, timeout=PROBE_SECONDS)
    try:
        with closing(connection):
            connection.request("GET", f"{parts.path}/models", headers={"Connection": "close"})
            response = connection.getresponse()
            if response.status != 200:
                return ()
            reply = json.loads(response.read(MAX_REPLY_BYTES))
        models: list[str] = []
        for entry in reply["data"]:
            owner = entry.get("owned_by")
            if owner == _OWN_SERVER or (prefix == "vllm" and owner != _VLLM):
                return ()
            models.append(str(entry["id"])[:_MAX_NAME])
        return tuple(models)
    except (OSError, HTTPException, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return ()
