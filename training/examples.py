"""Questions with the sentences that answer them, from openly licensed data, for training and for measuring.

Articles of one split are never in another. A sentence shows a marked span if both share more than half of the shorter.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import json
import math
import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from epicrisis.corpus.base.chunking import find_sentences
from epicrisis.library.engines.word_index import analyze_words
from epicrisis.reading.articles import ArticleText, find_headings
from epicrisis.reading.features import Found, ReadArticle, read_article
from epicrisis.retrieval.sentence_ranking import is_statement

TEMPLATES = (
    "What is the effect of {i} compared with {c} on {o}?",
    "How does {i} change {o}?",
    "{i} versus {c}: {o}",
    "Is {o} different with {i} or with {c}?",
    "Does {i} improve {o} compared with {c}?",
    "Does {i} reduce {o}?",
)
COVID_ARTICLES = 60
"""Of 98 articles, these train; the others measure."""
OWN_WORDS = Path(__file__).parent / "own_words.jsonl"
"""Questions written for this program, with the places of the sentences that are worth seeing."""
POOL = 8
"""Documents of a search among which the sentences are ranked."""
Marks = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Text:
    """A document with the places of its sentences."""

    id: str
    read: ReadArticle
    spans: Sequence[tuple[int, int]]
    sentences: Sequence[str]


@dataclass(frozen=True, slots=True)
class Example:
    """A question, its document, and which of its sentences show each marked span `(sentences, spans)`."""

    question: str
    document: str
    shown: Marks
    direction: str = ""
    parts: tuple[str, str, str] = ("", "", "")
    """Outcome, intervention and comparator."""


@dataclass(frozen=True, slots=True)
class Set:
    """The documents and examples of a split."""

    texts: Mapping[str, Text]
    examples: Sequence[Example]


def read_text(id_: str, text: str, title: str = "", spans: Sequence[tuple[int, int]] | None = None) -> Text:
    """Return a document. Its sentences are found unless `spans` has them."""
    places = list(find_sentences(text)) if spans is None else list(spans)
    headings = find_headings((text[start:end], "") for start, end in places)
    kept = [index for index, (start, end) in enumerate(places) if spans is not None or is_statement(text[start:end])]
    sentences = [text[places[index][0] : places[index][1]] for index in kept]
    article = ArticleText(sentences, [headings[index] for index in kept])
    return Text(id_, read_article(article, analyze_words, title), [places[index] for index in kept], sentences)


def mark(text: Text, spans: Sequence[tuple[int, int]]) -> Marks:
    """Return which sentences show which spans."""
    shown = np.zeros((len(text.spans), len(spans)), dtype=np.bool_)
    for row, (start, end) in enumerate(text.spans):
        for column, (first, last) in enumerate(spans):
            shown[row, column] = 2 * (min(end, last) - max(start, first)) > min(end - start, last - first)
    return shown


def load_evidence_inference(data: Path, split: str, seed: int, templates: Sequence[str] = TEMPLATES) -> Set:
    """Return whole trial reports. Each prompt is asked once, in one of the forms."""
    chance = random.Random(seed)
    texts: dict[str, Text] = {}
    examples: list[Example] = []
    with gzip.open(data / "evidence_inference" / f"{split}.jsonl.gz", "rt", encoding="utf-8") as file:
        for article in map(json.loads, file):
            text = texts[article["pmcid"]] = read_text(article["pmcid"], article["text"])
            for prompt in article["prompts"]:
                spans = sorted(
                    {(note["start"], note["end"]) for note in prompt["annotations"] if note["end"] > note["start"]}
                )
                if spans:
                    parts = prompt["outcome"], prompt["intervention"], prompt["comparator"]
                    question = chance.choice(templates).format(o=parts[0], i=parts[1], c=parts[2])
                    labels = Counter(note["label"] for note in prompt["annotations"])
                    examples.append(Example(question, text.id, mark(text, spans), labels.most_common(1)[0][0], parts))
    return Set(texts, examples)


def load_scifact(data: Path, split: str) -> Set:
    """Return all abstracts, and the claims with a rationale."""
    texts: dict[str, Text] = {}
    with gzip.open(data / "scifact" / "corpus.csv.gz", "rt", encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            sentences = [
                match[1] or match[2]
                for match in re.finditer(r"'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"", row["abstract"])
            ]
            texts[row["doc_id"]] = _join(row["doc_id"], sentences, row["title"])
    evidence: dict[tuple[str, str, str], set[int]] = {}
    with (data / "scifact" / f"claims_{split}.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["evidence_doc_id"]:
                found = map(int, re.findall(r"\d+", row["evidence_sentences"]))
                evidence.setdefault((row["id"], row["claim"], row["evidence_doc_id"]), set()).update(found)
    examples: list[Example] = []
    for (_, claim, document), indices in evidence.items():
        shown = np.zeros((len(texts[document].spans), len(indices)), dtype=np.bool_)
        for column, index in enumerate(sorted(indices)):
            shown[index, column] = True
        examples.append(Example(claim, document, shown))
    return Set(texts, examples)


def _join(id_: str, sentences: Sequence[str], title: str) -> Text:
    spans: list[tuple[int, int]] = []
    at = 0
    for sentence in sentences:
        spans.append((at, at + len(sentence)))
        at += len(sentence) + 1
    return read_text(id_, " ".join(sentences), title, spans)


def load_covid_qa(data: Path) -> tuple[Set, Set]:
    """Return the articles that train and those that measure, with the questions about each."""
    articles = json.loads((data / "covid_qa" / "200423_covidQA.json").read_text("utf-8"))["data"]
    sets: list[tuple[dict[str, Text], list[Example]]] = [({}, []), ({}, [])]
    ids = sorted({str(paragraph["document_id"]) for article in articles for paragraph in article["paragraphs"]})
    random.Random(5).shuffle(ids)
    training = frozenset(ids[:COVID_ARTICLES])
    for article in articles:
        for paragraph in article["paragraphs"]:
            id_ = str(paragraph["document_id"])
            texts, examples = sets[id_ not in training]
            texts[id_] = text = read_text(id_, paragraph["context"])
            for entry in paragraph["qas"]:
                start = entry["answers"][0]["answer_start"]
                shown = mark(text, [(start, start + len(entry["answers"][0]["text"]))])
                if shown.any():
                    examples.append(Example(entry["question"], id_, shown))
    return Set(*sets[0]), Set(*sets[1])


def load_pubmedqa(data: Path) -> tuple[Set, Set]:
    """Return the abstracts, without titles and conclusions, that train and those that measure, with their questions."""
    sets: list[tuple[dict[str, Text], list[Example]]] = [({}, []), ({}, [])]
    for id_, entry in json.loads((data / "pubmedqa" / "ori_pqal.json").read_text("utf-8")).items():
        texts, examples = sets[not is_training_half(id_)]
        texts[id_] = text = read_text(id_, " ".join(entry["CONTEXTS"]))
        # Which of its sentences answer is not known.
        examples.append(Example(entry["QUESTION"], id_, np.zeros((len(text.spans), 0), dtype=np.bool_)))
    return Set(*sets[0]), Set(*sets[1])


def load_own_words(data: Path) -> tuple[Set, Set]:
    """Return abstracts of PubMedQA's half that trains, those for training and one in five for measuring.

    The question of each is in the words of someone who has not read it, and a reader marked the sentences worth seeing.
    Half of them have their conclusion.
    """
    abstracts = json.loads((data / "pubmedqa" / "ori_pqal.json").read_text("utf-8"))
    sets: list[tuple[dict[str, Text], list[Example]]] = [({}, []), ({}, [])]
    for row in map(json.loads, OWN_WORDS.open("r", encoding="utf-8")):
        id_, entry = row["pubmed"], abstracts[row["pubmed"]]
        parts = [*entry["CONTEXTS"], *([entry["LONG_ANSWER"]] if row["has_conclusion"] else [])]
        texts, examples = sets[int(hashlib.sha256(f"{id_}x".encode()).hexdigest(), 16) % 5 == 0]
        texts[id_] = text = read_text(id_, " ".join(parts))
        examples.append(Example(row["question"], id_, mark(text, row["useful"])))
    return Set(*sets[0]), Set(*sets[1])


def is_training_half(id_: str) -> bool:
    """Return whether a document of PubMedQA is of the half that trains. The other measures."""
    return int(hashlib.sha256(id_.encode()).hexdigest(), 16) % 2 == 0


class WordSearch:
    """Ranks documents by BM25, for training without an encoder."""

    def __init__(self, texts: Mapping[str, Text]) -> None:
        self.ids = list(texts)
        self.postings: dict[str, list[tuple[int, int]]] = {}
        self.lengths = np.zeros(len(texts))
        for place, text in enumerate(texts.values()):
            counts = Counter(word for words in text.read.words for word in words)
            self.lengths[place] = counts.total()
            for word, count in counts.items():
                self.postings.setdefault(word, []).append((place, count))

    def search(self, question: str, k: int) -> list[str]:
        """Return the ids of the best `k` documents."""
        scores = np.zeros(len(self.ids))
        norm = 1.2 * (0.25 + 0.75 * self.lengths / self.lengths.mean())
        for word in set(analyze_words(question)):
            postings = self.postings.get(word, [])
            idf = math.log(1 + (len(self.ids) - len(postings) + 0.5) / (len(postings) + 0.5))
            for place, count in postings:
                scores[place] += idf * count * 2.2 / (count + norm[place])
        return [self.ids[place] for place in np.argsort(-scores, kind="stable")[:k]]


def list_pools(examples: Set, k: int) -> Iterator[tuple[Example, list[Found], int]]:
    """Yield each example whose document a search by words finds, with the documents found, and the place of its own."""
    search = WordSearch(examples.texts)
    for example in examples.examples:
        ids = search.search(example.question, k)
        if example.document in ids:
            found = [Found(examples.texts[id_].read, rank) for rank, id_ in enumerate(ids)]
            yield example, found, ids.index(example.document)
