"""The ensemble strategies in the pipeline: over a real library of solved questions, planned and then asked."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from epicrisis.core.answers import Answer, ExamplesFound, ModelCalled, Notice
from epicrisis.core.errors import InputError, SettingsError
from epicrisis.core.protocols import ChatRequest
from epicrisis.core.types import Document, Question
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.write.ingest import add_documents
from epicrisis.pipeline.components import ExampleSearch, LibrarySearch
from epicrisis.pipeline.pipeline import Pipeline
from epicrisis.pipeline.plan.strategy_plans import plan_questions
from epicrisis.retrieval.retriever import Retriever
from epicrisis.settings.configuration import load_settings
from epicrisis.settings.settings import Settings
from epicrisis.testing.chat import ScriptedModel
from epicrisis.testing.hashing_encoder import HashingEncoder
from tests.support.replies import fill

OPTIONS = {"A": "gout", "B": "scurvy", "C": "rickets", "D": "measles"}
ASKED = Question(
    "Which disease comes of a lack of vitamin C, as case 7 shows?",
    options=OPTIONS,
    form="choice",
    id="case-7",
    gold="B",
)
TOPICS = ("gout", "scurvy", "rickets", "measles")


def solved(i: int, **changes: Any) -> Document:
    text = f"Which disease does case {i} of {TOPICS[i % 4]} show, the patient being {20 + i} years old?"
    told = {
        "question": text,
        "question_id": f"case-{i}",
        "options": OPTIONS,
        "choice": "ABCD"[i % 4],
        "reasoning": f"It looks like {TOPICS[i % 4]}.",
        "answer": f"It is {TOPICS[i % 4]}.",
    }
    return Document(f"made/case-{i}", text, metadata={**told, **changes})


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> LibrarySearch:
    return library_of(tmp_path_factory.mktemp("examples") / "library", [solved(i) for i in range(30)])


def library_of(path: Path, documents: list[Document]) -> LibrarySearch:
    encoder = HashingEncoder(64)
    with LibraryStore.create(
        path, encoder_fingerprint=encoder.fingerprint, encoder_name="hashing", dimensions=64, max_tokens=8, overlap=0
    ) as made:
        add_documents(made, documents, encoder)
    library = LibraryStore.open(path)
    return LibrarySearch(library, Retriever(library, encoder))


def settings_of(**flags: Any) -> Settings:
    return load_settings({"votes": {"n": 4}, "refine": {"drafts": 3, "rounds": 2}, "examples": {"k": 3}, **flags})


def pipeline_of(settings: Settings, script: Any, opened: LibrarySearch | None) -> Pipeline:
    model = ScriptedModel(script, probabilities=lambda request: dict.fromkeys(request.options, 0.2) | {"B": 0.4})
    search = None if opened is None else ExampleSearch(opened, settings.examples, settings.seed)
    return Pipeline(settings, dict.fromkeys(settings.roles, model), None, search)


def replies(request: ChatRequest) -> str:
    """Whatever is asked for; every vote is for what is shown second."""
    return json.dumps(fill(request.schema or {"type": "object"}, {"found": True, "choice": "B"}, "It is so."))


def answered(settings: Settings, opened: LibrarySearch | None, question: Question = ASKED) -> Answer:
    return asyncio.run(pipeline_of(settings, replies, opened).answer(question))


# -- as many calls as were planned ------------------------------------------------------------------------------------

CALLS = {
    "zero-shot": 1,
    "self-consistency": 4,
    "medprompt": 4,
    "ensemble-refining": 3 + 1,
    "self-reflection": 2 * 2 + 1,
}


@pytest.mark.parametrize(("strategy", "calls"), CALLS.items())
def test_strategy_makes_planned_calls(examples: LibrarySearch, strategy: str, calls: int) -> None:
    settings = settings_of(strategy=strategy)

    def never(request: ChatRequest) -> str:
        raise AssertionError("a plan calls no model")

    plan = asyncio.run(plan_questions(pipeline_of(settings, never, examples), settings, [ASKED], [strategy]))
    (row,) = plan.strategies
    assert row.calls.least <= calls == row.calls.expected == row.calls.most, "the least: where every draft abstains"
    answer = answered(settings, examples)
    assert answer.usage.calls == calls
    assert row.prompt_tokens.least <= answer.usage.prompt_tokens <= row.prompt_tokens.most


@pytest.mark.parametrize("strategy", ["zero-shot", "self-consistency", "medprompt"])
def test_plan_reports_questions_without_options(examples: LibrarySearch, strategy: str) -> None:
    settings = settings_of(strategy=strategy)
    asked = Question("What is it?", id="open")
    plan = asyncio.run(plan_questions(pipeline_of(settings, replies, examples), settings, [asked], [strategy]))
    assert plan.strategies[0].states == {"has no options": 1}


def test_plan_includes_reward_judge(examples: LibrarySearch) -> None:
    settings = settings_of(strategy="self-reflection", models={"reward": {"name": "smollm2-135m"}})
    plan = asyncio.run(plan_questions(pipeline_of(settings, replies, examples), settings, [ASKED], ["self-reflection"]))
    answer = answered(settings, examples)
    assert plan.strategies[0].calls.expected == answer.usage.calls == (2 * 2 + 1) + 3
    assert answer.decided_by == "best mark, judged by smollm2-135m"
    assert [len(draft.rewards) for draft in answer.drafts] == [3, 3, 3]
    stages = [event.stage for event in answer.trace if isinstance(event, ModelCalled)]
    assert stages == ["draft 0", "reward", "critique 0", "draft 1", "reward", "critique 1", "draft 2", "reward"]


# -- which examples ---------------------------------------------------------------------------------------------------


def found(answer: Answer) -> ExamplesFound:
    (event,) = (event for event in answer.trace if isinstance(event, ExamplesFound))
    return event


def test_nearest_examples_are_shown_without_question_itself(examples: LibrarySearch) -> None:
    question = Question(f"{solved(5).text}", options=OPTIONS, form="choice", id="another id")
    event = found(answered(settings_of(strategy="medprompt"), examples, question))
    assert event.left_out == ("made/case-5",)
    assert len(event.ids) == len(set(event.ids)) == 3
    assert "made/case-5" not in event.ids
    by_id = found(answered(settings_of(strategy="medprompt", examples={"k": 30}), examples))
    assert by_id.left_out == ("made/case-7",)
    assert len(by_id.ids) == 29, "all there are, each once, though each has two passages or more"


def notes(answer: Answer) -> list[str]:
    return [event.message for event in answer.trace if isinstance(event, Notice) and event.kind == "search"]


def test_example_search_notes_are_reported(examples: LibrarySearch) -> None:
    """That there are fewer than were wanted, that a question was not read whole, and by what they are found."""
    long = Question("fever and cough " * 300, options=OPTIONS, form="choice", id="long")
    settings = settings_of(strategy="medprompt", examples={"k": 30}, long_questions="cut")
    fewer, *_ = notes(answered(settings, examples))
    assert fewer == "solved questions: 29 of the 30 wanted: the library has no more"
    assert any("tokens not seen by dense search" in note for note in notes(answered(settings, examples, long)))
    other = settings_of(strategy="medprompt", examples={"encoder": "pubmedbert"})
    assert notes(answered(other, examples)) == [
        "solved questions: their library was created with hashing, not with pubmedbert"
    ]
    assert pipeline_of(settings, replies, examples).recipe()["examples"]["encoder"] == "hashing"


def test_random_examples_differ_by_question_and_fixed_do_not(examples: LibrarySearch) -> None:
    """The controls: as many examples, none of them nearer than chance."""
    other = Question("Does it help?", options=OPTIONS, form="choice", id="x")
    chosen = {
        (how, asked.id): found(
            answered(settings_of(strategy="medprompt", examples={"k": 5, "choose": how}), examples, asked)
        ).ids
        for how in ("random", "fixed")
        for asked in (ASKED, other)
    }
    assert chosen["fixed", "case-7"] == chosen["fixed", "x"]
    assert chosen["random", "case-7"] != chosen["random", "x"]
    again = found(answered(settings_of(strategy="medprompt", examples={"k": 5, "choose": "random"}), examples, other))
    assert again.ids == chosen["random", "x"]


def test_library_without_examples_is_rejected(tmp_path: Path) -> None:
    opened = library_of(tmp_path / "papers", [Document("d0", "Which disease it is, nobody knows.")])
    with pytest.raises(InputError, match="d0 is not a solved question: give a library that `epicrisis examples build`"):
        answered(settings_of(strategy="medprompt"), opened)


def test_medprompt_without_library_fails_before_any_call(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="medprompt shows solved questions: give a library of them"):
        Pipeline.open(settings_of(strategy="medprompt", home=str(tmp_path)), None)


# -- the setup of the study -------------------------------------------------------------------------------------------


def test_preset_matches_study_and_explicit_settings_override_it() -> None:
    settings = load_settings({"preset": "cr"})
    assert settings.strategy == "medprompt"
    assert (settings.votes.n, settings.votes.shuffle, settings.votes.tie) == (5, True, "first-vote")
    assert (settings.examples.k, settings.examples.encoder, settings.examples.rerank) == (5, "pubmedbert", None)
    assert load_settings({"preset": "cr-benchmark"}).votes.n == 20
    changed = load_settings({"preset": "cr", "votes": {"n": 3}})
    assert (changed.votes.n, changed.votes.shuffle) == (3, True)
    with pytest.raises(SettingsError, match="no preset is called best: known are cr, cr-benchmark, ehr"):
        load_settings({"preset": "best"})
    with pytest.raises(SettingsError, match=r"no preset is called \['cr'\]"):
        load_settings({"preset": ["cr"]})
    with pytest.raises(SettingsError, match="11 times 100 examples exceed the limit of 1,000 for reranking"):
        load_settings({"examples": {"k": 100, "rerank_times": 11, "rerank": "medcpt-cross"}})
    assert load_settings({"examples": {"k": 100, "rerank_times": 11}}).examples.k == 100
