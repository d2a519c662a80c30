"""What must hold for a library after whatever happened to it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from epicrisis.corpus.reader_base import DeletedDocument, FileFingerprint
from epicrisis.library.ingest_comparison import content_hash
from epicrisis.library.library import Library
from epicrisis.library.word_index import version_of
from epicrisis.types import Document
from tests.support.library_documents import LARGE, Contents, contents, documents, revised


def acknowledged(folder: Path) -> dict[str, Any]:
    """The last hash acknowledged of each document; None for one that was deleted."""
    path = folder.with_suffix(".acknowledged")
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    return dict(json.loads(line) for line in lines)


def discrepancies(library: Library, promised: dict[str, str], version: int = 1) -> list[str]:
    """What is wrong with the library, in words: nothing may be lost, doubled, half there or out of step.

    A document may also be of the version last added: acknowledged by the library, killed before it was written down.
    """
    found = contents(library)
    newest = {document.id: content_hash(document) for document in documents(version, LARGE)}
    promised = {each: newest[each] if found.hashes.get(each) == newest[each] else sha for each, sha in promised.items()}
    lost = [f"{each} was acknowledged and is not there" for each in promised.items() - found.hashes.items()]
    return lost + _disagreements(library, found)


def broken_promises(library: Library, promised: Mapping[str, str | None], version: int, count: int) -> list[str]:
    """The same where versions have revisions and are taken back: `promised` holds None for what was deleted.

    Each document is as it was last acknowledged, or as `version` has it.
    """
    found = contents(library)
    wrong = []
    for item in revised(version, count):
        if not isinstance(item, (Document, DeletedDocument)):
            continue
        newest = content_hash(item) if isinstance(item, Document) else None
        is_now = found.hashes.get(item.id)
        if is_now not in (promised.get(item.id), newest):
            wrong.append(f"{item.id} is neither as it was acknowledged nor as it came last")
        if promised.get(item.id, "") is None and is_now is None and item.id not in found.deleted:
            wrong.append(f"{item.id} was deleted, which is not remembered")
    wrong += _unfinished_files(found, version, count)
    return wrong + _disagreements(library, found)


def _unfinished_files(found: Contents, version: int, count: int) -> list[str]:
    """Files that are remembered as added whole, and are not."""
    wrong, before = [], []
    for item in revised(version, count):
        if isinstance(item, (Document, DeletedDocument)):
            before.append(item)
        elif isinstance(item, FileFingerprint) and item.name in found.sources:
            late = [
                each.id
                for each in before
                if found.hashes.get(each.id) != (content_hash(each) if isinstance(each, Document) else None)
            ]
            wrong += [f"{item.name} is remembered as added, without {each}" for each in late]
    return wrong


def _disagreements(library: Library, found: Contents) -> list[str]:
    """Where the parts of the library do not say the same."""
    hashes = {passage_id: sha for passage_id, (_, sha) in found.table.items()}
    by_document: dict[str, set[str]] = {}
    for passage_id, sha in hashes.items():
        by_document.setdefault(passage_id.rsplit("#", 1)[0], set()).add(sha)
    ordinals = Counter(passage_id.rsplit("#", 1)[0] for passage_id in hashes)
    wrong = [f"{each}: passages of two versions" for each, shas in by_document.items() if len(shas) > 1]
    wrong += [f"{each}: passages are missing" for each, n in ordinals.items() if f"{each}#{n - 1}" not in found.table]
    if found.rows != len(found.table):
        wrong.append("a passage is there twice")
    if found.words != sorted((passage_id, version_of(sha)) for passage_id, sha in hashes.items()):
        wrong.append("the word index holds other passages than the table")
    if found.hashes != {each: next(iter(shas)) for each, shas in by_document.items()}:
        wrong.append("the documents acknowledged are not those in the table")
    info = library.info()
    if info.open_batches:
        wrong.append(f"{info.open_batches} batches are still open")
    return wrong + list(info.problems)
