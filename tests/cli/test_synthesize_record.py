"""`epicrisis synthesize-record`: its files, and refusals."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from epicrisis.evaluation.synthesis.patient_records.fictional_record import SHORTEST, make_record
from tests.cli.conftest import Run


def test_synthesize_record_of_several_lengths_writes_all_files(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "records"
    result = run("synthesize-record", "-o", folder, "--patients", 3, "--tokens", "4000,8000", "--json")
    assert result.exit_code == 0, result.output
    output = json.loads(result.stdout)
    assert [record["patient"] for record in output["records"]] == ["fict0-001", "fict0-002", "fict0-003"]
    assert [round(record["tokens"] / 4000) for record in output["records"]] == [1, 2, 1]
    lines = (folder / "questions.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) == sum(record["questions"] for record in output["records"]) == 63
    with (folder / "record" / "notes.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert sum(len(row["text"]) for row in rows) == sum(record["characters"] for record in output["records"])
    assert "invented" in (folder / "README.md").read_text(encoding="utf-8")


def test_synthesize_record_with_too_few_questions_has_note(run: Run, tmp_path: Path) -> None:
    arguments = ("--patients", 1, "--tokens", 9000, "--stays", 1, "--questions-each", 500)
    result = run("synthesize-record", "-o", tmp_path / "a", "--seed", 7, *arguments)
    assert result.exit_code == 0, result.output
    assert "fict7-001: 1 stay," in result.output
    assert "fewer than 500 questions" in result.output


def test_synthesize_record_with_structured_formats_writes_their_folders(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "records"
    arguments = ("-o", folder, "--patients", 1, "--tokens", 4000, "--structured", "fhir,omop,ccda")
    result = run("synthesize-record", *arguments)
    assert result.exit_code == 0, result.output
    assert "structured entries" in result.output
    names = ["README.md", "fact_questions.jsonl", "facts.jsonl", "questions.jsonl", "record"]
    assert sorted(path.name for path in folder.iterdir()) == names
    assert [path.name for path in (folder / "record" / "fhir").iterdir()] == ["fict0-001.json"]


@pytest.mark.parametrize(
    ("options", "output"),
    [
        (("--tokens", "4000", "--structured", "fhir,hl7"), "choose from fhir, omop, ccda"),
        (("--tokens", "100"), "at least 4000"),
        (("--tokens", "4000,many"), "write numbers separated by commas"),
        (("--tokens", "6000", "--stays", "9"), "fewer --stays"),
    ],
)
def test_synthesize_record_with_invalid_options_reports_one_line(
    run: Run, tmp_path: Path, options: tuple[str, ...], output: str
) -> None:
    result = run("synthesize-record", "-o", tmp_path / "a", "--patients", 1, *options)
    assert result.exit_code != 0
    assert output in result.output
    assert "Traceback" not in result.output


@pytest.mark.slow
def test_synthesize_record_refused_leaves_no_files(run: Run, tmp_path: Path) -> None:
    """The second length is refused at once, the second stays only while the second record is written."""
    arguments = ("synthesize-record", "-o", tmp_path / "a", "--patients", 2, "--questions-each", 1)
    for invalid in (("--tokens", "9000,3000"), ("--tokens", "30000,5000", "--stays", 4)):
        assert run(*arguments, *invalid).exit_code == 2
        assert list(tmp_path.iterdir()) == []
    (tmp_path / "a").mkdir()
    result = run(*arguments, "--tokens", SHORTEST)
    assert result.exit_code == 0, result.output
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["README.md", "questions.jsonl", "record"]
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.slow
def test_synthesize_record_shortest_length_matches_help_and_documentation(run: Run) -> None:
    output = f"from {SHORTEST:,}"
    assert output in " ".join(run("synthesize-record", "--help").output.split())
    assert f"{output} tokens" in (Path(__file__).parents[2] / "docs" / "records.md").read_text(encoding="utf-8")
    for number in range(40):
        assert make_record(f"fict{number}-001", SHORTEST, None, number).tokens <= 1.05 * SHORTEST


def test_synthesize_record_in_unwritable_folder_reports_one_line(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for folder in (tmp_path / "file" / "sub", Path("/proc/epicrisis")):
        result = run("synthesize-record", "-o", folder, "--patients", 1, "--tokens", 4000)
        assert result.exit_code == 2
        assert "cannot be written (" in result.output
        assert "choose another folder (-o)" in result.output


def test_synthesize_record_in_used_folder_is_refused(run: Run, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    result = run("synthesize-record", "-o", tmp_path, "--patients", 1, "--tokens", 4000)
    assert result.exit_code != 0
    assert "new or empty folder" in result.output
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
