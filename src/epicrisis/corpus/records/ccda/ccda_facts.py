"""Structured facts of the coded entries of a C-CDA document: medications, problems, results, stays and others.

    facts = read_entries(root)    # in the child process of `sandbox`

The section decides what an entry states. What cannot be read is counted by its reason.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

from epicrisis.core.clinical_facts import ClinicalFact
from epicrisis.core.fact_kinds import LASTING_KINDS, FactKind
from epicrisis.corpus.base.patient_numbers import format_identifier
from epicrisis.corpus.records.ccda.ccda_values import (
    Narrative,
    read_amount,
    read_attribute,
    read_concept,
    read_encounter_id,
    read_interpretation,
    read_period,
    read_quantity,
    read_reference_range,
    read_text,
    read_time,
    read_value,
)
from epicrisis.corpus.records.facts.fact_documents import FactEntry, end_entry
from epicrisis.corpus.records.facts.fact_values import (
    DENIED_STATUSES,
    ENCOUNTER_CLASSES,
    VISIT_CLASSES,
    VITAL_SIGNS,
    choose_name,
    name_allergy,
    name_denial,
    name_status,
)
from epicrisis.corpus.records.facts.times import describe_end, reported_since, split_offset
from epicrisis.corpus.records.hl7.hl7_values import DAY_EVENTS, iso_time

if TYPE_CHECKING:
    from lxml.etree import _Element

_OVER = {"completed": "completed"}
_STOPPED = ("inactive", "resolved", "stopped", "discontinued", "completed")
"""What a status observation says of a medication that is no longer taken."""
_PAST = ("resolved", "inactive", "remission")
_NULLIFIED = "nullified"
_RESULT_STATUSES = {
    "aborted": "cancelled",
    "cancelled": "cancelled",
    "active": "preliminary",
    "held": "preliminary",
    "suspended": "preliminary",
}
_STATUS_CODE, _SEVERITY_CODE, _COMMENT_CODE, _CRITICALITY_CODE = "33999-4", "SEV", "48767-8", "82606-5"
_STATUS_TEMPLATES = frozenset(
    f"2.16.840.1.113883.10.20.{template}"
    for template in ("22.4.6", "22.4.28", "22.4.47", "1.50", "1.39", "1.47", "1.57")
)
"""Statuses of problems, allergies and medications."""
_CONCERN_TEMPLATES = ("2.16.840.1.113883.10.20.22.4.3", "2.16.840.1.113883.10.20.22.4.30")
"""Concerns about a problem and an allergy."""
_SEVERITIES = {
    "255604002": "mild",
    "371923003": "mild to moderate",
    "6736007": "moderate",
    "371924009": "moderate to severe",
    "24484000": "severe",
    "399166001": "fatal",
}
_CRITICALITIES = {"CRITL": "low", "CRITH": "high", "CRITU": "unable-to-assess"}
_ALLERGY_CATEGORIES = {
    "416098002": "medication, allergy",
    "419511003": "medication",
    "59037007": "medication, intolerance",
    "414285001": "food, allergy",
    "418471000": "food",
    "235719002": "food, intolerance",
    "419199007": "allergy",
    "426232007": "environment, allergy",
}
"""What an allergy is against, as FHIR names it, by the SNOMED code of its value."""


@dataclass(frozen=True, slots=True)
class CodedFacts:
    """The facts of the entries of a document."""

    entries: tuple[tuple[FactEntry, ...], ...] = ()
    """Those of each entry. They share their source."""
    problems: Mapping[str, int] = field(default_factory=dict)
    """How many entries were not read, by reason."""


@dataclass(frozen=True, slots=True)
class _Context:
    """What an entry is read with."""

    kind: FactKind
    narrative: Narrative
    document_day: str


_Read: TypeAlias = Callable[["_Element", _Context], list[FactEntry]]


def read_entries(root: _Element) -> CodedFacts:
    """Return the facts of the coded entries of a document, whose tags have no namespace."""
    problems: Counter[str] = Counter()
    rows: list[tuple[FactEntry, ...]] = []
    sources: Counter[str] = Counter()
    document_id = _join_id(root.find("id"))
    for section in root.iter("section"):
        code = _find_section(section)
        narrative = {element.get("ID") or "": element for element in section.iterfind("text//*[@ID]")}
        for entry in section.iterchildren("entry"):
            if code not in _SECTIONS:
                problems[f"C-CDA entry of {_UNREAD_SECTIONS.get(code, 'another section')}"] += 1
                continue
            context = _Context(_SECTIONS[code][0], narrative, read_time(root.find("effectiveTime"))[:10])
            for statement, read_statement in _list_readings(entry, code):
                if problem := _refuse(statement):
                    problems[problem] += 1
                elif facts := _place_in_encounter(statement, read_statement(statement, context)):
                    rows.append(_name_source(statement, facts, document_id, sources))
                else:
                    problems["C-CDA entry without a name or value"] += 1
    return CodedFacts(tuple(rows), dict(problems))


def _find_section(section: _Element) -> str:
    """Return the LOINC code of a section: its own, that of a translation, or of its template; else its own."""
    code = section.find("code")
    codes = [
        read_attribute(part, "code") for part in (() if code is None else (code, *code.iterchildren("translation")))
    ]
    for template in section.iterchildren("templateId"):
        codes.append(_TEMPLATES.get((template.get("root") or "").removeprefix("2.16.840.1.113883.10.20."), ""))
    return next((code for code in codes if code in _SECTIONS or code in _UNREAD_SECTIONS), "")


def _list_readings(entry: _Element, code: str) -> Iterator[tuple[_Element, _Read]]:
    """Yield the statements of an entry with their readers: an encounter may state its diagnoses."""
    _, tags, read_statement = _SECTIONS[code]
    for statement in _list_statements(entry, tags):
        yield statement, read_statement
        if statement.tag == "procedure" and read_statement is _read_procedure:
            for device in statement.iterfind("participant/participantRole/playingDevice"):
                if read_concept(device.find("code"), {})[0]:
                    yield statement, _read_device
                    break
        if statement.tag == "encounter":
            for diagnosis in statement.iterfind("entryRelationship/act/entryRelationship/observation"):
                yield diagnosis, _read_encounter_diagnosis


def _list_statements(entry: _Element, tags: tuple[str, ...]) -> Iterator[_Element]:
    """Yield the elements that state the facts of an entry: itself, or those within its act or organizer."""
    for element in entry:
        if element.tag in tags:
            yield element
        elif element.tag in ("act", "organizer"):
            for path in ("entryRelationship", "component"):
                for inner in element.iterchildren(path):
                    if inner.get("typeCode", "COMP") not in ("SUBJ", "COMP"):
                        continue
                    yield from _list_statements(inner, tags)


def _refuse(statement: _Element) -> str:
    """Return why an entry states nothing about the patient, or an empty string."""
    if statement.get("nullFlavor") or read_attribute(statement.find("statusCode"), "code") == _NULLIFIED:
        return "withdrawn or empty C-CDA entry"
    if statement.find("subject") is not None:
        return "C-CDA entry about another person"
    is_drug_order = statement.tag == "substanceAdministration" and statement.get("moodCode") == "INT"
    if statement.get("moodCode", "EVN") != "EVN" and not is_drug_order:
        return "planned C-CDA entry"
    return ""


def _place_in_encounter(statement: _Element, entries: list[FactEntry]) -> list[FactEntry]:
    """Return the facts with the encounter that the entry, or the act or organizer around it, refers to."""
    for element in (statement, *statement.iterancestors("act", "organizer")):
        for number in element.iterfind("entryRelationship[@inversionInd='true']/encounter/id"):
            if encounter := read_encounter_id(number):
                return [replace(entry, fact=replace(entry.fact, encounter=encounter)) for entry in entries]
    return entries


def _name_source(
    statement: _Element, entries: list[FactEntry], document_id: str, sources: Counter[str]
) -> tuple[FactEntry, ...]:
    """Return the facts with their source: id, code, and the time unless they last. Senders use one id for several."""
    fact = entries[0].fact
    parts = [_join_id(statement.find("id")) or document_id, next(iter(fact.codes), fact.name)]
    if fact.kind not in LASTING_KINDS:
        parts.append(split_offset(fact.time or "")[0])
    source = "ccda:" + ":".join(filter(None, parts))
    sources[source] += 1
    if sources[source] > 1:
        source = f"{source}#{sources[source]}"
    return tuple(replace(entry, fact=replace(entry.fact, source=source)) for entry in entries)


def _join_id(element: _Element | None) -> str:
    return format_identifier(read_attribute(element, "root"), read_attribute(element, "extension"))


def _read_result(statement: _Element, context: _Context) -> list[FactEntry]:
    name, codes = read_concept(statement.find("code"), context.narrative)
    value = read_value(statement.find("value"), context.narrative)
    name = name or next(iter(codes), "")
    if not name or not value.text:
        return []
    time = read_period(statement)[0] or read_period(_find_parent(statement))[0]
    kind: FactKind = "vital-sign" if VITAL_SIGNS.intersection(codes) else context.kind
    status = read_attribute(statement.find("statusCode"), "code")
    if status in ("", "completed"):
        # The organizer of a panel says that not all of it is final.
        status = read_attribute(_find_parent(statement).find("statusCode"), "code")
    is_negated = statement.get("negationInd") == "true"
    fact = ClinicalFact(
        kind,
        name,
        time=time or None,
        codes=codes,
        value=value.text,
        number=value.number,
        comparator=value.comparator,
        unit=value.unit,
        reference_range=read_reference_range(statement, context.narrative),
        interpretation=read_interpretation(statement),
        status="not-done" if is_negated else _RESULT_STATUSES.get(status, ""),
    )
    since = reported_since(time, _author_time(statement))
    return [
        FactEntry(fact, since, value.written_unit, _read_comment(statement, context), _unread_time(statement, time))
    ]


def _find_parent(statement: _Element) -> _Element:
    """Return the organizer of a result, which has the time if the result has none."""
    parent = next(statement.iterancestors("organizer"), None)
    return statement if parent is None else parent


def _read_problem(statement: _Element, context: _Context) -> list[FactEntry]:
    name, codes = read_concept(statement.find("value"), context.narrative)
    name = choose_name((name, read_text(statement.find("text"), context.narrative), *codes))
    if not name:
        return []
    return _state_course(statement, context, ClinicalFact("problem", name, codes=codes))


def _read_encounter_diagnosis(statement: _Element, context: _Context) -> list[FactEntry]:
    """Return a diagnosis of an encounter. Without a date of its own, it has that of the encounter."""
    encounter = next(statement.iterancestors("encounter"))
    start, end = read_period(encounter)
    context = replace(context, document_day=(end or start)[:10] or context.document_day)
    number = read_encounter_id(encounter.find("id"))
    entries: list[FactEntry] = []
    for entry in _read_problem(statement, context):
        fact = replace(entry.fact, category="encounter-diagnosis", encounter=number)
        entries.append(replace(entry, fact=fact))
    return entries


def _read_allergy(statement: _Element, context: _Context) -> list[FactEntry]:
    agent = statement.find("participant/participantRole/playingEntity")
    name, codes = read_concept(None if agent is None else agent.find("code"), context.narrative)
    names = [name, "" if agent is None else read_text(agent.find("name"), context.narrative)]
    kind, kind_codes = read_concept(statement.find("value"), context.narrative)
    if not any(names):
        # "No known allergies" is a negated allergy to nothing by name, or has a code that says so.
        codes = kind_codes
        kind = kind or name_denial(ClinicalFact("allergy", "", codes=codes)).name
    reactions: list[str] = []
    for reaction in statement.iterfind("entryRelationship[@typeCode='MFST']/observation"):
        words = read_concept(reaction.find("value"), context.narrative)[0]
        severity = _name_inner(reaction, _SEVERITY_CODE, _SEVERITIES, context)
        reactions.append(f"{words} ({severity})" if words and severity else words)
    category = _ALLERGY_CATEGORIES.get(read_attribute(statement.find("value"), "code"), "")
    name, value = name_allergy((*names, kind), ", ".join(filter(None, reactions)))
    if not name:
        return []
    severity = _name_inner(statement, _SEVERITY_CODE, _SEVERITIES, context)
    criticality = _name_inner(statement, _CRITICALITY_CODE, _CRITICALITIES, context)
    criticality = criticality.removesuffix(" criticality").lower()
    remarks = [f"severity {severity}" if severity else "", f"criticality {criticality}" if criticality else ""]
    fact = ClinicalFact(
        "allergy", name, codes=codes, value=value, category=category,
        interpretation=", ".join(filter(None, remarks)),
    )  # fmt: skip
    return _state_course(statement, context, fact)


def _state_course(statement: _Element, context: _Context, fact: ClinicalFact) -> list[FactEntry]:
    """Return the beginning of a problem or allergy, and its end."""
    onset, end = read_period(statement)
    concern = next(statement.iterancestors("act"), None)
    recorded = _author_time(statement) or ("" if concern is None else _author_time(concern))
    status = _read_status(statement, context)
    act_status = "" if concern is None else read_attribute(concern.find("statusCode"), "code")
    has_end = statement.find("effectiveTime/high") is not None
    denial = "refuted" if statement.get("negationInd") == "true" else status if status in DENIED_STATUSES else ""
    is_past = not denial and (bool(end) or status in _PAST or (has_end and act_status == "completed"))
    if status in ("", "active") and act_status in ("aborted", "suspended"):
        status = act_status
    elif status in ("", "active") and act_status == "completed" and _is_tracked(concern):
        # "Only when the underlying allergy is no longer of concern": the two contradict each other.
        status = "unknown"
    elif not status and act_status == "active":
        status = act_status
    state = ClinicalFact(
        fact.kind,
        fact.name,
        event="start" if onset and not denial else "state",
        time=onset or recorded or context.document_day or None,
        codes=fact.codes,
        value=fact.value,
        interpretation=fact.interpretation,
        category=fact.category,
        status=denial or ("" if is_past else status),
    )
    entries = [FactEntry(state, recorded, remark=_read_comment(statement, context))]
    if is_past:
        past = status if status in _PAST else "resolved"
        entries.append(end_entry(state, end, past))
    return entries


def _is_tracked(concern: _Element | None) -> bool:
    """Return whether an act is a concern of C-CDA, whose status tells if it goes on. In CCD it is always completed."""
    return concern is not None and any(
        template.get("root") in _CONCERN_TEMPLATES for template in concern.iterchildren("templateId")
    )


def _read_medication(statement: _Element, context: _Context) -> list[FactEntry]:
    name, codes = _product(statement, context)
    if not name:
        return []
    start, end = read_period(statement)
    dose = read_quantity(statement.find("doseQuantity"))
    status = read_attribute(statement.find("statusCode"), "code")
    status_name = _read_status(statement, context)
    is_negated = statement.get("negationInd") == "true"
    denial = "not-taken" if is_negated else status_name if status_name in DENIED_STATUSES else ""
    is_planned = bool(end) and end[:10] > context.document_day
    # Older documents call every medication completed, so the status alone is no end.
    is_stopped = status == "aborted" or status_name in _STOPPED
    is_over = is_stopped or (bool(end) and not is_planned)
    if status_name == "on-hold" or status == "suspended":
        status = "on-hold"
    is_intended = "" < context.document_day < start[:10] and not is_stopped
    if is_intended:
        status = "intended"
    fact = ClinicalFact(
        "medication",
        name,
        event="start" if start and not (denial or is_intended) else "state",
        time=start or _author_time(statement) or context.document_day or None,
        codes=codes,
        value=read_directions(statement, name, context.narrative),
        number=dose.number,
        unit=dose.unit,
        status=denial or ("" if is_over or status == "completed" else status),
        category="request" if statement.get("moodCode") == "INT" else "statement",
    )
    entries = [FactEntry(fact, _author_time(statement), remark=_read_comment(statement, context))]
    if (is_over or end) and not (denial or is_intended):
        past = "stopped" if is_stopped else _OVER.get(status, "") if is_over else "planned"
        # A planned end after a stop is not when it ended.
        end = "" if is_stopped and is_planned else end
        entries.append(end_entry(fact, end, past))
    return entries


def _read_immunization(statement: _Element, context: _Context) -> list[FactEntry]:
    name, codes = _product(statement, context)
    if not name:
        return []
    dose = read_quantity(statement.find("doseQuantity"))
    is_done = statement.get("negationInd") != "true" and statement.get("moodCode") != "INT"
    fact = ClinicalFact(
        "immunization",
        name,
        event="given" if is_done else "state",
        time=read_period(statement)[0] or None,
        codes=codes,
        value=dose.text,
        number=dose.number,
        unit=dose.unit,
        status="" if is_done else "not-done",
    )
    time = _unread_time(statement, fact.time or "")
    remark = " ".join(filter(None, (_read_reason(statement, context), _read_comment(statement, context))))
    return [FactEntry(fact, "", dose.written_unit, remark, time)]


def _read_procedure(statement: _Element, context: _Context) -> list[FactEntry]:
    name, codes = read_concept(statement.find("code"), context.narrative)
    name = name or read_text(statement.find("text"), context.narrative)
    if not name:
        return []
    start, end = read_period(statement)
    status = read_attribute(statement.find("statusCode"), "code")
    is_negated = statement.get("negationInd") == "true"
    site = read_concept(statement.find("targetSiteCode"), context.narrative)[0]
    fact = ClinicalFact(
        "procedure",
        name,
        time=start or end or None,
        codes=codes,
        status="not-done" if is_negated else {"completed": "", "aborted": "stopped"}.get(status, status),
    )
    remark = " ".join(filter(None, (f"Site: {site}." if site else "", _read_comment(statement, context))))
    since = end if start and end[:10] > start[:10] else ""
    return [FactEntry(fact, since, remark=remark, written_time=_unread_time(statement, fact.time or ""))]


def _read_device(statement: _Element, context: _Context) -> list[FactEntry]:
    """Return a device or implant: of a supply, or of the procedure that placed it."""
    device = statement.find("participant/participantRole/playingDevice")
    name, codes = read_concept(None if device is None else device.find("code"), context.narrative)
    product, product_codes = _product(statement, context, "product")
    words = read_text(None if device is None else device.find("manufacturerModelName"), context.narrative)
    act, act_codes = read_concept(statement.find("code"), context.narrative)
    name = choose_name((name, product, words, act, read_text(statement.find("text"), context.narrative)))
    if not name:
        return []
    start, end = read_period(statement)
    is_negated = statement.get("negationInd") == "true"
    fact = ClinicalFact(
        "observation",
        name,
        event="start" if start and not is_negated else "state",
        time=start or context.document_day or None,
        codes=codes or product_codes or act_codes,
        status="refuted" if is_negated else "",
        category="devices",
    )
    entries = [FactEntry(fact, remark=_read_comment(statement, context))]
    return [*entries, end_entry(fact, end)] if end and not is_negated else entries


def _product(statement: _Element, context: _Context, place: str = "consumable") -> tuple[str, tuple[str, ...]]:
    material = statement.find(f"{place}/manufacturedProduct/manufacturedMaterial")
    if material is None:
        return "", ()
    name, codes = read_concept(material.find("code"), context.narrative)
    return choose_name((name, read_text(material.find("name"), context.narrative))), codes


def _read_reason(statement: _Element, context: _Context) -> str:
    """Return why something was done, or was not done: the observation of the relationship `RSON`."""
    words = [
        read_concept(reason.find("value"), context.narrative)[0]
        or read_concept(reason.find("code"), context.narrative)[0]
        for reason in statement.iterfind("entryRelationship[@typeCode='RSON']/observation")
    ]
    return f"Reason: {', '.join(filter(None, words))}." if any(words) else ""


def _read_encounter(statement: _Element, context: _Context) -> list[FactEntry]:
    """Return the beginning of a stay and its end, or a visit."""
    name, codes = read_concept(statement.find("code"), context.narrative)
    classes: list[str] = []
    for code in (*statement.iterfind("code"), *statement.iterfind("code/translation")):
        classes.append(ENCOUNTER_CLASSES.get(read_attribute(code, "code").upper(), ""))
    start, end = read_period(statement)
    if not name and not start:
        return []
    is_open = read_attribute(statement.find("statusCode"), "code") == "active"
    category = next(filter(None, classes), "")
    is_visit = category in VISIT_CLASSES.values() or (not category and bool(end) and end[:10] == start[:10])
    fact = ClinicalFact(
        "encounter",
        name or "encounter",
        event="start" if start and (end or is_open) and not is_visit else "state",
        time=start or end or None,
        codes=codes,
        category=category,
        encounter=read_encounter_id(statement.find("id")),
    )
    comment = " ".join(filter(None, (_read_reason(statement, context), _read_comment(statement, context))))
    if is_visit:
        remark = " ".join(filter(None, (describe_end(start, end), comment)))
        return [FactEntry(fact, end if start and end[:10] > start[:10] else "", remark=remark)]
    entries = [FactEntry(fact, remark=comment)]
    if start and end:
        entries.append(FactEntry(replace(fact, event="end", time=end)))
    return entries


def _name_inner(statement: _Element, code: str, names: Mapping[str, str], context: _Context) -> str:
    """Return the value of the observation with this code within an entry: named by its own code, else its words."""
    for inner in statement.iterfind("entryRelationship/observation"):
        if read_attribute(inner.find("code"), "code") == code:
            value = inner.find("value")
            return names.get(read_attribute(value, "code")) or read_concept(value, context.narrative)[0]
    return ""


def _read_status(statement: _Element, context: _Context) -> str:
    """Return the status that an observation within an entry gives it, in FHIR's words: by its code, else its words."""
    for inner in statement.iterfind("entryRelationship/observation"):
        templates = {template.get("root") for template in inner.iterchildren("templateId")}
        if read_attribute(inner.find("code"), "code") != _STATUS_CODE and templates.isdisjoint(_STATUS_TEMPLATES):
            continue
        words, codes = read_concept(inner.find("value"), context.narrative)
        if status := name_status((code.partition(":")[2] for code in codes), words):
            return status
    return ""


def _read_comment(statement: _Element, context: _Context) -> str:
    texts: list[str] = []
    for act in statement.iterfind("entryRelationship/act"):
        if read_attribute(act.find("code"), "code") == _COMMENT_CODE:
            texts.append(read_text(act.find("text"), context.narrative))
    return " ".join(filter(None, texts))


def _author_time(statement: _Element) -> str:
    return read_time(statement.find("author/time"))


def _unread_time(statement: _Element, time: str) -> str:
    """Return a time as written if it could not be read."""
    return "" if time else iso_time(read_attribute(statement.find("effectiveTime")))


_UNREAD_SECTIONS = {
    "10157-6": "family history",
    "29762-2": "social history",
    "18776-5": "the plan",
    "47420-5": "functional status",
    "10190-7": "mental status",
    "42348-3": "advance directives",
    "48768-6": "payers",
    "69730-0": "instructions",
    "51847-2": "assessment and plan",
    "59774-0": "anesthesia",
    "59776-5": "findings of a procedure",
    "59768-2": "indications of a procedure",
    "59772-4": "planned procedures",
}
"""Sections whose entries are no facts of this module, by LOINC code."""
_TEMPLATES = {
    **dict.fromkeys(("22.2.1", "22.2.1.1", "1.8"), "10160-0"),
    **dict.fromkeys(("22.2.11", "22.2.11.1"), "10183-2"),
    "22.2.44": "42346-7",
    "22.2.38": "29549-3",
    **dict.fromkeys(("22.2.5", "22.2.5.1", "1.11"), "11450-4"),
    "22.2.20": "11348-0",
    "22.2.24": "11535-2",
    "22.2.43": "46241-6",
    **dict.fromkeys(("22.2.6", "22.2.6.1", "1.2"), "48765-2"),
    **dict.fromkeys(("22.2.3", "22.2.3.1", "1.14"), "30954-2"),
    **dict.fromkeys(("22.2.4", "22.2.4.1", "1.16"), "8716-3"),
    **dict.fromkeys(("22.2.7", "22.2.7.1", "1.12"), "47519-4"),
    **dict.fromkeys(("22.2.2", "22.2.2.1", "1.6"), "11369-6"),
    **dict.fromkeys(("22.2.22", "22.2.22.1", "1.3"), "46240-8"),
    **dict.fromkeys(("22.2.23", "1.7"), "46264-8"),
    **dict.fromkeys(("22.2.15", "1.4"), "10157-6"),
    "22.2.17": "29762-2",
    "22.2.10": "18776-5",
    "22.2.14": "47420-5",
}
"""LOINC codes of sections by their templates of C-CDA and CCD, without `2.16.840.1.113883.10.20.`."""
_PROBLEM_SECTIONS = (
    *("11450-4", "11535-2", "78375-3", "46241-6", "11348-0"),
    *("59769-0", "10218-6", "55109-3"),
)
"""Problem lists, diagnoses of discharge, admission and after an operation, past illness, complications."""
_DRUG = ("substanceAdministration",)
_SECTIONS: Mapping[str, tuple[FactKind, tuple[str, ...], _Read]] = {
    **dict.fromkeys(("10160-0", "10183-2", "75311-1", "42346-7", "29549-3"), ("medication", _DRUG, _read_medication)),
    **dict.fromkeys(_PROBLEM_SECTIONS, ("problem", ("observation",), _read_problem)),
    "48765-2": ("allergy", ("observation",), _read_allergy),
    "30954-2": ("laboratory", ("observation",), _read_result),
    "8716-3": ("vital-sign", ("observation",), _read_result),
    "47519-4": ("procedure", ("procedure", "observation", "act"), _read_procedure),
    "11369-6": ("immunization", _DRUG, _read_immunization),
    "46240-8": ("encounter", ("encounter",), _read_encounter),
    "46264-8": ("observation", ("supply", "procedure"), _read_device),
}
"""What the entries of a section are: kind, elements that state them, and their reader, by LOINC code."""


_DIRECTIONS_CODE = "76662-6"
"""The code of a medication's directions as free text."""
_WORD = re.compile(r"[^\W_]+")
_TAKEN = frozenset(
    word
    for words in (
        "daily day days every each once twice thrice times hour hours hr hrs h bedtime morning evening night",
        "noon meal meals breakfast lunch dinner needed prn qd bid tid qid qhs hs qam qpm qod weekly week",
        "weeks monthly month take inhale apply inject instill chew swallow dissolve place use give tablet",
        "tablets capsule capsules puff puffs drop drops unit units spray sprays patch patches mouth orally",
    )
    for word in words.split()
)
"""Words of directions."""


def read_directions(statement: _Element, name: str, narrative: Narrative) -> str:
    """Return how a medication of this name is taken: as the source words it, else dose, route and interval.

    The narrative of the entry is used if it says more than the name, since codes leave out what they have no code for.
    """
    for inner in statement.iterfind("entryRelationship/substanceAdministration"):
        is_free_text = read_attribute(inner.find("code"), "code") == _DIRECTIONS_CODE
        if is_free_text and (words := read_text(inner.find("text"), narrative)):
            return words
    words = _describe_dose(statement, narrative)
    text = read_text(statement.find("text"), narrative)
    beyond_name = [word for word in _WORD.findall(text.lower()) if word not in set(_WORD.findall(name.lower()))]
    is_direction = not _TAKEN.isdisjoint(beyond_name) or (bool(beyond_name) and not any(map(str.isdigit, words)))
    return text if is_direction else words


def _describe_dose(statement: _Element, narrative: Narrative) -> str:
    """Return dose, rate, route, interval, reason and limit."""
    dose, rate = (_read_dose(statement.find(name), narrative) for name in ("doseQuantity", "rateQuantity"))
    parts = [dose, f"at {rate}" if dose and rate else rate]
    parts += [read_concept(statement.find("routeCode"), narrative)[0], _schedule(statement)]
    for criterion in statement.iterfind("precondition/criterion"):
        reason = read_concept(criterion.find("value"), narrative)[0] or read_text(criterion.find("text"), narrative)
        parts.append(f"as needed for {reason}" if reason else "as needed")
    limit = statement.find("maxDoseQuantity")
    if limit is not None and (most := read_amount(limit.find("numerator"))):
        period = read_amount(limit.find("denominator"))
        parts.append(f"(at most {most} per {period.removeprefix('1 ')})" if period else f"(at most {most})")
    return " ".join(filter(None, parts))


def _read_dose(element: _Element | None, narrative: Narrative) -> str:
    """Return an amount, in the source's own words if its code has no unit: `30 units` for 30."""
    amount = read_amount(element)
    if element is not None and not any(map(str.isalpha, amount)):
        for original in element.iterfind("translation/originalText"):
            if words := read_text(original, narrative):
                return words
    return amount


def _schedule(statement: _Element) -> str:
    """Return when a medication is taken: `every 12 h`, `at bedtime`."""
    parts: list[str] = []
    times = [part for time in statement.iterchildren("effectiveTime") for part in (time, *time.iter("comp"))]
    for time in times:
        if period := read_amount(time.find("period")):
            parts.append(f"every {period}")
        event = read_attribute(time.find("event"), "code").upper()
        if event:
            parts.append(DAY_EVENTS.get(event, f"at {event}"))
    return ", ".join(dict.fromkeys(parts))
