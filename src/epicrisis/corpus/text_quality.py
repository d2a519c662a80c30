"""What is wrong with texts, for a library's health report: nothing in them, markup left over, the same text twice.

Pure: knows no store. What a check finds is for a reader to look at; nothing is removed.
"""

from __future__ import annotations

import html.entities
import itertools
import re
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Row: TypeAlias = npt.NDArray[np.uint16]
    Numbers: TypeAlias = npt.NDArray[np.int64]

_WORD = re.compile(r"[^\W_]+")
_NOTICES = frozenset({"", "not available", "no abstract", "no abstract available", "abstract not available"})
_LONGEST_NOTICE = 3

_TAG = re.compile(
    r"""</?(?:(?:mml|jats|xlink|ce|m):[a-z-]+|sup|sub|inf|sc|i|b|u|em|strong|italic|bold|underline|br|p|div|span|font|a|li|ul|ol
    |h[1-6]|table|t[rdh]|img|xref|ext-link|sec|title|list|list-item|math|m(?:i|n|o|row|sup|sub|frac|text|style|space)
    |inline-formula|disp-formula|tex-math|abstracttext)(?:\s[^<>=]{1,50}=[^<>]{1,200}|\s)?/?>""",
    re.IGNORECASE | re.VERBOSE,
)
_ENTITY = re.compile(r"&(?:amp;)*(?:#\d{2,7}|#[xX][0-9a-fA-F]{2,6}|([a-zA-Z][a-zA-Z0-9]{1,31}));")
# Of SGML, which HTML does not know: `&bgr;` for beta, and what publishers put for "not available".
_SGML = re.compile(r"[A-Za-z]{1,2}gr|NA")
_TEX = re.compile(
    r"\\(?:usepackage|documentclass|setlength|begin|end|(?:d|t)?frac|math(?:rm|bf|it|cal|bb|sf)|text(?:rm|bf|it)?|"
    r"operatorname|overline|mbox|sqrt)\s*[{\[]"
)
_ATTRIBUTE = re.compile(r"xmlns(?::\w+)?=[\"']")


def is_empty(text: str) -> bool:
    """True when there is no letter or digit, or nothing but a notice such as `[Not Available].`"""
    words = itertools.islice(_WORD.finditer(text), _LONGEST_NOTICE + 1)
    return " ".join(word[0].lower() for word in words) in _NOTICES


def has_markup(text: str) -> bool:
    """True when a tag, a character entity or a TeX command stands in the text that no reader should see.

    `p < 0.05`, `<5 mg`, `R&D;` and the like are none.
    """
    if "<" in text and _TAG.search(text):
        return True
    if "&" in text and any(_is_entity(match) for match in _ENTITY.finditer(text)):
        return True
    return ("\\" in text and _TEX.search(text) is not None) or _ATTRIBUTE.search(text) is not None


def _is_entity(match: re.Match[str]) -> bool:
    name = match[1]
    return name is None or f"{name};" in html.entities.html5 or _SGML.fullmatch(name) is not None


# -- near duplicates ------------------------------------------------------------------------------------------------

WORDS = 5
"""Words of a shingle."""
ALIKE = 0.8
"""The Jaccard similarity of their shingles from which two texts are near duplicates."""

_COMPONENTS = 64
_PER_BAND = 4
_MOST_LEADERS = 32
_MASK = (1 << 64) - 1


class NearDuplicateFinder:
    """Finds texts that nearly agree, in memory that grows by up to 144 bytes a text and its id: 220 MB a million.

    Each text is kept as a MinHash signature of its shingles (Broder, SEQUENCES 1997): 64 components of 16 bits,
    compared where one of 16 bands of 4 agrees (two texts of similarity 0.8 meet with probability 0.9998). Similarity is
    the share of equal components, so its standard error at 0.8 is 0.05: what is just above may be missed, what is just
    below be found. Case, punctuation and white space do not count; a text of fewer than 5 words has one shingle, all
    its words, and one without words has none and is passed over.
    """

    def __init__(self) -> None:
        import numpy as np

        dice = np.random.Generator(np.random.PCG64(20_260_101))
        self._factors = dice.integers(1, _MASK, _COMPONENTS, dtype=np.uint64) | np.uint64(1)
        self._terms = dice.integers(0, _MASK, _COMPONENTS, dtype=np.uint64)
        self._weights = dice.integers(1, _MASK, WORDS, dtype=np.uint64) | np.uint64(1)
        self._ids: list[str] = []
        self._signatures = bytearray()
        self.not_compared = 0
        """After `pairs`: how often a text met a crowd too mixed to compare it with everyone in it."""

    def add(self, id: str, text: str) -> None:
        """Keeps the text's signature. Ids are not checked for being different."""
        signature = self._signature(text)
        if signature is not None:
            self._ids.append(id)
            self._signatures += signature.tobytes()

    def pairs(self, alike: float = ALIKE) -> Iterator[tuple[str, str]]:
        """(earlier, later) for every text that is near to one added before it, each later text once.

        Ten copies of one text are nine pairs. Call it when all are added; takes another 40 bytes a text while it runs.
        """
        import numpy as np

        if not self._ids:
            return
        signatures = np.frombuffer(self._signatures, dtype=np.uint16).reshape(-1, _COMPONENTS)
        bands = signatures.view(np.uint64)
        earlier = np.full(len(signatures), -1, dtype=np.int64)
        self.not_compared = 0
        for band in range(bands.shape[1]):
            for group in _groups(bands[:, band]):
                self._lead(signatures, group[earlier[group] < 0], earlier, alike)
        for later in np.flatnonzero(earlier >= 0).tolist():
            yield self._ids[int(earlier[later])], self._ids[later]

    def _lead(self, signatures: npt.NDArray[np.uint16], group: Numbers, earlier: Numbers, alike: float) -> None:
        """Gives those of the group (in the order they were added) that are near to an earlier one that one."""
        import numpy as np

        for _ in range(_MOST_LEADERS):
            if len(group) < 2:
                return
            leader, rest = group[0], group[1:]
            near = np.mean(signatures[rest] == signatures[leader], axis=1) >= alike
            earlier[rest[near]] = leader
            group = rest[~near]
        self.not_compared += len(group)

    def _signature(self, text: str) -> Row | None:
        import numpy as np

        words = np.array([zlib.crc32(word.encode()) for word in _WORD.findall(text.lower())], dtype=np.uint64)
        if not len(words):
            return None
        size = min(WORDS, len(words))
        shingles = np.zeros(len(words) - size + 1, dtype=np.uint64)
        for place in range(size):
            shingles += words[place : place + len(shingles)] * self._weights[place]
        shingles ^= shingles >> np.uint64(29)
        hashes = (shingles[:, None] * self._factors + self._terms) >> np.uint64(24)
        lowest: Row = np.min(hashes, axis=0).astype(np.uint16)
        return lowest


def _groups(keys: npt.NDArray[np.uint64]) -> Iterator[Numbers]:
    """The numbers of the rows that share a key with another, key by key, each in rising order."""
    import numpy as np

    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    edges = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1], [True])))
    for n in np.flatnonzero(np.diff(edges) > 1).tolist():
        yield order[edges[n] : edges[n + 1]]
