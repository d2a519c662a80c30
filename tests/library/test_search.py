"""Search against an independent reckoning: brute force for vectors, BM25 by hand for words, real abstracts."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from epicrisis.core.types import Document, Passage, Scope
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.testing.stores import DIMENSIONS, MemoryStore, build_stored_document

DATES = (None, "2014", "2015", "2015-06", "2015-06-30", "2016-01-01")
PATIENTS = (None, None, "anna", "bert")


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LibraryStore, MemoryStore]]:
    """Return a library and a memory store with the same documents, many with equal vectors."""
    dice = np.random.default_rng(5)
    documents = []
    for number in range(60):
        count = int(dice.integers(1, 4))
        texts = [" ".join(dice.choice(["aspirin", "stroke", "liver", "dose"], 3)) for _ in range(count)]
        date, patient = DATES[number % len(DATES)], PATIENTS[number % len(PATIENTS)]
        documents.append(build_stored_document(f"d{number:02d}", *texts, vectors=None, date=date, patient=patient))
    memory = MemoryStore()
    memory.add(documents)
    with LibraryStore.create(
        tmp_path_factory.mktemp("both") / "library",
        encoder_fingerprint="check",
        encoder_name="check",
        dimensions=DIMENSIONS,
        max_tokens=64,
        overlap=8,
    ) as library:
        for first in range(0, 60, 13):
            library.add(documents[first : first + 13])
        yield library, memory


SCOPES = st.builds(
    Scope,
    patient=st.sampled_from([None, "anna", "bert", "carl", ""]),
    as_of=st.sampled_from(DATES),
    hidden=st.frozensets(st.integers(0, 70).map(lambda i: f"d{i:02d}"), max_size=8),
)


@pytest.mark.slow
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    vector=st.lists(st.sampled_from([-2.0, -0.5, 0.0, 0.25, 1.0]), min_size=DIMENSIONS, max_size=DIMENSIONS),
    k=st.integers(0, 150),
    scope=SCOPES,
)
def test_search_vectors_matches_brute_force(
    stores: tuple[LibraryStore, MemoryStore], vector: list[float], k: int, scope: Scope
) -> None:
    library, memory = stores
    query = np.asarray(vector, dtype=np.float32)
    assert library.search_vectors(query, k, scope) == memory.search_vectors(query, k, scope)


@pytest.mark.slow
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    words=st.lists(st.sampled_from(["aspirin", "stroke", "liver", "fever", "the"]), max_size=4),
    scope=SCOPES,
    within=st.none() | st.lists(st.integers(0, 70).map(lambda i: f"d{i:02d}#0"), max_size=20),
)
def test_search_words_matches_memory_store(
    stores: tuple[LibraryStore, MemoryStore], words: list[str], scope: Scope, within: list[str] | None
) -> None:
    library, memory = stores
    query = " ".join(words)
    ours = library.search_words(query, 1000, scope, within)
    theirs = memory.search_words(query, 1000, scope, within)
    ids = sorted(hit.id for hit in ours)
    assert ids == sorted(hit.id for hit in theirs)
    assert library.fetch(ids, scope) == memory.fetch(ids, scope)
    assert list(ours) == sorted(ours, key=lambda hit: (-hit.score, hit.id))
    for k in (1, 3, 17):
        assert library.search_words(query, k, scope, within) == ours[:k]


def test_search_words_scores_match_bm25_formula(tmp_path: Path) -> None:
    """Okapi BM25 with k1 1.2 and b 0.75 (Robertson and Zaragoza 2009), as tantivy and Lucene compute its IDF."""
    with LibraryStore.create(
        tmp_path / "l", encoder_fingerprint="c", encoder_name="c", dimensions=DIMENSIONS, max_tokens=9, overlap=0
    ) as library:
        library.add(
            [
                build_stored_document("a", "aspirin aspirin stroke", "liver dose"),
                build_stored_document("b", "aspirin liver liver dose fever"),
            ]
        )
        hits = library.search_words("aspirin aspirin?", 9, Scope())
    lengths, mean = {"a#0": (3, 2), "b#0": (5, 1)}, 10 / 3
    idf = math.log(1 + (3 - 2 + 0.5) / (2 + 0.5))
    expected = {
        id_: idf * n * 2.2 / (n + 1.2 * (1 - 0.75 + 0.75 * length / mean)) for id_, (length, n) in lengths.items()
    }
    assert {hit.id: hit.score for hit in hits} == pytest.approx(expected, abs=1e-3)


@pytest.mark.slow
@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(lambda text: bool(text.strip())),
    name=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20),
    metadata=st.dictionaries(st.text(max_size=5), st.none() | st.booleans() | st.integers() | st.text(max_size=5)),
)
def test_fetch_returns_passages_unchanged(
    stores: tuple[LibraryStore, MemoryStore], text: str, name: str, metadata: dict[str, object]
) -> None:
    library, _ = stores
    document = build_stored_document(f"any:{name}", text)
    (plain,) = document.passages
    passage = Passage(
        id=plain.id,
        document_id=plain.document_id,
        ordinal=0,
        start=0,
        end=len(text),
        text=text,
        title=name,
        source=name,
        date="2015",
        patient=name,
        metadata=metadata,
    )
    library.add([type(document)(document.id, document.content_hash, (passage,), document.vectors)])
    try:
        assert library.fetch([passage.id], Scope(patient=name)) == (passage,)
    finally:
        library.delete([document.id])


@pytest.mark.slow
@pytest.mark.data
def test_search_words_pubmedqa_questions_find_their_abstracts(data_folder: Path, tmp_path: Path) -> None:
    """The 1,000 abstracts of PubMedQA by their context alone; an own index of the same analyzer finds 0.964."""
    entries = json.loads((data_folder / "pubmedqa" / "ori_pqal.json").read_text("utf-8"))
    documents = [Document(id=pmid, text=" ".join(entry["CONTEXTS"])) for pmid, entry in entries.items()]
    with LibraryStore.create(
        tmp_path / "l", encoder_fingerprint="c", encoder_name="c", dimensions=DIMENSIONS, max_tokens=9, overlap=0
    ) as library:
        library.add([build_stored_document(document.id, document.text) for document in documents])
        first = [library.search_words(entry["QUESTION"], 1, Scope())[0] for entry in list(entries.values())[::4]]
    right = [hit.id == f"{pmid}#0" for hit, pmid in zip(first, list(entries)[::4], strict=True)]
    assert np.mean(right) >= 0.95
