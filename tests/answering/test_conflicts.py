"""The conflict ledger: sides, sources, retractions, the rule that decided, and the JSON that shows it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace

import pytest

from epicrisis.answering.citations import cite
from epicrisis.answering.disagreements import find_conflicts
from epicrisis.core.answers import Answer, Conflict, PartialAnswer, Quotation, Vote
from epicrisis.core.serialization import to_json
from epicrisis.core.types import Passage, Question
from epicrisis.pipeline.overrides import RunOverrides
from epicrisis.pipeline.pipeline import Pipeline
from epicrisis.retrieval.rankings import rank_in_order
from epicrisis.settings.settings import ROLES, Settings
from epicrisis.testing.chat import ScriptedModel
from tests.support.strategies import OPEN_QUESTION, QUESTION, by_stage, passages, per_part, quoting, said

TRIAL, COHORT, CASE = "Randomized Controlled Trial", "MeSH cohort", "Case Reports"


def study(number: int, text: str, kind: str | None = TRIAL, *, retracted: bool = False) -> Passage:
    """An abstract of one sentence with this type of study."""
    metadata: dict[str, object] = {"publication_types": [kind]} if kind in (TRIAL, CASE) else {}
    if kind == COHORT:
        metadata = {"mesh": ["Cohort Studies"]}
    if retracted:
        metadata["retracted"] = True
    return Passage(
        id=f"d{number}#0",
        document_id=f"d{number}",
        ordinal=0,
        start=0,
        end=len(text),
        text=text,
        title=f"Study {number}",
        metadata=metadata,
    )


def quote(passage: Passage) -> Quotation:
    return Quotation(passage.id, passage.text, passage.start, passage.end)


def part(number: int, passage: Passage, choice: str | None, quotation: Quotation | None = None) -> PartialAnswer:
    return PartialAnswer(
        partition=number,
        passages=(passage.id,),
        state="relevant",
        text="It says so.",
        choice=choice,
        quotations=(quotation or quote(passage),),
    )


def conflicts_of(answer: Answer, *read: Passage) -> tuple[Conflict, ...]:
    return find_conflicts(answer, {passage.id: passage for passage in read})


def sentences(*read: Passage, question: Question = OPEN_QUESTION, text: str = "") -> Answer:
    """An answer of plain RAG that quotes each of these abstracts."""
    written, citations = cite(text, list(map(quote, read)), read)
    return Answer(question=question, strategy="rag", state="answered", text=written, citations=citations)


def in_parts(choices: Mapping[Passage, str] | list[tuple[Passage, str]], choice: str | None = "A") -> Answer:
    """A map-reduce answer with one part per abstract, and the citations of all."""
    pairs = list(choices.items()) if isinstance(choices, Mapping) else choices
    read = [passage for passage, _ in pairs]
    text, citations = cite("It does.", list(map(quote, read)), read)
    partials = tuple(part(number, passage, letter) for number, (passage, letter) in enumerate(pairs))
    return Answer(
        question=QUESTION,
        strategy="brief-context",
        state="answered",
        text=text,
        choice=choice,
        citations=citations,
        partials=partials,
    )


YES = [study(1, "Aspirin prevented stroke."), study(2, "Stroke fell with aspirin."), study(3, "Fewer had it.", COHORT)]
NO = study(4, "One patient had a stroke nevertheless.", CASE)


def test_parts_with_different_options_give_both_sides() -> None:
    answer = in_parts([(YES[0], "A"), (NO, "B"), (YES[1], "A"), (YES[2], "A")])
    (conflict,) = conflicts_of(answer, *YES, NO)
    assert conflict.basis == "parts"
    assert conflict.describe() == (
        "3 for A (yes): 2 randomised trials, 1 cohort study [1][3][4]; 1 for B (no): 1 case report [2]. "
        "Decided by: reduce call, with the majority of parts"
    )
    yes, no = conflict.sides
    assert (yes.choice, yes.is_answer, yes.partitions, yes.citations) == ("A", True, (0, 2, 3), (1, 3, 4))
    assert (no.choice, no.is_answer, no.partitions, no.citations) == ("B", False, (1,), (2,))
    assert [source.document_id for source in no.sources] == ["d4"]


def test_side_of_answer_comes_first_and_rule_says_it_is_the_minority() -> None:
    (conflict,) = conflicts_of(in_parts([(YES[0], "A"), (YES[1], "A"), (NO, "B")], "B"), *YES, NO)
    assert [side.choice for side in conflict.sides] == ["B", "A"]
    assert conflict.rule == "reduce call, against the majority of parts"


def test_tied_parts_are_named_in_rule() -> None:
    (conflict,) = conflicts_of(in_parts([(YES[0], "A"), (NO, "B")]), *YES, NO)
    assert conflict.rule == "reduce call, as the parts are tied"


def test_rule_of_strategy_and_abstention_are_named() -> None:
    answer = in_parts([(YES[0], "A"), (NO, "B"), (YES[1], "A")])
    assert conflicts_of(replace(answer, decided_by="majority of parts"), *YES, NO)[0].rule.startswith("majority of pa")
    abstained = replace(answer, state="abstained", choice=None)
    (conflict,) = conflicts_of(abstained, *YES, NO)
    assert conflict.rule == "nothing; the question is abstained"
    assert not any(side.is_answer for side in conflict.sides)


def test_opposite_sentence_of_same_document_is_not_cited_on_its_side() -> None:
    question = Question("Does aspirin reduce stroke?", form="open")
    texts = (RISE.text, f"After a year, {FALL.text}")
    both = study(1, " ".join(texts))
    other = study(2, FALL.text)
    length = len(texts[0])
    quotations = [
        Quotation(both.id, texts[0], 0, length),
        Quotation(both.id, texts[1], length + 1, length + 1 + len(texts[1])),
        quote(other),
    ]
    text, citations = cite("", quotations, [both, other])
    (conflict,) = conflicts_of(
        Answer(question=question, strategy="rag", state="answered", text=text, citations=citations), both, other
    )
    assert {side.label: side.citations for side in conflict.sides} == {"an increase": (1,), "a decrease": (3,)}


def test_study_type_in_another_passage_of_document_is_named() -> None:
    question = Question("Does aspirin reduce stroke?", form="open")
    cited = study(1, RISE.text, None)
    methods = replace(cited, id="d1#1", text="We randomised 200 people to aspirin or placebo.")
    other = study(2, FALL.text)
    (conflict,) = conflicts_of(sentences(cited, other, question=question), cited, methods, other)
    summaries = {side.label: side.summary for side in conflict.sides}
    assert summaries == {"an increase": "1 randomised trial", "a decrease": "1 randomised trial"}


def test_agreeing_or_silent_parts_give_no_conflict() -> None:
    assert conflicts_of(in_parts([(YES[0], "A"), (YES[1], "A")]), *YES) == ()
    answer = in_parts([(YES[0], "A"), (NO, "B")])
    silent = tuple(
        replace(partial, state="nothing") if partial.choice == "B" else partial for partial in answer.partials
    )
    assert conflicts_of(replace(answer, partials=silent), *YES, NO) == ()


def test_options_with_equal_text_are_one_side() -> None:
    question = Question("Does it?", options={"A": "yes", "B": "no", "C": "yes"}, form="choice")
    answer = replace(in_parts([(YES[0], "A"), (YES[1], "C")]), question=question)
    assert conflicts_of(answer, *YES) == ()


def test_retracted_study_alone_on_its_side_is_no_conflict() -> None:
    retracted = study(4, "It does nothing.", retracted=True)
    assert conflicts_of(in_parts([(YES[0], "A"), (retracted, "B")]), YES[0], retracted) == ()


def test_retracted_study_is_marked_and_not_counted() -> None:
    retracted = study(5, "It does nothing at all.", retracted=True)
    answer = in_parts([(YES[0], "A"), (retracted, "B"), (NO, "B")])
    (conflict,) = conflicts_of(answer, YES[0], retracted, NO)
    side = conflict.sides[1]
    assert (side.count, side.summary) == (1, "1 case report, 1 retracted, not counted")
    assert [source.is_retracted for source in side.sources] == [True, False]
    assert conflict.rule == "reduce call, as the parts are tied"


def test_part_without_verified_quotation_counts_as_part_without_source() -> None:
    answer = in_parts([(YES[0], "A")])
    unverified = part(1, NO, "B", Quotation(NO.id, "words of nobody"))
    (conflict,) = conflicts_of(replace(answer, partials=(*answer.partials, unverified)), YES[0], NO)
    assert conflict.sides[1].summary == "1 part without a verified quotation"
    assert conflict.sides[1].sources == ()


RISE = study(6, "Stroke occurred in 4.1 % with aspirin and in 2.0 % with placebo (odds ratio 2.08).")
FALL = study(7, "Stroke occurred in 2.0 % with aspirin and in 4.1 % with placebo (odds ratio 0.48).")
NONE = study(8, "The rates of stroke did not differ between aspirin and placebo.", COHORT)


@pytest.mark.parametrize(
    ("read", "labels"),
    [
        ((RISE, FALL), ["an increase", "a decrease"]),
        ((FALL, RISE), ["a decrease", "an increase"]),
        ((FALL, NONE), ["a decrease", "no difference"]),
    ],
)
def test_sentences_with_different_directions_conflict(read: tuple[Passage, ...], labels: list[str]) -> None:
    (conflict,) = conflicts_of(sentences(*read), *read)
    assert conflict.basis == "sentences"
    assert [side.label for side in conflict.sides] == labels
    assert [side.citations for side in conflict.sides] == [(1,), (2,)]
    assert conflict.rule == "answer call"


def test_side_of_written_answer_is_read_from_its_text() -> None:
    (conflict,) = conflicts_of(
        sentences(FALL, NONE, text="The risk of stroke did not differ with aspirin."), FALL, NONE
    )
    assert [(side.label, side.is_answer) for side in conflict.sides] == [("no difference", True), ("a decrease", False)]


def test_answer_against_the_direction_of_its_sentences_is_a_side() -> None:
    answer = sentences(FALL, text="The risk of stroke did not differ with aspirin.")
    (conflict,) = conflicts_of(answer, FALL)
    assert [(side.label, side.is_answer, side.sources == ()) for side in conflict.sides] == [
        ("no difference", True, True),
        ("a decrease", False, False),
    ]
    assert "1 for no difference: the chat model's answer alone" in conflict.describe()
    assert conflicts_of(sentences(FALL, text="Aspirin reduced the risk of stroke."), FALL) == ()


@pytest.mark.parametrize(("choice", "count"), [("A", 2), ("B", 0), ("C", 2), (None, 0)])
def test_option_against_the_direction_of_the_sentences_is_a_side(choice: str | None, count: int) -> None:
    options = {"A": "higher", "B": "lower", "C": "no difference"}
    question = Question("What is the effect of aspirin compared with placebo on stroke?", options=options)
    answer = replace(sentences(FALL, question=question), choice=choice)
    assert sum(len(conflict.sides) for conflict in conflicts_of(answer, FALL)) == count


def test_direction_that_the_evidence_chose_is_no_side_of_its_own() -> None:
    options = {"A": "higher", "B": "lower"}
    question = Question("What is the effect of aspirin compared with placebo on stroke?", options=options)
    answer = replace(sentences(FALL, question=question), choice="A", strategy="evidence")
    assert conflicts_of(answer, FALL) == ()


def test_direction_of_retracted_citation_does_not_count() -> None:
    retracted = replace(RISE, metadata={**RISE.metadata, "retracted": True})
    assert conflicts_of(sentences(FALL, retracted), FALL, retracted) == ()
    assert conflicts_of(sentences(FALL, retracted)) == (), "the marks of a citation say it too"


def test_document_counts_once_by_its_first_sentence() -> None:
    both = f"{FALL.text} The rates of stroke did not differ between aspirin and placebo in women."
    passage = study(1, both)
    cut = both.index("The rates")
    quotations = [Quotation(passage.id, both[: cut - 1], 0, cut - 1), Quotation(passage.id, both[cut:], cut, len(both))]
    _, citations = cite("", quotations, [passage])
    answer = Answer(question=OPEN_QUESTION, strategy="rag", state="answered", citations=citations)
    assert conflicts_of(answer, passage) == ()


def test_unverified_quotation_and_other_outcome_take_no_side() -> None:
    other = study(9, "Headache occurred in 4.1 % with aspirin and in 2.0 % with placebo (odds ratio 2.08).")
    question = Question("What is the effect of aspirin on stroke?")
    assert conflicts_of(sentences(FALL, other, question=question), FALL, other) == ()
    answer = sentences(RISE, FALL)
    unverified = tuple(replace(citation, verified=False) for citation in answer.citations)
    assert conflicts_of(replace(answer, citations=unverified), RISE, FALL) == ()


def test_record_and_question_without_effect_compare_no_sentences() -> None:
    answer = sentences(RISE, FALL)
    assert find_conflicts(answer, {}, is_record=True) == ()
    assert conflicts_of(sentences(RISE, FALL, question=Question("What is a stroke?"))) == ()


def test_evidence_without_model_says_that_nothing_decided() -> None:
    (conflict,) = conflicts_of(replace(sentences(RISE, FALL), strategy="evidence"))
    assert conflict.rule == "nothing; no model chose among the sentences"


def test_votes_for_different_options_conflict() -> None:
    votes = tuple(
        Vote(number=number, letter_order=("A", "B"), state="answered", choice=letter)
        for number, letter in enumerate("BAA")
    )
    failed = Vote(number=3, letter_order=("A", "B"), state="unparsed")
    answer = Answer(
        question=QUESTION,
        strategy="self-consistency",
        state="answered",
        choice="A",
        votes=(*votes, failed),
        decided_by="majority",
    )
    (conflict,) = conflicts_of(answer)
    assert conflict.describe() == "2 for A (yes): 2 votes; 1 for B (no): 1 vote. Decided by: votes (majority)"
    assert [side.votes for side in conflict.sides] == [(1, 2), (0,)]


def test_pipeline_answer_has_conflict_in_json() -> None:
    reduced = said(sources=[1, 2], answer="It does.", choice="A")
    model = ScriptedModel(by_stage(map=per_part({0: quoting(0, 1, "A"), 1: quoting(1, 1, "B")}), reduce=reduced))

    async def ask() -> Answer:
        settings = Settings.model_validate({"strategy": "brief-context", "citing": "quotes"})
        overrides = RunOverrides(
            options={"partition": 1}, ranking=rank_in_order(passages(2), "placed", {}), preflight=False
        )
        async with Pipeline(settings, dict.fromkeys(ROLES, model)) as pipeline:
            return await pipeline.answer(QUESTION, overrides=overrides)

    answer = asyncio.run(ask())
    (conflict,) = json.loads(json.dumps(to_json(answer)))["conflicts"]
    assert conflict["rule"] == "reduce call, as the parts are tied"
    assert [(side["choice"], side["citations"], side["is_answer"]) for side in conflict["sides"]] == [
        ("A", [1], True),
        ("B", [2], False),
    ]
    assert [side["sources"][0]["document_id"] for side in conflict["sides"]] == ["d0", "d1"]
