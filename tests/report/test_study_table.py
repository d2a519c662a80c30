"""The evidence table: one row for each cited document, cells that open at their place, and a safe CSV file."""

from __future__ import annotations

import csv
import io
from dataclasses import replace

import pytest

from epicrisis.core.answers import Answer, Citation, WithheldAnswer
from epicrisis.core.references import Reference
from epicrisis.core.study_types import StudyTypeMatch
from epicrisis.core.types import Passage, Question
from epicrisis.report.study_table import build_study_table, list_studies, study_table_csv

TEXT = "We randomised 1776 women with a high risk. Aspirin reduced the risk of pre-eclampsia (p = 0.004)."
SENTENCE = "Aspirin reduced the risk of pre-eclampsia (p = 0.004)."
START = TEXT.index(SENTENCE)
PASSAGE = Passage(id="d1#0", document_id="d1", ordinal=0, start=100, end=100 + len(TEXT), text=TEXT, title="Aspirin")
TRIAL = StudyTypeMatch("randomised-trial", "publication type")
CITATION = Citation(
    number=1,
    passage_id="d1#0",
    document_id="d1",
    title="Aspirin",
    source="PubMed",
    date="2017",
    start=100 + START,
    end=100 + len(TEXT),
    quotation=SENTENCE,
    verified=True,
    reference=Reference(journal="Gut", year="2017", study=TRIAL),
)
QUESTION = Question("Does aspirin reduce the risk of pre-eclampsia?")
ANSWER = Answer(question=QUESTION, strategy="rag", state="answered", text="It does. [1]", citations=(CITATION,))


def test_row_has_design_size_population_direction_and_sentence() -> None:
    (row,) = build_study_table(ANSWER, [PASSAGE])
    assert (row.design, row.year, row.direction, row.sentence) == ("randomised trial", "2017", "a decrease", SENTENCE)
    assert row.size is not None
    assert row.population is not None
    for cell in (row.size, row.population):
        assert TEXT[cell.span[0] - 100 : cell.span[1] - 100] == cell.text
    assert row.size.text == "1776 women"


@pytest.mark.parametrize(("patient", "shown"), [(None, 3), ("anna", 5)])
def test_screen_has_three_studies_and_counts_the_others(patient: str | None, shown: int) -> None:
    """Each note of a patient may be the one that matters."""
    citations = [replace(CITATION, number=number, document_id=f"d{number}") for number in range(1, 6)]
    question = replace(QUESTION, patient=patient)
    studies = list_studies(replace(ANSWER, question=question, strategy="evidence", citations=tuple(citations)))
    assert [entry.label for entry in studies.entries] == [f"[{number}]" for number in range(1, shown + 1)]
    assert studies.lines == (() if patient else ("2 more studies, farther from the question",))


def test_size_of_another_study_far_into_a_document_is_not_its_own() -> None:
    text = f"{'A guideline on aspirin. ' * 130}The PAUSE cohort of 3007 patients was included. {SENTENCE}"
    start = text.index(SENTENCE)
    passages = [
        replace(PASSAGE, start=0, end=3000, text=text[:3000]),
        replace(PASSAGE, id="d1#1", ordinal=1, start=3000, end=len(text), text=text[3000:]),
    ]
    answer = replace(ANSWER, citations=(replace(CITATION, start=start, end=len(text)),))
    (row,) = build_study_table(answer, passages)
    assert row.size is None


def test_document_with_several_citations_has_one_row_and_first_verified_sentence() -> None:
    unverified = replace(CITATION, number=2, verified=False, quotation="Made up.")
    answer = replace(ANSWER, citations=(unverified, CITATION))
    (row,) = build_study_table(answer, [PASSAGE])
    assert row.citations == (1, 2)
    assert row.sentence == SENTENCE


def test_unverified_sentence_has_no_direction() -> None:
    answer = replace(ANSWER, citations=(replace(CITATION, verified=False),))
    assert build_study_table(answer, [PASSAGE])[0].direction == ""


def test_sentence_about_methods_has_no_direction() -> None:
    methods = "Those at high risk of pre-eclampsia were randomised to aspirin 150 mg or placebo."
    answer = replace(ANSWER, citations=(replace(CITATION, quotation=methods),))
    assert build_study_table(answer, [PASSAGE])[0].direction == ""


@pytest.mark.parametrize(
    ("sentence", "ratio"),
    [
        ("Aspirin lowered the risk of pre-eclampsia (odds ratio 0.38, 95% CI 0.20 to 0.74).", "0.38 (0.20 to 0.74)"),
        ("Aspirin increased survival without pre-eclampsia (odds ratio 2.6, 95% CI 1.4 to 5.0).", None),
        ("Calcium lowered the risk of pre-eclampsia in aspirin users (odds ratio 0.5, 95% CI 0.3 to 0.8).", None),
    ],
)
def test_ratio_is_that_of_the_asked_outcome_under_the_asked_intervention(sentence: str, ratio: str | None) -> None:
    answer = replace(ANSWER, citations=(replace(CITATION, quotation=sentence),))
    (row,) = build_study_table(answer, [])
    assert (row.ratio.text if row.ratio else None) == ratio


def test_document_without_known_text_states_nothing() -> None:
    (row,) = build_study_table(ANSWER, [])
    assert (row.size, row.population) == (None, None)


def test_withheld_answer_shows_the_sources_the_model_named() -> None:
    answer = replace(ANSWER, state="abstained", citations=(), withheld=WithheldAnswer("x", "y", citations=(CITATION,)))
    assert len(build_study_table(answer, [PASSAGE])) == 1


def test_retracted_study_is_marked() -> None:
    answer = replace(ANSWER, citations=(replace(CITATION, marks=("retracted",)),))
    (row,) = build_study_table(answer, [PASSAGE])
    assert row.warning == "RETRACTED"
    assert "RETRACTED" in study_table_csv([row])


def test_csv_never_begins_a_cell_with_a_formula() -> None:
    evil = '=HYPERLINK("http://evil")'
    answer = replace(ANSWER, citations=(replace(CITATION, quotation=evil, title=evil, document_id="+1"),))
    rows = list(csv.reader(io.StringIO(study_table_csv(build_study_table(answer, [])))))
    assert len(rows) == 2
    for value in rows[1]:
        assert not value.startswith(("=", "+", "-", "@"))
