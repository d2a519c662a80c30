"""Sentence-level evidence recall@k: does the selection of sentences find what experts marked as evidence?

    EPICRISIS_DATA=... PYTHONPATH=.:training python benchmarks/evidence_sentences.py SET FOLDER [--reranker NAME]
        [--questions N] [--unseen]

SET is `scifact` (validation claims and the sentences of their rationales, among 5,183 abstracts), `evidence-inference`
(validation: outcome, intervention and comparator, and the spans of their evidence in one whole article), `pubmedqa`
(1,000 questions; evidence is any sentence of the question's own abstract, among 1,000 abstracts) or `covid-qa`
(questions and answer spans, among 98 whole articles). The library is built in FOLDER and used again the next time.
`--questions N` asks a random sample, the same one every time, and `--unseen` those of PubMedQA that trained nothing.
From a library the sentences are those that a reader is shown, and within one article all of it.

A sentence shows a marked span if both share more than half of the shorter one. recall@k: share of the marked spans that
one of the first k sentences shows, mean of the questions. any@k: share of the questions with such a sentence. first@k:
share of the first k sentences that are evidence. Recall by the third of the document where the middle of the evidence
lies shows a preference for the beginning or the end of a text. Intervals: 95 %, bootstrap over documents. Copies of a
finding elsewhere in the document, which nobody marked, count as misses.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import os
import random
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from examples import is_training_half
from literature_retrieval import scifact, sentences_of

from epicrisis.core.types import CharacterSpan, Document, Scope, Sentence
from epicrisis.corpus.readers.sources import read_sources
from epicrisis.evaluation.analysis.statistics import estimate_mean
from epicrisis.library.write.ingest import add_documents, open_or_create
from epicrisis.models.encoders import load_encoder
from epicrisis.pipeline.components import open_library_search
from epicrisis.pipeline.evidence_selection import SENTENCE_PASSAGES, EvidenceSearch
from epicrisis.settings.configuration import load_settings

KS = (1, 3, 5, 8, 10)
SAMPLE_SEED = 17


@dataclass(frozen=True, slots=True)
class Judged:
    """A query with its evidence."""

    query: str
    evidence: tuple[tuple[str, CharacterSpan], ...]
    """Documents, and the places of the marked spans in them."""
    within: str | None = None
    """The only document to search."""


def main() -> None:
    """Build the library and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("set", choices=("scifact", "evidence-inference", "pubmedqa", "covid-qa"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--reranker")
    parser.add_argument("--questions", type=int)
    parser.add_argument("--unseen", action="store_true")
    arguments = parser.parse_args()
    documents, judged = load(arguments.set, Path(os.environ["EPICRISIS_DATA"]))
    if arguments.unseen:
        judged = [
            question for question in judged if not is_training_half(question.evidence[0][0].removeprefix("pubmed:"))
        ]
    if arguments.questions is not None and arguments.questions < len(judged):
        judged = random.Random(SAMPLE_SEED).sample(judged, arguments.questions)
    settings = load_settings({"rerank": {"name": arguments.reranker}})
    encoder = load_encoder("minilm", settings.home, settings.threads)
    with open_or_create(arguments.folder, encoder, "minilm") as library:
        report = add_documents(library, documents, encoder)
        print(f"{report.added} added, {report.unchanged} there, {library.count()} documents and passages", flush=True)
    texts = {document.id: document.text for document in documents}
    seconds: list[float] = []
    places: list[list[int]] = []
    shares: dict[int, list[float]] = {k: [] for k in KS}
    with open_library_search(settings, arguments.folder) as search:
        for question in judged:
            hidden = texts.keys() - {question.within} if question.within else ()
            start = time.perf_counter()
            ranking = search.retriever.rank(
                question.query, SENTENCE_PASSAGES, "hybrid", Scope(hidden=frozenset(hidden))
            )
            if question.within is None:
                evidence = EvidenceSearch(settings, search.retriever)
                sentences = evidence.list_evidence(question.query, ranking, max(KS), Scope()).sentences
            else:
                passages = search.retriever.read_whole(ranking.passages, Scope())
                ranker = search.retriever.sentence_ranker
                sentences = ranker.rank(question.query, passages, max(KS), ranking.ranks).sentences
            seconds.append(time.perf_counter() - start)
            for sentence in sentences:
                # Otherwise the marked places would be those of another text.
                assert texts[sentence.passage.document_id][sentence.start : sentence.end] == sentence.text
            places.append([first_place(span, document, sentences) for document, span in question.evidence])
            for k in KS:
                shown = 0
                for sentence in sentences[:k]:
                    shown += any(shows(sentence, document, span) for document, span in question.evidence)
                shares[k].append(shown / max(1, len(sentences[:k])))
    print_figures(judged, places, shares, {name: len(text) for name, text in texts.items()})
    print(f"median {median(seconds):.3f} s per question")


def print_figures(
    judged: Sequence[Judged],
    places: Sequence[Sequence[int]],
    shares: Mapping[int, Sequence[float]],
    lengths: Mapping[str, int],
) -> None:
    """Print the figures of all questions, and the recall by the third of the document where the evidence lies.

    `places` are those of `first_place` for each span of each question, and `lengths` the characters of each document.
    """
    clusters = [question.evidence[0][0] for question in judged]
    for k in KS:
        recalls: list[float] = []
        hits: list[float] = []
        for spans in places:
            found = [place < k for place in spans]
            recalls.append(sum(found) / len(found))
            hits.append(float(any(found)))
        for name, values in (("recall", recalls), ("any", hits), ("first", shares[k])):
            print(f"{name}@{k} {format_mean(values, clusters)}  questions = {len(judged)}")
    thirds: dict[int, list[float]] = {0: [], 1: [], 2: []}
    owners: dict[int, list[str]] = {0: [], 1: [], 2: []}
    for question, spans in zip(judged, places, strict=True):
        for (document, (start, end)), place in zip(question.evidence, spans, strict=True):
            if end - start < lengths[document]:
                third = min(2, 3 * (start + end) // (2 * lengths[document]))
                thirds[third].append(float(place < max(KS)))
                owners[third].append(document)
    for third, values in thirds.items():
        if values:
            print(f"recall@{max(KS)}, third {third + 1}: {format_mean(values, owners[third])}  spans = {len(values)}")


def format_mean(values: Sequence[float], clusters: Sequence[str]) -> str:
    """Return the mean with its interval."""
    mean = estimate_mean(values, clusters)
    return f"{mean.value:.3f} [{mean.interval.low:.3f}, {mean.interval.high:.3f}]"


def first_place(span: CharacterSpan, document_id: str, sentences: Sequence[Sentence]) -> int:
    """Return the place, from 0, of the first sentence that shows this evidence, or a large number."""
    for place, sentence in enumerate(sentences):
        if shows(sentence, document_id, span):
            return place
    return 10**9


def shows(sentence: Sentence, document_id: str, span: CharacterSpan) -> bool:
    """Return whether the sentence and the span of this document share more than half of the shorter one."""
    start, end = span
    shared = min(end, sentence.end) - max(start, sentence.start)
    shorter = min(end - start, sentence.end - sentence.start)
    return sentence.passage.document_id == document_id and shared > shorter / 2


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
