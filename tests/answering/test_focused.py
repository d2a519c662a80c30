"""The strategy focused: selected sentences with their neighbours, in order, at true offsets, and nothing else."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from epicrisis.answering.strategies.focused import focused
from epicrisis.core.answers import Answer, Notice, SentencesSelected
from epicrisis.core.errors import ScopeViolation
from epicrisis.core.partitioning import mark_largest_gap
from epicrisis.core.prompts import unfence
from epicrisis.core.types import (
    Document,
    EvidenceSpan,
    Passage,
    Question,
    Ranking,
    Scope,
    SentenceHit,
    SentenceRanking,
)
from epicrisis.corpus.base.chunking import build_passages, find_sentences
from epicrisis.retrieval.rankings import rank_in_order
from epicrisis.testing.chat import ScriptedModel
from tests.support.numbered_sentences import split_passages
from tests.support.strategies import NOT_FOUND, QUESTION, World, items_of, run, said, world

ANSWER = said(quotes=[{"doc": 1, "quote": "Sentence 3 of alpha"}], answer="It does.", choice="A")


def document(name: str, n: int = 8) -> Document:
    return Document(name, " ".join(f"Sentence {i} of {name} e.g. says vs. more." for i in range(n)), title=name)


def sentence_span(text: str, i: int) -> tuple[int, int]:
    return list(find_sentences(text))[i]


def whole(doc: Document) -> tuple[Passage, ...]:
    return build_passages(doc, [(0, len(doc.text))])


ALPHA, BETA = document("alpha"), document("beta")


def focus(model: ScriptedModel, passages: tuple[Passage, ...], best: list[tuple[str, int]], **more: Any) -> World:
    """A world whose encoder finds the sentences with these documents and numbers best."""
    asked = world(model, passages, **more)
    order = [f"Sentence {i} of {name} " for name, i in best]

    async def select(question: Question, k: int, ranking: Ranking | None) -> SentenceRanking:
        assert ranking is not None
        hits: list[SentenceHit] = []
        for beginning in order[:k]:
            for sentence in split_passages(ranking.passages):
                if sentence.text.startswith(beginning):
                    hits.append(SentenceHit(sentence, 1.0, len(hits)))
                    break
        return SentenceRanking(tuple(hits), {"encoder": "fake"})

    context = replace(asked.context, select_sentences=select, split_sentences=find_sentences)
    return replace(asked, context=context)


def read(
    passages: tuple[Passage, ...], best: list[tuple[str, int]], reply: str = ANSWER, **more: Any
) -> tuple[list[str], Answer, World]:
    """The texts that the model read, below their titles, with the answer."""
    model = ScriptedModel(lambda _: reply)
    asked = focus(model, passages, best, **more)
    answer = run(focused, asked)
    (request,) = model.requests
    return [item.partition("\n")[2] for item in items_of(request)], answer, asked


def numbers(texts: list[str]) -> list[list[str]]:
    """The sentences of each text, such as a3."""
    pieces: list[list[str]] = []
    for text in texts:
        words = text.split()
        pieces.append([f"{words[at + 3][0]}{words[at + 1]}" for at, word in enumerate(words) if word == "Sentence"])
    return pieces


def test_focused_reads_selected_sentences_with_neighbours() -> None:
    texts, answer, asked = read(whole(ALPHA), [("alpha", 3)])
    assert numbers(texts) == [["a2", "a3", "a4"]]
    assert (answer.strategy, answer.state, answer.choice) == ("focused", "answered", "A")
    (event,) = asked.of(SentencesSelected)
    assert event.sentences == (EvidenceSpan("alpha", *sentence_span(ALPHA.text, 3)),)


@pytest.mark.parametrize(("neighbours", "expected"), [(0, [["a3"]]), (2, [["a1", "a2", "a3", "a4", "a5"]])])
def test_neighbours_setting_changes_span(neighbours: int, expected: list[list[str]]) -> None:
    assert numbers(read(whole(ALPHA), [("alpha", 3)], neighbours=neighbours)[0]) == expected


def test_neighbours_end_at_document_border() -> None:
    """The last sentence of one document is not beside the first of another, in whatever order they were found."""
    (beta,) = whole(BETA)
    beta = replace(beta, id="beta#1", ordinal=1)
    for passages in ((*whole(ALPHA), beta), (beta, *whole(ALPHA))):
        texts, _, _ = read(passages, [("alpha", 7)], neighbours=3)
        assert numbers(texts) == [["a4", "a5", "a6", "a7"]]
        texts, _, _ = read(passages, [("beta", 0)], neighbours=2)
        assert numbers(texts) == [["b0", "b1", "b2"]]


def test_overlapping_spans_become_one_passage() -> None:
    texts, _, _ = read(whole(ALPHA), [("alpha", 4), ("alpha", 2), ("alpha", 7)])
    assert numbers(texts) == [["a1", "a2", "a3", "a4", "a5", "a6", "a7"]]


def test_spans_keep_document_order_and_best_document_comes_first() -> None:
    passages = (*whole(ALPHA), *whole(BETA))
    texts, _, _ = read(passages, [("beta", 6), ("alpha", 0), ("beta", 1)], neighbours=0)
    assert numbers(texts) == [["b1"], ["b6"], ["a0"]]


def test_record_keeps_order_of_time() -> None:
    """The ranks before the order of time decide what is selected, the order of time what is read first."""
    seen: list[list[str]] = []
    passages = (*whole(BETA), *whole(ALPHA))
    model = ScriptedModel(lambda _: ANSWER)
    asked = focus(model, passages, [("alpha", 6), ("beta", 0)], neighbours=0)
    parameters = {"order": "time", "ranked": ["alpha#0", "beta#0"]}
    select = asked.context.select_sentences

    async def retrieve(_: Question) -> Ranking:
        return rank_in_order(passages, "dense+time", parameters)

    async def spy(question: Question, k: int, ranking: Ranking | None) -> SentenceRanking:
        assert ranking is not None
        seen.append(list(ranking.ids))
        return await select(question, k, ranking)

    run(focused, replace(asked, context=replace(asked.context, retrieve=retrieve, select_sentences=spy)))
    assert seen == [["alpha#0", "beta#0"]]
    assert [item.partition("\n")[0] for item in unfence(model.requests[0].messages[-1].content)] == ["beta", "alpha"]


def test_citation_of_focused_answer_has_offsets_of_document() -> None:
    quote = "Sentence 6 of beta e.g. says vs. more."
    reply = said(quotes=[{"doc": 2, "quote": quote}], answer="It does.", choice="A")
    _, answer, _ = read((*whole(ALPHA), *whole(BETA)), [("alpha", 1), ("beta", 6)], reply)
    (citation,) = answer.citations
    assert citation.verified
    assert (citation.start, citation.end) == (BETA.text.index(quote), BETA.text.index(quote) + len(quote) - 1)
    start, end = map(int, citation.passage_id.removeprefix("beta#").split("-"))
    assert BETA.text[start:end] == " ".join(f"Sentence {i} of beta e.g. says vs. more." for i in (5, 6, 7))


def test_sentence_in_two_pieces_of_passages_is_read_whole() -> None:
    """Passages cut by characters, with an overlap, are joined before the sentences are found."""
    text, middle = ALPHA.text, sentence_span(ALPHA.text, 3)
    passages = build_passages(ALPHA, [(0, middle[0] + 25), (middle[0] + 5, len(text))])
    texts, _, _ = read(passages, [("alpha", 3)], neighbours=0)
    assert texts == [text[middle[0] : middle[1]]]
    texts, _, _ = read(passages, [("alpha", 3)])
    assert numbers(texts) == [["a2", "a3", "a4"]]


def test_passages_with_unknown_space_between_stay_apart_at_true_offsets() -> None:
    """Consecutive passages share their neighbours, and no character is invented between them."""
    middle = sentence_span(ALPHA.text, 3)
    passages = build_passages(ALPHA, [(0, middle[1]), (middle[1] + 1, len(ALPHA.text))])
    texts, _, _ = read(passages, [("alpha", 3)])
    assert numbers(texts) == [["a2", "a3"], ["a4"]]
    texts, _, _ = read((passages[0], replace(passages[1], ordinal=2)), [("alpha", 3)])
    assert numbers(texts) == [["a2", "a3"]]


def test_quotation_across_left_out_sentences_is_not_verified() -> None:
    quote = "Sentence 1 of alpha e.g. says vs. more. Sentence 3 of alpha"
    reply = said(quotes=[{"doc": 1, "quote": quote}], answer="It does.", choice="A")
    _, answer, _ = read(whole(ALPHA), [("alpha", 1), ("alpha", 3)], reply, neighbours=0)
    assert [citation.verified for citation in answer.citations] == [False]
    # Spans of consecutive passages are not consecutive themselves.
    middle = sentence_span(ALPHA.text, 2)
    passages = build_passages(ALPHA, [(0, middle[1]), (middle[1] + 1, len(ALPHA.text))])
    _, answer, _ = read(passages, [("alpha", 1), ("alpha", 3)], reply, neighbours=0)
    assert [citation.verified for citation in answer.citations] == [False]


@pytest.mark.parametrize(("spans", "expected"), [(2, [["a1"], ["a5"]]), (1, [["a1"]]), (0.5, [["a1"]])])
def test_focus_tokens_limits_whole_sentences(spans: float, expected: list[list[str]]) -> None:
    model = ScriptedModel(lambda _: ANSWER)

    async def measure() -> int:
        from epicrisis.core.protocols import Message

        text = slice(*sentence_span(ALPHA.text, 1))
        one = await model.count_tokens((Message("user", ALPHA.text[text]),))
        return one - await model.count_tokens((Message("user", ""),))

    budget = max(1, int(spans * asyncio.run(measure())))
    best = [("alpha", 1), ("alpha", 5), ("alpha", 7)]
    texts, _, asked = read(whole(ALPHA), best, neighbours=0, focus_tokens=budget, sentences=1)
    assert numbers(texts) == expected
    assert [notice.kind for notice in asked.of(Notice)] == (["sentences"] if spans < 1 else [])
    (event,) = asked.of(SentencesSelected)
    assert len(event.sentences) == len(expected)


def test_focused_without_passages_abstains_without_call() -> None:
    model = ScriptedModel(lambda _: ANSWER)
    answer = run(focused, focus(model, (), []))
    assert (answer.state, model.requests) == ("abstained", [])


def test_passage_outside_scope_is_not_selected_from() -> None:
    model = ScriptedModel(lambda _: ANSWER)
    with pytest.raises(ScopeViolation):
        run(focused, focus(model, whole(ALPHA), [("alpha", 1)], scope=Scope(hidden=frozenset({"alpha"}))))
    assert model.requests == []


def test_focused_selects_only_before_gap() -> None:
    passages = (*whole(ALPHA), *whole(BETA))
    model = ScriptedModel(lambda _: ANSWER)
    asked = focus(model, passages, [("beta", 1), ("alpha", 1)], neighbours=0)

    async def retrieve(_: Question) -> Ranking:
        return mark_largest_gap(rank_in_order(passages, "dense", {}), "documents")

    run(focused, replace(asked, context=replace(asked.context, retrieve=retrieve)))
    assert numbers([item.partition("\n")[2] for item in items_of(model.requests[0])]) == [["a1"]]


def test_focused_abstention_is_routed_to_all_passages() -> None:
    passages = (*whole(ALPHA), *whole(BETA))
    model = ScriptedModel(lambda _: NOT_FOUND)
    answer = run(focused, focus(model, passages, [("beta", 1)], neighbours=0, route="brief-context"), QUESTION)
    assert (answer.strategy, answer.state) == ("focused", "abstained")
    assert [len(items_of(request)) for request in model.requests] == [1, 2]
