"""Words of which a question names one and a sentence the other: the sentence is then about something else.

pairs = list_opposites("Does aspirin prevent preterm birth?")
count_opposites(pairs, "Birth at term was as frequent.")   # 1
names_other_kind(read_kinds("Does vitamin C prevent falls?"), "Vitamin D prevented falls.")   # True
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping

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
        (r"acute", r"chronic"),
        (r"short[ -]term|early", r"long[ -]term|late|delayed|deferred"),
        (r"left", r"right"),
        (r"upper", r"lower(?= (?:limb|extremit|leg|back|gastro|resp|tract|body))"),
        (r"in-?patients?", r"out-?patients?"),
        (r"pre-?operative(?:ly)?", r"post-?operative(?:ly)?"),
    )
)

_OF_KINDS = "vitamin|hepatitis|influenza|interleukin|il|factor|type|stage|grade|omega|cox|hiv|hpv|hsv|brca"
"""Names that a letter or a number behind them makes to different ones."""
_KIND = r"(?:A|[B-Kb-k](?:-?\d{1,2})?|\d{1,2}|[IVXivx]{1,4})(?![^\W_])"
_KINDS = re.compile(rf"\b((?i:{_OF_KINDS}))s?[ -]?({_KIND}(?:(?:,? (?:and|or) |, ?| ?[+/-] ?){_KIND}){{0,5}})")
_ONE_KIND = re.compile(_KIND)
_ROMAN = {
    "i": "1",
    "ii": "2",
    "iii": "3",
    "iv": "4",
    "v": "5",
    "vi": "6",
    "vii": "7",
    "viii": "8",
    "ix": "9",
    "x": "10",
}


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


def read_kinds(text: str) -> Mapping[str, frozenset[str]]:
    """Return the kinds that a text names: `vitamins C and B-12, hepatitis B` has vitamin c and b12, and hepatitis b."""
    kinds: dict[str, set[str]] = defaultdict(set)
    for match in _KINDS.finditer(text):
        name = match[1].lower()
        for kind in _ONE_KIND.findall(match[2]):
            kind = kind.lower().replace("-", "")
            if name == "vitamin" and kind[0] in "dk":
                # Vitamin D3 is a vitamin D.
                kind = kind[0]
            kinds["interleukin" if name == "il" else name].add(_ROMAN.get(kind, kind))
    return {name: frozenset(found) for name, found in kinds.items()}


def names_other_kind(asked: Mapping[str, frozenset[str]], sentence: str, title: str = "") -> bool:
    """Return whether a sentence names only other kinds than the asked, or its title does where it names none itself."""
    if not asked:
        return False
    of_sentence, of_title = read_kinds(sentence), read_kinds(title)
    for name, kinds in asked.items():
        found = of_sentence.get(name) or of_title.get(name)
        if found and kinds.isdisjoint(found):
            return True
    return False
