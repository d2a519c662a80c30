"""Structured facts of FHIR resources: results, problems, allergies, procedures, immunizations, stays, devices, flags.

for record in read_facts(resource, patient, encounter, medications): ...

What is not known before a later day is a fact of that day: the end of a problem, a result that was reported later.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from epicrisis.core.clinical_facts import ClinicalFact
from epicrisis.core.fact_kinds import FactKind
from epicrisis.corpus.records.facts.fact_documents import FactEntry, FactRecord, end_entry
from epicrisis.corpus.records.facts.fact_values import (
    ENCOUNTER_CLASSES,
    VITAL_SIGNS,
    choose_name,
    name_allergy,
    name_status,
    states_no_value,
)
from epicrisis.corpus.records.facts.times import describe_end, reported_since
from epicrisis.corpus.records.fhir.fhir_resources import (
    WITHDRAWN,
    Resource,
    as_list,
    is_hospital_stay,
    list_objects,
    read_stay_period,
)
from epicrisis.corpus.records.fhir.fhir_values import (
    concept_codes,
    join_concepts,
    read_absence,
    read_concept,
    read_interpretation,
    read_period,
    read_quantity,
    read_range,
    read_status,
    read_time,
    read_value,
)
from epicrisis.corpus.records.fhir.medications import MEDICATION_TYPES, FindMedication, read_medication

_ENTERED_IN_ERROR = "entered-in-error"
_WORD = re.compile(r"\w+")
_PAST_PROBLEM = ("resolved", "inactive", "remission")
_CLINICAL_STATUSES = (*_PAST_PROBLEM, "active", "recurrence", "relapse")
_VERIFICATION_STATUSES = (
    _ENTERED_IN_ERROR,
    "refuted",
    "ruled-out",
    "suspected",
    "unconfirmed",
    "provisional",
    "differential",
    "presumed",
    "confirmed",
)
_TIME_FIELDS = (
    *("effectiveDateTime", "effectiveInstant", "issued", "recordedDate", "onsetDateTime", "authoredOn"),
    *("performedDateTime", "occurrenceDateTime", "dateAsserted", "whenHandedOver"),
)


def read_facts(
    resource: Resource, patient: str, encounter: str, discharged: str, find_medication: FindMedication
) -> FactRecord | None:
    """Return the facts of a resource of `FACT_TYPES`. None: it is valid, but states none.

    `discharged`: the end of its encounter, empty if not known. Raises ValueError if it cannot be read.
    """
    kind, resource_id = str(resource["resourceType"]), str(resource.get("id") or "")
    source = f"fhir:{kind}/{resource_id}" if resource_id else ""
    if kind in MEDICATION_TYPES:
        entries = read_medication(resource, find_medication)
    elif kind == "Condition":
        entries = _read_condition(resource, read_time(discharged))
    else:
        entries = _READERS[kind](resource)
    if not entries:
        return None
    written_time = _unread_time(resource, entries)
    placed: list[FactEntry] = []
    for entry in entries:
        fact = replace(entry.fact, encounter=entry.fact.encounter or encounter, source=source)
        placed.append(replace(entry, fact=fact, written_time=written_time))
    meta = resource.get("meta")
    version = str(meta.get("lastUpdated") or "") if isinstance(meta, dict) else ""
    return FactRecord(patient, source, tuple(placed), version if source else None, is_withdrawn(resource))


def _unread_time(resource: Resource, entries: Sequence[FactEntry]) -> str:
    """Return a time as written, if the resource has one and none could be read."""
    if any(entry.fact.time for entry in entries):
        return ""
    times = (resource.get(name) for name in _TIME_FIELDS)
    return next((time for time in times if isinstance(time, str) and time.strip()), "")


def is_withdrawn(resource: Resource) -> bool:
    """Return whether the resource was entered in error. A cancelled observation has no result either."""
    if resource.get("resourceType") == "Observation" and read_status(resource) in WITHDRAWN:
        return True
    statuses = (_find_status(resource.get(name), (_ENTERED_IN_ERROR,)) for name in ("status", "verificationStatus"))
    return _ENTERED_IN_ERROR in statuses


def _read_observation(resource: Resource) -> list[FactEntry]:
    name, codes = read_concept(resource.get("code"))
    name = _name_fluid(name, codes, resource.get("specimen"))
    kind, category = _observation_kind(resource, codes)
    period = read_period(resource.get("effectivePeriod"))
    issued = read_time(resource.get("issued"))
    time = read_time(resource.get("effectiveDateTime"), resource.get("effectiveInstant"), period[0])
    time = time or _first_event(resource.get("effectiveTiming")) or issued
    status = read_status(resource)
    notes = " ".join(str(note["text"]) for note in as_list(resource.get("note")) if note.get("text"))
    site = join_concepts(resource.get("bodySite"))
    entries: list[FactEntry] = []
    absences: list[str] = []
    for part in (resource, *as_list(resource.get("component"))):
        value = read_value(part)
        part_name, part_codes = (name, codes) if part is resource else read_concept(part.get("code"))
        if not value.text or states_no_value(value.text):
            if absence := read_absence(part) or value.text:
                absences.append(absence if part is resource else f"{part_name} {absence}")
            continue
        if part is not resource and not VITAL_SIGNS.intersection(part_codes) and not _has_words(part_name, name):
            part_name = f"{name}, {part_name}"
        fact = ClinicalFact(
            kind,
            part_name or "Observation",
            time=time or None,
            codes=part_codes,
            value=value.text,
            number=value.number,
            comparator=value.comparator,
            unit=value.unit,
            reference_range="; ".join(filter(None, map(read_range, as_list(part.get("referenceRange"))))),
            interpretation=read_interpretation(part.get("interpretation")),
            status=status if status != "final" else "",
            category=category,
        )
        remark = " ".join(filter(None, (f"Site: {site}." if site else "", notes)))
        entries.append(FactEntry(fact, reported_since(time, issued), value.written_unit, remark))
    if absences and entries:
        entries[0] = replace(entries[0], remark=_join_remarks([entries[0].remark, f"{'; '.join(absences)}."]))
    elif absences and not is_withdrawn(resource):
        fact = ClinicalFact(kind, name, time=time or None, codes=codes, value="; ".join(absences), category=category)
        return [FactEntry(replace(fact, status="not-done"), reported_since(time, issued), remark=notes)]
    if not entries and is_withdrawn(resource):
        # Its day is known, from which an earlier version is removed.
        fact = ClinicalFact(kind, name, time=time or None, category=category)
        return [FactEntry(fact)]
    if not entries and not resource.get("hasMember"):
        raise ValueError("has no value that can be read")
    return entries


def _name_fluid(name: str, codes: Sequence[str], specimen: Any) -> str:
    """Return the name of a result. A name without a LOINC code tells urine, as the same name is a value of blood."""
    words = str(specimen.get("display") or "").lower() if isinstance(specimen, dict) else ""
    is_coded = any(code.startswith("loinc:") for code in codes)
    return f"{name} (Urine)" if "urin" in words and name and not is_coded and "urin" not in name.lower() else name


def _first_event(timing: Any) -> str:
    """Return the first time of a Timing, or an empty string."""
    return read_time(*as_list(timing.get("event"))) if isinstance(timing, dict) else ""


def _observation_kind(resource: Resource, codes: Sequence[str]) -> tuple[FactKind, str]:
    """Return the kind of an observation, and its category if the kind does not say it."""
    categories = concept_codes(resource.get("category"))
    words = join_concepts(as_list(resource.get("category"))[:1]).replace("-", " ").lower()
    if "laboratory" in categories or words == "laboratory":
        return "laboratory", ""
    if "vital-signs" in categories or words == "vital signs" or VITAL_SIGNS.intersection(codes):
        return "vital-sign", ""
    return "observation", words


def _read_condition(resource: Resource, discharged: str) -> list[FactEntry]:
    name, codes = read_concept(resource.get("code"))
    if not name:
        raise ValueError("names no problem; export it with its code or text")
    onset, abatement = _event_time(resource, "onset"), _event_time(resource, "abatement")
    recorded = read_time(resource.get("recordedDate"), resource.get("assertedDate"), resource.get("dateRecorded"))
    clinical, verification = _read_statuses(resource)
    is_diagnosis = "encounter-diagnosis" in concept_codes(resource.get("category"))
    remarks = [join_concepts(resource.get("severity")), join_concepts(resource.get("bodySite"))]
    stages = join_concepts([stage.get("summary") for stage in list_objects(resource.get("stage"))])
    remarks += [f"Stage: {stages}." if stages else "", _written_event(resource, "onset"), _note_text(resource)]
    is_past = bool(abatement) or clinical in _PAST_PROBLEM or _has_event(resource, "abatement")
    # A diagnosis of an encounter is complete when the encounter ends.
    since = recorded or ("" if onset else discharged)
    fact = ClinicalFact(
        "problem",
        name,
        event="start" if onset else "state",
        time=onset or since or None,
        codes=codes,
        status=", ".join(filter(None, ("" if is_past else clinical, verification))),
        category="encounter-diagnosis" if is_diagnosis else "",
    )
    entries = [FactEntry(fact, since, remark=_join_remarks(remarks))]
    if is_past:
        # A source may state an end and call the problem active.
        status = clinical if clinical in _PAST_PROBLEM else "resolved"
        entries.append(end_entry(fact, abatement, status, _written_event(resource, "abatement")))
    return entries


def _read_statuses(resource: Resource) -> tuple[str, str]:
    """Return the clinical status and, unless confirmed, the verification status.

    Servers send them with codes of their own beside FHIR's, or in words only.
    """
    clinical = _find_status(resource.get("clinicalStatus"), _CLINICAL_STATUSES)
    verification = _find_status(resource.get("verificationStatus"), _VERIFICATION_STATUSES)
    if not (clinical or verification) and isinstance(resource.get("status"), str):
        # DSTU2 has one status for both.
        status = read_status(resource)
        return (status, "") if status in _CLINICAL_STATUSES else ("", "" if status == "confirmed" else status)
    return clinical, "" if verification == "confirmed" else verification


def _find_status(concept: Any, statuses: Sequence[str]) -> str:
    """Return the status of FHIR that a concept has as a code or as its words, else its words in lower case."""
    codes = sorted(concept_codes(concept))
    name = name_status(codes, join_concepts(concept))
    return next((status for status in statuses if status in (*codes, name)), name)


def _has_event(resource: Resource, prefix: str) -> bool:
    return any(key.startswith(prefix) and value not in (None, False) for key, value in resource.items())


def _event_time(resource: Resource, prefix: str) -> str:
    """Return the start of `onset[x]`, or the end of `abatement[x]`, if it is a date."""
    start, end = read_period(resource.get(f"{prefix}Period"))
    return read_time(resource.get(f"{prefix}DateTime"), resource.get(f"{prefix}Date")) or (
        start if prefix == "onset" else end
    )


def _written_event(resource: Resource, prefix: str) -> str:
    """Return `onset[x]`, `abatement[x]` or the like in words if it is no date."""
    age = read_quantity(resource.get(f"{prefix}Age")).with_unit
    words = [f"at the age of {age}" if age else "", read_range(resource.get(f"{prefix}Range"))]
    words.append(str(resource.get(f"{prefix}String") or ""))
    text = ", ".join(filter(None, words))
    label = "Time" if prefix in ("performed", "occurrence") else prefix.capitalize()
    return f"{label}: {text}." if text else ""


def _has_words(name: str, other: str) -> bool:
    """Return whether a name has all words of the other: `Systolic blood pressure` those of `Blood pressure`."""
    return set(_WORD.findall(other.lower())) <= set(_WORD.findall(name.lower()))


def _read_allergy(resource: Resource) -> list[FactEntry]:
    name, codes = read_concept(resource.get("code") or resource.get("substance"))
    onset = _event_time(resource, "onset")
    recorded = read_time(resource.get("recordedDate"), resource.get("assertedDate"))
    clinical, verification = _read_statuses(resource)
    reactions, substances = [], []
    for reaction in as_list(resource.get("reaction")):
        words = join_concepts(reaction.get("manifestation")) or str(reaction.get("description") or "")
        severity = str(reaction.get("severity") or "")
        reactions.append(f"{words} ({severity})" if words and severity else words or severity)
        substances.append(read_concept(reaction.get("substance")))
    substance = ", ".join(dict.fromkeys(words for words, _ in substances if words))
    if not (name or substance):
        raise ValueError("names no substance; export it with its code or text")
    name, value = name_allergy((name, substance), ", ".join(filter(None, reactions)))
    if name == substance:
        codes = tuple(dict.fromkeys(code for _, substance_codes in substances for code in substance_codes)) or codes
    elif more := [words for words, _ in dict.fromkeys(substances) if words and words.lower() not in name.lower()]:
        # An allergy to sulfonamides, with a reaction to sulfamethoxazole.
        name = f"{name} ({', '.join(more)})"
    criticality = str(resource.get("criticality") or "")
    is_past = clinical in _PAST_PROBLEM
    fact = ClinicalFact(
        "allergy",
        name,
        event="start" if onset else "state",
        time=onset or recorded or None,
        codes=codes,
        value=value,
        interpretation=f"criticality {criticality}" if criticality else "",
        status=", ".join(filter(None, ("" if is_past else clinical, verification))),
        category=_allergy_category(resource),
    )
    remark = _join_remarks([_written_event(resource, "onset"), _note_text(resource)])
    entries = [FactEntry(fact, recorded, remark=remark)]
    return [*entries, end_entry(fact, "", clinical)] if is_past else entries


def _allergy_category(resource: Resource) -> str:
    """Return what an allergy is against, and whether it is an intolerance: `medication, intolerance`."""
    words = [word for word in as_list(resource.get("category")) if isinstance(word, str)]
    # A concept in R5, a code before.
    kinds = [resource["type"]] if isinstance(resource.get("type"), str) else sorted(concept_codes(resource.get("type")))
    return ", ".join(filter(None, (*words, *kinds)))


def _read_procedure(resource: Resource) -> list[FactEntry]:
    name, codes = read_concept(resource.get("code"))
    if not name:
        raise ValueError("names no procedure; export it with its code or text")
    start, end = read_period(resource.get("performedPeriod") or resource.get("occurrencePeriod"))
    time = read_time(resource.get("performedDateTime"), resource.get("occurrenceDateTime"), start, end)
    words = _written_event(resource, "performed") or _written_event(resource, "occurrence")
    sites, outcome = join_concepts(resource.get("bodySite")), join_concepts(resource.get("outcome"))
    reason = join_concepts(resource.get("statusReason"))
    remarks = [f"Site: {sites}." if sites else "", f"Outcome: {outcome}." if outcome else ""]
    remarks += [words, describe_end(time, end), reason, _note_text(resource)]
    fact = ClinicalFact(
        "procedure",
        name,
        time=time or None,
        codes=codes,
        status=_unusual_status(resource),
        category=", ".join(sorted(concept_codes(resource.get("category")) - {""})),
    )
    return [FactEntry(fact, end if end[:10] > time[:10] else "", remark=_join_remarks(remarks))]


def _read_immunization(resource: Resource) -> list[FactEntry]:
    name, codes = read_concept(resource.get("vaccineCode"))
    if not name:
        raise ValueError("names no vaccine; export it with its code or text")
    status, dose = read_status(resource), read_quantity(resource.get("doseQuantity"))
    is_done = status != "not-done" and resource.get("wasNotGiven") is not True
    time = read_time(resource.get("occurrenceDateTime"), resource.get("date"))
    reason = join_concepts(resource.get("statusReason"))
    remarks = [_series_text(resource), _written_event(resource, "occurrence"), reason, _note_text(resource)]
    fact = ClinicalFact(
        "immunization",
        name,
        event="given" if is_done else "state",
        time=time or None,
        codes=codes,
        value=dose.text,
        number=dose.number,
        unit=dose.unit,
        status=_unusual_status(resource) if is_done else "not-done",
    )
    recorded = read_time(resource.get("recorded")) if time else ""
    return [FactEntry(fact, reported_since(time, recorded), dose.written_unit, _join_remarks(remarks))]


def _series_text(resource: Resource) -> str:
    """Return which dose of its series a vaccination is: `Dose 2 of 3.`."""
    texts: list[str] = []
    for protocol in list_objects(resource.get("protocolApplied")):
        number, total = (
            str(protocol.get(name) or protocol.get(f"{name}PositiveInt") or protocol.get(f"{name}String") or "")
            for name in ("doseNumber", "seriesDoses")
        )
        if number:
            texts.append(f"Dose {number} of {total}." if total else f"Dose {number}.")
    return " ".join(texts)


def _read_encounter(resource: Resource) -> list[FactEntry]:
    name = join_concepts(resource.get("type")) or join_concepts(resource.get("serviceType")) or _class_words(resource)
    start, end = read_period(read_stay_period(resource))
    status = read_status(resource)
    detail = resource.get("hospitalization") or resource.get("admission") or {}
    reasons = join_concepts(resource.get("reasonCode") or resource.get("reason"))
    # R5 has a list of values within each reason.
    reasons = reasons or ", ".join(
        join_concepts(reason.get("value")) for reason in list_objects(resource.get("reason"))
    )
    remark = f"Reason: {reasons}." if reasons else ""
    is_stay = is_hospital_stay(resource)
    is_past = is_stay and bool(start and end)
    is_begun = is_past or (is_stay and status in ("in-progress", "onleave"))
    fact = ClinicalFact(
        "encounter",
        name or "encounter",
        event="start" if is_begun else "state",
        time=start or end or None,
        status="" if is_past else _unusual_status(resource),
        category=_class_words(resource),
        encounter=str(resource.get("id") or ""),
    )
    if not is_stay:
        # Nobody is admitted to a visit, nor to a stay that was planned or cancelled, whose end states nothing.
        end = "" if fact.status else end
        remark = _join_remarks([remark, describe_end(start, end)])
        return [FactEntry(fact, end if end[:10] > start[:10] else "", remark=remark)]
    entries = [FactEntry(fact, remark=remark)]
    if is_past:
        place = join_concepts(detail.get("dischargeDisposition"))
        entries.append(end_entry(fact, end, remark=f"Discharged to: {place}." if place else ""))
    return entries


def _read_device(resource: Resource) -> list[FactEntry]:
    """Return a device of a patient; one that is not used any more has an end."""
    name, codes = read_concept(resource.get("type"))
    names = [name, *(str(part.get("name") or "") for part in list_objects(resource.get("deviceName")))]
    names += [str(resource.get("model") or ""), str(resource.get("distinctIdentifier") or "")]
    name = choose_name(names)
    if not name:
        raise ValueError("names no device; export it with its type or name")
    return _state_course(resource, ClinicalFact("observation", name, codes=codes, category="devices"))


def _read_device_use(resource: Resource) -> list[FactEntry]:
    """Return the use of a device, which a reference, or in R5 a concept, names."""
    device = resource.get("device")
    device = device if isinstance(device, dict) else {}
    name, codes = read_concept(device)
    reference = device.get("reference")
    display = reference.get("display") if isinstance(reference, dict) else device.get("display")
    name = name or str(display or "")
    if not name:
        raise ValueError("names no device; export it with the words of its device")
    return _state_course(resource, ClinicalFact("observation", name, codes=codes, category="devices"))


def _read_flag(resource: Resource) -> list[FactEntry]:
    """Return a warning about a patient, such as a risk of falls."""
    name, codes = read_concept(resource.get("code"))
    if not name:
        raise ValueError("names no warning; export it with its code or text")
    return _state_course(resource, ClinicalFact("observation", name, codes=codes, category="flags"))


def _state_course(resource: Resource, fact: ClinicalFact) -> list[FactEntry]:
    """Return the beginning and the end of a device or a warning, by its period and its status."""
    start, end = read_period(resource.get("period") or resource.get("timingPeriod"))
    recorded = read_time(resource.get("timingDateTime"), resource.get("recordedOn"), resource.get("dateAsserted"))
    status = read_status(resource)
    is_past = status in ("inactive", "completed", "stopped") or bool(end)
    fact = replace(
        fact,
        event="start" if start else "state",
        time=start or recorded or None,
        status="" if is_past or status == "active" else status,
    )
    entries = [FactEntry(fact, remark=_note_text(resource))]
    return [*entries, end_entry(fact, end, status)] if is_past else entries


def _class_words(resource: Resource) -> str:
    words = []
    for concept in as_list(resource.get("class")):
        is_coding = isinstance(concept, dict) and "code" in concept
        if is_coding:
            code = str(concept["code"])
            words.append(str(concept.get("display") or ENCOUNTER_CLASSES.get(code.upper(), code)))
        else:
            # R5 has concepts, whose only words may be the code.
            name = read_concept(concept)[0]
            words.append(ENCOUNTER_CLASSES.get(name.upper(), name))
    return ", ".join(filter(None, words))


def _unusual_status(resource: Resource) -> str:
    status = read_status(resource)
    return "" if status in ("completed", "finished", "final") else status


def _note_text(resource: Resource) -> str:
    return " ".join(str(note["text"]) for note in as_list(resource.get("note")) if note.get("text"))


def _join_remarks(remarks: Sequence[str]) -> str:
    return " ".join(filter(None, remarks))


_READERS: Mapping[str, Callable[[Resource], list[FactEntry]]] = {
    "Observation": _read_observation,
    "AllergyIntolerance": _read_allergy,
    "Procedure": _read_procedure,
    "Immunization": _read_immunization,
    "Encounter": _read_encounter,
    "Device": _read_device,
    "DeviceUseStatement": _read_device_use,
    "DeviceUsage": _read_device_use,
    "Flag": _read_flag,
}
FACT_TYPES = frozenset((*_READERS, "Condition", *MEDICATION_TYPES))
"""The types of resources that state facts."""
