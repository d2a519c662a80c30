"""The studies of an answer on its page: once each, with direction and ratio, and a verdict in words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from epicrisis.core.answers import Answer, Citation, Claim
from epicrisis.core.references import Reference
from epicrisis.core.study_types import StudyTypeMatch
from epicrisis.core.types import Question
from epicrisis.server.page.answer_view import AnswerPageView, build_answer_view
from epicrisis.server.page.plain_words import leave_out_commands
from epicrisis.server.state.stored_answers import StoredAnswer

QUESTION = Question("Does aspirin reduce the risk of pre-eclampsia?")
FEWER = (
    "Pre-eclampsia occurred in 1.6% with aspirin and 4.3% with placebo "
    "(odds ratio 0.38; 95% CI 0.20 to 0.74; p = 0.004)."
)
LESS = "Aspirin reduced the risk of pre-eclampsia (p = 0.004)."
NO_DIFFERENCE = "Pre-eclampsia did not differ between aspirin and placebo (p = 0.57)."
SAME = "There was no difference in pre-eclampsia with aspirin (RR 0.95; 95% CI 0.80 to 1.13; p = 0.57)."


def cite(number: int, document: str, sentence: str) -> Citation:
    study = StudyTypeMatch("randomised-trial", "title")
    reference = Reference(authors=(f"Name{number}, A",), year="2017", study=study)
    return Citation(
        number=number,
        passage_id=f"{document}#0",
        document_id=document,
        title=f"Trial {document}",
        source="",
        date="2017",
        start=0,
        end=50,
        quotation=sentence,
        verified=True,
        reference=reference,
    )


def view(*citations: Citation, question: Question = QUESTION, **more: Any) -> AnswerPageView:
    answer = Answer(question=question, strategy="evidence", state="answered", text="text", citations=citations)
    return build_answer_view(
        StoredAnswer(id="id", answer=replace(answer, **more), passages=(), library="lib", owner="", at=0.0)
    )


def read_verdict(page: AnswerPageView) -> list[str]:
    return ["".join(run.text for run in line.runs) for line in page.verdict]


def test_study_of_two_sentences_is_shown_once_with_its_type() -> None:
    page = view(cite(1, "d1", FEWER), cite(2, "d2", SAME), cite(3, "d1", "Aspirin was well tolerated."))
    assert [[sentence.number for sentence in study.sentences] for study in page.studies] == [[1, 3], [2]]
    assert page.studies[0].facts == ("randomised trial", "2017")
    assert page.sources_name == "Studies"
    assert {sentence.badge for study in page.studies for sentence in study.sentences} == {""}


def test_direction_that_all_studies_share_is_the_verdict_with_its_probability() -> None:
    page = view(cite(1, "d1", LESS), cite(2, "d2", LESS))
    assert read_verdict(page) == ["Pre-eclampsia: a decrease"]
    assert page.basis[0].startswith("Read by a program from [1] (0.9")
    assert page.quote is None


def test_directions_that_differ_stand_side_by_side_uncounted() -> None:
    page = view(cite(1, "d1", LESS), cite(2, "d2", NO_DIFFERENCE))
    assert read_verdict(page) == ["Pre-eclampsia: the studies differ"]
    assert "a decrease: [1]" in page.basis[0]
    assert "no difference shown: [2]" in page.basis[0]


def test_direction_of_some_studies_is_no_verdict() -> None:
    page = view(cite(1, "d1", NO_DIFFERENCE), cite(2, "d2", "Women took aspirin."))
    assert read_verdict(page) == []
    assert page.quote is not None
    assert page.studies[0].direction == "no difference shown"


def test_ratios_of_several_studies_are_the_verdict_as_a_range() -> None:
    assert read_verdict(view(cite(1, "d1", FEWER), cite(2, "d2", SAME))) == ["Pre-eclampsia: ratios from 0.38 to 0.95"]


def test_best_sentence_is_the_verdict_without_direction_and_ratio() -> None:
    page = view(cite(1, "d1", "Women took aspirin."), cite(2, "d2", FEWER))
    assert read_verdict(page) == []
    assert page.quote is not None
    assert page.quote.number == 1


def test_ratios_are_drawn_on_one_axis_in_their_order() -> None:
    figures = view(cite(1, "d1", FEWER), cite(2, "d2", SAME), cite(3, "d3", "Aspirin helped.")).figures
    first, second = (row.mark for row in figures.rows)
    assert first is not None
    assert second is not None
    assert first.low < first.x < first.high < figures.one < second.high
    assert second.low < figures.one
    assert figures.heading == "Ratio and 95 % interval"
    assert (figures.one, "1") in figures.ticks


def test_one_ratio_is_written_and_not_drawn() -> None:
    figures = view(cite(1, "d1", FEWER)).figures
    assert [row.mark for row in figures.rows] == [None]
    assert figures.ticks == ()


def test_ratio_of_another_outcome_is_no_figure() -> None:
    other = "Mortality was lower with aspirin (RR 0.76; 95% CI 0.55 to 1.04)."
    assert view(cite(1, "d1", other)).figures.rows == ()


def test_support_that_all_claims_have_is_said_once() -> None:
    claims = tuple(Claim(f"Claim {number}.", (1,), "supported", checked_by="rules") for number in (1, 2))
    same = view(cite(1, "d1", FEWER), strategy="rag", claims=claims)
    assert {line.support_label for line in (*same.verdict, *same.claims)} == {""}
    assert same.basis == ("Each sentence is supported by the words it cites.",)
    mixed = (claims[0], replace(claims[1], support="not-checked", checked_by=""))
    other = view(cite(1, "d1", FEWER), strategy="rag", claims=mixed)
    assert [line.support_label for line in (*other.verdict, *other.claims)] == ["supported", "not checked"]


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("No answer is written; --model URL names one", "No answer is written"),
        ("The question is long. Pass `--encoder medcpt`. It was cut.", "The question is long. It was cut."),
        ("run `epicrisis library optimize`", ""),
        ("Delete it (`epicrisis library delete`) and add it again.", "Delete it and add it again."),
        ("two words - and a dash -- kept", "two words - and a dash -- kept"),
    ],
)
def test_text_of_the_command_line_is_left_out(line: str, kept: str) -> None:
    assert leave_out_commands([line]) == ((kept,) if kept else ())
