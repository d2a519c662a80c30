"""Facts of a fictional record: each with its sentence, its answer, its question, and the part of a note that states it.

Sentences of a stay contain its dates, so that no two stays use the same words for different things. A place is the name
of a part of the notes of one stay (`radiology`, `course`, `medications`). When a note is written, marks from Unicode's
private use area surround each statement; `extract_spans` removes them and returns where the statements are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
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
    facts.extend(_single_facts(patient, draws.substream("once"), single_count))
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
    wrong_causes = [draws.fill(rival, **words) for rival in rivals]
    yield Fact(
        f"cause:{number}",
        number,
        "history",
        f"What set off the illness of {stay.day(0)} was {cause}.",
        cause,
        f"What set off the illness that led to {name}?",
        "cause-effect",
        "",
        without(wrong_causes, cause),
    )
    first, last = stay.weights
    near = tuple(f"{value + step:.1f} kg" for value in stay.weights for step in (0, -4.1, 3.7))
    for place, value, when in (("arrival", first, "on arrival at"), ("leaving", last, "at discharge from")):
        answer, day = f"{value:.1f} kg", stay.day(0 if place == "arrival" else stay.days)
        yield Fact(
            f"weight:{place}:{number}",
            number,
            place,
            f"Weight on {day} was {answer}.",
            answer,
            f"What did the patient weigh {when} {name}?",
            "temporal",
            "number",
            tuple(filter(answer.__ne__, near)),
        )


def _imaging_facts(patient: FictionalPatient, stay: FictionalStay, draws: Draws) -> Iterator[Fact]:
    name, condition, day = stay_name(patient, stay), stay.condition, stay.day(0)
    template = f"{sentence_case(condition.study)} of {day}: {condition.finding}."
    sentence, answer, wrong_answers = fill_statement(draws, template)
    ask = f"What was measured on the {condition.study} of {name}?"
    place, category = "radiology", "specific-fact"
    yield Fact(f"found:{stay.number}", stay.number, place, sentence, answer, ask, category, "number", wrong_answers)
    finding = condition.ruled_out
    denial = f"No evidence of {finding}"
    yield Fact(
        f"denied:{stay.number}",
        stay.number,
        place,
        f"{denial} on the study of {day}.",
        denial,
        f"What does the report of the {condition.study} of {name} say of {finding}?",
        category,
        "negation",
        (f"There is {finding}", f"Possible {finding}", f"{finding}, improved"),
    )


def _course_facts(patient: FictionalPatient, stay: FictionalStay, draws: Draws) -> Iterator[Fact]:
    name, condition, number = stay_name(patient, stay), stay.condition, stay.number
    if stay.procedure_day is not None:
        yield from _procedure_facts(patient, stay, stay.day(stay.procedure_day), draws)
    causes = list(dict.fromkeys(map(draws.fill, draws.sample(_BLAMED_CAUSES, 5))))
    # Some complications are those of the procedure.
    day = stay.day(draws.integer(stay.procedure_day or 1, stay.days))
    yield Fact(
        f"complication:{number}",
        number,
        "course",
        f"{sentence_case(condition.complication)} on {day} was attributed to {causes[0]}.",
        causes[0],
        f"To what was {condition.complication} during {name} attributed?",
        "cause-effect",
        "",
        tuple(causes[1:]),
    )
    units = f"{stay.units} unit{'s' if stay.units > 1 else ''} of packed red cells"
    other_counts = [n for n in range(2, 10) if n != stay.units]
    yield Fact(
        f"units:{number}",
        number,
        "course",
        f"From {stay.day(0)} on {patient.words['he']} received {units}.",
        units,
        f"How much packed red cells did the patient receive during {name}?",
        "temporal",
        "number",
        tuple(f"{n} units of packed red cells" for n in draws.sample(other_counts, 4)),
    )


def _procedure_facts(patient: FictionalPatient, stay: FictionalStay, day: str, draws: Draws) -> Iterator[Fact]:
    name, number, procedure = stay_name(patient, stay), stay.number, stay.condition.procedure
    template = f"On {day} {{he}} underwent {procedure}, with {stay.condition.detail}."
    sentence, answer, _ = fill_statement(draws, template, **patient.words)
    ask = f"What was recorded of the {procedure} during {name}?"
    _, _, wrong_answers = fill_statement(draws, template, **patient.words)
    key = f"procedure:{number}"
    yield Fact(key, number, "course", sentence, answer, ask, "specific-fact", "number", wrong_answers)
    # No laboratory report contains fibrinogen, so nothing there contradicts these values.
    before = draws.integer(240, 420)
    after = before - draws.integer(20, 90)
    values = [f"{value} mg/dL" for value in (before, after, before + 35, after - 25)]
    for when, value in zip(("Before", "After"), values, strict=False):
        yield Fact(
            f"fibrinogen-{when.lower()}:{number}",
            number,
            "course",
            f"{when} the {procedure} of {day} fibrinogen was {value}.",
            value,
            f"What was the fibrinogen {when.lower()} the {procedure} of {name}?",
            "temporal",
            "number",
            tuple(filter(value.__ne__, values)),
        )


def _medication_facts(patient: FictionalPatient, stay: FictionalStay, draws: Draws) -> Iterator[Fact]:
    name, number, day = stay_name(patient, stay), stay.number, stay.day(stay.days)
    for drug, dose in stay.regimen.items():
        alternatives = (*drugs()[drug].doses, "stopped at discharge")
        yield Fact(
            f"dose:{drug}:{number}",
            number,
            "medications",
            f"{drug} {dose} {drugs()[drug].how} (last given {day} {draws.integer(6, 10):02d}:{draws.integer(10, 59)})",
            dose,
            f"On which dose of {drug} was the patient discharged from {name}?",
            "temporal",
            "number",
            tuple(filter(dose.__ne__, alternatives)),
        )
    reasons = [drug.raised for drug in drugs().values()]
    for change in stay.changes:
        verb, drug = "raised" if change.raised else "lowered", change.drug.name
        day = stay.day(draws.integer(1, stay.days))
        opposite = change.drug.lowered if change.raised else change.drug.raised
        yield Fact(
            f"change:{drug}:{number}",
            number,
            "course",
            f"{sentence_case(drug)} was {verb} from {change.before} to {change.after} on {day} because of "
            f"{change.reason}.",
            change.reason,
            f"Why was the dose of {drug} {verb} during {name}?",
            "cause-effect",
            "",
            without((opposite, *draws.sample(reasons, 4)), change.reason),
        )


def _discharge_facts(patient: FictionalPatient, stay: FictionalStay, draws: Draws) -> Iterator[Fact]:
    name, number, day, words = stay_name(patient, stay), stay.number, stay.day(stay.days), patient.words
    names, service = read_table("nuggets")["names"], stay.condition.service
    other_diagnoses = tuple(dict.fromkeys(other.condition.name for other in patient.stays if other != stay))
    candidates = (condition.name for condition in draws.sample(acute_conditions(), 6))
    never_diagnosed = tuple(candidate for candidate in candidates if candidate not in other_diagnoses)
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
        tuple(filter(diagnosis.__ne__, (*other_diagnoses[:4], *never_diagnosed))),
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
    category = "discharge-planning"
    for kind, place, template, ask, rivals in rows:
        sentence, answer, wrong_answers = fill_statement(draws, template, **words)
        alternatives = [draws.fill(rival, **words) for rival in draws.sample(rivals, 5)]
        wrong_answers = without((*wrong_answers, *alternatives), answer)
        yield Fact(f"{kind}:{number}", number, place, sentence, answer, ask, category, "", wrong_answers)
    advice = stay.condition.advice
    sentence, answer, wrong_answers = fill_statement(draws, f"From {day} on: {advice}.")
    ask = f'How does the instruction "{advice.partition(" [[")[0]} ..." given at discharge from {name} go on?'
    yield Fact(f"advice:{number}", number, "instructions", sentence, answer, ask, category, "number", wrong_answers)


def _value_facts(patient: FictionalPatient, stay: FictionalStay, draws: Draws) -> Iterator[Fact]:
    """Yield the laboratory values of every day. Questions ask for the first, the last, and the change between them."""
    for name, values in stay.values.items():
        lab = labs()[name]
        for day, value in enumerate(values):
            yield _value_fact(patient, stay, lab, day, value, draws)
        if lab.unit and name in stay.condition.labs and values[0] != values[-1]:
            yield _trend_fact(patient, stay, lab, values[0], values[-1])


def _trend_fact(
    patient: FictionalPatient, stay: FictionalStay, lab: Lab, first_value: float, last_value: float
) -> Fact:
    values = (first_value, last_value, (first_value + last_value) / 2)
    first, last, between = (f"{value:.{lab.decimals}f}" for value in values)
    wrong_answers = []
    for start, end in ((last, first), (first, between), (between, last), (last, between)):
        if (start, end) != (first, last):
            wrong_answers.append(f"from {start} to {end} {lab.unit}")
    answer = f"from {first} to {last} {lab.unit}"
    return Fact(
        f"trend:{lab.name}:{stay.number}",
        stay.number,
        "results",
        f"{sentence_case(lab.name)} went {answer} between {stay.day(0)} and {stay.day(stay.days)}.",
        answer,
        f"How did the {lab.name} change from the first to the last day of {stay_name(patient, stay)}?",
        "temporal",
        "trend",
        tuple(wrong_answers),
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
        alternatives.extend(map(lab.format, draws.sample(all_values, 8)))
        alternatives.extend(lab.format(value * factor) for factor in (0.7, 1.2, 1.5, 0.85))
    return Fact(
        f"value:{lab.name}:{stay.number}:{day}",
        stay.number,
        f"laboratory:{day}",
        f"{stay.day(day)} {lab.name:<22}{text:<16}[{lab.low:g}-{lab.high:g}] {flag}".strip(),
        text,
        ask,
        "temporal",
        "number",
        without(alternatives, text),
    )


def _single_facts(patient: FictionalPatient, draws: Draws, n: int) -> Iterator[Fact]:
    for number, mention in enumerate(draws.sample(single_mentions(), n)):
        # Social and family history is taken in the first stay; other facts may be stated in any stay.
        at_admission = mention.note == "admission"
        stay = patient.stays[0] if at_admission else draws.pick(patient.stays)
        day = 0 if at_admission else draws.integer(1, stay.days - 1)
        template, place = mention.say, mention.note
        if mention.note == "nursing":
            template, place = f"{mention.say[:-1]} ({stay.day(day)}).", f"nursing:{day}"
        sentence, answer, wrong_answers = fill_statement(draws, template, **patient.words)
        about = "number" if re.search(r"\d", answer) else ""
        key, category = f"once:{number}", "specific-fact"
        yield Fact(key, stay.number, place, sentence, answer, mention.ask, category, about, wrong_answers)


_PARTS: dict[str, Callable[[FictionalPatient, FictionalStay, Draws], Iterator[Fact]]] = {
    "_arrival": _arrival_facts,
    "_findings": _imaging_facts,
    "_course": _course_facts,
    "_medicines": _medication_facts,
    "_discharge": _discharge_facts,
    "_values": _value_facts,
}
"""By the name of its stream of draws: renaming a stream would change the records of every seed."""
