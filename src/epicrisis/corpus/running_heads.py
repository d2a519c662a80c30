"""Find the running heads, feet and page numbers of a document: lines at the same place of most pages."""

from __future__ import annotations

import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

OUTER_LINES = 3
"""Lines at the beginning and at the end of a page's text that may be running lines."""
MARGIN = 0.15
"""The part of a page's height, at the top and at the bottom, in which running lines are."""
MIN_PAGES = 3
MIN_SHARE = 0.6
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
        if len(pages) >= max(MIN_PAGES, MIN_SHARE * len(possible)):
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
