"""Are questions stopped that no document answers, and only those?

    EPICRISIS_DATA=... PYTHONPATH=.:training python benchmarks/not_in_library.py FOLDER [--fit]

The library: the half of PubMedQA that trained nothing (478 abstracts), the 90 validation articles of Evidence Inference
and 416 abstracts of SciFact. The questions: one on each of 300 of these documents, by a writer who read the document
and asked in the words of someone who has not (benchmarks/own_words); and PubMedQA's own, which are its titles. Each is
asked with its document and without it. The rule was chosen with all sets but "report"; `--fit` fits its regression
again (scikit-learn: make .venv/.reader). Intervals: 95 %, bootstrap over documents.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from evidence_sentences import format_mean, load_evidence_inference, load_pubmedqa, load_scifact
from examples import is_training_half

from epicrisis.core.types import Document, Scope
from epicrisis.library.write.ingest import add_documents, open_or_create
from epicrisis.models.encoders import load_encoder
from epicrisis.pipeline.components import open_library_search
from epicrisis.pipeline.evidence_selection import SENTENCE_PASSAGES, EvidenceSearch
from epicrisis.settings.configuration import load_settings

SCIFACT_ABSTRACTS, SEED = 416, 2026
QUESTIONS = Path(__file__).parent / "own_words" / "questions.jsonl"


@dataclass(frozen=True, slots=True)
class Asked:
    """A question, the set it belongs to, and the document that answers it."""

    set: str
    question: str
    document: str


def main() -> None:
    """Build the libraries and print the shares, or the coefficients."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--fit", action="store_true")
    arguments = parser.parse_args()
    data = Path(os.environ["EPICRISIS_DATA"])
    abstracts, pairs = load_pubmedqa(data)
    own = [
        Asked(row["half"], row["question"], row["document"])
        for row in map(json.loads, QUESTIONS.open("r", encoding="utf-8"))
    ]
    halves: dict[bool, list[Asked]] = {True: [], False: []}
    for pair in pairs:
        document = pair.evidence[0][0]
        half = is_training_half(document.removeprefix("pubmed:"))
        halves[half].append(
            Asked("PubMedQA, half that chose" if half else "PubMedQA, other half", pair.query, document)
        )
    mixed = load_mixed(data)
    if arguments.fit:
        rows = [
            (row, 4) for row in describe(arguments.folder / "mixed", mixed, [one for one in own if one.set == "choose"])
        ]
        rows += [(row, 1) for row in describe(arguments.folder / "pubmedqa", abstracts, halves[True])]
        fit(rows)
        return
    report(arguments.folder / "mixed", mixed, own)
    report(arguments.folder / "pubmedqa", abstracts, [*halves[True], *halves[False]])


def load_mixed(data: Path) -> list[Document]:
    """Return the documents of the mixed library."""
    unseen = [one for one in load_pubmedqa(data)[0] if not is_training_half(one.id.removeprefix("pubmed:"))]
    others = random.Random(SEED).sample(load_scifact(data)[0], SCIFACT_ABSTRACTS)
    return [*unseen, *load_evidence_inference(data)[0], *others]


def report(folder: Path, documents: Sequence[Document], asked: Sequence[Asked]) -> None:
    """Print which share of the questions is stopped, and has its document among the first three sentences."""
    open_in(folder, documents)
    settings = load_settings({})
    with open_library_search(settings, folder) as search:
        evidence = EvidenceSearch(settings, search.retriever)
        for name in dict.fromkeys(one.set for one in asked):
            members = [one for one in asked if one.set == name]
            stopped: dict[bool, list[float]] = {True: [], False: []}
            found: list[float] = []
            for one in members:
                for has_document in (True, False):
                    scope = Scope(hidden=frozenset() if has_document else frozenset([one.document]))
                    ranking = evidence.rank_passages(one.question, scope)
                    listed = evidence.list_evidence(one.question, ranking, 8, scope)
                    stopped[has_document].append(float(bool(listed.absence)))
                    if has_document:
                        first = [sentence.passage.document_id for sentence in listed.sentences[:3]]
                        found.append(float(one.document in first))
            clusters = [one.document for one in members]
            print(f"{name}: {len(members)} questions")
            print(f"  stopped with their document    {format_mean(stopped[True], clusters)}")
            print(f"  stopped without it             {format_mean(stopped[False], clusters)}")
            print(f"  document among the first three {format_mean(found, clusters)}", flush=True)


def describe(folder: Path, documents: Sequence[Document], asked: Sequence[Asked]) -> list[tuple[float, float, bool]]:
    """Return the logarithm of the odds, the similarity, and whether the document is there, with and without it."""
    open_in(folder, documents)
    settings = load_settings({})
    rows: list[tuple[float, float, bool]] = []
    with open_library_search(settings, folder) as search:
        retriever = search.retriever
        for one in asked:
            for has_document in (True, False):
                scope = Scope(hidden=frozenset() if has_document else frozenset([one.document]))
                ranking = retriever.rank(one.question, SENTENCE_PASSAGES, "hybrid", scope)
                passages = retriever.read_whole(ranking.passages, scope)
                probability = retriever.sentence_ranker.judge(one.question, passages)
                if probability is not None and ranking.tops is not None and ranking.tops.similarity is not None:
                    odds = math.log(probability / (1 - probability))
                    rows.append((odds, ranking.tops.similarity, has_document))
    return rows


def fit(rows: Sequence[tuple[tuple[float, float, bool], int]]) -> None:
    """Print the coefficients of a logistic regression of weighted rows."""
    from sklearn.linear_model import LogisticRegression

    features = [row[:2] for row, _ in rows]
    model = LogisticRegression(C=10).fit(features, [row[2] for row, _ in rows], [weight for _, weight in rows])
    print("odds, similarity, constant:", *model.coef_[0].round(2), *model.intercept_.round(2))


def open_in(folder: Path, documents: Sequence[Document]) -> None:
    """Make the library in a folder, or use it again."""
    settings = load_settings({})
    encoder = load_encoder("minilm", settings.home, settings.threads)
    with open_or_create(folder, encoder, "minilm") as library:
        add_documents(library, documents, encoder)


if __name__ == "__main__":
    main()
