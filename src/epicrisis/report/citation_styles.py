"""Format sources in a citation style, through the CSL processor citeproc-py (the extra `citations`).

    text = write_references(answer, "vancouver")
    lines = format_references(list_answer_sources(answer), "vancouver")

The styles are those of the CSL project in the folder `styles`, under CC BY-SA 3.0; each file says what was changed.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

from epicrisis.core.answers import Answer
from epicrisis.core.errors import InputError
from epicrisis.core.printable import printable
from epicrisis.core.types import CitationStyle, Ranking, ReferenceFormat
from epicrisis.report.answer_content import AnswerSection, SourceEntry, describe_marks
from epicrisis.report.citation_files import (
    CITATION_WRITERS,
    CitedSource,
    list_answer_sources,
    list_passage_sources,
    make_csl_item,
)

STYLE_NAMES: Mapping[CitationStyle, str] = {"vancouver": "Vancouver", "ama": "AMA", "apa": "APA"}
_LOCALE = "en-US"
_MANAGER_SUFFIXES = {"bibtex": ".bib", "ris": ".ris", "csl-json": ".csl.json"}
"""The formats of reference managers, and the endings of their files."""


def write_references(answer: Answer, format: ReferenceFormat) -> str:
    """Return the documents that an answer cites, as text: a list in a citation style, or a file of a reference manager.

    `vancouver` and `ama` number them in the order of their first citation; `apa` sorts them by author. The text is
    empty for an answer without citations (`[]` for `csl-json`). Raises InputError for another format, and for a style
    without the extra `citations`.
    """
    sources = list_answer_sources(answer)
    for style in STYLE_NAMES:
        if format == style:
            return write_reference_list(sources, style)
    if format not in _MANAGER_SUFFIXES:
        formats = ", ".join((*STYLE_NAMES, *_MANAGER_SUFFIXES))
        raise InputError(f"no format of references is called {format!r}: choose one of {formats}")
    return CITATION_WRITERS[_MANAGER_SUFFIXES[format]](sources)


def check_reference_format(format: ReferenceFormat) -> None:
    """Raise InputError for a citation style without the extra `citations`."""
    if format not in _MANAGER_SUFFIXES:
        check_citation_styles()


def check_citation_styles() -> None:
    """Raise InputError without the extra `citations`."""
    try:
        import citeproc  # noqa: F401
    except ImportError:
        raise InputError("citation styles need the extra `citations`: pip install 'epicrisis[citations]'") from None


def format_references(sources: Sequence[CitedSource], style: CitationStyle) -> list[str]:
    """Return each source as one printable line in this style, in the given order and without numbers.

    Raises InputError without the extra `citations`.
    """
    check_citation_styles()
    if not sources:
        return []
    from citeproc import Citation, CitationItem, CitationStylesBibliography, CitationStylesStyle, formatter
    from citeproc.source.json import CiteProcJSON

    items: list[dict[str, Any]] = []
    for number, source in enumerate(sources):
        # Ids of documents may hold characters that the processor changes.
        items.append({**make_csl_item(source), "id": f"source-{number}"})
    path = resources.files("epicrisis.report").joinpath("styles", f"{style}.csl")
    lines: list[str] = []
    with warnings.catch_warnings(), resources.as_file(path) as file:
        # It warns about fields that it does not know.
        warnings.simplefilter("ignore")
        parsed_style = CitationStylesStyle(str(file), locale=_LOCALE, validate=False)
        bibliography = CitationStylesBibliography(parsed_style, CiteProcJSON(items), formatter.plain)
        for item in items:
            bibliography.register(Citation([CitationItem(item["id"])]))
        for entry in bibliography.bibliography():
            line = " ".join(printable(str(entry)).split())
            lines.append(line if style == "apa" else line[len(f"{len(lines) + 1}.") :].strip())
    return lines


def write_reference_list(sources: Sequence[CitedSource], style: CitationStyle) -> str:
    """Return a list of references: in the given order with numbers, or without numbers by author for APA.

    Marks of an article, such as RETRACTED, follow its reference.
    """
    lines: list[str] = []
    for source, line in zip(sources, format_references(sources, style), strict=True):
        lines.append(f"{line} [{describe_marks(source.marks)}]" if source.marks else line)
    if style == "apa":
        lines.sort(key=str.casefold)
    else:
        lines = [f"{number}. {line}" for number, line in enumerate(lines, 1)]
    return "".join(f"{line}\n" for line in lines)


def list_answer_references(answer: Answer, style: CitationStyle) -> AnswerSection:
    """Return the sources of an answer in a style, each behind the numbers of its citations.

    Raises InputError without the extra `citations`.
    """
    citations = answer.shown_citations
    labels: dict[str, str] = {}
    for citation in citations:
        labels[citation.document_id] = labels.get(citation.document_id, "") + f"[{citation.number}]"
    return _list_references(list_answer_sources(answer), list(labels.values()), style)


def list_search_references(ranking: Ranking, style: CitationStyle) -> AnswerSection:
    """Return the documents of a ranking in a style, with their numbers.

    Raises InputError without the extra `citations`.
    """
    sources = list_passage_sources(ranking.passages)
    return _list_references(sources, [f"{number}." for number in range(1, len(sources) + 1)], style)


def _list_references(sources: Sequence[CitedSource], labels: Sequence[str], style: CitationStyle) -> AnswerSection:
    entries: list[SourceEntry] = []
    for source, label, line in zip(sources, labels, format_references(sources, style), strict=True):
        entries.append(SourceEntry(label, line, describe_marks(source.marks)))
    return AnswerSection(f"References ({STYLE_NAMES[style]})", tuple(entries))
