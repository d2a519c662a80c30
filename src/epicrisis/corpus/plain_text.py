"""Plain text and Markdown: one file, one document. Knows nothing of folders: it is told the file's name there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from epicrisis.corpus.reader_base import Skipped, os_error_reason, printable_path
from epicrisis.types import Document

LARGEST = 64 * 1024 * 1024
"""Bytes of a file: some thirty textbooks."""
MARKDOWN = (".md", ".markdown")


def read_document(path: Path, name: str) -> Iterator[Document | Skipped]:
    """The one document, or why it was left out.

    `name` is the path relative to what the user named, with forward slashes: it makes the id (`file:<name>`) and the
    source, so that no folder of this machine enters a passage. The text is the file's, without a byte order mark and
    with every line end as a line feed; the title is the first Markdown heading, else the file's stem.
    """
    try:
        size = path.stat().st_size
        if size > LARGEST:
            reason = f"{size / 2**20:,.0f} MB, and the limit is {LARGEST // 2**20}; split it"
            yield Skipped(printable_path(path), "", reason)
            return
        text = path.read_bytes().decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except OSError as error:
        yield Skipped(printable_path(path), "", f"{os_error_reason(error)}; check the file and its permissions")
        return
    except UnicodeDecodeError as error:
        yield Skipped(printable_path(path), "", f"not UTF-8 at byte {error.start + 1}; save the file as UTF-8")
        return
    if "\0" in text:
        yield Skipped(printable_path(path), "", "holds a NUL character: not a text file")
    elif not text.strip():
        yield Skipped(printable_path(path), "", "holds no text")
    else:
        heading = _heading(text) if path.suffix.lower() in MARKDOWN else ""
        yield Document(id=f"file:{name}", text=text, title=heading or path.stem, source=name)


def _heading(text: str) -> str:
    """The first heading of the form `# Heading` outside a fenced code block; empty where there is none."""
    fenced = False
    for line in text.split("\n"):
        if line.startswith(("```", "~~~")):
            fenced = not fenced
        rest = line.lstrip("#")
        if not fenced and 1 <= len(line) - len(rest) <= 6 and rest.startswith((" ", "\t")):
            words = rest.split()
            if words and not words[-1].strip("#"):
                words.pop()
            if words:
                return " ".join(words)
    return ""
