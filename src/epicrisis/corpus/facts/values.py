"""Values of facts that several formats have: numbers with comparators, units, interpretations and systems of codes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from epicrisis.clinical_facts import ClinicalFact, Comparator
from epicrisis.ucum import to_ucum

COMPARATORS: Mapping[str, Comparator] = {"": "", "<": "<", "<=": "<=", ">": ">", ">=": ">=", "≤": "<=", "≥": ">="}
INTERPRETATIONS = {
    "H": "high",
    "HH": "critically high",
    "L": "low",
    "LL": "critically low",
    "A": "abnormal",
    "AA": "critically abnormal",
    "N": "normal",
    "POS": "positive",
    "NEG": "negative",
    "R": "resistant",
    "S": "susceptible",
    "I": "intermediate",
}
"""The codes of HL7's table 0078 in words."""
_CODE_SYSTEMS = {
    "2.16.840.1.113883.6.1": "loinc",
    "2.16.840.1.113883.6.96": "snomed",
    "2.16.840.1.113883.6.88": "rxnorm",
    "2.16.840.1.113883.6.90": "icd10cm",
    "2.16.840.1.113883.6.3": "icd10",
    "2.16.840.1.113883.6.4": "icd10pcs",
    "2.16.840.1.113883.6.103": "icd9cm",
    "2.16.840.1.113883.6.104": "icd9cm",
    "2.16.840.1.113883.12.292": "cvx",
    "2.16.840.1.113883.6.69": "ndc",
    "2.16.840.1.113883.6.12": "cpt",
    "2.16.840.1.113883.6.73": "atc",
    "2.16.840.1.113883.4.9": "unii",
    "LN": "loinc",
    "SCT": "snomed",
    "RXNORM": "rxnorm",
    "I10": "icd10cm",
    "I9C": "icd9cm",
    "CVX": "cvx",
    "NDC": "ndc",
    "C4": "cpt",
}
"""The short names of systems by object identifier, and by the abbreviations of HL7's table 0396."""
_NUMBER = re.compile(r"(<=|>=|<|>|≤|≥)?\s?([+-]?\d{1,15}(?:\.\d{1,15})?)")


@dataclass(frozen=True, slots=True)
class FactValue:
    """A value as the fields of a fact."""

    text: str = ""
    number: float | None = None
    comparator: Comparator = ""
    unit: str = ""
    written_unit: str = ""

    @property
    def with_unit(self) -> str:
        """The value with its unit as written."""
        return " ".join(filter(None, (self.text, self.written_unit)))


def parse_value(text: str, unit: str = "") -> FactValue:
    """Return a value as written, with its number if it is one, such as `1.4`, `< 0.5` or `>=60`."""
    text, unit = " ".join(text.split()), unit.strip()
    match = _NUMBER.fullmatch(text)
    if match is None:
        return FactValue(text, unit=unit, written_unit=unit)
    comparator = COMPARATORS[match[1] or ""]
    spelling = " ".join(filter(None, (comparator, match[2])))
    return FactValue(spelling, float(match[2]), comparator, to_ucum(unit) or unit, unit)


def name_code(system: str, code: str) -> str:
    """Return a code with the short name of its system, `loinc:2160-0`; `local:` if the system has none."""
    return f"{_CODE_SYSTEMS.get(system.strip(), 'local')}:{code}"


def end_fact(fact: ClinicalFact, time: str, status: str = "") -> ClinicalFact:
    """Return the fact that something ended at this time."""
    return replace(fact, event="end", time=time or None, value="", number=None, unit="", status=status)
