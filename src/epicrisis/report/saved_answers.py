"""The file of one answer, by its suffix: Markdown, a Word file, a page, JSON, or its sources for reference managers."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TextIO

from epicrisis.core.errors import InputError, StorageError

if TYPE_CHECKING:
    from epicrisis.core.answers import Answer
    from epicrisis.core.types import CitationStyle
    from epicrisis.report.answer_content import AnswerContent

READABLE_SUFFIXES = (".md", ".docx", ".html", ".json", ".bib", ".ris")
"""Suffixes of files with one answer or its sources. `.csl.json` is one of `.json`."""
PAGE_SUFFIXES = (".md", ".docx", ".html")
"""Suffixes of files for people to read."""
WORD_SUFFIX = ".docx"
RECORD_SUFFIXES = (".jsonl", "")
"""Suffixes of files of records."""

_JSON_BEGINNING = '{\n  "question": {'


def check_answer_file(path: Path) -> bool:
    """Return whether the file is one of records, which are appended. Other files are replaced.

    Raises InputError before any call of a model if the answer could not be written there.
    """
    from epicrisis.report.citation_files import find_citation_suffix

    suffix = path.suffix.lower()
    if suffix in RECORD_SUFFIXES:
        return True
    if suffix not in READABLE_SUFFIXES:
        raise InputError(
            f"{path}: the suffix is unknown: name the file .md, .docx, .html or .json for the answer, .bib, .ris or "
            ".csl.json for its sources, .jsonl for a record"
        )
    if find_citation_suffix(path.name):
        check_new_file(path)
    else:
        check_page_file(path)
    return False


def check_page_file(path: Path) -> None:
    """Raise InputError if a file to read could not be written there, or is not one that this program wrote."""
    _check_folder(path)
    if path.exists() and not _is_answer(path):
        raise InputError(f"{path} exists and is no answer that this program wrote: choose another file")


def check_new_file(path: Path) -> None:
    """Raise InputError if the file exists, or its folder does not."""
    _check_folder(path)
    if path.exists():
        raise InputError(f"{path} exists: choose another file, or remove it")


def _check_folder(path: Path) -> None:
    if not path.parent.is_dir():
        raise InputError(f"{path.parent} is not a folder: choose a file in an existing folder")


def _is_answer(path: Path) -> bool:
    """Return whether this program wrote the file, so that it may be overwritten."""
    from epicrisis.report.answer_files import HTML_MARK, MARKDOWN_MARK
    from epicrisis.report.answer_word import is_word_answer

    if not path.is_file():
        return False
    if path.suffix.lower() == WORD_SUFFIX:
        return is_word_answer(path)
    with path.open(encoding="utf-8", errors="replace") as file:
        text = file.read()
    return any(mark in text for mark in (MARKDOWN_MARK, HTML_MARK)) or text.startswith(_JSON_BEGINNING)


def write_answer_file(
    path: Path, answer: Answer, *, steps: Sequence[str] = (), style: CitationStyle | None = None
) -> None:
    """Write the answer completely or not at all, readable by its owner only. Raises StorageError.

    `steps` are the steps that led to the answer. JSON always has them. `style` adds its sources in that style.
    """
    from epicrisis.core.printable import printable_json
    from epicrisis.core.serialization import to_json
    from epicrisis.report.answer_content import build_answer_content
    from epicrisis.report.citation_files import CITATION_WRITERS, find_citation_suffix, list_answer_sources
    from epicrisis.report.citation_styles import list_answer_references

    if suffix := find_citation_suffix(path.name):
        write_private_text(path, CITATION_WRITERS[suffix](list_answer_sources(answer)))
    elif path.suffix.lower() == ".json":
        text = printable_json(json.dumps(to_json(answer), ensure_ascii=False, indent=2)) + "\n"
        write_private_text(path, text)
    else:
        references = None if style is None else list_answer_references(answer, style)
        write_page_file(path, build_answer_content(answer, references), steps)


def write_page_file(path: Path, content: AnswerContent, steps: Sequence[str] = ()) -> None:
    """Write what a reader is shown as Markdown, a Word file or a page, by the suffix. Raises StorageError."""
    from epicrisis.report.answer_files import to_html, to_markdown
    from epicrisis.report.answer_word import to_word

    suffix = path.suffix.lower()
    if suffix == WORD_SUFFIX:
        _write_private(path, to_word(content, steps))
        return
    write = to_html if suffix == ".html" else to_markdown
    write_private_text(path, write(content, steps))


def write_private_text(path: Path, text: str) -> None:
    """Write the file completely or not at all, readable by its owner only. Raises StorageError."""
    _write_private(path, text.encode())


def _write_private(path: Path, content: bytes) -> None:
    with _replacement(path) as file:
        file.write(content)


@contextmanager
def open_new_file(path: Path) -> Iterator[TextIO]:
    """Open a text file for writing that appears complete or not at all, readable by its owner only.

    Raises InputError if the file exists, and StorageError.
    """
    check_new_file(path)
    with _replacement(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="\n")
        yield text
        text.detach()


@contextmanager
def _replacement(path: Path) -> Iterator[BinaryIO]:
    """Open a new file that takes the place of `path` when the block ends without an exception. Raises StorageError."""
    from epicrisis.system.local_only import open_private

    temporary = path.with_name(f".{path.name}.new")
    try:
        descriptor = open_private(temporary, os.O_WRONLY | os.O_TRUNC)
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror}; make room, or choose another file") from error
    finally:
        temporary.unlink(missing_ok=True)
