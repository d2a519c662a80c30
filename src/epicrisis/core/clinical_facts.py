"""Structured facts of a patient's record: medications, problems, laboratory values and others.

A reader of structured data writes documents with one fact a line. So facts are searched, scoped, cited,
copied and deleted like notes. The structured form of the lines is stored with them, in `Document.metadata[FACTS]`:

    Document(id, text, metadata={FACTS: write_facts(facts)})
    facts = read_facts(passage)

A fact never states anything later than its `time`: the end of a medication is a second fact with the same `source`, in
a document of the later day. So a search as of a date returns only what was known then.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, MISSING, dataclass, fields
from operator import attrgetter
from typing import Any, Literal, TypeAlias, TypeGuard, get_args

from epicrisis.core.dates import time_range
from epicrisis.core.fact_kinds import FactEvent, FactKind
from epicrisis.core.types import Passage

Comparator: TypeAlias = Literal["", "<", "<=", ">", ">="]
"""How a value stands to its number; empty: it is the number."""

FAMILY_HISTORY = "family-history"
"""The status of a problem that a relative has."""
FACTS = "clinical_facts"
"""The key of the facts in the metadata of documents and passages. A passage has the facts that begin in it."""


@dataclass(frozen=True, slots=True)
class ClinicalFact:
    """One structured fact, stated by the characters `start` to `end` of its document, once that is written."""

    kind: FactKind
    name: str
    """The words of the source: `Creatinine`, `Lisinopril 10 MG Oral Tablet`."""
    _: KW_ONLY
    start: int = 0
    end: int = 0
    event: FactEvent = "state"
    time: str | None = None
    """When it happened: a partial ISO date in local time, `2150-03-04T10:30` or less."""
    codes: tuple[str, ...] = ()
    """Codes with the short name of their system: `loinc:2160-0`, `rxnorm:314076`, `snomed:38341003`."""
    value: str = ""
    """The value or dose as written: `1.8`, `positive`, `10 mg once daily`."""
    number: float | None = None
    """The value as a number, in `unit`. A value with a comparator has its bound here."""
    comparator: Comparator = ""
    unit: str = ""
    """The unit as a UCUM code if the source has one or it could be mapped, else as written."""
    reference_range: str = ""
    interpretation: str = ""
    """What the source says of the value: `high`, `low`, `abnormal`."""
    status: str = ""
    """The status in the source, in its words: `active`, `final`, `corrected`, `refuted`."""
    category: str = ""
    """What kind of statement it is: `request`, `statement`, `administration`, `dispense`; `encounter-diagnosis`."""
    encounter: str = ""
    utc_offset: str = ""
    """The offset of `time` from UTC where the source has one: `+01:00`. `fact_times` orders facts by it."""
    source: str = ""
    """Where it comes from: `fhir:MedicationRequest/12`, `omop:measurement/7`. Facts of one record share it."""
    document_id: str = ""
    """Set by `read_facts`; not stored."""


_NOT_STORED = frozenset({"document_id"})
_WORDS = {
    "kind": get_args(FactKind),
    "event": get_args(FactEvent),
    "comparator": get_args(Comparator),
}
"""Fields with a fixed set of values."""
_TEXTS = frozenset(field.name for field in fields(ClinicalFact) if field.type == "str") - _NOT_STORED
_REQUIRED = ("kind", "name", "start", "end")


def write_facts(facts: Sequence[ClinicalFact]) -> list[dict[str, Any]]:
    """Return the facts as JSON data, by offset. Other fields than `_REQUIRED` are left out at their default value."""
    rows = []
    for fact in sorted(facts, key=lambda fact: fact.start):
        row = {}
        for (name, default), value in zip(_STORED_FIELDS, _stored_values(fact), strict=True):
            if value != default or name in _REQUIRED:
                row[name] = list(value) if isinstance(value, tuple) else value
        rows.append(row)
    return rows


def read_facts(passage: Passage) -> tuple[ClinicalFact, ...]:
    """Return the facts that begin in the passage, by offset in its document.

    Literature has none, and neither has a document with other data under the key.
    """
    rows = passage.metadata.get(FACTS)
    if passage.patient is None or not is_fact_list(rows):
        return ()
    facts = []
    for row in rows:
        values = {**row, "codes": tuple(row.get("codes", ())), "document_id": passage.document_id}
        facts.append(ClinicalFact(**values))
    return tuple(facts)


def select_rows(rows: Sequence[dict[str, Any]], start: int, end: int) -> list[dict[str, Any]]:
    """Return the stored facts that begin from `start` to before `end` of their document."""
    return [row for row in rows if start <= row["start"] < end]


def is_fact_list(value: Any) -> TypeGuard[list[dict[str, Any]]]:
    """Return whether this is a list that `write_facts` makes; a document's own key may be anything."""
    return isinstance(value, list | tuple) and all(map(_is_fact, value))


def _is_fact(row: Any) -> bool:
    if not isinstance(row, dict) or any(name not in row for name in _REQUIRED):
        return False
    return all(_is_field(name, value) for name, value in row.items())


def _is_field(name: Any, value: Any) -> bool:
    """Return whether a stored field has a value of its type."""
    if name in _WORDS:
        return isinstance(value, str) and value in _WORDS[name]
    if name in _TEXTS:
        return isinstance(value, str)
    if name in ("start", "end"):
        return type(value) is int and value >= 0
    if name == "number":
        return type(value) in (int, float) and math.isfinite(value)
    if name == "codes":
        return isinstance(value, list | tuple) and all(isinstance(code, str) for code in value)
    return name == "time" and isinstance(value, str) and _is_time(value)


def _is_time(time: str) -> bool:
    try:
        time_range(time)
    except ValueError:
        return False
    return True


_STORED_FIELDS = tuple(
    (field.name, None if field.default is MISSING else field.default)
    for field in fields(ClinicalFact)
    if field.name not in _NOT_STORED
)
"""Names and default values; a field without a default is always stored."""
_stored_values = attrgetter(*(name for name, _ in _STORED_FIELDS))
