"""Facts of C-CDA documents that are attached to FHIR resources: read once, and only for their own patient."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from epicrisis.core.clinical_facts import FACTS
from epicrisis.core.types import Document
from epicrisis.corpus.base.reader_base import DeletedDocument, ReaderItem, Skipped
from epicrisis.corpus.base.removal_log import RemovalLog
from epicrisis.corpus.readers.sources import read_sources
from epicrisis.corpus.records.note_documents import NoteCleaning
from tests.corpus.test_ccda_facts import HYPERTENSION, concern, observation, organizer, problem, quantity
from tests.support.ccda_documents import document

Json = dict[str, Any]
LABS = organizer(
    observation("R1", "2160-0", quantity("1.4")), observation("R2", "2160-0", quantity("1.9"), "20150705081000")
)
CHART = [LABS, concern(problem('<low value="20140301"/>', HYPERTENSION), "11450-4")]
PATIENT: Json = {
    "resourceType": "Patient",
    "id": "p1",
    "name": [{"family": "Byron", "given": ["Ada"]}],
    "birthDate": "1950-12-31",
}


def reference(clinical_document: str, **more: Any) -> Json:
    data = base64.b64encode(clinical_document.encode()).decode()
    return {
        "resourceType": "DocumentReference",
        "id": "d1",
        "status": "current",
        "subject": {"reference": "Patient/p1"},
        "date": "2015-07-06",
        "content": [{"attachment": {"contentType": "text/xml", "data": data}}],
        **more,
    }


def creatinine(day: str, **more: Any) -> Json:
    return {
        "resourceType": "Observation",
        "id": f"o-{day}",
        "status": "final",
        "category": [{"coding": [{"code": "laboratory"}]}],
        "code": {"text": "Kreatinin"},
        "subject": {"reference": "Patient/p1"},
        "effectiveDateTime": day,
        "valueQuantity": {"value": 1.4, "unit": "mg/dL"},
        **more,
    }


def read(folder: Path, *resources: Json, cleaning: NoteCleaning | None = None) -> list[ReaderItem]:
    lines = (json.dumps(resource) + "\n" for resource in (PATIENT, *resources))
    (folder / "export.ndjson").write_text("".join(lines), encoding="utf-8")
    return list(read_sources([folder], cleaning=cleaning))


def facts(items: Sequence[ReaderItem]) -> set[tuple[str, str, str, str]]:
    """Return patient, name, value and time of each fact."""
    rows: set[tuple[str, str, str, str]] = set()
    for item in items:
        if isinstance(item, Document):
            for row in item.metadata.get(FACTS, ()):
                rows.add((str(item.patient), row["name"], row.get("value", ""), row["time"]))
    return rows


HYPERTENSION_FACT = ("p1", "Essential hypertension", "", "2014-03-01")
FIRST, SECOND = ("p1", "Creatinine", "1.4", "2015-06-20T08:10"), ("p1", "Creatinine", "1.9", "2015-07-05T08:10")


def test_attached_document_gives_note_and_facts_of_the_patient(tmp_path: Path) -> None:
    items = read(tmp_path, reference(document(CHART)))
    assert facts(items) == {HYPERTENSION_FACT, FIRST, SECOND}
    notes = [item for item in items if isinstance(item, Document) and FACTS not in item.metadata]
    assert [note.id for note in notes] == ["note:d1"]


def test_attached_document_of_another_patient_gives_no_facts(tmp_path: Path) -> None:
    items = read(tmp_path, reference(document(CHART, given="Marie", family="Curie", born="18671107")))
    assert facts(items) == set()
    assert ["another patient's" in item.reason for item in items if isinstance(item, Skipped)] == [True]


def test_results_that_resources_state_on_that_day_are_left_out_and_counted(tmp_path: Path) -> None:
    """By another name and time zone, and of a category that is not the document's."""
    log = RemovalLog()
    other = creatinine("2015-06-19", category=[{"text": "Chemistry"}])
    items = read(tmp_path, reference(document(CHART)), other, cleaning=NoteCleaning(removal_log=log))
    assert facts(items) == {HYPERTENSION_FACT, SECOND, ("p1", "Kreatinin", "1.4", "2015-06-19")}
    assert log.fact_problems["of attached C-CDA documents, which resources of the export state"] == 1


def test_problems_are_left_out_if_resources_state_any_problem(tmp_path: Path) -> None:
    condition = {
        "resourceType": "Condition",
        "id": "c1",
        "subject": {"reference": "Patient/p1"},
        "code": {"text": "High blood pressure"},
        "onsetDateTime": "2013-01-01",
    }
    items = read(tmp_path, reference(document(CHART)), condition)
    assert facts(items) == {("p1", "High blood pressure", "", "2013-01-01"), FIRST, SECOND}


def test_result_entered_in_error_does_not_come_back_from_a_document(tmp_path: Path) -> None:
    items = read(tmp_path, reference(document([LABS])), creatinine("2015-06-20", status="entered-in-error"))
    assert facts(items) == {SECOND}


def test_resources_of_another_patient_leave_nothing_out(tmp_path: Path) -> None:
    other = creatinine("2015-06-20", subject={"reference": "Patient/p2"})
    items = read(tmp_path, reference(document(CHART)), other)
    assert facts(items) == {HYPERTENSION_FACT, FIRST, SECOND, ("p2", "Kreatinin", "1.4", "2015-06-20")}


def test_facts_of_a_withdrawn_or_superseded_document_are_withdrawn(tmp_path: Path) -> None:
    for status in ("entered-in-error", "superseded"):
        items = read(tmp_path, reference(document([LABS]), status=status))
        assert facts(items) == set()
        deleted = {item.id for item in items if isinstance(item, DeletedDocument) and "ccda" in item.id}
        assert len(deleted) == 2
    kept = read(tmp_path, reference(document([LABS]), status="superseded"), cleaning=NoteCleaning(keep_superseded=True))
    assert facts(kept) == {FIRST, SECOND}


def test_document_attached_to_two_notes_states_each_fact_once(tmp_path: Path) -> None:
    items = read(tmp_path, reference(document([LABS])), reference(document([LABS]), id="d2"))
    sources: list[str] = []
    for item in items:
        if isinstance(item, Document):
            sources += [row["source"] for row in item.metadata.get(FACTS, ())]
    assert len(sources) == len(set(sources)) == 2


def test_facts_within_the_stay_of_the_resource_have_its_encounter(tmp_path: Path) -> None:
    stay = {
        "resourceType": "Encounter",
        "id": "e1",
        "status": "finished",
        "class": {"code": "IMP"},
        "subject": {"reference": "Patient/p1"},
        "period": {"start": "2015-06-18T10:00:00-05:00", "end": "2015-06-22T10:00:00-05:00"},
    }
    note = reference(document([LABS]), context={"encounter": [{"reference": "Encounter/e1"}]})
    items = read(tmp_path, stay, note)
    encounters: dict[str, str] = {}
    for item in items:
        if isinstance(item, Document):
            for row in item.metadata.get(FACTS, ()):
                encounters[row["time"]] = row.get("encounter", "")
    assert (encounters["2015-06-20T08:10"], encounters["2015-07-05T08:10"]) == ("e1", "")
