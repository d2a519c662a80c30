"""Words of which a question names one and a sentence the other: the sentence is then about something else.

pairs = list_opposites("Does aspirin prevent preterm birth?")
count_opposites(pairs, "Birth at term was as frequent.")   # 1
"""

from __future__ import annotations

import re

_PAIRS = tuple(
    tuple(re.compile(rf"\b(?:{side})\b", re.IGNORECASE) for side in pair)
    for pair in (
        (r"pre-?term|premature(?:ly)?|before 3[2-7] weeks", r"(?:at )?(?:full )?term(?! (?:of|use|effects?|follow))"),
        (r"systolic|sbp", r"diastolic|dbp"),
        (r"ldl\S*|low-density", r"hdl\S*|high-density"),
        (r"men|males?", r"women|females?"),
        (r"child(?:ren|hood)?|infants?|p(?:a?e)diatric", r"adults?|elderly|older people"),
        (r"primary (?:out|end)\S*", r"secondary (?:out|end)\S*"),
        (r"low(?:er)?[ -]dose", r"high(?:er)?[ -]dose"),
        (r"type 1|type i", r"type 2|type ii"),
        (r"acute", r"chronic"),
        (r"short[ -]term|early", r"long[ -]term|late|delayed|deferred"),
        (r"left", r"right"),
        (r"upper", r"lower(?= (?:limb|extremit|leg|back|gastro|resp|tract|body))"),
        (r"in-?patients?", r"out-?patients?"),
        (r"pre-?operative(?:ly)?", r"post-?operative(?:ly)?"),
    )
)


def list_opposites(question: str) -> list[tuple[re.Pattern[str], re.Pattern[str]]]:
    """Return the pairs of which a question names one side alone: the other side, and the one that is asked."""
    pairs: list[tuple[re.Pattern[str], re.Pattern[str]]] = []
    for one, other in _PAIRS:
        asks, asks_other = one.search(question) is not None, other.search(question) is not None
        if asks != asks_other:
            pairs.append((other, one) if asks else (one, other))
    return pairs


def count_opposites(pairs: list[tuple[re.Pattern[str], re.Pattern[str]]], sentence: str) -> int:
    """Return of how many pairs a sentence names the other side alone."""
    return sum(other.search(sentence) is not None and asked.search(sentence) is None for other, asked in pairs)
