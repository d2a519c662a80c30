"""The header of a GGUF file: whether it is a model, its context window, and the memory a token of the window takes."""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from epicrisis.errors import ModelFileInvalid

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
    """The used part of a header. `context_tokens` is the window of the training, None if the file does not state it.

    `kv_bytes` is the memory for the keys and values of one token of the window, in 16 bits, over all layers; 0 if the
    file does not state it, or if the model keeps less.
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
    """Return the file, or all parts of a split model (`-00001-of-00003.gguf`) in order.

    Raise ModelFileInvalid if a part is missing.
    """
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
