"""Marks of retraction, concern and correction in the documents of a library, whatever came first.

Statements are kept beside the journal, the marks that they come to in the documents themselves, where searches filter
by them. No text is encoded anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from typing import Any

from epicrisis.corpus.reader_base import ArticleStatement
from epicrisis.corpus.retractions import article_names, extract_statements
from epicrisis.library.journal import Journal
from epicrisis.library.passage_table import PassageTable
from epicrisis.library.retraction_statements import Statement, standing, stated_in, statements_of
from epicrisis.types import MARKED_BY_OTHERS, Document

_PIECE = 500
_NOTICES = (
    "retraction of publication",
    "retraction notice",
    "expression of concern",
    "published erratum",
    "corrected and republished article",
    "retracted publication",
)
"""Types of records that may say something of other articles."""


def marks_for(journal: Journal, documents: Sequence[Document]) -> dict[str, list[dict[str, Any]]]:
    """Return the marks of those of the documents that have some, by id."""
    names = {each.id: (each.id, *article_names(each.metadata)) for each in documents if each.patient is None}
    wanted = sorted({name for several in names.values() for name in several})
    by_target: dict[str, list[Statement]] = {}
    for statement in journal.statements(wanted) if wanted else ():
        by_target.setdefault(statement.target, []).append(statement)
    found = {}
    for document_id, several in names.items():
        if marks := standing(each for name in several for each in by_target.get(name, ())):
            found[document_id] = marks
    return found


def statements_in(table: PassageTable) -> Iterator[Statement]:
    """Yield what the documents of a library say that has kept no statements so far: its notices, and its marks."""
    named = ", ".join(f"'{name}'" for name in (MARKED_BY_OTHERS, *(f"type:{kind}" for kind in _NOTICES)))
    for document_id, metadata, date in table.known_by(f"array_has_any(facets, [{named}])"):
        # Every record of PubMed's files has a revision; here its id says as much.
        notice = Document(document_id, "", date=date, metadata=metadata, revision="")
        for marked in extract_statements(notice):
            yield from statements_of(marked)
        for mark, by, day in stated_in(metadata):
            yield Statement(document_id, by, mark, day)


def documents_named(journal: Journal, table: PassageTable, targets: Set[str]) -> Iterator[Sequence[str]]:
    """Yield the documents that these names stand for, piece by piece; each id once.

    A name that is an id is looked up. The others are looked for in the metadata of all documents that could have
    them: one pass over the table.
    """
    ids = sorted(journal.hashes(sorted(targets)))
    found = set(ids)
    pmids = any(target.startswith("pubmed:") for target in targets)
    dois = any(target.startswith("doi:") for target in targets)
    for condition in _where(pmids=pmids, dois=dois):
        for document_id, metadata, _ in table.known_by(condition):
            if document_id not in found and not targets.isdisjoint(article_names(metadata)):
                found.add(document_id)
                ids.append(document_id)
    for first in range(0, len(ids), _PIECE):
        yield ids[first : first + _PIECE]


def _where(*, pmids: bool, dois: bool) -> Iterator[str]:
    if dois:
        yield "true"
    elif pmids:
        yield "document_id NOT LIKE 'pubmed:%'"


def marks_to_change(
    journal: Journal, table: PassageTable, document_ids: Sequence[str]
) -> dict[str, list[dict[str, Any]]]:
    """Return the marks stated of those documents whose metadata say others, by id; patients' notes have none."""
    first = {stored.passage.document_id: stored.passage for stored in table.passages_of(document_ids)}
    documents = [Document(id_, "", metadata=part.metadata, patient=part.patient) for id_, part in first.items()]
    stated = marks_for(journal, documents)
    marks = {}
    for document in documents:
        wanted = stated.get(document.id, [])
        if document.patient is None and (document.metadata.get("marks") or []) != wanted:
            marks[document.id] = wanted
    return marks


def statements_about(marked: Sequence[ArticleStatement]) -> list[Statement]:
    """Return the statements of several sources."""
    return [statement for each in marked for statement in statements_of(each)]
