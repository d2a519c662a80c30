"""Names of allergy entries that deny an allergy: `NKDA`, `Denies drug allergies`, `Not allergic to penicillin`."""

from __future__ import annotations

import re

_WHO = r"(?:(?:the )?(?:patient|pt\.?|he|she) )?(?:(?:is|has|with|reports|states|currently) )*"
_ALLERGY = r"(?:allerg(?:y|ies)|sensitivit(?:y|ies)|intolerances?|(?:adverse )?reactions?)\b"
_DENIAL = re.compile(
    rf"{_WHO}(?:"
    rf"(?:no|denie[sd]|denying|without|negative for|does not have) ((?:[\w/&,-]+ ){{0,6}}?){_ALLERGY}"
    rf"(?: to (.+))?|denie[sd] (?:being )?allergic to (.+)"
    r"|(?:not|no longer) (?:known to be |currently )?allergic(?: to (.+))?"
    r"|none of (?:the|these)(?: \w+)?: (.+)"
    r"|no known\b|nk[dmfe]?as?\b|(?:none|nil)(?: (?:known|recorded|documented|reported|listed|noted|on file))?\W*$"
    r")",
    re.IGNORECASE,
)
EXCEPTION = re.compile(r"\b(?:except|other than|besides|apart from|aside from|but|only)\b", re.IGNORECASE)
"""Words of a denial behind which something is affirmed."""
_GROUPS = """
a active all an and any anything current currently documented drug drugs environmental food foods have history hx
known medication medications medicine medicines of or other reported seasonal significant substance substances the to
"""
_GROUP_WORDS = frozenset(_GROUPS.split())
"""Words of a denial that name no single substance."""
_REMARKS = """
allergies allergy as at by chart date family file in intolerance intolerances list nka nkda noted on patient per record
reaction reactions reviewed sensitivities sensitivity since this time verified
"""
_REMARK_WORDS = _GROUP_WORDS | frozenset(_REMARKS.split())
"""Words behind a general denial that affirm nothing."""
_LETTERS = re.compile(r"[^\W\d_]+")


def read_denial(name: str) -> str | None:
    """Return what the name of an allergy entry denies: a substance, or an empty string for allergies in general.

    None: it denies nothing, or also affirms something, as `NKDA, latex` and `No allergies except latex` do.
    """
    words = " ".join(name.split())
    match = _DENIAL.match(words)
    if match is None or EXCEPTION.search(words):
        return None
    for part in match.groups(""):
        substance = part.strip(" .,").split()
        while substance and substance[0].lower() in _GROUP_WORDS:
            del substance[0]
        if not _GROUP_WORDS.issuperset(word.strip(" .,").lower() for word in substance):
            return " ".join(substance)
    return "" if _REMARK_WORDS.issuperset(_LETTERS.findall(words[match.end() :].lower())) else None
