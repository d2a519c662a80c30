"""A fictional chart whose every entry is known, for questions as clinicians type them.

Two stays (1 to 8 March 2150, 10 to 20 September 2150), visits between them, and a last visit on 15 January 2151.
"""

from __future__ import annotations

from epicrisis.core.fact_kinds import FactKind
from tests.fact_questions.test_computed_answers import Chart


def clinical_chart() -> Chart:
    """Return the chart."""
    chart = Chart()
    for number, start, end in (
        ("S1", "2150-03-01T09:00", "2150-03-08T14:00"),
        ("S2", "2150-09-10T18:00", "2150-09-20T11:00"),
    ):
        source = f"e/{number}"
        chart.add("encounter", "Inpatient Visit", start, event="start", encounter=number, source=source)
        chart.add("encounter", "Inpatient Visit", end, event="end", encounter=number, source=source)
    series = (
        ("Creatinine", "2160-0", "mg/dL", ("1.1", "1.9", "2.4", "1.6", "1.3")),
        ("Potassium", "2823-3", "mmol/L", ("4.1", "5.6", "3.4", "4.4", "4.6")),
        ("Bicarbonate", "1963-8", "mmol/L", ("24", "19", "16", "22", "25")),
        ("Leukocytes", "6690-2", "10*3/uL", ("7.2", "14.8", "18.3", "9.1", "6.8")),
        ("Hemoglobin", "718-7", "g/dL", ("13.2", "11.0", "8.4", "9.9", "12.5")),
        ("Heart rate", "8867-4", "/min", ("72", "96", "118", "84", "76")),
        ("Systolic blood pressure", "8480-6", "mm[Hg]", ("138", "122", "88", "118", "142")),
        ("Diastolic blood pressure", "8462-4", "mm[Hg]", ("80", "70", "50", "64", "84")),
        ("Body weight", "29463-7", "kg", ("80.5", "81", "76", "77.5", "82")),
    )
    times = ("2150-01-10T08:00", "2150-03-02T06:00", "2150-09-11T06:00", "2150-09-19T06:00", "2151-01-15T09:30")
    stays = ("", "S1", "S2", "S2", "")
    for name, code, unit, values in series:
        kind: FactKind = "vital-sign" if unit in ("/min", "mm[Hg]", "kg") else "laboratory"
        for time, value, stay in zip(times, values, stays, strict=True):
            chart.add(kind, name, time, value, unit, codes=(f"loinc:{code}",), encounter=stay)
    drugs = (
        ("Metformin 500 MG Oral Tablet", "2149-05-01", "", "m/1"),
        ("Atorvastatin 40 MG Oral Tablet", "2150-03-08", "", "m/2"),
        ("Lisinopril 10 MG Oral Tablet", "2149-05-01", "2150-09-12", "m/3"),
        ("Sodium bicarbonate 650 MG Oral Tablet", "2150-09-12", "2150-10-12", "m/4"),
        ("Warfarin Sodium 5 MG Oral Tablet", "2150-03-05", "2150-06-05", "m/5"),
        ("Apixaban 5 MG Oral Tablet", "2150-06-05", "", "m/6"),
        ("Potassium chloride 20 MEQ Oral Tablet", "2150-09-12", "2150-09-18", "m/7"),
    )
    for name, start, end, source in drugs:
        chart.add("medication", name, start, event="start", source=source, status="" if end else "active")
        if end:
            chart.add("medication", name, end, event="end", source=source, status="stopped")
    problems = (
        ("Hypertension", "2140-02-01", "", "c/1"),
        ("Type 2 diabetes mellitus", "2149-05-01", "", "c/2"),
        ("Deep vein thrombosis of left leg", "2150-03-03", "2150-06-05", "c/3"),
        ("Acute kidney injury", "2150-09-10", "2150-09-20", "c/4"),
    )
    for name, start, end, source in problems:
        chart.add("problem", name, start, event="start", source=source, status="" if end else "active")
        if end:
            chart.add("problem", name, end, event="end", source=source, status="resolved")
    chart.add("allergy", "Penicillin", "2149-05-01", source="a/1", status="active")
    chart.add("procedure", "Colonoscopy", "2148-11-02", source="p/1")
    chart.add("procedure", "Insertion of inferior vena cava filter", "2150-03-04", source="p/2")
    chart.add("immunization", "Influenza vaccine", "2150-10-20", event="given", source="i/1")
    chart.add("immunization", "Influenza vaccine", "2149-10-11", event="given", source="i/2")
    return chart
