"""A patient is an access boundary: whatever is asked, and however, no word of another patient's notes is sent.

Every strategy there is runs over records that are as alike as can be; a model keeps every prompt. Leaks are planted to
see that they would be found.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from epicrisis.answering.strategy import list_strategies
from epicrisis.core.answers import Answer
from epicrisis.core.errors import InputError, ScopeViolation
from epicrisis.core.prompts import fence_passages
from epicrisis.core.protocols import ChatModel, ChatRequest, ScoredId, Vectors, fetch_all
from epicrisis.core.serialization import to_json
from epicrisis.core.strategy_names import list_strategy_names
from epicrisis.core.types import Hit, Passage, Question, Ranking, Scope
from epicrisis.library.core.passage_lookup import read_document_passages, sample_passages
from epicrisis.models.chat.cache import ReplyCache
from epicrisis.models.chat.loading import add_layers
from epicrisis.pipeline.components import ExampleSearch, LibrarySearch
from epicrisis.pipeline.overrides import NO_OVERRIDES, RunOverrides
from epicrisis.pipeline.pipeline import Pipeline
from epicrisis.pipeline.recording.runner import RecordStore, answer_questions
from epicrisis.retrieval.retriever import Retriever
from epicrisis.settings.settings import ROLES, ModelSettings, Settings
from epicrisis.testing.chat import ScriptedModel
from epicrisis.testing.stores import MemoryStore, build_stored_document
from tests.support.patient_records import (
    ENCODER,
    LITERATURE,
    PATIENTS,
    SHARED,
    Seen,
    examples,
    find_words,
    looked_at,
    question,
    recorder,
    ward,
    word,
)
from tests.support.replies import fill

ALL = range(len(PATIENTS))
FEW = (0, 1, 2, 3, 6)
READING = [strategy.name for strategy in list_strategies() if strategy.needs_library]
WAYS = [
    (strategy, by, unit)
    for strategy in list_strategy_names()
    for by in ("hybrid", "dense", "bm25")
    for unit in ("chunk", "note")
    if strategy in READING or (by, unit) == ("hybrid", "chunk")
]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LibrarySearch]:
    with ward(tmp_path_factory.mktemp("plain")) as opened:
        yield opened


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExampleSearch]:
    found = examples(tmp_path_factory.mktemp("examples"))
    with found.search:
        yield found


def asked(
    opened: LibrarySearch,
    questions: Sequence[Question],
    *,
    examples: ExampleSearch | None = None,
    model: ChatModel | None = None,
    treatment: RunOverrides = NO_OVERRIDES,
    **settings: Any,
) -> list[Answer]:
    """The questions' answers, all asked at once."""

    if settings.get("strategy") == "full-context":
        settings.pop("order", None)  # It ranks nothing, and refuses to be told.

    async def run() -> list[Answer]:
        made = Settings.model_validate({"k": 30, "refine": {"drafts": 2, "rounds": 1}, "votes": {"n": 2}, **settings})
        roles = dict.fromkeys(ROLES, model or recorder())
        async with Pipeline(made, roles, opened, examples) as pipeline:
            return list(await asyncio.gather(*(pipeline.answer(each, overrides=treatment) for each in questions)))

    return asyncio.run(run())


def seen(opened: LibrarySearch, patients: Sequence[int], **settings: Any) -> Seen:
    """What stood in the prompts of a question of each of these patients, or in the answers without a model."""
    model = recorder(settings.pop("context_tokens", 1_000_000))
    answers = asked(opened, [question(number) for number in patients], model=model, **settings)
    if settings.get("strategy") == "evidence":
        assert model.requests == []
        return find_words(json.dumps(to_json(answer)) for answer in answers)
    assert model.requests, "something was sent"
    return looked_at(model.requests)


# -- every way of asking --------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("strategy", "by", "unit"), WAYS)
def test_strategies_send_no_text_of_other_patients(
    strategy: str, by: str, unit: str, plain: LibrarySearch, shown: ExampleSearch
) -> None:
    patients = ALL if (by, unit) == ("hybrid", "chunk") else FEW
    found = seen(plain, patients, strategy=strategy, by=by, unit=unit, examples=shown)
    assert found.leaks == []
    assert found.own == (set(patients) if strategy in READING else set())


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {"preflight": {"enabled": False}},
        {"preflight": {"signal": "dense-gap", "threshold": 9.0}},
        {"preflight": {"threshold": 0.0}},
        {"order": "rank", "partition": 2},
        {"order": "time", "unit": "note", "note_tokens": 60},
        {"fusion_times": 2},
        {"scope": {"as_of": "2150-02"}},
    ],
)
@pytest.mark.parametrize("strategy", READING)
def test_settings_do_not_admit_other_patients(strategy: str, settings: dict[str, Any], plain: LibrarySearch) -> None:
    found = seen(plain, FEW, strategy=strategy, **settings)
    assert (found.leaks, found.own) == ([], set(FEW))


@pytest.mark.slow
@pytest.mark.parametrize("way", ["fused", "reranked", "beside"])
def test_other_library_and_reranker_do_not_admit_other_patients(way: str, tmp_path: Path) -> None:
    with ward(tmp_path, **{way: True}) as opened:
        for strategy, unit in (("rag", "chunk"), ("rag", "note"), ("brief-context", "chunk"), ("full-context", "note")):
            found = seen(opened, FEW, strategy=strategy, unit=unit)
            assert (found.leaks, found.own) == ([], set(FEW))


@pytest.mark.slow
def test_segmented_question_reads_only_its_patient(plain: LibrarySearch) -> None:
    model = recorder()
    long = [question(n, " " + "and the stroke of the patient. " * 30) for n in FEW]
    answers = asked(plain, long, model=model, strategy="rag", by="dense")
    assert all("segments" in json.dumps(to_json(answer.trace)) for answer in answers)
    assert (looked_at(model.requests).leaks, looked_at(model.requests).own) == ([], set(FEW))


@pytest.mark.slow
def test_prompt_over_window_is_split_within_patient(plain: LibrarySearch) -> None:
    model = recorder(context_tokens=700)
    many: dict[str, Any] = {"strategy": "brief-context", "preflight": {"enabled": False}, "partition": 9}
    answers = asked(plain, [question(number) for number in FEW], model=model, **many)
    assert "re-partitioned" in str([answer.trace for answer in answers])
    assert (looked_at(model.requests).leaks, looked_at(model.requests).own) == ([], set(FEW))


def test_question_without_patient_reads_literature_and_no_notes(plain: LibrarySearch) -> None:
    model = recorder()
    nobody = Question("Which drug was given for stroke (case 11z)?", options={"A": "x", "B": "y"}, form="choice")
    asked(plain, [nobody], model=model, strategy="rag")
    found = looked_at(model.requests)
    assert (found.leaks, found.own) == ([], {LITERATURE})


# -- runs -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_concurrent_run_keeps_patients_apart(plain: LibrarySearch, tmp_path: Path) -> None:
    model = recorder()
    questions = [question(number, f" {turn}") for turn in range(2) for number in ALL]

    async def run() -> int:
        settings = Settings(strategy="brief-context", k=12)
        async with Pipeline(settings, dict.fromkeys(ROLES, model), plain) as pipeline:
            records = RecordStore(tmp_path / "records.jsonl", pipeline.recipe())
            return len([each async for each in answer_questions(pipeline, questions, records, concurrency=8)])

    assert asyncio.run(run()) == len(questions)
    assert (looked_at(model.requests).leaks, looked_at(model.requests).own) == ([], set(ALL))
    for line in (tmp_path / "records.jsonl").read_text(encoding="utf-8").splitlines():
        (number,) = [each for each in ALL if f"case {each}z" in line]
        assert not [other for other in ALL if other != number and word(other) in line]


def echo(request: ChatRequest) -> str:
    """Says which of the patients' words it was shown."""
    told = " ".join(word(number) for number in ALL if word(number) in request.messages[-1].content) or "nothing"
    return json.dumps(fill(request.schema or {}, {"found": True, "quotes": []}, told))


@pytest.mark.slow
def test_cached_reply_is_not_reused_for_other_patient(plain: LibrarySearch, tmp_path: Path) -> None:
    """The same words are asked of all; the prompts differ by the notes, and so does where a reply is kept."""
    text = "Which drug was given for stroke, says the discharge summary?"
    questions = [Question(text, id="same", patient=patient) for patient in PATIENTS]
    inner = ScriptedModel(echo)
    cache = ReplyCache(tmp_path / "replies.sqlite")
    model = add_layers(inner, ModelSettings(name="scripted"), cache=cache)
    first = asked(plain, questions, model=model, strategy="rag", k=3, scope={"hide": ["paper:0"]}, unverified="keep")
    paid = len(inner.requests)
    again = asked(plain, questions, model=model, strategy="rag", k=3, scope={"hide": ["paper:0"]}, unverified="keep")
    cache.close()
    assert len(inner.requests) == paid, "all replies were kept"
    assert len({request.messages for request in inner.requests}) == len(PATIENTS)
    for answers in (first, again):
        assert [answer.text for answer in answers] == [f"{word(number)} [1]" for number in ALL]


def test_patients_with_equal_text_share_cached_reply(tmp_path: Path) -> None:
    """The one prompt that two patients can have in common is one of the same words throughout."""
    store = MemoryStore()
    for name in ("anna", "bert"):
        store.add(
            [
                build_stored_document(
                    f"n:{name}", SHARED, patient=name, vectors=ENCODER.encode_queries([SHARED]).tolist()
                )
            ]
        )
    prompts = {
        fence_passages(store.fetch_record(Scope(patient=name)), Scope(patient=name)) for name in ("anna", "bert")
    }
    (prompt,) = prompts
    assert not [name for name in ("anna", "bert") if name in prompt]


# -- what no search looks for ---------------------------------------------------------------------------------------


def test_records_lookups_and_samples_contain_only_patient(plain: LibrarySearch) -> None:
    library = plain.library
    everything = {p.id for patient in PATIENTS for p in library.fetch_record(Scope(patient=patient))}
    assert library.fetch_record(Scope()) == ()
    for number, patient in enumerate(PATIENTS):
        scope = Scope(patient=patient)
        record = library.fetch_record(scope)
        assert {passage.patient for passage in record} == {patient}
        assert len({passage.document_id for passage in record}) == 4
        assert {passage.patient for passage in sample_passages(library, 10_000, number, scope)} <= {None, patient}
        foreign = sorted(everything - {passage.id for passage in record})
        assert read_document_passages(library, [each.rpartition("#")[0] for each in foreign], scope).keys() == set()
        for id_ in foreign[:: len(foreign) // 5]:
            assert library.fetch([id_], scope) == ()
            with pytest.raises(InputError, match="no passage"):
                fetch_all(library, [id_], scope)


def ranking_of(patient: str, library: Any) -> Ranking:
    record = library.fetch_record(Scope(patient=patient))
    return Ranking(tuple(Hit(passage, 1.0, rank) for rank, passage in enumerate(record)), "dense")


@pytest.mark.parametrize("strategy", ["rag", "brief-context"])
def test_ranking_of_other_patient_is_rejected_without_request(strategy: str, plain: LibrarySearch) -> None:
    model = recorder()
    treatment = RunOverrides(options={"strategy": strategy}, ranking=ranking_of(PATIENTS[1], plain.library))
    with pytest.raises(ScopeViolation, match="nothing was sent"):
        asked(plain, [question(0)], model=model, treatment=treatment)
    assert model.requests == []


# -- planted leaks --------------------------------------------------------------------------------------------------


class Leaky(MemoryStore):
    """Whoever searches sees all."""

    everybody: tuple[Passage, ...] = ()

    def search_vectors(self, vector: Vectors, k: int, scope: Scope) -> tuple[ScoredId, ...]:
        return tuple(ScoredId(passage.id, 1.0) for passage in self.everybody[:k])

    def fetch(self, passage_ids: Sequence[str], scope: Scope) -> tuple[Passage, ...]:
        return tuple(passage for passage in self.everybody if passage.id in passage_ids)

    def search_words(
        self, query: str, k: int, scope: Scope, within: Sequence[str] | None = None
    ) -> tuple[ScoredId, ...]:
        return self.search_vectors(ENCODER.encode_queries([query])[0], k, scope)

    def fetch_record(self, scope: Scope) -> tuple[Passage, ...]:
        return self.everybody


@pytest.fixture
def leaky(plain: LibrarySearch) -> LibrarySearch:
    store = Leaky()
    store.everybody = tuple(p for patient in PATIENTS for p in plain.library.fetch_record(Scope(patient=patient)))
    return LibrarySearch(plain.library, Retriever(store, ENCODER), rosters=plain.rosters)


@pytest.mark.parametrize("strategy", READING)
def test_leaking_search_is_stopped_before_request(strategy: str, leaky: LibrarySearch) -> None:
    model = recorder()
    with pytest.raises(ScopeViolation):
        asked(leaky, [question(0)], model=model, strategy=strategy, order="rank", preflight={"enabled": False})
    assert model.requests == []


@pytest.mark.parametrize("strategy", READING)
def test_leak_is_detected_by_these_tests(strategy: str, leaky: LibrarySearch, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the second check off as well another patient's words are in the prompts, and are seen there."""
    monkeypatch.setattr(Scope, "admits", lambda self, passage: True)
    found = seen(leaky, [0], strategy=strategy, order="rank", preflight={"enabled": False})
    assert (0, 1) in found.leaks


def test_library_without_filter_is_detected(plain: LibrarySearch, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the two checks alone holds; with neither the words are found."""
    switches: dict[str, Callable[[], None]] = {
        "filter": lambda: monkeypatch.setattr(
            "epicrisis.library.engines.vector_matrix.VectorMatrix.nearest", _unfiltered
        ),
        "fence": lambda: monkeypatch.setattr(Scope, "admits", lambda self, passage: True),
    }
    switches["filter"]()
    model = recorder(1_000_000)
    asked(plain, [question(0)], model=model, strategy="rag", by="dense")
    assert model.requests == [], "the notes of others that the search found are dropped when they are fetched"
    monkeypatch.undo()
    switches["fence"]()
    assert seen(plain, [0], strategy="rag", by="dense").leaks == []
    switches["filter"]()
    assert seen(plain, [0], strategy="rag", by="dense").leaks != []


def _unfiltered(matrix: Any, vector: Vectors, k: int, scope: Scope) -> list[tuple[str, float]]:
    return [(str(id_), 0.0) for id_ in matrix.ids[:k]]
