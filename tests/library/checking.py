"""What must hold for a library after whatever happened to it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from epicrisis.library.ingest import content_hash
from epicrisis.library.library import Library
from epicrisis.library.words import version_of
from tests.library.corpus import LARGE, contents, documents


def acknowledged(folder: Path) -> dict[str, str]:
    """The last hash acknowledged of each document."""
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
    hashes = {passage_id: sha for passage_id, (_, sha) in found.table.items()}
    by_document: dict[str, set[str]] = {}
    for passage_id, sha in hashes.items():
        by_document.setdefault(passage_id.rsplit("#", 1)[0], set()).add(sha)
    ordinals = Counter(passage_id.rsplit("#", 1)[0] for passage_id in hashes)
    wrong = [f"{each} was acknowledged and is not there" for each in promised.items() - found.hashes.items()]
    wrong += [f"{each}: passages of two versions" for each, shas in by_document.items() if len(shas) > 1]
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
