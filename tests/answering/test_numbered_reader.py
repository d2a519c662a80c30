"""The position-biased reader under both kinds of citing, through the real strategies."""

from __future__ import annotations

from typing import Any

import pytest

from epicrisis.answering.strategies.brief_context import brief_context
from epicrisis.answering.strategies.rag import rag
from epicrisis.core.types import Question
from tests.support.numbered_sentences import ASPIRIN, PASSAGES, SENTENCES, ZINC, numbered_world, passage_of
from tests.support.position_biased_reader import KeyPassage, position_biased_reader
from tests.support.strategies import QUESTION, run

KEY = SENTENCES[1]
KEYS = {QUESTION.text: KeyPassage(KEY, "A")}
LONG_KEYS = {QUESTION.text: KeyPassage(ASPIRIN, "A")}
OTHERS = tuple(passage_of(ZINC.replace("Zinc", f"Zinc {i}"), f"other{i}") for i in range(3))


@pytest.mark.parametrize("strategy", [rag, brief_context])
@pytest.mark.parametrize("more", [{}, {"map_confidence": True}])
def test_reader_cites_key_sentence_by_its_number(strategy: Any, more: dict[str, Any]) -> None:
    model = position_biased_reader(KEYS, lambda place, n: 1.0)
    answer = run(strategy, numbered_world(model, (*OTHERS, *PASSAGES), partition=2, **more))
    assert (answer.state, answer.choice) == ("answered", "A")
    assert [(citation.quotation, citation.document_id) for citation in answer.citations] == [(KEY, "aspirin")]


@pytest.mark.parametrize("citing", ["quotes", "numbers"])
def test_reader_cites_the_key_document_of_a_whole_passage(citing: str) -> None:
    model = position_biased_reader(LONG_KEYS, lambda place, n: 1.0)
    answer = run(brief_context, numbered_world(model, (*OTHERS, *PASSAGES), partition=2, citing=citing))
    assert answer.choice == "A"
    assert {citation.document_id for citation in answer.citations} == {"aspirin"}


@pytest.mark.parametrize("citing", ["quotes", "numbers"])
def test_reader_that_misses_the_middle_abstains_and_finds_it_in_parts(citing: str) -> None:
    passages = (*OTHERS[:2], PASSAGES[0], *OTHERS[2:], PASSAGES[1])

    def blind_in_the_middle(place: int, n: int) -> float:
        return float(n == 1 or place in (0, n - 1))

    model = position_biased_reader(KEYS, blind_in_the_middle)
    assert run(rag, numbered_world(model, passages, citing=citing)).state == "abstained"
    answer = run(brief_context, numbered_world(model, passages, citing=citing, partition=1))
    assert answer.choice == "A"


def test_reader_extracts_words_of_a_numbered_sentence() -> None:
    question = Question("What dose prevented stroke?", form="extractive")
    keys = {question.text: KeyPassage(KEY, answer="75 mg daily")}
    model = position_biased_reader(keys, lambda place, n: 1.0)
    answer = run(rag, numbered_world(model, (*OTHERS, *PASSAGES)), question)
    assert (answer.state, answer.text) == ("answered", "75 mg daily")
    assert answer.citations[0].document_id == "aspirin"
