"""The notes of a fictional patient, one layout for each kind of note. Facts are marked statements in their text.

The words of a note depend on this note alone, never on the other notes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from itertools import count

from epicrisis.evaluation.synthesis.patient_records.facts import Fact, FactSpan, extract_spans, mark_fact, sentence_case
from epicrisis.evaluation.synthesis.patient_records.fictional_patient import FictionalPatient, FictionalStay
from epicrisis.evaluation.synthesis.patient_records.random_draws import Draws
from epicrisis.evaluation.synthesis.patient_records.vocabulary import drugs, read_table

FICTIONAL = "FICTIONAL RECORD - invented patient, no real person"
KINDS: Mapping[str, str] = {
    "discharge": "Discharge summary",
    "admission": "Admission note",
    "progress": "Progress note",
    "nursing": "Nursing note",
    "radiology": "Radiology report",
    "consult": "Consult note",
    "clinic": "Outpatient letter",
    "laboratory": "Laboratory report",
}
_CONSULTANTS = (
    "Geriatrics",
    "Nutrition",
    "Physical therapy",
    "Palliative care",
    "Psychiatry",
    "Pharmacy",
    "Pain service",
    "Social work",
    "Wound care",
    "Hematology",
)


@dataclass(frozen=True, slots=True)
class NotePlan:
    """A note to write: its kind, stay and day, and its number among the notes of this kind on the day."""

    kind: str
    stay: int
    day: int
    slot: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FictionalNote:
    """A note as in the file. `time` is ISO to the minute; `encounter` is empty outside a stay."""

    id: str
    kind: str
    time: str
    encounter: str
    stay: FictionalStay
    text: str
    spans: tuple[FactSpan, ...]


class NoteWriter:
    """Writes the notes of one patient. `facts` are all facts the record may state."""

    def __init__(self, patient: FictionalPatient, facts: Iterable[Fact], draws: Draws) -> None:
        self._patient = patient
        self._draws = draws
        self._facts: dict[tuple[int, str], list[Fact]] = defaultdict(list)
        for fact in facts:
            self._facts[fact.stay, fact.place].append(fact)

    def places(self) -> Iterable[tuple[int, str]]:
        """Return the number of the stay and the place of all facts."""
        return self._facts.keys()

    def write(self, plan: NotePlan) -> FictionalNote:
        """Write the note of this plan. The same plan always gives the same note."""
        stay = self._patient.stays[plan.stay - 1]
        draws = self._draws.substream("note", plan.kind, plan.stay, plan.day, plan.slot)
        initials = "".join(part[0] for part in KINDS[plan.kind].upper().split())
        code = f"{initials}-{plan.stay}-{plan.day}" + (f"-{plan.slot}" if plan.slot else "")
        note_id = f"{self._patient.id}-{code}"
        time = _draw_time(plan, stay, draws)
        layout = _NoteLayout(self._patient, stay, plan, time, draws, self._facts)
        lines = [f"{FICTIONAL}. Note {note_id}, {KINDS[plan.kind].lower()}.", *layout.lines()]
        text, spans = extract_spans("\n".join(lines).strip())
        encounter = "" if plan.kind == "clinic" else f"{self._patient.id}-S{stay.number}"
        iso_time = time.isoformat(timespec="minutes")
        return FictionalNote(
            id=note_id, kind=KINDS[plan.kind], time=iso_time, encounter=encounter, stay=stay, text=text, spans=spans
        )


def _draw_time(plan: NotePlan, stay: FictionalStay, draws: Draws) -> datetime:
    """Draw the time of a note within the stay. Outpatient letters are written after it."""
    day = stay.admitted.replace(hour=0, minute=0) + timedelta(days=plan.day)
    minute = timedelta(minutes=draws.integer(0, 59))
    match plan.kind:
        case "discharge":
            return stay.discharged
        case "clinic":
            return day + timedelta(hours=draws.integer(9, 16)) + minute
        case "admission" | "radiology" | "laboratory" if plan.day == 0:
            after = {"laboratory": 5, "radiology": 20, "admission": 40}[plan.kind]
            return stay.admitted + timedelta(minutes=after + draws.integer(0, 14))
        case "laboratory":
            return day + timedelta(hours=5) + minute
        case "progress":
            return day + timedelta(hours=draws.integer(7, 10)) + minute
        case "nursing":
            return day + timedelta(hours=(6, 14, 22)[plan.slot % 3]) + minute
        case _:
            return day + timedelta(hours=draws.integer(11, 17)) + minute


class _NoteLayout:
    """The lines of one note. Every kind of note has a method of its name."""

    def __init__(
        self,
        patient: FictionalPatient,
        stay: FictionalStay,
        plan: NotePlan,
        time: datetime,
        draws: Draws,
        facts: Mapping[tuple[int, str], Sequence[Fact]],
    ) -> None:
        condition = stay.condition
        self._patient, self._stay, self._plan = patient, stay, plan
        self._time, self._draws, self._all_facts = time, draws, facts
        self._words = {
            **patient.words,
            "name": patient.name,
            "age": str(stay.admitted.year - patient.born),
            "first": patient.chronic[0][0].abbreviation,
            "second": patient.chronic[1][0].abbreviation,
            "complaint": condition.complaint,
            "treatment": draws.fill(condition.treatment, **patient.words),
            "diagnosis": condition.name,
            "Abbreviation": condition.abbreviation,
            "service": condition.service,
            "day": str(plan.day + 1),
            "days": str(plan.day - stay.days),
        }

    def lines(self) -> list[str]:
        """Return the lines below the head of the note."""
        lines: list[str] = getattr(self, self._plan.kind)()
        return lines

    def _phrases(self, group: str, bank: str, n: int = 1, **words: str) -> str:
        """Draw `n` phrases of a bank and join them."""
        templates: Sequence[str] = read_table("phrases")[group][bank]
        phrases = []
        for template in self._draws.sample(templates, n):
            lab = self._draws.pick(self._stay.condition.labs)
            ago = self._time - timedelta(minutes=self._draws.integer(10, 400))
            phrases.append(self._fill(template, lab=lab, ago=f"{ago:%H:%M}", **words))
        return " ".join(phrases)

    def _fill(self, template: str, **words: str) -> str:
        all_words = self._words | words
        # Fill twice: a word drawn for a slot may contain another slot.
        return self._draws.fill(self._draws.fill(template, **all_words), **all_words)

    def _facts(self, place: str) -> list[str]:
        return [item.marked_sentence for item in self._all_facts.get((self._stay.number, place), ())]

    def _history(self) -> list[str]:
        lines = []
        for condition, year in self._patient.chronic:
            short = condition.abbreviation
            lines.append(f"- {mark_fact(f'history:{short}', f'{short}, known since {year}', short)}")
        return lines

    def _home_drugs(self) -> list[str]:
        return [f"{drug} {dose} {drugs()[drug].how}" for drug, dose in self._stay.home.items()]

    def _vitals(self) -> str:
        return self._fill("T {36.1..37.9} BP {104..158}/{52..90} HR {58..108} RR {12..22} SpO2 {91..99}% {RA|on 2L NC}")

    def _exam(self, n: int) -> list[str]:
        parts = list(read_table("phrases")["exam"])
        selection = sorted(self._draws.sample(parts, n), key=parts.index)
        return [f"{part.upper()}: {self._phrases('exam', part)}." for part in selection]

    def admission(self) -> list[str]:
        condition, social_history = self._stay.condition, self._facts("admission")
        history = self._draws.sample(condition.history, 2)
        reports = []
        templates = self._draws.sample(read_table("phrases")["admission"]["reports"], 2)
        for template, symptom in zip(templates, history, strict=True):
            reports.append(self._fill(template, history=self._fill(symptom)))
        story = " ".join((self._phrases("admission", "opening"), self._phrases("admission", "timing"), *reports))
        return [
            f"Admitted: {self._stay.admitted:%Y-%m-%d %H:%M}   Service: {condition.service}   Attending: "
            f"{self._stay.doctor}",
            f"Allergies: {self._patient.allergy}",
            "",
            "CHIEF COMPLAINT:",
            sentence_case(condition.complaint),
            "",
            "HISTORY OF PRESENT ILLNESS:",
            story,
            *self._facts("history"),
            f"{self._phrases('admission', 'emergency')} {self._phrases('admission', 'floor')}",
            self._phrases("admission", "denies", 2),
            "",
            "PAST MEDICAL HISTORY:",
            *self._history(),
            "",
            *(["SOCIAL AND FAMILY HISTORY:", *social_history, ""] if social_history else []),
            "HOME MEDICATIONS:",
            *(f"- {drug}" for drug in self._home_drugs()),
            "",
            "PHYSICAL EXAM:",
            f"VS: {self._vitals()}",
            *self._facts("arrival"),
            *self._exam(7),
            f"FOCUSED: {self._fill(sentence_case('; '.join(condition.exam)))}.",
            "",
            "ASSESSMENT AND PLAN:",
            f"# {sentence_case(condition.name)}: {self._phrases('admission', 'plan')}",
            *self._problems(3),
            self._phrases("admission", "usual"),
        ]

    def _problems(self, n: int) -> list[str]:
        lines: list[str] = []
        for condition, _ in self._draws.sample(self._patient.chronic, n):
            lines.append(self._phrases("progress", "chronic", chronic=condition.abbreviation, drug=condition.drug))
        return lines

    def progress(self) -> list[str]:
        return [
            f"{self._time:%Y-%m-%d %H:%M}  {self._stay.condition.service} daily note, HD {self._plan.day + 1}",
            "",
            f"INTERVAL: {self._phrases('progress', 'overnight', 2)}",
            f"S: {self._phrases('progress', 'subjective', self._draws.integer(3, 5))}",
            "",
            f"O: {self._vitals()}",
            self._fill("I/O {600..2900}/{500..3100}"),
            *self._exam(self._draws.integer(5, 8)),
            "",
            "A/P:",
            self._phrases("progress", "acute"),
            *self._problems(self._draws.integer(2, 4)),
            self._phrases("progress", "closing", 2),
        ]

    def nursing(self) -> list[str]:
        shift = ("Night", "Day", "Evening")[self._plan.slot % 3]
        parts = list(read_table("phrases")["nursing"])
        selection = sorted(self._draws.sample(parts[:-1], self._draws.integer(6, 9)), key=parts.index)
        phrases = []
        for part in selection:
            phrases.append(self._phrases("nursing", part, 1 if part == "pain" else self._draws.integer(1, 2)))
        facts = self._facts(f"nursing:{self._plan.day}") if self._plan.slot == 0 else []
        middle = self._draws.integer(1, len(phrases) - 1)
        head = f"{self._time:%Y-%m-%d %H:%M}  {shift} shift, HD {self._plan.day + 1}"
        plan = f"PLAN: {self._phrases('nursing', 'plan')}"
        return [head, " ".join(phrases[:middle]), *facts, " ".join(phrases[middle:]), plan]

    def radiology(self) -> list[str]:
        finding, denial = self._facts("radiology")
        return [
            f"EXAM: {sentence_case(self._stay.condition.study)}   DATE: {self._time:%Y-%m-%d %H:%M}",
            f"INDICATION: {self._words['age']} y/o with {self._stay.condition.complaint}.",
            f"TECHNIQUE: {self._phrases('radiology', 'technique', 2)}",
            f"COMPARISON: {self._phrases('radiology', 'comparison')}",
            "",
            f"FINDINGS: {finding} {self._phrases('radiology', 'other', 3)}",
            "",
            f"IMPRESSION: {denial}",
            f"Findings as described above. {self._phrases('radiology', 'read')}",
        ]

    def consult(self) -> list[str]:
        advice = self._draws.sample(read_table("phrases")["consult"]["advice"], self._draws.integer(3, 5))
        lab = self._draws.pick(self._stay.condition.labs)
        facts = self._facts("consult") if self._plan.slot == 0 else []
        return [
            f"{self._time:%Y-%m-%d %H:%M}  {self._draws.pick(_CONSULTANTS)} consult",
            f"{self._phrases('consult', 'thanks')} {self._phrases('consult', 'summary', 2)}",
            *facts,
            "",
            f"EXAM: {self._vitals()}",
            *self._exam(4),
            "",
            "RECOMMENDATIONS:",
            *map("{}. {}".format, count(1), map(partial(self._fill, lab=lab), advice)),
            self._phrases("consult", "bye"),
        ]

    def laboratory(self) -> list[str]:
        site = self._draws.pick(("venous", "peripheral", "line"))
        head = f"Collected {self._time:%Y-%m-%d %H:%M}, {site} draw"
        return [head, *self._facts(f"laboratory:{self._plan.day}")]

    def clinic(self) -> list[str]:
        hospital = read_table("nuggets")["names"]["hospital"]
        return [
            f"{hospital}, {self._stay.condition.service} clinic, {self._time:%Y-%m-%d}",
            "",
            f"{self._phrases('clinic', 'opening')} {self._phrases('clinic', 'interval', self._draws.integer(2, 4))}",
            *self._facts("clinic"),
            "",
            f"On exam: {self._vitals()}",
            *self._exam(4),
            "",
            self._phrases("clinic", "plan", self._draws.integer(2, 3)),
            f"With kind regards, {self._stay.doctor}",
        ]

    def discharge(self) -> list[str]:
        stay, condition, chronic = self._stay, self._stay.condition, self._patient.chronic
        history = self._fill(self._draws.pick(condition.history))
        first, last = self._facts("laboratory:0"), self._facts(f"laboratory:{stay.days}")
        finding, denial = self._facts("radiology")
        other_conditions = self._draws.sample(chronic, 2)
        course = " ".join((self._phrases("discharge", "course"), *self._facts("course")))
        return [
            f"Name: {self._patient.name}   Unit No: {self._patient.id}",
            "",
            f"Admission Date: {stay.day(0)}   Discharge Date: {stay.day(stay.days)}",
            "",
            f"Year of Birth: {self._patient.born}   Sex: {'F' if self._patient.female else 'M'}",
            "",
            f"Service: {condition.service.upper()}",
            "",
            f"Allergies: {self._patient.allergy}",
            "",
            f"Attending: {stay.doctor}",
            "",
            "Chief Complaint:",
            sentence_case(condition.complaint),
            "",
            "History of Present Illness:",
            f"{self._phrases('admission', 'opening')} {self._phrases('admission', 'reports', history=history)} "
            f"{self._phrases('admission', 'emergency')}",
            "",
            "Past Medical History:",
            *self._history(),
            "",
            "Physical Exam:",
            f"Discharge VS: {self._vitals()}",
            *self._facts("leaving"),
            *self._exam(6),
            "",
            "Pertinent Results:",
            *first[:3],
            *last[:3],
            *self._facts("results"),
            finding,
            denial,
            "",
            "Hospital Course:",
            course,
            *(self._phrases("discharge", "chronic", chronic=other.abbreviation) for other, _ in other_conditions),
            "",
            "Medications on Admission:",
            *map("{}. {}".format, count(1), self._home_drugs()),
            "",
            "Discharge Medications:",
            *map("{}. {}".format, count(1), self._facts("medications")),
            "",
            "Discharge Disposition:",
            *self._facts("disposition"),
            "",
            "Discharge Diagnosis:",
            *self._facts("diagnosis"),
            f"Secondary: {', '.join(other.abbreviation for other, _ in chronic[:3])}",
            "",
            "Discharge Condition:",
            *self._facts("condition"),
            "",
            "Discharge Instructions:",
            self._phrases("discharge", "letter"),
            *self._facts("instructions"),
            self._phrases("discharge", "warn", 2),
            "",
            "Followup Instructions:",
            *self._facts("followup"),
        ]
