"""Rank single sentences of passages by how directly they speak to a question.

A sentence's score adds up the cosine of the encoder, BM25 within the candidates, and the rank of its passage by the
search (the weights: docs/design/evidence.md). Without an encoder, words and rank decide. A reranker, if there is one,
orders the best sentences again. Small chat models choose evidence badly, so sentences are selected before a chat model
reads them.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from epicrisis.protocols import Encoder, Reranker
from epicrisis.retrieval.long_questions import SentenceSplitter
from epicrisis.types import Passage, Sentence, SentenceHit, SentenceRanking

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

WordAnalyzer: TypeAlias = Callable[[str], Sequence[str]]
"""Return the words of a text as a word index has them: lower case, stemmed, without stop words."""

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

_WORD = re.compile(r"\w+")
_SHORT_STATEMENT = re.compile(r"\d|:\s*\w|[.!?]\W*$")
# Two sentences that differ in one of these say different things, however similar they are otherwise.
_DECISIVE = re.compile(
    r"\d+|no|not|never|without|nor|neither|none|increas\w*|decreas\w*|reduc\w*|higher|lower|more|less|fewer|greater|"
    r"improv\w*|worse\w*|significant\w*|insignificant\w*|superior|inferior|positive\w*|negative\w*"
)


def split_passages(passages: Sequence[Passage], split: SentenceSplitter) -> list[Sentence]:
    """Return the sentences of the passages in their order. A sentence in two overlapping passages is returned once."""
    sentences: dict[tuple[str, int, int], Sentence] = {}
    for passage in passages:
        for start, end in split(passage.text):
            key = passage.document_id, passage.start + start, passage.start + end
            sentences.setdefault(key, Sentence(passage, *key[1:]))
    return list(sentences.values())


def is_statement(text: str) -> bool:
    """Return whether a sentence says something. `BACKGROUND.` and `Statistical analysis` are headings.

    Notes have short statements: two words are one with a number, a colon between them or a full stop after them. A few
    words with a colon behind them are a heading: `HISTORY OF PRESENT ILLNESS:`.
    """
    words = _WORD.findall(text)
    if len(words) <= MAX_HEADING_WORDS and text.rstrip().endswith(":"):
        return False
    return len(words) >= MIN_WORDS or (len(words) == MIN_WORDS - 1 and _SHORT_STATEMENT.search(text) is not None)


def is_repeated_title(sentence: Sentence) -> bool:
    """Return whether a sentence is the title of its document, which files often repeat before their text."""
    words = _WORD.findall(sentence.text.casefold())
    is_alone = len(sentence.text) >= len(sentence.passage.text.strip())
    return not is_alone and words == _WORD.findall(sentence.passage.title.casefold())


def remove_fragments(sentences: Sequence[Sentence]) -> list[Sentence]:
    """Return the sentences that are no part of another of the same document, in their order.

    A passage that ends inside a sentence has a part of it, and an overlapping passage has the whole.
    """
    ends: dict[str, int] = {}
    fragments: set[int] = set()
    for index in sorted(range(len(sentences)), key=lambda index: (sentences[index].start, -sentences[index].end)):
        document, end = sentences[index].passage.document_id, sentences[index].end
        if end <= ends.get(document, -1):
            fragments.add(index)
        ends[document] = max(end, ends.get(document, -1))
    return [sentence for index, sentence in enumerate(sentences) if index not in fragments]


@dataclass(frozen=True, slots=True)
class SentenceRanker:
    """Ranks the sentences of passages with these tools. Without an encoder, by words and the ranks of passages."""

    encoder: Encoder | None
    split: SentenceSplitter
    analyze: WordAnalyzer
    reranker: tuple[str, Reranker] | None = None
    """A name and a reranker."""

    def rank(
        self, question: str, passages: Sequence[Passage], k: int, ranks: Mapping[str, int] | None = None
    ) -> SentenceRanking:
        """Return the best `k` sentences of passages.

        `ranks` has the rank of each passage by the search, by its id. None: their order is the ranking. Passages that
        it does not have come after the others, with one rank. Near-duplicates, headings and titles of documents are
        left out. Sentences with equal scores keep the order of the text.
        """
        import numpy as np

        candidates: list[Sentence] = []
        for sentence in remove_fragments(split_passages(passages, self.split)):
            if is_statement(sentence.text) and not is_repeated_title(sentence):
                candidates.append(sentence)
        encoder = None if self.encoder is None else self.encoder.fingerprint
        parameters: dict[str, object] = {"encoder": encoder, "k": k, "sentences": len(candidates)}
        if not candidates:
            return SentenceRanking((), parameters)
        texts = [sentence.text for sentence in candidates]
        scores = self._score(question, candidates, texts, rank_passages(passages) if ranks is None else ranks)
        order = np.argsort(-scores, kind="stable")
        notes: tuple[str, ...] = ()
        if self.reranker is not None:
            name, model = self.reranker
            best = order[:RERANK_DEPTH]
            best_texts = list(map(texts.__getitem__, best))
            scores[best] = model.score(question, best_texts)
            # The sentences after the best keep their scores, which are on another scale, and their places.
            order = np.concatenate([best[np.argsort(-scores[best], kind="stable")], order[RERANK_DEPTH:]])
            parameters["reranker"] = name
            notes = model.notes(question, best_texts)
        hits: list[SentenceHit] = []
        for index in map(int, order):
            if len(hits) == k:
                break
            if not any(is_near_duplicate(texts[index], hit.sentence.text) for hit in hits):
                hits.append(SentenceHit(candidates[index], float(scores[index]), len(hits)))
        return SentenceRanking(tuple(hits), parameters, notes)

    def compare_texts(self, queries: Sequence[str], texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Return for each query its similarity to each text; higher is more similar.

        It is in the unit of the encoder. Without one it is that of `score_words`, from 0 to 1.
        """
        rows: list[list[float]] = []
        if self.encoder is None:
            words = list(map(self.analyze, texts))
            for query in queries:
                rows.append(score_words(self.analyze(query), words).tolist())
        else:
            vectors = self.encoder.encode_passages([("", text) for text in texts])
            rows = (self.encoder.encode_queries(queries) @ vectors.T).tolist()
        return rows

    def _score(
        self, question: str, candidates: Sequence[Sentence], texts: Sequence[str], ranks: Mapping[str, int]
    ) -> npt.NDArray[np.float32]:
        """Return the score of each sentence, an array of shape `(n,)`."""
        import numpy as np

        ranks_of_passages = [ranks.get(sentence.passage.id, len(ranks)) for sentence in candidates]
        bonus = PASSAGE_WEIGHT / (1 + np.array(ranks_of_passages, dtype=np.float32))
        scores = score_words(self.analyze(question), list(map(self.analyze, texts)))
        if self.encoder is not None:
            vectors = self.encoder.encode_passages([("", text) for text in texts])
            cosines: npt.NDArray[np.float32] = vectors @ self.encoder.encode_queries([question])[0]
            scores = cosines + WORD_WEIGHT * scores
        return scores + bonus


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


def is_near_duplicate(text: str, other: str) -> bool:
    """Return whether two sentences say the same in almost the same words.

    Sentences with different numbers, negations or directions are never near-duplicates, because they may contradict
    each other.
    """
    words, other_words = _WORD.findall(text.casefold()), _WORD.findall(other.casefold())
    if set(filter(_DECISIVE.fullmatch, words)) != set(filter(_DECISIVE.fullmatch, other_words)):
        return False
    pairs, other_pairs = set(itertools.pairwise(words)), set(itertools.pairwise(other_words))
    return len(pairs & other_pairs) >= NEAR_DUPLICATE * len(pairs | other_pairs)
