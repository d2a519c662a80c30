"""Questions about the structured entries of a fictional patient, with right answers from these entries.

    questions = draw_entry_questions(patient, entries, draws)

A question about a value that the record does not have must not be answered: its category is ABSENCE. One about a drug
or an allergy that the record does not have has the answer NO_ENTRY.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from epicrisis.evaluation.synthesis.patient_records.chart_entries import ChartEntry
from epicrisis.evaluation.synthesis.patient_records.facts import ORDINALS
from epicrisis.evaluation.synthesis.patient_records.fictional_patient import FictionalPatient
from epicrisis.evaluation.synthesis.patient_records.random_draws import Draws
from epicrisis.evaluation.synthesis.patient_records.vocabulary import drugs, labs, read_table

ABSENCE = "absence"
"""The category of questions whose answer is missing from the record, as in other question sets."""
CURRENT_DRUG = "current drug"
NO_ENTRY = "no entry"
_SERIES = 4
"""Laboratory tests that questions ask about, for each patient."""
_VITAL_SIGNS = ("Body weight", "Heart rate", "Systolic blood pressure")
_NAMED_STAYS = 4
"""Stays that questions name by their number."""
_LONGEST_NAME = 3
"""Words of procedures in questions."""


@dataclass(frozen=True, slots=True)
class StructuredQuestion:
    """A question with its right answer."""

    text: str
    category: str
    """`last`, `between`, `stay`, ... with the trap of its values."""
    expected: frozenset[str] | None
    """The parts of the right result in any order. None: it must not be answered."""


def draw_entry_questions(
    patient: FictionalPatient, entries: Sequence[ChartEntry], draws: Draws
) -> tuple[StructuredQuestion, ...]:
    """Return questions about values, drugs, problems, allergies, procedures, vaccinations, and what is missing."""
    questions: list[StructuredQuestion] = []
    tests = list(dict.fromkeys(entry.name for entry in entries if entry.kind == "laboratory"))
    for name in (*draws.sample(tests, _SERIES), *_VITAL_SIGNS):
        values = [entry for entry in entries if entry.name == name]
        questions += _value_questions(patient, _first_letter_down(name), values, draws)
    # `bicarbonate` also names the drug sodium bicarbonate.
    all_names = " ".join(entry.name for entry in entries).casefold()
    absent = [name for name in labs() if name.casefold() not in all_names]
    for name in draws.sample(absent, 2):
        questions.append(StructuredQuestion(f"What was the last {name}?", ABSENCE, None))
    questions += _drug_questions(entries, draws)
    questions += _other_questions(patient, entries, draws)
    return tuple(questions)


def _first_letter_down(name: str) -> str:
    """Return the name within a sentence, for laboratory tests as in the vocabulary."""
    return name if name in labs() else name[:1].lower() + name[1:]


def _result(entry: ChartEntry) -> str:
    return f"{entry.value} {entry.unit}".strip()


def _value_questions(
    patient: FictionalPatient, name: str, values: Sequence[ChartEntry], draws: Draws
) -> Iterator[StructuredQuestion]:
    yield from _extreme_questions(name, "", values)
    number = draws.integer(1, min(_NAMED_STAYS, len(patient.stays)))
    encounter = f"{patient.id}-S{number}"
    stay = patient.stays[number - 1]
    admitted, discharged = stay.admitted.isoformat(timespec="minutes"), stay.discharged.isoformat(timespec="minutes")
    inside = [value for value in values if value.encounter == encounter and admitted <= value.time <= discharged]
    if inside:
        yield from _extreme_questions(name, f" during the {ORDINALS[number - 1]} admission", inside)


def _extreme_questions(name: str, when: str, values: Sequence[ChartEntry]) -> Iterator[StructuredQuestion]:
    """Yield questions for the last, first, highest and lowest of values."""
    category = "stay" if when else "record"
    times = [value.time for value in values]
    for word, time in (("last", max(times)), ("first", min(times))):
        right = frozenset(_result(value) for value in values if value.time == time)
        yield StructuredQuestion(f"What was the {word} {name}{when}?", f"{word} {category}", right)
    ordered = sorted(values, key=lambda value: float(value.value))
    for word, value in (("highest", ordered[-1]), ("lowest", ordered[0])):
        yield StructuredQuestion(
            f"What was the {word} {name}{when}?", f"{word} {category}", frozenset({_result(value)})
        )


def _drug_questions(entries: Sequence[ChartEntry], draws: Draws) -> Iterator[StructuredQuestion]:
    courses = [entry for entry in entries if entry.kind == "medication"]
    current = {course.name for course in courses if not course.end}
    yield StructuredQuestion("What are the current medications?", "current list", frozenset(current))
    for drug in draws.sample(sorted({course.name for course in courses}), 3):
        times = [course.time for course in courses if course.name == drug]
        answer = drug if drug in current else NO_ENTRY
        yield StructuredQuestion(f"Is the patient on {drug}?", CURRENT_DRUG, frozenset({answer}))
        yield StructuredQuestion(f"When was {drug} started?", "started", frozenset({min(times)}))
    stopped = {course.name: course.end for course in courses if course.reason == "not continued"}
    changed = {course.name for course in courses if course.reason == "dose changed"}
    for drug, day in stopped.items():
        if drug not in current | changed:
            yield StructuredQuestion(f"When was {drug} stopped?", "stopped", frozenset({day}))
    absent = draws.pick(sorted(drugs().keys() - {course.name for course in courses}))
    yield StructuredQuestion(f"Has the patient ever taken {absent}?", "ever drug", frozenset({NO_ENTRY}))


def _other_questions(
    patient: FictionalPatient, entries: Sequence[ChartEntry], draws: Draws
) -> Iterator[StructuredQuestion]:
    """Yield questions about problems, allergies, procedures and vaccinations."""
    by_kind: dict[str, list[ChartEntry]] = {}
    for entry in entries:
        by_kind.setdefault(entry.kind, []).append(entry)
    chronic = [entry for entry in by_kind["problem"] if not entry.end]
    yield StructuredQuestion("What are the active problems?", "current problems", frozenset(e.name for e in chronic))
    for problem in draws.sample(chronic, 2):
        yield StructuredQuestion(f"When was {problem.name} diagnosed?", "diagnosed", frozenset({problem.time}))
    allergy = by_kind["allergy"][0].name
    yield StructuredQuestion("What allergies does the patient have?", "allergies", frozenset({allergy}))
    # `drugs` would also ask about medication.
    substance = patient.allergy.removesuffix(" drugs")
    yield StructuredQuestion(f"Is the patient allergic to {substance}?", "allergic", frozenset({"yes"}))
    # Sulfa is a class of drugs: a record without the word shows nothing.
    no_others = {patient.allergy, "sulfa drugs"}
    others = [name for name in read_table("nuggets")["names"]["allergies"] if name not in no_others]
    other = draws.pick(others).removesuffix(" drugs")
    yield StructuredQuestion(f"Is the patient allergic to {other}?", "allergic", frozenset({NO_ENTRY}))
    for kind in ("procedure", "immunization"):
        for name in dict.fromkeys(entry.name for entry in by_kind.get(kind, ())):
            last = max(entry.time for entry in by_kind[kind] if entry.name == name)
            if len(name.split()) <= _LONGEST_NAME:
                yield StructuredQuestion(f"When was the last {name.lower()}?", f"last {kind}", frozenset({last}))
