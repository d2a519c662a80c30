"""FHIR as servers send it: every text is read under its patient, or named as not read."""

from __future__ import annotations

from pathlib import Path

import pytest

from epicrisis.core.types import Document
from epicrisis.corpus.base.reader_base import DeletedDocument, FileRemark, PatientIdentity, ReaderItem, Skipped
from epicrisis.corpus.base.removal_log import RemovalLog
from epicrisis.corpus.readers.sources import read_sources
from epicrisis.corpus.records.note_documents import NoteCleaning
from tests.support.fhir_exports import EXPORTS


def read_export(folder: Path, name: str) -> tuple[list[ReaderItem], str]:
    """Return what is read of an export, and all reasons and counts of what is not."""
    EXPORTS[name]().write(folder)
    log = RemovalLog()
    items = list(read_sources([folder], cleaning=NoteCleaning(removal_log=log)))
    reasons = [item.reason for item in items if isinstance(item, Skipped)]
    reasons += [item.text for item in items if isinstance(item, FileRemark)]
    summary = log.summary()
    return items, "\n".join([*reasons, *summary.other_resources, *summary.kinds])


def read_notes(folder: Path, name: str) -> dict[str, Document]:
    """Return the documents of an export by their ids."""
    items, _ = read_export(folder, name)
    return {item.id: item for item in items if isinstance(item, Document)}


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPORTS)
def test_every_text_of_an_export_is_read_or_named(tmp_path: Path, name: str) -> None:
    export = EXPORTS[name]()
    items, reasons = read_export(tmp_path, name)
    notes = [item for item in items if isinstance(item, Document)]
    for patient, words in export.read:
        assert {note.patient for note in notes if words in note.text} == {patient}, (words, reasons)
    everything = "\n".join(f"{note.title}\n{note.text}\n{note.metadata}" for note in notes)
    for words, reason in export.unread:
        assert words not in everything
        assert reason in reasons
    assert "item U" not in reasons
    assert "item R" not in reasons
    assert all(note.patient for note in notes), "no text of a patient becomes literature"


@pytest.mark.parametrize(
    ("name", "note_id", "authors"),
    [
        ("epic_bundle", "note:e1", ["Grace Hopper, MD"]),
        ("us_core", "note:episode-summary", ["Ronald Bone MD (Cardiology)"]),
        ("us_core", "note:DiagnosticReport/cbc", ["Ronald Bone MD"]),
        ("synthea", "note:d1", ["Dr. Jane77"]),
        ("document_bundle", "note:Composition/comp", ["Dr. House"]),
    ],
)
def test_authors_of_a_document_are_in_its_metadata(tmp_path: Path, name: str, note_id: str, authors: list[str]) -> None:
    assert read_notes(tmp_path, name)[note_id].metadata["authors"] == authors


def test_signers_and_custodian_are_in_the_metadata(tmp_path: Path) -> None:
    note = read_notes(tmp_path, "cerner_bundle")["note:197"]
    assert (note.metadata["signed_by"], note.metadata["custodian"]) == (["Cerner, Carla"], "Baseline West")


def test_amendments_are_marked_in_title_and_metadata(tmp_path: Path) -> None:
    notes = read_notes(tmp_path, "amendments")
    assert {note_id: note.title for note_id, note in notes.items()} == {
        "note:d1": "Progress Note, 2150-03-09",
        "note:d2": "Progress Note (addendum), 2150-03-09",
        "note:d3": "Progress Note (amended), 2150-03-09",
        "note:d4": "Progress Note (signature), 2150-03-09",
    }
    assert notes["note:d2"].metadata["amends"] == ["note:d1"]
    assert notes["note:d3"].metadata["version"] == "amended"


def test_nested_sections_are_sections_of_the_note(tmp_path: Path) -> None:
    note = read_notes(tmp_path, "document_bundle")["note:Composition/comp"]
    titles = [section[2] for section in note.metadata["sections"]]
    assert titles == ["Course", "Course / Surgery", "Problems", "Allergies"]


def test_deleted_resource_deletes_note_of_any_patient(tmp_path: Path) -> None:
    items, _ = read_export(tmp_path, "incomplete_manifest")
    assert [item for item in items if isinstance(item, DeletedDocument)] == [
        DeletedDocument("note:gone", any_patient=True)
    ]


def test_record_numbers_of_several_systems_identify_the_patient(tmp_path: Path) -> None:
    items, _ = read_export(tmp_path, "epic_bundle")
    (identity,) = (item for item in items if isinstance(item, PatientIdentity))
    assert identity.numbers == (("urn:oid:1.2.9", "MR-p1"), ("urn:oid:1.2.10", "EPI-p1"))


def test_attached_file_is_no_document_of_its_own(tmp_path: Path) -> None:
    assert sorted(read_notes(tmp_path, "files_beside")) == ["note:d1", "note:d2"]


def test_note_with_encounter_of_another_patient_has_no_stay(tmp_path: Path) -> None:
    note = read_notes(tmp_path, "other_patients_encounter")["note:d1"]
    assert not {"encounter", "visit", "admitted", "discharged"} & set(note.metadata)


@pytest.mark.slow
def test_reading_a_folder_again_gives_the_same_documents(tmp_path: Path) -> None:
    first = read_notes(tmp_path, "many_binaries")
    assert read_notes(tmp_path, "many_binaries") == first
    assert len(first) == 200
