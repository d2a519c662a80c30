"""`epicrisis library add` of patients' notes: columns, removed text, and invalid files."""

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


def write_notes(path: Path, *rows: tuple[object, ...]) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("pid", "when", "kind", "body"), *rows])
    return path


@pytest.mark.long
@pytest.mark.models
def test_add_notes_with_boilerplate_counts_and_logs_removed_text(tmp_path: Path, run: Run, model_home: Path) -> None:
    library = tmp_path / "ward"
    rows = [
        (n % 12 + 1, f"2150-03-{n + 1:02}", "round", f"Finding {n}.\n\n{TEMPLATE}\n\nPage 1 of {n}") for n in range(24)
    ]
    path = write_notes(tmp_path / "notes.csv", *rows, rows[0])
    result = run("library", "add", library, path, *COLUMNS)
    assert result.exit_code == 0, result.stderr
    assert "24 documents added" in result.stdout
    log = library / "removed.jsonl"
    assert f"listed in {log}; --keep-boilerplate keeps: page, recurring\n" in result.stdout
    assert log.stat().st_mode & 0o777 == 0o600
    lines = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
    (recurring,) = [line for line in lines if line["kind"] == "recurring"]
    assert (recurring["text"], len(recurring["documents"]), recurring["notes"]) == (TEMPLATE, 24, 25)
    assert sum(line["kind"] == "page" for line in lines) == 24
    assert sum(line["kind"] == "duplicate" for line in lines) == 1
    result_of_search = run("search", library, "finding", "--patient", "4", "-k", 5, "--by", "bm25", "--json")
    texts = [hit["passage"]["text"] for hit in json.loads(result_of_search.stdout)["hits"]]
    assert sorted(texts) == ["Finding 15.", "Finding 3."]

    again = run("library", "add", library, path, *COLUMNS, "--json")
    report = json.loads(again.stdout)
    assert (report["added"], report["unchanged"]) == (0, 24)
    assert report["removed"]["kinds"]["recurring"] == {"notes": 24, "texts": 1, "characters": 24 * len(TEMPLATE)}
    assert [json.loads(line) for line in log.read_text("utf-8").splitlines()] == lines, "logged once, not twice"

    report_without_cleaning = json.loads(
        run("library", "add", library, path, *COLUMNS, "--keep-boilerplate", "--json").stdout
    )
    assert report_without_cleaning["replaced"] + report_without_cleaning["added"] == 24
    assert set(report_without_cleaning["removed"]["kinds"]) == {"duplicate"}
    assert list(library.glob("removed.jsonl.*")) == []


@pytest.mark.long
@pytest.mark.models
@pytest.mark.data
def test_add_real_visit_notes_are_searchable_by_patient(
    tmp_path: Path, run: Run, model_home: Path, data_folder: Path
) -> None:
    visits = data_folder / "visits" / "valid.csv"
    columns = ("--column", "patient=encounter_id", "--column", "type=dataset", "--column", "text=note")
    result = run("library", "add", tmp_path / "visits", visits, *columns)
    assert result.exit_code == 0, result.stderr
    assert "20 documents added" in result.stdout
    assert "of 20 notes 20 have no time" in result.stdout
    with visits.open(encoding="utf-8", newline="") as file:
        patient = next(csv.DictReader(file))["encounter_id"]
    result_of_search = run("search", tmp_path / "visits", "heart failure", "--patient", patient, "--json")
    passages = [hit["passage"] for hit in json.loads(result_of_search.stdout)["hits"]]
    assert passages
    assert {passage["patient"] for passage in passages} == {patient}
    assert any("section" in passage["metadata"] for passage in passages)


@pytest.mark.slow
@pytest.mark.models
def test_add_notes_with_invalid_row_adds_other_rows(tmp_path: Path, run: Run, model_home: Path) -> None:
    path = write_notes(tmp_path / "notes.csv", ("", "2150", "round", "A secret."), (1, "03/04/2150", "round", "Good."))
    result = run("library", "add", tmp_path / "ward", path, *COLUMNS)
    assert result.exit_code == 0
    assert "1 document added" in result.stdout
    assert "of 1 note 1 has an unreadable time (--column time=NAME, --time-format)" in result.stdout
    assert f"warning: {path}, line 2: names no patient" in result.stderr
    assert "warning: 1 item was skipped" in result.stderr
    assert "secret" not in result.stdout + result.stderr


@pytest.mark.parametrize(
    ("options", "message"),
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
def test_add_notes_with_invalid_columns_reports_one_line(
    tmp_path: Path, run: Run, options: tuple[str, ...], message: str
) -> None:
    path = write_notes(tmp_path / "notes.csv", (1, "2150", "round", "Good."))
    result = run("library", "add", tmp_path / "ward", path, *options)
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "ward").exists()


@pytest.mark.slow
@pytest.mark.models
def test_add_notes_duplicates_do_not_mention_keep_boilerplate(tmp_path: Path, run: Run, model_home: Path) -> None:
    path = write_notes(tmp_path / "notes.csv", *[(1, "2150-03-04", "round", "No change.")] * 2)
    result = run("library", "add", tmp_path / "ward", path, *COLUMNS)
    assert result.exit_code == 0, result.stderr
    assert "removed: duplicate 10 characters of 1 note (1 text); listed in" in result.stdout
    assert "keep-boilerplate" not in result.stdout


@pytest.mark.parametrize(("time_format", "message"), [("%d/%d", "names %d more than once"), ("%Q/%Y", "%Q is none of")])
def test_add_notes_with_invalid_time_format_reports_one_line(
    tmp_path: Path, run: Run, time_format: str, message: str
) -> None:
    path = write_notes(tmp_path / "notes.csv", (1, "2150", "round", "Good."))
    result = run("library", "add", tmp_path / "ward", path, *COLUMNS, "--time-format", time_format)
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "ward").exists()


@pytest.mark.slow
@pytest.mark.models
def test_add_notes_with_too_long_passages_creates_no_library(tmp_path: Path, run: Run, model_home: Path) -> None:
    rows = [(n, "2150", "round", "Short.") for n in range(40)]
    path = write_notes(tmp_path / "notes.csv", *rows, (99, "2150", "round", "1.5 mg/dL; " * 400))
    result = run("library", "add", tmp_path / "ward", path, *COLUMNS, "--splitter", "medrag")
    assert (result.exit_code, "leave --splitter out" in result.stderr) == (2, True)
    assert not (tmp_path / "ward").exists()
