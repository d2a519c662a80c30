"""What a line of a note asserts of a problem: that it is present, absent, uncertain, or a relative's.

    assess_line("h/o DVT (2015, resolved)")   # Assertion("present", "DVT")
    assess_line("Mother with breast cancer")  # Assertion("family", "breast cancer")

The method is ConText (Harkema et al. 2009): words such as `denies` concern what follows, others what comes before, up
to words such as `but`. The rules are in `assertion_rules.toml`. docs/design/records.md says what they reach.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal, TypeAlias

AssertionStatus: TypeAlias = Literal["present", "absent", "uncertain", "family", "other"]
Span: TypeAlias = tuple[int, int]

_BULLET = re.compile(r"[\s\-*•#]*+(?:\d{1,2}[.)])?\s*+")
_PART = re.compile(r"[,:;()|]|\s-{1,3}\s|\s[\u2013\u2014]\s|(?<=\w\w)\.(?=\s|$)")
_TAIL = re.compile(
    r"(?<!\s)\s++(?:(?:in|since|from|on|at)\s(?:\d{1,2}/)?\d{4}|(?:19|20)\d{2}|x\s?\d+|w/|since|s/p|on(?! chronic)|"
    r"status post|at age|in (?:the )?setting|c/b|dx'?d|but|which|that|who|after|completed|treated|diagnosed|currently)"
    r"(?=\s|$).*|(?<!\s)\s++\d{1,2}/\d{2,4}.*"
)
"""What follows the name of a problem: a date, a procedure, a treatment."""
_AFTER = re.compile(r"(?i)\b(?:after|following)\b")
_DISEASE = re.compile(r"(?i)\b(?:rejection|stenosis|infection|failure|complication|leak|phenomenon)s?\b")
_OF_ENCOUNTERS = ("encounter", "observation")
"""How names begin that are of a visit, whatever it found."""
_ORDER: tuple[AssertionStatus, ...] = ("family", "absent", "uncertain")
_ASSERTED: Mapping[str, AssertionStatus] = {
    "absent": "absent",
    "uncertain": "uncertain",
    "hypothetical": "uncertain",
    "family": "family",
    "historical": "present",
}


@dataclass(frozen=True, slots=True)
class Assertion:
    """What a line says, and of which problem."""

    status: AssertionStatus
    """`other`: the line names no problem."""
    name: str
    """The problem in the line's words, without status, dates and details; empty if none is named."""


@dataclass(frozen=True, slots=True)
class _Rules:
    modifiers: Sequence[tuple[str, str, re.Pattern[str]]]
    """(category, direction, pattern) of each rule."""
    empty: re.Pattern[str]
    """Words that name no problem by themselves."""
    other: re.Pattern[str]
    """A word of a line that names no problem."""
    beginning: re.Pattern[str]
    """How the name of a structured problem begins if it is a statement about it."""
    ending: re.Pattern[str]
    """How such a name ends."""
    family: re.Pattern[str]
    """Words of such a name that speak of relatives."""


@dataclass(frozen=True, slots=True)
class _Modifier:
    category: str
    direction: str
    start: int
    end: int


def strip_bullet(line: str) -> str:
    """Return a line without the bullet or number at its beginning."""
    return line[_BULLET.match(line).end() :]  # type: ignore[union-attr]


def assess_line(line: str) -> Assertion:
    """Return what one line of a problem list, or one short sentence, asserts."""
    text = strip_bullet(line).rstrip()
    modifiers = _find_modifiers(text)
    target = _find_target(text, modifiers)
    if target is None:
        return Assertion("other", "")
    name = " ".join(_TAIL.sub("", text[slice(*target)]).split()).strip(" .,-")
    asserted = {_ASSERTED[modifier.category] for modifier in modifiers if _concerns(modifier, target, modifiers, text)}
    for status in _ORDER:
        if status in asserted:
            return Assertion(status, name)
    # A procedure or drug before the problem, or in its name, is not one; after it, it is a detail.
    other = _load_rules().other
    has_other = other.search(name) is not None or other.search(text, 0, target[0]) is not None
    is_other = has_other and not _AFTER.search(text) and not _DISEASE.search(name)
    return Assertion("other", "") if is_other else Assertion("present", name)


def assess_name(name: str) -> Assertion:
    """Return what the name of a structured problem asserts: `Rule out gout` is uncertain, `Absence of kidney` present.

    It is `present` unless a statement begins or ends it, since names of problems have words of the rules in them.
    """
    rules = _load_rules()
    if not (rules.beginning.match(name) or _ends_as_statement(name)):
        return Assertion("present", name)
    assertion = assess_line(name)
    if assertion.status == "family" and not rules.family.search(name):
        # "Suspected child abuse" is of no relative.
        return Assertion("uncertain", assertion.name)
    return assertion


def _ends_as_statement(name: str) -> bool:
    """Return whether a name ends with a statement about it; in `Chest pain, MI ruled out` it is about another part."""
    ending = _load_rules().ending.search(name)
    if ending is None or name.lower().startswith(_OF_ENCOUNTERS):
        return False
    parts = [part.strip(" -") for part in _PART.split(name[: ending.start()])]
    return not parts[-1] or not any(parts[:-1])


def _find_modifiers(text: str) -> Sequence[_Modifier]:
    """Return the words of rules, longer ones before those within them, in order."""
    candidates = [
        _Modifier(category, direction, *match.span())
        for category, direction, pattern in _load_rules().modifiers
        for match in pattern.finditer(text)
    ]
    # Of rules for the same words the own one counts.
    candidates.sort(key=lambda modifier: modifier.start - modifier.end)
    modifiers: list[_Modifier] = []
    for candidate in candidates:
        if all(candidate.end <= other.start or candidate.start >= other.end for other in modifiers):
            modifiers.append(candidate)
    return sorted(modifiers, key=lambda modifier: modifier.start)


def _find_target(text: str, modifiers: Sequence[_Modifier]) -> Span | None:
    """Return the first stretch of the text that is neither words of rules, punctuation, nor words that name nothing."""
    ends = [(match.start(), match.end()) for match in _PART.finditer(text)]
    ends += [(modifier.start, modifier.end) for modifier in modifiers]
    start = 0
    for stop, following in [*sorted(ends), (len(text), len(text))]:
        if stop > start:
            words = _load_rules().empty.match(text, start, stop)
            begin = words.end() if words else start
            if any(map(str.isalpha, text[begin:stop])):
                return begin, stop
        start = max(start, following)
    return None


def _concerns(modifier: _Modifier, target: Span, modifiers: Sequence[_Modifier], text: str) -> bool:
    """Return whether the modifier's scope covers the target: what follows it or comes before it, up to a stop."""
    if modifier.direction == "stop":
        return False
    before = modifier.end <= target[0]
    between = (modifier.end, target[0]) if before else (target[1], modifier.start)
    if any(other.direction == "stop" and between[0] <= other.start < between[1] for other in modifiers):
        return False
    if before:
        return modifier.direction != "backward"
    follows_colon = re.fullmatch(r"\s*:\s*", text[target[1] : modifier.start]) is not None
    return modifier.direction != "forward" or follows_colon or _is_alone(modifier, text)


def _is_alone(modifier: _Modifier, text: str) -> bool:
    """Return whether nothing else stands in the modifier's part of the line: `lupus, ruled out` concerns lupus."""
    starts = [match.end() for match in _PART.finditer(text, 0, modifier.start)]
    if not starts:
        return False
    following = _PART.search(text, modifier.end)
    rest = text[starts[-1] : modifier.start] + text[modifier.end : following.start() if following else None]
    return not rest.strip() or _load_rules().empty.fullmatch(rest) is not None


@cache
def _load_rules() -> _Rules:
    rules = tomllib.loads(
        resources.files("epicrisis.corpus.records").joinpath("assertion_rules.toml").read_text("utf-8")
    )
    return _Rules(
        tuple(_compile_rules(rules)),
        re.compile(rf"(?i)(?:(?:{'|'.join(rules['words']['empty'])})\b|\W)+"),
        re.compile(rf"(?i)\b(?:{'|'.join(rules['words']['other'])})\b"),
        re.compile(rf"(?i)(?:{'|'.join((*rules['names']['family'], *rules['names']['others']))})(?!\w)|\?"),
        re.compile(
            rf"(?i)(?<!\w)(?:{'|'.join((*rules['names']['family_ends'], *rules['names']['ends']))})\W*$|\?[\s)\]]*$"
        ),
        re.compile(
            rf"(?i)\b(?:{'|'.join(rules['names']['family'])})(?!\w)|(?<!\w)(?:{'|'.join(rules['names']['family_ends'])})\W*$"
        ),
    )


def _compile_rules(sources: Mapping[str, Any]) -> Iterator[tuple[str, str, re.Pattern[str]]]:
    for source in (sources["own"], sources["medspacy"]):
        for category, directions in source.items():
            for direction, rules in directions.items():
                words = "|".join(rule.replace(" ", r"\s+") for rule in sorted(rules, key=len, reverse=True))
                yield category, direction, re.compile(rf"(?i)(?:(?<![\w-])|(?=\W))(?:{words})(?:(?<=\W)|(?![\w-]))")
