"""The embedded chat model: llama.cpp in this process, talked to over loopback.

The only module that knows xllamacpp. What is set here and why, with the measurements: `docs/design/embedded.md`.
There is no timeout, as nobody else can be overloading it.
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
"""Of a prompt read between two looks at whether anybody still waits for the reply."""

WORKING_BYTES = 64 * 2**20
"""What computing takes beside weights and window, and beside the window's mask for one batch."""

CACHED_SHARE, CACHED_BYTES = 4, 2 * 2**30
"""Prompts read before are kept in a quarter of what memory is left, and no more than this."""


class EmbeddedModel:
    """A `.gguf` file. The weights are loaded at the first use, in a thread; `aclose` frees them, and so does the end of
    the process or of this object.

    The window is the smaller of `context_tokens` and the one the model was trained with. `threads` are for reading and
    for writing; by default all cores read that are idle at the start, and as many write, but for one of the machine's.
    The first use raises ModelFileInvalid where the file is no model, or needs more memory than is available.
    `weights_sha256`: that of the file, where it is known.

    Calls are taken in turn, and what their prompts have in common with those before is not computed again, unless
    `prefix_cache` is off. A cancelled call stops the work, at the next batch of the prompt or token of the reply.

    Grammars hold replies to a JSON schema, but for `uniqueItems`, `multipleOf`, `allOf` and patterns without `^...$`,
    which llama.cpp ignores.
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
        self._name = name
        self._context_tokens = context_tokens or WINDOW
        self._threads = threads
        self._sha256 = weights_sha256
        self._prefix_cache = prefix_cache
        self._starting = threading.Lock()
        self._stop: Callable[[], object] = _nothing
        self._address = ""
        self._client: OpenAICompatibleModel | None = None

    @property
    def name(self) -> str:
        return self._name

    async def complete(self, request: ChatRequest, on_delta: DeltaCallback | None = None) -> ChatReply:
        # Streamed, asked for or not: llama.cpp does not look whether anybody waits for a whole reply.
        return await (await self._running()).complete(request, on_delta or _nothing)

    async def count_tokens(self, messages: Sequence[Message]) -> int:
        return await (await self._running()).count_tokens(messages)

    async def capabilities(self) -> Capabilities:
        return await (await self._running()).capabilities()

    async def fingerprint(self) -> str:
        if self._sha256 is None:
            self._sha256 = await asyncio.to_thread(_weights_sha256, self._path)
        return json.dumps({"weights": self._sha256, "xllamacpp": version("xllamacpp")}, sort_keys=True)

    async def aclose(self) -> None:
        client, stop = await asyncio.to_thread(self._taken)
        if client is not None:
            await client.aclose()
        await asyncio.to_thread(stop)

    async def _running(self) -> OpenAICompatibleModel:
        if self._client is not None:
            return self._client
        return await asyncio.to_thread(self._start)

    def _start(self) -> OpenAICompatibleModel:
        with self._starting:
            if self._client is not None:
                return self._client
            window = min(self._context_tokens, read_gguf_header(self._path).context_tokens or self._context_tokens)
            need = estimate_memory(self._path, window)
            left = measure_available_memory() - need.all
            if left < 0:
                raise ModelFileInvalid(_too_large(self._path, need, left, window))
            cached = min(left / CACHED_SHARE, CACHED_BYTES) if self._prefix_cache else None
            key = secrets.token_urlsafe(32)
            server = _serve(_params(self._path, self._name, key, window, self._threads, cached))
            self._address = server.listening_address
            # xllamacpp stops a server when nothing holds it any more. Left to the end of the interpreter that is late:
            # nothing runs any more that could let go of its connections.
            held = [server]
            del server
            self._stop = weakref.finalize(self, held.clear)
            self._client = client = OpenAICompatibleModel(
                f"{self._address}/v1",
                model=self._name,
                api_key=lambda: key,
                timeout_seconds=None,
                context_tokens=window,
                name=self._name,
                json_schema=True,
                extra={"return_progress": True},
            )
            return client

    def _taken(self) -> tuple[OpenAICompatibleModel | None, Callable[[], object]]:
        """What there is to end. A start that is under way is waited for."""
        with self._starting:
            client, self._client = self._client, None
            return client, self._stop


# -- the server -----------------------------------------------------------------------------------------------------


def _params(path: Path, name: str, key: str, window: int, threads: int | None, cached: float | None) -> Any:
    """For a server on a free port of loopback that answers only to the key. `cached`: bytes for prompts read before,
    `None` where every prompt is read anew."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.model_alias = [name]
    params.hostnames, params.port, params.api_keys = ["127.0.0.1"], 0, [key]
    # The window is divided by the slots, and prompts in two slots share no prefix.
    params.n_ctx, params.n_parallel = window, 1
    params.n_batch = params.n_ubatch = BATCH_TOKENS
    # Threads that spin, or one more than there are free cores, make every other one wait on a busy machine.
    free = threads or count_idle_cores()
    params.cpuparams_batch.n_threads = free
    params.cpuparams.n_threads = threads or max(1, min(free, count_usable_cores() - 1))
    params.cpuparams.poll = params.cpuparams_batch.poll = 0
    # With 0 every prompt is kept that another one takes the slot from, however alike the two are.
    params.cache_prompt, params.slot_prompt_similarity = cached is not None, 0.0
    params.cache_ram_mib = int((cached or 0) / 2**20)
    # A connection that was closed is noticed when something is written to it.
    params.sse_ping_interval = 1
    # No surprises: no shrunken window, no pages, no output, no downloads.
    params.fit_params = params.ui = params.endpoint_slots = False
    params.endpoint_metrics = True
    params.verbosity, params.offline = 0, True
    return params


def _serve(params: Any) -> Any:
    import xllamacpp

    try:
        server = xllamacpp.Server(params)
    except RuntimeError as error:
        raise ModelFileInvalid(
            f"{params.model.path} cannot be loaded with a window of {params.n_ctx} tokens: it is damaged (download or "
            "pull it again), of an unknown kind, or too large for the memory that is free (set a smaller "
            "context_tokens)"
        ) from error
    # A server that is stopped before its loop has begun never ends. Only the loop knows the metrics.
    server.handle_metrics()
    return server


# -- the file -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """Bytes. `window`: the keys and values of all its tokens; `work`: what computing one batch takes."""

    weights: int
    window: int
    work: int

    @property
    def all(self) -> int:
        return self.weights + self.window + self.work


def estimate_memory(path: Path, window: int) -> MemoryEstimate:
    """Of a model with a window of so many tokens. Raises ModelFileInvalid where it is no model, or not all of it."""
    return MemoryEstimate(
        weights=sum(part.stat().st_size for part in list_gguf_parts(path)),
        window=window * read_gguf_header(path).kv_bytes,
        work=WORKING_BYTES + 4 * BATCH_TOKENS * window,
    )


def _too_large(path: Path, need: MemoryEstimate, left: float, window: int) -> str:
    fits = int(window * (1 + left / need.window)) if need.window else 0
    cure = "use a smaller model"
    if fits > 0:
        cure = f"set context_tokens to {fits} or less, or {cure}"
    return (
        f"{path} needs {need.all / 2**30:.1f} GiB of memory (weights {need.weights / 2**30:.1f}, window "
        f"{need.window / 2**30:.1f}) and {(need.all + left) / 2**30:.1f} GiB are available: {cure}"
    )


def _weights_sha256(path: Path) -> str:
    """Of a split model: over the hashes of its parts."""
    hashes = [compute_sha256(part) for part in list_gguf_parts(path)]
    return hashes[0] if len(hashes) == 1 else sha256("".join(hashes).encode()).hexdigest()


def _nothing(*_: object) -> None:
    """Nobody watches; nothing to stop."""
