"""Disagreements between notes and structured facts: another value, a stopped drug that is active, a denied allergy.

The rules are conservative. A sentence counts only if it names the same thing, states its own day if the day matters,
and has no word of a plan, a doubt, a target or the past. docs/design/conflicts.md has their measured errors.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal

from epicrisis.core.clinical_facts import ClinicalFact
from epicrisis.core.dates import TimeRange, find_dates, may_overlap, time_range
from epicrisis.core.quantities import DATE, find_quantities
from epicrisis.core.types import Passage
from epicrisis.core.ucum import to_ucum
from epicrisis.records.fact_questions.courses import denies_allergy
from epicrisis.records.fact_questions.record import read_date, read_time
from epicrisis.records.fact_questions.subjects import drug_key, normalize, split_words
from epicrisis.records.fact_questions.synonyms import names_drug
from epicrisis.records.fact_questions.value_computations import convert_number, format_value, read_number

_MAX_SENTENCE = 400
_NOT_A_VALUE = re.compile(
    r"(?i)\b(?:goal|target|baseline|if|should|would|until|outside|osh|range|normal|reference|peak\w*|highest|lowest|"
    r"nadir|max\w*|min\w*|average|mean|between|previous\w*|prior|repeat|recheck|clearance|urine|urinary|csf|fluid|ratio|"
    r"yesterday|tomorrow|earlier|later|last|history|was not|not)\b|[<>≤≥~]|->|→"
)
_NOT_DONE = re.compile(
    r"(?i)\b(?:not|never|no|if|should|would|could|may|might|will|plan\w*|consider\w*|recommend\w*|resum\w*|restart\w*|"
    r"re-start\w*|advis\w*|ask\w*|want\w*|prior|previous\w*|past|history|ago|until|temporar\w*|discuss\w*|continu\w*|"
    r"denies|denied|when|then|switch\w*|chang\w*|increas\w*|decreas\w*|dose|iv|drip|infusion)\b"
)
_OTHER_PERSON = re.compile(
    r"(?i)\b(?:mother|father|parent|brother|sister|sibling|son|daughter|child|husband|wife|spouse|partner|aunt|uncle|cousin|"
    r"grand\w+|relative|roommate|neighbou?r|donor)(?:['’]?s)?\b|\bfamily history\b"
)
"""Words of a sentence that may be about somebody else."""
_EXCEPTION = re.compile(r"(?i)^[\s,(]*(?:except|other than|besides|apart from|aside from|but)\b")
"""What follows a denial of allergies that names one."""
_STOPPED = r"(?:stopped|discontinued|d/c'?d|dc'?d)"
_NO_ALLERGIES = re.compile(
    r"(?i)\b(?:no known (?:drug |medication )?allerg(?:y|ies)|nkda|nka|"
    r"denies (?:any |all )?(?:drug |medication |known )?allergies)\b"
)
_DRUG_CODES = ("rxnorm:", "ndc:", "atc:")
_ONLY_DRUGS = re.compile(r"(?i)nkda|drug|medication")
_NUMBER_AFTER = re.compile(r"(?:\s*(?:level|value|result|today))?(?:\s*(?:is|was|of|:|=|at|on))?\s*$")


@dataclass(frozen=True, slots=True)
class NoteSentence:
    """A sentence of a note, with its place in the document."""

    passage: Passage
    start: int
    text: str


@dataclass(frozen=True, slots=True)
class FactConflict:
    """A sentence of a note and the facts that say something else."""

    sentence: NoteSentence
    facts: tuple[ClinicalFact, ...]
    note_label: str
    fact_label: str


def find_value_conflicts(
    sentences: Iterable[NoteSentence], facts: Sequence[ClinicalFact], phrases: Iterable[str]
) -> list[FactConflict]:
    """Return the sentences that state another value than every fact of the same day. `phrases` name the analyte."""
    names = sorted({re.escape(phrase).replace(r"\ ", r"[\s-]+") for phrase in phrases}, key=len, reverse=True)
    name = re.compile(rf"(?i)(?<![\w-])(?:{'|'.join(names)})(?![\w-])")
    conflicts: list[FactConflict] = []
    for sentence in sentences:
        if len(sentence.text) > _MAX_SENTENCE or not name.search(sentence.text):
            continue
        if conflict := _compare_value(sentence, facts, name):
            conflicts.append(conflict)
    return conflicts


def _compare_value(sentence: NoteSentence, facts: Sequence[ClinicalFact], name: re.Pattern[str]) -> FactConflict | None:
    text = sentence.text
    day = _read_day(sentence)
    places = list(name.finditer(text))
    if day is None or len(places) != 1 or _NOT_A_VALUE.search(text) or _OTHER_PERSON.search(text):
        return None
    same_day = [fact for fact in facts if (time := read_time(fact)) and _is_day(time) and may_overlap(time, day)]
    if not same_day or any(fact.number is None or fact.comparator for fact in same_day):
        return None
    stated = _read_value(text, places[0].end(), same_day[0])
    if stated is None:
        return None
    label, number, decimals = stated
    for fact in same_day:
        value = convert_number(read_number(fact), fact.unit, same_day[0].unit)
        if value is None or abs(value - number) <= Decimal("0.5") * Decimal(10) ** -decimals:
            return None
    values = ", ".join(dict.fromkeys(map(format_value, same_day)))
    return FactConflict(sentence, tuple(same_day), f"{label} on {day[0]:%Y-%m-%d}", f"{values} on {day[0]:%Y-%m-%d}")


def _read_value(text: str, end: int, fact: ClinicalFact) -> tuple[str, Decimal, int] | None:
    """Return the number right behind the name, in the unit of the fact, with its decimals; None if uncertain."""
    for quantity in find_quantities(text):
        if quantity.start < end:
            continue
        if (
            quantity.unit == DATE
            or quantity.low != quantity.high
            or not _NUMBER_AFTER.fullmatch(text[end : quantity.start])
        ):
            return None
        match = re.match(r"(\d+(?:\.\d+)?)\s*(.*)", quantity.text)
        if match is None:
            return None
        number, unit = Decimal(match[1]), match[2].strip()
        converted = convert_number(number, to_ucum(unit), fact.unit) if unit else number
        value = read_number(fact)
        if converted is None or not value or not Decimal("0.2") <= converted / value <= 5:
            # Another unit, or another thing, is more probable than another value.
            return None
        decimals = len(match[1].partition(".")[2])
        return quantity.text, converted, decimals
    return None


def _is_day(time: TimeRange) -> bool:
    return time[0].date() == time[1].date()


def _read_day(sentence: NoteSentence) -> TimeRange | None:
    """Return the one day that a sentence names, or the day of its note if it says `today`."""
    dates = find_dates(sentence.text)
    if len(dates) == 1 and len(dates[0].readings) == 1:
        time = time_range(dates[0].readings[0])
        return time_range(f"{time[0]:%Y-%m-%d}") if _is_day(time) else None
    if dates or not re.search(r"(?i)\b(?:today|this morning)\b", sentence.text):
        return None
    note_day = read_date(sentence.passage.date)
    return time_range(f"{note_day[0]:%Y-%m-%d}") if note_day is not None and _is_day(note_day) else None


def find_drug_conflicts(sentences: Iterable[NoteSentence], active: Sequence[ClinicalFact]) -> list[FactConflict]:
    """Return sentences about a stopped drug for which structured entries say that it is current.

    A note counts only if it is later than the entry's last sign.
    """
    conflicts: list[FactConflict] = []
    for sentence in sentences:
        note_day = read_date(sentence.passage.date)
        if len(sentence.text) > _MAX_SENTENCE or note_day is None or _NOT_DONE.search(sentence.text):
            continue
        if _OTHER_PERSON.search(sentence.text):
            continue
        for fact in active:
            time = read_time(fact)
            word = next(iter(drug_key(fact).split()), "")
            if time is None or time[1] >= note_day[0] or len(word) < 5:
                continue
            drug = re.escape(word)
            # Formed of the drug's name.
            passive = rf"\b{drug}(?:\s+\w+)?\s+(?:was|were|has been|had been)\s+{_STOPPED}\b"
            active_voice = rf"\b{_STOPPED}\s+(?:the |his |her )?{drug}\b"
            if re.search(rf"(?i){passive}|{active_voice}", sentence.text):
                day = f"{note_day[0]:%Y-%m-%d}"
                conflicts.append(FactConflict(sentence, (fact,), f"stopped (note of {day})", f"current: {fact.name}"))
    return conflicts


def _is_drug_allergy(fact: ClinicalFact) -> bool:
    """Return whether an allergy is against a drug by its category, its code, or else its name.

    An intolerance is none: a note that denies drug allergies may mean it.
    """
    category = fact.category.lower()
    if "intolerance" in category:
        return False
    if any(word in category for word in ("food", "environment", "biologic")):
        return "medication" in category
    has_drug_code = any(code.startswith(_DRUG_CODES) for code in fact.codes)
    return "medication" in category or has_drug_code or names_drug(split_words(fact.name))


def find_allergy_conflicts(sentences: Iterable[NoteSentence], allergies: Sequence[ClinicalFact]) -> list[FactConflict]:
    """Return the sentences that deny all allergies although an earlier structured entry has one."""
    conflicts: list[FactConflict] = []
    for sentence in sentences:
        match = _NO_ALLERGIES.search(sentence.text)
        note_day = read_date(sentence.passage.date)
        if match is None or note_day is None or _OTHER_PERSON.search(sentence.text):
            continue
        if _EXCEPTION.match(sentence.text[match.end() :]):
            continue
        earlier: list[ClinicalFact] = []
        for fact in allergies:
            time = read_time(fact)
            if (
                time
                and time[1] < note_day[0]
                and not denies_allergy(fact)
                and (_is_drug_allergy(fact) or not _ONLY_DRUGS.search(match[0]))
            ):
                earlier.append(fact)
        if earlier:
            names = ", ".join(dict.fromkeys(fact.name for fact in earlier))
            conflicts.append(FactConflict(sentence, tuple(earlier), normalize(match[0]), f"allergy: {names}"))
    return conflicts
