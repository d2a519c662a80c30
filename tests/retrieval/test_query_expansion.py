"""Questions in other words than the library's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from epicrisis import Document, Library
from epicrisis.core.protocols import ScoredId, Vectors
from epicrisis.core.types import Scope
from epicrisis.retrieval.query_expansion import (
    describe,
    expand,
    find_other_names,
    list_absent,
    list_drug_words,
    reword,
    rewrite,
)
from epicrisis.retrieval.rankings import keep_first, reciprocal_rank_fusion
from epicrisis.retrieval.retriever import Retriever
from epicrisis.testing.hashing_encoder import HashingEncoder
from epicrisis.testing.stores import MemoryStore, build_stored_document

TEXTS = {
    "imatinib": "Imatinib caused muscle pain in 9 % of patients.",
    "anemia": "Hemolytic anemia followed in 4 of 100 children.",
    "infarction": "Aspirin lowered mortality after myocardial infarction.",
    "oxide": "Inhaled nitric oxide improved oxygenation in neonates.",
    "lungs": "Rehabilitation helps in chronic obstructive pulmonary disease.",
    "paracetamol": "Paracetamol reduced fever in children.",
}
OTHERS = [
    Document(f"other:{i}", f"Trial {i} of exercise found no effect on sleep or pain after surgery.") for i in range(12)
]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Library]:
    folder = tmp_path_factory.mktemp("names") / "library"
    with Library.create(folder, encoder=HashingEncoder(64)) as made:
        made.add(*(Document(name, text) for name, text in TEXTS.items()), *OTHERS)
    with Library.open(folder, encoder=HashingEncoder(64)) as opened:
        yield opened


@pytest.mark.parametrize(
    ("question", "found", "note"),
    [
        ("Is Gleevec safe?", "imatinib", "imatinib for Gleevec"),
        ("glivec side effects", "imatinib", "imatinib for glivec"),
        ("haemolytic anaemia", "anemia", "hemolytic for haemolytic; anemia for anaemia"),
        ("Deaths after a heart attack", "infarction", "myocardial infarction, MI for heart attack"),
        ("Does NO help newborn babies?", "oxide", "nitric oxide for NO"),
        ("Is COPD helped by exercise?", "lungs", "chronic obstructive pulmonary disease for COPD"),
        ("Does acetaminophen lower temperature?", "paracetamol", "paracetamol for acetaminophen"),
        ("Tylenol", "paracetamol", "acetaminophen, paracetamol for Tylenol"),
    ],
)
def test_question_finds_the_other_name_and_says_so(library: Library, question: str, found: str, note: str) -> None:
    ranking = library.search(question, k=3, by="bm25", count="passages")
    assert ranking.hits[0].passage.document_id == found
    assert any(note in text for text in ranking.notes), ranking.notes
    plain = library.search(question, k=3, by="bm25", count="passages", other_names=False)
    assert not plain.notes


def test_brand_is_not_missing_if_its_drug_is_there(library: Library) -> None:
    found = library.evidence("Does Gleevec cause muscle pain?")
    assert found.hits[0].sentence.passage.document_id == "imatinib"
    assert not any("nothing" in note for note in found.notes)


def test_reader_gets_the_name_that_the_documents_have(library: Library) -> None:
    question = "Does Gleevec cause muscle pain?"
    relevance, plain = (library.evidence(question, other_names=other).relevance for other in (True, False))
    assert relevance is not None
    assert plain is not None
    assert relevance > plain


def test_ranking_in_the_place_of_words_is_kept() -> None:
    store = MemoryStore()
    store.add([build_stored_document(name, f"{name} text") for name in ("a", "b")])
    ranking = Retriever(store, None).rank("text", 2, "bm25", Scope())
    swapped = replace(ranking, hits=tuple(reversed(ranking.hits)))
    retriever = Retriever(store, HashingEncoder(64), expands=True)
    found = retriever.rank("Gleevec", 2, "bm25", Scope(), words=lambda _: swapped)
    assert found.document_ids == swapped.document_ids


def test_names_that_the_library_uses_are_not_replaced() -> None:
    names = find_other_names("Does COPD cause anaemia?")
    assert list_absent(names, ["COPD and anaemia"] * 3) == ()
    assert [one.name for one in list_absent(names, ["COPD in old age"] * 3)] == ["anaemia"]
    assert list_absent(names, ["COPD and anaemia"] * 2) == names


@pytest.mark.parametrize(
    ("question", "others"),
    [
        ("There is no effect, as it is or was", ""),
        ("Is a heart attack less familiar?", "myocardial infarction, MI for heart attack"),
        ("Is MI less frequent?", "myocardial infarction for MI"),
        ("mi", ""),
        ("Does measles cause blindness?", "rubeola for measles; visual loss for blindness"),
        (
            "DOACs in HFrEF",
            "NOAC, direct oral anticoagulant for DOACs; heart failure with reduced ejection fraction for HFrEF",
        ),
        ("TXA for bleeding", "tranexamic acid for TXA; hemorrhage for bleeding"),
        (
            "LABAs and PICCs",
            "long-acting beta-agonist, long-acting beta2-agonist for LABAs; "
            "peripherally inserted central catheter for PICCs",
        ),
        ("Is tranexamic acid safe in muscle pain?", "TXA for tranexamic acid; myalgia for muscle pain"),
        ("Does aspirin (acetylsalicylic acid, ASA) help?", ""),
        ("kidney stones", "nephrolithiasis, renal calculi, urolithiasis, renal stone for kidney stones"),
        ("Which weighs more, a case of forty words? " * 8 + "Gleevec", ""),
    ],
)
def test_names_with_others(question: str, others: str) -> None:
    assert describe(find_other_names(question)) == others


def test_question_is_expanded_and_rewritten() -> None:
    question = "Does Gleevec help after a heart attack?"
    names = find_other_names(question)
    assert expand(question, names) == f"{question} imatinib myocardial infarction MI"
    assert rewrite(question, names) == "Does imatinib help after a myocardial infarction?"
    assert reword(question, ["A heart attack on imatinib"] * 3) == "Does imatinib help after a heart attack?"
    assert reword(question, ["Nothing on either"]) == question
    texts = ["ST-segment elevation myocardial infarction", "ST-elevation myocardial infarction"]
    assert reword("Oxygen in STEMI", texts) == "Oxygen in ST-elevation myocardial infarction"


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("Does AS shorten life?", "Aortic stenosis shortens life."),
        ("Is myeloperoxidase a marker?", "Lactoperoxidase is a marker."),
        ("Does dementia shorten life?", "Cognitive impairment shortens life."),
    ],
)
def test_question_is_not_turned_to_another_thing(question: str, text: str) -> None:
    assert reword(question, [text] * 5) == question


class RankedStore(MemoryStore):
    """A store of short documents whose two searches give these ids."""

    def __init__(self, words: Sequence[str], dense: Sequence[str]) -> None:
        super().__init__()
        names = sorted({*words, *dense})
        self.add([build_stored_document(name, "text") for name in names])
        self.words, self.dense = words, dense

    def search_words(
        self, query: str, k: int, scope: Scope, within: Sequence[str] | None = None
    ) -> tuple[ScoredId, ...]:
        return tuple(ScoredId(f"{name}#0", 1 / rank) for rank, name in enumerate(self.words[:k], 1))

    def search_vectors(self, vector: Vectors, k: int, scope: Scope) -> tuple[ScoredId, ...]:
        return tuple(ScoredId(f"{name}#0", 1 / rank) for rank, name in enumerate(self.dense[:k], 1))


def test_hybrid_ranking_keeps_the_first_of_each_search() -> None:
    encoder = HashingEncoder(64)
    found: dict[bool, tuple[str, ...]] = {}
    for keeps in (True, False):
        retriever = Retriever(RankedStore(["a", *"bcdefgh"], ["z", *"hgfedcb"]), encoder, keeps_first=keeps)
        found[keeps] = retriever.rank("What?", 9, "hybrid", Scope()).document_ids[:3]
    assert {"a", "z"} <= set(found[True])
    assert not {"a", "z"} & set(found[False])


def test_encoder_reads_the_drug_in_the_place_of_its_brand() -> None:
    asked: list[str] = []

    class Recorder(HashingEncoder):
        def encode_queries(self, texts: Sequence[str]) -> Vectors:
            asked.extend(texts)
            return super().encode_queries(texts)

    retriever = Retriever(MemoryStore(), Recorder(64), expands=True)
    retriever.rank("Does Gleevec help after a heart attack?", 3, "dense", Scope())
    assert asked == ["Does Gleevec help after a heart attack?", "Does imatinib help after a heart attack?"]


def test_fusion_keeps_what_one_search_has_first() -> None:
    words, dense = ["a", *"bcdefgh"], ["z", *"hgfedcb"]
    fused = reciprocal_rank_fusion([words, dense])
    places = [id_ for id_, _ in fused]
    assert min(places.index("a"), places.index("z")) > 1
    kept = keep_first(fused, [words, dense], 2)
    assert [id_ for id_, _ in kept[:3]] == [places[0], "z", "a"]
    assert sorted(id_ for id_, _ in kept) == sorted(places)
    scores = [score for _, score in kept]
    assert scores == sorted(scores, reverse=True)
    assert keep_first(fused, [[], list(places)], 2) == fused


def test_drug_with_other_names_outside_the_table_is_not_asked_by_them_of_an_encoder() -> None:
    """It knows "aspirin" better than "acetylsalicylic acid", and few drugs by their brand."""
    assert [one.is_drug for one in find_other_names("Do aspirin and Gleevec help?")] == [False, True]
    assert list_drug_words("Do aspirin and Gleevec help?") == ["aspirin", "Gleevec"]
