"""The page on answers has the table of study types that the program uses, and an output that it prints."""

from __future__ import annotations

from pathlib import Path

from epicrisis.core.study_types import STUDY_TYPES
from epicrisis.retrieval.study_preference import FACTOR, POOL_TIMES

PAGE = (Path(__file__).parents[1] / "docs" / "answers.md").read_text(encoding="utf-8")


def test_page_has_the_table_of_study_types() -> None:
    rows = [
        line.strip("| ").split(" | ") for line in PAGE.splitlines() if line.startswith("| `") and line.count("|") == 6
    ]
    assert [row[0].strip("`") for row in rows] == [row.type for row in STUDY_TYPES]
    for cells, row in zip(rows, STUDY_TYPES, strict=True):
        assert cells[1] == row.label
        assert cells[2] == (", ".join(sorted(row.publication_types)) or "none")
        rule = "animals without humans, " if row.type == "laboratory" else ""
        assert cells[3] == (rule + ", ".join(sorted(row.mesh)) or "none")
        assert cells[4] == ("yes" if row.title else "no")


def test_page_states_the_factor_of_a_preference() -> None:
    assert f"{FACTOR} times as much" in PAGE
    assert f"The first {POOL_TIMES} k hits" in PAGE


def test_page_says_what_study_types_are_not() -> None:
    assert "It is not GRADE" in PAGE
