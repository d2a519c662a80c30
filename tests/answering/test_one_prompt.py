"""Rotated documents with votes, the way on for an unanswered question, and k by the gap in the scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from epicrisis.answering.one_prompt import rotate_passages
from epicrisis.answering.strategies.rag import rag
from epicrisis.core.answers import AnswerStarted, ModelCalled, Notice, Retrieved, TextDelta, Voted
from epicrisis.core.errors import EndpointRejected, InputError
from epicrisis.core.partitioning import mark_largest_gap, take_before_gap
from epicrisis.core.prompts import TIME_ORDER_STATEMENT
from epicrisis.core.protocols import ChatRequest
from epicrisis.core.types import Hit, Passage, Question, Ranking, Scope
from epicrisis.retrieval.rankings import build_hits
from epicrisis.settings.settings import Settings
from epicrisis.settings.tables import VoteSettings
from epicrisis.testing.chat import ScriptedModel
from tests.support.strategies import (
    NOT_FOUND,
    OPEN_QUESTION,
    by_stage,
    passages,
    quoting,
    run,
    said,
    stages,
    trials_in,
    world,
)

YES = said(quotes=[], answer="It does.", choice="A")
REDUCED = said(sources=[1], answer="It does.", choice="A")


def cited(request: ChatRequest, trial: int, choice: str | None = None, text: str = "So.") -> str:
    """A reply that quotes this trial."""
    quotes = [{"doc": trials_in(request).index(trial) + 1, "quote": f"aspirin lowers risk number {trial}"}]
    return said(quotes=quotes, answer=text, **({"choice": choice} if choice else {}))


def by_first(replies: Mapping[int, str | Callable[[ChatRequest], str]]) -> Callable[[ChatRequest], str]:
    """A script by the trial that a request shows first."""

    def script(request: ChatRequest) -> str:
        reply = replies[trials_in(request)[0]]
        return reply if isinstance(reply, str) else reply(request)

    return script


# -- rotations -----------------------------------------------------------------------------------------------------


def test_rotations_keep_cyclic_order_and_documents_together() -> None:
    one, two, three = passages(3)
    more = replace(one, id="d0#1", ordinal=1)
    orders = rotate_passages((one, more, two, three), "documents", 3)
    assert orders == [(one, more, two, three), (two, three, one, more), (three, one, more, two)]
    assert rotate_passages((one, two), "documents", 5) == [(one, two), (two, one)]
    assert rotate_passages((), "documents", 5) == [()]


def test_rotated_prompts_vote_and_majority_wins() -> None:
    model = ScriptedModel(
        by_first({0: YES, 2: lambda request: cited(request, 4, "B", "Not."), 4: lambda request: cited(request, 4, "B")})
    )
    asked = world(model, passages(6), rotations=3)
    answer = run(rag, asked)
    assert sorted(map(trials_in, model.requests)) == [[0, 1, 2, 3, 4, 5], [2, 3, 4, 5, 0, 1], [4, 5, 0, 1, 2, 3]]
    assert (answer.strategy, answer.state, answer.choice, answer.decided_by) == ("rag", "answered", "B", "majority")
    assert answer.text == "Not. [1]"
    assert answer.citations[0].document_id == "d4"
    assert answer.distribution == {"A": pytest.approx(1 / 3), "B": pytest.approx(2 / 3)}
    assert [vote.choice for vote in answer.votes] == ["A", "B", "B"]
    assert [event.vote.number for event in asked.of(Voted)] == [0, 1, 2]
    assert [event.stage for event in asked.of(ModelCalled)] == ["vote 0", "vote 1", "vote 2"]
    assert (len(asked.of(AnswerStarted)), asked.of(TextDelta)) == (1, [])


@pytest.mark.parametrize(("tie", "state", "choice"), [("abstain", "abstained", None), ("first-vote", "answered", "B")])
def test_tied_rotations_follow_tie_rule(tie: str, state: str, choice: str | None) -> None:
    no = said(quotes=[], answer="No.", choice="B")
    voting = VoteSettings(tie="abstain" if tie == "abstain" else "first-vote")
    asked = world(
        ScriptedModel(by_first({0: no, 2: YES})), passages(4), rotations=2, voting=voting, route="brief-context"
    )
    answer = run(rag, asked)
    assert (answer.state, answer.choice) == (state, choice)
    assert [vote.state for vote in answer.votes] == ["answered", "answered"], "a tie is not routed"


def test_open_rotations_prefer_agreeing_citations() -> None:
    replies = {
        0: lambda request: cited(request, 5, text="First."),
        2: lambda request: cited(request, 3, text="Second."),
        4: lambda request: cited(request, 3, text="Third."),
    }
    answer = run(rag, world(ScriptedModel(by_first(replies)), passages(6), rotations=3), OPEN_QUESTION)
    assert (answer.text, answer.decided_by) == ("Second. [1]", "citations")


def test_failed_rotations_are_reported_and_not_counted() -> None:
    def refuse(_: ChatRequest) -> str:
        raise EndpointRejected("wrong key")

    asked = world(ScriptedModel(by_first({0: refuse, 2: YES, 4: NOT_FOUND})), passages(6), rotations=3)
    answer = run(rag, asked)
    assert (answer.state, answer.choice) == ("answered", "A")
    assert [vote.state for vote in answer.votes] == ["failed", "answered", "abstained"]
    (notice,) = asked.of(Notice)
    assert (notice.kind, notice.message) == ("left-out", "1 of 3 rotations gave no answer: 0")
    answer = run(rag, world(ScriptedModel(refuse), passages(6), rotations=3))
    assert answer.state == "failed"
    assert answer.failure is not None
    assert answer.failure.message == "wrong key"


def test_fewer_documents_than_rotations_give_notice_and_one_call() -> None:
    model = ScriptedModel(lambda _: YES)
    asked = world(model, passages(1), rotations=4)
    assert run(rag, asked).votes == ()
    assert len(model.requests) == 1
    assert [notice.kind for notice in asked.of(Notice)] == ["rotations"]


def test_rotated_notes_are_not_said_to_be_in_order_of_time() -> None:
    model = ScriptedModel(lambda _: YES)
    run(rag, world(model, passages(4), rotations=2, about=(TIME_ORDER_STATEMENT, "Anna.")))
    said_in_order = {trials_in(r)[0]: TIME_ORDER_STATEMENT in r.messages[-1].content for r in model.requests}
    assert said_in_order == {0: True, 2: False}
    assert all("Anna." in request.messages[-1].content for request in model.requests)


# -- route ---------------------------------------------------------------------------------------------------------


def test_answered_question_is_not_routed() -> None:
    model = ScriptedModel(by_stage(rag=YES))
    asked = world(model, passages(8), route="brief-context")
    assert run(rag, asked).state == "answered"
    assert stages(model) == ["rag"]
    assert asked.of(Notice) == []


def test_unanswered_question_is_routed_to_brief_context() -> None:
    model = ScriptedModel(by_stage(rag=NOT_FOUND, map=quoting(0, 1), reduce=REDUCED))
    asked = world(model, passages(8), route="brief-context")
    answer = run(rag, asked)
    assert stages(model) == ["rag", "map", "map", "reduce"]
    assert (answer.strategy, answer.state, answer.choice, len(answer.partials)) == ("rag", "answered", "A", 2)
    assert [notice.kind for notice in asked.of(Notice)] == ["routed"]


def test_unanswered_question_without_route_abstains_after_one_call() -> None:
    model = ScriptedModel(by_stage(rag=NOT_FOUND))
    assert run(rag, world(model, passages(8))).state == "abstained"
    assert stages(model) == ["rag"]


def test_choice_of_unanswerable_option_is_routed() -> None:
    question = Question("Did it?", options={"A": "yes", "B": "The record does not say"}, form="choice")
    reply = said(quotes=[], answer="Unknown.", choice="B")
    model = ScriptedModel(by_stage(rag=reply, map=quoting(0, 1), reduce=REDUCED))
    assert run(rag, world(model, passages(4), route="brief-context"), question).choice == "A"


@pytest.mark.parametrize("reply", ["It depends.", EndpointRejected("wrong key")])
def test_failed_or_unreadable_reply_is_not_routed(reply: str | Exception) -> None:
    def script(_: ChatRequest) -> str:
        if isinstance(reply, Exception):
            raise reply
        return reply

    model = ScriptedModel(by_stage(rag=script))
    assert run(rag, world(model, passages(4), route="brief-context")).state in ("failed", "unparsed")
    assert set(stages(model)) == {"rag"}


def test_route_to_record_reads_every_note_with_its_own_lines() -> None:
    notes = tuple(replace(note, patient="anna") for note in passages(6))

    async def record(_: Question) -> Ranking:
        return Ranking(tuple(Hit(note, 1.0, rank) for rank, note in enumerate(notes)), "record")

    model = ScriptedModel(lambda request: YES if len(trials_in(request)) == 6 else NOT_FOUND)
    asked = world(
        model,
        notes[:2],
        route="full-context",
        record=record,
        scope=Scope(patient="anna"),
        about=("4 notes are left out",),
        record_about=("All notes.",),
    )
    answer = run(rag, asked)
    assert (answer.strategy, answer.state) == ("rag", "answered")
    first, second = (request.messages[-1].content for request in model.requests)
    assert "4 notes are left out" in first
    assert "All notes." in second
    assert "left out" not in second
    assert len(asked.of(Retrieved)) == 2


def test_route_to_record_without_patient_is_refused_before_call() -> None:
    model = ScriptedModel(lambda _: YES)
    with pytest.raises(InputError, match="route=brief-context"):
        run(rag, world(model, passages(2), route="full-context"))
    assert model.requests == []


# -- k by the gap ---------------------------------------------------------------------------------------------------


def ranked(*scores: float, per_document: int = 1) -> Ranking:
    found: list[tuple[Passage, float]] = []
    for number, score in enumerate(scores):
        document = f"d{number // per_document}"
        found.append(
            (
                Passage(id=f"{document}#{number}", document_id=document, ordinal=number, start=0, end=4, text="text"),
                score,
            )
        )
    return Ranking(build_hits(found), "dense", {"k": 9})


def test_gap_keeps_documents_before_it() -> None:
    marked = mark_largest_gap(ranked(0.9, 0.85, 0.4, 0.39), "documents")
    assert len(marked.hits) == 4
    assert take_before_gap(marked).document_ids == ("d0", "d1")
    assert marked.notes == ("2 of 4 documents rank before the largest gap in the scores (0.45)",)


def test_gap_counts_document_by_its_best_passage() -> None:
    ranking = ranked(0.9, 0.1, 0.8, 0.2, 0.3, 0.1, per_document=2)
    assert take_before_gap(mark_largest_gap(ranking, "documents")).document_ids == ("d0", "d0", "d1", "d1")
    assert take_before_gap(mark_largest_gap(ranked(0.9, 0.1, per_document=2), "passages")).ids == ("d0#0",)


@pytest.mark.parametrize("scores", [(), (0.5,), (0.5, 0.5, 0.5)])
def test_ranking_without_gap_is_read_whole(scores: tuple[float, ...]) -> None:
    marked = mark_largest_gap(ranked(*scores), "documents")
    assert take_before_gap(marked) == marked == ranked(*scores)


def test_rag_reads_before_gap_and_routes_with_everything() -> None:
    found = passages(8)
    model = ScriptedModel(by_stage(rag=NOT_FOUND, map=NOT_FOUND))
    asked = world(model, found, route="brief-context")

    async def retrieve(_: Question) -> Ranking:
        scores = [0.9, 0.8, 0.3, 0.2, 0.2, 0.1, 0.1, 0.1]
        return mark_largest_gap(Ranking(build_hits(zip(found, scores, strict=True)), "dense"), "documents")

    run(rag, replace(asked, context=replace(asked.context, retrieve=retrieve)))
    assert list(map(trials_in, model.requests)) == [[0, 1], [0, 1, 2, 3], [4, 5, 6, 7]]
    assert [len(event.ranking.hits) for event in asked.of(Retrieved)] == [2]


# -- settings ------------------------------------------------------------------------------------------------------


def test_recipe_has_variants() -> None:
    changed = {"adaptive_k": True, "rotations": 3, "route": "brief-context", "neighbours": 2, "focus_tokens": 500}
    assert changed.items() <= Settings.model_validate(changed).model_dump().items()
