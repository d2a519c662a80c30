"""`epicrisis synthesize-record`: files of fictional records, which the other commands read."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from epicrisis.evaluation.synthesis.patient_records.fictional_record import SHORTEST, make_record
from tests.cli.conftest import Run


def test_records_of_several_lengths_are_written_and_said(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "records"
    result = run("synthesize-record", "-o", folder, "--patients", 3, "--tokens", "4000,8000", "--json")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert [each["patient"] for each in told["records"]] == ["fict0-001", "fict0-002", "fict0-003"]
    assert [round(each["tokens"] / 4000) for each in told["records"]] == [1, 2, 1]
    lines = (folder / "questions.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) == sum(each["questions"] for each in told["records"]) == 63
    with (folder / "notes.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert sum(len(row["text"]) for row in rows) == sum(each["characters"] for each in told["records"])
    assert "invented" in (folder / "README.md").read_text(encoding="utf-8")


def test_stays_seed_and_questions_are_heard_and_a_shortage_is_said(run: Run, tmp_path: Path) -> None:
    said = ("--patients", 1, "--tokens", 9000, "--stays", 1, "--questions-each", 500)
    result = run("synthesize-record", "-o", tmp_path / "a", "--seed", 7, *said)
    assert result.exit_code == 0, result.output
    assert "fict7-001: 1 stays" in result.output
    assert "fewer than 500 questions" in result.output


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--tokens", "100"), "at least 4000"),
        (("--tokens", "4000,many"), "write numbers separated by commas"),
        (("--tokens", "6000", "--stays", "9"), "fewer --stays"),
    ],
)
def test_what_cannot_be_made_is_one_line_with_its_cure(
    run: Run, tmp_path: Path, options: tuple[str, ...], told: str
) -> None:
    result = run("synthesize-record", "-o", tmp_path / "a", "--patients", 1, *options)
    assert result.exit_code != 0
    assert told in result.output
    assert "Traceback" not in result.output


def test_what_is_refused_leaves_nothing_and_the_corrected_command_writes(run: Run, tmp_path: Path) -> None:
    """The second length is refused at once, the second stays only when the second record is made."""
    said = ("synthesize-record", "-o", tmp_path / "a", "--patients", 2, "--questions-each", 1)
    for refused in (("--tokens", "9000,3000"), ("--tokens", "30000,5000", "--stays", 4)):
        assert run(*said, *refused).exit_code == 2
        assert list(tmp_path.iterdir()) == []
    (tmp_path / "a").mkdir()
    result = run(*said, "--tokens", SHORTEST)
    assert result.exit_code == 0, result.output
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["README.md", "notes.csv", "questions.jsonl"]
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_the_shortest_length_is_what_help_and_page_say_and_enough_for_every_patient(run: Run) -> None:
    told = f"from {SHORTEST:,}"
    assert told in " ".join(run("synthesize-record", "--help").output.split())
    assert f"{told} tokens" in (Path(__file__).parents[2] / "docs" / "records.md").read_text(encoding="utf-8")
    for number in range(40):
        assert make_record(f"fict{number}-001", SHORTEST, None, number).tokens <= 1.05 * SHORTEST


def test_a_place_that_cannot_be_written_is_one_line_with_its_cure(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for place in (tmp_path / "file" / "sub", Path("/proc/epicrisis")):
        result = run("synthesize-record", "-o", place, "--patients", 1, "--tokens", 4000)
        assert result.exit_code == 2
        assert "cannot be written (" in result.output
        assert "choose another folder (-o)" in result.output


def test_a_folder_in_use_is_left_alone(run: Run, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    result = run("synthesize-record", "-o", tmp_path, "--patients", 1, "--tokens", 4000)
    assert result.exit_code != 0
    assert "new or empty folder" in result.output
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
