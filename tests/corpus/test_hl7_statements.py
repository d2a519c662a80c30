"""Facts of HL7 v2 other than results: allergies, diagnoses, problems, procedures, vaccinations and drugs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from epicrisis.core.clinical_facts import FACTS
from epicrisis.core.types import Document
from epicrisis.corpus.base.reader_base import DeletedDocument, ReaderItem
from epicrisis.corpus.base.removal_log import RemovalLog
from epicrisis.corpus.readers.sources import read_sources
from epicrisis.corpus.records.note_documents import NoteCleaning
from tests.support.hl7_messages import message, pid, segment, visit

SENT = "20150304101500"


def read(folder: Path, *contents: str, log: RemovalLog | None = None) -> list[ReaderItem]:
    for number, content in enumerate(contents):
        (folder / f"{number}.hl7").write_text(content)
    return list(read_sources([folder], cleaning=NoteCleaning(removal_log=log or RemovalLog())))


def lines(items: Iterable[ReaderItem]) -> list[str]:
    """Return the lines of facts with their days."""
    documents = [item for item in items if isinstance(item, Document) and FACTS in item.metadata]
    return [f"{document.date} {document.text}" for document in documents]


def drug(
    control: str, *more: str, number: str = "R1", status: str = "", code: str = "314076^Lisinopril 10 MG^RXNORM"
) -> tuple[str, ...]:
    """Return an order of a drug: ORC, timing, RXE and what follows."""
    return (f"ORC|{control}|{number}|||{status}", f"RXE||{code}|10||mg^mg^UCUM|TAB", *more)


@pytest.mark.parametrize(
    ("statement", "line"),
    [
        ("AL1|1|DA|^PENICILLIN|SV|RASH~HIVES", "2015-03-04 10:15 Allergy: PENICILLIN: RASH; HIVES (severe)"),
        ("AL1|1|FA|91934008^Peanut^SCT|MI||20100102", "2010-01-02 Allergy: Peanut (severity mild)"),
        (
            segment(
                "IAM",
                {2: "DA", 3: "7980^Penicillin G^RXNORM", 4: "MO", 5: "247472004^Hives^SCT", 6: "A", 9: "IN"}
                | {11: "20110203", 13: "20120304", 17: "U"},
            ),
            "2012-03-04 2011-02-03 Onset of allergy: Penicillin G: Hives (moderate) (unconfirmed)",
        ),
        ("DG1|1||I21.4^NSTEMI^I10||20150301|F", "2015-03-01 Problem: NSTEMI (encounter diagnosis)"),
        ("DG1|1|I9|428.0||20150301|W", "2015-03-01 Problem: 428.0 (encounter diagnosis; working)"),
        ("DG1|1||R07^Unknown^I10|Pain|20150301|A", "2015-03-01 Problem: Pain (encounter diagnosis; admitting)"),
        (
            "DG1|1||Z80.3^Neoplasm of breast^I10||20150301|F",
            "2015-03-01 Problem: Neoplasm of breast (encounter diagnosis; family-history)",
        ),
        ("PRB|AD|20150301|1^Possible lupus^L|P7", "2015-03-01 Problem: Possible lupus (suspected)"),
        ("PRB|AD|20150301|73211009^Diabetes^SCT|P7||||||||||||20030405", "2015-03-01 2003-04-05 Onset of Diabetes"),
        ("PRB|AD|20150301|73211009^Diabetes^SCT|P7|||||||||415684004", "2015-03-01 Problem: Diabetes (suspected)"),
        ("PR1|1||80146002^Appendectomy^SCT||201403041030", "2014-03-04 10:30 Procedure: Appendectomy"),
        ("RXA|0|1|20141001||140^Influenza^CVX|0.5|mL||||||||||||CP|A", "2014-10-01 Immunization: Influenza, 0.5 mL"),
        (
            segment("RXA", {3: "20141001", 5: "03^MMR^CVX", 6: "999", 18: "00^Parental decision^NIP002", 20: "RE"}),
            "2014-10-01 Not given: MMR (not-done) Reason: Parental decision.",
        ),
    ],
)  # fmt: skip
def test_segment_is_a_fact_with_fields_of_standard(tmp_path: Path, statement: str, line: str) -> None:
    kind = "VXU^V04" if statement.startswith("RXA") else "PPR^PC1" if statement.startswith("PRB") else "ADT^A01"
    assert lines(read(tmp_path, message(kind, pid(), visit(), statement))) == [line]


def test_codes_of_statements_have_their_systems(tmp_path: Path) -> None:
    """DG1-2 is the system of a bare code."""
    items = read(tmp_path, message("ADT^A01", pid(), "DG1|1|I9|428.0|Heart failure", "AL1|1|DA|7980^Penicillin^RXNORM"))
    rows = [item.metadata[FACTS][0] for item in items if isinstance(item, Document)]
    assert sorted(row["codes"][0] for row in rows) == ["icd9cm:428.0", "rxnorm:7980"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("IAM|1|DA|^Penicillin|SV||A|7", "IAM|1|DA|^Penicillin|SV||D|7"),
        ("AL1|1|DA|^Penicillin|SV", "IAM|1|DA|^Penicillin|SV||U|7||||||||||E^Erroneous"),
        ("AL1|1|DA|^Penicillin|SV", "IAM|1|DA|^Penicillin|SV||U|7||||||||||Entered in Error"),
        ("DG1|1||I21.4^NSTEMI|||F||||||||||||||DX1|A", "DG1|1||I21.4^NSTEMI|||F||||||||||||||DX1|D"),
        ("PRB|AD|20150301|1^Diabetes^L|P7", "PRB|DE|20150302|1^Diabetes^L|P7"),
        ("RXA|0|1|20141001||140^Flu^CVX|1||||||||||||||CP|A", "RXA|0|1|20141001||140^Flu^CVX|1||||||||||||||CP|D"),
        ("PR1|1||1^Biopsy^L||20140304||||||||||||||P1|A", "PR1|1||1^Biopsy^L||20140304||||||||||||||P1|D"),
    ],
)  # fmt: skip
def test_deleted_statement_is_removed_also_from_earlier_additions(tmp_path: Path, first: str, second: str) -> None:
    kind = "VXU^V04" if first.startswith("RXA") else "ADT^A60"
    messages = [
        message(kind, pid(), "ORC|RE||I7", first, sent=SENT),
        message(kind, pid(), "ORC|RE||I7", second, sent="20150401"),
    ]
    (stated,) = [item for item in read(tmp_path, messages[0]) if isinstance(item, Document)]
    items = read(tmp_path, *messages)
    assert lines(items) == []
    assert stated.id in [item.id for item in items if isinstance(item, DeletedDocument)]


def test_allergies_with_the_code_of_a_placeholder_are_named_by_their_texts(tmp_path: Path) -> None:
    allergies = (
        "AL1|1|DA|999^OTHER^L||Sulfa drugs: rash",
        "AL1|2|DA|999^OTHER^L|SV|Latex",
        "AL1|3|DA|PCN^OTHER^L||Rash",
    )
    assert sorted(lines(read(tmp_path, message("ADT^A60", pid(), *allergies, sent=SENT)))) == [
        "2015-03-04 10:15 Allergy: OTHER: Latex (severity severe)",
        "2015-03-04 10:15 Allergy: OTHER: Sulfa drugs: rash",
        "2015-03-04 10:15 Allergy: PCN: Rash",
    ]


def test_resolved_problem_and_inactive_allergy_end(tmp_path: Path) -> None:
    """By dates, by words and by codes, in either field of a problem."""
    problems = [
        message("PPR^PC2", pid(), "PRB|UP|20150301|1^Asthma^L|P1|||20010101||20100203"),
        message("PPR^PC2", pid(), "PRB|UP|20150301|2^Gout^L|P2|||20010101||||||Resolved"),
        message("PPR^PC2", pid(), "PRB|UP|20150301|3^Eczema^L|P3|||20010101|||||||73425007|20120101"),
        message("ADT^A60", pid(), "IAM|1|DA|^Codeine|||A|||||||||||I"),
    ]
    ends = [line for line in lines(read(tmp_path, *problems)) if "End of" in line]
    assert sorted(ends) == [
        "2010-02-03 End of Asthma (resolved)",
        "2012-01-01 End of Eczema (inactive)",
        "None End of Gout (resolved)",
        "None End of allergy: Codeine (inactive)",
    ]


def test_order_of_a_drug_has_dose_route_times_and_reason(tmp_path: Path) -> None:
    """In the form of 2.5 and later, and with the timing of earlier versions within RXE."""
    timing = "TQ1|1||Q6H&every 6 hours||||20150305|20150315|PRN|for pain|with food"
    request = segment("RXE", {2: "5640^Ibuprofen 400 MG^RXNORM", 3: "1", 4: "2", 5: "TAB", 27: "^Back pain"})
    comment = "NTE|1||Not on an empty stomach"
    new = message("RDE^O11", pid(), "ORC|NW|R1", timing, request, "RXR|PO^oral", comment)
    older = "RXE|1^BID^D10^20150305^^PRN|1191^Aspirin^RXNORM|81||mg||^Take in the morning"
    old = message("RDE^O01", pid(), "ORC|NW|R2", older)
    assert sorted(lines(read(tmp_path, new, old))) == [
        "2015-03-05 Started Aspirin, 81 mg, BID, as needed, Take in the morning (request)",
        "2015-03-05 Started Ibuprofen 400 MG, 1 to 2 TAB, oral, every 6 hours, as needed, for pain, with food "
        "(request) Reason: Back pain. Not on an empty stomach",
        "2015-03-15 End of Aspirin (request; planned)",
        "2015-03-15 End of Ibuprofen 400 MG (request; planned)",
    ]


@pytest.mark.parametrize(
    ("order", "ending"),
    [
        (
            (segment("ORC", {1: "DC", 2: "R1", 15: "20150310"}),),
            "2015-03-10 Stopped Lisinopril 10 MG (request; stopped)",
        ),
        (drug("OD"), "2015-04-01 Stopped Lisinopril 10 MG (request; stopped)"),
        (drug("SC", status="DC"), "2015-04-01 Stopped Lisinopril 10 MG (request; stopped)"),
        (drug("SC", status="CM"), "2015-04-01 End of Lisinopril 10 MG (request)"),
    ],
)
def test_later_message_about_an_order_stops_the_drug(tmp_path: Path, order: tuple[str, ...], ending: str) -> None:
    """Also without its name, and without the planned end of the first message."""
    first = message("RDE^O11", pid(), "ORC|NW|R1", "TQ1|1|||||||20160101", *drug("NW")[1:])
    stopped = message("RDE^O11", pid(), *order, sent="20150401")
    started, end = lines(read(tmp_path, first, stopped))
    assert "Started Lisinopril 10 MG, 10 mg, TAB" in started
    assert end == ending


def test_order_that_is_only_known_as_stopped_has_its_start(tmp_path: Path) -> None:
    """Not from ORC-15, which says there when it was stopped; an earlier message has the start and its dose."""
    stop = segment("ORC", {1: "DC", 2: "R1", 15: "20150310"})
    stated = ("RXE|1^^^20150101|6809^Metformin^RXNORM|500||mg|TAB",)
    alone = message("RDE^O11", pid(), stop, *stated, sent="20150401")
    ending = "2015-03-10 Stopped Metformin (request; stopped)"
    assert lines(read(tmp_path, alone)) == ["2015-01-01 Started Metformin, 500 mg, TAB (request)", ending]
    first = message("RDE^O11", pid(), "ORC|NW|R1", "RXE|1^^^20150102|6809^Metformin^RXNORM|850||mg|TAB")
    assert lines(read(tmp_path, first, alone)) == ["2015-01-02 Started Metformin, 850 mg, TAB (request)", ending]
    bare = message("RDE^O11", pid(), stop, stated[0].replace("1^^^20150101", "1"), sent="20150401")
    assert lines(read(tmp_path, bare)) == [ending]


@pytest.mark.parametrize("order", [("ORC|CA|R1",), drug("OC"), drug("SC", status="CA")])
def test_cancelled_order_is_marked_and_has_no_end(tmp_path: Path, order: tuple[str, ...]) -> None:
    first = message("RDE^O11", pid(), *drug("NW"))
    items = read(tmp_path, first, message("RDE^O11", pid(), *order, sent="20150401"))
    (line,) = lines(items)
    assert line.endswith("(request; cancelled)")


def test_dispense_ends_with_its_supply(tmp_path: Path) -> None:
    """By the daily dose in the same unit, or by the timing of the order, whose words it has."""
    daily = message("RDS^O13", pid(), "ORC|RE|R1", "RXD|1|1191^Aspirin^RXNORM|20150304|10|TAB||N1|||||2^TAB")
    request, timing = "RXE||5640^Ibuprofen^RXNORM|1||TAB", "TQ1|1||TID|||7^d"
    dispense = "RXD|1|5640^Ibuprofen^RXNORM|20150304|21|TAB||N2"
    timed = message("RDS^O13", pid(), "ORC|RE|R2", request, timing, dispense)
    cancelled = message("RDS^O13", pid(), "ORC|CA|R3", "RXD|1|161^Paracetamol^RXNORM|20150304|21|TAB||N3")
    assert lines(read(tmp_path, daily, timed, cancelled)) == [
        "2015-03-04 Medication: Aspirin, quantity 10 TAB (dispense)",
        "2015-03-04 Medication: Ibuprofen, 1 TAB, TID, quantity 21 TAB (dispense)",
        "2015-03-04 Medication: Paracetamol, quantity 21 TAB (dispense; cancelled)",
        "2015-03-09 End of Aspirin (dispense)",
        "2015-03-11 End of Ibuprofen (dispense)",
    ]


def test_dose_of_a_drug_is_an_administration(tmp_path: Path) -> None:
    given = message(
        "RAS^O17",
        pid(),
        "ORC|RE|R1",
        "RXA|0|1|20150304083000||4053^Erythromycin^RXNORM|500|mg|||||||||||||CP",
        "RXR|PO",
    )
    refused = message(
        "RAS^O17", pid(), "ORC|RE|R2", "RXA|0|1|20150304093000||4053^Erythromycin^RXNORM|500|mg|||||||||||^vomiting||RE"
    )
    assert lines(read(tmp_path, given, refused)) == [
        "2015-03-04 08:30 Given: Erythromycin, 500 mg, PO (administration)",
        "2015-03-04 09:30 Not given: Erythromycin, 500 mg (administration; not-done) Reason: vomiting.",
    ]


def test_other_segments_of_a_message_are_named(tmp_path: Path) -> None:
    """Results of other messages than ORU are not read; neither are details without what they belong to."""
    log = RemovalLog()
    read(
        tmp_path,
        message("ADT^A01", pid(), "NTE|1||free text", "AL1|1|DA|^Latex", "OBX|1|NM|3141-9^Weight^LN||70|kg", "GT1|1"),
        log=log,
    )
    assert log.summary().other_resources == {"GT1 segment": 1, "NTE segment": 1, "OBX segment": 1}


def test_statement_before_the_patient_is_skipped_with_reason(tmp_path: Path) -> None:
    items = read(tmp_path, message("ADT^A01", "AL1|1|DA|^Latex"))
    assert "names no patient before its facts" in str(items)


def test_diagnoses_of_one_id_are_facts_of_their_own(tmp_path: Path) -> None:
    """Senders repeat DG1-20. What was requested under another name than the pharmacy encoded is told."""
    diagnoses = [
        segment("DG1", {3: f"{code}^{name}^I10", 20: "DG1002"})
        for code, name in (("E10", "Diabetes"), ("I21", "NSTEMI"))
    ]
    request = "RXO|^Ampicillin 250 mg"
    texts = [message("ADT^A01", pid(), *diagnoses), message("RDE^O11", pid(), "ORC|NW|R1", request, drug("NW")[1])]
    rows = lines(read(tmp_path, *texts))
    assert sorted(row.partition("Problem: ")[2] for row in rows if "Problem" in row) == [
        "Diabetes (encounter diagnosis)",
        "NSTEMI (encounter diagnosis)",
    ]
    assert any(row.endswith("Requested: Ampicillin 250 mg.") for row in rows)


@pytest.mark.slow
def test_every_statement_of_real_messages_is_a_fact_or_replaced(data_folder: Path) -> None:
    """The words of each field, taken by its number, against the names of the facts."""
    places = {"AL1": 3, "DG1": 3, "PRB": 3, "PR1": 3, "RXA": 5, "RXE": 2, "RXD": 2}
    number = 0
    for path in sorted((data_folder / "hl7v2").glob("*.hl7")):
        items = [item for item in read_sources([path]) if isinstance(item, Document)]
        names = {row["name"] for item in items for row in item.metadata.get(FACTS, ())}
        for line in path.read_text(encoding="utf-8-sig").splitlines():
            fields = line.split("|")
            if fields[0] in places and fields[1] != "DE":
                words = [*fields[places[fields[0]]].split("^"), ""]
                assert {words[1].strip(), words[0], *fields[4:5]} & names, line
                number += 1
    assert number > 50


def test_allergy_without_a_date_is_known_since_the_first_message(tmp_path: Path) -> None:
    """Later messages of a stay repeat it, with what they add."""
    first = message("ADT^A01", pid(), "AL1|1|DA|^Latex")
    last = message("ADT^A03", pid(), "AL1|1|DA|^Latex|SV", sent="20150401")
    assert lines(read(tmp_path, first, last)) == ["2015-03-04 10:15 Allergy: Latex (severity severe)"]
