"""The list of patients, which a role that may only read gets from a function with more rights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from epicrisis.core.protocols import StoredDocument
from epicrisis.corpus.base.reader_base import PatientIdentity
from epicrisis.library.core import patient_identities
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.core.patients import PatientRecord, Roster
from epicrisis.testing.stores import DIMENSIONS, build_stored_document
from tests.postgresql.conftest import LibraryDatabase
from tests.support.postgresql_server import WRITER

pytestmark = pytest.mark.postgresql
NOTES: list[tuple[str, str | None, dict[str, Any]]] = [
    ("anna", "2019", {"encounter": "a", "note_type": "letter", "patient_name": "Anna Ash"}),
    ("anna", "2019-03-04T10:30", {"encounter": "a", "note_type": "letter"}),
    ("anna", "2019-11", {"encounter": 7, "note_type": 'odd "type"\\ \0 \ud800'}),
    ("anna", "2019-12-31", {"encounter": "7", "note_type": ""}),
    ("anna", None, {"encounter": "", "note_type": "letter", "patient_name": ""}),
    ("berta", None, {}),
    ("carl", "2020-10-01", {"encounter": 0, "note_type": None, "patient_name": None}),
    ("carl", "2020-09", {"patient_name": "Carl\0 Cox"}),
]


def build_notes() -> list[StoredDocument]:
    notes = [build_stored_document("paper", "aspirin")]
    for number, (patient, date, metadata) in enumerate(NOTES):
        notes.append(
            build_stored_document(f"n{number}", "secret aspirin", patient=patient, date=date, metadata=metadata)
        )
    return notes


def read_patients(library: LibraryStore) -> dict[str, PatientRecord]:
    return dict(Roster(library).patients())


def test_list_of_patients_equals_that_of_a_folder(database: LibraryDatabase, tmp_path: Path) -> None:
    with database.create() as library:
        library.add(build_notes())
    with LibraryStore.create(
        tmp_path / "folder",
        encoder_fingerprint="check",
        encoder_name="check",
        dimensions=DIMENSIONS,
        max_tokens=64,
        overlap=8,
    ) as folder:
        folder.add(build_notes())
        expected = read_patients(folder)
    patients = read_patients(database.read())
    assert patients == expected
    anna = patients["anna"]
    assert (anna.notes, anna.first, anna.last, anna.encounters) == (5, "2019", "2019-12-31", 2)
    assert anna.note_types == {"letter": 3, 'odd "type"\\ \0 \ud800': 1}


def test_list_of_patients_is_a_row_for_each_without_text(database: LibraryDatabase) -> None:
    with database.create() as library:
        library.add(build_notes())
    with database.server.connect(database.name, "ward_app") as connection:
        rows = connection.execute("SELECT * FROM epicrisis.list_patients()").fetchall()
    assert sorted(row[0] for row in rows) == ["anna", "berta", "carl"]
    assert "secret" not in str(rows)


def test_change_of_identities_alone_is_seen_by_open_readers(database: LibraryDatabase) -> None:
    with database.create() as library:
        library.add(build_notes())
    reader = Roster(database.read())
    assert reader.patients()["berta"].name is None
    with LibraryStore.open(database.url(WRITER), write=True) as library:
        identity = PatientIdentity("berta", names=("Berta Beck",))
        patient_identities.record_identities(library.path, [identity])
        assert reader.patients()["berta"].name == "Berta Beck"
        patient_identities.forget_identities(library.path, ["berta"])
    assert reader.patients()["berta"].name is None
