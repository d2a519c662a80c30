"""What a record states and may be asked about: each fact with its sentence, its answer, and where it is to be stated.

Sentences of a stay hold its dates, so that no two stays say the same words of different things. Knows no notes: a
place is the name of a part of a note (`radiology`, `course`, `medications`), of a stay.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from epicrisis.evaluation.synthesis.patient_records.fact_spans import stated
from epicrisis.evaluation.synthesis.patient_records.fictional_patient import FictionalPatient, FictionalStay
from epicrisis.evaluation.synthesis.patient_records.random_draws import Draws
from epicrisis.evaluation.synthesis.patient_records.vocabulary import Lab, acutes, drugs, labs, once, table

ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
_BLAMED = (
    "contrast dye",
    "a missed dose on the transfer",
    "{2..4} days in bed",
    "an interaction with a home medicine",
    "fluids given too fast",
    "too little to eat and drink",
    "a delay in the emergency department",
    "a sleepless night",
)
_ANSWER = re.compile(r"\[\[([^\[\]]+)\]\]")


@dataclass(frozen=True, slots=True)
class Fact:
    """One statement. `ask` is empty where nothing is asked of it alone."""

    key: str
    stay: int
    """Number of the stay."""
    place: str
    """The part of that stay's notes where it stands; further parts may state it too."""
    sentence: str
    answer: str
    """Words of the sentence."""
    ask: str = ""
    category: str = "specific-fact"
    about: str = ""
    """`number`, `negation`, `trend`, `date`; empty for none of these."""
    others: tuple[str, ...] = ()
    """Answers that are wrong, for options."""

    @property
    def marked(self) -> str:
        return stated(self.key, self.sentence, self.answer)


def facts_of(patient: FictionalPatient, draws: Draws, singular: int) -> tuple[Fact, ...]:
    """All facts, in no order that matters; `singular` of those that stand once in a record."""
    found: list[Fact] = []
    for stay in patient.stays:
        told = draws.at("facts", stay.number)
        for part in (_arrival, _findings, _course, _medicines, _discharge, _values):
            found.extend(part(patient, stay, told.at(part.__name__)))
    found.extend(_singular(patient, draws.at("once"), singular))
    return tuple(found)


def nth(patient: FictionalPatient, stay: FictionalStay) -> str:
    """How a question names the stay: `the second admission`, of several the last one `the final admission`."""
    if stay.number == len(patient.stays) > 1:
        return "the final admission"
    return f"the {ordinal(stay.number)} admission"


def ordinal(number: int) -> str:
    """`first` to `tenth`, then `11th`, `21st`."""
    if number <= len(ORDINALS):
        return ORDINALS[number - 1]
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def answered(draws: Draws, template: str, **words: str) -> tuple[str, str, tuple[str, ...]]:
    """A filled template: the sentence, its `[[answer]]`, and other answers that the same slots might have given."""
    filled = draws.fill(template, **words)
    found = _ANSWER.search(filled)
    if found is None:
        raise ValueError(f"a template without an answer: {template}")
    slots = _ANSWER.search(template)
    others = [draws.fill(slots[1], **words) for _ in range(12)] if slots else []
    wrong = tuple(dict.fromkeys(each for each in others if each != found[1]))
    return _ANSWER.sub(r"\1", filled), found[1], wrong


def _arrival(patient: FictionalPatient, stay: FictionalStay, draws: Draws) -> Iterator[Fact]:
    name, key, words = nth(patient, stay), f"{stay.number}", patient.words
    cause = draws.fill(draws.pick(stay.condition.causes), **words)
    rivals = [*stay.condition.causes, *(draws.pick(each.causes) for each in draws.several(acutes(), 4))]
    others = tuple(dict.fromkeys(draws.fill(each, **words) for each in rivals))
    yield Fact(
        f"cause:{key}",
        stay.number,
        "history",
        f"What set off the illness of {stay.day(0)} was {cause}.",
        cause,
        f"What set off the illness that led to {name}?",
        "cause-effect",
        "",
        tuple(o for o in others if o != cause),
    )
    first, last = stay.weights
    near = tuple(f"{value + step:.1f} kg" for value in stay.weights for step in (0, -4.1, 3.7))
    for place, value, when in (("arrival", first, "on arrival at"), ("leaving", last, "at discharge from")):
        answer, day = f"{value:.1f} kg", stay.day(0 if place == "arrival" else stay.days)
        yield Fact(
            f"weight:{place}:{key}",
            stay.number,
            place,
            f"Weight on {day} was {answer}.",
            answer,
            f"What did the patient weigh {when} {name}?",
            "temporal",
            "number",
            tuple(o for o in near if o != answer),
        )


def _findings(patient: FictionalPatient, stay: FictionalStay, draws: Draws) -> Iterator[Fact]:
    name, condition, day = nth(patient, stay), stay.condition, stay.day(0)
    sentence, answer, others = answered(draws, f"{sentence_case(condition.study)} of {day}: {condition.found}.")
    yield Fact(
        f"found:{stay.number}",
        stay.number,
        "radiology",
        sentence,
        answer,
        f"What was measured on the {condition.study} of {name}?",
        "specific-fact",
        "number",
        others,
    )
    denied = f"No evidence of {condition.denied}"
    yield Fact(
        f"denied:{stay.number}",
        stay.number,
        "radiology",
        f"{denied} on the study of {day}.",
        denied,
        f"What does the report of the {condition.study} of {name} say of {condition.denied}?",
        "specific-fact",
        "negation",
        (f"There is {condition.denied}", f"Possible {condition.denied}", f"{condition.denied}, improved"),
    )


def _course(patient: FictionalPatient, stay: FictionalStay, draws: Draws) -> Iterator[Fact]:
    name, condition, number, words = nth(patient, stay), stay.condition, stay.number, patient.words
    if stay.operated is not None:
        day = stay.day(stay.operated)
        said = f"On {day} {{he}} underwent {condition.procedure}, with {condition.detail}."
        yield Fact(
            f"procedure:{number}",
            number,
            "course",
            *answered(draws, said, **words)[:2],
            f"What was recorded of the {condition.procedure} during {name}?",
            "specific-fact",
            "number",
            answered(draws, said, **words)[2],
        )
        # No laboratory report tells it, so that nothing there says otherwise.
        before = draws.whole(240, 420)
        after = before - draws.whole(20, 90)
        told = [f"{value} mg/dL" for value in (before, after, before + 35, after - 25)]
        for when, value in zip(("Before", "After"), told, strict=False):
            yield Fact(
                f"fibrinogen-{when.lower()}:{number}",
                number,
                "course",
                f"{when} the {condition.procedure} of {day} fibrinogen was {value}.",
                value,
                f"What was the fibrinogen {when.lower()} the {condition.procedure} of {name}?",
                "temporal",
                "number",
                tuple(other for other in told if other != value),
            )
    blamed = list(dict.fromkeys(draws.fill(each) for each in draws.several(_BLAMED, 5)))
    # Some complications are those of the procedure.
    day = stay.day(draws.whole(stay.operated or 1, stay.days))
    what = sentence_case(condition.complication)
    yield Fact(
        f"complication:{number}",
        number,
        "course",
        f"{what} on {day} was attributed to {blamed[0]}.",
        blamed[0],
        f"To what was {condition.complication} during {name} attributed?",
        "cause-effect",
        "",
        tuple(blamed[1:]),
    )
    units = f"{stay.units} unit{'s' if stay.units > 1 else ''} of packed red cells"
    wrong = tuple(f"{n} units of packed red cells" for n in range(2, 10) if n != stay.units)
    yield Fact(
        f"units:{number}",
        number,
        "course",
        f"From {stay.day(0)} on {words['he']} received {units}.",
        units,
        f"How much packed red cells did the patient receive during {name}?",
        "temporal",
        "number",
        tuple(draws.several(wrong, 4)),
    )


def _medicines(patient: FictionalPatient, stay: FictionalStay, draws: Draws) -> Iterator[Fact]:
    name, number, day = nth(patient, stay), stay.number, stay.day(stay.days)
    for drug, dose in stay.regimen.items():
        others = tuple(each for each in (*drugs()[drug].doses, "stopped at discharge") if each != dose)
        yield Fact(
            f"dose:{drug}:{number}",
            number,
            "medications",
            f"{drug} {dose} {drugs()[drug].how} (last given {day} {draws.whole(6, 10):02d}:{draws.whole(10, 59)})",
            dose,
            f"On which dose of {drug} was the patient discharged from {name}?",
            "temporal",
            "number",
            others,
        )
    reasons = [each.raised for each in drugs().values()]
    for change in stay.changes:
        verb, drug = "raised" if change.raised else "lowered", change.drug.name
        changed = stay.day(draws.whole(1, stay.days))
        wrong = (change.drug.lowered if change.raised else change.drug.raised, *draws.several(reasons, 4))
        yield Fact(
            f"change:{drug}:{number}",
            number,
            "course",
            f"{sentence_case(drug)} was {verb} from {change.before} to {change.after} on {changed} because of "
            f"{change.because}.",
            change.because,
            f"Why was the dose of {drug} {verb} during {name}?",
            "cause-effect",
            "",
            tuple(dict.fromkeys(each for each in wrong if each != change.because)),
        )


def _discharge(patient: FictionalPatient, stay: FictionalStay, draws: Draws) -> Iterator[Fact]:
    name, number, day, words = nth(patient, stay), stay.number, stay.day(stay.days), patient.words
    names = table("nuggets")["names"]
    others = tuple(dict.fromkeys(each.condition.name for each in patient.stays if each != stay))
    wrong = tuple(each.name for each in draws.several(acutes(), 6) if each.name not in others)
    diagnosis = stay.condition.name
    yield Fact(
        f"diagnosis:{number}",
        number,
        "diagnosis",
        f"Primary ({stay.day(0)} to {day}): {diagnosis}",
        diagnosis,
        f"What was the primary discharge diagnosis of {name}?",
        "temporal",
        "",
        tuple(each for each in (*others[:4], *wrong) if each != diagnosis),
    )
    rows = [
        (
            "place",
            "disposition",
            f"Discharged on {day} to [[{draws.pick(names['places'])}]].",
            f"Where was the patient discharged to after {name}?",
            names["places"],
        ),
        (
            "condition",
            "condition",
            f"Condition on {day}: [[{draws.pick(names['conditions'])}]].",
            f"What was the patient's condition at discharge from {name}?",
            names["conditions"],
        ),
        (
            "pending",
            "followup",
            f"Pending on {day}: [[{draws.pick(names['pending'])}]].",
            f"Which result was pending at discharge from {name}?",
            names["pending"],
        ),
        (
            "visit",
            "followup",
            f"After the stay that ended {day}: see [[{stay.doctor} ({stay.condition.service}) in {{5..29}} days]].",
            f"With whom and when was follow-up arranged at discharge from {name}?",
            [f"{doctor} ({stay.condition.service}) in {{5..29}} days" for doctor in names["doctors"]],
        ),
    ]
    for kind, place, template, ask, rivals in rows:
        sentence, answer, same = answered(draws, template, **words)
        more = [*same, *(draws.fill(each, **words) for each in draws.several(rivals, 5))]
        yield Fact(
            f"{kind}:{number}",
            number,
            place,
            sentence,
            answer,
            ask,
            "discharge-planning",
            "",
            tuple(dict.fromkeys(each for each in more if each != answer)),
        )
    sentence, answer, same = answered(draws, f"From {day} on: {stay.condition.advice}.")
    begun = stay.condition.advice.partition(" [[")[0]
    ask = f'How does the instruction "{begun} ..." given at discharge from {name} go on?'
    yield Fact(f"advice:{number}", number, "instructions", sentence, answer, ask, "discharge-planning", "number", same)


def _values(patient: FictionalPatient, stay: FictionalStay, draws: Draws) -> Iterator[Fact]:
    """The values of every day; asked are the first and the last of a stay, and how they changed."""
    name, number = nth(patient, stay), stay.number
    for analyte, values in stay.values.items():
        lab = labs()[analyte]
        for day, value in enumerate(values):
            yield _value(patient, stay, lab, day, value, draws)
        if lab.unit and analyte in stay.condition.labs and values[0] != values[-1]:
            first, last = (f"{value:.{lab.decimals}f}" for value in (values[0], values[-1]))
            between = f"{(values[0] + values[-1]) / 2:.{lab.decimals}f}"
            yield Fact(
                f"trend:{analyte}:{number}",
                number,
                "results",
                f"{sentence_case(analyte)} went from {first} to {last} {lab.unit} between {stay.day(0)} and "
                f"{stay.day(stay.days)}.",
                f"from {first} to {last} {lab.unit}",
                f"How did the {analyte} change from the first to the last day of {name}?",
                "temporal",
                "trend",
                tuple(
                    f"from {one} to {other} {lab.unit}"
                    for one, other in ((last, first), (first, between), (between, last), (last, between))
                    if (one, other) != (first, last)
                ),
            )


def _value(patient: FictionalPatient, stay: FictionalStay, lab: Lab, day: int, value: float, draws: Draws) -> Fact:
    flag = "H" if value > lab.high else "L" if value < lab.low else ""
    told, asked = lab.told(value), ""
    if lab.unit and day in (0, stay.days):
        when = "on the day of" if day == 0 else "on the day of discharge from"
        asked = f"What was the {lab.name} in the laboratory report {when} {nth(patient, stay)}?"
    earlier = [each for one in patient.stays for each in one.values.get(lab.name, ())]
    others = dict.fromkeys(each for each in map(lab.told, draws.several(earlier, 8) if asked else ()) if each != told)
    around = [lab.told(value * share) for share in (0.7, 1.2, 1.5, 0.85)] if asked else []
    return Fact(
        f"value:{lab.name}:{stay.number}:{day}",
        stay.number,
        f"laboratory:{day}",
        f"{stay.day(day)} {lab.name:<22}{told:<16}[{lab.low:g}-{lab.high:g}] {flag}".strip(),
        told,
        asked,
        "temporal",
        "number",
        tuple(dict.fromkeys((*others, *(each for each in around if each != told)))),
    )


def _singular(patient: FictionalPatient, draws: Draws, n: int) -> Iterator[Fact]:
    for number, each in enumerate(draws.several(once(), n)):
        # Social and family history is taken once, in the first stay; all else anywhere.
        stay = patient.stays[0] if each.note == "admission" else draws.pick(patient.stays)
        day = 0 if each.note == "admission" else draws.whole(1, stay.days - 1)
        dated = f"{each.say[:-1]} ({stay.day(day)})." if each.note == "nursing" else each.say
        sentence, answer, others = answered(draws, dated, **patient.words)
        place = f"{each.note}:{day}" if each.note == "nursing" else each.note
        about = "number" if re.search(r"\d", answer) else ""
        yield Fact(f"once:{number}", stay.number, place, sentence, answer, each.ask, "specific-fact", about, others)


def sentence_case(text: str) -> str:
    """The text with a capital at its beginning."""
    return text[:1].upper() + text[1:]
