"""Files of one answer: Markdown, Word, HTML, JSON, the evidence table as CSV, its sources for reference managers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec

from epicrisis.core.printable import printable_json
from epicrisis.core.serialization import to_json
from epicrisis.core.types import CitationStyle
from epicrisis.report.answer_content import build_answer_content
from epicrisis.report.answer_files import to_html, to_markdown
from epicrisis.report.answer_word import WORD_MEDIA_TYPE, to_word
from epicrisis.report.citation_files import (
    CitedSource,
    list_answer_sources,
    write_bibtex,
    write_csl_json,
    write_ris,
)
from epicrisis.report.citation_styles import STYLE_NAMES, write_reference_list
from epicrisis.report.study_table import build_study_table, study_table_csv
from epicrisis.server.page.evidence_map import list_ranked_passages
from epicrisis.server.state.stored_answers import StoredAnswer


@dataclass(frozen=True, slots=True)
class ExportFormat:
    """A file format of an answer."""

    label: str
    media_type: str
    write: Callable[[StoredAnswer], str | bytes]


def _csv(stored: StoredAnswer) -> str:
    passages = (*stored.passages, *list_ranked_passages(stored.answer))
    return study_table_csv(build_study_table(stored.answer, passages))


def _json(stored: StoredAnswer) -> str:
    return printable_json(json.dumps(to_json(stored.answer), ensure_ascii=False, indent=2))


def _sources(write: Callable[[Iterable[CitedSource]], str]) -> Callable[[StoredAnswer], str]:
    """Return what writes the sources of an answer for reference managers."""
    return lambda stored: write(list_answer_sources(stored.answer))


FORMATS: Mapping[str, ExportFormat] = {
    "md": ExportFormat("Markdown", "text/markdown", lambda stored: to_markdown(build_answer_content(stored.answer))),
    "docx": ExportFormat("Word", WORD_MEDIA_TYPE, lambda stored: to_word(build_answer_content(stored.answer))),
    "html": ExportFormat("Web page", "text/html", lambda stored: to_html(build_answer_content(stored.answer))),
    "json": ExportFormat("JSON", "application/json", _json),
    "csv": ExportFormat("Table (CSV)", "text/csv", _csv),
    "bib": ExportFormat("BibTeX", "application/x-bibtex", _sources(write_bibtex)),
    "ris": ExportFormat("RIS", "application/x-research-info-systems", _sources(write_ris)),
    "csl.json": ExportFormat("CSL-JSON", "application/vnd.citationstyles.csl+json", _sources(write_csl_json)),
}
"""The formats of every installation, by the ending of their files."""


def _reference_list(style: CitationStyle) -> Callable[[StoredAnswer], str]:
    """Return what writes the sources of an answer in a citation style."""
    return lambda stored: write_reference_list(list_answer_sources(stored.answer), style)


@cache
def list_formats() -> Mapping[str, ExportFormat]:
    """Return the formats by the ending of their files. Those of citation styles need the extra `citations`."""
    formats = dict(FORMATS)
    if find_spec("citeproc") is not None:
        for style, name in STYLE_NAMES.items():
            label = f"References ({name})"
            formats[f"{style}.txt"] = ExportFormat(label, "text/plain; charset=utf-8", _reference_list(style))
    return formats


def list_exports() -> list[tuple[str, str]]:
    """Return the ending and the label of each format."""
    return [(suffix, chosen.label) for suffix, chosen in list_formats().items()]
