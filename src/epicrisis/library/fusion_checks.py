"""Whether two libraries hold the same documents of the same patients, so that their rankings may be fused.

Compares what the journals and the tables of patients say; reads no text.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from epicrisis.errors import LibraryError
from epicrisis.library import journal
from epicrisis.library.engine_errors import translate_errors
from epicrisis.library.library import Library
from epicrisis.library.passage_table import PassageTable
from epicrisis.library.patient_identities import find_contradiction, read_identities

_COMPARED = 1_000_000
"""Documents of literature whose ids are compared, by the order of ids; of notes all are."""
_CURE = "fuse libraries that were made from the same sources, or leave it out of --fuse"


def check_same_documents(first: Library, other: Library) -> None:
    """Raise LibraryError unless both hold the same documents and patients.

    Documents are the same by id and content, those of literature by id: one source may tell more of them.
    """
    with_notes = any(PassageTable(each.path, each.manifest.dimensions).has_notes() for each in (first, other))
    if first.count()[0] != other.count()[0] or _differs(first.path, other.path, with_notes):
        raise LibraryError(f"{other.path} does not hold the documents that {first.path} holds: {_CURE}")
    if not with_notes:
        return
    known = read_identities(first.path)
    for patient, identity in read_identities(other.path).items():
        if patient in known and (kind := find_contradiction(known[patient], identity)):
            raise LibraryError(
                f"{other.path} has another {kind} for patient {patient!a} than {first.path}, so one id may stand for "
                f"two people: {_CURE}"
            )


def _differs(first: Path, other: Path, by_content: bool) -> bool:
    """Whether a document of the first is not in the other. Both have as many."""
    content = "OR theirs.content_hash != ours.content_hash" if by_content else ""
    limit = "" if by_content else f"ORDER BY id LIMIT {_COMPARED}"
    query = (
        f"SELECT 1 FROM (SELECT id, content_hash FROM documents {limit}) AS ours "
        f"LEFT JOIN other.documents AS theirs ON theirs.id = ours.id WHERE theirs.id IS NULL {content} LIMIT 1"
    )
    with translate_errors(first), closing(sqlite3.connect(first / journal.NAME, timeout=60)) as db:
        db.execute("ATTACH ? AS other", (str(other / journal.NAME),))
        return db.execute(query).fetchone() is not None
