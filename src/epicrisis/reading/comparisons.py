"""Find outcome, intervention and comparator in the words of a question.

read_comparison("What is the effect of aspirin compared with placebo on pre-eclampsia?")
# Comparison("pre-eclampsia", "aspirin", "placebo")
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_THAN = r"(?:compared (?:with|to)|in comparison (?:with|to)|versus|vs\.?|rather than|instead of|over|against|than)"
_AGAINST = re.compile(rf",? {_THAN} ", re.IGNORECASE)
_COMPARING = re.compile(r" when comparing ", re.IGNORECASE)
_AND = re.compile(r" (?:to|with|and) ", re.IGNORECASE)
_HIGHER = re.compile(r" (?:higher|lower|better|worse|more|less|greater)\b", re.IGNORECASE)
_ASKS = re.compile(r"(?:is|are|was|were|do|does|did) (?:the )?", re.IGNORECASE)
_EFFECT_OF = re.compile(r"\b(?:effects?|impact|influence|efficacy|benefits?) of ", re.IGNORECASE)
_ON = re.compile(r",? (?:on|for|in terms of|regarding) ", re.IGNORECASE)
_OPENING = re.compile(
    r"(?:how |to what extent |why )?(?:does|do|did|can|could|will|would|is|are) ",
    re.IGNORECASE,
)
_CHANGE = re.compile(
    r",? (?:significantly )?(?:change|affect|influence|improve|increase|decrease|reduce|lower|raise|lead to|cause|"
    r"prevent|alter|impact|shorten|prolong|worsen|modify|protect against|help(?: with)?|treat)(?:s|d|ed)? "
    r"(?:the (?:risk|rate|incidence|odds|number) of )?",
    re.IGNORECASE,
)
_DIFFERENT = re.compile(
    r" (?:different|differ|higher|lower|better|worse|greater|fewer|less|more|changed|reduced|increased|"
    r"improved|decreased) (?:with|in|after|under|between|for|by) ",
    re.IGNORECASE,
)
_OR = re.compile(rf",? (?:or|and|{_THAN}) (?:(?:with|in|after) )?", re.IGNORECASE)
_VERSUS = re.compile(r",? (?:versus|vs\.?|or|compared (?:with|to)) ", re.IGNORECASE)
_COLON = re.compile(r" ?(?:: ?|,? for )", re.IGNORECASE)
_MAX_LENGTH = 600
_FARTHEST = 40
"""Characters before `effect of`."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a question compares. The outcome is the whole question where no comparison is found."""

    outcome: str = ""
    intervention: str = ""
    comparator: str = ""


def read_comparison(question: str) -> Comparison:
    """Return the parts of a question in its own words."""
    text = " ".join(question.split()).strip(" ?.")
    if len(text) > _MAX_LENGTH:
        return Comparison(text)
    for read in (_read_comparing, _read_effect_of, _read_change, _read_difference, _read_versus):
        outcome, intervention, comparator = read(text)
        if outcome and intervention:
            return Comparison(outcome.strip(), intervention.strip(), comparator.strip())
    return Comparison(text)


_Parts = tuple[str, str, str]
_NOTHING = "", "", ""


def _split(pattern: re.Pattern[str], text: str) -> tuple[str, str]:
    """Return the text before and after the first match; the second is empty without one."""
    match = pattern.search(text, 1)
    return (text, "") if match is None else (text[: match.start()], text[match.end() :])


def _read_comparing(text: str) -> _Parts:
    """Is O higher, lower, or the same when comparing I to C?"""
    before, sides = _split(_COMPARING, text)
    opening = _ASKS.match(before)
    outcome, _ = _split(_HIGHER, before[opening.end() :] if opening else before)
    return (outcome, *_split(_AND, sides)) if sides else _NOTHING


def _read_effect_of(text: str) -> _Parts:
    """What is the effect of I (compared with C) on O?"""
    effect = _EFFECT_OF.search(text, 0, _FARTHEST + len("influence of "))
    subject, outcome = _split(_ON, text[effect.end() :]) if effect else _NOTHING[:2]
    return (outcome, *_split(_AGAINST, subject))


def _read_change(text: str) -> _Parts:
    """How does I (compared with C) change O (compared with C)?"""
    opening = _OPENING.match(text)
    subject, rest = _split(_CHANGE, text[opening.end() :]) if opening else _NOTHING[:2]
    intervention, comparator = _split(_AGAINST, subject)
    outcome, other = _split(_AGAINST, rest)
    return outcome, intervention, comparator or other


def _read_difference(text: str) -> _Parts:
    """Is O different (higher, better) with I or with C?"""
    opening = _ASKS.match(text)
    outcome, sides = _split(_DIFFERENT, text[opening.end() :]) if opening else _NOTHING[:2]
    return (outcome, *_split(_OR, sides))


def _read_versus(text: str) -> _Parts:
    """I versus C: O."""
    intervention, rest = _split(_VERSUS, text)
    comparator, outcome = _split(_COLON, rest)
    return outcome, intervention, comparator
