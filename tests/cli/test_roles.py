"""On the command line the user of the operating system has the role and the patients that the file of users has."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from epicrisis.api import Library
from epicrisis.core.errors import InputError
from epicrisis.privacy.access_log import NAME, AccessLog
from epicrisis.privacy.record_access import find_user
from epicrisis.privacy.user_rights import USERS_FILE, find_rights
from tests.cli.conftest import Run

ASSIGNED, OTHER = "88120001", "88120002"
NOTES = f"""who,kind,note,name
{ASSIGNED},progress,Aspirin was given for the pain in the left ankle.,Anneliese Quast
{OTHER},progress,Warfarin was given because of an irregular pulse.,Bartholomew Zwiebel
"""
READINGS = (
    ("ask", "LIBRARY", "Which drug was given?", "--patient", OTHER),
    ("search", "LIBRARY", "drug", "--by", "bm25", "--patient", OTHER),
    ("patient", "show", "LIBRARY", OTHER),
    ("patient", "summary", "LIBRARY", OTHER),
    ("library", "list", "LIBRARY", "--patient", OTHER),
    ("library", "export", "LIBRARY", "--patient", OTHER),
    ("library", "export", "LIBRARY", "--all-patients"),
    ("library", "patients", "LIBRARY"),
    ("library", "copy", "LIBRARY", "COPY"),
)


@pytest.fixture
def ward(tmp_path: Path, run: Run, model_home: Path) -> Path:
    """Return a library with one note of each of two patients."""
    (tmp_path / "notes.csv").write_text(NOTES, encoding="utf-8")
    columns = [f"--column={role}={name}" for role, name in (("patient", "who"), ("type", "kind"), ("text", "note"))]
    result = run("library", "add", tmp_path / "ward", tmp_path / "notes.csv", "--format=notes", *columns)
    assert result.exit_code == 0, result.stderr
    return tmp_path / "ward"


def add_user(run: Run, folder: Path, role: str, *patients: str) -> None:
    options = [f"--patient={patient}" for patient in patients]
    result = run("users", "add", find_user().account, "--role", role, "--folder", folder, *options)
    assert result.exit_code == 0, result.stderr


@pytest.mark.parametrize("words", READINGS, ids=lambda words: " ".join(words[:2]))
def test_reading_of_other_patient_is_refused_in_one_line(
    words: tuple[str, ...], ward: Path, run: Run, tmp_path: Path
) -> None:
    add_user(run, ward, "patient-reader", ASSIGNED)
    places = {"LIBRARY": str(ward), "COPY": str(tmp_path / "copy")}
    command = [places.get(word, word) for word in words]
    result = run(*command)
    assert result.exit_code == 2
    assert "not assigned to" in result.stderr
    assert "--break-glass REASON" in result.stderr
    assert "Traceback" not in result.stderr
    assert "Warfarin" not in result.stdout
    entries = list(AccessLog(ward / NAME).entries())
    assert {entry["outcome"] for entry in entries if entry["patient"] in (OTHER, None)} == {"refused"}


@pytest.mark.long
@pytest.mark.parametrize(
    "words", [words for words in READINGS if OTHER in words], ids=lambda words: " ".join(words[:2])
)
def test_other_patient_is_refused_as_one_who_is_not_there(words: tuple[str, ...], ward: Path, run: Run) -> None:
    add_user(run, ward, "patient-reader", ASSIGNED)
    refusals = []
    for patient in (OTHER, "88120009"):
        result = run(*(str(ward) if word == "LIBRARY" else patient if word == OTHER else word for word in words))
        assert result.exit_code == 2
        refusals.append((result.stdout, result.stderr))
    assert refusals[0] == refusals[1]
    assert [entry["outcome"] for entry in AccessLog(ward / NAME).entries()][-2:] == ["refused", "refused"]


@pytest.mark.long
@pytest.mark.parametrize("words", [("ask",), ("search", "--by", "bm25")])
@pytest.mark.parametrize("name", ["Bartholomew Zwiebel", "patient 88120002", "Bartholomew Zwicker", "patient 88120009"])
def test_user_of_one_patient_does_not_learn_who_else_is_there(
    words: tuple[str, ...], name: str, ward: Path, run: Run
) -> None:
    add_user(run, ward, "patient-reader", ASSIGNED)
    result = run(words[0], ward, f"Which drug was given to {name}?", "--patient", ASSIGNED, *words[1:])
    assert result.exit_code == 0, result.stderr
    assert "Aspirin" in result.stdout
    assert "no name or number of this patient is" in result.stdout + result.stderr


def test_question_about_another_patient_is_refused_and_logged(ward: Path, run: Run) -> None:
    """Without users everybody may read all patients."""
    for command in ("ask", "search"):
        result = run(command, ward, f"Which drug was given to patient {OTHER}?", "--patient", ASSIGNED, "--by", "bm25")
        assert result.exit_code == 2
        assert "names another patient" in result.stderr
    assert [(entry["patient"], entry["outcome"]) for entry in AccessLog(ward / NAME).entries()] == [
        *((ASSIGNED, "refused"), (ASSIGNED, "refused"))
    ]


@pytest.mark.long
@pytest.mark.parametrize("words", READINGS, ids=lambda words: " ".join(words[:2]))
def test_reason_opens_other_record_and_is_logged(words: tuple[str, ...], ward: Path, run: Run, tmp_path: Path) -> None:
    add_user(run, ward, "patient-reader", ASSIGNED)
    places = {"LIBRARY": str(ward), "COPY": str(tmp_path / "copy")}
    command = [places.get(word, word) for word in words]
    result = run(*command, "--break-glass", "called at night")
    assert "not assigned" not in result.stderr
    entries = [entry for entry in AccessLog(ward / NAME).entries() if entry["patient"] in (OTHER, None)]
    assert {(entry["outcome"], entry["reason"]) for entry in entries} == {("allowed", "called at night")}


def test_assigned_record_is_shown(ward: Path, run: Run) -> None:
    add_user(run, ward, "patient-reader", ASSIGNED)
    result = run("search", ward, "given", "--by", "bm25", "--patient", ASSIGNED)
    assert result.exit_code == 0, result.stderr
    assert "Aspirin" in result.stdout


def test_user_without_entry_and_literature_reader_read_no_record(ward: Path, run: Run) -> None:
    run("users", "add", "somebody-else", "--role", "administrator", "--folder", ward)
    refused = run("patient", "show", ward, ASSIGNED, "--break-glass", "no reason replaces a role")
    assert refused.exit_code == 2
    assert "is no user of this library" in refused.stderr
    add_user(run, ward, "literature-reader")
    assert "literature-reader" in run("patient", "show", ward, ASSIGNED).stderr
    add_user(run, ward, "administrator")
    assert run("patient", "show", ward, OTHER).exit_code == 0


def test_users_of_the_server_hold_where_the_library_has_none(ward: Path, run: Run, model_home: Path) -> None:
    server = model_home / "server"
    add_user(run, server, "patient-reader", ASSIGNED)
    try:
        assert "not assigned" in run("patient", "show", ward, OTHER).stderr
        add_user(run, ward, "patient-reader", OTHER)
        assert run("patient", "show", ward, OTHER).exit_code == 0
    finally:
        (server / USERS_FILE).unlink()


def test_python_reads_assigned_records_only(ward: Path, run: Run) -> None:
    add_user(run, ward, "patient-reader", ASSIGNED)

    with Library.open(ward, by="bm25") as library:
        assert len(library.search("given", patient=ASSIGNED).hits) == 1
        with pytest.raises(InputError, match="not assigned"):
            library.search("given", patient=OTHER)


def test_only_administrator_forgets_and_forgotten_patient_leaves_the_users(ward: Path, run: Run) -> None:
    add_user(run, ward, "patient-reader", OTHER)
    refused = run("patient", "forget", ward, OTHER, "--yes")
    assert refused.exit_code == 2
    assert "only an administrator" in refused.stderr
    add_user(run, ward, "administrator", OTHER)
    done = run("patient", "forget", ward, OTHER, "--yes")
    assert done.exit_code == 0, done.stderr
    assert OTHER not in (ward / USERS_FILE).read_text()


def test_damaged_file_of_users_refuses_everybody(ward: Path, run: Run) -> None:
    (ward / USERS_FILE).write_text("{")
    result = run("patient", "show", ward, ASSIGNED)
    assert result.exit_code == 2
    assert "cannot be read" in result.stderr


def test_rights_are_those_of_the_first_folder_with_users(tmp_path: Path) -> None:
    home, library = tmp_path / "home", tmp_path / "library"
    for folder, patients in ((home / "server", None), (library, ["1"])):
        folder.mkdir(parents=True)
        user = {"role": "patient-reader", "key_sha256": "0" * 64, "patients": patients}
        (folder / USERS_FILE).write_text(json.dumps({"maria": user}))
    rights = find_rights(library, home, "maria")
    assert rights is not None
    assert rights.patients == frozenset({"1"})
    other = find_rights(tmp_path / "other", home, "maria")
    assert other is not None
    assert other.patients is None
    assert find_rights(tmp_path / "other", tmp_path, "maria") is None
