"""Test the reading of released replies and the counts of scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epicrisis.core.answers import Answer
from epicrisis.core.errors import InputError
from epicrisis.core.types import AnswerState, Question
from epicrisis.evaluation.rescoring.scores import (
    SCORINGS,
    AnsweredQuestion,
    Reading,
    is_right,
    pair_with_replies,
    read_recorded_answer,
    read_released_replies,
    read_replies,
    score_replies,
)

VERDICTS = {"A": "yes", "B": "no", "C": "maybe"}


# -- files of replies -----------------------------------------------------------------------------------------------


def make_question(key: str, gold: str | None = "A", options: Mapping[str, str] = VERDICTS) -> Question:
    return Question(text=f"{key}?", options=options, form="choice", id=key, gold=gold)


def test_read_released_replies_pairs_with_questions(tmp_path: Path) -> None:
    path = tmp_path / "replies.jsonl"
    path.write_text('{"id": "q2", "outputs": []}\n{"id": "q1", "outputs": ["A", "B"]}\n{"id": "q3", "outputs": ["C"]}')
    sample = [make_question("q1"), make_question("q2")]
    assert pair_with_replies(sample, read_released_replies(path)) == (
        AnsweredQuestion(sample[0], ("A", "B")),
        AnsweredQuestion(sample[1], ()),
    )
    with pytest.raises(InputError, match=r"2 of 3 questions have no reply \(q4, q5\): pass the replies to these"):
        pair_with_replies([make_question("q4"), sample[0], make_question("q5")], read_released_replies(path))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"id": "q1"}', "line 2: not a released reply"),
        ('{"id": "q1", "outputs": "A"}', "line 2: not a released reply"),
        ('{"id": "q1", "outputs": [null]}', "line 2: not a released reply"),
        ('{"id": "q0", "outputs": []}', "line 2: an earlier line has the same id"),
        ("{", "line 2: not JSON"),
    ],
)
def test_read_released_replies_with_invalid_line_raises_input_error(tmp_path: Path, line: str, said: str) -> None:
    path = tmp_path / "replies.jsonl"
    path.write_text(f'{{"id": "q0", "outputs": ["A"]}}\n{line}\n')
    with pytest.raises(InputError, match=said):
        read_released_replies(path)


def test_read_released_replies_reads_mirage_folder(tmp_path: Path) -> None:
    (tmp_path / "test_clinical_knowledge-001.json").write_text('["A"]')
    (tmp_path / "dev_0009b2fd-7e72.json").write_text("[]")
    assert read_released_replies(tmp_path) == {"clinical_knowledge-001": ("A",), "0009b2fd-7e72": ()}
    (tmp_path / "test_x.json").write_text('{"A": 1}')
    with pytest.raises(InputError, match=r"test_x.json: not a JSON list of texts"):
        read_released_replies(tmp_path)
    (tmp_path / "notes.json").write_text("[]")
    with pytest.raises(InputError, match=r"notes.json: pass the folder of one run with files called test_<id>.json or"):
        read_released_replies(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"has no file called test_<id>.json or dev_<id>.json"):
        read_released_replies(tmp_path / "empty")


@pytest.mark.parametrize(
    ("state", "choice", "text", "outputs"),
    [
        ("answered", "B", "It is not.", ("B",)),
        ("abstained", None, "None bears on it: Option B", ("None bears on it: Option B",)),
        ("unparsed", None, "", ("",)),
        ("failed", None, "", ()),
    ],
)
def test_read_recorded_answer_keeps_its_reading(
    state: AnswerState, choice: str | None, text: str, outputs: tuple[str, ...]
) -> None:
    answer = Answer(question=make_question("q"), strategy="rag", state=state, text=text, choice=choice)
    assert read_recorded_answer(answer) == AnsweredQuestion(make_question("q"), outputs, Reading(state, choice))


# -- counting -------------------------------------------------------------------------------------------------------

RUN = (
    AnsweredQuestion(make_question("q2", "A"), ()),  # after q1: 2024 gives it q1's A
    AnsweredQuestion(make_question("q1", "A"), ('{"answer_choice": "A"}',)),
    AnsweredQuestion(make_question("q3", "A"), ('{"answer_choice": "Unknown"}',)),
    AnsweredQuestion(make_question("q4", "B"), ('{"answer_choice": "A or B"}',)),
    AnsweredQuestion(make_question("q5", "B", {"A": "x", "B": "y"}), ("The answer is A.",)),
)


def test_score_replies_under_all_scorings_match_manual_counts() -> None:
    ours, early, now = (score_replies(RUN, scoring) for scoring in SCORINGS)
    assert (ours.scoring, early.scoring, now.scoring) == SCORINGS
    chance = (4 / 3 + 1 / 2) / 5
    assert (ours.right, ours.wrong, ours.abstained, ours.unparsed, ours.failed) == (1, 1, 1, 1, 1)
    assert (ours.accuracy, ours.accuracy_scored) == (0.2, 0.5)
    assert ours.chance == early.chance == pytest.approx(chance)
    assert (early.right, early.wrong, early.by_default) == (3, 2, 3)
    assert (now.right, now.wrong, now.failed, now.by_default) == (2, 2, 1, 2)
    assert (early.accuracy, now.accuracy, now.accuracy_scored) == (0.6, 0.4, 0.5)


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(st.lists(st.sampled_from(["A", "B", "?", "Unknown", "A/B"]), max_size=2), st.sampled_from("ABC"))
    )
)
def test_score_replies_counts_each_question_once(rows: list[tuple[list[str], str]]) -> None:
    run = [AnsweredQuestion(make_question(str(n), gold), tuple(outputs)) for n, (outputs, gold) in enumerate(rows)]
    if not run:
        return
    for item in (score_replies(run, scoring) for scoring in SCORINGS):
        assert item.n == len(run) == item.right + item.wrong + item.abstained + item.unparsed + item.failed
        read_by = zip(run, read_replies(run, item.scoring), strict=True)
        marks = [is_right(replied.question, reading, item.scoring) for replied, reading in read_by]
        assert item.right == marks.count(True)
        assert item.accuracy * item.n == pytest.approx(item.right)


def test_score_replies_applies_recorded_reading_to_ours_only() -> None:
    run = (AnsweredQuestion(make_question("q", "B"), ("A",), Reading("answered", "B")),)
    assert [item.right for item in (score_replies(run, scoring) for scoring in SCORINGS)] == [1, 0, 0]


def test_score_replies_treats_equal_options_as_equal_under_ours_only() -> None:
    sample = Question("Which?", options={"A": "same", "B": "same", "C": "other"}, form="choice", id="q", gold="B")
    run = [AnsweredQuestion(sample, ('{"answer_choice": "A"}',)), AnsweredQuestion(replace(sample, id="r"), ("same",))]
    assert score_replies(run, "ours").right == 2
    assert [is_right(sample, Reading("answered", "A"), scoring) for scoring in SCORINGS] == [True, False, False]
    assert score_replies(run, "ours").chance == pytest.approx(2 / 3)


def test_score_replies_without_letter_has_no_scored_accuracy() -> None:
    assert score_replies([AnsweredQuestion(make_question("q"), ())], "ours").accuracy_scored is None


@pytest.mark.parametrize("odd", [make_question("q", None), Question(text="Why?", id="q", gold="Because.")])
def test_score_replies_of_open_questions_raises_input_error(odd: Question) -> None:
    with pytest.raises(InputError, match="1 of 2 questions has no options or no gold letter"):
        score_replies([AnsweredQuestion(make_question("p"), ()), AnsweredQuestion(odd, ("A",))], "ours")
    with pytest.raises(InputError, match="no question to score"):
        score_replies([], "ours")
