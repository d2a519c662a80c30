"""Time expressions of a question about a record: `the second admission`, `final diagnoses`, `on 2150-03-04`, `before
the surgery` (EHR study, appendix F and Table 13; errata E7).

Expressions are found by English words alone, without the record; `timeline` applies them to it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Literal, TypeAlias

from epicrisis.retrieval.date_marks import MarkedDates, mark_dates
from epicrisis.retrieval.unresolved_time_words import BLANK, GAP, find_unresolved_word

TimeExpressionKind: TypeAlias = Literal[
    "stay",
    "stay-on",
    "note",
    "note-on",
    "named-note",
    "at-discharge",
    "at-admission",
    "day",
    "range",
    "hospital-day",
    "postoperative-day",
    "event",
    "discharge",
    "all",
    "compared",
    "readmission",
    "bare",
    "item",
    "open",
    "leftover",
    "neutral",
]
Relation: TypeAlias = Literal["", "before", "until", "after", "since", "between"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeExpression:
    """A time expression. `text` is its wording in the question."""

    kind: TimeExpressionKind
    text: str
    which: int = 0
    """The place in time, from 1, or from the end with -1 as the last; 0 for none. For a day in hospital its number."""
    count: int = 1
    """The number of items from that place on: `the last two admissions` are -1 and 2."""
    noun: str = ""
    """A key of `NOTE_KINDS`, the words of an event, or `start`, `begin` (strictly) or `end` of a stay."""
    readings: tuple[str, ...] = ()
    relation: Relation = ""
    anchors: tuple[TimeExpression, ...] = field(default=())
    """The stays, discharges, days or events that limit a range."""
    attached: bool = False
    """Whether only prepositions separate it from the previous expression, which it then narrows: `the last radiology
    report of the first admission`."""


NOTE_KINDS = {
    "discharge summary": (r"discharge (?:summar(?:y|ies)|notes?|letters?)", r"discharge(?! plan)|^(?:ds|ad)$"),
    "admission note": (
        r"admission notes?|h&p|history and physical",
        r"admission|admit|history (?:and|&) phys|h&p|^hp$",
    ),
    "pathology report": (r"(?:surgical )?patholog(?:y|ic|ical)(?: (?:reports?|notes?|diagnos[ie]s))?", r"patholog"),
    "radiology report": (r"(?:radiology|imaging) (?:reports?|notes?|stud(?:y|ies))", r"radiolog|imaging|^(?:rr|ar)$"),
    "operative note": (r"(?:operati(?:ve|on)|surgical|procedure|op) (?:notes?|reports?)", r"operati|surg|procedure"),
    "progress note": (r"progress notes?", r"progress"),
    "nursing note": (r"nurs(?:ing|e'?s?) notes?", r"nurs"),
    "physician note": (r"(?:physician|doctor)'?s? notes?", r"physician"),
    "consultation": (r"consult(?:ation)?(?: (?:notes?|reports?))?", r"consult"),
    "echocardiogram": (r"echo(?:cardiogra(?:m|phy))?(?: reports?)?", r"echo"),
    "electrocardiogram": (r"(?:ecg|ekg|electrocardiogram)(?: reports?)?", r"ecg|ekg|electrocard"),
}
"""Kinds of notes: a pattern of their names in questions and one of their note types, both in small letters."""

FAMILIES = (
    ("stay", "stay-on"),
    ("day", "hospital-day", "postoperative-day"),
    ("note", "note-on", "at-discharge", "at-admission"),
)
NARROWING = frozenset({"range"}).union(*FAMILIES)
"""Kinds of expressions that exclude notes."""

_NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
_PLACES = {
    **{word: place for place, word in enumerate(_ORDINALS, 1)},
    **dict.fromkeys(("initial", "earliest"), 1),
    **dict.fromkeys(("last", "latest", "most recent", "current", "final"), -1),
    **dict.fromkeys(("penultimate", "second to last", "second-to-last", "next to last", "second most recent"), -2),
}
_ORD = rf"(?:{'|'.join(sorted(_PLACES, key=len, reverse=True))}|\d{{1,2}}(?:st|nd|rd|th))"
_COUNT = rf"(?:{'|'.join(_NUMBERS)}|\d{{1,2}})"
_WHOSE = r"(?:(?:the|this|that|his|her|their|patient's|patients') ){0,2}"
_HOSPITAL = r"(?:(?:hospital|inpatient|recorded|documented) )?"
_NO_ICU = r"(?! (?:notes?|to (?:the )?\w*\s?(?:icu|micu|sicu|ccu|intensive))\b)"
_STAY = rf"{_HOSPITAL}(?:admissions?|hospitali[sz]ations?|stays?|encounters?|hospital visits?)\b{_NO_ICU}"
_DATE = r"⟨\d+⟩"
_ON = r"(?:(?:that |which )?(?:start(?:ing|ed|s)|beg(?:inning|an|ins)) )?(?:dated |of |on |from |in )?"
_STAY_ORD = rf"{_WHOSE}{_ORD} (?:of (?:the |his |her |their )?(?:{_COUNT} )?)?{_STAY}"
_STAY_DATE = rf"{_WHOSE}(?:{_STAY} {_ON}{_DATE}|{_DATE} {_STAY})"
_HEAD = (
    r"(?:surger(?:y|ies)|operations?|procedures?|transplant(?:ation)?|catheteri[sz]ation|biops(?:y|ies)|intubation|"
    r"extubation|dialysis|chemotherapy|radiation|radiotherapy|bypass|cabg|stent(?:ing)?|pci|repair|resection|"
    r"replacement|fusion|delivery|transfusion|amputation|fracture|fall|stroke|infarction|accident|seizure|arrest|"
    r"cardioversion|ablation|emboli[sz]ation|implantation|placement|removal|drainage|mri|ct|scan|x-ray|egd|ercp|tips|"
    r"\w{3,}(?:ectomy|otomy|ostomy|plasty|scopy|graphy|centesis|desis))"
)
_EVENT = (
    rf"{_WHOSE}(?:(?!(?:and|or|was|is|were|did|does|had|has|when|what|to|in|the|patient)\b)[\w-]+ ){{0,3}}?{_HEAD}\b"
    rf"(?: of (?:the |his |her )?(?!(?:the|his|her)\b|{_ORD}|⟨|{_STAY})[\w-]+)?"
)
_NO_EVENT = r"(?! ?(?:summar|note|letter|diagnos|medic|dispo|condition|plan|instruct))"
_DISCHARGE = (
    rf"(?:(?:being|was|were|he|she|patient|the) ){{0,3}}{_WHOSE}(?:{_ORD} {_HOSPITAL}discharges?\b{_NO_EVENT}|"
    rf"{_HOSPITAL}discharged? (?:home )?(?:from|of|after) {_STAY_ORD}|"
    rf"{_HOSPITAL}discharged?(?: home| from (?:the )?hospital)? (?:on|in|of) {_DATE})"
)
_PART = r"(?:(?:the )?(?:(?:very )?(?:beginning|start|end|middle|course) of |early |late |mid[ -]?)(?:in )?)?"
"""A part of a year or month counts as all of it."""
_ANCHOR = rf"(?:{_DISCHARGE}|{_STAY_ORD}|{_STAY_DATE}|{_PART}{_DATE}|{_EVENT})"
_OFFSET = (
    rf"(?:(?:(?:about |some )?(?:an?|the|{_COUNT}|\d+|several|many|a few|few|a couple of|a couple) )?"
    r"(?:immediate(?:ly)? |first |very )?(?:(?:minute|hour|day|night|morning|evening|week|month|year|decade)s? )|"
    r"immediately |shortly |soon |right |just |directly |long )?"
)
"""A length of time before or after, which is ignored: everything before or after counts."""
_BEFORE = r"(?:before|prior to|preceding)"
# `Which of the following procedures` is not a time.
_AFTER = r"(?:after|(?<!the )following|subsequent to)"
_NOTE = rf"(?P<note>{'|'.join(name for name, _ in NOTE_KINDS.values())})"
_AT = r"(?:at|on|upon) (?:the )?(?:time of |day of |date of )?(?:the |his |her |their |hospital |patient's )*"
_UNITS = r"(?:minute|hour|day|night|week|month|year|decade)s?"

_SPAN = rf"how (?:long|soon|many {_UNITS}|much time)\b"
_ALL = (
    r"(?:in )?(?:what|which) (?:order|sequence)|chronolog\w+|time ?line|(?:order|sequence) (?:of|in which)|"
    r"over time|over the (?:years|months|course of)|trend\w*|before or after|before and after|after or before|"
    rf"{_SPAN}(?:(?!{_SPAN})[^?.;])*\b(?:before|after|between|since|until|following|prior to)|"
    rf"(?:until|till|up to|through|by|before|prior to) {_ANCHOR}(?:,| and| or)* "
    r"(?:later|after\w*|thereafter|beyond|onwards?)|"
    rf"(?:since|after|following) {_ANCHOR}(?:,| and| or)* (?:earlier|before|prior|previously|sooner)|"
    r"(?:each|every|all|both|any|across|how many)\b(?: (?:of|the|his|her|their|patient's|hospital|two|three|four|"
    r"\d+))* (?:admissions?|hospitali[sz]ations?|stays?|encounters?)"
)
# Within a day of admission is within the stay.
_WITHIN = (
    rf"within (?:the )?(?:(?:first|next) )?(?:an?|{_COUNT}|\d+|[a-z]+ty) {_UNITS} (?:of|from)\b"
    rf"(?! (?:hospital )?(?:admission|arrival|presentation)\b(?! {_ON}{_DATE}))"
)
_READMISSION = rf"re-?admi(?:t\w*|ssions?)(?!(?: [\w-]+){{0,4}}? (?:on|in|of|from|dated) {_DATE})"
# `How did it change from the first to the last day of the second stay` compares only within that stay.
_COMPARED = (
    r"(?:higher|lower|greater|larger|smaller|fewer|more|less|better|worse|longer|shorter|heavier|lighter)\b"
    r"(?=[^?.;]{0,200}\bthan\b)|"
    r"compar(?:e[ds]?|ing|isons?)|differ(?:s|ed|ing|ent|ently|ences?)?|chang\w+(?= since (?!admission|discharge)| "
    rf"(?:from|between) (?:{_STAY_ORD}|{_STAY_DATE}|{_WHOSE}{_ORD} (?:\w+ )?(?:discharge|summary|note|report)))"
)
_AND = (
    r"(?:, (?:and |or )?|,? (?:and|or|to|but|than|with|versus|vs\.?) "
    r"(?:(?:not|only|also|in|during|at|on|from|of|for|with|that|those) ){0,2})"
)
_AND_ORD = rf"(?={_AND}(?:{_WHOSE}(?>{_ORD}){_AND}){{0,4}}"
"""After an ordinal in a list with the noun at its end. The parenthesis is closed by its users."""
_BARE = (
    rf"(?:(?<!on )|(?!\w+ \d))(?:the|this|that|his|her|their|patient's) (?>{_ORD})(?: ones?)?"
    r"(?= ?[?.,;:!)]| ?$| (?:than|versus|vs|was|were|did|is|not)\b|"
    rf" (?:and|or|but) (?!(?:the )?{_ORD} [\w-]))"
)
_OTHER = rf"(?:previous|prior|next|subsequent|earlier|later|past) {_STAY}"
# Words that make an ordinal something else than an order of notes: a name, a kind, a span of days, a body part.
_NO_ORDER = (
    r"(?:names?|lines?|degree|aid|hand|person|trimester|generation|menstrual|night|week|month|year|few|couple|several|"
    rf"and|or|but|if|for|with|{_COUNT}|{_UNITS}|smok\w+|toe|finger|digit|rib|molar|metatarsal|"
    r"metacarpal|ray|branch|cranial|choice|step|stage|heart|half)\b"
)
_OPEN = (
    rf"(?:first|initial|earliest|last|latest|most recent|current|final) (?!{_NO_ORDER})[\w-]+"
    r"(?: (?!(?:and|or|but|nor|than|versus|vs|as|to|with|not|plus|then)\b)[\w-]+)?"
)


@dataclass(frozen=True, slots=True)
class _Span:
    """An expression and its place in the question."""

    start: int
    end: int
    expression: TimeExpression


def find_time_expressions(question: str) -> tuple[TimeExpression, ...]:
    """Return the time expressions of a question in the order of its words. They do not share words.

    If an expression would exclude notes and other words of the question may mention a time too, the last expression has
    the kind `leftover`.
    """
    text, dates = mark_dates(" ".join(question.split()))
    spans = list[_Span]()
    question_text = text
    for pattern, make in _RULES:
        for match in pattern.finditer(text):
            expression = make(match, dates)
            if expression is not None:
                spans.append(_Span(match.start(), match.end(), expression))
                text = text[: match.start()] + BLANK * (match.end() - match.start()) + text[match.end() :]
    spans.sort(key=lambda span: span.start)
    attached = _attach(question_text, spans)
    expressions = [expression for expression in attached if expression.kind != "neutral"]
    if any(expression.kind in NARROWING for expression in expressions):
        word = _find_leftover(text, spans)
        if word is not None:
            expressions.append(TimeExpression(kind="leftover", text=_restore_dates(word, dates)))
    return tuple(expressions)


def _attach(text: str, spans: Sequence[_Span]) -> list[TimeExpression]:
    """Return the expressions of these spans, marked as `attached` if they narrow the previous one."""
    expressions, attached = list[TimeExpression](), False
    for number, span in enumerate(spans):
        expression = span.expression
        previous = spans[number - 1] if number else None
        following = spans[number + 1] if number + 1 < len(spans) else None
        before = text[previous.end : span.start] if previous else ""
        after = text[span.end : following.start] if following else ""
        last_kind = previous.expression.kind if previous else None
        follows = last_kind in _ATTACHABLE and bool(_ATTACHES.fullmatch(before))
        # A neutral expression passes on whether it is attached.
        attached = follows and expression.kind in _ATTACHABLE and (attached or last_kind != "neutral")
        is_narrowed = following is not None and _narrows(following)
        is_item_of_next = expression.kind == "item" and is_narrowed and bool(_ITEM_OF.fullmatch(after))
        expressions.append(replace(expression, attached=attached or is_item_of_next))
    return expressions


def _narrows(span: _Span) -> bool:
    return span.expression.kind in NARROWING or span.expression.kind == "neutral"


def _find_leftover(text: str, spans: Sequence[_Span]) -> str | None:
    """Return a time word outside the spans, or None. The spans are blanked in `text`."""
    narrowing = list(filter(_narrows, spans))
    compares = any(span.expression.kind == "compared" for span in spans)
    for span, following in pairwise(narrowing):
        between = text[span.end : following.start]
        if _JOINS.fullmatch(between) and (compares or not _SPANS.search(between)):
            text = text[: span.end] + GAP * len(between) + text[following.start :]
    text = _PREPOSITION.sub(lambda match: GAP * len(match[0]), text)
    word = find_unresolved_word(text)
    kinds = {item.expression.kind for item in narrowing}
    if word is None and not kinds <= _OF_STAYS and (discharge := _DISCHARGED.search(text)):
        word = discharge[0]
    return word


_OF_STAYS = frozenset({"stay", "stay-on", "note", "at-discharge", "at-admission", "range", "neutral"})
"""Kinds of expressions with which `discharged` does not mean another time."""
_DISCHARGED = re.compile(
    r"\bdischarged?\b(?! (?:diagnos|medic|meds|weight|labs?|instruct|dispo|condition|plan|summar))"
)
_ATTACHABLE = NARROWING | {"named-note", "neutral", "item"}
_ATTACHES = re.compile(
    r" ?(?:(?:of|in|on|at|from|for|during|within|dated|written (?:in|on|during)) )?"
    r"(?:(?:the|that|this|his|her|their) ){0,2}"
)
_ITEM_OF = re.compile(r"(?: (?!(?:and|or|but|nor|than|to|with|not|versus|vs)\b)[\w-]+){0,4} ?")
_JOINS = re.compile(
    r"(?:\s|,|(?:and|or|to|through|but|than|with|versus|vs\.?|not|only|also|in|during|at|on|from|of|for|that|those|the|both|"
    r"compared (?:to|with)|relative to|as opposed to|it|was|were|is|had|been|then)\b)*"
)
"""The words between two expressions that both count."""
_SPANS = re.compile(r"\b(?:to|through)\b")
_PREPOSITION = re.compile(
    r"\b(?:in|on|at|of|from|during|for|over|throughout|within|dated)"
    rf"(?: (?:the|his|her|their|this|that))? ?(?={BLANK})"
)


_Maker: TypeAlias = Callable[[re.Match[str], MarkedDates], TimeExpression | None]
"""Build the expression of a match, or return None for a match that is none."""


def _restore_dates(text: str, dates: MarkedDates) -> str:
    """Return the words of a match with the original dates in place of their marks."""
    return re.sub(r"⟨(\d+)⟩", lambda mark: dates[int(mark[1])][0], text).strip()


def _readings(text: str, dates: MarkedDates) -> tuple[str, ...]:
    mark = re.search(r"⟨(\d+)⟩", text)
    return dates[int(mark[1])][1] if mark else ()


def _read_place(word: str) -> int:
    return _PLACES[word] if word in _PLACES else int(re.sub(r"\D", "", word))


def _plain(kind: TimeExpressionKind, which: int = 0, noun: str = "", dated: bool = False) -> _Maker:
    """Build expressions with the place, number and count that the named groups of their pattern have."""

    def make(match: re.Match[str], dates: MarkedDates) -> TimeExpression | None:
        groups = match.groupdict()
        place = int(groups["number"]) if "number" in groups else which
        if "ord" in groups:
            place = _read_place(groups["ord"])
        number = groups.get("count", "one")
        count = _NUMBERS.index(number) + 1 if number in _NUMBERS else int(number)
        readings = _readings(match[0], dates) if dated else ()
        return TimeExpression(
            kind=kind, text=_restore_dates(match[0], dates), which=place, count=count, noun=noun, readings=readings
        )

    return make


def _ordinal_stay(match: re.Match[str], dates: MarkedDates) -> TimeExpression | None:
    word = re.search(_ORD, match[0])
    return (
        TimeExpression(kind="stay", text=_restore_dates(match[0], dates), which=_read_place(word[0])) if word else None
    )


def _dated_stay(match: re.Match[str], dates: MarkedDates) -> TimeExpression | None:
    edge = "begin" if re.search("start|beg|admitted", match[0]) else "start"
    if "discharge" in match[0]:
        edge = "end"
    text, readings = _restore_dates(match[0], dates), _readings(match[0], dates)
    return TimeExpression(kind="stay-on", text=text, noun=edge, readings=readings)


_IS_A_NOTE = re.compile(r"summar|note|report|letter|h&p|history and physical")


def _note(match: re.Match[str], dates: MarkedDates) -> TimeExpression | None:
    text, word, noun = _restore_dates(match[0], dates), match["ord"], _kind_of_note(match)
    if not _IS_A_NOTE.search(match["note"]):
        # Other notes mention the result of an examination too.
        return TimeExpression(kind="item", text=text, noun="any note may tell of it")
    # Any report can be final, that is signed off. A final summary is the last one.
    which = 0 if word == "final" and noun != "discharge summary" else _read_place(word)
    return TimeExpression(kind="note", text=text, which=which, noun=noun)


def _kind_of_note(match: re.Match[str]) -> str:
    return next(noun for noun, (name, _) in NOTE_KINDS.items() if re.fullmatch(name, match["note"]))


def _dated_note(match: re.Match[str], dates: MarkedDates) -> TimeExpression | None:
    text, readings = _restore_dates(match[0], dates), _readings(match[0], dates)
    return TimeExpression(kind="note-on", text=text, noun=_kind_of_note(match), readings=readings)


def _named_note(match: re.Match[str], dates: MarkedDates) -> TimeExpression | None:
    if not _IS_A_NOTE.search(match["note"]):
        return None
    return TimeExpression(kind="named-note", text=_restore_dates(match[0], dates), noun=_kind_of_note(match))


def _range(relation: Relation) -> _Maker:
    def make(match: re.Match[str], dates: MarkedDates) -> TimeExpression | None:
        anchors = tuple(_anchor(match[name], dates) for name in ("a", "b") if name in match.re.groupindex)
        return TimeExpression(kind="range", text=_restore_dates(match[0], dates), relation=relation, anchors=anchors)

    return make


def _from_stay_to_stay(match: re.Match[str], dates: MarkedDates) -> TimeExpression | None:
    """Return a range that includes the stays between, as in `from the first to the third admission`."""
    anchors = _anchor(f"{match['a']} admission", dates), _anchor(match["b"], dates)
    return TimeExpression(kind="range", text=_restore_dates(match[0], dates), relation="between", anchors=anchors)


def _anchor(text: str, dates: MarkedDates) -> TimeExpression:
    """Return the stay, discharge, day or event that limits a range."""
    original, readings = _restore_dates(text, dates), _readings(text, dates)
    if re.fullmatch(rf"{_DISCHARGE}|{_WHOSE}{_ORD}", text):
        place = re.search(_ORD, text)
        which = _read_place(place[0]) if place else 0
        return TimeExpression(kind="discharge", text=original, which=which, noun="end", readings=readings)
    if re.fullmatch(_STAY_ORD, text):
        return TimeExpression(kind="stay", text=original, which=_read_place(re.findall(_ORD, text)[0]))
    if re.fullmatch(_STAY_DATE, text):
        return TimeExpression(kind="stay-on", text=original, noun="start", readings=readings)
    if re.fullmatch(rf"{_PART}{_DATE}", text):
        return TimeExpression(kind="day", text=original, readings=readings)
    words = re.fullmatch(rf"{_WHOSE}(?:(?P<ord>{_ORD}) )?(?P<event>.*)", text)
    event, order = (words["event"], words["ord"]) if words else (text, None)
    return TimeExpression(kind="event", text=original, which=_read_place(order) if order else 0, noun=event)


_FINAL = r"final (?:(?:hospital|discharge|principal|primary|clinical|main) )?(?:diagnos[ie]s|disposition|condition)"
_RELATION = rf"(?:{_BEFORE}|{_AFTER}|until|till|up to|since|between)"
_OF_THEN = rf"(?: (?:from|of|on|dated|written on|for) (?:{_DATE}|{_STAY_ORD}))?"
_DESCRIBED = r"(?: (?:available|documented|recorded|written|hospital)){0,2}"
_OF_A_STAY = rf"(?= (?:of|in|during|for|to) (?:{_STAY_ORD}|{_STAY_DATE}))"
_WITHIN_STAY = (
    r"(?:(?:on|at|in|over|for|during|throughout) )?(?:the )?"
    rf"(?:(?:very|entire|whole|{_ORD}|{_COUNT}) ){{0,2}}(?:few |couple of )?(?:hospital )?"
    rf"(?:days?|nights?|weeks?|hours?|morning|evening|part|half|course|beginning|start|end|middle|rest){_OF_A_STAY}"
)
"""A part of a stay counts as all of it."""
_SINCE_ADMISSION = (
    rf"(?:(?:since|after|from) (?:the |his |her |their )?admission|"
    rf"within (?:the )?(?:(?:first|next) )?(?:an?|{_COUNT}|\d+|[a-z]+ty) {_UNITS} (?:of|from|after) (?:hospital )?"
    rf"(?:admission|arrival|presentation)|"
    rf"(?:from|between) (?:the )?(?:{_ORD}|admission)(?: day)? (?:to|and|until|till) (?:the )?"
    rf"(?:{_ORD} day|discharge|{_ORD})){_OF_A_STAY}"
)
_NO_START = _plain("open", noun="which time that is is not looked for")
# The rules in the order of their precedence: a rule takes its words from the later ones.
_RULES: tuple[tuple[re.Pattern[str], _Maker], ...] = tuple(
    (re.compile(pattern), make)
    for pattern, make in (
        (rf"\b(?:{_ALL})\b", _plain("all")),
        # `Not until 2016` is from then on.
        (
            r"(?:\bnot|\bnever|\bno|n't)\b[^?.;]{0,200}?\b(?:until|till|before|after|since|later than|earlier than)\b",
            _plain("all"),
        ),
        (
            rf"(?<![\w-])(?:(?:in|from|since|during|after|on|of) )?(?P<a>{_ANCHOR})(?:,| and| or){{1,2}} "
            rf"(?:later|after(?:wards?)?|thereafter|beyond|onwards?|since)\b(?! (?:{_ANCHOR}|the))",
            _range("since"),
        ),
        (rf"(?:\b(?:in|from|since|of) )?(?P<a>{_PART}{_DATE}) (?:onwards?|forwards?)\b", _range("since")),
        (
            rf"(?<![\w-])(?:(?:in|until|till|up to|by|during|before|on|of) )?(?P<a>{_ANCHOR})(?:,| and| or){{1,2}} "
            rf"(?:earlier|before|prior|previously|sooner)\b(?! (?:to )?(?:{_ANCHOR}|the))",
            _range("until"),
        ),
        (
            rf"(?:\b(?:in|from|between|during|over) )?(?P<a>{_DATE}) ?(?:-|–|—|to|through|thru|until|till) ?"
            rf"(?P<b>{_DATE})",
            _range("between"),
        ),
        (rf"\b{_SINCE_ADMISSION}", _plain("neutral")),
        (
            rf"(?<!by )(?<!until )(?<!till )(?<!since )(?<!before )(?<!after )(?<!from )(?<!to )(?<!\w){_WITHIN_STAY}",
            _plain("neutral"),
        ),
        (
            rf"\bbetween (?P<a>{_WHOSE}{_ORD}) and (?P<b>{_WHOSE}{_ORD} {_HOSPITAL}discharges?\b{_NO_EVENT})",
            _range("between"),
        ),
        (rf"\b{_WITHIN}", _plain("all")),
        (
            rf"\bdischarged?(?: (?:home|to|from|with|on|directly|alive|hospital|the))* (?:after|following) {_STAY_ORD}",
            _ordinal_stay,
        ),
        (rf"\b(?:{_COMPARED})\b", _plain("compared")),
        (rf"\b{_READMISSION}\b", _plain("readmission")),
        (rf"\bfrom (?P<a>{_WHOSE}(?>{_ORD})) (?:to|until|till|through) (?P<b>{_STAY_ORD})", _from_stay_to_stay),
        (rf"\bbetween (?P<a>{_WHOSE}(?>{_ORD})) and (?P<b>{_STAY_ORD})", _from_stay_to_stay),
        # `On the 4th` is a day.
        (rf"(?<!on )(?<!on the )\b{_WHOSE}(?P<ord>(?>{_ORD})){_AND_ORD}{_STAY_ORD})", _ordinal_stay),
        (rf"\b{_BEFORE} {_WHOSE}{_HOSPITAL}(?:admission|hospitali[sz]ation)(?! {_ON}{_DATE})", _plain("at-admission")),
        (rf"\bbetween (?P<a>{_ANCHOR}) and (?P<b>{_ANCHOR})", _range("between")),
        (rf"\bfrom (?P<a>{_ANCHOR}) (?:to|until|till|through) (?P<b>{_ANCHOR})", _range("between")),
        (rf"\b{_RELATION} {_WHOSE}(?:{_FINAL}|(?:{_ORD} )?(?:[\w-]+ ){{0,2}}?{_NOTE}{_OF_THEN})", _NO_START),
        (rf"\b{_NOTE} (?:from|of|on|dated|written on|for) {_DATE}(?! {_STAY})", _dated_note),
        (rf"\b{_OFFSET}{_BEFORE} (?P<a>{_ANCHOR})", _range("before")),
        (rf"\b{_OFFSET}{_AFTER} (?P<a>{_ANCHOR})", _range("after")),
        (rf"\b(?:until|till|up to|through|thru) (?P<a>{_ANCHOR})", _range("until")),
        (rf"\b(?:by|as of) (?P<a>{_DISCHARGE}|{_STAY_ORD}|{_STAY_DATE}|{_PART}{_DATE})", _range("until")),
        (rf"\bsince (?P<a>{_ANCHOR})", _range("since")),
        (rf"\bfrom (?P<a>{_DATE}) (?:on|onwards?|forward)\b", _range("since")),
        (rf"\b{_RELATION} {_WHOSE}{_HOSPITAL}discharged?\b(?: and {_ANCHOR})?", _NO_START),
        (_STAY_DATE, _dated_stay),
        (rf"\b(?:admitted|hospitali[sz]ed)\b(?: [\w-]+){{0,4}}? (?:on|in) {_DATE}", _dated_stay),
        (rf"\bdischarged?\b(?: [\w-]+){{0,4}}? (?:on|in|of) {_DATE}", _dated_stay),
        (rf"\b{_STAY_ORD}", _ordinal_stay),
        (rf"\b(?P<ord>first|last|latest|most recent) (?P<count>{_COUNT}) {_STAY}", _plain("stay")),
        (rf"\b{_FINAL}\b", _plain("note", -1, "discharge summary")),
        (rf"\b(?P<ord>(?>{_ORD})){_AND_ORD}{_WHOSE}{_ORD}{_DESCRIBED} {_NOTE}\b)", _note),
        (
            rf"\b(?P<ord>(?>{_ORD})){_AND_ORD}{_WHOSE}{_ORD} (?:hospital )?discharge\b{_NO_EVENT})",
            _plain("at-discharge"),
        ),
        (rf"\b(?P<ord>{_ORD}){_DESCRIBED} {_NOTE}\b", _note),
        (rf"\b(?P<ord>{_ORD}) (?:hospital )?discharge\b", _plain("at-discharge")),
        (r"\b(?:hospital day|hd) ?#? ?(?P<number>\d{1,3})\b", _plain("hospital-day")),
        (r"\b(?:post-?operative day|post-?op day|pod) ?#? ?(?P<number>\d{1,3})\b", _plain("postoperative-day")),
        (rf"\b{_AT}discharge\b(?! (?:summar|note|letter))|\bwhen (?:\w+ ){{1,3}}discharged\b", _plain("at-discharge")),
        (rf"\b{_AT}admission\b(?! note)", _plain("at-admission")),
        (rf"\b{_OTHER}", _plain("open", noun="from which one it is counted is not said")),
        (rf"(?:\b(?:on|in|during|throughout|dated|from|of|for|at) )?{_PART}{_DATE}", _plain("day", dated=True)),
        (rf"\b{_NOTE}\b", _named_note),
        (rf"\b{_BARE}", _plain("bare")),
        (rf"\b{_OPEN}", _plain("item", noun="any note may tell of it")),
        (rf"\b(?:first|last) (?=(?:of|in|during) (?:the )?{BLANK})", _plain("neutral")),
    )
)
