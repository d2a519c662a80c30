"""The kinds of structured facts: how each is named, asked for, placed in time, and read from which formats.

A new kind is one object here, and its reading in the formats that have it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

FactKind: TypeAlias = Literal[
    "medication",
    "problem",
    "allergy",
    "procedure",
    "laboratory",
    "vital-sign",
    "immunization",
    "observation",
    "encounter",
]
FactEvent: TypeAlias = Literal["state", "start", "end", "given"]
"""What happened at the fact's time: it was measured or held, it began, it ended, or a dose was given."""
RecordFormat: TypeAlias = Literal["fhir", "ccda", "hl7", "omop", "mimic"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KindOfFact:
    """One kind of structured facts."""

    name: FactKind
    singular: str
    plural: str
    documents: str = ""
    """What documents of the kind are called, if not by the plural."""
    openings: Mapping[FactEvent, str] = field(default_factory=dict)
    """How a line begins that states such a fact, by what happened."""
    asked_by: str = ""
    """A regular expression of the words of a question that ask for entries of the kind."""
    is_value: bool = False
    """Whether it is measured, and a line states its value behind a colon."""
    lasts: bool = False
    """Whether it begins, lasts and ends. Such facts are listed once in a chart, with their first and last time."""
    is_done: bool = False
    """Whether it is done at a time, so that nothing of it is current."""
    is_given: bool = False
    """Whether what did not happen was not given, rather than not done."""
    denies_itself: bool = False
    """Whether a list of the kind says in an entry that it is empty."""
    not_read_from: frozenset[RecordFormat] = frozenset()
    """Formats whose readers do not serve it, because they have no such entries, or name them otherwise."""


_KINDS = (
    KindOfFact(
        name="problem",
        singular="problem",
        plural="problems",
        openings={"start": "Onset of ", "end": "End of ", "state": "Problem: "},
        asked_by=r"problems?(?: list)?|diagnos[ie]s|diagnosed(?: with)?|conditions?|comorbidit(?:y|ies)|illness(?:es)?",
        lasts=True,
        denies_itself=True,
    ),
    KindOfFact(
        name="allergy",
        singular="allergy",
        plural="allergies",
        openings={"start": "Onset of allergy: ", "end": "End of allergy: ", "state": "Allergy: "},
        asked_by=r"allerg(?:y|ies|ic|en|ens)(?: to| list)?|intoleran(?:ce|ces|t)(?: to| of)?",
        lasts=True,
        denies_itself=True,
        not_read_from=frozenset({"mimic"}),
    ),
    KindOfFact(
        name="medication",
        singular="medication",
        plural="medications",
        openings={"start": "Started ", "end": "End of ", "given": "Given: ", "state": "Medication: "},
        asked_by=r"medications?(?: list)?|medicines?|meds|drugs?|prescri(?:bed|ptions?)|tak(?:e|es|en|ing)|took|"
        r"(?:treated|treatment) with|(?:is|been|was|she|he|patient) on(?= )",
        lasts=True,
        is_given=True,
        denies_itself=True,
    ),
    KindOfFact(
        name="procedure",
        singular="procedure",
        plural="procedures",
        openings={"start": "Began procedure: ", "end": "End of procedure: ", "state": "Procedure: "},
        asked_by=r"procedures?|surger(?:y|ies)|operations?|underwent|undergone|undergo",
        is_done=True,
        denies_itself=True,
    ),
    KindOfFact(
        name="immunization",
        singular="immunization",
        plural="immunizations",
        openings={"given": "Immunization: ", "state": "Immunization: "},
        asked_by=r"(?:vaccin\w*|immuni[sz]\w*|shots?|jabs?)(?: against| for)?",
        is_done=True,
        is_given=True,
        denies_itself=True,
        not_read_from=frozenset({"mimic"}),
    ),
    KindOfFact(
        name="laboratory",
        singular="laboratory value",
        plural="laboratory values",
        documents="laboratory results",
        is_value=True,
    ),
    KindOfFact(name="vital-sign", singular="vital sign", plural="vital signs", is_value=True),
    KindOfFact(
        name="observation",
        singular="observation",
        plural="observations",
        openings={"start": "Began: ", "end": "End of "},
        is_value=True,
    ),
    KindOfFact(
        name="encounter",
        singular="stay or visit",
        plural="stays and visits",
        openings={"start": "Admitted: ", "end": "Discharged: ", "state": "Visit: "},
        not_read_from=frozenset({"hl7"}),
    ),
)
KINDS: Mapping[str, KindOfFact] = {kind.name: kind for kind in _KINDS}
"""By name, in the order of a chart."""
VALUE_KINDS: frozenset[FactKind] = frozenset(kind.name for kind in _KINDS if kind.is_value)
LASTING_KINDS: tuple[FactKind, ...] = tuple(kind.name for kind in _KINDS if kind.lasts)
