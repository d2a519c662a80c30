"""List the documents of a library: pages of titles and metadata, and counts.

The text of a document is read only where its study type stands in no title and no term.

    page = list_documents(library, DocumentFilter(words="aspirin", first_year=2010), offset=50)

Only documents without a patient are listed and counted. The order is that of the passage table.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from epicrisis.core.study_types import StudyType, StudyTypeMatch, find_study_type
from epicrisis.core.types import RETRACTED, Metadata, Passage
from epicrisis.library.base.passage_table import sql_in, sql_text
from epicrisis.library.core.library_store import LibraryStore

PAGE_DOCUMENTS = 50
COUNTED_DOCUMENTS = 20_000
"""The most documents whose study type is counted."""
SCANNED_DOCUMENTS = 20_000
"""Documents read after the page to count the other matches. Also the most that a search by study type reads."""
_COLUMNS = ["document_id", "title", "source", "metadata", "date"]
_ASCII_WORD = re.compile(r"[a-z0-9]+")


@dataclass(frozen=True, slots=True)
class DocumentFilter:
    """Which documents to list. A document meets all conditions."""

    words: str = ""
    """Each word occurs in the title, an author's name or the id, without case."""
    first_year: int | None = None
    last_year: int | None = None
    study_type: StudyType | None = None
    """By publication type, MeSH terms, title or abstract, as for the studies of an answer."""


@dataclass(frozen=True, slots=True)
class DocumentEntry:
    """A document in the list."""

    id: str
    title: str
    source: str
    date: str | None
    metadata: Metadata
    abstract: str = ""
    """The text of the first passage, if nothing else shows the study type."""

    @property
    def study(self) -> StudyTypeMatch | None:
        """The type of the study, as far as it is known."""
        return find_study_type(self.metadata, self.title, self.abstract)

    def to_passage(self) -> Passage:
        """Return the first passage of the document as `build_reference` reads it."""
        text = self.abstract
        return Passage(
            id=f"{self.id}#0",
            document_id=self.id,
            ordinal=0,
            start=0,
            end=len(text),
            text=text,
            title=self.title,
            source=self.source,
            date=self.date,
            metadata=self.metadata,
        )


@dataclass(frozen=True, slots=True)
class DocumentPage:
    """A part of the list."""

    documents: tuple[DocumentEntry, ...]
    matches: int
    """Documents found so far that meet the filter."""
    is_complete: bool
    """Whether `matches` counts all of them. See SCANNED_DOCUMENTS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentCounts:
    """Counts of the documents without a patient."""

    documents: int
    years: Mapping[int, int]
    """Documents by year of publication, in order. Years without a document are missing."""
    undated: int
    study_types: Mapping[StudyType, int]
    """Documents by study type, the most frequent first."""
    unknown_types: int
    counted_types: int
    """Documents whose study type was looked for: all, or the first COUNTED_DOCUMENTS."""
    retracted: int


def list_documents(
    library: LibraryStore, document_filter: DocumentFilter, offset: int = 0, limit: int = PAGE_DOCUMENTS
) -> DocumentPage:
    """Return the matching documents from `offset`, and the number of all matches.

    Raises StorageError or LibraryDamaged if the library cannot be read.
    """
    documents: list[DocumentEntry] = []
    matches = scanned = 0
    columns = _COLUMNS if document_filter.study_type is None else [*_COLUMNS, "text"]
    for row in _read_rows(library, _build_condition(document_filter), columns):
        if matches >= offset + limit or document_filter.study_type is not None:
            scanned += 1
            if scanned > SCANNED_DOCUMENTS:
                return DocumentPage(_add_abstracts(library, documents), matches, is_complete=False)
        entry = _parse_entry(row)
        if not _meets(entry, document_filter):
            continue
        matches += 1
        if offset < matches <= offset + limit:
            documents.append(entry)
    return DocumentPage(_add_abstracts(library, documents), matches, is_complete=True)


def _add_abstracts(library: LibraryStore, documents: Sequence[DocumentEntry]) -> tuple[DocumentEntry, ...]:
    """Return the documents, with the abstract of those whose study type nothing else shows."""
    unknown = [entry.id for entry in documents if not entry.abstract and entry.study is None]
    if not unknown:
        return tuple(documents)
    condition = f"ordinal = 0 AND patient IS NULL AND {sql_in('document_id', unknown)}"
    texts = {row["document_id"]: row["text"] for row in _read_rows(library, condition, ["document_id", "text"])}
    return tuple(replace(entry, abstract=texts.get(entry.id, "")) for entry in documents)


def count_documents(library: LibraryStore) -> DocumentCounts:
    """Return the counts of the documents without a patient.

    Raises StorageError or LibraryDamaged if the library cannot be read.
    """
    years: Counter[int] = Counter()
    types: Counter[StudyType] = Counter()
    documents = undated = unknown = retracted = typed = 0
    for row in _read_rows(library, _build_condition(DocumentFilter()), ["last_day", "facets"]):
        documents += 1
        if row["last_day"] is None:
            undated += 1
        else:
            years[row["last_day"] // 10_000] += 1
        retracted += RETRACTED in row["facets"]
    for row in _read_rows(library, _build_condition(DocumentFilter()), ["title", "metadata", "text"]):
        typed += 1
        match = find_study_type(json.loads(row["metadata"]), row["title"], row["text"])
        if match is None:
            unknown += 1
        else:
            types[match.type] += 1
        if typed == COUNTED_DOCUMENTS:
            break
    return DocumentCounts(
        documents=documents,
        years=dict(sorted(years.items())),
        undated=undated,
        study_types=dict(types.most_common()),
        unknown_types=unknown,
        counted_types=typed,
        retracted=retracted,
    )


def _read_rows(library: LibraryStore, condition: str, columns: list[str]) -> Iterator[dict[str, Any]]:
    """Yield these columns of the first passages that meet the condition, a batch in memory at a time."""
    return library.open_table().rows(columns, condition)


def _build_condition(document_filter: DocumentFilter) -> str:
    """Return SQL that every document of the filter meets. Others may meet it too: `_meets` decides."""
    conditions = ["ordinal = 0", "patient IS NULL"]
    for word in _ASCII_WORD.findall(document_filter.words.lower()):
        # Words with other letters are compared in Python: the metadata are JSON with escapes.
        if word in document_filter.words.lower().split():
            text = sql_text(word)
            fields = ("title", "metadata", "document_id")
            conditions.append(f"({' OR '.join(f'contains(lower({field}), {text})' for field in fields)})")
    if document_filter.first_year is not None:
        conditions.append(f"last_day >= {document_filter.first_year * 10_000}")
    if document_filter.last_year is not None:
        conditions.append(f"last_day < {(document_filter.last_year + 1) * 10_000}")
    return " AND ".join(conditions)


def _meets(entry: DocumentEntry, document_filter: DocumentFilter) -> bool:
    if document_filter.words:
        content = " ".join((entry.title, *list_authors(entry.metadata), entry.id)).casefold()
        if not all(word in content for word in document_filter.words.casefold().split()):
            return False
    if document_filter.study_type is None:
        return True
    return entry.study is not None and entry.study.type == document_filter.study_type


def list_authors(metadata: Metadata) -> tuple[str, ...]:
    """Return the names of the authors as the source gives them. Values of an unexpected type are ignored."""
    authors = metadata.get("authors")
    items: tuple[object, ...] = tuple(authors) if isinstance(authors, list | tuple) else (authors,)
    return tuple(item for item in items if isinstance(item, str))


def _parse_entry(row: Mapping[str, Any]) -> DocumentEntry:
    metadata = json.loads(row["metadata"])
    return DocumentEntry(row["document_id"], row["title"], row["source"], row["date"], metadata, row.get("text", ""))
