"""`epicrisis audit`: every reading of a patient's record on the command line is in the access log of the library."""

from __future__ import annotations

import getpass
import json
from pathlib import Path

import pytest

from epicrisis.privacy.access_log import AccessLog
from tests.cli.conftest import Run
from tests.cli.test_patient_forget import ward

__all__ = ["ward"]

PATIENT = "88120001"
REASON = "called in at night"


def read_entries(ward: Path, run: Run, *arguments: object) -> list[dict[str, object]]:
    result = run("audit", "show", ward, "--json", *arguments)
    assert result.exit_code == 0, result.stderr
    entries: list[dict[str, object]] = json.loads(result.stdout)["entries"]
    return entries


@pytest.mark.long
@pytest.mark.parametrize(
    ("action", "arguments"),
    [
        ("ask", ("ask", "{ward}", "What hurts?", "--patient", PATIENT, "--break-glass", REASON)),
        ("search", ("search", "{ward}", "orchard", "--patient", PATIENT, "--break-glass", REASON)),
        ("export", ("library", "export", "{ward}", "--patient", PATIENT, "--break-glass", REASON)),
    ],
)
def test_reading_is_logged_with_user_documents_and_reason(
    action: str, arguments: tuple[str, ...], ward: Path, run: Run
) -> None:
    result = run(*(argument.replace("{ward}", str(ward)) for argument in arguments))
    assert result.exit_code == 0, result.stderr
    (entry,) = read_entries(ward, run, "--patient", PATIENT)
    assert (entry["action"], entry["patient"], entry["reason"]) == (action, PATIENT, REASON)
    assert getpass.getuser() in str(entry["user"])
    assert len(entry["documents"]) == 1  # type: ignore[arg-type]
    assert run("audit", "verify", ward).exit_code == 0


def test_listing_and_showing_notes_is_logged(ward: Path, run: Run) -> None:
    assert run("library", "patients", ward).exit_code == 0
    listed = json.loads(run("library", "list", ward, "--patient", PATIENT, "--json").stdout)
    note = listed["documents"][0]["id"]
    assert run("library", "show", ward, note, "--patient", PATIENT).exit_code == 0
    actions = [(entry["action"], entry["documents"]) for entry in read_entries(ward, run)]
    assert actions == [("patients", []), ("list", [note]), ("show", [note])]


def test_copy_of_all_records_is_logged(ward: Path, tmp_path: Path, run: Run) -> None:
    assert run("library", "copy", ward, tmp_path / "copy").exit_code == 0
    assert [(entry["action"], entry["patient"]) for entry in read_entries(ward, run)] == [("copy", None)]


def test_summary_is_logged_before_problems_are_shown(ward: Path, run: Run) -> None:
    assert run("patient", "summary", ward, PATIENT).exit_code == 2, "the record names no problem"
    (entry,) = read_entries(ward, run)
    assert (entry["action"], entry["patient"]) == ("summary", PATIENT)


def test_log_of_read_only_library_forgets_too(
    ward: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, model_home: Path
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "models").symlink_to(model_home / "models")
    monkeypatch.setenv("EPICRISIS_HOME", str(home))
    # The user of the tests may write to every folder.
    with monkeypatch.context() as patch:
        patch.setattr("epicrisis.privacy.record_access.os.access", lambda path, mode: False)
        assert run("search", ward, "orchard", "--patient", PATIENT).exit_code == 0
    (log,) = home.glob("access/*/access.jsonl")
    assert PATIENT in log.read_text()
    assert run("patient", "forget", ward, PATIENT, "--yes").exit_code == 0
    assert PATIENT not in log.read_text()
    assert AccessLog(log).verify().fault is None


@pytest.mark.long
def test_literature_is_not_logged(small_library: Path, run: Run) -> None:
    assert run("search", small_library, "aspirin").exit_code == 0
    assert run("ask", small_library, "Does aspirin help?").exit_code == 0
    assert not (small_library / "access.jsonl").exists()
    assert "nobody has read" in run("audit", "verify", small_library).stderr


@pytest.mark.long
def test_forgotten_patient_is_shown_under_pseudonym(ward: Path, run: Run) -> None:
    assert run("search", ward, "orchard", "--patient", PATIENT).exit_code == 0
    assert run("patient", "forget", ward, PATIENT, "--yes").exit_code == 0
    entries = read_entries(ward, run, "--patient", PATIENT)
    assert [entry["action"] for entry in entries] == ["search", "forget"]
    assert {entry["patient"] for entry in entries} == {None}
    assert PATIENT not in (ward / "access.jsonl").read_text()


def test_reason_in_settings_file_is_refused(ward: Path, run: Run) -> None:
    result = run("search", ward, "orchard", "--patient", PATIENT, "--setting", f"break_glass={REASON}")
    assert result.exit_code == 2
    assert "--break-glass" in result.stderr
