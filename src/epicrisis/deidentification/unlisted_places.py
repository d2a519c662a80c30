"""Places and employers that only a preposition and their capitals tell: `foreman at Magpie Recycling`, `near Yreka`.

A single word is behind a word such as `near`, and neither an ordinary word nor a state. Several words must not all be
ordinary. None may be a ward, a disease or a treatment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from epicrisis.deidentification.eponyms import CLINICAL_NOUNS, EPONYMS, ORDINARY_WORDS, WARDS
from epicrisis.deidentification.name_lists import LOWER, UPPER
from epicrisis.deidentification.patterns import STATES
from epicrisis.deidentification.unlisted_names import CLINICAL_ENDING, DOSE, is_frequent

_WORD = rf"(?:['\u2019]s-)?[{UPPER}][{LOWER}][{UPPER}{LOWER}'\u2019]{{0,24}}(?:-[{UPPER}{LOWER}'\u2019]{{1,20}}){{0,3}}"
_LINK = r"(?:(?:of|and|&|or|upon|on|du|de|de la|la|le|am|an der|sur|del|los|las|van|der)[ ])?"
PLACE = re.compile(
    r"(?<![^\W_])(?P<preposition>at|by|for|from|in|near|outside|around|through|via|with|to|of)[ ](?:the[ ])?"
    rf"(?P<place>{_WORD}(?:[ ]{_LINK}{_WORD}){{0,4}})(?![^\W_]|['\u2019]s)(?:[ ](?P<next>[^\W\d_]{{1,30}}))?"
)
_CAPITAL = re.compile(_WORD)
_IN_PLACE = frozenset(("in", "at", "near", "outside", "around"))
_OF_EMPLOYERS = frozenset(("at", "by", "for", "from", "near", "through", "in", "to", "of"))

_NO_PLACES = frozenset(
    "group groups table figure phase stage step cohort arm panel chapter section appendix grade level type english "  # noqa: SIM905
    "spanish chinese arabic russian portuguese italian caucasian caucasians african asian western eastern".split()
)


def find_unlisted_places(text: str) -> Iterator[tuple[int, int]]:
    """Yield start and end of places and employers. They may be people too."""
    for match in PLACE.finditer(text):
        words = [word.casefold() for word in _CAPITAL.findall(match["place"])]
        is_before_noun = (match["next"] or "").casefold() in CLINICAL_NOUNS
        if is_before_noun or DOSE.match(text, match.end("place")) or _are_clinical(words):
            continue
        if len(words) == 1:
            is_place = match["preposition"] in _IN_PLACE and words[0] not in ORDINARY_WORDS | _NO_PLACES | STATES
        else:
            is_place = match["preposition"] in _OF_EMPLOYERS and not ORDINARY_WORDS.issuperset(words)
        if is_place:
            yield match.span("place")


def _are_clinical(words: Sequence[str]) -> bool:
    """Return whether one of the words is a ward or the like, all are eponyms, or the last one ends as a drug does."""
    if any(word in WARDS or word in CLINICAL_NOUNS for word in words) or EPONYMS.issuperset(words):
        return True
    return not is_frequent(words[-1]) and CLINICAL_ENDING.search(words[-1]) is not None
