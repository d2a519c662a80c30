"""Find faulty texts for a library's health report: empty texts, remaining markup, near duplicates."""

from __future__ import annotations

import html.entities
import itertools
import re
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeAlias

from epicrisis.corpus.base.markup import KNOWN_TAG

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Row: TypeAlias = npt.NDArray[np.uint16]
    Numbers: TypeAlias = npt.NDArray[np.int64]

_WORD = re.compile(r"[^\W_]+")
_NOTICES = frozenset(
    (
        "",
        *("na", "n a", "nan", "null", "none", "not available", "not provided", "unavailable"),
        *("no abstract", "no abstract available", "no abstract is available", "no abstract provided"),
        *("abstract not available", "abstract is not available", "abstract unavailable", "abstract not provided"),
    )
)
_MAX_NOTICE_WORDS = 4

_ENTITY = re.compile(r"&(?:amp;)*(?:#\d{2,7}|#[xX][0-9a-fA-F]{2,6}|([a-zA-Z][a-zA-Z0-9]{1,31}));")
# Entities of SGML unknown to HTML: `&bgr;` for beta, and `&NA;` of publishers for "not available".
_SGML = re.compile(r"[A-Za-z]{1,2}gr|NA")
_TEX = re.compile(
    r"\\(?:usepackage|documentclass|setlength|begin|end|(?:d|t)?frac|math(?:rm|bf|it|cal|bb|sf)|text(?:rm|bf|it)?|"
    r"operatorname|overline|mbox|sqrt)\s*[{\[]"
)
_ATTRIBUTE = re.compile(r"xmlns(?::\w+)?=[\"']")


def is_empty(text: str) -> bool:
    """Return whether the text has no letter or digit, or only a notice such as `[Not Available].`"""
    matches = itertools.islice(_WORD.finditer(text), _MAX_NOTICE_WORDS + 1)
    return " ".join(match[0].lower() for match in matches) in _NOTICES


def has_markup(text: str) -> bool:
    """Return whether the text has a tag, a character entity or a TeX command; `p < 0.05` or `R&D;` is none."""
    if "<" in text and KNOWN_TAG.search(text):
        return True
    for match in _ENTITY.finditer(text) if "&" in text else ():
        name = match[1]
        if name is None or f"{name};" in html.entities.html5 or _SGML.fullmatch(name):
            return True
    return ("\\" in text and _TEX.search(text) is not None) or _ATTRIBUTE.search(text) is not None


SHINGLE_WORDS = 5
MIN_SIMILARITY = 0.8

_COMPONENTS = 64
_MAX_LEADERS = 32
_MASK = (1 << 64) - 1


class NearDuplicateFinder:
    """Find texts that nearly agree, with up to 144 bytes of memory for each text and its id: 220 MB a million.

    Each text is stored as a MinHash signature of its shingles, runs of 5 words (Broder, SEQUENCES 1997): 64 components
    of 16 bits. Two texts are compared if one of 16 bands of 4 components agrees; with a similarity of 0.8 this happens
    with probability 0.9998. The similarity is estimated by the share of equal components, with a standard error of 0.05
    at 0.8. Case, punctuation and white space are ignored. A text of fewer than 5 words has one shingle, all its words.
    """

    def __init__(self) -> None:
        import numpy as np

        generator = np.random.Generator(np.random.PCG64(20_260_101))
        self._factors = generator.integers(1, _MASK, _COMPONENTS, dtype=np.uint64) | np.uint64(1)
        self._terms = generator.integers(0, _MASK, _COMPONENTS, dtype=np.uint64)
        self._weights = generator.integers(1, _MASK, SHINGLE_WORDS, dtype=np.uint64) | np.uint64(1)
        self._ids: list[str] = []
        self._signatures = bytearray()
        self.not_compared = 0
        """Texts in groups too large and varied for all comparisons, counted once a group; valid after `pairs`."""

    def add(self, id: str, text: str) -> None:
        """Store the text's signature. Ids are not checked for duplicates."""
        import numpy as np

        words = np.array([zlib.crc32(word.encode()) for word in _WORD.findall(text.lower())], dtype=np.uint64)
        if not len(words):
            return
        size = min(SHINGLE_WORDS, len(words))
        shingles = np.zeros(len(words) - size + 1, dtype=np.uint64)
        for place in range(size):
            shingles += words[place : place + len(shingles)] * self._weights[place]
        shingles ^= shingles >> np.uint64(29)
        hashes = (shingles[:, None] * self._factors + self._terms) >> np.uint64(24)
        self._ids.append(id)
        self._signatures += np.min(hashes, axis=0).astype(np.uint16).tobytes()

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Yield (earlier id, later id) for every near duplicate of an earlier text; ten copies are nine pairs."""
        import numpy as np

        if not self._ids:
            return
        signatures = np.frombuffer(self._signatures, dtype=np.uint16).reshape(-1, _COMPONENTS)
        bands = signatures.view(np.uint64)
        earlier = np.full(len(signatures), -1, dtype=np.int64)
        self.not_compared = 0
        for band in range(bands.shape[1]):
            # Group the rows with equal keys, in rising order.
            order = np.argsort(bands[:, band], kind="stable")
            keys = bands[order, band]
            edges = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1], [True])))
            for index in np.flatnonzero(np.diff(edges) > 1).tolist():
                group = order[edges[index] : edges[index + 1]]
                self._match_group(signatures, group[earlier[group] < 0], earlier)
        for later in np.flatnonzero(earlier >= 0).tolist():
            yield self._ids[int(earlier[later])], self._ids[later]

    def _match_group(self, signatures: Row, group: Numbers, earlier: Numbers) -> None:
        """Set the earlier text of each near duplicate within a group, which is in the order of `add`."""
        import numpy as np

        for _ in range(_MAX_LEADERS):
            if len(group) < 2:
                return
            leader, rest = group[0], group[1:]
            is_near = np.mean(signatures[rest] == signatures[leader], axis=1) >= MIN_SIMILARITY
            earlier[rest[is_near]] = leader
            group = rest[~is_near]
        self.not_compared += len(group)
