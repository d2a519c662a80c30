"""`epicrisis patient forget`: a patient is removed from every file, and the others are unchanged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run

COLUMNS = (
    "--format=notes",
    "--column=patient=who",
    "--column=type=kind",
    "--column=text=note",
    "--column=patient-name=name",
    "--column=record-number=mrn",
)
NOTES = """who,kind,note,name,mrn
88120001,progress,Anneliese Quastenflosser limped into the orchard clinic.,Anneliese Quastenflosser,MRN-551
88120002,progress,Bartholomew has a sore elbow since the regatta.,Bartholomew Zwiebelturm,MRN-662
"""


@pytest.fixture
def ward(tmp_path: Path, run: Run, model_home: Path) -> Path:
    """Return a library with one note of each of two patients."""
    (tmp_path / "notes.csv").write_text(NOTES, encoding="utf-8")
    path = tmp_path / "ward"
    result = run("library", "add", path, tmp_path / "notes.csv", *COLUMNS)
    assert result.exit_code == 0, result.stderr
    return path


def read_files(folder: Path) -> bytes:
    """Return the contents of all files of a folder."""
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def test_forgotten_patient_is_in_no_file_of_library(ward: Path, run: Run) -> None:
    assert b"Quastenflosser" in read_files(ward)
    result = run("patient", "forget", ward, "88120001", "--yes")
    assert result.exit_code == 0, result.stderr
    content = read_files(ward)
    for text in (b"Quastenflosser", b"88120001", b"MRN-551", b"orchard"):
        assert text not in content
    assert b"Zwiebelturm" in content
    patients = json.loads(run("library", "patients", ward, "--json").stdout)
    assert [patient["id"] for patient in patients] == ["88120002"]


def test_unknown_patient_is_refused(ward: Path, run: Run) -> None:
    result = run("patient", "forget", ward, "88120009", "--yes")
    assert result.exit_code == 2
    assert "library patients" in result.stderr
