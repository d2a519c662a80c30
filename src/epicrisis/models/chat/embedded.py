"""The embedded chat model: llama.cpp in this process (xllamacpp), used over loopback.

`docs/design/embedded.md` gives the reasons for the parameters, with measurements. There is no timeout, since no other
user can overload the server.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

from epicrisis.errors import ModelFileInvalid
from epicrisis.models.chat.openai_compatible import OpenAICompatibleModel
from epicrisis.models.gguf import list_gguf_parts, read_gguf_header
from epicrisis.models.hardware import count_idle_cores, count_usable_cores, measure_available_memory
from epicrisis.models.model_files import compute_sha256
from epicrisis.protocols import Capabilities, ChatReply, ChatRequest, DeltaCallback, Message

WINDOW = 8192
BATCH_TOKENS = 256
"""Prompt tokens between two checks whether the call was cancelled."""

WORKING_BYTES = 64 * 2**20
"""Memory for computing, in addition to weights, window, and the window's mask for one batch."""

PREFIX_CACHE_SHARE, MAX_PREFIX_CACHE_BYTES = 4, 2 * 2**30
"""The cache of earlier prompts takes a quarter of the remaining memory, up to this size."""


class EmbeddedModel:
    """A `.gguf` file. The first use loads the weights, in a thread; `aclose` or the end of the object frees them.

    The window is the smaller of `context_tokens` and the window of the training. `threads` applies to reading and to
    writing. By default all idle cores read, and as many write, but at most all cores of the machine minus one.
    `weights_sha256` is the file's hash, if known. The first use raises ModelFileInvalid if the file is no model, or
    needs more memory than is available.

    Calls are processed in turn. The prefix that a prompt shares with earlier prompts is not computed again, unless
    `prefix_cache` is off. Cancelling a call stops its work at the next batch of the prompt or token of the reply.

    Grammars enforce a JSON schema, except for `uniqueItems`, `multipleOf`, `allOf` and patterns without `^...$`, which
    llama.cpp ignores.
    """

    def __init__(
        self,
        path: Path,
        name: str,
        context_tokens: int | None = None,
        threads: int | None = None,
        *,
        weights_sha256: str | None = None,
        prefix_cache: bool = True,
    ) -> None:
        self._path = path
        self.name = name
        self._context_tokens = context_tokens or WINDOW
        self._threads = threads
        self._sha256 = weights_sha256
        self._prefix_cache = prefix_cache
        self._starting = threading.Lock()
        self._stop: Callable[[], object] = _ignore
        self._address = ""
        self._client: OpenAICompatibleModel | None = None

    async def complete(self, request: ChatRequest, on_delta: DeltaCallback | None = None) -> ChatReply:
        # Always streamed: llama.cpp does not notice the cancelling of a call for a whole reply.
        return await (await self._get_client()).complete(request, on_delta or _ignore)

    async def count_tokens(self, messages: Sequence[Message]) -> int:
        return await (await self._get_client()).count_tokens(messages)

    async def capabilities(self) -> Capabilities:
        return await (await self._get_client()).capabilities()

    async def fingerprint(self) -> str:
        if self._sha256 is None:
            parts = list_gguf_parts(self._path)
            hashes = [await asyncio.to_thread(compute_sha256, part) for part in parts]
            # Of a split model: the hash of its parts' hashes.
            self._sha256 = hashes[0] if len(hashes) == 1 else sha256("".join(hashes).encode()).hexdigest()
        return json.dumps({"weights": self._sha256, "xllamacpp": version("xllamacpp")}, sort_keys=True)

    async def aclose(self) -> None:
        client, stop = await asyncio.to_thread(self._detach)
        if client is not None:
            await client.aclose()
        await asyncio.to_thread(stop)

    async def _get_client(self) -> OpenAICompatibleModel:
        if self._client is not None:
            return self._client
        return await asyncio.to_thread(self._start)

    def _start(self) -> OpenAICompatibleModel:
        with self._starting:
            if self._client is not None:
                return self._client
            window = min(self._context_tokens, read_gguf_header(self._path).context_tokens or self._context_tokens)
            memory = estimate_memory(self._path, window)
            remaining = measure_available_memory() - memory.total
            if remaining < 0:
                fitting_window = int(window * (1 + remaining / memory.window)) if memory.window else 0
                reduction = f"set context_tokens to {fitting_window} or less, or " if fitting_window > 0 else ""
                raise ModelFileInvalid(
                    f"{self._path} needs {memory.total / 2**30:.1f} GiB of memory (weights {memory.weights / 2**30:.1f}"
                    f", window {memory.window / 2**30:.1f}) and {(memory.total + remaining) / 2**30:.1f} GiB are "
                    f"available: {reduction}use a smaller model"
                )
            cache_bytes = None
            if self._prefix_cache:
                cache_bytes = min(remaining / PREFIX_CACHE_SHARE, MAX_PREFIX_CACHE_BYTES)
            key = secrets.token_urlsafe(32)
            import xllamacpp

            try:
                server = xllamacpp.Server(_build_params(self._path, self.name, key, window, self._threads, cache_bytes))
            except RuntimeError as error:
                raise ModelFileInvalid(
                    f"{self._path} cannot be loaded with a window of {window} tokens: it is damaged (download or pull "
                    "it again), of an unknown kind, or too large for the free memory (set a smaller context_tokens)"
                ) from error
            # A server stopped before its loop runs never ends. Only the loop answers this call.
            server.handle_metrics()
            self._address = server.listening_address
            # xllamacpp stops a server when its last reference is gone. At the end of the interpreter that is too late,
            # since nothing closes its connections then.
            references = [server]
            del server
            self._stop = weakref.finalize(self, references.clear)
            self._client = client = OpenAICompatibleModel(
                f"{self._address}/v1",
                model=self.name,
                api_key=lambda: key,
                timeout_seconds=None,
                context_tokens=window,
                name=self.name,
                json_schema=True,
                extra={"return_progress": True},
            )
            return client

    def _detach(self) -> tuple[OpenAICompatibleModel | None, Callable[[], object]]:
        """Return the client to close and the function that stops the server. Waits for a start in progress."""
        with self._starting:
            client, self._client = self._client, None
            return client, self._stop


def _build_params(path: Path, name: str, key: str, window: int, threads: int | None, cache_bytes: float | None) -> Any:
    """Return the parameters of a server on a free loopback port, protected by the key.

    `cache_bytes` is the size of the cache of earlier prompts, None for no cache.
    """
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.model_alias = [name]
    params.hostnames, params.port, params.api_keys = ["127.0.0.1"], 0, [key]
    # The slots divide the window, and prompts in two slots share no prefix.
    params.n_ctx, params.n_parallel = window, 1
    params.n_batch = params.n_ubatch = BATCH_TOKENS
    # On a busy machine, spinning threads or one thread more than there are free cores make all others wait.
    free = threads or count_idle_cores()
    params.cpuparams_batch.n_threads = free
    params.cpuparams.n_threads = threads or max(1, min(free, count_usable_cores() - 1))
    params.cpuparams.poll = params.cpuparams_batch.poll = 0
    # A similarity of 0 keeps every prompt that another one displaces, however similar the two are.
    params.cache_prompt, params.slot_prompt_similarity = cache_bytes is not None, 0.0
    params.cache_ram_mib = int((cache_bytes or 0) / 2**20)
    # A closed connection is noticed only when something is written to it.
    params.sse_ping_interval = 1
    # The window is not reduced, there are no web pages and no output, and nothing is downloaded.
    params.fit_params = params.ui = params.endpoint_slots = False
    params.endpoint_metrics = True
    params.verbosity, params.offline = 0, True
    return params


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """Bytes for the weights, for the keys and values of the window, and for computing one batch."""

    weights: int
    window: int
    work: int

    @property
    def total(self) -> int:
        return self.weights + self.window + self.work


def estimate_memory(path: Path, window: int) -> MemoryEstimate:
    """Estimate the memory of a model with a window of so many tokens. Raise ModelFileInvalid if it is incomplete."""
    return MemoryEstimate(
        weights=sum(part.stat().st_size for part in list_gguf_parts(path)),
        window=window * read_gguf_header(path).kv_bytes,
        work=WORKING_BYTES + 4 * BATCH_TOKENS * window,
    )


def _ignore(*_: object) -> None:
    pass
