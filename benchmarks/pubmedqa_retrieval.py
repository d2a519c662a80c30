"""Top-1 and top-16 of dense, BM25 and hybrid search: 1,000 PubMedQA questions over the library of their abstracts.

`CONTEXTS` alone: no title (it is the question), no conclusion. A question is found at k when a passage of its own
abstract is among the first k.

    EPICRISIS_DATA=... python benchmarks/pubmedqa_retrieval.py
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

from epicrisis.core.types import Question, Scope, SearchMode
from epicrisis.corpus.readers.question_files import read_questions
from epicrisis.corpus.readers.sources import read_sources
from epicrisis.library.write.ingest import add_documents, open_or_create
from epicrisis.models.encoders import load_encoder
from epicrisis.retrieval.retriever import Retriever
from epicrisis.settings.configuration import load_settings

METHODS: tuple[SearchMode, ...] = ("dense", "bm25", "hybrid")


def main() -> None:
    """Prints one line a method."""
    file = Path(os.environ["EPICRISIS_DATA"]) / "pubmedqa" / "ori_pqal.json"
    encoder = load_encoder("minilm", load_settings().home)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "library"
        with open_or_create(path, encoder, "minilm") as library:
            report = add_documents(library, read_sources([file]), encoder)
            print(f"{report.added} documents, {report.passages} passages, {report.seconds:.1f} s")
            retriever = Retriever(library, encoder)
            questions = [item for item in read_questions(file) if isinstance(item, Question)]
            for by in METHODS:
                print(measure(retriever, questions, by))


def measure(retriever: Retriever, questions: list[Question], by: SearchMode) -> str:
    """One line: the share found first and among 16, and the median time of a search."""
    first = sixteen = cut = 0
    seconds = []
    for question in questions:
        began = time.perf_counter()
        ranking = retriever.rank(question.text, 16, by, Scope())
        seconds.append(time.perf_counter() - began)
        found = [hit.passage.document_id in question.gold_documents for hit in ranking.hits]
        first += found[0]
        sixteen += any(found)
        cut += bool(ranking.notes)
    n = len(questions)
    median = sorted(seconds)[n // 2] * 1000
    return f"{by:7} top-1 {first / n:.3f}  top-16 {sixteen / n:.3f}  n = {n}, {cut} cut, median {median:.1f} ms"


if __name__ == "__main__":
    main()
