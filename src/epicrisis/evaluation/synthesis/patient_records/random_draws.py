"""Draws by hash: the same on every machine, Python and hash seed. Knows nothing of what is drawn for."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

_SLOT = re.compile(r"\{([^{}]+)\}")
_RANGE = re.compile(r"(\d+(?:\.\d+)?)\.\.(\d+(?:\.\d+)?)")


class Draws:
    """A stream of draws that depends on the names given to it alone, and on how many draws were made before."""

    def __init__(self, *of: object) -> None:
        self._of = of
        self._key = "\0".join(map(str, of)).encode()
        self._count = 0

    def at(self, *of: object) -> Draws:
        """A stream of its own: what is drawn from it changes nothing here."""
        return Draws(*self._of, *of)

    def whole(self, low: int, high: int) -> int:
        """A whole number from low to high, both included."""
        self._count += 1
        digest = hashlib.sha256(self._key + b"\0%d" % self._count).digest()
        return low + int.from_bytes(digest[:8], "big") % (high - low + 1)

    def chance(self, percent: int) -> bool:
        return self.whole(1, 100) <= percent

    def pick(self, options: Sequence[T]) -> T:
        return options[self.whole(0, len(options) - 1)]

    def several(self, options: Sequence[T], n: int) -> list[T]:
        """`n` of them in a drawn order, or all where there are fewer."""
        left = list(options)
        return [left.pop(self.whole(0, len(left) - 1)) for _ in range(min(n, len(left)))]

    def fill(self, template: str, **words: str) -> str:
        """The template with a number for `{6..14}` or `{1.2..4.8}`, one of them for `{a|b}`, a word for `{name}`."""
        return _SLOT.sub(lambda found: self._slot(found[1], words), template)

    def _slot(self, slot: str, words: dict[str, str]) -> str:
        if bounds := _RANGE.fullmatch(slot):
            decimals = len(bounds[1].partition(".")[2])
            low, high = (round(float(bound) * 10**decimals) for bound in bounds.groups())
            return f"{self.whole(low, high) / 10**decimals:.{decimals}f}"
        return self.pick(slot.split("|")) if "|" in slot else words[slot]
