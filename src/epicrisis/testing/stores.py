"""An exact passage store in memory, and the contract check of `PassageStore`."""

from __future__ import annotations

import hashlib
import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np

from epicrisis.core.dates import last_day
from epicrisis.core.errors import InputError
from epicrisis.core.protocols import PassageStore, ScoredId, StoredDocument, Vectors
from epicrisis.core.types import Metadata, Passage, Scope
from epicrisis.testing.hashing_encoder import require

_WORD = re.compile(r"\w+")
_K1, _B = 1.2, 0.75
DIMENSIONS = 4
"""The dimensions of the vectors in `check_store`."""
_METADATA: Metadata = {"note": "naïve", "types": ["Review"], "depth": {"n": 1}}


class MemoryStore:
    """A PassageStore in a dictionary, with exact inner products and BM25 (k1 1.2, b 0.75) over lowercase words."""

    def __init__(self) -> None:
        self._documents: dict[str, StoredDocument] = {}

    def add(self, documents: Sequence[StoredDocument]) -> None:
        for document in documents:
            self._documents[document.id] = document

    def delete(self, document_ids: Sequence[str]) -> None:
        for document_id in document_ids:
            self._documents.pop(document_id, None)

    def search_vectors(self, vector: Vectors, k: int, scope: Scope) -> tuple[ScoredId, ...]:
        _check(scope)
        scored = []
        for document in self._documents.values():
            for passage, row in zip(document.passages, document.vectors, strict=True):
                if scope.admits(passage):
                    product = float(row.astype(np.float64) @ vector.astype(np.float64))
                    scored.append((passage, round(product, 9)))
        return _best(scored, k)

    def search_words(
        self, query: str, k: int, scope: Scope, within: Sequence[str] | None = None
    ) -> tuple[ScoredId, ...]:
        _check(scope)
        everything = list(self._passages())
        counts = [Counter(_tokens(f"{passage.title}\n{passage.text}")) for passage in everything]
        mean = sum(map(Counter.total, counts)) / max(len(counts), 1)
        frequency = Counter(itertools.chain.from_iterable(counts))
        allowed = None if within is None else set(within)
        scored = []
        for passage, count in zip(everything, counts, strict=True):
            shared = set(_tokens(query)) & set(count)
            if shared and scope.admits(passage) and (allowed is None or passage.id in allowed):
                norm = _K1 * (1 - _B + _B * count.total() / mean)
                score = 0.0
                for token in shared:
                    idf = math.log(1 + (len(counts) - frequency[token] + 0.5) / (frequency[token] + 0.5))
                    score += idf * count[token] * (_K1 + 1) / (count[token] + norm)
                scored.append((passage, round(score, 9)))
        return _best(scored, k)

    def fetch(self, passage_ids: Sequence[str], scope: Scope) -> tuple[Passage, ...]:
        _check(scope)
        visible = {passage.id: passage for passage in self._passages() if scope.admits(passage)}
        return tuple(visible[passage_id] for passage_id in passage_ids if passage_id in visible)

    def fetch_record(self, scope: Scope) -> tuple[Passage, ...]:
        _check(scope)
        if scope.patient is None:
            return ()
        passages = (passage for passage in self._passages() if scope.admits(passage))
        record = [passage for passage in passages if passage.patient == scope.patient]
        return tuple(sorted(record, key=lambda passage: (passage.document_id, passage.ordinal)))

    def content_hashes(self, document_ids: Sequence[str]) -> Mapping[str, str]:
        hashes: dict[str, str] = {}
        for document_id in document_ids:
            if document_id in self._documents:
                hashes[document_id] = self._documents[document_id].content_hash
        return hashes

    def count(self) -> tuple[int, int]:
        return len(self._documents), len(list(self._passages()))

    def _passages(self) -> Iterator[Passage]:
        for document in self._documents.values():
            yield from document.passages


def _check(scope: Scope) -> None:
    for name, date in (("as of", scope.as_of), ("since", scope.since)):
        try:
            if date is not None:
                last_day(date)
        except ValueError as error:
            raise InputError(f"{name}: {error}; write it as 2015, 2015-06 or 2015-06-30") from error


def _tokens(text: str) -> list[str]:
    return list(map(str.lower, _WORD.findall(text)))


def _best(scored: Iterable[tuple[Passage, float]], k: int) -> tuple[ScoredId, ...]:
    ranked = sorted(scored, key=lambda pair: (-pair[1], pair[0].id))[: max(k, 0)]
    return tuple(ScoredId(passage.id, score, passage.is_retracted) for passage, score in ranked)


def build_stored_document(
    document_id: str,
    *texts: str,
    vectors: Sequence[Sequence[float]] | None = None,
    title: str = "",
    date: str | None = None,
    patient: str | None = None,
    version: str = "1",
    metadata: Metadata = _METADATA,
) -> StoredDocument:
    """Return a document with one passage per text. Without `vectors`, passage i points along axis i."""
    rows = np.eye(DIMENSIONS)[np.arange(len(texts)) % DIMENSIONS] if vectors is None else np.asarray(vectors)
    passages, start = [], 0
    for ordinal, text in enumerate(texts):
        passages.append(
            Passage(
                id=f"{document_id}#{ordinal}",
                document_id=document_id,
                ordinal=ordinal,
                start=start,
                end=start + len(text),
                text=text,
                title=title,
                source="check",
                date=date,
                patient=patient,
                metadata=metadata,
            )
        )
        start += len(text) + 1
    return StoredDocument(document_id, hash_content(document_id, version), tuple(passages), rows.astype(np.float32))


def hash_content(document_id: str, version: str) -> str:
    """Return the content hash of `build_stored_document(document_id, version=version)`."""
    return hashlib.sha256(f"{document_id}@{version}".encode()).hexdigest()[:32]


_doc = build_stored_document


def check_store(make: Callable[[], PassageStore]) -> None:
    """Check the contract of `PassageStore`. Raises AssertionError with the violated clause.

    `make` returns a new empty store for vectors of DIMENSIONS at each call.
    """
    for clause in (_empty, _stored, _replaced, _deleted, _dense, _words, _within, _ties, _scoped, _filtered, _strange):
        clause(make())


def _ids(items: Sequence[ScoredId | Passage]) -> list[str]:
    return [pair.id for pair in items]


def _scores(hits: Sequence[ScoredId]) -> list[float]:
    return [hit.score for hit in hits]


def _axis(number: int) -> Vectors:
    axis = np.zeros(DIMENSIONS, dtype=np.float32)
    axis[number] = 1
    return axis


def _empty(store: PassageStore) -> None:
    require(store.count() == (0, 0), "an empty store counts nothing")
    require(store.search_vectors(_axis(0), 3, Scope()) == (), "an empty store has no dense hits")
    require(store.search_words("aspirin", 3, Scope()) == (), "an empty store has no word hits")
    require(store.fetch([], Scope()) == (), "fetching nothing gives nothing")
    require(store.fetch(["a#0"], Scope()) == (), "an unknown id is left out")
    store.add([])
    store.delete(["nobody"])
    require(store.count() == (0, 0), "adding nothing and deleting the unknown change nothing")


def _stored(store: PassageStore) -> None:
    document = _doc("doc:1", "Aspirin lowers the risk.", "Warfarin thins.", title="Stroke", date="2015-06")
    store.add([document])
    require(store.count() == (1, 2), "documents and passages are counted")
    require(store.fetch(["doc:1#1", "doc:1#0"], Scope()) == document.passages[::-1], "passages come back as they were")
    hashes = {"doc:1": hash_content("doc:1", "1")}
    require(dict(store.content_hashes(["doc:1", "x"])) == hashes, "hashes of those that are there")
    found = store.fetch(["x#0", "doc:1#2", "doc:1#0"], Scope())
    require(found == document.passages[:1], "unknown ids among known ones are left out")


def _replaced(store: PassageStore) -> None:
    store.add([_doc("a", "aspirin one", "aspirin two", "aspirin three"), _doc("b", "aspirin four")])
    store.add([_doc("a", "warfarin", version="2"), _doc("c", "aspirin five")])
    require(store.count() == (3, 3), "a replaced document leaves no passage behind")
    require(sorted(_ids(store.search_words("aspirin", 9, Scope()))) == ["b#0", "c#0"], "old words are not found")
    require(sorted(_ids(store.search_vectors(_axis(0), 9, Scope()))) == ["a#0", "b#0", "c#0"], "old vectors are gone")
    require(store.fetch(["a#1"], Scope()) == (), "an old passage is gone")
    require(dict(store.content_hashes(["a"])) == {"a": hash_content("a", "2")}, "the hash is the new one")


def _deleted(store: PassageStore) -> None:
    store.add([_doc("a", "aspirin one", "aspirin two"), _doc("b", "aspirin three")])
    store.delete(["a", "nobody"])
    require(store.count() == (1, 1), "a deleted document is not counted")
    require(_ids(store.search_words("aspirin", 9, Scope())) == ["b#0"], "nor found by words")
    require(_ids(store.search_vectors(_axis(0), 9, Scope())) == ["b#0"], "nor by its vector")
    require(not store.fetch(["a#0"], Scope()) and not store.content_hashes(["a"]), "nor fetched")
    store.add([_doc("a", "aspirin again")])
    require(store.count() == (2, 2), "it may come back")


def _dense(store: PassageStore) -> None:
    rows: list[list[float]] = [[0.25, 0, 0, 0], [-2, 0, 0, 0], [4, 1, 0, 0], [0.5, 0, 3, 0]]
    store.add([_doc("a", "one", "two", "three", "four", vectors=rows)])
    hits = store.search_vectors(_axis(0), 3, Scope())
    require(_ids(hits) == ["a#2", "a#3", "a#0"], "highest inner product first, however long the vectors")
    require(_scores(hits) == [4.0, 0.5, 0.25], "the score is the inner product")
    require(len(store.search_vectors(_axis(0), 9, Scope())) == 4, "k may be more than there are")
    require(store.search_vectors(_axis(0), 0, Scope()) == (), "k may be nothing")


def _words(store: PassageStore) -> None:
    store.add([_doc(f"common{i}", "the patient was given aspirin") for i in range(8)])
    store.add([_doc("rare", "the patient was given warfarin"), _doc("titled", "no drug here", title="Warfarin")])
    hits = store.search_words("Aspirin or WARFARIN?", 99, Scope())
    require(set(_ids(hits[:2])) == {"rare#0", "titled#0"}, "rare words weigh more, in texts and titles, in any case")
    require(len(hits) == 10 and hits[2].id == "common0#0", "all that share a word are hits")
    require(_scores(hits) == sorted(_scores(hits), reverse=True), "best first")
    require(store.search_words("metformin", 9, Scope()) == (), "no shared word, no hit")
    require(store.search_words("", 9, Scope()) == store.search_words('?! "(', 9, Scope()) == (), "no word, no hit")
    require(store.search_words('warfarin AND ("', 9, Scope()) != (), "a query is words, not a language")


def _within(store: PassageStore) -> None:
    store.add([_doc("a", "aspirin", "warfarin"), _doc("b", "aspirin aspirin"), _doc("c", "nothing")])
    everywhere = store.search_words("aspirin", 9, Scope())
    score = _scores(everywhere)[_ids(everywhere).index("a#0")]
    hits = store.search_words("aspirin", 9, Scope(), within=["a#0", "a#1", "c#0", "unknown#0"])
    require((_ids(hits), _scores(hits)) == (["a#0"], [score]), "within limits, not the IDF")
    require(store.search_words("aspirin", 9, Scope(), within=[]) == (), "within nothing is nothing")


def _ties(store: PassageStore) -> None:
    names = [f"tie{(i * 37) % 200:03d}" for i in range(200)]
    build = partial(_doc, vectors=[[0.1, 0.7, 0.3, 0.9]])
    for first in range(0, 200, 50):
        store.add(list(map(build, names[first : first + 50], itertools.repeat("aspirin"))))
    expected = ["tie000#0", "tie001#0", "tie002#0", "tie003#0", "tie004#0"]
    require(_ids(store.search_words("aspirin", 5, Scope())) == expected, "equal BM25 scores go by passage id")
    vector = np.asarray([0.3, 0.1, 0.7, 0.2], dtype=np.float32)
    require(_ids(store.search_vectors(vector, 5, Scope())) == expected, "equal inner products go by passage id")


def _scoped(store: PassageStore) -> None:
    store.add(
        [
            _doc("paper", "aspirin", date="2015"),
            _doc("undated", "aspirin"),
            _doc("later", "aspirin", date="2016-01-01"),
            _doc("none", "aspirin", date="2014", patient="none"),
            _doc("anna", "aspirin", date="2015-12-31", patient="anna"),
            _doc("annabel", "aspirin", date="2015-06", patient="annabel"),
        ]
    )
    literature = {"paper", "undated", "later"}
    _check_visible(store, Scope(), literature, "without a patient only literature is seen")
    _check_visible(store, Scope(patient="anna"), literature | {"anna"}, "with a patient, that record too")
    _check_visible(store, Scope(patient="none"), literature | {"none"}, "whatever the patient is called")
    _check_visible(store, Scope(patient="p:anna' OR 1=1 --"), literature, "and whatever is asked")
    _check_visible(store, Scope(as_of="2015"), {"paper"}, "as of a year: its last day, nothing undated")
    _check_visible(store, Scope(patient="anna", as_of="2015-12-30"), set(), "a partial date may be its last day")
    _check_visible(store, Scope(patient="annabel", as_of="2015-06"), {"annabel"}, "a month lasts to its end")
    _check_visible(
        store, Scope(hidden=frozenset({"paper", "later", "nobody"})), {"undated"}, "hidden documents are not seen"
    )
    for search, scope in itertools.product(
        (
            lambda scope: store.search_vectors(_axis(0), 9, scope),
            lambda scope: store.search_words("aspirin", 9, scope),
            lambda scope: store.fetch(["paper#0"], scope),
        ),
        (Scope(as_of="yesterday"), Scope(since="yesterday")),
    ):
        try:
            search(scope)
        except InputError:
            continue
        raise AssertionError("the store's contract does not hold: a scope's date that is no date raises InputError")


def _filtered(store: PassageStore) -> None:
    trial, review = "Randomized Controlled Trial", "Review"
    store.add(
        [
            _doc("trial", "aspirin", date="2015-06", metadata={"publication_types": [trial], "journal": "The Lancet"}),
            _doc("review", "aspirin", date="2016", metadata={"publication_types": [review, "x"], "journal": "BMJ's"}),
            _doc("gone", "aspirin", date="2017-01-31", metadata={"publication_types": [trial], "retracted": True}),
            _doc("bare", "aspirin", metadata={"publication_types": "a string", "retracted": "no"}),
        ]
    )
    everything = ["bare#0", "gone#0", "review#0", "trial#0"]

    def sees(scope: Scope, *documents: str) -> None:
        _check_visible(store, scope, set(documents), f"filtered by {scope}", everything)

    sees(Scope(since="2015"), "trial", "review", "gone")
    sees(Scope(since="2015-06-30"), "trial", "review", "gone")
    sees(Scope(since="2015-07"), "review", "gone")
    sees(Scope(since="2016", as_of="2016"), "review")
    sees(Scope(publication_types=frozenset({"randomized controlled TRIAL"})), "trial", "gone")
    sees(Scope(publication_types=frozenset({trial, review})), "trial", "review", "gone")
    sees(Scope(publication_types=frozenset({"Randomized"})))
    sees(Scope(journals=frozenset({"bmj's", "nature"})), "review")
    sees(Scope(publication_types=frozenset({trial}), journals=frozenset({"BMJ's"})))
    sees(Scope(without_retracted=True), "trial", "review", "bare")
    early = Scope(without_retracted=True, as_of="2017")
    sees(early, "trial", "review")
    for hits in (store.search_vectors(_axis(0), 1, early), store.search_words("aspirin", 1, early)):
        require(_ids(hits) == ["review#0"], "an article that is left out takes no place among the best k")
    for hits in (store.search_vectors(_axis(0), 9, Scope()), store.search_words("aspirin", 9, Scope())):
        retracted = [hit.id for hit in hits if hit.is_retracted]
        require(retracted == ["gone#0"], "a search says which passages are of retracted articles")
    sees(Scope(publication_types=frozenset({trial}), without_retracted=True, hidden=frozenset({"trial"})))
    sees(Scope(journals=frozenset({"x') OR 1=1 --"})))


_SCOPED = ("anna#0", "annabel#0", "later#0", "none#0", "paper#0", "undated#0")


def _check_visible(
    store: PassageStore, scope: Scope, documents: set[str], clause: str, everything: Sequence[str] = _SCOPED
) -> None:
    expected = sorted(map("{}#0".format, documents))
    require(sorted(_ids(store.search_vectors(_axis(0), 9, scope))) == expected, f"{clause} (vectors)")
    require(sorted(_ids(store.search_words("aspirin", 9, scope))) == expected, f"{clause} (words)")
    require(sorted(_ids(store.search_words("aspirin", 9, scope, everything))) == expected, f"{clause} (words within)")
    require(_ids(store.fetch(everything, scope)) == expected, f"{clause} (fetch)")
    note_id = f"{scope.patient}#0"
    record = [note_id] if note_id in expected else []
    require(_ids(store.fetch_record(scope)) == record, f"{clause} (record)")


def _strange(store: PassageStore) -> None:
    names = ["it's", 'quo"te', "back\\slash", "new\nline", "naïve β"]
    names += ["a#0", "a", "x; DROP TABLE documents --", "%_", "🙂"]
    store.add([_doc(name, "aspirin", "warfarin") for name in names])
    store.add([_doc(name, "warfarin", version="2") for name in names[::2]])
    short, long = map("{}#0".format, names[::2]), tuple(map("{}#1".format, names[1::2]))
    with_warfarin = sorted([*short, *long])
    require(sorted(_ids(store.search_words("warfarin", 99, Scope()))) == with_warfarin, "odd ids")
    expected = sorted([*map("{}#0".format, names), *long])
    require(_ids(store.fetch(expected, Scope())) == expected, "odd ids are fetched")
    hidden = Scope(hidden=frozenset(names[:9]))
    require(_ids(store.search_vectors(_axis(0), 99, hidden)) == ["🙂#0", "🙂#1"], "odd ids are hidden")
    store.delete(names)
    require(store.count() == (0, 0) and not store.content_hashes(names), "odd ids are deleted")
