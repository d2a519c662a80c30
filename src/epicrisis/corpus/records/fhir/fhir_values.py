"""Values of FHIR as text, numbers and codes: concepts, quantities, ranges and periods."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from epicrisis.core.clinical_facts import Comparator
from epicrisis.core.ucum import to_ucum
from epicrisis.corpus.records.facts.fact_values import COMPARATORS, INTERPRETATIONS, FactValue, name_status, parse_value
from epicrisis.corpus.records.facts.times import read_fact_time
from epicrisis.corpus.records.fhir.fhir_resources import as_list, concept_text, list_objects

_SYSTEMS = {
    "http://loinc.org": "loinc",
    "urn:oid:2.16.840.1.113883.6.1": "loinc",
    "http://snomed.info/sct": "snomed",
    "urn:oid:2.16.840.1.113883.6.96": "snomed",
    "http://www.nlm.nih.gov/research/umls/rxnorm": "rxnorm",
    "urn:oid:2.16.840.1.113883.6.88": "rxnorm",
    "http://hl7.org/fhir/sid/icd-10-cm": "icd10cm",
    "http://hl7.org/fhir/sid/icd-10": "icd10",
    "http://hl7.org/fhir/sid/icd-9-cm": "icd9cm",
    "http://www.cms.gov/medicare/coding/icd10": "icd10pcs",
    "http://hl7.org/fhir/sid/cvx": "cvx",
    "http://hl7.org/fhir/sid/ndc": "ndc",
    "http://www.ama-assn.org/go/cpt": "cpt",
    "http://www.whocc.no/atc": "atc",
}
_UCUM = ("http://unitsofmeasure.org", "urn:oid:2.16.840.1.113883.6.8")


def read_concept(value: Any) -> tuple[str, tuple[str, ...]]:
    """Return words and codes of a CodeableConcept, or of R5's CodeableReference."""
    if isinstance(value, dict) and isinstance(value.get("concept"), dict):
        value = value["concept"]
    if isinstance(value, str):
        return value.strip(), ()
    if not isinstance(value, dict):
        return "", ()
    codes = []
    for coding in list_objects(value.get("coding")):
        system, code = str(coding.get("system") or ""), coding.get("code")
        if code:
            name = _SYSTEMS.get(system) or system.rstrip("/").replace(":", "/").rpartition("/")[2].lower() or "local"
            codes.append(f"{name}:{code}")
    return " ".join(concept_text(value).split()), tuple(dict.fromkeys(codes))


def concept_codes(values: Any) -> set[str]:
    """Return the bare codes of one or more concepts, in lower case: `problem-list-item`."""
    codes = set()
    for concept in as_list(values):
        if isinstance(concept, str):
            codes.add(concept.lower())
        codings = as_list(concept.get("coding")) if isinstance(concept, dict) else []
        codes.update(str(coding.get("code") or "").lower() for coding in codings if isinstance(coding, dict))
    return codes


def read_status(resource: Mapping[str, Any]) -> str:
    """Return the `status` of a resource in FHIR's words, also if it is written with blanks or in capitals."""
    return name_status((), str(resource.get("status") or ""))


def join_concepts(values: Any) -> str:
    """Return the words of several concepts, separated by commas."""
    return ", ".join(filter(None, (read_concept(value)[0] for value in as_list(values))))


def read_interpretation(values: Any) -> str:
    """Return what a source says of a value in words: `high`."""
    words = (read_concept(value)[0] for value in as_list(values))
    return ", ".join(filter(None, (INTERPRETATIONS.get(word) or _uncapitalize(word) for word in words)))


def _uncapitalize(word: str) -> str:
    """Return a word with a small first letter; a code such as `ND` as it is."""
    return word if word.isupper() else word[:1].lower() + word[1:]


def read_time(*values: Any) -> str:
    """Return the first time that can be read, a partial ISO date with its offset from UTC, or an empty string."""
    for value in values:
        if isinstance(value, str) and (time := read_fact_time(value)):
            return time
    return ""


def read_period(value: Any) -> tuple[str, str]:
    """Return start and end of a Period; empty without them."""
    if not isinstance(value, dict):
        return "", ""
    return read_time(value.get("start")), read_time(value.get("end"))


def read_number(value: Any) -> float | None:
    """Return a finite number of JSON, or None."""
    if isinstance(value, bool):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def read_quantity(quantity: Any) -> FactValue:
    """Return a Quantity. The unit is UCUM if the source says so or it could be mapped, else as written."""
    if not isinstance(quantity, dict) or quantity.get("value") in (None, ""):
        return FactValue()
    written_unit = str(quantity.get("unit") or quantity.get("code") or "").strip()
    if quantity.get("system") in _UCUM and quantity.get("code"):
        unit = str(quantity["code"]).strip()
    else:
        unit = to_ucum(written_unit) or to_ucum(str(quantity.get("code") or "")) or written_unit
    if written_unit == "1":
        # What UCUM calls the unit of a number without one would look like a digit.
        written_unit, unit = "", unit if unit != "1" else ""
    comparator: Comparator = COMPARATORS.get(str(quantity.get("comparator") or ""), "")
    text = " ".join(filter(None, (comparator, str(quantity["value"]))))
    return FactValue(text, read_number(quantity["value"]), comparator, unit, written_unit)


def read_range(interval: Any) -> str:
    """Return a Range or a reference range in words: `12 to 16 g/dL`, `at most 5`."""
    if not isinstance(interval, dict):
        return ""
    if interval.get("text"):
        return str(interval["text"])
    low, high = read_quantity(interval.get("low")), read_quantity(interval.get("high"))
    if low.text and high.text:
        same_unit = low.written_unit == high.written_unit
        return f"{low.text if same_unit else low.with_unit} to {high.with_unit}"
    if low.text:
        return f"at least {low.with_unit}"
    return f"at most {high.with_unit}" if high.text else ""


def read_value(resource: Mapping[str, Any], prefix: str = "value") -> FactValue:
    """Return the value of an Observation or a component, of any type. Without one, `text` is empty."""
    for key, value in resource.items():
        if not key.startswith(prefix) or value is None or key[len(prefix) :][:1].islower():
            continue
        if isinstance(value, bool):
            return FactValue("yes" if value else "no")
        if isinstance(value, int | float):
            return FactValue(str(value), read_number(value))
        if isinstance(value, dict):
            described = _describe_object(value)
        elif key == f"{prefix}String":
            # Laboratories send `<0.01` and `2.5` as strings, too.
            described = parse_value(str(value))
        else:
            described = FactValue(" ".join(str(value).split()))
        if described.text:
            return described
    return FactValue()


def read_absence(resource: Mapping[str, Any]) -> str:
    """Return in words why an Observation or a component has no value; empty if it says no reason."""
    reason = concept_text(resource.get("dataAbsentReason"))
    return f"not available ({reason})" if reason else ""


def _describe_object(value: Mapping[str, Any]) -> FactValue:
    """Return a Range, Ratio, Quantity, Period or concept."""
    if "low" in value or "high" in value:
        return FactValue(read_range(value))
    if "numerator" in value:
        above, below = read_quantity(value["numerator"]), read_quantity(value.get("denominator"))
        return FactValue(f"{above.with_unit} / {below.with_unit}")
    if "value" in value:
        return read_quantity(value)
    if "start" in value or "end" in value:
        return FactValue(" to ".join(filter(None, map(str, (value.get("start"), value.get("end"))))))
    return FactValue(read_concept(value)[0])
