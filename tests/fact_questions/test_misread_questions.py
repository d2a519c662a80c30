"""Questions whose words look like ones about facts and mean something else, and entries that do not mean yes."""

from __future__ import annotations

import pytest

from epicrisis.core.fact_kinds import FactEvent, FactKind
from epicrisis.core.types import Passage
from epicrisis.records.fact_questions.answer import compute
from epicrisis.records.fact_questions.question_rules import FactQuestion, draft_plan, plan_by_rules
from epicrisis.records.fact_questions.record import read_fact_record
from tests.fact_questions.test_computed_answers import Chart

CHART = (
    Chart()
    .lab("2150-01-02", "1.1")
    .lab("2150-03-05", "1.9")
    .add("laboratory", "Potassium", "2150-03-04T08:00", "4.1", "mmol/L", codes=("loinc:2823-3",))
    .add("laboratory", "Lithium", "2150-03-04T08:00", "0.7", "mmol/L")
    .add("medication", "Metformin 500 MG", "2150-01-03", event="start", source="m/1", status="active")
    .add("medication", "Metformin 500 MG", "2151-12-31", event="end", source="m/1", status="planned")
    .add("medication", "Metoprolol 50 MG", "2150-01-03", event="start", source="m/2", status="active")
    .add("medication", "Aspirin 81 MG", "2150-03", event="start", source="m/3", status="active")
    .add("problem", "Family history of diabetes mellitus", "2150-01-03", source="c/1", status="active, confirmed")
    .add("problem", "Hypertension", "2149-01-03", source="c/2", status="active, confirmed")
    .add("allergy", "Penicillin", "2149-01-03", source="a/2", status="inactive")
    .add("procedure", "Colonoscopy", "2150-02-03", source="p/1", status="completed")
)


@pytest.mark.parametrize(
    "question",
    [
        "Did she never take metformin?",
        "Which medications are not active?",
        "Is she on warfarin or metformin?",
        "Has she ever taken warfarin or metformin?",
        "Is she on metoprolol and metformin?",
        "Is she on a beta blocker?",
        "What dose of metoprolol does she take?",
        "What medications does she take for hypertension?",
        "Is she on dialysis?",
        "What are her mother's medications?",
        "Is her husband allergic to penicillin?",
        "Is she allergic to anything?",
        "When can metformin be started?",
        "What would her creatinine be?",
        "Why does she take metoprolol?",
        "When was potassium last given?",
        "How much potassium did she get on 2150-03-04?",
        "What lithium is she on?",
        "What surgery did she have on her knee?",
        "Show creatinine for all patients",
    ],
)
def test_question_that_means_something_else_is_left_to_the_notes(question: str) -> None:
    assert CHART.ask(question) is None


@pytest.mark.parametrize(
    "question",
    [
        "Compare the last creatinine with the last potassium",
        "Was her creatinine worse after the colonoscopy?",
        "What is the target creatinine?",
        "Why is creatinine so bad?",
    ],
)
def test_question_with_a_second_half_is_not_planned_by_a_model(question: str) -> None:
    record = CHART.record()
    assert plan_by_rules(question, record) is None
    assert draft_plan(question, record) is None


@pytest.mark.parametrize(
    ("question", "statement"),
    [
        ("Does she have diabetes?", "No entry named “diabetes” is certain"),
        ("When was metformin stopped?", "No structured entry says when"),
        ("Has she taken metoprolol since 2150-02-01?", "may lie outside the time"),
        ("Was she taking aspirin on 2150-03-04?", "may lie outside the time"),
    ],
)
def test_entry_that_leaves_the_answer_open_makes_an_abstention(question: str, statement: str) -> None:
    computed = CHART.ask(question)
    assert computed is not None
    assert computed.state == "abstained"
    assert statement in computed.statement


@pytest.mark.parametrize(
    ("time", "event", "status", "remark"),
    [
        (None, "end", "resolved", "resolved, entry of 2149-01-03"),
        ("2149-05", "end", "resolved", "ended 2149-05"),
        ("2149-02-03", "state", "inactive", "inactive, entry of 2149-01-03"),
    ],
)
def test_allergy_that_ended_is_none(time: str | None, event: str, status: str, remark: str) -> None:
    chart = Chart().lab("2150-01-02", "1.1").add("allergy", "Peanut", "2149-01-03", source="a")
    chart = chart.add("allergy", "Peanut", time, source="a", event=event, status=status)
    computed = chart.ask("Is she allergic to peanut?")
    assert computed is not None
    assert computed.result == "no entry"
    assert f"is current as of 2150-06-01; one that ended is Peanut ({remark})" in computed.statement
    asked = chart.add("allergy", "Peanut oil", "2150-01-03", source="b").ask("Is she allergic to peanut?")
    assert asked is not None
    assert asked.statement == "Yes, structured entries name “peanut”: Peanut oil, first 2150-01-03."


def test_planned_end_does_not_move_the_last_day_of_the_record() -> None:
    computed = CHART.ask("current medications")
    assert computed is not None
    assert "as of 2150-06-01: Metformin 500 MG; Metoprolol 50 MG; Aspirin 81 MG" in computed.statement


def test_family_history_is_no_active_problem() -> None:
    chart = Chart().add("problem", "Gout", "2150-01-01", status="active, family-history").lab("2150-01-02", "1.1")
    computed = chart.add("problem", "Asthma", "2150-01-01", status="active").ask("active problems")
    assert computed is not None
    assert computed.result == "Asthma"
    assert [(row.name, row.remark) for row in computed.rows] == [("Asthma", ""), ("Gout", "family history")]
    ever = chart.ask("Has she ever had gout?")
    assert ever is not None
    assert ever.state == "abstained"


@pytest.mark.parametrize("name", ["No known allergy", "Patient denies any allergies", "NKMA"])
def test_no_known_allergy_is_not_counted_as_an_allergy(name: str) -> None:
    chart = Chart().add("allergy", name, "2150-01-01", status="active")
    counted, listed = chart.ask("How many allergies does she have?"), chart.ask("What allergies does she have?")
    assert counted is not None
    assert counted.result == "0"
    assert listed is not None
    assert listed.statement == f"Structured entries say “{name}” as of 2150-06-01."


STAYS = (
    Chart()
    .lab("2150-01-02", "1.1")
    .lab("2150-03-04T10:30", "2.4")
    .lab("2150-03-05", "1.9")
    .lab("2150-06-10", "1.0")
    .add("encounter", "Inpatient", "2150-03-03", encounter="e1", event="start")
    .add("encounter", "Inpatient", "2150-03-06", encounter="e1", event="end")
    .add("encounter", "Emergency", "2150-04-10T10:00", encounter="e2", event="start")
    .add("encounter", "Emergency", "2150-04-10T14:00", encounter="e2", event="end")
    .add("encounter", "Inpatient", "2150-06-09", encounter="e3", event="start")
    .add("encounter", "Inpatient", "2150-06-12", encounter="e3", event="end")
    .add("encounter", "Inpatient", "2150-08-09", encounter="e4", status="planned")
)


@pytest.mark.parametrize(
    ("question", "reason"),
    [
        ("creatinine 2 days after 2150-03-04", "exact time"),
        ("highest creatinine in the week before 2150-03-04", "exact time"),
        ("highest creatinine in early 2150", "exact time"),
        ("creatinine since early March 2150", "exact time"),
        ("creatinine on 2150-03-04 and 2150-03-05", "no time in common"),
        ("highest creatinine during the second admission", "emergency visit"),
        ("last creatinine before the second admission", "emergency visit"),
    ],
)
def test_time_that_is_only_a_part_or_has_two_readings_is_not_computed(question: str, reason: str) -> None:
    computed = STAYS.ask(question)
    assert computed is not None
    assert computed.state == "abstained"
    assert reason in computed.statement


def test_last_admission_ignores_a_planned_one_and_does_not_depend_on_an_emergency_visit() -> None:
    computed = STAYS.ask("highest creatinine during the last admission")
    assert computed is not None
    assert computed.result == "1.0 mg/dL"


def test_proposed_order_is_neither_current_nor_ever_taken() -> None:
    chart = Chart().add("medication", "Lisinopril", "2150-03-02", category="proposal", status="active")
    for question in ("Is she on lisinopril?", "Has she ever taken lisinopril?"):
        computed = chart.ask(question)
        assert computed is not None
        assert computed.state == "abstained"


def test_entry_of_a_drug_that_was_not_taken_is_named() -> None:
    chart = Chart().add("medication", "Aspirin 81 MG", "2150-03-02", status="not-taken")
    computed = chart.add("medication", "Metformin", "2150-03-02", status="active").ask("Has she ever taken aspirin?")
    assert computed is not None
    assert computed.result == "no entry"
    assert "as not taken" in computed.statement
    assert [row.status for row in computed.rows] == ["not-taken"]


def ask_of_documents(question: str, *documents: tuple[Chart, str]) -> str:
    """Return the computed sentence of a record with these documents and their days."""
    passages = []
    for number, (chart, date) in enumerate(documents):
        passages.append(
            Passage(
                id=f"facts:{number}#0",
                document_id=f"facts:{number}",
                ordinal=0,
                start=0,
                end=len(chart.text),
                text=chart.text,
                date=date,
                patient="p",
                metadata=chart.document(date).metadata,
            )
        )
    record = read_fact_record(passages)
    assert record is not None
    plan = plan_by_rules(question, record)
    assert isinstance(plan, FactQuestion)
    return compute(plan, record).answer.statement


@pytest.mark.parametrize(
    ("kind", "event", "status"),
    [
        ("medication", "end", "planned"),
        ("medication", "state", "intended"),
        ("encounter", "state", "planned"),
        ("encounter", "state", "cancelled"),
        ("procedure", "state", "preparation"),
        ("procedure", "state", "not-done"),
    ],
)
def test_plan_does_not_move_the_last_day_of_the_record(kind: FactKind, event: FactEvent, status: str) -> None:
    start = Chart().add("medication", "Metformin", "2150-03-02", event="start", source="m/1", status="active")
    source = "m/1" if event == "end" else "x/1"
    plan = Chart().add(kind, "Metformin", "2155-01-01", event=event, source=source, status=status)
    statement = ask_of_documents("current medications", (start, "2150-03-02"), (plan, "2155-01-01"))
    assert "is current as of 2150-03-02: Metformin" in statement


def test_allergy_whose_reaction_names_the_substance_is_not_denied() -> None:
    chart = Chart().add("allergy", "Penicillins", "2150-02-01", "rash after amoxicillin", status="active")
    computed = chart.ask("Is she allergic to amoxicillin?")
    assert computed is not None
    assert computed.state == "abstained"
    assert [row.name for row in computed.rows] == ["Penicillins"]


def test_allergy_that_no_entry_names_lists_the_other_allergies() -> None:
    computed = (
        Chart().add("allergy", "Amoxicillin", "2150-02-01", status="active").ask("Is she allergic to penicillin?")
    )
    assert computed is not None
    assert computed.result == "no entry"
    assert [row.name for row in computed.rows] == ["Amoxicillin"]


ENDED = (
    Chart()
    .add("medication", "Lisinopril 10 MG", "2150-01-02", event="start", source="m/1")
    .add("medication", "Lisinopril 10 MG", "2150-02-02", event="end", source="m/1", status="stopped")
    .add("medication", "Lisinopril 20 MG", "2150-02-02", event="start", source="m/2", status="active")
    .add("medication", "Warfarin 5 MG", "2150-01-02", event="start", source="m/3")
    .add("medication", "Warfarin 5 MG", "2150-02-02", event="end", source="m/3", status="stopped")
    .add("medication", "Levothyroxine 75 MCG", "2150-01-02", event="start", source="m/4", status="active")
    .add("problem", "Decompensated cirrhosis with ascites", "2150-01-02", event="start", source="c/1")
    .add("problem", "Decompensated cirrhosis with ascites", "2150-02-02", event="end", source="c/1", status="resolved")
    .add("procedure", "Bronchoscopy with lavage", "2150-01-03", source="p/1")
    .add("laboratory", "Sodium", "2150-01-03", "121", "mmol/L", codes=("loinc:2951-2",))
    .add("laboratory", "Sodium", "2150-02-03", "136", "mmol/L", codes=("loinc:2951-2",))
)


@pytest.mark.parametrize(
    ("question", "ended"),
    [
        ("Does she have cirrhosis?", "Decompensated cirrhosis with ascites (ended 2150-02-02)"),
        ("does she have ascites", "Decompensated cirrhosis with ascites (ended 2150-02-02)"),
        ("Is she on warfarin?", "Warfarin 5 MG (ended 2150-02-02)"),
    ],
)
def test_entry_that_ended_is_named_where_none_is_current(question: str, ended: str) -> None:
    computed = ENDED.ask(question)
    assert computed is not None
    assert computed.result == "no entry"
    assert ended in computed.statement
    assert [row.remark for row in computed.rows] == ["ended 2150-02-02"]


def test_change_of_dose_is_no_stop() -> None:
    computed = ENDED.ask("When was lisinopril stopped?")
    assert computed is not None
    assert (computed.state, computed.result) == ("abstained", "")
    assert "another entry of it began" in computed.statement
    assert [row.name for row in computed.rows] == ["Lisinopril 10 MG", "Lisinopril 20 MG"]


def test_stop_after_a_change_of_dose_is_stated_alone() -> None:
    chart = (
        Chart()
        .add("medication", "Lisinopril 10 MG", "2150-01-02", event="start", source="m/1")
        .add("medication", "Lisinopril 10 MG", "2150-02-02", event="end", source="m/1", status="stopped")
        .add("medication", "Lisinopril 20 MG", "2150-02-02", event="start", source="m/2")
        .add("medication", "Lisinopril 20 MG", "2150-05-02", event="end", source="m/2", status="stopped")
    )
    computed = chart.ask("When was lisinopril stopped?")
    assert computed is not None
    assert computed.result == "2150-05-02"
    assert computed.remarks == ("1 end on a day when another entry of it began, such as a new dose, not counted",)


@pytest.mark.parametrize(
    "question",
    [
        "what did the sodium do",
        "how has the sodium been doing",
        "is she on thyroid replacement",
        "is she on warfarin therapy",
        "bronchoscopy results",
        "how often does she take levothyroxine",
    ],
)
def test_question_for_a_course_a_class_a_finding_or_a_dose_is_left_to_the_notes(question: str) -> None:
    assert plan_by_rules(question, ENDED.record()) is None


def test_last_medication_without_a_name_is_explained_without_an_empty_quotation() -> None:
    computed = ENDED.ask("most recent medication")
    assert computed is not None
    assert computed.state == "abstained"
    assert "“”" not in computed.statement


def test_dose_is_listed_without_its_unit_a_second_time() -> None:
    chart = Chart().add("medication", "Amoxicillin", "2150-03-02", "500 mg, capsule", "mg", event="start", source="m/1")
    computed = chart.ask("current medications")
    assert computed is not None
    assert [row.value for row in computed.rows] == ["500 mg, capsule"]
