"""Ensemble refining and self-reflection over scripted models: which calls are made, what each sees, what is kept."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from epicrisis.answering.strategies.ensemble_refining import TEMPERATURES, TOP_PS, ensemble_refining
from epicrisis.answering.strategies.self_reflection import self_reflection
from epicrisis.answering.strategy_context import Context, Rewarder
from epicrisis.core.answers import Drafted, ExamplesFound, ModelCalled, Notice
from epicrisis.core.errors import EndpointRejected
from epicrisis.core.protocols import ChatRequest
from epicrisis.core.types import Example, Examples, Question
from epicrisis.settings.tables import RefineSettings
from epicrisis.testing.chat import ScriptedModel
from tests.support.strategies import NOT_FOUND, OPEN_QUESTION, QUESTION, items_of, run, world

EXAMPLES = Examples((Example(id="e0", text="What helps in gout?", answer="Colchicine does."),))


async def found(question: Question) -> Examples:
    return EXAMPLES


def answered(text: str, **more: str) -> str:
    return json.dumps({"reasoning": "So.", "result": {"found": True, "answer": text, **more}})


def stage(request: ChatRequest) -> str:
    """`draft`, `synthesis`, `critique` or `improvement`, by the words of its prompt."""
    asked = request.messages[-1].content
    if "Several drafts" in asked:
        return "synthesis"
    if "Say what is wrong" in asked:
        return "critique"
    return "improvement" if "A reviewer says" in asked else "draft"


def script(request: ChatRequest) -> str:
    if stage(request) == "critique":
        return json.dumps({"result": {"found": True, "critique": f"Too short: {items_of(request)[0]}"}})
    return answered({"draft": f"Draft {request.sample}.", "synthesis": "All in all."}.get(stage(request), "Better."))


def stages(model: ScriptedModel) -> list[str]:
    return [stage(request) for request in model.requests]


# -- ensemble refining ------------------------------------------------------------------------------------------------


def test_drafts_are_varied_and_synthesized_once() -> None:
    model = ScriptedModel(script)
    asked = world(model, (), refining=RefineSettings(drafts=6), examples=found)
    answer = run(ensemble_refining, asked, OPEN_QUESTION)
    assert (answer.state, answer.text, answer.decided_by) == ("answered", "All in all.", "synthesis")
    assert stages(model) == ["draft"] * 6 + ["synthesis"]
    *drafts, synthesis = model.requests
    assert all(each.temperature in TEMPERATURES and each.top_p in TOP_PS for each in drafts)
    assert len({(each.temperature, each.top_p) for each in drafts}) > 3
    assert synthesis.temperature == 0
    assert items_of(synthesis) == [f"Draft {i}." for i in range(6)]
    assert [draft.text for draft in answer.drafts] == items_of(synthesis)
    assert asked.of(ExamplesFound) == [ExamplesFound(("e0",), (), ("",))]
    assert "What helps in gout?" in drafts[0].messages[1].content
    assert len(asked.of(Drafted)) == 6
    assert len(asked.of(ModelCalled)) == 7


def test_additional_drafts_keep_first_drafts() -> None:
    """So that those of a smaller N come out of the cache."""
    few, many = ScriptedModel(script), ScriptedModel(script)
    run(ensemble_refining, world(few, (), refining=RefineSettings(drafts=3)), OPEN_QUESTION)
    run(ensemble_refining, world(many, (), refining=RefineSettings(drafts=8)), OPEN_QUESTION)
    assert many.requests[:3] == few.requests[:3]


def test_failed_drafts_are_named_and_rest_is_synthesized() -> None:
    def loses(request: ChatRequest) -> str:
        if stage(request) == "draft" and request.sample == 0:
            raise EndpointRejected("no")
        return NOT_FOUND if stage(request) == "draft" and request.sample == 1 else script(request)

    asked = world(ScriptedModel(loses), (), refining=RefineSettings(drafts=3))
    answer = run(ensemble_refining, asked, OPEN_QUESTION)
    assert [draft.state for draft in answer.drafts] == ["failed", "abstained", "answered"]
    assert answer.state == "answered"
    assert [notice.message for notice in asked.of(Notice)] == ["1 of 3 drafts failed or unreadable: 0"]


@pytest.mark.parametrize(("reply", "state"), [(NOT_FOUND, "abstained"), ("{", "unparsed")])
def test_no_drafts_make_no_synthesis_call(reply: str, state: str) -> None:
    model = ScriptedModel(lambda _: reply)
    answer = run(ensemble_refining, world(model, (), refining=RefineSettings(drafts=2)), OPEN_QUESTION)
    assert answer.state == state
    assert "synthesis" not in stages(model)


def test_multiple_choice_prompt_has_options_and_gives_choice() -> None:
    model = ScriptedModel(lambda _: answered("It does.", choice="A"))
    answer = run(ensemble_refining, world(model, (), refining=RefineSettings(drafts=2)), QUESTION)
    assert (answer.state, answer.choice) == ("answered", "A")
    assert all("A. yes" in request.messages[-1].content for request in model.requests)


WITH_OPTIONS = Example(
    id="e1",
    text="What stops it?",
    answer="It is B.",
    options={"A": "iron", "B": "vitamin K"},
    choice="B",
    reasoning="It clots.",
)


@pytest.mark.parametrize("strategy", [ensemble_refining, self_reflection])
@pytest.mark.parametrize("question", [QUESTION, OPEN_QUESTION])
def test_examples_have_form_of_question(strategy: Any, question: Question) -> None:
    """Without its options where it has none, and in the form that the reply must have."""

    async def both(_: Question) -> Examples:
        return Examples((WITH_OPTIONS, *EXAMPLES.examples))

    model = ScriptedModel(lambda _: answered("It does.", choice="A") if question.options else answered("It does."))
    run(strategy, world(model, (), refining=RefineSettings(drafts=1, rounds=0), examples=both), question)
    _, _, open_reply, asked, reply, last = model.requests[0].messages
    assert json.loads(open_reply.content) == {"result": {"found": True, "answer": "Colchicine does."}}
    assert "What stops it?" in asked.content
    assert all(("choose one option" in each.content) == bool(question.options) for each in (asked, last))
    assert ("B. vitamin K" in asked.content) == bool(question.options)
    told = {"answer": "It is B.", "choice": "B"} if question.options else {"answer": "vitamin K"}
    assert json.loads(reply.content) == {"reasoning": "It clots.", "result": {"found": True, **told}}


# -- self-reflection --------------------------------------------------------------------------------------------------


def rewarding(scores: Mapping[str, float], judge: str | None = None) -> Rewarder:
    async def reward(question: Question, text: str, _: Context) -> Mapping[str, float]:
        return {"truthfulness": scores[text], "helpfulness": scores[text]}

    return Rewarder(reward, judge)


def in_turn(*texts: str) -> ScriptedModel:
    """Drafts say these in turn."""
    left = iter(texts)
    return ScriptedModel(lambda request: script(request) if stage(request) == "critique" else answered(next(left)))


SCORES = {"One.": 0.2, "Two.": 0.9, "Three.": 0.4}


def test_round_has_critique_and_improvement() -> None:
    """2 N + 1 calls, as in the study's code; examples in the first draft alone (errata P8)."""
    model = in_turn("One.", "Two.", "Three.")
    asked = world(model, (), refining=RefineSettings(rounds=2, keep="last"), examples=found, reward=rewarding(SCORES))
    answer = run(self_reflection, asked, OPEN_QUESTION)
    assert stages(model) == ["draft", "critique", "improvement", "critique", "improvement"]
    assert (answer.text, answer.decided_by) == ("Three.", "last draft")
    assert [draft.text for draft in answer.drafts] == ["One.", "Two.", "Three."]
    assert [draft.critique for draft in answer.drafts] == ["Too short: One.", "Too short: Two.", ""]
    assert [draft.rewards["truthfulness"] for draft in answer.drafts] == [0.2, 0.9, 0.4]
    first, _, second, _, _ = model.requests
    assert len(first.messages) == 4
    assert len(second.messages) == 2
    seen = second.messages[-1].content
    assert "A reviewer says of it: Too short: One." in seen
    assert "truthfulness 0.20, helpfulness 0.20." in seen
    assert items_of(second) == ["One."]


def test_draft_with_best_reward_is_improved() -> None:
    asked = world(in_turn(*SCORES), (), refining=RefineSettings(rounds=2, keep="best"), reward=rewarding(SCORES))
    answer = run(self_reflection, asked, OPEN_QUESTION)
    assert (answer.text, answer.decided_by) == ("Two.", "best reward")


def test_judge_as_reward_is_named() -> None:
    """Marks from 1 to 5 are no trained scores, neither to the writer nor to the reader."""
    model = in_turn(*SCORES)
    reward = rewarding(SCORES, judge="a-judge")
    answer = run(
        self_reflection,
        world(model, (), refining=RefineSettings(drafts=2, rounds=2, keep="best"), reward=reward),
        OPEN_QUESTION,
    )
    assert answer.decided_by == "best mark, judged by a-judge"
    seen = model.requests[2].messages[-1].content
    assert "Another model gives it marks from 1 to 5, higher is better: truthfulness 0.20" in seen
    assert "reward model" not in seen


def test_without_reward_model_last_draft_is_answer() -> None:
    model = in_turn(*SCORES)
    answer = run(self_reflection, world(model, (), refining=RefineSettings(rounds=2, keep="best")), OPEN_QUESTION)
    assert (answer.text, answer.decided_by) == ("Three.", "last draft")
    assert not any("reward model" in request.messages[-1].content for request in model.requests)


def test_failed_reward_is_noted_and_scored_drafts_count() -> None:
    async def reward(question: Question, text: str, _: Context) -> Mapping[str, float]:
        if text == "Two.":
            raise EndpointRejected("no")
        return {"truthfulness": SCORES[text]}

    asked = world(in_turn(*SCORES), (), refining=RefineSettings(rounds=2), reward=Rewarder(reward))
    answer = run(self_reflection, asked, OPEN_QUESTION)
    assert (answer.text, answer.decided_by) == ("Three.", "best reward")
    assert [notice.message for notice in asked.of(Notice)] == ["draft 1 has no reward: no"]


def test_failed_round_keeps_previous_draft() -> None:
    def fails(request: ChatRequest) -> str:
        if stage(request) == "critique":
            raise EndpointRejected("no")
        return script(request)

    asked = world(ScriptedModel(fails), (), refining=RefineSettings(rounds=3))
    answer = run(self_reflection, asked, OPEN_QUESTION)
    assert (answer.state, answer.text) == ("answered", "Draft 0.")
    assert [notice.message for notice in asked.of(Notice)] == ["round 1: no; the earlier drafts remain"]


def test_failed_draft_ends_rounds_with_note() -> None:
    said = {"draft": answered("One."), "improvement": NOT_FOUND}
    model = ScriptedModel(lambda request: said.get(stage(request)) or script(request))
    asked = world(model, (), refining=RefineSettings(rounds=5))
    answer = run(self_reflection, asked, OPEN_QUESTION)
    assert (answer.state, answer.text) == ("answered", "One.")
    assert [notice.message for notice in asked.of(Notice)] == [
        "round 1 of 5 ended abstained: the earlier drafts remain"
    ]


def test_abstaining_first_draft_is_final() -> None:
    model = ScriptedModel(lambda _: NOT_FOUND)
    answer = run(self_reflection, world(model, (), refining=RefineSettings(rounds=3)), OPEN_QUESTION)
    assert (answer.state, stages(model)) == ("abstained", ["draft"])
