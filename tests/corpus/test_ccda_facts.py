"""Coded entries of C-CDA as two senders write them: with words in the narrative, and with display names."""

from __future__ import annotations

import gzip
import re
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest

from epicrisis.core.clinical_facts import FACTS, ClinicalFact
from epicrisis.core.types import Document, Passage
from epicrisis.corpus.base.reader_base import DeletedDocument, ReaderItem
from epicrisis.corpus.base.removal_log import RemovalLog
from epicrisis.corpus.readers.sources import read_sources
from epicrisis.corpus.records.note_documents import NoteCleaning
from epicrisis.records.fact_questions.answer import compute
from epicrisis.records.fact_questions.question_rules import plan_by_rules
from epicrisis.records.fact_questions.record import read_fact_record
from tests.support.ccda_documents import document, encounter, prefixed, related, section
from tests.support.hl7_messages import message, order, pid, result

LOINC, SNOMED, RXNORM = "2.16.840.1.113883.6.1", "2.16.840.1.113883.6.96", "2.16.840.1.113883.6.88"


def observation(
    number: str,
    code: str,
    value: str,
    time: str = "20150620081000",
    *,
    words: str = 'displayName="Creatinine"',
    status: str = "completed",
    more: str = "",
    attributes: str = "",
) -> str:
    """Return the observation of a result."""
    return (
        f'<observation classCode="OBS" moodCode="EVN" {attributes}><id root="1.2.9" extension="{number}"/>'
        f'<code code="{code}" codeSystem="{LOINC}" {words}/><statusCode code="{status}"/>'
        f'<effectiveTime value="{time}"/>{value}{more}</observation>'
    )


def organizer(*observations: str, code: str = "30954-2", narrative: str = "See table") -> str:
    components = "".join(f"<component>{item}</component>" for item in observations)
    panel = f'<organizer classCode="BATTERY" moodCode="EVN"><id root="1.2.9" extension="B1"/>{components}</organizer>'
    return section("Results", narrative, code=code, entry=f"<entry>{panel}</entry>")


def quantity(value: str, unit: str = "mg/dL") -> str:
    return f'<value xsi:type="PQ" value="{value}" unit="{unit}"/>'


def concern(inner: str, code: str, status: str = "active") -> str:
    act = f'<act classCode="ACT" moodCode="EVN"><code code="CONC"/><statusCode code="{status}"/>'
    entry = f'<entry>{act}<entryRelationship typeCode="SUBJ">{inner}</entryRelationship></act></entry>'
    return section("List", '<content ID="p1">Essential hypertension</content>', code=code, entry=entry)


def problem(period: str, value: str, attributes: str = "", more: str = "") -> str:
    return (
        f'<observation classCode="OBS" moodCode="EVN" {attributes}><id root="1.2.8" extension="P1"/>'
        f'<code code="55607006" codeSystem="{SNOMED}"/><statusCode code="completed"/>'
        f"<effectiveTime>{period}</effectiveTime>{value}{more}</observation>"
    )


HYPERTENSION = (
    f'<value xsi:type="CD" code="38341003" codeSystem="{SNOMED}"><originalText><reference value="#p1"/></originalText>'
    '<translation code="I10" codeSystem="2.16.840.1.113883.6.90" displayName="Hypertension"/></value>'
)


def drug(
    times: str,
    attributes: str = "",
    status: str = "active",
    mood: str = "EVN",
    code: str = "10160-0",
    vaccine: str = "",
) -> str:
    concept = vaccine or f'code="314076" codeSystem="{RXNORM}" displayName="lisinopril 10 MG Oral Tablet"'
    statement = (
        f'<substanceAdministration classCode="SBADM" moodCode="{mood}" {attributes}><id root="1.2.7" extension="M1"/>'
        f'<statusCode code="{status}"/>{times}<routeCode code="C38288" displayName="Oral"/>'
        '<doseQuantity value="10" unit="mg"/>'
        f"<consumable><manufacturedProduct><manufacturedMaterial><code {concept}/></manufacturedMaterial>"
        "</manufacturedProduct></consumable></substanceAdministration>"
    )
    return section("List", "See list", code=code, entry=f"<entry>{statement}</entry>")


def read(folder: Path, *texts: str, log: RemovalLog | None = None) -> list[ReaderItem]:
    for number, text in enumerate(texts):
        (folder / f"{number}.xml").write_text(text, encoding="utf-8")
    return list(read_sources([folder], cleaning=NoteCleaning(removal_log=log or RemovalLog())))


def fact_documents(items: Sequence[ReaderItem]) -> list[Document]:
    return [item for item in items if isinstance(item, Document) and FACTS in item.metadata]


def lines(folder: Path, *texts: str) -> list[tuple[str | None, str]]:
    return [(item.date, item.text) for item in fact_documents(read(folder, *texts))]


def fact(item: Document) -> ClinicalFact:
    (row,) = item.metadata[FACTS]
    assert item.text[row["start"] : row["end"]] == item.text
    return ClinicalFact(**{**row, "codes": tuple(row.get("codes", ()))})


@pytest.mark.parametrize("is_prefixed", [False, True])
def test_result_of_either_sender_has_number_range_flag_and_source(tmp_path: Path, is_prefixed: bool) -> None:
    more = (
        '<interpretationCode code="H" codeSystem="2.16.840.1.113883.5.83"/><referenceRange><observationRange>'
        '<value xsi:type="IVL_PQ"><low value="0.6" unit="mg/dL"/><high value="1.1" unit="mg/dL"/></value>'
        "</observationRange></referenceRange>"
    )
    text = document(
        [organizer(observation("R1", "2160-0", quantity("1.4"), more=more))],
        encounter=encounter("20150618", "20150622"),
    )
    (item,) = fact_documents(read(tmp_path, prefixed(text) if is_prefixed else text))
    assert item.text == "08:10 Creatinine: 1.4 mg/dL (high; reference 0.6 to 1.1 mg/dL)"
    assert (item.date, item.metadata["encounter"], item.metadata["patient_name"]) == ("2015-06-20", "E1", "Ada Byron")
    value = fact(item)
    assert (value.kind, value.number, value.unit, value.codes) == ("laboratory", 1.4, "mg/dL", ("loinc:2160-0",))
    assert value.source == "ccda:1.2.9|R1:loinc:2160-0:2015-06-20T08:10"


@pytest.mark.parametrize(
    ("value", "text", "number", "comparator"),
    [
        ('<value xsi:type="IVL_PQ"><high value="0.01" unit="ng/mL" inclusive="false"/></value>', "< 0.01", 0.01, "<"),
        ('<value xsi:type="ST">&lt;5</value>', "< 5", 5, "<"),
        ('<value xsi:type="ST">1.4 mg/dL</value>', "1.4", 1.4, ""),
        ('<value xsi:type="PQ" value="1,250.5" unit="mg/dL"/>', "1,250.5", 1250.5, ""),
        ('<value xsi:type="ST">see comment</value>', "see comment", None, ""),
        ('<value xsi:type="CD" code="260373001" displayName="Detected"/>', "Detected", None, ""),
        ('<value xsi:type="INT" value="15"/>', "15", 15, ""),
        ('<value xsi:type="CD" nullFlavor="OTH"><originalText>E. coli</originalText></value>', "E. coli", None, ""),
    ],
)
def test_value_of_any_type_is_read(
    tmp_path: Path, value: str, text: str, number: float | None, comparator: str
) -> None:
    (item,) = fact_documents(read(tmp_path, document([organizer(observation("R1", "2160-0", value))])))
    read_fact = fact(item)
    assert (read_fact.value, read_fact.number, read_fact.comparator) == (text, number, comparator)


def test_entries_that_state_nothing_are_counted(tmp_path: Path) -> None:
    """Without a value, nullified, planned, about another person, and of sections that are not read."""
    log = RemovalLog()
    text = document(
        [
            organizer(
                observation("R1", "2160-0", '<value xsi:type="PQ" nullFlavor="UNK"/>'),
                observation("R2", "2160-0", quantity("9"), status="nullified"),
                observation("R3", "2160-0", quantity("9"), attributes='nullFlavor="NI"'),
                observation("R4", "2160-0", quantity("9"), more="<subject><relatedSubject/></subject>"),
            ),
            drug("", mood="RQO"),
            section("Payers", "None", code="48768-6", entry="<entry><act/></entry>"),
        ]
    )
    assert not fact_documents(read(tmp_path, text, log=log))
    assert log.summary().fact_problems == {
        "C-CDA entry about another person": 1,
        "C-CDA entry of payers": 1,
        "C-CDA entry without a name or value": 1,
        "planned C-CDA entry": 1,
        "withdrawn or empty C-CDA entry": 2,
    }


def test_problem_is_named_by_the_narrative_and_its_end_is_of_its_day(tmp_path: Path) -> None:
    period = '<low value="2010"/><high value="20150301"/>'
    text = document([concern(problem(period, HYPERTENSION), "11450-4")])
    (start, end) = fact_documents(read(tmp_path, text))
    assert [(item.date, item.text) for item in (start, end)] == [
        ("2010", "Onset of Essential hypertension"),
        ("2015-03-01", "End of Essential hypertension (resolved)"),
    ]
    assert fact(start).codes == ("snomed:38341003", "icd10cm:I10")
    assert fact(start).source == fact(end).source


def test_negated_problem_and_allergy_are_refuted(tmp_path: Path) -> None:
    negated = 'negationInd="true"'
    allergy = problem("", '<value xsi:type="CD" code="419199007" displayName="Allergy to substance"/>', negated)
    text = document(
        [concern(problem("", HYPERTENSION, negated), "11450-4"), concern(allergy, "48765-2").replace("P1", "A1")]
    )
    assert sorted(line for _, line in lines(tmp_path, text)) == [
        "Allergy: Allergy to substance (refuted)",
        "Problem: Essential hypertension (refuted)",
    ]


def test_allergy_states_substance_reaction_and_severity(tmp_path: Path) -> None:
    severity = (
        '<entryRelationship typeCode="SUBJ"><observation><code code="SEV"/>'
        '<value xsi:type="CD" displayName="severe"/></observation></entryRelationship>'
    )
    more = (
        '<participant typeCode="CSM"><participantRole><playingEntity>'
        f'<code code="7980" codeSystem="{RXNORM}" displayName="Penicillin G"/></playingEntity>'
        "</participantRole></participant>"
        '<entryRelationship typeCode="MFST"><observation><code code="ASSERTION"/><value xsi:type="CD" '
        f'displayName="Hives"/>{severity}</observation></entryRelationship>'
    )
    allergy = problem('<low value="2001"/>', '<value xsi:type="CD" displayName="Allergy"/>', more=more)
    assert lines(tmp_path, document([concern(allergy, "48765-2")])) == [
        ("2001", "Onset of allergy: Penicillin G: Hives (severe) (active)")
    ]


@pytest.mark.parametrize(
    ("low_high", "status", "attributes", "expected"),
    [
        ('<low value="20150301"/>', "active", "", ["Started lisinopril 10 MG Oral Tablet, {} (statement; active)"]),
        ('<low value="20150301"/>', "completed", "", ["Started lisinopril 10 MG Oral Tablet, {} (statement)"]),
        (
            '<low value="20150301"/><high value="20150401"/>',
            "completed",
            "",
            [
                "Started lisinopril 10 MG Oral Tablet, {} (statement)",
                "End of lisinopril 10 MG Oral Tablet (statement)",
            ],
        ),
        (
            '<low value="20150301"/><high value="20160401"/>',
            "active",
            "",
            [
                "Started lisinopril 10 MG Oral Tablet, {} (statement; active)",
                "End of lisinopril 10 MG Oral Tablet (statement; planned)",
            ],
        ),
        (
            '<low value="20150301"/>',
            "active",
            'negationInd="true"',
            ["Not given: lisinopril 10 MG Oral Tablet, {} (statement; not-taken)"],
        ),
    ],
)
def test_medication_has_dose_schedule_and_course(
    tmp_path: Path, low_high: str, status: str, attributes: str, expected: list[str]
) -> None:
    times = (
        f'<effectiveTime xsi:type="IVL_TS">{low_high}</effectiveTime>'
        '<effectiveTime xsi:type="PIVL_TS" operator="A"><period value="12" unit="h"/></effectiveTime>'
    )
    text = document([drug(times, attributes, status)])
    assert [line for _, line in lines(tmp_path, text)] == [line.format("10 mg Oral every 12 h") for line in expected]


@pytest.mark.parametrize("mood", ["EVN", "INT"])
@pytest.mark.parametrize("high", ["", '<high value="20990901"/>'])
def test_medication_that_begins_after_its_document_is_intended(tmp_path: Path, mood: str, high: str) -> None:
    times = f'<effectiveTime xsi:type="IVL_TS"><low value="20990701"/>{high}</effectiveTime>'
    items = read(tmp_path, document([drug(times, mood=mood)]))
    rows = [fact(item) for item in fact_documents(items)]
    assert [(row.event, row.time, row.status) for row in rows] == [("state", "2099-07-01", "intended")]


def test_procedures_and_immunizations_that_were_not_done_say_so(tmp_path: Path) -> None:
    vaccine = 'code="140" codeSystem="2.16.840.1.113883.12.292" displayName="Influenza"'
    done = drug('<effectiveTime value="20141001"/>', status="completed", code="11369-6", vaccine=vaccine)
    refused = (
        done.replace("20141001", "20131001")
        .replace("M1", "M2")
        .replace('moodCode="EVN" ', 'moodCode="EVN" negationInd="true" ')
    )
    operation = (
        '<procedure classCode="PROC" moodCode="EVN"><id root="1.2.6" extension="O1"/><code code="80146002" '
        f'codeSystem="{SNOMED}" displayName="Appendectomy"/><statusCode code="completed"/>'
        '<effectiveTime value="20100101"/>'
        '<targetSiteCode displayName="Abdomen"/></procedure>'
    )
    procedures = section("Procedures", "See list", code="47519-4", entry=f"<entry>{operation}</entry>")
    assert lines(tmp_path, document([done, refused, procedures])) == [
        ("2010-01-01", "Procedure: Appendectomy Site: Abdomen."),
        ("2013-10-01", "Not given: Influenza, 10 mg (not-done)"),
        ("2014-10-01", "Immunization: Influenza, 10 mg"),
    ]


def test_entry_of_several_documents_is_one_fact_in_its_latest_form(tmp_path: Path) -> None:
    """In one addition and in two, since the id names the entry."""
    first = document([organizer(observation("R1", "2160-0", quantity("1.4")))], number="D1", time="20150620")
    later = document([organizer(observation("R1", "2160-0", quantity("1.6")))], number="D2", time="20150701")
    (both,) = fact_documents(read(tmp_path, later, first))
    assert fact(both).number == 1.6
    (tmp_path / "2").mkdir()
    (alone,) = fact_documents(read(tmp_path / "2", first))
    assert alone.id == both.id


def test_facts_of_a_replaced_document_are_removed_unless_stated_elsewhere(tmp_path: Path) -> None:
    one, two = observation("R1", "2160-0", quantity("1.4")), observation("R2", "2823-3", quantity("9.9", "mmol/L"))
    old = document([organizer(one, two)], number="D1")
    new = document([organizer(one)], number="D2", relation=related("RPLC", "D1"))
    items = read(tmp_path, old, new)
    assert [fact(item).number for item in fact_documents(items)] == [1.4]
    assert any(isinstance(item, DeletedDocument) and "R2" in item.id for item in items)


def test_entries_of_two_patients_with_one_id_stay_apart(tmp_path: Path) -> None:
    first = document([organizer(observation("R1", "2160-0", quantity("1.4")))])
    second = document(
        [organizer(observation("R1", "2160-0", quantity("9.9")))], patient="99", number="D9", given="Max", family="Roe"
    )
    values = {(item.patient or "")[-2:]: fact(item).number for item in fact_documents(read(tmp_path, first, second))}
    assert values == {"11": 1.4, "99": 9.9}


@pytest.mark.parametrize("form", ["ccda", "hl7"])
def test_last_creatinine_is_computed_from_either_format(tmp_path: Path, form: str) -> None:
    if form == "ccda":
        older = observation("R1", "2160-0", quantity("1.1"), "20150618")
        withdrawn = observation("R3", "2160-0", quantity("7.7"), "20150621", status="aborted")
        items = read(tmp_path, document([organizer(older, observation("R2", "2160-0", quantity("1.4")), withdrawn)]))
    else:
        name = "2160-0^Creatinine^LN"
        first = message("ORU^R01", pid(), order("F1", "B^Panel", "20150618"), result("NM", name, "1.1", "mg/dL"))
        last = order("F2", "B^Panel", "20150620"), result("NM", name, "1.4", "mg/dL")
        wrong = order("F3", "B^Panel", "20150621"), result("NM", name, "7.7", "mg/dL", status="W")
        (tmp_path / "1.hl7").write_text(first + message("ORU^R01", pid(), *last, *wrong), encoding="utf-8")
        items = list(read_sources([tmp_path]))
    passages = []
    for item in fact_documents(items):
        passages.append(
            Passage(
                id=f"{item.id}#0",
                document_id=item.id,
                ordinal=0,
                start=0,
                end=len(item.text),
                text=item.text,
                date=item.date,
                patient=item.patient,
                metadata=item.metadata,
            )
        )
    record = read_fact_record(passages)
    assert record is not None
    plan = plan_by_rules("What was the last creatinine?", record)
    assert plan is not None
    answer = compute(plan, record).answer
    assert (answer.state, answer.result) == ("answered", "1.4 mg/dL")


def coded_encounter(
    times: str, code: str, number: str = '<id root="1.2.3" extension="E7"/>', mood: str = "EVN", more: str = ""
) -> str:
    statement = (
        f'<encounter classCode="ENC" moodCode="{mood}">{number}{code}<effectiveTime {times}</effectiveTime>{more}'
        "</encounter>"
    )
    return section("Encounters", "See list", code="46240-8", entry=f"<entry>{statement}</entry>")


OFFICE = (
    '<code code="99213" codeSystem="2.16.840.1.113883.6.12" displayName="Office visit"><translation code="AMB"/></code>'
)
INPATIENT = '<code code="IMP" codeSystem="2.16.840.1.113883.5.4"><originalText>Hospital stay</originalText></code>'


def test_coded_stay_has_its_admission_discharge_and_id(tmp_path: Path) -> None:
    times = '><low value="201506180900-0500"/><high value="201506221000-0500"/>'
    items = fact_documents(read(tmp_path, document([coded_encounter(times, INPATIENT)])))
    assert [(item.date, item.text) for item in items] == [
        ("2015-06-18", "09:00 Admitted: Hospital stay"),
        ("2015-06-22", "10:00 Discharged: Hospital stay"),
    ]
    for item in items:
        assert (fact(item).encounter, fact(item).category) == ("E7", "inpatient encounter")
        assert item.metadata["encounter"] == "E7"
        assert (item.metadata["admitted"], item.metadata["discharged"]) == ("2015-06-18T09:00", "2015-06-22T10:00")


def test_coded_office_visit_with_an_end_admits_nobody(tmp_path: Path) -> None:
    times = '><low value="201506180900-0500"/><high value="201506180930-0500"/>'
    (item,) = fact_documents(read(tmp_path, document([coded_encounter(times, OFFICE)])))
    assert (item.text, fact(item).event) == ("09:00 Visit: Office visit Until 09:30.", "state")


def test_coded_office_visit_is_no_stay(tmp_path: Path) -> None:
    (item,) = fact_documents(read(tmp_path, document([coded_encounter('value="201506180900-0500">', OFFICE)])))
    assert item.text == "09:00 Visit: Office visit"
    assert item.metadata["visit"] == "E7"
    assert "encounter" not in item.metadata
    assert fact(item).codes == ("cpt:99213", "local:AMB")


def test_planned_encounter_is_counted_and_not_read(tmp_path: Path) -> None:
    log = RemovalLog()
    text = document([coded_encounter('value="20150801">', OFFICE, mood="INT")])
    assert not fact_documents(read(tmp_path, text, log=log))
    assert log.fact_problems == {"planned C-CDA entry": 1}


@pytest.mark.parametrize("place", ["observation", "organizer"])
def test_result_that_names_its_encounter_is_of_that_stay(tmp_path: Path, place: str) -> None:
    link = '<entryRelationship typeCode="COMP" inversionInd="true"><encounter><id extension="E7"/></encounter>'
    link += "</entryRelationship>"
    text = organizer(observation("R1", "2160-0", quantity("1.4"), more=link if place == "observation" else ""))
    if place == "organizer":
        text = text.replace("</organizer>", f"{link}</organizer>")
    # The day is one of the document's stay, too.
    (item,) = fact_documents(read(tmp_path, document([text], encounter=encounter("20150618", "20150622"))))
    assert fact(item).encounter == "E7"


def test_directions_as_free_text_are_the_dose_of_a_medication(tmp_path: Path) -> None:
    directions = (
        '<entryRelationship typeCode="COMP"><substanceAdministration classCode="SBADM" moodCode="INT">'
        '<code code="76662-6" codeSystem="2.16.840.1.113883.6.1"/><text>Take one tablet every morning</text>'
        "</substanceAdministration></entryRelationship>"
    )
    text = drug('<effectiveTime xsi:type="IVL_TS"><low value="20150601"/></effectiveTime>')
    text = text.replace("</consumable>", f"</consumable>{directions}")
    assert lines(tmp_path, document([text])) == [
        ("2015-06-01", "Started lisinopril 10 MG Oral Tablet, Take one tablet every morning (statement; active)")
    ]


PERIOD = (
    '<effectiveTime xsi:type="IVL_TS"><low value="20150601"/></effectiveTime><effectiveTime xsi:type="PIVL_TS">'
    '<period xsi:type="IVL_PQ"><low value="4" unit="h"/><high value="6" unit="h"/></period></effectiveTime>'
)
PAIN = '<precondition><criterion><value xsi:type="CD" code="22253000" displayName="Pain"/></criterion></precondition>'


@pytest.mark.parametrize(
    ("dose", "more", "words"),
    [
        ('<doseQuantity><low value="1"/><high value="2"/></doseQuantity>', PAIN,
         "1 to 2 Oral every 4 to 6 h as needed for Pain"),
        ('<doseQuantity value="1"/><maxDoseQuantity><numerator value="8"/><denominator value="1" unit="d"/>'
         "</maxDoseQuantity>", "", "1 Oral every 4 to 6 h (at most 8 per d)"),
        ('<rateQuantity value="100" unit="mL/h"/>', "", "100 mL/h Oral every 4 to 6 h"),
    ],
)  # fmt: skip
def test_ranges_limits_and_needs_are_part_of_the_directions(tmp_path: Path, dose: str, more: str, words: str) -> None:
    """A drug for pain every 4 to 6 hours is no drug every 4 hours."""
    text = drug(PERIOD).replace('<doseQuantity value="10" unit="mg"/>', dose)
    text = text.replace("</consumable>", f"</consumable>{more}")
    assert lines(tmp_path, document([text])) == [
        ("2015-06-01", f"Started lisinopril 10 MG Oral Tablet, {words} (statement; active)")
    ]


def test_directions_in_the_narrative_are_read_if_no_dose_is_coded(tmp_path: Path) -> None:
    text = drug('<effectiveTime xsi:type="IVL_TS"><low value="20150601"/></effectiveTime>')
    text = text.replace('<doseQuantity value="10" unit="mg"/>', "").replace(
        "See list", '<content ID="s1">1 daily</content>'
    )
    text = text.replace("<statusCode", '<text><reference value="#s1"/></text><statusCode')
    ((_, line),) = lines(tmp_path, document([text]))
    assert line == "Started lisinopril 10 MG Oral Tablet, 1 daily (statement; active)"


def test_ratio_and_unit_in_words_are_read(tmp_path: Path) -> None:
    titer = '<value xsi:type="RTO_PQ_PQ"><numerator value="1"/><denominator value="160"/></value>'
    other = (
        '<value xsi:type="PQ" nullFlavor="OTH"><translation value="110"><originalText>mg%</originalText>'
        "</translation></value>"
    )
    entries = organizer(observation("R1", "2160-0", titer), observation("R2", "2345-7", other))
    documents = fact_documents(read(tmp_path, document([entries])))
    values = [(fact(item).value, fact(item).number, fact(item).unit) for item in documents]
    assert sorted(values) == [("110", 110, "mg%"), ("1:160", None, "")]


def test_diagnosis_of_an_encounter_is_a_fact_of_it(tmp_path: Path) -> None:
    """Vendors list the diagnoses of a visit there, and nowhere else."""
    diagnosis = problem("", '<value xsi:type="CD" code="36971009" displayName="Sinusitis"/>')
    reason = '<observation><value xsi:type="CD" code="25064002" displayName="Headache"/></observation>'
    more = (
        f'<entryRelationship><act><code code="29308-4"/><entryRelationship typeCode="SUBJ">{diagnosis}'
        f'</entryRelationship></act></entryRelationship><entryRelationship typeCode="RSON">{reason}</entryRelationship>'
    )
    times = '><low value="201506180900"/><high value="201506180930"/>'
    items = fact_documents(read(tmp_path, document([coded_encounter(times, OFFICE, more=more)])))
    assert [(item.date, item.text, fact(item).encounter) for item in items] == [
        ("2015-06-18", "Problem: Sinusitis (encounter diagnosis)", "E7"),
        ("2015-06-18", "09:00 Visit: Office visit Until 09:30. Reason: Headache.", "E7"),
    ]


def test_refused_vaccination_has_its_reason(tmp_path: Path) -> None:
    reason = (
        '<entryRelationship typeCode="RSON"><observation><code code="PATOBJ" displayName="Patient objection"/>'
        "</observation></entryRelationship>"
    )
    text = drug(
        '<effectiveTime value="20150601"/>',
        'negationInd="true"',
        code="11369-6",
        vaccine='code="141" displayName="Flu"',
    )
    ((_, line),) = lines(tmp_path, document([text.replace("</consumable>", f"</consumable>{reason}")]))
    assert line == "Not given: Flu, 10 mg (not-done) Reason: Patient objection."


@pytest.mark.parametrize(
    ("code", "category"), [("416098002", "medication, allergy"), ("414285001", "food, allergy"), ("1", "")]
)
def test_coded_allergy_says_what_it_is_against(tmp_path: Path, code: str, category: str) -> None:
    agent = (
        '<participant typeCode="CSM"><participantRole><playingEntity><code code="7980" displayName="Penicillin G"/>'
        "</playingEntity></participantRole></participant>"
    )
    value = f'<value xsi:type="CD" code="{code}" codeSystem="{SNOMED}"/>'
    (item,) = fact_documents(read(tmp_path, document([concern(problem("", value, more=agent), "48765-2")])))
    assert (fact(item).name, fact(item).category) == ("Penicillin G", category)


def written(directions: str, drug_xml: str) -> str:
    """Return a medication whose narrative has these directions."""
    text = drug_xml.replace("See list", f'<content ID="s1">{directions}</content>')
    return text.replace("<statusCode", '<text><reference value="#s1"/></text><statusCode')


START = '<effectiveTime xsi:type="IVL_TS"><low value="20150601"/></effectiveTime>'


@pytest.mark.parametrize(
    ("directions", "words"),
    [
        ("take 1 tablet every 6 hours as needed", "take 1 tablet every 6 hours as needed"),
        ("lisinopril 10 MG Oral Tablet", "10 mg Oral"),
        ("Lisinopril Oral", "10 mg Oral"),
    ],
)
def test_written_directions_win_over_a_coded_dose_if_they_are_directions(
    tmp_path: Path, directions: str, words: str
) -> None:
    ((_, line),) = lines(tmp_path, document([written(directions, drug(START))]))
    assert line == f"Started lisinopril 10 MG Oral Tablet, {words} (statement; active)"


def test_schedule_is_of_the_statement_and_not_of_its_supply(tmp_path: Path) -> None:
    """Events of a day are read, also within a set of times; the times of an entry inside are of something else."""
    times = (
        f'{START}<effectiveTime xsi:type="SXPR_TS"><comp xsi:type="EIVL_TS"><event code="HS"/></comp>'
        '<comp xsi:type="PIVL_TS"><period value="1" unit="d"/></comp></effectiveTime>'
    )
    supply = (
        '<entryRelationship typeCode="REFR"><supply classCode="SPLY" moodCode="INT"><effectiveTime xsi:type="PIVL_TS">'
        '<period value="30" unit="d"/></effectiveTime></supply></entryRelationship>'
    )
    text = drug(times).replace("</consumable>", f"</consumable>{supply}")
    ((_, line),) = lines(tmp_path, document([text]))
    assert line == "Started lisinopril 10 MG Oral Tablet, 10 mg Oral at bedtime, every 1 d (statement; active)"


@pytest.mark.parametrize("placeholder", ["Unknown", "Other", "MEDICATION", "N/A"])
def test_placeholder_gives_way_to_the_name_of_the_product(tmp_path: Path, placeholder: str) -> None:
    text = drug(START).replace('displayName="lisinopril 10 MG Oral Tablet"', f'displayName="{placeholder}"')
    assert placeholder in text
    text = text.replace("</manufacturedMaterial>", "<name>Propranolol 80 MG</name></manufacturedMaterial>")
    ((_, line),) = lines(tmp_path, document([text]))
    assert line.startswith("Started Propranolol 80 MG,")


def test_row_of_a_table_is_read_with_its_cells_apart(tmp_path: Path) -> None:
    """As the directions of an entry that refers to it. An allergy denied by the code of its value is kept."""
    table = '<table><tbody><tr ID="d"><td>lisinopril 10 MG Oral Tablet</td><td>take 1 daily</td></tr></tbody></table>'
    text = drug("").replace('"M1"/>', '"M1"/><text><reference value="#d"/></text>').replace("See list", table)
    denial = concern(problem("", f'<value xsi:type="CD" code="716186003" codeSystem="{SNOMED}"/>'), "48765-2")
    assert [line for _, line in lines(tmp_path, document([text, denial]))] == [
        "Allergy: No known allergies (active)",
        "Medication: lisinopril 10 MG Oral Tablet, lisinopril 10 MG Oral Tablet take 1 daily (statement; active)",
    ]


@pytest.mark.parametrize(
    ("agent", "kind", "line"),
    [
        ("Other", "Allergy to shellfish", "Allergy: Allergy to shellfish (active)"),
        ("Unknown", "Drug allergy", "Allergy: Unknown (refuted)"),
        ("Latex", "Allergy to substance", "Allergy: Latex (active)"),
    ],
)
def test_allergy_to_a_placeholder_is_named_by_its_value(tmp_path: Path, agent: str, kind: str, line: str) -> None:
    participant = (
        f'<participant typeCode="CSM"><participantRole><playingEntity><code code="1" displayName="{agent}"/>'
        "</playingEntity></participantRole></participant>"
    )
    entry = problem("", f'<value xsi:type="CD" code="2" displayName="{kind}"/>', more=participant)
    assert [text for _, text in lines(tmp_path, document([concern(entry, "48765-2")]))] == [line]


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("Family history of gout", "Onset of Family history of gout (active, family-history)"),
        ("Denies chest pain", "Problem: chest pain (refuted) As written: Denies chest pain."),
        ("Suspected lupus", "Onset of Suspected lupus (active, suspected)"),
    ],
)
def test_problem_whose_name_is_a_statement_has_its_status(tmp_path: Path, name: str, line: str) -> None:
    value = f'<value xsi:type="CD" code="1" displayName="{name}"/>'
    text = document([concern(problem('<low value="2010"/>', value), "11450-4")])
    assert [words for _, words in lines(tmp_path, text)] == [line]


def inner(code: str, value: str, template: str = "", kind: str = "REFR") -> str:
    """Return an observation within an entry, with its code or its template."""
    root = f'<templateId root="2.16.840.1.113883.10.20.{template}"/>' if template else ""
    named = f'<code code="{code}"/>' if code else '<code nullFlavor="NI"/>'
    return (
        f'<entryRelationship typeCode="{kind}"><observation classCode="OBS" moodCode="EVN">{root}{named}'
        f'<value xsi:type="CD" {value}/></observation></entryRelationship>'
    )


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (inner("33999-4", 'code="73425007"'), "End of Essential hypertension (inactive)"),
        (inner("", 'code="413322009"', "22.4.6"), "End of Essential hypertension (resolved)"),
        (
            inner("33999-4", 'code="73425007" displayName="No Longer Active"'),
            "End of Essential hypertension (inactive)",
        ),
        (inner("33999-4", 'displayName="In Remission"'), "End of Essential hypertension (remission)"),
        (inner("", 'code="410516002"', "1.50"), "Problem: Essential hypertension (ruled-out)"),
        (inner("33999-4", 'displayName="Ruled Out"'), "Problem: Essential hypertension (ruled-out)"),
        (inner("33999-4", 'displayName="Entered in Error"'), "Problem: Essential hypertension (entered-in-error)"),
        (inner("33999-4", 'code="55561003"'), "Onset of Essential hypertension (active)"),
    ],
)
@pytest.mark.parametrize("code", ["11450-4"])
def test_status_of_a_problem_is_read_by_its_code(tmp_path: Path, status: str, words: str, code: str) -> None:
    text = document([concern(problem('<low value="2010"/>', HYPERTENSION, more=status), code)])
    assert words in [line for _, line in lines(tmp_path, text)]


@pytest.mark.parametrize("code", ["48765-2", "11450-4"])
@pytest.mark.parametrize("status", ["", inner("33999-4", 'code="55561003"')])
@pytest.mark.parametrize(
    ("act", "template", "expected"),
    [
        ("aborted", "", "aborted"),
        ("suspended", "22.4.30", "suspended"),
        ("completed", "22.4.30", "unknown"),
        ("completed", "22.4.3", "unknown"),
        # Every act of CCD is completed.
        ("completed", "1.27", None),
        ("active", "22.4.30", "active"),
    ],
)
def test_concern_that_is_no_longer_tracked_leaves_an_active_statement_open(
    tmp_path: Path, act: str, template: str, expected: str | None, status: str, code: str
) -> None:
    root = f'<templateId root="2.16.840.1.113883.10.20.{template}"/><code code="CONC"/>'
    agent = (
        '<participant typeCode="CSM"><participantRole><playingEntity><name>Latex</name></playingEntity>'
        "</participantRole></participant>"
    )
    text = concern(problem('<low value="2010"/>', HYPERTENSION, more=agent + status), code, act)
    (item,) = fact_documents(read(tmp_path, document([text.replace('<code code="CONC"/>', root)])))
    assert fact(item).status == (("active" if status else "") if expected is None else expected)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (inner("33999-4", 'code="73425007"'), ["Started", "Stopped"]),
        (inner("33999-4", 'displayName="Not Taken"'), ["Not"]),
        (inner("33999-4", 'displayName="entered_in_error"'), ["Medication:"]),
        (inner("", 'code="392521001"', "22.4.47"), ["Started", "Stopped"]),
        (inner("33999-4", 'code="421139008"'), ["Started"]),
        (inner("33999-4", 'code="55561003"'), ["Started"]),
    ],
)
def test_status_of_a_medication_is_read_by_its_code(tmp_path: Path, status: str, expected: list[str]) -> None:
    text = document(
        [drug('<effectiveTime><low value="2010"/></effectiveTime>').replace("<consumable>", f"{status}<consumable>")]
    )
    rows = [line for _, line in lines(tmp_path, text)]
    assert sorted(row.partition(" ")[0] for row in rows) == expected
    assert ("on-hold" in rows[0]) is ("421139008" in status)


def test_allergy_has_severity_and_criticality_by_codes(tmp_path: Path) -> None:
    """Of the allergy itself, not only of a reaction."""
    more = inner("SEV", 'code="24484000"', kind="SUBJ") + inner("82606-5", 'code="CRITH"', kind="SUBJ")
    agent = (
        '<participant typeCode="CSM"><participantRole><playingEntity><code code="70618" displayName="Penicillin"/>'
        "</playingEntity></participantRole></participant>"
    )
    entry = problem('<low value="2010"/>', '<value xsi:type="CD" code="416098002"/>', more=agent + more)
    assert lines(tmp_path, document([concern(entry, "48765-2")])) == [
        ("2010", "Onset of allergy: Penicillin (severity severe, criticality high; active)")
    ]


@pytest.mark.parametrize(
    ("template", "entry"),
    [
        ("22.2.5.1", concern(problem('<low value="2010"/>', HYPERTENSION), "X")),
        ("22.2.3", organizer(observation("1", "2160-0", quantity("1.4")), code="X")),
        ("1.8", drug("", code="X")),
    ],
)
def test_section_without_a_code_is_known_by_its_template(tmp_path: Path, template: str, entry: str) -> None:
    head = f'<templateId root="2.16.840.1.113883.10.20.{template}"/><code nullFlavor="NI"/>'
    text = document([re.sub(r'<code code="X"[^>]*/>', head, entry)])
    assert "nullFlavor" in text
    assert len(lines(tmp_path, text)) == 1


def test_devices_are_facts_of_supplies_and_procedures(tmp_path: Path) -> None:
    device = (
        '<participant typeCode="PRD"><participantRole><playingDevice><code code="360129009" codeSystem="{}" '
        'displayName="{}"/></playingDevice></participantRole></participant>'
    )
    supply = (
        '<supply classCode="SPLY" moodCode="EVN"><id root="1.2.6" extension="S1"/><statusCode code="completed"/>'
        f'<effectiveTime><low value="20130316"/></effectiveTime>{device.format(SNOMED, "Cardiac pacemaker")}</supply>'
    )
    placed = (
        '<procedure classCode="PROC" moodCode="EVN"><id root="1.2.6" extension="P1"/><code code="1" '
        'displayName="Hip replacement"/><effectiveTime value="2014"/>'
        f"{device.format(SNOMED, 'Hip prosthesis')}</procedure>"
    )
    sections = [
        section("Equipment", "See entry", code="46264-8", entry=f"<entry>{supply}</entry>"),
        section("Procedures", "See entry", code="47519-4", entry=f"<entry>{placed}</entry>"),
    ]
    assert lines(tmp_path, document(sections)) == [
        ("2013-03-16", "Began: Cardiac pacemaker"),
        ("2014", "Began: Hip prosthesis"),
        ("2014", "Procedure: Hip replacement"),
    ]


def test_result_of_a_panel_that_is_not_complete_is_preliminary(tmp_path: Path) -> None:
    panel = organizer(observation("1", "2160-0", quantity("1.4")))
    open_panel = panel.replace('extension="B1"/>', 'extension="B1"/><statusCode code="active"/>', 1)
    assert lines(tmp_path, document([open_panel]))[0][1] == "08:10 Creatinine: 1.4 mg/dL (preliminary)"


def test_end_before_its_beginning_ends_a_drug_and_is_shown(tmp_path: Path) -> None:
    text = document([drug('<effectiveTime><low value="20150601"/><high value="20150101"/></effectiveTime>')])
    assert lines(tmp_path, text)[1] == (
        "2015-06-01",
        "End of lisinopril 10 MG Oral Tablet (statement) End as written: 2015-01-01, before the beginning.",
    )


@pytest.mark.slow
def test_every_number_of_real_results_is_stored(data_folder: Path) -> None:
    """The code and the number of each observation with a quantity, by the standard library, against the facts."""
    space = {"": "urn:hl7-org:v3"}
    number = 0
    for file in sorted((data_folder / "ccda").glob("*.xml.gz")):
        facts = [fact for item in fact_documents(list(read_sources([file]))) for fact in item.metadata[FACTS]]
        stored = {(code.partition(":")[2], fact.get("number")) for fact in facts for code in fact.get("codes", ())}
        for part in ElementTree.fromstring(gzip.decompress(file.read_bytes())).iterfind(".//section", space):
            code = part.find("code", space)
            if code is None or code.get("code") not in ("30954-2", "8716-3"):
                continue
            for element in part.iterfind(".//observation[@moodCode='EVN']", space):
                name, value = element.find("code", space), element.find("value[@value]", space)
                if name is None or value is None or element.get("nullFlavor"):
                    continue
                assert not name.get("code") or (name.get("code"), float(value.get("value", ""))) in stored, file.name
                number += 1
    assert number > 100
