"""Names that the words around them do not tell: on no list, in lower case, glued together, or made of ordinary words.

A word is unknown if neither a dictionary of English nor a rule for clinical terms has it. One unknown word is as likely
a drug; two of them with capitals, or one beside an initial or a listed name, are a name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence, Set
from functools import lru_cache
from importlib.resources import files

from epicrisis.privacy.deidentification.common_words import COMMON_WORDS
from epicrisis.privacy.deidentification.eponyms import BRANDS, CLINICAL_NOUNS, EPONYMS, ORDINARY_WORDS, WARDS
from epicrisis.privacy.deidentification.name_lists import LOWER, UPPER, read_name_lists
from epicrisis.privacy.deidentification.patterns import STATES

_DICTIONARY = "frequency_dictionary_en_82_765.txt"
_UPPER = f"[{UPPER}]"
_LOWER = f"[{LOWER}]"
_TITLE_WORD = (
    rf"(?:{_UPPER}['\u2019-])?{_UPPER}{_LOWER}{{1,24}}(?:['\u2019]{_LOWER}{{2,20}}|{_UPPER}{_LOWER}{{1,20}})?"
    rf"(?:-{_UPPER}?{_LOWER}{{1,24}}){{0,2}}"
)
_CAPITAL_WORD = rf"[{UPPER}'\u2019]{{2,30}}(?:-[{UPPER}]{{2,30}})?"
_END = r"(?![^\W_])"
_START = r"(?<![^\W_])(?<![^\W_]['\u2019-])"
PAIR = re.compile(
    rf"{_START}(?P<first>{_TITLE_WORD})(?=(?P<gap>,?[ \n]|[ ]{_UPPER}\.?[ ])"
    rf"(?P<second>{_TITLE_WORD}){_END}(?P<initial>[ ]{_UPPER}\.)?)"
)
CAPITAL_PAIR = re.compile(
    rf"{_START}(?P<first>{_CAPITAL_WORD})(?=(?P<gap>,?[ ]|\^|,)(?P<second>{_CAPITAL_WORD}){_END})"
)
INITIALS = re.compile(rf"{_START}(?:{_UPPER}\.[ ]?){{1,2}}(?P<name>{_TITLE_WORD}){_END}")
SPACED_INITIALS = re.compile(rf"{_START}{_UPPER}[ ]{_UPPER}[ ](?P<name>{_TITLE_WORD}){_END}")
BEFORE_INITIAL = re.compile(rf"{_START}(?P<name>{_TITLE_WORD}),[ ]{_UPPER}\.")
_INITIAL = re.compile(rf"(?<![^\W_]){_UPPER}(?![^\W_])")
POSSESSIVE = re.compile(rf"{_START}(?P<name>{_TITLE_WORD})['\u2019]s{_END}(?:[ ](?P<next>[^\W\d_]{{1,30}}))?")
FAMILY = re.compile(rf"{_START}[Tt]he[ ](?P<name>{_TITLE_WORD}s){_END}(?!['\u2019]s)")
JOINED = re.compile(rf"{_START}{_UPPER}{_LOWER}{{2,24}}(?:[/&_^-]?{_UPPER}{_LOWER}{{1,24}}){{1,3}}{_END}")
_PART = re.compile(rf"{_UPPER}{_LOWER}+")
LOWER_WORD = re.compile(rf"{_START}{_LOWER}{{3,30}}(?:-{_LOWER}{{2,20}})?(?=(?:'s|\u2019s)?{_END})")
_NEXT_LOWER = re.compile(rf"[ ](?P<name>{_LOWER}{{3,30}}(?:-{_LOWER}{{2,20}})?){_END}")
CLINICAL_ENDING = re.compile(
    r"(?:tion|sion|ment|ness|ity|ly|ical|ous|ive|able|ible|logy|graphy|gram|scopy|ectomy|otomy|ostomy|plasty|itis|osis"
    r"|emia|aemia|uria|pathy|trophy|idine|amine|azine|line|mine|pine|tine|rine|ide|ate|azole|prazole|one|mab|nib|vir|cillin"
    r"|mycin|micin|cycline|pril|sartan|statin|olol|ase|ism|ence|ance|ium|oma|algia|phasia|plegia|penia|cyte|cytes|genic|ular|nea|ema"
    r"|aline|axin|oxin|parin|xaban|gatran|tidine|setron|triptan|profen|coxib|lukast|caine|sone|solone|thiazide|semide|mus|mide"
    r"|coccus|cocci|bacter|ella|bacillus|virus|ia|ic|al|ine|ol|in|il|an?t)\Z"
)
"""Ends of drugs, diseases and adjectives."""
_NOT_BEFORE_INITIAL = re.compile(
    r"(?i)(?:vitamin|hepatitis|type|grade|stage|group|class|factor|plan|protein|influenza|coenzyme|strain|level|category|phase"
    r"|part|option|appendix|figure|table|arm)[ ]\Z"
)
DOSE = re.compile(
    r"[ \t]{1,2}\d[\d.,/-]{0,8}[ \t]?(?:mg|mcg|g|gm|ml|units?|iu|meq|puffs?|tabs?|%)(?![^\W\d_])", re.IGNORECASE
)
"""What follows a drug, and no name."""
_STAINS = frozenset(("bengal", "violet", "stain", "agar", "therapy", "protocol", "site", "line"))
_RELATIONS = frozenset(
    "daughter son wife husband mother father sister brother aunt uncle niece nephew family partner friend parents room "  # noqa: SIM905
    "bed chart folder home house request".split()
)
"""What somebody has: before it a possessive names a person rather than a drug."""
_OWNED = frozenset(
    ("fever", "heart", "infection", "pneumonia", "breathing", "shoulder", "foot", "kidney", "bed", "chart")
)
"""Words of diseases that follow the name of a person rather than an eponym: `Ngozi's fever`."""
_SPECIES = frozenset(
    "aeruginosa agalactiae albicans anginosus aureus avium baumannii botulinum bovis burgdorferi burnetii canis "  # noqa: SIM905
    "catarrhalis cepacia cholerae cloacae coli difficile dysenteriae enterica epidermidis faecalis faecium falciparum "
    "flexneri fragilis freundii fumigatus glabrata gonorrhoeae haemolyticus henselae histolytica influenzae jejuni "
    "jirovecii lamblia lugdunensis maltophilia mansoni marcescens meningitidis mirabilis mitis monocytogenes "
    "neoformans oxytoca pallidum perfringens pertussis pneumoniae psittaci pylori pyogenes saprophyticus sonnei "
    "stercoralis tetani trachomatis tuberculosis typhi vaginalis viridans vivax vulgaris".split()
)
"""What follows the initial of a bacterium or parasite, as in `E. coli`."""
_MIN_LOWER = 4
_FREQUENT = 20_000
"""Words of the dictionary that are words rather than names."""


@lru_cache(maxsize=2)
def read_english_words(most: int | None = None) -> Set[str]:
    """Return the words of SymSpell's dictionary of English, with common names, or its `most` frequent ones."""
    text = (files("symspellpy") / _DICTIONARY).read_text(encoding="utf-8-sig")
    rows = [line.split(" ") for line in text.splitlines()]
    rows.sort(key=lambda row: -int(row[1]))
    return frozenset(row[0] for row in rows[:most])


def find_unlisted_names(text: str) -> Iterator[tuple[int, int]]:
    """Yield start and end of words that are names, although no cue says so. A word may come twice."""
    yield from _find_pairs(text)
    yield from _find_beside_initials(text)
    yield from _find_inflected(text)
    yield from _find_joined(text)
    yield from _find_lower(text)


def _find_pairs(text: str) -> Iterator[tuple[int, int]]:
    """Yield both words of a full name."""
    for match in PAIR.finditer(text):
        if _is_full_name(text, match):
            yield match.span("first")
            yield match.span("second")
    for match in CAPITAL_PAIR.finditer(text):
        words = match["first"], match["second"]
        shortest = 3 if any(map(_is_listed, words)) else 4
        is_dose = DOSE.match(text, match.end("second"))
        are_rare = all(_is_listed(word) or _is_rare(word) for word in words)
        is_rare = min(map(len, words)) > 2 and not is_dose and (are_rare or _has_rare_word(*words))
        if match["gap"] == "^" or is_rare or _is_pair(*words, shortest=shortest):
            yield match.span("first")
            yield match.span("second")


def is_frequent(word: str) -> bool:
    """Return whether a word is among the most frequent ones of English."""
    return word.casefold() in read_english_words(_FREQUENT)


def _is_rare(word: str) -> bool:
    """Return whether a word is neither frequent nor clinical, so that it may be a name although a dictionary has it."""
    plain = word.casefold()
    if is_frequent(plain) or any(plain in words for words in (EPONYMS, ORDINARY_WORDS, CLINICAL_NOUNS)):
        return False
    return not (plain.isascii() and CLINICAL_ENDING.search(plain))


def _has_name(first: str, second: str) -> bool:
    """Return whether one of two words is listed, unknown or rare, and the other no ordinary word either."""
    return not any(map(_is_clinical, (first, second))) and any(
        _is_listed_or_unknown(word) or _is_rare(word) for word in (first, second)
    )


def _is_inside(text: str, start: int) -> bool:
    """Return whether a word in lower case, and nothing but a blank, is before this place."""
    return text[max(0, start - 1) : start] == " " and text[max(0, start - 2) : start - 1].islower()


def _is_full_name(text: str, match: re.Match[str]) -> bool:
    first, second = match["first"], match["second"]
    following = _NEXT_LOWER.match(text, match.end("second"))
    is_disease = second.casefold() in EPONYMS and following is not None and following["name"] in CLINICAL_NOUNS
    if is_disease or DOSE.match(text, match.end("second")):
        return False
    if match["gap"].startswith(","):
        if match["initial"] and _has_name(first, second):
            return True
        return _is_pair(first, second, shortest=3, is_listed=not match["initial"])
    if _has_name(first, second) and ("." in match["gap"] or _are_rare_inside(text, match)):
        return True
    return _is_pair(first, second, shortest=2) or _has_rare_word(first, second) or _is_name_of_words(text, match)


def _are_rare_inside(text: str, match: re.Match[str]) -> bool:
    """Return whether two words are inside a sentence, and neither is frequent."""
    words = (match["first"], match["second"])
    return _is_inside(text, match.start()) and all(_is_listed(word) or not is_frequent(word) for word in words)


def _has_rare_word(first: str, second: str) -> bool:
    """Return whether one of two words is unknown, and the other so rare in English that it may be a name."""
    for word, other in ((first, second), (second, first)):
        is_rare = other.casefold() not in read_english_words(_FREQUENT) and other.casefold() not in EPONYMS
        if _is_unknown(word) and is_rare and not CLINICAL_ENDING.search(other.casefold()):
            return True
    return False


def _find_beside_initials(text: str) -> Iterator[tuple[int, int]]:
    """Yield a name with its initials: `H. Nakamura`, `H K Nakamura`, `Nakamura, H.`."""
    for pattern in (INITIALS, SPACED_INITIALS, BEFORE_INITIAL):
        for match in pattern.finditer(text):
            is_code = _NOT_BEFORE_INITIAL.search(text, max(0, match.start() - 20), match.start())
            is_name = _is_listed_or_unknown(match["name"]) or _is_name_with_initial(text, match)
            if not is_code and is_name and not DOSE.match(text, match.end("name")):
                yield match.span("name")
                for initial in _INITIAL.finditer(match[0]):
                    yield match.start() + initial.start(), match.start() + initial.end()


def _is_name_with_initial(text: str, match: re.Match[str]) -> bool:
    """Return whether a word that ends like a drug is a name: inside a sentence, and no species (`E. Coli`)."""
    is_inside = text[max(0, match.start() - 2) : match.start()].strip()[-1:].isalpha()
    is_word = not (_is_foreign(match["name"]) or _is_rare(match["name"]))
    return is_inside and not is_word and match["name"].casefold() not in _SPECIES


def _find_inflected(text: str) -> Iterator[tuple[int, int]]:
    """Yield `Nakamura` in `Nakamura's room`, and `Nakamuras` in `the Nakamuras`."""
    for match in POSSESSIVE.finditer(text):
        following = (match["next"] or "").casefold()
        is_person = following in _RELATIONS and _is_foreign(match["name"])
        is_inside = _is_inside(text, match.start())
        is_person = is_person or (is_inside and not is_frequent(match["name"]) and not _is_clinical(match["name"]))
        is_eponym = following in CLINICAL_NOUNS and not (is_inside and following in _OWNED)
        if (_is_unknown(match["name"]) or is_person) and not is_eponym:
            yield match.span("name")
    for match in FAMILY.finditer(text):
        name = match["name"]
        if _is_unknown(name) or _is_listed(name[:-1]) or _is_unknown(name[:-1]):
            yield match.span("name")


def _is_clinical(word: str) -> bool:
    return any(word.casefold() in words for words in (EPONYMS, ORDINARY_WORDS, CLINICAL_NOUNS, WARDS))


def _find_joined(text: str) -> Iterator[tuple[int, int]]:
    """Yield names that a sign or nothing joins: `Nakamura/Hildegard`, `NakamuraHildegard`."""
    for match in JOINED.finditer(text):
        parts = [part for part in _PART.findall(match[0]) if len(part) > 1]
        names = [part for part in parts if _is_listed(part) or _is_foreign(part) or _is_rare(part)]
        is_name = match[0].casefold() not in EPONYMS and any(map(_is_listed_or_unknown, parts))
        are_rare = "/" not in match[0] and len(parts) > 1 and all(map(_is_rare, parts))
        is_pair = (is_name or are_rare) and len(names) > 1 and len(parts) - len(names) <= 1
        # A slash may stand between two drugs, and a capital inside a word or an underscore does not.
        is_signed = not {"_", "&"}.isdisjoint(match[0]) and not any(map(is_frequent, parts))
        if (
            is_pair
            or (is_signed and len(parts) == 2 and _has_name(*parts))
            or ("/" not in match[0] and "-" not in match[0] and len(parts) == 2 and _has_rare_word(*parts))
        ):
            yield match.span()


def _is_pair(first: str, second: str, *, shortest: int, is_listed: bool = False) -> bool:
    """Return whether two words are a name: both are unknown or listed, and one is unknown, or listed if required."""
    words = (first, second)
    if min(map(len, words)) < shortest or not all(_is_listed(word) or _is_foreign(word) for word in words):
        return False
    has_listed = any(map(_is_listed, words))
    return has_listed if is_listed else has_listed or any(map(_is_unknown, words))


def _is_name_of_words(text: str, match: re.Match[str]) -> bool:
    """Return whether two ordinary words are a first and a last name (`Will Young`)."""
    lists = read_name_lists()
    first, second = match["first"].casefold(), match["second"].casefold()
    if second in _STAINS or second in CLINICAL_NOUNS or first in WARDS:
        return False
    before, after = text[max(0, match.start() - 2) : match.start()], text[match.end("second") :][:2]
    is_inside = before[1:] == " " and (before[:1].islower() or before[:1] in ",;") and not after.strip()[:1].isupper()
    if first not in lists.first:
        return is_inside and second in lists.last and first not in ORDINARY_WORDS | CLINICAL_NOUNS | EPONYMS
    return is_inside or (first in lists.english and second in lists.last and second not in EPONYMS)


def _find_lower(text: str) -> Iterator[tuple[int, int]]:
    """Yield the listed names in lower case that are no words, and an unknown word behind one."""
    for match in LOWER_WORD.finditer(text):
        if not _is_listed_in_lower_case(match[0]):
            continue
        yield match.span()
        following = _NEXT_LOWER.match(text, match.end())
        if following is not None and _is_unknown(following["name"]):
            yield following.span("name")


def _is_listed_in_lower_case(word: str) -> bool:
    lists = read_name_lists()
    is_listed = word in lists.first or word in lists.last
    if not is_listed or word in COMMON_WORDS | ORDINARY_WORDS | CLINICAL_NOUNS | EPONYMS:
        return False
    return len(word) >= _MIN_LOWER or word not in read_english_words()


def _is_listed(word: str) -> bool:
    lists, plain = read_name_lists(), word.casefold()
    parts = (plain, *plain.split("-"))
    return any(
        (part in lists.first or part in lists.last) and part not in ORDINARY_WORDS | COMMON_WORDS | EPONYMS
        for part in parts
    )


def _is_unknown(word: str) -> bool:
    """Return whether no dictionary has a word, and it does not end like a clinical term."""
    return _is_foreign(word) and not (word.isascii() and CLINICAL_ENDING.search(word.casefold()))


def _is_foreign(word: str) -> bool:
    """Return whether no dictionary has a word, or one of its parts between hyphens."""
    parts = [part for part in re.split(r"[-'\u2019]", word.casefold()) if len(part) > 1]
    lists = (EPONYMS, ORDINARY_WORDS, CLINICAL_NOUNS, COMMON_WORDS, read_english_words())
    return any(not any(part in words for words in lists) for part in parts)


def _is_listed_or_unknown(word: str) -> bool:
    return _is_listed(word) or _is_unknown(word)


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
