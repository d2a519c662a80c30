"""Check that two libraries hold the same documents of the same patients, so that their rankings can be fused."""

from __future__ import annotations

import sqlite3
from contextlib import closing

from epicrisis.errors import LibraryError
from epicrisis.library import journal
from epicrisis.library.engine_errors import translate_errors
from epicrisis.library.library import Library
from epicrisis.library.patient_identities import find_contradiction, read_identities

_MAX_LITERATURE = 1_000_000
"""Documents compared in libraries without notes, in the order of their ids. With notes all are compared."""
_CURE = "fuse libraries created from the same sources, or leave it out of the setting fuse"


def check_same_documents(first: Library, second: Library) -> None:
    """Raise LibraryError unless both libraries hold the same documents and patients.

    Documents are compared by id, and in libraries with notes also by content.
    """
    with_notes = first.open_table().has_notes() or second.open_table().has_notes()
    differs = first.count()[0] != second.count()[0]
    if not differs:
        # Both have equally many documents, so it suffices to look for those of the first in the second.
        content = "OR theirs.content_hash != ours.content_hash" if with_notes else ""
        limit = "" if with_notes else f"ORDER BY id LIMIT {_MAX_LITERATURE}"
        query = (
            f"SELECT 1 FROM (SELECT id, content_hash FROM documents {limit}) AS ours "
            f"LEFT JOIN other.documents AS theirs ON theirs.id = ours.id WHERE theirs.id IS NULL {content} LIMIT 1"
        )
        with translate_errors(first.path), closing(sqlite3.connect(first.path / journal.NAME, timeout=60)) as db:
            db.execute("ATTACH ? AS other", (str(second.path / journal.NAME),))
            differs = db.execute(query).fetchone() is not None
    if differs:
        raise LibraryError(f"{second.path} does not hold the documents that {first.path} holds: {_CURE}")
    if not with_notes:
        return
    identities = read_identities(first.path)
    for patient, identity in read_identities(second.path).items():
        if patient in identities and (kind := find_contradiction(identities[patient], identity)):
            raise LibraryError(
                f"{second.path} has another {kind} for patient {patient!a} than {first.path}, so one id may stand for "
                f"two people: {_CURE}"
            )
