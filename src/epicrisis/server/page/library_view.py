"""A library as its page shows it: counts, years as bars, study types, documents, and findings with their cures.

All texts are printable; the templates escape them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from epicrisis.core.printable import count_noun
from epicrisis.core.prompts import MARK_LABELS
from epicrisis.core.references import build_reference, name_document
from epicrisis.core.study_types import STUDY_TYPES, StudyType
from epicrisis.library.core.document_list import (
    PAGE_DOCUMENTS,
    SCANNED_DOCUMENTS,
    DocumentEntry,
    DocumentFilter,
    DocumentPage,
)
from epicrisis.server.libraries.shelves import ShelfContents
from epicrisis.server.page.question_form import parse_form, read_body

STUDY_TYPE_LABELS: Mapping[StudyType, str] = {row.type: row.label for row in STUDY_TYPES}
MAX_FILES = 20
"""Added files that the page lists, the newest first."""
MAX_PAGE = 100_000
_CHART_HEIGHT, _BAR, _GAP = 96, 14, 4
_MAX_BARS = 40
_YEAR = Field(None, ge=1000, le=3000)


class DocumentSearch(BaseModel):
    """The fields of the form that searches the documents of a library."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    words: Annotated[str, Field(max_length=200)] = ""
    first_year: int | None = _YEAR
    last_year: int | None = _YEAR
    study_type: StudyType | None = None
    page: int = Field(1, ge=1, le=MAX_PAGE)

    @field_validator("first_year", "last_year", "study_type", mode="before")
    @classmethod
    def _drop_empty(cls, value: object) -> object:
        return None if value == "" else value

    @classmethod
    def parse(cls, body: bytes) -> DocumentSearch:
        """Return the search of a sent form. Raises InputError with the name of a field that is wrong."""
        return read_body(cls, {name: values[-1].strip() for name, values in parse_form(body).items()})

    @property
    def filter(self) -> DocumentFilter:
        """The conditions of the search."""
        return DocumentFilter(self.words, self.first_year, self.last_year, self.study_type)

    @property
    def offset(self) -> int:
        """The number of documents before the page."""
        return (self.page - 1) * PAGE_DOCUMENTS


_SOUND = "The parts of the library agree, and there is room on the disk."
_ON_SERVER = "The library is on a database server, which checks its own files and its disk."


@dataclass(frozen=True, slots=True)
class YearBar:
    """A bar of the chart of years."""

    label: str
    """A year, or several, such as `1990-1994`."""
    documents: int
    x: int
    y: int
    height: int


@dataclass(frozen=True, slots=True, kw_only=True)
class YearChart:
    """The documents by year, as bars in the units of the drawing."""

    bars: tuple[YearBar, ...]
    width: int
    height: int
    highest: int
    """The most documents of a bar."""
    first: str
    last: str
    bar_width: int = _BAR


def describe_library(contents: ShelfContents, *, holds_patients: bool) -> dict[str, Any]:
    """Return what the page shows of a library except its documents.

    One with notes shows no names of files, which may name patients.
    """
    info, counts = contents.info, contents.counts
    files = [] if holds_patients else sorted(info.sources, key=lambda file: file.added, reverse=True)
    return {
        "summary": _summarize(contents, holds_patients=holds_patients),
        "facts": _list_facts(contents),
        "chart": build_year_chart(counts.years),
        "counts": counts,
        "type_labels": STUDY_TYPE_LABELS,
        "findings": contents.findings,
        "praise": _ON_SERVER if contents.free_bytes is None else _SOUND,
        "files": [(file.name, format_bytes(file.bytes), file.added[:10]) for file in files[:MAX_FILES]],
        "more_files": max(0, len(files) - MAX_FILES),
    }


def _list_facts(contents: ShelfContents) -> list[tuple[str, str]]:
    """Return size, search and versions of a library, as name and value."""
    info, manifest = contents.info, contents.info.manifest
    facts = [("Documents", f"{info.documents:,}"), ("Passages", f"{info.passages:,}")]
    facts.append(("Size on disk", format_bytes(sum(info.bytes_on_disk.values()))))
    if contents.free_bytes is not None:
        facts.append(("Free on the disk", format_bytes(contents.free_bytes)))
    software = ", ".join(f"{name} {version}" for name, version in manifest.software.items())
    return [
        *facts,
        ("Search", _describe_search(contents)),
        ("Encoder", f"{manifest.encoder_name}, {manifest.dimensions} dimensions"),
        ("Created", f"{manifest.created[:10]} by {software}"),
    ]


def _summarize(contents: ShelfContents, *, holds_patients: bool) -> str:
    """Return how much a library holds in one line."""
    counts = contents.counts
    parts = [count_noun(contents.patients, "patient")] if holds_patients else []
    parts.append(count_noun(contents.info.documents, "document"))
    if counts.years:
        first, last = min(counts.years), max(counts.years)
        parts.append(f"from {first} to {last}" if first != last else f"of {first}")
    if counts.retracted:
        parts.append(f"{counts.retracted:,} of {count_noun(counts.documents, 'document')} of literature retracted")
    return " · ".join(parts)


def _describe_search(contents: ShelfContents) -> str:
    index = contents.info.index
    if index is None:
        return "exact, no index needed" if contents.info.exact else "by the indexes of the database server"
    if contents.info.exact:
        return "exact, because the index is not good enough"
    return f"by an index that finds {index.recall:.3f} of the nearest 16 passages"


def build_year_chart(years: Mapping[int, int]) -> YearChart | None:
    """Return the documents by year as bars, or by several years if there are many. None without a dated document."""
    if not years:
        return None
    first, last = min(years), max(years)
    step = next(step for step in (1, 2, 5, 10, 20, 50, 100, 1000) if (last - first) // step < _MAX_BARS)
    begin = first - first % step
    groups: dict[int, int] = dict.fromkeys(range(begin, last + 1, step), 0)
    for year, documents in years.items():
        groups[year - year % step] += documents
    highest = max(groups.values())
    bars: list[YearBar] = []
    for number, (year, documents) in enumerate(groups.items()):
        height = round(_CHART_HEIGHT * documents / highest)
        # A year with a document is never drawn as an empty one.
        height = max(height, 2) if documents else 0
        label = str(year) if step == 1 else f"{year}–{year + step - 1}"
        bars.append(YearBar(label, documents, number * (_BAR + _GAP), _CHART_HEIGHT - height, height))
    width = len(bars) * (_BAR + _GAP) - _GAP
    return YearChart(
        bars=tuple(bars), width=width, height=_CHART_HEIGHT, highest=highest, first=bars[0].label, last=bars[-1].label
    )


def describe_documents(name: str, page: DocumentPage, search: DocumentSearch) -> dict[str, Any]:
    """Return what a page of the list of documents of a library shows."""
    last = search.offset + len(page.documents)
    total = f"{page.matches:,}" if page.is_complete else f"more than {page.matches:,}"
    if page.documents:
        summary = f"Documents {search.offset + 1:,} to {last:,} of {total}."
    else:
        summary = "No document meets these conditions." if search.page == 1 else "There is no such page."
        if not page.is_complete:
            summary += f" Only {SCANNED_DOCUMENTS:,} documents were looked at: add words or years to the search."
    rows = [_describe_document(entry) for entry in page.documents]
    return {"library": name, "search": search, "listed": rows, "found": summary, "has_next": page.matches > last}


def _describe_document(entry: DocumentEntry) -> tuple[str, str, str, list[str]]:
    """Return id, title and marks of a document, and further facts on it."""
    passage = entry.to_passage()
    reference = build_reference(passage)
    authors = ", ".join(reference.authors[:3]) + (" et al." if len(reference.authors) > 3 else "")
    study = reference.study.name if reference.study else ""
    facts = [authors, reference.journal or entry.source, reference.year, study]
    marks = ", ".join(MARK_LABELS[mark] for mark in passage.marks)
    return entry.id, name_document(entry.title, entry.id), marks, list(filter(None, facts))


def format_bytes(size: int) -> str:
    """Return a size for readers, such as `12.3 MB`."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size:,} bytes"
