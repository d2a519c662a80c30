"""Pseudo-random draws by hash: the same on every machine, with every Python version and hash seed."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

_SLOT = re.compile(r"\{([^{}]+)\}")
_RANGE = re.compile(r"(\d+(?:\.\d+)?)\.\.(\d+(?:\.\d+)?)")


class Draws:
    """A stream of draws. Each draw depends on the names of the stream and on the number of draws before it."""

    def __init__(self, *names: object) -> None:
        self._names = names
        self._key = "\0".join(map(str, names)).encode()
        self._count = 0

    def substream(self, *names: object) -> Draws:
        """Return an independent stream. Drawing from it does not change this one."""
        return Draws(*self._names, *names)

    def integer(self, low: int, high: int) -> int:
        """Return a whole number from `low` to `high`, both included."""
        self._count += 1
        digest = hashlib.sha256(self._key + b"\0%d" % self._count).digest()
        return low + int.from_bytes(digest[:8], "big") % (high - low + 1)

    def chance(self, percent: int) -> bool:
        """Return True with a probability of `percent`."""
        return self.integer(1, 100) <= percent

    def pick(self, options: Sequence[T]) -> T:
        """Return one of the options."""
        return options[self.integer(0, len(options) - 1)]

    def sample(self, options: Sequence[T], n: int) -> list[T]:
        """Return `n` different options in random order, or all of them if there are fewer."""
        remaining = list(options)
        return [remaining.pop(self.integer(0, len(remaining) - 1)) for _ in range(min(n, len(remaining)))]

    def shuffle(self, options: Sequence[T]) -> list[T]:
        """Return all options in random order."""
        return self.sample(options, len(options))

    def fill(self, template: str, **words: str) -> str:
        """Fill the slots of a template: `{6..14}` or `{1.2..4.8}` with a number, `{a|b}` with one of the texts,
        `{name}` with the word of this name."""

        def slot_text(match: re.Match[str]) -> str:
            slot = match[1]
            if bounds := _RANGE.fullmatch(slot):
                decimals = len(bounds[1].partition(".")[2])
                low, high = (round(float(bound) * 10**decimals) for bound in bounds.groups())
                return f"{self.integer(low, high) / 10**decimals:.{decimals}f}"
            return self.pick(slot.split("|")) if "|" in slot else words[slot]

        return _SLOT.sub(slot_text, template)
