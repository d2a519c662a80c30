"""Leave what is for the command line out of the sentences that the page shows.

    leave_out_commands(["No chat model is used; --model URL names one"])   # ("No chat model is used",)

The program's messages are the same everywhere, and some end with an option of a command. A reader of the page has no
command line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_OPTION = re.compile(r"(?<![\w-])--[a-z]|`epicrisis ")
_BRACKET = re.compile(r" ?\([^()]*(?:(?<![\w-])--[a-z]|`epicrisis )[^()]*\)")
_PART = re.compile(r"(?<=[.;:])\s+")
"""Where a part of a message begins: a sentence, or a clause behind a semicolon or colon."""


def leave_out_command(text: str) -> str:
    """Return the text without the sentences and clauses that name an option or a command. It may be empty."""
    if not _OPTION.search(text):
        return text
    text = _BRACKET.sub("", text)
    parts = [part for part in _PART.split(text) if not _OPTION.search(part)]
    kept = " ".join(parts).rstrip(" ;:,")
    return kept if not kept or kept.endswith((".", "!", "?", ")")) or not text.endswith(".") else f"{kept}."


def make_sentence(text: str) -> str:
    """Return a text as a sentence, with a capital and a full stop."""
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}"


def format_moment(time: str) -> str:
    """Return a moment for readers. It is given as ISO 8601 in UTC."""
    return f"{time.replace('T', ' ').removesuffix('+00:00')} UTC"


def leave_out_commands(lines: Iterable[str]) -> tuple[str, ...]:
    """Return the lines without what is for the command line. Lines of nothing else are gone."""
    return tuple(filter(None, map(leave_out_command, lines)))
