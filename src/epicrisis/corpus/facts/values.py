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
_KINDS = (
    r"(?:medications?|medicines?|drugs?|problems?|conditions?|diagnos[ei]s|allerg(?:y|ies)|immuni[sz]ations?|vaccin\w+|"
    r"procedures?|surger(?:y|ies)|operations?|devices?|implants?|results?|observations?|vital signs?|encounters?|"
    r"complaints?|disorders?|diseases?|illness(?:es)?|history|data|information|entries|records?)"
)
_LISTED = frozenset(("medication", "problem", "allergy", "procedure", "immunization"))
"""Kinds of entries whose lists say in an entry that they are empty."""
_UNKNOWN_CODE = re.compile(r"no-[a-z]+-info")
_NONE_CODE = re.compile(r"no-known-[a-z-]+")
"""Codes of the International Patient Summary (absent-unknown-uv-ips)."""
_UNKNOWN_NAME = re.compile(
    rf"(?:no information\b.*|no (?:\w+ ){{0,4}}{_KINDS} (?:is |are |was |were )?"
    r"(?:available|applicable|recorded|documented|found|entered|on file|reported|given|provided)\b.*|"
    r"not (?:applicable|available|recorded|documented|known|specified|on file|assessed|obtained|provided)|"
    rf"(?:\w+ ){{0,3}}{_KINDS} (?:\w+ )?(?:not (?:documented|recorded|available|known|on file|reported)|unknown)|"
    r"unknown|unspecified|n/?a|null|nil known|asked but unknown|information not available)[.\s]*",
    re.IGNORECASE,
)
_NONE_NAME = re.compile(
    rf"(?:no known\b.*|no (?:\w+ ){{0,3}}{_KINDS}|none(?: (?:known|recorded|documented|reported|listed|on file))?|nil|"
    r"denies all\b.*)[.\s]*",
    re.IGNORECASE,
)
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


def states_absence(fact: ClinicalFact) -> bool:
    """Return whether an entry says that there is nothing of its kind, or that nothing is known of it.

    An allergy entry that says that there is none is an answer of its own, and is kept.
    """
    if fact.event == "end" or fact.kind not in _LISTED:
        return False
    codes = [code.rpartition(":")[2] for code in fact.codes]
    is_unknown = any(_UNKNOWN_CODE.fullmatch(code) for code in codes) or _UNKNOWN_NAME.fullmatch(fact.name) is not None
    if fact.kind == "allergy":
        return is_unknown
    return (
        is_unknown or any(_NONE_CODE.fullmatch(code) for code in codes) or _NONE_NAME.fullmatch(fact.name) is not None
    )
