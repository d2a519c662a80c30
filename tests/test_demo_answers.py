"""The grading of answers to the demo's questions (`benchmarks/demo_answers.py`)."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from epicrisis.core.answers import Answer, Citation, Claim, Confidence, Notice
from epicrisis.core.types import Question

ROOT = Path(__file__).parents[1]
CHOICE = Question(
    "Does it help?", options={"A": "yes", "B": "no"}, form="choice", id="q01", gold="B", gold_documents=("d1",)
)


@pytest.fixture(scope="module")
def demo_answers() -> ModuleType:
    spec = importlib.util.spec_from_file_location("demo_answers", ROOT / "benchmarks" / "demo_answers.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["demo_answers"] = module
    spec.loader.exec_module(module)
    return module


def cite(number: int, *, verified: bool = True, document: str = "d1") -> Citation:
    return Citation(
        number=number,
        passage_id=f"{document}#0",
        document_id=document,
        title="T",
        source="",
        date="2018",
        start=0,
        end=5,
        quotation="It is.",
        verified=verified,
    )


def answer_with(choice: str, *citations: Citation, **fields: Any) -> Answer:
    return Answer(
        question=CHOICE,
        strategy="focused",
        state="answered",
        text="It does not.",
        choice=choice,
        citations=citations,
        **fields,
    )


def test_open_gold_answers_state_the_required_terms(demo_answers: ModuleType) -> None:
    lines = (ROOT / "demo" / "questions.jsonl").read_text(encoding="utf-8").splitlines()
    open_gold = {row["id"]: row["gold"] for row in map(json.loads, lines) if "options" not in row}

    assert open_gold.keys() == demo_answers.OPEN_ANSWERS.keys()
    for question_id, terms in demo_answers.OPEN_ANSWERS.items():
        assert all(term.search(open_gold[question_id]) for term in terms), question_id


def test_open_answer_without_a_required_term_is_wrong(demo_answers: ModuleType) -> None:
    question = Question("Which dose of zinc?", id="q11", gold="20 mg a day for 10 to 14 days.")

    assert (
        demo_answers.grade_answer(Answer(question=question, strategy="rag", state="answered", text="20 mg a day."), {})
        == "wrong"
    )
    assert (
        demo_answers.grade_answer(
            Answer(question=question, strategy="rag", state="answered", text="20 mg, for 10-14 days."), {}
        )
        == "right"
    )
    assert (
        demo_answers.grade_answer(Answer(question=question, strategy="rag", state="abstained", text="20 mg"), {})
        == "abstained"
    )
    assert demo_answers.grade_answer(Answer(question=question, strategy="rag", state="failed"), {}) == "failed"


def test_grade_of_a_person_overrules_the_letter(demo_answers: ModuleType) -> None:
    assert demo_answers.grade_answer(answer_with("B", cite(1)), {}) == "right"
    assert demo_answers.grade_answer(answer_with("B", cite(1)), {"q01": "wrong"}) == "wrong"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (answer_with("A"), "cites nothing"),
        (answer_with("A", cite(1, verified=False)), "not found"),
        (answer_with("A", cite(1), claims=(Claim("C.", (1,), "contradicted", "it says no", "rules"),)), "it says no"),
        (answer_with("A", cite(1), confidence=Confidence(0.4, {"claims": 0.4})), "confidence 0.40"),
        (answer_with("A", cite(1), trace=(Notice("degenerate-choice", "the first 3"),)), "the first 3"),
    ],
)
def test_warning_on_the_screen_is_listed(demo_answers: ModuleType, answer: Answer, words: str) -> None:
    assert words in " ".join(demo_answers.list_warnings(answer, 0.5))


def test_wrong_answer_beside_a_general_note_counts_as_unwarned(demo_answers: ModuleType) -> None:
    note = (Notice("demo-model", "a small model for demonstration only"),)
    answers = (
        answer_with("A", cite(1), cite(2, document="d2"), trace=note),
        answer_with("A"),
        answer_with("B", cite(1)),
    )
    graded = []
    for answer in answers:
        warnings = demo_answers.list_warnings(answer, 0.5)
        graded.append(demo_answers.GradedAnswer(answer, demo_answers.grade_answer(answer, {}), warnings))

    row = demo_answers.format_row("run", graded)

    assert row == "| run | 3 | 1 (1) | 0 | 0 | 2 | 1 | 0 | 3/3 | 2/3 | 0 | 0 | 0.0 |"
