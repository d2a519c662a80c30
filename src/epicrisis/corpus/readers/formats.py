"""The formats of documents: one object for each, with its endings, its reader, and where that runs.

A new format is its object here, and its reader. Formats of
patients' records, whose files tell about each other, are read together (`record_files`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from epicrisis.corpus import sandbox
from epicrisis.corpus.base.reader_base import OmittedText, ReaderItem


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A format that is read file by file."""

    name: str
    help: str
    """What files have it, for the list of formats."""
    reader: str
    """`module.function` below `epicrisis.corpus`. It gets the path, and the name if that may become an id."""
    suffixes: tuple[str, ...] = ()
    """Endings that belong to this format alone. Where several formats share one, the file's beginning decides."""
    in_sandbox: bool = False
    """Whether a process of its own reads it, because a file may attack the parser."""
    names_documents: bool = False
    """Whether the file's name becomes the id of a document if nothing in the file does."""

    def read(self, path: Path, name: str) -> Iterator[ReaderItem | OmittedText]:
        """Yield the items of a file, read in the sandbox if the format asks for it."""
        return sandbox.read_file(self.name, path, name) if self.in_sandbox else self.parse(path, name)

    def parse(self, path: Path, name: str, **options: Any) -> Iterator[ReaderItem | OmittedText]:
        """Yield the items of a file, parsed in this process. `options` are for its reader."""
        module, _, function = self.reader.rpartition(".")
        reader = getattr(import_module(f"epicrisis.corpus.{module}"), function)
        items: Iterator[ReaderItem | OmittedText] = (
            reader(path, name, **options) if self.names_documents else reader(path, **options)
        )
        return items


_FORMATS = (
    Format(
        name="jsonl",
        help="JSON lines: one document a line, with id, text, title, date and metadata",
        reader="base.jsonl.read_file",
        suffixes=(".jsonl", ".jsonl.gz"),
    ),
    Format(
        name="medrag", help="MedRAG's corpora: JSON lines, one snippet a line", reader="articles.medrag.read_snippets"
    ),
    Format(
        name="statpearls",
        help="chapters of StatPearls (NXML), cut as MedRAG does",
        reader="articles.medrag.read_statpearls",
        in_sandbox=True,
    ),
    Format(
        name="retraction-watch",
        help="the list of Retraction Watch (CSV): marks articles of the library",
        reader="articles.retractions.read_retraction_watch",
    ),
    Format(
        name="text",
        help="text and Markdown",
        reader="base.plain_text.read_document",
        suffixes=(".txt", ".md", ".markdown"),
        names_documents=True,
    ),
    Format(
        name="pdf",
        help="PDF with a text layer; pages without one need tesseract",
        reader="documents.pdf.read_document",
        suffixes=(".pdf",),
        in_sandbox=True,
        names_documents=True,
    ),
    Format(
        name="html",
        help="web pages",
        reader="documents.html.read_document",
        suffixes=(".html", ".htm", ".xhtml"),
        in_sandbox=True,
        names_documents=True,
    ),
    Format(
        name="nxml",
        help="full texts of journals in JATS (PMC)",
        reader="articles.jats.read_articles",
        in_sandbox=True,
        names_documents=True,
    ),
    Format(
        name="office",
        help="Word, PowerPoint, OpenDocument, RTF (extra `office`)",
        reader="documents.office.read_document",
        suffixes=(".docx", ".pptx", ".odt", ".odp", ".rtf"),
        in_sandbox=True,
        names_documents=True,
    ),
    Format(
        name="spreadsheet",
        help="spreadsheets",
        reader="documents.office.read_spreadsheet",
        suffixes=(".xlsx", ".xls", ".xlsb", ".ods"),
        in_sandbox=True,
        names_documents=True,
    ),
)
FORMATS: Mapping[str, Format] = {format.name: format for format in _FORMATS}
"""By name, in the order in which help lists them."""
