"""Test outcomes scored from records."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from epicrisis.core.answers import Answer, ModelCalled, Notice, PartialAnswer, Usage
from epicrisis.core.errors import InputError
from epicrisis.core.types import Question
from epicrisis.evaluation.runs.outcomes import Outcome, score_case, score_records
from epicrisis.pipeline.recording.answer_record import SCHEMA_VERSION, read_records
from epicrisis.pipeline.recording.case import Case
from epicrisis.pipeline.recording.runner import RecordStore
from tests.support.run_folders import remove_volatile

QUESTION = Question("Does it help?", options={"A": "yes", "B": "no"}, form="choice", id="7", gold="A")


def make_answer(state: Any = "answered", choice: str | None = "A", **fields: Any) -> Answer:
    return Answer(
        question=QUESTION, strategy="rag", state=state, choice=choice if state == "answered" else None, **fields
    )


def write_answers(path: Path, *answers: tuple[Answer, dict[str, Any]]) -> Path:
    file = RecordStore(path, {"model": "m"})
    for item, condition in answers:
        file.append_answer(item, condition)
    return path


def test_score_records_uses_last_record_of_case(tmp_path: Path) -> None:
    rag, other = {"arm": "rag", "k": 8}, {"arm": "oracle"}
    records = (
        (make_answer("failed"), rag),
        (make_answer(choice="B"), other),
        (make_answer(), rag),
        (make_answer("failed"), other),
    )
    path = write_answers(tmp_path / "r.jsonl", *records)
    assert [outcome.state for outcome in score_records(read_records(path))] == ["answered", "failed"]
    assert [outcome.condition for outcome in score_records(read_records(path))] == [rag, other]


def test_score_records_returns_question_condition_and_correctness(tmp_path: Path) -> None:
    failed = PartialAnswer(partition=1, passages=("d#0",), state="failed")
    path = write_answers(
        tmp_path / "r.jsonl",
        (make_answer(), {}),
        (make_answer(choice="B", partials=(failed,)), {"k": 8}),
        (make_answer("abstained"), {"k": 16}),
    )
    assert score_records(read_records(path)) == (
        Outcome(question=QUESTION.key, condition={}, state="answered", right=True, chance=0.5),
        Outcome(question=QUESTION.key, condition={"k": 8}, state="answered", right=False, chance=0.5, unread_parts=1),
        Outcome(question=QUESTION.key, condition={"k": 16}, state="abstained", right=None, chance=0.5),
    )


@pytest.mark.parametrize(("choice", "right"), [("A", True), ("B", True), ("C", False)])
def test_score_records_accepts_either_of_equal_options(tmp_path: Path, choice: str, right: bool) -> None:
    sample = replace(QUESTION, options={"A": "same", "B": "same ", "C": "other", "D": "none"}, gold="B")
    ended = replace(make_answer(), question=sample, choice=choice)
    (outcome,) = score_records(read_records(write_answers(tmp_path / "r.jsonl", (ended, {}))))
    assert (outcome.right, outcome.chance) == (right, 0.5)
    assert score_case(Case(sample), ended) == outcome


def test_score_case_equals_score_of_its_record(tmp_path: Path) -> None:
    for number, ended in enumerate(
        (make_answer(), make_answer(choice="B"), make_answer("failed"), make_answer("unparsed"))
    ):
        path = write_answers(tmp_path / f"{number}.jsonl", (ended, {"k": 8}))
        assert (score_case(Case(QUESTION, {"k": 8}), ended),) == score_records(read_records(path))
    open_question = Question("What helps?")
    assert (
        score_case(
            Case(open_question), Answer(question=open_question, strategy="rag", state="answered", text="Rest.")
        ).right
        is None
    )


def test_score_records_reads_first_version_without_condition(tmp_path: Path) -> None:
    path = write_answers(tmp_path / "r.jsonl", (make_answer(), {}))
    record = json.loads(path.read_text(encoding="utf-8"))
    assert record["schema_version"] == SCHEMA_VERSION == 2
    del record["condition"]
    path.write_text(json.dumps(record) + "\n", encoding="utf-8")
    assert RecordStore(path, {"model": "m"}).is_done(QUESTION.key)
    assert score_records(read_records(path)) == (
        Outcome(question=QUESTION.key, condition={}, state="answered", right=True, chance=0.5),
    )


def test_score_records_without_gold_answer_raises_input_error(tmp_path: Path) -> None:
    for number, question in enumerate(
        (Question("What?", id="9", gold="It does."), Question("Is it?", options={"A": "yes"}, id="9"))
    ):
        path = write_answers(
            tmp_path / f"{number}.jsonl", (Answer(question=question, strategy="rag", state="answered"), {})
        )
        with pytest.raises(InputError, match="question '9' has no options or no gold letter"):
            score_records(read_records(path))


def test_read_records_ignores_incomplete_last_line(tmp_path: Path) -> None:
    path = write_answers(tmp_path / "r.jsonl", (make_answer(), {}), (make_answer(), {"k": 8}))
    path.write_bytes(path.read_bytes()[:-20])
    before = path.read_bytes()
    assert len(list(read_records(path))) == 1
    assert path.read_bytes() == before


def test_read_records_of_other_file_raises_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist: give the folder of a run, or a file of answers"):
        list(read_records(tmp_path / "nowhere"))
    path = tmp_path / "r.jsonl"
    for text, reply in (
        ("{}", "a file of answers"),
        ("no", "a JSON object"),
        ('{"key": "1", "answer": 3}', "a file of answers"),
    ):
        path.write_text(text + "\n", encoding="utf-8")
        with pytest.raises(InputError, match=f"line 1, .*{reply}"):
            list(read_records(path))


@pytest.mark.parametrize(
    ("at", "value"),
    [
        (("key",), 7),
        (("recipe",), None),
        (("condition",), "rag"),
        (("answer", "state"), "right"),
        (("answer", "usage", "calls"), "many"),
        (("answer", "usage", "call"), 1),
        (("answer", "question", "options"), ["yes", "no"]),
        (("answer", "partials"), [3]),
        (("answer", "trace"), [{"event": "retrieved"}]),
        (("answer", "choice"), ...),
        (("answer", "question", "gold"), ...),
    ],
)
def test_read_records_with_changed_record_names_line(tmp_path: Path, at: tuple[str, ...], value: Any) -> None:
    path = write_answers(tmp_path / "r.jsonl", (make_answer(), {}), (make_answer(), {"k": 8}))
    first, second = path.read_text(encoding="utf-8").splitlines(keepends=True)
    record = json.loads(second)
    *folders, name = at
    inner = record
    for folder in folders:
        inner = inner[folder]
    if value is ...:
        del inner[name]
    else:
        inner[name] = value
    path.write_text(first + json.dumps(record) + "\n", encoding="utf-8")
    for read in (lambda: RecordStore(path, {"model": "m"}), lambda: list(read_records(path))):
        with pytest.raises(InputError, match="line 2, does not belong to a file of answers: repair or remove the line"):
            read()


def test_last_line_without_newline_counts_as_record(tmp_path: Path) -> None:
    path = write_answers(tmp_path / "r.jsonl", (make_answer("failed"), {}), (make_answer(), {}))
    path.write_bytes(path.read_bytes().removesuffix(b"\n"))
    assert RecordStore(path, {"model": "m"}).is_done(QUESTION.key)
    assert [outcome.state for outcome in score_records(read_records(path))] == ["answered"]


def test_remove_volatile_makes_equal_records_equal(tmp_path: Path) -> None:
    def told(at: float, calls: int, *notices: Notice, turned: bool = False) -> Any:
        parts = [
            ModelCalled(
                stage=f"map {i}",
                model="m",
                prompt_sha256="0",
                template="map@1",
                seed=0,
                sample=0,
                finish_reason="stop",
                usage=Usage(calls=calls, seconds=at),
                at=at,
            )
            for i in range(2)
        ]
        trace = (*notices, *(parts[::-1] if turned else parts))
        path = write_answers(tmp_path / f"{at}.jsonl", (make_answer(trace=trace, usage=Usage(calls=2 * calls)), {}))
        return next(read_records(path))

    first = told(1.0, 1)
    second = told(2.0, 3, Notice("retried", "twice"), Notice("restarted", "once"), turned=True)
    assert first != second
    assert remove_volatile(first) == remove_volatile(second)
    third = told(3.0, 1, Notice("left-out", "1 of 2 parts"))
    assert remove_volatile(first) != remove_volatile(third)
