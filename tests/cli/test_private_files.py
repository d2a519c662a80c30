"""Every file with text that a command writes is its owner's alone, under any umask and in folders that were open."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.cli.test_patient_forget import COLUMNS
from tests.support.patient_records import recorder
from tests.support.served_models import served

PATIENT = "88120001"
QUESTION = "What hurts since the regatta?"
NOTES = """who,kind,note,name,mrn
88120001,discharge,"DISCHARGE DIAGNOSES:
1. Gout of the left foot.

HOSPITAL COURSE:
The gout of the left foot was treated with colchicine.",Anneliese Quastenflosser,MRN-551
88120002,progress,Bartholomew has a sore elbow since the regatta.,Bartholomew Zwiebelturm,MRN-662
"""
COMMANDS = """
library add WARD notes.csv COLUMNS
library info WARD
library list WARD --documents
library patients WARD
library check WARD
ask WARD QUESTION --patient P -o answer.md MODEL --setting log=log/text.jsonl --setting log_text=true
ask WARD QUESTION --patient P MODEL --setting record=calls.jsonl
ask WARD --file questions.jsonl -o answers.jsonl MODEL
search WARD colchicine --patient P -o hits.md
plan WARD --file questions.jsonl --json
patient show WARD P
library export WARD --patient P -o export.jsonl
library copy WARD copy
evaluate questions.jsonl --library WARD -o runs/one MODEL --strategy rag
evaluate questions.jsonl --library WARD -o runs/two MODEL --strategy brief-context
report runs/one -o report.html
grade run runs/one --no-meteor
grade pairs runs/one runs/two
library optimize WARD
users add maria --folder server --role patient-reader
audit show WARD
cache info WARD
patient forget WARD 88120002 --folder server --yes
"""
"""Commands in turn. P is the patient; MODEL selects the scripted model."""
DEIDENTIFYING = """
library measure-deidentification WARD --notes 100
ask WARD QUESTION --patient P -o surrogates.md MODEL --deidentify 0.01
library export WARD --all-patients --deidentify 0.01 -o pseudonyms.jsonl
"""
"""Commands that come after the first if their packages are installed (make test-deidentification)."""
FOLDERS = ("ward", "copy", "runs/one", "runs/one/judging", "runs/one/measures", "server")
"""Folders that the program fills. All but `judging` and `measures` exist with the rights of others."""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model_home: Path) -> Iterator[Path]:
    """Yield a working folder whose folders exist with the rights of others, under a common umask."""
    folder = tmp_path / "work"
    for name in ("ward", "copy", "runs/one", "log", "server", "home"):
        (folder / name).mkdir(parents=True)
    (folder / "home" / "models").symlink_to(model_home / "models")
    (folder / "notes.csv").write_text(NOTES, encoding="utf-8")
    rows = [
        {"id": f"q{number}", "text": QUESTION, "gold": "colchicine", "patient": patient}
        for number, patient in enumerate((PATIENT, "88120002"))
    ]
    (folder / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.chdir(folder)
    monkeypatch.setenv("EPICRISIS_HOME", str(folder / "home"))
    for path in folder.rglob("*"):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() else 0o644)
    before = os.umask(0o022)
    yield folder
    os.umask(before)


@pytest.mark.long
def test_files_of_all_commands_are_private(place: Path, run: Run) -> None:
    inputs = {place / "notes.csv", place / "questions.jsonl"}
    with served(recorder()) as server:
        values = {
            "WARD": ["ward"],
            "P": [PATIENT],
            "QUESTION": [QUESTION],
            "MODEL": ["--model", server.url],
            "COLUMNS": list(COLUMNS),
        }
        failures = {}
        first, *rest = COMMANDS.strip().splitlines()
        deidentifying = DEIDENTIFYING.strip().splitlines() if find_spec("presidio_analyzer") else []
        for line in (first, *deidentifying, *rest):
            arguments: list[str] = []
            for word in line.split():
                arguments += values.get(word, [word])
            result = run(*arguments)
            if result.exit_code != 0:
                failures[line] = result.stderr
    assert failures == {}
    files = [path for path in place.rglob("*") if path.is_file() and path not in inputs]
    files = [path for path in files if place / "home" / "models" not in path.parents]
    names = {path.relative_to(place).as_posix() for path in files}
    written = {"ward/access.jsonl", "log/text.jsonl", "calls.jsonl", "answers.jsonl", "runs/one/records.jsonl"}
    assert written | {"server/users.json", "report.html"} <= names
    assert ("ward/deidentification.key" in names) == bool(deidentifying)
    open_files = {path.relative_to(place): oct(mode) for path in files if (mode := find_mode(path)) & 0o077}
    assert open_files == {}
    open_folders = {name: oct(mode) for name in FOLDERS if (mode := find_mode(place / name)) & 0o077}
    assert open_folders == {}


def find_mode(path: Path) -> int:
    """Return the permissions of a file or folder."""
    return stat.S_IMODE(path.stat().st_mode)
