"""Generate patients with structured facts, and questions whose right answers are known from how they were made.

    record = generate_record(seed)

The right answers come from the patient's invented history, not from the facts, so a computation that misreads a partial
date, a corrected value or a unit is found. A question without a right answer must not be answered.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, TypeAlias

from epicrisis.core.clinical_facts import FACTS, ClinicalFact, write_facts
from epicrisis.core.fact_kinds import FactEvent, FactKind
from epicrisis.core.types import Document
from epicrisis.evaluation.synthesis.patient_records.entry_questions import StructuredQuestion
from tests.support.value_questions import TRAPS, GeneratedValue, Trap, ask_values

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
_TIME = "%Y-%m-%dT%H:%M"


@dataclass(frozen=True, slots=True)
class GeneratedFacts:
    """A patient's documents with facts, and questions about them."""

    patient: str
    documents: tuple[Document, ...]
    questions: tuple[StructuredQuestion, ...]


@dataclass(slots=True)
class _Writer:
    """Writes the lines and the facts of one document."""

    patient: str
    lines: list[str] = field(default_factory=list)
    facts: list[ClinicalFact] = field(default_factory=list)
    length: int = 0

    def add(self, kind: FactKind, name: str, time: str | None, **details: Any) -> None:
        value, unit = str(details.get("value", "")), str(details.get("unit", ""))
        line = " ".join(filter(None, (time or "undated", f"{name}:", value, unit, str(details.get("status", "")))))
        self.facts.append(
            ClinicalFact(kind, name, start=self.length, end=self.length + len(line), time=time, **details)
        )
        self.lines.append(line)
        self.length += len(line) + 1

    def document(self, last: datetime) -> Document:
        text = "\n".join(self.lines)
        return Document(
            f"facts:{self.patient}",
            text,
            title="Structured entries",
            source="generated",
            date=f"{last:%Y-%m-%d}",
            patient=self.patient,
            metadata={FACTS: write_facts(self.facts)},
        )


def generate_record(seed: int) -> GeneratedFacts:
    """Return a fictional patient with facts and questions. Equal seeds give equal patients."""
    draw = random.Random(f"structured:{seed}")
    patient = f"s{seed:06}"
    writer = _Writer(patient)
    begin = datetime(2140, 1, 1) + timedelta(days=draw.randrange(2000))
    stays = _draw_stays(draw, begin)
    for number, (start, end) in enumerate(stays, 1):
        details = {"encounter": f"e{number}", "source": f"generated:encounter/{number}"}
        writer.add("encounter", "Inpatient encounter", f"{start:{_TIME}}", event="start", **details)
        writer.add("encounter", "Inpatient encounter", f"{end:{_TIME}}", event="end", **details)
    last = stays[-1][1] + timedelta(days=400)
    questions: list[StructuredQuestion] = []
    for analyte in draw.sample(ANALYTES, 5):
        questions += _add_analyte(draw, writer, analyte, stays, last)
    questions += _add_medication(draw, writer, begin, last)
    questions += _add_entries(draw, writer, begin, last)
    return GeneratedFacts(patient, (writer.document(last),), tuple(questions))


def _draw_stays(draw: random.Random, begin: datetime) -> list[tuple[datetime, datetime]]:
    stays: list[tuple[datetime, datetime]] = []
    start = begin + timedelta(days=draw.randrange(20, 300), hours=draw.randrange(24))
    for _ in range(draw.randrange(1, 5)):
        end = start + timedelta(days=draw.randrange(3, 15), hours=draw.randrange(1, 20))
        stays.append((start, end))
        start = end + timedelta(days=draw.randrange(30, 500), hours=draw.randrange(24))
    return stays


def _add_analyte(
    draw: random.Random,
    writer: _Writer,
    analyte: AnalyteRow,
    stays: Sequence[tuple[datetime, datetime]],
    last: datetime,
) -> list[StructuredQuestion]:
    """Write the values of an analyte and return questions about them."""
    name, code, unit, low, high, decimals, other_unit, urine = analyte
    trap = draw.choice(TRAPS)
    if (
        (trap == "unit" and other_unit is None)
        or (trap == "urine" and not urine)
        or (trap == "molar" and "g/" not in unit)
    ):
        trap = "none"
    values = _draw_values(draw, stays, last, low, high, decimals, unit)
    kind: FactKind = "vital-sign" if name in ("Body weight", "Heart rate") else "laboratory"
    _set_trap(draw, trap, values, other_unit)
    for number, value in enumerate(values):
        source = f"generated:{code}/{number}"
        details: dict[str, Any] = {"codes": (f"loinc:{code}",), "unit": value.unit, "source": source}
        if value.stay is not None:
            details["encounter"] = f"e{value.stay}"
        status = "final"
        if trap == "corrected" and number == len(values) - 1:
            wrong = str(value.stated_number + 1)
            writer.add(kind, name, value.time, value=wrong, number=float(wrong), status="final", **details)
            status = "corrected"
        writer.add(
            kind,
            name,
            value.time,
            value=f"{value.comparator}{value.text}",
            number=float(value.stated_number),
            comparator=value.comparator,
            status=status,
            **details,
        )
    if trap == "error":
        late = f"{last - timedelta(days=1):%Y-%m-%d}"
        writer.add(
            kind,
            name,
            late,
            value="9999",
            number=9999.0,
            unit=unit,
            codes=(f"loinc:{code}",),
            status="entered-in-error",
            source=f"generated:{code}/error",
        )
    if trap == "urine":
        late = f"{last - timedelta(days=2):%Y-%m-%d}"
        writer.add(
            kind,
            name,
            late,
            value="77",
            number=77.0,
            unit=unit,
            codes=(f"loinc:{urine}",),
            status="final",
            source=f"generated:{urine}/0",
        )
    return ask_values(draw, name, trap, values, stays)


def _draw_values(
    draw: random.Random,
    stays: Sequence[tuple[datetime, datetime]],
    last: datetime,
    low: float,
    high: float,
    decimals: int,
    unit: str,
) -> list[GeneratedValue]:
    """Return values in order of time: some in every stay and some outside, on different days, all of them different."""
    days: dict[str, tuple[datetime, int | None]] = {}
    for number, (start, end) in enumerate(stays, 1):
        for _ in range(draw.randrange(1, 5)):
            at = start + (end - start) * draw.uniform(0.05, 0.95)
            days.setdefault(f"{at:%Y-%m-%d}", (at, number))
    for _ in range(draw.randrange(1, 5)):
        at = stays[0][0] + (last - timedelta(days=10) - stays[0][0]) * draw.random()
        if not any(start - timedelta(days=2) <= at <= end + timedelta(days=2) for start, end in stays):
            days.setdefault(f"{at:%Y-%m-%d}", (at, None))
    values: list[GeneratedValue] = []
    used: set[Decimal] = set()
    for at, stay in sorted(days.values(), key=lambda day: day[0]):
        size = Decimal(f"{draw.uniform(low, high):.{decimals}f}")
        while size in used:
            size += Decimal(1).scaleb(-decimals)
        used.add(size)
        values.append(GeneratedValue(at, size, str(size), f"{at:{_TIME}}", unit, size, stay))
    return values


def _set_trap(
    draw: random.Random, trap: Trap, values: list[GeneratedValue], other_unit: tuple[str, float] | None
) -> None:
    """Change how the record states one of the values."""
    place = draw.randrange(len(values))
    value = values[place]
    if trap == "partial":
        values[place] = replace(value, time=f"{value.at:%Y-%m}", stay=None)
    elif trap == "comparator":
        bound = value.number + Decimal("0.5")
        values[place] = replace(value, comparator="<", stated_number=bound, text=str(bound))
    elif trap == "unit" and other_unit is not None:
        stated_number = value.number * Decimal(str(other_unit[1]))
        values[place] = replace(value, unit=other_unit[0], stated_number=stated_number, text=str(stated_number))
    elif trap == "molar":
        values[place] = replace(value, unit="umol/L", stated_number=Decimal(88), text="88")
    elif trap == "undated":
        values[place] = replace(value, time=None, stay=None)
    elif trap == "same-moment":
        end = values[-1]
        other = end.number + Decimal(3)
        values.append(replace(end, number=other, text=str(other), stated_number=other))


def _add_medication(draw: random.Random, writer: _Writer, begin: datetime, last: datetime) -> list[StructuredQuestion]:
    """Write courses of drugs, and return questions about them."""
    drugs = draw.sample(DRUGS, 5)
    current: set[str] = set()
    questions: list[StructuredQuestion] = []
    for number, name in enumerate(drugs[:4]):
        starts: list[datetime] = []
        ends: list[datetime] = []
        start = begin + timedelta(days=draw.randrange(300))
        is_ended = draw.random() < 0.5
        for course in range(draw.randrange(1, 3)):
            source = f"generated:medication/{number}-{course}"
            details = {"category": "request", "source": source, "codes": (f"rxnorm:{1000 + number}",)}
            writer.add(
                "medication", name, f"{start:%Y-%m-%d}", event="start", status="active", value="daily", **details
            )
            starts.append(start)
            end = start + timedelta(days=draw.randrange(20, 200))
            if is_ended or course == 0:
                writer.add("medication", name, f"{end:%Y-%m-%d}", event="end", status="stopped", **details)
                ends.append(end)
            start = end + timedelta(days=draw.randrange(30, 100))
        if len(ends) < len(starts):
            current.add(name)
        word = name.split()[0].lower()
        began = draw.choice((f"When was {word} started?", f"When was {word} first prescribed?"))
        questions += [
            StructuredQuestion(
                f"Is the patient on {word}?", "current drug", frozenset({name if name in current else "no entry"})
            ),
            StructuredQuestion(f"Has she ever taken {word}?", "ever", frozenset({"yes"})),
            StructuredQuestion(began, "started", frozenset({f"{starts[0]:%Y-%m-%d}"})),
            StructuredQuestion(
                f"When was {word} stopped?", "stopped", frozenset(f"{end:%Y-%m-%d}" for end in ends) if ends else None
            ),
        ]
    absent = drugs[4].split()[0].lower()
    listing = draw.choice(
        (
            "What medications does she take now?",
            "current medications",
            "What drugs is he on?",
            "List the current medications",
        )
    )
    return [
        *questions,
        StructuredQuestion(listing, "current list", frozenset(current) or frozenset({"no entry"})),
        StructuredQuestion(f"Has he ever been on {absent}?", "ever absent", frozenset({"no entry"})),
    ]


def _add_entries(draw: random.Random, writer: _Writer, begin: datetime, last: datetime) -> list[StructuredQuestion]:
    """Write problems, allergies and procedures, and return questions about them."""
    questions, active = list[StructuredQuestion](), set[str]()
    problems = draw.sample(PROBLEMS, 4)
    for number, name in enumerate(problems[:3]):
        onset = begin + timedelta(days=draw.randrange(400))
        status = draw.choice(("active", "active", "resolved", "refuted"))
        event: FactEvent = "start"
        source = f"generated:problem/{number}"
        writer.add("problem", name, f"{onset:%Y-%m}", event=event, status=status, source=source)
        if status == "active":
            active.add(name)
        expected = "no entry" if status == "refuted" else "yes"
        word = name.lower().split()[-1]
        questions.append(StructuredQuestion(f"Has the patient ever had {word}?", "ever problem", frozenset({expected})))
        if status != "refuted":
            began = frozenset({f"{onset:%Y-%m}"})
            questions.append(StructuredQuestion(f"When was {word} diagnosed?", "diagnosed", began))
    if active:
        questions.append(StructuredQuestion("What are the active problems?", "current problems", frozenset(active)))
    allergies = draw.sample(ALLERGIES, 3)
    for number, name in enumerate(allergies[:2]):
        writer.add("allergy", name, f"{begin:%Y}", status="active", source=f"generated:allergy/{number}")
    questions += [
        StructuredQuestion("What allergies does the patient have?", "allergies", frozenset(allergies[:2])),
        StructuredQuestion(f"Is she allergic to {allergies[0].split()[0].lower()}?", "allergic", frozenset({"yes"})),
        StructuredQuestion(
            f"Is he allergic to {allergies[2].split()[0].lower()}?", "allergic", frozenset({"no entry"})
        ),
    ]
    procedure = draw.choice(PROCEDURES)
    times = sorted({begin + timedelta(days=draw.randrange(900)) for _ in range(draw.randrange(1, 4))})
    for number, at in enumerate(times):
        source = f"generated:procedure/{number}"
        writer.add("procedure", procedure, f"{at:%Y-%m-%d}", status="completed", source=source)
    word = procedure.lower()
    questions += [
        StructuredQuestion(f"When was the last {word}?", "last procedure", frozenset({f"{times[-1]:%Y-%m-%d}"})),
        StructuredQuestion(f"How many {word} entries are there?", "count procedures", frozenset({str(len(times))})),
    ]
    return questions
