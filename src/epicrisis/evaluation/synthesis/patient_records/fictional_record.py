"""One fictional record: as many notes of a patient's story as a length asks for, in order of time.

Some notes every record has: of each stay the admission note, the first and the last laboratory report, the radiology
report, the discharge summary, and whatever holds a fact. The others are drawn one by one until the length is reached;
which ones does not change what any of them says. Knows no questions and no files.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from epicrisis.errors import InputError
from epicrisis.evaluation.synthesis.patient_records.facts import Fact, facts_of
from epicrisis.evaluation.synthesis.patient_records.fictional_patient import FictionalPatient, draw_patient
from epicrisis.evaluation.synthesis.patient_records.note_writing import FictionalNote, NotePlan, Writer
from epicrisis.evaluation.synthesis.patient_records.random_draws import Draws

SHORTEST = 4000
"""Tokens; one stay's own notes take up to 3,750 of them, by what is drawn."""
LONGEST_STAY = 240
"""Days."""
_CORE, _A_DAY, _SPARE = 3100, 1450, 1.6
"""Tokens of a stay's own notes, and of one day's others; how much more may be written than is needed."""
_AIM = 0.95
"""Of the tokens asked for: a model counts a little more, and its prompt has to fit beside."""
_MISSES = 25
_TOKEN = re.compile(r"([^\W\d_]+)|\d|[^\w\s]|\n")


@dataclass(frozen=True, slots=True)
class FictionalRecord:
    """A patient's notes in order of time, and the facts that they state."""

    patient: FictionalPatient
    notes: tuple[FictionalNote, ...]
    facts: tuple[Fact, ...]
    tokens: int
    """As `estimated` says."""

    @property
    def characters(self) -> int:
        return sum(len(note.text) for note in self.notes)


def estimated(text: str) -> int:
    """Tokens without a model: a word of six letters is one and every further six one more; each digit, each sign and
    each line end is one. Vocabularies that split numbers into digits (Qwen's, Llama's) come within a tenth of it on
    these notes, WordPiece takes about a fifth less."""
    signs = sum(found[1] is None for found in _TOKEN.finditer(text))
    return signs + sum(math.ceil(len(found[1]) / 6) for found in _TOKEN.finditer(text) if found[1])


def usual_stays(tokens: int) -> int:
    """How many stays a record of this length has where nobody says."""
    return max(1, 1 + int(math.log2(tokens / 4000)), tokens // 32_000) if tokens >= 8000 else 1


def check_length(tokens: int) -> None:
    """Raises InputError where so few tokens hold no stay."""
    if tokens < SHORTEST:
        raise InputError(
            f"a record of {tokens} tokens holds no stay: ask for at least {SHORTEST} (--tokens, --tokens-spread)"
        )


def make_record(patient_id: str, tokens: int, stays: int | None, seed: int) -> FictionalRecord:
    """The record of one patient, of about so many tokens. Raises InputError where they do not fit the stays."""
    check_length(tokens)
    number = stays or usual_stays(tokens)
    draws = Draws("record", seed, patient_id, tokens, number)
    usual = math.ceil(max(tokens / number - _CORE, 0) * _SPARE / _A_DAY) + 2
    days = tuple(max(3, usual * draws.whole(80, 125) // 100) for _ in range(number))
    if max(days) > LONGEST_STAY:
        raise InputError(
            f"{number} stays would last over {LONGEST_STAY} days each to hold {tokens} tokens: ask for more (--stays)"
        )
    patient = draw_patient(draws.at("patient"), patient_id, days)
    # Those of `clinic` and `consult` want a note of their own, which a short record has no room for.
    facts = facts_of(patient, draws.at("facts"), min(30, 2 + tokens // 2000))
    writer = Writer(patient, facts, draws.at("notes"))
    notes = [writer.write(plan) for plan in _needed(patient, writer)]
    spent = sum(estimated(note.text) for note in notes)
    if spent > tokens * 1.05:
        raise InputError(
            f"{number} stays need about {spent} tokens, {tokens} were asked for: ask for more tokens or fewer --stays"
        )
    misses = 0
    for plan in _others(patient, writer, draws.at("others")):
        note = writer.write(plan)
        size = estimated(note.text)
        if spent + size > tokens * _AIM:
            misses += 1
            if misses > _MISSES:
                break
            continue
        notes.append(note)
        spent += size
    notes.sort(key=lambda note: (note.time, note.id))
    return FictionalRecord(patient, tuple(notes), facts, spent)


def _needed(patient: FictionalPatient, writer: Writer) -> Iterator[NotePlan]:
    """What a record always has, each once."""
    for stay in patient.stays:
        for kind, day in (("admission", 0), ("laboratory", 0), ("radiology", 0)):
            yield NotePlan(kind, stay.number, day)
        yield NotePlan("laboratory", stay.number, stay.days)
        yield NotePlan("discharge", stay.number, stay.days)
    for number, place in writer.places():
        kind, _, on = place.partition(":")
        if kind == "nursing":
            yield NotePlan(kind, number, int(on))
        elif kind in ("consult", "clinic"):
            yield NotePlan(kind, number, patient.stays[number - 1].days + 12 if kind == "clinic" else 1)


def _others(patient: FictionalPatient, writer: Writer, draws: Draws) -> Iterator[NotePlan]:
    """What it may have besides, in a drawn order."""
    needed = frozenset(_needed(patient, writer))
    plans = []
    for stay in patient.stays:
        for day in range(1, stay.days):
            plans += [NotePlan("progress", stay.number, day), NotePlan("laboratory", stay.number, day)]
            plans += [NotePlan("nursing", stay.number, day, slot) for slot in range(3)]
            if day % 5 == 2:
                plans.append(NotePlan("consult", stay.number, day, 1))
        plans.append(NotePlan("clinic", stay.number, stay.days + 12))
    yield from (plan for plan in draws.several(plans, len(plans)) if plan not in needed)
