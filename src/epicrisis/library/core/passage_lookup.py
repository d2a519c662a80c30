"""Read passages without a search: those of given documents, or a random sample."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Mapping, Sequence

from epicrisis.core.types import Passage, Scope
from epicrisis.library.base.passage_table import check_scope
from epicrisis.library.core.checked_store import CheckedStore
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.engines.vector_search import scope_condition


def read_document_passages(
    library: LibraryStore | CheckedStore, document_ids: Sequence[str], scope: Scope
) -> Mapping[str, tuple[Passage, ...]]:
    """Map each document to its passages in order. Documents that are missing or outside the scope are left out."""
    check_scope(scope)
    if isinstance(library, CheckedStore):
        return _read_by_ordinal(library, document_ids, scope)
    by_document: dict[str, list[Passage]] = {}
    for stored in library.open_table().passages_of(document_ids):
        if scope.admits(stored.passage):
            by_document.setdefault(stored.passage.document_id, []).append(stored.passage)
    ordered = {}
    for document_id in document_ids:
        if document_id in by_document:
            ordered[document_id] = tuple(sorted(by_document[document_id], key=lambda passage: passage.ordinal))
    return ordered


def _read_by_ordinal(
    store: CheckedStore, document_ids: Sequence[str], scope: Scope
) -> Mapping[str, tuple[Passage, ...]]:
    """Return the passages of documents in a store that finds passages by id alone."""
    by_document: dict[str, tuple[Passage, ...]] = {}
    for document_id in dict.fromkeys(document_ids):
        passages: list[Passage] = []
        while following := store.fetch([f"{document_id}#{len(passages)}"], scope):
            passages += following
        if passages:
            by_document[document_id] = tuple(passages)
    return by_document


def sample_passages(library: LibraryStore, count: int, seed: int, scope: Scope) -> tuple[Passage, ...]:
    """Return a uniform random sample of `count` passages in scope, in random order, or all if there are fewer.

    The sample has the lowest values of `sha256("<seed>:<id>")`, so it depends only on the seed and the library's
    content. The ids of all passages are read: about a second for a million.
    """
    check_scope(scope)
    table = library.open_table()
    all_ids = (row["id"] for row in table.rows(["id"], scope_condition(scope, table)))
    ids = heapq.nsmallest(count, all_ids, key=lambda id_: hashlib.sha256(f"{seed}:{id_}".encode()).digest())
    present = table.fetch(ids)
    return tuple(item for item in (present[id_] for id_ in ids if id_ in present) if scope.admits(item))
