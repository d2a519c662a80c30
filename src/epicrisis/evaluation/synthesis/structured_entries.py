"""What the entries of generated patients are called, and the values that they have."""

from __future__ import annotations

from typing import TypeAlias

AnalyteRow: TypeAlias = tuple[str, str, str, float, float, int, tuple[str, float] | None, str]
"""Name, LOINC code, unit, lowest and highest value, decimals, another unit with its factor, code of the urine value."""
ANALYTES: tuple[AnalyteRow, ...] = (
    ("Creatinine", "2160-0", "mg/dL", 0.5, 6.0, 2, ("mg/L", 10), "2161-8"),
    ("Potassium", "2823-3", "mmol/L", 2.8, 6.5, 1, None, "2828-2"),
    ("Sodium", "2951-2", "mmol/L", 120, 155, 0, None, "2955-3"),
    ("Hemoglobin", "718-7", "g/dL", 6.0, 17.0, 1, ("g/L", 10), ""),
    ("Platelets", "777-3", "10*3/uL", 20, 600, 0, ("10*9/L", 1), ""),
    ("INR", "6301-6", "", 0.9, 6.0, 1, None, ""),
    ("Alanine aminotransferase", "1742-6", "U/L", 5, 900, 0, None, ""),
    ("C-reactive protein", "1988-5", "mg/L", 1, 300, 0, ("mg/dL", 0.1), ""),
    ("Hemoglobin A1c", "4548-4", "%", 4.5, 14.0, 1, None, ""),
    ("Ferritin", "2276-4", "ng/mL", 5, 900, 0, ("ug/L", 1), ""),
    ("Body weight", "29463-7", "kg", 40, 140, 1, None, ""),
    ("Heart rate", "8867-4", "/min", 40, 180, 0, None, ""),
)
DRUGS = (
    "Lisinopril 10 MG Oral Tablet",
    "Metformin 500 MG Oral Tablet",
    "Warfarin Sodium 5 MG Oral Tablet",
    "Atorvastatin 40 MG Oral Tablet",
    "Furosemide 20 MG Oral Tablet",
    "Amlodipine 5 MG Oral Tablet",
    "Prednisone 10 MG Oral Tablet",
    "Omeprazole 20 MG Delayed Release Oral Capsule",
)
PROBLEMS = ("Essential hypertension", "Asthma", "Hypothyroidism", "Osteoporosis", "Psoriasis", "Gout")
ALLERGIES = ("Penicillin G", "Latex", "Peanut", "Sulfamethoxazole", "Codeine")
PROCEDURES = ("Colonoscopy", "Bronchoscopy", "Coronary angiography", "Cholecystectomy")
