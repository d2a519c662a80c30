"""Measure how many identifiers of generated notes the recognizers find."""

from __future__ import annotations

import itertools
import secrets
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from epicrisis.evaluation.analysis.statistics import wilson
from epicrisis.evaluation.synthesis.identified_notes import (
    IdentifiedNote,
    IdentifiedPatient,
    PlantedIdentifier,
    draw_identified_patient,
)
from epicrisis.evaluation.synthesis.unusual_identifiers import KINDS, NOT_REACHED, Half, draw_unusual_patient
from epicrisis.privacy.deidentification.deidentifier import RECOGNIZER_VERSION, Deidentifier
from epicrisis.privacy.deidentification.library_files import KindMeasurement, RecallMeasurement


@dataclass(frozen=True, slots=True)
class IdentifierLeak:
    """An identifier that was left in a note, at least in part."""

    identifier: PlantedIdentifier
    text: str
    context: str
    """The line of the note."""


class RecallCounts:
    """Counts of found and missed identifiers.

    `by_patient` maps a kind or form to (identifiers, missed) of each patient.
    """

    def __init__(self) -> None:
        self.notes = self.patients = self.notes_with_leak = 0
        self.by_patient: dict[str, list[tuple[int, int]]] = defaultdict(list)
        self.replaced_characters = self.right_characters = 0
        self.leaks: list[IdentifierLeak] = []


def count_recall(
    notes: int, seed: int, draw: Callable[[int, int], IdentifiedPatient] = draw_identified_patient
) -> RecallCounts:
    """Return the counts over at least so many generated notes. Raise ModelMissing without the extra `deidentify`.

    `draw` returns the patient with a number, from a seed.
    """
    counts = RecallCounts()
    key = secrets.token_bytes(32)
    for number in itertools.count():
        if counts.notes >= notes:
            break
        counts.patients += 1
        patient = draw(number, seed)
        deidentifier = Deidentifier(key, patient.registered)
        for note in patient.notes:
            deidentifier.learn(note.text)
        totals: Counter[str] = Counter()
        missed: Counter[str] = Counter()
        for note in patient.notes:
            leaks = list(_count_note(note, deidentifier, counts))
            counts.notes += 1
            counts.notes_with_leak += bool(leaks)
            counts.leaks += leaks
            for identifier in note.identifiers:
                totals.update(_labels_of(identifier))
            for leak in leaks:
                missed.update(_labels_of(leak.identifier))
        for label, total in totals.items():
            counts.by_patient[label].append((total, missed[label]))
    return counts


def count_unusual_recall(notes: int, seed: int, half: Half) -> RecallCounts:
    """Return the counts over at least so many notes with unusual identifiers, from one half of the lists."""
    return count_recall(notes, seed, partial(draw_unusual_patient, half=half))


def _labels_of(identifier: PlantedIdentifier) -> Sequence[str]:
    return ("all", identifier.kind, f"{identifier.kind}: {identifier.form}")


def _count_note(note: IdentifiedNote, deidentifier: Deidentifier, counts: RecallCounts) -> Iterator[IdentifierLeak]:
    """Yield the identifiers that were not found completely, and add the characters of the note to the counts."""
    is_replaced = bytearray(len(note.text))
    for identifier in deidentifier.find(note.text):
        is_replaced[identifier.start : identifier.end] = b"\1" * (identifier.end - identifier.start)
    is_planted = bytearray(len(note.text))
    for planted in note.identifiers:
        is_planted[planted.start : planted.end] = b"\1" * (planted.end - planted.start)
        rest = [
            character
            for place, character in enumerate(note.text[planted.start : planted.end], planted.start)
            if not is_replaced[place]
        ]
        if _is_leak(planted, "".join(rest)):
            start = note.text.rfind("\n", 0, planted.start) + 1
            end = note.text.find("\n", planted.end)
            context = note.text[start : None if end < 0 else end]
            yield IdentifierLeak(planted, note.text[planted.start : planted.end], context)
    counts.replaced_characters += sum(is_replaced)
    counts.right_characters += sum(map(int.__and__, is_replaced, is_planted))


def _is_leak(planted: PlantedIdentifier, rest: str) -> bool:
    """Return whether the characters that were left tell anything: titles, words for places and signs do not."""
    words = "".join(character if character.isalnum() else " " for character in rest).split()
    if planted.kind == "name":
        words = [word for word in words if word.casefold() not in ("mr", "mrs", "ms", "dr")]
        return any(len(word) > 1 for word in words)
    if planted.kind == "place":
        words = [word for word in words if word.casefold() not in ("hospital", "clinic", "home", "nursing", "general")]
    return bool(words)


def summarize_recall(counts: RecallCounts, labels: Sequence[str] | None = None) -> Mapping[str, KindMeasurement]:
    """Return recall and interval for each kind of identifier, or for these labels."""
    chosen = labels or [label for label in counts.by_patient if ":" not in label and label != "all"]
    return {label: _measure(counts.by_patient[label]) for label in sorted(chosen)}


def make_measurement(counts: RecallCounts, unusual: RecallCounts) -> RecallMeasurement:
    """Return the measurement that a library stores, of notes with usual and with unusual identifiers."""
    labels = {f"unusual: {kind.name}": f"{kind.identifier}: {kind.name}" for kind in KINDS.values()}
    rows = summarize_recall(unusual, list(labels.values()))
    kinds = {name: rows[label] for name, label in labels.items()}
    not_required = {name: kinds.pop(name) for name in (f"unusual: {kind}" for kind in NOT_REACHED)}
    replaced = counts.replaced_characters + unusual.replaced_characters
    precision = (counts.right_characters + unusual.right_characters) / replaced if replaced else 1.0
    return RecallMeasurement(
        recognizer=RECOGNIZER_VERSION,
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        notes=counts.notes + unusual.notes,
        patients=counts.patients + unusual.patients,
        notes_with_leak=counts.notes_with_leak + unusual.notes_with_leak,
        precision=precision,
        kinds={**summarize_recall(counts), **kinds},
        not_required=not_required,
    )


def _measure(pairs: Sequence[tuple[int, int]]) -> KindMeasurement:
    """Return recall and its 95 % interval: Wilson's, for as many cases as the clusters by patient are worth."""
    planted = sum(total for total, _ in pairs)
    missed = sum(count for _, count in pairs)
    share = missed / planted
    effect = 1.0
    if len(pairs) > 1 and 0 < missed < planted:
        squares = sum((count - share * total) ** 2 for total, count in pairs)
        variance = squares * len(pairs) / (len(pairs) - 1) / planted**2
        effect = max(1.0, variance / (share * (1 - share) / planted))
    n = max(1, round(planted / effect))
    interval = wilson(round(n * (1 - share)), n)
    return KindMeasurement(planted=planted, missed=missed, recall=1 - share, lower=interval.low, upper=interval.high)
