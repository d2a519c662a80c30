"""Sentence-level evidence recall@k: does the selection of sentences find what experts marked as evidence?

    EPICRISIS_DATA=... python benchmarks/evidence_sentences.py SET FOLDER [--reranker NAME]

SET is `scifact` (validation claims and the sentences of their rationales, among 5,183 abstracts), `evidence-inference`
(validation: outcome, intervention and comparator, and the spans of their evidence in one whole article), `pubmedqa`
(1,000 questions; evidence is any sentence of the question's own abstract) or `covid-qa` (questions and answer spans,
among 98 whole articles). The library is built in FOLDER and used again the next time.

A sentence is evidence if it shares more than half of the shorter of both with a marked span. recall@k: share of the
marked spans with such a sentence among the first k; any@k: share of the questions with one. The place of the evidence
is given too, so that a preference for the beginning or the end of a text can be seen. Intervals: bootstrap over
documents.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from literature_retrieval import scifact, sentences_of

from epicrisis.components import open_library_search
from epicrisis.configuration import load_settings
from epicrisis.corpus.readers import read_sources
from epicrisis.evaluation.analysis.statistics import estimate_mean
from epicrisis.library.ingest import add_documents, open_or_create
from epicrisis.models.encoders import load_encoder
from epicrisis.types import CharacterSpan, Document, Scope, Sentence

KS = (1, 3, 5, 10)
PASSAGES = 16
"""Passages whose sentences are ranked."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A query with its evidence: groups of (document, span); one found span per group is enough."""

    query: str
    evidence: tuple[tuple[str, CharacterSpan], ...]
    within: str | None = None
    """The only document to search."""


def main() -> None:
    """Build the library and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("set", choices=("scifact", "evidence-inference", "pubmedqa", "covid-qa"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--reranker")
    arguments = parser.parse_args()
    data = Path(os.environ["EPICRISIS_DATA"])
    documents, judged = load(arguments.set, data)
    settings = load_settings({"rerank": {"name": arguments.reranker}})
    encoder = load_encoder("minilm", settings.home)
    with open_or_create(arguments.folder, encoder, "minilm") as library:
        report = add_documents(library, documents, encoder)
        print(f"{report.added} added, {report.unchanged} there, {library.count()} documents and passages")
    lengths = {document.id: len(document.text) for document in documents}
    everything = frozenset(lengths)
    recalls: dict[int, list[float]] = {k: [] for k in KS}
    hits: dict[int, list[float]] = {k: [] for k in KS}
    thirds: dict[int, list[float]] = {0: [], 1: [], 2: []}
    clusters: list[str] = []
    seconds: list[float] = []
    with open_library_search(settings, arguments.folder) as search:
        for question in judged:
            scope = Scope(hidden=everything - {question.within} if question.within else frozenset())
            start = time.perf_counter()
            ranking = search.retriever.rank(question.query, PASSAGES, "hybrid", scope)
            sentences = search.retriever.rank_sentences(question.query, ranking.passages, max(KS)).sentences
            seconds.append(time.perf_counter() - start)
            places = [first_place(span, document, sentences) for document, span in question.evidence]
            clusters.append(question.evidence[0][0])
            for k in KS:
                found = [place < k for place in places]
                recalls[k].append(sum(found) / len(found))
                hits[k].append(float(any(found)))
            for (document, (start_of_span, _)), place in zip(question.evidence, places, strict=True):
                thirds[min(2, 3 * start_of_span // max(1, lengths[document]))].append(float(place < max(KS)))
    for name, table in (("recall", recalls), ("any", hits)):
        for k in KS:
            mean = estimate_mean(table[k], clusters)
            print(f"{name}@{k} {mean.value:.3f} [{mean.interval.low:.3f}, {mean.interval.high:.3f}]  n = {len(judged)}")
    for third, values in thirds.items():
        if values:
            print(
                f"recall@{max(KS)} of evidence in third {third + 1} of its document: {sum(values) / len(values):.3f}"
                f"  spans = {len(values)}"
            )
    print(f"median {median(seconds):.3f} s per question")


def first_place(span: CharacterSpan, document_id: str, sentences: Sequence[Sentence]) -> int:
    """Return the place, from 0, of the first sentence that shows this evidence, or a large number."""
    start, end = span
    for place, sentence in enumerate(sentences):
        shared = min(end, sentence.end) - max(start, sentence.start)
        shorter = min(end - start, sentence.end - sentence.start)
        if sentence.passage.document_id == document_id and shared > shorter / 2:
            return place
    return 10**9


def load(name: str, data: Path) -> tuple[list[Document], list[Judged]]:
    """Return the documents and the judged queries of a set."""
    if name == "scifact":
        return load_scifact(data)
    if name == "pubmedqa":
        return load_pubmedqa(data)
    return load_covid_qa(data) if name == "covid-qa" else load_evidence_inference(data)


def load_scifact(data: Path) -> tuple[list[Document], list[Judged]]:
    """Return the abstracts, and the validation claims with a rationale."""
    documents = list(scifact(data))
    sentences = scifact_sentences(data)
    spans: dict[str, list[CharacterSpan]] = {}
    for document in documents:
        at, places = 0, []
        for sentence in sentences[document.id]:
            places.append((at, at + len(sentence)))
            at += len(sentence) + 1
        spans[document.id] = places
    evidence: dict[tuple[str, str], list[tuple[str, CharacterSpan]]] = {}
    with (data / "scifact" / "claims_validation.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            for index in map(int, re.findall(r"\d+", row["evidence_sentences"])):
                abstract = row["evidence_doc_id"]
                evidence.setdefault((row["id"], row["claim"]), []).append((abstract, spans[abstract][index]))
    return documents, [Judged(claim, tuple(marked)) for (_, claim), marked in evidence.items()]


def scifact_sentences(data: Path) -> dict[str, list[str]]:
    """Return the sentences of each abstract as SciFact divides them."""
    with gzip.open(data / "scifact" / "corpus.csv.gz", "rt", encoding="utf-8", newline="") as file:
        return {row["doc_id"]: sentences_of(row["abstract"]) for row in csv.DictReader(file)}


def load_pubmedqa(data: Path) -> tuple[list[Document], list[Judged]]:
    """Return the abstracts without titles and conclusions, and the questions; the whole abstract is evidence."""
    file = data / "pubmedqa" / "ori_pqal.json"
    documents = [item for item in read_sources([file]) if isinstance(item, Document)]
    lengths = {document.id: len(document.text) for document in documents}
    judged: list[Judged] = []
    for pmid, entry in json.loads(file.read_text("utf-8")).items():
        document = f"pubmed:{pmid}"
        judged.append(Judged(entry["QUESTION"], ((document, (0, lengths[document])),)))
    return documents, judged


def load_covid_qa(data: Path) -> tuple[list[Document], list[Judged]]:
    """Return the articles, and the questions with the spans of their answers."""
    articles = json.loads((data / "covid_qa" / "200423_covidQA.json").read_text("utf-8"))["data"]
    documents: list[Document] = []
    judged: list[Judged] = []
    for article in articles:
        for paragraph in article["paragraphs"]:
            document = f"covid-qa:{paragraph['document_id']}"
            documents.append(Document(id=document, text=paragraph["context"], source="COVID-QA"))
            for entry in paragraph["qas"]:
                spans = []
                for answer in entry["answers"]:
                    spans.append((document, (answer["answer_start"], answer["answer_start"] + len(answer["text"]))))
                judged.append(Judged(entry["question"], tuple(spans)))
    return documents, judged


def load_evidence_inference(data: Path) -> tuple[list[Document], list[Judged]]:
    """Return the articles of the validation split, and one query per prompt with evidence."""
    documents: list[Document] = []
    judged: list[Judged] = []
    with gzip.open(data / "evidence_inference" / "validation.jsonl.gz", "rt", encoding="utf-8") as file:
        for article in map(json.loads, file):
            document = f"pmc:{article['pmcid']}"
            documents.append(Document(id=document, text=article["text"], source="Evidence Inference"))
            for prompt in article["prompts"]:
                query = (
                    f"What is the effect of {prompt['intervention']} compared with {prompt['comparator']} "
                    f"on {prompt['outcome']}?"
                )
                spans = []
                for annotation in prompt["annotations"]:
                    if annotation["end"] > annotation["start"]:
                        spans.append((document, (annotation["start"], annotation["end"])))
                if spans:
                    judged.append(Judged(query, tuple(dict.fromkeys(spans)), within=document))
    return documents, judged


if __name__ == "__main__":
    main()
