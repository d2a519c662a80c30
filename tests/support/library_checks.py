"""What must hold for a library after whatever happened to it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from epicrisis.core.types import Document
from epicrisis.corpus.base.reader_base import DeletedDocument, FileFingerprint
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.engines.word_index import version_of
from epicrisis.library.write.ingest import content_hash
from tests.support.library_documents import LARGE, Contents, contents, documents, revised


def acknowledged(folder: Path) -> dict[str, Any]:
    """Return the last acknowledged hash of each document, None for a deleted one."""
    path = folder.with_suffix(".acknowledged")
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    return dict(json.loads(line) for line in lines)


def discrepancies(library: LibraryStore, promised: dict[str, str], version: int = 1) -> list[str]:
    """Describe what is wrong with the library: nothing may be lost, doubled, partial or inconsistent.

    A document may also be of the version last added: acknowledged by the library, killed before it was written down.
    """
    state = contents(library)
    newest = {document.id: content_hash(document) for document in documents(version, LARGE)}
    promised = {id_: newest[id_] if state.hashes.get(id_) == newest[id_] else sha for id_, sha in promised.items()}
    lost = [f"{id_} was acknowledged and is not there" for id_ in promised.items() - state.hashes.items()]
    return lost + _disagreements(library, state)


def broken_promises(library: LibraryStore, promised: Mapping[str, str | None], version: int, count: int) -> list[str]:
    """Describe what is wrong where versions have revisions. `promised` holds None for deleted documents.

    Each document is as it was last acknowledged, or as `version` has it.
    """
    state = contents(library)
    wrong = []
    for item in revised(version, count):
        if not isinstance(item, (Document, DeletedDocument)):
            continue
        newest = content_hash(item) if isinstance(item, Document) else None
        is_now = state.hashes.get(item.id)
        if is_now not in (promised.get(item.id), newest):
            wrong.append(f"{item.id} is neither as it was acknowledged nor as it came last")
        if promised.get(item.id, "") is None and is_now is None and item.id not in state.deleted:
            wrong.append(f"{item.id} was deleted, which is not remembered")
    wrong += _unfinished_files(state, version, count)
    return wrong + _disagreements(library, state)


def _unfinished_files(state: Contents, version: int, count: int) -> list[str]:
    """Describe files that are recorded as added although documents are missing."""
    wrong, before = [], []
    for item in revised(version, count):
        if isinstance(item, (Document, DeletedDocument)):
            before.append(item)
        elif isinstance(item, FileFingerprint) and item.name in state.sources:
            late = [
                document.id
                for document in before
                if state.hashes.get(document.id) != (content_hash(document) if isinstance(document, Document) else None)
            ]
            wrong += [f"{item.name} is remembered as added, without {document}" for document in late]
    return wrong


def _disagreements(library: LibraryStore, state: Contents) -> list[str]:
    """Describe where the parts of the library disagree."""
    hashes = {passage_id: sha for passage_id, (_, sha) in state.table.items()}
    by_document: dict[str, set[str]] = {}
    for passage_id, sha in hashes.items():
        by_document.setdefault(passage_id.rsplit("#", 1)[0], set()).add(sha)
    ordinals = Counter(passage_id.rsplit("#", 1)[0] for passage_id in hashes)
    wrong = [f"{id_}: passages of two versions" for id_, shas in by_document.items() if len(shas) > 1]
    wrong += [f"{id_}: passages are missing" for id_, n in ordinals.items() if f"{id_}#{n - 1}" not in state.table]
    if state.rows != len(state.table):
        wrong.append("a passage is there twice")
    if state.words != sorted((passage_id, version_of(sha)) for passage_id, sha in hashes.items()):
        wrong.append("the word index holds other passages than the table")
    if state.hashes != {id_: next(iter(shas)) for id_, shas in by_document.items()}:
        wrong.append("the documents acknowledged are not those in the table")
    info = library.info()
    if info.open_batches:
        wrong.append(f"{info.open_batches} batches are still open")
    return wrong + list(info.problems)
