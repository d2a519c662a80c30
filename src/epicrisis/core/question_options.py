"""Options of a question: equal options, chance accuracy, and options that say the record has no answer."""

from __future__ import annotations

import re
from collections.abc import Mapping

_RECORD = r"""(?:the\s+)?(?:(?:patient['’]s|provided|given|available|medical|clinical|health|hospital)\s+)*
    (?:records?|notes?|documents?|documentation|charts?|reports?|text|information|context|discharge\s+summar(?:y|ies))
    (?:\s+(?:provided|given|available))?"""
_SUBJECT = r"(?:it|this|that|the(?:\s+[\w-]+){1,4})\s+"
_NOT_IN_RECORD = re.compile(
    rf"""(?ix) \s* (?:[a-e][.):]\s+)?
    (?: {_RECORD} \s+ (?:do(?:es)?\s+not|do(?:es)?n['’]t) \s+
            (?:say|tell|state|mention|specify|document|indicate)
            (?:\s+(?:so|it|this|that|(?:why|when|what|which|how|whether|who|where)\b.*))?
      | (?:{_SUBJECT}(?:is|was|are|were)\s+)?
            not\s+(?:documented|stated|mentioned|specified|recorded|said|given|found|available) \s+ in \s+ {_RECORD}
      | (?:{_SUBJECT})?
            (?:cannot|can\s+not|can['’]t|could\s+not)\s+be\s+(?:determined|answered|established|known|told|inferred)
            \s+ (?:from|based\s+on|with|by) \s+ {_RECORD}
    ) \W*"""
)
"""Matches an option that says the record does not contain the answer, but not one that denies a finding."""


def is_unanswerable(gold: str | None, options: Mapping[str, str]) -> bool:
    """Return whether the record does not answer the question.

    True if `gold` is empty, or the letter of an option that says so. False if `gold` is None, for it is unknown then.
    """
    return gold is not None and (gold == "" or _NOT_IN_RECORD.fullmatch(options.get(gold, "")) is not None)


def first_same_option(options: Mapping[str, str], letter: str) -> str:
    """Return the first letter whose option equals this letter's option, blanks aside. Often it is the letter itself.

    Some questions of published exams have the same text under two letters. Either letter is then the same answer.
    """
    words = options.get(letter, "").split()
    for other, text in options.items():
        if text.split() == words:
            return other
    return letter


def is_same_option(options: Mapping[str, str], one: str | None, other: str | None) -> bool:
    """Return whether two letters are equal or have equal options. None equals only None."""
    if one is None or other is None:
        return one is other
    return first_same_option(options, one) == first_same_option(options, other)


def chance_accuracy(options: Mapping[str, str], gold: str | None) -> float | None:
    """Return the share of right options, counting one if `gold` is unknown; None without options."""
    if not options:
        return None
    right = 0
    for letter in options:
        right += is_same_option(options, letter, gold)
    return max(right, 1) / len(options)
