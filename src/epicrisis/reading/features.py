"""What is known of each sentence of an article, as numbers: by itself, and beside a question."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from epicrisis.reading.articles import ArticleText
from epicrisis.reading.comparisons import read_comparison
from epicrisis.reading.opposites import count_opposites, list_opposites, names_other_kind, read_kinds
from epicrisis.reading.roles import ROLES, classify_roles

WordAnalyzer: TypeAlias = Callable[[str], Sequence[str]]
"""Return the words of a text in lower case, stemmed, without stop words."""
Matrix: TypeAlias = npt.NDArray[np.float32]

SECTIONS: Mapping[str, re.Pattern[str]] = {
    name: re.compile(pattern, re.IGNORECASE)
    for name, pattern in {
        "title": r"^title",
        "abstract": r"abstract|summary",
        "background": r"background|introduction|rationale|context",
        "aim": r"\baims?\b|objective|purpose|hypothes",
        "methods": r"method|material|design|patients|participants|setting|procedure|statistic|intervention|"
        r"randomi[sz]ation|protocol|"
        r"measure|recruit|eligib|sample size|outcomes?$",
        "results": r"result|finding|efficacy|safety|adverse|outcomes?\b.{0,30}analys",
        "discussion": r"discussion|comment|limitation|strength",
        "conclusion": r"conclusion|interpretation|implication",
        "other": r"funding|conflict|competing|acknowledg|author|abbreviation|reference|ethic|consent|supplement|"
        r"registration|availab",
    }.items()
}
_MARKS: Mapping[str, re.Pattern[str]] = {
    name: re.compile(pattern)
    for name, pattern in {
        "p_value": r"\bp\s?(?:-?\s?values?\s?)?(?:[<>=≤≥]|&[lg]t;|was|of)\s?\.?0?\.?\d|\bp\s?=\s?ns\b",
        "interval": r"\bci\b|confidence interval|\d\s?(?:to|[-\u2013])\s?-?\d+\.\d",
        "ratio": r"\b(?:odds|hazard|risk|rate|relative risk|mean difference|or|hr|rr|aor|ahr|smd|md)\b.{0,20}\d",
        "significant": r"\bsignifican(?:t|tly|ce)\b",
        "no_difference": r"\bno(?:t)?\b.{0,40}\b(?:differ\w*|significan\w*|effect|change|associat\w*|influence|"
        r"affect\w*|improve\w*|increase\w*|"
        r"reduc\w*)|\b(?:similar|comparable|equivalent|did not|unchanged|no effect|neither)\b",
        "comparison": r"\b(?:than|versus|vs\.?|compared|comparison|between|both groups|control(?:s| group)?|placebo)\b",
        "up": r"\b(?:increas\w*|higher|greater|more|improv\w*|better|longer|superior|rose|elevat\w*|larger)\b",
        "down": r"\b(?:decreas\w*|lower|less|fewer|reduc\w*|shorter|inferior|worse\w*|declin\w*|fell|smaller|"
        r"prevent\w*)\b",
        "percent": r"\d\s?%|\bper ?cent\b",
        "spread": r"\u00b1|\bsd\b|\biqr\b|\bmean\b|\bmedian\b",
        "citation": r"\[\s?\d+(?:\s?[,\u2013-]\s?\d+)*\s?\]|\(\s?\d+(?:\s?[,\u2013-]\s?\d+)*\s?\)|et al",
        "first_person": r"\b(?:we|our|us)\b",
        "table": r"\b(?:table|figure|fig\.?|supplementary|appendix)\b\s?\S?\d?",
        "procedure": r"\b(?:were|was)\s+(?:\w+\s+)?(?:measured|assessed|randomi[sz]ed|recruited|collected|"
        r"analy[sz]ed|performed|used|calculated|"
        r"administered|recorded|defined|evaluated|obtained|assigned|enrolled|included|excluded|invited|asked|instructed|considered|tested)",
        "aim": r"\b(?:aim(?:s|ed)?|objectives?|purpose|hypothes\w+|to (?:determine|evaluate|assess|investigate|"
        r"examine|compare|test|study|"
        r"explore|find out|establish)|whether)\b",
        "conclude": r"\b(?:conclu\w+|in summary|our (?:results|findings|study|data)|these (?:results|findings|"
        r"data)|this (?:study|trial)|suggest\w*|"
        r"indicat\w+|demonstrat\w+|confirm\w*|show(?:s|ed|n)?|found|observed|revealed)\b",
        "hedge": r"\b(?:may|might|could|should|possibl\w+|potential\w*|would|likely|however|future|further)\b",
        "previous": r"\b(?:previous\w*|earlier|prior|other stud\w+|reported by|literature|meta-analys\w+|reviews?)\b",
        "baseline": r"\bbaseline\b|\bcharacteristics\b",
        "after": r"\b(?:after|at|during|within)\b.{0,25}\b(?:weeks?|months?|days?|years?|hours?|h|min|follow-up|end)\b",
        "sample": r"\bn\s?=\s?\d|\b\d+\s+(?:patients|participants|subjects|women|men|children|infants|adults)\b",
        "question_mark": r"\?",
        "caption": r"^\W*(?:table|figure|fig\.|additional file|supplementary (?:table|figure|file)|box)\s",
        "because": r"\b(?:because|due to|owing to|caused by|results? from|since|therefore|thus|leads? to|"
        r"mechanism\w*)\b",
        "definition": r"\b(?:is|are) (?:an?|the|known|called|defined|characteri[sz]ed)\b|\bcalled\b|\bnamed\b|"
        r"\bsuch as\b|\bincluding\b",
    }.items()
}
"""What a sentence in lower case may have. A search without case costs more."""
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_SEPARATOR = re.compile(r"[;:]\s")
OWN_FEATURES = (
    *(f"section {name}" for name in SECTIONS),
    *(f"in abstract {name}" for name in ("results", "conclusion", "methods", "background")),
    *_MARKS,
    *(f"next {name}" for name in ("p_value", "significant", "no_difference", "first_person")),
    *(f"previous {name}" for name in ("p_value", "significant", "comparison", "aim", "conclude")),
    *(f"role {role}" for role in ROLES),
    "numbers",
    "separators",
    "words",
    "place",
    "place in section",
    "sentences",
)
_QUESTIONS: Mapping[str, re.Pattern[str]] = {
    name: re.compile(pattern, re.IGNORECASE)
    for name, pattern in {
        "asks number": r"\bhow (?:many|much|often|long|large|high|common|old|far)\b|\b(?:percentage|proportion|"
        r"number|rate|prevalence|incidence|dose)\b",
        "asks why": r"\bwhy\b|\b(?:cause[sd]?|reasons?|mechanisms?)\b|\bhow (?:does|do|did|is|are)\b",
        "asks yes": r"^(?:is|are|was|were|does|do|did|can|could|will|would|should|has|have)\b",
        "asks which": r"^(?:what|which|who|where|when)\b",
    }.items()
}
QUESTION_FEATURES = (
    "bm25",
    "bm25 outcome",
    "bm25 rank",
    "outcome covered",
    "intervention covered",
    "comparator covered",
    "question covered",
    "outcome before",
    "outcome after",
    "intervention before",
    "question before",
    "question after",
    "outcome in heading",
    "question in heading",
    "outcome phrase",
    "pairs",
    "opposites",
    "outcome words",
    "has comparison",
    "outcome exact",
    "rare covered",
    "rarest covered",
    *_QUESTIONS,
    "document covered",
    "title covered",
    "document rank",
    "passage rank",
)
_K1, _B = 1.2, 0.75
_MAX_RANK = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadArticle:
    """What a document has for any question. It is computed once."""

    own: Matrix
    """The features of each sentence by itself `(n, len(OWN_FEATURES))`."""
    sentences: Sequence[str]
    words: Sequence[Sequence[str]]
    counts: Sequence[Mapping[str, int]]
    headings: Sequence[str]
    heading_words: Mapping[str, frozenset[str]]
    title: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Found:
    """A document with its place in the search."""

    article: ReadArticle
    rank: int = 0
    """The place of the document, from 0."""
    passage_ranks: Sequence[int | None] | None = None
    """The place of the passage of each sentence, None for one that was not found. None: all are of the first."""


def read_article(article: ArticleText, analyze: WordAnalyzer, title: str = "") -> ReadArticle:
    """Return what a document has for any question."""
    words = [analyze(sentence) for sentence in article.sentences]
    heading_words = {heading: frozenset(analyze(heading)) for heading in dict.fromkeys(article.headings)}
    own = describe_sentences(article)
    return ReadArticle(
        own=own,
        sentences=article.sentences,
        words=words,
        counts=[Counter(row) for row in words],
        headings=article.headings,
        heading_words=heading_words,
        title=frozenset(analyze(title)),
    )


def describe_sentences(article: ArticleText) -> Matrix:
    """Return the features of each sentence by itself `(n, len(OWN_FEATURES))`."""
    count = len(article.sentences)
    columns: dict[str, npt.ArrayLike] = {}
    sections = {
        heading: {name for name, pattern in SECTIONS.items() if pattern.search(heading)}
        for heading in set(article.headings)
    }
    for name in SECTIONS:
        columns[f"section {name}"] = [name in sections[heading] for heading in article.headings]
    for name in ("results", "conclusion", "methods", "background"):
        columns[f"in abstract {name}"] = [{"abstract", name} <= sections[heading] for heading in article.headings]
    marks = np.zeros((count + 2, len(_MARKS)))
    lowered = [sentence.lower() for sentence in article.sentences]
    for column, pattern in enumerate(_MARKS.values()):
        marks[1:-1, column] = [pattern.search(sentence) is not None for sentence in lowered]
    for prefix, rows in (("", marks[1:-1]), ("next ", marks[2:]), ("previous ", marks[:-2])):
        columns |= {f"{prefix}{name}": values for name, values in zip(_MARKS, rows.T, strict=True)}
    starts: list[int] = []
    for index, heading in enumerate(article.headings):
        starts.append(index if not index or heading != article.headings[index - 1] else starts[-1])
    lengths = Counter(starts)
    for role, probabilities in zip(ROLES, classify_roles(article.sentences).T, strict=True):
        columns[f"role {role}"] = probabilities
    columns["separators"] = [min(10, len(_SEPARATOR.findall(sentence))) for sentence in article.sentences]
    columns["numbers"] = [min(20, len(_NUMBER.findall(sentence))) for sentence in article.sentences]
    columns["words"] = [min(80, sentence.count(" ") + 1) for sentence in article.sentences]
    columns["place"] = np.arange(count) / max(1, count - 1)
    columns["place in section"] = [(index - start) / lengths[start] for index, start in enumerate(starts)]
    columns["sentences"] = np.full(count, min(500, count))
    return np.column_stack([columns[name] for name in OWN_FEATURES]).astype(np.float32)


def list_parts(question: str, analyze: WordAnalyzer) -> dict[str, list[str]]:
    """Return the stems of a question, and of its outcome, intervention and comparator, each once."""
    comparison = read_comparison(question)
    texts = {
        "question": question,
        "outcome": comparison.outcome,
        "intervention": comparison.intervention,
        "comparator": comparison.comparator,
    }
    parts = {name: list(dict.fromkeys(analyze(text))) for name, text in texts.items()}
    # What the outcome shares with the treatments says little of it.
    own = [word for word in parts["outcome"] if word not in parts["intervention"]]
    return {**parts, "outcome": own or parts["outcome"]}


def compare_with_question(question: str, documents: Sequence[Found], analyze: WordAnalyzer) -> Matrix:
    """Return the features beside a question `(n, len(QUESTION_FEATURES))` of all sentences of the documents, in order.

    A word is rare or frequent among these sentences.
    """
    comparison = read_comparison(question)
    parts = list_parts(question, analyze)
    pool = _Pool(documents, itertools.chain.from_iterable(parts.values()))
    phrase = " ".join(analyze(comparison.outcome))
    columns = {
        **_score_words(pool, parts),
        **_match_phrases(pool, question, phrase, set(pairwise(analyze(question)))),
        **_place_documents(pool, parts["question"]),
        "outcome words": pool.fill(len(parts["outcome"])),
        "has comparison": pool.fill(bool(comparison.intervention)),
        **{name: pool.fill(pattern.search(question) is not None) for name, pattern in _QUESTIONS.items()},
    }
    return np.column_stack([columns[name] for name in QUESTION_FEATURES]).astype(np.float32)


class _Pool:
    """The sentences of some documents, and how often these words are in each."""

    def __init__(self, documents: Sequence[Found], words: Iterable[str]) -> None:
        self.documents = documents
        counts = [count for found in documents for count in found.article.counts]
        self.size = len(counts)
        self.starts = np.cumsum([0, *(len(found.article.counts) for found in documents)])
        self.frequencies: dict[str, Matrix] = {}
        self.idf: dict[str, float] = {}
        for word in dict.fromkeys(words):
            self.frequencies[word] = np.array([count.get(word, 0) for count in counts], dtype=np.float32)
            n = int((self.frequencies[word] > 0).sum())
            self.idf[word] = math.log(1 + (self.size - n + 0.5) / (n + 0.5))
        lengths = [len(words_of) for found in documents for words_of in found.article.words]
        self.norm = _K1 * (1 - _B + _B * np.array(lengths, dtype=np.float32) / (np.mean(lengths) or 1))

    def score(self, part: Iterable[str]) -> Matrix:
        """Return BM25 of these words, divided by the highest."""
        scores = self.fill(0)
        for word in part:
            scores += self.idf[word] * self.frequencies[word] * (_K1 + 1) / (self.frequencies[word] + self.norm)
        return scores / (scores.max() or 1)

    def cover(self, part: Sequence[str]) -> Matrix:
        """Return the share of the weight of these words that each sentence has."""
        covered = self.fill(0)
        for word in part:
            covered += self.idf[word] * (self.frequencies[word] > 0)
        return covered / (sum(self.idf[word] for word in part) or 1)

    def share(self, part: Sequence[str], words: frozenset[str]) -> float:
        """Return the share of the weight of these words that other words have."""
        return sum(self.idf[word] for word in part if word in words) / (sum(self.idf[word] for word in part) or 1)

    def shift(self, column: Matrix, step: int) -> Matrix:
        """Return the values of the sentences before (1) or after (-1), 0 over the ends of a document."""
        shifted = np.roll(column, step)
        edges = self.starts[:-1] if step > 0 else self.starts[1:] - 1
        shifted[edges[np.diff(self.starts) > 0]] = 0
        return shifted

    def spread(self, values: Iterable[float]) -> Matrix:
        """Return one value of each document for all its sentences."""
        return np.repeat(np.array(list(values), dtype=np.float32), np.diff(self.starts))

    def fill(self, value: float) -> Matrix:
        """Return one value for all sentences."""
        return np.full(self.size, value, dtype=np.float32)


def _score_words(pool: _Pool, parts: Mapping[str, Sequence[str]]) -> dict[str, npt.ArrayLike]:
    """Return the features of the words of each part of the question, in the sentence, around it and above it."""
    asked, outcome = parts["question"], parts["outcome"]
    columns: dict[str, npt.ArrayLike] = {"bm25": pool.score(asked), "bm25 outcome": pool.score(outcome)}
    rank = np.empty(pool.size)
    rank[np.argsort(-np.asarray(columns["bm25"]), kind="stable")] = np.minimum(np.arange(pool.size), _MAX_RANK)
    columns["bm25 rank"] = rank
    for name, part in parts.items():
        columns[f"{name} covered"] = covered = pool.cover(part)
        columns[f"{name} before"], columns[f"{name} after"] = pool.shift(covered, 1), pool.shift(covered, -1)
    for name in ("outcome", "question"):
        of_heading: list[float] = []
        for found in pool.documents:
            words_of = found.article.heading_words
            shares = {heading: pool.share(parts[name], words) for heading, words in words_of.items()}
            of_heading += [shares[heading] for heading in found.article.headings]
        columns[f"{name} in heading"] = of_heading
    rare = sorted(asked, key=pool.idf.__getitem__, reverse=True)[:3]
    has = {word: pool.frequencies[word] > 0 for word in (*outcome, *rare)}
    columns["outcome exact"] = np.all([has[word] for word in outcome], axis=0) if outcome else pool.fill(0)
    columns["rare covered"] = np.sum([has[word] for word in rare], axis=0) if rare else pool.fill(0)
    columns["rarest covered"] = has[rare[0]] if rare else pool.fill(0)
    return columns


def _match_phrases(
    pool: _Pool, question: str, phrase: str, pairs: Collection[tuple[str, str]]
) -> dict[str, npt.ArrayLike]:
    """Return the features of words that follow each other, and of words that exclude each other."""
    words_of = [words for found in pool.documents for words in found.article.words]
    sentences = [sentence for found in pool.documents for sentence in found.article.sentences]
    opposites, kinds = list_opposites(question), read_kinds(question)
    return {
        "outcome phrase": [bool(phrase) and phrase in " ".join(words) for words in words_of],
        "pairs": [sum(pair in pairs for pair in pairwise(words)) for words in words_of],
        "opposites": [count_opposites(opposites, text) + names_other_kind(kinds, text) for text in sentences],
    }


def _place_documents(pool: _Pool, asked: Sequence[str]) -> dict[str, npt.ArrayLike]:
    """Return the features of documents: what they have of the question, and their places in the search."""
    passage_ranks: list[float] = []
    for found in pool.documents:
        ranks = found.passage_ranks if found.passage_ranks is not None else [0] * len(found.article.counts)
        passage_ranks += [0.0 if rank is None else 1 / (1 + rank) for rank in ranks]
    articles = [found.article for found in pool.documents]
    words_of = [frozenset[str]().union(*article.counts) for article in articles]
    return {
        "document covered": pool.spread(pool.share(asked, words) for words in words_of),
        "title covered": pool.spread(pool.share(asked, article.title) for article in articles),
        "document rank": pool.spread(1 / (1 + found.rank) for found in pool.documents),
        "passage rank": passage_ranks,
    }
