"""The retriever over the store in memory and the hashing encoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

import numpy as np
import pytest

from epicrisis.core.protocols import ScoredId, StoredDocument, Vectors
from epicrisis.core.types import Passage, Ranking, Scope, SearchMode, SignalKind
from epicrisis.corpus.base.chunking import find_sentences
from epicrisis.retrieval.id_rankings import SearchableStore
from epicrisis.retrieval.preflight import BM25_SIGNALS, Signal, measure_signal, score_gap
from epicrisis.retrieval.rankings import format_for_reranker, reciprocal_rank_fusion, rerank
from epicrisis.retrieval.retriever import Retriever
from epicrisis.testing.hashing_encoder import HashingEncoder
from epicrisis.testing.scorers import TermOverlapReranker
from epicrisis.testing.stores import MemoryStore

EVERYTHING = Scope()
TEXTS = {
    "stroke": "Aspirin prevents stroke in adults with atrial fibrillation.",
    "bleeding": "Warfarin causes bleeding, and aspirin causes less bleeding.",
    "asthma": "Inhaled steroids help children with asthma.",
    "gout": "Colchicine shortens an attack of gout.",
    "note": "The patient takes aspirin since her stroke.",
}
QUESTION = "Does aspirin prevent stroke?"


def store_of(texts: dict[str, str], encoder: HashingEncoder) -> MemoryStore:
    """One document of one passage a text; `note` is patient p1's."""
    store = MemoryStore()
    for name, text in texts.items():
        patient = "p1" if name == "note" else None
        passage = Passage(
            id=f"{name}#0", document_id=name, ordinal=0, start=0, end=len(text), text=text, date="2015", patient=patient
        )
        store.add([StoredDocument(name, "sha", (passage,), encoder.encode_passages([("", text)]))])
    return store


@pytest.fixture
def retriever() -> Retriever:
    encoder = HashingEncoder()
    return Retriever(store_of(TEXTS, encoder), encoder)


def check_ranking(ranking: Ranking) -> None:
    assert [hit.rank for hit in ranking.hits] == list(range(len(ranking.hits)))
    keys = [(-hit.score, hit.passage.id) for hit in ranking.hits]
    assert keys == sorted(keys)


@pytest.mark.parametrize("by", ["dense", "bm25", "hybrid"])
def test_search_mode_ranks_relevant_passage_first(retriever: Retriever, by: SearchMode) -> None:
    ranking = retriever.rank(QUESTION, 2, by, EVERYTHING)
    assert ranking.retriever == by
    assert ranking.ids[0] == "stroke#0"
    assert len(ranking.hits) == 2
    check_ranking(ranking)


@pytest.mark.parametrize("by", get_args(SearchMode))
def test_passage_deleted_after_search_is_left_out_with_note(by: SearchMode, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = HashingEncoder()
    store = store_of(TEXTS, encoder)
    fetch = store.fetch
    monkeypatch.setattr(store, "fetch", lambda ids, scope: fetch([id_ for id_ in ids if id_ != "stroke#0"], scope))
    ranking = Retriever(store, encoder).rank(QUESTION, 2, by, EVERYTHING)
    assert ranking.ids == ("bleeding#0",)
    assert any(note.startswith("1 passage that the search found was left out") for note in ranking.notes)


def test_ranking_names_method_and_scores(retriever: Retriever) -> None:
    fingerprint = HashingEncoder().fingerprint
    assert retriever.rank(QUESTION, 2, "bm25", EVERYTHING).parameters == {"k": 2}
    assert retriever.rank(QUESTION, 2, "dense", EVERYTHING).parameters == {"k": 2, "encoder": fingerprint}
    hybrid = {"k": 2, "encoder": fingerprint, "rrf_k": 60, "fusion_depth": 100, "fused": 2}
    assert retriever.rank(QUESTION, 2, "hybrid", EVERYTHING).parameters == hybrid
    assert retriever.rank(QUESTION, 101, "hybrid", EVERYTHING).parameters["fusion_depth"] == 101


@pytest.mark.parametrize("rrf_k", [1, 60])
def test_hybrid_is_fusion_of_dense_and_bm25(rrf_k: int) -> None:
    encoder = HashingEncoder()
    retriever = Retriever(store_of(TEXTS, encoder), encoder, rrf_k)
    lists = [retriever.rank(QUESTION, 100, by, EVERYTHING).ids for by in ("dense", "bm25")]
    fused = retriever.rank(QUESTION, 3, "hybrid", EVERYTHING)
    assert [(hit.passage.id, hit.score) for hit in fused.hits] == reciprocal_rank_fusion(lists, rrf_k)[:3]


def test_hybrid_fuses_more_hits_than_it_returns() -> None:
    """What is second in both lists beats what is first in one, also where only one passage is asked for."""
    encoder = _OneAxis()
    texts = {"a": "gout", "second": "aspirin pills", "first": "aspirin " * 9} | {
        f"x{i}": "y" * (20 + i) for i in range(3)
    }
    retriever = Retriever(store_of(texts, encoder), encoder)
    assert retriever.rank("aspirin", 2, "dense", EVERYTHING).ids == ("a#0", "second#0")
    assert retriever.rank("aspirin", 2, "bm25", EVERYTHING).ids == ("first#0", "second#0")
    assert retriever.rank("aspirin", 1, "hybrid", EVERYTHING).ids == ("second#0",)


@pytest.mark.parametrize("by", ["dense", "bm25", "hybrid"])
def test_scope_applies_to_every_search(retriever: Retriever, by: SearchMode) -> None:
    everything = retriever.rank("aspirin stroke", 9, by, EVERYTHING).ids
    assert "note#0" not in everything
    assert "note#0" in retriever.rank("aspirin stroke", 9, by, Scope(patient="p1")).ids
    hidden = Scope(hidden=frozenset({"stroke"}))
    assert set(everything) - set(retriever.rank("aspirin stroke", 9, by, hidden).ids) == {"stroke#0"}
    assert retriever.rank("aspirin stroke", 9, by, Scope(as_of="2014")).hits == ()


@pytest.mark.parametrize(
    ("scope", "dates"),
    [(Scope(as_of="1914"), "until 1914"), (Scope(since="2114", as_of="2115"), "since 2114 until 2115")],
)
def test_dates_that_leave_no_document_are_named(retriever: Retriever, scope: Scope, dates: str) -> None:
    (note,) = retriever.rank("aspirin stroke", 9, "hybrid", scope).notes
    assert note.startswith(f"no document {dates} that this question may read")
    assert retriever.rank("aspirin stroke", 9, "hybrid", EVERYTHING).notes == ()


class _CountingStore(MemoryStore):
    """Counts the passages that are fetched, and has lost some since the search."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[tuple[str, ...]] = []
        self.lost: set[str] = set()

    def fetch(self, passage_ids: Sequence[str], scope: Scope) -> tuple[Passage, ...]:
        self.fetched.append(tuple(passage_ids))
        return super().fetch([passage_id for passage_id in passage_ids if passage_id not in self.lost], scope)


@pytest.fixture
def counting() -> _CountingStore:
    encoder, store = HashingEncoder(), _CountingStore()
    for number in range(60):
        text = f"aspirin {'word ' * number}"
        passage = Passage(
            id=f"d{number:02d}#0",
            document_id=f"d{number:02d}",
            ordinal=0,
            start=0,
            end=len(text),
            text=text,
            title=f"Trial {number}",
        )
        store.add([StoredDocument(passage.document_id, "sha", (passage,), encoder.encode_passages([("", text)]))])
    return store


def test_hybrid_search_fetches_result_and_titled_documents_in_one_call(counting: _CountingStore) -> None:
    ranking = Retriever(counting, HashingEncoder()).rank("aspirin", 3, "hybrid", EVERYTHING)
    (ids,) = counting.fetched
    assert set(ranking.ids) <= set(ids)
    assert ranking.tops is not None
    assert {id_.partition("#")[0] for id_ in ids} == {*ranking.document_ids, *ranking.tops.titles}
    assert len(ids) <= 3 + 2 * 10
    assert ranking.tops.titles[ranking.document_ids[0]] == ranking.passages[0].title


def test_preflight_by_words_fetches_nothing(counting: _CountingStore) -> None:
    Retriever(counting, HashingEncoder()).preflight("aspirin", EVERYTHING, n=3, threshold=0.2, depth=16)
    assert counting.fetched == []


def test_passages_deleted_after_search_are_left_out_with_a_note(counting: _CountingStore) -> None:
    retriever = Retriever(counting, HashingEncoder())
    before = retriever.rank("aspirin", 3, "bm25", EVERYTHING)
    counting.lost = {before.ids[1]}
    after = retriever.rank("aspirin", 3, "bm25", EVERYTHING)
    assert after.ids == (before.ids[0], before.ids[2])
    (note,) = after.notes
    assert note.startswith("1 passage that the search found was left out: deleted since")
    check_ranking(after)


def test_bm25_needs_no_encoder() -> None:
    retriever = Retriever(store_of(TEXTS, HashingEncoder()), None)
    assert retriever.rank(QUESTION, 1, "bm25", EVERYTHING).ids == ("stroke#0",)
    for by in ("dense", "hybrid"):
        with pytest.raises(ValueError, match="encoder"):
            retriever.rank(QUESTION, 1, by, EVERYTHING)


def test_question_over_window_is_noted() -> None:
    encoder = HashingEncoder(max_tokens=4)
    retriever = Retriever(store_of(TEXTS, encoder), encoder)
    (note,) = retriever.rank("one two three four five", 3, "dense", EVERYTHING).notes
    assert "5 tokens" in note
    assert "reads 4: cut at its end, 1 token not seen" in note
    for by, notes in (("dense", (note,)), ("hybrid", (note,)), ("bm25", ())):
        assert retriever.rank("one two three four five", 3, by, EVERYTHING).notes == notes  # type: ignore[arg-type]
    assert retriever.rank("one two three four", 3, "dense", EVERYTHING).notes == ()


def test_long_question_is_searched_by_policy() -> None:
    encoder = HashingEncoder(max_tokens=5)
    store = store_of({"first": "aspirin stroke", "last": "metformin diabetes", "none": "gout"}, encoder)
    question = "Aspirin stroke aspirin stroke. Is metformin for diabetes?"
    by_remedy = {
        remedy: Retriever(store, encoder, remedy=remedy, sentences=find_sentences).rank(
            question, 3, "dense", EVERYTHING
        )
        for remedy in ("cut", "last-sentence-first", "segments")
    }
    assert by_remedy["cut"].ids[0] == "first#0"
    assert by_remedy["last-sentence-first"].ids[0] == "last#0"
    segments = by_remedy["segments"]
    assert set(segments.ids[:2]) == {"first#0", "last#0"}
    assert segments.hits[0].score == pytest.approx(1 / 61 + 1 / 62, abs=1e-3), "the segments' rankings are fused"
    assert segments.parameters["fused"] == 2
    assert "2 segments, all of it seen" in segments.notes[0]


def test_libraries_with_equal_passages_are_fused() -> None:
    one, two = HashingEncoder(32), HashingEncoder(64)
    stores = [store_of(TEXTS, one), store_of(TEXTS, two)]
    alone = [
        Retriever(store, encoder).rank(QUESTION, 100, "dense", EVERYTHING).ids
        for store, encoder in zip(stores, (one, two), strict=True)
    ]
    words = Retriever(stores[0], one).rank(QUESTION, 100, "bm25", EVERYTHING).ids
    both = Retriever(stores[0], one, 100, also=[SearchableStore(stores[1], two)])
    for by, lists in (("dense", alone), ("hybrid", [*alone, words])):
        ranking = both.rank(QUESTION, 3, by, EVERYTHING)  # type: ignore[arg-type]
        found = [(hit.passage.id, hit.score) for hit in ranking.hits]
        assert found == reciprocal_rank_fusion(lists, 100)[:3]
        assert ranking.parameters["encoder"] == [one.fingerprint, two.fingerprint]


def test_reranker_reads_more_than_k() -> None:
    encoder = HashingEncoder()
    retriever = Retriever(
        store_of(TEXTS, encoder), encoder, reranker=("overlap", TermOverlapReranker()), rerank_depth=len(TEXTS)
    )
    ranking = retriever.rank(QUESTION, 2, "hybrid", EVERYTHING)
    assert (ranking.retriever, len(ranking.hits)) == ("hybrid+overlap", 2)
    assert ranking.parameters["rerank_depth"] == 4, "all but the note of a patient"
    plain = Retriever(store_of(TEXTS, encoder), encoder).rank(QUESTION, len(TEXTS), "hybrid", EVERYTHING)
    scores = TermOverlapReranker().score(QUESTION, [format_for_reranker(passage) for passage in plain.passages])
    assert ranking.hits[0].score == max(scores.tolist())


def test_preflight_reranks_dense_hits(retriever: Retriever) -> None:
    verdict = retriever.preflight("aspirin stroke", EVERYTHING, n=2, threshold=0.2, depth=3, count="passages")
    assert verdict.dense_top == retriever.rank("aspirin stroke", 2, "dense", EVERYTHING).ids
    assert (verdict.n, verdict.threshold, verdict.depth) == (2, 0.2, 3)
    dense = set(retriever.rank("aspirin stroke", 3, "dense", EVERYTHING).ids)
    words = [id_ for id_ in retriever.rank("aspirin stroke", 9, "bm25", EVERYTHING).ids if id_ in dense]
    assert verdict.bm25_top == tuple(words[:2])


def test_preflight_reads_at_most_its_depth() -> None:
    """The best passage by words is not among the first dense hits: it must not enter the comparison."""
    encoder = _OneAxis()
    texts = {"near": "gout", "far": "aspirin stroke aspirin stroke"}
    retriever = Retriever(store_of(texts, encoder), encoder)
    assert retriever.rank("aspirin", 1, "bm25", EVERYTHING).ids == ("far#0",)
    shallow = retriever.preflight("aspirin", EVERYTHING, n=1, threshold=0.2, depth=1)
    assert (shallow.dense_top, shallow.bm25_top, shallow.rankings_agree) == (("near",), (), False)
    deep = retriever.preflight("aspirin", EVERYTHING, n=1, threshold=0.2, depth=2)
    assert (deep.dense_top, deep.bm25_top) == (("near",), ("far",))


def test_preflight_respects_scope(retriever: Retriever) -> None:
    verdict = retriever.preflight("aspirin stroke", Scope(hidden=frozenset({"stroke"})), n=3, threshold=0.2, depth=16)
    assert not {"stroke", "note"} & {*verdict.dense_top, *verdict.bm25_top}
    empty = retriever.preflight("aspirin stroke", Scope(as_of="1999"), n=3, threshold=0.2, depth=16)
    assert (empty.dense_top, empty.bm25_top, empty.rankings_agree) == ((), (), False)


class _NoWords(MemoryStore):
    """Refuses to search by words."""

    def search_words(
        self, query: str, k: int, scope: Scope, within: Sequence[str] | None = None
    ) -> tuple[ScoredId, ...]:
        raise AssertionError("this signal looks at no words")


def with_reranker(store: MemoryStore, encoder: HashingEncoder, **more: Any) -> Retriever:
    return Retriever(store, encoder, reranker=("overlap", TermOverlapReranker()), **more)


@pytest.mark.parametrize("kind", get_args(SignalKind))
def test_preflight_measures_signal_on_own_rankings(kind: SignalKind) -> None:
    encoder = HashingEncoder()
    store = store_of(TEXTS, encoder)
    plain = Retriever(store, encoder)
    dense = plain.rank(QUESTION, 4, "dense", EVERYTHING)
    words = store.search_words(QUESTION, 4, EVERYTHING, within=dense.ids)
    again = rerank(dense, QUESTION, TermOverlapReranker(), "overlap", 4)
    lists = [dense.scored_ids, [(hit.id, hit.score) for hit in words], again.scored_ids]
    by = {"n": 3, "threshold": 0.1, "depth": 4, "signal": kind, "count": "passages"}
    verdict = with_reranker(store, encoder).preflight(QUESTION, EVERYTHING, **by)  # type: ignore[arg-type]
    assert verdict.value == measure_signal(Signal(kind, 3), *lists)
    assert verdict.signal == kind
    assert verdict.dense_top == dense.ids[:3]
    assert bool(verdict.bm25_top) == (kind in BM25_SIGNALS)
    assert verdict.reranked_top == (again.ids[:3] if kind == "reranker-overlap" else ())


@pytest.mark.parametrize("kind", ["dense-gap", "reranker-overlap"])
def test_preflight_with_dense_signal_skips_bm25(kind: SignalKind) -> None:
    encoder, store = HashingEncoder(), _NoWords()
    passage = Passage(id="a#0", document_id="a", ordinal=0, start=0, end=7, text="aspirin")
    store.add([StoredDocument("a", "sha", (passage,), encoder.encode_passages([("", passage.text)]))])
    verdict = with_reranker(store, encoder).preflight("aspirin", EVERYTHING, n=1, threshold=0.5, depth=4, signal=kind)
    assert verdict.dense_top == ("a",)
    nothing = with_reranker(_NoWords(), encoder).preflight("x", EVERYTHING, n=1, threshold=0, depth=4, signal=kind)
    assert (nothing.value, nothing.rankings_agree) == (0.0, False)


def test_preflight_with_reranker_signal_needs_reranker(retriever: Retriever) -> None:
    with pytest.raises(ValueError, match="needs a reranker"):
        retriever.preflight(QUESTION, EVERYTHING, n=3, threshold=0.2, depth=4, signal="reranker-overlap")


def test_preflight_of_fused_libraries_uses_fused_hits() -> None:
    """Whatever the signal; their scores are the fusion's, so a gap is far below any of one library's."""
    one, two = HashingEncoder(32), HashingEncoder(64)
    first, second = store_of(TEXTS, one), store_of(TEXTS, two)
    both = with_reranker(first, one, also=[SearchableStore(second, two)])
    alone = with_reranker(first, one)
    fused = Retriever(first, one, also=[SearchableStore(second, two)]).rank(QUESTION, 4, "dense", EVERYTHING)
    for kind in get_args(SignalKind):
        verdict = both.preflight(QUESTION, EVERYTHING, n=3, threshold=0.1, depth=4, signal=kind)
        assert verdict.dense_top == tuple(passage.document_id for passage in fused.passages[:3])
    gaps = [
        each.preflight(QUESTION, EVERYTHING, n=3, threshold=0.1, depth=4, signal="dense-gap") for each in (both, alone)
    ]
    assert gaps[0].value == score_gap([hit.score for hit in fused.hits], 3) < 1 / 60
    assert [gap.rankings_agree for gap in gaps] == [False, True]


class _OneAxis(HashingEncoder):
    """Finds short texts near to everything: the vector is one number, the inverse of the length."""

    def __init__(self) -> None:
        super().__init__(dimensions=1)

    def encode_queries(self, texts: Sequence[str]) -> Vectors:
        return np.array([[1 / len(text)] for text in texts], dtype=np.float32).reshape(-1, 1)


# -- a patient's record, and literature beside it ------------------------------------------------------------------


def record_store(notes: dict[str, list[str]], encoder: HashingEncoder, patient: str | None = "p1") -> MemoryStore:
    """A document a name, a passage a text, a blank between them."""
    store = MemoryStore()
    for name, texts in notes.items():
        starts = [sum(len(text) + 1 for text in texts[:i]) for i in range(len(texts))]
        passages = tuple(
            Passage(
                id=f"{name}#{i}",
                document_id=name,
                ordinal=i,
                start=start,
                end=start + len(text),
                text=text,
                date=name[-4:],
                patient=patient,
            )
            for i, (start, text) in enumerate(zip(starts, texts, strict=True))
        )
        vectors = encoder.encode_passages([("", text) for text in texts])
        store.add([StoredDocument(name, "sha", passages, vectors)])
    return store


NOTES = {
    "n2151": ["Chest pain on exertion.", "Aspirin was begun."],
    "n2150": ["Fall at home.", "Chest film clear."],
    "n2152": ["Chest pain again, aspirin stopped.", "Chest pain gone."],
}


def test_note_unit_returns_whole_notes_of_best_passages() -> None:
    encoder = HashingEncoder()
    retriever = Retriever(record_store(NOTES, encoder), encoder)
    found = retriever.notes("chest pain aspirin", 2, "hybrid", Scope(patient="p1"))
    assert found.ids == ("n2152#whole", "n2151#whole")
    assert found.passages[0].text == " ".join(NOTES["n2152"])
    assert found.parameters["unit"] == "note"
    check_ranking(found)
    assert retriever.notes("chest pain aspirin", 2, "hybrid", EVERYTHING).hits == ()


def test_note_search_deepens_if_one_note_holds_best_passages() -> None:
    encoder = HashingEncoder()
    notes = {"n2150": ["aspirin"] * 12, "n2151": ["aspirin and much else that was said"]}
    retriever = Retriever(record_store(notes, encoder), encoder)
    found = retriever.notes("aspirin", 2, "bm25", Scope(patient="p1"))
    assert found.ids == ("n2150#whole", "n2151#whole")
    assert found.parameters["passages_ranked"] == 13


def test_record_returns_all_notes_of_patient_by_time() -> None:
    encoder = HashingEncoder()
    retriever = Retriever(record_store(NOTES, encoder), None)
    assert retriever.record(Scope(patient="p1")).ids == ("n2150#whole", "n2151#whole", "n2152#whole")
    assert retriever.record(Scope(patient="p1", hidden=frozenset({"n2151"}))).ids == ("n2150#whole", "n2152#whole")
    assert retriever.record(Scope(patient="p2")).hits == ()


@pytest.mark.parametrize("by", ["dense", "bm25", "hybrid"])
def test_literature_beside_record_is_ranked_with_it(by: SearchMode) -> None:
    one, two = HashingEncoder(32), HashingEncoder(64)
    papers = record_store({"paper2001": ["Aspirin for chest pain, a trial."]}, two, patient=None)
    retriever = Retriever(record_store(NOTES, one), one, beside=[SearchableStore(papers, two, "pubmed")])
    found = retriever.rank("chest pain aspirin", 4, by, Scope(patient="p1"))
    sources = {passage.document_id: passage.source for passage in found.passages}
    assert sources["paper2001"] == "pubmed"
    assert len(sources) > 1
    assert {source for name, source in sources.items() if name != "paper2001"} == {""}
    assert found.parameters["beside"] == ["pubmed"]
    check_ranking(found)


@pytest.mark.parametrize("by", ["dense", "bm25", "hybrid"])
def test_patients_of_library_beside_are_hidden(by: SearchMode) -> None:
    """The same id may be another person's there."""
    encoder = HashingEncoder()
    theirs = record_store({"other2150": ["Chest pain, aspirin, HIV."]}, encoder)
    retriever = Retriever(record_store(NOTES, encoder), encoder, beside=[SearchableStore(theirs, encoder, "ward2")])
    scope = Scope(patient="p1")
    for found in (retriever.rank("chest pain HIV", 20, by, scope), retriever.notes("chest pain HIV", 9, by, scope)):
        assert found.hits
        assert "other2150" not in {passage.document_id for passage in found.passages}
    verdict = retriever.preflight("chest pain HIV", scope, n=9, threshold=0.2, depth=20)
    assert "other2150#0" not in {*verdict.dense_top, *verdict.bm25_top}
    assert "other2150" not in {passage.document_id for passage in retriever.record(scope).passages}


def test_equal_id_in_two_libraries_uses_first() -> None:
    encoder = HashingEncoder()
    mine = record_store({"n2150": ["Chest pain of the patient."]}, encoder)
    theirs = record_store({"n2150": ["Chest pain of nobody."]}, encoder, patient=None)
    retriever = Retriever(mine, encoder, beside=[SearchableStore(theirs, encoder, "papers")])
    (only,) = retriever.rank("chest pain", 5, "hybrid", Scope(patient="p1")).passages
    assert (only.patient, only.text) == ("p1", "Chest pain of the patient.")


@pytest.mark.slow
def test_fusion_depth_is_multiple_of_k() -> None:
    encoder = HashingEncoder()
    store = record_store({f"n{i}": [f"aspirin {'word ' * i}"] for i in range(2000, 2040)}, encoder)
    scope = Scope(patient="p1")
    studied = Retriever(store, encoder, fusion_times=2)
    lists = [[h.id for h in store.search_vectors(encoder.encode_queries(["aspirin"])[0], 10, scope)]]
    lists.append([hit.id for hit in store.search_words("aspirin", 10, scope)])
    found = studied.rank("aspirin", 5, "hybrid", scope)
    assert [(hit.passage.id, hit.score) for hit in found.hits] == reciprocal_rank_fusion(lists)[:5]
    assert found.parameters["fusion_depth"] == 10
    again = with_reranker(store, encoder, fusion_times=2).rank("aspirin", 5, "hybrid", scope)
    assert again.parameters["rerank_depth"] == len({*lists[0], *lists[1]}), "all that were fused, and no more"
    assert again.parameters["fusion_depth"] == 10
