"""Patients' notes on the command line: columns, real visits, what was taken out, and files that are not right."""

from __future__ import annotations

import csv
import json
from itertools import chain
from pathlib import Path

import pytest

from tests.cli.conftest import Run

COLUMNS = tuple(
    chain.from_iterable(("--column", pair) for pair in ("patient=pid", "time=when", "type=kind", "text=body"))
)
TEMPLATE = (
    "Thank you for letting us take part in the care of this person; the team on duty will gladly answer questions."
)


def put(path: Path, *rows: tuple[object, ...]) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("pid", "when", "kind", "body"), *rows])
    return path


@pytest.mark.models
def test_what_is_taken_out_is_counted_and_kept_for_its_owner(tmp_path: Path, run: Run, model_home: Path) -> None:
    library = tmp_path / "ward"
    rows = [(n % 12, f"2150-03-{n + 1:02}", "round", f"Finding {n}.\n\n{TEMPLATE}\n\nPage 1 of {n}") for n in range(24)]
    path = put(tmp_path / "notes.csv", *rows, rows[0])
    result = run("library", "add", library, path, *COLUMNS)
    assert result.exit_code == 0, result.stderr
    assert "24 documents added" in result.stdout
    where = library / "removed.jsonl"
    assert f"listed in {where}; --keep-boilerplate keeps: page, recurring\n" in result.stdout
    kept = library / "removed.jsonl"
    assert kept.stat().st_mode & 0o777 == 0o600
    lines = [json.loads(line) for line in kept.read_text("utf-8").splitlines()]
    (recurring,) = [line for line in lines if line["kind"] == "recurring"]
    assert (recurring["text"], len(recurring["documents"]), recurring["notes"]) == (TEMPLATE, 24, 25)
    assert sum(line["kind"] == "page" for line in lines) == 24
    assert sum(line["kind"] == "duplicate" for line in lines) == 1
    found = run("search", library, "finding", "--patient", "3", "-k", 5, "--by", "bm25", "--json")
    texts = [hit["passage"]["text"] for hit in json.loads(found.stdout)["hits"]]
    assert sorted(texts) == ["Finding 15.", "Finding 3."]

    again = run("library", "add", library, path, *COLUMNS, "--json")
    report = json.loads(again.stdout)
    assert (report["added"], report["unchanged"]) == (0, 24)
    assert report["removed"]["kinds"]["recurring"] == {"notes": 24, "texts": 1, "characters": 24 * len(TEMPLATE)}
    assert [json.loads(line) for line in kept.read_text("utf-8").splitlines()] == lines, "told once, not twice"

    left = json.loads(run("library", "add", library, path, *COLUMNS, "--keep-boilerplate", "--json").stdout)
    assert left["replaced"] + left["added"] == 24
    assert set(left["removed"]["kinds"]) == {"duplicate"}
    assert list(library.glob("removed.jsonl.*")) == []


@pytest.mark.models
@pytest.mark.data
def test_real_visits(tmp_path: Path, run: Run, model_home: Path, data_folder: Path) -> None:
    visits = data_folder / "visits" / "valid.csv"
    columns = ("--column", "patient=encounter_id", "--column", "type=dataset", "--column", "text=note")
    result = run("library", "add", tmp_path / "visits", visits, *columns)
    assert result.exit_code == 0, result.stderr
    assert "20 documents added" in result.stdout
    assert "of 20 notes 20 have no time" in result.stdout
    with visits.open(encoding="utf-8", newline="") as file:
        patient = next(csv.DictReader(file))["encounter_id"]
    found = run("search", tmp_path / "visits", "heart failure", "--patient", patient, "--json")
    passages = [hit["passage"] for hit in json.loads(found.stdout)["hits"]]
    assert passages
    assert {passage["patient"] for passage in passages} == {patient}
    assert any("section" in passage["metadata"] for passage in passages)


@pytest.mark.models
def test_rows_that_are_not_right_cost_no_other(tmp_path: Path, run: Run, model_home: Path) -> None:
    path = put(tmp_path / "notes.csv", ("", "2150", "round", "A secret."), (1, "03/04/2150", "round", "Good."))
    result = run("library", "add", tmp_path / "ward", path, *COLUMNS)
    assert result.exit_code == 0
    assert "1 documents added" in result.stdout
    assert "of 1 note 1 has an unreadable time (--column time=NAME, --time-format)" in result.stdout
    assert f"warning: {path}, line 2: names no patient" in result.stderr
    assert "warning: 1 items were skipped" in result.stderr
    assert "secret" not in result.stdout + result.stderr


@pytest.mark.parametrize(
    ("options", "cure"),
    [
        ((), "--column patient=NAME --column text=NAME"),
        (
            ("--column", "patient=subject_id", "--column", "text=body"),
            "no column is called 'subject_id'; its first line has 4 columns",
        ),
        (("--format", "jsonl", "--column", "patient=pid"), "--column is for --format notes, not for jsonl"),
        (("--column", "when=pid"), "--column when=pid: write ROLE=NAME, with one of the roles patient, time"),
        (("--column", "patient"), "--column patient: write ROLE=NAME"),
    ],
)
def test_columns_that_are_not_there(tmp_path: Path, run: Run, options: tuple[str, ...], cure: str) -> None:
    path = put(tmp_path / "notes.csv", (1, "2150", "round", "Good."))
    result = run("library", "add", tmp_path / "ward", path, *options)
    assert result.exit_code == 2
    assert cure in result.stderr
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "ward").exists()


@pytest.mark.models
def test_notes_left_out_whole_are_not_said_to_be_left_in_by_an_option(
    tmp_path: Path, run: Run, model_home: Path
) -> None:
    path = put(tmp_path / "notes.csv", *[(1, "2150-03-04", "round", "No change.")] * 2)
    result = run("library", "add", tmp_path / "ward", path, *COLUMNS)
    assert result.exit_code == 0, result.stderr
    assert "removed: duplicate 10 characters of 1 note (1 text); listed in" in result.stdout
    assert "keep-boilerplate" not in result.stdout


@pytest.mark.parametrize(("form", "cure"), [("%d/%d", "names %d more than once"), ("%Q/%Y", "%Q is none of")])
def test_time_formats_that_cannot_be_used(tmp_path: Path, run: Run, form: str, cure: str) -> None:
    path = put(tmp_path / "notes.csv", (1, "2150", "round", "Good."))
    result = run("library", "add", tmp_path / "ward", path, *COLUMNS, "--time-format", form)
    assert result.exit_code == 2
    assert cure in result.stderr
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "ward").exists()


@pytest.mark.models
def test_notes_that_a_splitter_leaves_too_long_are_refused_before_any_is_written(
    tmp_path: Path, run: Run, model_home: Path
) -> None:
    rows = [(n, "2150", "round", "Short.") for n in range(40)]
    path = put(tmp_path / "notes.csv", *rows, (99, "2150", "round", "1.5 mg/dL; " * 400))
    result = run("library", "add", tmp_path / "ward", path, *COLUMNS, "--splitter", "medrag")
    assert (result.exit_code, "leave --splitter out" in result.stderr) == (2, True)
    assert not (tmp_path / "ward").exists()
