"""Who is in a library, told without a text; and which questions fit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from epicrisis.core.errors import InputError
from epicrisis.core.types import Document, Question
from epicrisis.corpus.base.reader_base import PatientIdentity
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.core.patient_check import check_patient, find_strangers, replace_own_name
from epicrisis.library.core.patients import PatientRecord, PatientRegistration, Roster, holds_patients
from epicrisis.library.write.ingest import add_documents
from tests.support.patient_records import ENCODER, library

NAMES = {"10083814": "Anna Maria Muster", "10083815": "Maria Muster", "7": "Bo", "P-100": "Öz, Çan", "P-1001": None}


def note(patient: str | None, number: int, date: str | None = None, **metadata: object) -> Document:
    details = {name: value for name, value in metadata.items() if value is not None}
    return Document(f"n:{patient}:{number}", "The text of a note. " * 9, date=date, patient=patient, metadata=details)


def documents() -> Iterator[Document]:
    for patient, name in NAMES.items():
        yield note(patient, 0, "2150-03-04T10:30", note_type="discharge", encounter="e1", patient_name=name)
        yield note(patient, 1, "2149", note_type="radiology", encounter="e1", patient_name=name)
        yield note(patient, 2, None, note_type="radiology", encounter="e2", patient_name=name)


@pytest.fixture(scope="module")
def notes_library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LibraryStore]:
    with library(tmp_path_factory.mktemp("ward") / "library", documents()) as opened:
        yield opened


@pytest.fixture(scope="module")
def mixed_library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LibraryStore]:
    with library(tmp_path_factory.mktemp("mixed") / "library", [*documents(), note(None, 0)]) as opened:
        yield opened


def test_roster_patients_have_counts_and_dates(notes_library: LibraryStore) -> None:
    patients = Roster(notes_library).patients()
    assert list(patients) == sorted(NAMES)
    assert patients["10083814"] == PatientRecord(
        id="10083814",
        notes=3,
        first="2149",
        last="2150-03-04T10:30",
        encounters=2,
        note_types={"radiology": 2, "discharge": 1},
        name="Anna Maria Muster",
        names=("Anna Maria Muster",),
    )
    assert patients["P-1001"].name is None


def test_roster_patient_without_details_has_empty_record(tmp_path: Path) -> None:
    with library(tmp_path / "library", [note("x", 0)]) as opened:
        assert Roster(opened).patients() == {
            "x": PatientRecord(id="x", notes=1, first=None, last=None, encounters=0, note_types={})
        }


def test_roster_patient_added_later_is_listed(tmp_path: Path) -> None:
    with library(tmp_path / "library", [note(None, 0)]) as opened:
        roster = Roster(opened)
        assert roster.patients() == {}
        assert not holds_patients(opened.path)
        with LibraryStore.open(opened.path, write=True) as writing:
            add_documents(writing, [note("x", 0)], ENCODER)
        assert list(roster.patients()) == ["x"]
        assert holds_patients(opened.path)
    assert not holds_patients(tmp_path / "nowhere")


def read_refusal(opened: LibraryStore | Sequence[LibraryStore], text: str, patient: str | None) -> str:
    """Return why the question is refused, or an empty text."""
    libraries = [opened] if isinstance(opened, LibraryStore) else opened
    try:
        check_patient([Roster(store) for store in libraries], Question(text, patient=patient))
    except InputError as error:
        return error.message
    return ""


def test_check_patient_library_of_notes_requires_patient(
    notes_library: LibraryStore, mixed_library: LibraryStore
) -> None:
    message = read_refusal(notes_library, "What was given?", None)
    assert "holds only patients' notes: select a patient with --patient" in message
    assert f"`epicrisis library patients {notes_library.path}` lists them" in message
    assert read_refusal(mixed_library, "What was given?", None) == ""
    assert read_refusal(notes_library, "What was given?", "10083814") == ""


@pytest.mark.parametrize("patient", ["1008381", "100838144", "", " 7", "none", "p-100"])
def test_check_patient_unknown_patient_is_refused(patient: str, mixed_library: LibraryStore) -> None:
    assert f"has no notes of patient {patient!r}: `epicrisis library patients" in read_refusal(
        mixed_library, "What?", patient
    )


def test_check_patient_of_second_library_is_refused(mixed_library: LibraryStore, tmp_path: Path) -> None:
    with library(tmp_path / "beside", [note("elsewhere", 0), note(None, 1)]) as beside:
        assert "has no notes of patient 'elsewhere'" in read_refusal([mixed_library, beside], "What?", "elsewhere")
        assert read_refusal([beside, mixed_library], "What?", "elsewhere") == ""


@pytest.mark.parametrize(
    "text",
    [
        "What did 10083815 take?",
        "Patient 10083815?",
        "(10083815)",
        "How is 10083815, compared?",
        "What did patient 7 take?",
        "Of subject #7?",
        "MRN: 7, what was given?",
        "Patient no. 7: what was given?",
        "What did P-1001 take?",
        "Is MARIA\n muster well?",
        "Was Çan Öz seen?",
        "Was ÖZ, ÇAN seen?",
    ],
)
def test_check_patient_other_patient_in_question_is_refused(text: str, mixed_library: LibraryStore) -> None:
    message = read_refusal(mixed_library, text, "10083814")
    assert "it names another patient of this library: pass --patient for the one it is" in message
    assert not any(name in message for name in ("10083815", "Maria", "P-1001", "Çan"))
    assert "it names a patient of this library" in read_refusal(mixed_library, text, None)


@pytest.mark.parametrize(
    "text",
    [
        "What did 10083814 take?",
        "Is Anna Maria Muster well?",
        "A dose of 7 mg?",
        "Was the patient 7 years old?",
        "What is 110083815?",
        "What is 10083815-DS-5?",
        "Did Maria take aspirin?",
        "Is Maria Mustermann well?",
        "What is P-100-2?",
        "Was it 7.5 mg?",
        "Did Bo take it?",
        "patient 7.5 mg daily",
    ],
)
def test_check_patient_similar_ids_and_names_are_accepted(text: str, mixed_library: LibraryStore) -> None:
    assert read_refusal(mixed_library, text, "10083814") == ""


@pytest.fixture(scope="module")
def numbered_library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LibraryStore]:
    """Return a library with ids like MIMIC-III's, which are also years, and one id of six digits."""
    ids = [*map(str, range(2140, 2164)), "4", "12", "99999", "100000"]
    with library(tmp_path_factory.mktemp("numbered") / "library", [note(id_, 0) for id_ in ids]) as opened:
        yield opened


@pytest.mark.parametrize(
    "text",
    [
        "What was found in 2150?",
        "Did she get 2160 mg?",
        "Was it 2150 or 2151?",
        "The patient's 2150 admission?",
        "Was the patient 2160 mg of it given?",
        "What of the patient 4 March 2150?",
        "The patient 12/04/2150?",
        "Patient 2150-03-04?",
        "Was the patient 2145 g at birth?",
        "Was the patient 12 hrs. old, 12 yo?",
        "99999 cells?",
        "Did the patient 12 \u00b5g?",
        "The inpatient 2150?",
    ],
)
def test_check_patient_short_number_without_context_is_accepted(text: str, numbered_library: LibraryStore) -> None:
    assert read_refusal(numbered_library, text, "2140") == ""


@pytest.mark.parametrize(
    "text",
    [
        "What did patient 2150 take in 2151?",
        "SUBJECT_ID 2150?",
        "subject_id=2150",
        "The patient's id 99999?",
        "100000?",
        "Was 2150 mg given to patient #2150?",
        "MRN 12: what was given?",
        "In 2150, was subject no. 2150 well?",
    ],
)
def test_check_patient_short_number_after_patient_is_refused(text: str, numbered_library: LibraryStore) -> None:
    assert "names another patient" in read_refusal(numbered_library, text, "2140")


def test_check_patient_ids_with_common_prefix_are_distinguished(mixed_library: LibraryStore) -> None:
    assert read_refusal(mixed_library, "What did P-1001 take?", "P-1001") == ""
    assert "another" in read_refusal(mixed_library, "What did P-1001 take?", "P-100")
    assert "another" in read_refusal(mixed_library, "What did P-100 take?", "P-1001")
    assert "another" in read_refusal(mixed_library, "What did 10083815 take?", "7"), (
        "a short id is not cut out of a longer one"
    )


def test_check_patient_other_patient_in_option_names_question_id(mixed_library: LibraryStore) -> None:
    question = Question("Who?", options={"A": "10083815"}, form="choice", id="q3", patient="10083814")
    with pytest.raises(InputError, match=r"question 'q3': it names another patient"):
        check_patient([Roster(mixed_library)], question)
    check_patient([Roster(mixed_library)], replace(question, options={}))
    check_patient([], question)


@pytest.mark.parametrize(
    ("text", "strangers"),
    [
        ("What did patient 48213 take?", ("48213",)),
        ("MRN:0012-A4, admitted", ("0012-A4",)),
        ("the patient 65 years old", ()),
        ("patients 12-15 years of age", ()),
    ],
)
def test_find_strangers_are_numbers_that_are_no_age(
    text: str, strangers: tuple[str, ...], numbered_library: LibraryStore
) -> None:
    assert find_strangers([Roster(numbered_library)], Question(text)) == strangers


@pytest.mark.parametrize(
    ("text", "strangers"),
    [
        ("Does Mr Benning take warfarin?", ("Benning",)),
        ("Did Mrs. Smith-Jones fall?", ("Smith-Jones",)),
        ("Has Heart Failure been named?", ()),
    ],
)
def test_find_strangers_behind_titles(text: str, strangers: tuple[str, ...], numbered_library: LibraryStore) -> None:
    assert find_strangers([Roster(numbered_library)], Question(text), titled=True) == strangers


@pytest.mark.parametrize(
    ("text", "replaced"),
    [
        ("What medications is Ms. Muster on?", "What medications is the patient on?"),
        ("What allergies does anna muster have?", "What allergies does the patient have?"),
        ("What are Anna's allergies?", "What are the patient's allergies?"),
        ("Does Muster, Anna (10083814) have asthma?", "Does the patient have asthma?"),
        ("Does the patient Anna T. Muster have asthma?", "Does the patient have asthma?"),
        ("Is patient 10083814 on warfarin?", "Is the patient on warfarin?"),
        ("Is Dr. Ánna-Maria Muster on warfarin?", "Is the patient on warfarin?"),
        ("Is Maria on warfarin?", "Is the patient on warfarin?"),
        ("Is Mr. Schulz on warfarin?", "Is Mr. Schulz on warfarin?"),
    ],
)
def test_replace_own_name_leaves_the_patient(text: str, replaced: str, notes_library: LibraryStore) -> None:
    asked = replace_own_name([Roster(notes_library)], Question(text, patient="10083814"))
    assert asked.text == replaced


@pytest.mark.parametrize(
    ("text", "replaced"),
    [
        ("Is Ms. Price on 4711 mg in May?", "Is the patient on 4711 mg in May?"),
        ("Did may price take 12345 units?", "Did may price take 12345 units?"),
        ("Price of 12345 tablets, patient 12345?", "Price of 12345 tablets, the patient?"),
        ("Is May Price (12345) on warfarin?", "Is the patient on warfarin?"),
        ("Was 12345 given to Price in May?", "Was the patient given to the patient in May?"),
    ],
)
def test_replace_own_name_keeps_common_words_months_and_doses(text: str, replaced: str, tmp_path: Path) -> None:
    with library(tmp_path / "library", [note("12345", 0, patient_name="Price, May")]) as opened:
        assert replace_own_name([Roster(opened)], Question(text, patient="12345")).text == replaced
        assert replace_own_name([Roster(opened)], Question(text, patient="4711")).text == text


def test_identities_of_a_placeholder_are_not_compared(tmp_path: Path) -> None:
    with library(tmp_path / "library", [note("x", 0)]) as opened:
        registration = PatientRegistration(opened)
        for born in ("1950-01-02", "1960-01-02"):
            registration.add(PatientIdentity("unknown", born=born))
        registration.record()
        assert list(Roster(opened).patients()) == ["x"]


@pytest.fixture(scope="module")
def spelled_library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LibraryStore]:
    """Return a library with ids and names of several spellings."""
    names = {
        "10083814": "Ali Hassan",
        "10083815": "Smith,John",
        "p00017": None,
        "pat-2222": "Berta Beispiel",
        "4321": None,
        "10083816": "Hassan Ali",
        "10083817": "Pat O'Brien",
        "PAIN": None,
        "10083818": "Test Patient",
        "P-9000": None,
        "p-9000": None,
        "10083819": "Anna Maria Muster",
        "10083820": "Muster,",
    }
    documents = [note(id_, 0, patient_name=name) for id_, name in names.items()]
    with library(tmp_path_factory.mktemp("spelled") / "library", documents) as opened:
        yield opened


@pytest.mark.parametrize(
    "text",
    [
        "What-did-MRN:10083815-get?",
        "MRN:10083815 diagnoses?",
        "patient:10083815",
        "subject-10083815",
        "MRN/10083815",
        "What did Patient/pat-2222 get?",
        "Patient/4321?",
        "What did 10083815.0 get?",
        "ID:10083815",
        "P00017?",
        "patients 10083814 and 4321",
        "Compare patients 10083814, 12, and 4321.",
        "patient 4321.0?",
    ],
)
def test_check_patient_other_id_in_any_form_is_refused(text: str, spelled_library: LibraryStore) -> None:
    assert "names another patient" in read_refusal(spelled_library, text, "10083814")


@pytest.mark.parametrize(
    "text",
    [
        "John Smith?",
        "Smith, John?",
        "Smith,John?",
        "Smith John?",
        "SMITH ,JOHN?",
        "Beispiel, Berta?",
        "Is Beispiel Berta well?",
        "Patient:Berta Beispiel",
        "Pat O\u2019Brien?",
        "O'Brien, Pat?",
        "Hassan Ali?",
        "Muster, Anna Maria?",
        "Maria Muster, Anna?",
    ],
)
def test_check_patient_other_name_in_any_form_is_refused(text: str, spelled_library: LibraryStore) -> None:
    assert "names another patient" in read_refusal(spelled_library, text, "10083814")


@pytest.mark.parametrize(
    ("text", "patient"),
    [
        ("MRN:10083814, Patient/10083814, 10083814.0 and what-did-MRN:10083814-get?", "10083814"),
        ("P00017 and patient:P00017?", "p00017"),
        ("Patient/PAT-2222?", "pat-2222"),
        ("P-9000?", "P-9000"),
        ("Hassan, Ali?", "10083814"),
        ("Ali Hassan?", "10083814"),
        ("Muster, Anna Maria?", "10083819"),
        ("Has she pain? Is the patient pain-free?", "10083814"),
        ("COVID-19? CA-125?", "10083814"),
        ("Was the patient 4321 mg, 4321.5, 4321 ml of it given?", "10083814"),
        ("In 4321, 10-4321?", "10083814"),
        ("What is 10083815-DS-5?", "10083814"),
        ("MRN:10083815-22 or 10083815.05?", "10083814"),
        ("What did the patient test positive for?", "10083814"),
        ("Anna-Berta Beispiel-Meier?", "10083814"),
        ("patients 18 and 4321 mg", "10083814"),
        ("Platelets 150000, 4321/2?", "10083814"),
    ],
)
def test_check_patient_doses_compounds_and_own_name_are_accepted(
    text: str, patient: str, spelled_library: LibraryStore
) -> None:
    assert read_refusal(spelled_library, text, patient) == ""


def test_check_patient_ids_and_names_are_distinguished_by_spelling(spelled_library: LibraryStore) -> None:
    assert "another" in read_refusal(spelled_library, "p-9000?", "P-9000")
    assert "another" in read_refusal(spelled_library, "P-9000?", "p-9000")
    assert "another" in read_refusal(spelled_library, "Hassan Ali?", "10083814")
    assert "another" in read_refusal(spelled_library, "Ali Hassan?", "10083816")
