"""One question answered otherwise than the settings say, by the same pipeline."""

from __future__ import annotations

import asyncio

import pytest

from epicrisis.core.answers import Answer, PreflightChecked, Retrieved
from epicrisis.core.types import Question, Ranking
from epicrisis.pipeline.overrides import NO_OVERRIDES, RunOverrides
from epicrisis.pipeline.pipeline import Pipeline
from epicrisis.retrieval.rankings import rank_in_order
from epicrisis.settings.settings import ROLES, Settings
from epicrisis.testing.chat import ScriptedModel
from tests.support.strategies import NOT_FOUND, items_of, passages, stages, verdict

QUESTION = Question("Does aspirin prevent stroke?", options={"A": "yes", "B": "no"}, form="choice")
RANKING = rank_in_order(passages(8), "placed", {})


def answered(treatment: RunOverrides, **settings: object) -> tuple[Answer, ScriptedModel]:
    """No library is there: whoever searches fails."""
    model = ScriptedModel(lambda _: NOT_FOUND)

    async def one() -> Answer:
        made = Settings.model_validate({"strategy": "closed-book", **settings})
        async with Pipeline(made, dict.fromkeys(ROLES, model)) as pipeline:
            return await pipeline.answer(QUESTION, overrides=treatment)

    return asyncio.run(one()), model


def ranking_of(answer: Answer) -> Ranking:
    (found,) = [event.ranking for event in answer.trace if isinstance(event, Retrieved)]
    return found


def test_run_without_overrides_follows_settings() -> None:
    answer, model = answered(NO_OVERRIDES, models={"writer": {"temperature": 0.3, "top_p": 0.9}}, seed=7)
    assert answer.strategy == "closed-book"
    assert [(r.temperature, r.top_p, r.seed) for r in model.requests] == [(0.3, 0.9, 7)]


def test_strategy_override_reads_supplied_ranking() -> None:
    answer, model = answered(RunOverrides(options={"strategy": "rag"}, ranking=RANKING))
    assert answer.strategy == "rag"
    assert ranking_of(answer) == RANKING
    (request,) = model.requests
    assert [item.splitlines()[-1] for item in items_of(request)] == [each.text for each in RANKING.passages]


@pytest.mark.parametrize("partition", [None, 2, 3])
def test_partition_override_without_preflight_splits_ranking(partition: int | None) -> None:
    options = (
        {"strategy": "brief-context"} if partition is None else {"strategy": "brief-context", "partition": partition}
    )
    treatment = RunOverrides(options=options, ranking=RANKING, preflight=False)
    answer, model = answered(treatment, partition=5)
    assert answer.preflight is None
    assert len(answer.partials) == -(-8 // (partition or 5))
    assert set(stages(model)) == {"map"}


@pytest.mark.parametrize(("agree", "read"), [(True, {"rag"}), (False, {"map"})])
def test_verdict_override_decides(agree: bool, read: set[str]) -> None:
    given = verdict(agree)
    answer, model = answered(RunOverrides(options={"strategy": "brief-context"}, ranking=RANKING, preflight=given))
    assert answer.preflight == given
    assert PreflightChecked(given) in answer.trace
    assert set(stages(model)) == read


def test_temperature_and_seed_overrides_apply_to_all_roles() -> None:
    treatment = RunOverrides(
        options={"strategy": "brief-context", "seed": 11}, ranking=RANKING, preflight=False, temperature=0.2
    )
    _, model = answered(treatment, models={"map": {"temperature": 0.9}})
    assert {(r.temperature, r.seed) for r in model.requests} == {(0.2, 11)}
    _, kept = answered(
        RunOverrides(options={"strategy": "brief-context"}, ranking=RANKING, preflight=False),
        models={"map": {"temperature": 0.9}},
    )
    assert {r.temperature for r in kept.requests} == {0.9}
    _, zero = answered(
        RunOverrides(options={"strategy": "rag"}, ranking=RANKING, temperature=0.0),
        models={"writer": {"temperature": 0.9}},
    )
    assert {r.temperature for r in zero.requests} == {0.0}


def test_unknown_option_is_refused() -> None:
    with pytest.raises(ValueError, match="no options of an answer: rotation"):
        RunOverrides(options={"rotation": 4})
