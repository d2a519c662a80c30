"""Test the run loop: concurrency, one record per question, and the reasons to stop."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path

import pytest

from epicrisis.core.answers import Answer, Usage
from epicrisis.core.errors import (
    BudgetExceeded,
    ChatError,
    ContextOverflow,
    EndpointUnreachable,
    InputError,
    RunStopped,
)
from epicrisis.core.protocols import ChatReply, ChatRequest, DeltaCallback
from epicrisis.core.types import Question
from epicrisis.pipeline.pipeline import Pipeline
from epicrisis.pipeline.recording.runner import RecordStore, answer_questions
from epicrisis.settings.settings import ROLES, Settings
from epicrisis.testing.chat import ScriptedModel

SAID = json.dumps({"result": {"found": True, "answer": "It does.", "choice": "A"}})
QUESTIONS = [
    Question(f"Is it number {i}?", options={"A": "yes", "B": "no"}, form="choice", id=str(i)) for i in range(60)
]


class Slow(ScriptedModel):
    """Takes its time, counts the calls in flight, and fails where it is told to."""

    def __init__(self, fails: Callable[[int], BaseException | None] = lambda number: None, wait: float = 0.001) -> None:
        super().__init__(lambda _: SAID)
        self._fails, self._wait = fails, wait
        self.in_flight = self.most = self.asked = self.replied = 0

    async def complete(self, request: ChatRequest, on_delta: DeltaCallback | None = None) -> ChatReply:
        number, self.asked = self.asked, self.asked + 1
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        try:
            await asyncio.sleep(self._wait * (1 + number % 3))
            error = self._fails(number)
            if error is not None:
                raise error
            reply = await super().complete(request, on_delta)
            self.replied += 1
            return reply
        finally:
            self.in_flight -= 1


def run_questions(
    model: Slow, path: Path, questions: list[Question] = QUESTIONS, at_once: int = 1
) -> tuple[list[tuple[Question, Answer | None]], RecordStore]:
    settings = Settings(strategy="closed-book")

    async def all_of_them() -> tuple[list[tuple[Question, Answer | None]], RecordStore]:
        async with Pipeline(settings, dict.fromkeys(ROLES, model)) as pipeline:
            records = RecordStore(path, pipeline.recipe())
            return [pair async for pair in answer_questions(pipeline, questions, records, at_once)], records

    return asyncio.run(all_of_them())


def read_lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize("at_once", [1, 7, 100])
def test_answer_questions_uses_requested_concurrency(tmp_path: Path, at_once: int) -> None:
    model = Slow()
    pairs, records = run_questions(model, tmp_path / "run.jsonl", at_once=at_once)
    assert model.most == min(at_once, len(QUESTIONS))
    assert sorted(question.id for question, _ in pairs) == sorted(question.id for question in QUESTIONS)
    assert set(records.states.values()) == {"answered"}
    assert len(read_lines(tmp_path / "run.jsonl")) == len(QUESTIONS) == records.usage.calls


@pytest.mark.slow
def test_answer_questions_skips_recorded_questions(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    run_questions(Slow(), path, QUESTIONS[:25], at_once=5)
    model = Slow()
    pairs, records = run_questions(model, path, at_once=5)
    assert model.asked == 35
    assert sum(answer is None for _, answer in pairs) == 25
    assert records.usage == Usage(
        calls=60, prompt_tokens=records.usage.prompt_tokens, completion_tokens=480, seconds=records.usage.seconds
    )


def test_answer_questions_with_dead_endpoint_stops_early(tmp_path: Path) -> None:
    model = Slow(lambda _: EndpointUnreachable("nothing answers at there"))
    with pytest.raises(RunStopped, match=r"3 in a row failed.*nothing answers at there"):
        run_questions(model, tmp_path / "run.jsonl")
    assert model.asked == 3
    assert len(read_lines(tmp_path / "run.jsonl")) == 3


def test_answer_questions_with_endpoint_failing_later_stops(tmp_path: Path) -> None:
    model = Slow(lambda number: EndpointUnreachable("gone") if number >= 10 else None)
    with pytest.raises(RunStopped, match="20 in a row"):
        run_questions(model, tmp_path / "run.jsonl")
    assert model.asked == 30


@pytest.mark.slow
def test_answer_questions_continues_after_single_failures(tmp_path: Path) -> None:
    model = Slow(lambda number: EndpointUnreachable("now and then") if number % 3 else None)
    pairs, _ = run_questions(model, tmp_path / "run.jsonl")
    assert len(pairs) == len(QUESTIONS)


@pytest.mark.slow
def test_answer_questions_continues_after_context_overflow(tmp_path: Path) -> None:
    pairs, records = run_questions(Slow(lambda _: ContextOverflow("too long")), tmp_path / "run.jsonl")
    assert len(pairs) == len(QUESTIONS)
    assert set(records.states.values()) == {"over-window"}


@pytest.mark.slow
def test_answer_questions_with_spent_budget_records_calls_in_flight(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    model = Slow(lambda number: BudgetExceeded("spent") if number == 10 else None, wait=0.005)
    with pytest.raises(BudgetExceeded, match="spent"):
        run_questions(model, path, at_once=8)
    assert model.replied == len(read_lines(path)) == model.asked - 1
    assert model.asked < len(QUESTIONS)
    again = Slow()
    run_questions(again, path, at_once=8)
    assert again.asked == len(QUESTIONS) - model.replied


def test_answer_questions_abandoned_early_cancels_calls(tmp_path: Path) -> None:
    model = Slow(wait=0.05)

    async def first() -> None:
        async with Pipeline(Settings(strategy="closed-book"), dict.fromkeys(ROLES, model)) as pipeline:
            records = RecordStore(tmp_path / "run.jsonl", pipeline.recipe())
            async with aclosing(answer_questions(pipeline, QUESTIONS, records, 10)) as answers:
                async for _ in answers:
                    break
            assert model.in_flight == 0

    asyncio.run(first())
    assert model.replied < 10


def test_record_store_with_other_recipe_raises_input_error(tmp_path: Path) -> None:
    run_questions(Slow(), tmp_path / "run.jsonl", QUESTIONS[:1])

    async def other() -> None:
        settings = Settings.model_validate({"strategy": "closed-book", "models": {"writer": {"top_p": 0.5}}})
        async with Pipeline(settings, dict.fromkeys(ROLES, Slow())) as pipeline:
            with pytest.raises(InputError, match=r"other settings \(models\.map\.top_p, .*models\.writer\.top_p\)"):
                RecordStore(tmp_path / "run.jsonl", pipeline.recipe())

    asyncio.run(other())


def test_recipe_leaves_out_settings_that_do_not_affect_answers(tmp_path: Path) -> None:
    plain = Settings(strategy="closed-book")
    hurried = Settings.model_validate(
        {
            "strategy": "closed-book",
            "budget": {"tokens": 9},
            "cache": {"mode": "off"},
            "questions_at_once": 3,
            "models": {"writer": {"concurrency": 99, "tries": 2, "price": {"input": 1, "output": 2}}},
        }
    )
    models = dict.fromkeys(ROLES, Slow())
    assert Pipeline(plain, models).recipe() == Pipeline(hurried, models).recipe()


def test_answer_questions_records_failed_call_with_usage(tmp_path: Path) -> None:
    def fails(number: int) -> ChatError | None:
        return EndpointUnreachable("gone", usage=Usage(calls=4, failed_calls=4)) if number == 1 else None

    pairs, records = run_questions(Slow(fails), tmp_path / "run.jsonl", QUESTIONS[:3])
    assert [answer.state for _, answer in pairs if answer] == ["answered", "failed", "answered"]
    assert (records.usage.calls, records.usage.failed_calls) == (6, 4)
