"""Find by rules what an abstract states of its study: how many took part, and who they were.

    find_sample_size("We randomised 1776 women at high risk.")  # StudyDetail("1776 women", 14, 24)

Both functions return words of the text with their place, so that a reader can look them up, or None. They never
calculate: sizes of several groups are not added up.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_PEOPLE = (
    r"(?:patients|participants|subjects|women|men|children|adults|infants|neonates|newborns|people|persons|individuals|"
    r"volunteers|adolescents|girls|boys|mothers|pregnancies|births|cases|residents|students|nurses|survivors|"
    r"veterans|recipients|respondents|eyes|trials|studies|physicians|workers|smokers|elders|athletes|donors|users)"
)
_NUMBER = r"(?<![\d.,/])\d{1,3}(?:[, \u00a0\u202f]\d{3}){1,2}(?!\d)|(?<![\d.,/])\d{2,7}(?![\d%]|[.,]\d| ?%)"
_COUNTED = re.compile(
    rf"(?:{_NUMBER})(?: (?!(?:of|and|or|to|than|for|with|in|were|was|had|mg|g|ml|per|days?|weeks?|months?|years?|"
    rf"hours?|minutes?|centres|centers|hospitals)\b)[a-z][a-z-]{{1,25}}){{0,4}}? {_PEOPLE}\b",
    re.IGNORECASE,
)
_EQUATION = re.compile(r"\bn ?= ?\d{1,3}(?:[, ]\d{3}){1,2}\b|\bn ?= ?\d{2,7}\b", re.IGNORECASE)
_SIZE = (
    rf"(?: (?:a total of|about|over|more than))? (?P<size>(?:{_NUMBER})"
    rf"(?: (?!(?:of|and|or|to|than|for|with|in|were|was|had|mg|g|ml|per|days?|weeks?|months?|years?|hours?|minutes?)\b)"
    rf"[a-z][a-z-]{{1,25}}){{0,4}}? {_PEOPLE})\b"
)
_RANDOMISED = re.compile(rf"\b(?:randomi[sz]ed|randomly assigned|enrol+ed|recruited){_SIZE}", re.IGNORECASE)
_ENROLLED = re.compile(
    rf"\b(?:included|assigned|studied|compared|examined|analy[sz]ed|involving|followed|in|of|among|"
    rf"tested[^.]{{1,60}}? in|total of){_SIZE}",
    re.IGNORECASE,
)
_OTHERS_BEFORE = re.compile(
    r"\b(?:screened|excluded|invited|(?:previous|prior|earlier) (?:[\w-]+ ){0,2}(?:trials?|study|studies|reviews?|"
    r"cohorts?) (?:of|in|with|among))(?: [a-z]+){0,3} $",
    re.IGNORECASE,
)
_OTHERS_AFTER = re.compile(
    r"(?: [\w-]+){0,3}? (?:dropped|withdrew|died|discontinued|(?:was|were) (?:excluded|lost|withdrawn|screened)|"
    r"worldwide|annually|(?:a|each|every|per) year)\b",
    re.IGNORECASE,
)
"""Words around a number of people that did not take part to the end, or in another study."""
_GROUP_BEFORE = re.compile(r"\b(?:groups?|arms?|each)[ (]{1,2}$", re.IGNORECASE)
_GROUP_AFTER = re.compile(
    r"\) (?:or|versus|vs)\b| (?:each|per group|per arm|in each)\b|"
    r"\)?[^.;:\d]{0,60}?\b(?:received|given|got|took|to|on|treated with) [^.;:\d]{1,60}?\b"
    r"(?:and|versus|vs\.?|while|whereas) \d{2,7}(?: | ?\()"
    r"(?!\d|(?:mg|g|kg|ml|mcg|units?|iu|percent|per|times|sessions?|"
    r"doses?|tablets?|minutes?|min|h|hours?|days?|weeks?|months?|years?|centres?|centers?|hospitals?|sites?)\b)",
    re.IGNORECASE,
)
"""Words around the size of one group: `(n=71) received metformin and 72 placebo`, `(n=71) or placebo (n=72)`."""
_NEXT_GROUP = re.compile(r"\)?[^.;:\d]{0,60}?[ (]n ?= ?\d", re.IGNORECASE)
_REACH = 80
"""Characters before a number in which such words stand."""
_POPULATION = re.compile(
    rf"\b(?P<who>(?:[a-z-]{{1,25}}(?:al|ive|ic|ese|ant|ent|der|thy|ult|term|derly|oung) ){{0,2}}{_PEOPLE} "
    rf"(?:with|without|who (?:had|have|were|are)|aged|undergoing|diagnosed|hospitali[sz]ed|suffering|awaiting|in|at) "
    rf"[^.;:()]{{3,90}})",
    re.IGNORECASE,
)
_POPULATION_END = re.compile(
    r",| (?:were|was|it|is|are|had been|has|have|should|might|and (?:compared|randomi[sz]ed|were|\d+)|compared|"
    r"received|receiv\w+|versus|vs|from|by|seen|confined|selected|alike|that|who(?! (?:had|have|were|are)\b)|according|"
    r"in (?:19|20)\d\d)\b| to (?!\d)| with \d"
)


@dataclass(frozen=True, slots=True)
class StudyDetail:
    """Words of a text about its study, with their place in it in characters."""

    text: str
    start: int
    end: int


def find_sample_size(text: str) -> StudyDetail | None:
    """Return the words that state how many took part, such as `1776 women`, or None.

    None too if the number is that of one group. Prefer a number after words of randomisation, then of enrolment, then
    the first count of people, then `n = 120`.
    """
    for pattern in (_RANDOMISED, _ENROLLED, _COUNTED, _EQUATION):
        for match in pattern.finditer(text):
            group = "size" if "size" in pattern.groupindex else 0
            start, end = match.span(group)
            before = text[max(0, start - _REACH) : start]
            is_group = _GROUP_AFTER.match(text, end) is not None
            if pattern is _EQUATION:
                is_group |= bool(_GROUP_BEFORE.search(before) or _NEXT_GROUP.match(text, end))
            if is_group:
                return None
            is_other = _OTHERS_BEFORE.search(before) or _OTHERS_AFTER.match(text, end)
            if not is_other:
                return StudyDetail(match[group], start, end)
    return None


def find_population(text: str) -> StudyDetail | None:
    """Return the words that describe who was studied, such as `patients with heart failure`, or None.

    The words right after the sample size come first, then the first description in the text.
    """
    size = find_sample_size(text)
    match = None
    if size is not None:
        match = _POPULATION.match(text, max(text.rfind(" ", size.start, size.end) + 1, size.start))
    match = match or _POPULATION.search(text)
    if match is None:
        return None
    words = match["who"]
    if end := _POPULATION_END.search(words):
        words = words[: end.start()]
    words = words.rstrip()
    start = match.start("who")
    return StudyDetail(words, start, start + len(words)) if len(words.split()) > 2 else None
