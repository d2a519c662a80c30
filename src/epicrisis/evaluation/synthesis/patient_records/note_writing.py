"""Notes from a patient's story: what each kind of note looks like. Facts stand in them as marked statements.

A note's words depend on the note alone, never on which other notes are written. Knows no questions and no lengths.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from epicrisis.evaluation.synthesis.patient_records.fact_spans import FactSpan, stated, unmarked
from epicrisis.evaluation.synthesis.patient_records.facts import Fact, sentence_case
from epicrisis.evaluation.synthesis.patient_records.fictional_patient import FictionalPatient, FictionalStay
from epicrisis.evaluation.synthesis.patient_records.random_draws import Draws
from epicrisis.evaluation.synthesis.patient_records.vocabulary import drugs, table

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
_CODES = {
    "discharge": "DS",
    "admission": "AN",
    "progress": "PN",
    "nursing": "NN",
    "radiology": "RR",
    "consult": "CN",
    "clinic": "OL",
    "laboratory": "LR",
}


@dataclass(frozen=True, slots=True)
class NotePlan:
    """One note that may be written: what kind, of which stay and day, and which of that day's."""

    kind: str
    stay: int
    day: int
    slot: int = 0


@dataclass(frozen=True, slots=True)
class FictionalNote:
    """A note as it stands in the file. `time` is ISO to the minute; `encounter` is empty outside a stay."""

    id: str
    kind: str
    time: str
    encounter: str
    stay: FictionalStay
    text: str
    marks: tuple[FactSpan, ...]


class Writer:
    """Writes the notes of one patient. `facts` are all that the record may state."""

    def __init__(self, patient: FictionalPatient, facts: Iterable[Fact], draws: Draws) -> None:
        self._patient = patient
        self._draws = draws
        self._facts: dict[tuple[int, str], list[Fact]] = {}
        for fact in facts:
            self._facts.setdefault((fact.stay, fact.place), []).append(fact)

    def places(self) -> Iterable[tuple[int, str]]:
        """Of all facts the stay and the part of its notes."""
        return self._facts.keys()

    def write(self, plan: NotePlan) -> FictionalNote:
        """The note of this plan; the same whenever it is asked for."""
        stay = self._patient.stays[plan.stay - 1]
        draws = self._draws.at("note", plan.kind, plan.stay, plan.day, plan.slot)
        code = f"{_CODES[plan.kind]}-{plan.stay}-{plan.day}" + (f"-{plan.slot}" if plan.slot else "")
        note_id = f"{self._patient.id}-{code}"
        time = _time(plan, stay, draws)
        page = _Page(self._patient, stay, plan, time, draws, self._facts)
        body = getattr(page, plan.kind)()
        head = f"{FICTIONAL}. Note {note_id}, {KINDS[plan.kind].lower()}."
        text, marks = unmarked("\n".join((head, *body)).strip())
        encounter = "" if plan.kind == "clinic" else f"{self._patient.id}-S{stay.number}"
        return FictionalNote(
            note_id, KINDS[plan.kind], time.isoformat(timespec="minutes"), encounter, stay, text, marks
        )


def _time(plan: NotePlan, stay: FictionalStay, draws: Draws) -> datetime:
    """Within the stay, but for letters, which are written after it."""
    day = stay.admitted.replace(hour=0, minute=0) + timedelta(days=plan.day)
    minute = timedelta(minutes=draws.whole(0, 59))
    match plan.kind:
        case "discharge":
            return stay.discharged
        case "clinic":
            return day + timedelta(hours=draws.whole(9, 16)) + minute
        case "admission" | "radiology" | "laboratory" if plan.day == 0:
            after = {"laboratory": 5, "radiology": 20, "admission": 40}[plan.kind]
            return stay.admitted + timedelta(minutes=after + draws.whole(0, 14))
        case "laboratory":
            return day + timedelta(hours=5) + minute
        case "progress":
            return day + timedelta(hours=draws.whole(7, 10)) + minute
        case "nursing":
            return day + timedelta(hours=(6, 14, 22)[plan.slot % 3]) + minute
        case _:
            return day + timedelta(hours=draws.whole(11, 17)) + minute


class _Page:
    """One note while it is written."""

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
        self._patient, self._stay, self._plan, self._time, self._draws, self._all = (
            patient,
            stay,
            plan,
            time,
            draws,
            facts,
        )
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

    # -- what the kinds share ------------------------------------------------------------------------------------------

    def _say(self, group: str, bank: str, n: int = 1, **more: str) -> str:
        options: Sequence[str] = table("phrases")[group][bank]
        said = []
        for template in self._draws.several(options, n):
            lab = self._draws.pick(self._stay.condition.labs)
            ago = self._time - timedelta(minutes=self._draws.whole(10, 400))
            said.append(self._filled(template, lab=lab, ago=f"{ago:%H:%M}", **more))
        return " ".join(said)

    def _filled(self, template: str, **more: str) -> str:
        words: dict[str, Any] = {**self._words, **more}
        # Twice, for a slot may stand in one of the words that another picks.
        return self._draws.fill(self._draws.fill(template, **words), **words)

    def _facts(self, place: str) -> list[str]:
        return [fact.marked for fact in self._all.get((self._stay.number, place), ())]

    def _history(self) -> list[str]:
        return [
            f"- {stated(f'history:{each.abbreviation}', f'{each.abbreviation}, known since {year}', each.abbreviation)}"
            for each, year in self._patient.chronic
        ]

    def _vitals(self) -> str:
        return self._filled(
            "T {36.1..37.9} BP {104..158}/{52..90} HR {58..108} RR {12..22} SpO2 {91..99}% {RA|on 2L NC}"
        )

    def _exam(self, n: int) -> list[str]:
        parts = list(table("phrases")["exam"])
        chosen = sorted(self._draws.several(parts, n), key=parts.index)
        return [f"{part.upper()}: {self._say('exam', part)}." for part in chosen]

    # -- the kinds -----------------------------------------------------------------------------------------------------

    def admission(self) -> list[str]:
        condition, history = self._stay.condition, self._draws.several(self._stay.condition.history, 2)
        once = self._facts("admission")
        reporting = self._draws.several(table("phrases")["admission"]["reports"], 2)
        reports = [
            self._filled(said, history=self._filled(each)) for said, each in zip(reporting, history, strict=True)
        ]
        story = " ".join((self._say("admission", "opening"), self._say("admission", "timing"), *reports))
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
            f"{self._say('admission', 'emergency')} {self._say('admission', 'floor')}",
            self._say("admission", "denies", 2),
            "",
            "PAST MEDICAL HISTORY:",
            *self._history(),
            "",
            *(["SOCIAL AND FAMILY HISTORY:", *once, ""] if once else []),
            "HOME MEDICATIONS:",
            *(f"- {drug} {dose} {drugs()[drug].how}" for drug, dose in self._stay.home.items()),
            "",
            "PHYSICAL EXAM:",
            f"VS: {self._vitals()}",
            *self._facts("arrival"),
            *self._exam(7),
            f"FOCUSED: {self._filled(sentence_case('; '.join(condition.exam)))}.",
            "",
            "ASSESSMENT AND PLAN:",
            f"# {sentence_case(condition.name)}: {self._say('admission', 'plan')}",
            *self._problems(3),
            self._say("admission", "usual"),
        ]

    def _problems(self, n: int) -> list[str]:
        chosen = self._draws.several(self._patient.chronic, n)
        return [self._say("progress", "chronic", chronic=one.abbreviation, drug=one.drug) for one, _ in chosen]

    def progress(self) -> list[str]:
        return [
            f"{self._time:%Y-%m-%d %H:%M}  {self._stay.condition.service} daily note, HD {self._plan.day + 1}",
            "",
            f"INTERVAL: {self._say('progress', 'overnight', 2)}",
            f"S: {self._say('progress', 'subjective', self._draws.whole(3, 5))}",
            "",
            f"O: {self._vitals()}",
            self._filled("I/O {600..2900}/{500..3100}"),
            *self._exam(self._draws.whole(5, 8)),
            "",
            "A/P:",
            self._say("progress", "acute"),
            *self._problems(self._draws.whole(2, 4)),
            self._say("progress", "closing", 2),
        ]

    def nursing(self) -> list[str]:
        shift = ("Night", "Day", "Evening")[self._plan.slot % 3]
        parts = list(table("phrases")["nursing"])
        chosen = sorted(self._draws.several(parts[:-1], self._draws.whole(6, 9)), key=parts.index)
        told = [self._say("nursing", part, 1 if part == "pain" else self._draws.whole(1, 2)) for part in chosen]
        once = self._facts(f"nursing:{self._plan.day}") if self._plan.slot == 0 else []
        at = self._draws.whole(1, len(told) - 1)
        head = f"{self._time:%Y-%m-%d %H:%M}  {shift} shift, HD {self._plan.day + 1}"
        return [head, " ".join(told[:at]), *once, " ".join(told[at:]), f"PLAN: {self._say('nursing', 'plan')}"]

    def radiology(self) -> list[str]:
        found, denied = self._facts("radiology")
        return [
            f"EXAM: {sentence_case(self._stay.condition.study)}   DATE: {self._time:%Y-%m-%d %H:%M}",
            f"INDICATION: {self._words['age']} y/o with {self._stay.condition.complaint}.",
            f"TECHNIQUE: {self._say('radiology', 'technique', 2)}",
            f"COMPARISON: {self._say('radiology', 'comparison')}",
            "",
            f"FINDINGS: {found} {self._say('radiology', 'other', 3)}",
            "",
            f"IMPRESSION: {denied}",
            f"Findings as described above. {self._say('radiology', 'read')}",
        ]

    def consult(self) -> list[str]:
        advice = self._draws.several(table("phrases")["consult"]["advice"], self._draws.whole(3, 5))
        lab = self._draws.pick(self._stay.condition.labs)
        once = self._facts("consult") if self._plan.slot == 0 else []
        return [
            f"{self._time:%Y-%m-%d %H:%M}  {self._draws.pick(_CONSULTANTS)} consult",
            f"{self._say('consult', 'thanks')} {self._say('consult', 'summary', 2)}",
            *once,
            "",
            f"EXAM: {self._vitals()}",
            *self._exam(4),
            "",
            "RECOMMENDATIONS:",
            *(f"{number}. {self._filled(each, lab=lab)}" for number, each in enumerate(advice, 1)),
            self._say("consult", "bye"),
        ]

    def laboratory(self) -> list[str]:
        rows = self._facts(f"laboratory:{self._plan.day}")
        return [
            f"Collected {self._time:%Y-%m-%d %H:%M}, {self._draws.pick(('venous', 'peripheral', 'line'))} draw",
            *rows,
        ]

    def clinic(self) -> list[str]:
        return [
            f"{table('nuggets')['names']['hospital']}, {self._stay.condition.service} clinic, {self._time:%Y-%m-%d}",
            "",
            f"{self._say('clinic', 'opening')} {self._say('clinic', 'interval', self._draws.whole(2, 4))}",
            *self._facts("clinic"),
            "",
            f"On exam: {self._vitals()}",
            *self._exam(4),
            "",
            self._say("clinic", "plan", self._draws.whole(2, 3)),
            f"With kind regards, {self._stay.doctor}",
        ]

    def discharge(self) -> list[str]:
        stay, condition, chronic = self._stay, self._stay.condition, self._patient.chronic
        history = self._filled(self._draws.pick(condition.history))
        first, last = self._facts("laboratory:0"), self._facts(f"laboratory:{stay.days}")
        found, denied = self._facts("radiology")
        apart = self._draws.several(chronic, 2)
        course = " ".join((self._say("discharge", "course"), *self._facts("course")))
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
            f"{self._say('admission', 'opening')} {self._say('admission', 'reports', history=history)} "
            f"{self._say('admission', 'emergency')}",
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
            found,
            denied,
            "",
            "Hospital Course:",
            course,
            *(self._say("discharge", "chronic", chronic=one.abbreviation) for one, _ in apart),
            "",
            "Medications on Admission:",
            *(f"{n}. {drug} {dose} {drugs()[drug].how}" for n, (drug, dose) in enumerate(stay.home.items(), 1)),
            "",
            "Discharge Medications:",
            *(f"{number}. {each}" for number, each in enumerate(self._facts("medications"), 1)),
            "",
            "Discharge Disposition:",
            *self._facts("disposition"),
            "",
            "Discharge Diagnosis:",
            *self._facts("diagnosis"),
            f"Secondary: {', '.join(each.abbreviation for each, _ in chronic[:3])}",
            "",
            "Discharge Condition:",
            *self._facts("condition"),
            "",
            "Discharge Instructions:",
            self._say("discharge", "letter"),
            *self._facts("instructions"),
            self._say("discharge", "warn", 2),
            "",
            "Followup Instructions:",
            *self._facts("followup"),
        ]


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
