"""Strings of patients in any file: their ids, names and numbers, and hashes of every 32 bytes of their notes.

    strings = PatientStrings.collect(texts, names)
    strings = strings.without(texts_of_others, names_of_others)
    for hit in strings.find(path.read_bytes()):
        print(hit.start, hit.kind)

The windows begin at each word, so a quotation of five words or more contains one. Only hashes of them are stored, by
random factors of each removal. A string in other records too is no sign of these patients.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from epicrisis.system.local_only import open_private

if TYPE_CHECKING:
    import numpy.typing as npt

    Hashes: TypeAlias = npt.NDArray[np.uint64]

WINDOW = 32
"""Bytes of a window."""
SHORTEST = 6
"""Bytes of the shortest name that is searched for. Shorter ones, such as the id 12, occur everywhere by chance."""
_WORDS = WINDOW // 8
_BITS = 24
_SHIFT = np.uint64(64 - _BITS)
_MIX = np.uint64(29)
_SUFFIX_MASK = np.uint64((1 << (8 * SHORTEST)) - 1)
_SUFFIX_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_BATCH = 1 << 18
_LETTER = re.compile(rb"[0-9A-Za-z]")
_BEFORE = re.compile(rb"(?:[0-9A-Za-z]|[0-9]-)\Z")
_AFTER = re.compile(rb"[0-9A-Za-z]|-[0-9]")
"""A name within a longer one is another name: P-1 in P-12 and in P-1-2."""

StringKind: TypeAlias = Literal["name", "text"]


@dataclass(frozen=True, slots=True)
class StringHit:
    """Where a file contains something of the patients."""

    start: int
    kind: StringKind


class PatientStrings:
    """The strings of some patients. Use `collect` or `load`."""

    def __init__(self, names: frozenset[bytes], windows: Hashes, factors: Hashes, shared: int = 0) -> None:
        self.names = names
        self.windows = windows
        """Sorted hashes of the windows of their notes."""
        self.factors = factors
        self.shared = shared
        """Names and windows that other records contain too. They are not searched for."""

    @property
    def texts_of_names(self) -> frozenset[str]:
        """The names as text."""
        return frozenset(name.decode("utf-8", "surrogatepass") for name in self.names)

    @classmethod
    def collect(cls, texts: Iterable[str], names: Iterable[str]) -> PatientStrings:
        """Return the strings of patients with these texts and names."""
        factors = np.frombuffer(secrets.token_bytes(8 * (_WORDS + 1)), dtype="<u8") | np.uint64(1)
        hashes = [np.empty(0, np.uint64)]
        for data in _join(texts):
            values = hash_windows(data, factors)
            starts = _find_word_starts(data)
            hashes.append(values[starts[starts < len(values)]])
        forms: set[bytes] = set()
        for name in names:
            forms.update(form for form in _list_forms(name) if len(form) >= SHORTEST)
        return cls(frozenset(forms), np.unique(np.concatenate(hashes)), factors)

    def without(self, texts: Iterable[str], names: Iterable[str] = ()) -> PatientStrings:
        """Return the strings that neither these texts nor these names of other records contain."""
        keep = np.ones(len(self.windows), bool)
        common: set[bytes] = set()
        for data in _join([*names]) if names else ():
            common.update(name for _, name in self._find_names(data))
        for data in _join(texts):
            matches = self._match_windows(hash_windows(data, self.factors))[1]
            keep[np.searchsorted(self.windows, matches)] = False
            common.update(name for _, name in self._find_names(data))
        shared = self.shared + len(common) + int((~keep).sum())
        return PatientStrings(self.names - common, self.windows[keep], self.factors, shared)

    def find(self, data: bytes) -> list[StringHit]:
        """Return every place of these bytes with a name or window of the patients, in order."""
        places, _ = self._match_windows(hash_windows(data, self.factors))
        hits = [StringHit(int(place), "text") for place in places]
        hits += [StringHit(place, "name") for place, _ in self._find_names(data)]
        return sorted(hits, key=lambda hit: hit.start)

    def is_in(self, text: str) -> bool:
        """Return whether a text contains a name or window of the patients."""
        return bool(self.find(text.encode("utf-8", "surrogatepass")))

    def save(self, path: Path) -> None:
        """Write the strings to a file for its owner alone."""
        with os.fdopen(open_private(path, os.O_WRONLY | os.O_TRUNC), "wb") as file:
            names = json.dumps(sorted(name.hex() for name in self.names))
            np.savez(file, names=np.array(names), windows=self.windows, factors=self.factors, shared=self.shared)
            file.flush()
            os.fsync(file.fileno())

    @classmethod
    def load(cls, path: Path) -> PatientStrings:
        """Return the strings of a file."""
        with np.load(path, allow_pickle=False) as values:
            names = frozenset(map(bytes.fromhex, json.loads(str(values["names"]))))
            return cls(names, values["windows"], values["factors"], int(values["shared"]))

    @cached_property
    def _window_table(self) -> npt.NDArray[np.bool_]:
        """Whether a window has a hash with these first bits."""
        table = np.zeros(1 << _BITS, bool)
        table[self.windows >> _SHIFT] = True
        return table

    @cached_property
    def _names_by_suffix(self) -> dict[bytes, list[bytes]]:
        """The names by their last bytes."""
        names: dict[bytes, list[bytes]] = {}
        for name in self.names:
            names.setdefault(name[-SHORTEST:], []).append(name)
        return names

    @cached_property
    def _suffix_table(self) -> npt.NDArray[np.bool_]:
        """Whether a name has last bytes with this hash."""
        table = np.zeros(1 << _BITS, bool)
        suffixes = np.frombuffer(b"".join(suffix + b"\0\0" for suffix in self._names_by_suffix), "<u8")
        table[(suffixes * _SUFFIX_FACTOR) >> _SHIFT] = True
        return table

    def _match_windows(self, values: Hashes) -> tuple[npt.NDArray[np.int64], Hashes]:
        """Return the places and values of the hashes that are among the windows."""
        if not len(self.windows):
            return np.empty(0, np.int64), np.empty(0, np.uint64)
        places = np.flatnonzero(self._window_table[values >> _SHIFT])
        candidates = values[places]
        index = np.minimum(np.searchsorted(self.windows, candidates), len(self.windows) - 1)
        exact = self.windows[index] == candidates
        return places[exact], candidates[exact]

    def _find_names(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield the start of each name, and the name."""
        if not self.names or len(data) < SHORTEST:
            return
        values = _view_words(data + b"\0\0") & _SUFFIX_MASK
        for place in np.flatnonzero(self._suffix_table[(values * _SUFFIX_FACTOR) >> _SHIFT]).tolist():
            end = place + SHORTEST
            for name in self._names_by_suffix.get(data[place:end], ()):
                start = end - len(name)
                if start >= 0 and data[start:end] == name and _stands_alone(data, start, end):
                    yield start, name


def hash_windows(data: bytes, factors: Hashes) -> Hashes:
    """Return the hash of the window that begins at each byte."""
    if len(data) < WINDOW:
        return np.empty(0, np.uint64)
    words = _view_words(data)
    mixed = words * factors[_WORDS]
    mixed ^= mixed >> _MIX
    length = len(data) - WINDOW + 1
    total = np.zeros(length, np.uint64)
    for number in range(_WORDS):
        total += mixed[8 * number : 8 * number + length] * factors[number]
    return total


def _view_words(data: bytes) -> Hashes:
    """Return the eight bytes at each place as a number."""
    words = np.empty(max(0, len(data) - 7), np.uint64)
    for offset in range(min(8, len(words))):
        count = (len(data) - offset) // 8
        words[offset::8] = np.frombuffer(data, "<u8", count, offset)
    return words


def _find_word_starts(data: bytes) -> npt.NDArray[np.int64]:
    """Return the place of each word's first letter, if the window of the word ends within the same text."""
    values = np.frombuffer(data, np.uint8)
    is_letter = (values > 127) | np.isin(values, np.frombuffer(_LETTERS, np.uint8))
    starts = is_letter.copy()
    starts[1:] &= ~is_letter[:-1]
    ends = np.concatenate([[0], np.cumsum(values == 0)])
    places = np.flatnonzero(starts)
    places = places[places + WINDOW <= len(values)]
    is_whole = ends[places + WINDOW] == ends[places]
    return np.asarray(places[is_whole], np.int64)


_LETTERS = bytes(byte for byte in range(128) if _LETTER.match(bytes([byte])))


def _join(texts: Iterable[str]) -> Iterator[bytes]:
    """Yield texts with zeros between them, a quarter of a megabyte at a time."""
    parts: list[bytes] = []
    size = 0
    for text in texts:
        part = text.encode("utf-8", "surrogatepass") + b"\0"
        parts.append(part)
        size += len(part)
        if size >= _BATCH:
            yield b"".join(parts)
            parts, size = [], 0
    if parts:
        yield b"".join(parts)


def _list_forms(name: str) -> Iterator[bytes]:
    """Yield a name as files of text and of JSON write it."""
    yield name.encode("utf-8", "surrogatepass")
    yield json.dumps(name)[1:-1].encode()


def _stands_alone(data: bytes, start: int, end: int) -> bool:
    """Return whether no letter or digit stands directly before and after a name."""
    if _LETTER.match(data[start : start + 1]) and _BEFORE.search(data[max(0, start - 2) : start]):
        return False
    return not (_LETTER.match(data[end - 1 : end]) and _AFTER.match(data[end : end + 2]))
