"""Read plain text and Markdown: one file, one document."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from epicrisis.corpus.reader_base import Skipped, read_limited, skip
from epicrisis.types import Document

MAX_FILE_BYTES = 64 * 1024 * 1024
"""Limit of a file: about thirty textbooks."""
MARKDOWN_SUFFIXES = (".md", ".markdown")


def read_document(path: Path, name: str) -> Iterator[Document | Skipped]:
    """Yield the only document, or why it was skipped.

    `name` is the path relative to the path given by the user, with forward slashes. It becomes the id (`file:<name>`)
    and the source, so no folder of this machine enters a passage. The text is the file's, without a byte order mark and
    with line feeds as line ends; the title is the first Markdown heading, else the file's stem.
    """
    try:
        text = read_limited(path, MAX_FILE_BYTES).decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        yield skip(path, "", f"not UTF-8 at byte {error.start + 1}; save the file as UTF-8")
        return
    except ValueError as error:
        yield skip(path, "", str(error))
        return
    if "\0" in text:
        yield skip(path, "", "holds a NUL character: not a text file")
    elif not text.strip():
        yield skip(path, "", "holds no text")
    else:
        heading = _find_heading(text) if path.suffix.lower() in MARKDOWN_SUFFIXES else ""
        yield Document(id=f"file:{name}", text=text, title=heading or path.stem, source=name)


def _find_heading(text: str) -> str:
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
