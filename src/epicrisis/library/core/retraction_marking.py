"""Marks of retraction, concern and correction in the documents of a library.

The journal holds the statements. Documents hold the resulting marks in their metadata, because searches filter by
them. Changing a mark encodes no text again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from datetime import date
from itertools import chain
from typing import Any

from epicrisis.core.types import MARKED_BY_OTHERS, RETRACTED, Document
from epicrisis.corpus.articles.retractions import REINSTATED, article_names, extract_statements
from epicrisis.library.base.passage_table import PassageTable
from epicrisis.library.core.journal import Journal, Statement, statements_about

_BATCH_DOCUMENTS = 500
_NOTICE_TYPES = (
    "retraction of publication",
    "retraction notice",
    "expression of concern",
    "published erratum",
    "corrected and republished article",
    "retracted publication",
)
"""Publication types of records with statements about other articles."""


def compute_marks(journal: Journal, documents: Sequence[Document]) -> dict[str, list[dict[str, Any]]]:
    """Map the ids of marked documents to their marks. Patients' notes have none."""
    names = {}
    for document in documents:
        if document.patient is None:
            names[document.id] = (document.id, *article_names(document.metadata))
    targets = sorted(set(chain.from_iterable(names.values())))
    statements = defaultdict(list)
    for statement in journal.statements(targets) if targets else ():
        statements[statement.target].append(statement)
    marks = {}
    for document_id, aliases in names.items():
        about_document = [statement for alias in aliases for statement in statements[alias]]
        if combined := combine_statements(about_document):
            marks[document_id] = combined
    return marks


def combine_statements(statements: Iterable[Statement]) -> list[dict[str, Any]]:
    """Return the marks that result from all statements about one document, in the form of its metadata.

    A reinstatement cancels retractions of earlier days. Retractions without a day remain.
    """
    by_source = {(statement.source, statement.mark): statement for statement in statements}
    reinstated = 0
    for statement in by_source.values():
        if statement.mark == REINSTATED and statement.day is not None:
            reinstated = max(reinstated, statement.day)
    valid = []
    for statement in by_source.values():
        is_lifted = statement.mark == RETRACTED and statement.day is not None and statement.day < reinstated
        if statement.mark != REINSTATED and not is_lifted:
            valid.append(statement)
    valid.sort(key=lambda statement: (statement.mark, statement.day or 0, statement.source))
    entries = []
    for statement in valid:
        entry: dict[str, Any] = {"mark": statement.mark, "by": statement.source}
        if statement.day is not None:
            day = date(statement.day // 10_000, statement.day // 100 % 100, statement.day % 100)
            entry["date"] = day.isoformat()
        entries.append(entry)
    return entries


def read_marks(metadata: Mapping[str, Any]) -> Iterator[tuple[str, str, int | None]]:
    """Yield mark, source and day of each mark in the metadata. Entries of another form are skipped."""
    marks = metadata.get("marks")
    for entry in marks if isinstance(marks, list) else ():
        if isinstance(entry, dict) and isinstance(entry.get("mark"), str) and isinstance(entry.get("by"), str):
            day = str(entry.get("date", "")).replace("-", "")
            yield entry["mark"], entry["by"], int(day) if len(day) == 8 and day.isdecimal() else None


def read_library_statements(table: PassageTable) -> Iterator[Statement]:
    """Yield the statements in a library without tables of statements: those of its notices and of its marks."""
    facets = [MARKED_BY_OTHERS, *(f"type:{kind}" for kind in _NOTICE_TYPES)]
    for document_id, metadata, published in table.literature(table.facet_condition(facets)):
        # Records of PubMed's files have a revision. Here the id shows where the record came from.
        notice = Document(document_id, "", date=published, metadata=metadata, revision="")
        yield from statements_about(extract_statements(notice))
        for mark, source, day in read_marks(metadata):
            yield Statement(document_id, source, mark, day)


def find_documents(journal: Journal, table: PassageTable, targets: Set[str]) -> Iterator[Sequence[str]]:
    """Yield the ids of the target documents in batches, each id once.

    Document ids are looked up. PMIDs and DOIs are searched in the metadata of all documents that may have them, in one
    pass over the table.
    """
    ids = dict.fromkeys(sorted(journal.hashes(sorted(targets))))
    kinds = {target.partition(":")[0] for target in targets if ":" in target}
    if not kinds.isdisjoint(("doi", "pubmed")):
        condition = "true" if "doi" in kinds else "substr(document_id, 1, 7) != 'pubmed:'"
        for document_id, metadata, _ in table.literature(condition):
            if document_id not in ids and not targets.isdisjoint(article_names(metadata)):
                ids[document_id] = None
    ordered = list(ids)
    for first in range(0, len(ordered), _BATCH_DOCUMENTS):
        yield ordered[first : first + _BATCH_DOCUMENTS]


def find_changed_marks(
    journal: Journal, table: PassageTable, document_ids: Sequence[str]
) -> dict[str, list[dict[str, Any]]]:
    """Map the ids of documents with outdated marks to their new marks. Patients' notes have none."""
    documents = {}
    for stored in table.passages_of(document_ids):
        passage = stored.passage
        documents[passage.document_id] = Document(
            passage.document_id, "", metadata=passage.metadata, patient=passage.patient
        )
    marks = compute_marks(journal, list(documents.values()))
    changed = {}
    for document in documents.values():
        new = marks.get(document.id, [])
        if document.patient is None and (document.metadata.get("marks") or []) != new:
            changed[document.id] = new
    return changed
