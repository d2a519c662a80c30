"""Print the result of a search: documents with their references, and two lines of text around each match."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from epicrisis.core.errors import InputError
from epicrisis.core.printable import count_noun, printable
from epicrisis.core.types import CitationStyle, Ranking

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from epicrisis.report.search_results import FoundDocument, FoundPassage

_INDENT = "    "
_TEXT_LINES = 2
"""Lines of text shown of a passage."""


def check_search_file(path: Path) -> None:
    """Raise InputError if the documents found could not be written to the file."""
    from epicrisis.report.citation_files import find_citation_suffix
    from epicrisis.report.saved_answers import PAGE_SUFFIXES, check_new_file, check_page_file

    if find_citation_suffix(path.name):
        check_new_file(path)
    elif path.suffix.lower() in PAGE_SUFFIXES:
        check_page_file(path)
    else:
        raise InputError(f"{path}: the suffix is unknown: name the file .md, .docx, .html, .bib, .ris or .csl.json")


def write_search_file(path: Path, ranking: Ranking, query: str, style: CitationStyle | None = None) -> None:
    """Write the documents found to a file, by its suffix, readable by its owner only. Raises StorageError."""
    from epicrisis.report.citation_files import CITATION_WRITERS, find_citation_suffix, list_passage_sources
    from epicrisis.report.citation_styles import list_search_references
    from epicrisis.report.saved_answers import write_page_file, write_private_text
    from epicrisis.report.search_results import build_search_content

    if suffix := find_citation_suffix(path.name):
        write_private_text(path, CITATION_WRITERS[suffix](list_passage_sources(ranking.passages)))
    else:
        references = None if style is None else list_search_references(ranking, style)
        write_page_file(path, build_search_content(ranking, query, references))


def show_search(ranking: Ranking, query: str, style: CitationStyle | None = None) -> None:
    """Print the documents of a ranking. On a terminal the matching words are highlighted.

    `style`: also list their references in this citation style.
    """
    from epicrisis.cli.terminal import open_console
    from epicrisis.report.search_results import group_hits

    console = open_console()
    documents = group_hits(ranking, query)
    size = count_noun(len(ranking.hits), "passage")
    head = f"Found by {ranking.retriever}: {size} of {count_noun(len(documents), 'document')}"
    _print(console, "", head, "bold")
    for note in ranking.notes:
        _print(console, "  ", f"note: {printable(note)}")
    for number, document in enumerate(documents, 1):
        console.print()
        _show_document(console, number, document)
    if style is not None:
        from epicrisis.report.citation_styles import list_search_references

        references = list_search_references(ranking, style)
        console.print()
        _print(console, "", references.heading, "bold")
        for entry in references.entries:
            _print(console, f"{entry.label:>3} ", f"{f'[{entry.warning}] ' if entry.warning else ''}{entry.text}")


def _show_document(console: Console, number: int, document: FoundDocument) -> None:
    warning = f" [{document.warning}]" if document.warning else ""
    _print(console, f"{number:>2}. ", f"{document.title}{warning}", "bold")
    if document.description:
        _print(console, _INDENT, document.description)
    for link in document.links[:1]:
        # A link stays on one line, so that it can be clicked.
        line = f"{_INDENT}{link.label} {link.identifier}: {link.url}"
        console.print(line, soft_wrap=True, markup=False)
    for passage in document.passages:
        place = f", {passage.place}" if passage.place else ""
        _print(console, _INDENT, f"{passage.score:.4f}  {passage.id}{place}", "dim")
        for text_line in _cut_lines(console, passage):
            console.print(text_line, soft_wrap=True)


def _print(console: Console, head: str, text: str, style: str = "") -> None:
    """Print a printable text behind `head`. Its lines fit the width, and further ones are indented by the head."""
    from rich.text import Text

    room = max(console.width - len(head), 20)
    for line in Text(text, style=style).wrap(console, room):
        line.rstrip()
        console.print(Text(head) + line, soft_wrap=True)
        head = " " * len(head)


def _cut_lines(console: Console, passage: FoundPassage) -> list[Text]:
    """Return the lines of text around the matches, with the matching words highlighted."""
    from rich.text import Text

    from epicrisis.report.search_results import choose_window

    indent = _INDENT + "  "
    room = max(console.width - len(indent), 20)
    size = _TEXT_LINES * room
    while True:
        start, end = choose_window(passage.text, passage.matches, size)
        text = Text(passage.text)
        for match in passage.matches:
            text.stylize("bold yellow", match.start, match.end)
        before, after = "… " if start else "", " …" if end < len(passage.text) else ""
        window = Text(before) + text[start:end] + Text(after)
        lines = list(window.wrap(console, room))
        if len(lines) <= _TEXT_LINES or size < room:
            break
        size -= 4
    for line in lines:
        line.rstrip()
    return [Text(indent) + line for line in lines]


def describe_search(ranking: Ranking, query: str) -> Mapping[str, Any]:
    """Return the ranking as data: each hit with the matching words of its text, and each document with its reference.

    `matches` has offsets in characters of the passage's text.
    """
    from epicrisis.core.references import build_reference
    from epicrisis.core.serialization import to_json
    from epicrisis.report.search_results import group_by_document, list_matches

    data = to_json(ranking)
    matches = list_matches(ranking.passages, query)
    for hit in data["hits"]:
        hit["matches"] = matches[hit["passage"]["id"]]
    documents: list[dict[str, Any]] = []
    for group in group_by_document(ranking):
        first = group[0].passage
        documents.append(
            {
                "id": first.document_id,
                "title": first.title,
                "reference": to_json(build_reference(first)),
                "passages": [hit.passage.id for hit in group],
            }
        )
    return {**data, "documents": documents}
