"""A context with a real selection of sentences, and replies that name their numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from epicrisis.core.protocols import ChatModel
from epicrisis.core.types import Passage, Question, Ranking, Sentence, SentenceHit, SentenceRanking
from epicrisis.corpus.base.chunking import find_sentences
from epicrisis.library.engines.word_index import analyze_words
from epicrisis.retrieval.sentence_ranking import SentenceRanker
from epicrisis.testing.hashing_encoder import HashingEncoder
from tests.support.strategies import World, said, world

ENCODER = HashingEncoder(1024)
ASPIRIN = (
    "Of 120 patients, half took aspirin. Aspirin at 75 mg daily prevented stroke after a heart attack. "
    "Bleeding did not differ between the groups."
)
ZINC = "Zinc shortened diarrhoea in children by one day. Vomiting was more frequent with zinc. No child died of it."


def passage_of(text: str, document: str, start: int = 100) -> Passage:
    return Passage(
        id=f"{document}#0",
        document_id=document,
        ordinal=0,
        start=start,
        end=start + len(text),
        text=text,
        title=f"On {document}",
        date="2015",
    )


PASSAGES = (passage_of(ASPIRIN, "aspirin"), passage_of(ZINC, "zinc"))
"""Six sentences, numbered 1 to 6."""
SENTENCES = tuple(passage.text[start:end] for passage in PASSAGES for start, end in find_sentences(passage.text))


def split_passages(passages: Sequence[Passage]) -> list[Sentence]:
    """The sentences of passages that do not overlap, in order."""
    sentences: list[Sentence] = []
    for passage in passages:
        places = find_sentences(passage.text)
        sentences += [Sentence(passage, passage.start + start, passage.start + end) for start, end in places]
    return sentences


async def select_by_encoder(question: Question, k: int, ranking: Ranking | None) -> SentenceRanking:
    """The real selection, with an encoder of hashes."""
    assert ranking is not None
    return SentenceRanker(ENCODER, find_sentences, analyze_words).rank(question.text, ranking.passages, k)


async def select_by_words(question: Question, k: int, ranking: Ranking | None) -> SentenceRanking:
    """The real selection without an encoder."""
    assert ranking is not None
    return SentenceRanker(None, find_sentences, analyze_words).rank(question.text, ranking.passages, k)


def select_ranked(*order: int) -> Any:
    """A selection of all sentences, best first in this order of their numbers."""

    async def select(_: Question, k: int, ranking: Ranking | None) -> SentenceRanking:
        assert ranking is not None
        sentences = split_passages(ranking.passages)
        hits = tuple(SentenceHit(sentences[number - 1], 1.0, rank) for rank, number in enumerate(order))
        return SentenceRanking(hits, {"encoder": "given"})

    return select


async def compare(queries: Sequence[str], texts: Sequence[str]) -> Sequence[Sequence[float]]:
    vectors = ENCODER.encode_queries(queries) @ ENCODER.encode_queries(texts).T
    rows: list[list[float]] = vectors.tolist()
    return rows


def numbered_world(model: ChatModel, found: Sequence[Passage] = PASSAGES, **more: Any) -> World:
    """A world whose replies name numbers of sentences."""
    defaults = {"citing": "numbers", "select_sentences": select_by_encoder, "compare_texts": compare}
    return world(model, found, **{**defaults, **more})


def claims(*rows: tuple[str, Sequence[object]], **more: Any) -> str:
    """A reply with these claims, each with the numbers that it names."""
    return said(claims=[{"text": text, "sentences": list(numbers)} for text, numbers in rows], **more)
