"""Rank single sentences of passages by how directly they speak to a question.

Sentences of literature are scored by a ranker trained on marked evidence (`epicrisis.reading`). The score of a note's
sentence adds up the cosine of the encoder, BM25 within the candidates, and the rank of its passage by the search;
without an encoder, words and rank decide (docs/design/evidence.md). A reranker, if there is one, orders the best
sentences again. Small chat models choose evidence badly, so sentences are selected before a chat model reads them.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from epicrisis.core.protocols import Encoder, Reranker
from epicrisis.core.references import STARTS
from epicrisis.core.types import CharacterSpan, Passage, Sentence, SentenceHit, SentenceRanking
from epicrisis.reading.articles import ArticleText, find_headings
from epicrisis.retrieval.long_questions import SentenceSplitter

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from epicrisis.reading.features import Found, ReadArticle, WordAnalyzer

DOCUMENTS_KEPT = 128
"""Documents whose features are kept in memory: about 0.3 MB for a whole article."""
RERANK_DEPTH = 32
"""Sentences that a reranker orders again."""
WORD_WEIGHT = 0.3
"""Weight of BM25, divided by its highest score, in comparison with the cosine."""
PASSAGE_WEIGHT = 0.2
"""Weight of the passage's rank: this for a sentence of the best passage, half of it for the second, and so on."""
MIN_WORDS = 3
"""Fewer words are a heading, unless `is_statement` says otherwise."""
MAX_HEADING_WORDS = 5
"""More words with a colon behind them may say something: `She was discharged on the following medications:`."""
NEAR_DUPLICATE = 0.8
"""Shared word pairs over all word pairs of two sentences that say the same."""
BM25_K1, BM25_B = 1.2, 0.75

MAX_LINE_WORDS = 8
"""More words without a mark behind them may be a sentence."""
NO_FINDING_LOSS = 8.0
"""How much lower a line of an article that is no sentence scores, and a plan (docs/design/reading.md)."""

NEAREST_PLACE = 3
"""The last place of the best sentence of the document that the search by meaning found first."""
NOW_POOL = 40
"""The best sentences of a patient's notes among which newer ones come first for a question about the present."""

_NOW = re.compile(
    r"\b(?:current(?:ly)?|now(?:adays)?|still|today|presently|at (?:present|the moment)|these days|latest|newest|"
    r"(?:most )?recent(?:ly)?|last(?! (?:year|month|week|day|night|spring|summer|autumn|fall|winter)))\b",
    re.IGNORECASE,
)
_WORD = re.compile(r"\w+")
_PLAN = re.compile(
    r"\bwe (?:\w+ )?hypothesi[sz]ed?\b|\b(?:we|study|trial|review|protocol|analysis) will\b|\bwill be (?:\w+ )?"
    r"(?:measured|assessed|randomi[sz]ed|compared|enrolled|recruited|searched|included|conducted|performed|reported)\b|"
    r"\bthis protocol describes\b|\b(?:prospero|trial|study|protocol) registration\b|"
    r"\bregistered (?:at|with|in|on|as|prospectively)\b|\bregistration (?:number|no)\b",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"[.!?…:;][\"'”’»)\]]{0,4}\s*$")
_SHORT_STATEMENT = re.compile(r"\d|:\s*\w|[.!?]\W*$")
# Two sentences that differ in one of these say different things, however similar they are otherwise.
_DECISIVE = re.compile(
    r"\d+|no|not|never|without|nor|neither|none|increas\w*|decreas\w*|reduc\w*|higher|lower|more|less|fewer|greater|"
    r"improv\w*|worse\w*|significant\w*|insignificant\w*|superior|inferior|positive\w*|negative\w*"
)


def is_statement(text: str) -> bool:
    """Return whether a sentence says something. `BACKGROUND.` and `Statistical analysis` are headings.

    Notes have short statements: two words are one with a number, a colon between them or a full stop after them. A few
    words with a colon behind them are a heading: `HISTORY OF PRESENT ILLNESS:`.
    """
    words = _WORD.findall(text)
    if len(words) <= MAX_HEADING_WORDS and text.rstrip().endswith(":"):
        return False
    return len(words) >= MIN_WORDS or (len(words) == MIN_WORDS - 1 and _SHORT_STATEMENT.search(text) is not None)


def is_line(text: str) -> bool:
    """Return whether words of an article are no sentence: `7 Bleeding and reversal`, `Recommendation 6.2.`"""
    words = _WORD.findall(text)
    return len(words) <= MIN_WORDS or (len(words) <= MAX_LINE_WORDS and _SENTENCE_END.search(text) is None)


def is_plan(text: str) -> bool:
    """Return whether a sentence says what a study will do or expects, or where it is registered."""
    return _PLAN.search(text) is not None


def find_fragments(spans: Sequence[CharacterSpan]) -> frozenset[int]:
    """Return the indices of the spans of a document that are part of another.

    A passage that ends inside a sentence has a part of it, and an overlapping passage has the whole.
    """
    fragments: set[int] = set()
    last = -1
    for index in sorted(range(len(spans)), key=lambda index: (spans[index][0], -spans[index][1])):
        if spans[index][1] <= last:
            fragments.add(index)
        last = max(last, spans[index][1])
    return frozenset(fragments)


@dataclass(frozen=True, slots=True)
class ReadDocument:
    """The statements of a document, in order, and what the ranker knows of them."""

    places: Sequence[tuple[int, int, int]]
    """The number of the passage, and start and end in the document."""
    article: ReadArticle
    plans: npt.NDArray[np.bool_]
    """Which say what a study will do, `(n,)`."""
    no_findings: npt.NDArray[np.bool_]
    """The plans, and the lines that are no sentence, `(n,)`. The last words may be one without its full stop."""


@dataclass(frozen=True, slots=True)
class Listing:
    """Which sentences of literature are worth a reader's time, of those that are ranked (docs/design/reading.md)."""

    per_document: int = 3
    """Sentences of one document."""
    odds: float = 0.3
    """How much the logarithm of the odds that its document answers adds to the score of a sentence."""
    least: float = 0.02
    """None of a document that answers with a lower probability, but for the best sentence."""
    gap: float = 4.0
    """No first sentence of a document that scores so much lower than the best."""
    further_gap: float = 1.5
    """No further sentence of a document that scores so much lower than the best."""
    nearest: str = ""
    """The document that the search by meaning found first: its best sentence is among the first `NEAREST_PLACE`."""


_Piece: TypeAlias = tuple[int, str, str, tuple[tuple[int, str], ...]]
"""A passage: its start, text and section, and the sections that begin within it."""


@lru_cache(maxsize=DOCUMENTS_KEPT)
def _read_document(
    title: str, pieces: tuple[_Piece, ...], split: SentenceSplitter, analyze: WordAnalyzer
) -> ReadDocument:
    """Return the sentences of a document that say something. Its title, which files often repeat, is left out."""
    import numpy as np

    from epicrisis.reading.features import read_article

    places: list[tuple[int, int, int]] = []
    texts: list[tuple[str, str]] = []
    for number, (first, text, section, changes) in enumerate(pieces):
        for start, end in split(text):
            named = [name for at, name in changes if at <= first + start]
            places.append((number, first + start, first + end))
            texts.append((text[start:end], named[-1] if named else section))
    order = sorted(range(len(places)), key=lambda index: places[index][1:])
    places, texts = [places[index] for index in order], [texts[index] for index in order]
    headings = find_headings(texts)
    fragments = find_fragments([(start, end) for _, start, end in places])
    title_words = _WORD.findall(title.casefold())
    kept: list[int] = []
    for index, (text, _) in enumerate(texts):
        repeats_title = len(texts) > 1 and _WORD.findall(text.casefold()) == title_words
        if index not in fragments and is_statement(text) and not repeats_title:
            kept.append(index)
    statements = [texts[index][0] for index in kept]
    article = read_article(ArticleText(statements, [headings[index] for index in kept]), analyze, title)
    plans = np.array([is_plan(text) for text in statements], dtype=np.bool_)
    lines = np.array([is_line(text) for text in statements], dtype=np.bool_)
    lines[-1:] = False
    return ReadDocument([places[index] for index in kept], article, plans, plans | lines)


def _list_pieces(passages: Sequence[Passage]) -> tuple[_Piece, ...]:
    pieces: list[_Piece] = []
    for passage in passages:
        section = passage.metadata.get("section", "")
        changes = passage.metadata.get(f"section{STARTS}", ())
        pieces.append((passage.start, passage.text, str(section), tuple((int(at), str(name)) for at, name in changes)))
    return tuple(pieces)


@dataclass(frozen=True, slots=True)
class SentenceRanker:
    """Ranks the sentences of passages with these tools. Without an encoder, notes are ranked by words and passage."""

    encoder: Encoder | None
    split: SentenceSplitter
    analyze: WordAnalyzer
    reranker: tuple[str, Reranker] | None = None
    """A name and a reranker."""

    def rank(
        self,
        question: str,
        passages: Sequence[Passage],
        k: int,
        ranks: Mapping[str, int] | None = None,
        listing: Listing | None = None,
    ) -> SentenceRanking:
        """Return the best `k` sentences of passages.

        `ranks` has the rank of each passage by the search, by its id. None: their order is the ranking. Passages that
        it does not have come after the others, with one rank. Near-duplicates, headings and titles of documents are
        left out. Sentences with equal scores keep the order of documents and text.
        `listing` limits the sentences of literature that a reader sees.
        """
        import numpy as np

        from epicrisis.reading.ranker import load_ranker
        from epicrisis.reading.relevance import judge_documents

        ranks = rank_passages(passages) if ranks is None else ranks
        candidates, found, read = self._read(passages, ranks)
        is_literature = all(passage.patient is None for passage in passages)
        ranker = load_ranker() if is_literature else None
        encoder = None if self.encoder is None or is_literature else self.encoder.fingerprint
        parameters: dict[str, object] = {"encoder": encoder, "k": k, "sentences": len(candidates)}
        if ranker is not None:
            parameters["ranker"] = ranker.fingerprint
        if not candidates:
            return SentenceRanking((), parameters)
        texts = [sentence.text for sentence in candidates]
        if ranker is not None:
            no_findings = np.concatenate([document.no_findings for document in read], dtype=np.float32)
            scores = ranker.score(question, found, self.analyze) - NO_FINDING_LOSS * no_findings
        else:
            scores, listing = self._score(question, candidates, texts, ranks), None
        relevance: float | None = None
        order = np.argsort(-scores, kind="stable")
        if listing is not None:
            plans = np.concatenate([document.plans for document in read])
            probabilities = judge_documents(question, found, self.analyze)
            relevance = float(probabilities.max())
            of_documents = np.repeat(probabilities, [len(document.article.counts) for document in found])
            scores = scores + listing.odds * np.log(of_documents / (1 - of_documents))
            order = np.argsort(-scores, kind="stable")
            gaps = np.full(len(order), listing.further_gap)
            gaps[_find_firsts(order, candidates)] = listing.gap
            kept = (of_documents >= listing.least) & (scores >= scores[order[0]] - gaps)
            # These are seen in any case.
            nearest = _find_best(order, candidates, plans, listing.nearest)
            kept[[order[0], *nearest]] = True
            order = order[kept[order]]
        notes: tuple[str, ...] = ()
        if self.reranker is not None:
            name, model = self.reranker
            best = order[:RERANK_DEPTH]
            best_texts = [texts[item] for item in best]
            scores[best] = model.score(question, best_texts)
            # The sentences after the best keep their scores, which are on another scale, and their places.
            order = np.concatenate([best[np.argsort(-scores[best], kind="stable")], order[RERANK_DEPTH:]])
            parameters["reranker"] = name
            notes = model.notes(question, best_texts)
        if listing is not None:
            order = _bring_up(order, nearest)
        limit = None if listing is None else listing.per_document
        is_about_now = not is_literature and _NOW.search(question) is not None
        wanted = max(k, NOW_POOL) if is_about_now else k
        hits = _select_hits([candidates[index] for index in order], scores[order].tolist(), wanted, limit)
        if is_about_now:
            hits = (*_favour_newest(hits[:NOW_POOL]), *hits[NOW_POOL:])[:k]
        return SentenceRanking(hits, parameters, notes, relevance=relevance)

    def judge(self, question: str, passages: Sequence[Passage]) -> float | None:
        """Return the highest probability that a document of these passages answers, or None without a sentence."""
        from epicrisis.reading.relevance import judge_documents

        candidates, found, _ = self._read(passages, rank_passages(passages))
        return float(judge_documents(question, found, self.analyze).max()) if candidates else None

    def compare_texts(self, queries: Sequence[str], texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Return for each query its similarity to each text; higher is more similar.

        It is in the unit of the encoder. Without one it is that of `score_words`, from 0 to 1.
        """
        rows: list[list[float]] = []
        if self.encoder is None:
            words = [self.analyze(text) for text in texts]
            for query in queries:
                rows.append(score_words(self.analyze(query), words).tolist())
        else:
            vectors = self.encoder.encode_passages([("", text) for text in texts])
            rows = (self.encoder.encode_queries(queries) @ vectors.T).tolist()
        return rows

    def _read(
        self, passages: Sequence[Passage], ranks: Mapping[str, int]
    ) -> tuple[list[Sentence], list[Found], list[ReadDocument]]:
        """Return the statements of the documents in order, and what the ranker knows of each document."""
        from epicrisis.reading.features import Found

        documents: dict[str, list[Passage]] = {}
        for passage in sorted(passages, key=lambda passage: ranks.get(passage.id, len(ranks))):
            documents.setdefault(passage.document_id, []).append(passage)
        sentences: list[Sentence] = []
        found: list[Found] = []
        documents_read: list[ReadDocument] = []
        for place, pieces in enumerate(documents.values()):
            pieces.sort(key=lambda passage: (passage.start, passage.end))
            read = _read_document(pieces[0].title, _list_pieces(pieces), self.split, self.analyze)
            sentences += [Sentence(pieces[number], start, end) for number, start, end in read.places]
            found.append(Found(read.article, place, [ranks.get(pieces[number].id) for number, _, _ in read.places]))
            documents_read.append(read)
        return sentences, found, documents_read

    def _score(
        self, question: str, candidates: Sequence[Sentence], texts: Sequence[str], ranks: Mapping[str, int]
    ) -> npt.NDArray[np.float32]:
        """Return the score of each sentence of notes, an array of shape `(n,)`."""
        import numpy as np

        ranks_of_passages = [ranks.get(sentence.passage.id, len(ranks)) for sentence in candidates]
        bonus = PASSAGE_WEIGHT / (1 + np.array(ranks_of_passages, dtype=np.float32))
        scores = score_words(self.analyze(question), [self.analyze(text) for text in texts])
        if self.encoder is not None:
            vectors = self.encoder.encode_passages([("", text) for text in texts])
            cosines: npt.NDArray[np.float32] = vectors @ self.encoder.encode_queries([question])[0]
            scores = cosines + WORD_WEIGHT * scores
        return scores + bonus


def _find_best(
    order: npt.NDArray[np.intp], sentences: Sequence[Sentence], plans: npt.NDArray[np.bool_], document_id: str
) -> npt.NDArray[np.intp]:
    """Return the index of the first sentence of a document in this order that is no plan.

    Its shape is `(1,)`, or `(0,)` without one.
    """
    import numpy as np

    is_of_document = np.array([sentence.passage.document_id == document_id for sentence in sentences])
    best: npt.NDArray[np.intp] = order[(is_of_document & ~plans)[order]][:1]
    return best


def _find_firsts(order: npt.NDArray[np.intp], sentences: Sequence[Sentence]) -> npt.NDArray[np.intp]:
    """Return the index of the first sentence of each document in this order, of shape `(documents,)`."""
    import numpy as np

    documents = np.array([sentence.passage.document_id for sentence in sentences])
    _, places = np.unique(documents[order], return_index=True)
    firsts: npt.NDArray[np.intp] = order[places]
    return firsts


def _bring_up(order: npt.NDArray[np.intp], best: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    """Return the order with this index at NEAREST_PLACE at the latest."""
    import numpy as np

    first, others = np.split(order, [NEAREST_PLACE - 1])
    missing = best[~np.isin(best, first)]
    return np.concatenate([first, missing, others[~np.isin(others, missing)]])


def _select_hits(
    sentences: Sequence[Sentence], scores: Sequence[float], k: int, per_document: int | None
) -> tuple[SentenceHit, ...]:
    """Return the first `k` sentences without near-duplicates, at most so many of one document."""
    hits: list[SentenceHit] = []
    wordings: list[Wording] = []
    counts = Counter[str]()
    for sentence, score in zip(sentences, scores, strict=True):
        document = sentence.passage.document_id
        if len(hits) == k:
            break
        if counts[document] == per_document:
            continue
        wording = read_wording(sentence.text)
        if not any(map(wording.is_like, wordings)):
            hits.append(SentenceHit(sentence, score, len(hits)))
            wordings.append(wording)
            counts[document] += 1
    return tuple(hits)


def _favour_newest(hits: Sequence[SentenceHit]) -> tuple[SentenceHit, ...]:
    """Return sentences of notes in an order in which a newer note counts as much as a better place.

    The newest note counts 1, others the square of the place of their date, and notes without a date the least. Places,
    and not scores, since those of a reranker are on another scale.
    """
    dates = sorted({hit.sentence.passage.date or "" for hit in hits})
    recency = {date: (place / len(dates)) ** 2 for place, date in enumerate(dates, 1)}
    order = sorted(hits, key=lambda hit: recency[hit.sentence.passage.date or ""] - hit.rank / len(hits), reverse=True)
    return tuple(replace(hit, rank=rank) for rank, hit in enumerate(order))


def rank_passages(passages: Sequence[Passage]) -> dict[str, int]:
    """Return the place of each passage by its id."""
    ranks: dict[str, int] = {}
    for passage in passages:
        ranks.setdefault(passage.id, len(ranks))
    return ranks


def score_words(query: Sequence[str], texts: Sequence[Sequence[str]]) -> npt.NDArray[np.float32]:
    """Return the BM25 score of each text, an array of shape `(n,)`, divided by the highest; 0 without a shared word.

    The document frequencies are those of the texts.
    """
    import numpy as np

    counts = list(map(Counter, texts))
    frequency = Counter[str]()
    for count in counts:
        frequency.update(count.keys())
    mean_length = sum(map(len, texts)) / len(texts)
    scores = np.zeros(len(texts), dtype=np.float32)
    for word in set(query) & frequency.keys():
        idf = math.log(1 + (len(texts) - frequency[word] + 0.5) / (frequency[word] + 0.5))
        for index, count in enumerate(counts):
            if word in count:
                length = 1 - BM25_B + BM25_B * len(texts[index]) / mean_length
                scores[index] += idf * count[word] * (BM25_K1 + 1) / (count[word] + BM25_K1 * length)
    highest = float(scores.max())
    return scores / highest if highest > 0 else scores


@dataclass(frozen=True, slots=True)
class Wording:
    """The words that decide what a sentence says, and its pairs of neighbouring words."""

    decisive: frozenset[str]
    pairs: frozenset[tuple[str, str]]

    def is_like(self, other: Wording) -> bool:
        """Return whether two sentences say the same in almost the same words.

        Sentences with different numbers, negations or directions are never near-duplicates, because they may contradict
        each other.
        """
        if self.decisive != other.decisive:
            return False
        return len(self.pairs & other.pairs) >= NEAR_DUPLICATE * len(self.pairs | other.pairs)


def read_wording(text: str) -> Wording:
    """Return what tells whether another sentence is a near-duplicate of this text."""
    words = _WORD.findall(text.casefold())
    return Wording(frozenset(filter(_DECISIVE.fullmatch, words)), frozenset(itertools.pairwise(words)))
