"""What an entry states: that there is nothing, when a supply ends, and which dates are none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from epicrisis.core.allergy_denials import read_denial
from epicrisis.core.clinical_facts import ClinicalFact
from epicrisis.core.fact_kinds import FactKind
from epicrisis.corpus.records.facts.fact_values import name_denial, parse_value, states_absence, states_no_value
from epicrisis.corpus.records.facts.times import add_supply, read_fact_time


@pytest.mark.parametrize(
    "name",
    [
        *(
            "No known medications",
            "None",
            "none recorded",
            "N/A",
            "Unknown",
            "Not documented",
            "No information on file",
        ),
        *(
            "Not currently taking any medications",
            "Patient is not on any medications",
            "No meds",
            "No medication data is applicable",
            "Medication administration not documented",
            "Nil known",
            "No problems",
            "Patient takes no medications",
            "No Drug Therapy Prescribed",
            "Patient not on self-medications",
            "None at this time",
            "Currently on no medications",
            "Denies taking any medications",
        ),
    ],
)
@pytest.mark.parametrize("kind", ["medication", "problem", "procedure", "immunization"])
def test_entry_that_names_nothing_states_absence(name: str, kind: FactKind) -> None:
    assert states_absence(ClinicalFact(kind, name))


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *(("medication", "Noradrenaline"), ("problem", "Nonunion of fracture"), ("problem", "Fever of unknown origin")),
        *(
            ("problem", "Unspecified essential hypertension"),
            ("medication", "Nilotinib"),
            ("problem", "Nicotine abuse"),
        ),
        *(
            ("allergy", "No known allergies"),
            ("encounter", "Unknown"),
            ("laboratory", "None"),
            ("medication", "Drug X"),
        ),
        *(("problem", "No known problems; asthma"), ("medication", "No known medications, insulin")),
        ("medication", "Denies all medications except insulin"),
    ],
)
def test_entry_that_names_something_is_kept(kind: FactKind, name: str) -> None:
    assert not states_absence(ClinicalFact(kind, name))


@pytest.mark.parametrize(
    ("kind", "code", "category"),
    [
        ("observation", "local:no-known-devices", "devices"),
        ("observation", "local:no-device-info", "devices"),
        ("medication", "snomed:787481004", ""),
        ("problem", "snomed:160245001", ""),
        ("immunization", "cvx:998", ""),
    ],
)
def test_entry_whose_code_says_none_states_absence(kind: FactKind, code: str, category: str) -> None:
    assert states_absence(ClinicalFact(kind, "See text", codes=(code,), category=category))
    assert not states_absence(ClinicalFact("observation", "See text", codes=(code,), category="survey"))


@pytest.mark.parametrize("code", ["snomed:716186003", "absent-unknown-uv-ips:no-known-medication-allergies"])
def test_allergy_denied_by_a_code_has_the_words_of_the_denial(code: str) -> None:
    bare = ClinicalFact("allergy", code.rpartition(":")[2], codes=(code,))
    assert name_denial(bare).name.startswith("No known ")
    assert name_denial(replace(bare, name="No known allergy")).name == "No known allergy"
    assert name_denial(replace(bare, kind="problem")).name == bare.name


@pytest.mark.parametrize(
    ("name", "denied"),
    [
        *((name, "") for name in ("NKDA", "NKMA", "No Known Allergies (NKA)", "Patient denies any allergies", "None")),
        *((name, "") for name in ("Denies drug allergies", "No allergies on record", "Not allergic to any medication")),
        *((name, "penicillin") for name in ("Not allergic to penicillin", "Pt is not allergic to penicillin.")),
        *((name, "penicillin") for name in ("No known allergies to penicillin", "No penicillin allergy")),
        *(("None of the listed: penicillin", "penicillin"), ("Denies allergy to latex or nuts", "latex or nuts")),
        *((name, None) for name in ("Penicillin", "Nickel", "Noni juice", "Non-steroidal anti-inflammatory agent")),
        *((name, None) for name in ("No known allergies except penicillin", "NKDA other than sulfa", "NKDA, latex")),
        ("No known drug allergies (penicillin rash)", None),
        ("No known allergies as of 2019-05-01, reviewed", ""),
    ],
)
def test_denial_is_of_a_substance_or_of_allergies_in_general(name: str, denied: str | None) -> None:
    assert read_denial(name) == denied


@pytest.mark.parametrize(("code", "expected"), [("no-allergy-info", True), ("no-known-allergies", False)])
def test_allergy_of_which_nothing_is_known_differs_from_none(code: str, expected: bool) -> None:
    assert states_absence(ClinicalFact("allergy", "Allergies", codes=(f"local:{code}",))) is expected


@pytest.mark.parametrize(
    ("start", "days", "refills", "end"),
    [
        *(("2150-03-04", "14", "", "2150-03-18"), ("2150-03-04T10:30", "30", "2", "2150-06-02")),
        *(("2150-03", "14", "", ""), ("", "14", "", ""), ("2150-03-04", "0", "", ""), ("2150-03-04", "x", "", "")),
        *(("2999-01-01", "99999", "", ""), ("2999-01-01", "9999", "999", "3026-05-19")),
    ],
)
def test_supply_ends_when_it_is_used_up(start: str, days: str, refills: str, end: str) -> None:
    assert add_supply(start, days, refills) == end


@pytest.mark.parametrize(
    ("text", "unit", "comparator", "number", "code"),
    [
        ("150 mmol/L", "", "", 150, "mmol/L"),
        (">15 mmol/L", "", ">", 15, "mmol/L"),
        ("≤ 1.4 mg/dl", "", "<=", 1.4, "mg/dL"),
        ("5 %", "", "", 5, "%"),
        ("140 mmol/l", "mmol/L", "", 140, "mmol/L"),
        ("1,250.5", "U/L", "", 1250.5, "U/L"),
        ("12,345,678.5", "", "", 12345678.5, ""),
        ("GREATER THAN 15", "", ">", 15, ""),
        ("less than 0.01", "ng/mL", "<", 0.01, "ng/mL"),
    ],
)
def test_value_that_is_plainly_a_number_is_one(text: str, unit: str, comparator: str, number: float, code: str) -> None:
    value = parse_value(text, unit)
    assert (value.comparator, value.number, value.unit) == (comparator, number, code)


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        *(("1:80", ""), ("120/80", ""), ("1-2", ""), ("2+", ""), ("3 of 10", ""), ("150 H", ""), ("2.1 L", "")),
        *(
            ("0,250", ""),
            ("1,25", ""),
            ("1,250", "U/L"),
            ("12,3456", ""),
            ("5 mg", "mmol/L"),
            ("5 units of blood", ""),
            ("see 5", ""),
        ),
    ],
)
def test_value_with_other_words_is_no_number(text: str, unit: str) -> None:
    value = parse_value(text, unit)
    assert (value.text, value.number, value.comparator, value.written_unit) == (text, None, "", unit)


@pytest.mark.parametrize("time", ["0001-01-01", "00010101", "9999-12-31", "0001", "1799-01-01", "19000101"])
def test_date_that_nobody_knows_is_none(time: str) -> None:
    assert read_fact_time(time) == ""
    assert read_fact_time("2150-03-04") == "2150-03-04"


@pytest.mark.parametrize(
    "text",
    [
        "CANCELLED",
        "___ HEMOLYZED, TEST NOT PERFORMED",
        "ERROR",
        "see comment",
        "Specimen clotted. Test was cancelled.",
        "UNABLE TO REPORT DUE TO HEMOLYSIS",
        "Test not performed - specimen hemolyzed",
        "QNS",
        "N/A",
    ],
)
def test_text_that_says_only_that_there_is_no_value_is_none(text: str) -> None:
    assert states_no_value(text)


@pytest.mark.parametrize(
    "text",
    ["", "None", "Negative", "Hemolyzed", "Insufficient", "Not detected", "cancelled order of 1.9", "1.9. See note"],
)
def test_text_of_a_result_is_a_value(text: str) -> None:
    assert not states_no_value(text)
