"""Read plain text and Markdown files: one document for each, with its first heading as the title."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from epicrisis.core.types import Document
from epicrisis.corpus.base.encodings import decode_text, encoding_remark
from epicrisis.corpus.base.reader_base import FileRemark, OmittedText, Skipped, read_limited, skip
from epicrisis.corpus.base.reference_lists import remove_reference_lists
from epicrisis.corpus.base.removal_log import REFERENCE_LIST

MAX_TEXT_BYTES = 64 * 1024 * 1024


def read_document(path: Path, name: str) -> Iterator[Document | Skipped | FileRemark | OmittedText]:
    """Yield the only document of a plain text or Markdown file, or why it was skipped.

    `name` becomes the id (`file:<name>`) and the source, so no folder of this machine enters a passage. Line ends
    become line feeds; the title is the first Markdown heading, else the file's stem. Lists of references are left out.
    """
    try:
        text, encoding = decode_text(read_limited(path, MAX_TEXT_BYTES))
    except ValueError as error:
        yield skip(path, "", str(error))
        return
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if "\0" in text:
        yield skip(path, "", "contains a NUL character: not a text file")
    elif not text.strip():
        yield skip(path, "", "holds no text; leave it out")
    else:
        heading = find_heading(text) if path.suffix.lower() in (".md", ".markdown") else ""
        text, lists = remove_reference_lists(text)
        yield Document(id=f"file:{name}", text=text, title=heading or Path(name).stem, source=name)
        if lists:
            yield OmittedText(f"file:{name}", REFERENCE_LIST, tuple(lists))
        if encoding:
            yield encoding_remark(name, encoding)


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
