"""BriefContext in windows that are too small: nothing is cut, nothing is lost, and it says so."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epicrisis.answering.map_reduce import map_reduce, partition
from epicrisis.answering.strategies.brief_context import brief_context
from epicrisis.answering.strategies.rag import rag
from epicrisis.core.answers import Notice
from epicrisis.core.errors import ContextOverflow
from epicrisis.core.protocols import Capabilities, ChatReply, ChatRequest, DeltaCallback
from epicrisis.core.types import Passage
from epicrisis.testing.chat import Script, ScriptedModel
from tests.support.strategies import (
    NOT_FOUND,
    QUESTION,
    World,
    by_stage,
    finding,
    items_of,
    maps,
    passages,
    quoting,
    run,
    said,
    stage_of,
    trials_in,
    verdict,
    world,
)


def parts_of(asked: World, found: Sequence[Passage]) -> list[tuple[Passage, ...]]:
    requests = asyncio.run(partition(QUESTION, asked.context, found))
    return [request.passages for request in requests]


def window_for(n: int, words: int) -> int:
    """The window that a part of these passages and its reply just fill."""
    model = ScriptedModel(by_stage(map=NOT_FOUND))
    run(brief_context, world(model, passages(n, words), partition=n))
    (request,) = maps(model)
    assert len(items_of(request)) == n
    return asyncio.run(model.count_tokens(request.messages)) + request.max_tokens


def test_part_over_window_is_halved_and_noted() -> None:
    model = ScriptedModel(by_stage(map=NOT_FOUND), context_tokens=window_for(2, words=100))
    asked = world(model, passages(8, words=100), partition=4)
    answer = run(brief_context, asked)
    assert [len(partial.passages) for partial in answer.partials] == [2, 2, 2, 2]
    assert [id_ for partial in answer.partials for id_ in partial.passages] == [f"d{i}#0" for i in range(8)]
    assert [notice.kind for notice in asked.of(Notice)] == ["re-partitioned"] * 2
    assert all("4 passages do not fit" in notice.message for notice in asked.of(Notice))


def test_part_within_window_is_not_halved() -> None:
    window = window_for(4, words=100)
    for spare, sizes in ((0, [4, 4]), (-1, [2, 2, 2, 2])):
        asked = world(ScriptedModel(by_stage(), context_tokens=window + spare), passages(8, words=100))
        assert [len(part) for part in parts_of(asked, passages(8, words=100))] == sizes


@pytest.mark.slow
@given(st.lists(st.integers(0, 300), min_size=1, max_size=12), st.integers(1, 6))
def test_any_window_keeps_all_passages(lengths: list[int], size: int) -> None:
    found = tuple(passages(i + 1, words)[i] for i, words in enumerate(lengths))
    asked = world(ScriptedModel(by_stage(), context_tokens=window_for(1, 300)), found, partition=size)
    parts = parts_of(asked, found)
    assert tuple(passage for part in parts for passage in part) == found
    assert all(1 <= len(part) <= size for part in parts)


def test_single_passage_over_window_fails_and_is_named() -> None:
    found = (*passages(5), *passages(6, words=500)[5:])
    model = ScriptedModel(by_stage(), context_tokens=window_for(4, words=50))
    answer = run(brief_context, world(model, found))
    assert (answer.state, model.requests) == ("over-window", [])
    assert answer.failure is not None
    assert answer.failure.kind == "ContextOverflow"
    assert "d5#0" in answer.failure.message
    assert "larger" in answer.failure.message
    with pytest.raises(ContextOverflow, match="d5#0"):
        asyncio.run(map_reduce(QUESTION, world(model, found).context, found))


def long_finding(request: ChatRequest) -> str:
    trial = trials_in(request)[0]
    return finding(1, f"Trial {trial} says so." + " so" * 120, "A", f"aspirin lowers risk number {trial}")


def test_findings_over_window_are_summarized_in_halves() -> None:
    """Four findings, a window for fewer: two pairs, then their two sums; the sources named in each half survive."""
    halves = iter([1, 2])

    def reduce(request: ChatRequest) -> str:
        half = next(halves, None)
        if half is None:
            return said(sources=[1, 2], answer="It does.", choice="A")
        return said(sources=[half], answer=f"Half {half}.", choice="A")

    mapper = ScriptedModel(by_stage(map=long_finding))
    reducer = ScriptedModel(by_stage(reduce=reduce), context_tokens=900)
    asked = world(mapper, passages(4), partition=1, models={"reduce": reducer})
    answer = run(brief_context, asked)
    shown = [items_of(request) for request in reducer.requests]
    assert [len(items) for items in shown] == [2, 2, 2]
    assert [item.split(" says")[0] for item in (*shown[0], *shown[1])] == [f"Trial {i}" for i in range(4)]
    assert shown[2] == ["Half 1. (option A, 2015)", "Half 2. (option A, 2015)"]
    assert [citation.passage_id for citation in answer.citations] == ["d0#0", "d3#0"]
    assert answer.state == "answered"
    (notice,) = asked.of(Notice)
    assert (notice.kind, notice.message[:10]) == ("re-partitioned", "4 findings")


def test_halves_without_answer_abstain() -> None:
    reducer = ScriptedModel(by_stage(reduce=NOT_FOUND), context_tokens=900)
    asked = world(ScriptedModel(by_stage(map=long_finding)), passages(4), partition=1, models={"reduce": reducer})
    assert run(brief_context, asked).state == "abstained"
    assert len(reducer.requests) == 2


def test_only_half_with_an_answer_is_the_answer_without_another_call() -> None:
    replies = iter([NOT_FOUND, said(sources=[2], answer="It does.", choice="A")])
    reducer = ScriptedModel(by_stage(reduce=lambda _: next(replies)), context_tokens=900)
    asked = world(ScriptedModel(by_stage(map=long_finding)), passages(4), partition=1, models={"reduce": reducer})
    answer = run(brief_context, asked)
    assert (answer.state, answer.choice, len(reducer.requests)) == ("answered", "A", 2)
    assert [citation.passage_id for citation in answer.citations] == ["d3#0"]


class _Counting(ScriptedModel):
    """Counts the calls that run at the same time."""

    running = most = 0

    async def complete(self, request: ChatRequest, on_delta: DeltaCallback | None = None) -> ChatReply:
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0)
        self.running -= 1
        return await super().complete(request, on_delta)


def test_halves_are_summarized_at_the_same_time() -> None:
    reducer = _Counting(by_stage(reduce=said(sources=[1], answer="It does.", choice="A")), context_tokens=900)
    asked = world(ScriptedModel(by_stage(map=long_finding)), passages(4), partition=1, models={"reduce": reducer})
    assert run(brief_context, asked).state == "answered"
    assert (reducer.most, len(reducer.requests)) == (2, 3)


def test_two_findings_over_window_fail() -> None:
    reducer = ScriptedModel(by_stage(), context_tokens=600)
    asked = world(ScriptedModel(by_stage(map=long_finding)), passages(4), partition=1, models={"reduce": reducer})
    answer = run(brief_context, asked)
    assert (answer.state, reducer.requests) == ("over-window", [])
    assert answer.failure is not None
    assert answer.failure.kind == "ContextOverflow"
    assert "two findings" in answer.failure.message
    assert len(answer.partials) == 4
    assert [notice.message[:10] for notice in asked.of(Notice)] == ["4 findings"]


def test_three_findings_over_window_are_split_one_and_two() -> None:
    reply = said(sources=[1], answer="Half.", choice="A")
    reducer = ScriptedModel(by_stage(reduce=reply), context_tokens=800)
    asked = world(ScriptedModel(by_stage(map=long_finding)), passages(3), partition=1, models={"reduce": reducer})
    assert run(brief_context, asked).state == "answered"
    assert [len(items_of(request)) for request in reducer.requests] == [1, 2, 2]


class _Refuses(ScriptedModel):
    """Says nothing of its window and refuses prompts with more than so many items of that stage."""

    def __init__(self, script: Script, *, most: dict[str, int]) -> None:
        def refusing(request: ChatRequest) -> str:
            if len(items_of(request)) > most.get(stage_of(request), 1000):
                raise ContextOverflow("too long")
            return script(request)

        super().__init__(refusing)

    async def capabilities(self) -> Capabilities:
        return Capabilities(None, json_schema=True, exact_token_counts=False)


def test_part_rejected_by_model_is_halved() -> None:
    model = _Refuses(
        by_stage(map=quoting(0, 1), reduce=said(sources=[1], answer="It does.", choice="A")), most={"map": 2}
    )
    asked = world(model, passages(8), partition=4)
    answer = run(brief_context, asked)
    assert answer.state == "answered"
    assert [partial.passages for partial in answer.partials] == [(f"d{i}#0", f"d{i + 1}#0") for i in range(0, 8, 2)]
    assert len({partial.partition for partial in answer.partials}) == 4
    assert [notice.kind for notice in asked.of(Notice)] == ["re-partitioned"] * 2


def test_single_passage_rejected_by_model_fails_part() -> None:
    answer = run(brief_context, world(_Refuses(by_stage(), most={"map": 0}), passages(2), partition=2))
    assert answer.state == "failed"
    assert {partial.failure.kind for partial in answer.partials if partial.failure} == {"ContextOverflow"}


def test_findings_rejected_by_model_are_summarized_in_halves() -> None:
    script = by_stage(map=quoting(0, 1), reduce=said(sources=[1], answer="It does.", choice="A"))
    model = _Refuses(script, most={"reduce": 2})
    answer = run(brief_context, world(model, passages(4), partition=1))
    assert (answer.state, answer.choice) == ("answered", "A")
    assert (
        run(brief_context, world(_Refuses(script, most={"reduce": 1}), passages(2), partition=1)).state == "over-window"
    )


def test_single_prompt_rejected_by_model_uses_map_reduce() -> None:
    script = by_stage(
        rag=said(quotes=[], answer="It does.", choice="A"),
        map=quoting(0, 1),
        reduce=said(sources=[1], answer="It does.", choice="A"),
    )
    model = _Refuses(script, most={"rag": 3})
    asked = world(model, passages(4), partition=2, verdict=verdict(True))
    answer = run(brief_context, asked)
    assert (answer.state, len(answer.partials)) == ("answered", 2)
    assert [notice.kind for notice in asked.of(Notice)] == ["re-partitioned"]
    alone = run(rag, world(_Refuses(script, most={"rag": 3}), passages(4)))
    assert (alone.state, alone.failure and alone.failure.kind) == ("over-window", "ContextOverflow")
