"""Name the parts of a Boolean search string that the search reads as plain words.

AND, OR, field tags and `*` change nothing that matters to a ranking. NOT, `-word`, phrases and words that must be near
each other would leave documents out, which a ranking does not do, so the reader is told.

The search by words takes NO, AS, IT and OR in capitals for abbreviations, so `lower_operators` tells OR between two
terms from an odds ratio or operating room.
"""

from __future__ import annotations

import re

from epicrisis.core.printable import shorten

MAX_CHARACTERS = 4000
"""Longer texts are no search strings."""
_TERM = r"(?:\"[^\"\n]{1,100}\"|“[^”\n]{1,100}”|\([^()\n]{1,100}\)|[\w*:/\[\]-]{1,60})"
_EXCLUSION = re.compile(
    rf"(?:(?<=\s)|\A|(?<=\())(?:(?:AND)?NOT\s{{1,3}}{_TERM}|-(?:\"[^\"\n]{{1,100}}\"|[A-Za-z][\w*-]{{2,60}}))"
)
_PHRASE = re.compile(r"\"[^\s\"]{1,60}\s[^\"\n]{1,100}\"|“[^\s”]{1,60}\s[^”\n]{1,100}”")
_NEARNESS = re.compile(r"(?<=\s)(?:ADJ\d{0,3}|NEAR(?:/\d{1,3})?|(?:NEXT|ONEAR|W|PRE)/\d{1,3})(?=\s)|:~\d{1,3}\]")
_OPERATOR = re.compile(r"\s(?:AND|OR)\s|\[(?i:tiab|mesh|mh|tw|ti|ab|pt)\b")
_LOWERED = re.compile(r"\b(?:AND|NOT|ANDNOT)\b")
_OR = re.compile(r"(?<=[\w\]\"”*)])\s{1,3}OR(?=\s{1,3}[^\W\d]|\s{1,3}[(\"“])")
_WORD_BEFORE, _WORD_AFTER = re.compile(r"\w{1,40}\Z"), re.compile(r"\s{1,3}OR\s{1,3}(\w{1,40})")
_BEFORE_ABBREVIATION = frozenset(
    ("a", "an", "the", "in", "of", "for", "and", "with", "by", "as", "per", "adjusted", "unadjusted", "pooled", "crude")
)
_AFTER_ABBREVIATION = frozenset(
    ("of", "for", "was", "is", "and", "in", "with", "per", "time", "times", "staff", "team", "nurse", "nurses")
)
"""Words beside OR as an odds ratio or operating room."""


def lower_operators(text: str) -> str:
    """Return a text with AND, OR and NOT in small letters where they join terms. Its length stays.

    In a sentence OR stays in capitals, unless other operators say that it is a search string.
    """
    if len(text) > MAX_CHARACTERS or text.isupper():
        return text
    is_string = bool(_LOWERED.search(text) or re.search(r"\[\w{2,8}\]|\([^()\n]{1,200}\sOR\s", text))
    lowered = _LOWERED.sub(lambda match: match[0].lower(), text)
    if text.rstrip().endswith(("?", ".")) and not is_string:
        return lowered

    def lower_or(match: re.Match[str]) -> str:
        before, after = _WORD_BEFORE.search(lowered, 0, match.start()), _WORD_AFTER.match(lowered, match.start())
        is_abbreviation = (before and before[0].lower() in _BEFORE_ABBREVIATION) or (
            after and after[1].lower() in _AFTER_ABBREVIATION
        )
        return match[0] if is_abbreviation else match[0].lower()

    return _OR.sub(lower_or, lowered)


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
    nearness = list(dict.fromkeys(match[0].strip(":]") for match in _NEARNESS.finditer(text)))
    if nearness:
        notes.append(
            f"nearness is not obeyed: {_quote(nearness)} was not heeded, so passages with these words far apart are "
            "not left out"
        )
    return tuple(notes)


def _quote(terms: list[str]) -> str:
    more = f" and {len(terms) - 2} more" if len(terms) > 2 else ""
    return ", ".join(f"“{shorten(term.replace('“', '').replace('”', ''), 60)}”" for term in terms[:2]) + more
