"""Places and employers that only their capitals tell: `joined Magpie Recycling`, `near Yreka`.

A single word is behind a word such as `near`, and neither an ordinary word nor a state. Several words must not all be
ordinary. None may be a ward, a disease or a treatment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from epicrisis.privacy.deidentification.eponyms import BRANDS, CLINICAL_NOUNS, EPONYMS, ORDINARY_WORDS, WARDS
from epicrisis.privacy.deidentification.name_lists import LOWER, UPPER
from epicrisis.privacy.deidentification.patterns import STATES
from epicrisis.privacy.deidentification.unlisted_names import CLINICAL_ENDING, DOSE, is_frequent

_WORD = rf"(?:['\u2019]s-)?[{UPPER}][{LOWER}][{UPPER}{LOWER}'\u2019]{{0,24}}(?:-[{UPPER}{LOWER}'\u2019]{{1,20}}){{0,3}}"
_LINK = r"(?:(?:of|and|&|or|upon|on|du|de|de la|la|le|am|an der|sur|del|los|las|van|der)[ ])?"
PLACE = re.compile(
    rf"(?<![^\W_])(?P<before>[{LOWER}]{{1,20}})[ ](?:the[ ])?(?P<place>{_WORD}(?:[ ]{_LINK}{_WORD}){{0,4}})"
    r"(?![^\W_]|['\u2019]s)(?:[ ](?P<next>[^\W\d_]{1,30}))?"
)
_CAPITAL = re.compile(_WORD)
_BEFORE_TOWN = frozenset("in at near outside around to from off toward towards past via visited visiting".split())  # noqa: SIM905
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
            is_place = match["before"] in _BEFORE_TOWN and words[0] not in ORDINARY_WORDS | _NO_PLACES | STATES
        else:
            is_place = not ORDINARY_WORDS.issuperset(words)
        if is_place:
            yield match.span("place")


def _are_clinical(words: Sequence[str]) -> bool:
    """Return whether one of the words is a ward or the like, all are eponyms, or the last one ends as a drug does."""
    if any(word in WARDS or word in CLINICAL_NOUNS or word in BRANDS for word in words) or EPONYMS.issuperset(words):
        return True
    return not is_frequent(words[-1]) and CLINICAL_ENDING.search(words[-1]) is not None
