"""Damages the files of a library as disks, cables and people do, by a seed."""

from __future__ import annotations

import random
from pathlib import Path

_NOT_READ = {"write.lock", ".tantivy-writer.lock", ".tantivy-meta.lock"}
_SIDES = 0.15
"""How often damage lies in the first or the last 64 bytes, where formats keep what they are."""


def files_of(folder: Path) -> list[Path]:
    """Returns the files of the library that hold anything, sorted by their paths."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name not in _NOT_READ)
    return sorted(path for path in files if path.stat().st_size)


def damage(folder: Path, seed: int) -> tuple[Path, str]:
    """Damages one file of the library, each part equally often. Returns the file and what was done to it."""
    dice = random.Random(seed)
    parts: dict[Path, list[Path]] = {}
    for path in files_of(folder):
        parts.setdefault(path.parent if path.parent != folder else path, []).append(path)
    path = dice.choice(parts[dice.choice(sorted(parts))])
    data = bytearray(path.read_bytes())
    kind = dice.choice(["flip", "flip", "flip", "flips", "truncate", "zeros", "noise", "empty", "remove"])
    if kind == "flip":
        flips(data, dice, 1)
    elif kind == "flips":
        flips(data, dice, dice.randint(2, 40))
    elif kind == "truncate":
        del data[dice.randrange(len(data)) :]
    elif kind in ("zeros", "noise"):
        begin = dice.randrange(len(data))
        end = min(len(data), begin + dice.randint(1, 512))
        data[begin:end] = bytes(end - begin) if kind == "zeros" else dice.randbytes(end - begin)
    if kind == "remove":
        path.unlink()
    else:
        path.write_bytes(b"" if kind == "empty" else data)
    return path, kind


def flips(data: bytearray, dice: random.Random, count: int) -> None:
    """Flips so many bits, some of them near an end of the file."""
    for _ in range(count):
        place = dice.randrange(len(data))
        if dice.random() < 2 * _SIDES:
            near = dice.randrange(min(64, len(data)))
            place = near if dice.random() < 0.5 else len(data) - 1 - near
        data[place] ^= 1 << dice.randrange(8)
