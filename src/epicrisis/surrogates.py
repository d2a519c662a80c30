"""Replace halves of surrogate pairs, which no file, database or terminal can hold. Models write them, as characters and
as escapes inside of JSON."""

from __future__ import annotations

import re

_ESCAPES = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?P<half>\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\.",
    re.DOTALL,
)
SURROGATES_REPLACED = "the reply holds half of a surrogate pair, which is no character: U+FFFD stands in its place"


def replace_surrogates(text: str) -> str:
    """Return the text with U+FFFD for every half of a surrogate pair, as a character or escaped as in JSON.

    Two halves that belong together become their character.
    """
    return _without_escaped(_without_characters(text))


def ends_in_high_surrogate(text: str) -> bool:
    """Return whether the last character is the first half of a pair whose second half may follow."""
    return "\ud800" <= text[-1:] <= "\udbff"


def has_surrogate(text: str) -> bool:
    """Return whether the text has a character that is half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _without_characters(text: str) -> str:
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace") if has_surrogate(text) else text


def _without_escaped(text: str) -> str:
    if "\\ud" not in text and "\\uD" not in text:
        return text
    return _ESCAPES.sub(lambda match: "\\ufffd" if match["half"] else match[0], text)
