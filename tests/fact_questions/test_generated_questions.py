"""Generated questions about facts in a real library: exact, or abstained with a reason, never wrong."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from epicrisis.core.types import Scope
from epicrisis.evaluation.grading.computed_answers import grade_computed
from epicrisis.records.fact_questions.answer import compute
from epicrisis.records.fact_questions.question_rules import plan_by_rules
from epicrisis.records.fact_questions.record import read_fact_record
from tests.support.hashed_encoder import opened_library
from tests.support.structured_questions import generate_record

RECORDS = 8


@pytest.mark.long
def test_generated_questions_in_a_library_have_no_wrong_answer(tmp_path: Path) -> None:
    records = [generate_record(seed) for seed in range(500, 500 + RECORDS)]
    documents = [document for record in records for document in record.documents]
    grades: Counter[str] = Counter()
    with opened_library(tmp_path / "library", documents) as search:
        for generated in records:
            passages = search.library.fetch_record(Scope(patient=generated.patient))
            record = read_fact_record(passages)
            assert record is not None
            for question in generated.questions:
                plan = plan_by_rules(question.text, record)
                computed = None if plan is None else compute(plan, record).answer
                assert computed is None or computed.statement
                grades[grade_computed(computed, question.expected)] += 1
    assert grades.total() > 900
    assert grades["wrong"] == 0
    assert grades["not-understood"] == 0
    assert grades["exact"] > 0.9 * grades.total()


def test_grade_of_a_wrong_value_is_wrong() -> None:
    generated = generate_record(1)
    document = generated.documents[0]
    from epicrisis.core.types import Passage

    passage = Passage(
        id="d#0",
        document_id=document.id,
        ordinal=0,
        start=0,
        end=len(document.text),
        text=document.text,
        patient="p",
        metadata=document.metadata,
    )
    record = read_fact_record([passage])
    assert record is not None
    question = next(each for each in generated.questions if each.category.startswith("last "))
    plan = plan_by_rules(question.text, record)
    assert plan is not None
    assert grade_computed(compute(plan, record).answer, frozenset({"-1 mg/dL"})) == "wrong"
