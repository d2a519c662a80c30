"""Files of one answer: Markdown, Word, HTML, JSON, the evidence table as CSV, its sources for reference managers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from epicrisis.answers import Answer, Citation
from epicrisis.printable import printable, printable_json
from epicrisis.report.answer_content import build_answer_content
from epicrisis.report.answer_files import to_html, to_markdown
from epicrisis.report.answer_word import WORD_MEDIA_TYPE, to_word
from epicrisis.report.study_table import build_study_table, list_shown_citations, study_table_csv
from epicrisis.serialization import to_json
from epicrisis.server.page.evidence_map import list_ranked_passages
from epicrisis.server.page.stored_answers import StoredAnswer

_BIBTEX_SPECIAL = re.compile(r"[\\{}$&%#_^~]")
_KEY_CHARACTERS = re.compile(r"[^A-Za-z0-9]")
_MARKED_NOTE = "This article is marked: {}"


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


def list_sources(answer: Answer) -> tuple[Citation, ...]:
    """Return the first citation of each cited document."""
    first: dict[str, Citation] = {}
    for citation in list_shown_citations(answer):
        first.setdefault(citation.document_id, citation)
    return tuple(first.values())


def write_bibtex(stored: StoredAnswer) -> str:
    """Return the sources as BibTeX. Every special character of a text is escaped."""
    entries: list[str] = []
    for citation in list_sources(stored.answer):
        reference = citation.reference
        fields = {
            "title": citation.title or citation.document_id,
            "author": " and ".join(reference.authors),
            "journal": reference.journal or citation.source,
            "year": reference.year,
            "note": _MARKED_NOTE.format(", ".join(citation.marks)) if citation.marks else "",
        }
        for link in reference.links:
            fields[link.label.lower()] = link.identifier
        key = f"{_KEY_CHARACTERS.sub('', citation.document_id)[:40]}-{citation.number}"
        lines = [f"@article{{{key},"]
        for name, value in fields.items():
            if value:
                text = _BIBTEX_SPECIAL.sub(lambda match: f"\\char{ord(match[0])} ", printable(value))
                lines.append(f"  {name} = {{{text}}},")
        entries.append("\n".join([*lines, "}"]))
    return "\n\n".join(entries) + "\n" if entries else ""


def write_ris(stored: StoredAnswer) -> str:
    """Return the sources as RIS, one tag a line."""
    lines: list[str] = []
    for citation in list_sources(stored.answer):
        reference = citation.reference
        tags: list[tuple[str, str]] = [("TY", "JOUR"), ("TI", citation.title or citation.document_id)]
        tags += [("AU", author) for author in reference.authors]
        tags += [("JO", reference.journal or citation.source), ("PY", reference.year)]
        for link in reference.links:
            tags.append(("DO", link.identifier) if link.label == "DOI" else ("AN", f"{link.label} {link.identifier}"))
        tags.append(("N1", citation.quotation))
        if citation.marks:
            tags.append(("N1", _MARKED_NOTE.format(", ".join(citation.marks))))
        lines += [f"{tag}  - {printable(value)}" for tag, value in tags if value]
        lines += ["ER  - ", ""]
    return "\n".join(lines)


FORMATS: Mapping[str, ExportFormat] = {
    "md": ExportFormat("Markdown", "text/markdown", lambda stored: to_markdown(build_answer_content(stored.answer))),
    "docx": ExportFormat("Word", WORD_MEDIA_TYPE, lambda stored: to_word(build_answer_content(stored.answer))),
    "html": ExportFormat("Web page", "text/html", lambda stored: to_html(build_answer_content(stored.answer))),
    "json": ExportFormat("JSON", "application/json", _json),
    "csv": ExportFormat("Table (CSV)", "text/csv", _csv),
    "bib": ExportFormat("BibTeX", "application/x-bibtex", write_bibtex),
    "ris": ExportFormat("RIS", "application/x-research-info-systems", write_ris),
}
"""The formats by the ending of their files."""


def list_exports() -> list[tuple[str, str]]:
    """Return the ending and the label of each format."""
    return [(suffix, chosen.label) for suffix, chosen in FORMATS.items()]
