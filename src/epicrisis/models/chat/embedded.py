"""The embedded chat model: llama.cpp in this process (xllamacpp), used over loopback, and the header of its GGUF file.

`docs/design/embedded.md` gives the reasons for the parameters, with measurements. There is no timeout, since no other
user can overload the server.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
import struct
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from epicrisis.core.errors import ModelFileInvalid
from epicrisis.core.protocols import Capabilities, ChatReply, ChatRequest, DeltaCallback, Message
from epicrisis.models.chat.openai_compatible import OpenAICompatibleModel
from epicrisis.models.hardware import count_idle_cores, count_usable_cores, measure_available_memory
from epicrisis.models.model_files import compute_sha256

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
    writing. By default all idle cores read, and as many write, but at most all cores of the machine minus one. The
    first use raises ModelFileInvalid if the file is no model, or needs more memory than is available.

    Calls are processed in turn. The prefix that a prompt shares with earlier prompts is not computed again, unless
    `prefix_cache` is off. Grammars enforce a JSON schema, except for `uniqueItems`, `multipleOf`, `allOf` and patterns
    without `^...$`, which llama.cpp ignores.
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
        return self._client if self._client is not None else await asyncio.to_thread(self._start)

    def _start(self) -> OpenAICompatibleModel:
        import xllamacpp

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
            largest_cache = min(remaining / PREFIX_CACHE_SHARE, MAX_PREFIX_CACHE_BYTES)
            cache_bytes = largest_cache if self._prefix_cache else None
            key = secrets.token_urlsafe(32)

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
    """Return the parameters of a server on a free loopback port, protected by the key. None means no prefix cache."""
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


_NUMBER_FORMATS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_MAX_TEXT_BYTES = 1 << 26
_MAX_LAYERS = 4096
_HALF_BYTES = 2
_SMALL_CACHE_KEYS = ("attention.sliding_window", "attention.kv_lora_rank", "full_attention_interval", "ssm.state_size")
"""Keys of models that keep less than all keys and values of the window. How much less depends on the engine."""
_PART = re.compile(r"-\d{5}-of-(\d{5})\.gguf$")
GgufValue: TypeAlias = str | int | float | bool | tuple[int | float | bool, ...] | None


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """The used part of a header. `context_tokens` is the window of the training, if the file states it.

    `kv_bytes` is the memory for the keys and values of one token, in 16 bits, over all layers; 0 if unknown or less.
    """

    architecture: str
    context_tokens: int | None
    kv_bytes: int


def read_gguf_header(path: Path) -> GgufHeader:
    """Read the header. Raise ModelFileInvalid if the file is not a GGUF model, is damaged, or cannot be read."""
    try:
        with path.open("rb") as stream:
            if stream.read(4) != b"GGUF":
                raise ModelFileInvalid(f"{path} is not a GGUF model: pass a .gguf file, or the URL of an endpoint")
            _, _, count = _unpack(stream, "IQQ")
            entries: dict[str, GgufValue] = {}
            for _ in range(count):
                key = _read_text(stream)
                # The architecture's keys come before the vocabulary, which is long.
                if key.startswith("tokenizer.") and any(name.endswith(".context_length") for name in entries):
                    break
                (kind,) = _unpack(stream, "I")
                entries[key] = _read_value(stream, kind)
        architecture = str(entries.get("general.architecture") or "")
        values = {key.removeprefix(f"{architecture}."): value for key, value in entries.items()}
        window, kv_bytes = _get_numbers(values, "context_length", 0)[0] or None, 0
        heads = _get_numbers(values, "attention.head_count", 0)
        if values.keys().isdisjoint(_SMALL_CACHE_KEYS) and any(heads):
            # The file has one number for all layers, or one for each.
            kv_heads = _get_numbers(values, "attention.head_count_kv", *heads)
            layers = _get_numbers(values, "block_count", 0)[0] if len(kv_heads) == 1 else 1
            head_size = _get_numbers(values, "embedding_length", 0)[0] // max(heads)
            key_size = _get_numbers(values, "attention.key_length", head_size)[0]
            value_size = _get_numbers(values, "attention.value_length", head_size)[0]
            kv_bytes = layers * sum(kv_heads) * (key_size + value_size) * _HALF_BYTES
        return GgufHeader(architecture, window, kv_bytes)
    except OSError as error:
        raise ModelFileInvalid(f"{path} cannot be read ({error.strerror}): check its place and permissions") from error
    except (struct.error, ValueError, KeyError, ArithmeticError, MemoryError, RecursionError) as error:
        raise ModelFileInvalid(f"{path} is a damaged GGUF file: download or pull it again") from error


def list_gguf_parts(path: Path) -> tuple[Path, ...]:
    """Return the file, or all parts of a split model in order. Raise ModelFileInvalid if a part is missing."""
    match = _PART.search(path.name)
    if match is None:
        return (path,)
    count, stem = int(match[1]), path.name[: match.start()]
    parts = tuple(path.with_name(f"{stem}-{number:05}-of-{count:05}.gguf") for number in range(1, count + 1))
    for part in parts:
        if not part.is_file():
            raise ModelFileInvalid(f"{part} is missing: {path} is one of {count} parts, download or pull them all")
    return parts


def _get_numbers(values: Mapping[str, GgufValue], key: str, *default: int) -> tuple[int, ...]:
    """Return one or more numbers. Raise ValueError unless they are whole and at least 0."""
    value = values.get(key, default)
    items = value if isinstance(value, tuple) else (value,)
    numbers = tuple(item for item in items if isinstance(item, int) and item >= 0)
    if not numbers or len(numbers) < len(items):
        raise ValueError(key)
    return numbers


def _read_value(stream: BinaryIO, kind: int) -> GgufValue:
    """Return a value, or None for an array other than one number per layer, which is skipped."""
    if kind == _STRING:
        return _read_text(stream)
    if kind != _ARRAY:
        number: int | float | bool = _unpack(stream, _NUMBER_FORMATS[kind])[0]
        return number
    item_kind, length = _unpack(stream, "IQ")
    if item_kind in _NUMBER_FORMATS and length <= _MAX_LAYERS:
        return _unpack(stream, f"{length}{_NUMBER_FORMATS[item_kind]}")
    if item_kind in _NUMBER_FORMATS:
        stream.seek(struct.calcsize("<" + _NUMBER_FORMATS[item_kind]) * length, os.SEEK_CUR)
    else:
        for _ in range(length):
            _read_value(stream, item_kind)
    return None


def _read_text(stream: BinaryIO) -> str:
    (length,) = _unpack(stream, "Q")
    return bytes(_unpack(stream, f"{min(length, _MAX_TEXT_BYTES)}s")[0]).decode()


def _unpack(stream: BinaryIO, layout: str) -> tuple[Any, ...]:
    """Read little-endian values. Raise struct.error at the end of the file."""
    size = struct.calcsize("<" + layout)
    return struct.unpack("<" + layout, stream.read(size))
