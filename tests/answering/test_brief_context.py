"""BriefContext: preflight, map over the parts, reduce over what they found; every way it can go wrong."""

from __future__ import annotations

import asyncio
import re

import pytest

from epicrisis.answering.strategies.brief_context import brief_context
from epicrisis.answering.structured_request import Sampling
from epicrisis.core.answers import (
    Answer,
    AnswerStarted,
    MapFinished,
    MapStarted,
    ModelCalled,
    Notice,
    PreflightChecked,
    Retrieved,
    TextDelta,
    Usage,
)
from epicrisis.core.errors import (
    BudgetExceeded,
    EndpointBusy,
    EndpointRejected,
    EndpointUnreachable,
    NetworkRefused,
    ScopeViolation,
)
from epicrisis.core.protocols import Capabilities, ChatReply, ChatRequest, DeltaCallback
from epicrisis.core.types import Scope
from epicrisis.testing.chat import Script, ScriptedModel
from tests.support.strategies import (
    NOT_FOUND,
    OPEN_QUESTION,
    QUESTION,
    by_stage,
    finding,
    items_of,
    maps,
    passages,
    per_part,
    quoting,
    reduces,
    run,
    said,
    stage_of,
    stages,
    trials_in,
    verdict,
    world,
)

REDUCED = said(sources=[1], answer="It does.", choice="A")


# -- the way through -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "size", "sizes"), [(16, 4, [4, 4, 4, 4]), (10, 4, [4, 4, 2]), (3, 4, [3]), (4, 1, [1, 1, 1, 1]), (1, 16, [1])]
)
def test_parts_keep_ranking_order_and_size(n: int, size: int, sizes: list[int]) -> None:
    model = ScriptedModel(by_stage(map=NOT_FOUND))
    asked = world(model, passages(n), partition=size)
    answer = run(brief_context, asked)
    assert [len(partial.passages) for partial in answer.partials] == sizes
    assert [id_ for partial in answer.partials for id_ in partial.passages] == [f"d{i}#0" for i in range(n)]
    assert [partial.partition for partial in answer.partials] == list(range(len(sizes)))
    assert [trial for request in maps(model) for trial in trials_in(request)] == list(range(n))
    assert asked.of(MapStarted) == [MapStarted(p.partition, p.passages) for p in answer.partials]


def test_map_prompt_has_question_then_documents_numbered_from_one() -> None:
    model = ScriptedModel(by_stage(map=NOT_FOUND))
    run(brief_context, world(model, passages(6)))
    for request, part in zip(maps(model), [range(4), range(4, 6)], strict=True):
        content = request.messages[-1].content
        assert items_of(request) == [f"Title {i} (2015)\n{passages(6)[i].text}" for i in part]
        assert re.findall(r"(?m)^\[doc (\d)\] ", content) == [str(i + 1) for i in range(len(part))]
        assert content.index(QUESTION.text) < content.index("<documents>")
        assert "A. yes\nB. no\n" in content


def test_reduce_prompt_contains_map_findings() -> None:
    """What the second and fourth parts found is summed up in their order, and what reduce names is cited."""
    script = per_part({4: quoting(5, 2), 12: quoting(12, 1, "B")})
    model = ScriptedModel(by_stage(map=script, reduce=said(sources=[2], answer="It does not.", choice="B")))
    asked = world(model, passages(16))
    answer = run(brief_context, asked)
    assert (answer.strategy, answer.state, answer.choice, answer.text) == (
        "brief-context",
        "answered",
        "B",
        "It does not. [1]",
    )
    assert [partial.state for partial in answer.partials] == ["nothing", "relevant", "nothing", "relevant"]
    assert [partial.choice for partial in answer.partials] == [None, "A", None, "B"]
    (request,) = reduces(model)
    assert items_of(request) == [
        "Trial 5 says so. (option A, 2015)",
        "Trial 12 says so. (option B, 2015)",
    ]
    content = request.messages[-1].content
    assert content.index(QUESTION.text) < content.index("<documents>\n[finding 1] ")
    (citation,) = answer.citations
    assert (citation.passage_id, citation.verified, citation.number) == ("d12#0", True, 1)
    assert asked.of(AnswerStarted) == [AnswerStarted("reduce", 2)]
    assert "".join(delta.text for delta in asked.of(TextDelta)) == "It does not."


def test_events_follow_stage_order() -> None:
    model = ScriptedModel(by_stage(map=quoting(0, 1), reduce=REDUCED))
    asked = world(model, passages(4), verdict=verdict(False))
    run(brief_context, asked)
    kinds = [type(event) for event in asked.events if not isinstance(event, TextDelta)]
    assert kinds == [Retrieved, PreflightChecked, MapStarted, ModelCalled, MapFinished, AnswerStarted, ModelCalled]
    assert [called.stage for called in asked.of(ModelCalled)] == ["map 0", "reduce"]


def test_stages_use_models_of_their_roles() -> None:
    mapper = ScriptedModel(by_stage(map=quoting(0, 1)), name="mapper")
    reducer = ScriptedModel(by_stage(reduce=REDUCED), name="reducer")
    writer = ScriptedModel(by_stage(rag=said(answer="It does.", choice="A", quotes=[])), name="writer")
    models = {"map": mapper, "reduce": reducer}
    asked = world(writer, passages(4), models=models, sampling={"map": Sampling(0.3), "reduce": Sampling(0.1)})
    assert run(brief_context, asked).state == "answered"
    assert [called.model for called in asked.of(ModelCalled)] == ["mapper", "reducer"]
    assert (mapper.requests[0].temperature, reducer.requests[0].temperature) == (0.3, 0.1)
    run(brief_context, world(writer, passages(4), models=models, verdict=verdict(True)))
    assert len(writer.requests) == 1


def test_finding_without_quotation_is_not_cited() -> None:
    model = ScriptedModel(
        by_stage(map=finding(text="It seems so.", choice=None), reduce=said(sources=[1], answer="Yes.", choice="A"))
    )
    answer = run(brief_context, world(model, passages(2)))
    (request,) = reduces(model)
    assert items_of(request) == ["It seems so."]
    assert (answer.state, answer.citations) == ("answered", ())


def test_brief_context_answers_open_question() -> None:
    model = ScriptedModel(by_stage(map=said(quotes=[], finding="It seems so."), reduce=said(answer="Yes.")))
    answer = run(brief_context, world(model, passages(2)), OPEN_QUESTION)
    assert (answer.state, answer.choice, answer.text) == ("answered", None, "Yes.")


def test_quotation_absent_from_documents_is_marked() -> None:
    model = ScriptedModel(by_stage(map=finding(2, quote="no trial says this"), reduce=REDUCED))
    answer = run(brief_context, world(model, passages(2)))
    (citation,) = answer.citations
    assert (citation.passage_id, citation.verified) == ("d1#0", False)
    assert not answer.partials[0].quotations[0].verified


class _AllAtOnce(ScriptedModel):
    """A map call returns only when all of them have started: one after the other, they would wait for ever."""

    def __init__(self, script: Script, calls: int) -> None:
        super().__init__(script)
        self._calls = calls
        self._started = 0
        self._all = asyncio.Event()

    async def complete(self, request: ChatRequest, on_delta: DeltaCallback | None = None) -> ChatReply:
        if stage_of(request) == "map":
            self._started += 1
            if self._started == self._calls:
                self._all.set()
            await asyncio.wait_for(self._all.wait(), 5)
        return await super().complete(request, on_delta)


def test_map_calls_run_concurrently() -> None:
    model = _AllAtOnce(by_stage(map=quoting(0, 1), reduce=REDUCED), calls=4)
    assert run(brief_context, world(model, passages(16))).state == "answered"


def test_fatal_error_is_raised_after_all_parts_end() -> None:
    """What was paid for is on record: the calls in flight are not thrown away."""

    class OutOfBudget(ScriptedModel):
        async def complete(self, request: ChatRequest, on_delta: DeltaCallback | None = None) -> ChatReply:
            if "Trial 0" in request.messages[-1].content:
                raise BudgetExceeded("spent")
            await asyncio.sleep(0.01)
            return await super().complete(request, on_delta)

    model = OutOfBudget(by_stage(map=quoting(0, 1), reduce=REDUCED))
    asked = world(model, passages(16))
    with pytest.raises(BudgetExceeded):
        run(brief_context, asked)
    assert len(asked.of(ModelCalled)) == len(model.requests) == 3


# -- preflight -----------------------------------------------------------------------------------------------------


def test_agreeing_rankings_make_one_call_with_same_passages() -> None:
    """Errata C1 and B1: agreement spares map-reduce, and plain RAG reads the same ranking."""
    model = ScriptedModel(by_stage(rag=said(quotes=[], answer="It does.", choice="A")))
    asked = world(model, passages(16), verdict=verdict(True))
    answer = run(brief_context, asked)
    assert stages(model) == ["rag"]
    assert trials_in(model.requests[0]) == list(range(16))
    assert (answer.strategy, answer.state, answer.partials) == ("brief-context", "answered", ())
    assert answer.preflight == verdict(True)
    assert asked.of(PreflightChecked) == [PreflightChecked(verdict(True))]


@pytest.mark.parametrize("checked", [True, False])
def test_disagreeing_or_unchecked_rankings_use_map_reduce(checked: bool) -> None:
    model = ScriptedModel(by_stage(map=quoting(0, 1), reduce=REDUCED))
    asked = world(model, passages(8), verdict=verdict(False) if checked else None)
    answer = run(brief_context, asked)
    assert stages(model) == ["map", "map", "reduce"]
    assert answer.preflight == (verdict(False) if checked else None)
    assert len(asked.of(PreflightChecked)) == checked


def test_agreeing_rankings_over_window_use_map_reduce() -> None:
    model = ScriptedModel(by_stage(map=quoting(0, 1), reduce=REDUCED), context_tokens=2200)
    asked = world(model, passages(8, words=200), verdict=verdict(True))
    answer = run(brief_context, asked)
    assert stages(model) == ["map", "map", "reduce"]
    assert (answer.state, answer.preflight) == ("answered", verdict(True))
    (notice,) = asked.of(Notice)
    assert (notice.kind, notice.message[:22]) == ("re-partitioned", "8 passages do not fit ")


# -- failures ------------------------------------------------------------------------------------------------------


def test_failed_map_call_is_named_and_excluded() -> None:
    """Errata C4: its error's text is no evidence."""
    script = per_part({0: quoting(0, 1), 4: EndpointRejected("the key is wrong")}, rest=quoting(8, 1))
    model = ScriptedModel(by_stage(map=script, reduce=REDUCED))
    asked = world(model, passages(12))
    answer = run(brief_context, asked)
    assert [partial.state for partial in answer.partials] == ["relevant", "failed", "relevant"]
    failed = answer.partials[1]
    assert failed.failure is not None
    assert (failed.failure.kind, failed.failure.message) == ("EndpointRejected", "the key is wrong")
    assert failed.usage == Usage(calls=1, failed_calls=1)
    (notice,) = asked.of(Notice)
    assert notice.kind == "left-out"
    assert "1 of 3 parts" in notice.message
    assert answer.state == "answered"
    (request,) = reduces(model)
    assert len(items_of(request)) == 2
    assert "key is wrong" not in request.messages[-1].content
    assert "Trial 5" not in request.messages[-1].content


def test_unreadable_map_reply_is_requested_again() -> None:
    def script(request: ChatRequest) -> str:
        return quoting(0, 1) if request.sample else "Well, it depends."

    model = ScriptedModel(by_stage(map=script, reduce=REDUCED))
    asked = world(model, passages(4))
    answer = run(brief_context, asked)
    assert [request.sample for request in maps(model)] == [0, 1]
    assert (answer.state, answer.partials[0].state) == ("answered", "relevant")
    assert answer.partials[0].usage.calls == 2
    assert [notice.kind for notice in asked.of(Notice)] == ["asked-again"]


def test_map_reply_unreadable_twice_leaves_part_unparsed() -> None:
    model = ScriptedModel(by_stage(map=per_part({0: "It depends."}, rest=quoting(4, 1)), reduce=REDUCED))
    answer = run(brief_context, world(model, passages(8)))
    assert [partial.state for partial in answer.partials] == ["unparsed", "relevant"]
    assert answer.partials[0].failure is not None
    assert answer.partials[0].failure.kind == "Unreadable"
    assert answer.state == "answered"


def test_unreadable_part_without_other_answer_is_unparsed() -> None:
    model = ScriptedModel(by_stage(map=per_part({4: "It depends."})))
    answer = run(brief_context, world(model, passages(12)))
    assert (answer.state, answer.choice) == ("unparsed", None)
    assert answer.failure is not None
    assert answer.failure.kind == "Unreadable"
    assert "1 of 3 parts" in answer.failure.message


def test_lost_part_beside_unreadable_one_fails() -> None:
    """The reply of the lost call is not known, and the next attempt may get it."""
    model = ScriptedModel(by_stage(map=per_part({0: "It depends.", 4: EndpointBusy("too busy")})))
    answer = run(brief_context, world(model, passages(12)))
    assert answer.state == "failed"
    assert answer.failure is not None
    assert answer.failure.kind == "MapFailed"
    assert "2 of 3 parts" in answer.failure.message
    assert "too busy" in answer.failure.message


def test_no_findings_give_abstention() -> None:
    model = ScriptedModel(by_stage(map=NOT_FOUND))
    asked = world(model, passages(8))
    answer = run(brief_context, asked)
    assert (answer.state, answer.choice, answer.failure) == ("abstained", None, None)
    assert stages(model) == ["map", "map"]
    assert asked.of(AnswerStarted) == []


def test_no_findings_with_failed_part_give_failure() -> None:
    """The answer may stand in the part that was not read."""
    model = ScriptedModel(by_stage(map=per_part({4: EndpointBusy("too busy")})))
    answer = run(brief_context, world(model, passages(12)))
    assert (answer.state, answer.choice) == ("failed", None)
    assert answer.failure is not None
    assert answer.failure.kind == "MapFailed"
    assert "1 of 3 parts" in answer.failure.message
    assert "too busy" in answer.failure.message
    assert len(answer.partials) == 3


def test_abstaining_reduce_with_failed_part_gives_failure() -> None:
    script = per_part({0: quoting(0, 1), 4: EndpointBusy("too busy")}, rest=NOT_FOUND)
    answer = run(brief_context, world(ScriptedModel(by_stage(map=script, reduce=NOT_FOUND)), passages(8)))
    assert answer.state == "failed"
    assert answer.failure is not None
    assert "1 of 2 parts" in answer.failure.message


@pytest.mark.parametrize(
    ("reply", "state"),
    [(NOT_FOUND, "abstained"), ("It depends.", "unparsed"), (EndpointBusy("later"), "failed")],
)
def test_reduce_reply_decides_state(reply: str | Exception, state: str) -> None:
    def script(_: ChatRequest) -> str:
        if isinstance(reply, Exception):
            raise reply
        return reply

    answer = run(brief_context, world(ScriptedModel(by_stage(map=quoting(0, 1), reduce=script)), passages(4)))
    assert (answer.state, answer.choice) == (state, None)
    assert [partial.state for partial in answer.partials] == ["relevant"]
    assert (answer.failure is None) == (state == "abstained")


@pytest.mark.parametrize("agree", [True, False, None])
def test_empty_ranking_gives_abstention(agree: bool | None) -> None:
    model = ScriptedModel(by_stage())
    answer = run(brief_context, world(model, (), verdict=None if agree is None else verdict(agree)))
    assert (answer.state, answer.strategy) == ("abstained", "brief-context")
    assert answer.failure is not None
    assert answer.failure.kind == "NothingRetrieved"
    assert model.requests == []


@pytest.mark.parametrize("agree", [True, False])
def test_passage_outside_scope_sends_no_request(agree: bool) -> None:
    model = ScriptedModel(by_stage(map=quoting(0, 1)))
    with pytest.raises(ScopeViolation):
        run(brief_context, world(model, passages(8), verdict=verdict(agree), scope=Scope(as_of="2014")))
    assert model.requests == []


def test_refused_network_raises_single_error() -> None:
    model = ScriptedModel(by_stage(map=per_part({4: NetworkRefused("--local-only is on")})))
    with pytest.raises(NetworkRefused, match="--local-only"):
        run(brief_context, world(model, passages(8)))


class _CannotTell(ScriptedModel):
    """An endpoint that does not even say its window."""

    async def capabilities(self) -> Capabilities:
        raise EndpointUnreachable("nothing answers")


@pytest.mark.parametrize("agree", [True, False, None])
def test_unreachable_endpoint_gives_failure(agree: bool | None) -> None:
    model = _CannotTell(by_stage())
    answer = run(brief_context, world(model, passages(4), verdict=None if agree is None else verdict(agree)))
    assert (answer.state, model.requests) == ("failed", [])
    assert answer.failure is not None
    assert answer.failure.kind == "EndpointUnreachable"
    assert answer.preflight == (None if agree is None else verdict(agree))


def test_passed_deadline_fails_all_parts() -> None:
    model = ScriptedModel(by_stage(map=quoting(0, 1), reduce=REDUCED))
    answer = run(brief_context, world(model, passages(8), deadline=0.0))
    assert (answer.state, model.requests) == ("failed", [])
    assert [partial.state for partial in answer.partials] == ["failed", "failed"]
    assert answer.failure is not None
    assert "deadline_seconds" in answer.failure.message


# -- what it costs -------------------------------------------------------------------------------------------------


def test_part_usage_is_sum_of_its_calls() -> None:
    model = ScriptedModel(by_stage(map=quoting(0, 1), reduce=REDUCED))
    asked = world(model, passages(8))
    answer = run(brief_context, asked)
    by_call = {called.stage: called.usage for called in asked.of(ModelCalled)}
    assert [partial.usage for partial in answer.partials] == [by_call["map 0"], by_call["map 1"]]
    assert [finished.partial for finished in asked.of(MapFinished)] == list(answer.partials)


def test_equal_questions_make_equal_requests() -> None:
    def requests() -> tuple[list[ChatRequest], Answer]:
        model = ScriptedModel(by_stage(map=quoting(0, 1), reduce=REDUCED))
        return model.requests, run(brief_context, world(model, passages(16)))

    assert requests() == requests()
