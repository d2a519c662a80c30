"""C-CDA documents of two senders as notes: sections, tables, patients, stays, versions, and hostile files."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from epicrisis.core.types import Document
from epicrisis.corpus.base.reader_base import (
    DeletedDocument,
    FileFingerprint,
    FileRemark,
    PatientIdentity,
    ReaderItem,
    Skipped,
)
from epicrisis.corpus.readers.sources import detect_format, read_sources
from epicrisis.corpus.records.note_documents import NoteCleaning
from tests.support.ccda_documents import (
    CERNER_ROOT,
    LABORATORY_TABLE,
    document,
    encounter,
    prefixed,
    related,
    section,
    unstructured,
)
from tests.support.pdf_files import placed_pdf

PATIENT = "urn:oid:1.2.840.114350.1.13.99|4711"


def read(folder: Path, texts: Sequence[str], cleaning: NoteCleaning | None = None) -> list[ReaderItem]:
    for number, text in enumerate(texts):
        (folder / f"{number}.xml").write_text(text, encoding="utf-8")
    return list(read_sources([folder], cleaning=cleaning))


def notes(items: Sequence[ReaderItem]) -> list[Document]:
    return [item for item in items if isinstance(item, Document)]


def skipped(items: Sequence[ReaderItem]) -> list[Skipped]:
    return [item for item in items if isinstance(item, Skipped)]


@pytest.mark.parametrize("is_prefixed", [False, True])
def test_document_of_either_sender_is_a_note_with_sections(tmp_path: Path, is_prefixed: bool) -> None:
    """Header, nested sections, lists, tables with labelled cells, and superscripts."""
    course = section(
        "Hospital Course", "<paragraph>Admitted with<br/>chest pain.</paragraph>", [section("Neuro", "Alert")]
    )
    inner = "<list><item>25 mg</item></list>"
    drugs = f"<list listType='ordered'><item>Aspirin 81 mg</item><item>Metoprolol{inner}</item></list>"
    text = document(
        [course, section("Results", LABORATORY_TABLE), section("", drugs)], encounter=encounter("20150618", "20150622")
    )
    items = read(tmp_path, [prefixed(text) if is_prefixed else text])
    (note,) = notes(items)
    assert note.text.split("\n") == [
        *("Hospital Course", "Admitted with", "chest pain.", "", "Hospital Course / Neuro", "Alert", "", "Results"),
        *(
            "Results",
            "Component: Hemoglobin | Value: 9.1 g/dLa | Range: 12-16",
            "Component: Platelets | Value: 85 x10^3/uL",
        ),
        *("Specimen hemolyzed", "", "Coded name", "1. Aspirin 81 mg", "2. Metoprolol", "  - 25 mg"),
    ]
    titles = [title for _, _, title in note.metadata["sections"]]
    assert list(dict.fromkeys(titles)) == ["Hospital Course", "Hospital Course / Neuro", "Results", "Coded name"]
    assert (note.patient, note.date, note.title) == (PATIENT, "2015-06-22T08:30", "Discharge Summary, 2015-06-22")
    assert note.metadata["authors"] == ["Jane Roe (Internal Medicine)"]
    assert (note.metadata["encounter"], note.metadata["admitted"]) == ("E1", "2015-06-18")
    assert note.metadata["time_zone"] == "-05:00"
    identity = next(item for item in items if isinstance(item, PatientIdentity))
    assert (identity.names, identity.born) == (("Ada Byron",), "1950-12-31")
    assert identity.numbers == (("urn:oid:1.2.840.114350.1.13.99", "4711"),)


def test_file_with_other_ending_is_recognised_by_content(tmp_path: Path) -> None:
    for name in ("a.xml", "b.cda", "c.txt", "d.export"):
        (tmp_path / name).write_text(document([section("Plan", "Rest")]))
        assert detect_format(tmp_path / name) == "ccda"


@pytest.mark.parametrize(
    ("low", "high", "code", "is_stay"),
    [
        ("20150618", "20150622", "IMP", True),
        ("20150618", "20150622", "AMB", False),
        ("201506180900", "201506180930", "99213", False),
        ("20150618", "20150622", "99222", True),
    ],
)
def test_encounter_is_a_stay_by_class_or_days(tmp_path: Path, low: str, high: str, code: str, is_stay: bool) -> None:
    text = document([section("Plan", "Rest")], code="11506-3", encounter=encounter(low, high, code))
    (note,) = notes(read(tmp_path, [text]))
    assert note.metadata["encounter" if is_stay else "visit"] == "E1"
    assert ("admitted" in note.metadata) is is_stay


def test_replaced_document_is_left_out_and_deleted(tmp_path: Path) -> None:
    first, second = (
        document([section("Plan", "Warfarin")]),
        document([section("Plan", "Apixaban")], number="D2", relation=related("RPLC", "D1")),
    )
    items = read(tmp_path, [first, second])
    assert [note.id.partition("@")[0] for note in notes(items)] == ["note:1.2.840.114350.1.13.99.7|D2"]
    assert DeletedDocument("note:1.2.840.114350.1.13.99.7|D1", patient=PATIENT, every_version=True) in items
    assert len(notes(read(tmp_path, [first, second], NoteCleaning(keep_superseded=True)))) == 2


def test_documents_that_replace_each_other_are_both_read(tmp_path: Path) -> None:
    first = document([section("Plan", "Warfarin")], relation=related("RPLC", "D2"))
    second = document([section("Plan", "Apixaban")], number="D2", relation=related("RPLC", "D1"))
    assert len(notes(read(tmp_path, [first, second]))) == 2


def test_replacement_of_another_patients_document_has_no_effect(tmp_path: Path) -> None:
    other = document(
        [section("Plan", "Rest")], number="D2", patient="4712", given="Eva", relation=related("RPLC", "D1")
    )
    assert len(notes(read(tmp_path, [document([section("Plan", "Warfarin")]), other]))) == 2


def test_addendum_names_the_document_that_it_amends(tmp_path: Path) -> None:
    addendum = document([section("Addendum", "HER2 positive")], number="D2", relation=related("APND", "D1"))
    _, note = notes(read(tmp_path, [document([section("Plan", "Rest")]), addendum]))
    assert (note.metadata["status"], note.metadata["amends"]) == ("addendum", ["note:1.2.840.114350.1.13.99.7|D1"])


def test_earlier_version_of_a_set_is_superseded(tmp_path: Path) -> None:
    version = '<setId root="1.9" extension="S"/><versionNumber value="{}"/>'
    texts = [document([section("Plan", f"v{n}")], number=f"D{n}", version=version.format(n)) for n in (2, 1)]
    (note,) = notes(read(tmp_path, texts))
    assert note.text == "Plan\nv2"


@pytest.mark.parametrize(
    ("data", "kind", "words"),
    [
        (placed_pdf([[(72, 700, "Ejection fraction 35 %")]]), "application/pdf", "Ejection fraction 35 %"),
        (rb"{\rtf1\ansi Ejection fraction\b  35 %\b0}", "text/rtf", "Ejection fraction 35 %"),
        (b"Ejection fraction 35 %", "text/plain", "Ejection fraction 35 %"),
        (b"<html><body><p>Ejection fraction 35 %</p></body></html>", "application/pdf", "Ejection fraction 35 %"),
    ],
)
def test_embedded_body_is_read_by_its_content(tmp_path: Path, data: bytes, kind: str, words: str) -> None:
    (note,) = notes(read(tmp_path, [document(body=unstructured(data, kind))]))
    assert words in note.text


def test_parts_without_text_are_named(tmp_path: Path) -> None:
    picture = base64.b64encode(b"\x89PNG\r\n").decode()
    entry = (
        f'<entry><observationMedia ID="m1"><value mediaType="image/png" representation="B64">{picture}</value>'
        "</observationMedia></entry>"
    )
    narrative = 'See <renderMultiMedia referencedObject="m1"><caption>wound</caption></renderMultiMedia> here'
    items = read(
        tmp_path, [document([section("Skin", narrative, entry=entry), section("Vitals", "", entry="<entry/>")])]
    )
    assert notes(items)[0].text == "Skin\nSee [picture: wound] here"
    remarks = sorted(item.text for item in items if isinstance(item, FileRemark))
    assert "a section that has coded entries and no text" in remarks[0]
    assert "an embedded file (image/png): a picture (PNG), which is not read" in remarks[1]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (document(body=unstructured(b"x", "text/plain").replace("eA==", "e?A=")), "its base64 is broken"),
        (document([section("Plan", "")]), "holds no text"),
        (document([section("Plan", "Rest")], targets=2), "names 2 patients"),
        (document([section("Plan", "Rest")])[:-40], "not well-formed XML"),
        (
            document([section("Plan", "Rest")], patient="").replace('extension=""', 'nullFlavor="UNK"'),
            "names no patient",
        ),
        (
            '<!DOCTYPE a [<!ENTITY a "x"><!ENTITY b "&a;&a;">]>' + document([section("Plan", "&b;")])[38:],
            "its own entities",
        ),
        (document([section("Plan", "<content>" * 300 + "x" + "</content>" * 300)]), "exceed the parser's limits"),
        (
            document(
                body="<nonXMLBody><text mediaType='application/pdf'><reference value='a.pdf'/></text></nonXMLBody>"
            ),
            "named but not",
        ),
    ],
)
def test_unreadable_document_is_skipped_with_its_reason(tmp_path: Path, text: str, reason: str) -> None:
    good = document([section("Plan", "Rest")], number="D9", patient="99")
    items = read(tmp_path, [text, good])
    (item,) = skipped(items)
    assert reason in item.reason
    assert "Byron" not in item.reason
    assert [note.text for note in notes(items)] == ["Plan\nRest"]
    assert len([item for item in items if isinstance(item, FileFingerprint)]) in (1, 2)


def test_second_person_with_the_same_number_is_skipped(tmp_path: Path) -> None:
    """A mixed record harms the patient; a skipped file is named."""
    other = document([section("Plan", "Insulin")], number="D2", born="19800101", given="Eva")
    items = read(tmp_path, [document([section("Plan", "Rest")]), other])
    assert [note.text for note in notes(items)] == ["Plan\nRest"]
    assert "another birth date" in skipped(items)[0].reason


def test_patient_is_recognised_by_any_shared_number(tmp_path: Path) -> None:
    """Two organisations list the numbers of one patient in another order."""
    second = f'<id root="{CERNER_ROOT}" extension="88"/>'
    first = document([section("Plan", "Rest")], more_ids=second)
    later = document([section("Plan", "Walk")], number="D2", root=CERNER_ROOT, patient="88")
    assert {note.patient for note in notes(read(tmp_path, [first, later]))} == {PATIENT}


def test_fhir_patient_with_the_number_keeps_the_resource_id(tmp_path: Path) -> None:
    number = '{"system":"urn:oid:1.2.840.114350.1.13.99","value":"4711"}'
    (tmp_path / "patient.ndjson").write_text(
        '{"resourceType":"Patient","id":"p1","birthDate":"1950-12-31","identifier":[' + number + "]}\n"
    )
    (note,) = notes(read(tmp_path, [document([section("Plan", "Rest")])]))
    assert note.patient == "p1"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ('<given qualifier="CL">Ada</given><family qualifier="BR">Byron</family>', "Ada Byron"),
        ('<given qualifier="cl">Addie</given><given>Ada</given><family qualifier="SP">King</family>', "Ada King"),
        ('<given>Ada</given><given nullFlavor="NI"/><family qualifier="AC BR">Byron</family>', "Ada Byron"),
        ("<prefix>Dr.</prefix><suffix>Byron</suffix>", "Dr. Byron"),
    ],
)
def test_name_is_read_from_parts_with_qualifiers_if_it_has_no_others(tmp_path: Path, name: str, expected: str) -> None:
    text = re.sub(r'(<name use="L">).*?(</name>)', rf"\1{name}\2", document([section("Plan", "Rest")]), count=1)
    identity = next(item for item in read(tmp_path, [text]) if isinstance(item, PatientIdentity))
    assert identity.names == (expected,)


def test_many_patients_files_stay_apart(tmp_path: Path) -> None:
    texts = [
        document([section("Plan", f"Words of {n}")], number=f"D{n}", patient=f"{n}", given=f"G{n}") for n in range(12)
    ]
    for note in notes(read(tmp_path, texts)):
        assert note.patient is not None
        assert note.text == f"Plan\nWords of {note.patient.rpartition('|')[2]}"


def test_struck_and_spanning_text_is_readable(tmp_path: Path) -> None:
    narrative = (
        'Start <content revised="delete">warfarin</content> apixaban<footnote>per cardiology</footnote>'
        "<table><tr><th>Day</th><th>BP</th></tr><tr><td rowspan='2'>Mon</td><td>120/80</td></tr>"
        "<tr><td>130/85</td></tr></table>"
    )
    (note,) = notes(read(tmp_path, [document([section("Plan", narrative)])]))
    assert note.text.split("\n")[1:] == [
        "Start [struck out: warfarin] apixaban [note: per cardiology]",
        "Day: Mon | BP: 120/80",
        "Day: Mon | BP: 130/85",
    ]


def test_nullified_document_is_deleted(tmp_path: Path) -> None:
    items = read(tmp_path, [document([section("Plan", "Rest")], status='<sdtc:statusCode code="nullified"/>')])
    assert not notes(items)
    assert DeletedDocument("note:1.2.840.114350.1.13.99.7|D1", patient=PATIENT, every_version=True) in items


def test_documents_of_one_id_are_notes_of_their_own(tmp_path: Path) -> None:
    """Of another day, other words, or another patient. The same document again has the same id."""
    first = document([section("Plan", "Warfarin")])
    later = document([section("Plan", "Warfarin")], time="20150629083000-0500")
    other = document([section("Plan", "Warfarin")], patient="4712", given="Eva")
    items = notes(read(tmp_path, [first, later, document([section("Plan", "Apixaban")]), other]))
    assert len({note.id for note in items}) == 4
    assert notes(read(tmp_path, [first]))[0].id == items[0].id


def test_nullified_id_deletes_all_its_versions(tmp_path: Path) -> None:
    """Also in the library, and the documents of the same addition."""
    status = '<sdtc:statusCode code="nullified"/>'
    texts = [document([section("Plan", "Warfarin")]), document([section("Plan", "Rest")], status=status)]
    assert not notes(read(tmp_path, texts))
