"""Fictional notes with identifiers at places that are known, in the forms in which notes have them.

Listed names come from the package Faker, as do the lists of the recognizer; unlisted ones are made of syllables, and no
list has them. No real person is described.
"""

from __future__ import annotations

import calendar
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import lru_cache

from epicrisis.evaluation.synthesis.patient_records.random_draws import Draws
from epicrisis.privacy.deidentification.deidentifier import PatientIdentifiers
from epicrisis.privacy.deidentification.eponyms import ORDINARY_WORDS
from epicrisis.privacy.deidentification.name_lists import read_name_lists
from epicrisis.privacy.deidentification.spans import IdentifierKind

NOTES_EACH = 5
"""Notes of one patient."""
_REGISTERED = 80
"""Percent of the patients whose name and record number the library has."""
_OPEN, _MIDDLE, _CLOSE = "\x01", "\x02", "\x03"
_MARK = re.compile(f"{_OPEN}([^{_OPEN}-{_CLOSE}]++){_MIDDLE}([^{_OPEN}-{_CLOSE}]*+){_CLOSE}")
_ONSETS = "b br ch d dr f g gw h j k kr l m mw n ng nd p r s sh sk st t th tr v w y z zh"
_VOWELS = "a e i o u aa ei oo ia au"
_CODAS = "n m r l k sh x t rd nk lt mba ndo ski wicz oglu yan dze ovic uri"

_HEADERS = (
    "Patient Name: {patient.last_first}\nMRN: {mrn}  DOB: {dob}  Account No: {account}\nAttending: {staff.full}, MD",
    "NAME: {patient.upper}      UNIT NUMBER: {mrn}\nDATE OF ADMISSION: {date}\nDATE OF BIRTH: {dob}",
    "Pt: {patient.full}\nMedical Record #{mrn}\nDate of visit: {date}\nPCP: Dr. {staff.last}",
    "RE: {patient.full}\nDear Dr. {staff.last},\nThank you for referring {patient.titled}, who was seen on {date}.",
    "{patient.upper_last_first} {mrn} {date}\nADMITTING PHYSICIAN: {staff.upper} MD",
    "patient: {patient.lower}\ndob {dob}\nseen {date} by dr. {staff.lower_last}",
)
_SENTENCES = (
    "{patient.full} is a {age} year old who presents with chest pain.",
    "{patient.titled} was admitted on {date} and discharged on {date}.",
    "On {date} {patient.titled} underwent a Whipple procedure without complications.",
    "{patient.first} reports feeling better since {date}.",
    "{patient.titled}'s wound was clean on {short_date}.",
    "The patient, {patient.broken}, has Parkinson's disease and a Foley catheter.",
    "{patient.misspelled} tolerated the procedure well.",
    "pt {patient.lower} c/o nausea, denies vomiting.",
    "{patient.initial} was started on Lasix 40 mg daily.",
    "Daughter {relative.full} called and can be reached at {phone}.",
    "Her sister {relative.first} is at the bedside.",
    "Discussed with his wife, {relative.full}, who agrees with the plan.",
    "{relative.full} (son) will pick up the patient, cell {phone}.",
    "Emergency contact: {relative.full}, phone {phone}.",
    "Spoke with {relative.first} about the Hodgkin lymphoma.",
    "{relative.first} states that the pain began in {month_year}.",
    "The family, including {relative.first}, was updated.",
    "Seen by Dr. {staff.last} of cardiology, who recommends a Holter monitor.",
    "Plan discussed with {staff.full}, RN.",
    "Consult: {staff.full}, NP, pager {pager}.",
    "Dr. {staff.last} performed a Trendelenburg test; Babinski sign negative.",
    "Case was reviewed with Drs. {staff.last} and {staff.last}.",
    "Per {staff.full}, continue metoprolol 25 mg twice daily.",
    "MRN {mrn} was verified. SSN {ssn}.",
    "Social security number: {ssn}",
    "Lives at {street}, {town}, {state} {zip}.",
    "Resides in {town} with family. Home address {street}.",
    "He moved here from {town}, {state} in {month_year}.",
    "Call {phone} or fax {fax} for results.",
    "Results were sent by fax: {fax}.",
    "E-mail: {email}; records at {url}.",
    "Portal message from {email} received {date}.",
    "Health plan ID {plan}, policy number {plan}.",
    "Account number {account} was billed.",
    "Driver's license {licence}; the car has license plate {plate}.",
    "DEA {dea} on the prescription.",
    "Pacemaker serial number {serial} was interrogated on {date}.",
    "Device S/N {serial}, lot {serial}.",
    "Logged in from {ip} at 10:30.",
    "Specimen ID {specimen} received {date}. VIN: {vin}.",
    "The patient is {old_age} years old and lives alone.",
    "{old_age}-year-old with Alzheimer dementia.",
    "Age {old_age}, DOB {dob}.",
    "INR was 2.5 on {date}, 2.8 on {date}.",
    "Last colonoscopy {month_year}; next visit {date}.",
    "Transferred from {hospital} on {date}.",
    "CT of {date} compared with {date}: no change.",
    "Repeat cultures {bare_date} without growth; drain removed {bare_date}, sutures {bare_date}.",
    "PCP: {staff.last_initial} Warfarin 5 mg and Digoxin 0.125 mg were continued.",
)
_FILLERS = (
    "Blood pressure 128/76, heart rate 88, respirations 16, saturation 97% on room air.",
    "Crohn's disease in remission. Graves disease treated. Murphy sign negative.",
    "Hemoglobin 10.2, WBC 11.4, platelets 250, creatinine 1.3, potassium 4.1.",
    "Continue Lasix 40 mg, Zosyn 3.375 g, Vancomycin 1 g, Lisinopril 10 mg, Norvasc 5 mg.",
    "A Foley catheter and a Jackson-Pratt drain are in place. Kerley B lines on the film.",
    "Alert and oriented x3. Strength 5/5. Glasgow Coma Scale 15. Romberg negative.",
    "Assessment and Plan: Wells score 3, start Heparin drip per protocol.",
    "Allergies: Penicillin, Sulfa. Diet: Regular. Code status: Full.",
    "Mallory-Weiss tear excluded by endoscopy. Barrett esophagus, Prague C2M4.",
    "He will return in May. She may walk with a walker. Will follow.",
    "Wilson disease was considered. Bell palsy on the left. Lyme titer negative.",
    "Patient denies fever, chills, or night sweats. Family history of Huntington disease.",
    "Ejection fraction 45%. Swan-Ganz catheter removed. White count 12.",
    "Tylenol 650 mg every 6 hours, Colace 100 mg twice daily, Ativan 1/2 tab at night.",
    "Pain 7/10, now 3/10. Systolic murmur 2/6. Reflexes 2/4, pulses 1/2. BiPAP 12/5, then 10/5.",
    "Gait 3/4 of normal; 2/2 bottles grew nothing. Percocet 5/325, insulin 70/30, vision 20/40.",
)
_SIGNATURES = (
    "Electronically signed by {staff.full}, MD on {date} 14:05",
    "Dictated by: {staff.full}\nD: {date} T: {date}\ncc: {staff.full}, MD",
    "{staff.full} MD PhD\nPager {pager}",
    "signed: {staff.lower}, rn {date}",
    "{staff.upper}, M.D.",
)
_STREETS = ("Maple", "Oak Hill", "Washington", "Rosewood", "Birch", "Mill", "Lakeview", "Cedar Grove")
_ROADS = ("Street", "Ave", "Road", "Lane", "Dr", "Blvd", "Court")
_TOWNS = ("Springfield", "Worcester", "Riverton", "Cedar Falls", "Northampton", "Oakdale", "Santa Rosa", "Newbridge")
_STATES = ("MA", "NY", "Ohio", "TX", "California", "PA", "WA")
_HOSPITALS = ("Mercy General Hospital", "Lakeview Clinic", "Saint Brendan Hospital", "Oakdale Nursing Home")


@dataclass(frozen=True, slots=True)
class PlantedIdentifier:
    """An identifier at `text[start:end]` of a note."""

    start: int
    end: int
    kind: IdentifierKind
    form: str
    """How it is written: `patient.full`, `date`, ... Names that are in no list have `unlisted` before."""


@dataclass(frozen=True, slots=True)
class IdentifiedNote:
    """A note with its identifiers."""

    text: str
    identifiers: tuple[PlantedIdentifier, ...]


@dataclass(frozen=True, slots=True)
class IdentifiedPatient:
    """A patient with notes, and what a library would have registered."""

    registered: PatientIdentifiers
    notes: tuple[IdentifiedNote, ...]


@dataclass(frozen=True, slots=True)
class _Person:
    first: str
    last: str
    is_listed: bool


def draw_identified_patient(number: int, seed: int) -> IdentifiedPatient:
    """Return the patient with this number. The same arguments give the same notes, with the same version of Faker."""
    draws = Draws("identified", seed, number)
    patient = _draw_person(draws)
    mrn = str(draws.integer(1_000_000, 99_999_999))
    writer = _NoteWriter(draws, patient, mrn)
    notes = tuple(writer.write() for _ in range(NOTES_EACH))
    if not draws.chance(_REGISTERED):
        return IdentifiedPatient(PatientIdentifiers(f"fiction-{number}"), notes)
    name = f"{patient.last}, {patient.first}"
    return IdentifiedPatient(PatientIdentifiers(f"fiction-{number}", (name,), (mrn,)), notes)


@lru_cache(maxsize=1)
def _listed_names() -> tuple[Sequence[str], Sequence[str]]:
    lists = read_name_lists()
    # Notes in English are written in Latin letters.
    return sorted(filter(_is_latin, lists.first)), sorted(filter(_is_latin, lists.last))


def _is_latin(name: str) -> bool:
    return all(unicodedata.name(letter, "").startswith("LATIN SMALL") for letter in re.sub(r"[-'\u2019]", "", name))


def _draw_person(draws: Draws) -> _Person:
    if draws.chance(25):
        return _Person(_invent(draws), _invent(draws), is_listed=False)
    first, last = _listed_names()
    return _Person(_capitalize(draws.pick(first)), _capitalize(draws.pick(last)), is_listed=True)


def _invent(draws: Draws) -> str:
    while True:
        syllables = [f"{draws.pick(_ONSETS.split())}{draws.pick(_VOWELS.split())}" for _ in range(draws.integer(1, 2))]
        name = f"{''.join(syllables)}{draws.pick(_CODAS.split())}"
        lists = read_name_lists()
        is_word = name in lists.first or name in lists.last or name in ORDINARY_WORDS
        if len(name) > 3 and not is_word:
            return name.capitalize()


def _capitalize(name: str) -> str:
    return re.sub(r"(?:^|(?<=[-'\u2019]))\w", lambda match: match[0].upper(), name)


def _misspell(name: str, draws: Draws) -> str:
    """Return the name without one of its inner letters, or with two of them exchanged."""
    if len(name) < 5:
        return name
    place = draws.integer(2, len(name) - 2)
    if draws.chance(50):
        return name[:place] + name[place + 1 :]
    return name[: place - 1] + name[place] + name[place - 1] + name[place + 1 :]


class _NoteWriter:
    """Writes the notes of one patient. Relatives and staff are the same in all notes."""

    def __init__(self, draws: Draws, patient: _Person, mrn: str) -> None:
        self._draws = draws
        self._patient = patient
        self._mrn = mrn
        self._relatives = [_draw_person(draws) for _ in range(2)]
        self._staff = [_draw_person(draws) for _ in range(4)]
        self._born = date(1930, 1, 1) + timedelta(days=draws.integer(0, 20_000))
        self._day = date(2015, 1, 1) + timedelta(days=draws.integer(0, 3000))

    def write(self) -> IdentifiedNote:
        """Return the next note, some days after the one before."""
        draws = self._draws
        self._day += timedelta(days=draws.integer(1, 60))
        lines = [draws.pick(_HEADERS)]
        body = [*draws.sample(_SENTENCES, draws.integer(5, 9)), *draws.sample(_FILLERS, draws.integer(4, 7))]
        lines += draws.shuffle(body)
        lines.append(draws.pick(_SIGNATURES))
        separator = "\n" if draws.chance(50) else " "
        template = "\n".join((lines[0], separator.join(lines[1:-1]), lines[-1]))
        text = re.sub(r"\{([\w.]+)\}", lambda match: self._fill(match[1]), template)
        return read_marks(text.upper() if draws.chance(5) else text)

    def _fill(self, slot: str) -> str:
        role, _, form = slot.partition(".")
        if form:
            people = {"patient": [self._patient], "relative": self._relatives, "staff": self._staff}[role]
            person = self._draws.pick(people)
            listed = "" if person.is_listed else "unlisted "
            text = self._write_name(person, form)
            return mark_identifier("name", f"{listed}{slot}", text)
        if slot == "age":
            return str(self._draws.integer(20, 89))
        if slot == "state":
            return self._draws.pick(_STATES)
        kind, text = self._write_other(slot)
        return mark_identifier(kind, slot, text)

    def _write_name(self, person: _Person, form: str) -> str:
        first, last = person.first, person.last
        title = self._draws.pick(("Mr.", "Mrs.", "Ms.", "Dr."))
        middle = max(2, len(last) // 2)
        return {
            "full": f"{first} {last}",
            "first": first,
            "last": last,
            "titled": f"{title} {last}",
            "last_first": f"{last}, {first}",
            "upper": f"{first} {last}".upper(),
            "upper_last_first": f"{last},{first}".upper(),
            "lower": f"{first} {last}".lower(),
            "lower_last": last.lower(),
            "initial": f"{first[0]}. {last}",
            "last_initial": f"{last}, {first[0]}.",
            "misspelled": _misspell(last, self._draws),
            "broken": f"{first}\n{last}"
            if self._draws.chance(50) or len(last) < 5
            else f"{last[:middle]}-\n{last[middle:]}",
        }[form]

    def _write_other(self, slot: str) -> tuple[IdentifierKind, str]:
        draws = self._draws
        if slot in ("dob", "date", "short_date", "bare_date", "month_year"):
            return "date", self._write_date(slot)
        if slot in ("phone", "pager", "fax"):
            return "fax" if slot == "fax" else "phone", self._write_phone(slot)
        if slot == "mrn":
            return "record-number", self._mrn if draws.chance(70) else f"{self._mrn[:4]}-{self._mrn[4:]}"
        if slot == "old_age":
            return "age", str(draws.integer(90, 104))
        if slot == "ssn":
            number = f"{draws.integer(100, 665)}-{draws.integer(10, 99)}-{draws.integer(1000, 9999)}"
            return "ssn", number if draws.chance(75) else number.replace("-", draws.pick((" ", "")))
        return self._write_code(slot)

    def _write_date(self, slot: str) -> str:
        draws, day = self._draws, self._day
        if slot == "dob":
            return _format_date(self._born, draws)
        if slot in ("short_date", "bare_date"):
            return f"{day.month}/{day.day}"
        if slot == "month_year":
            month = calendar.month_name[day.month]
            return draws.pick((f"{month} {day.year}", f"{month[:3]} {day.year}", f"{day:%m/%Y}"))
        return _format_date(day + timedelta(days=draws.integer(0, 20)), draws)

    def _write_phone(self, slot: str) -> str:
        draws = self._draws
        area, first, last = draws.integer(201, 989), draws.integer(201, 989), draws.integer(1000, 9999)
        if slot == "pager":
            return str(draws.integer(10_000, 99_999))
        if slot == "fax":
            return f"{area}-{first}-{last}"
        forms = (
            f"({area}) {first}-{last}",
            f"{area}-{first}-{last}",
            f"{area}.{first}.{last}",
            f"+1 {area} {first} {last}",
        )
        return draws.pick(forms)

    def _write_code(self, slot: str) -> tuple[IdentifierKind, str]:
        draws = self._draws
        number = draws.integer(10_000_000, 99_999_999)
        letters = "".join(draws.pick("ABCDEFGHJKLMNPRSTUVWXYZ") for _ in range(3))
        codes: dict[str, tuple[IdentifierKind, str]] = {
            "account": ("account", str(number)),
            "plan": ("health-plan", f"{letters}{number}"),
            "licence": ("licence", f"{letters[0]}{number}"),
            "plate": ("vehicle", f"{number % 10}{letters}{number % 1000:03d}"),
            "vin": ("vehicle", f"1HG{letters}8{number % 10**4:04d}A{number % 10**5:05d}"),
            "dea": ("licence", f"A{letters[0]}{number % 10**7:07d}"),
            "serial": ("device", f"{letters}-{number % 10**6:06d}"),
            "specimen": ("other-id", f"S{number}"),
            "email": ("email", f"{self._patient.first}.{letters}{number % 100}@mail.example.com".lower()),
            "url": ("url", f"https://portal.example.com/p/{number}"),
            "ip": ("ip", f"10.{number % 256}.{number % 199}.{number % 99}"),
            "street": ("place", f"{number % 999 + 1} {draws.pick(_STREETS)} {draws.pick(_ROADS)}"),
            "town": ("place", draws.pick(_TOWNS)),
            "zip": ("place", f"{number % 90_000 + 10_000}"),
            "hospital": ("place", draws.pick(_HOSPITALS)),
        }
        return codes[slot]


def _format_date(day: date, draws: Draws) -> str:
    month = calendar.month_name[day.month]
    forms = (
        f"{day.month}/{day.day}/{day.year}",
        f"{day:%m/%d/%Y}",
        f"{day:%m/%d/%y}",
        f"{day.isoformat()}",
        f"{day:%m-%d-%Y}",
        f"{month} {day.day}, {day.year}",
        f"{month[:3]} {day.day}, {day.year}",
        f"{day.day} {month} {day.year}",
        f"{day:%d}-{month[:3]}-{day.year}",
        f"{month} {day.day}",
        f"{month.upper()} {day.day}, {day.year}",
        f"{day:%Y%m%d}",
        f"{day:%d.%m.%Y}",
    )
    return draws.pick(forms)


def mark_identifier(kind: IdentifierKind, form: str, text: str) -> str:
    """Return the text of an identifier between marks, for `read_marks`."""
    return f"{_OPEN}{kind}|{form}{_MIDDLE}{text}{_CLOSE}"


def read_marks(marked: str) -> IdentifiedNote:
    """Return the text without its marks, and where the marked identifiers are."""
    pieces: list[str] = []
    identifiers: list[PlantedIdentifier] = []
    place = length = 0
    for match in _MARK.finditer(marked):
        before = marked[place : match.start()]
        kind, _, form = match[1].lower().partition("|")
        start = length + len(before)
        pieces += [before, match[2]]
        length = start + len(match[2])
        identifiers.append(PlantedIdentifier(start, length, kind, form))  # type: ignore[arg-type]
        place = match.end()
    pieces.append(marked[place:])
    return IdentifiedNote("".join(pieces), tuple(identifiers))
