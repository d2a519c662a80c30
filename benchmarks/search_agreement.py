"""Count the documents that the search by meaning and the search by words share among their first ten.

    EPICRISIS_DATA=... python benchmarks/search_agreement.py build/scifact-1573

Claims of SciFact over 1,573 of its abstracts (those of 200 claims, and 1,400 others) against questions on other
subjects. The library is made in the folder if it is not there.
"""

from __future__ import annotations

import ast
import csv
import gzip
import os
import random
import sys
from collections import Counter
from pathlib import Path

from epicrisis.core.protocols import Encoder
from epicrisis.core.types import Document, Scope
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.write.ingest import add_documents, open_or_create
from epicrisis.models.encoders import load_encoder
from epicrisis.retrieval.retriever import Retriever
from epicrisis.settings.configuration import load_settings

CLAIMS, OTHERS, K = 200, 1_400, 10
ELSEWHERE = (
    "Who won the football world cup?",
    "What is the capital of France?",
    "How do I bake sourdough bread?",
    "best laptop for students",
    "How does a diesel engine work?",
    "When was the Berlin wall built?",
    "What is the offside rule?",
    "How to file a tax return?",
    "Which guitar strings last longest?",
    "How tall is Mount Everest?",
)


def read_claims(folder: Path) -> list[tuple[str, str]]:
    """Return claims, each with the id of an abstract that is evidence for it."""
    with (folder / "claims_train.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["evidence_doc_id"]]
    random.Random(1).shuffle(rows)
    claims: dict[str, tuple[str, str]] = {}
    for row in rows:
        claims.setdefault(row["id"], (row["claim"], row["evidence_doc_id"]))
    return list(claims.values())[:CLAIMS]


def read_documents(folder: Path, needed: set[str]) -> list[Document]:
    """Return the needed abstracts, and others."""
    with gzip.open(folder / "corpus.csv.gz", "rt", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    random.Random(2).shuffle(rows)
    chosen = [row for row in rows if row["doc_id"] in needed]
    chosen += [row for row in rows if row["doc_id"] not in needed][:OTHERS]
    documents: list[Document] = []
    for row in chosen:
        text = " ".join(ast.literal_eval(row["abstract"]))
        documents.append(Document(row["doc_id"], text, title=row["title"], source="SciFact", date="2010"))
    return documents


def count_shared(retriever: Retriever, question: str) -> tuple[int, tuple[str, ...]]:
    """Return how many of the first ten documents both searches share, and the documents of the hybrid search."""
    ranking = retriever.documents(question, K, "hybrid", Scope())
    assert ranking.tops is not None
    return len(set(ranking.tops.dense) & set(ranking.tops.bm25)), ranking.document_ids


def main(path: Path, data: Path) -> None:
    """Print one row for each number of shared documents."""
    settings = load_settings()
    encoder: Encoder = load_encoder("minilm", settings.home, settings.threads)
    claims = read_claims(data)
    if not path.exists():
        with open_or_create(path, encoder, "minilm") as library:
            add_documents(library, read_documents(data, {document for _, document in claims}), encoder)
    with LibraryStore.open(path) as library:
        retriever = Retriever(library, encoder)
        found: Counter[tuple[int, bool]] = Counter()
        for claim, document in claims:
            shared, documents = count_shared(retriever, claim)
            found[shared, document in documents] += 1
        elsewhere = Counter(count_shared(retriever, question)[0] for question in ELSEWHERE)
    print("| shared | claims | of them with their abstract in the first 10 | questions on other subjects |")
    print("|---|---|---|---|")
    for shared in range(K + 1):
        total = found[shared, True] + found[shared, False]
        print(f"| {shared} | {total} | {found[shared, True]} | {elsewhere[shared]} |")


if __name__ == "__main__":
    csv.field_size_limit(10**9)
    main(Path(sys.argv[1]), Path(os.environ["EPICRISIS_DATA"]) / "scifact")
