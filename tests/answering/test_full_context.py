"""Full context: the whole record in one prompt, or a state of its own; nothing is cut."""

from __future__ import annotations

from epicrisis.answering.reply_parsing import AnswerFormat
from epicrisis.answering.strategies.full_context import full_context
from epicrisis.core.answers import ModelCalled
from epicrisis.core.types import Hit, Question, Ranking
from epicrisis.testing.chat import ScriptedModel
from tests.support.strategies import OPEN_QUESTION, World, items_of, passages, run, said, world


def over(model: ScriptedModel, n: int) -> World:
    """A world whose record has n notes and whose search must not be asked."""
    notes = passages(n)

    async def record(_: Question) -> Ranking:
        return Ranking(tuple(Hit(note, 1.0, rank) for rank, note in enumerate(notes)), "record")

    return world(model, (), record=record)


def test_full_context_prompt_has_all_notes_in_order() -> None:
    model = ScriptedModel(
        lambda _: said(quotes=[{"doc": 5, "quote": "aspirin lowers risk number 4"}], answer="It does.")
    )
    asked = over(model, 5)
    answer = run(full_context, asked, OPEN_QUESTION)
    assert answer.state == "answered"
    assert answer.strategy == "full-context"
    assert [f"Trial {i}" in item for i, item in enumerate(items_of(model.requests[0]))] == [True] * 5
    assert answer.citations[0].document_id == "d4"
    assert asked.searches == []


def test_record_over_window_has_own_state_without_call() -> None:
    """Of the same window 20 notes are read, so that a record cut to fit would be answered."""
    window = AnswerFormat({}, documents=100).max_tokens + 800
    model = ScriptedModel(lambda _: said(answer="It does."), context_tokens=window)
    assert run(full_context, over(model, 20), OPEN_QUESTION).state == "answered"
    assert len(items_of(model.requests.pop())) == 20
    asked = over(model, 100)
    answer = run(full_context, asked, OPEN_QUESTION)
    assert model.requests == []
    assert answer.state == "over-window"
    assert answer.failure is not None
    assert answer.failure.kind == "ContextOverflow"
    assert "100 notes do not fit" in answer.failure.message
    assert asked.of(ModelCalled) == []


def test_record_without_notes_in_scope_fails_without_call() -> None:
    asked = over(ScriptedModel(lambda _: "never"), 0)
    answer = run(full_context, asked, OPEN_QUESTION)
    assert answer.state == "failed"
    assert answer.failure is not None
    assert answer.failure.kind == "NothingInScope"
    assert "no note of this patient's record is within the scope" in answer.failure.message
    assert asked.of(ModelCalled) == []
