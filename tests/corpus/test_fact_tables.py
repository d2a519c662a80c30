"""Tables of OMOP and MIMIC as structured facts."""

from __future__ import annotations

from pathlib import Path

import pytest

from epicrisis.core.clinical_facts import FACTS, ClinicalFact, is_fact_list
from epicrisis.core.types import Document
from epicrisis.corpus.base.csv_rows import read_header
from epicrisis.corpus.base.reader_base import FileFingerprint, PatientIdentity, ReaderItem, Skipped
from epicrisis.corpus.base.removal_log import RemovalLog
from epicrisis.corpus.readers.sources import detect_format, read_sources
from epicrisis.corpus.records.note_documents import NoteCleaning
from tests.support.clinical_tables import MIMIC, OMOP, write_table, write_tables


def read_folder(folder: Path, log: RemovalLog | None = None) -> list[ReaderItem]:
    return list(read_sources([folder], cleaning=NoteCleaning(removal_log=log or RemovalLog())))


def text_by_title(items: list[ReaderItem], patient: str) -> dict[str, str]:
    texts = {}
    for item in items:
        if isinstance(item, Document) and item.patient == patient:
            assert item.title not in texts
            texts[item.title] = item.text
    return texts


def facts_of(items: list[ReaderItem], name: str) -> list[ClinicalFact]:
    facts = []
    for item in items:
        if isinstance(item, Document) and FACTS in item.metadata:
            rows = item.metadata[FACTS]
            assert is_fact_list(rows)
            assert [item.text[row["start"] : row["end"]] for row in rows] == item.text.split("\n")
            facts += [ClinicalFact(**{**row, "codes": tuple(row.get("codes", ()))}) for row in rows]
    return [fact for fact in facts if fact.name == name]


OMOP_TEXTS = {
    "Stays and visits, 2150-03-01": "10:00 Admitted: Inpatient Visit",
    "Allergies, 2150-03-01": "Allergy: Allergy to penicillin",
    "Problems, 2150-03-01": 'Onset of Essential "primary" hypertension',
    "Medication orders, 2150-03-02": (
        "Started lisinopril 10 MG Oral Tablet, 1 tablet daily, oral, quantity 30, for 30 days (request)"
    ),
    "Procedures, 2150-03-02": "14:30 Procedure: Appendectomy",
    "Laboratory results, 2150-03-04": (
        "08:10 Creatinine [Mass/volume] in Serum or Plasma: 1.8 mg/dl (reference 0.6 to 1.2)"
    ),
    "Vital signs, 2150-03-04": "08:00 Systolic blood pressure: 142 mm[Hg]",
    "Stays and visits, 2150-03-09": "Discharged: Inpatient Visit",
    "Medication orders, 2150-04-01": "Stopped lisinopril 10 MG Oral Tablet (request; stopped) cough",
    "Problems, 2150-06-01": 'End of Essential "primary" hypertension',
    "Discharge summary, 2150-03-09": "Discharged home.\nContinue lisinopril.",
}


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz"])
def test_omop_folder_becomes_documents_of_facts(tmp_path: Path, suffix: str) -> None:
    log = RemovalLog()
    items = read_folder(write_tables(tmp_path / "omop", OMOP, suffix), log)
    assert not [item for item in items if isinstance(item, Skipped)]
    assert text_by_title(items, "1") == OMOP_TEXTS
    assert text_by_title(items, "2") == {
        "Laboratory results, 2150-03-04": "Troponin T: < 0.01 blobs",
        "Stays and visits, 2150-03-04": "Visit: Outpatient Visit",
        "Observations, 2151-01-02": "Death: cause sepsis",
    }
    identities = [item for item in items if isinstance(item, PatientIdentity)]
    assert [(item.patient, item.born, item.numbers) for item in identities] == [
        ("1", "2080-05", (("", "MRN-1"),)),
        ("2", "2090", (("", "MRN-2"),)),
    ]
    assert len([item for item in items if isinstance(item, FileFingerprint)]) == len(OMOP)
    assert log.summary().fact_problems == {
        "row of measurement without a name or value": 1,
        "with a unit that has no UCUM code": 1,
    }


def test_omop_facts_have_codes_units_and_stays(tmp_path: Path) -> None:
    items = read_folder(write_tables(tmp_path / "omop", OMOP))
    (creatinine,) = facts_of(items, "Creatinine [Mass/volume] in Serum or Plasma")
    assert (creatinine.codes, creatinine.number, creatinine.unit) == (("loinc:2160-0",), 1.8, "mg/dL")
    assert (creatinine.source, creatinine.encounter) == ("omop:measurement/50", "10")
    start, end = facts_of(items, "lisinopril 10 MG Oral Tablet")
    assert (start.event, end.event, end.time, start.source) == ("start", "end", "2150-04-01", end.source)
    (troponin,) = facts_of(items, "Troponin T")
    assert (troponin.comparator, troponin.number) == ("<", 0.01)
    (document,) = (item for item in items if isinstance(item, Document) and item.title.startswith("Procedures"))
    assert (document.metadata["admitted"], document.metadata["discharged"]) == ("2150-03-01T10:00", "2150-03-09")
    (visit,) = (item for item in items if isinstance(item, Document) and "Outpatient" in item.text)
    assert visit.metadata["visit"] == "11"


def test_omop_without_vocabulary_is_named_by_source_values(tmp_path: Path) -> None:
    tables = {name: rows for name, rows in OMOP.items() if name != "concept"}
    items = read_folder(write_tables(tmp_path / "omop", tables))
    (creatinine,) = facts_of(items, "CREA")
    assert (creatinine.codes, creatinine.unit) == (("omop:3016723",), "mg/dL")


def test_omop_in_parquet_gives_the_same_documents(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    folder = tmp_path / "omop"
    folder.mkdir()
    for name, rows in OMOP.items():
        columns: dict[str, list[object]] = {column: [] for column in rows[0]}
        for row in rows:
            for column, value in row.items():
                columns[column].append(None if value == "" else value)
        parquet.write_table(pyarrow.table(columns), folder / f"{name}.parquet")
    assert text_by_title(read_folder(folder), "1") == OMOP_TEXTS


def test_vocabulary_with_unquoted_quotes_is_read(tmp_path: Path) -> None:
    """Athena writes tabs and never quotes a field."""
    folder = write_tables(tmp_path / "omop", OMOP)
    rows = OMOP["concept"]
    lines = ["\t".join(rows[0])] + ["\t".join(map(str, row.values())) for row in rows]
    (folder / "concept.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert text_by_title(read_folder(folder), "1") == OMOP_TEXTS


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz"])
def test_mimic_folder_becomes_documents_of_facts(tmp_path: Path, suffix: str) -> None:
    log = RemovalLog()
    items = read_folder(write_tables(tmp_path / "mimic", MIMIC, suffix), log)
    assert text_by_title(items, "10001") == {
        "Stays and visits, 2150-03-01": "10:00 Admitted: urgent admission",
        "Medication orders, 2150-03-02": (
            "10:00 Started Lisinopril, 10 mg PO/NG, 1 in 24 h (request) Product: 10mg Tab."
        ),
        "Medications given, 2150-03-02": "12:00 Given: Lisinopril (administration)",
        "Medications given, 2150-03-03": "12:00 Not given: Lisinopril (administration; not-done) not given",
        "Laboratory results, 2150-03-04": "08:10 Creatinine: 1.8 mg/dL (abnormal; reference 0.4 to 1.1)",
        "Laboratory results, 2150-03-06": "2150-03-04 08:10 Creatinine (Urine): 88 mg/dL",
        "Vital signs, 2150-03-04": "08:00 Heart rate: 91 bpm",
        "Diagnoses, 2150-03-09": "15:00 Problem: Essential (primary) hypertension (encounter diagnosis)",
        "Procedures, 2150-03-09": "2150-03-02 Procedure: ICD10PCS 0DTJ4ZZ",
        "Medication orders, 2150-03-09": "15:00 End of Lisinopril (request)",
        "Stays and visits, 2150-03-09": "15:00 Discharged: urgent admission Discharged to: home.",
    }
    assert text_by_title(items, "10002")["Laboratory results, 2150-05-02"] == (
        "08:00 Creatinine: <0.2 mg/dL REPEATED, CHECKED"
    )
    assert log.summary().fact_problems == {
        "named by a code (add d_icd_procedures)": 1,
        "row of chartevents that is no vital sign": 1,
        "row of labevents without a value": 1,
    }
    (heart_rate,) = facts_of(items, "Heart rate")
    assert (heart_rate.unit, heart_rate.number, heart_rate.kind) == ("/min", 91.0, "vital-sign")
    assert [fact.comparator for fact in facts_of(items, "Creatinine")] == ["", "<"]


def test_mimic_iii_tables_with_capital_headers_are_read(tmp_path: Path) -> None:
    rows = [
        {"ROW_ID": 1, "SUBJECT_ID": 3, "HADM_ID": 145834, "ITEMID": 50912, "CHARTTIME": "2101-10-12 16:07:00",
         "VALUE": "1.2", "VALUENUM": 1.2, "VALUEUOM": "mg/dL", "FLAG": "abnormal"},
    ]  # fmt: skip
    codes = [{"ROW_ID": 1, "SUBJECT_ID": 3, "HADM_ID": 145834, "SEQ_NUM": 1, "ICD9_CODE": "4019"}]
    titles = [
        {"ROW_ID": 1, "ICD9_CODE": "4019", "SHORT_TITLE": "Hypertension", "LONG_TITLE": "Unspecified hypertension"}
    ]
    tables = {"LABEVENTS": rows, "DIAGNOSES_ICD": codes, "D_ICD_DIAGNOSES": titles}
    items = read_folder(write_tables(tmp_path / "mimic", tables, ".csv.gz"))
    assert text_by_title(items, "3") == {
        "Diagnoses": "Problem: Unspecified hypertension (encounter diagnosis)",
        "Laboratory results, 2101-10-12": "16:07 laboratory item 50912: 1.2 mg/dL (abnormal)",
    }


def test_mimic_code_of_two_versions_has_the_title_of_its_own(tmp_path: Path) -> None:
    titles = [
        {"icd_code": "E8581", "icd_version": 9, "long_title": "Accidental poisoning by hormones"},
        {"icd_code": "E8581", "icd_version": 10, "long_title": "Light chain (AL) amyloidosis"},
    ]
    rows = [{**MIMIC["diagnoses_icd"][0], "icd_code": "E8581", "icd_version": version} for version in (9, 10)]
    rows[1]["seq_num"] = 2
    items = read_folder(write_tables(tmp_path / "mimic", {"diagnoses_icd": rows, "d_icd_diagnoses": titles}))
    assert [fact.codes for fact in facts_of(items, "Accidental poisoning by hormones")] == [("icd9cm:E8581",)]
    assert [fact.codes for fact in facts_of(items, "Light chain (AL) amyloidosis")] == [("icd10cm:E8581",)]


def test_test_that_was_not_performed_has_no_value(tmp_path: Path) -> None:
    comment = "HEMOLYZED, TEST NOT PERFORMED"
    row = {**MIMIC["labevents"][0], "value": "___", "valuenum": "", "comments": comment}
    tables = {"labevents": [row], "d_labitems": MIMIC["d_labitems"]}
    (fact,) = facts_of(read_folder(write_tables(tmp_path / "mimic", tables)), "Creatinine")
    assert (fact.value, fact.status, fact.unit) == (comment, "not-done", "")


def test_mimic_bound_in_words_and_range_of_one_bound_are_read(tmp_path: Path) -> None:
    row = {**MIMIC["labevents"][0], "value": "LESS THAN 0.1", "valuenum": "0.1", "ref_range_lower": ""}
    tables = {"labevents": [row], "d_labitems": MIMIC["d_labitems"]}
    (fact,) = facts_of(read_folder(write_tables(tmp_path / "mimic", tables)), "Creatinine")
    assert (fact.comparator, fact.number, fact.reference_range) == ("<", 0.1, "at most 1.1")


@pytest.mark.parametrize(("text", "unit"), [("> 15 mmol/L", ""), (">15", "mmol/L")])
def test_omop_value_as_text_is_a_number_with_comparator_and_unit(text: str, unit: str, tmp_path: Path) -> None:
    row = {**OMOP["measurement"][0], "value_as_number": "", "value_source_value": text, "operator_concept_id": "0"}
    row |= {"unit_source_value": unit, "unit_concept_id": "0"}
    (fact,) = facts_of(read_folder(write_tables(tmp_path / "omop", {"measurement": [row]})), "CREA")
    assert (fact.value, fact.comparator, fact.number, fact.unit) == ("> 15", ">", 15, "mmol/L")


def test_omop_unit_without_a_name_is_counted_and_dose_unit_without_a_dose_is_none(tmp_path: Path) -> None:
    log = RemovalLog()
    measurement = {**OMOP["measurement"][0], "unit_source_value": ""}
    drug = {**OMOP["drug_exposure"][0], "dose_unit_source_value": "mg", "sig": ""}
    tables = {"measurement": [measurement], "drug_exposure": [drug]}
    items = read_folder(write_tables(tmp_path / "omop", tables), log)
    (creatinine,) = facts_of(items, "CREA")
    assert (creatinine.number, creatinine.unit) == (1.8, "")
    assert log.summary().fact_problems == {"with a unit that only its concept names (add the table concept)": 1}
    assert facts_of(items, "LISINOPRIL 10MG")[0].value == "oral, quantity 30, for 30 days"


def test_repeated_row_gives_one_fact_and_rows_of_several_files_one_day(tmp_path: Path) -> None:
    folder = write_tables(tmp_path / "mimic", {"labevents": MIMIC["labevents"][:1]})
    write_table(
        folder / "labevents_2.csv",
        [*MIMIC["labevents"][:1], {**MIMIC["labevents"][0], "labevent_id": 9, "value": "2.0"}],
    )
    texts = text_by_title(read_folder(folder), "10001")
    assert texts["Laboratory results, 2150-03-04"].count("\n") == 1


def test_rows_without_patient_or_with_broken_quotes_are_reported(tmp_path: Path) -> None:
    folder = write_tables(tmp_path / "mimic", {"labevents": MIMIC["labevents"][:1]})
    path = folder / "labevents.csv"
    row = {**MIMIC["labevents"][0], "subject_id": ""}
    write_table(path, [row, *MIMIC["labevents"][:1]])
    with path.open("a", encoding="utf-8") as file:
        file.write('5,10002,20002,8,50912,2150-05-02,,"1.2,,,\n')
    items = read_folder(folder)
    assert [item.where for item in items if isinstance(item, Skipped)] == ["line 2", "after line 3"]
    assert text_by_title(items, "10001")
    assert not text_by_title(items, "10002")


@pytest.mark.parametrize("value", ["", "nan", "1e999", "x" * 5000, "\x00", "'; DROP TABLE record", "-", "1,5"])
def test_hostile_cells_do_not_stop_reading(tmp_path: Path, value: str) -> None:
    rows = []
    for column in MIMIC["labevents"][0]:
        if column != "subject_id":
            rows.append({**MIMIC["labevents"][0], column: value})
    folder = write_tables(tmp_path / "mimic", {"labevents": [*rows, MIMIC["labevents"][1]]})
    items = read_folder(folder)
    assert all(item.patient == "10001" for item in items if isinstance(item, Document))
    assert facts_of(items, "laboratory item 51082")


def test_tables_are_recognized_by_their_columns(tmp_path: Path) -> None:
    assert detect_format(write_table(tmp_path / "x.csv", OMOP["measurement"])) == "omop"
    assert detect_format(write_table(tmp_path / "y.tsv", MIMIC["labevents"], "\t")) == "mimic"
    other = write_table(tmp_path / "z.csv", [{"a": 1, "b": 2}])
    assert read_header(other)[0] == ["a", "b"]
    assert detect_format(other) == "notes"


@pytest.mark.parametrize(
    ("kind", "end", "verbatim", "days", "ended"),
    [
        *(("32869", "2150-03-01", "", "", "2150-03-01"), ("32869", "2150-03-09", "", "", "2150-03-09")),
        *(("32869", "", "", "14", "2150-03-15"), ("32838", "2150-03-01", "2150-03-01", "", "2150-03-01")),
        *(("32838", "2150-03-01", "", "", ""), ("32838", "2150-03-01", "", "30", "2150-03-31")),
        *(("32838", "2150-03-09", "2150-03-05", "30", "2150-03-05"), ("32818", "2150-03-09", "", "9", "")),
    ],
)
def test_omop_drug_ends_as_its_row_says(
    tmp_path: Path, kind: str, end: str, verbatim: str, days: str, ended: str
) -> None:
    """32869 is dispensed, 32838 prescribed, 32818 given. The model demands an end: of the start's day, it is none."""
    row = {
        "drug_exposure_id": "1",
        "person_id": "1",
        "drug_concept_id": "0",
        "drug_exposure_start_date": "2150-03-01",
        "drug_exposure_end_date": end,
        "verbatim_end_date": verbatim,
        "days_supply": days,
        "drug_type_concept_id": kind,
        "drug_source_value": "Naproxen",
    }
    facts = facts_of(read_folder(write_tables(tmp_path / "omop", {"drug_exposure": [row]})), "Naproxen")
    assert [fact.time for fact in facts if fact.event == "end"] == ([ended] if ended else [])


def test_omop_order_that_ends_before_it_begins_is_over(tmp_path: Path) -> None:
    """Its end as written is shown."""
    row = {
        "drug_exposure_id": "1",
        "person_id": "1",
        "drug_concept_id": "0",
        "drug_exposure_start_date": "2150-03-01",
        "drug_exposure_end_date": "2150-02-01",
        "drug_type_concept_id": "32838",
        "drug_source_value": "Naproxen",
    }
    items = read_folder(write_tables(tmp_path / "omop", {"drug_exposure": [row]}))
    assert [fact.time for fact in facts_of(items, "Naproxen") if fact.event == "end"] == ["2150-03-01"]
    assert "End as written: 2150-02-01, before the beginning." in str(items)


def test_mimic_prescription_that_ends_before_it_begins_is_over(tmp_path: Path) -> None:
    row = {**MIMIC["prescriptions"][0], "stoptime": "2150-03-01 15:00:00"}
    items = read_folder(write_tables(tmp_path / "mimic", {"prescriptions": [row]}))
    assert [(fact.event, fact.time) for fact in facts_of(items, "Lisinopril")] == [
        ("start", "2150-03-02T10:00"),
        ("end", "2150-03-02T10:00"),
    ]


@pytest.mark.parametrize(
    ("name", "value", "kind", "fact"),
    [
        *(("Allergy to drug", "penicillin G", "allergy", "penicillin G"), ("Allergy", "latex", "allergy", "latex")),
        *(("Allergy to penicillin", "Yes", "allergy", "Allergy to penicillin"),),
        *(("Allergy to penicillin", "No", "observation", "Allergy to penicillin"),),
        *(("Drug allergy", "negative", "observation", "Drug allergy"), ("Smoking", "latex", "observation", "Smoking")),
        *(("Drug allergy", "None", "observation", "Drug allergy"),),
        *(("Allergy to drug (finding)", "aspirin", "allergy", "aspirin"),),
        *(
            ("History of drug allergy", "sulfa", "allergy", "sulfa"),
            ("Allergy test", "cat", "observation", "Allergy test"),
        ),
    ],
)
def test_omop_allergy_is_named_by_its_substance(tmp_path: Path, name: str, value: str, kind: str, fact: str) -> None:
    row = {
        "observation_id": "1",
        "person_id": "1",
        "observation_concept_id": "0",
        "observation_date": "2150-03-01",
        "observation_source_value": name,
        "value_as_string": value,
    }
    items = read_folder(write_tables(tmp_path / "omop", {"observation": [row]}))
    assert [entry.kind for entry in facts_of(items, fact)] == [kind]
