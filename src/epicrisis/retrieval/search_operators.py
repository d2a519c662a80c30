"""Name the parts of a Boolean search string that the search reads as plain words.

AND, OR, field tags and `*` change nothing that matters to a ranking. NOT, `-word` and phrases would leave documents
out, which a ranking does not do, so the reader is told.
"""

from __future__ import annotations

import re

from epicrisis.core.printable import shorten

MAX_CHARACTERS = 4000
"""Longer texts are no search strings."""
_TERM = r"(?:\"[^\"\n]{1,100}\"|“[^”\n]{1,100}”|\([^()\n]{1,100}\)|[\w*:/\[\]-]{1,60})"
_EXCLUSION = re.compile(
    rf"(?:(?<=\s)|\A|(?<=\())(?:NOT\s{{1,3}}{_TERM}|-(?:\"[^\"\n]{{1,100}}\"|[A-Za-z][\w*-]{{2,60}}))"
)
_PHRASE = re.compile(r"\"[^\s\"]{1,60}\s[^\"\n]{1,100}\"|“[^\s”]{1,60}\s[^”\n]{1,100}”")
_OPERATOR = re.compile(r"\s(?:AND|OR)\s|\[(?i:tiab|mesh|mh|tw|ti|ab|pt)\b")


def describe_operators(text: str) -> tuple[str, ...]:
    """Return a note on each kind of operator that the search does not obey. A question in words has none."""
    is_sentence = text.rstrip().endswith(("?", "."))
    if len(text) > MAX_CHARACTERS or (is_sentence and not _OPERATOR.search(text)):
        return ()
    notes = []
    exclusions = list(dict.fromkeys(match[0] for match in _EXCLUSION.finditer(text)))
    if exclusions and not text.isupper():
        notes.append(
            f"NOT and minus are not obeyed: {_quote(exclusions)} was read as words, so such documents are not left "
            "out. Leave these words out of the search"
        )
    without_exclusions = _EXCLUSION.sub(" ", text)
    phrases = list(dict.fromkeys(match[0] for match in _PHRASE.finditer(without_exclusions)))
    if phrases:
        notes.append(
            f"quotation marks are not obeyed: the words of {_quote(phrases)} were searched one by one, so passages "
            "without the phrase are not left out"
        )
    return tuple(notes)


def _quote(terms: list[str]) -> str:
    more = f" and {len(terms) - 2} more" if len(terms) > 2 else ""
    return ", ".join(f"“{shorten(term.replace('“', '').replace('”', ''), 60)}”" for term in terms[:2]) + more
