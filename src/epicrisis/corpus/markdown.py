"""Find the title of a Markdown text."""

from __future__ import annotations


def find_heading(text: str) -> str:
    """Return the first heading of the form `# Heading` outside fenced code, or an empty string."""
    is_fenced = False
    for line in text.split("\n"):
        if line.startswith(("```", "~~~")):
            is_fenced = not is_fenced
        rest = line.lstrip("#")
        if not is_fenced and 1 <= len(line) - len(rest) <= 6 and rest.startswith((" ", "\t")):
            words = rest.split()
            if words and not words[-1].strip("#"):
                words.pop()
            if words:
                return " ".join(words)
    return ""
