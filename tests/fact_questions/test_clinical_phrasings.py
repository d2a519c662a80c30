"""Questions as clinicians type them, about a chart whose every entry is known: exact, or not answered.

Each was written as an attack on the rules. What is not answered is left to the notes, or refused with a reason.
"""

from __future__ import annotations

import pytest

from tests.fact_questions.test_computed_answers import Chart
from tests.support.clinical_chart import clinical_chart
from tests.support.clinical_phrasings import EXACT, NOT_ANSWERED

CHART = clinical_chart()


def lines(text: str) -> list[str]:
    return text.strip().split("\n")


@pytest.mark.parametrize("line", lines(EXACT))
def test_question_of_a_clinician_is_answered_exactly(line: str) -> None:
    question, _, result = line.partition(" => ")
    computed = CHART.ask(question)
    assert computed is not None
    assert (computed.state, computed.result) == ("answered", result)


@pytest.mark.parametrize("question", lines(NOT_ANSWERED))
def test_question_of_a_clinician_that_is_not_understood_is_not_answered(question: str) -> None:
    computed = CHART.ask(question)
    assert computed is None or (computed.state == "abstained" and computed.result == "")


MEDICATIONS = "Metformin 500 MG Oral Tablet; Atorvastatin 40 MG Oral Tablet; Apixaban 5 MG Oral Tablet"


@pytest.mark.parametrize("question", ["current meds", "what meds is he taking", "how many meds is she on"])
def test_question_for_current_medications_lists_all_of_them(question: str) -> None:
    computed = CHART.ask(question)
    assert computed is not None
    assert computed.result == MEDICATIONS


@pytest.mark.parametrize("question", ["What was her last bicarbonate?", "last bicarb", "highest bicarbonate in 2150"])
def test_question_for_a_value_is_not_answered_with_a_drug_of_its_name(question: str) -> None:
    chart = Chart().lab("2150-01-02", "1.1")
    chart.add("medication", "Sodium bicarbonate 650 MG", "2150-02-01", event="start", source="m/1", status="active")
    computed = chart.ask(question)
    assert computed is not None
    assert (computed.state, computed.result, computed.rows) == ("abstained", "", ())
    assert computed.statement.startswith("No structured value of the record is called “bicarb")


@pytest.mark.parametrize(
    ("question", "statement"),
    [
        ("What was the highest severity of pain?", "The highest Pain severity - 0-10 scale is 7"),
        (
            "What was the last severity score?",
            "No structured value of the record is called “severity score”; near it is",
        ),
        (
            "What was the lowest pulse pressure?",
            "No structured value of the record is called “pulse pressure”; near it",
        ),
    ],
)
def test_question_for_a_value_names_the_nearest_values(question: str, statement: str) -> None:
    chart = Chart()
    chart.add("vital-sign", "Pain severity - 0-10 scale", "2150-01-02", value="7", source="v/1")
    chart.add("vital-sign", "Pulse width", "2150-01-02", value="5", source="v/2")
    computed = chart.ask(question)
    assert computed is not None
    assert computed.statement.startswith(statement)


def test_current_medications_of_a_year_are_listed_and_not_called_current_at_its_end() -> None:
    chart = Chart()
    chart.add("medication", "Metformin 500 MG", "2150-01-02", event="start", source="m/1", status="active")
    computed = chart.ask("current medications in 2150")
    assert computed is not None
    assert computed.statement.startswith("The record has 1 structured entry of medications (in 2150)")


@pytest.mark.parametrize("question", ["What was the last visit?", "What was the last treatment for pain?"])
def test_question_for_no_value_names_none(question: str) -> None:
    chart = Chart()
    chart.add("vital-sign", "Pain severity - 0-10 scale", "2150-01-02", value="7", source="v/1")
    assert chart.ask(question) is None


@pytest.mark.parametrize(
    ("question", "name"),
    [
        ("Has she ever had influenza?", "Influenza vaccine"),
        ("Has she ever had the flu?", "Influenza vaccine"),
        ("Has she ever had shingles?", "Zoster vaccine"),
        ("Has she ever had pneumonia?", "Pneumococcal polysaccharide vaccine"),
        ("Has she ever had hepatitis B?", "Hepatitis B vaccine"),
    ],
)
def test_vaccine_does_not_count_as_the_illness(question: str, name: str) -> None:
    chart = Chart().add("immunization", name, "2150-01-02", event="given", source="i/1")
    chart.add("problem", "Gout", "2149-01-02", source="c/1", status="active")
    computed = chart.ask(question)
    assert computed is None or computed.result in ("", "no entry")


@pytest.mark.parametrize(
    ("question", "name", "result"),
    [
        ("Has she ever had an MI?", "Acute myocardial infarction", "yes"),
        ("Has she ever had a heart attack?", "NSTEMI", "yes"),
        ("Has she ever had a stroke?", "Cerebral infarction", "yes"),
        ("Has she ever had a DVT?", "Acute deep venous thrombosis of leg", "yes"),
        ("Has she ever had a deep vein thrombosis?", "DVT of left leg", "yes"),
        ("Does she have DM?", "Type 2 diabetes mellitus", "Type 2 diabetes mellitus"),
        ("Does she have a UTI?", "Urinary tract infection", "Urinary tract infection"),
    ],
)
def test_abbreviation_or_common_word_names_the_problem(question: str, name: str, result: str) -> None:
    computed = Chart().add("problem", name, "2150-01-02", source="c/1", status="active").ask(question)
    assert computed is not None
    assert computed.result == result


@pytest.mark.parametrize(
    ("question", "name"),
    [
        ("Has she ever had a STEMI?", "Non-ST elevation myocardial infarction"),
        ("Does she have DM?", "Diabetes insipidus"),
        ("Has she ever had RA?", "Rheumatoid arthritis"),
        ("Does she have MS?", "Mitral stenosis"),
    ],
)
def test_abbreviation_is_not_taken_for_another_problem(question: str, name: str) -> None:
    computed = Chart().add("problem", name, "2150-01-02", source="c/1", status="active").ask(question)
    assert computed is None or computed.result == ""


@pytest.mark.parametrize("words", ["this admission", "the current admission", "her present hospitalization"])
def test_current_admission_after_discharge_is_not_the_last_one(words: str) -> None:
    computed = CHART.ask(f"highest WBC during {words}")
    assert computed is None or computed.state == "abstained"


def test_current_admission_of_a_patient_in_hospital_is_the_last_one() -> None:
    chart = Chart().add("encounter", "Inpatient Visit", "2150-05-30T09:00", event="start", encounter="S1", source="e/1")
    chart.add("encounter", "Inpatient Visit", "2150-06-02T09:00", event="end", encounter="S1", source="e/1")
    chart.lab("2150-01-02", "3.3").lab("2150-05-31T08:00", "2.4", encounter="S1")
    computed = chart.ask("highest creatinine during the current admission")
    assert computed is not None
    assert computed.result == "2.4 mg/dL"


def stay_that_goes_on() -> Chart:
    """Return a chart with an ended stay, one without an end before it, and one that goes on until 2150-06-01."""
    chart = Chart().add("encounter", "Inpatient Visit", "2148-01-01", event="start", encounter="S0", source="e/0")
    chart.add("encounter", "Inpatient Visit", "2149-01-01", event="start", encounter="S1", source="e/1")
    chart.add("encounter", "Inpatient Visit", "2149-01-05", event="end", encounter="S1", source="e/1")
    chart.add("encounter", "Inpatient Visit", "2150-05-20", event="start", encounter="S2", source="e/2")
    return chart.lab("2149-01-02", "3.3", encounter="S1").lab("2150-05-31T08:00", "2.4").lab("2150-05-21", "2.0")


@pytest.mark.parametrize("words", ["during the current admission", "during the last admission"])
def test_stay_without_an_end_goes_on_until_the_record_ends(words: str) -> None:
    chart = stay_that_goes_on()
    computed = chart.ask(f"highest creatinine {words}")
    assert computed is not None
    assert (computed.result, computed.window.partition(": ")[2]) == ("2.4 mg/dL", "since 2150-05-20")
    discharge = chart.ask("last creatinine before the last discharge")
    assert discharge is not None
    assert discharge.result == "3.3 mg/dL"


def test_stay_without_an_end_before_another_one_lacks_its_discharge() -> None:
    assert [stay.is_ongoing for stay in stay_that_goes_on().record().stays] == [False, False, True]
    ended = stay_that_goes_on().add(
        "encounter", "Visit", None, event="end", encounter="S2", source="e/2", category="inpatient"
    )
    assert not ended.record().ongoing


@pytest.mark.parametrize(
    "words",
    [
        "between 2150-02-01 and 2150-04-01",
        "between 2150-04-01 and 2150-02-01",
        "from 2150-04-01 to 2150-02-01",
        "between April 2150 and February 2150",
    ],
)
def test_dates_of_a_range_are_read_in_order(words: str) -> None:
    chart = Chart().lab("2150-01-01", "9").lab("2150-03-01", "1.7").lab("2150-06-01", "8")
    computed = chart.ask(f"highest creatinine {words}")
    assert computed is not None
    assert computed.result == "1.7 mg/dL"


def test_value_of_urine_alone_is_named_so() -> None:
    computed = Chart().lab("2150-01-02", "88", code="2161-8").ask("last creatinine")
    assert computed is not None
    assert "urine" in computed.statement


@pytest.mark.parametrize(
    "question",
    [
        "creatinine between the first and second admission",
        "creatinine between the first discharge and the second admission",
        "creatinine from the first admission to the second admission",
        "creatinine from the colonoscopy to the last admission",
    ],
)
def test_range_to_a_stay_that_may_be_included_or_not_is_not_answered(question: str) -> None:
    computed = CHART.ask(question)
    assert computed is None or (computed.state == "abstained" and computed.result == "")


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ("history of renal failure", "Acute kidney injury"),
        ("has she ever had kidney failure", "Acute kidney injury"),
        ("does she have a history of blood clots", "Deep vein thrombosis of left leg"),
        ("was she on lisinopril during the last admission", "Lisinopril 10 MG Oral Tablet, ended 2150-09-12"),
        ("wbc after the last discharge", "of 2151-01-15 09:30: 6.8 10*3/uL"),
        ("creatinine trend during the first admission", "of 2150-03-02 06:00: 1.9 mg/dL"),
    ],
)
def test_sentence_names_what_the_question_is_about(question: str, words: str) -> None:
    computed = CHART.ask(question)
    assert computed is not None
    assert computed.state == "answered"
    assert words in computed.statement
