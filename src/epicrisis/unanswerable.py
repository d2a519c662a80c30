"""Which questions does the record not answer? Those without a right answer, and those whose right option says so."""

from __future__ import annotations

import re
from collections.abc import Mapping

_RECORD = r"""(?:the\s+)?(?:(?:patient['’]s|provided|given|available|medical|clinical|health|hospital)\s+)*
    (?:records?|notes?|documents?|documentation|charts?|reports?|text|information|context|discharge\s+summar(?:y|ies))
    (?:\s+(?:provided|given|available))?"""
_SUBJECT = r"(?:it|this|that|the(?:\s+[\w-]+){1,4})\s+"
_UNSAID = re.compile(
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
"""An option that says that the record does not hold the answer: not one that says that something is not there."""


def is_unanswerable(gold: str | None, options: Mapping[str, str]) -> bool:
    """Whether no note answers it: `gold` is empty, or the letter of an option that says that the record does not tell.
    What nobody knows (`None`) is not."""
    return gold is not None and (gold == "" or _UNSAID.fullmatch(options.get(gold, "")) is not None)
