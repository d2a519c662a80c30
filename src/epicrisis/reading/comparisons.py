"""Find outcome, intervention and comparator in the words of a question.

read_comparison("What is the effect of aspirin compared with placebo on pre-eclampsia?")
# Comparison("pre-eclampsia", "aspirin", "placebo")
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_THAN = r"(?:compared (?:with|to)|in comparison (?:with|to)|versus|vs\.?|rather than|instead of|over|against|than)"
_CHANGE = (
    r"(?:change|affect|influence|improve|increase|decrease|reduce|lower|raise|lead to|cause|prevent|alter|"
    r"impact|shorten|prolong|worsen|"
    r"modify|protect against|help(?: with)?|treat)(?:s|d|ed)?"
)
_FORMS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        # Is O higher, lower, or the same when comparing I to C?
        r"^(?:(?:is|are|was|were|do|does|did)\s+)?(?:the\s+)?(?P<o>.{2,400}?)\s+(?:higher|lower|better|worse|more|less|greater)\b.{0,60}"
        r"\bwhen comparing\s+(?P<i>.{2,300}?)\s+(?:to|with|and)\s+(?P<c>.{1,300})$",
        # What is the effect of I (compared with C) on O?
        rf"^.{{0,40}}\b(?:effects?|impact|influence|efficacy|benefits?)\s+of\s+(?P<i>.{{2,300}}?)(?:,?\s+{_THAN}\s+(?P<c>.{{1,300}}?))?,?\s+"
        r"(?:on|for|in terms of|regarding)\s+(?P<o>.{2,400})$",
        # How does I (compared with C) change O (compared with C)?
        rf"^(?:how\s+|to what extent\s+|why\s+)?(?:does|do|did|can|could|will|would|is|"
        rf"are)\s+(?P<i>.{{2,300}}?)(?:,?\s+{_THAN}\s+(?P<c>.{{1,300}}?))?,?\s+"
        rf"(?:significantly\s+)?{_CHANGE}\s+(?:the\s+(?:risk|rate|incidence|odds|number)\s+of\s+)?(?P<o>.{{2,400}}?)(?:,?\s+{_THAN}\s+(?P<d>.{{1,300}}))?$",
        # Is O different (higher, better) with I or with C?
        r"^(?:is|are|was|were|does|do|did)\s+(?P<o>.{2,400}?)\s+(?:different|differ|higher|lower|better|worse|greater|fewer|less|more|changed|"
        r"reduced|increased|improved|decreased)\s+(?:with|in|after|under|between|for|by)\s+(?P<i>.{2,300}?)"
        rf"(?:,?\s+(?:or|and|{_THAN})\s+(?:with\s+|in\s+|after\s+)?(?P<c>.{{1,300}}))?$",
        # I versus C: O
        r"^(?P<i>.{2,300}?),?\s+(?:versus|vs\.?|or|compared (?:with|to))\s+(?P<c>.{1,300}?)\s*(?::|"
        r",?\s+for\s)\s*(?P<o>.{2,400})$",
    )
)
_MAX_LENGTH = 600


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
    for form in _FORMS:
        if match := form.match(text):
            found = match.groupdict()
            return Comparison(found["o"].strip(), found["i"].strip(), (found["c"] or found.get("d") or "").strip())
    return Comparison(text)
