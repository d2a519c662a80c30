"""Fictional notes with identifiers in forms that are unusual, from lists and sentences that no recognizer has seen.

Words and sentences are divided into two halves. The recognizers were written while looking at `development` only, so
that `held-out`, whose misses nobody read, shows what they do with new texts. The forms of a kind are the same in both.
No real person is described.
"""

from __future__ import annotations

import calendar
import hashlib
import re
import tomllib
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cache
from importlib import resources
from typing import Any, Literal, TypeAlias, TypeVar

from epicrisis.evaluation.synthesis.identified_notes import (
    IdentifiedNote,
    IdentifiedPatient,
    mark_identifier,
    read_marks,
)
from epicrisis.evaluation.synthesis.patient_records.random_draws import Draws
from epicrisis.privacy.deidentification.deidentifier import PatientIdentifiers
from epicrisis.privacy.deidentification.name_lists import read_name_lists
from epicrisis.privacy.deidentification.spans import IdentifierKind

Half: TypeAlias = Literal["development", "held-out"]
T = TypeVar("T")

_OWN = "own "
"""What the name of a kind begins with if the identifier is registered for the patient."""
NOT_REACHED = frozenset(("lower-case name on no list",))
"""Kinds that no rule finds, since nothing tells such a word from another. They are reported and not required."""


@dataclass(frozen=True, slots=True)
class UnusualKind:
    """A kind of unusual identifiers: how they are written, and in which sentences (see `unusual_identifiers.toml`)."""

    name: str
    identifier: IdentifierKind
    forms: tuple[str, ...]
    sentences: tuple[str, ...]


def _read_tables() -> Mapping[str, Any]:
    text = resources.files("epicrisis.evaluation.synthesis").joinpath("unusual_identifiers.toml").read_text("utf-8")
    return tomllib.loads(text)


def _read_kinds() -> Mapping[str, UnusualKind]:
    kinds = {}
    for table in _TABLES["kinds"]:
        sentences: list[str] = []
        shared = table["sentences"]
        for sentence in [shared] if isinstance(shared, str) else shared:
            sentences += _TABLES["sentences"].get(sentence, [sentence])
        kind = UnusualKind(table["name"], table["identifier"], tuple(table["forms"]), tuple(sentences))
        kinds[kind.name] = kind
    return kinds


def _read_words() -> Mapping[str, tuple[str, ...]]:
    return {name: tuple(" ".join(words.split()).split(", ")) for name, words in _TABLES["words"].items()}


_TABLES = _read_tables()
KINDS = _read_kinds()
_WORDS = _read_words()
_ORDINAL_WORDS = """
first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth fifteenth
sixteenth seventeenth eighteenth nineteenth twentieth twenty-first twenty-second twenty-third twenty-fourth twenty-fifth
twenty-sixth twenty-seventh twenty-eighth twenty-ninth thirtieth thirty-first
"""
_ORDINALS = _ORDINAL_WORDS.split()
_ROMAN = ("i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix", "x", "xi", "xii")
_YEAR_WORDS = {
    2015: "twenty fifteen",
    2016: "two thousand sixteen",
    2017: "two thousand and seventeen",
    2018: "twenty eighteen",
    2019: "two thousand nineteen",
    2020: "twenty twenty",
    2021: "twenty twenty-one",
    2022: "two thousand twenty-two",
}
_TRANSLITERATED = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "ß": "ss", "ø": "oe", "å": "aa"})


def draw_unusual_patient(number: int, seed: int, half: Half) -> IdentifiedPatient:
    """Return a registered patient with one note for each kind of identifier. The same arguments give the same notes."""
    draws = Draws("unusual", seed, number, half)
    writer = _UnusualWriter(draws, half)
    notes = tuple(writer.write(kind) for kind in KINDS.values())
    patient = writer.patient
    name = draws.pick((f"{patient.last}, {patient.first}", f"{patient.first} {patient.last}"))
    return IdentifiedPatient(PatientIdentifiers(f"P-{writer.number[::-1]}", (name,), (writer.number,)), notes)


def fold_accents(name: str) -> str:
    """Return the name without accents: `Müller` becomes `Muller`."""
    letters = unicodedata.normalize("NFKD", name.replace("ß", "ss").replace("ø", "o"))
    return "".join(letter for letter in letters if not unicodedata.combining(letter))


def draw_clinical_sentences(half: Half) -> Sequence[str]:
    """Return sentences without an identifier: drugs, eponyms, scores, measurements."""
    return take_half(tuple(_TABLES["sentences"]["clinical"]), half)


@cache
def take_half(items: tuple[T, ...], half: Half) -> tuple[T, ...]:
    """Return every other item, in the order of their hashes."""
    ordered = sorted(items, key=lambda item: hashlib.sha256(str(item).encode()).digest())
    return tuple(ordered[half == "held-out" :: 2])


@dataclass(frozen=True, slots=True)
class _UnusualPerson:
    first: str
    last: str


class _UnusualWriter:
    """Writes notes of one patient, each with one unusual identifier."""

    def __init__(self, draws: Draws, half: Half) -> None:
        self._draws = draws
        self._half: Half = half
        self._words = {name: take_half(words, half) for name, words in _WORDS.items()}
        self.patient = self._draw_person(None)
        self.number = str(draws.integer(10_000_000, 99_999_999))

    def write(self, kind: UnusualKind) -> IdentifiedNote:
        """Return a note with an identifier of this kind between two sentences without one."""
        draws = self._draws
        filled = self._fill(draws.pick(kind.forms), self._choose_person(kind.name))
        before, identifier, after = filled.split("|") if "|" in filled else ("", filled, "")
        sentence = draws.pick(take_half(kind.sentences, self._half))
        form = f"{before}{mark_identifier(kind.identifier, kind.name, identifier)}{after}"
        middle = sentence.replace("{x}", form).replace("{Device}", draws.pick(self._words["devices"]))
        before, after = draws.sample(draw_clinical_sentences(self._half), 2)
        return read_marks(draws.pick(("\n", " ")).join((before, middle, after)))

    def _choose_person(self, kind: str) -> _UnusualPerson:
        if kind.startswith(_OWN):
            return self.patient
        is_listed = {"lower-case listed name": True, "lower-case name on no list": False, "full name on no list": False}
        return self._draw_person(is_listed.get(kind))

    def _draw_person(self, is_listed: bool | None) -> _UnusualPerson:
        """Return a person. True: both names are in a list of the recognizer; False: none; None: any."""
        lists = read_name_lists()
        listed = lists.first | lists.last
        firsts = [name for name in self._words["first_names"] if is_listed in (None, name.casefold() in listed)]
        lasts = [name for name in self._words["last_names"] if is_listed in (None, name.casefold() in listed)]
        return _UnusualPerson(self._draws.pick(firsts), self._draws.pick(lasts))

    def _fill(self, form: str, person: _UnusualPerson) -> str:
        parts = {**self._list_name_parts(person), **self._list_date_parts(), **self._list_place_parts()}
        text = re.sub(r"\{(\w+)\}", lambda match: f"\0{match[1]}\0", form)
        pieces = text.split("\0")
        for place in range(0, len(pieces), 2):
            pieces[place] = re.sub(r"#", lambda _: str(self._draws.integer(0, 9)), pieces[place])
            pieces[place] = re.sub(r"\?(?!pt=)", lambda _: self._draws.pick("ABCDEFGHJKLNPRSTVXYZ"), pieces[place])
        for place in range(1, len(pieces), 2):
            pieces[place] = parts[pieces[place]]
        return "".join(pieces)

    def _list_name_parts(self, person: _UnusualPerson) -> dict[str, str]:
        first, last = person.first, person.last
        other = self._draw_person(None)
        german = last.translate(_TRANSLITERATED)
        plain = fold_accents(last)
        number = self.number
        return {
            "F": first,
            "L": last,
            "f": first.lower(),
            "l": last.lower(),
            "FF": first.upper(),
            "LL": last.upper(),
            "I": first[0],
            "J": last[0],
            "i": first[0].lower(),
            "F2": other.first,
            "L2": other.last,
            "LL3": last[:3].upper(),
            "W": self._draws.pick(self._words["names_of_words"]),
            "plain": plain,
            "plain_lower": plain.lower(),
            "german": german,
            "german_upper": german.upper(),
            "N": number,
            "N1": number[:4],
            "N2": number[4:],
        }

    def _list_date_parts(self) -> dict[str, str]:
        draws = self._draws
        day = date(2015, 1, 1) + timedelta(days=draws.integer(0, 2900))
        month = calendar.month_name[day.month]
        week = day.isocalendar()
        suffix = "th" if 10 < day.day < 20 else {1: "st", 2: "nd", 3: "rd"}.get(day.day % 10, "th")
        return {
            "d": str(day.day),
            "dd": f"{day:%d}",
            "dth": f"{day.day}{suffix}",
            "ddd": f"{day:%j}",
            "m": str(day.month),
            "mm": f"{day:%m}",
            "Mon": month[:3],
            "MON": month[:3].upper(),
            "Month": month,
            "month": month.lower(),
            "roman": _ROMAN[day.month - 1],
            "ROMAN": _ROMAN[day.month - 1].upper(),
            "Y": str(day.year),
            "yy": f"{day:%y}",
            "yearwords": _YEAR_WORDS[day.year],
            "ordinal": _ORDINALS[day.day - 1],
            "w": str(min(week.week, 52)),
            "ww": f"{min(week.week, 52):02d}",
            "Holiday": draws.pick(self._words["holidays"]),
        }

    def _list_place_parts(self) -> dict[str, str]:
        draws = self._draws
        streets = draws.sample(self._words["streets"], 2)
        host = draws.pick(self._words["hosts"])
        return {
            "Street": streets[0],
            "Street2": streets[1],
            "Town": draws.pick(self._words["towns"]),
            "Company": draws.pick(self._words["companies"]),
            "Hospital": draws.pick(self._words["hospitals"]),
            "Host": host,
            "HOST": host.title(),
            "hostname": host.partition(".")[0],
            "tld": host.rpartition(".")[2],
            "UK": draws.pick(("SW1 4QT", "NE7 2AB", "B3 9XD", "LS6 1AB", "SW9 8XD", "NE2 5QT")),
        }
