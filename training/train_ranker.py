"""Train the evidence ranker: LightGBM's LambdaMART over the features of `epicrisis.reading`.

Each question is asked of its own document alone, and of the documents that a search by words finds for it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
from examples import Marks, Set, list_pools, load_covid_qa, load_evidence_inference, load_own_words, load_scifact

from epicrisis.library.engines.word_index import analyze_words
from epicrisis.reading.features import Found, Matrix
from epicrisis.reading.forest import Forest, Leaf, Split
from epicrisis.reading.ranker import FEATURES, describe

TREES = 400
PARAMETERS = {
    "objective": "lambdarank",
    "lambdarank_truncation_level": 10,
    "learning_rate": 0.05,
    "num_leaves": 31,
    "min_data_in_leaf": 40,
    "feature_fraction": 0.5,
    "bagging_fraction": 0.8,
    "bagging_freq": 1,
    "lambda_l2": 2.0,
    "seed": 3,
    "deterministic": True,
    "num_threads": 2,
    "verbose": -1,
}
COVID_WEIGHT = 3.0
"""Open questions are few beside those about comparisons."""
SCIFACT_WEIGHT, OWN_WORDS_WEIGHT = 3.0, 3.0
"""So do claims and questions in other words than their document's, both about abstracts."""
KEPT = 0.15
"""Share of the sentences of other whole articles that train."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """The sentences of one question: their features, and which show each marked span."""

    rows: Matrix
    shown: Marks
    document: str


def rank_within(split: Set) -> Iterator[Ranked]:
    """Yield each question with the sentences of its own document."""
    for example in split.examples:
        rows = describe(example.question, [Found(split.texts[example.document].read)], analyze_words)
        yield Ranked(rows, example.shown, example.document)


def rank_pools(split: Set, k: int, kept: float, chance: random.Random) -> Iterator[Ranked]:
    """Yield each question with the sentences of `k` documents found, a share of those of the other documents."""
    for example, found, place in list_pools(split, k):
        rows = describe(example.question, found, analyze_words)
        first = sum(len(other.article.counts) for other in found[:place])
        own = range(first, first + len(example.shown))
        shown = np.zeros((len(rows), example.shown.shape[1]), dtype=np.bool_)
        shown[own.start : own.stop] = example.shown
        keeps = np.array([index in own or chance.random() < kept for index in range(len(rows))])
        yield Ranked(rows[keeps], shown[keeps], example.document)


def list_training(data: Path) -> Iterator[tuple[Ranked, float]]:
    """Yield the questions that train, with their weights."""
    chance = random.Random(3)
    trials = load_evidence_inference(data, "train", 7)
    yield from ((ranked, 1.0) for ranked in rank_within(trials))
    trials = Set(trials.texts, load_evidence_inference(data, "train", 8).examples)
    yield from ((ranked, 1.0) for ranked in rank_pools(trials, 8, KEPT, chance))
    abstracts = load_scifact(data, "train")
    yield from ((ranked, SCIFACT_WEIGHT) for ranked in rank_within(abstracts))
    yield from ((ranked, SCIFACT_WEIGHT) for ranked in rank_pools(abstracts, 16, 1, chance))
    articles, _ = load_covid_qa(data)
    yield from ((ranked, COVID_WEIGHT) for ranked in rank_within(articles))
    yield from ((ranked, COVID_WEIGHT) for ranked in rank_pools(articles, 8, KEPT, chance))
    asked, _ = load_own_words(data)
    yield from ((ranked, OWN_WORDS_WEIGHT) for ranked in rank_within(asked))
    yield from ((ranked, OWN_WORDS_WEIGHT) for ranked in rank_pools(asked, 16, 1, chance))


def train(questions: Sequence[tuple[Ranked, float]]) -> Forest:
    """Return the trees."""
    rows = np.vstack([ranked.rows for ranked, _ in questions])
    labels = np.concatenate([ranked.shown.any(axis=1) for ranked, _ in questions]).astype(int)
    weights = np.concatenate([np.full(len(ranked.rows), weight) for ranked, weight in questions])
    groups = [len(ranked.rows) for ranked, _ in questions]
    model = lightgbm.train(PARAMETERS, lightgbm.Dataset(rows, labels, group=groups, weight=weights), TREES)
    return Forest.from_trees(FEATURES, [read_tree(tree["tree_structure"]) for tree in model.dump_model()["tree_info"]])


def read_tree(node: dict[str, Any]) -> Split | Leaf:
    """Return a tree of LightGBM."""
    if "leaf_value" in node:
        return Leaf(float(node["leaf_value"]))
    left, right = read_tree(node["left_child"]), read_tree(node["right_child"])
    return Split(int(node["split_feature"]), float(node["threshold"]), left, right)
