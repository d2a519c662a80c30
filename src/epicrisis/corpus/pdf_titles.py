"""Tell the title of an article from what programs write into the title of a PDF file."""

from __future__ import annotations

import re

_PROGRAM = re.compile(
    r"(?:microsoft (?:word|powerpoint|excel|office)|openoffice|libreoffice)(?: ?[-–]|$)"
    r"|(?:powerpoint presentation|word document|full page photo)$"
    r"|(?:acrobat|adobe) (?:pdf ?maker|distiller|indesign|illustrator|photoshop|acrobat|pdf library)\b"
    r"|(?:quarkxpress|pscript5|ghostscript|pdf(?:la)?tex|arbortext)\b"
    r"|(?:paper|manuscript|article|submission) (?:id|no|number)\b\W"
    r"|(?:untitled|unbenannt|sans titre|sin título|no title|title|titel|document|dokument|manuscript|article|main|"
    r"main document|layout|slide|folie|page|template|paper|draft|print|scan(?:ned)?(?: document)?|unknown|unspecified|"
    r"anonymous|none|null|doc|text|full ?text|pdf|output|final|new document|blank)[ _-]{0,3}\d{0,6}\.?$",
    re.IGNORECASE,
)
_FILE = re.compile(
    r"\.(?:docx?|odt|rtf|pdf|tex|dvi|e?ps|indd|qxd|qxp|xlsx?|pptx?|html?|xml|txt|fm|wpd|pages|cdr|ai|tiff?|jpe?g|png|p65|"
    r"3d|job|pgs)\b(?:[\s)\]]|$)",
    re.IGNORECASE,
)
_IDENTIFIER = re.compile(
    r"(?:(?:https?://)?(?:dx\.)?doi(?:\.org/|:)? ?|https?://)?10\.\d{4,9}/\S+$|doi\b|https?://|www\."
    r"|pii[: ]|S?\d{4}-?\d{3}[\dX]\(\d\d\)|arXiv:|PMC\d|ISSN|ISBN",
    re.IGNORECASE,
)
_PAGE_RANGE = re.compile(r"\d{1,5} ?\.\.\.? ?\d{0,5}$")
_LETTER = re.compile(r"[^\W\d_]")


def is_title(text: str) -> bool:
    """Return whether a text can be a title: no file name, identifier, page range, single code or word of a program."""
    text = text.strip().strip("\"'<>()[]")
    if _PROGRAM.match(text) or _FILE.search(text) or _IDENTIFIER.match(text) or _PAGE_RANGE.search(text):
        return False
    letters = len(_LETTER.findall(text))
    if letters < 3 or 2 * letters < len(text):
        return False
    # One word with figures or underscores is a code: `BMJ_n71_proof`, `12874_2020_1234`.
    return " " in text or not re.search(r"[\d_]", text)
