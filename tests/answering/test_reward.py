"""A chat model as reward model."""

from __future__ import annotations

import json

import pytest

from epicrisis.answering.drafts import ATTRIBUTES, RewardFormat, request_reward
from epicrisis.answering.strategies.self_reflection import self_reflection
from epicrisis.answering.strategy_context import Rewarder
from epicrisis.answering.structured_request import Unreadable
from epicrisis.core.answers import ModelCalled
from epicrisis.core.protocols import ChatRequest
from epicrisis.settings.tables import RefineSettings
from epicrisis.testing.chat import ScriptedModel
from tests.support.strategies import OPEN_QUESTION, items_of, run, said, world

MARKS = dict.fromkeys(ATTRIBUTES, 4)


def test_reward_score_is_parsed_alone_and_in_text() -> None:
    told = json.dumps(MARKS)
    assert RewardFormat().parse(told) == RewardFormat().parse(f"Here: {told}.") == dict.fromkeys(ATTRIBUTES, 4.0)
    schema = RewardFormat().schema()
    assert list(schema["properties"]) == [*ATTRIBUTES]
    assert schema["properties"]["honesty"] == {"type": "integer", "minimum": 1, "maximum": 5}


@pytest.mark.parametrize(
    "reply",
    ["four", "{}", json.dumps({**MARKS, "honesty": 6}), json.dumps({**MARKS, "honesty": True}), '{"honesty": 3}'],
)
def test_reply_without_score_is_unparsed(reply: str) -> None:
    with pytest.raises(Unreadable, match="no marks from 1 to 5"):
        RewardFormat().parse(reply)


def test_reward_judge_uses_model_of_role_and_is_recorded() -> None:
    def writes(request: ChatRequest) -> str:
        return json.dumps({"reasoning": "So.", **json.loads(said(answer="It does."))})

    judge = ScriptedModel(lambda _: json.dumps(MARKS), name="judge")
    asked = world(
        ScriptedModel(writes),
        (),
        models={"reward": judge},
        refining=RefineSettings(rounds=0, keep="best"),
        reward=Rewarder(request_reward, "judge"),
    )
    answer = run(self_reflection, asked, OPEN_QUESTION)
    assert answer.drafts[0].rewards == dict.fromkeys(ATTRIBUTES, 4.0)
    assert [call.model for call in asked.of(ModelCalled)] == ["scripted", "judge"]
    assert items_of(judge.requests[0]) == ["It does."]
