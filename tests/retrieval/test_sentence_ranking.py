"""Sentences of passages, ranked by a question."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from epicrisis.core.protocols import Reranker
from epicrisis.core.types import Passage
from epicrisis.corpus.base.chunking import find_sentences
from epicrisis.library.engines.word_index import analyze_words
from epicrisis.retrieval.sentence_ranking import (
    Listing,
    SentenceRanker,
    is_statement,
    read_wording,
    score_words,
)
from epicrisis.testing.hashing_encoder import HashingEncoder
from epicrisis.testing.scorers import TermOverlapReranker

TEXT = (
    "BACKGROUND. Aspirin is an old drug. Of 120 patients, e.g. those over 65 years, half took aspirin vs. placebo. "
    "Aspirin reduced stroke by 20 % (p < 0.05). Aspirin did not reduce death. The weather was fine."
)


def passage_of(text: str, ordinal: int = 0, start: int = 0, document: str = "d") -> Passage:
    return Passage(
        id=f"{document}#{ordinal}", document_id=document, ordinal=ordinal, start=start, end=start + len(text), text=text
    )


def ranker(reranker: tuple[str, Reranker] | None = None) -> SentenceRanker:
    return SentenceRanker(HashingEncoder(), find_sentences, analyze_words, reranker)


def test_sentences_are_verbatim_parts_of_their_passages() -> None:
    sentences = ranker().rank("aspirin", [passage_of(TEXT, start=100)], 50).sentences
    assert any(sentence.text.startswith("Of 120 patients, e.g. those over 65 years, half") for sentence in sentences)
    for sentence in sentences:
        assert (" " * 100 + TEXT)[sentence.start : sentence.end] == sentence.text


def test_sentence_of_two_overlapping_passages_is_returned_once() -> None:
    first = passage_of("One drug is here. Two drugs are here.")
    second = passage_of("Two drugs are here. Three drugs are here.", 1, 18)
    sentences = ranker().rank("drugs", [first, second], 50).sentences
    assert sorted(sentence.start for sentence in sentences) == [0, 18, 38]


def test_best_sentence_answers_the_question() -> None:
    ranking = ranker().rank("aspirin and stroke", [passage_of(TEXT)], 2)
    assert ranking.sentences[0].text == "Aspirin reduced stroke by 20 % (p < 0.05)."
    assert [hit.rank for hit in ranking.hits] == [0, 1]
    assert ranking.hits[0].score > ranking.hits[1].score


def test_headings_are_left_out_and_k_is_kept() -> None:
    texts = [sentence.text for sentence in ranker().rank("background", [passage_of(TEXT)], 50).sentences]
    assert "BACKGROUND." not in texts
    assert len(texts) == 5


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Diagnosis: heartburn.", True),
        ("No fever.", True),
        ("Sodium 128", True),
        ("Methods:", False),
        ("Statistical analysis", False),
        ("12.", False),
        ("HISTORY OF PRESENT ILLNESS:", False),
        ("Brief hospital course: ", False),
        ("She was discharged on the following medications:", True),
    ],
)
def test_short_statements_of_notes_are_no_headings(text: str, expected: bool) -> None:
    assert is_statement(text) is expected


def test_headings_and_rows_of_an_article_come_after_its_sentences() -> None:
    text = (
        "4 Dosing of apixaban and renal function\nRecommendation 4.2.\n"
        "Reduce apixaban to 2.5 mg twice daily when renal function is below 30 ml per minute.\n"
        "Drug Dosing Renal function\nApixaban dosing needs renal function"
    )
    texts = [
        sentence.text
        for sentence in ranker().rank("dosing of apixaban, renal function", [passage_of(text)], 9).sentences
    ]
    assert set(texts[:2]) == {
        "Reduce apixaban to 2.5 mg twice daily when renal function is below 30 ml per minute.",
        # The last words of an abstract may lack their full stop.
        "Apixaban dosing needs renal function",
    }
    note = replace(passage_of(text), patient="anna")
    assert len(ranker().rank("dosing of apixaban, renal function", [note], 9, listing=Listing()).sentences) >= 4


def test_title_repeated_in_the_text_is_left_out() -> None:
    title = "Aspirin and stroke: a trial"
    passage = replace(passage_of("ASPIRIN AND STROKE: A TRIAL\nIt lowered the rate of stroke."), title=title)
    texts = [hit.sentence.text for hit in ranker().rank("Does aspirin prevent stroke?", [passage], 3)]
    assert texts == ["It lowered the rate of stroke."]


def test_title_without_further_text_is_evidence() -> None:
    title = "Aspirin prevents stroke in women"
    passage = replace(passage_of(title), title=title)
    assert len(ranker().rank("Does aspirin prevent stroke?", [passage], 3).hits) == 1


def test_part_of_sentence_at_cut_of_passage_is_left_out() -> None:
    text = "Warfarin is old. Aspirin reduced stroke in older patients. Death was rare."
    cut = text.index("in older")
    passages = [passage_of(text[:cut].rstrip()), passage_of(text[17:], 1, 17), passage_of(text, document="other")]
    ranking = ranker().rank("aspirin and stroke", passages[:2], 5)
    assert ranking.sentences[0].text == "Aspirin reduced stroke in older patients."
    assert all(not sentence.text.endswith("stroke") for sentence in ranking.sentences)


def test_sentence_of_the_better_passage_wins_between_equals() -> None:
    passages = [passage_of("Statins lower cholesterol levels.", document=name) for name in ("first", "second")]
    ranking = ranker().rank("statins", passages, 5)
    assert [sentence.passage.document_id for sentence in ranking.sentences] == ["first"]


def test_reranker_orders_the_best_sentences() -> None:
    reranked = ranker(reranker=("words", TermOverlapReranker())).rank("the weather was fine", [passage_of(TEXT)], 3)
    assert reranked.sentences[0].text == "The weather was fine."
    assert reranked.parameters["reranker"] == "words"


def test_documents_are_judged_as_in_a_listing() -> None:
    passages = [passage_of(TEXT), passage_of("Zinc is a metal.", document="e")]
    question = "Does aspirin reduce stroke?"
    assert ranker().judge(question, passages) == ranker().rank(question, passages, 1, listing=Listing()).relevance
    assert ranker().judge(question, []) is None


def test_no_passage_gives_an_empty_ranking() -> None:
    assert ranker().rank("aspirin", [], 3).hits == ()


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        ("Aspirin reduced the risk of stroke in older patients by a fifth.", True),
        ("Aspirin increased the risk of stroke in older patients by a fifth.", False),
        ("Aspirin never reduced the risk of stroke in older patients by a fifth.", False),
        ("Aspirin reduced the risk of stroke in 65 older patients by a fifth.", False),
        ("Warfarin is a drug.", False),
    ],
)
def test_near_duplicates_never_differ_in_numbers_negation_or_direction(other: str, expected: bool) -> None:
    text = "Aspirin reduced the risk of stroke in older patients, by a fifth."
    assert read_wording(text).is_like(read_wording(other)) is expected


def test_word_scores_prefer_rare_words_and_are_at_most_1() -> None:
    texts = [["drug", "stroke"], ["drug", "death"], ["drug"]]
    scores = score_words(["drug", "stroke"], texts)
    assert scores.shape == (3,)
    assert np.argmax(scores) == 0
    assert scores[0] == 1
    assert not score_words(["unknown"], texts).any()


def test_words_and_rank_of_passage_order_sentences_of_notes_without_encoder() -> None:
    bare = SentenceRanker(None, find_sentences, analyze_words)
    texts = ("Zinc was given daily. Nobody was harmed.", "Aspirin prevents stroke. Aspirin was cheap.")
    passages = [
        Passage(id=f"d{n}#0", document_id=f"d{n}", ordinal=0, start=0, end=len(text), text=text, patient="anna")
        for n, text in enumerate(texts)
    ]
    ranking = bare.rank("Does aspirin prevent stroke?", passages, 3)
    assert [sentence.text for sentence in ranking.sentences] == [
        "Aspirin prevents stroke.",
        "Aspirin was cheap.",
        "Zinc was given daily.",
    ]
    assert ranking.parameters["encoder"] is None


@pytest.mark.parametrize(
    ("question", "first"),
    [
        ("What is the current dose of metoprolol?", "Now on metoprolol 50 mg."),
        ("Is metoprolol still given?", "Now on metoprolol 50 mg."),
        ("Which dose of metoprolol was given last year?", "The dose of metoprolol is 25 mg."),
        ("Which dose of metoprolol was the first?", "The dose of metoprolol is 25 mg."),
    ],
)
def test_newest_notes_come_first_for_questions_about_the_present(question: str, first: str) -> None:
    bare = SentenceRanker(None, find_sentences, analyze_words)
    notes = {"2021-02-03": "The dose of metoprolol is 25 mg.", "2024-06-12": "Now on metoprolol 50 mg.", None: "Well."}
    passages = [
        replace(passage_of(text, document=f"n{date}"), date=date, patient="anna") for date, text in notes.items()
    ]
    ranking = bare.rank(question, passages, 2)
    assert ranking.sentences[0].text == first
    assert [hit.rank for hit in ranking.hits] == [0, 1]


def test_texts_without_encoder_are_as_similar_as_their_words() -> None:
    bare = SentenceRanker(None, find_sentences, analyze_words)
    (row, other) = bare.compare_texts(["aspirin and stroke", "nothing in common"], ["Zinc.", "Aspirin for stroke."])
    assert row[0] == 0.0
    assert row[1] == 1.0
    assert other == [0.0, 0.0]


ZINC = (
    "We compared zinc with placebo in 120 children with acute diarrhoea. The duration of diarrhoea was significantly "
    "shorter with zinc than with placebo (p = 0.01). The colours of the walls were not recorded."
)
ASTHMA = "Budesonide was compared with placebo. The rate of attacks was significantly lower with budesonide (p = 0.01)."


@pytest.mark.parametrize(
    ("listing", "documents", "is_shorter"),
    [
        (None, {"z", "a"}, False),
        (Listing(least=0.0, gap=math.inf, further_gap=math.inf), {"z", "a"}, False),
        (Listing(least=0.05, gap=math.inf, further_gap=math.inf), {"z"}, True),
        (Listing(least=0.0, gap=1.0, further_gap=1.0), {"z"}, True),
        (Listing(least=0.0, gap=math.inf, further_gap=0.1), {"z", "a"}, True),
        (Listing(per_document=1, least=0.0, gap=math.inf, further_gap=math.inf), {"z", "a"}, True),
        (Listing(least=1.0, gap=-1.0, further_gap=-1.0), {"z"}, True),
        (Listing(least=1.0, gap=-1.0, further_gap=-1.0, nearest="a"), {"z", "a"}, True),
    ],
)
def test_listing_leaves_out_what_does_not_answer(
    listing: Listing | None, documents: set[str], is_shorter: bool
) -> None:
    """The best sentence is listed in any case."""
    passages = [
        Passage(id=f"{id_}#0", document_id=id_, ordinal=0, start=0, end=len(text), text=text)
        for id_, text in (("z", ZINC), ("a", ASTHMA))
    ]
    question = "What is the effect of zinc compared with placebo on the duration of diarrhoea?"
    ranking = SentenceRanker(None, find_sentences, analyze_words).rank(question, passages, 8, listing=listing)
    assert {hit.sentence.passage.document_id for hit in ranking} == documents
    assert (len(ranking.hits) < 5) is is_shorter
    assert ranking.hits[0].sentence.text.startswith("The duration of diarrhoea was")
    assert (ranking.relevance is None) is (listing is None)


@pytest.mark.parametrize(("nearest", "places"), [("", ["z", "z", "z", "a"]), ("a", ["z", "z", "a", "z"])])
def test_best_sentence_of_nearest_document_is_among_the_first_three(nearest: str, places: list[str]) -> None:
    outcome = "The {} of diarrhoea was significantly shorter with zinc than with placebo (p = 0.0{})."
    shorter = " ".join(outcome.format(name, number) for number, name in enumerate(("duration", "time", "length"), 1))
    passages = [
        Passage(id=f"{id_}#0", document_id=id_, ordinal=0, start=0, end=len(text), text=text)
        for id_, text in (("z", shorter), ("a", ASTHMA))
    ]
    listing = Listing(per_document=4, least=0.0, gap=math.inf, further_gap=math.inf, nearest=nearest)
    ranking = SentenceRanker(None, find_sentences, analyze_words).rank(
        "What is the effect of zinc compared with placebo on the duration of diarrhoea?", passages, 4, listing=listing
    )
    assert [hit.sentence.passage.document_id for hit in ranking] == places
    assert ranking.hits[places.index("a")].sentence.text.startswith("The rate of attacks")


def test_document_that_answers_raises_its_sentences() -> None:
    passages = [
        Passage(id=f"{id_}#0", document_id=id_, ordinal=0, start=0, end=len(text), text=text)
        for id_, text in (("z", ZINC), ("a", ASTHMA))
    ]
    question = "What is the effect of zinc compared with placebo on the duration of diarrhoea?"
    gaps: list[float] = []
    for odds in (0.0, 1.0):
        listing = Listing(odds=odds, least=0.0, gap=math.inf, further_gap=math.inf)
        ranking = SentenceRanker(None, find_sentences, analyze_words).rank(question, passages, 8, listing=listing)
        scores = {hit.sentence.text.split()[1]: hit.score for hit in ranking}
        gaps.append(scores["duration"] - scores["rate"])
    assert gaps[1] > gaps[0] + 1.0


@pytest.mark.parametrize(
    "plan",
    [
        "We hypothesise that colchicine reduces cardiovascular events.",
        "We will compare cardiovascular events with colchicine and with placebo.",
        "Colchicine and cardiovascular events: PROSPERO registration CRD42020123456.",
    ],
)
def test_plan_is_not_listed_beside_a_result(plan: str) -> None:
    result = "Cardiovascular events occurred in 6.8% with colchicine and 9.6% with placebo (HR 0.69)."
    question = "Does colchicine reduce cardiovascular events?"
    passages = [passage_of(plan, document="protocol"), passage_of(result, document="trial")]
    listed = ranker().rank(question, passages, 8, listing=Listing(nearest="protocol"))
    assert [sentence.text for sentence in listed.sentences] == [result]
    assert len(ranker().rank(question, passages[:1], 8, listing=Listing())) == 1


@pytest.mark.parametrize("after", ["", "\nThe patients came from many hospitals in the north."])
def test_last_words_of_a_document_may_lack_their_full_stop(after: str) -> None:
    """Elsewhere, a few words without one are a heading."""
    text = f"Children with fever were treated in two wards.\nStroke was rarer with aspirin{after}"
    passage = Passage(id="a#0", document_id="a", ordinal=0, start=0, end=len(text), text=text)
    ranking = SentenceRanker(None, find_sentences, analyze_words).rank("Is stroke rarer with aspirin?", [passage], 3)
    assert (ranking[0].sentence.text == "Stroke was rarer with aspirin") == (not after)
