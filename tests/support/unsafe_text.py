"""Characters that a terminal obeys, or that hide and reorder text: what tests plant, and how they look for it."""

from __future__ import annotations

import re

CONTROLS = "\x00\x07\x08\x1b\x7f\x9b\x9d\x90"
FORMATS = (
    "\u061c\u200b\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2060\u2066\u2067\u2068\u2069\ufeff\U000e0000\U000e0041"
)
SURROGATES = "\ud800\udfff"
UNSAFE = CONTROLS + FORMATS + SURROGATES
ENCODED = UNSAFE.replace("\x00", "").replace(SURROGATES, "")
"""Those that files and stores of UTF-8 text can hold."""

_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff\U000e0000-\U000e007f]"
)


def unsafe_in(text: str) -> list[str]:
    """Return the unsafe characters of a text, but for newlines and tabs, as code points."""
    return [f"U+{ord(character):04X}" for character in _UNSAFE.findall(text)]
