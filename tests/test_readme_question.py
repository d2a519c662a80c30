"""The question of the README, asked of the demo's library."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from epicrisis import Library
from epicrisis.reading.directions import describe_effect, find_effect

ROOT = Path(__file__).parents[1]
QUESTION = "Does low-dose aspirin lower the risk of preterm pre-eclampsia?"


@pytest.mark.long
@pytest.mark.usefixtures("model_home")
def test_question_of_the_readme_shows_the_result_and_its_direction(tmp_path: Path) -> None:
    assert QUESTION in (ROOT / "README.md").read_text("utf-8")
    with Library.create(tmp_path / "library") as library:
        library.add(ROOT / "demo" / "documents.jsonl")
        answer = library.ask(QUESTION, strategy="evidence")
    first = answer.citations[0]
    assert first.quotation.startswith("Pre-eclampsia leading to delivery before 37 weeks occurred in 1.6 %")
    effect = find_effect(QUESTION, first.quotation, first.title)
    assert effect is not None
    assert describe_effect(effect.direction) == "a decrease"
    (block,) = re.findall(r"```text\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    screen, mark, _ = block.partition("\nNotes\n")
    assert mark
    assert join_lines(screen) == join_lines(str(answer).partition("\nNotes\n")[0])


def join_lines(text: str) -> str:
    """Return the words of a screen without line ends and the signs of wrapped lines."""
    return re.sub(r"\s+(?:\| )?", " ", text).strip()
