"""Test verdicts of people, read from files that spreadsheets saved."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from epicrisis.core.errors import InputError
from epicrisis.evaluation.grading.blind_pairs import CSV, JSONL, write_pairs
from epicrisis.evaluation.grading.human_verdicts import (
    HumanVerdict,
    PreferredAnswer,
    choices_by_reviewer,
    majority_choice,
    majority_choices,
    read_verdicts,
)
from tests.support.grading import ids, paired

PAIRS = ("pa", "pb", "pc")


def write_file(folder: Path, text: str, name: str = "anna.csv", encoding: str = "utf-8") -> Path:
    path = folder / name
    path.write_text(text, encoding=encoding)
    return path


def test_read_verdicts_accepts_completed_csv(tmp_path: Path) -> None:
    result = paired(3)
    write_pairs(result, tmp_path)
    with (tmp_path / CSV).open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.reader(file))
    for row, verdict in zip(rows[1:], ("1", "", " TIE "), strict=True):
        row[4:] = [verdict, "Anna", "shorter"]
    with (tmp_path / "back.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter=";").writerows([*rows, [""] * 7])
    first, _, third = ids(result)
    assert read_verdicts([tmp_path / "back.csv"], ids(result)) == (
        HumanVerdict(first, "Anna", "1", "shorter"),
        HumanVerdict(third, "Anna", "tie", "shorter"),
    )


def test_read_verdicts_of_jsonl_without_reviewer_uses_file_name(tmp_path: Path) -> None:
    result = paired(2)
    write_pairs(result, tmp_path)
    rows = [json.loads(line) for line in (tmp_path / JSONL).read_text("utf-8").splitlines()]
    path = write_file(tmp_path, "".join(json.dumps({**row, "verdict": 2}) + "\n" for row in rows), "ben.jsonl")
    assert [(verdict.reviewer, verdict.choice) for verdict in read_verdicts([path], ids(result))] == [("ben", "2")] * 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pair,verdict\npx,1\n", r"anna\.csv, row 2: the pair is not one of these: use the files"),
        ("pair,verdict\npa,1\npb,better\n", r"anna\.csv, row 3: the verdict is none of 1, 2, tie: write one"),
        ("pair,verdict\npa,1\npb,\npa,2\n", r"row 4: 'anna' judged pair pa before, in .*row 2: keep one"),
        ('pair,verdict,why\npa,1,"a\nb"\n\npb,3,\n', "row 4: the verdict"),
        ("id,verdict\npa,1\n", "has no column pair: keep the first row"),
        ("pair\tverdict\npa\t\x00\n", "row 2: the verdict is none of"),
        ('pair,verdict\npa,"1\n', "is not a CSV file"),
    ],
)
def test_read_verdicts_with_invalid_row_names_row(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_verdicts([write_file(tmp_path, text)], PAIRS)


def test_read_verdicts_with_other_encoding_or_format_raises_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not UTF-8: save the sheet as CSV"):
        read_verdicts([write_file(tmp_path, "pair,verdict,why\npa,1,größer\n", encoding="cp1252")], PAIRS)
    with pytest.raises(InputError, match=r"must be \.csv or \.jsonl"):
        read_verdicts([write_file(tmp_path, "x", "anna.xlsx")], PAIRS)
    with pytest.raises(InputError, match="line 2: not JSON"):
        read_verdicts([write_file(tmp_path, '{"pair": "pa", "verdict": "1"}\nno\n', "anna.jsonl")], PAIRS)


def test_read_verdicts_with_pair_judged_twice_raises_input_error(tmp_path: Path) -> None:
    first = write_file(tmp_path, "pair,verdict,reviewer\npa,1,Anna\n", "one.csv")
    second = write_file(tmp_path, "pair,verdict,reviewer\npb,2,Anna\n", "two.csv")
    assert len(read_verdicts([first, second], PAIRS)) == 2
    with pytest.raises(InputError, match=r"two\.csv, row 2: 'Anna' judged pair pa before, in .*one\.csv, row 2"):
        read_verdicts([first, write_file(tmp_path, "pair,verdict,reviewer\npa,1,Anna\n", "two.csv")], PAIRS)


@pytest.mark.parametrize(
    ("given", "choice"),
    [
        (("1",), "1"),
        (("1", "1", "2"), "1"),
        (("1", "2"), "tie"),
        (("1", "tie"), "tie"),
        (("1", "2", "tie"), "tie"),
        (("2", "2", "1", "1", "tie"), "tie"),
        (("2", "2", "2", "1", "tie"), "2"),
        (("tie", "tie", "1"), "tie"),
    ],
)
def test_majority_choice_requires_more_than_half(given: tuple[PreferredAnswer, ...], choice: PreferredAnswer) -> None:
    assert majority_choice(given) == choice


def test_majority_choices_combine_reviewers_by_pair() -> None:
    inputs = choices_by_reviewer(
        [HumanVerdict("pa", "Anna", "1"), HumanVerdict("pb", "Anna", "1"), HumanVerdict("pb", "Ben", "2")]
    )
    assert majority_choices(inputs.values()) == {"pa": "1", "pb": "tie"}
