"""One id, one person: whichever command brings a second one, and whichever library is fused."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from epicrisis.core.errors import InputError, LibraryDamaged, LibraryError
from epicrisis.core.types import Document, Question
from epicrisis.corpus.base.reader_base import PatientIdentity
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.core.patient_check import check_patient, resolve_patient
from epicrisis.library.core.patient_identities import (
    NAME,
    declare_literature,
    find_contradiction,
    is_literature_declared,
    merge_identities,
    read_identities,
    read_version,
    record_identities,
)
from epicrisis.library.core.patients import Roster, check_same_documents, forget_patients
from epicrisis.library.write.ingest import add_documents, open_or_create
from epicrisis.testing.hashing_encoder import HashingEncoder
from tests.support.patient_records import ENCODER, library

ADA = PatientIdentity("p1", "fhir:a.example/fhir", ("Ada Byron",), "1950-01-02", (("urn:mrn", "4711"), ("", "88")))
SECRETS = ("Ada", "Byron", "Lovelace", "Grace", "1950", "4711")

SAME = {
    "itself": ADA,
    "no more than the id": PatientIdentity("p1"),
    "bulk files of an unnamed server": replace(ADA, source="fhir"),
    "a table": PatientIdentity("p1", "", ("BYRON, ADA",), "1950-01-02"),
    "less of the birth date": replace(ADA, born="1950"),
    "without a middle name": replace(ADA, names=("Ada Augusta Byron",)),
    "an initial": replace(ADA, names=("A. Byron",)),
    "without accents": replace(ADA, names=("Áda Býron",)),
    "one name of several": replace(ADA, names=("Ada Lovelace", "Ada Byron")),
    "a new name, born that day, with that number": replace(ADA, names=("Ada Lovelace",)),
    "another number of another kind": replace(ADA, numbers=(("urn:ssn", "1"),)),
    "a second number of that kind": replace(ADA, numbers=(("urn:mrn", "5"), ("urn:mrn", "4711"))),
}
OTHERS = {
    "another server": (replace(ADA, source="fhir:b.example/fhir"), "server"),
    "a record number in the place of an id": (replace(ADA, source="identifier"), "server"),
    "another birth date": (replace(ADA, born="1950-01-03"), "birth date"),
    "another number of that kind": (replace(ADA, numbers=(("urn:mrn", "4712"),)), "record number"),
    "a new name and no birth date": (replace(ADA, names=("Ada Lovelace",), born=""), "name"),
    "a new name and no number": (replace(ADA, names=("Ada Lovelace",), numbers=()), "name"),
    "a new name and less of the birth date": (replace(ADA, names=("Ada Lovelace",), born="1950"), "name"),
}


@pytest.mark.parametrize("what", SAME)
def test_find_contradiction_same_person_returns_empty(what: str) -> None:
    assert find_contradiction(ADA, SAME[what]) == ""
    assert find_contradiction(SAME[what], ADA) == ""
    assert find_contradiction(merge_identities(ADA, SAME[what]), ADA) == ""


@pytest.mark.parametrize("what", OTHERS)
def test_record_identities_other_person_under_same_id_is_refused_without_name(what: str, tmp_path: Path) -> None:
    other, kind = OTHERS[what]
    assert find_contradiction(ADA, other) == kind
    assert find_contradiction(other, ADA) == kind
    assert record_identities(tmp_path, [ADA]) == 0
    with pytest.raises(InputError, match=f"patient 'p1' has another {kind} than in .*library of its own") as refused:
        record_identities(tmp_path, [PatientIdentity("p2"), other])
    assert not any(secret in refused.value.message.replace(str(tmp_path), "") for secret in SECRETS)
    assert list(read_identities(tmp_path)) == ["p1"], "nothing was written"


def test_record_identities_merges_identities_in_private_file(tmp_path: Path) -> None:
    assert (read_identities(tmp_path), read_version(tmp_path), is_literature_declared(tmp_path)) == ({}, 0, False)
    record_identities(tmp_path, [PatientIdentity("p1", "fhir")])
    first = read_version(tmp_path)
    assert record_identities(tmp_path, [ADA]) == 0
    assert read_version(tmp_path) > first
    assert read_identities(tmp_path) == {"p1": ADA}
    second = read_version(tmp_path)
    record_identities(tmp_path, [ADA])
    assert read_version(tmp_path) == second
    assert record_identities(tmp_path, [replace(ADA, names=("Ada Lovelace",))]) == 1
    assert read_identities(tmp_path)["p1"].names == ("Ada Lovelace", "Ada Byron")
    assert stat.S_IMODE((tmp_path / NAME).stat().st_mode) == 0o600
    declare_literature(tmp_path)
    assert is_literature_declared(tmp_path)


def test_forget_patients_without_notes_removes_identity(tmp_path: Path) -> None:
    with library(tmp_path / "l", [note("p1"), note("p2")]) as opened:
        path = opened.path
    with LibraryStore.open(path, write=True) as writing:
        add_documents(writing, [ADA, PatientIdentity("p2", names=("Grace Hopper",))], ENCODER)
        writing.delete(["n:p1:0"])
        forget_patients(writing, ["p1", "p2"])
    assert list(read_identities(path)) == ["p2"]
    content = (path / NAME).read_bytes()
    assert b"Grace" in content
    assert b"Byron" not in content


def test_read_identities_empty_file_is_accepted_and_damaged_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / NAME).touch()
    assert read_identities(tmp_path) == {}
    record_identities(tmp_path, [ADA])
    (tmp_path / NAME).write_text("Ada Byron " * 900)
    with pytest.raises(LibraryDamaged) as damaged:
        read_identities(tmp_path)
    assert "Byron" not in damaged.value.message


def note(patient: str | None, number: int = 0, name: str = "", text: str = "Fever.") -> Document:
    metadata = {"patient_name": name} if name else {}
    return Document(f"n:{patient}:{number}", text, patient=patient, metadata=metadata)


def test_add_documents_compares_identity_with_names_of_existing_notes(tmp_path: Path) -> None:
    with library(tmp_path / "old", [note("p1", name="Grace Hopper"), note("p2", name="Ada Byron")]) as opened:
        path = opened.path
    with LibraryStore.open(path, write=True) as writing:
        with pytest.raises(InputError, match="patient 'p1' has another name"):
            add_documents(writing, [ADA, note("p1", 1)], ENCODER)
        assert writing.count()[0] == 2
        add_documents(writing, [replace(ADA, patient="p2"), note("p2", 1)], ENCODER)
        assert writing.count()[0] == 3


# -- notes and documents of nobody ------------------------------------------------------------------------------------


def test_add_documents_literature_in_library_of_notes_is_skipped(tmp_path: Path) -> None:
    with open_or_create(tmp_path / "l", ENCODER, "hashing", overlap=0) as store:
        report = add_documents(store, [note("p1"), note(None), note("p2")], ENCODER, literature=False)
        assert (report.added, report.skipped) == (2, 1)
        assert "pass --literature" in report.first_skipped[0].reason
        assert not Roster(store).is_mixed()
        report = add_documents(store, [note(None)], ENCODER, literature=True)
        assert (report.added, report.skipped) == (1, 0)
        assert Roster(store).has_literature()
        assert not Roster(store).is_mixed()


def test_add_documents_note_in_library_of_literature_is_refused(tmp_path: Path) -> None:
    with open_or_create(tmp_path / "l", ENCODER, "hashing", overlap=0) as store:
        with pytest.raises(InputError, match="pass --literature if they are"):
            add_documents(store, [note(None), note("p1")], ENCODER, literature=False)
        assert add_documents(store, [note(None)], ENCODER, literature=False).added == 1
        with pytest.raises(InputError, match="pass --literature if they are"):
            add_documents(store, [note("p1")], ENCODER, literature=False)
        assert not Roster(store).patients()
        assert add_documents(store, [note("p1")], ENCODER, literature=True).added == 1
        # That both are here has been said; more notes need not say it again, more papers do.
        assert add_documents(store, [note("p2")], ENCODER, literature=False).added == 1
        assert add_documents(store, [note(None, 1)], ENCODER, literature=False).skipped == 1


def test_check_health_undeclared_mixed_library_has_notice(tmp_path: Path) -> None:
    from epicrisis.library.write.health import check_health

    with library(tmp_path / "old", [note("p1"), note(None)]) as opened:
        assert Roster(opened).is_mixed()
        assert any("are used for questions about every patient" in notice for notice in check_health(opened).notices)


# -- fused libraries --------------------------------------------------------------------------------------------------


def make_library(path: Path, documents: list[Document], *people: PatientIdentity, size: int = 32) -> LibraryStore:
    encoder = HashingEncoder(size, max_tokens=24)
    with open_or_create(path, encoder, "hashing", overlap=0) as writing:
        add_documents(writing, [*people, *documents], encoder)
    return LibraryStore.open(path)


NOTES = [note("p1"), note("p2"), note("p2", 1)]


@pytest.mark.parametrize(
    ("documents", "person", "reason"),
    [
        (NOTES, ADA, ""),
        (NOTES[:2], ADA, "does not hold the documents"),
        ([*NOTES, note("p3")], ADA, "does not hold the documents"),
        ([*NOTES[:2], note("p2", 1, text="Chills.")], ADA, "does not hold the documents"),
        ([*NOTES[:2], replace(NOTES[2], patient="p1")], ADA, "does not hold the documents"),
        (NOTES, replace(ADA, born="1999"), "another birth date for patient 'p1'"),
    ],
)
def test_check_same_documents_different_notes_are_refused(
    documents: list[Document], person: PatientIdentity, reason: str, tmp_path: Path
) -> None:
    with (
        make_library(tmp_path / "one", NOTES, ADA) as one,
        make_library(tmp_path / "two", documents, person, size=48) as two,
    ):
        if not reason:
            check_same_documents(one, two)
            return
        with pytest.raises(LibraryError, match=f"{reason}.*leave it out of the setting fuse"):
            check_same_documents(one, two)


def test_check_same_documents_literature_is_compared_by_id(tmp_path: Path) -> None:
    papers = [Document(f"p:{number}", "Aspirin.") for number in range(3)]
    told_more = [replace(paper, metadata={"journal": "x"}) for paper in papers]
    with make_library(tmp_path / "one", papers) as one, make_library(tmp_path / "two", told_more) as two:
        check_same_documents(one, two)
    with (
        make_library(tmp_path / "three", [*papers[:2], Document("p:9", "Aspirin.")]) as three,
        pytest.raises(LibraryError),
    ):
        check_same_documents(one, three)


# -- record numbers ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def numbered_roster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Roster]:
    people = [
        PatientIdentity("p1", "fhir", ("Ada Byron",), numbers=(("urn:mrn", "MRN-4711"), ("urn:ssn", "999-11-2222"))),
        PatientIdentity("p2", "fhir", ("Grace Hopper",), numbers=(("urn:mrn", "00815"), ("urn:other", "MRN-7"))),
        PatientIdentity("p3", "fhir", (), numbers=(("urn:mrn", "MRN-7"), ("urn:mrn", "p2"))),
        PatientIdentity("p4", "fhir", (), numbers=(("urn:mrn", "unknown"),)),
    ]
    path = tmp_path_factory.mktemp("numbered") / "library"
    with library(path, [note(f"p{number}") for number in (1, 2, 3, 4)]) as opened:
        record_identities(opened.path, people)
        yield Roster(opened)


@pytest.mark.parametrize(
    ("selector", "patient"),
    [
        ("p1", "p1"),
        ("MRN-4711", "p1"),
        ("mrn-4711", "p1"),
        ("urn:mrn|MRN-4711", "p1"),
        ("00815", "p2"),
        ("urn:other|MRN-7", "p2"),
        ("urn:mrn|MRN-7", "p3"),
        ("id:p2", "p2"),
        ("number:p2", "p3"),
        ("number:00815", "p2"),
        ("815", "815"),
        ("nobody", "nobody"),
        ("id:nobody", "id:nobody"),
    ],
)
def test_resolve_patient_record_number_returns_patient_id(selector: str, patient: str, numbered_roster: Roster) -> None:
    assert resolve_patient([numbered_roster], selector) == patient


@pytest.mark.parametrize("selector", ["MRN-7", "p2", "number:MRN-7"])
def test_resolve_patient_ambiguous_number_is_refused(selector: str, numbered_roster: Roster) -> None:
    with pytest.raises(InputError, match="is not of one patient alone"):
        resolve_patient([numbered_roster], selector)


@pytest.mark.parametrize(
    ("text", "is_another"),
    [
        ("What did MRN-4711 take?", True),
        ("What did mrn-4711 take?", True),
        ("999-11-2222?", True),
        ("MRN 00815?", True),
        ("Was 00815 given?", False),
        ("Patient 00815, please", True),
        ("MRN-8?", False),
        ("999112222?", True),
        ("SSN 999 11 2222", True),
        ("MRN0999112222", True),
        ("NCT0999112222?", False),
        ("999-11-22223?", False),
        ("Platelets 999 000, 11 to 22?", False),
        ("urn:mrn|MRN-4711?", True),
        ("Is it unknown?", False),
        ("What did MRN-7 take?", False),
        ("MRN:MRN-7?", False),
    ],
)
def test_check_patient_question_with_other_record_number_is_refused(
    text: str, is_another: bool, numbered_roster: Roster
) -> None:
    question = Question(text, patient="p3")
    if not is_another:
        check_patient([numbered_roster], question)
        return
    with pytest.raises(InputError, match="names another patient") as refused:
        check_patient([numbered_roster], question)
    assert "4711" not in refused.value.message
