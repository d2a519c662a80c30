"""The same person in several additions: FHIR, C-CDA and HL7 v2, in any order, and people who only share a number."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.core.patient_identities import read_identities
from epicrisis.library.core.patients import Roster
from epicrisis.library.write.ingest_batches import IngestReport
from epicrisis.pipeline.additions import AddOptions, add_files
from epicrisis.settings.settings import Settings
from epicrisis.testing.hashing_encoder import HashingEncoder
from tests.support.ccda_documents import EPIC_ROOT, document, section
from tests.support.hl7_messages import RADIOLOGY, message, order, pid, result

MRN = f"urn:oid:{EPIC_ROOT}"
CCDA_ID = f"{MRN}|4711"


def patient(id_: str = "p1", number: str = "4711", **more: Any) -> dict[str, Any]:
    return {
        "resourceType": "Patient",
        "id": id_,
        "identifier": [{"system": MRN, "value": number}],
        "name": [{"family": "Byron", "given": ["Ada"]}],
        "birthDate": "1950-12-31",
        **more,
    }


def note(id_: str, of: str = "p1", number: int = 1) -> dict[str, Any]:
    return {
        "resourceType": "ClinicalImpression",
        "id": f"{id_}-{number}",
        "status": "completed",
        "subject": {"reference": f"Patient/{of}"},
        "date": "2015-06-01",
        "summary": f"Seen in clinic, note {id_}.",
    }


def hl7(number: str = "4711", born: str = "19501231", name: str = "Byron^Ada") -> str:
    """Return a report whose PID has the authority of the C-CDA documents."""
    person = pid(number, name, born).replace("GENHOSP&1.2.3.4&ISO", f"EPIC&{EPIC_ROOT}&ISO")
    return message("ORU^R01", person, order("F1", "CT^CT head", service="RAD"), result("TX", "CT", "No bleeding."),
                   sender=RADIOLOGY)  # fmt: skip


def ccda(**more: Any) -> str:
    return document([section("Course", "Uneventful.")], **more)


def add(folder: Path, *contents: str | list[dict[str, Any]]) -> IngestReport:
    """Add files in one addition, by a name that each gets once."""
    source = folder / f"addition{len(list(folder.glob('addition*')))}"
    source.mkdir()
    for number, content in enumerate(contents):
        if isinstance(content, list):
            data, suffix = "".join(json.dumps(resource) + "\n" for resource in content), "ndjson"
        else:
            data, suffix = content, "hl7" if content.startswith("MSH") else "xml"
        (source / f"{number}.{suffix}").write_text(data, encoding="utf-8")
    encoder = HashingEncoder(), "hashing"
    return add_files(Settings(), folder / "library", [source], AddOptions(), encoder=encoder)


def list_notes(folder: Path) -> dict[str, int]:
    """Return the number of notes by patient."""
    with LibraryStore.open(folder / "library") as store:
        return {id_: record.notes for id_, record in Roster(store).patients().items()}


@pytest.mark.parametrize("later", [ccda(), hl7()])
def test_later_document_of_a_fhir_patient_has_the_id_of_the_resource(tmp_path: Path, later: str) -> None:
    assert add(tmp_path, [patient(), note("n1")]).joined == ()
    report = add(tmp_path, later)
    assert report.joined == ((CCDA_ID, "p1"),)
    assert list_notes(tmp_path) == {"p1": 2}


@pytest.mark.parametrize("earlier", [ccda(), hl7()])
def test_later_fhir_export_has_the_id_of_the_library(tmp_path: Path, earlier: str) -> None:
    add(tmp_path, earlier)
    report = add(tmp_path, [patient(), note("n1")], ccda(number="D2"))
    assert report.joined == (("p1", CCDA_ID),)
    assert list_notes(tmp_path) == {CCDA_ID: 3}
    with LibraryStore.open(tmp_path / "library") as store:
        assert Roster(store).ids_with_number("p1") == {CCDA_ID}


@pytest.mark.slow
def test_later_export_without_patient_resource_is_recognised_by_the_id_of_the_resource(tmp_path: Path) -> None:
    add(tmp_path, ccda())
    add(tmp_path, [patient(), note("n1")])
    assert add(tmp_path, [note("n2")]).joined == (("p1", CCDA_ID),)
    assert add(tmp_path, [patient(identifier=[]), note("n3")]).joined == (("p1", CCDA_ID),)
    assert list_notes(tmp_path) == {CCDA_ID: 4}
    assert add(tmp_path, [patient(identifier=[], birthDate="1980-01-01"), note("n4")]).joined == ()
    assert list_notes(tmp_path) == {CCDA_ID: 4, "p1": 1}


def test_number_of_two_patients_joins_neither(tmp_path: Path) -> None:
    twin = patient("p2", name=[{"family": "Byron", "given": ["Ada"]}])
    add(tmp_path, [patient(), twin, note("n1"), note("n2", "p2")])
    report = add(tmp_path, ccda())
    assert report.joined == ()
    assert [reason.reason for reason in report.reasons if "several patients" in reason.reason]
    assert list_notes(tmp_path) == {"p1": 1, "p2": 1}


def test_two_resources_with_one_number_are_not_joined_with_a_patient(tmp_path: Path) -> None:
    add(tmp_path, ccda())
    report = add(tmp_path, [patient(), patient("p2"), note("n1"), note("n2", "p2")])
    assert report.joined == ()
    assert list_notes(tmp_path) == {CCDA_ID: 1, "p1": 1, "p2": 1}


@pytest.mark.parametrize(
    "other", [ccda(born="19601107"), hl7(born="19601107"), ccda(born="19601107", given="Marie", family="Curie")]
)
def test_record_number_of_another_person_is_refused_for_that_document(tmp_path: Path, other: str) -> None:
    add(tmp_path, [patient(), note("n1")])
    report = add(tmp_path, other, ccda(number="D2", patient="4712"))
    assert report.joined == ()
    assert ["another birth date" in reason.reason for reason in report.reasons] == [True]
    assert list_notes(tmp_path) == {"p1": 1, f"{MRN}|4712": 1}


def test_fhir_patient_with_the_number_of_another_person_stays_apart(tmp_path: Path) -> None:
    add(tmp_path, ccda(born="19601107"))
    assert add(tmp_path, [patient(), note("n1")]).joined == ()
    assert list_notes(tmp_path) == {CCDA_ID: 1, "p1": 1}


def test_number_alone_joins_nobody(tmp_path: Path) -> None:
    """Neither names nor birth dates are known on one side."""
    add(tmp_path, [patient(name=[], birthDate=None), note("n1")])
    assert add(tmp_path, ccda()).joined == ()
    assert list_notes(tmp_path) == {"p1": 1, CCDA_ID: 1}


def test_insurance_number_of_a_relative_neither_joins_nor_refuses(tmp_path: Path) -> None:
    policy = {"system": "urn:oid:1.2.99", "value": "POL1"}
    add(tmp_path, [patient(identifier=[policy, {"system": MRN, "value": "4711"}]), note("n1")])
    child = ccda(patient="5000", given="Byron", family="Lovelace", born="19800101",
                 more_ids='<id root="1.2.99" extension="POL1"/>')  # fmt: skip
    assert add(tmp_path, child).joined == ()
    assert list_notes(tmp_path) == {"p1": 1, f"{MRN}|5000": 1}


def test_second_resource_of_the_server_stays_apart(tmp_path: Path) -> None:
    add(tmp_path, ccda())
    add(tmp_path, [patient(), note("n1")])
    assert add(tmp_path, [patient("p9"), note("n9", "p9")]).joined == ()
    assert list_notes(tmp_path) == {CCDA_ID: 2, "p9": 1}


@pytest.mark.slow
def test_patients_that_an_earlier_version_did_not_join_keep_their_ids(tmp_path: Path) -> None:
    """The number is that of both, and names one of them."""
    add(tmp_path, [patient(name=[], birthDate=None), note("n1")])
    add(tmp_path, ccda())
    add(tmp_path, [patient(), note("n2")], ccda(number="D2"))
    assert list_notes(tmp_path) == {"p1": 3, CCDA_ID: 1}
    report = add(tmp_path, ccda(number="D3"))
    assert report.joined == ()
    assert list_notes(tmp_path) == {"p1": 3, CCDA_ID: 2}


def test_joined_identity_has_the_numbers_of_both_sources(tmp_path: Path) -> None:
    add(tmp_path, ccda())
    add(tmp_path, [patient(identifier=[{"system": MRN, "value": "4711"}, {"system": "urn:oid:1.2.10", "value": "E1"}])])
    identity = read_identities(tmp_path / "library")[CCDA_ID]
    assert set(identity.numbers) == {(MRN, "4711"), ("urn:oid:1.2.10", "E1"), ("fhir", "p1")}
