"""HL7 v2 of two senders: results as facts, reports, documents with versions, framing, and hostile files."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path

import pytest

from epicrisis.core.clinical_facts import FACTS, ClinicalFact
from epicrisis.core.types import Document
from epicrisis.corpus.base.reader_base import DeletedDocument, FileRemark, PatientIdentity, ReaderItem, Skipped
from epicrisis.corpus.base.removal_log import RemovalLog
from epicrisis.corpus.readers.sources import detect_format, read_sources
from epicrisis.corpus.records.note_documents import NoteCleaning
from tests.support.hl7_messages import (
    RADIOLOGY,
    batch,
    document,
    framed,
    message,
    order,
    pid,
    result,
    visit,
    with_signs,
)
from tests.support.pdf_files import placed_pdf

PATIENT = "urn:oid:1.2.3.4|4711"
CREATININE = result("NM", "2160-0^Creatinine^LN", "1.4", "mg/dL", "0.6-1.1", "H")


def read(folder: Path, *contents: str | bytes, cleaning: NoteCleaning | None = None) -> list[ReaderItem]:
    for number, content in enumerate(contents):
        data = content.encode() if isinstance(content, str) else content
        (folder / f"{number}.hl7").write_bytes(data)
    return list(read_sources([folder], cleaning=cleaning))


def notes(items: Sequence[ReaderItem]) -> list[Document]:
    return [item for item in items if isinstance(item, Document)]


def skipped(items: Sequence[ReaderItem]) -> list[Skipped]:
    return [item for item in items if isinstance(item, Skipped)]


def fact(note: Document) -> ClinicalFact:
    """Return the only fact of a document, whose line is its text."""
    (row,) = note.metadata[FACTS]
    assert note.text == note.text[row["start"] : row["end"]]
    return ClinicalFact(**{**row, "codes": tuple(row.get("codes", ()))})


def test_results_are_facts_with_unit_range_flag_and_comment(tmp_path: Path) -> None:
    """Of every type of value; a cancelled one is no fact."""
    text = message(
        "ORU^R01^ORU_R01",
        pid(more="~123-45-6789^^^^SS"),
        visit(admitted="20150301080000"),
        order("F1", "BMP^Basic panel"),
        CREATININE,
        r"NTE|1||Fasting \T\ sober",
        result("SN", "33914-3^GFR^LN", ">^60", "mL/min"),
        result("CWE", "600-7^Culture^LN", "112283007^E. coli^SCT", status="P"),
        result("ST", "5778-6^Color", "Yellow"),
        result("ST", "777-3^Platelets^LN", "85", "K/uL"),
        result("NM", "2345-7^Glucose", "", status="X"),
        result("NM", "2823-3^Potassium^LN", ""),
    )
    items = read(tmp_path, text)
    by_name = {fact(note).name: note for note in notes(items)}
    assert {name: note.text for name, note in by_name.items()} == {
        "Creatinine": "09:30 Creatinine: 1.4 mg/dL (high; reference 0.6-1.1) Order: Basic panel. Fasting & sober",
        "GFR": "09:30 GFR: > 60 mL/min Order: Basic panel.",
        "Culture": "09:30 Culture: E. coli (preliminary) Order: Basic panel.",
        "Color": "09:30 Color: Yellow Order: Basic panel.",
        "Platelets": "09:30 Platelets: 85 K/uL Order: Basic panel.",
        "Potassium": "09:30 Not done: Potassium: no value (not-done) Order: Basic panel.",
    }
    values = {name: fact(note) for name, note in by_name.items()}
    assert values["Creatinine"] == ClinicalFact(
        "laboratory", "Creatinine", start=0, end=len(by_name["Creatinine"].text), time="2015-03-04T09:30",
        codes=("loinc:2160-0",), value="1.4", number=1.4, unit="mg/dL", reference_range="0.6-1.1",
        interpretation="high", encounter="V1", utc_offset="-05:00", source="hl7:GENHOSP:F1:BMP:2160-0",
    )  # fmt: skip
    assert (values["GFR"].number, values["GFR"].comparator) == (60, ">")
    assert (values["Platelets"].number, values["Platelets"].unit) == (85, "10*3/uL")
    note = by_name["Creatinine"]
    assert (note.patient, note.date, note.metadata["note_type"]) == (PATIENT, "2015-03-04", "laboratory results")
    assert (note.metadata["encounter"], note.metadata["admitted"]) == ("V1", "2015-03-01T08:00")
    identity = next(item for item in items if isinstance(item, PatientIdentity))
    assert identity.numbers == (("urn:oid:1.2.3.4", "4711"), ("SS", "123-45-6789"))
    assert (identity.names, identity.born) == (("Ada Byron",), "1950-12-31")


def test_file_among_numbers_is_a_report_and_no_value(tmp_path: Path) -> None:
    """Laboratories send their report as a PDF behind its values."""
    data = base64.b64encode(placed_pdf([[(72, 700, "Smear: schistocytes seen")]])).decode()
    file = result("ED", "PDF^Report^L", f"LAB^Application^PDF^Base64^{data}")
    named = result("RP", "IMG^Image^L", "https://example.org/1^^^IM")
    text = message("ORU^R01", pid(), visit(), order("F1", "CBC^Blood count"), CREATININE, file, named)
    items = read(tmp_path, text)
    values = [note for note in notes(items) if FACTS in note.metadata]
    reports = [note for note in notes(items) if FACTS not in note.metadata]
    assert [fact(note).name for note in values] == ["Creatinine"]
    assert [(note.id, note.title, note.text) for note in reports] == [
        ("note:GENHOSP:F1:CBC", "Blood count, 2015-03-04", "Report\nSmear: schistocytes seen")
    ]
    assert [item.text for item in items if isinstance(item, FileRemark)] == [
        "of HL7 messages: a result that is only named (RP), and nothing is fetched"
    ]


def test_strings_with_units_beside_a_comment_are_facts(tmp_path: Path) -> None:
    """A urinalysis of strings keeps its units, ranges and flags."""
    protein = result("ST", "2888-6^Protein^LN", "30", "mg/dL", "0-10", "H")
    comment = result("FT", "COM^Comment^L", r"Culture pending\.br\See below")
    items = read(tmp_path, message("ORU^R01", pid(), order("F2", "UA^Urinalysis"), protein, comment))
    assert [note.text for note in notes(items)] == [
        "09:30 Protein: 30 mg/dL (high; reference 0-10) Order: Urinalysis.",
        "09:30 Comment (Urine): Culture pending See below Order: Urinalysis.",
    ]


@pytest.mark.parametrize(
    ("segment", "value", "number", "unit"),
    [
        (result("NM", "6690-2^WBC^LN", "12.3", "10^3/uL"), "12.3 10^3/uL", 12.3, "10*3/uL"),
        (result("NM", "6690-2^WBC^LN", "12.3", r"x10\S\9/L"), "12.3 x10^9/L", 12.3, "10*9/L"),
        (result("NM", "6690-2^WBC^LN", "12.3", "g/dL^gram per deciliter^UCUM"), "12.3 g/dL", 12.3, "g/dL"),
        (result("TM", "6690-2^WBC^LN", "0930"), "09:30", None, ""),
        (result("TS", "6690-2^WBC^LN", "20150304103000-0500"), "2015-03-04 10:30-05:00", None, ""),
        (result("DT", "6690-2^WBC^LN", "20150304"), "2015-03-04", None, ""),
    ],
)
def test_units_and_times_are_read_as_senders_write_them(
    tmp_path: Path, segment: str, value: str, number: float | None, unit: str
) -> None:
    """A unit with the sign that separates components is no unit `10`, and a time of day is no number."""
    (note,) = notes(read(tmp_path, message("ORU^R01", pid(), order("F1", "CBC^Blood count"), segment)))
    assert note.text == f"09:30 WBC: {value} Order: Blood count."
    assert (fact(note).number, fact(note).unit) == (number, unit)


def test_lines_of_rich_text_are_one_file(tmp_path: Path) -> None:
    lines = [r"{\E\rtf1\E\ansi First", r"\E\par Second line.}"]
    (note,) = notes(read(tmp_path, document("RICH", lines)))
    assert note.text.split("\n") == ["First", "Second line."]


def test_corrected_result_replaces_the_earlier_one_on_its_day(tmp_path: Path) -> None:
    """Also in the other order of files, and without a repetition of the visit."""
    first = message("ORU^R01", pid(), visit(), order("F1", "BMP^Basic panel"), CREATININE)
    corrected = result("NM", "2160-0^Creatinine^LN", "1.7", "mg/dL", status="C")
    later = message("ORU^R01", pid(), order("F1", "BMP^Basic panel"), corrected, sent="20150305080000")
    (note,) = notes(read(tmp_path, later, first))
    assert note.text == "09:30 Creatinine: 1.7 mg/dL (corrected) Order: Basic panel."
    assert note.metadata["encounter"] == "V1"


def test_message_of_a_later_addition_replaces_only_the_results_that_it_repeats(tmp_path: Path) -> None:
    """The ids decide, because the reader does not have the earlier addition: by order, code and number."""
    panel = order("F1", "BMP^Basic panel")
    potassium = result("NM", "2823-3^Potassium^LN", "4.1", "mmol/L")
    (tmp_path / "1").mkdir()
    first = notes(read(tmp_path / "1", message("ORU^R01", pid(), panel, CREATININE, potassium)))
    (tmp_path / "2").mkdir()
    corrected = order("F1", "BMP^Basic panel", "20150305070000"), CREATININE.replace("1.4", "1.7")
    evening = order("F2", "BMP^Basic panel", "20150304180000"), CREATININE.replace("1.4", "1.5")
    second = notes(read(tmp_path / "2", message("ORU^R01", pid(), *corrected, *evening, sent="20150305")))
    library = {note.id: fact(note) for note in (*first, *second)}
    assert {(value.name, value.number) for value in library.values()} == {
        ("Creatinine", 1.7),
        ("Creatinine", 1.5),
        ("Potassium", 4.1),
    }


def test_result_that_occurs_twice_in_an_order_is_read_twice(tmp_path: Path) -> None:
    """Without an order number the message identifies its results, so that its repetition adds nothing."""
    glucose = [result("NM", "2345-7^Glucose^LN", value, "mg/dL") for value in ("91", "140")]
    text = message("ORU^R01", pid(), "OBR|1|||GTT^Tolerance test|||20150304093000", *glucose)
    values = [fact(note) for note in notes(read(tmp_path, text, text))]
    assert sorted(value.value for value in values) == ["140", "91"]
    assert {value.source for value in values} == {"hl7:GENHOSP:M1:2345-7", "hl7:GENHOSP:M1:2345-7#2"}


def test_result_of_urine_is_no_value_of_blood(tmp_path: Path) -> None:
    urine = message("ORU^R01", pid(), order("F5", "UA^Urinalysis"), result("NM", "CREA^Creatinine", "90", "mg/dL"))
    assert [fact(note).name for note in notes(read(tmp_path, urine))] == ["Creatinine (Urine)"]


def test_susceptibility_names_its_organism(tmp_path: Path) -> None:
    """By the parent result of its order, or by the sub-id that it has in common with the organism."""
    found = [
        "OBX|1|CWE|600-7^Bacteria identified^LN|1|112283007^Escherichia coli^SCT||||||F",
        "OBX|2|CWE|600-7^Bacteria identified^LN|2|3092008^Staphylococcus aureus^SCT||||||F",
    ]
    shared = ["OBX|3|ST|18864-9^Ampicillin^LN|1|R||||||F", "OBX|4|ST|18864-9^Ampicillin^LN|2|S||||||F"]
    parent = f"{order('F7', 'SENS^Susceptibility')}|600-7&Bacteria identified&LN^1^Klebsiella pneumoniae"
    text = message(
        "ORU^R01",
        pid(),
        order("F6", "CULT^Culture"),
        *found,
        *shared,
        parent,
        "OBX|1|ST|18864-9^Ampicillin^LN||R||||||F",
    )
    values = [fact(note) for note in notes(read(tmp_path, text))]
    assert sorted((value.name, value.value) for value in values) == [
        ("Ampicillin (Escherichia coli)", "R"),
        ("Ampicillin (Klebsiella pneumoniae)", "R"),
        ("Ampicillin (Staphylococcus aureus)", "S"),
        ("Bacteria identified", "Escherichia coli"),
        ("Bacteria identified", "Staphylococcus aureus"),
    ]


def test_result_reported_on_a_later_day_is_in_a_document_of_that_day(tmp_path: Path) -> None:
    late = order("F1", "TSH^TSH").replace("20150304093000||LAB", "20150306120000||LAB")
    (note,) = notes(read(tmp_path, message("ORU^R01", pid(), late, result("NM", "3016-3^TSH^LN", "2.1", "mIU/L"))))
    assert (note.date, fact(note).time) == ("2015-03-06", "2015-03-04T09:30")


def test_visits_of_two_patients_with_one_number_stay_apart(tmp_path: Path) -> None:
    first = message("ORU^R01", pid(), visit(admitted="20150301"), order("F1", "BMP^B"), CREATININE)
    second = message("ORU^R01", pid("99", "Roe^Max"), visit(admitted="20150201"), order("F2", "BMP^B"), CREATININE)
    stays = {note.patient: note.metadata["admitted"] for note in notes(read(tmp_path, first, second))}
    assert stays == {PATIENT: "2015-03-01", "urn:oid:1.2.3.4|99": "2015-02-01"}


def test_result_posted_to_the_wrong_patient_is_removed(tmp_path: Path) -> None:
    first = message("ORU^R01", pid(), order("F1", "BMP^Basic panel"), CREATININE)
    wrong = message("ORU^R01", pid(), order("F1", "BMP^Basic panel"), CREATININE[:-1] + "W", sent="20150305080000")
    items = read(tmp_path, first, wrong)
    assert not notes(items)
    assert any(isinstance(item, DeletedDocument) for item in items)


def test_report_has_its_names_as_sections(tmp_path: Path) -> None:
    """Escape sequences, repetitions, author and time of the report."""
    text = message(
        "ORU^R01",
        pid(),
        visit("O", "V9"),
        order("F2", "XR^Chest 2 views", "20150304120000", "RAD") + "|||||||77&Roe&Jane",
        result("TX", "F^Findings", r"Lungs clear.\.br\Heart \H\normal\N\ size \X41\ 5\S\6 \Zabc\."),
        result("TX", "I^Impression", "No acute disease~Second line"),
        "NTE|1||Dictated by phone",
        sender=RADIOLOGY,
    )
    (note,) = notes(read(tmp_path, text))
    assert note.text.split("\n") == [
        *("Findings", "Lungs clear.", r"Heart normal size A 5^6 \Zabc\.", "", "Impression", "No acute disease"),
        *("Second line", "Comment: Dictated by phone"),
    ]
    assert [title for _, _, title in note.metadata["sections"]] == ["Findings", "Impression"]
    assert (note.id, note.title) == ("note:COUNTY:F2:XR", "Chest 2 views, 2015-03-04")
    assert (note.metadata["authors"], note.metadata["visit"]) == (["Jane Roe"], "V9")


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (placed_pdf([[(72, 700, "Ejection fraction 35 %")]]), "^Application^PDF"),
        (rb"{\rtf1\ansi Ejection fraction\b  35 %\b0}", "^TEXT^RTF"),
        (b"Ejection fraction 35 %", "^TEXT^"),
    ],
)
def test_encapsulated_file_is_read(tmp_path: Path, data: bytes, kind: str) -> None:
    packed = base64.b64encode(data).decode()
    text = message("ORU^R01", pid(), order("F3", "ECHO^Echo"), result("ED", "E^Echo", f"{kind}^Base64^{packed}"))
    (note,) = notes(read(tmp_path, text))
    assert "Ejection fraction 35 %" in note.text


def test_broken_attachment_is_named_and_its_comment_read(tmp_path: Path) -> None:
    broken = result("ED", "E^Echo", "^Application^PDF^Base64^%%%")
    items = read(tmp_path, message("ORU^R01", pid(), order("F3", "ECHO^Echo"), broken, "NTE|1||See the scan"))
    assert [note.text for note in notes(items)] == ["Comment: See the scan"]
    (remark,) = [item for item in items if isinstance(item, FileRemark)]
    assert "its base64 is broken" in remark.text


def test_document_is_a_note_with_author_and_stay(tmp_path: Path) -> None:
    (note,) = notes(read(tmp_path, document("DOC1", ["HOSPITAL COURSE:", "The patient did well."])))
    assert (note.id, note.text) == ("note:TRANS:DOC1", "HOSPITAL COURSE:\nThe patient did well.")
    assert (note.date, note.title) == ("2015-03-06T11:00", "Discharge Summary, 2015-03-06")
    assert (note.metadata["authors"], note.metadata["encounter"]) == (["Jane Roe"], "V1")


def test_document_events_change_earlier_documents(tmp_path: Path) -> None:
    """T06 amends, T08 edits, T10 replaces, T11 cancels; each in a file of its own, the last first."""
    contents = [
        document("CANCELLED", [], event="T11", sent="20150307"),
        document("NEW", ["Apixaban"], event="T10", parent="OLD^TRANS", sent="20150307"),
        document("EDITED", ["Second text"], event="T08", sent="20150307"),
        document("ADDED", ["HER2 positive"], event="T06", parent="KEPT^TRANS", sent="20150307"),
        document("KEPT", ["Biopsy done"]),
        document("EDITED", ["First text"]),
        document("OLD", ["Warfarin"]),
        document("CANCELLED", ["Meant for another patient"]),
    ]
    log = RemovalLog()
    items = read(tmp_path, *contents, cleaning=NoteCleaning(removal_log=log))
    texts = {note.id: note.text for note in notes(items)}
    assert texts == {
        "note:TRANS:NEW": "Apixaban",
        "note:TRANS:EDITED": "Second text",
        "note:TRANS:ADDED": "HER2 positive",
        "note:TRANS:KEPT": "Biopsy done",
    }
    addendum = next(note for note in notes(items) if note.id == "note:TRANS:ADDED")
    assert (addendum.metadata["status"], addendum.metadata["amends"]) == ("addendum", ["note:TRANS:KEPT"])
    deleted = {item.id for item in items if isinstance(item, DeletedDocument)}
    assert {"note:TRANS:OLD", "note:TRANS:CANCELLED"} <= deleted
    assert log.summary().kinds["superseded"].notes == 3


@pytest.mark.parametrize("line_end", ["\r", "\n", "\r\n"])
def test_line_ends_frames_batches_and_signs_make_no_difference(tmp_path: Path, line_end: str) -> None:
    first = message("ORU^R01", pid(), order("F1", "BMP^Basic panel"), CREATININE)
    second = message("ORU^R01", pid(), order("F4", "K^Potassium"), result("NM", "K^Potassium", "4.1", "mmol/L"))
    contents = {
        "batch.hl7": batch(first, second).replace("\r", line_end).encode(),
        "frames.dat": framed(first, second).replace(b"\r", line_end.encode()),
        "signs.txt": (with_signs(first) + with_signs(second)).replace("\r", line_end).encode(),
    }
    texts = set()
    for name, data in contents.items():
        path = tmp_path / name
        path.write_bytes(data)
        assert detect_format(path) == "hl7"
        texts.add(tuple(note.text for note in notes(list(read_sources([path])))))
    assert texts == {
        (
            "09:30 Creatinine: 1.4 mg/dL (high; reference 0.6-1.1) Order: Basic panel.",
            "09:30 Potassium: 4.1 mmol/L",
        )
    }


def test_message_that_was_encoded_twice_is_mended(tmp_path: Path) -> None:
    text = message("ORU^R01", pid(), order("F2", "N^Note"), result("TX", "N^Note", "Fieber fÃ¼r Tage, \\XC3BC\\"))
    (note,) = notes(read(tmp_path, text))
    assert "Fieber für Tage, ü" in note.text


@pytest.mark.parametrize(
    ("charset", "encoding"), [("8859/1", "latin-1"), ("UNICODE UTF-8", "utf-8"), ("", "utf-8"), ("8859/5", "iso8859-5")]
)
def test_charset_of_the_message_decodes_its_text(tmp_path: Path, charset: str, encoding: str) -> None:
    words = "Жалоб нет" if encoding == "iso8859-5" else "Übelkeit seit gestern"
    text = message("ORU^R01", pid(), order("F2", "N^Note"), result("TX", "N^Note", words), charset=charset)
    (note,) = notes(read(tmp_path, text.encode(encoding)))
    assert note.text == words


def test_line_end_within_a_field_continues_it(tmp_path: Path) -> None:
    text = message("ORU^R01", pid(), order("F2", "N^Note"), "OBX|1|TX|N^Note||First\nsecond line||||||F")
    (note,) = notes(read(tmp_path, text))
    assert note.text == "First\nsecond line"


def test_patient_change_within_a_message_separates_results(tmp_path: Path) -> None:
    text = message(
        "ORU^R01",
        *(pid(), visit(), order("F1", "BMP^Basic panel"), CREATININE),
        *(pid("4712", "Lovelace^Eva", "19600101"), order("F1", "BMP^Basic panel")),
        result("NM", "2160-0^Creatinine^LN", "9.9", "mg/dL"),
    )
    by_patient = {note.patient: note for note in notes(read(tmp_path, text))}
    assert set(by_patient) == {PATIENT, "urn:oid:1.2.3.4|4712"}
    assert "9.9" not in by_patient[PATIENT].text
    assert "1.4" not in by_patient["urn:oid:1.2.3.4|4712"].text
    assert "encounter" not in by_patient["urn:oid:1.2.3.4|4712"].metadata


def test_contradictory_patient_is_skipped_and_named(tmp_path: Path) -> None:
    other = message("ORU^R01", pid(born="19800101"), order("F9", "K^Potassium"), result("NM", "K^Potassium", "6.6"))
    items = read(tmp_path, message("ORU^R01", pid(), order("F1", "BMP^Basic panel"), CREATININE) + other + other)
    assert "6.6" not in "".join(note.text for note in notes(items))
    assert ["another birth date" in item.reason for item in skipped(items)] == [True, False]
    assert [item.where for item in skipped(items)] == ["message 2", "message 3"]


def test_numbers_of_two_facilities_are_two_patients(tmp_path: Path) -> None:
    """Without an authority, a number belongs to the facility that sent it."""
    bare = "PID|1||4711||Byron^Ada||19501231"
    first = message("ORU^R01", bare, order("F1", "BMP^Basic panel"), CREATININE)
    second = message("ORU^R01", bare, order("F1", "BMP^Basic panel"), CREATININE, sender=RADIOLOGY)
    assert {note.patient for note in notes(read(tmp_path, first, second))} == {"GENHOSP|4711", "COUNTY|4711"}


def test_admission_messages_tell_the_days_of_stays(tmp_path: Path) -> None:
    discharge = message("ADT^A03", pid(), visit("I", "V1", "20150301", "20150309"))
    log = RemovalLog()
    items = read(tmp_path, document("DOC1", ["Did well"]), discharge, cleaning=NoteCleaning(removal_log=log))
    metadata = notes(items)[0].metadata
    assert (metadata["admitted"], metadata["discharged"]) == ("2015-03-01", "2015-03-09")
    assert log.summary().other_resources == {"ADT message": 1}


def test_other_segments_are_counted(tmp_path: Path) -> None:
    log = RemovalLog()
    text = message("ORU^R01", pid(), "NTE|1||Before", order("F1", "BMP^B"), CREATININE, "ZPI|1|x", "ZPI|2|y")
    read(tmp_path, text, cleaning=NoteCleaning(removal_log=log))
    assert log.summary().other_resources == {"NTE before the results": 1, "ZPI segment": 2}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("MSH|^^^^|LAB|X\rPID|1||1\r", "names no delimiters"),
        (message("ORU^R01", order("F1", "B^B"), CREATININE), "names no patient before its results"),
        (message("ORU^R01", "PID|1||||Byron^Ada", order("F1", "B^B"), CREATININE), "names no patient"),
        (message("ORU^R01", pid(), order("F1", "N^N"), result("RP", "N^N", "\\\\share\\a.pdf")), "holds no text"),
        (message("ORU^R01", pid(), order("F1", "N^N"), "OBX|1|TX|N^N||Größe ").encode() + b"\xff\xfe\xc3", "encodings"),
    ],
)
def test_unreadable_message_is_skipped_with_its_reason(tmp_path: Path, content: str | bytes, reason: str) -> None:
    items = read(tmp_path, content, message("ORU^R01", pid("99", "Roe^Max"), order("F1", "B^B"), CREATININE))
    assert reason in "".join(item.reason for item in skipped(items))
    assert [note.patient for note in notes(items)] == ["urn:oid:1.2.3.4|99"]


def test_hostile_repetition_of_layout_is_bounded(tmp_path: Path) -> None:
    words = r"a\.sp999\b\.in+999\c" * 200
    text = message("ORU^R01", pid(), order("F2", "N^Note"), result("FT", "N^Note", words))
    (note,) = notes(read(tmp_path, text))
    assert len(note.text) < 10_000


@pytest.mark.parametrize(
    ("status", "words"), [("P", "(preliminary)"), ("A", "(preliminary)"), ("C", "(corrected)"), ("F", "mg/dL")]
)
def test_result_without_a_status_has_that_of_its_order(tmp_path: Path, status: str, words: str) -> None:
    creatinine = result("NM", "2160-0^Creatinine^LN", "1.4", "mg/dL", status="")
    (note,) = notes(read(tmp_path, message("ORU^R01", pid(), order("F1", "", status=status), creatinine)))
    assert note.text.endswith(words)
