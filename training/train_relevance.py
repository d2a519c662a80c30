"""Train how probable it is that a document answers a question: boosted trees over the documents that searches find.

Each question is asked of libraries of several sizes, with its document in them and without it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import lightgbm
import numpy as np
from examples import (
    POOL,
    Example,
    Set,
    Text,
    WordSearch,
    load_covid_qa,
    load_evidence_inference,
    load_pubmedqa,
    load_scifact,
)
from train_ranker import read_tree

from epicrisis.library.engines.word_index import analyze_words
from epicrisis.reading.features import Found, Matrix
from epicrisis.reading.forest import Forest
from epicrisis.reading.relevance import RELEVANCE_FEATURES, describe_documents, judge_rows

TREES = 150
PARAMETERS = {
    "objective": "binary",
    "learning_rate": 0.05,
    "num_leaves": 15,
    "min_data_in_leaf": 60,
    "feature_fraction": 0.6,
    "bagging_fraction": 0.8,
    "bagging_freq": 1,
    "lambda_l2": 5.0,
    "seed": 3,
    "deterministic": True,
    "num_threads": 2,
    "verbose": -1,
}
WHOLE = 10**6
"""The size of a library with all documents."""
NEAR = 3
"""Documents found first count as much as the right one; those after them half."""


@dataclass(frozen=True, slots=True)
class Searched:
    """The documents that a search found for a question, with their features, and which of them is the right one."""

    rows: Matrix
    own: int | None
    """None: it is not in the library."""
    document: str


def ask_libraries(
    examples: Sequence[Example], texts: Mapping[str, Text], sizes: Sequence[int], chance: random.Random
) -> Iterator[Searched]:
    """Yield each question asked of a library of one of the sizes, with its document and without it.

    A document that the library has and a search by words misses is no example. One that a small library lacks is added.
    """
    ids = sorted(texts)
    libraries: list[tuple[WordSearch, frozenset[str]]] = []
    for size in sizes:
        kept = frozenset(ids if size >= len(ids) else chance.sample(ids, size))
        libraries.append((WordSearch({id_: texts[id_] for id_ in ids if id_ in kept}), kept))
    for number, example in enumerate(examples):
        search, kept = libraries[number % len(libraries)]
        found = search.search(example.question, POOL + 1)
        others = [id_ for id_ in found if id_ != example.document][:POOL]
        own = example.document
        if own in found[:POOL]:
            yield _search(example, found[:POOL], texts)
        elif own not in kept:
            with_own = others[: POOL - 1]
            with_own.insert(chance.randrange(len(with_own) + 1), own)
            yield _search(example, with_own, texts)
        if others:
            yield _search(example, others, texts)


def _search(example: Example, ids: Sequence[str], texts: Mapping[str, Text]) -> Searched:
    documents = [Found(texts[id_].read, rank) for rank, id_ in enumerate(ids)]
    own = ids.index(example.document) if example.document in ids else None
    return Searched(describe_documents(example.question, documents, analyze_words), own, example.document)


def list_training(data: Path) -> Iterator[tuple[Searched, float]]:
    """Yield the searches that train, with their weights."""
    chance = random.Random(4)
    covid, _ = load_covid_qa(data)
    pubmedqa, _ = load_pubmedqa(data)
    sets = (
        (load_evidence_inference(data, "train", 7), (WHOLE, 400, 60, 8), 1.0),
        (load_scifact(data, "train"), (WHOLE, 1000, 100, 10), 2.0),
        (covid, (WHOLE, 30, 8), 1.5),
        (pubmedqa, (WHOLE, 100, 10), 2.0),
    )
    for split, sizes, weight in sets:
        for searched in ask_libraries(split.examples, split.texts, sizes, chance):
            yield searched, weight


def list_measured(data: Path) -> Iterator[tuple[str, list[Searched]]]:
    """Yield the searches of each set that did not train, in the whole library and in a small one."""
    chance = random.Random(6)
    trained: list[Set] = [load_evidence_inference(data, "train", 7), load_covid_qa(data)[0], load_pubmedqa(data)[0]]
    measured: list[Set] = [
        load_evidence_inference(data, "validation", 9),
        load_covid_qa(data)[1],
        load_pubmedqa(data)[1],
    ]
    names = ("Evidence Inference validation", "COVID-QA, 38 articles", "PubMedQA, the other half")
    sets = [(name, one, {**two.texts, **one.texts}) for name, one, two in zip(names, measured, trained, strict=True)]
    claims = load_scifact(data, "validation")
    for name, split, texts in (*sets, ("SciFact validation", claims, claims.texts)):
        for size in (len(texts), 100) if len(texts) > 100 else (len(texts),):
            library = f"{size:,} documents"
            yield f"{name}, {library}", list(ask_libraries(split.examples, texts, (size,), chance))


def judge(searched: Searched) -> Matrix:
    """Return the probability of each document of a search `(documents,)`."""
    return judge_rows(searched.rows)


def train(searches: Sequence[tuple[Searched, float]]) -> Forest:
    """Return the trees."""
    rows = np.vstack([searched.rows for searched, _ in searches])
    labels: list[int] = []
    weights: list[float] = []
    for searched, weight in searches:
        for place in range(len(searched.rows)):
            labels.append(place == searched.own)
            weights.append(weight if place == searched.own or place < NEAR else weight / 2)
    model = lightgbm.train(PARAMETERS, lightgbm.Dataset(rows, labels, weight=weights), TREES)
    trees = [read_tree(tree["tree_structure"]) for tree in model.dump_model()["tree_info"]]
    return Forest.from_trees(RELEVANCE_FEATURES, trees)
