"""Generate patients with structured facts, and questions whose right answers are known from how they were made.

    record = generate_record(seed)

The right answers come from the patient's invented history, not from the facts, so a computation that misreads a partial
date, a corrected value or a unit is found. A question without a right answer must not be answered.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Literal, TypeAlias

from epicrisis.clinical_facts import FACTS, ClinicalFact, FactEvent, FactKind, write_facts
from epicrisis.evaluation.synthesis.structured_entries import (
    ALLERGIES,
    ANALYTES,
    DRUGS,
    PROBLEMS,
    PROCEDURES,
    AnalyteRow,
)
from epicrisis.types import Document

Trap: TypeAlias = Literal[
    "none", "partial", "comparator", "corrected", "error", "unit", "molar", "urine", "same-moment", "undated"
]
"""What makes the values of an analyte hard to compute with."""
TRAPS: tuple[Trap, ...] = (
    "none",
    "none",
    "none",
    "partial",
    "comparator",
    "corrected",
    "error",
    "unit",
    "molar",
    "urine",
    "same-moment",
    "undated",
)
_ORDINALS = ("first", "second", "third", "fourth")
_TIME = "%Y-%m-%dT%H:%M"


@dataclass(frozen=True, slots=True)
class StructuredQuestion:
    """A question with its right answer."""

    text: str
    category: str
    """`last`, `between`, `stay`, ... with the trap of its values."""
    expected: frozenset[str] | None
    """The parts of the right result in any order. None: it must not be answered."""


@dataclass(frozen=True, slots=True)
class GeneratedFacts:
    """A patient's documents with facts, and questions about them."""

    patient: str
    documents: tuple[Document, ...]
    questions: tuple[StructuredQuestion, ...]


@dataclass(slots=True)
class _Value:
    """A measurement as it happened, and how the record states it."""

    at: datetime
    number: Decimal
    text: str
    time: str | None
    unit: str
    shown: Decimal
    stay: int | None
    comparator: str = ""

    @property
    def result(self) -> str:
        return f"{self.comparator}{self.text} {self.unit}".strip()


@dataclass(slots=True)
class _Writer:
    """Writes the lines and the facts of one document."""

    patient: str
    lines: list[str] = field(default_factory=list)
    facts: list[ClinicalFact] = field(default_factory=list)
    length: int = 0

    def add(self, kind: FactKind, name: str, time: str | None, **more: Any) -> None:
        value, unit = str(more.get("value", "")), str(more.get("unit", ""))
        line = " ".join(filter(None, (time or "undated", f"{name}:", value, unit, str(more.get("status", "")))))
        self.facts.append(ClinicalFact(kind, name, self.length, self.length + len(line), time=time, **more))
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
        more = {"encounter": f"e{number}", "source": f"generated:encounter/{number}"}
        writer.add("encounter", "Inpatient encounter", f"{start:{_TIME}}", event="start", **more)
        writer.add("encounter", "Inpatient encounter", f"{end:{_TIME}}", event="end", **more)
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
        more: dict[str, Any] = {"codes": (f"loinc:{code}",), "unit": value.unit, "source": source}
        if value.stay is not None:
            more["encounter"] = f"e{value.stay}"
        status = "final"
        if trap == "corrected" and number == len(values) - 1:
            wrong = str(value.shown + 1)
            writer.add(kind, name, value.time, value=wrong, number=float(wrong), status="final", **more)
            status = "corrected"
        writer.add(
            kind,
            name,
            value.time,
            value=f"{value.comparator}{value.text}",
            number=float(value.shown),
            comparator=value.comparator,
            status=status,
            **more,
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
    return _ask_values(draw, name, trap, values, stays)


def _draw_values(
    draw: random.Random,
    stays: Sequence[tuple[datetime, datetime]],
    last: datetime,
    low: float,
    high: float,
    decimals: int,
    unit: str,
) -> list[_Value]:
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
    values: list[_Value] = []
    used: set[Decimal] = set()
    for at, stay in sorted(days.values(), key=lambda day: day[0]):
        size = Decimal(f"{draw.uniform(low, high):.{decimals}f}")
        while size in used:
            size += Decimal(1).scaleb(-decimals)
        used.add(size)
        values.append(_Value(at, size, str(size), f"{at:{_TIME}}", unit, size, stay))
    return values


def _set_trap(draw: random.Random, trap: Trap, values: list[_Value], other_unit: tuple[str, float] | None) -> None:
    """Change how the record states one of the values."""
    value = draw.choice(values)
    if trap == "partial":
        value.time = f"{value.at:%Y-%m}"
        value.stay = None
    elif trap == "comparator":
        value.comparator = "<"
        bound = value.number + Decimal("0.5")
        value.shown, value.text = bound, str(bound)
    elif trap == "unit" and other_unit is not None:
        value.unit = other_unit[0]
        value.shown = value.number * Decimal(str(other_unit[1]))
        value.text = str(value.shown)
    elif trap == "molar":
        value.unit, value.shown, value.text = "umol/L", Decimal(88), "88"
    elif trap == "undated":
        value.time = None
        value.stay = None
    elif trap == "same-moment":
        end = values[-1]
        other = end.number + Decimal(3)
        values.append(_Value(end.at, other, str(other), end.time, end.unit, other, end.stay))


def _ask_values(
    draw: random.Random,
    name: str,
    trap: Trap,
    values: Sequence[_Value],
    stays: Sequence[tuple[datetime, datetime]],
) -> list[StructuredQuestion]:
    """Return questions about the values of an analyte with the answers that are right."""
    word = name.lower()
    asked = {"Alanine aminotransferase": "ALT", "C-reactive protein": "CRP", "Hemoglobin A1c": "A1c"}.get(name, word)
    word = draw.choice((word, asked))
    if trap == "urine":
        bare = f"What is the last {word}?"
        return [
            StructuredQuestion(bare, "last urine", None),
            StructuredQuestion(f"What was the highest {word}?", "highest urine", None),
            StructuredQuestion(
                f"What is the last urine {word}?", "last urine", frozenset({f"77 {values[-1].unit}".strip()})
            ),
            StructuredQuestion(f"What is the last serum {word}?", "last urine", frozenset({values[-1].result})),
        ]
    dated = [value for value in values if value.time is not None]
    questions = _ask_whole(draw, word, trap, values, dated)
    first_day, last_day = sorted(draw.sample(range(len(dated)), 2)) if len(dated) > 1 else (0, 0)
    since, until = dated[first_day].at.date(), dated[last_day].at.date()
    inside = [value for value in dated if since <= value.at.date() <= until]
    between = f"between {since} and {until}"
    questions += _ask_window(draw, word, trap, between, "between", inside)
    number = draw.randrange(len(stays))
    start, end = stays[number]
    within = [value for value in dated if start <= value.at <= end]
    place = _ORDINALS[number] if draw.random() < 0.7 or number < len(stays) - 1 else "last"
    questions += _ask_window(draw, word, trap, f"during the {place} admission", "stay", within)
    year = draw.choice(dated).at.year
    questions += _ask_window(
        draw, word, trap, f"in {year}", "year", [value for value in dated if value.at.year == year]
    )
    day = draw.choice(dated)
    same_day = frozenset(value.result for value in dated if value.at.date() == day.at.date())
    text = draw.choice(
        (f"What was the {word} on {day.at:%Y-%m-%d}?", f"{word} on {day.at:%B} {day.at.day}, {day.at.year}")
    )
    questions.append(StructuredQuestion(text, f"day {trap}", same_day))
    return questions


def _ask_whole(
    draw: random.Random, word: str, trap: Trap, values: Sequence[_Value], dated: Sequence[_Value]
) -> list[StructuredQuestion]:
    """Return questions without a time."""
    ends = frozenset(value.result for value in dated if value.at == dated[-1].at)
    last = draw.choice(
        (
            f"What is the last {word}?",
            f"What is her most recent {word} value?",
            f"latest {word}",
            f"What is the patient's current {word}?",
        )
    )
    first = draw.choice((f"What was the first {word}?", f"earliest {word} on record"))
    count = draw.choice((f"How many times was {word} measured?", f"How many {word} values are there?"))
    course = draw.choice(
        (
            f"{word} trend",
            f"What is the trend of {word}?",
            f"Show the {word} over time",
            f"How did {word} develop over time?",
        )
    )
    return [
        StructuredQuestion(last, f"last {trap}", ends),
        StructuredQuestion(first, f"first {trap}", frozenset({dated[0].result})),
        StructuredQuestion(count, f"count {trap}", frozenset({str(len(values))})),
        StructuredQuestion(course, f"trend {trap}", _find_course(trap, dated, len(values))),
        StructuredQuestion(f"How much did {word} change?", f"change {trap}", _find_change(trap, dated)),
        *_ask_sizes(draw, word, trap, "", values),
    ]


def _ask_sizes(
    draw: random.Random, word: str, trap: Trap, when: str, values: Sequence[_Value]
) -> list[StructuredQuestion]:
    if not values:
        return []
    top = draw.choice((f"What was the highest {word}{when}?", f"peak {word}{when}", f"maximum {word}{when}"))
    bottom = draw.choice((f"What was the lowest {word}{when}?", f"nadir {word}{when}"))
    highest = max(values, key=lambda value: value.number)
    lowest = min(values, key=lambda value: value.number)
    has_molar = trap == "molar" and any(value.unit == "umol/L" for value in values) and len(values) > 1
    return [
        StructuredQuestion(top, f"highest {trap}", None if has_molar else frozenset({highest.result})),
        StructuredQuestion(bottom, f"lowest {trap}", None if has_molar else frozenset({lowest.result})),
    ]


def _ask_window(
    draw: random.Random, word: str, trap: Trap, when: str, category: str, inside: Sequence[_Value]
) -> list[StructuredQuestion]:
    """Return questions about a time. Without a value in it, none may be answered."""
    last = f"What was the last {word} {when}?"
    listing = draw.choice((f"What was the {word} {when}?", f"List the {word} values {when}"))
    if not inside:
        return [
            StructuredQuestion(last, f"{category} {trap}", None),
            StructuredQuestion(listing, f"{category} {trap}", None),
        ]
    ends = frozenset(value.result for value in inside if value.at == inside[-1].at)
    return [
        StructuredQuestion(last, f"{category} last {trap}", ends),
        StructuredQuestion(listing, f"{category} list {trap}", frozenset(value.result for value in inside)),
        *_ask_sizes(draw, word, trap, f" {when}", inside),
    ]


def _find_course(trap: Trap, dated: Sequence[_Value], total: int) -> frozenset[str] | None:
    """Return the right result of a trend: its direction and ends, or that none can be stated."""
    if trap in ("comparator", "molar", "undated", "same-moment") or total == 1:
        return frozenset({"no direction"})
    one, two = dated[0], dated[-1]
    verb = "rose" if two.number > one.number else "fell"
    factor = two.shown / two.number
    return frozenset({f"{verb}: {_plain(one.number * factor)} to {_plain(two.shown)} {two.unit}".strip()})


def _find_change(trap: Trap, dated: Sequence[_Value]) -> frozenset[str] | None:
    one, two = dated[0], dated[-1]
    is_open = bool(one.comparator or two.comparator) or trap in ("molar", "same-moment")
    if is_open or len(dated) == 1:
        return None
    factor = two.shown / two.number
    difference = (two.number - one.number) * factor
    return frozenset({f"{'+' if difference > 0 else ''}{_plain(difference)} {two.unit}".strip()})


def _plain(number: Decimal) -> str:
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


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
            more = {"category": "request", "source": source, "codes": (f"rxnorm:{1000 + number}",)}
            writer.add("medication", name, f"{start:%Y-%m-%d}", event="start", status="active", value="daily", **more)
            starts.append(start)
            end = start + timedelta(days=draw.randrange(20, 200))
            if is_ended or course == 0:
                writer.add("medication", name, f"{end:%Y-%m-%d}", event="end", status="stopped", **more)
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
