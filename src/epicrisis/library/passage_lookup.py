"""Passages that no search looks for: those of named documents, and some at random.

Reads the table as it is at this moment, beside whoever writes. Knows no words and no vectors.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Iterator, Mapping, Sequence

from epicrisis.library.engine_errors import translate_errors
from epicrisis.library.library import Library
from epicrisis.library.passage_checks import check_scope
from epicrisis.library.passage_table import PassageTable
from epicrisis.library.vector_search import scope_condition
from epicrisis.types import Passage, Scope

_PIECE = 8192


def read_document_passages(
    library: Library, document_ids: Sequence[str], scope: Scope
) -> Mapping[str, tuple[Passage, ...]]:
    """The passages of each document in their order; a document that is not there, or outside the scope, is left out."""
    check_scope(scope)
    found: dict[str, list[Passage]] = {}
    for stored in _table(library).passages_of(document_ids):
        if scope.admits(stored.passage):
            found.setdefault(stored.passage.document_id, []).append(stored.passage)
    return {
        name: tuple(sorted(found[name], key=lambda passage: passage.ordinal)) for name in document_ids if name in found
    }


def sample_passages(library: Library, count: int, seed: int, scope: Scope) -> tuple[Passage, ...]:
    """So many passages within the scope, each as likely as any other, in an order as random; all where there are fewer.

    They are those whose `sha256("<seed>:<id>")` is least, so what is drawn depends on the seed and on what the library
    holds alone. Reads every passage's id: about a second for a million.
    """
    check_scope(scope)
    table = _table(library)
    ids = heapq.nsmallest(count, _ids(library, table, scope), key=lambda id_: _place(seed, id_))
    known = table.fetch(ids)
    return tuple(known[id_].passage for id_ in ids if id_ in known and scope.admits(known[id_].passage))


def _ids(library: Library, table: PassageTable, scope: Scope) -> Iterator[str]:
    admitted = scope_condition(scope, patients=True)
    with translate_errors(library.path):
        for batch in table.lance.search().where(admitted).select(["id"]).to_batches(_PIECE):
            yield from batch.column("id").to_pylist()


def _place(seed: int, passage_id: str) -> bytes:
    return hashlib.sha256(f"{seed}:{passage_id}".encode()).digest()


def _table(library: Library) -> PassageTable:
    return PassageTable(library.path, library.manifest.dimensions)
