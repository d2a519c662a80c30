"""Notes of several sources: one id is one person, superseded documents are left out, answers name the patient."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from epicrisis.cli.library_add import removed_lines
from epicrisis.core.errors import InputError
from epicrisis.core.types import Document
from epicrisis.corpus.base.removal_log import RemovalLog
from epicrisis.corpus.readers.sources import read_sources
from epicrisis.corpus.records.note_documents import NoteCleaning
from epicrisis.corpus.records.note_tables import NoteColumns
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.core.patients import PatientRecord, Roster
from epicrisis.library.write.ingest import add_documents, open_or_create
from epicrisis.library.write.ingest_batches import IngestReport
from tests.cli.conftest import Run
from tests.corpus.test_fhir import document, packed
from tests.support.hostile import HostileServer
from tests.support.patient_records import ENCODER
from tests.support.replies import schema_reply

A, B = "http://a.example/fhir", "http://b.example/fhir"
SECRETS = ("Ada", "Byron", "Grace", "Hopper", "1950", "1906")


def person(name: str, born: str, number: str = "4711") -> dict[str, Any]:
    identifier = [{"system": "urn:mrn", "value": number}]
    return {
        "resourceType": "Patient",
        "id": "p1",
        "name": [{"text": name}],
        "birthDate": born,
        "identifier": identifier,
    }


def bundle(path: Path, server: str, *resources: dict[str, Any]) -> Path:
    entries = [
        {"fullUrl": f"{server}/{resource['resourceType']}/{resource['id']}" if server else None, "resource": resource}
        for resource in resources
    ]
    path.write_text(json.dumps({"resourceType": "Bundle", "entry": entries}, indent=1))
    return path


def note(id_: str, text: str, **more: Any) -> dict[str, Any]:
    return document(packed(text), id=id_, context={}, **more)


def add(ward: Path, *files: Path, literature: bool = False, cleaning: NoteCleaning | None = None) -> IngestReport:
    """Add files as `library add` does, with an encoder that needs no model."""
    cleaning = cleaning or NoteCleaning(removal_log=RemovalLog(keep_texts=True))
    with open_or_create(ward, ENCODER, "hashing", overlap=0) as library:
        return add_documents(library, read_sources(files, cleaning=cleaning), ENCODER, literature=literature)


def patients(ward: Path) -> tuple[PatientRecord, ...]:
    with LibraryStore.open(ward) as library:
        return tuple(Roster(library).patients().values())


ADA, GRACE = person("Ada Byron", "1950-01-02"), person("Grace Hopper", "1906-12-09", "99")
SECOND = {
    "server": (B, [note("d2", "Warfarin.")]),
    "birth date": ("", [person("Ada Byron", "1906-12-09"), note("d2", "Warfarin.")]),
    "record number": ("", [person("Ada Byron", "1950-01-02", "99"), note("d2", "Warfarin.")]),
    "name": ("", [{**GRACE, "birthDate": None, "identifier": []}, note("d2", "Warfarin.")]),
}


@pytest.mark.parametrize("kind", SECOND)
def test_second_source_with_same_ids_is_refused(kind: str, tmp_path: Path) -> None:
    ward = tmp_path / "ward"
    add(ward, bundle(tmp_path / "a.json", A, ADA, note("d1", "Aspirin.")))
    server, resources = SECOND[kind]
    with pytest.raises(InputError, match=f"patient 'p1' has another {kind} than in .*a library of its own") as refused:
        add(ward, bundle(tmp_path / "b.json", server, *resources))
    assert not any(secret in refused.value.message.replace(str(tmp_path), "") for secret in SECRETS)
    assert [(patient.id, patient.notes, patient.name, patient.born) for patient in patients(ward)] == [
        ("p1", 1, "Ada Byron", "1950-01-02")
    ]


@pytest.mark.long
def test_add_notes_of_other_server_reports_one_line(tmp_path: Path, run: Run, model_home: Path) -> None:
    ward = tmp_path / "ward"
    first = run("library", "add", ward, bundle(tmp_path / "a.json", A, ADA, note("d1", "Aspirin.")), "--json")
    assert first.exit_code == 0
    again = run("library", "add", ward, bundle(tmp_path / "b.json", B, GRACE, note("d2", "Warfarin.")), "--json")
    assert (again.exit_code, len(again.stderr.splitlines())) == (2, 1)
    (tmp_path / "note.txt").write_text("A note of nobody knows whom.")
    other = run("library", "add", ward, tmp_path / "note.txt", "--json")
    assert (other.exit_code, "pass --literature if it is" in other.stderr) == (2, True)
    assert run("library", "add", ward, tmp_path / "note.txt", "--literature").exit_code == 0


def test_new_name_of_known_person_is_counted(tmp_path: Path) -> None:
    ward = tmp_path / "ward"
    add(ward, bundle(tmp_path / "a.json", A, ADA, note("d1", "Aspirin.")))
    married = bundle(tmp_path / "b.json", A, person("Ada Lovelace", "1950-01-02"), note("d2", "Warfarin."))
    assert add(ward, married).renamed == 1
    (patient,) = patients(ward)
    assert (patient.name, patient.names, patient.notes) == ("Ada Lovelace", ("Ada Lovelace", "Ada Byron"), 2)


def test_superseded_documents_are_left_out_and_counted(tmp_path: Path) -> None:
    ward, log = tmp_path / "ward", RemovalLog(keep_texts=True)
    first = bundle(tmp_path / "a.json", A, ADA, note("d1", "First draft: aspirin."), note("d9", "Kept."))
    add(ward, first)
    replaces = [{"code": "replaces", "target": {"reference": "DocumentReference/d1"}}]
    second = bundle(
        tmp_path / "b.json",
        A,
        note("d2", "Second draft: warfarin.", status="superseded"),
        note("d3", "Third: heparin.", relatesTo=replaces),
    )
    report = add(ward, second, cleaning=NoteCleaning(removal_log=log))
    assert (report.added, report.deleted) == (1, 1)
    (line,) = removed_lines(log.summary(), ward)
    assert "superseded 23 characters of 1 note (1 text)" in line
    assert "--keep-superseded" in line
    assert [patient.notes for patient in patients(ward)] == [2]
    without_removal = NoteCleaning(removal_log=RemovalLog(keep_texts=True), keep_superseded=True)
    assert add(tmp_path / "all", first, second, cleaning=without_removal).added == 4


R5 = {"coding": [{"code": "transforms"}]}


@pytest.mark.parametrize(
    ("more", "remaining"),
    [
        ({"relatesTo": [{"code": "replaces", "target": {"reference": f"{A}/DocumentReference/d1"}}]}, ["d2"]),
        ({"relatesTo": [{"code": R5, "target": {"reference": "DocumentReference/d1"}}]}, ["d2"]),
        ({"relatesTo": [{"code": "appends", "target": {"reference": "DocumentReference/d1"}}]}, ["d1", "d2"]),
        # What cannot be read, was withdrawn, or is another patient's stands in nobody's place.
        ({"relatesTo": [{"code": "replaces", "target": {"reference": "DocumentReference/d1"}}], "content": []}, ["d1"]),
        (
            {
                "relatesTo": [{"code": "replaces", "target": {"reference": "DocumentReference/d1"}}],
                "status": "entered-in-error",
            },
            ["d1"],
        ),
        (
            {
                "relatesTo": [{"code": "replaces", "target": {"reference": "DocumentReference/d1"}}],
                "subject": {"reference": "Patient/p2"},
            },
            ["d1", "d2"],
        ),
    ],
)
def test_document_that_replaces_another_is_read_alone(
    more: dict[str, Any], remaining: list[str], tmp_path: Path
) -> None:
    path = bundle(tmp_path / "a.json", A, ADA, note("d1", "First."), note("d2", "Second.", **more))
    assert [item.id for item in read_sources([path]) if isinstance(item, Document)] == [
        f"note:{name}" for name in remaining
    ]


@pytest.mark.parametrize("ids", [("d1",), ("d1", "d2"), ("d1", "d2", "d3")])
def test_documents_that_replace_each_other_are_all_added(ids: tuple[str, ...], tmp_path: Path) -> None:
    def replacing(id_: str, target: str) -> dict[str, Any]:
        related = [{"code": "replaces", "target": {"reference": f"DocumentReference/{target}"}}]
        return note(id_, f"Text of {id_}.", relatesTo=related)

    notes = [replacing(id_, ids[place - 1]) for place, id_ in enumerate(ids)]
    ward = tmp_path / "ward"
    add(ward, bundle(tmp_path / "a.json", A, ADA, *notes, note("old", "Older."), replacing("new", "old")))
    with LibraryStore.open(ward) as library:
        remaining = {f"note:{id_}" for id_ in (*ids, "new")}
        assert set(library.content_hashes([*remaining, "note:old"])) == remaining


@pytest.mark.slow
def test_ask_by_record_number_names_patient(tmp_path: Path, run: Run) -> None:
    ward = tmp_path / "ward"
    add(ward, bundle(tmp_path / "a.json", A, ADA, note("d1", "Aspirin.")))
    questions, answers = tmp_path / "questions.jsonl", tmp_path / "answers.jsonl"
    questions.write_text('{"id": "q", "text": "Which drug was given?", "patient": "4711"}\n')
    with HostileServer(schema_reply, keep_bodies=True) as server:
        arguments = ("--strategy", "full-context", "--model", server.url)
        result = run("ask", ward, "Which drug was given?", "--patient", "4711", *arguments)
        assert result.exit_code == 0
        assert "Record read: patient p1 (Ada Byron)" in result.stdout
        answer = json.loads(run("ask", ward, "Which drug was given?", "--patient", "p1", *arguments, "--json").stdout)
        assert (answer["patient"], answer["patient_name"]) == ("p1", "Ada Byron")
        assert run("ask", ward, "--file", questions, "-o", answers, *arguments).exit_code == 0
        calls = len(server.received)
        assert run("ask", ward, "--file", questions, "-o", answers, *arguments).exit_code == 0
        assert len(server.received) == calls, "the record number identifies the finished question"
        answer_without_search = json.loads(
            run(
                "ask", ward, "Which?", "--strategy", "closed-book", "--model", server.url, "--patient", "p1", "--json"
            ).stdout
        )
        assert answer_without_search["patient"] is None
    (record,) = answers.read_text().splitlines()
    assert json.loads(record)["answer"]["patient"] == "p1"
    assert run("search", ward, "aspirin", "--patient", "4711", "--by", "bm25").exit_code == 0


def test_note_without_patient_is_skipped_unless_literature(tmp_path: Path) -> None:
    folder, ward, other = tmp_path / "export", tmp_path / "ward", tmp_path / "papers"
    folder.mkdir()
    bundle(folder / "a.json", A, ADA, note("d1", "Aspirin."))
    (folder / "note.txt").write_text("A note of nobody knows whom.")
    (folder / "rows.jsonl").write_text('{"id": "x", "text": "Another one.", "patient": null}\n')
    report = add(ward, folder)
    assert (report.added, report.skipped) == (1, 2)
    assert all("pass --literature" in item.reason for item in report.first_skipped)
    assert add(ward, folder, literature=True).added == 2
    assert add(other, folder / "note.txt").added == 1
    with pytest.raises(InputError, match="pass --literature"):
        add(other, folder / "a.json")


def test_answer_from_mixed_library_has_note(tmp_path: Path, run: Run) -> None:
    ward = tmp_path / "ward"
    with open_or_create(ward, ENCODER, "hashing", overlap=0) as library:
        add_documents(library, [Document("n", "Aspirin.", patient="p1"), Document("x", "Of nobody.")], ENCODER)
    arguments = ("--strategy", "rag", "--by", "bm25", "--patient", "p1")
    with HostileServer(schema_reply) as server:
        result = run("ask", ward, "Aspirin?", "--model", server.url, *arguments)
    assert "this library of notes contains documents without a patient" in " ".join(result.stdout.split())


@pytest.mark.parametrize("first", ["jsonl", "fhir"])
def test_other_name_under_same_id_in_jsonl_is_refused(first: str, tmp_path: Path) -> None:
    """JSON lines name a patient only in their metadata."""

    def line(name: str, patient: str) -> Path:
        document = {"id": name, "text": f"Note {name}.", "patient": "p1", "patient_name": patient}
        path = tmp_path / f"{name}.jsonl"
        path.write_text(json.dumps(document) + "\n")
        return path

    ward = tmp_path / "ward"
    add(
        ward,
        line("a", "Ada Byron") if first == "jsonl" else bundle(tmp_path / "a.json", A, ADA, note("d1", "Aspirin.")),
    )
    add(ward, line("b", "BYRON, ADA"))
    with pytest.raises(InputError, match="another name") as refused:
        add(ward, line("c", "Grace Hopper"))
    assert not any(secret in refused.value.message.replace(str(tmp_path), "") for secret in SECRETS)
    with LibraryStore.open(ward) as library:
        assert library.content_hashes(["c"]) == {}


def test_table_with_identities_registers_patients(tmp_path: Path) -> None:
    head = "pid,name,born,mrn,body\n"
    columns = NoteColumns(patient="pid", text="body", patient_name="name", born="born", record_number="mrn")
    table, ward = tmp_path / "notes.csv", tmp_path / "ward"

    def add_table() -> None:
        with open_or_create(ward, ENCODER, "hashing", overlap=0) as library:
            add_documents(library, read_sources([table], "notes", columns=columns), ENCODER, literature=False)

    table.write_text(head + "1,Ada Byron,1950-01-02,M-4711,Aspirin.\n1,Ada Lovelace,1950-01-02,M-4711,Heparin.\n")
    add_table()
    (patient,) = patients(ward)
    assert (patient.names, patient.born, patient.numbers) == (("Ada Byron", "Ada Lovelace"), "1950-01-02", ("M-4711",))
    table.write_text(head + "1,Grace Hopper,1906-12-09,M-99,Warfarin.\n")
    with pytest.raises(InputError, match="another birth date") as refused:
        add_table()
    assert not any(secret in refused.value.message.replace(str(tmp_path), "") for secret in SECRETS)


def test_resource_deleted_by_the_server_deletes_its_note(tmp_path: Path) -> None:
    ward = tmp_path / "ward"
    add(ward, bundle(tmp_path / "a.json", A, ADA, note("d1", "Aspirin."), note("d2", "Heparin.")))
    deleted = {"request": {"method": "DELETE", "url": "DocumentReference/d1"}}
    (tmp_path / "deleted.ndjson").write_text(
        json.dumps({"resourceType": "Bundle", "type": "transaction", "entry": [deleted]}) + "\n"
    )
    assert add(ward, tmp_path / "deleted.ndjson").deleted == 1
    assert [patient.notes for patient in patients(ward)] == [1]
