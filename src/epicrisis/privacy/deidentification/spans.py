"""The kinds of identifiers, and where they are in a text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

IdentifierKind: TypeAlias = Literal[
    "name",
    "date",
    "age",
    "place",
    "phone",
    "fax",
    "email",
    "ssn",
    "record-number",
    "health-plan",
    "account",
    "licence",
    "vehicle",
    "device",
    "url",
    "ip",
    "other-id",
]
"""The kinds that HIPAA's Safe Harbor rule lists, 45 CFR 164.514(b)(2)(i). Its two others, biometric identifiers and
photographs, are not text."""

_FIRST: tuple[IdentifierKind, ...] = ("date", "email", "url", "ip")
"""Kinds that win over any other that overlaps them. Of the others the longer identifier wins."""


@dataclass(frozen=True, slots=True)
class Identifier:
    """An identifier in a text, at `text[start:end]`."""

    start: int
    end: int
    kind: IdentifierKind


_BY_DATE, _BY_OTHER = 1, 2
_MIN_REST = 7
"""Characters of a number beside a date, such as `54862462 09/14/2020`. Fewer are a time of day."""


def merge_identifiers(identifiers: Iterable[Identifier]) -> list[Identifier]:
    """Return identifiers without overlaps, in order.

    The part that only the weaker of two covers becomes a separate identifier, except a few digits next to a date.
    """
    ranked = sorted(identifiers, key=_rank)
    marks = bytearray(max((identifier.end for identifier in ranked), default=0))
    chosen: list[Identifier] = []
    for identifier in ranked:
        has_date = _BY_DATE in marks[identifier.start : identifier.end]
        for start, end in _list_free(marks, identifier.start, identifier.end):
            if has_date and identifier.kind == "other-id" and end - start < _MIN_REST:
                continue
            chosen.append(Identifier(start, end, identifier.kind))
            mark = _BY_DATE if identifier.kind == "date" else _BY_OTHER
            marks[start:end] = bytes([mark]) * (end - start)
    return sorted(chosen, key=lambda item: item.start)


def _rank(identifier: Identifier) -> tuple[bool, int, bool, int]:
    is_vague = identifier.kind == "other-id"
    return identifier.kind not in _FIRST, identifier.start - identifier.end, is_vague, identifier.start


def _list_free(marks: bytearray, start: int, end: int) -> list[tuple[int, int]]:
    """Return start and end of each run of zeros in this range."""
    runs: list[tuple[int, int]] = []
    place = start
    while place < end:
        stop = place
        while stop < end and not marks[stop]:
            stop += 1
        if stop > place:
            runs.append((place, stop))
        place = stop + 1
    return runs
