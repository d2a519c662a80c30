"""Reads the head of a GGUF file: just enough to tell a model from a file that is none, how wide its window is, and what
a token of the window costs. Knows no engine and no machine."""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from epicrisis.errors import ModelFileInvalid

_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_LONGEST = 1 << 26
_MOST_LAYERS = 4096
_BYTES_OF_HALF = 2

_SPARING = ("attention.sliding_window", "attention.kv_lora_rank", "full_attention_interval", "ssm.state_size")
"""Models that say one of these keep less of the window than everything; how much less is for their engine to know."""

_PART = re.compile(r"-\d{5}-of-(\d{5})\.gguf$")

Value: TypeAlias = str | int | float | bool | tuple[int | float | bool, ...] | None


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """`context_tokens`: the window the model was trained with, `None` where the file does not say.

    `kv_bytes`: what the keys and values of one token of the window take in 16 bits, all layers together; 0 where the
    file does not say, or the model keeps less than that.
    """

    architecture: str
    context_tokens: int | None
    kv_bytes: int


def read_gguf_header(path: Path) -> GgufHeader:
    """Raises ModelFileInvalid when the file is not a GGUF model, breaks off in its head, or cannot be read."""
    try:
        with path.open("rb") as stream:
            if stream.read(4) != b"GGUF":
                raise ModelFileInvalid(f"{path} is not a GGUF model: name a .gguf file, or the URL of an endpoint")
            return _head(stream)
    except OSError as error:
        raise ModelFileInvalid(f"{path} cannot be read ({error.strerror}): check its place and permissions") from error
    except (struct.error, ValueError, KeyError, ArithmeticError, MemoryError, RecursionError) as error:
        raise ModelFileInvalid(f"{path} is a damaged GGUF file: download or pull it again") from error


def list_gguf_parts(path: Path) -> tuple[Path, ...]:
    """The file, or all parts of a model that is split (`-00001-of-00003.gguf`), in order.

    Raises ModelFileInvalid where one is not there.
    """
    split = _PART.search(path.name)
    if split is None:
        return (path,)
    count = int(split[1])
    stem = path.name[: split.start()]
    parts = tuple(path.with_name(f"{stem}-{number:05}-of-{count:05}.gguf") for number in range(1, count + 1))
    for part in parts:
        if not part.is_file():
            raise ModelFileInvalid(f"{part} is not there: {path} is one of {count} parts, download or pull them all")
    return parts


def _head(stream: BinaryIO) -> GgufHeader:
    _, _, entries = _unpack(stream, "IQQ")
    found: dict[str, Value] = {}
    for _ in range(entries):
        key = _text(stream)
        # The architecture's keys stand together; behind them comes the vocabulary, which is long.
        if key.startswith("tokenizer.") and any(known.endswith(".context_length") for known in found):
            break
        (kind,) = _unpack(stream, "I")
        found[key] = _value(stream, kind)
    architecture = str(found.get("general.architecture") or "")
    ours = {key.removeprefix(f"{architecture}."): value for key, value in found.items()}
    return GgufHeader(architecture, _numbers(ours, "context_length", 0)[0] or None, _kv_bytes(ours))


def _kv_bytes(said: Mapping[str, Value]) -> int:
    heads = _numbers(said, "attention.head_count", 0)
    if any(key in said for key in _SPARING) or not any(heads):
        return 0
    # One number for all layers, or one for each.
    kv_heads = _numbers(said, "attention.head_count_kv", *heads)
    layers = _numbers(said, "block_count", 0)[0] if len(kv_heads) == 1 else 1
    head = _numbers(said, "embedding_length", 0)[0] // max(heads)
    widths = (_numbers(said, f"attention.{part}_length", head)[0] for part in ("key", "value"))
    return layers * sum(kv_heads) * sum(widths) * _BYTES_OF_HALF


def _numbers(said: Mapping[str, Value], key: str, *otherwise: int) -> tuple[int, ...]:
    """The one or more that are said. ValueError where they are not whole numbers of 0 or more."""
    value = said.get(key, otherwise)
    values = value if isinstance(value, tuple) else (value,)
    numbers = tuple(number for number in values if isinstance(number, int) and number >= 0)
    if not numbers or len(numbers) < len(values):
        raise ValueError(key)
    return numbers


def _value(stream: BinaryIO, kind: int) -> Value:
    """A value; `None` for an array that cannot be one number a layer, which is skipped."""
    if kind == _STRING:
        return _text(stream)
    if kind != _ARRAY:
        number: int | float | bool = _unpack(stream, _NUMBERS[kind])[0]
        return number
    inner, length = _unpack(stream, "IQ")
    if inner in _NUMBERS and length <= _MOST_LAYERS:
        return _unpack(stream, f"{length}{_NUMBERS[inner]}")
    if inner in _NUMBERS:
        stream.seek(struct.calcsize("<" + _NUMBERS[inner]) * length, os.SEEK_CUR)
    else:
        for _ in range(length):
            _value(stream, inner)
    return None


def _text(stream: BinaryIO) -> str:
    (length,) = _unpack(stream, "Q")
    return bytes(_unpack(stream, f"{min(length, _LONGEST)}s")[0]).decode()


def _unpack(stream: BinaryIO, layout: str) -> tuple[Any, ...]:
    """Little-endian; struct.error where the file breaks off."""
    size = struct.calcsize("<" + layout)
    return struct.unpack("<" + layout, stream.read(size))
