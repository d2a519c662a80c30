"""How well passages are found: SciFact's claims, and MIRAGE's BioASQ questions among 74,497 abstracts.

    EPICRISIS_DATA=... PYTHONPATH=. python benchmarks/literature_retrieval.py scifact FOLDER
    EPICRISIS_DATA=... PYTHONPATH=. python benchmarks/literature_retrieval.py bioasq FOLDER [--titles] [--others 10000]

The library is made in FOLDER and used again the next time (an hour of two cores for BioASQ's, resumable). SciFact is
judged as BEIR does: the 300 validation claims, `cited_doc_ids` relevant. BioASQ's gold PMIDs that have no text count
against every ranker alike. Passages count for their document, at the place of its best one. `--others N` makes a
smaller library: BioASQ's gold texts, PubMedQA's abstracts, and N of the rest (with 10000 it has 52,309 texts).
"""

from __future__ import annotations

import ast
import csv
import gzip
import hashlib
import io
import json
import os
import random
import re
import sys
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from epicrisis.core.types import Document, Scope, SearchMode
from epicrisis.evaluation.analysis.statistics import estimate_mean
from epicrisis.library.write.ingest import add_documents, open_or_create
from epicrisis.models.encoders import load_encoder
from epicrisis.retrieval.retriever import Retriever
from epicrisis.settings.configuration import load_settings
from tests.support.ranking_metrics import ndcg_at_k, recall_at_k, reciprocal_rank

METHODS: tuple[SearchMode, ...] = ("bm25", "dense", "hybrid")
PASSAGES = 300
"""Passages asked for, so that 100 documents are among them."""


def main() -> None:
    """Makes the library, then prints one line a ranker."""
    data, corpus, folder = Path(os.environ["EPICRISIS_DATA"]), sys.argv[1], Path(sys.argv[2])
    titles = corpus == "scifact" or "--titles" in sys.argv
    documents = scifact(data) if corpus == "scifact" else abstracts(data, titles)
    if "--others" in sys.argv:
        documents = subset(data, list(documents), int(sys.argv[sys.argv.index("--others") + 1]))
    judged = scifact_claims(data) if corpus == "scifact" else bioasq_questions(data)
    encoder = load_encoder("minilm", load_settings().home)
    with open_or_create(folder, encoder, "minilm") as library:
        report = add_documents(library, documents, encoder)
        print(f"{report.added} added, {report.unchanged} there, {library.count()} documents and passages, {titles=}")
        plain = Retriever(library, encoder)
        as_asked = Retriever(library, encoder, expands=True, keeps_first=True)
        for name, retriever in (("", plain), (", other names", as_asked)):
            for by in METHODS:
                rankings = [
                    list(dict.fromkeys(p.document_id for p in retriever.rank(query, PASSAGES, by, Scope()).passages))
                    for query, _ in judged
                ]
                print(line(f"{by}{name}", rankings, [gold for _, gold in judged]))


def line(by: str, rankings: Sequence[Sequence[str]], judged: Sequence[frozenset[str]]) -> str:
    """The means over all queries."""
    pairs = [(ranked[:100], dict.fromkeys(gold, 1)) for ranked, gold in zip(rankings, judged, strict=True)]
    figures = {
        "nDCG@10": [ndcg_at_k(ranked, gold, 10) for ranked, gold in pairs],
        "recall@10": [recall_at_k(ranked, gold, 10) for ranked, gold in pairs],
        "recall@100": [recall_at_k(ranked, gold, 100) for ranked, gold in pairs],
        "MRR": [reciprocal_rank(ranked, gold) for ranked, gold in pairs],
    }
    shown = "  ".join(f"{name} {estimate_mean(values).value:.3f}" for name, values in figures.items())
    return f"{by:19} {shown}  n = {len(judged)}"


def scifact(data: Path) -> Iterator[Document]:
    """The 5,183 abstracts with their titles."""
    with gzip.open(data / "scifact" / "corpus.csv.gz", "rt", encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            yield Document(
                id=row["doc_id"], title=row["title"], text=" ".join(sentences_of(row["abstract"])), source="SciFact"
            )


def sentences_of(abstract: str) -> list[str]:
    """Return the sentences of an abstract, a list as numpy prints it: Python's literals without commas."""
    tokens = tokenize.generate_tokens(io.StringIO(abstract).readline)
    return [ast.literal_eval(token.string) for token in tokens if token.type == tokenize.STRING]


def scifact_claims(data: Path) -> list[tuple[str, frozenset[str]]]:
    """Claims and the documents they cite; a claim has one row for each document that bears on it."""
    with (data / "scifact" / "claims_validation.csv").open(encoding="utf-8", newline="") as file:
        rows = {row["id"]: row for row in csv.DictReader(file)}
    return [(row["claim"], frozenset(re.findall(r"\d+", row["cited_doc_ids"]))) for row in rows.values()]


def abstracts(data: Path, titles: bool) -> Iterator[Document]:
    """BioASQ's gold passages and the other abstracts, one document a PMID; where both have it, the whole abstract."""
    by_id: dict[str, Document] = {}
    for row in _rows(data / "bioasq" / "passages.jsonl.gz"):
        by_id[row["pmid"]] = Document(id=f"pubmed:{row['pmid']}", text=row["text"])
    for row in _rows(data / "abstracts" / "abstracts.jsonl.gz"):
        key = row.get("pmid") or hashlib.sha256(row["text"].encode()).hexdigest()[:16]
        name = f"pubmed:{key}" if row.get("pmid") else f"text:{key}"
        by_id[key] = Document(id=name, text=row["text"], title=row.get("title") or "" if titles else "")
    yield from (by_id[key] for key in sorted(by_id))


def subset(data: Path, documents: Sequence[Document], others: int) -> Iterator[Document]:
    """Yield the documents that a question set names, and so many of the others, the same ones every time."""
    named = {f"pubmed:{row['pmid']}" for row in _rows(data / "bioasq" / "passages.jsonl.gz")}
    for file in (data / "pubmedqa").glob("ori_pqal*.json"):
        named.update(f"pubmed:{pmid}" for pmid in json.loads(file.read_text("utf-8")))
    rest = sorted(document.id for document in documents if document.id not in named)
    random.Random(15).shuffle(rest)
    chosen = named.union(rest[:others])
    yield from (document for document in documents if document.id in chosen)


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        yield from map(json.loads, file)


def bioasq_questions(data: Path) -> list[tuple[str, frozenset[str]]]:
    """Questions and their gold documents."""
    gold = json.loads((data / "bioasq" / "mirage_gold.json").read_text("utf-8"))["bioasq"].values()
    return [(each["question"], frozenset(f"pubmed:{pmid}" for pmid in each["pmids"])) for each in gold]


if __name__ == "__main__":
    main()
