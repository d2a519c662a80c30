"""Answers with numbers of sentences through the whole pipeline: settings, recipe, records and plans."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from epicrisis.core.answers import Answer, AnswerStarted, MapStarted, Notice
from epicrisis.core.protocols import ChatRequest, StoredDocument
from epicrisis.core.types import Document, Hit, Passage, Question, Ranking
from epicrisis.corpus.base.chunking import find_sentences
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.engines.word_index import analyze_words
from epicrisis.pipeline.components import LibrarySearch, describe_optional_prompts
from epicrisis.pipeline.overrides import RunOverrides
from epicrisis.pipeline.pipeline import Pipeline
from epicrisis.pipeline.plan.strategy_plans import plan_questions
from epicrisis.pipeline.recording.answer_record import read_records
from epicrisis.pipeline.recording.runner import RecordStore
from epicrisis.retrieval.retriever import Retriever
from epicrisis.settings.settings import ROLES, Settings
from epicrisis.testing.chat import ScriptedModel
from epicrisis.testing.stores import MemoryStore, hash_content
from tests.support.numbered_sentences import ENCODER, PASSAGES, SENTENCES, claims
from tests.support.patient_records import library
from tests.support.strategies import said

QUESTION = Question("Does aspirin prevent stroke after a heart attack?", id="1")
CLAIM = "Aspirin at 75 mg prevents stroke."


def reply(request: ChatRequest) -> str:
    """Name the sentence about the dose, whatever its number is; quote it if there are no numbers."""
    prompt = request.messages[-1].content
    label = prompt.partition("] Aspirin at 75 mg daily")[0].rpartition("[s")[2]
    if "[finding 1] " in prompt or '"claims"' in prompt:
        return claims((CLAIM, [int(label)]))
    if '"sentences"' in prompt:
        found = "75 mg" in prompt
        return said(finding="It works.", sentences=[int(label)]) if found else json.dumps({"result": {"found": False}})
    return said(quotes=[{"doc": 1, "quote": SENTENCES[1]}], answer=CLAIM)


def pipeline_of(encoder: Any = ENCODER, **settings: Any) -> Pipeline:
    store = MemoryStore()
    rows = []
    for passage in PASSAGES:
        vectors = ENCODER.encode_passages([(passage.title, passage.text)])
        rows.append(StoredDocument(passage.document_id, hash_content(passage.document_id, "1"), (passage,), vectors))
    store.add(rows)
    retriever = Retriever(store, encoder, sentences=find_sentences, analyze=analyze_words)
    values = {"strategy": "rag", "k": 2, "preflight": {"enabled": False}, **settings}
    search = LibrarySearch(cast("LibraryStore", None), retriever)
    return Pipeline(Settings(**values), dict.fromkeys(ROLES, ScriptedModel(reply)), search)


def answer_of(pipeline: Pipeline, **overrides: Any) -> Answer:
    return asyncio.run(pipeline.answer(QUESTION, overrides=RunOverrides(**overrides)))


@contextmanager
def closing_pipeline(pipeline: Pipeline) -> Iterator[Pipeline]:
    """Close the pipeline at the end."""
    try:
        yield pipeline
    finally:
        asyncio.run(pipeline.aclose())


def notices_of(answer: Answer) -> list[Notice]:
    """The notices of an answer, without the one about the default model."""
    return [event for event in answer.trace if isinstance(event, Notice) and event.kind != "demo-model"]


@pytest.mark.parametrize("settings", [{}, {"strategy": "brief-context", "partition": 1}])
@pytest.mark.parametrize("by", ["hybrid", "bm25"])
def test_answer_cites_selected_sentence(settings: dict[str, Any], by: str) -> None:
    answer = answer_of(pipeline_of(by=by, **settings))
    assert (answer.state, answer.text) == ("answered", f"{CLAIM} [1]")
    (citation,) = answer.citations
    assert (citation.quotation, citation.start) == (SENTENCES[1], 100 + PASSAGES[0].text.index(SENTENCES[1]))
    assert answer.claims[0].citations == (1,)
    assert notices_of(answer) == []


def test_answer_without_encoder_cites_sentence_selected_by_ranker() -> None:
    answer = answer_of(pipeline_of(None, by="bm25"))
    assert answer.citations[0].quotation == SENTENCES[1]
    assert notices_of(answer) == []
    (started,) = [event for event in answer.trace if isinstance(event, AnswerStarted)]
    assert (started.sentences, started.selected_by) == (3, "ranker")


def test_trace_of_rotated_prompts_says_once_what_selected_the_sentences() -> None:
    answer = answer_of(pipeline_of(rotations=2))
    (started,) = [event for event in answer.trace if isinstance(event, AnswerStarted)]
    assert (started.documents, started.sentences, started.selected_by) == (2, 6, "ranker")


def test_trace_says_what_selected_sentences_of_each_part() -> None:
    answer = answer_of(pipeline_of(strategy="brief-context", partition=1))
    parts = [event for event in answer.trace if isinstance(event, MapStarted)]
    assert [(part.sentences, part.selected_by) for part in parts] == [(3, "ranker"), (3, "ranker")]
    (started,) = [event for event in answer.trace if isinstance(event, AnswerStarted)]
    assert (started.stage, started.sentences, started.selected_by) == ("reduce", 1, None)


def test_parts_of_given_ranking_offer_their_own_sentences() -> None:
    """A map call must not be offered sentences of the other parts."""
    ranking = Ranking(tuple(Hit(passage, 1.0, rank) for rank, passage in enumerate(PASSAGES)), "given")
    answer = answer_of(pipeline_of(strategy="brief-context", partition=1), ranking=ranking)
    assert [partial.state for partial in answer.partials] == ["relevant", "nothing"]
    assert answer.citations[0].quotation == SENTENCES[1]


def test_library_is_needed_only_for_encoder() -> None:
    """Recorded evidence without a library has no encoder."""
    ranking = Ranking((Hit(PASSAGES[0], 1.0, 0),), "given")
    settings = Settings(strategy="rag", citing="numbers")
    pipeline = Pipeline(settings, dict.fromkeys(ROLES, ScriptedModel(reply)))
    assert answer_of(pipeline, ranking=ranking).citations[0].quotation == SENTENCES[1]


def test_recipe_names_numbers_only_where_they_change_replies() -> None:
    models = dict.fromkeys(ROLES, ScriptedModel(reply))
    numbered = Pipeline(Settings(), models).recipe()
    assert numbered == Pipeline(Settings(citing="numbers"), models).recipe()
    assert numbered["settings"]["citing"] == "numbers"
    assert len(numbered["numbered_prompts"]) == 12
    quoted = Pipeline(Settings(citing="quotes"), models).recipe()
    assert quoted["settings"]["citing"] == "quotes"
    assert "numbered_prompts" not in quoted
    assert quoted["prompts"] == numbered["prompts"]


def test_recipe_names_words_where_no_encoder_selects_sentences() -> None:
    assert "sentences_by" not in describe_optional_prompts(Settings(), pipeline_of().search)
    assert describe_optional_prompts(Settings(), pipeline_of(None).search)["sentences_by"] == "words"
    assert describe_optional_prompts(Settings(citing="quotes"), pipeline_of(None).search) == {}


@pytest.mark.parametrize("settings", [{"strategy": "rag", "by": "bm25"}, {"strategy": "full-context"}])
def test_numbered_sentences_open_no_encoder(settings: dict[str, Any], tmp_path: Path) -> None:
    """The encoder of this library is not installed."""
    with library(tmp_path / "library", [Document("d", SENTENCES[1], title="Aspirin")]) as store:
        path = store.path
    made = Settings.model_validate({"models": {"writer": {"name": "http://127.0.0.1:9/v1#m"}}, **settings})
    with closing_pipeline(Pipeline.open(made, path)) as pipeline:
        assert pipeline.settings.citing == "numbers"
        assert pipeline.recipe()["sentences_by"] == "words"


def test_source_has_study_type_of_unquoted_passage() -> None:
    """The type is in the words of the first passage, and the quotation in the second."""
    methods = "We randomised 200 people to aspirin or placebo."
    first = Passage(id="d#0", document_id="d", ordinal=0, start=0, end=len(methods), text=methods, title="On aspirin")
    second = replace(first, id="d#1", ordinal=1, start=100, end=100 + len(SENTENCES[1]), text=SENTENCES[1])
    ranking = Ranking((Hit(first, 1.0, 0), Hit(second, 0.5, 1)), "given")
    (citation,) = answer_of(pipeline_of(), ranking=ranking).citations
    assert citation.passage_id == "d#1"
    assert citation.reference.study is not None
    assert (citation.reference.study.label, citation.reference.study.basis) == (
        "randomised trial (by its abstract)",
        "abstract",
    )


def test_claims_are_recorded_and_read_back(tmp_path: Path) -> None:
    answer = answer_of(pipeline_of())
    path = tmp_path / "records.jsonl"
    RecordStore(path, {"model": "m"}).append_answer(answer, {})
    (record,) = read_records(path)
    assert record.answer.claims == answer.claims
    row = json.loads(path.read_text())
    assert row["answer"]["claims"][0]["text"] == CLAIM
    del row["answer"]["claims"]
    path.write_text(json.dumps(row) + "\n")
    (record,) = read_records(path)
    assert record.answer.claims == ()


@pytest.mark.parametrize("form", ["open", "choice", "extractive"])
@pytest.mark.parametrize(("strategy", "calls"), [("rag", 1), ("brief-context", 3)])
def test_plan_requests_each_prompt_once(strategy: str, calls: int, form: Any) -> None:
    options = {"A": "yes", "B": "no"} if form == "choice" else {}
    pipeline = pipeline_of(strategy=strategy, partition=1)
    question = Question(QUESTION.text, options=options, form=form, id="1")
    plan = asyncio.run(plan_questions(pipeline, pipeline.settings, [question], [strategy]))
    (row,) = plan.strategies
    assert (row.calls.expected, row.calls.most) == (calls, calls)
