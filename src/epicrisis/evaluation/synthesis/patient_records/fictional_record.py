"""One fictional record: notes of a patient's story in order of time, up to the requested length.

Every record has for each stay the admission note, the first and the last laboratory report, the radiology report, the
discharge summary, and all notes that state a fact. Further notes are drawn one by one until the length is reached. The
text of a note never depends on the other notes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import filterfalse

from epicrisis.core.errors import InputError
from epicrisis.evaluation.synthesis.patient_records.facts import Fact, draw_facts
from epicrisis.evaluation.synthesis.patient_records.fictional_patient import FictionalPatient, draw_patient
from epicrisis.evaluation.synthesis.patient_records.note_writing import FictionalNote, NotePlan, NoteWriter
from epicrisis.evaluation.synthesis.patient_records.random_draws import Draws

SHORTEST = 4000
"""Tokens. The required notes of one stay take up to 3,750."""
LONGEST_STAY = 240
"""Days."""
_STAY_TOKENS, _DAY_TOKENS = 3100, 1450
"""Tokens of the required notes of a stay, and of the other notes of one day."""
_SPARE = 1.6
"""Possible tokens per needed token, so that there are enough notes to choose from."""
_TARGET = 0.95
"""Share of the requested tokens: models count a little more, and the prompt needs room too."""
_MISSES = 25
"""Notes that may be too long for the rest of the record before it is complete."""
_TOKEN = re.compile(r"([^\W\d_]+)|\d|[^\w\s]|\n")


@dataclass(frozen=True, slots=True)
class FictionalRecord:
    """A patient's notes in order of time, and the facts they state."""

    patient: FictionalPatient
    notes: tuple[FictionalNote, ...]
    facts: tuple[Fact, ...]
    tokens: int
    """From `estimate_tokens`."""

    @property
    def characters(self) -> int:
        return sum(len(note.text) for note in self.notes)


def estimate_tokens(text: str) -> int:
    """Estimate the tokens of a text without a model.

    A word counts one token for every six letters begun; each digit, sign and line end counts one. On these notes the
    vocabularies of Qwen and Llama differ from this by less than a tenth; WordPiece counts a fifth less.
    """
    tokens = 0
    for match in _TOKEN.finditer(text):
        tokens += math.ceil(len(match[1]) / 6) if match[1] else 1
    return tokens


def check_length(tokens: int) -> None:
    """Raise InputError if a record of this length cannot hold one stay."""
    if tokens < SHORTEST:
        raise InputError(
            f"a record of {tokens} tokens is too short for one stay: choose at least {SHORTEST} (--tokens)"
        )


def make_record(patient_id: str, tokens: int, stays: int | None, seed: int) -> FictionalRecord:
    """Make the record of one patient with about this many tokens. Raise InputError if they do not fit the stays."""
    check_length(tokens)
    number = stays or 1
    if not stays and tokens >= 8000:
        number = max(1 + int(math.log2(tokens / 4000)), tokens // 32_000)
    draws = Draws("record", seed, patient_id, tokens, number)
    usual_days = math.ceil(max(tokens / number - _STAY_TOKENS, 0) * _SPARE / _DAY_TOKENS) + 2
    days = tuple(max(3, usual_days * draws.integer(80, 125) // 100) for _ in range(number))
    if max(days) > LONGEST_STAY:
        raise InputError(
            f"{number} stays would last over {LONGEST_STAY} days each to hold {tokens} tokens: ask for more (--stays)"
        )
    patient = draw_patient(draws.substream("patient"), patient_id, days)
    # Single facts of `clinic` and `consult` need a note each, so a short record has few of them.
    facts = draw_facts(patient, draws.substream("facts"), min(30, 2 + tokens // 2000))
    writer = NoteWriter(patient, facts, draws.substream("notes"))
    notes = [writer.write(plan) for plan in _required_plans(patient, writer)]
    total = sum(estimate_tokens(note.text) for note in notes)
    if total > tokens * 1.05:
        raise InputError(
            f"{number} stays need about {total} tokens, but the record may have {tokens}: ask for more tokens "
            "or fewer --stays"
        )
    plans: list[NotePlan] = []
    for stay in patient.stays:
        for day in range(1, stay.days):
            plans += [NotePlan("progress", stay.number, day), NotePlan("laboratory", stay.number, day)]
            plans += map(partial(NotePlan, "nursing", stay.number, day), range(3))
            if day % 5 == 2:
                plans.append(NotePlan("consult", stay.number, day, 1))
        plans.append(NotePlan("clinic", stay.number, stay.days + 12))
    required = frozenset(_required_plans(patient, writer))
    misses = 0
    for plan in filterfalse(required.__contains__, draws.substream("others").shuffle(plans)):
        note = writer.write(plan)
        size = estimate_tokens(note.text)
        if total + size > tokens * _TARGET:
            misses += 1
            if misses > _MISSES:
                break
            continue
        notes.append(note)
        total += size
    notes.sort(key=lambda note: (note.time, note.id))
    return FictionalRecord(patient, tuple(notes), facts, total)


def _required_plans(patient: FictionalPatient, writer: NoteWriter) -> Iterator[NotePlan]:
    """Yield the notes of every record, each once."""
    for stay in patient.stays:
        for kind in ("admission", "laboratory", "radiology"):
            yield NotePlan(kind, stay.number, 0)
        yield NotePlan("laboratory", stay.number, stay.days)
        yield NotePlan("discharge", stay.number, stay.days)
    for number, place in writer.places():
        kind, _, day = place.partition(":")
        if kind == "nursing":
            yield NotePlan(kind, number, int(day))
        elif kind == "clinic":
            yield NotePlan(kind, number, patient.stays[number - 1].days + 12)
        elif kind == "consult":
            yield NotePlan(kind, number, 1)
