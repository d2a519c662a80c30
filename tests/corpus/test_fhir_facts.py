"""Structured facts of FHIR: medications, problems, allergies, procedures, immunizations, results and encounters."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from epicrisis.core.clinical_facts import FACTS, ClinicalFact, is_fact_list
from epicrisis.core.types import Document
from epicrisis.corpus.base.reader_base import DeletedDocument, ReaderItem, Skipped
from epicrisis.corpus.base.removal_log import RemovalLog
from epicrisis.corpus.records.fhir import export_folder as export
from epicrisis.corpus.records.note_documents import NoteCleaning

SUBJECT = {"reference": "Patient/p1"}
RXNORM = "http://www.nlm.nih.gov/research/umls/rxnorm"
LISINOPRIL = {"coding": [{"system": RXNORM, "code": "314076", "display": "lisinopril 10 MG Oral Tablet"}]}
MEDICATION = {"resourceType": "Medication", "id": "in", "code": LISINOPRIL}
DAILY = [{"timing": {"repeat": {"frequency": 1, "period": 1, "periodUnit": "d"}}, "doseAndRate": [
    {"doseQuantity": {"value": 10, "unit": "mg"}}
], "route": {"text": "oral"}}]  # fmt: skip


def request(**more: Any) -> dict[str, Any]:
    return {
        "resourceType": "MedicationRequest",
        "id": "m1",
        "status": "active",
        "intent": "order",
        "subject": SUBJECT,
        "medicationCodeableConcept": LISINOPRIL,
        "authoredOn": "2150-03-04",
        "dosageInstruction": DAILY,
        **more,
    }


def condition(**more: Any) -> dict[str, Any]:
    concept = {"text": "Hypertension", "coding": [{"system": "http://snomed.info/sct", "code": "38341003"}]}
    return {
        "resourceType": "Condition",
        "id": "c1",
        "subject": SUBJECT,
        "code": concept,
        "clinicalStatus": {"coding": [{"code": "active"}]},
        "verificationStatus": {"coding": [{"code": "confirmed"}]},
        **more,
    }


def read_items(folder: Path, *resources: dict[str, Any], log: RemovalLog | None = None) -> list[ReaderItem]:
    path = folder / "export.ndjson"
    path.write_text("".join(json.dumps(resource) + "\n" for resource in resources), encoding="utf-8")
    return list(export.read_files([(path, path.name)], NoteCleaning(removal_log=log or RemovalLog())))


def read_documents(folder: Path, *resources: dict[str, Any], log: RemovalLog | None = None) -> list[Document]:
    return [item for item in read_items(folder, *resources, log=log) if isinstance(item, Document)]


def read_lines(folder: Path, *resources: dict[str, Any]) -> list[tuple[str | None, str]]:
    """Return each line with the date of its document, and check the offsets of the facts."""
    lines = []
    for document in read_documents(folder, *resources):
        rows = document.metadata[FACTS]
        assert is_fact_list(rows)
        assert [document.text[row["start"] : row["end"]] for row in rows] == document.text.split("\n")
        assert all((row.get("time") or "")[:10] <= (document.date or "9") for row in rows)
        lines += [(document.date, line) for line in document.text.split("\n")]
    return lines


def facts_of(document: Document) -> list[ClinicalFact]:
    return [ClinicalFact(**{**row, "codes": tuple(row.get("codes", ()))}) for row in document.metadata[FACTS]]


def test_medication_request_starts_medication_with_dose(tmp_path: Path) -> None:
    (document,) = read_documents(tmp_path, request())
    assert document.title == "Medication orders, 2150-03-04"
    assert document.text == "Started lisinopril 10 MG Oral Tablet, 10 mg oral once daily (request; active)"
    (fact,) = facts_of(document)
    assert (fact.kind, fact.event, fact.codes, fact.source) == (
        "medication",
        "start",
        ("rxnorm:314076",),
        "fhir:MedicationRequest/m1",
    )


def test_end_of_medication_is_fact_of_the_later_day(tmp_path: Path) -> None:
    """The document of the first day does not tell that the medication was stopped."""
    stopped = request(status="stopped", statusChanged="2150-05-06")
    assert read_lines(tmp_path, stopped) == [
        ("2150-03-04", "Started lisinopril 10 MG Oral Tablet, 10 mg oral once daily (request)"),
        ("2150-05-06", "Stopped lisinopril 10 MG Oral Tablet (request; stopped)"),
    ]
    without_day = request(status="stopped")
    assert read_lines(tmp_path, without_day)[0] == (None, "Stopped lisinopril 10 MG Oral Tablet (request; stopped)")


def test_planned_end_of_dosage_is_end_marked_as_planned(tmp_path: Path) -> None:
    dosage = [{"text": "1 tablet", "timing": {"repeat": {"boundsPeriod": {"end": "2150-03-11"}}}}]
    _, end = read_lines(tmp_path, request(dosageInstruction=dosage))
    assert end == ("2150-03-11", "End of lisinopril 10 MG Oral Tablet (request; planned)")


@pytest.mark.parametrize(
    ("value", "unit", "end"),
    [(5, "d", "2150-03-09"), (2, "wk", "2150-03-18"), (36, "h", "2150-03-06"), (1, "mo", "2150-04-04"), (5, "min", "")],
)
def test_duration_of_dosage_plans_an_end(value: int, unit: str, end: str, tmp_path: Path) -> None:
    duration = {"value": value, "unit": unit, "system": "http://unitsofmeasure.org", "code": unit}
    lines = read_lines(tmp_path, request(dosageInstruction=[{"timing": {"repeat": {"boundsDuration": duration}}}]))
    planned = [day for day, line in lines if line == "End of lisinopril 10 MG Oral Tablet (request; planned)"]
    assert planned == ([end] if end else [])


def test_class_of_an_encounter_of_r5_is_named_in_words(tmp_path: Path) -> None:
    stay: dict[str, Any] = {"resourceType": "Encounter", "id": "1", "status": "in-progress", "subject": SUBJECT}
    stay |= {"class": [{"coding": [{"code": "IMP"}]}], "actualPeriod": {"start": "2150-03-01"}}
    assert [line for _, line in read_lines(tmp_path, stay)] == ["Admitted: inpatient encounter (in-progress)"]


@pytest.mark.parametrize("status", ["in-progress", "onleave"])
@pytest.mark.parametrize("period", ["period", "actualPeriod"])
def test_planned_end_of_a_stay_in_progress_is_no_discharge(status: str, period: str, tmp_path: Path) -> None:
    stay = {"resourceType": "Encounter", "id": "1", "status": status, "subject": SUBJECT, "class": {"code": "IMP"}}
    stay[period] = {"start": "2150-03-01", "end": "2150-03-20"}
    sodium = {"resourceType": "Observation", "id": "o", "status": "final", "subject": SUBJECT, "valueInteger": 140}
    sodium |= {"code": {"text": "Sodium"}, "effectiveDateTime": "2150-03-02", "encounter": {"reference": "Encounter/1"}}
    documents = read_documents(tmp_path, stay, sodium)
    assert [document.text for document in documents] == [f"Admitted: inpatient encounter ({status})", "Sodium: 140"]
    assert not any(document.metadata.get("discharged") for document in documents)
    assert all(document.metadata["admitted"] == "2150-03-01" for document in documents)
    assert "Discharged: inpatient encounter" in [
        text for _, text in read_lines(tmp_path, {**stay, "status": "finished"})
    ]


def list_taper(*days: int, numbers: Sequence[int | None]) -> list[dict[str, Any]]:
    """Return dosage instructions of these lengths with these numbers in the sequence."""
    steps = []
    for place, number in enumerate(numbers):
        duration = {"value": days[place], "system": "http://unitsofmeasure.org", "code": "d"}
        step: dict[str, Any] = {"text": f"{days[place]} days", "timing": {"repeat": {"boundsDuration": duration}}}
        steps.append(step if number is None else {**step, "sequence": number})
    return steps


@pytest.mark.parametrize(
    ("numbers", "words", "end"),
    [
        ((1, 2, 3), "5 days; 4 days; 2 days", "2150-03-15"),
        ((3, 1, 2), "4 days; 2 days; 5 days", "2150-03-15"),
        ((1, 1, 2), "5 days; 4 days; 2 days", "2150-03-11"),
        ((None, None, None), "5 days; 4 days; 2 days", "2150-03-09"),
    ],
)
def test_steps_of_a_taper_follow_each_other(
    numbers: Sequence[int | None], words: str, end: str, tmp_path: Path
) -> None:
    order = request(dosageInstruction=list_taper(5, 4, 2, numbers=numbers))
    start, planned = read_documents(tmp_path, order)
    assert facts_of(start)[0].value == words
    assert (facts_of(planned)[0].time, facts_of(planned)[0].status) == (end, "planned")


@pytest.mark.parametrize(
    ("repeat", "end"),
    [
        ({"boundsPeriod": {"start": "2150-03-04", "end": "2150-03-11"}}, "2150-03-11"),
        ({"boundsDuration": {"value": 30, "system": "http://unitsofmeasure.org", "code": "d"}}, None),
    ],
)
def test_order_that_was_stopped_ended_on_a_written_day_and_lasted_no_duration(
    repeat: dict[str, Any], end: str | None, tmp_path: Path
) -> None:
    """Systems write the day of a stop into the period."""
    dosage = [{"text": "1 tablet", "timing": {"repeat": repeat}}]
    lines = read_lines(tmp_path, request(status="stopped", dosageInstruction=dosage))
    assert [line for line in lines if line[1].startswith("Stopped")] == [
        (end, "Stopped lisinopril 10 MG Oral Tablet (request; stopped)")
    ]


@pytest.mark.parametrize(("asserted", "status"), [("2150-03-05", "planned"), ("2150-08-01", ""), ("", "")])
def test_end_of_a_statement_after_its_day_is_planned(asserted: str, status: str, tmp_path: Path) -> None:
    statement = {
        "resourceType": "MedicationStatement",
        "id": "s",
        "status": "active",
        "subject": SUBJECT,
        "medicationCodeableConcept": {"text": "Doxycycline"},
        "effectivePeriod": {"start": "2150-03-01", "end": "2150-06-01"},
        **({"dateAsserted": asserted} if asserted else {}),
    }
    facts = [fact for document in read_documents(tmp_path, statement) for fact in facts_of(document)]
    assert [(fact.event, fact.status) for fact in facts if fact.event == "end"] == [("end", status)]


@pytest.mark.parametrize(
    ("asserted", "status", "expected"),
    [
        ("2150-06-01", "active", "intended"),
        ("2150-07-01", "active", "active"),
        ("2150-06-01", "stopped", ""),
        ("2150-06", "active", "intended"),
        ("2150-07", "active", "active"),
    ],
)
@pytest.mark.parametrize("times", [{"effectivePeriod": {"start": "2150-07-01", "end": "2150-08-01"}}])
def test_statement_of_a_drug_before_its_start_is_intended(
    asserted: str, status: str, expected: str, times: dict[str, Any], tmp_path: Path
) -> None:
    statement = request(resourceType="MedicationStatement", status=status, dateAsserted=asserted, **times)
    facts = [fact for document in read_documents(tmp_path, statement) for fact in facts_of(document)]
    first = next(fact for fact in facts if fact.event != "end")
    assert (first.status, first.event) == (expected, "state" if expected == "intended" else "start")
    assert (len(facts) == 1) is (expected == "intended")


@pytest.mark.parametrize("status", ["declined", "cancelled"])
def test_supply_that_the_patient_did_not_get_was_not_taken(status: str, tmp_path: Path) -> None:
    supply = {"value": 90, "unit": "d"}
    resource = {**request(status=status), "resourceType": "MedicationDispense", "whenPrepared": "2150-03-04"}
    (document,) = read_documents(tmp_path, {**resource, "daysSupply": supply})
    (fact,) = facts_of(document)
    assert (fact.event, fact.status) == ("state", "not-taken")
    assert document.text.startswith("Not given: lisinopril 10 MG Oral Tablet, ")


@pytest.mark.parametrize(
    ("supply", "words", "end"),
    [
        ({"value": 30}, "for 30 days", "2150-04-03"),
        ({"value": 30.0, "unit": "days"}, "for 30.0 days", "2150-04-03"),
        ({"value": 3, "unit": "months", "code": "mo"}, "for 3 months", "2150-06-05"),
        ({"value": 2, "unit": "wk"}, "for 2 wk", "2150-03-18"),
        ({"value": 30, "unit": "doses"}, "for 30 doses", None),
    ],
)
def test_supply_lasts_as_long_as_its_unit_says(
    supply: dict[str, Any], words: str, end: str | None, tmp_path: Path
) -> None:
    resource = request(resourceType="MedicationDispense", status="completed", whenHandedOver="2150-03-04")
    lines = read_lines(tmp_path, {**resource, "daysSupply": supply})
    assert words in lines[0][1]
    assert [day for day, _ in lines[1:]] == ([end] if end else [])


MILLIGRAMS, TABLETS = {"value": 650, "unit": "mg"}, {"value": 2, "unit": "tablet"}
EVERY_DAY = {"frequency": 1, "period": 1, "periodUnit": "d"}


@pytest.mark.parametrize(
    ("dosage", "words"),
    [
        ({"timing": {"repeat": {"frequency": 1, "period": 4, "periodMax": 6, "periodUnit": "h"}}},
         "every 4 to 6 hours"),
        ({"timing": {"repeat": {**EVERY_DAY, "frequencyMax": 3, "when": ["AC"]}}}, "1 to 3 times daily before meals"),
        ({"timing": {"repeat": {"frequency": 1, "period": 1, "periodUnit": "wk", "dayOfWeek": ["mon"]}}},
         "every week on Monday"),
        ({"timing": {"repeat": {"timeOfDay": ["08:00:00", "20:30:00"], "count": 4}}},
         "at 08:00, 20:30 4 doses in all"),
        ({"timing": {"repeat": {**EVERY_DAY, "boundsDuration": {"value": 5, "unit": "days"}}}},
         "once daily for 5 days"),
        ({"doseAndRate": [{"rateRatio": {"numerator": {"value": 8, "unit": "ug"},
                                         "denominator": {"value": 1, "unit": "min"}}}]}, "8 ug/min"),
        ({"doseAndRate": [{"type": {"text": "calculated"}, "doseQuantity": MILLIGRAMS},
                          {"type": {"text": "admin-amount"}, "doseQuantity": TABLETS},
                          {"type": {"text": "ordered"}, "doseQuantity": MILLIGRAMS}]}, "650 mg (2 tablet)"),
        ({"doseAndRate": [{"doseQuantity": MILLIGRAMS}], "patientInstruction": "Take with food"},
         "650 mg, Take with food"),
        ({"doseAndRate": [{"doseQuantity": MILLIGRAMS}], "asNeededCodeableConcept": {"text": "pain"},
          "maxDosePerPeriod": {"numerator": {"value": 4, "unit": "g"}, "denominator": {"value": 1, "unit": "d"}}},
         "650 mg as needed for pain (at most 4 g per day)"),
    ],
)  # fmt: skip
def test_dosage_without_text_states_all_of_its_elements(tmp_path: Path, dosage: dict[str, Any], words: str) -> None:
    """A range of intervals, a limit and a rate are part of the dose. Epic repeats the dose in other forms."""
    document, *_ = read_documents(tmp_path, request(dosageInstruction=[dosage]))
    assert facts_of(document)[0].value == words


def test_dosage_of_r5_in_words_with_its_period_is_read(tmp_path: Path) -> None:
    order = request(status="ended", renderedDosageInstruction="5 mg daily", effectiveDosePeriod={"end": "2150-06-01"})
    del order["dosageInstruction"]
    assert read_lines(tmp_path, order) == [
        ("2150-03-04", "Started lisinopril 10 MG Oral Tablet, 5 mg daily (request)"),
        ("2150-06-01", "End of lisinopril 10 MG Oral Tablet (request; ended)"),
    ]


def test_infusion_states_rate_and_end(tmp_path: Path) -> None:
    ratio = {"numerator": {"value": 1200, "unit": "U"}, "denominator": {"value": 1, "unit": "h"}}
    given = {
        "resourceType": "MedicationAdministration",
        "id": "a1",
        "status": "completed",
        "subject": SUBJECT,
        "medicationCodeableConcept": {"text": "heparin"},
        "effectivePeriod": {"start": "2150-03-04T23:30:00-05:00", "end": "2150-03-05T03:30:00-05:00"},
        "dosage": {"text": "heparin drip", "rateRatio": ratio, "dose": {"value": 5000, "unit": "U"}},
    }
    text = "2150-03-04 23:30 Given: heparin, 5000 U at 1200 U/h (administration) Until 2150-03-05 03:30. heparin drip"
    assert read_lines(tmp_path, given) == [("2150-03-05", text)]


@pytest.mark.parametrize(
    "medication",
    [
        {"medicationReference": {"reference": "Medication/x1"}},
        {"medicationReference": {"reference": "#in"}, "contained": [MEDICATION]},
        {"medication": {"reference": {"reference": "Medication/x1"}}},
        {"medication": {"concept": LISINOPRIL}},
        {"medicationReference": {"display": "lisinopril 10 MG Oral Tablet"}},
    ],
)  # fmt: skip
def test_medication_is_named_by_any_form_of_reference(tmp_path: Path, medication: dict[str, Any]) -> None:
    other = {"resourceType": "Medication", "id": "x1", "code": LISINOPRIL}
    order = {**request(), **medication}
    if "medicationCodeableConcept" not in medication:
        del order["medicationCodeableConcept"]
    (line,) = read_lines(tmp_path, order, other)
    assert line[1].startswith("Started lisinopril 10 MG Oral Tablet")


def test_file_of_each_patient_has_its_own_medications_and_stays(tmp_path: Path) -> None:
    """Exports of one patient each use an id such as `Medication/1` for different things."""
    paths = []
    for patient, drug, month in (("p1", "warfarin", "2150-01"), ("p2", "insulin", "2150-02")):
        subject = {"reference": f"Patient/{patient}"}
        order = request(subject=subject, medicationReference={"reference": "Medication/1"})
        del order["medicationCodeableConcept"]
        stay = {"resourceType": "Encounter", "id": "1", "status": "finished", "class": {"code": "IMP"},
                "subject": subject, "period": {"start": f"{month}-01", "end": f"{month}-09"}}  # fmt: skip
        resources = [{"resourceType": "Medication", "id": "1", "code": {"text": drug}}, order, stay]
        paths.append(tmp_path / f"{patient}.ndjson")
        paths[-1].write_text("".join(json.dumps(resource) + "\n" for resource in resources), encoding="utf-8")
    items = list(export.read_files([(path, path.name) for path in paths], NoteCleaning()))
    documents = [item for item in items if isinstance(item, Document)]
    orders = {document.patient: facts_of(document)[0].name for document in documents if "orders" in document.title}
    assert orders == {"p1": "warfarin", "p2": "insulin"}
    # The days of a stay with the same id are never those of the other patient.
    admitted = {(document.patient, document.metadata.get("admitted")) for document in documents}
    assert admitted <= {("p1", None), ("p2", None), ("p2", "2150-02-01")}


@pytest.mark.parametrize(
    ("updated", "name"), [(("", ""), ""), (("2150-01-01", "2150-02-01"), "new"), (("2150-02-01", "2150-01-01"), "old")]
)
def test_medication_of_other_files_is_named_unless_they_contradict(
    tmp_path: Path, updated: tuple[str, str], name: str
) -> None:
    """Of two versions the later one counts."""
    order = request(medicationReference={"reference": "Medication/1"})
    del order["medicationCodeableConcept"]
    resources: dict[str, dict[str, Any]] = {"orders": order}
    for drug, time in zip(("old", "new"), updated, strict=True):
        meta = {"lastUpdated": time} if time else {}
        resources[drug] = {"resourceType": "Medication", "id": "1", "code": {"text": drug}, "meta": meta}
    paths = [tmp_path / f"{stem}.ndjson" for stem in resources]
    for path in paths:
        path.write_text(json.dumps(resources[path.stem]), encoding="utf-8")
    items = list(export.read_files([(path, path.name) for path in paths], NoteCleaning()))
    names = [facts_of(item)[0].name for item in items if isinstance(item, Document)]
    reasons = [item.reason for item in items if isinstance(item, Skipped)]
    assert names == ([name] if name else [])
    assert [reason[:20] for reason in reasons] == ([] if name else ["names no medication "])


def test_medication_that_no_file_has_is_reported(tmp_path: Path) -> None:
    order = request(medicationReference={"reference": "Medication/gone"})
    del order["medicationCodeableConcept"]
    (skip,) = [item for item in read_items(tmp_path, order) if isinstance(item, Skipped)]
    assert "names no medication" in skip.reason


def test_statement_of_past_medication_has_start_and_end(tmp_path: Path) -> None:
    statement = {
        "resourceType": "MedicationStatement",
        "id": "s1",
        "status": "completed",
        "subject": SUBJECT,
        "medicationCodeableConcept": {"text": "amoxicillin"},
        "effectivePeriod": {"start": "2150-01-01", "end": "2150-01-08"},
        "dosage": [{"text": "500 mg three times daily"}],
    }
    assert read_lines(tmp_path, statement) == [
        ("2150-01-01", "Started amoxicillin, 500 mg three times daily (statement)"),
        ("2150-01-08", "End of amoxicillin (statement)"),
    ]
    not_taken = {**statement, "status": "not-taken"}
    assert read_lines(tmp_path, not_taken)[0][1].startswith("Not given: amoxicillin")


def test_administration_states_dose_and_refusal(tmp_path: Path) -> None:
    given = {
        "resourceType": "MedicationAdministration",
        "id": "a1",
        "status": "completed",
        "subject": SUBJECT,
        "medicationCodeableConcept": {"text": "ceftriaxone"},
        "effectiveDateTime": "2150-03-04T08:00:00Z",
        "dosage": {"dose": {"value": 1, "unit": "g"}, "route": {"text": "intravenous"}},
    }
    refused = {**given, "id": "a2", "status": "not-done", "effectiveDateTime": "2150-03-05"}
    assert read_lines(tmp_path, given, refused) == [
        ("2150-03-04", "08:00 Given: ceftriaxone, 1 g intravenous (administration)"),
        ("2150-03-05", "Not given: ceftriaxone, 1 g intravenous (administration; not-done)"),
    ]
    fact = facts_of(read_documents(tmp_path, given)[0])[0]
    assert (fact.event, fact.number, fact.unit) == ("given", 1.0, "g")


def test_condition_recorded_later_is_in_document_of_that_day(tmp_path: Path) -> None:
    (document,) = read_documents(tmp_path, condition(onsetDateTime="2149-05", recordedDate="2150-03-04"))
    assert (document.date, document.text) == ("2150-03-04", "2149-05 Onset of Hypertension (active)")
    assert facts_of(document)[0].time == "2149-05"


def test_end_of_condition_is_not_told_before_its_day(tmp_path: Path) -> None:
    resolved = {"coding": [{"code": "resolved"}]}
    past = condition(clinicalStatus=resolved, onsetDateTime="2150-03-04", abatementDateTime="2150-06-01")
    assert read_lines(tmp_path, past) == [
        ("2150-03-04", "Onset of Hypertension"),
        ("2150-06-01", "End of Hypertension (resolved)"),
    ]
    (undated, _) = read_documents(tmp_path, condition(clinicalStatus=resolved, recordedDate="2150-03-04"))
    assert (undated.date, undated.text) == (None, "End of Hypertension (resolved)")


@pytest.mark.parametrize(
    ("onset", "text"),
    [
        ({"onsetAge": {"value": 45, "unit": "years"}}, "Problem: Hypertension (active) Onset: at the age of 45 years."),
        ({"onsetString": "childhood"}, "Problem: Hypertension (active) Onset: childhood."),
        ({"onsetPeriod": {"start": "2150-03-04", "end": "2150-04-01"}}, "Onset of Hypertension (active)"),
        ({"onsetRange": {"low": {"value": 40}, "high": {"value": 45, "unit": "a"}}}, "Onset: 40 to 45 a."),
    ],
)
def test_onset_of_any_form_is_stated(tmp_path: Path, onset: dict[str, Any], text: str) -> None:
    (line,) = read_lines(tmp_path, condition(recordedDate="2150-03-04", **onset))
    assert text in line[1]


@pytest.mark.parametrize(
    "status",
    [
        {"text": "Entered in Error"},
        {"text": "entered in error"},
        {"coding": [{"code": "EIE", "display": "Entered_In_Error"}]},
        "entered-in-error",
    ],
)
def test_condition_entered_in_error_in_other_words_is_withdrawn(tmp_path: Path, status: Any) -> None:
    assert read_lines(tmp_path, condition(verificationStatus=status, recordedDate="2150-03-04")) == []


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("Entered in Error", []),
        ("On hold", ["Medication: Aspirin (statement; on-hold)"]),
        ("not_taken", ["Not given: Aspirin (statement; not-taken)"]),
    ],
)
def test_status_of_a_statement_may_have_blanks_and_capitals(tmp_path: Path, status: str, expected: list[str]) -> None:
    statement = {"resourceType": "MedicationStatement", "id": "s", "subject": SUBJECT, "status": status}
    lines = read_lines(tmp_path, {**statement, "medicationCodeableConcept": {"text": "Aspirin"}})
    assert [line for _, line in lines] == expected


def test_refuted_condition_says_so(tmp_path: Path) -> None:
    refuted = condition(verificationStatus={"coding": [{"code": "refuted"}]}, recordedDate="2150-03-04")
    assert read_lines(tmp_path, refuted)[0][1] == "Problem: Hypertension (active, refuted)"


@pytest.mark.parametrize(
    "status",
    [
        {"coding": [{"system": "http://snomed.info/sct", "code": "413322009"}, {"code": "resolved"}]},
        {"text": "Resolved"},
    ],
)
def test_status_beside_another_code_or_in_words_is_read(tmp_path: Path, status: dict[str, Any]) -> None:
    """A problem that is over must not look active, nor have a code for a status."""
    verification = {"coding": [{"system": "http://snomed.info/sct", "code": "410605003"}, {"code": "confirmed"}]}
    past = condition(clinicalStatus=status, verificationStatus=verification, onsetDateTime="2150-03-04")
    allergy = {"resourceType": "AllergyIntolerance", "id": "al1", "patient": SUBJECT, "code": {"text": "Latex"},
               "clinicalStatus": status, "recordedDate": "2150-03-04"}  # fmt: skip
    assert read_lines(tmp_path, past, allergy) == [
        (None, "End of allergy: Latex (resolved)"),
        (None, "End of Hypertension (resolved)"),
        ("2150-03-04", "Allergy: Latex"),
        ("2150-03-04", "Onset of Hypertension"),
    ]


def test_end_of_condition_is_never_active(tmp_path: Path) -> None:
    lines = read_lines(tmp_path, condition(recordedDate="2150-03-04", abatementAge={"value": 12, "unit": "years"}))
    assert lines[0] == (None, "End of Hypertension (resolved) Abatement: at the age of 12 years.")


def test_age_stage_series_and_end_are_stated(tmp_path: Path) -> None:
    procedure = {"resourceType": "Procedure", "id": "p1", "status": "completed", "subject": SUBJECT,
                 "code": {"text": "CABG"}}  # fmt: skip
    period = {"start": "2150-03-04T08:00:00Z", "end": "2150-03-04T12:30:00Z"}
    resources = [
        condition(recordedDate="2150-03-04", stage=[{"summary": {"text": "Stage II"}}]),
        {"resourceType": "AllergyIntolerance", "id": "al1", "patient": SUBJECT, "code": {"text": "Latex"},
         "recordedDate": "2150-03-04", "onsetString": "in childhood"},
        {"resourceType": "Immunization", "id": "i1", "status": "completed", "patient": SUBJECT,
         "vaccineCode": {"text": "measles"}, "occurrenceDateTime": "2150-03-04",
         "protocolApplied": [{"doseNumberPositiveInt": 2, "seriesDosesPositiveInt": 3}]},
        {**procedure, "performedPeriod": period},
        {**procedure, "id": "p2", "occurrenceAge": {"value": 12, "unit": "years"}},
    ]  # fmt: skip
    assert {line for _, line in read_lines(tmp_path, *resources)} == {
        "Problem: Hypertension (active) Stage: Stage II.",
        "Allergy: Latex Onset: in childhood.",
        "Immunization: measles Dose 2 of 3.",
        "08:00 Procedure: CABG Until 12:30.",
        "Procedure: CABG Time: at the age of 12 years.",
    }


def test_diagnosis_without_date_is_of_the_end_of_its_encounter(tmp_path: Path) -> None:
    stay = {"resourceType": "Encounter", "id": "e1", "status": "finished", "subject": SUBJECT,
            "class": {"code": "IMP"},
            "period": {"start": "2150-03-01T10:00:00Z", "end": "2150-03-09"}}  # fmt: skip
    diagnosis = condition(
        category=[{"coding": [{"code": "encounter-diagnosis"}]}], encounter={"reference": "Encounter/e1"}
    )
    documents = read_documents(tmp_path, stay, diagnosis)
    assert [(document.title, document.text) for document in documents] == [
        ("Stays and visits, 2150-03-01", "10:00 Admitted: inpatient encounter"),
        ("Diagnoses, 2150-03-09", "Problem: Hypertension (encounter diagnosis; active)"),
        ("Stays and visits, 2150-03-09", "Discharged: inpatient encounter"),
    ]
    assert documents[1].metadata["encounter"] == "e1"
    assert documents[1].metadata["discharged"] == "2150-03-09"


def test_visit_and_cancelled_stay_admit_nobody(tmp_path: Path) -> None:
    """Questions about stays must not count them. Servers send every visit with its begin and end."""
    code = "http://terminology.hl7.org/CodeSystem/v3-ActCode"
    visit = {"resourceType": "Encounter", "id": "e1", "status": "finished", "subject": SUBJECT,
             "class": {"system": code, "code": "AMB"}, "type": [{"text": "Office Visit"}],
             "reason": [{"value": [{"concept": {"text": "cough"}}]}],
             "period": {"start": "2150-03-01T10:00:00Z", "end": "2150-03-01T10:30:00Z"}}  # fmt: skip
    stay = {**visit, "class": {"system": code, "code": "IMP"}, "type": [{"text": "Inpatient"}], "reason": []}
    later = {"start": "2150-04-01", "end": "2150-04-05"}
    resources = [visit, {**stay, "id": "e2", "status": "cancelled", "period": later}]
    resources.append({**stay, "id": "e3", "status": "planned", "period": later})
    documents = read_documents(tmp_path, *resources)
    assert [(document.date, document.text) for document in documents] == [
        ("2150-03-01", "10:00 Visit: Office Visit Reason: cough. Until 10:30."),
        ("2150-04-01", "Visit: Inpatient (cancelled)"),
        ("2150-04-01", "Visit: Inpatient (planned)"),
    ]
    assert {fact.event for document in documents for fact in facts_of(document)} == {"state"}


def test_allergy_states_reactions(tmp_path: Path) -> None:
    allergy = {
        "resourceType": "AllergyIntolerance",
        "id": "al1",
        "patient": SUBJECT,
        "code": {"text": "Penicillin"},
        "clinicalStatus": {"coding": [{"code": "active"}]},
        "criticality": "high",
        "recordedDate": "2150-03-04",
        "reaction": [{"manifestation": [{"text": "hives"}], "severity": "severe"}],
    }
    assert read_lines(tmp_path, allergy) == [
        ("2150-03-04", "Allergy: Penicillin: hives (severe) (criticality high; active)")
    ]


@pytest.mark.parametrize(
    ("code", "substance", "line"),
    [
        ("Allergic disposition", "Amoxicillin", "Allergy: Amoxicillin: hives (active)"),
        ("Unknown", "Codeine", "Allergy: Codeine: hives (active)"),
        ("Drug allergy", "", "Allergy: Drug allergy: hives (active)"),
        ("Unknown", "", "Allergy: Unknown: hives (active)"),
        ("Penicillin", "Amoxicillin", "Allergy: Penicillin (Amoxicillin): hives (active)"),
    ],
)
def test_allergy_without_a_name_is_named_by_the_substance_of_its_reaction(
    tmp_path: Path, code: str, substance: str, line: str
) -> None:
    reaction: dict[str, Any] = {"substance": {"text": substance}, "manifestation": [{"text": "hives"}]}
    allergy: dict[str, Any] = {"resourceType": "AllergyIntolerance", "id": "a", "patient": SUBJECT}
    allergy |= {"code": {"text": code}, "clinicalStatus": {"coding": [{"code": "active"}]}, "reaction": [reaction]}
    assert [text for _, text in read_lines(tmp_path, allergy)] == [line]


@pytest.mark.parametrize(
    ("name", "code", "line"),
    [
        ("Family history of gout", "1", "Problem: Family history of gout (active, family-history)"),
        ("Malignant neoplasm of breast", "Z80.3", "Problem: Malignant neoplasm of breast (active, family-history)"),
        ("Personal history of TIA", "Z86.73", "Problem: Personal history of TIA (active)"),
        ("Rule out sepsis", "1", "Problem: Rule out sepsis (active, suspected)"),
        ("No history of diabetes", "1", "Problem: diabetes (refuted) As written: No history of diabetes."),
    ],
)
def test_problem_whose_name_is_a_statement_has_its_status(tmp_path: Path, name: str, code: str, line: str) -> None:
    concept = {"text": name, "coding": [{"system": "http://hl7.org/fhir/sid/icd-10-cm", "code": code}]}
    assert [text for _, text in read_lines(tmp_path, condition(code=concept))] == [line]


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("Allergy status to penicillin", "Allergy: penicillin (active) As written: Allergy status to penicillin."),
        (
            "Allergy status to narcotic agent status",
            "Allergy: narcotic agent (active) As written: Allergy status to narcotic agent status.",
        ),
        (
            "Personal history of allergy to latex",
            "Allergy: latex (active) As written: Personal history of allergy to latex.",
        ),
        ("Egg allergy status", "Allergy: Egg (active) As written: Egg allergy status."),
        (
            "Procedure and treatment not carried out because of patient's decision",
            "Not done: Procedure and treatment not carried out because of patient's decision (not-done)",
        ),
        ("Anaphylaxis due to penicillin", "Problem: Anaphylaxis due to penicillin (active)"),
        ("Encounter for observation, gout ruled out", "Problem: Encounter for observation, gout ruled out (active)"),
    ],
)
def test_situation_among_the_problems_is_what_it_says(tmp_path: Path, name: str, line: str) -> None:
    stated = condition(code={"text": name}, recordedDate="2150-03-04")
    assert [text for _, text in read_lines(tmp_path, stated)] == [line]


def test_statement_that_is_refuted_is_kept_as_written(tmp_path: Path) -> None:
    denied = condition(code={"text": "No history of gout"}, verificationStatus={"text": "refuted"})
    assert [text for _, text in read_lines(tmp_path, denied)] == ["Problem: No history of gout (active, refuted)"]


def test_denied_allergy_is_refuted_with_its_words(tmp_path: Path) -> None:
    code = {"text": "Not allergic to penicillin"}
    allergy = {"resourceType": "AllergyIntolerance", "id": "a", "patient": SUBJECT, "code": code}
    assert [line for _, line in read_lines(tmp_path, {**allergy, "onsetDateTime": "2150"})] == [
        "Allergy: penicillin (refuted) As written: Not allergic to penicillin."
    ]


def test_allergy_to_a_class_names_the_substances_of_its_reactions(tmp_path: Path) -> None:
    reactions = [{"substance": {"text": words}} for words in ("Sulfamethoxazole", "Sulfamethoxazole", "sulfonamide")]
    allergy = {"resourceType": "AllergyIntolerance", "id": "a", "patient": SUBJECT, "reaction": reactions}
    (document,) = read_documents(tmp_path, {**allergy, "code": {"text": "Sulfonamide antibiotics"}})
    assert document.text == "Allergy: Sulfonamide antibiotics (Sulfamethoxazole)"


def test_allergy_named_by_a_substance_has_its_codes(tmp_path: Path) -> None:
    """Not those of a placeholder, which may say that nothing is known."""
    unknown = {"text": "Unknown", "coding": [{"system": "http://snomed.info/sct", "code": "no-allergy-info"}]}
    substance = {"text": "Codeine", "coding": [{"system": "http://snomed.info/sct", "code": "387494007"}]}
    allergy = {"resourceType": "AllergyIntolerance", "id": "a", "patient": SUBJECT, "code": unknown}
    (document,) = read_documents(tmp_path, {**allergy, "reaction": [{"substance": substance}]})
    (fact,) = facts_of(document)
    assert (fact.name, fact.codes, fact.status) == ("Codeine", ("snomed:387494007",), "")


def test_procedure_and_immunization_that_were_not_done_say_so(tmp_path: Path) -> None:
    procedure = {"resourceType": "Procedure", "id": "pr1", "status": "completed", "subject": SUBJECT,
                 "code": {"text": "Appendectomy"}, "performedPeriod": {"start": "2150-03-04T09:00:00Z"}}  # fmt: skip
    shot = {"resourceType": "Immunization", "id": "i1", "status": "not-done", "patient": SUBJECT,
            "vaccineCode": {"text": "influenza"}, "occurrenceDateTime": "2150-03-04"}  # fmt: skip
    lines = [
        line for _, line in read_lines(tmp_path, procedure, {**procedure, "id": "pr2", "status": "not-done"}, shot)
    ]
    assert lines == [
        "Not given: influenza (not-done)",
        "09:00 Procedure: Appendectomy",
        "09:00 Not done: Appendectomy (not-done)",
    ]


def observation(**more: Any) -> dict[str, Any]:
    return {
        "resourceType": "Observation",
        "id": "o1",
        "status": "final",
        "category": [{"coding": [{"code": "laboratory"}]}],
        "code": {"text": "Creatinine", "coding": [{"system": "http://loinc.org", "code": "2160-0"}]},
        "subject": SUBJECT,
        "effectiveDateTime": "2150-03-04T08:10:00Z",
        "valueQuantity": {"value": 1.8, "unit": "MG/DL"},
        **more,
    }


NOT_PERFORMED = {"coding": [{"code": "not-performed"}]}


def test_reason_without_a_value_is_no_value(tmp_path: Path) -> None:
    resource = observation(valueQuantity=None, dataAbsentReason=NOT_PERFORMED)
    (document,) = read_documents(tmp_path, resource)
    (fact,) = facts_of(document)
    assert (fact.status, fact.number, fact.value) == ("not-done", None, "not available (not-performed)")
    assert document.text == "08:10 Not done: Creatinine: not available (not-performed) (not-done)"


def test_text_that_says_that_there_is_no_value_is_none(tmp_path: Path) -> None:
    """A component of it withdraws no other one."""
    potassium = {"code": {"text": "Potassium"}, "valueString": "HEMOLYZED, TEST NOT PERFORMED"}
    sodium = {"code": {"text": "Sodium"}, "valueQuantity": {"value": 140, "unit": "mmol/L"}}
    panel = observation(code={"text": "Panel"}, valueQuantity=None, component=[potassium, sodium])
    lone = observation(id="o2", code={"text": "Platelets"}, valueQuantity=None, valueString="see comment")
    facts = [fact for document in read_documents(tmp_path, panel, lone) for fact in facts_of(document)]
    assert [(fact.name, fact.value, fact.status) for fact in facts] == [
        ("Panel, Sodium", "140", ""),
        ("Platelets", "see comment", "not-done"),
    ]


def test_component_without_a_value_is_a_remark(tmp_path: Path) -> None:
    systolic = {"code": {"text": "Systolic"}, "valueQuantity": {"value": 120, "unit": "mmHg"}}
    diastolic = {"code": {"text": "Diastolic"}, "dataAbsentReason": NOT_PERFORMED}
    resource = observation(code={"text": "BP"}, valueQuantity=None, component=[systolic, diastolic])
    (document,) = read_documents(tmp_path, resource)
    (fact,) = facts_of(document)
    assert (fact.name, fact.status) == ("BP, Systolic", "")
    assert document.text == "08:10 BP, Systolic: 120 mmHg Diastolic not available (not-performed)."


def test_result_has_number_unit_and_codes(tmp_path: Path) -> None:
    high = observation(interpretation=[{"coding": [{"code": "H"}]}], referenceRange=[{"text": "0.6 to 1.2"}])
    (document,) = read_documents(tmp_path, high)
    assert document.text == "08:10 Creatinine: 1.8 MG/DL (high; reference 0.6 to 1.2)"
    (fact,) = facts_of(document)
    assert (fact.kind, fact.number, fact.unit, fact.codes, fact.interpretation, fact.time) == (
        "laboratory",
        1.8,
        "mg/dL",
        ("loinc:2160-0",),
        "high",
        "2150-03-04T08:10",
    )


def test_result_below_limit_has_comparator(tmp_path: Path) -> None:
    (document,) = read_documents(
        tmp_path, observation(valueQuantity={"value": 0.01, "comparator": "<", "unit": "ng/mL"})
    )
    (fact,) = facts_of(document)
    assert (fact.comparator, fact.number, document.text) == ("<", 0.01, "08:10 Creatinine: < 0.01 ng/mL")


@pytest.mark.parametrize(
    ("value", "text", "number", "unit"),
    [
        ({"valueString": "2.5"}, "2.5", 2.5, ""),
        ({"valueString": "<0.01"}, "< 0.01", 0.01, ""),
        ({"valueString": "2.5 to 3"}, "2.5 to 3", None, ""),
        ({"valueDateTime": "2150"}, "2150", None, ""),
        ({"valueQuantity": {"value": 7.35, "unit": "1", "system": "http://unitsofmeasure.org", "code": "1"}},
         "7.35", 7.35, ""),
        ({"valueQuantity": {"value": 150, "unit": "10*3/ul"}}, "150 10*3/ul", 150, "10*3/uL"),
        ({"valueQuantity": {"value": 7.2, "unit": "G/L"}}, "7.2 G/L", 7.2, "G/L"),
    ],
)  # fmt: skip
def test_number_is_read_from_strings_and_without_a_unit(
    tmp_path: Path, value: dict[str, Any], text: str, number: float | None, unit: str
) -> None:
    """`G/L` is gram in capitals, or 10*9/L in France, so it stays as written."""
    result = observation()
    del result["valueQuantity"]
    (document,) = read_documents(tmp_path, {**result, **value})
    (fact,) = facts_of(document)
    assert (document.text, fact.number, fact.unit) == (f"08:10 Creatinine: {text}", number, unit)


def test_result_has_the_time_of_its_event_before_that_of_its_report(tmp_path: Path) -> None:
    result = observation(effectiveTiming={"event": ["2150-03-04T07:00:00Z"]}, issued="2150-03-04T09:00:00Z")
    del result["effectiveDateTime"]
    assert read_lines(tmp_path, result) == [("2150-03-04", "07:00 Creatinine: 1.8 MG/DL")]


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ({"text": "Creatinine"}, "Creatinine (Urine)"),
        ({"text": "Urine creatinine"}, "Urine creatinine"),
        ({"text": "Creatinine", "coding": [{"system": "http://loinc.org", "code": "2161-8"}]}, "Creatinine"),
    ],
)
def test_result_of_urine_without_loinc_code_says_so(tmp_path: Path, code: dict[str, Any], name: str) -> None:
    specimen = {"reference": "Specimen/1", "display": "Urine, clean catch"}
    (document,) = read_documents(tmp_path, observation(code=code, specimen=specimen))
    assert facts_of(document)[0].name == name


def test_result_about_another_person_is_left_out_and_named(tmp_path: Path) -> None:
    """The heart rate of a fetus is in the record of its mother."""
    fetal = observation(id="o2", focus=[{"reference": "RelatedPerson/fetus", "display": "Fetus"}])
    device = observation(id="o3", code={"text": "Lactate"}, focus=[{"reference": "Device/d1"}])
    own = observation(id="o4", code={"text": "Sodium"}, focus=[SUBJECT])
    items = read_items(tmp_path, fetal, device, own)
    (document,) = [item for item in items if isinstance(item, Document)]
    assert document.text == "08:10 Lactate: 1.8 MG/DL\n08:10 Sodium: 1.8 MG/DL"
    (skip,) = [item for item in items if isinstance(item, Skipped)]
    assert skip.reason.startswith("is about another person than its patient (focus)")


@pytest.mark.parametrize(
    ("issued", "date", "line"),
    [
        ("2150-03-04T09:00:00Z", "2150-03-04", "08:10 Creatinine: 1.8 MG/DL"),
        ("2150-03-07", "2150-03-07", "2150-03-04 08:10 Creatinine: 1.8 MG/DL"),
        ("2155-01-01", "2150-03-04", "08:10 Creatinine: 1.8 MG/DL"),
    ],
)
def test_result_reported_later_is_in_document_of_that_day(tmp_path: Path, issued: str, date: str, line: str) -> None:
    assert read_lines(tmp_path, observation(issued=issued)) == [(date, line)]


def test_name_of_a_component_does_not_repeat_that_of_its_panel(tmp_path: Path) -> None:
    names = ("Systolic blood pressure", "Cuff size")
    components = [{"code": {"text": name}, "valueQuantity": {"value": 120, "unit": "mm[Hg]"}} for name in names]
    resource = observation(code={"text": "Blood pressure"}, valueQuantity=None, component=components)
    (document,) = read_documents(tmp_path, resource)
    assert [fact.name for fact in facts_of(document)] == ["Systolic blood pressure", "Blood pressure, Cuff size"]


def test_components_of_blood_pressure_are_facts_of_their_own(tmp_path: Path) -> None:
    components = []
    for code, name, value in (("8480-6", "Systolic blood pressure", 142), ("8462-4", "Diastolic blood pressure", 88)):
        quantity = {"value": value, "unit": "mmHg", "system": "http://unitsofmeasure.org", "code": "mm[Hg]"}
        concept = {"text": name, "coding": [{"system": "http://loinc.org", "code": code}]}
        components.append({"code": concept, "valueQuantity": quantity})
    panel = observation(
        code={"text": "Blood pressure"}, category=[{"coding": [{"code": "vital-signs"}]}], component=components
    )
    del panel["valueQuantity"]
    (document,) = read_documents(tmp_path, panel)
    assert document.text == "08:10 Systolic blood pressure: 142 mmHg\n08:10 Diastolic blood pressure: 88 mmHg"
    assert [(fact.number, fact.unit) for fact in facts_of(document)] == [(142.0, "mm[Hg]"), (88.0, "mm[Hg]")]


def test_panel_without_value_and_unknown_unit_are_counted(tmp_path: Path) -> None:
    log = RemovalLog()
    panel = observation(id="o2", hasMember=[{"reference": "Observation/o1"}])
    del panel["valueQuantity"]
    wrong_time = observation(id="o3", effectiveDateTime="04/03/2150", valueQuantity={"value": 2, "unit": "blobs"})
    documents = read_documents(tmp_path, observation(), panel, wrong_time, log=log)
    assert documents[0].text == "Creatinine: 2 blobs Time as written: 04/03/2150."
    assert documents[0].date is None
    summary = log.summary()
    assert summary.facts == {"laboratory": 2}
    assert summary.fact_problems == {
        "panel without a value of its own": 1,
        "with a time that could not be read": 1,
        "with a unit that has no UCUM code": 1,
    }


def test_later_version_replaces_facts_of_all_its_documents(tmp_path: Path) -> None:
    first = request(meta={"lastUpdated": "2150-03-04"}, status="stopped", statusChanged="2150-05-06")
    later = request(meta={"lastUpdated": "2150-06-01"}, status="entered-in-error")
    items = [item for item in read_items(tmp_path, later, first) if isinstance(item, Document | DeletedDocument)]
    assert items == [
        DeletedDocument("note:p1:2150-03-04::medication orders", patient="p1"),
        DeletedDocument("note:p1:2150-05-06::medication orders", patient="p1"),
    ]


def test_facts_of_two_patients_are_never_in_one_document(tmp_path: Path) -> None:
    theirs = observation(id="o2", subject={"reference": "Patient/p2"}, valueQuantity={"value": 9.9, "unit": "mg/dL"})
    documents = read_documents(tmp_path, observation(), theirs)
    assert {document.patient: document.text for document in documents} == {
        "p1": "08:10 Creatinine: 1.8 MG/DL",
        "p2": "08:10 Creatinine: 9.9 mg/dL",
    }


HOSTILE: list[Any] = [
    None,
    0,
    -1.5,
    True,
    "",
    "x\ny\0",
    [],
    [None],
    [[]],
    {},
    {"value": {}},
    {"coding": 5},
    {"coding": [7]},
    "9" * 500,
]


@pytest.mark.parametrize(
    "kind", ["Observation", "Condition", "MedicationRequest", "Immunization", "AllergyIntolerance"]
)
def test_values_of_wrong_types_are_reported_or_read_as_text(tmp_path: Path, kind: str) -> None:
    """No value of any field stops the reading of the resources after it."""
    base = {"Observation": observation(), "Condition": condition(), "MedicationRequest": request()}.get(
        kind,
        {"resourceType": kind, "patient": SUBJECT, "vaccineCode": {"text": "v"}, "code": {"text": "c"}, "id": "z"},
    )
    names = [*base, "note", "meta", "reaction", "component", "interpretation", "referenceRange", "occurrenceDateTime"]
    resources = []
    for number, (name, value) in enumerate((name, value) for name in names for value in HOSTILE):
        if name not in ("resourceType", "subject", "patient"):
            resources.append({**base, "id": f"h{number}", name: value})
    items = read_items(tmp_path, *resources, observation(id="last", code={"text": "Lactate"}))
    documents = [item for item in items if isinstance(item, Document)]
    assert any("Lactate" in document.text for document in documents)
    assert all(is_fact_list(document.metadata[FACTS]) for document in documents)


def test_death_of_a_patient_is_counted_as_not_read(tmp_path: Path) -> None:
    log = RemovalLog()
    dead = {"resourceType": "Patient", "id": "p1", "deceasedDateTime": "2150-03-04"}
    alive = {"resourceType": "Patient", "id": "p2", "deceasedBoolean": False}
    read_items(tmp_path, dead, alive, condition(), log=log)
    assert log.summary().fact_problems["death of a Patient, which is not read"] == 1


SNOMED = "http://snomed.info/sct"


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({"coding": [{"system": SNOMED, "code": "413322009"}]}, "End of Hypertension (resolved)"),
        ({"coding": [{"code": "inactive"}]}, "End of Hypertension (inactive)"),
        (
            {"coding": [{"system": SNOMED, "code": "277022003", "display": "Remission phase"}]},
            "End of Hypertension (remission)",
        ),
        ({"text": "No longer active"}, "End of Hypertension (inactive)"),
        ({"coding": [{"system": SNOMED, "code": "55561003"}]}, "Problem: Hypertension (active)"),
    ],
)
def test_status_of_a_condition_is_read_by_its_code(tmp_path: Path, status: dict[str, Any], expected: str) -> None:
    assert expected in [line for _, line in read_lines(tmp_path, condition(clinicalStatus=status))]


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("inactive", ["Allergy: Latex", "End of allergy: Latex (inactive)"]),
        ("refuted", ["Allergy: Latex (refuted)"]),
        ("unconfirmed", ["Allergy: Latex (unconfirmed)"]),
        ("confirmed", ["Allergy: Latex"]),
    ],
)
def test_allergy_of_dstu2_has_its_only_status(tmp_path: Path, status: str, expected: list[str]) -> None:
    allergy = {"resourceType": "AllergyIntolerance", "id": "a", "patient": SUBJECT, "substance": {"text": "Latex"}}
    assert sorted(line for _, line in read_lines(tmp_path, {**allergy, "status": status})) == expected


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("not-taking", "(statement; not-taken)"),
        ("on-hold-as-directed", "(statement; on-hold)"),
        ("stopped", "(statement; stopped)"),
    ],
)
def test_adherence_of_r5_is_read_by_its_code(tmp_path: Path, code: str, words: str) -> None:
    statement = {
        "resourceType": "MedicationStatement",
        "id": "s1",
        "status": "recorded",
        "subject": SUBJECT,
        "medication": {"concept": LISINOPRIL},
        "adherence": {"code": {"coding": [{"code": code, "display": "Other Words"}]}},
    }
    assert any(line.endswith(words) for _, line in read_lines(tmp_path, statement))


def test_medication_that_ends_before_it_begins_is_over(tmp_path: Path) -> None:
    period = {"start": "2150-03-04", "end": "2150-01-01"}
    statement = {
        "resourceType": "MedicationStatement",
        "id": "s1",
        "status": "active",
        "subject": SUBJECT,
        "medicationCodeableConcept": LISINOPRIL,
        "effectivePeriod": period,
    }
    assert read_lines(tmp_path, statement)[1] == (
        "2150-03-04",
        "End of lisinopril 10 MG Oral Tablet (statement) End as written: 2150-01-01, before the beginning.",
    )


def test_devices_and_flags_of_a_patient_are_facts(tmp_path: Path) -> None:
    """A device without a patient wrote a document."""
    pacemaker = {"resourceType": "Device", "id": "d1", "type": {"text": "Cardiac pacemaker"}, "patient": SUBJECT}
    software = {"resourceType": "Device", "id": "d2", "type": {"text": "Software"}}
    pump = {"resourceType": "DeviceUseStatement", "id": "d3", "status": "completed", "subject": SUBJECT,
            "device": {"display": "Insulin pump"}, "timingPeriod": {"start": "2150-01-01", "end": "2150-02-01"},
            }  # fmt: skip
    flag = {"resourceType": "Flag", "id": "f1", "status": "active", "code": {"text": "Fall risk"}, "subject": SUBJECT}
    log = RemovalLog()
    family = {"resourceType": "FamilyMemberHistory", "id": "h1", "patient": SUBJECT}
    documents = read_documents(
        tmp_path, pacemaker, software, pump, {**flag, "period": {"start": "2150-01-03"}}, family, log=log
    )
    assert sorted(document.text for document in documents) == [
        "Began: Fall risk",
        "Began: Insulin pump",
        "Cardiac pacemaker",
        "End of Insulin pump",
    ]
    assert log.summary().other_resources == {"FamilyMemberHistory": 1}
