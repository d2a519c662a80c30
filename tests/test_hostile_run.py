"""A thousand BriefContext questions against a server of which three calls in ten fail, in every way there is."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from epicrisis.answering.strategies.brief_context import brief_context
from epicrisis.answering.strategy_context import Context
from epicrisis.core.answers import Answer, Event, ModelCalled, Usage
from epicrisis.core.types import Hit, Passage, Question, Ranking, Scope
from epicrisis.models.chat.loading import add_layers, load_chat
from epicrisis.settings.settings import AnswerOptions, ModelSettings
from tests.support.faults import Fault
from tests.support.hostile import HostileServer

QUESTIONS = 1000
AT_ONCE = 64
TIMEOUT = 6.0
"""Seconds a client waits for a reply: far longer than the server needs with 64 calls in flight on a shared core."""

OPTIONS = {"A": "yes", "B": "no", "C": "maybe"}
ANSWER_TEXT = "It is so."


def question(number: int) -> Question:
    return Question(f"Does drug {number} lower the risk?", options=OPTIONS, form="choice", id=str(number))


def ranking(asked: Question) -> Ranking:
    """Three partitions of two passages each."""
    texts = [f"In trial {place} of drug {asked.id} the risk was lower by {place} per cent." for place in range(6)]
    passages = [
        Passage(id=f"{asked.id}-{i}#0", document_id=f"{asked.id}-{i}", ordinal=0, start=0, end=len(text), text=text)
        for i, text in enumerate(texts)
    ]
    return Ranking(tuple(Hit(passage, 1.0, rank) for rank, passage in enumerate(passages)), "made")


async def answers(server: HostileServer, numbers: range) -> tuple[list[Answer], Usage]:
    """The answers in the order of the questions, all asked at once, and all that was spent on them."""
    settings = ModelSettings(name=f"{server.url}#hostile", timeout_seconds=TIMEOUT, concurrency=AT_ONCE)
    model = add_layers(load_chat(settings, Path()), settings)
    spent: list[Usage] = []

    def emit(event: Event) -> None:
        if isinstance(event, ModelCalled):
            spent.append(event.usage)

    async def retrieve(asked: Question) -> Ranking:
        return ranking(asked)

    context = Context(
        options=AnswerOptions(citing="quotes", describe_sources=False, partition=2),
        models=dict.fromkeys(("writer", "map", "reduce"), model),
        scope=Scope(),
        emit=emit,
        retrieve=retrieve,
    )
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(brief_context(question(number), context)) for number in numbers]
        return [task.result() for task in tasks], sum(spent, Usage())
    finally:
        await model.aclose()


@pytest.mark.long
def test_run_with_thirty_percent_failures_gives_correct_states() -> None:
    with HostileServer() as server:
        healthy, spent = asyncio.run(answers(server, range(QUESTIONS)))
        ledger = server.ledger
    assert [answer.state for answer in healthy] == ["answered"] * QUESTIONS
    assert (spent.calls, ledger.calls, ledger.healthy) == (4 * QUESTIONS,) * 3
    assert (spent.prompt_tokens, spent.completion_tokens) == (ledger.prompt_tokens, ledger.completion_tokens)

    with HostileServer(rate=0.3, seed=1, slow=2 * TIMEOUT, retry_after=0.2) as server:
        found, spent = asyncio.run(answers(server, range(QUESTIONS)))
        ledger = server.ledger
    assert set(ledger.faults) == set(Fault)
    assert 0.25 < ledger.faulty / ledger.calls < 0.35
    assert ledger.most_in_flight <= AT_ONCE

    assert [answer.question for answer in found] == [answer.question for answer in healthy]
    states = Counter(answer.state for answer in found)
    assert set(states) <= {"answered", "failed", "unparsed", "over-window"}, (
        "nothing was found to be absent: every passage speaks"
    )
    for answer in found:
        if answer.state == "answered":
            assert answer.text.startswith(ANSWER_TEXT.removesuffix("."))
            assert answer.choice in OPTIONS
        else:
            assert answer.choice is None
            assert answer.failure is not None
    same = sum(one.choice == other.choice for one, other in zip(found, healthy, strict=True))
    assert same >= 0.95 * QUESTIONS

    assert spent.calls == ledger.calls
    assert (spent.prompt_tokens, spent.completion_tokens) == (ledger.prompt_tokens, ledger.completion_tokens)
    assert 0 < spent.uncounted_calls <= ledger.untold_calls, "whose tokens nobody could count"
