"""Exit codes of the program."""

from __future__ import annotations

OK = 0
ERROR = 2
"""Bad input, or work that is incomplete: part of it failed and can be done again."""
INTERRUPTED = 130
"""Ctrl-C. Everything saved until then is kept."""
