"""The kinds of identifiers, and where they are in a text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter
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


def merge_identifiers(identifiers: Iterable[Identifier]) -> list[Identifier]:
    """Return identifiers that do not overlap, in order.

    What only the weaker of two covers becomes an identifier of its own, unless a date divides a run of digits.
    """
    chosen: list[Identifier] = []
    for identifier in sorted(identifiers, key=_rank):
        pieces = [(identifier.start, identifier.end)]
        for other in chosen:
            if other.kind == "date" and identifier.kind == "other-id" and _overlap(identifier, other):
                pieces = []
            pieces = _subtract(pieces, other)
        chosen += [Identifier(start, end, identifier.kind) for start, end in pieces]
    return sorted(chosen, key=attrgetter("start"))


def _rank(identifier: Identifier) -> tuple[bool, int, bool, int]:
    is_vague = identifier.kind == "other-id"
    return identifier.kind not in _FIRST, identifier.start - identifier.end, is_vague, identifier.start


def _overlap(first: Identifier, second: Identifier) -> bool:
    return first.start < second.end and second.start < first.end


def _subtract(pieces: list[tuple[int, int]], other: Identifier) -> list[tuple[int, int]]:
    """Return the parts of these pieces outside the other identifier."""
    remaining: list[tuple[int, int]] = []
    for start, end in pieces:
        if other.end <= start or end <= other.start:
            remaining.append((start, end))
            continue
        if start < other.start:
            remaining.append((start, other.start))
        if other.end < end:
            remaining.append((other.end, end))
    return remaining
