"""Small tables of the OMOP CDM and of MIMIC with known facts of two patients."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

Rows = Sequence[Mapping[str, object]]

OMOP: Mapping[str, Rows] = {
    "concept": [
        {"concept_id": 3016723, "concept_name": "Creatinine [Mass/volume] in Serum or Plasma",
         "domain_id": "Measurement", "vocabulary_id": "LOINC", "concept_class_id": "Lab Test", "standard_concept": "S",
         "concept_code": "2160-0"},
        {"concept_id": 3004249, "concept_name": "Systolic blood pressure", "domain_id": "Measurement",
         "vocabulary_id": "LOINC", "concept_class_id": "Clinical Observation", "standard_concept": "S",
         "concept_code": "8480-6"},
        {"concept_id": 8840, "concept_name": "milligram per deciliter", "domain_id": "Unit", "vocabulary_id": "UCUM",
         "concept_class_id": "Unit", "standard_concept": "S", "concept_code": "mg/dL"},
        {"concept_id": 8876, "concept_name": "millimeter mercury column", "domain_id": "Unit", "vocabulary_id": "UCUM",
         "concept_class_id": "Unit", "standard_concept": "S", "concept_code": "mm[Hg]"},
        {"concept_id": 320128, "concept_name": "Essential \"primary\" hypertension", "domain_id": "Condition",
         "vocabulary_id": "SNOMED", "concept_class_id": "Disorder", "standard_concept": "S",
         "concept_code": "59621000"},
        {"concept_id": 19080129, "concept_name": "lisinopril 10 MG Oral Tablet", "domain_id": "Drug",
         "vocabulary_id": "RxNorm", "concept_class_id": "Clinical Drug", "standard_concept": "S",
         "concept_code": "314076"},
        {"concept_id": 9201, "concept_name": "Inpatient Visit", "domain_id": "Visit", "vocabulary_id": "Visit",
         "concept_class_id": "Visit", "standard_concept": "S", "concept_code": "IP"},
        {"concept_id": 9202, "concept_name": "Outpatient Visit", "domain_id": "Visit", "vocabulary_id": "Visit",
         "concept_class_id": "Visit", "standard_concept": "S", "concept_code": "OP"},
        {"concept_id": 4125022, "concept_name": "Appendectomy", "domain_id": "Procedure", "vocabulary_id": "SNOMED",
         "concept_class_id": "Procedure", "standard_concept": "S", "concept_code": "80146002"},
        {"concept_id": 439224, "concept_name": "Allergy to penicillin", "domain_id": "Observation",
         "vocabulary_id": "SNOMED", "concept_class_id": "Finding", "standard_concept": "S",
         "concept_code": "91936005"},
    ],
    "person": [
        {"person_id": 1, "gender_concept_id": 8532, "year_of_birth": 2080, "month_of_birth": 5, "day_of_birth": "",
         "person_source_value": "MRN-1"},
        {"person_id": 2, "gender_concept_id": 8507, "year_of_birth": 2090, "month_of_birth": "", "day_of_birth": "",
         "person_source_value": "MRN-2"},
    ],
    "visit_occurrence": [
        {"visit_occurrence_id": 10, "person_id": 1, "visit_concept_id": 9201, "visit_start_date": "2150-03-01",
         "visit_start_datetime": "2150-03-01 10:00:00", "visit_end_date": "2150-03-09",
         "visit_end_datetime": "2150-03-09 00:00:00", "visit_source_value": "ip"},
        {"visit_occurrence_id": 11, "person_id": 2, "visit_concept_id": 9202, "visit_start_date": "2150-03-04",
         "visit_start_datetime": "", "visit_end_date": "2150-03-04", "visit_end_datetime": "",
         "visit_source_value": "op"},
    ],
    "condition_occurrence": [
        {"condition_occurrence_id": 20, "person_id": 1, "condition_concept_id": 320128,
         "condition_start_date": "2150-03-01", "condition_start_datetime": "", "condition_end_date": "2150-06-01",
         "condition_type_concept_id": 32840, "condition_source_value": "I10", "condition_source_concept_id": 0,
         "visit_occurrence_id": 10},
    ],
    "drug_exposure": [
        {"drug_exposure_id": 30, "person_id": 1, "drug_concept_id": 19080129, "drug_exposure_start_date": "2150-03-02",
         "drug_exposure_start_datetime": "", "drug_exposure_end_date": "2150-04-01", "verbatim_end_date": "",
         "drug_type_concept_id": 32838, "stop_reason": "cough", "quantity": 30, "days_supply": 30,
         "sig": "1 tablet daily", "route_source_value": "oral", "drug_source_value": "LISINOPRIL 10MG",
         "visit_occurrence_id": 10},
    ],
    "procedure_occurrence": [
        {"procedure_occurrence_id": 40, "person_id": 1, "procedure_concept_id": 4125022, "procedure_date": "2150-03-02",
         "procedure_datetime": "2150-03-02 14:30:00", "procedure_source_value": "appy", "visit_occurrence_id": 10},
    ],
    "measurement": [
        {"measurement_id": 50, "person_id": 1, "measurement_concept_id": 3016723, "measurement_date": "2150-03-04",
         "measurement_datetime": "2150-03-04 08:10:00", "operator_concept_id": 0, "value_as_number": "1.8",
         "value_as_concept_id": 0, "unit_concept_id": 8840, "range_low": "0.6", "range_high": "1.2",
         "measurement_source_value": "CREA", "unit_source_value": "mg/dl", "value_source_value": "1.8",
         "visit_occurrence_id": 10},
        {"measurement_id": 51, "person_id": 1, "measurement_concept_id": 3004249, "measurement_date": "2150-03-04",
         "measurement_datetime": "2150-03-04 08:00:00", "operator_concept_id": 0, "value_as_number": "142.0",
         "value_as_concept_id": 0, "unit_concept_id": 8876, "range_low": "", "range_high": "",
         "measurement_source_value": "SBP", "unit_source_value": "", "value_source_value": "142",
         "visit_occurrence_id": 10},
        {"measurement_id": 52, "person_id": 2, "measurement_concept_id": 0, "measurement_date": "2150-03-04",
         "measurement_datetime": "", "operator_concept_id": 4171756, "value_as_number": "0.01",
         "value_as_concept_id": 0, "unit_concept_id": 0, "range_low": "", "range_high": "",
         "measurement_source_value": "Troponin T", "unit_source_value": "blobs", "value_source_value": "<0.01",
         "visit_occurrence_id": 11},
        {"measurement_id": 53, "person_id": 2, "measurement_concept_id": 3016723, "measurement_date": "2150-03-04",
         "measurement_datetime": "", "operator_concept_id": 0, "value_as_number": "", "value_as_concept_id": 0,
         "unit_concept_id": 0, "range_low": "", "range_high": "", "measurement_source_value": "CREA",
         "unit_source_value": "", "value_source_value": "", "visit_occurrence_id": 11},
    ],
    "observation": [
        {"observation_id": 60, "person_id": 1, "observation_concept_id": 439224, "observation_date": "2150-03-01",
         "observation_datetime": "", "value_as_number": "", "value_as_string": "", "value_as_concept_id": 0,
         "observation_source_value": "PCN", "visit_occurrence_id": 10},
    ],
    "death": [
        {"person_id": 2, "death_date": "2151-01-02", "death_datetime": "", "cause_source_value": "sepsis"},
    ],
    "note": [
        {"note_id": 70, "person_id": 1, "note_date": "2150-03-09", "note_datetime": "",
         "note_title": "Discharge summary", "note_text": "Discharged home.\nContinue lisinopril.",
         "visit_occurrence_id": 10},
    ],
}  # fmt: skip

MIMIC: Mapping[str, Rows] = {
    "patients": [
        {"subject_id": 10001, "gender": "F", "anchor_age": 70, "anchor_year": 2150, "dod": ""},
        {"subject_id": 10002, "gender": "M", "anchor_age": 60, "anchor_year": 2150, "dod": "2151-01-02"},
    ],
    "admissions": [
        {"subject_id": 10001, "hadm_id": 20001, "admittime": "2150-03-01 10:00:00", "dischtime": "2150-03-09 15:00:00",
         "admission_type": "URGENT", "discharge_location": "HOME"},
        {"subject_id": 10002, "hadm_id": 20002, "admittime": "2150-05-01 10:00:00", "dischtime": "2150-05-03 15:00:00",
         "admission_type": "ELECTIVE", "discharge_location": ""},
    ],
    "d_labitems": [
        {"itemid": 50912, "label": "Creatinine", "fluid": "Blood", "category": "Chemistry"},
        {"itemid": 51082, "label": "Creatinine", "fluid": "Urine", "category": "Chemistry"},
    ],
    "labevents": [
        {"labevent_id": 1, "subject_id": 10001, "hadm_id": 20001, "specimen_id": 9, "itemid": 50912,
         "charttime": "2150-03-04 08:10:00", "storetime": "2150-03-04 09:00:00", "value": "1.8", "valuenum": "1.8",
         "valueuom": "mg/dL", "ref_range_lower": "0.4", "ref_range_upper": "1.1", "flag": "abnormal", "comments": ""},
        {"labevent_id": 2, "subject_id": 10001, "hadm_id": 20001, "specimen_id": 9, "itemid": 51082,
         "charttime": "2150-03-04 08:10:00", "storetime": "2150-03-06 09:00:00", "value": "88", "valuenum": "88",
         "valueuom": "mg/dL", "ref_range_lower": "", "ref_range_upper": "", "flag": "", "comments": ""},
        {"labevent_id": 3, "subject_id": 10002, "hadm_id": 20002, "specimen_id": 8, "itemid": 50912,
         "charttime": "2150-05-02 08:00:00", "storetime": "", "value": "<0.2", "valuenum": "", "valueuom": "mg/dL",
         "ref_range_lower": "", "ref_range_upper": "", "flag": "", "comments": "REPEATED,\nCHECKED"},
        {"labevent_id": 4, "subject_id": 10002, "hadm_id": 20002, "specimen_id": 8, "itemid": 50912,
         "charttime": "2150-05-02 09:00:00", "storetime": "", "value": "", "valuenum": "", "valueuom": "",
         "ref_range_lower": "", "ref_range_upper": "", "flag": "", "comments": ""},
    ],
    "chartevents": [
        {"subject_id": 10001, "hadm_id": 20001, "stay_id": 30001, "charttime": "2150-03-04 08:00:00", "storetime": "",
         "itemid": 220045, "value": "91", "valuenum": "91", "valueuom": "bpm", "warning": 0},
        {"subject_id": 10001, "hadm_id": 20001, "stay_id": 30001, "charttime": "2150-03-04 08:00:00", "storetime": "",
         "itemid": 224001, "value": "left", "valuenum": "", "valueuom": "", "warning": 0},
    ],
    "prescriptions": [
        {"subject_id": 10001, "hadm_id": 20001, "pharmacy_id": 7, "starttime": "2150-03-02 10:00:00",
         "stoptime": "2150-03-09 15:00:00", "drug_type": "MAIN", "drug": "Lisinopril", "gsn": "000388",
         "ndc": "00006001931", "prod_strength": "10mg Tab", "dose_val_rx": "10", "dose_unit_rx": "mg",
         "doses_per_24_hrs": 1, "route": "PO/NG"},
    ],
    "emar": [
        {"subject_id": 10001, "hadm_id": 20001, "emar_id": "10001-1", "emar_seq": 1, "charttime": "2150-03-02 12:00:00",
         "medication": "Lisinopril", "event_txt": "Administered", "storetime": "2150-03-02 12:01:00"},
        {"subject_id": 10001, "hadm_id": 20001, "emar_id": "10001-2", "emar_seq": 2, "charttime": "2150-03-03 12:00:00",
         "medication": "Lisinopril", "event_txt": "Not Given", "storetime": "2150-03-03 12:01:00"},
    ],
    "diagnoses_icd": [
        {"subject_id": 10001, "hadm_id": 20001, "seq_num": 1, "icd_code": "I10", "icd_version": 10},
    ],
    "d_icd_diagnoses": [
        {"icd_code": "I10", "icd_version": 10, "long_title": "Essential (primary) hypertension"},
    ],
    "procedures_icd": [
        {"subject_id": 10001, "hadm_id": 20001, "seq_num": 1, "chartdate": "2150-03-02", "icd_code": "0DTJ4ZZ",
         "icd_version": 10},
    ],
}  # fmt: skip


def write_table(path: Path, rows: Rows, delimiter: str = ",") -> Path:
    """Write rows as CSV with a header; a path that ends with `.gz` is packed. Return the path."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(rows[0]), delimiter=delimiter)
    writer.writeheader()
    writer.writerows(rows)
    content = text.getvalue().encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def write_tables(folder: Path, tables: Mapping[str, Rows], suffix: str = ".csv") -> Path:
    """Write each table to a file of its name. Return the folder."""
    folder.mkdir(exist_ok=True)
    for name, rows in tables.items():
        write_table(folder / f"{name}{suffix}", rows)
    return folder
