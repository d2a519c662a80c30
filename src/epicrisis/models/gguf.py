"""Reads the head of a GGUF file: just enough to tell a model from a file that is none, and how wide its window is."""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from epicrisis.errors import ModelFileInvalid

_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_LONGEST = 1 << 26


@dataclass(frozen=True, slots=True)
class GgufHead:
    """`context_tokens`: the window the model was trained with, `None` where the file does not say."""

    architecture: str
    context_tokens: int | None


def read_gguf(path: Path) -> GgufHead:
    """Raises ModelFileInvalid when the file is not a GGUF model, breaks off in its head, or cannot be read."""
    try:
        with path.open("rb") as stream:
            if stream.read(4) != b"GGUF":
                raise ModelFileInvalid(f"{path} is not a GGUF model: name a .gguf file, or the URL of an endpoint")
            return _head(stream)
    except OSError as error:
        raise ModelFileInvalid(f"{path} cannot be read ({error.strerror}): check its place and permissions") from error
    except (struct.error, UnicodeDecodeError, KeyError, OverflowError, MemoryError) as error:
        raise ModelFileInvalid(f"{path} is a damaged GGUF file: download or pull it again") from error


def _head(stream: BinaryIO) -> GgufHead:
    _, _, entries = _unpack(stream, "IQQ")
    architecture, found = "", {}
    for _ in range(entries):
        key = _text(stream)
        (kind,) = _unpack(stream, "I")
        value = _value(stream, kind)
        if key == "general.architecture":
            architecture = str(value)
        elif key.endswith(".context_length") and isinstance(value, int):
            found[key] = value
        if f"{architecture}.context_length" in found:
            break
    return GgufHead(architecture, found.get(f"{architecture}.context_length"))


def _value(stream: BinaryIO, kind: int) -> str | int | float | bool | None:
    """A value, or `None` for an array, which is skipped."""
    if kind == _STRING:
        return _text(stream)
    if kind != _ARRAY:
        (number,) = _unpack(stream, _NUMBERS[kind])
        return number
    inner, length = _unpack(stream, "IQ")
    if inner in _NUMBERS:
        stream.seek(struct.calcsize("<" + _NUMBERS[inner]) * length, os.SEEK_CUR)
    else:
        for _ in range(length):
            _value(stream, inner)
    return None


def _text(stream: BinaryIO) -> str:
    (length,) = _unpack(stream, "Q")
    return bytes(_unpack(stream, f"{min(length, _LONGEST)}s")[0]).decode()


def _unpack(stream: BinaryIO, layout: str) -> tuple[int, ...]:
    """Little-endian; struct.error where the file breaks off."""
    size = struct.calcsize("<" + layout)
    return struct.unpack("<" + layout, stream.read(size))
