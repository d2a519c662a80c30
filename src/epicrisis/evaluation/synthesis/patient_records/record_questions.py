"""Questions about a fictional record with known answers and all places of the evidence.

A question of the category `specific-fact` is asked only if its answer occurs nowhere else in the record. A holistic
question needs all of its facts; one place of each fact is enough.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, product

from epicrisis.core.types import EvidenceSpan, Question, QuestionForm
from epicrisis.evaluation.synthesis.patient_records.facts import Fact, stay_name
from epicrisis.evaluation.synthesis.patient_records.fictional_record import FictionalRecord
from epicrisis.evaluation.synthesis.patient_records.random_draws import Draws
from epicrisis.evaluation.synthesis.patient_records.vocabulary import chronic_conditions, unanswered_topics

CATEGORIES = ("specific-fact", "temporal", "terminology", "discharge-planning", "cause-effect", "holistic", "absence")
"""The kinds of question in Table 13 of the EHR study."""
FORMS: tuple[QuestionForm, ...] = ("choice", "extractive", "open")
UNSAID = "The record does not say"
_LETTERS = "ABCDE"
_MOST_STEPS = 6
"""The longest sequence a question asks for."""
_FEWEST_WRONG = 3
"""Wrong options a choice needs."""
_NOT_EXTRACTIVE: tuple[QuestionForm, ...] = ("choice", "open")


@dataclass(frozen=True, slots=True)
class RecordQuestion:
    """A question about a record and its properties, known by construction."""

    question: Question
    about: str
    """`number`, `negation` or `trend`; empty for none of these."""
    depth: float | None
    """Mean place of the evidence in the record, 0 to 1 by characters; None without evidence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _QuestionIdea:
    """A question before it has a form: the facts with the answer, and wrong answers."""

    ask: str
    gold: str
    category: str
    keys: tuple[str, ...] = ()
    wrong_answers: tuple[str, ...] = ()
    about: str = ""
    also: tuple[str, ...] = ()
    forms: tuple[QuestionForm, ...] = FORMS

    @property
    def distinct_wrong_answers(self) -> tuple[str, ...]:
        """The wrong answers, each once, ignoring case: at its last place, in the spelling of its first."""
        distinct = {answer.casefold(): answer for answer in reversed(self.wrong_answers)}
        distinct.pop(self.gold.casefold(), None)
        return tuple(reversed(distinct.values()))


def document_id(note_id: str) -> str:
    """Return the document id of a note, as readers of notes assign it."""
    return f"note:{note_id}"


def draw_questions(record: FictionalRecord, n: int, draws: Draws, first_letter: int = 0) -> tuple[RecordQuestion, ...]:
    """Return at most `n` questions, with categories and forms in turn. Right options take the letters in turn from
    number `first_letter` on."""
    evidence = _RecordEvidence(record)
    groups: dict[tuple[str, QuestionForm], list[_QuestionIdea]] = {
        category_and_form: [] for category_and_form in product(CATEGORIES, FORMS)
    }
    for idea in _ideas(record, evidence, draws.substream("ideas")):
        if evidence.supports(idea):
            for form in idea.forms:
                if form != "choice" or len(idea.distinct_wrong_answers) >= _FEWEST_WRONG:
                    groups[idea.category, form].append(idea)
    ideas = {key: draws.substream("order", *key).shuffle(group) for key, group in groups.items()}
    questions: list[RecordQuestion] = []
    asked_texts: set[str] = set()
    choices = 0
    while len(questions) < n and any(ideas.values()):
        for turn, (place, category) in product(range(len(FORMS)), enumerate(CATEGORIES)):
            form = FORMS[(place + turn) % len(FORMS)]
            # An idea may have several forms, but is asked in one.
            unused = [idea for idea in ideas[category, form] if idea.ask not in asked_texts]
            ideas[category, form] = unused[1:]
            if not unused or len(questions) == n:
                continue
            idea = unused[0]
            asked_texts.add(idea.ask)
            option_draws = draws.substream("options", idea.ask)
            number = len(questions) + 1
            questions.append(_question(record, evidence, idea, form, number, first_letter + choices, option_draws))
            choices += form == "choice"
    return tuple(questions)


class _RecordEvidence:
    """The places of all facts in a record."""

    def __init__(self, record: FictionalRecord) -> None:
        self.texts = {document_id(note.id): note.text for note in record.notes}
        self._statements: dict[str, list[EvidenceSpan]] = defaultdict(list)
        self._answers: dict[str, list[EvidenceSpan]] = defaultdict(list)
        self._starts: dict[str, int] = {}
        self._length = 0
        for note in record.notes:
            name = document_id(note.id)
            self._starts[name] = self._length
            self._length += len(note.text)
            for span in note.spans:
                answer = EvidenceSpan(name, span.answer_start, span.answer_end, span.key)
                self._statements[span.key].append(EvidenceSpan(name, span.start, span.end, span.key))
                self._answers[span.key].append(answer)

    def places(self, keys: Sequence[str], *, answers: bool) -> tuple[EvidenceSpan, ...]:
        """Return all statements of these facts, or with `answers` only their answers, in the order of the record."""
        spans = self._answers if answers else self._statements
        places = chain.from_iterable(spans.get(key, ()) for key in keys)
        return tuple(sorted(places, key=lambda place: (self._starts[place.document_id], place.start)))

    def supports(self, idea: _QuestionIdea) -> bool:
        """Return whether the record states all facts of the question, and a specific fact nowhere else."""
        if not self._statements.keys() >= set(idea.keys):
            return False
        return idea.category != "specific-fact" or not idea.keys or self._is_unique(idea)

    def _is_unique(self, idea: _QuestionIdea) -> bool:
        known = self.places(idea.keys, answers=False)
        answer = re.compile(rf"(?<!\w){re.escape(idea.gold)}(?!\w)", re.IGNORECASE)
        for name, text in self.texts.items():
            for match in answer.finditer(text):
                if not any(p.document_id == name and p.start <= match.start() < p.end for p in known):
                    return False
        return True

    def depth(self, places: Sequence[EvidenceSpan]) -> float | None:
        """Return the mean position of the places, 0 to 1 by characters, or None without places."""
        if not places:
            return None
        middles = [self._starts[place.document_id] + (place.start + place.end) / 2 for place in places]
        return round(sum(middles) / len(middles) / self._length, 4)


def _question(
    record: FictionalRecord,
    evidence: _RecordEvidence,
    idea: _QuestionIdea,
    form: QuestionForm,
    number: int,
    letter: int,
    draws: Draws,
) -> RecordQuestion:
    places = evidence.places(idea.keys, answers=form == "extractive")
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
    return RecordQuestion(question, idea.about, evidence.depth(places))


def _options(idea: _QuestionIdea, letter: int, draws: Draws) -> tuple[Mapping[str, str], str]:
    """Return four or five options and the right letter. Half of the answerable questions also offer `UNSAID`, so that
    its presence reveals nothing."""
    wrong = draws.sample(idea.distinct_wrong_answers, 4)
    if idea.gold and draws.chance(50):
        wrong = draws.shuffle([*wrong[:3], UNSAID])
    place = letter % (len(wrong) + 1)
    texts = [*wrong[:place], idea.gold or UNSAID, *wrong[place:]]
    return dict(zip(_LETTERS, texts, strict=False)), _LETTERS[place]


def _ideas(record: FictionalRecord, evidence: _RecordEvidence, draws: Draws) -> Iterator[_QuestionIdea]:
    facts = dict(zip((fact.key for fact in record.facts), record.facts, strict=True))
    for fact in (fact for fact in record.facts if fact.ask):
        # Negations are asked as words of a note here; `_negation_ideas` asks them as choices.
        yield _QuestionIdea(
            ask=fact.ask,
            gold=fact.answer,
            category=fact.category,
            keys=(fact.key,),
            wrong_answers=fact.wrong_answers,
            about=fact.about,
            forms=("extractive", "open") if fact.about == "negation" else FORMS,
        )
    yield from _negation_ideas(record, facts)
    yield from _terminology_ideas(record, facts)
    yield from _holistic_ideas(record, facts, draws)
    for topic in unanswered_topics():
        if not any(topic.word.casefold() in text.casefold() for text in evidence.texts.values()):
            yield _QuestionIdea(ask=topic.ask, gold="", category="absence", wrong_answers=topic.options)
    names = [stay.condition.name for stay in record.patient.stays]
    others = ("acute appendicitis", "spontaneous pneumothorax", "heat stroke", "carbon monoxide poisoning")
    yield _QuestionIdea(
        ask=f"What was the primary discharge diagnosis of admission number {len(names) + 1}?",
        gold="",
        category="absence",
        wrong_answers=(*names, *others),
    )


def _negation_ideas(record: FictionalRecord, facts: Mapping[str, Fact]) -> Iterator[_QuestionIdea]:
    for stay in record.patient.stays:
        condition, fact = stay.condition, facts[f"denied:{stay.number}"]
        others = [facts[f"found:{stay.number}"].answer, condition.name, condition.complaint]
        others += [other.condition.name for other in record.patient.stays if other != stay]
        yield _QuestionIdea(
            ask=f"Which of these did the {condition.study} of {stay_name(record.patient, stay)} rule out?",
            gold=condition.ruled_out,
            category=fact.category,
            keys=(fact.key,),
            wrong_answers=tuple(others[:4]),
            about="negation",
            forms=("choice",),
        )


def _terminology_ideas(record: FictionalRecord, facts: Mapping[str, Fact]) -> Iterator[_QuestionIdea]:
    all_names = tuple(condition.name for condition in chronic_conditions())
    abbreviations = tuple(condition.abbreviation for condition, _ in record.patient.chronic)
    terminology_idea = partial(_QuestionIdea, category="terminology")
    for condition, _ in record.patient.chronic:
        short, keys = condition.abbreviation, (f"history:{condition.abbreviation}",)
        yield terminology_idea(
            ask=f"Which abbreviation stands for {condition.lay} in the past medical history?",
            gold=short,
            keys=keys,
            wrong_answers=abbreviations,
        )
        yield terminology_idea(
            ask=f'What does "{short}" in the past medical history mean?',
            gold=condition.name,
            keys=keys,
            wrong_answers=all_names,
            also=(condition.lay,),
            forms=_NOT_EXTRACTIVE,
        )
    for stay in record.patient.stays:
        fact, name = facts[f"diagnosis:{stay.number}"], stay_name(record.patient, stay)
        yield terminology_idea(
            ask=f'By which medical name does the discharge summary of {name} call "{stay.condition.lay}"?',
            gold=fact.answer,
            keys=(fact.key,),
            wrong_answers=fact.wrong_answers,
        )


def _holistic_ideas(record: FictionalRecord, facts: Mapping[str, Fact], draws: Draws) -> Iterator[_QuestionIdea]:
    stays = record.patient.stays
    numbers = [stay.number for stay in stays]
    diagnosis_keys = tuple(f"diagnosis:{number}" for number in numbers)
    units_keys = tuple(f"units:{number}" for number in numbers)
    n = len(stays)
    counting_idea = partial(_QuestionIdea, category="holistic", about="number")
    yield counting_idea(
        ask="How many hospital admissions does the record describe?",
        gold=str(n),
        keys=diagnosis_keys,
        wrong_answers=tuple(map(str, filter(None, (n + 1, n + 2, n + 3, n - 1)))),
        also=(f"{n} admissions" if n > 1 else "one admission",),
        forms=_NOT_EXTRACTIVE,
    )
    counts = [stay.units for stay in stays]
    total = sum(counts)
    yield counting_idea(
        ask="How many units of packed red cells did the patient receive over all admissions together?",
        gold=f"{total} units",
        keys=units_keys,
        wrong_answers=tuple(f"{total + step} units" for step in (1, 2, 4, 7)),
        also=(str(total),),
        forms=_NOT_EXTRACTIVE,
    )
    if n == 1:
        return
    if counts.count(max(counts)) == 1:
        amounts = [facts[key].answer for key in units_keys]
        yield counting_idea(
            ask="What is the largest amount of packed red cells that the patient received in one admission?",
            gold=amounts[counts.index(max(counts))],
            keys=units_keys,
            wrong_answers=(*amounts, *(f"{item} units of packed red cells" for item in (10, 11, 12))),
        )
    names = [facts[key].answer for key in diagnosis_keys]
    wrong_answers = (*names, *facts[diagnosis_keys[0]].wrong_answers)
    lengths = [stay.days for stay in stays]
    for superlative, extreme in (("longest", max(lengths)), ("shortest", min(lengths))):
        if lengths.count(extreme) == 1:
            yield counting_idea(
                ask=f"What was the primary discharge diagnosis of the {superlative} of all admissions?",
                gold=stays[lengths.index(extreme)].condition.name,
                keys=diagnosis_keys,
                wrong_answers=wrong_answers,
            )
    yield from _order_ideas(record, diagnosis_keys, names, draws)


def _order_ideas(
    record: FictionalRecord, diagnosis_keys: tuple[str, ...], names: list[str], draws: Draws
) -> Iterator[_QuestionIdea]:
    operated = [stay for stay in record.patient.stays if stay.procedure_day is not None]
    procedure_keys = tuple(f"procedure:{stay.number}" for stay in operated)
    procedures = [item.condition.procedure for item in operated]
    for kind, keys, steps in (
        ("primary discharge diagnoses of the admissions", diagnosis_keys, names),
        ("procedures that were done", procedure_keys, procedures),
    ):
        if 2 <= len(steps) <= _MOST_STEPS:
            orders = [draws.shuffle(steps) for _ in range(8)]
            wrong_orders = (*orders, steps[1:], steps[:-1], [*steps, steps[0]])
            yield _QuestionIdea(
                ask=f"Which were the {kind}, in order of time?",
                gold="; then ".join(steps),
                category="holistic",
                keys=keys,
                wrong_answers=tuple("; then ".join(order) for order in wrong_orders),
                about="order",
                also=("; ".join(steps),),
                forms=_NOT_EXTRACTIVE,
            )
