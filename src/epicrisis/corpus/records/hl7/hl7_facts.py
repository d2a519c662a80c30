"""Structured facts of HL7 v2: each result of an order, and comments about the order.

    for record in build_fact_records(group, header, patient, encounter): ...

A result is identified by facility, order, code and sub-id, so that a later message corrects or cancels it. Messages do
not repeat the results of a day, so each result is a document of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from epicrisis.core.clinical_facts import ClinicalFact
from epicrisis.core.fact_kinds import FactKind
from epicrisis.corpus.records.facts.fact_documents import FactEntry, FactRecord
from epicrisis.corpus.records.facts.fact_values import INTERPRETATIONS, VITAL_SIGNS, FactValue, name_code
from epicrisis.corpus.records.facts.times import read_fact_time, reported_since, split_offset
from epicrisis.corpus.records.hl7.hl7_values import iso_time
from epicrisis.corpus.records.hl7.messages import Hl7Segment
from epicrisis.corpus.records.hl7.notes import (
    WITHDRAWN,
    Hl7Group,
    concept_name,
    order_id,
    read_value,
    result_status,
)

_LABORATORY = frozenset("LAB CH HM MB SR BLB CG IMM TX VR CP SP OSL GE MCB MYC PHR".split())  # noqa: SIM905
"""Sections of a laboratory in OBR-24."""
_USUAL_STATUS = "final"
_NO_RESULT = "not-done"
"""The status of a result that has no value."""
_URINE = ("urine", "urinalysis")
_ORGANISMS = frozenset({"loinc:600-7", "loinc:6463-4", "loinc:634-6", "loinc:630-4"})
"""Codes of results that name an organism: bacteria of blood, of any source, of aerobic and of urine cultures."""


def build_fact_records(group: Hl7Group, header: Hl7Segment, patient: str, encounter: str) -> Iterator[FactRecord]:
    """Yield the results of a group, and the comments about its order."""
    sent = iso_time(header.text(7))
    order_key = order_id(group.order, header)
    # Without a number of the order, the message is what a repetition has in common.
    key = order_key or ":".join(filter(None, (header.text(4) or header.text(3), header.text(10))))
    repetitions: Counter[str] = Counter()
    for result, comments in group.results:
        name = f"{key}:{result.text(3) or concept_name(result, 3)}:{result.text(4)}".rstrip(":")
        repetitions[name] += 1
        source = f"hl7:{name}" if repetitions[name] == 1 else f"hl7:{name}#{repetitions[name]}"
        entry = _build_result(group, result, comments, source, encounter, sent)
        yield _build_record(patient, source, entry, sent)
    for number, comment in enumerate(group.comments, 1):
        source = f"hl7:{key}:comment:{number}"
        kind, category = _find_kind(group, (), "")
        panel = _order_name(group)
        fact = ClinicalFact(
            kind,
            f"Comment ({panel})" if panel else "Comment",
            time=first_time(sent, *_order_times(group), sent) or None,
            value=_join_words(comment),
            category=category,
            encounter=encounter,
            source=source,
        )
        yield _build_record(patient, source, FactEntry(fact), sent)


def _build_record(patient: str, source: str, entry: FactEntry, sent: str) -> FactRecord:
    is_withdrawn = entry.fact.status in WITHDRAWN
    return FactRecord(patient, source, (entry,), sent, is_withdrawn, is_separate=True)


def _build_result(
    group: Hl7Group, result: Hl7Segment, comments: Sequence[Hl7Segment], source: str, encounter: str, sent: str
) -> FactEntry:
    value, status = read_value(result), _find_status(group, result)
    if not value.text and status not in WITHDRAWN:
        is_open = status in ("registered", "preliminary")
        value, status = FactValue("in progress" if is_open else "no value"), "registered" if is_open else _NO_RESULT
    codes = read_codes(result, 3)
    kind, category = _find_kind(group, codes, result.text(7))
    written_times = (iso_time(result.text(14)), *_order_times(group), sent)
    time = first_time(sent, *written_times)
    fact = ClinicalFact(
        kind,
        _result_name(group, result, codes),
        time=time or None,
        codes=codes,
        value=value.text,
        number=value.number,
        comparator=value.comparator,
        unit=value.unit,
        reference_range=result.text(7),
        interpretation=", ".join(filter(None, map(_describe_flag, result.repetitions(8)))),
        status=status if status != _USUAL_STATUS else "",
        category=category,
        encounter=encounter,
        source=source,
    )
    panel = _order_name(group)
    remarks = [f"Order: {panel}." if panel and panel.lower() != fact.name.lower() else "", *map(_join_words, comments)]
    reported = first_time(sent, _order_times(group)[1])
    written_time = "" if time else next(filter(None, written_times), "")
    return FactEntry(
        fact, reported_since(time, reported), value.written_unit, " ".join(filter(None, remarks)), written_time
    )


def _find_status(group: Hl7Group, result: Hl7Segment) -> str:
    """Return the status of a result: its own, else that of its order."""
    if result.text(11) or group.order is None or group.order.name != "OBR":
        return result_status(result, 11)
    return "preliminary" if group.order.text(25).upper() == "A" else result_status(group.order, 25)


def _result_name(group: Hl7Group, result: Hl7Segment, codes: Sequence[str]) -> str:
    """Return the name of a result.

    A susceptibility names its organism: `Ampicillin (Escherichia coli)`. A name without a LOINC code tells urine, as
    the same name is a value of blood.
    """
    name = concept_name(result, 3) or "Result"
    if organism := _find_organism(group, result, codes):
        return f"{name} ({organism})"
    context = f"{_order_name(group)} {group.order.text(15) if group.order is not None else ''}".lower()
    is_coded = any(code.startswith("loinc:") for code in codes)
    is_urine = any(word in context for word in _URINE)
    return f"{name} (Urine)" if is_urine and not is_coded and "urin" not in name.lower() else name


def _find_organism(group: Hl7Group, result: Hl7Segment, codes: Sequence[str]) -> str:
    """Return the organism of a susceptibility: of its parent result (OBR-26), or with its sub-id. Empty for others."""
    if group.order is not None and (organism := group.order.text(26, 3)):
        return organism
    number = result.text(4)
    if not number or _names_organism(result, codes):
        return ""
    for other, _ in group.results:
        if other.text(4) == number and _names_organism(other, read_codes(other, 3)):
            return read_value(other).text
    return ""


def _names_organism(result: Hl7Segment, codes: Sequence[str]) -> bool:
    return not _ORGANISMS.isdisjoint(codes) or "organism" in concept_name(result, 3).lower()


def read_codes(segment: Hl7Segment, field_number: int) -> tuple[str, ...]:
    """Return the codes of a coded field, those of LOINC first."""
    codes = []
    for code, system in ((1, 3), (4, 6)):
        if segment.text(field_number, code) and (segment.text(field_number, system) or code == 4):
            codes.append(name_code(segment.text(field_number, system), segment.text(field_number, code)))
    return tuple(sorted(dict.fromkeys(codes), key=lambda code: not code.startswith("loinc:")))


def _find_kind(group: Hl7Group, codes: Sequence[str], span: str) -> tuple[FactKind, str]:
    """Return the kind of a result, and its category if the kind does not say it."""
    service = group.order.text(24).upper() if group.order is not None else ""
    if VITAL_SIGNS.intersection(codes):
        return "vital-sign", ""
    if service in _LABORATORY or (span and not service):
        return "laboratory", ""
    return "observation", service.lower()


def _order_name(group: Hl7Group) -> str:
    return concept_name(group.order, 4) if group.order is not None else ""


def _order_times(group: Hl7Group) -> tuple[str, str]:
    if group.order is None:
        return "", ""
    return iso_time(group.order.text(7)), iso_time(group.order.text(22))


def first_time(sent: str, *times: str) -> str:
    """Return the first time that can be read, a partial ISO date with its offset from UTC, or an empty string.

    A time without an offset has that of the message, as HL7 defines, which is that of the time when it was `sent`.
    """
    default = split_offset(read_fact_time(sent))[1]
    for text in times:
        if time := read_fact_time(text):
            local, offset = split_offset(time)
            return local + (offset or default) if "T" in local else local
    return ""


def _describe_flag(flag: Sequence[str]) -> str:
    return INTERPRETATIONS.get(flag[0].upper(), flag[0])


def _join_words(segment: Hl7Segment) -> str:
    return " ".join(segment.free_text(3).split())
