"""The embedded chat model: llama.cpp in this process, talked to over loopback.

The only module that knows xllamacpp. One slot: on a CPU calls one after the other share the prompt's prefix and are
faster than calls side by side. There is no timeout, as nobody else can be overloading it.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
import threading
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from epicrisis.errors import ModelFileInvalid
from epicrisis.models.chat.openai_compatible import OpenAICompatibleModel
from epicrisis.models.gguf import read_gguf
from epicrisis.seams import Capabilities, ChatReply, ChatRequest, Message, OnDelta


class EmbeddedModel:
    """A `.gguf` file. The weights are loaded at the first use, in a thread; `aclose` frees them.

    The window is the smaller of `context_tokens` and the one the model was trained with. `threads=None` leaves the
    number to llama.cpp. The first use raises ModelFileInvalid where the file is no model, or too large for this
    machine's memory.

    Grammars hold replies to a JSON schema, but for `uniqueItems`, `multipleOf`, `allOf` and patterns without `^...$`,
    which llama.cpp ignores.
    """

    def __init__(self, path: Path, name: str, context_tokens: int | None = None, threads: int | None = None) -> None:
        self._path = path
        self._name = name
        self._context_tokens = context_tokens or 8192
        self._threads = threads
        self._starting = threading.Lock()
        self._server: Any = None
        self._client: OpenAICompatibleModel | None = None
        self._fingerprint: str | None = None

    @property
    def name(self) -> str:
        return self._name

    async def complete(self, request: ChatRequest, on_delta: OnDelta | None = None) -> ChatReply:
        return await (await self._running()).complete(request, on_delta)

    async def count_tokens(self, messages: Sequence[Message]) -> int:
        return await (await self._running()).count_tokens(messages)

    async def capabilities(self) -> Capabilities:
        return await (await self._running()).capabilities()

    async def fingerprint(self) -> str:
        """By the weights' file and the version of llama.cpp."""
        if self._fingerprint is None:
            self._fingerprint = await asyncio.to_thread(_fingerprint, self._path)
        return self._fingerprint

    async def aclose(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()
        await asyncio.to_thread(self._stop)

    async def _running(self) -> OpenAICompatibleModel:
        if self._client is not None:
            return self._client
        return await asyncio.to_thread(self._start)

    def _start(self) -> OpenAICompatibleModel:
        with self._starting:
            if self._client is not None:
                return self._client
            window = min(self._context_tokens, read_gguf(self._path).context_tokens or self._context_tokens)
            key = secrets.token_urlsafe(32)
            self._server = _serve(self._path, self._name, key, window, self._threads)
            self._client = client = OpenAICompatibleModel(
                f"{self._server.listening_address}/v1",
                model=self._name,
                api_key=lambda: key,
                timeout_seconds=None,
                context_tokens=window,
                name=self._name,
            )
            return client

    def _stop(self) -> None:
        """xllamacpp stops a server when nothing holds it any more."""
        with self._starting:
            self._server = None


def _serve(path: Path, name: str, key: str, window: int, threads: int | None) -> Any:
    """A server on a free port of loopback that answers only to the key."""
    import xllamacpp

    size, memory = path.stat().st_size, _memory()
    if size > memory:
        raise ModelFileInvalid(
            f"{path} needs more memory ({size / 2**30:.1f} GiB) than this machine has ({memory / 2**30:.1f} GiB): "
            "use a smaller model"
        )
    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.model_alias = [name]
    params.hostnames, params.port, params.api_keys = ["127.0.0.1"], 0, [key]
    params.n_ctx, params.n_parallel = window, 1
    # Threads that generate wait for each other at every layer: on a busy machine two are several times slower than one.
    params.cpuparams.n_threads = threads or 1
    params.cpuparams_batch.n_threads = threads or os.cpu_count() or 1
    # No surprises: no shrunken window, no gigabytes of old prompts, no pages, no output, no downloads.
    params.fit_params, params.cache_ram_mib = False, 0
    params.ui = params.endpoint_slots = False
    params.verbosity, params.offline = 0, True
    try:
        return xllamacpp.Server(params)
    except RuntimeError as error:
        raise ModelFileInvalid(
            f"{path} cannot be loaded with a window of {window} tokens: it is damaged (download or pull it again), of "
            "an unknown kind, or too large for the memory that is free (set a smaller context_tokens)"
        ) from error


def _fingerprint(path: Path) -> str:
    with path.open("rb") as file:
        return f"gguf {hashlib.file_digest(file, 'sha256').hexdigest()} xllamacpp {version('xllamacpp')}"


def _memory() -> float:
    """Bytes of this machine's memory; infinite where the system does not tell."""
    if not hasattr(os, "sysconf"):
        return float("inf")
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
