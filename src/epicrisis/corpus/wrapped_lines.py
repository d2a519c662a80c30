"""Undo the line ends that the width of a page put into sentences.

    join_wrapped_lines("Women at high risk of pre-eclampsia were\nrandomised to aspirin.")

Sentences end at line ends (`chunking.find_sentences`), so a line end within a sentence would cut it in two.
"""

from __future__ import annotations

import re

MIN_CHARACTERS = 30
"""A shorter line is a heading, a cell of a table or an item of a list."""
MIN_SHARE = 0.7
"""A line that is shorter, in comparison with the longest of its neighbours, was ended by its writer."""
NEIGHBOURS = 3
"""Lines before and after a line that show how wide its column is."""
MAX_DIGIT_SHARE = 0.2
"""With more digits among its letters and digits, a line is a row of a table."""

_ENDED = re.compile(r"[.!?:…][\"'”’»)\]]{0,4}$")
_NEW_ITEM = re.compile(r"(?:[•▪◦‣*–—-]|\(?(?:\d{1,3}|[a-z])[.)])\s|(?:table|fig(?:ure|\.)) \d", re.IGNORECASE)


def join_wrapped_lines(text: str, title: str = "") -> str:
    """Return the text with a space for each line end within a sentence. No character moves to another offset.

    A line continues in the next one if it fills its column, does not end as a sentence does, and the next line begins
    no item of a list. A row of a table, and the `title`, continue only with a small letter.
    """
    lines = text.split("\n")
    joined = [lines[0]]
    for index in range(1, len(lines)):
        joined += [" " if _continues(lines, index - 1, title) else "\n", lines[index]]
    return "".join(joined)


def is_continued(page: str, following: str) -> bool:
    """Return whether the last sentence of a page certainly continues on the following page: in a small letter."""
    first = following.partition("\n")[0]
    return first[:1].islower() and _continues([*page.split("\n")[-NEIGHBOURS:], first], -2, "")


def _continues(lines: list[str], index: int, title: str) -> bool:
    line, following = lines[index].strip(), lines[index + 1].strip()
    if not line or not following or _ENDED.search(line) or _NEW_ITEM.match(following):
        return False
    index %= len(lines)
    column = lines[max(0, index - NEIGHBOURS) : index + 2 + NEIGHBOURS]
    width = max(len(neighbour.strip()) for neighbour in column)
    if len(line) < max(MIN_SHARE * width, MIN_CHARACTERS):
        return False
    return following[0].islower() or not (line == title or _is_table_row(line))


def _is_table_row(line: str) -> bool:
    digits = sum(1 for character in line if character.isdigit())
    signs = sum(1 for character in line if character.isalnum())
    return digits > MAX_DIGIT_SHARE * signs
