"""Leave lists of references out of a text, because their titles read like findings of the text itself.

    text, lists = remove_reference_lists(text)

A list is what follows a heading such as `References`, as far as it looks like references, and half of its entries do.
The text behind it stays.
"""

from __future__ import annotations

import re

HEADING = re.compile(
    r"^[ \t]{0,40}(?:#{1,6}[ \t]{1,9}|\d{1,2}\.?[ \t]{1,9}|\*\*|__)?"
    r"(?:references?(?: cited| list)?|bibliography|literature cited|works cited|literature)[ \t:*_#]{0,40}$",
    re.IGNORECASE | re.MULTILINE,
)
"""A line that is the heading of a list of references."""
MAX_ENTRY = 2_000
"""Characters of an entry."""
_MARKER = re.compile(r"\s*(?:[-*•+]\s+(?:\[?\d{1,3}[\].)]\s*)?|\[\d{1,3}\]\s*|\(?\d{1,3}[.)]\s+)")
_AUTHOR = re.compile(
    r"(?:[a-z]{1,3} ){0,2}[^\W\d_a-z][\w'’-]{1,30}(?: [^\W\d_a-z][\w'’-]{1,30})?,? "
    r"(?:[^\W\d_a-z]\.?[- ]?){1,4}(?=[,.;:&]|\((?:19|20)\d\d|et al\b|and |$)"
)
"""A name with initials at the beginning: `Doe A.`, `van den Berg, J. P.,`."""
_YEAR = re.compile(r"\b(?:1[89]|20)\d{2}(?!\d)|\bin press\b", re.IGNORECASE)
_PLACE = re.compile(
    r"\b\d{4}[a-z]?;\s?\d|\b\d{1,4}\s?\([^()]{1,20}\)[:,]\s?\w?\d|[;:] ?(?:19|20)\d{2}\b|\(\d{4}[a-z]?\)[.,:]|"
    r"\bpp?\. ?\d|\bdoi\b|\bPMID\b|https?://",
    re.IGNORECASE,
)
"""Where a work was published: `2001;3`, `12(3):45`, `Geneva; 2010`, `(2001).`, a DOI or an address."""
_NEXT_SECTION = re.compile(
    r"\s*(?:#{1,6}\s|\W{0,4}(?:appendi|annex|supplement|acknowledg|abbreviation|author|funding|conflict|competing|table|"
    r"figure)\w*(?:\s+\S+){0,9}\s*$)",
    re.IGNORECASE,
)
_LINE = re.compile(r"[^\n]*\n?")
_END = re.compile(r"\.[\"'”’)\]]?$")


def remove_reference_lists(text: str) -> tuple[str, list[str]]:
    """Return a text without its lists of references, and these. A text that has nothing else keeps them."""
    pieces: list[str] = []
    lists: list[str] = []
    place = 0
    for heading in HEADING.finditer(text):
        end = _find_end(text, heading.end())
        if heading.start() >= place and end:
            pieces.append(text[place : heading.start()])
            lists.append(text[heading.start() : end])
            place = end
    rest = "".join(pieces) + text[place:]
    return (rest, lists) if any(map(str.isalpha, rest)) else (text, [])


def _find_end(text: str, start: int) -> int:
    """Return where the list below a heading ends, or 0 if there is none."""
    entries: list[str] = []
    ends: list[int] = []
    is_after_blank = True
    for match in _LINE.finditer(text, start):
        line = match[0]
        if not line.strip():
            is_after_blank = True
            continue
        if _NEXT_SECTION.match(line):
            break
        if _MARKER.match(line) or _AUTHOR.match(line.strip()) or (is_after_blank and _is_reference(line)):
            entries.append(line.strip())
            ends.append(match.end())
        elif (
            entries
            and not is_after_blank
            and len(entries[-1]) < MAX_ENTRY
            and (not _is_complete(entries[-1]) or _PLACE.search(line) or _goes_on(entries[-1], text, match.end()))
        ):
            entries[-1] += f" {line.strip()}"
            ends[-1] = match.end()
        else:
            break
        is_after_blank = False
    while entries and not _is_reference(entries[-1]):
        entries.pop()
        ends.pop()
    return ends[-1] if entries and 2 * sum(map(_is_reference, entries)) >= len(entries) else 0


def _is_reference(entry: str) -> bool:
    """Return whether a line has a year, and begins with an author or says where it was published."""
    marker = _MARKER.match(entry)
    body = entry[marker.end() if marker else 0 :].strip()
    return _YEAR.search(body) is not None and (_AUTHOR.match(body) or _PLACE.search(body)) is not None


def _goes_on(entry: str, text: str, place: int) -> bool:
    """Return whether the number after that of an entry follows before a blank line."""
    number = re.match(r"\W?(\d{1,3})\b", entry)
    block = text[place : place + MAX_ENTRY].partition("\n\n")[0]
    return number is not None and re.search(rf"^\W?{int(number[1]) + 1}\b\W", block, re.MULTILINE) is not None


def _is_complete(entry: str) -> bool:
    return _is_reference(entry) and _END.search(entry) is not None
