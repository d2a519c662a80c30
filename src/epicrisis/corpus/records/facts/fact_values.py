"""Values of facts that several formats have: numbers with comparators, units, interpretations and systems of codes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from epicrisis.core.allergy_denials import EXCEPTION
from epicrisis.core.clinical_facts import ClinicalFact, Comparator
from epicrisis.core.fact_kinds import KINDS
from epicrisis.core.ucum import to_ucum

COMPARATORS: Mapping[str, Comparator] = {
    "": "",
    "<": "<",
    "<=": "<=",
    ">": ">",
    ">=": ">=",
    "≤": "<=",
    "≥": ">=",
    "less than": "<",
    "greater than": ">",
}
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
STAY_CLASSES: Mapping[str, str] = {
    "IMP": "inpatient encounter",
    "ACUTE": "inpatient acute",
    "NONAC": "inpatient non-acute",
    "OBSENC": "observation encounter",
    "SS": "short stay",
    "EMER": "emergency",
}
VISIT_CLASSES: Mapping[str, str] = {
    "AMB": "ambulatory",
    "HH": "home health",
    "VR": "virtual",
    "FLD": "field",
    "PRENC": "visit before a stay",
}
ENCOUNTER_CLASSES: Mapping[str, str] = {**STAY_CLASSES, **VISIT_CLASSES}
"""HL7's classes of encounters with their words."""
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
    "I10C": "icd10cm",
    "I10P": "icd10pcs",
    "I9": "icd9cm",
    "I9C": "icd9cm",
    "I9CDX": "icd9cm",
    "ICD10": "icd10cm",
    "ICD9": "icd9cm",
    "CVX": "cvx",
    "NDC": "ndc",
    "C4": "cpt",
}
"""The short names of systems by object identifier, and by the abbreviations of HL7's table 0396."""
_PLACEHOLDERS = frozenset(
    (
        *("unknown", "unk", "other", "others", "unspecified", "not specified", "uncoded"),
        *("miscellaneous", "null", "na", "n/a", "not applicable", "not available", "no information"),
        *("asked but unknown", "see text", "see comments", "see narrative", "free text", "text"),
        *("problem", "diagnosis", "condition", "finding", "disorder", "complaint", "medication"),
        *("drug", "product", "substance", "allergy", "allergen", "procedure", "result", "observation"),
        *("immunization", "vaccine", "test", "device", "code", "name"),
    )
)
"""What vendors write into a name that they do not code."""
_ALLERGIES = frozenset(("allergy", "allergies", "allergic", "allergen", "hypersensitivity", "intolerance", "adverse"))
_WORDS_BESIDE = """
drug drugs food medication medications medicine substance environmental environment reaction reactions
disposition propensity status history known type causative agent finding disorder situation observable entity
other unspecified to of or and the by a
"""
_ALLERGY_WORDS = _ALLERGIES | frozenset(_WORDS_BESIDE.split())
STATUS_NAMES: Mapping[str, str] = {
    "55561003": "active",
    "73425007": "inactive",
    "413322009": "resolved",
    "277022003": "remission",
    "246455001": "recurrence",
    "255227004": "recurrence",
    "263855007": "relapse",
    "392521001": "inactive",
    "421139008": "on-hold",
    "415684004": "suspected",
    "410605003": "confirmed",
    "410516002": "ruled-out",
    "5558000": "provisional",
    "47965005": "differential",
    "entered in error": "entered-in-error",
    "erroneous": "entered-in-error",
    "on hold": "on-hold",
    "not taken": "not-taken",
    "not done": "not-done",
    "ruled out": "ruled-out",
    "no longer active": "inactive",
    "not active": "inactive",
    "prior history": "inactive",
    "in remission": "remission",
    "problem resolved": "resolved",
}
"""Statuses in FHIR's words, by their codes of SNOMED CT and by what sources write, with blanks between words."""
DENIED_STATUSES = frozenset(("entered-in-error", "refuted", "ruled-out", "not-taken"))
"""Statuses of entries that never were so, and therefore did not end."""
_KINDS = (
    r"(?:medications?|medicines?|meds|drugs?|problems?|conditions?|diagnos[ei]s|allerg(?:y|ies)|immuni[sz]ations?|vaccin\w+|"
    r"procedures?|surger(?:y|ies)|operations?|devices?|implants?|results?|observations?|vital signs?|encounters?|"
    r"complaints?|disorders?|diseases?|illness(?:es)?|history|data|information|entries|records?)"
)
_LISTED_CATEGORIES = ("devices", "flags")
_UNKNOWN_CODE = re.compile(r"no-[a-z]+-info")
_NONE_CODE = re.compile(r"no-known-[a-z-]+|160245001|787481004|182849000")
"""Codes of the International Patient Summary (absent-unknown-uv-ips), SNOMED CT for none."""
_NO_VACCINE = "cvx:998"
_NO_ALLERGIES = {
    "no-known-allergies": "No known allergies",
    "no-known-medication-allergies": "No known drug allergies",
    "no-known-food-allergies": "No known food allergies",
    "no-known-environmental-allergies": "No known environmental allergies",
    "716186003": "No known allergies",
    "160244002": "No known allergies",
    "409137002": "No known drug allergies",
    "429625007": "No known food allergies",
    "428607008": "No known environmental allergies",
}
"""Codes of entries that say that there is no allergy, with their words."""
_SUBJECT = r"(?:(?:the )?(?:patient|pt\.?|he|she) (?:is |has )?)?"
_UNKNOWN_NAME = re.compile(
    rf"(?:no information\b.*|no (?:\w+ ){{0,4}}{_KINDS} (?:is |are |was |were )?"
    r"(?:available|applicable|recorded|documented|found|entered|on file|reported|given|provided)\b.*|"
    r"not (?:applicable|available|recorded|documented|known|specified|on file|assessed|obtained|provided)|"
    rf"(?:\w+ ){{0,3}}{_KINDS} (?:\w+ )?(?:not (?:documented|recorded|available|known|on file|reported)|unknown)|"
    r"unknown|unspecified|n/?a|null|nil known|asked but unknown|information not available)[.\s]*",
    re.IGNORECASE,
)
_NONE_NAME = re.compile(
    rf"{_SUBJECT}(?:currently )?(?:(?:no known|not (?:currently )?(?:taking|on|using) any|denies all)\b[^,;:.()]*|"
    r"(?:(?:takes |on |using )?no|not (?:currently )?on|denies (?:taking|using|any)|does not take(?: any)?) "
    rf"(?:\w+[ -]){{0,3}}(?:{_KINDS}|therapy)|none|nil)"
    r"(?: (?:known|prescribed|recorded|documented|reported|listed|on file|taken|currently|at (?:this|present) time))*"
    r"[.\s]*",
    re.IGNORECASE,
)
_OF_TEST = r"(?:(?:test|specimen|sample|result|order|lab|value)s? )?(?:(?:is|was|has been) )?"
_NO_VALUE = re.compile(
    rf"{_OF_TEST}(?:cancel(?:l?ed)?|not (?:done|performed|reported|reportable|available|tested|received|collected|"
    r"measured|obtained|applicable)|unavailable|pending|rejected|error|n/?a|qns|quantity not sufficient|to follow|"
    r"unable to (?:report|perform|calculate|analy[sz]e|determine|obtain)|see (?:comments?|notes?|below|report|text)|"
    r"no (?:result|specimen|sample)(?: received| available)?)(?: (?:by|at|per|due to|because of)\b.*)?",
    re.IGNORECASE,
)
"""A part of a value that says that there is none."""
_WHY_NONE = re.compile(
    rf"{_OF_TEST}(?:(?:grossly )?ha?emoly[sz]ed|ha?emolysis|clotted|contaminated|lip[ae]+mic|icteric|lost|discarded|"
    r"(?:quantity |volume )?(?:insufficient|too small)|"
    r"(?:insufficient|improper|wrong) (?:specimen|sample|quantity|tube)|specimen|sample|test|result)",
    re.IGNORECASE,
)
_CLAUSE_END = re.compile(r"[,;:.()]|\s-\s")
_LETTERS = re.compile(r"[^\W\d_]+")
_WORD_GAP = re.compile(r"[\s_-]+")
_NUMBER = re.compile(
    r"(<=|>=|<|>|≤|≥|less than|greater than)?\s?"
    r"([+-]?(?:[1-9]\d{0,2}(?:,\d{3}){2,3}(?:\.\d{1,15})?|[1-9]\d{0,2},\d{3}\.\d{1,15}|\d{1,15}(?:\.\d{1,15})?))\s?(\D.*)?",
    re.ASCII | re.IGNORECASE,
)


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


def choose_name(names: Iterable[str]) -> str:
    """Return the first name that is one, else the first placeholder that stands for a name, else nothing."""
    words = [name for name in names if name]
    return next((name for name in words if not _is_placeholder(name)), next(iter(words), ""))


def _is_placeholder(name: str) -> bool:
    return name.lower().strip(" .:-*") in _PLACEHOLDERS


def names_allergies(name: str) -> bool:
    """Return whether a name is that of a group of allergies, without a substance: `Allergy to drug (finding)`."""
    words = set(_LETTERS.findall(name.lower()))
    return not _ALLERGIES.isdisjoint(words) and words <= _ALLERGY_WORDS


def name_allergy(names: Iterable[str], reactions: str) -> tuple[str, str]:
    """Return what an allergy is against, by the first name with a substance, and its reactions.

    Behind a name without one the reactions are part of the name, since senders write the substance there.
    """
    words = [name for name in names if name]
    for name in words:
        if not (_is_placeholder(name) or names_allergies(name)):
            return name, reactions
    name = next(iter(words), "")
    return (f"{name}: {reactions}", "") if name and reactions else (name, reactions)


def name_status(codes: Iterable[str], words: str = "") -> str:
    """Return a status in FHIR's words: by the first code that has one, else by its own words, in lower case.

    A code decides, since a source may leave out its words. Words may have blanks, hyphens or underscores between them.
    """
    text = " ".join(words.lower().split())
    name = next((STATUS_NAMES[code] for code in codes if code in STATUS_NAMES), "")
    return name or STATUS_NAMES.get(_WORD_GAP.sub(" ", text), text)


def parse_value(text: str, unit: str = "") -> FactValue:
    """Return a value as written, with its number if it is one: `1.4`, `< 0.5`, `less than 5`, `150 mmol/L`.

    `1,250` may be 1250 or 1.25, so it is none; `1,250.5` and `1,250,000` are. A unit in the text counts if it is known
    and no other than `unit`. A single letter may be a flag, as in `150 H`.
    """
    text, unit = " ".join(text.split()), unit.strip()
    match = _NUMBER.fullmatch(text)
    if match is None or not _is_unit(match[3] or "", unit):
        return FactValue(text, unit=unit, written_unit=unit)
    comparator, unit = COMPARATORS[(match[1] or "").lower()], unit or match[3] or ""
    spelling = " ".join(filter(None, (comparator, match[2])))
    return FactValue(spelling, float(match[2].replace(",", "")), comparator, to_ucum(unit) or unit, unit)


def _is_unit(text: str, unit: str) -> bool:
    """Return whether the text behind a number is its unit, or nothing."""
    if not text or text == unit:
        return True
    if unit:
        return to_ucum(text) == to_ucum(unit) != ""
    return bool(to_ucum(text)) and not (len(text) == 1 and text.isalpha())


def name_code(system: str, code: str) -> str:
    """Return a code with the short name of its system, `loinc:2160-0`; `local:` if the system has none."""
    return f"{_CODE_SYSTEMS.get(system.strip(), 'local')}:{code}"


def name_denial(fact: ClinicalFact) -> ClinicalFact:
    """Return an allergy entry whose code says that there is none with the words of the code; others as they are."""
    words = (_NO_ALLERGIES.get(code.rpartition(":")[2]) for code in fact.codes)
    denial = next(filter(None, words), "") if fact.kind == "allergy" else ""
    return replace(fact, name=denial) if denial and not fact.name.lower().startswith("no ") else fact


def states_no_value(text: str) -> bool:
    """Return whether a text in the place of a value says only that there is none: `HEMOLYZED, TEST NOT PERFORMED`."""
    clauses = [clause for part in _CLAUSE_END.split(text) if (clause := " ".join(part.strip(" _*\t").split()))]
    says_none = [_NO_VALUE.fullmatch(clause) is not None for clause in clauses]
    return any(says_none) and all(
        none or _WHY_NONE.fullmatch(clause) for none, clause in zip(says_none, clauses, strict=True)
    )


def states_absence(fact: ClinicalFact) -> bool:
    """Return whether an entry says that there is nothing of its kind, or that nothing is known of it.

    An allergy entry that says that there is none is an answer of its own, and is kept.
    """
    is_listed = KINDS[fact.kind].denies_itself or (fact.kind == "observation" and fact.category in _LISTED_CATEGORIES)
    if fact.event == "end" or not is_listed:
        return False
    codes = [code.rpartition(":")[2] for code in fact.codes]
    is_unknown = any(_UNKNOWN_CODE.fullmatch(code) for code in codes) or _UNKNOWN_NAME.fullmatch(fact.name) is not None
    if fact.kind == "allergy":
        return is_unknown
    if _NO_VACCINE in fact.codes:
        return True
    return (
        is_unknown
        or any(_NONE_CODE.fullmatch(code) for code in codes)
        or (_NONE_NAME.fullmatch(fact.name) is not None and not EXCEPTION.search(fact.name))
    )


_CODES = """
8867-4 9279-1 8310-5 8331-1 8480-6 8462-4 8478-0 85354-9 2708-6 59408-5 29463-7 3141-9 8302-2 39156-5 55284-4 8328-7
9843-4 8289-1 85353-1
"""
VITAL_SIGNS = frozenset(f"loinc:{code}" for code in _CODES.split())
"""Their codes as facts have them: `loinc:8867-4`."""
