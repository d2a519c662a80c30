"""Which patient and which stay the references of FHIR name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from epicrisis.core.errors import InputError
from epicrisis.core.types import Document
from epicrisis.corpus.base.reader_base import FileRemark, Skipped
from epicrisis.corpus.readers.sources import read_sources
from tests.corpus.test_fhir import document, given_by, observation, packed, read_file

A, B = "http://a.example/fhir", "https://b.example/fhir"


def bundle(folder: Path, *entries: Any, name: str = "bundle.json") -> Path:
    """Entries are resources, or (fullUrl, resource)."""
    parts = [{"fullUrl": e[0], "resource": e[1]} if isinstance(e, tuple) else {"resource": e} for e in entries]
    path = folder / name
    path.write_text(json.dumps({"resourceType": "Bundle", "entry": parts}, indent=1), "utf-8")
    return path


def note(id_: str, subject: Any = "Patient/p1", stay: Any = None) -> dict[str, Any]:
    """A document of a subject and an encounter, each an address or an identifier."""
    named = [{"reference": each} if isinstance(each, str) else {"identifier": each} for each in (subject, stay) if each]
    context = {"encounter": named[1:]}
    return document(packed(f"Note {id_}."), id=id_, subject=named[0], context=context)


def person(id_: str = "", name: str = "Ada Byron", *identifiers: dict[str, str]) -> dict[str, Any]:
    own = {"id": id_} if id_ else {}
    return {"resourceType": "Patient", **own, "name": [{"text": name}], "identifier": list(identifiers)}


def encounter(id_: str = "", **more: Any) -> dict[str, Any]:
    own = {"id": id_} if id_ else {}
    return {"resourceType": "Encounter", **own, "period": {"start": "2150-03-01", "end": "2150-03-09"}, **more}


def told(found: Document) -> dict[str, Any]:
    keys = ("encounter", "visit", "admitted", "discharged")
    return {key: found.metadata[key] for key in keys if key in found.metadata}


STAY = {"encounter": "e1", "admitted": "2150-03-01", "discharged": "2150-03-09"}
NUMBER = {"system": "urn:oid:b", "value": "4711"}


@pytest.mark.parametrize(
    ("subject", "patient"),
    [
        (NUMBER, "urn:oid:b|4711"),
        ({"system": "urn:oid:a", "value": "4711"}, "p9"),
        ({"value": "4712"}, "4712"),
        ({"value": "88"}, "p9"),
    ],
)
def test_identifier_reference_resolves_to_patient_or_itself(
    tmp_path: Path, subject: dict[str, str], patient: str
) -> None:
    nine = person("p9", "Nina", {"system": "urn:oid:a", "value": "4711"}, {"value": "88"})
    path = bundle(tmp_path, note("d1", "Patient/4711"), note("d2", subject), nine)
    assert [found.patient for found in given_by(path)] == ["4711", patient]


def test_identifier_is_resolved_across_files(tmp_path: Path) -> None:
    bundle(tmp_path, note("d1", NUMBER, {"value": "case 1"}), name="a.json")
    bundle(tmp_path, person("p9", "Nina", NUMBER), encounter("e1", identifier=[{"value": "case 1"}]), name="b.json")
    (found,) = (item for item in read_sources([tmp_path]) if isinstance(item, Document))
    assert (found.patient, found.metadata["patient_name"], told(found)) == ("p9", "Nina", STAY)


@pytest.mark.parametrize(
    ("subject", "others", "reason"),
    [
        ({"value": "4711"}, [note("d1", "Patient/4711")], "has no system"),
        ({"value": "4711"}, [person("4711")], "has no system"),
        (NUMBER, [person("p1", "Ada", NUMBER), person("p2", "Eve", NUMBER)], "more than one Patient"),
    ],
)
def test_ambiguous_identifier_is_skipped_and_reported(
    tmp_path: Path, subject: dict[str, str], others: list[Any], reason: str
) -> None:
    path = bundle(tmp_path, note("d2", subject), *others)
    items = list(read_file(path, "x"))
    (skip,) = [item for item in items if isinstance(item, Skipped)]
    assert (skip.where, reason in skip.reason, "4711" in skip.reason) == ("entry 1", True, False)
    assert "note:d2" not in [item.id for item in items if isinstance(item, Document)]


def test_encounter_identifier_is_not_its_id(tmp_path: Path) -> None:
    path = bundle(tmp_path, encounter("e1"), note("d1", stay={"system": "urn:oid:b", "value": "e1"}))
    assert [told(found) for found in given_by(path)] == [{"encounter": "urn:oid:b|e1"}]


@pytest.mark.parametrize(
    "entries",
    [
        (note("d1", f"{A}/Patient/1"), note("d2", f"{B}/Patient/1")),
        (note("d1", f"{A}/Patient/1"), note("d2", f"{B}/Patient/2/_history/1")),
        ((f"{A}/Patient/1", person("1", "Adam")), (f"{B}/Patient/1", person("1", "Bert")), note("d1", "Patient/1")),
        (("http://a.example/x/1", person("1", "Adam")), ("http://b.example/x/1", person("1", "Bert"))),
        ((f"{A}/DocumentReference/d1", note("d1")), (f"{B}/DocumentReference/d2", note("d2"))),
        (
            note("d1", f"{A}/Patient/1"),
            observation("Sodium", "2150-03-04", valueInteger=1, subject={"reference": f"{B}/Patient/1"}),
        ),
        (note("d1", stay=f"{A}/Encounter/1"), note("d2", stay=f"{B}/Encounter/1")),
    ],
)
@pytest.mark.parametrize("files", [1, 2])
def test_references_to_two_servers_are_rejected(tmp_path: Path, entries: tuple[Any, ...], files: int) -> None:
    if files == 1:
        bundle(tmp_path, *entries)
    else:
        bundle(tmp_path, entries[0], name="a.json")
        bundle(tmp_path, *entries[1:], name="bundle.json")
    with pytest.raises(InputError, match=r"bundle\.json, entry \d: .*library of its own") as refused:
        list(read_sources([tmp_path]))
    assert "example" not in str(refused.value)


def test_spellings_of_one_server_address_are_equal(tmp_path: Path) -> None:
    path = bundle(
        tmp_path,
        (f"{A}/Patient/1", person("1")),
        (f"{A}/DocumentReference/d1", note("d1", "Patient/1", "http://other.example/Encounter/e1")),
        note("d2", "https://a.example/fhir/Patient/1/_history/2"),
        ("urn:uuid:3", note("d3", "Patient/1")),
    )
    assert [found.patient for found in given_by(path)] == ["1", "1", "1"]


def test_patient_that_another_replaced_is_named_and_stays_apart(tmp_path: Path) -> None:
    links = [
        {"type": "replaces", "other": {"reference": "Patient/a2"}},
        {"type": "seealso", "other": {"reference": "Patient/a3"}},
    ]
    old = person("a2") | {"link": [{"type": "replaced-by", "other": {"reference": "Patient/a1"}}]}
    path = bundle(tmp_path, person("a1") | {"link": links}, old, note("d1", "Patient/a1"), note("d2", "Patient/a2"))
    items = list(read_sources([path]))
    (remark,) = [item for item in items if isinstance(item, FileRemark)]
    assert (remark.count, remark.noun) == (1, "patient")
    assert "that another one replaced (Patient.link): their records stay apart" in remark.text
    assert {item.patient for item in items if isinstance(item, Document)} == {"a1", "a2"}


def test_full_url_of_two_patients_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "x.ndjson"
    bundles = [
        {"resourceType": "Bundle", "entry": [{"fullUrl": "urn:uuid:1", "resource": person(id_)}]} for id_ in ("a", "b")
    ]
    path.write_text("".join(json.dumps(each) + "\n" for each in bundles))
    with pytest.raises(InputError, match=r"line 2, entry 1: .*fullUrl of its own"):
        list(read_sources([path]))


def test_full_url_of_other_resource_is_no_patient(tmp_path: Path) -> None:
    path = bundle(tmp_path, ("urn:uuid:1", {"resourceType": "Group", "id": "g"}), note("d1", "urn:uuid:1"))
    assert [item.reason for item in read_file(path, "x") if isinstance(item, Skipped)] == [
        "names no patient, and every note needs one; export it with its subject"
    ]


@pytest.mark.parametrize("address", ["urn:uuid:{}", "http://a.example/fhir/{kind}/{}", "http://a.example/x/{}"])
def test_resource_without_id_takes_id_from_full_url(tmp_path: Path, address: str) -> None:
    patients = [address.format(name, kind="Patient") for name in ("c1", "d1")]
    stay = address.format("e1", kind="Encounter")
    day = observation("Sodium", "2150-03-04", valueInteger=1, subject={"reference": patients[1]})
    path = bundle(
        tmp_path,
        (patients[0], person(name="Carla")),
        (patients[1], person(name="Dora")),
        (stay, encounter()),
        note("n1", patients[0], stay),
        note("n2", patients[1]),
        day,
    )
    found = [(each.patient, each.metadata["patient_name"], told(each)) for each in given_by(path)]
    assert found == [("c1", "Carla", STAY), ("d1", "Dora", {}), ("d1", "Dora", {})]


def test_unreferenced_resource_gives_no_note(tmp_path: Path) -> None:
    path = bundle(tmp_path, person(), encounter(), note("d1"))
    (found,) = given_by(path)
    assert (told(found), "patient_name" in found.metadata) == ({}, False)


def test_encounter_period_of_r5_is_read(tmp_path: Path) -> None:
    stay = {"resourceType": "Encounter", "id": "e1", "actualPeriod": {"start": "2150-03-01", "end": "2150-03-09"}}
    given = {**note("d1"), "context": [{"reference": "Encounter/e1"}]}
    assert [told(found) for found in given_by(bundle(tmp_path, stay, given))] == [STAY]


ACT = "http://terminology.hl7.org/CodeSystem/v3-ActCode"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "is_stay"),
    [
        *(
            ({"class": {"system": ACT, "code": code}}, True)
            for code in ("IMP", "ACUTE", "NONAC", "OBSENC", "SS", "EMER")
        ),
        *(({"class": {"code": code}}, False) for code in ("AMB", "VR", "HH", "FLD", "PRENC")),
        ({"class": [{"coding": [{"system": ACT, "code": "IMP"}]}]}, True),
        ({"class": [{"coding": [{"system": "urn:own", "code": "7"}, {"system": ACT, "code": "AMB"}]}]}, False),
        ({"class": {"system": "urn:own", "code": "7"}}, True),
        ({"class": [{"text": "ward"}]}, True),
        ({"class": None}, True),
        ({"class": {"code": "IMP"}, "status": "finished"}, True),
        ({"class": {"code": "IMP"}, "status": "planned"}, False),
        ({"status": "cancelled"}, False),
        ({"status": "entered-in-error"}, False),
    ],
)
def test_outpatient_visit_is_no_hospital_stay(tmp_path: Path, more: dict[str, Any], is_stay: bool) -> None:
    day = observation("Sodium", "2150-03-04", valueInteger=1, encounter={"reference": "Encounter/e1"})
    path = bundle(tmp_path, encounter("e1", **more), note("d1", stay="Encounter/e1"), day)
    assert [told(found) for found in given_by(path)] == [STAY if is_stay else {"visit": "e1"}] * 2
