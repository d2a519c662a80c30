"""Facts of a fictional record: each with its sentence, its answer, its question, and the part of a note that states it.

Sentences of a stay contain its dates, so that no two stays use the same words for different things. A place is the name
of a part of the notes of one stay (`radiology`, `course`, `medications`). When a note is written, marks from Unicode's
private use area surround each statement; `extract_spans` removes them and returns where the statements are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import filterfalse, islice

from epicrisis.evaluation.synthesis.patient_records.fictional_patient import FictionalPatient, FictionalStay
from epicrisis.evaluation.synthesis.patient_records.random_draws import Draws
from epicrisis.evaluation.synthesis.patient_records.vocabulary import (
    Lab,
    acute_conditions,
    drugs,
    labs,
    read_table,
    single_mentions,
)

ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
_BLAMED_CAUSES = (
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

_BEGIN, _KEY_END, _ANSWER_BEGIN, _ANSWER_END, _END = "\ue000", "\ue001", "\ue002", "\ue003", "\ue004"
_MARK = re.compile(f"{_BEGIN}([^{_BEGIN}{_KEY_END}]*){_KEY_END}|[{_ANSWER_BEGIN}{_ANSWER_END}{_END}]")


@dataclass(frozen=True, slots=True)
class FactSpan:
    """Where a note states the fact `key`, and where its answer is. Offsets are in characters, ends excluded."""

    key: str
    start: int
    end: int
    answer_start: int
    answer_end: int


def mark_fact(key: str, sentence: str, answer: str) -> str:
    """Return the sentence with marks around it and its answer. Raise ValueError if it does not contain the answer."""
    start = sentence.index(answer)
    before, after = sentence[:start], sentence[start + len(answer) :]
    return f"{_BEGIN}{key}{_KEY_END}{before}{_ANSWER_BEGIN}{answer}{_ANSWER_END}{after}{_END}"


def extract_spans(text: str) -> tuple[str, tuple[FactSpan, ...]]:
    """Remove the marks from a text. Return the text and the marked spans in its order. Marks must not be nested."""
    pieces: list[str] = []
    spans: list[FactSpan] = []
    length = last = start = answer_start = answer_end = 0
    key = ""
    for mark in _MARK.finditer(text):
        pieces.append(text[last : mark.start()])
        length += len(pieces[-1])
        last = mark.end()
        sign = mark[0][0]
        if sign == _BEGIN:
            key, start = mark[1], length
        elif sign == _ANSWER_BEGIN:
            answer_start = length
        elif sign == _ANSWER_END:
            answer_end = length
        else:
            spans.append(FactSpan(key, start, length, answer_start, answer_end))
    pieces.append(text[last:])
    return "".join(pieces), tuple(spans)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One statement of a record."""

    key: str
    stay: int
    """Number of the stay."""
    place: str
    """The part of the stay's notes that states the fact. Other parts may state it too."""
    sentence: str
    answer: str
    """Words of the sentence."""
    ask: str = ""
    """The question; empty if there is none about this fact alone."""
    category: str = "specific-fact"
    about: str = ""
    """`number`, `negation`, `trend` or `date`; empty for none of these."""
    wrong_answers: tuple[str, ...] = ()
    day: str = ""
    """The ISO date of a changed dose; empty for other facts."""

    @property
    def marked_sentence(self) -> str:
        return mark_fact(self.key, self.sentence, self.answer)


def draw_facts(patient: FictionalPatient, draws: Draws, single_count: int) -> tuple[Fact, ...]:
    """Return all facts of a patient, `single_count` of them stated only once in the record."""
    facts: list[Fact] = []
    for stay in patient.stays:
        stay_draws = draws.substream("facts", stay.number)
        for name, part in _PARTS.items():
            facts.extend(part(patient, stay, stay_draws.substream(name)))
    single_draws = draws.substream("once")
    for number, mention in enumerate(single_draws.sample(single_mentions(), single_count)):
        # Social and family history is taken in the first stay; other facts may be stated in any stay.
        at_admission = mention.note == "admission"
        stay = patient.stays[0] if at_admission else single_draws.pick(patient.stays)
        day = 0 if at_admission else single_draws.integer(1, stay.days - 1)
        template, place = mention.say, mention.note
        if mention.note == "nursing":
            template, place = f"{mention.say[:-1]} ({stay.day(day)}).", f"nursing:{day}"
        sentence, answer, wrong_answers = fill_statement(single_draws, template, **patient.words)
        fact = Fact(
            key=f"once:{number}",
            stay=stay.number,
            place=place,
            sentence=sentence,
            answer=answer,
            ask=mention.ask,
            about="number" if re.search(r"\d", answer) else "",
            wrong_answers=wrong_answers,
        )
        facts.append(fact)
    return tuple(facts)


def stay_name(patient: FictionalPatient, stay: FictionalStay) -> str:
    """Return the words of questions for a stay, such as `the second admission`; `the final admission` for the last."""
    if stay.number == len(patient.stays) > 1:
        return "the final admission"
    return f"the {ordinal(stay.number)} admission"


def ordinal(number: int) -> str:
    """Return `first` to `tenth`, then `11th`, `21st` and so on."""
    if number <= len(ORDINALS):
        return ORDINALS[number - 1]
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def sentence_case(text: str) -> str:
    """Capitalize the first letter of the text."""
    return text[:1].upper() + text[1:]


def without(answers: Iterable[str], answer: str) -> tuple[str, ...]:
    """Return the distinct answers in their order, without `answer`."""
    distinct = dict.fromkeys(answers)
    distinct.pop(answer, None)
    return tuple(distinct)


def fill_statement(draws: Draws, template: str, **words: str) -> tuple[str, str, tuple[str, ...]]:
    """Fill a template. Return the sentence, its `[[answer]]`, and wrong answers from other draws for the same slots."""
    text = draws.fill(template, **words)
    match = _ANSWER.search(text)
    if match is None:
        raise ValueError(f"a template without an answer: {template}")
    slots = _ANSWER.search(template)
    alternatives = [draws.fill(slots[1], **words) for _ in range(12)] if slots else []
    return _ANSWER.sub(r"\1", text), match[1], without(alternatives, match[1])


def _arrival_facts(patient: FictionalPatient, stay: FictionalStay, draws: Draws) -> Iterator[Fact]:
    name, number, words = stay_name(patient, stay), stay.number, patient.words
    cause = draws.fill(draws.pick(stay.condition.causes), **words)
    rivals = list(stay.condition.causes)
    for condition in draws.sample(acute_conditions(), 4):
        rivals.append(draws.pick(condition.causes))
    yield Fact(
        key=f"cause:{number}",
        stay=number,
        place="history",
        sentence=f"What set off the illness of {stay.day(0)} was {cause}.",
        answer=cause,
        ask=f"What set off the illness that led to {name}?",
        category="cause-effect",
        wrong_answers=without((draws.fill(rival, **words) for rival in rivals), cause),
    )
    near: list[str] = []
    for value in stay.weights:
        near += (f"{value:.1f} kg", f"{value - 4.1:.1f} kg", f"{value + 3.7:.1f} kg")
    for place, day, value, when in (
        ("arrival", 0, stay.weights[0], "on arrival at"),
        ("leaving", stay.days, stay.weights[1], "at discharge from"),
    ):
        answer = f"{value:.1f} kg"
        yield Fact(
            key=f"weight:{place}:{number}",
            stay=number,
            place=place,
            sentence=f"Weight on {stay.day(day)} was {answer}.",
            answer=answer,
            ask=f"What did the patient weigh {when} {name}?",
            category="temporal",
            about="number",
            wrong_answers=tuple(item for item in near if item != answer),
        )


def _imaging_facts(patient: FictionalPatient, stay: FictionalStay, draws: Draws) -> Iterator[Fact]:
    name, condition, day = stay_name(patient, stay), stay.condition, stay.day(0)
    template = f"{sentence_case(condition.study)} of {day}: {condition.finding}."
    sentence, answer, wrong_answers = fill_statement(draws, template)
    report_fact = partial(Fact, stay=stay.number, place="radiology")
    yield report_fact(
        key=f"found:{stay.number}",
        sentence=sentence,
        answer=answer,
        ask=f"What was measured on the {condition.study} of {name}?",
        about="number",
        wrong_answers=wrong_answers,
    )
    finding = condition.ruled_out
    denial = f"No evidence of {finding}"
    yield report_fact(
        key=f"denied:{stay.number}",
        sentence=f"{denial} on the study of {day}.",
        answer=denial,
        ask=f"What does the report of the {condition.study} of {name} say of {finding}?",
        about="negation",
        wrong_answers=(f"There is {finding}", f"Possible {finding}", f"{finding}, improved"),
    )


def _course_facts(patient: FictionalPatient, stay: FictionalStay, draws: Draws) -> Iterator[Fact]:
    name, condition, number = stay_name(patient, stay), stay.condition, stay.number
    if stay.procedure_day is not None:
        yield from _procedure_facts(patient, stay, stay.day(stay.procedure_day), draws)
    causes = list(dict.fromkeys(draws.fill(item) for item in draws.sample(_BLAMED_CAUSES, 5)))
    # Some complications are those of the procedure.
    day = stay.day(draws.integer(stay.procedure_day or 1, stay.days))
    cause, *rivals = causes
    course_fact = partial(Fact, stay=number, place="course")
    yield course_fact(
        key=f"complication:{number}",
        sentence=f"{sentence_case(condition.complication)} on {day} was attributed to {cause}.",
        answer=cause,
        ask=f"To what was {condition.complication} during {name} attributed?",
        category="cause-effect",
        wrong_answers=tuple(rivals),
    )
    units = f"{stay.units} unit{'s' if stay.units > 1 else ''} of packed red cells"
    other_counts = [item for item in range(2, 10) if item != stay.units]
    yield course_fact(
        key=f"units:{number}",
        sentence=f"From {stay.day(0)} on {patient.words['he']} received {units}.",
        answer=units,
        ask=f"How much packed red cells did the patient receive during {name}?",
        category="temporal",
        about="number",
        wrong_answers=tuple(f"{item} units of packed red cells" for item in draws.sample(other_counts, 4)),
    )


def _procedure_facts(patient: FictionalPatient, stay: FictionalStay, day: str, draws: Draws) -> Iterator[Fact]:
    name, number, procedure = stay_name(patient, stay), stay.number, stay.condition.procedure
    template = f"On {day} {{he}} underwent {procedure}, with {stay.condition.detail}."
    sentence, answer, _ = fill_statement(draws, template, **patient.words)
    _, _, wrong_answers = fill_statement(draws, template, **patient.words)
    course_fact = partial(Fact, stay=number, place="course", about="number")
    yield course_fact(
        key=f"procedure:{number}",
        sentence=sentence,
        answer=answer,
        ask=f"What was recorded of the {procedure} during {name}?",
        wrong_answers=wrong_answers,
    )
    # No laboratory report contains fibrinogen, so nothing there contradicts these values.
    before = draws.integer(240, 420)
    after = before - draws.integer(20, 90)
    values = [f"{value} mg/dL" for value in (before, after, before + 35, after - 25)]
    for when, value in zip(("Before", "After"), values, strict=False):
        yield course_fact(
            key=f"fibrinogen-{when.lower()}:{number}",
            sentence=f"{when} the {procedure} of {day} fibrinogen was {value}.",
            answer=value,
            ask=f"What was the fibrinogen {when.lower()} the {procedure} of {name}?",
            category="temporal",
            wrong_answers=tuple(item for item in values if item != value),
        )


def _medication_facts(patient: FictionalPatient, stay: FictionalStay, draws: Draws) -> Iterator[Fact]:
    name, number, day = stay_name(patient, stay), stay.number, stay.day(stay.days)
    for drug, dose in stay.regimen.items():
        time = f"{draws.integer(6, 10):02d}:{draws.integer(10, 59)}"
        yield Fact(
            key=f"dose:{drug}:{number}",
            stay=number,
            place="medications",
            sentence=f"{drug} {dose} {drugs()[drug].how} (last given {day} {time})",
            answer=dose,
            ask=f"On which dose of {drug} was the patient discharged from {name}?",
            category="temporal",
            about="number",
            wrong_answers=tuple(item for item in (*drugs()[drug].doses, "stopped at discharge") if item != dose),
        )
    reasons = [drug.raised for drug in drugs().values()]
    for change in stay.changes:
        verb, drug, reason = "raised" if change.raised else "lowered", change.drug.name, change.reason
        day = stay.day(draws.integer(1, stay.days))
        opposite = change.drug.lowered if change.raised else change.drug.raised
        doses = f"from {change.before} to {change.after}"
        yield Fact(
            key=f"change:{drug}:{number}",
            stay=number,
            place="course",
            sentence=f"{sentence_case(drug)} was {verb} {doses} on {day} because of {reason}.",
            answer=reason,
            ask=f"Why was the dose of {drug} {verb} during {name}?",
            category="cause-effect",
            wrong_answers=without((opposite, *draws.sample(reasons, 4)), reason),
            day=day,
        )


def _discharge_facts(patient: FictionalPatient, stay: FictionalStay, draws: Draws) -> Iterator[Fact]:
    name, number, day, words = stay_name(patient, stay), stay.number, stay.day(stay.days), patient.words
    names, service = read_table("nuggets")["names"], stay.condition.service
    other_diagnoses = dict.fromkeys(other.condition.name for other in patient.stays if other != stay)
    candidates = (item.name for item in draws.sample(acute_conditions(), 6))
    never_diagnosed = filterfalse(other_diagnoses.__contains__, candidates)
    diagnosis = stay.condition.name
    yield Fact(
        key=f"diagnosis:{number}",
        stay=number,
        place="diagnosis",
        sentence=f"Primary ({stay.day(0)} to {day}): {diagnosis}",
        answer=diagnosis,
        ask=f"What was the primary discharge diagnosis of {name}?",
        category="temporal",
        wrong_answers=tuple(item for item in (*islice(other_diagnoses, 4), *never_diagnosed) if item != diagnosis),
    )
    visits = [f"{doctor} ({service}) in {{5..29}} days" for doctor in names["doctors"]]
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
            f"After the stay that ended {day}: see [[{stay.doctor} ({service}) in {{5..29}} days]].",
            f"With whom and when was follow-up arranged at discharge from {name}?",
            visits,
        ),
    ]
    planning_fact = partial(Fact, stay=number, category="discharge-planning")
    for kind, place, template, ask, rivals in rows:
        sentence, answer, wrong_answers = fill_statement(draws, template, **words)
        alternatives = map(partial(draws.fill, **words), draws.sample(rivals, 5))
        yield planning_fact(
            key=f"{kind}:{number}",
            place=place,
            sentence=sentence,
            answer=answer,
            ask=ask,
            wrong_answers=without((*wrong_answers, *alternatives), answer),
        )
    advice = stay.condition.advice
    sentence, answer, wrong_answers = fill_statement(draws, f"From {day} on: {advice}.")
    yield planning_fact(
        key=f"advice:{number}",
        place="instructions",
        sentence=sentence,
        answer=answer,
        ask=f'How does the instruction "{advice.partition(" [[")[0]} ..." given at discharge from {name} go on?',
        about="number",
        wrong_answers=wrong_answers,
    )


def _value_facts(patient: FictionalPatient, stay: FictionalStay, draws: Draws) -> Iterator[Fact]:
    """Yield the laboratory values of every day. Questions ask for the first, the last, and the change between them."""
    for name, values in stay.values.items():
        lab = labs()[name]
        for day, value in enumerate(values):
            yield _value_fact(patient, stay, lab, day, value, draws)
        if not lab.unit or name not in stay.condition.labs or values[0] == values[-1]:
            continue
        trend = values[0], values[-1], (values[0] + values[-1]) / 2
        first, last, between = (f"{value:.{lab.decimals}f}" for value in trend)
        wrong_answers: list[str] = []
        for start, end in ((last, first), (first, between), (between, last), (last, between)):
            if (start, end) != (first, last):
                wrong_answers.append(f"from {start} to {end} {lab.unit}")
        answer = f"from {first} to {last} {lab.unit}"
        yield Fact(
            key=f"trend:{name}:{stay.number}",
            stay=stay.number,
            place="results",
            sentence=f"{sentence_case(name)} went {answer} between {stay.day(0)} and {stay.day(stay.days)}.",
            answer=answer,
            ask=f"How did the {name} change from the first to the last day of {stay_name(patient, stay)}?",
            category="temporal",
            about="trend",
            wrong_answers=tuple(wrong_answers),
        )


def _value_fact(patient: FictionalPatient, stay: FictionalStay, lab: Lab, day: int, value: float, draws: Draws) -> Fact:
    flag = "H" if value > lab.high else "L" if value < lab.low else ""
    text, ask = lab.format(value), ""
    alternatives: list[str] = []
    if lab.unit and day in (0, stay.days):
        when = "on the day of" if day == 0 else "on the day of discharge from"
        ask = f"What was the {lab.name} in the laboratory report {when} {stay_name(patient, stay)}?"
        all_values: list[float] = []
        for other in patient.stays:
            all_values.extend(other.values.get(lab.name, ()))
        near = (value * factor for factor in (0.7, 1.2, 1.5, 0.85))
        alternatives += (lab.format(item) for item in (*draws.sample(all_values, 8), *near))
    return Fact(
        key=f"value:{lab.name}:{stay.number}:{day}",
        stay=stay.number,
        place=f"laboratory:{day}",
        sentence=f"{stay.day(day)} {lab.name:<22}{text:<16}[{lab.low:g}-{lab.high:g}] {flag}".strip(),
        answer=text,
        ask=ask,
        category="temporal",
        about="number",
        wrong_answers=without(alternatives, text),
    )


_PARTS: dict[str, Callable[[FictionalPatient, FictionalStay, Draws], Iterator[Fact]]] = {
    "_arrival": _arrival_facts,
    "_findings": _imaging_facts,
    "_course": _course_facts,
    "_medicines": _medication_facts,
    "_discharge": _discharge_facts,
    "_values": _value_facts,
}
"""By the name of its stream of draws: renaming a stream would change the records of every seed."""
