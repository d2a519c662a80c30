"""Names of people: fold them to one spelling, compare them, and find them in texts.

Accents, German and Scandinavian transliterations (`Müller`, `Mueller`, `Muller`), Cyrillic and Greek letters, hyphens
and the order of names are ignored. Middle names may be missing or abbreviated.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

_WORD = re.compile(r"[^\W_]++(?:['\u2018\u2019\u02bc-][^\W_]++)*+")
_PART = re.compile(r"[^\W_]++(?:['\u2018\u2019\u02bc][^\W_]++)*+")
"""A word, or its part between hyphens."""
_APOSTROPHES = re.compile(r"['\u2018\u2019\u02bc]")
_LIKE_APOSTROPHES = str.maketrans(dict.fromkeys("`\u00b4\u2032\uff07", "'"))
"""Other characters typed for an apostrophe. The acute accent must be replaced first, because NFKC makes it a blank."""
_STRAIGHT_APOSTROPHES = str.maketrans(dict.fromkeys("\u2018\u2019\u02bc", "'"))
_INVISIBLE = re.compile("[\u00ad\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]")
_POSSESSIVE = re.compile(r"['\u2018\u2019\u02bc][sS]\Z")
_BETWEEN = re.compile(r"\s*+(?:[,;]\s*+)?|[/^_.]|\s\(")
_BEHIND_INITIAL = re.compile(r"\.?\s*+(?:[,;]\s*+)?|[/^_]|\s\(")
_WITHOUT_BLANKS = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]+")
"""Scripts without blanks between words, so that a full name is one word."""
_MIN_CHARACTERS, _MAX_CHARACTERS = 3, 5
"""Length of such a name. Two characters may be any word."""
_MAX_WORDS = 6
"""Maximum length of a name in a text."""
_TRANSLITERATION = """
а=a б=b в=v г=g д=d е=e ё=e ж=zh з=z и=i й=i к=k л=l м=m н=n о=o п=p р=r с=s т=t у=u ф=f х=h ц=ts ч=ch ш=sh щ=shch ъ=
ы=y ь= э=e ю=yu я=ya і=i ї=i є=e ґ=g ў=u ј=j
α=a β=v γ=g δ=d ε=e ζ=z η=i θ=th ι=i κ=k λ=l μ=m ν=n ξ=x ο=o π=p ρ=r σ=s ς=s τ=t υ=y φ=f χ=ch ψ=ps ω=o
ø=o ł=l đ=d ð=d þ=th æ=ae œ=oe ı=i ħ=h
"""
_LETTERS = str.maketrans(dict(pair.split("=") for pair in _TRANSLITERATION.split()))
_SPELLINGS = "ae=a oe=o ue=u ou=u aa=a ph=f ch=h kh=h tz=ts x=ks w=v j=i y=i ii=i"
_SOUNDS = [pair.split("=") for pair in _SPELLINGS.split()]
"""Spellings of the same sound, replaced in this order."""
_TITLES = frozenset(
    ("mr", "mrs", "ms", "miss", "dr", "prof", "herr", "frau", "md", "phd", "jr", "sr", "ii", "iii", "iv")
)
_WORDS_THAT_ARE_NAMES = """
an ana as at be by do el ha he ho in is it la le les li ma max me min my na no of on or pa sa so to un up us van we
yi angel april art august autumn baker best bill banks bishop black blood blue bone bowel brown burns bush butler
cal carol case chance charity chase christian church clay cliff constant cook cotton cross crystal daisy dale dawn
day days dean destiny dose drew early earnest english eve faith field fields fine fish foot ford forest fox frank
free french gene german glen gold good grace grant gray green grey guy hair hall hand hands head heart heath hill
holly hope house hunt ice iris ivy jack jean joy june key king lamb land lane large last law lily line little long
love low major mark marsh mason may melody mercy mild miles moon moore nail new noble olive pace page pain park pat
patience patient pearl penny piper pool poor post power price prudence ray red reed rice rich ring rivers rob rod
root rose ruby rush sage sands savage sharp short silver small speed stage star stern stone street strong sue summer
summers sun swallow sweet test tower trinity violet wade wall walls ward waters weeks wells west white will winter
winters wise wolf wood woods worth young
"""


@lru_cache(maxsize=65536)
def fold(text: str) -> str:
    """Return the text in one spelling: lower-case Latin letters without accents, one spelling for each sound."""
    decomposed = unicodedata.normalize("NFKD", _APOSTROPHES.sub("", unicodedata.normalize("NFKC", text).casefold()))
    letters = "".join(itertools.filterfalse(unicodedata.combining, decomposed))
    letters = letters.replace("ου", "ou").translate(_LETTERS)
    for sound, letter in _SOUNDS:
        letters = letters.replace(sound, letter)
    return letters


def normalize_characters(text: str) -> str:
    """Return the text without invisible characters and with one character for all similar apostrophes."""
    return _INVISIBLE.sub("", text).translate(_LIKE_APOSTROPHES)


def normalize_text(text: str) -> str:
    """Return the text with normalised characters, lower-case, with straight apostrophes and single blanks."""
    straight = unicodedata.normalize("NFKC", normalize_characters(text)).translate(_STRAIGHT_APOSTROPHES)
    return " ".join(straight.casefold().split())


@lru_cache(maxsize=65536)
def name_words(name: str) -> tuple[str, ...]:
    """Return the folded words of a name without titles, first name first: `Muster, Anna` becomes `Anna Muster`."""
    name = normalize_characters(name)
    last, comma, first = name.partition(",")
    ordered = f"{first} {last}" if comma and first.strip() else name
    words = list(map(fold, _WORD.findall(ordered)))
    while words and words[0] in _TITLES:
        words.pop(0)
    while words and words[-1] in _TITLES:
        words.pop()
    return tuple(words)


def are_alike(first: str, second: str) -> bool:
    """Return whether both names may belong to one person: the same words in any order, some may be missing in one."""
    words, others = set(name_words(first.replace("-", " "))), set(name_words(second.replace("-", " ")))
    fewer, larger = sorted((words, others), key=len)
    for word in fewer - larger:
        # An initial stands for its word.
        same_letter = [other for other in larger if other[:1] == word[:1]]
        if not same_letter or 1 not in (len(word), *map(len, same_letter)):
            return False
    return True


@lru_cache(maxsize=65536)
def name_keys(name: str) -> frozenset[str]:
    """Return all spellings of a full name, each as folded words with blanks between them.

    A single word has none, unless it is in a script without blanks.
    """
    keys: set[str] = set()
    joined = "".join(name.split())
    if _WITHOUT_BLANKS.fullmatch(joined) and len(joined) >= _MIN_CHARACTERS:
        keys.add(fold(joined))
    name = normalize_characters(name)
    for spelling in dict.fromkeys((name, name.replace("-", " "), _APOSTROPHES.sub(" ", name))):
        words = name_words(spelling)
        if len(words) >= 2:
            # Without its hyphens or apostrophes a name must be complete.
            keys.update(" ".join(order) for order in _word_orders(words, is_complete=spelling != name))
    return frozenset(keys)


def _word_orders(words: Sequence[str], is_complete: bool) -> Iterator[Sequence[str]]:
    first, *middle, last = words
    yield words
    # The words "patient test" are not a Test Patient.
    may_rotate = "patient" not in words
    if may_rotate:
        for split in range(1, len(words)):
            yield [*words[split:], *words[:split]]
    if is_complete:
        return
    yield [first, last]
    if may_rotate:
        yield [last, first]
    for word in middle:
        yield [first, word, last]
        yield [first, word[0], last]
        if len(word) == 1:
            yield [first, f"{word}*", last]
    yield [first, *(word[0] for word in middle), last]


@dataclass(frozen=True, slots=True)
class _TextWord:
    """A word of a text."""

    folded: str
    start: int
    end: int
    is_capital: bool


@dataclass(frozen=True, slots=True)
class Mention:
    """Words `first` to `last` of a text, and the name keys that they match."""

    first: int
    last: int
    keys: tuple[str, ...]


def find_mentions(text: str, *, hyphens: bool = True) -> list[Mention]:
    """Return every run of two to six words of the text that may be a name, with its possible keys (see `name_keys`).

    With `hyphens` a hyphen belongs to its word. Otherwise it separates words, and no run is part of a hyphenated word.
    """
    plain = unicodedata.normalize("NFKC", normalize_characters(text))
    if not hyphens and "-" not in plain:
        return []
    words = []
    for match in (_WORD if hyphens else _PART).finditer(plain):
        folded = fold(_POSSESSIVE.sub("", match[0]))
        words.append(_TextWord(folded, match.start(), match.end(), match[0][0].isupper()))
    mentions: list[Mention] = []
    for first, word in enumerate(words):
        if keys := tuple(_keys_without_blanks(plain[word.start : word.end])):
            mentions.append(Mention(first, first, keys))
        for last in range(first + 1, min(first + _MAX_WORDS, len(words))):
            before, current = words[last - 1], words[last]
            gap = plain[before.end : current.start]
            allowed_gap = _BEHIND_INITIAL if len(before.folded) == 1 else _BETWEEN
            if not allowed_gap.fullmatch(gap) and gap != "-":
                break
            if plain[max(word.start - 1, 0)] == "-" or plain[current.end : current.end + 1] == "-":
                continue
            run = words[first : last + 1]
            folded_words = [part.folded for part in run]
            # Short words in a list, such as Na, Li, are no name. Common words are one only with capitals.
            is_list = gap.strip() and max(map(len, folded_words)) <= 2
            if not is_list and (not _COMMON.issuperset(folded_words) or all(part.is_capital for part in run)):
                mentions.append(Mention(first, last, tuple(_keys_of(folded_words))))
    return mentions


def _keys_without_blanks(word: str) -> Iterator[str]:
    """Yield every part of a word that may be a name in a script without blanks."""
    for match in _WITHOUT_BLANKS.finditer(word):
        for start in range(len(match[0])):
            for size in range(_MIN_CHARACTERS, min(_MAX_CHARACTERS, len(match[0]) - start) + 1):
                yield fold(match[0][start : start + size])


def _keys_of(run: Sequence[str]) -> Iterator[str]:
    yield " ".join(run)
    first, *middle, last = run
    without_initials = [word for word in middle if len(word) > 1]
    if len(without_initials) < len(middle):
        yield " ".join((first, *without_initials, last))
    if len(middle) == 1:
        yield f"{first} {middle[0][0]}* {last}"


_COMMON = frozenset(map(fold, _WORDS_THAT_ARE_NAMES.split()))
"""Common words. A name of only such words counts only with capitals."""


def is_common(name: str) -> bool:
    """Return whether the name has only common words."""
    return _COMMON.issuperset(name_words(name))
