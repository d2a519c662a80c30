"""The settings of runs: experiments ask as `ask` does, and every manifest lists what reaches a prompt."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from epicrisis.answering.strategy import find_strategy, list_strategies
from epicrisis.cli.command import Flags
from epicrisis.cli.experiment import _Call
from epicrisis.core.types import Examples, Question
from epicrisis.evaluation.experiments.definition import Request
from epicrisis.evaluation.experiments.record_studies import PROTOCOL_SETTINGS
from epicrisis.evaluation.experiments.registry import find_experiment
from epicrisis.evaluation.experiments.study_protocols import PAPER_SETTINGS, PROTOCOLS
from epicrisis.pipeline.overrides import RunOverrides
from epicrisis.pipeline.pipeline import Pipeline
from epicrisis.settings.settings import ROLES, AnswerOptions, Settings
from epicrisis.testing.chat import ScriptedModel
from tests.evaluation.experiments.test_unreadable_replies import RANKING, SENTENCES
from tests.support.strategies import NOT_FOUND

ANSWER_SETTINGS = set(AnswerOptions.model_fields)
NOT_IN_PROMPTS = {
    # Where things are, and what is kept of a run.
    "preset", "home", "store", "record", "log", "log_text", "cache",
    # Which texts are there. A recipe names the libraries themselves.
    "fuse", "beside", "literature",
    # When a run asks, stops or warns.
    "questions_at_once", "deadline_seconds", "budget", "plan", "energy", "threads", "local_only", "allow_remote",
    "break_glass",
    # After the answer. A recipe names the calibration.
    "calibration",
    # A recipe names the models themselves, with their sampling.
    "models",
}  # fmt: skip
"""Settings that change no prompt, or that a recipe describes in another entry. All others must be in every manifest."""


def test_every_setting_is_in_the_recipe_or_known_not_to_reach_a_prompt() -> None:
    fields = set(Settings.model_fields)
    assert fields - NOT_IN_PROMPTS == ANSWER_SETTINGS, "decide about a new setting: an option of answers, or not"


def test_recipe_lists_every_answer_setting_with_its_value() -> None:
    settings = Settings()
    recipe = Pipeline(settings, {}).recipe()["settings"]
    assert set(recipe) == ANSWER_SETTINGS, "a value that equals a default is listed, too"
    for name in ANSWER_SETTINGS - {"examples", "preflight"}:
        dumped = settings.model_dump(include={name})[name]
        assert recipe[name] == dumped


class RecordingSettings(Settings):
    """Settings that note which of them are read."""

    def __getattribute__(self, name: str) -> Any:
        if name in Settings.model_fields:
            READ.add(name)
        return super().__getattribute__(name)


READ: set[str] = set()


@pytest.mark.slow
@pytest.mark.parametrize("strategy", [strategy.name for strategy in list_strategies() if strategy.needs_model])
def test_settings_read_while_a_question_is_answered_are_in_the_recipe(strategy: str) -> None:
    model = ScriptedModel(lambda _: NOT_FOUND)
    settings = RecordingSettings()
    overrides = RunOverrides(
        options={"strategy": strategy}, ranking=RANKING, preflight=False, sentences=SENTENCES, examples=Examples(())
    )

    async def answer() -> set[str]:
        async with Pipeline(settings, dict.fromkeys(ROLES, model)) as pipeline:
            recipe = pipeline.recipe()
            READ.clear()
            await pipeline.answer(Question("Does it help?", options={"A": "yes", "B": "no"}), overrides=overrides)
            return set(recipe["settings"])

    recorded = asyncio.run(answer())
    assert {"preflight", *(("citing", "unverified") if find_strategy(strategy).cites else ())} <= READ
    assert recorded >= READ - NOT_IN_PROMPTS


@pytest.mark.parametrize("name", PROTOCOLS)
def test_corrected_experiment_asks_as_ask_does_and_others_as_the_paper(name: str) -> None:
    experiment, request = find_experiment("positions"), Request(protocol=name)
    call = _Call(experiment, request, Flags({}, None), None, None, (), yes=True, json=True)
    ((_, settings),) = call.runs(PROTOCOLS[name].settings, {"strategy": "brief-context"})
    of_ask = Flags({}, None).settings({"strategy": "brief-context"})
    expected = of_ask if name == "corrected" else of_ask.model_copy(update=PAPER_SETTINGS)
    assert settings.model_dump() == expected.model_dump()


def test_record_study_has_the_settings_of_ask_unless_published() -> None:
    assert PROTOCOL_SETTINGS["corrected"] == {}
    assert PROTOCOL_SETTINGS["published"] == {**PAPER_SETTINGS, "fusion_times": 2}


def test_papers_search_a_question_in_its_own_words_and_fuse_by_ranks_alone() -> None:
    settings = Settings.model_validate(PAPER_SETTINGS)
    assert (settings.other_names, settings.keep_first, settings.not_in_library) == (False, False, "ask")
