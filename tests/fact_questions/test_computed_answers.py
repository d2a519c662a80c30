"""Questions about structured facts: what is computed, when nothing is, and how it enters an answer."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from epicrisis.cli.event_display import EventDisplay
from epicrisis.cli.terminal import open_console
from epicrisis.core.answers import Answer
from epicrisis.core.clinical_facts import FACTS, ClinicalFact, write_facts
from epicrisis.core.computed_values import ComputedAnswer
from epicrisis.core.fact_kinds import FactKind
from epicrisis.core.protocols import ChatRequest
from epicrisis.core.serialization import to_json
from epicrisis.core.types import Document, Passage, Question, Scope
from epicrisis.library.core.patients import Roster
from epicrisis.pipeline.overrides import RunOverrides
from epicrisis.pipeline.pipeline import Pipeline
from epicrisis.records.fact_questions.answer import compute
from epicrisis.records.fact_questions.fact_conflicts import NoteSentence, find_drug_conflicts, find_value_conflicts
from epicrisis.records.fact_questions.question_rules import plan_by_rules
from epicrisis.records.fact_questions.record import PatientFacts, read_fact_record
from epicrisis.report.answer_content import build_answer_content
from epicrisis.report.answer_files import to_html, to_markdown
from epicrisis.report.answer_word import to_word
from epicrisis.settings.settings import Settings
from epicrisis.testing.chat import ScriptedModel
from tests.support.hashed_encoder import opened_library
from tests.support.replies import fill


class Chart:
    """Writes the lines and facts of a document."""

    def __init__(self) -> None:
        self.text, self.facts = "", list[ClinicalFact]()

    def add(self, kind: FactKind, name: str, time: str | None, value: str = "", unit: str = "", **more: Any) -> Chart:
        line = f"{time} {name} {value} {unit}"
        number = float(value.lstrip("<>")) if value.lstrip("<>").replace(".", "").isdigit() else None
        comparator: Any = value[:1] if value[:1] in ("<", ">") else ""
        start = len(self.text)
        fact = ClinicalFact(
            kind,
            name,
            start=start,
            end=start + len(line),
            time=time,
            value=value,
            number=number,
            unit=unit,
            comparator=comparator,
            **more,
        )
        self.facts.append(fact)
        self.text += f"{line}\n"
        return self

    def lab(self, time: str | None, value: str, unit: str = "mg/dL", code: str = "2160-0", **more: Any) -> Chart:
        return self.add("laboratory", "Creatinine", time, value, unit, codes=(f"loinc:{code}",), **more)

    def document(self, date: str = "2150-06-01") -> Document:
        metadata = {FACTS: write_facts(self.facts)}
        return Document(
            "facts:1", self.text, title="Structured entries", source="fhir", date=date, patient="p", metadata=metadata
        )

    def record(self) -> PatientFacts:
        document = self.document()
        passage = Passage(
            id="facts:1#0",
            document_id=document.id,
            ordinal=0,
            start=0,
            end=len(self.text),
            text=self.text,
            date=document.date,
            patient="p",
            metadata=document.metadata,
        )
        record = read_fact_record([passage])
        assert record is not None
        return record

    def ask(self, question: str) -> ComputedAnswer | None:
        record = self.record()
        plan = plan_by_rules(question, record)
        return None if plan is None else compute(plan, record).answer


COURSE = Chart().lab("2150-01-02", "1.1").lab("2150-03-04T10:30", "2.4").lab("2150-03-05", "1.9")


@pytest.mark.parametrize(
    ("question", "result"),
    [
        ("What is the last creatinine?", "1.9 mg/dL"),
        ("first creatinine", "1.1 mg/dL"),
        ("creatinine trend", "rose: 1.1 to 1.9 mg/dL"),
        ("What was her highest creatinine in 2150?", "2.4 mg/dL"),
        ("lowest creatinine after 2150-02-01", "1.9 mg/dL"),
        ("creatinine on 2150-03-04", "2.4 mg/dL"),
        ("How much did creatinine change since 2150-03-04?", "-0.5 mg/dL"),
        ("How many times was creatinine measured?", "3"),
        ("Show all creatinine values", "1.1 mg/dL; 2.4 mg/dL; 1.9 mg/dL"),
    ],
)
def test_question_about_values_is_computed(question: str, result: str) -> None:
    computed = COURSE.ask(question)
    assert computed is not None
    assert (computed.state, computed.result) == ("answered", result)


@pytest.mark.parametrize(
    "question",
    [
        "creatinine after the second dose",
        "Why is the creatinine high?",
        "creatinine",
        "last creatinine of her mother",
        "What was the creatinine the day before the previous admission?",
    ],
)
def test_question_with_a_word_that_is_not_understood_is_left_to_the_notes(question: str) -> None:
    assert COURSE.ask(question) is None


def test_partial_date_that_may_be_later_makes_the_last_value_uncertain() -> None:
    computed = Chart().lab("2150-03", "1.1").lab("2150-03-04", "2.4").ask("last creatinine")
    assert computed is not None
    assert computed.state == "abstained"
    assert "partial" in computed.statement
    assert len(computed.rows) == 2


def test_values_in_serum_and_urine_are_never_mixed() -> None:
    chart = Chart().lab("2150-01-02", "1.1").lab("2150-01-03", "88", code="2161-8")
    computed = chart.ask("last creatinine")
    assert computed is not None
    assert computed.state == "abstained"
    assert "full name" in computed.statement
    urine = chart.ask("last urine creatinine")
    assert urine is not None
    assert urine.result == "88 mg/dL"


def test_mass_and_molar_values_are_not_compared() -> None:
    computed = Chart().lab("2150-01-02", "1.1").lab("2150-01-03", "88", "umol/L").ask("highest creatinine")
    assert computed is not None
    assert computed.state == "abstained"
    assert "do not convert" in computed.statement


@pytest.mark.long
def test_convertible_units_are_compared() -> None:
    computed = Chart().lab("2150-01-02", "1.1").lab("2150-01-03", "9", "mg/L").ask("highest creatinine")
    assert computed is not None
    assert computed.result == "1.1 mg/dL"


def test_bound_that_may_be_lower_makes_the_lowest_value_uncertain() -> None:
    chart = Chart().lab("2150-01-02", "<0.2").lab("2150-01-03", "0.1").lab("2150-01-04", "1.0")
    lowest, highest = chart.ask("lowest creatinine"), chart.ask("highest creatinine")
    assert lowest is not None
    assert lowest.state == "abstained"
    assert highest is not None
    assert highest.result == "1.0 mg/dL"


def test_value_without_a_number_is_named_beside_the_highest() -> None:
    computed = Chart().lab("2150-01-02", "1.1").lab("2150-01-03", "hemolyzed", "").ask("highest creatinine")
    assert computed is not None
    assert computed.statement == (
        "The highest Creatinine is 1.1 mg/dL, of 2150-01-02, among 1 value; 1 value without a number is not compared "
        "(hemolyzed)."
    )


@pytest.mark.parametrize("question", ["last AST", "What was the last AST?", "first AST values"])
def test_name_of_a_value_that_ends_another_word_is_found(question: str) -> None:
    computed = Chart().add("laboratory", "AST", "2150-01-02", "31", "U/L", codes=("loinc:1920-8",)).ask(question)
    assert computed is not None
    assert computed.result == "31 U/L"


def test_corrected_value_replaces_the_earlier_version() -> None:
    chart = Chart().lab("2150-01-02", "9.9", source="fhir:Observation/1", status="final")
    chart.lab("2150-01-02", "1.0", source="fhir:Observation/1", status="corrected")
    computed = chart.lab("2150-01-03", "5.0", status="entered-in-error").ask("last creatinine")
    assert computed is not None
    assert computed.result == "1.0 mg/dL"
    assert "not counted" in computed.remarks[0]


def test_several_values_at_the_last_moment_are_all_stated() -> None:
    computed = Chart().lab("2150-01-02T08:00", "1.0").lab("2150-01-02T08:00", "2.0").ask("last creatinine")
    assert computed is not None
    assert computed.result == "1.0 mg/dL and 2.0 mg/dL"


def medication(time: str, event: str, source: str = "m/1", name: str = "Lisinopril 10 MG", **more: Any) -> Chart:
    return Chart().add("medication", name, time, event=event, source=source, **more)


def test_medication_that_ended_is_not_current() -> None:
    chart = medication("2149-01-02", "start").add(
        "medication", "Lisinopril 10 MG", "2150-01-02", event="end", source="m/1"
    )
    computed = chart.ask("What medications does she take now?")
    assert computed is not None
    assert computed.result == "no entry"
    assert "does not show" in computed.statement


def test_medication_without_a_recent_sign_is_marked_not_dropped() -> None:
    computed = medication("2148-01-02", "start", status="active").ask("current medications")
    assert computed is not None
    assert computed.result == "Lisinopril 10 MG"
    assert computed.rows[0].remark == "no sign of it for 28 months"


def test_medication_that_a_later_statement_ended_is_uncertain() -> None:
    chart = medication("2150-01-02", "start", status="active", category="request")
    chart.add("medication", "Lisinopril 10 MG", "2150-03-02", event="end", source="s/1", category="statement")
    computed = chart.ask("current medications")
    assert computed is not None
    assert computed.state == "abstained"
    assert "2150-03-02" in computed.rows[0].remark


def test_missing_entry_is_no_proof_of_absence() -> None:
    computed = medication("2148-01-02", "start").ask("Has she ever taken warfarin?")
    assert computed is not None
    assert computed.result == "no entry"
    assert "does not show that there was none" in computed.statement


def test_family_history_does_not_answer_ever() -> None:
    chart = Chart().add("problem", "Family history of diabetes mellitus", "2140", status="active")
    computed = chart.ask("Has the patient ever had diabetes?")
    assert computed is not None
    assert computed.state == "abstained"


NOTE = Document(
    "note:1",
    "The creatinine was 3.4 mg/dL on 2150-03-04.\nShe slept well.\nLisinopril was discontinued.\nNo known allergies.",
    title="Progress note",
    source="notes",
    date="2150-03-06",
    patient="p",
    metadata={"note_type": "progress note"},
)


def note_sentence(text: str) -> NoteSentence:
    return NoteSentence(
        Passage(
            id="n#0", document_id="n", ordinal=0, start=0, end=len(text), text=text, date="2150-03-06", patient="p"
        ),
        0,
        text,
    )


def answer_of(tmp_path: Path, chart: Chart, question: str, model: Any = None, **options: Any) -> Answer:
    """Return the answer of a pipeline over a library with the chart and a note."""
    overrides = options.pop("overrides", RunOverrides())
    scope = Scope(patient="p", as_of=options.pop("as_of", None))
    settings = Settings(**{"strategy": "evidence", **options})
    with opened_library(tmp_path / "library", [chart.document(), NOTE]) as search:
        models = {} if model is None else {"writer": model, "map": model, "reduce": model}
        pipeline = Pipeline(settings, models, search)
        return asyncio.run(pipeline.answer(Question(question, patient="p"), scope, overrides))


def test_computed_statement_is_the_first_claim_of_the_evidence(tmp_path: Path) -> None:
    answer = answer_of(tmp_path, COURSE, "creatinine trend")
    assert answer.computed is not None
    assert answer.text.startswith(answer.computed.statement)
    assert answer.claims[0].checked_by == "computation"
    by_number = {citation.number: citation for citation in answer.citations}
    quotations = [by_number[row.citations[0]].quotation for row in answer.computed.rows]
    assert quotations == COURSE.text.splitlines()
    assert len(by_number) == len(answer.citations)


def test_note_with_another_value_enters_the_conflict_ledger(tmp_path: Path) -> None:
    (conflict,) = answer_of(tmp_path, COURSE, "creatinine trend").conflicts
    assert conflict.basis == "facts"
    assert [side.label for side in conflict.sides] == ["2.4 mg/dL on 2150-03-04", "3.4 mg/dL on 2150-03-04"]
    assert all(side.citations for side in conflict.sides)


def test_stopped_drug_and_denied_allergy_enter_the_conflict_ledger(tmp_path: Path) -> None:
    drug = answer_of(tmp_path / "a", medication("2150-01-02", "start"), "current medications")
    assert [conflict.basis for conflict in drug.conflicts] == ["facts"]
    allergic = Chart().add("allergy", "Penicillin", "2140", status="active")
    allergy = answer_of(tmp_path / "b", allergic, "What allergies does she have?")
    assert allergy.conflicts[0].sides[1].label == "no known allergies"


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("The creatinine was 3.4 mg/dL on 2150-03-04.", 1),
        ("Her brother's creatinine was 3.4 mg/dL on 2150-03-04.", 0),
        ("Creatinine of the donor was 3.4 mg/dL on 2150-03-04.", 0),
    ],
)
def test_value_of_another_person_does_not_conflict(text: str, count: int) -> None:
    assert len(find_value_conflicts([note_sentence(text)], COURSE.facts, ["creatinine"])) == count


@pytest.mark.parametrize(
    ("text", "count"), [("Lisinopril was discontinued.", 1), ("Her husband stopped lisinopril.", 0)]
)
def test_drug_of_another_person_does_not_conflict(text: str, count: int) -> None:
    facts = medication("2150-01-02", "start").facts
    assert len(find_drug_conflicts([note_sentence(text)], facts)) == count


@pytest.mark.parametrize("name", ["Anna Muster", "Mrs. Muster", "patient 10083814"])
def test_name_of_the_own_patient_is_no_subject(name: str, tmp_path: Path) -> None:
    document = Chart().add("allergy", "Penicillin", "2149-05-01", source="a/1", status="active").document()
    named = replace(document, patient="10083814", metadata={**document.metadata, "patient_name": "Anna Muster"})
    scope = Scope(patient="10083814")
    with opened_library(tmp_path / "library", [named]) as search:
        pipeline = Pipeline(Settings(strategy="evidence"), {}, replace(search, rosters=(Roster(search.library),)))
        answer = asyncio.run(pipeline.answer(Question(f"What allergies does {name} have?"), scope))
    assert answer.computed is not None
    assert answer.computed.result == "Penicillin"


def test_facts_switched_off_compute_nothing(tmp_path: Path) -> None:
    assert answer_of(tmp_path / "a", COURSE, "creatinine trend", facts=False).computed is None
    assert (
        answer_of(tmp_path / "b", COURSE, "creatinine trend", overrides=RunOverrides(options={"facts": False})).computed
        is None
    )


def test_document_after_the_as_of_date_is_not_counted(tmp_path: Path) -> None:
    assert answer_of(tmp_path, COURSE, "creatinine trend", as_of="2150-05-01").computed is None


def test_prompt_has_the_computed_statement_and_its_lines(tmp_path: Path) -> None:
    prompts: list[str] = []

    def reply(request: ChatRequest) -> str:
        prompts.append(request.messages[-1].content)
        return json.dumps(fill(request.schema or {}, {}, "The creatinine is 7.7 mg/dL."))

    model = ScriptedModel(reply, context_tokens=100_000)
    answer = answer_of(tmp_path, COURSE, "What is the last creatinine?", model, strategy="rag", unverified="keep")
    assert "Computed by a program" in prompts[0]
    assert COURSE.text.splitlines()[2] in prompts[0]
    assert answer.computed is not None
    assert answer.computed.result == "1.9 mg/dL"


@pytest.mark.slow
def test_focused_prompt_has_the_lines_of_the_computed_answer(tmp_path: Path) -> None:
    prompts: list[str] = []

    def reply(request: ChatRequest) -> str:
        prompts.append(request.messages[-1].content)
        return json.dumps(fill(request.schema or {}, {}, "The creatinine is 7.7 mg/dL."))

    chart = Chart()
    for day in range(1, 10):
        chart.lab(f"2150-01-0{day}", f"1.{day}")
    model = ScriptedModel(reply, context_tokens=100_000)
    options = {"strategy": "focused", "sentences": 1, "neighbours": 0, "unverified": "keep"}
    for question, line in (("What is the last creatinine?", 8), ("What is the first creatinine?", 0)):
        answer = answer_of(tmp_path / str(line), chart, question, model, **options)
        assert chart.text.splitlines()[line] in prompts[-1]
        assert answer.computed is not None


def test_model_plans_a_question_that_the_rules_do_not_understand(tmp_path: Path) -> None:
    def reply(request: ChatRequest) -> str:
        if "operation" in json.dumps(request.schema):
            return json.dumps({"operation": "highest", "since": "", "until": "", "complete": True})
        return json.dumps(fill(request.schema or {}, {}, "It peaked."))

    model = ScriptedModel(reply, context_tokens=100_000)
    answer = answer_of(tmp_path, COURSE, "How bad did the creatinine get at its worst?", model, strategy="rag")
    assert answer.computed is not None
    assert (answer.computed.result, answer.computed.planned_by) == ("2.4 mg/dL", model.name)


@pytest.mark.parametrize(
    "plan",
    [
        {"operation": "highest", "since": "2149-01-01", "until": "", "complete": True},
        {"operation": "highest", "since": "", "until": "", "complete": False},
        {"operation": "average", "since": "", "until": "", "complete": True},
        {"operation": "none", "since": "", "until": "", "complete": True},
    ],
)
def test_plan_with_other_dates_or_incomplete_is_not_used(tmp_path: Path, plan: dict[str, Any]) -> None:
    def reply(request: ChatRequest) -> str:
        if "operation" in json.dumps(request.schema):
            return json.dumps(plan)
        return json.dumps(fill(request.schema or {}, {}, "It peaked."))

    model = ScriptedModel(reply, context_tokens=100_000)
    question = "How bad did the creatinine get at its worst?"
    assert answer_of(tmp_path, COURSE, question, model, strategy="rag").computed is None


def shown_texts(answer: Answer) -> Sequence[str]:
    console = io.StringIO()
    EventDisplay(open_console(file=console)).show_answer(answer)
    content = build_answer_content(answer)
    return console.getvalue(), to_markdown(content), to_html(content), json.dumps(to_json(answer), ensure_ascii=False)


@pytest.mark.slow
def test_every_form_of_the_answer_shows_the_values(tmp_path: Path) -> None:
    answer = answer_of(tmp_path, COURSE, "creatinine trend")
    screen, markdown, page, data = shown_texts(answer)
    for text in (screen, markdown, page, data):
        assert "1.9 mg/dL" in text
        assert "2150-03-04" in text
    assert "▁█▅" in screen
    assert "<polyline" in page
    assert 'scope="col"' in page
    assert to_word(build_answer_content(answer))[:2] == b"PK"


def test_value_with_markup_is_escaped(tmp_path: Path) -> None:
    chart = Chart().add("laboratory", "Blood culture", "2150-01-01", "<script>alert(1)</script> | x")
    answer = answer_of(tmp_path, chart, "What is the last blood culture?")
    assert answer.computed is not None
    _, markdown, page, _ = shown_texts(answer)
    assert "<script>" not in page
    assert "\\| x" in markdown


def test_medications_are_counted_by_name_as_they_are_listed() -> None:
    chart = Chart().add("medication", "Aspirin", "2150-01-02", "81 mg", event="start", source="a")
    chart.add("medication", "Aspirin", "2150-01-03", "100 mg", event="start", source="b")
    computed = chart.add("medication", "Metformin", "2150-01-04", event="start", source="c").ask("current medications")
    assert computed is not None
    assert computed.statement.startswith(
        "2 structured medications are current as of 2150-06-01 in 3 structured entries:"
    )


def test_refuted_entries_alone_answer_that_none_is_stated() -> None:
    chart = Chart().add("medication", "No known medications", "2150-01-02", status="refuted")
    computed = chart.lab("2150-01-02", "1.1").ask("current medications")
    assert computed is not None
    assert (computed.state, computed.result) == ("answered", "no entry")
    assert "says that there is none, or is refuted: No known medications" in computed.statement


def test_start_of_a_drug_that_only_a_list_names_is_not_known() -> None:
    chart = Chart().add("medication", "Ramipril", "2150-01-02", category="statement")
    computed = chart.ask("When was ramipril started?")
    assert computed is not None
    assert computed.state == "abstained"
    assert "no date is known; the first list that names it is of 2150-01-02" in computed.statement


def test_preliminary_value_is_called_so() -> None:
    computed = Chart().lab("2150-01-02", "1.1", status="preliminary").ask("What was the last creatinine?")
    assert computed is not None
    assert computed.statement == "The last (preliminary) Creatinine is 1.1 mg/dL, of 2150-01-02."


def test_denial_of_allergies_is_no_allergy_beside_one() -> None:
    chart = Chart().add("allergy", "No known allergies", "2150-01-02", source="a")
    computed = chart.add("allergy", "Latex", "2150-02-02", source="b").ask("What allergies does she have?")
    assert computed is not None
    assert computed.statement == "1 structured allergy is current as of 2150-06-01: Latex."
    assert computed.remarks == ("other entries say “No known allergies”",)


def test_device_is_found_among_entries_until_its_end() -> None:
    chart = Chart().add("observation", "Cardiac pacemaker", "2148-01-02", event="start", category="devices", source="d")
    computed = chart.ask("Does she have a pacemaker?")
    assert computed is not None
    assert computed.statement == "1 structured entry named “pacemaker” is current as of 2150-06-01: Cardiac pacemaker."
    chart.add("observation", "Cardiac pacemaker", "2149-01-02", event="end", category="devices", source="d")
    removed = chart.ask("Does she have a pacemaker?")
    assert removed is not None
    assert removed.result == "no entry"
