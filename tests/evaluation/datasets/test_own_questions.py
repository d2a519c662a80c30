"""Test a user's own question set, as `docs/evaluation.md` describes it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from epicrisis.core.errors import InputError
from epicrisis.evaluation.datasets.load import load_catalogue, load_dataset

PAGE = (Path(__file__).parents[3] / "docs" / "evaluation.md").read_text(encoding="utf-8")


def write_example(tmp_path: Path) -> Path:
    """Write the example of the documentation to a file."""
    lines = re.findall(r"```jsonl\n(.*?)```", PAGE.partition("### Write your own set")[2], re.DOTALL)[0]
    path = tmp_path / "own.jsonl"
    path.write_text(lines, encoding="utf-8")
    return path


def test_load_dataset_reads_documented_example(tmp_path: Path) -> None:
    dataset = load_dataset(str(write_example(tmp_path)), tmp_path)
    yes_no, letters, of_patient, bare = dataset.questions
    assert (yes_no.options["C"], yes_no.gold, yes_no.gold_documents) == ("maybe", "A", ("pubmed:29466159",))
    assert (letters.options, letters.gold) == ({"A": "glucagon", "B": "insulin", "C": "cortisol"}, "B")
    assert (of_patient.form, of_patient.patient, of_patient.gold) == ("open", "p-007", "For three months.")
    assert (bare.id, bare.form, bare.gold) == ("4", "open", None)
    assert dataset.classes == {"vte-1": "yes", "endo-1": "B"}
    assert dataset.name == "own.jsonl"


def test_load_dataset_with_invalid_line_names_line(tmp_path: Path) -> None:
    path = write_example(tmp_path)
    path.write_text(path.read_text(encoding="utf-8") + '{"text": "Which?", "options": ["a", "b"], "gold": "C"}\n')
    with pytest.raises(InputError, match=r"own\.jsonl, line 5: .*gold: not a letter of the options"):
        load_dataset(str(path), tmp_path)


def test_load_dataset_leaves_out_lines_that_are_not_accepted(tmp_path: Path) -> None:
    path = tmp_path / "made.jsonl"
    path.write_text('{"text": "One?", "state": "accepted"}\n{"text": "Two?", "state": "rejected"}\n')
    assert [question.text for question in load_dataset(str(path), tmp_path).questions] == ["One?"]
    path.write_text('{"text": "Two?", "state": "proposed"}\n')
    with pytest.raises(InputError, match=r"made\.jsonl: none of its 1 lines is accepted"):
        load_dataset(str(path), tmp_path)


def test_documentation_lists_every_set_with_its_count() -> None:
    for item in load_catalogue().values():
        (row,) = [line for line in PAGE.splitlines() if line.startswith("|") and f"`{item.name}`" in line]
        assert f"{item.count:,}" in row
