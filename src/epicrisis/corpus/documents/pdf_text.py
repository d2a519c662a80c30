r"""Clean the text of a PDF file's pages: running heads, lines that the page's width ended, and garbled letters.

    join_wrapped_lines("Women at high risk of pre-eclampsia were\nrandomised to aspirin.")

* Running heads, feet and page numbers are lines at the same place of most pages.
* Sentences end at line ends (`chunking.find_sentences`), so a line end within a sentence would cut it in two.
* Text whose fonts do not say which letters their shapes are has the numbers of shapes in the place of letters:
  `RU WKH SDWLHQWV`, signs of the private area, or control characters. A page counts only if this is sure.
"""

from __future__ import annotations

import re
import statistics
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

MIN_CHARACTERS = 30
"""A shorter line is a heading, a cell of a table or an item of a list."""
MIN_BEFORE_SMALL = 20
"""Characters of a line that continues in a line with a small letter, however wide its column is."""
MIN_WORDS_IN_ROW = 6
"""With so many words, a line with many digits is no row of a table if a small letter follows."""
MIN_LENGTH_SHARE = 0.7
"""A line that is shorter, in comparison with the longest of its neighbours, was ended by its writer."""
NEIGHBOURS = 3
"""Lines before and after a line that show how wide its column is."""
MAX_DIGIT_SHARE = 0.2
"""With more digits among its letters and digits, a line is a row of a table."""

_OPEN = re.compile(
    r"(?:\b(?:to|of|and|or|the|an?|in|with|by|from|for|versus|vs|than|at|on|was|were|is|are|that|interval|CI)|[,(=<>])$"
)
"""The end of a line whose sentence must go on."""
_ENDED = re.compile(r"[.!?:…][\"'”’»)\]]{0,4}$")
_NEW_ITEM = re.compile(r"(?:[•▪◦‣*–—-]|\(?(?:\d{1,3}|[a-z])[.)])\s|(?:table|fig(?:ure|\.)) \d", re.IGNORECASE)


def join_wrapped_lines(text: str, title: str = "") -> str:
    """Return the text with a space for each line end within a sentence. No character moves to another offset.

    A line continues in the next one if it does not end as a sentence does, the next line begins no item of a list, and
    it fills its column or has some words before a small letter: a justified narrow column has short lines. A row of a
    table, and the `title`, continue only with a small letter.
    """
    lines = text.split("\n")
    joined = [lines[0]]
    for index in range(1, len(lines)):
        is_continued = _must_go_on(lines, index - 1) or _continues(lines, index - 1, title)
        joined += [" " if is_continued else "\n", lines[index]]
    return "".join(joined)


def _must_go_on(lines: Sequence[str], index: int) -> bool:
    line, following = lines[index].strip(), lines[index + 1].strip()
    if _ENDED.search(line) or _NEW_ITEM.match(following):
        return False
    if _OPEN.search(line) and following and len(line) >= MIN_CHARACTERS:
        return True
    if not following[:1].islower():
        return False
    is_row = _is_table_row(line) and len(_WORD.findall(line)) < MIN_WORDS_IN_ROW
    # An item of a list, such as a drug with its dose, is short and has a number.
    has_number = any(character.isdigit() for character in line)
    return len(line) >= (MIN_CHARACTERS if has_number else MIN_BEFORE_SMALL) and not is_row


def is_continued(page: str, following: str) -> bool:
    """Return whether the last sentence of a page certainly continues on the following page: in a small letter."""
    first = following.partition("\n")[0]
    return first[:1].islower() and _continues([*page.split("\n")[-NEIGHBOURS:], first], -2, "")


def _continues(lines: list[str], index: int, title: str) -> bool:
    line, following = lines[index].strip(), lines[index + 1].strip()
    if not line or not following or _ENDED.search(line) or _NEW_ITEM.match(following):
        return False
    index %= len(lines)
    before, after = lines[max(0, index - NEIGHBOURS) : index + 1], lines[index : index + 2 + NEIGHBOURS]
    widths = [max(len(neighbour.strip()) for neighbour in side) for side in (before, after)]
    # A number below lines of another column continues the line that it stands under; a heading is followed by letters.
    width = min(widths) if following[0].isdigit() and len(before) > 1 else max(widths)
    if len(line) < max(MIN_LENGTH_SHARE * width, MIN_CHARACTERS):
        return False
    return following[0].islower() or not (line == title or _is_table_row(line))


def _is_table_row(line: str) -> bool:
    digits = sum(1 for character in line if character.isdigit())
    signs = sum(1 for character in line if character.isalnum())
    return digits > MAX_DIGIT_SHARE * signs


OUTER_LINES = 3
"""Lines at the beginning and at the end of a page's text that may be running lines."""
MARGIN = 0.15
"""The part of a page's height, at the top and at the bottom, in which running lines are."""
MIN_PAGES = 3
MIN_PAGE_SHARE = 0.6
"""The least share of all pages, of the odd pages or of the even pages that have the line."""
_TOLERANCE = 0.01
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class OuterLine:
    """One of the first or last lines of a page."""

    page: int
    """From 1."""
    index: int
    """Its place among the lines of the page, from 0."""
    text: str
    height: float
    """Share of the page's height above the line."""


def find_running_lines(pages: Sequence[Sequence[OuterLine]]) -> list[OuterLine]:
    """Return the outer lines that are running heads, feet or page numbers, in the order of the pages.

    A line counts if it is in the margin, and lines with the same text are at the same height of enough pages. Numbers
    in the text must be the same too, or must rise with the pages.
    """
    groups: dict[str, list[OuterLine]] = defaultdict(list)
    for lines in pages:
        for line in lines:
            if line.height <= MARGIN or line.height >= 1 - MARGIN:
                groups[_NUMBER.sub("#", line.text)].append(line)
    with_text = [lines[0].page for lines in pages if lines]
    running: list[OuterLine] = []
    for group in groups.values():
        # A journal may alternate between two heads, and a text may be both at the top and at the bottom.
        for is_top in (True, False):
            half = [line for line in group if (line.height < 0.5) == is_top]
            running += _select_running(half, with_text)
    return sorted(running, key=lambda line: (line.page, line.index))


def _select_running(lines: Sequence[OuterLine], with_text: Sequence[int]) -> list[OuterLine]:
    """Return those of the lines with one text that are at one height, with constant or rising numbers."""
    if len(lines) < MIN_PAGES:
        return []
    median = statistics.median(line.height for line in lines)
    lines = [line for line in lines if abs(line.height - median) <= _TOLERANCE]
    lines = _with_regular_numbers(lines)
    for remainder in (None, 0, 1):
        pages = {line.page for line in lines if remainder is None or line.page % 2 == remainder}
        possible = [page for page in with_text if remainder is None or page % 2 == remainder]
        if len(pages) >= max(MIN_PAGES, MIN_PAGE_SHARE * len(possible)):
            return [line for line in lines if line.page in pages]
    return []


def _with_regular_numbers(lines: Sequence[OuterLine]) -> list[OuterLine]:
    """Return the lines whose numbers are all constant, or rise by one with each page."""
    for place in range(len(_NUMBER.findall(lines[0].text)) if lines else 0):
        constant = _keep_most_common(lines, [_number(line, place) for line in lines])
        rising = _keep_most_common(lines, [_number(line, place) - line.page for line in lines])
        lines = max(constant, rising, key=len)
    return list(lines)


def _number(line: OuterLine, place: int) -> int:
    return int(_NUMBER.findall(line.text)[place][:18])


def _keep_most_common(lines: Sequence[OuterLine], values: Iterable[int]) -> Sequence[OuterLine]:
    numbered = list(zip(lines, values, strict=True))
    counts = Counter(value for _, value in numbered)
    most_common = counts.most_common(1)[0][0] if counts else None
    return [line for line, value in numbered if value == most_common]


MIN_WORDS = 15
_MAX_FOREIGN = 0.2
"""The largest share of signs that no text has."""
_MIN_COMMON = 0.01
"""The least share of common words in text: reference lists and tables of authors have more."""
_READABLE_COMMON = 0.05
_DECODED_COMMON = 0.1
"""The share of common words that shows that another alphabet is the right one."""
_MIN_DECODED, _MIN_DECODED_RARELY = 4, 7
"""Different common words in a decoded text, by a usual or another distance. A table of numbers has some by chance."""
_MAX_CAPITALS = 0.8
_VOWELS = (0.15, 0.65)
"""The smallest and largest share of vowels among the letters of text in European languages."""
_MIN_SPOKEN, _MAX_ODD = 30, 0.2
"""Different words that are not in capitals, and the largest share of those that cannot be spoken."""
_SPOKEN_WORD = re.compile(r"(?<![^\W_])[A-Z]?[a-z]{3,30}(?![^\W_])")
_ODD_WORD = re.compile(r"[bcdfghjklmnpqrstvwxz]{4}|[aeiou]{3}")
_FIRST_SYMBOL, _LAST_SYMBOL = "\u00a1", "\u00bf"
"""Signs between the letters of Latin-1, such as ¶ and ¿, of which a text has few."""
_WORD = re.compile(r"[^\W\d_]{2,}")
_COMMON = re.compile(
    r"(?:the|of|and|in|to|is|was|for|with|on|at|by|as|from|that|we|were|are|or|an|not|this|no|be"
    r"|der|die|das|und|von|den|mit|ist|ein|eine|zu|im|bei|nicht|auf|des|le|la|les|de|du|et|un|une|est|dans|pour|par"
    r"|el|los|las|que|en|del|por|con|una|se|il|di|che|per|non|della|dei|os|da|do|em|para|com|não"
    r"|het|van|een|voor|op|och|att|som|av|til|og|det|på)"
)
_SHIFTS = (28, 29, 30, 31, -1, 1)
"""Usual distances between the numbers of shapes and letters: 29 in fonts of Windows, 31 in others."""
_RARE_SHIFTS = tuple(distance for distance in range(-40, 41) if distance and distance not in _SHIFTS)


def is_garbled(text: str, unmapped: float = 0.0) -> bool:
    """Return whether the letters of a page are surely not those that its reader sees.

    `unmapped` is the share of its characters without a letter in their font. Some of them are right all the same.
    """
    signs = [sign for sign in text if not sign.isspace()]
    if not signs:
        return False
    foreign = sum(
        unicodedata.category(sign) in ("Co", "Cn", "Cs", "Cc") or sign == "�" or _FIRST_SYMBOL <= sign <= _LAST_SYMBOL
        for sign in signs
        if sign != "\x02"
    )
    if len(signs) >= MIN_WORDS and foreign > _MAX_FOREIGN * len(signs):
        return True
    if unmapped > _MAX_FOREIGN and _share_common(text) < _READABLE_COMMON:
        return True
    # A shifted text has signs among its letters, so words are what stands between blanks.
    pieces = text.split()
    if len(pieces) < MIN_WORDS or _share_common(text) >= _MIN_COMMON:
        return False
    if any(_is_readable(_shift(text, distance), _MIN_DECODED) for distance in _SHIFTS):
        return True
    if any(_is_readable(_shift(text, distance), _MIN_DECODED_RARELY) for distance in _RARE_SHIFTS):
        return True
    return _has_no_language(text) or _has_odd_words(text)


def _share_common(text: str) -> float:
    """Return the share of common words of European languages."""
    words = _WORD.findall(text.lower())
    return sum(_COMMON.fullmatch(word) is not None for word in words) / len(words) if words else 0.0


def _is_readable(text: str, least: int) -> bool:
    """Return whether a text has so many different common words, and enough of them."""
    words = _WORD.findall(text.lower())
    common = [word for word in words if _COMMON.fullmatch(word)]
    return len(set(common)) >= least and len(common) >= _DECODED_COMMON * len(words)


def _shift(text: str, distance: int) -> str:
    """Return a text with each ASCII sign that many places further, and blanks for what is before the first sign."""
    return text.translate({code: chr(max(32, code + distance)) for code in range(1, 0x7F) if not chr(code).isspace()})


def _has_odd_words(text: str) -> bool:
    """Return whether many words have four consonants or three vowels in a row, as if letters were exchanged."""
    words = {word.lower() for word in _SPOKEN_WORD.findall(unicodedata.normalize("NFKD", text))}
    odd = sum(_ODD_WORD.search(word) is not None for word in words)
    return len(words) >= _MIN_SPOKEN and odd > _MAX_ODD * len(words)


def _has_no_language(text: str) -> bool:
    """Return whether long Latin text has the wrong share of vowels, and words no language would form."""
    letters = [sign for sign in unicodedata.normalize("NFKD", text).lower() if "a" <= sign <= "z"]
    if len(letters) < 200 or 2 * len(letters) < sum(not sign.isspace() for sign in text):
        return False
    if sum(sign.isupper() for sign in text) > _MAX_CAPITALS * len(letters):
        # Sequences of proteins, and tables of abbreviations.
        return False
    counts = Counter(letters)
    vowels = sum(counts[vowel] for vowel in "aeiouy") / len(letters)
    return not _VOWELS[0] <= vowels <= _VOWELS[1]
