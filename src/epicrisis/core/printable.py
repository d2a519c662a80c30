"""Make text from outside safe to display: documents, ids, file names, replies of models and errors of endpoints.

`printable` replaces characters a terminal would interpret: control characters (ESC, C1, DEL), characters that reorder
or hide text (bidirectional controls, zero-width characters), line and paragraph separators, and lone surrogates.
`replace_surrogates` removes lone surrogates only. They cannot be stored in a file or database, and models write them
both as characters and as JSON escapes.
"""

from __future__ import annotations

import os
import re
import shlex
import unicodedata

REPLACEMENT = "\ufffd"
GUTTER = "  | "
"""Begins each further line of a text from outside. No line of the program itself begins with it."""
SURROGATES_REPLACED = "the reply contains a lone surrogate, which is not a character: it was replaced by U+FFFD"

_JOINERS = "\u00ad\u200c\u200d"
"""Format characters to keep: the soft hyphen, and the joiners of Persian, Indic scripts and emoji."""
_LAST_TAG = "\U000e007f"
"""The last invisible tag character. Some from U+E0000 on are not assigned, so they have no category of their own."""
_FORMULA_STARTS = tuple("=+-@＝＋－＠\t\r")
_BREAKS = re.compile("\r\n|[\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029]")
_SUSPECT = re.compile("[^ -~]")
_ESCAPES = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?P<lone>\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\.",
    re.DOTALL,
)


def printable(text: str, *, lines: bool = False) -> str:
    """Return the text as one line that is safe to display.

    Unsafe characters become U+FFFD; line breaks and tabs become spaces. With `lines`, newlines and tabs are kept, for
    text the program has laid out from printable parts.
    """
    if lines:
        return _SUSPECT.sub(lambda match: match[0] if match[0] in "\n\t" else _replacement(match), text)
    return _SUSPECT.sub(_replacement, _BREAKS.sub(" ", text).replace("\t", " "))


def split_printable_lines(text: str) -> list[str]:
    """Return the lines of a text from outside, each printable. All kinds of line breaks end a line."""
    return [printable(line) for line in _BREAKS.split(text)]


def printable_json(text: str) -> str:
    r"""Return JSON text with unsafe characters as \u escapes. The data are the same."""
    # Most texts have none, which takes a third of the time to find out so.
    if text.isascii() and text.isprintable():
        return text
    return _SUSPECT.sub(lambda match: match[0] if match[0] == "\n" or _is_safe(match[0]) else _escape(match[0]), text)


def shorten(text: str, limit: int = 80) -> str:
    """Return the text as one printable line of at most `limit` characters, with an ellipsis if it was longer."""
    line = " ".join(printable(text).split())
    return line if len(line) <= limit else f"{line[: limit - 1].rstrip()}…"


def without_formula(text: str) -> str:
    """Return the text with an apostrophe before it if a spreadsheet would read it as a formula."""
    is_formula = text.startswith(_FORMULA_STARTS) or text.lstrip().startswith(_FORMULA_STARTS)
    return f"'{text}" if is_formula else text


def quote_for_shell(*words: str | os.PathLike[str]) -> str:
    r"""Return a command line that a shell reads back as these words. Unsafe characters are escaped ($'\x1b')."""
    return " ".join(_quote(os.fspath(word)) for word in words)


def replace_surrogates(text: str) -> str:
    """Return the text with U+FFFD for each lone surrogate, as a character or a JSON escape.

    Two surrogate characters that form a pair become their character.
    """
    if has_surrogate(text):
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if "\\ud" not in text and "\\uD" not in text:
        return text
    return _ESCAPES.sub(lambda match: "\\ufffd" if match["lone"] else match[0], text)


def ends_in_high_surrogate(text: str) -> bool:
    """Return whether the text ends in the first half of a surrogate pair."""
    return "\ud800" <= text[-1:] <= "\udbff"


def has_surrogate(text: str) -> bool:
    """Return whether the text contains a surrogate character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _quote(word: str) -> str:
    if printable(word) == word:
        return shlex.quote(word)
    pieces = []
    for character in word:
        if character in "'\\":
            pieces.append(f"\\{character}")
        elif printable(character) == character:
            pieces.append(character)
        else:
            pieces.extend(f"\\x{byte:02x}" for byte in os.fsencode(character))
    return f"$'{''.join(pieces)}'"


def _replacement(match: re.Match[str]) -> str:
    return match[0] if _is_safe(match[0]) else REPLACEMENT


def _is_safe(character: str) -> bool:
    if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp"):
        return character in _JOINERS
    return not "\U000e0000" <= character <= _LAST_TAG


def _escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{high:02x}{low:02x}" for high, low in zip(units[::2], units[1::2], strict=True))


def format_seconds(seconds: float) -> str:
    """Return a time as a person says it: `40 s`, `3 min`, `2.5 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def count_noun(count: int, noun: str) -> str:
    """Return a count with its noun, such as `1 document` or `1,000 documents`. The plural must be regular."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def agree(count: int, singular: str, plural: str) -> str:
    """Return the word that agrees with a count, such as `is` or `are`."""
    return singular if count == 1 else plural
