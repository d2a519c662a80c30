"""Text from outside made safe to show: documents, ids, file names, models' replies and errors of endpoints.

`printable` replaces what a terminal would obey instead of showing it: control characters (ESC, C1, DEL), characters
that reorder or hide text (bidirectional controls, zero-width ones), line and paragraph separators, and lone surrogates.
"""

from __future__ import annotations

import os
import re
import shlex
import unicodedata

REPLACEMENT = "\ufffd"
GUTTER = "  | "
"""Before each further line of a text that is not the program's own. No line of the program's own begins so."""

_JOINERS = "\u00ad\u200c\u200d"
"""Format characters that stay: the soft hyphen, and the two joiners that Persian, Indic scripts and emoji need."""
_BREAKS = re.compile("\r\n|[\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029]")
_SUSPECT = re.compile("[^ -~]")


def printable(text: str, *, lines: bool = False) -> str:
    """Return the text as one line that is safe to show: unsafe characters become U+FFFD, line breaks and tabs a space.

    With `lines` newlines and tabs stay: for text that the program has laid out itself from printable parts.
    """
    if lines:
        return _SUSPECT.sub(lambda found: found[0] if found[0] in "\n\t" else _shown(found), text)
    return _SUSPECT.sub(_shown, _BREAKS.sub(" ", text).replace("\t", " "))


def split_printable_lines(text: str) -> list[str]:
    """Return the lines of a text from outside, each one printable; every kind of line break ends a line."""
    return [printable(line) for line in _BREAKS.split(text)]


def printable_json(text: str) -> str:
    r"""Return JSON text with unsafe characters as \u escapes: the same data, and safe to show."""
    return _SUSPECT.sub(lambda found: found[0] if found[0] == "\n" or _is_safe(found[0]) else _escaped(found[0]), text)


def quote_for_shell(*words: str | os.PathLike[str]) -> str:
    r"""Return a command's words as a shell reads them back, also where a word holds unsafe characters ($'\x1b')."""
    return " ".join(_quoted(os.fspath(word)) for word in words)


def _quoted(word: str) -> str:
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


def _shown(found: re.Match[str]) -> str:
    return found[0] if _is_safe(found[0]) else REPLACEMENT


def _is_safe(character: str) -> bool:
    return character in _JOINERS or unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Zl", "Zp")


def _escaped(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
