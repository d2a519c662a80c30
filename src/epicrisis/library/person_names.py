"""Names of people as they are written: folded to one spelling, and as the keys under which a question may give them.

Accents, German and Scandinavian transliterations (`Müller`, `Mueller`, `Muller`), Cyrillic and Greek letters, hyphens
and the order of names make no difference here; middle names may be missing or be initials. Reads no library.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

_WORD = re.compile(r"[^\W_]++(?:['\u2018\u2019\u02bc-][^\W_]++)*+")
_PART = re.compile(r"[^\W_]++(?:['\u2018\u2019\u02bc][^\W_]++)*+")
"""A word, or what stands between its hyphens."""
_APOSTROPHES = re.compile(r"['\u2018\u2019\u02bc]")
_LIKE_APOSTROPHES = str.maketrans(dict.fromkeys("`\u00b4\u2032\uff07", "'"))
"""Typed for an apostrophe. The acute accent must go first: compatibility forms make a blank of it."""
_INVISIBLE = re.compile("[\u00ad\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]")
_POSSESSIVE = re.compile(r"['\u2018\u2019\u02bc][sS]\Z")
_BETWEEN = re.compile(r"\s*+(?:[,;]\s*+)?|[/^_.]|\s\(")
_BEHIND_INITIAL = re.compile(r"\.?\s*+(?:[,;]\s*+)?|[/^_]|\s\(")
_WITHOUT_BLANKS = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]+")
"""Scripts that write a full name as one word, and no blank before the next."""
_SHORTEST, _MOST = 3, 5
"""Characters of such a name that is looked for. Of two it may be any word."""
_LONGEST = 6
"""Words of a name in a question."""
_CYRILLIC = dict(
    zip(
        "абвгдеёжзийклмнопрстуфхцчшщъыьэюяіїєґўј",
        (
            "a",
            "b",
            "v",
            "g",
            "d",
            "e",
            "e",
            "zh",
            "z",
            "i",
            "i",
            "k",
            "l",
            "m",
            "n",
            "o",
            "p",
            "r",
            "s",
            "t",
            "u",
            "f",
            "h",
            "ts",
            "ch",
            "sh",
            "shch",
            "",
            "y",
            "",
            "e",
            "yu",
            "ya",
            "i",
            "i",
            "e",
            "g",
            "u",
            "j",
        ),
        strict=True,
    )
)
_GREEK = dict(
    zip(
        "αβγδεζηθικλμνξοπρσςτυφχψω",
        (
            "a",
            "v",
            "g",
            "d",
            "e",
            "z",
            "i",
            "th",
            "i",
            "k",
            "l",
            "m",
            "n",
            "x",
            "o",
            "p",
            "r",
            "s",
            "s",
            "t",
            "y",
            "f",
            "ch",
            "ps",
            "o",
        ),
        strict=True,
    )
)
_LETTERS = str.maketrans(
    {
        "ø": "o",
        "ł": "l",
        "đ": "d",
        "ð": "d",
        "þ": "th",
        "æ": "ae",
        "œ": "oe",
        "ı": "i",
        "ħ": "h",
        **_CYRILLIC,
        **_GREEK,
    }
)
_SOUNDS = (
    ("ae", "a"),
    ("oe", "o"),
    ("ue", "u"),
    ("ou", "u"),
    ("aa", "a"),
    ("ph", "f"),
    ("ch", "h"),
    ("kh", "h"),
    ("tz", "ts"),
    ("x", "ks"),
    ("w", "v"),
    ("j", "i"),
    ("y", "i"),
    ("ii", "i"),
)
"""Spellings of one sound, in this order; both a name and what it is looked for in are folded alike."""
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
    """Return the text in one spelling: no accents, no capitals, Latin letters, one letter for one sound."""
    parted = unicodedata.normalize("NFKD", _APOSTROPHES.sub("", unicodedata.normalize("NFKC", text).casefold()))
    normalize_characters = "".join(letter for letter in parted if not unicodedata.combining(letter))
    normalize_characters = normalize_characters.replace("ου", "ou").translate(_LETTERS)
    for sound, letter in _SOUNDS:
        normalize_characters = normalize_characters.replace(sound, letter)
    return normalize_characters


@lru_cache(maxsize=65536)
def name_words(name: str) -> tuple[str, ...]:
    """Return the words of a name, folded, without titles, the first name first: `Muster, Anna` as `Anna Muster`."""
    name = normalize_characters(name)
    last, comma, first = name.partition(",")
    words = [fold(word) for word in _WORD.findall(f"{first} {last}" if comma and first.strip() else name)]
    while words and words[0] in _TITLES:
        words.pop(0)
    while words and words[-1] in _TITLES:
        words.pop()
    return tuple(words)


def normalize_characters(text: str) -> str:
    """Return the text without invisible characters, and with one sign for every apostrophe that people type."""
    return _INVISIBLE.sub("", text).translate(_LIKE_APOSTROPHES)


def are_alike(one: str, other: str) -> bool:
    """Return whether both may be one person's: the same words in any order, of which one name may lack some."""
    words, others = set(name_words(one.replace("-", " "))), set(name_words(other.replace("-", " ")))
    fewer, more = sorted((words, others), key=len)
    return fewer <= more or all(any(_may_be_one(word, each) for each in more) for word in fewer)


def _may_be_one(word: str, other: str) -> bool:
    """One of the two may be the other's initial."""
    return word == other or (1 in (len(word), len(other)) and word[0] == other[0])


@lru_cache(maxsize=65536)
def name_keys(name: str) -> frozenset[str]:
    """Return every way to write a full name, each as folded words with a blank between; none of a single word.

    A name in a script without blanks is one word, and counts.
    """
    keys: set[str] = set()
    joined = "".join(name.split())
    if _WITHOUT_BLANKS.fullmatch(joined) and len(joined) >= _SHORTEST:
        keys.add(fold(joined))
    name = normalize_characters(name)
    for spelled in dict.fromkeys((name, name.replace("-", " "), _APOSTROPHES.sub(" ", name))):
        words = name_words(spelled)
        if len(words) < 2:
            continue
        # Of a name whose hyphens or apostrophes were left out all words are needed.
        keys.update(" ".join(order) for order in _orders(words, whole=spelled != name))
    return frozenset(keys)


def _orders(words: Sequence[str], whole: bool) -> Iterator[Sequence[str]]:
    first, *middle, last = words
    yield words
    # The patient test is no Test Patient.
    turned = "patient" not in words
    if turned:
        yield from ([*words[place:], *words[:place]] for place in range(1, len(words)))
    if whole:
        return
    yield [first, last]
    if turned:
        yield [last, first]
    for word in middle:
        yield [first, word, last]
        yield [first, word[0], last]
        if len(word) == 1:
            yield [first, f"{word}*", last]
    yield [first, *(word[0] for word in middle), last]


@dataclass(frozen=True, slots=True)
class _Written:
    """A word of a question: folded, and whether it begins with a capital."""

    fold: str
    start: int
    end: int
    is_capital: bool


@dataclass(frozen=True, slots=True)
class Mention:
    """Words `first` to `last` of a text that are a name by one of `keys`."""

    first: int
    last: int
    keys: tuple[str, ...]


def find_mentions(text: str, *, hyphens: bool = True) -> list[Mention]:
    """Return every run of two to six words of the text that may be a name, with the keys that `name_keys` gives it.

    With `hyphens` they are parts of words, else they stand between words; a run is then no part of a hyphenated word.
    """
    plain = unicodedata.normalize("NFKC", normalize_characters(text))
    if not hyphens and "-" not in plain:
        return []
    words = [
        _Written(fold(_POSSESSIVE.sub("", match[0])), match.start(), match.end(), match[0][0].isupper())
        for match in (_WORD if hyphens else _PART).finditer(plain)
    ]
    found: list[Mention] = []
    for first in range(len(words)):
        if keys := tuple(_keys_without_blanks(plain[words[first].start : words[first].end])):
            found.append(Mention(first, first, keys))
        for last in range(first + 1, min(first + _LONGEST, len(words))):
            before, here = words[last - 1], words[last]
            gap = plain[before.end : here.start]
            if not (_BEHIND_INITIAL if len(before.fold) == 1 else _BETWEEN).fullmatch(gap) and gap != "-":
                break
            if plain[max(words[first].start - 1, 0)] == "-" or plain[here.end : here.end + 1] == "-":
                continue
            run = words[first : last + 1]
            # Na, Li: what stands in a list is no name.
            if gap.strip() and all(len(word.fold) <= 2 for word in run):
                continue
            if all(word.fold in _COMMON for word in run) and not all(word.is_capital for word in run):
                continue
            found.append(Mention(first, last, tuple(_keys_of([word.fold for word in run]))))
    return found


def _keys_without_blanks(word: str) -> Iterator[str]:
    """Every part of a word that may be a name where no blanks part the words."""
    for match in _WITHOUT_BLANKS.finditer(word):
        for start in range(len(match[0])):
            for size in range(_SHORTEST, min(_MOST, len(match[0]) - start) + 1):
                yield fold(match[0][start : start + size])


def _keys_of(run: Sequence[str]) -> Iterator[str]:
    yield " ".join(run)
    first, *middle, last = run
    without = [word for word in middle if len(word) > 1]
    if len(without) < len(middle):
        yield " ".join((first, *without, last))
    if len(middle) == 1:
        yield f"{first} {middle[0][0]}* {last}"


_COMMON = frozenset(map(fold, _WORDS_THAT_ARE_NAMES.split()))
"""A name of nothing but such words counts only where it is written with capitals."""


def is_common(name: str) -> bool:
    """Return whether the name is made of common words alone."""
    return all(word in _COMMON for word in name_words(name))
