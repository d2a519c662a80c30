"""Questions about a record whose answers, and all places where they stand, are known.

A question of a specific fact is asked only where its answer stands nowhere else in the record. A holistic question
needs all of its facts; of the places of one fact one is enough. Knows no files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from epicrisis.evaluation.synthesis.patient_records.facts import Fact, nth
from epicrisis.evaluation.synthesis.patient_records.fictional_record import FictionalRecord
from epicrisis.evaluation.synthesis.patient_records.random_draws import Draws
from epicrisis.evaluation.synthesis.patient_records.vocabulary import absent, chronics
from epicrisis.types import EvidenceSpan, Question, QuestionForm

CATEGORIES = (
    "specific-fact",
    "temporal",
    "terminology",
    "discharge-planning",
    "cause-effect",
    "holistic",
    "absence",
)
"""The kinds of question that the study's Table 13 tells apart."""
FORMS: tuple[QuestionForm, ...] = ("choice", "extractive", "open")
UNSAID = "The record does not say"
_LETTERS = "ABCDE"
_STEPS = 6
"""More are not asked for in order."""
_FEWEST = 3
"""Wrong options."""


@dataclass(frozen=True, slots=True)
class RecordQuestion:
    """A question of a record, and what is known of it by construction."""

    question: Question
    about: str
    """`number`, `negation`, `trend`; empty for none of these."""
    depth: float | None
    """Where in the record its evidence lies, 0 to 1 by characters, in the mean; `None` without evidence."""


@dataclass(frozen=True, slots=True)
class _Idea:
    """A question before its form: the facts that answer it, and what would be wrong."""

    ask: str
    gold: str
    category: str
    keys: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    about: str = ""
    also: tuple[str, ...] = ()
    forms: tuple[QuestionForm, ...] = FORMS


def document_id(note_id: str) -> str:
    """The id that a reader of notes gives the note."""
    return f"note:{note_id}"


def ask(record: FictionalRecord, n: int, draws: Draws, first_letter: int = 0) -> tuple[RecordQuestion, ...]:
    """At most `n` questions, categories and forms in turn; letters from `first_letter` on in turn."""
    marked = _Marked(record)
    ideas = _sorted(record, marked, draws)
    asked: list[RecordQuestion] = []
    used: set[str] = set()
    turns = [(c, FORMS[(i + turn) % len(FORMS)]) for turn in range(len(FORMS)) for i, c in enumerate(CATEGORIES)]
    while len(asked) < n and any(ideas.values()):
        for turn in turns:
            # One idea has several forms, and is asked in one.
            left = [idea for idea in ideas[turn] if idea.ask not in used]
            ideas[turn] = left[1:]
            if not left or len(asked) == n:
                continue
            used.add(left[0].ask)
            letter = first_letter + sum(bool(one.question.options) for one in asked)
            at = draws.at("options", left[0].ask)
            asked.append(_asked(record, marked, left[0], turn[1], len(asked) + 1, letter, at))
    return tuple(asked)


def _sorted(record: FictionalRecord, marked: _Marked, draws: Draws) -> dict[tuple[str, QuestionForm], list[_Idea]]:
    """What may be asked, by category and form, in a drawn order."""
    ideas: dict[tuple[str, QuestionForm], list[_Idea]] = {(c, f): [] for f in FORMS for c in CATEGORIES}
    for idea in _ideas(record, marked, draws.at("ideas")):
        if marked.fit(idea):
            for form in idea.forms:
                if form != "choice" or len(_wrong(idea)) >= _FEWEST:
                    ideas[idea.category, form].append(idea)
    return {key: draws.at("order", *key).several(several, len(several)) for key, several in ideas.items()}


class _Marked:
    """Where in a record each fact is stated."""

    def __init__(self, record: FictionalRecord) -> None:
        self._texts = {document_id(note.id): note.text for note in record.notes}
        self._statements: dict[str, list[tuple[EvidenceSpan, EvidenceSpan]]] = {}
        self._starts: dict[str, int] = {}
        self._length = 0
        for note in record.notes:
            name = document_id(note.id)
            self._starts[name] = self._length
            self._length += len(note.text)
            for mark in note.marks:
                pair = (
                    EvidenceSpan(name, mark.start, mark.end, mark.key),
                    EvidenceSpan(name, mark.answer_start, mark.answer_end, mark.key),
                )
                self._statements.setdefault(mark.key, []).append(pair)

    def places(self, keys: Sequence[str], *, answers: bool) -> tuple[EvidenceSpan, ...]:
        """Of these facts every statement, or only the answer in it, in the order of the record."""
        places = [pair[answers] for key in keys for pair in self._statements.get(key, ())]
        return tuple(sorted(places, key=lambda place: (self._starts[place.document_id], place.start)))

    def fit(self, idea: _Idea) -> bool:
        """Whether the record answers it at its places and nowhere else, or nowhere at all."""
        if not idea.keys:
            return True
        if any(key not in self._statements for key in idea.keys):
            return False
        return idea.category != "specific-fact" or self._alone(idea)

    def _alone(self, idea: _Idea) -> bool:
        known = self.places(idea.keys, answers=False)
        said = re.compile(rf"(?<!\w){re.escape(idea.gold)}(?!\w)", re.IGNORECASE)
        for name, text in self._texts.items():
            for found in said.finditer(text):
                if not any(p.document_id == name and p.start <= found.start() < p.end for p in known):
                    return False
        return True

    def never_says(self, word: str) -> bool:
        """Whether the word stands nowhere in the record."""
        return not any(word.casefold() in text.casefold() for text in self._texts.values())

    def depth(self, places: Sequence[EvidenceSpan]) -> float | None:
        """The mean place of these, 0 to 1 by characters."""
        if not places:
            return None
        middles = [self._starts[place.document_id] + (place.start + place.end) / 2 for place in places]
        return round(sum(middles) / len(middles) / self._length, 4)


def _asked(
    record: FictionalRecord, marked: _Marked, idea: _Idea, form: QuestionForm, number: int, letter: int, draws: Draws
) -> RecordQuestion:
    places = marked.places(idea.keys, answers=form == "extractive")
    options, gold = _options(idea, letter, draws) if form == "choice" else ({}, idea.gold)
    question = Question(
        text=idea.ask,
        options=options,
        form=form,
        id=f"{record.patient.id}-q{number:03d}",
        gold=gold,
        gold_documents=tuple(dict.fromkeys(place.document_id for place in places)),
        patient=record.patient.id,
        other_answers=idea.also if form == "open" else (),
        evidence=places,
        category=idea.category,
    )
    return RecordQuestion(question, idea.about, marked.depth(places))


def _options(idea: _Idea, letter: int, draws: Draws) -> tuple[Mapping[str, str], str]:
    """Four or five options, the right one at the letter whose turn it is. Half of the questions that have an answer
    offer `UNSAID` as well, at any letter, so that it gives nothing away."""
    wrong = draws.several(_wrong(idea), 4)
    if idea.gold and draws.chance(50):
        wrong = draws.several([*wrong[:3], UNSAID], 4)
    place = letter % (len(wrong) + 1)
    texts = [*wrong[:place], idea.gold or UNSAID, *wrong[place:]]
    return dict(zip(_LETTERS, texts, strict=False)), _LETTERS[place]


def _wrong(idea: _Idea) -> tuple[str, ...]:
    """Each wrong answer once, whatever its case."""
    seen = {text.casefold(): text for text in reversed(idea.others) if text.casefold() != idea.gold.casefold()}
    return tuple(reversed(seen.values()))


# -- what may be asked ------------------------------------------------------------------------------------------------


def _ideas(record: FictionalRecord, marked: _Marked, draws: Draws) -> Iterator[_Idea]:
    facts = {fact.key: fact for fact in record.facts}
    for fact in record.facts:
        if fact.ask:
            idea = _Idea(fact.ask, fact.answer, fact.category, (fact.key,), fact.others, fact.about)
            yield replace(idea, forms=_forms(fact))
    yield from _ruled_out(record, facts)
    yield from _terms(record, facts)
    yield from _overall(record, facts, draws)
    yield from _unsaid(record, marked)


def _forms(fact: Fact) -> tuple[QuestionForm, ...]:
    """A negation is asked for as words of a note; as a choice it is asked otherwise."""
    return ("extractive", "open") if fact.about == "negation" else FORMS


def _ruled_out(record: FictionalRecord, facts: Mapping[str, Fact]) -> Iterator[_Idea]:
    for stay in record.patient.stays:
        condition, fact = stay.condition, facts[f"denied:{stay.number}"]
        others = [facts[f"found:{stay.number}"].answer, condition.name, condition.complaint]
        others += [each.condition.name for each in record.patient.stays if each != stay]
        yield _Idea(
            f"Which of these did the {condition.study} of {nth(record.patient, stay)} rule out?",
            condition.denied,
            fact.category,
            (fact.key,),
            tuple(others[:4]),
            "negation",
            forms=("choice",),
        )


def _terms(record: FictionalRecord, facts: Mapping[str, Fact]) -> Iterator[_Idea]:
    names = tuple(each.name for each in chronics())
    for each, _ in record.patient.chronic:
        short, key = each.abbreviation, (f"history:{each.abbreviation}",)
        mine = tuple(one.abbreviation for one, _ in record.patient.chronic)
        yield _Idea(
            f"Which abbreviation stands for {each.lay} in the past medical history?", short, "terminology", key, mine
        )
        yield _Idea(
            f'What does "{short}" in the past medical history mean?',
            each.name,
            "terminology",
            key,
            names,
            also=(each.lay,),
            forms=("choice", "open"),
        )
    for stay in record.patient.stays:
        fact = facts[f"diagnosis:{stay.number}"]
        yield _Idea(
            f"By which medical name does the discharge summary of {nth(record.patient, stay)} call "
            f'"{stay.condition.lay}"?',
            fact.answer,
            "terminology",
            (fact.key,),
            fact.others,
        )


def _overall(record: FictionalRecord, facts: Mapping[str, Fact], draws: Draws) -> Iterator[_Idea]:
    stays = record.patient.stays
    diagnoses = tuple(f"diagnosis:{stay.number}" for stay in stays)
    n = len(stays)
    near = tuple(str(each) for each in (n + 1, n + 2, n + 3, n - 1) if each > 0)
    yield _Idea(
        "How many hospital admissions does the record describe?",
        str(n),
        "holistic",
        diagnoses,
        near,
        "number",
        (f"{n} admissions" if n > 1 else "one admission",),
        ("choice", "open"),
    )
    total = sum(stay.units for stay in stays)
    yield _Idea(
        "How many units of packed red cells did the patient receive over all admissions together?",
        f"{total} units",
        "holistic",
        tuple(f"units:{stay.number}" for stay in stays),
        tuple(f"{total + step} units" for step in (1, 2, 4, 7)),
        "number",
        (str(total),),
        ("choice", "open"),
    )
    if n == 1:
        return
    most = max(stays, key=lambda stay: stay.units)
    if sum(stay.units == most.units for stay in stays) == 1:
        units = tuple(facts[f"units:{stay.number}"].answer for stay in stays)
        yield _Idea(
            "What is the largest amount of packed red cells that the patient received in one admission?",
            facts[f"units:{most.number}"].answer,
            "holistic",
            tuple(f"units:{stay.number}" for stay in stays),
            (*units, "10 units of packed red cells", "11 units of packed red cells", "12 units of packed red cells"),
            "number",
        )
    yield from _sequences(record, facts, draws)


def _sequences(record: FictionalRecord, facts: Mapping[str, Fact], draws: Draws) -> Iterator[_Idea]:
    stays = record.patient.stays
    diagnoses = tuple(f"diagnosis:{stay.number}" for stay in stays)
    names = [facts[key].answer for key in diagnoses]
    for superlative, extreme in (("longest", max), ("shortest", min)):
        length = extreme(stay.days for stay in stays)
        held = [stay for stay in stays if stay.days == length]
        if len(held) == 1:
            yield _Idea(
                f"What was the primary discharge diagnosis of the {superlative} of all admissions?",
                held[0].condition.name,
                "holistic",
                diagnoses,
                (*(name for name in names), *facts[diagnoses[0]].others),
                "number",
            )
    done = [stay for stay in stays if stay.operated is not None]
    procedures = tuple(f"procedure:{stay.number}" for stay in done)
    for kind, keys, steps in (
        ("primary discharge diagnoses of the admissions", diagnoses, names),
        ("procedures that were done", procedures, [stay.condition.procedure for stay in done]),
    ):
        if 2 <= len(steps) <= _STEPS:
            orders = [draws.several(steps, len(steps)) for _ in range(8)]
            wrong = (*orders, steps[1:], steps[:-1], [*steps, steps[0]])
            yield _Idea(
                f"Which were the {kind}, in order of time?",
                "; then ".join(steps),
                "holistic",
                keys,
                tuple("; then ".join(each) for each in wrong),
                "order",
                ("; ".join(steps),),
                ("choice", "open"),
            )


def _unsaid(record: FictionalRecord, marked: _Marked) -> Iterator[_Idea]:
    for each in absent():
        if marked.never_says(each.word):
            yield _Idea(each.ask, "", "absence", (), each.options)
    beyond = len(record.patient.stays) + 1
    names = tuple(stay.condition.name for stay in record.patient.stays)
    more = ("acute appendicitis", "spontaneous pneumothorax", "heat stroke", "carbon monoxide poisoning")
    yield _Idea(
        f"What was the primary discharge diagnosis of admission number {beyond}?", "", "absence", (), (*names, *more)
    )
