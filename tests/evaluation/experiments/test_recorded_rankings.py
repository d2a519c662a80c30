"""Test recorded rankings, resuming, and the leak guards, over the store in memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from epicrisis.core.errors import InputError, ModelMissing, StorageError
from epicrisis.core.protocols import Encoder, StoredDocument
from epicrisis.core.types import CountUnit, Document, Passage, Question, Ranking, Scope, SearchMode, SignalKind
from epicrisis.evaluation.experiments.passage_source import rank_candidates
from epicrisis.evaluation.experiments.preflight_rules import signal_value
from epicrisis.evaluation.experiments.recorded_rankings import (
    Guard,
    QuestionRankings,
    Rankers,
    RankingStore,
    guard_scope,
    open_rankers,
    rank_question,
    read_rankings,
    record_rankings,
)
from epicrisis.library.write.ingest import add_documents, open_or_create
from epicrisis.retrieval.preflight import Signal
from epicrisis.retrieval.retriever import Retriever
from epicrisis.settings.configuration import load_settings
from epicrisis.testing.hashing_encoder import HashingEncoder
from epicrisis.testing.scorers import TermOverlapReranker
from epicrisis.testing.stores import MemoryStore

TEXTS = {
    "stroke": ("2015-06-30", "Aspirin prevents stroke in adults with atrial fibrillation."),
    "older": ("2012", "Aspirin and stroke in adults, a trial."),
    "bleeding": ("2016", "Warfarin causes bleeding, and aspirin causes less bleeding."),
    "asthma": ("2011-03", "Inhaled steroids help children with asthma."),
    "undated": (None, "Colchicine shortens an attack of gout; does aspirin?"),
}
QUESTION = Question("Does aspirin prevent stroke?", id="1", gold_documents=("stroke", "absent", "stroke"))
SECOND = Question("Do steroids help in asthma?", id="2", gold_documents=("asthma",))
THIRD = Question("Does colchicine shorten gout?", id="3", gold_documents=("undated",))
RECIPE = {"library": "l", "depth": 4}


@dataclass(frozen=True, eq=False)
class Counting(Retriever):
    """Notes what was searched."""

    asked: list[str] = field(default_factory=list)

    def rank(
        self, text: str, k: int, by: SearchMode, scope: Scope, words: Callable[[int], Ranking] | None = None
    ) -> Ranking:
        self.asked.append(text)
        return super().rank(text, k, by, scope, words)

    def pool(self, text: str, k: int, by: SearchMode, scope: Scope) -> Ranking:
        self.asked.append(text)
        return super().pool(text, k, by, scope)


@pytest.fixture
def store() -> MemoryStore:
    encoder, result = HashingEncoder(), MemoryStore()
    for name, (date, text) in TEXTS.items():
        passage = Passage(id=f"{name}#0", document_id=name, ordinal=0, start=0, end=len(text), text=text, date=date)
        result.add([StoredDocument(name, "sha", (passage,), encoder.encode_passages([("", text)]))])
    return result


@pytest.fixture
def rankers(store: MemoryStore) -> Rankers:
    return Rankers(retriever=Counting(store, HashingEncoder()), store=store, depth=4)


def list_searches(rankers: Rankers) -> list[str]:
    assert isinstance(rankers.retriever, Counting)
    return rankers.retriever.asked


def collect(found: Iterator[tuple[Question, QuestionRankings | None]]) -> list[QuestionRankings | None]:
    return [item for _, item in found]


# -- one question -----------------------------------------------------------------------------------------------------


def test_rank_question_equals_searches(rankers: Rankers, store: MemoryStore) -> None:
    question = rank_question(QUESTION, "set", replace(rankers, count="passages"), Scope())
    dense = rankers.retriever.rank(QUESTION.text, 4, "dense", Scope())
    assert question.dense == tuple((hit.passage.id, hit.score) for hit in dense.hits)
    words = store.search_words(QUESTION.text, 4, Scope(), within=dense.ids)
    assert question.bm25 == tuple((hit.id, hit.score) for hit in words)
    assert {name for name, _ in question.bm25} == {name for name, _ in question.dense}
    by_candidates = rank_candidates(QUESTION, dense.passages)
    assert question.candidate_bm25 == tuple(by_candidates)
    assert [score for _, score in by_candidates] == sorted((score for _, score in by_candidates), reverse=True)
    assert sorted(name for name, _ in by_candidates) == sorted(dense.ids), "every candidate is ranked"
    assert question.read == dense.ids
    assert question.reranked is None
    assert (question.key, question.dataset) == (QUESTION.key, "set")
    assert (question.gold, question.held) == (("stroke", "absent", "stroke"), ("stroke",))


def test_rank_question_reads_ranking_of_settings(store: MemoryStore) -> None:
    retriever = Retriever(store, HashingEncoder())
    question = rank_question(QUESTION, "set", Rankers(retriever=retriever, store=store, by="hybrid", depth=5), Scope())
    assert question.read == retriever.rank(QUESTION.text, 5, "hybrid", Scope()).ids
    assert question.read != tuple(name for name, _ in question.dense)


def test_rank_question_with_reranker_reorders_same_hits(store: MemoryStore) -> None:
    retriever = Retriever(store, HashingEncoder())
    rankers = Rankers(retriever=retriever, store=store, reranker=("overlap", TermOverlapReranker()), depth=5)
    question = rank_question(QUESTION, "set", rankers, Scope())
    assert question.reranked is not None
    assert {name for name, _ in question.reranked} == {name for name, _ in question.dense}
    assert question.read == tuple(name for name, _ in question.reranked)
    assert [score for _, score in question.reranked] == sorted((score for _, score in question.reranked), reverse=True)


def test_at_depth_equals_ranking_recorded_with_that_depth(store: MemoryStore) -> None:
    retriever = Retriever(store, HashingEncoder())
    deep, shallow = (
        rank_question(
            QUESTION,
            "set",
            Rankers(
                retriever=retriever, store=store, reranker=("o", TermOverlapReranker()), depth=depth, count="passages"
            ),
            Scope(),
        )
        for depth in (5, 2)
    )
    cut = deep.at_depth(2)
    assert (cut.dense, cut.bm25, cut.reranked) == (shallow.dense, shallow.bm25, shallow.reranked)
    assert deep.at_depth(9) == deep


# -- counted by document ----------------------------------------------------------------------------------------------

PARTS = {
    name: [f"{word} {name}" for word in words.split()]
    for name, words in {
        "a": "aspirin aspirin stroke",
        "b": "stroke aspirin",
        "c": "aspirin other other other other other",
        "d": "stroke",
        "e": "aspirin stroke aspirin",
        "f": "gout",
    }.items()
}


@pytest.fixture
def chunked_store() -> MemoryStore:
    encoder, result = HashingEncoder(), MemoryStore()
    for name, texts in PARTS.items():
        passages = tuple(
            Passage(id=f"{name}#{i}", document_id=name, ordinal=i, start=0, end=len(text), text=text)
            for i, text in enumerate(texts)
        )
        vectors = encoder.encode_passages([("", text) for text in texts])
        result.add([StoredDocument(name, "sha", passages, vectors)])
    return result


@pytest.mark.parametrize("kind", ["overlap", "rank-biased-overlap", "dense-gap", "bm25-gap", "reranker-overlap"])
@pytest.mark.parametrize("count", ["documents", "passages"])
@pytest.mark.parametrize("depth", [2, 4])
def test_recorded_signal_equals_pipeline_verdict(
    chunked_store: MemoryStore, kind: SignalKind, count: CountUnit, depth: int
) -> None:
    reranker = ("overlap", TermOverlapReranker())
    rankers = Rankers(
        retriever=Retriever(chunked_store, HashingEncoder()),
        store=chunked_store,
        reranker=reranker,
        depth=6,
        count=count,
    )
    question = replace(QUESTION, text="aspirin stroke", gold_documents=("d",))
    item = rank_question(question, "set", rankers, Scope())
    in_use = Retriever(chunked_store, HashingEncoder(), reranker=reranker)
    verdict = in_use.preflight(question.text, Scope(), signal=kind, n=3, threshold=0.1, depth=depth, count=count)
    assert signal_value(Signal(kind, 3), item, depth) == verdict.value


def test_documents_read_counts_documents_not_passages(chunked_store: MemoryStore) -> None:
    rankers = Rankers(retriever=Retriever(chunked_store, HashingEncoder()), store=chunked_store, depth=6)
    question = rank_question(replace(QUESTION, text="aspirin"), "set", rankers, Scope())
    documents = question.documents_read(4)
    assert len(set(documents)) == len(documents) == 4
    read = rankers.retriever.documents("aspirin", 4, "dense", Scope())
    assert documents == list(dict.fromkeys(passage.document_id for passage in read.passages))
    assert set(question.passages_read(4)) == set(read.ids)
    by_passages = replace(question, count="passages")
    assert by_passages.passages_read(4) == list(question.read[:4])
    assert len(by_passages.documents_read(4)) == 4
    assert question.at_depth(2).at_depth(2) == question.at_depth(2)


def test_rankings_without_count_are_read_by_passages(tmp_path: Path, rankers: Rankers) -> None:
    path = tmp_path / "old.jsonl"
    collect(record_rankings([QUESTION], "set", replace(rankers, count="passages"), RankingStore(path, RECIPE)))
    line = json.loads(path.read_text())
    assert line.pop("count") == "passages"
    path.write_text(json.dumps(line) + "\n")
    (ranking,) = read_rankings(path)[1]
    assert ranking.count == "passages"
    with pytest.raises(InputError, match=r"made with other settings \(count\)"):
        RankingStore(path, {**RECIPE, "count": "documents"})


# -- guards -----------------------------------------------------------------------------------------------------------


def test_guard_scope_hides_source_documents(rankers: Rankers) -> None:
    scope = guard_scope(QUESTION, "source-hidden", Scope(hidden=frozenset({"asthma"})), rankers.store)
    assert scope == Scope(hidden=frozenset({"asthma", "stroke", "absent"}))
    question = rank_question(QUESTION, "set", rankers, scope)
    assert question.held == ()
    assert question.gold == QUESTION.gold_documents
    assert not {"stroke#0", "asthma#0"} & {name for name, _ in (*question.dense, *question.bm25)}


def test_guard_scope_before_source_excludes_its_date_and_later(rankers: Rankers) -> None:
    """A source of June 2015: the day before its first possible one; what has no date may be later."""
    scope = guard_scope(QUESTION, "before-source", Scope(), rankers.store)
    assert scope == Scope(as_of="2015-06-29")
    question = rank_question(QUESTION, "set", rankers, scope)
    assert {name for name, _ in question.dense} == {"older#0", "asthma#0"}
    assert guard_scope(SECOND, "before-source", Scope(), rankers.store) == Scope(as_of="2011-02-28")


@pytest.mark.parametrize(
    ("question", "scope"),
    [(THIRD, Scope()), (Question("?", gold_documents=("absent",)), Scope()), (QUESTION, Scope(as_of="2013"))],
)
def test_guard_scope_before_source_without_date_returns_none(
    rankers: Rankers, question: Question, scope: Scope
) -> None:
    assert guard_scope(question, "before-source", scope, rankers.store) is None


def test_guard_scope_none_returns_scope_unchanged(rankers: Rankers) -> None:
    scope = Scope(as_of="2015")
    assert guard_scope(QUESTION, "none", scope, rankers.store) is scope


def test_guard_scope_before_several_sources_uses_earliest(rankers: Rankers) -> None:
    both = Question("?", gold_documents=("stroke", "asthma", "undated"))
    assert guard_scope(both, "before-source", Scope(), rankers.store) == Scope(as_of="2011-02-28")


# -- the file ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("guard", ["none", "source-hidden"])
def test_record_rankings_resumes_without_ranking_twice(tmp_path: Path, rankers: Rankers, guard: Guard) -> None:
    path, complete_path = tmp_path / "part.jsonl", tmp_path / "whole.jsonl"
    questions = [QUESTION, SECOND, THIRD]
    unbroken = collect(record_rankings(questions, "set", rankers, RankingStore(complete_path, RECIPE), guard))
    next(record_rankings(questions, "set", rankers, RankingStore(path, RECIPE), guard))
    with path.open("ab") as file:
        file.write(complete_path.read_bytes().splitlines()[1][:50])
    list_searches(rankers).clear()
    again = collect(record_rankings(questions, "set", rankers, RankingStore(path, RECIPE), guard))
    assert list_searches(rankers) == [SECOND.text, THIRD.text]
    assert again == unbroken
    assert path.read_bytes() == complete_path.read_bytes()
    recipe, saved = read_rankings(path)
    assert list(saved) == unbroken
    assert recipe == {"schema_version": 1, **RECIPE}


def test_record_rankings_yields_none_for_question_without_date(tmp_path: Path, rankers: Rankers) -> None:
    file = RankingStore(tmp_path / "r.jsonl", RECIPE)
    result = collect(record_rankings([QUESTION, THIRD], "set", rankers, file, "before-source"))
    assert [item is None for item in result] == [False, True]
    assert list(file.recorded) == [QUESTION.key]


def test_ranking_store_with_other_recipe_raises_input_error(tmp_path: Path, rankers: Rankers) -> None:
    path = tmp_path / "r.jsonl"
    collect(record_rankings([QUESTION], "set", rankers, RankingStore(path, RECIPE)))
    with pytest.raises(InputError, match=r"made with other settings \(depth, guard\)"):
        RankingStore(path, {"library": "l", "depth": 5, "guard": "none"})


@pytest.mark.parametrize(
    "line",
    [
        "{}",
        '{"recipe": {}}',
        '{"recipe": {}, "key": 1, "dense": [["a"]], "bm25": [], "reranked": null}',
    ],
)
def test_ranking_store_with_other_file_names_line(tmp_path: Path, line: str) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(line + "\n")
    for read in (lambda: RankingStore(path, RECIPE), lambda: read_rankings(path)):
        with pytest.raises(InputError, match=r"line 1, does not belong to a file of rankings"):
            read()


def test_read_rankings_with_unknown_field_raises_input_error(tmp_path: Path, rankers: Rankers) -> None:
    path = tmp_path / "r.jsonl"
    collect(record_rankings([QUESTION], "set", rankers, RankingStore(path, RECIPE)))
    path.write_text(json.dumps({**json.loads(path.read_text()), "verdict": True}) + "\n")
    with pytest.raises(InputError, match="does not belong to a file of rankings"):
        read_rankings(path)


def test_read_rankings_of_missing_or_empty_file_raises_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_rankings(tmp_path / "none.jsonl")
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(InputError, match="is empty: record some"):
        read_rankings(tmp_path / "empty.jsonl")


def test_record_rankings_to_unwritable_path_raises_storage_error(tmp_path: Path, rankers: Rankers) -> None:
    file = RankingStore(tmp_path / "r.jsonl", RECIPE)
    (tmp_path / "r.jsonl").mkdir()
    with pytest.raises(StorageError, match="cannot be written"):
        collect(record_rankings([QUESTION], "set", rankers, file))


# -- a library on disk ------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.models
def test_open_rankers_reads_library_and_settings(tmp_path: Path, model_home: Path, encoder: Encoder) -> None:
    path = tmp_path / "library"
    with open_or_create(path, encoder, "minilm") as result:
        add_documents(result, [Document(name, text, date=date) for name, (date, text) in TEXTS.items()], encoder)
    asked = {"by": "hybrid", "strategy": "rag", "preflight": {"enabled": False}, "count": "passages"}
    settings = load_settings({"home": str(model_home), **asked})
    with open_rankers(settings, path, "source-hidden", depth=3) as (rankers, recipe):
        file = RankingStore(tmp_path / "r.jsonl", recipe)
        (item,) = collect(record_rankings([QUESTION], "set", rankers, file, "source-hidden"))
        assert item is not None
        assert (rankers.by, rankers.depth, rankers.reranker) == ("hybrid", 3, None)
        assert recipe["library"] == rankers.store.manifest.library_id  # type: ignore[attr-defined]
    assert {name: recipe[name] for name in ("by", "guard", "depth", "passages", "encoder", "reranker")} == {
        "by": "hybrid",
        "guard": "source-hidden",
        "depth": 3,
        "passages": 5,
        "encoder": encoder.fingerprint,
        "reranker": None,
    }
    assert len(item.dense) == len(item.read) == 3
    assert "stroke#0" not in item.read
    assert read_rankings(tmp_path / "r.jsonl")[1] == (item,)


@pytest.mark.slow
@pytest.mark.models
def test_open_rankers_without_reranker_model_raises_model_missing(
    tmp_path: Path, model_home: Path, encoder: Encoder
) -> None:
    with open_or_create(tmp_path / "library", encoder, "minilm"):
        pass
    settings = load_settings({"home": str(model_home), "rerank": {"name": "no-such-reranker"}})
    with pytest.raises(ModelMissing), open_rankers(settings, tmp_path / "library"):
        pass
