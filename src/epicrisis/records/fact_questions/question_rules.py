"""Plan a question about facts from its words, without a chat model.

A question is understood only if every word of it is: subject, computation, time, and words without weight. So
`creatinine after the second dose` is left to the search, rather than answered without its second half.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from epicrisis.core.clinical_facts import ClinicalFact
from epicrisis.core.computed_values import FactOperation
from epicrisis.core.fact_kinds import KINDS, VALUE_KINDS, FactKind
from epicrisis.records.fact_questions.record import PatientFacts
from epicrisis.records.fact_questions.subjects import (
    SeriesMatch,
    ValueSeries,
    find_known_phrase,
    find_near_names,
    find_series,
    list_series,
    match_entries,
    split_words,
)
from epicrisis.records.fact_questions.synonyms import expand_shorthand, has_unknown_abbreviation
from epicrisis.records.fact_questions.time_windows import ANY_TIME, TimeWindow, UnclearTime, resolve_window
from epicrisis.retrieval.time_expressions import TimeExpression, find_time_expressions

Topic: TypeAlias = FactKind | Literal["values", "entries"]
"""What kind of facts a question is about.

`values`: all that is measured. `entries`: a medication, problem, procedure, device or flag."""
TOPIC_KINDS: Mapping[Topic, frozenset[FactKind]] = {
    **{kind.name: frozenset({kind.name}) for kind in KINDS.values()},
    "values": VALUE_KINDS,
    "entries": frozenset({"medication", "problem", "procedure"}),
}
_ENTRY_CATEGORIES = ("devices", "flags")
"""Categories of observations that are no values."""


@dataclass(frozen=True, slots=True)
class FactQuestion:
    """A parsed question about facts: the computation, its entries, and its time."""

    operation: FactOperation
    topic: Topic
    words: tuple[str, ...] = ()
    """The words that name what is asked for. Empty for all entries of the topic."""
    series: SeriesMatch | None = None
    """The values that the words name."""
    window: TimeWindow = ANY_TIME
    planned_by: str = "rules"

    @property
    def subject(self) -> str:
        """What is asked for, in words of the question."""
        return self.series.phrase if self.series is not None else " ".join(self.words)


@dataclass(frozen=True, slots=True)
class UnclearQuestion:
    """A question about facts that cannot be computed. The reason names the cure."""

    operation: FactOperation
    subject: str
    reason: str


_FILLER_WORDS = (
    "a about according all also an and any are as at available be been by can chart could data date dates day did do "
    "checked documented documents does drawn during entries entry ever far find for from get give given had has have "
    "he her here him his hospital how i in information into is it its known lab laboratory labs level levels like list "
    "look many me measured measurement measurements mr mrs ms much my now of on or our over patient patients please "
    "reading readings record recorded records report reported result results s see she show shown so structured "
    "tell test tests that the their them there these they this time times to value values was we were what when "
    "which whole with within would you"
)
_FILLER = frozenset(_FILLER_WORDS.split())
"""Words that change nothing about what a question asks for."""

_CUE_WORDS: dict[FactOperation, str] = {
    "highest": r"highest|maximum|maximal|max|peak(?:ed)?|greatest",
    "lowest": r"lowest|minimum|minimal|min|nadir|smallest",
    "change": r"chang(?:e|ed|es)|difference",
    "trend": r"trend(?:s|ed|ing)?|over time|time course|course|progression|evolution|evolv(?:e|ed)|develop(?:ed|ment)?|"
    r"time series|plot|graph",
    "count": r"how many(?: times)?|how often|number of|count of",
    "stopped": r"stop(?:ped)?|discontinu(?:e|ed)|ended|finish(?:ed)?",
    "started": r"start(?:ed)?|begin|began|begun|initiated|first (?:prescribed|given|taken)|diagnosed",
    "ever": r"ever|(?:a )?history of|at any time|previously",
    "last": r"last|latest|most recent(?:ly)?|newest|most current",
    "first": r"first|earliest|initial",
    "current": r"currently|still|current|now|at present|presently|active|at the moment|today|takes?|taking|is on|on",
    "list": r"all|every|list(?:ed)?|values|measurements|results|readings|levels|series",
}
_CUES = {operation: re.compile(rf"\b(?:{words})\b") for operation, words in _CUE_WORDS.items()}
"""What the words of a question ask to compute, in the order in which they take their words."""
_TOPICS: Mapping[Topic, re.Pattern[str]] = {
    kind.name: re.compile(rf"\b(?:{kind.asked_by})\b") for _, kind in sorted(KINDS.items()) if kind.asked_by
}
"""In the order in which they take the words of a question: a vaccine against an illness is not the illness."""
_LEADS_TIME = re.compile(r"\b(?:in|on|at|during|from|of|for|throughout|within|over)\s*$")
_TREND_WORDS = re.compile(r"trend|over time|over the|chronolog|time ?line")
_TIMELESS = frozenset({"item", "all", "compared"})
_POLITE = re.compile(r"\b(?:can|could|would|will) you\b|\b(?:can|could|may) (?:i|we) (?:see|have|get)\b|\bwould like\b")
_OTHER_MEANING = re.compile(
    r"\b(?:never|not|no|none|cannot|\w+n't|without|except|excluding|unless|neither|nor|but|only|instead|"
    r"should|will|shall|must|may|might|can|could|would|ought|why|who|whose|where|because|"
    r"planned|target|goal|recommended|normal|abnormal|"
    r"mother|father|parents?|brothers?|sisters?|siblings?|sons?|daughters?|child|children|husband|wife|partner|spouse|"
    r"aunt|uncle|cousin|grand\w+|relatives?|(?:all|other|these) patients)\b"
)
"""Words that make a question something else: a negation, a plan, a reason, another person."""
_NOT_MEASURED = re.compile(r"\b(?:given|got|get|on|into)\b|\bhow much\b")
"""Words that make the name of a value one of a drug: `How much potassium was given?`"""
_FINDINGS = re.compile(r"\b(?:values?|measurements?|results?|readings?|levels?)\b")
"""Words for what a procedure showed, which its entry does not say: `bronchoscopy results`."""
_COURSE = re.compile(r"\b(?:what|how) (?:did|has|is|was|does)\b.{1,60}\b(?:do|done|doing)\b")
"""Words that ask for the course of a value: `What did the sodium do?`"""
_LEADING_REQUEST = re.compile(r"^\s*(?:please )?get\b|\bon (?:the |her |his )?(?:record|chart)\b")
_GROUP = re.compile(
    r"\b(?:\w*blockers?|inhibitors?|\w*agonists?|statins?|\w*steroids?|anti\w+|diuretics?|opioids?|opiates?|narcotics?|"
    r"nsaids?|ss?ris?|snris?|ppis?|acei?|arbs?|[dn]oacs?|\w*diazepines?|painkillers?|analgesics?|thinners?|sedatives?|"
    r"laxatives?|inhalers?|supplements?|vitamins?|chemo\w*|dialysis|oxygen|ventilator|\w*pressors?|hormones?|"
    r"contraceptives?|immunosuppress\w*|insulins?|\w*quinolones?|macrolides?|cephalosporins?|\w*ureas?|food|drugs?|"
    r"seasonal|environmental|room|air|hospice|isolation|precautions|transplant|call|[bc]i?pap|telemetry|tele|monitor|"
    r"replacement|therapy|treatment|drip|gtt|fluids|feeds|npo|leave|floor|icu|rest|hold|study|trial|sulfa|abx|antibiotics?|anything|something|else|dose|doses|dosage|twice|daily|diet)\b"
)
"""Words that name no single drug, so that a record without them in a name shows nothing."""
_ALTERNATIVES = re.compile(r"\b(?:and|or)\b|[,;/&]")
_OPEN = frozenset({"leftover", "neutral", "bare", "open"})
"""Kinds of time expressions that are not looked up."""
_NOW = re.compile(r"\b(?:current|currently|now)\b")
_TIME_WORDS = re.compile(
    r"\b(?:new|ago|before|after|prior|past|next|recent(?:ly)?|lately|since|until|yesterday|tonight|tomorrow|"
    r"hours?|days?|night|weeks?|wks?|months?|mos?|years?|yrs?|season|winter|summer|spring|autumn)\b"
)
"""Words of a time that is not understood, which are no part of a name."""
_MAX_QUESTION_WORDS = 60
_MAX_SUBJECT_WORDS = 4
_MAX_UNKNOWN_WORDS = 2
"""Words of a thing that no entry of the record names."""
_HAS = re.compile(r"\b(?:does|do) (?:she|he|they|the patient|this patient) have\b")
_DID = re.compile(r"\b(?:has|have|did|was|had) (?:she|he|they|the patient|this patient|it)\b")
_AS_OF = re.compile(r"\bas of\b", re.IGNORECASE)
_HAD = re.compile(r"\b(?:had|have|history of)\b")
_ASKS_VALUE = re.compile(r"^\s*(?:what|which|how (?:high|low|much)|show|tell|give|list|get|find|display)\b")
_FACT_WORDS = "|".join((*_CUE_WORDS.values(), *(KINDS[name].asked_by for name in _TOPICS)))
_FACT_CUE = re.compile(rf"\b(?:{_FACT_WORDS}|what|which|values?|levels?|results?|on|have)\b")


def may_ask_for_facts(text: str) -> bool:
    """Return whether the words of a question allow that it is about facts. It is quick, and the record decides."""
    words = split_words(text)
    if len(words) > _MAX_QUESTION_WORDS:
        return False
    return bool(_FACT_CUE.search(text.lower())) or bool(find_known_phrase(words))


def plan_by_rules(text: str, record: PatientFacts) -> FactQuestion | UnclearQuestion | None:
    """Return the computation of a question, why it is unclear, or None unless every word is understood."""
    text = expand_shorthand(text)
    question = _read_words(text)
    if _has_other_meaning(question.rest):
        return None
    plan = _plan_words(question.rest, record, has_time=bool(question.times))
    if plan is None or question.has_open_time:
        return None
    if isinstance(plan, UnclearQuestion):
        return plan
    if _may_be_missed(plan, text, record):
        return None
    try:
        window = resolve_window(question.times, record)
    except UnclearTime as error:
        return UnclearQuestion(plan.operation, plan.subject, str(error))
    if plan.topic != "values" and _AS_OF.search(window.text):
        reason = f"“{window.text}” can mean all entries until then, or those of that day; write “on” before the date"
        return UnclearQuestion(plan.operation, plan.subject, reason)
    return _apply_window(plan, window)


def _may_be_missed(plan: FactQuestion, text: str, record: PatientFacts) -> bool:
    """Return whether no entry has the words of the plan, and one of them is an abbreviation that may mean an entry."""
    if plan.topic == "values" or match_entries(plan.words, select_facts(plan.topic, record)).certain:
        return False
    return has_unknown_abbreviation(text, plan.words)


def draft_plan(text: str, record: PatientFacts) -> FactQuestion | None:
    """Return the subject of a question outside the rules as a draft for a chat model to complete, or None.

    A question has no draft if its time is not a date, if it is about two values, or if a word changes its meaning.
    """
    question = _read_words(expand_shorthand(text))
    if question.has_open_time or _has_other_meaning(question.rest) or not all(map(_is_dated, question.times)):
        return None
    words = split_words(question.rest)
    match = find_series(words, list_series(record.values))
    if match is not None:
        if find_known_phrase(_without_phrase(words, match.phrase).split()):
            return None
        return FactQuestion("list", "values", series=match)
    topics = [topic for topic, pattern in _TOPICS.items() if pattern.search(" ".join(words))]
    return FactQuestion("list", topics[0]) if len(topics) == 1 else None


def _is_dated(expression: TimeExpression) -> bool:
    """Return whether a time is a day, or a range of days."""
    return expression.kind == "day" or (
        expression.kind == "range" and all(anchor.kind == "day" for anchor in expression.anchors)
    )


def _has_other_meaning(text: str) -> bool:
    """Return whether a word makes a question something else than what its other words ask."""
    return bool(_OTHER_MEANING.search(_POLITE.sub(" ", text.replace("’", "'"))))


@dataclass(frozen=True, slots=True)
class _Words:
    rest: str
    """The question in small letters without its times."""
    times: tuple[TimeExpression, ...]
    has_open_time: bool
    """Whether it has a time that is not understood."""


def _read_words(text: str) -> _Words:
    """Return the question without its time expressions, and these."""
    rest = f" {' '.join(text.split()).lower()} "
    times: list[TimeExpression] = []
    is_open = False
    for expression in find_time_expressions(text):
        if expression.kind in _TIMELESS:
            is_open = is_open or (expression.kind == "all" and not _TREND_WORDS.search(expression.text))
            continue
        words = expression.text.lower()
        if expression.kind == "leftover" and (_CUES["last"].fullmatch(words) or _CUES["first"].fullmatch(words)):
            # Before words that are no order of notes, as in `last heart rate`.
            continue
        is_open = is_open or expression.kind in _OPEN
        start = rest.find(words)
        if start < 0:
            is_open = True
            continue
        before = _LEADS_TIME.sub("", rest[:start].rstrip())
        rest = f"{before} {rest[start + len(words) :]}"
        times.append(expression)
    return _Words(rest, tuple(times), is_open)


def _plan_words(text: str, record: PatientFacts, *, has_time: bool) -> FactQuestion | UnclearQuestion | None:
    """Return the plan of the words of a question without its times, or which values have names near its words."""
    words = split_words(text)
    series = list_series(record.values)
    # `Severity of pain` is `pain severity`.
    without_of = [word for word in words if word != "of"]
    matches = [(match, form) for form in (words, without_of) if (match := find_series(form, series)) is not None]
    if matches:
        match, form = max(matches, key=lambda pair: len(pair[0].phrase.split()))
        return _plan_values(text, form, match, has_time)
    return _plan_entries(text, record) or _name_near_values(text, series)


def _name_near_values(text: str, series: Sequence[ValueSeries]) -> UnclearQuestion | None:
    """Return that no value has the name, and which are near, if the words ask for a value alone."""
    operations, rest = _take_cues(
        " ".join(split_words(text)), exclude=("ever", "started", "stopped", "current", "count")
    )
    subject = [word for word in rest.split() if word not in _FILLER]
    if _GROUP.search(text) or any(pattern.search(text) for pattern in _TOPICS.values()):
        return None
    if len(operations) != 1 or operations[0] == "list" or not 1 <= len(subject) <= _MAX_SUBJECT_WORDS:
        return None
    near = find_near_names(subject, series)
    if not near and not find_known_phrase(subject):
        return None
    name = " ".join(subject)
    listed = f"; near it {'are' if len(near) > 1 else 'is'} {', '.join(near)}" if near else ""
    return UnclearQuestion(operations[0], name, f"no structured value of the record is called “{name}”{listed}")


def _plan_values(text: str, words: Sequence[str], match: SeriesMatch, has_time: bool) -> FactQuestion | None:
    """Return the plan of a question about values, or None if a word of it is not understood."""
    operations, rest = _take_cues(
        _without_phrase(words, match.phrase), exclude=("ever", "started", "stopped", "current")
    )
    rest = _NOW.sub(" ", rest)
    if "change" not in operations and _NOT_MEASURED.search(_LEADING_REQUEST.sub(" ", _POLITE.sub(" ", text))):
        return None
    if not operations and _COURSE.search(text):
        return None
    if set(rest.split()) - _FILLER or not (operations or has_time or _ASKS_VALUE.search(text)):
        return None
    if len(operations) > 1:
        operations = [operation for operation in operations if operation != "list"]
    if len(operations) > 1:
        return None
    # Without a word that says what to compute, the time decides.
    operation: FactOperation = operations[0] if operations else "value-on"
    return FactQuestion(operation, "values", series=match)


def _without_phrase(words: Sequence[str], phrase: str) -> str:
    """Return the words without a phrase of them: `last` of `last ast`."""
    return f" {' '.join(words)} ".replace(f" {phrase} ", " ", 1)


def _take_cues(text: str, exclude: Sequence[FactOperation] = ()) -> tuple[list[FactOperation], str]:
    """Return the operations whose words are in the text, and the text without them."""
    operations: list[FactOperation] = []
    for operation, pattern in _CUES.items():
        if operation not in exclude and pattern.search(text):
            operations.append(operation)
            text = pattern.sub(" ", text)
    return operations, text


def _plan_entries(text: str, record: PatientFacts) -> FactQuestion | None:
    """Return the plan of a question about medication, problems and other entries."""
    words = " ".join(split_words(text))
    topics: list[Topic] = []
    rest = words
    for topic, pattern in _TOPICS.items():
        if pattern.search(rest):
            topics.append(topic)
            rest = pattern.sub(" ", rest)
    is_current = bool(re.search(r"\b(?:is|are|does|do|am)\b", words)) and not re.search(r"\bever\b", words)
    operations, rest = _take_cues(rest)
    subject = tuple(word for word in rest.split() if word not in _FILLER)
    if len(subject) > _MAX_SUBJECT_WORDS or len(topics) > 1 or _TIME_WORDS.search(" ".join(subject)):
        return None
    if not topics and find_known_phrase(subject) and not {"started", "stopped"} & set(operations):
        # `The last bicarbonate` asks for a value, also in a record that has none and a drug of that name.
        return None
    topic = topics[0] if topics else "entries"
    if subject and _FINDINGS.search(words):
        return None
    operation = _choose_operation(operations, topic, words, bool(subject), is_current)
    if operation is None or ("when" in words.split() and operation in ("ever", "current")):
        return None
    plan = FactQuestion(operation, topic, subject)
    return plan if _is_plausible(plan, topics, record, text) else None


def _choose_operation(
    operations: Sequence[FactOperation], topic: Topic, words: str, has_subject: bool, is_current: bool
) -> FactOperation | None:
    """Return what to compute for entries, or None if the words do not say."""
    chosen = set(operations)
    if "diagnosed" in words.split() and topic == "problem":
        chosen.add("started")
    if "count" in chosen and topic == "medication" and is_current and has_subject:
        # `How often does she take lactulose` asks for a dose.
        return None
    if {"count", "current"} <= chosen or ("count" in chosen and topic == "medication" and is_current):
        return "current"
    for weak in ("list", "current"):
        # `List the current medications` asks for the current ones.
        if len(chosen) > 1:
            chosen.discard(weak)
    if "ever" in chosen and chosen <= {"ever", "started", "stopped"}:
        return "ever"
    if len(chosen) > 1:
        return None
    if chosen:
        is_when = has_subject and "when" in words.split()
        return _adapt_operation(next(iter(chosen)), topic, is_when=is_when, is_current=is_current)
    return _choose_by_topic(topic, words, has_subject, is_current)


def _adapt_operation(
    operation: FactOperation, topic: Topic, *, is_when: bool, is_current: bool
) -> FactOperation | None:
    """Return what an operation means for entries, or None if it means nothing."""
    if operation in ("highest", "lowest", "change") or (
        operation == "current" and topic in KINDS and KINDS[topic].is_done
    ):
        return None
    if operation in ("started", "stopped") and not is_when:
        return None
    if operation == "list" and (topic == "allergy" or (is_current and topic in ("medication", "problem"))):
        return "current"
    return "list" if operation == "trend" else operation


def _choose_by_topic(topic: Topic, words: str, has_subject: bool, is_current: bool) -> FactOperation | None:
    """Return what a question without a word for an operation asks for."""
    if topic == "entries" and has_subject and _HAS.search(words):
        return "current"
    if topic == "allergy":
        return "ever" if has_subject else "current"
    if topic == "medication" and is_current:
        return "current"
    if topic == "problem" and not has_subject:
        return "current" if is_current else "list"
    if has_subject:
        return "ever" if topic != "entries" and _DID.search(words) else None
    return "list"


def _is_plausible(plan: FactQuestion, topics: Sequence[Topic], record: PatientFacts, text: str) -> bool:
    """Return whether the subject names entries of the record, or the words say what kind of thing it is."""
    has_alternatives = len(plan.words) > 1 and bool(_ALTERNATIVES.search(text))
    if has_alternatives and re.search(r"\bor\b", text):
        return False
    facts = select_facts(plan.topic, record)
    if not plan.words:
        return bool(topics)
    match = match_entries(plan.words, facts)
    if match.certain or match.doubtful:
        return True
    if has_alternatives or _is_described(plan, record, text):
        return False
    is_value = bool(find_known_phrase(plan.words))
    if plan.operation == "ever" and plan.topic == "entries":
        # `Has she ever been hospitalized` asks for no entry of that name.
        return bool(_HAD.search(text)) and not is_value and len(plan.words) <= _MAX_UNKNOWN_WORDS
    return bool(topics) and plan.operation in ("ever", "current") and not is_value


def _is_described(plan: FactQuestion, record: PatientFacts, text: str) -> bool:
    """Return whether the subject may describe entries without being in their names: a group, a purpose, a dose."""
    if _GROUP.search(plan.subject) or (plan.topic == "medication" and re.search(r"\bfor\b", text)):
        return True
    entries = [fact for fact in record.facts if fact.kind not in VALUE_KINDS]
    return len(plan.words) > 1 and any(match_entries((word,), entries).certain for word in plan.words)


def select_facts(topic: Topic, record: PatientFacts) -> list[ClinicalFact]:
    """Return the valid facts of a topic."""
    others = _ENTRY_CATEGORIES if topic == "entries" else ()
    return [fact for fact in record.facts if fact.kind in TOPIC_KINDS[topic] or fact.category in others]


def _apply_window(plan: FactQuestion, window: TimeWindow) -> FactQuestion:
    """Return the plan with its time. What a question without an operation means depends on the time it names."""
    operation = plan.operation
    if plan.topic == "values" and operation == "value-on" and not window.is_day:
        operation = "list" if window.is_restricted else "last"
    return replace(plan, operation=operation, window=window)
