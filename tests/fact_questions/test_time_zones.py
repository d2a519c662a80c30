"""Facts whose times are written in several time zones: stored as written, and ordered by instants."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from epicrisis.core.clinical_facts import read_facts
from epicrisis.core.computed_values import ComputedAnswer
from epicrisis.core.types import Document, Passage
from epicrisis.corpus.readers.sources import read_sources
from epicrisis.corpus.records.note_documents import NoteCleaning
from epicrisis.records.fact_questions.answer import compute
from epicrisis.records.fact_questions.question_rules import plan_by_rules
from epicrisis.records.fact_questions.record import PatientFacts, read_fact_record
from tests.corpus.test_ccda_facts import observation, organizer, quantity
from tests.fact_questions.test_computed_answers import Chart
from tests.support.ccda_documents import document
from tests.support.hl7_messages import message, order, pid, result

FLIGHT = (("20150304100000+0100", "1.1"), ("20150304093000-0500", "2.4"))
"""09:00 and 14:30 in UTC: by their local times, the second value would be the first."""


def iso(time: str) -> str:
    return f"{time[:4]}-{time[4:6]}-{time[6:8]}T{time[8:10]}:{time[10:12]}:00{time[14:17]}:{time[17:]}"


def write_fhir(folder: Path) -> None:
    lines: list[str] = []
    for number, (time, value) in enumerate(FLIGHT):
        code = {"text": "Creatinine", "coding": [{"system": "http://loinc.org", "code": "2160-0"}]}
        observation = {
            "resourceType": "Observation",
            "id": str(number),
            "status": "final",
            "category": [{"coding": [{"code": "laboratory"}]}],
            "code": code,
            "subject": {"reference": "Patient/p1"},
            "effectiveDateTime": iso(time),
            "valueQuantity": {"value": float(value), "unit": "mg/dL"},
        }
        lines.append(json.dumps(observation))
    (folder / "Observation.ndjson").write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_hl7(folder: Path) -> None:
    """Write a result with its own time zone, and one with that of its message."""
    for number, (time, value) in enumerate(FLIGHT):
        zone = time[14:]
        written = time if number == 0 else time[:14]
        text = message(
            "ORU^R01",
            pid(),
            order(f"F{number}", "BMP^Basic panel", time=written),
            result("NM", "2160-0^Creatinine^LN", value, "mg/dL"),
            sent=f"20150304180000{zone if number else '+0000'}",
            control=f"M{number}",
        )
        (folder / f"{number}.hl7").write_text(text, encoding="utf-8")


def write_ccda(folder: Path) -> None:
    items: list[str] = []
    for number, (time, value) in enumerate(FLIGHT):
        items.append(observation(f"R{number}", "2160-0", quantity(value), time))
    (folder / "document.xml").write_text(document([organizer(*items)]), encoding="utf-8")


def read_documents(folder: Path) -> list[Document]:
    items = read_sources([folder], cleaning=NoteCleaning())
    return [item for item in items if isinstance(item, Document)]


def build_record(documents: Sequence[Document]) -> PatientFacts:
    passages: list[Passage] = []
    for note in documents:
        passages.append(
            Passage(
                id=f"{note.id}#0",
                document_id=note.id,
                ordinal=0,
                start=0,
                end=len(note.text),
                text=note.text,
                date=note.date,
                patient=note.patient,
                metadata=note.metadata,
            )
        )
    record = read_fact_record(passages)
    assert record is not None
    return record


def ask(question: str, record: PatientFacts) -> ComputedAnswer:
    plan = plan_by_rules(question, record)
    assert plan is not None
    return compute(plan, record).answer


@pytest.mark.parametrize("write", [write_fhir, write_hl7, write_ccda])
def test_values_of_two_time_zones_are_ordered_by_instant_in_every_format(write: object, tmp_path: Path) -> None:
    assert callable(write)
    write(tmp_path)
    documents = read_documents(tmp_path)
    record = build_record(documents)
    times = {(fact.time, fact.utc_offset) for fact in record.facts}
    assert times == {("2015-03-04T10:00", "+01:00"), ("2015-03-04T09:30", "-05:00")}
    last = ask("What is the last creatinine?", record)
    assert (last.state, last.result) == ("answered", "2.4 mg/dL")
    assert ask("first creatinine", record).result == "1.1 mg/dL"
    assert ask("creatinine trend", record).result == "rose: 1.1 to 2.4 mg/dL"
    assert {note.date for note in documents if note.metadata.get("clinical_facts")} == {"2015-03-04"}


def test_rows_name_time_zones_where_local_times_are_in_another_order() -> None:
    chart = Chart().lab("2150-03-04T10:00", "1.1", utc_offset="+01:00")
    chart.lab("2150-03-04T09:30", "2.4", utc_offset="-05:00")
    rows = ask("Show all creatinine values", chart.record()).rows
    assert [(row.time, row.remark) for row in rows] == [
        ("2150-03-04T10:00", "UTC+01:00"),
        ("2150-03-04T09:30", "UTC-05:00"),
    ]
    one_zone = Chart().lab("2150-03-04T10:00", "1.1", utc_offset="+01:00")
    one_zone.lab("2150-03-04T11:30", "2.4", utc_offset="+01:00")
    assert not any(row.remark for row in ask("Show all creatinine values", one_zone.record()).rows)


def test_local_day_of_a_question_is_that_of_the_record() -> None:
    """03:30 in UTC of the next day."""
    chart = Chart().lab("2150-03-04T22:30", "1.1", utc_offset="-05:00").lab("2150-03-06", "2.0")
    assert ask("creatinine on 2150-03-04", chart.record()).result == "1.1 mg/dL"


@pytest.mark.parametrize(
    ("times", "state"),
    [
        # Without an offset, the local times are compared, as always.
        ((("2150-03-04T10:00", ""), ("2150-03-04T10:30", "")), "answered"),
        # A day beside times of one place.
        ((("2150-03-04", ""), ("2150-03-05T00:30", "+01:00")), "answered"),
        # Two places: the day may end in the later one an hour after the value.
        ((("2150-03-03T08:00", "+02:00"), ("2150-03-04", ""), ("2150-03-05T00:30", "+01:00")), "answered"),
        ((("2150-03-03T08:00", "+01:00"), ("2150-03-04", ""), ("2150-03-05T00:30", "+02:00")), "abstained"),
        # UTC says nothing of the place.
        ((("2150-03-04T10:00", ""), ("2150-03-04T20:00", "+00:00")), "abstained"),
        ((("2150-03-04T10:00", ""), ("2150-03-06T20:00", "+00:00")), "answered"),
    ],
)
def test_last_value_is_uncertain_only_where_a_missing_offset_decides(
    times: Sequence[tuple[str, str]], state: str
) -> None:
    chart = Chart()
    for number, (time, offset) in enumerate(times):
        chart.lab(time, f"{number + 1}.5", utc_offset=offset)
    computed = ask("last creatinine", chart.record())
    assert computed.state == state
    if state == "abstained":
        assert "lack their time zone" in computed.statement
        assert len(computed.rows) == 2
    else:
        assert computed.result == f"{len(times)}.5 mg/dL"


def test_equal_instants_of_two_time_zones_are_one_time() -> None:
    chart = (
        Chart().lab("2150-03-04T10:00", "1.1", utc_offset="+01:00").lab("2150-03-04T04:00", "1.3", utc_offset="-05:00")
    )
    assert ask("last creatinine", chart.record()).state == "answered"


def test_offset_that_is_no_text_makes_no_fact() -> None:
    note = Chart().lab("2150-03-04T10:00", "1.1", utc_offset="+01:00").document()
    rows = note.metadata["clinical_facts"]
    passage = Passage(
        id="x#0",
        document_id=note.id,
        ordinal=0,
        start=0,
        end=len(note.text),
        text=note.text,
        patient="p",
        metadata={"clinical_facts": rows},
    )
    assert [fact.utc_offset for fact in read_facts(passage)] == ["+01:00"]
    rows[0]["utc_offset"] = 1
    assert read_facts(passage) == ()
