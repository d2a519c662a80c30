"""Check that a question fits the patients of a library: it must be about an existing patient, and name no other.

Questions name patients by id, by record number, or by full name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import lru_cache
from itertools import chain

from epicrisis.core.dates import find_dates
from epicrisis.core.errors import InputError
from epicrisis.core.printable import quote_for_shell, shorten
from epicrisis.core.types import Question
from epicrisis.library.base.person_names import find_mentions, fold, is_common, name_words, normalize_text
from epicrisis.library.core.patients import PatientRecord, Roster, number_without_system

_MAX_NAME_WORDS = 12
"""Longer names are searched only as written. All their rotations for 20,000 words would take 3 GB."""
_MIN_ID_LENGTH = 4
"""Minimum length of an id that is recognised without a label. A shorter one may be any word."""
_MIN_ID_DIGITS = 6
"""The same for numbers. Four or five digits may be a year or a dose (MIMIC-III's ids have 1 to 5 digits, its years run
from 2100 to 2200)."""
_LABEL_SUFFIX = r"(?:(?i:['\u2019]s)?[\s_]+(?i:ids?|no\.?|numbers?))?"
_LABEL = (
    rf"(?:\b(?i:patients?|subjects?|mrns?){_LABEL_SUFFIX}(?:[\s:#=]{{1,3}}|/)|"
    r"\b(?i:patients|subjects|mrns)\s(?:(?:\0|\d+)(?:, ?(?:and |or )?| (?:and|or|&) )){1,9})"
)
"""Words before an id, also in a list of ids: patients 10083814 and 4321."""
_LONG_ID_LABEL = rf"\b(?i:patients?|subjects?|mrns?|p?id){_LABEL_SUFFIX}[\s:#=/-]{{1,3}}"
"""Words before an id that cannot be a dose, such as `MRN:10083815`."""
_MIN_NUMBER_DIGITS = 7
"""Minimum length of numbers that are also recognised with leading zeros, in groups (12 345 678), or as MRN12345678."""
_GROUP_SEPARATOR = re.compile(r"(?<=\d)[ -](?=\d)")
_NUMBER = re.compile(r"(?<!\w)(?<!\w[-./:])(?:mrn|pid|pt|id)?(\d++)(?![-./:]?\w)")
_NO_UNIT = (
    r"(?!\s*+(?:-\s*+)?(?i:(?:years?|yrs?|y/?o|months?|weeks?|days?|hours?|hrs?|minutes?|times?|[mk]?g|mcg|[u\u00b5\u03bc]g|m?l|dl|"
    r"mmol|mol|meq|units?|iu|mm|cm|mmhg|bpm|kcal|tablets?|pills?|doses?|drops?|puffs?)\b|%|\u00b0))"
)
"""A number before a unit is no id: the patient 65 years old."""
_STRANGER_NUMBER = re.compile(
    rf"\b(?i:(?:patients?|subjects?){_LABEL_SUFFIX}[\s:#=/-]{{1,3}}|(?:mrns?|pid){_LABEL_SUFFIX}[\s:#=/-]{{0,3}})"
    rf"(?P<labelled>(?=[\w-]{{0,63}}\d)[\w-]{{1,64}}+){_NO_UNIT}|"
    rf"(?<![\w.:/-])(?P<long>\d{{{_MIN_NUMBER_DIGITS},}})(?![\w:/-]|\.\d)"
)
_TITLE = r"\b(?:Mr|Mrs|Ms|Miss|Herr|Frau|Patient|patient)\b"
_CAPITALIZED = rf"(?!{_TITLE})[^\W\d_a-z][^\W\d_]*(?:['\u2019-][^\W\d_]+)*"
_STRANGER_NAME = re.compile(
    rf"(?P<title>{_TITLE}\.?\s+)?"
    rf"(?P<name>(?<![\w'\u2019-]){_CAPITALIZED}(?:\s+{_CAPITALIZED})*)(?!\w)"
)
_NOT_A_NAME = frozenset(
    fold(word)
    for words in (
        "a an the does did do is was are were has had have can could should would will may might must what which when",
        "where who whom whose why how and or not no of for in on at with to from by if this that these those he she",
        "they it i patient mr mrs ms miss herr frau january february march april june july august september october",
        "november december monday tuesday wednesday thursday friday saturday sunday",
    )
    for word in words.split()
)
_THE_PATIENT = "the patient"
_REPEATED = re.compile(rf"\b{_THE_PATIENT}(?:[\s,(#/-]+{_THE_PATIENT}\b\)?)+")
_OWN_WORD = re.compile(r"(?P<word>[^\W\d_][^\W_]*(?:['\u2019](?!s\b)[^\W_]+)*)(?:['\u2019]s?(?!\w))?")
_BETWEEN_OWN_WORDS = re.compile(r"-|[.,]?\s+")
_BEFORE_OWN_WORDS = re.compile(
    r"(?:\b(?:the|our|this)\s+)?(?:\bpatient,?\s+)?(?:\b(?P<title>mr|mrs|ms|miss|mx|dr|prof|herr|frau)\b\.?\s+)?\Z",
    re.IGNORECASE,
)
_MIN_OWN_DIGITS = 5
"""The number of the selected patient itself needs fewer digits without a label than another patient's."""
_cached_text = lru_cache(maxsize=65536)(normalize_text)


def resolve_patient(rosters: Sequence[Roster], patient: str | None) -> str | None:
    """Return the id of the patient with this id or record number. Unknown values are returned unchanged.

    The prefixes `id:` and `number:` select one of the two. Raise InputError for a number of several patients, or one
    that is also the id of another patient.
    """
    if patient is None or not rosters:
        return patient
    roster = rosters[0]
    kind, _, value = patient.partition(":")
    if patient not in roster.patients() and kind in ("id", "number") and value:
        ids = roster.ids_with_number(value) if kind == "number" else {value} & roster.patients().keys()
    else:
        ids = roster.ids_with_number(patient) | ({patient} & roster.patients().keys())
    if len(ids) > 1:
        raise InputError(
            f"--patient: {patient!a} is not of one patient alone, as a record number or an id: give the id as id:... "
            f"or the number as number:... with its system (`epicrisis library patients {roster.path}` lists them)"
        )
    return next(iter(ids), patient)


def check_patients(rosters: Sequence[Roster], questions: Iterable[Question], *, by_number: bool = False) -> None:
    """Check these questions as `check_patient` does, against one state of the libraries.

    With `by_number` a record number is accepted as well as the patient's id.
    """
    snapshots = list(map(Roster.snapshot, rosters))
    for question in questions:
        patient = resolve_patient(snapshots, question.patient) if by_number else question.patient
        check_patient(snapshots, replace(question, patient=patient))


def check_patient(rosters: Sequence[Roster], question: Question) -> None:
    """Raise InputError if the question does not fit the patients of the libraries.

    That is: it has no patient although the libraries hold only notes, its patient does not exist, or it names another
    patient by id, record number or full name. The first library is searched for notes; the others hold literature.

    Ids and record numbers are recognised as separate words, but short ones (under four characters, or numbers under six
    digits) only after `patient`, `subject` or `MRN`, and not in a date or before a unit. After these words longer ones
    are also recognised within compounds. Names are recognised with at least two words, in any case and order, with or
    without middle names and accents (see `person_names`).
    """
    if not rosters:
        return
    roster = rosters[0]
    patients = roster.patients()
    listing = f"`epicrisis library patients {quote_for_shell(roster.path)}` lists them"
    subject = f"question {question.id!a}: " if question.id else "the question: "
    if question.patient is not None and question.patient not in patients:
        raise InputError(f"{subject}{roster.path} has no notes of patient {question.patient!a}: {listing}")
    if question.patient is None and patients and not any(map(Roster.has_literature, rosters)):
        raise InputError(
            f"{subject}{roster.path} holds only patients' notes: select a patient with --patient ({listing})"
        )
    if _names_another_patient(question, roster):
        other = "a patient of this library" if question.patient is None else "another patient of this library"
        raise InputError(
            f"{subject}it names {other}: pass --patient for the one it is about ({listing}), or leave the name or "
            "number out"
        )


def find_strangers(rosters: Sequence[Roster], question: Question, *, titled: bool = False) -> tuple[str, ...]:
    """Return what the question names like a person and is not its patient, as written: names, ids and record numbers.

    No other patient is looked up, so it says the same whether a library has the named person or not. With `titled`,
    only names behind a title count: `Mr Benning`.
    """
    patient = rosters[0].patients().get(question.patient or "") if rosters else None
    own_words = _own_words(patient)
    own_numbers = {_cached_text(id_).lstrip("0") for id_ in (_ids_of(patient) if patient else ())}
    own_numbers |= {number for id_ in own_numbers for number in _long_number(id_)}
    strangers: dict[str, None] = {}
    for text in (question.text, *question.options.values()):
        for match in () if titled else _STRANGER_NUMBER.finditer(text):
            number = match["labelled"] or match["long"]
            if normalize_text(number).lstrip("0") not in own_numbers and own_numbers.isdisjoint(_long_number(number)):
                strangers[number] = None
        for match in _STRANGER_NAME.finditer(text):
            words = [word for word in match["name"].split() if fold(word) not in _NOT_A_NAME]
            is_name = match["title"] or (len(words) > 1 and not titled)
            if words and is_name and own_words.isdisjoint(map(fold, words)):
                strangers[" ".join(words)] = None
    return tuple(strangers)


def describe_strangers(strangers: Sequence[str]) -> str:
    """Return one line on what `find_strangers` returned."""
    names = ", ".join(f'"{shorten(name)}"' for name in strangers[:5])
    return f"only this patient's record was read; no name or number of this patient is {names}"


def replace_own_name(rosters: Sequence[Roster], question: Question) -> Question:
    """Return the question with `the patient` in place of its own patient's name, title, id and record numbers.

    They are no subject of a question: `What medications is Ms. Muster on?`
    """
    patient = rosters[0].patients().get(question.patient or "") if rosters else None
    if patient is None:
        return question
    text = question.text
    for id_ in sorted(set(_ids_of(patient)), key=len, reverse=True):
        text = _own_id(id_).sub(_THE_PATIENT, text) if id_.strip() else text
    pieces, end = list[str](), 0
    for run in _find_runs(text, _own_words(patient)):
        before = _BEFORE_OWN_WORDS.search(text[end : run[0].start()])
        assert before is not None
        if before["title"] or _is_written_as_name([match["word"] for match in run], is_first=not run[0].start()):
            pieces += [text[end : end + before.start()], _THE_PATIENT, run[-1][0][len(run[-1]["word"]) :]]
            end = run[-1].end()
    return replace(question, text=_REPEATED.sub(_THE_PATIENT, "".join((*pieces, text[end:]))))


def _own_words(patient: PatientRecord | None) -> frozenset[str]:
    """Return the folded words of all names of a patient, and the parts of those with a hyphen."""
    words = {word for name in (patient.names if patient else ()) for word in name_words(name)}
    return frozenset(words).union(*(word.split("-") for word in words))


def _own_id(id_: str) -> re.Pattern[str]:
    """Return a pattern of an id of the selected patient, with its label or, unless it is short, without one."""
    labelled = rf"{_LONG_ID_LABEL}{_escape_id(id_)}(?![-./:]?\w)"
    is_long = any(map(str.isdecimal, id_)) and len(id_) >= (_MIN_OWN_DIGITS if id_.isdecimal() else _MIN_ID_LENGTH)
    return re.compile(rf"(?:{f'{labelled}|{_separate_id(id_)}' if is_long else labelled}){_NO_UNIT}", re.IGNORECASE)


def _find_runs(text: str, own_words: Set[str]) -> list[list[re.Match[str]]]:
    """Return the words of the patient's name in a text, those that follow each other together with their initials."""
    runs: list[list[re.Match[str]]] = []
    initials: list[re.Match[str]] = []
    for match in _OWN_WORD.finditer(text):
        last = next(reversed(initials or (runs[-1] if runs else [])), None)
        follows = last is not None and _BETWEEN_OWN_WORDS.fullmatch(text, last.end(), match.start()) is not None
        if fold(match["word"]) in own_words:
            if follows:
                runs[-1] += [*initials, match]
            else:
                runs.append([match])
            initials = []
        else:
            # An initial between two words may be missing in the record.
            initials = [match] if follows and len(match["word"]) == 1 and match["word"].isupper() else []
    return runs


def _is_written_as_name(words: Sequence[str], *, is_first: bool) -> bool:
    """Return whether words of the patient's name stand for the patient: `a young patient` is not Ann Young."""
    if len(words) == 1 and (len(words[0]) == 1 or fold(words[0]) in _NOT_A_NAME):
        return False
    if not is_common(" ".join(words)):
        return True
    # A sentence begins with a capital.
    return all(word[:1].isupper() for word in words) and (len(words) > 1 or not is_first)


def _names_another_patient(question: Question, roster: Roster) -> bool:
    patients = roster.patients()
    texts = [question.text, *question.options.values()]
    text = "\n".join(texts)
    current = None if question.patient is None else patients.get(question.patient)
    others = [patient for patient in patients.values() if patient is not current]
    if _has_id_of(text, current, others) or _has_name_of(_normalize_commas(text), current, others):
        return True
    for part in texts:
        # A hyphen may belong to a name, or separate its words.
        for hyphens in (True, False):
            if _has_name_key_of(part, hyphens, current, roster.ids_by_name()):
                return True
    return False


def _has_name_key_of(
    text: str, hyphens: bool, current: PatientRecord | None, ids_by_name: Mapping[str, Set[str]]
) -> bool:
    """Return whether the text has another patient's full name in any spelling.

    Words of the current patient's name are ignored, even if another patient's name shares a spelling.
    """
    mentions = find_mentions(text, hyphens=hyphens) if ids_by_name else []
    ignored: set[int] = set()
    for mention in mentions:
        ids = frozenset[str]().union(*(ids_by_name.get(key, ()) for key in mention.keys))
        if current is not None and current.id in ids:
            ignored.update(range(mention.first, mention.last + 1))
    for mention in mentions:
        words = range(mention.first, mention.last + 1)
        if ignored.isdisjoint(words) and any(key in ids_by_name for key in mention.keys):
            return True
    return False


def _has_id_of(text: str, current: PatientRecord | None, others: Sequence[PatientRecord]) -> bool:
    """Return whether the text has an id of another patient. Ids with a digit are recognised in any case."""
    exact, plain = text, normalize_text(text)
    current_ids, current_numbers = set[str](), set[str]()
    for id_ in _ids_of(current) if current is not None else ():
        plain_id = _cached_text(id_)
        current_ids.add(plain_id)
        current_numbers.update(_long_number(id_))
        exact, plain = _remove_id(id_, exact), _remove_id(plain_id, plain)
    written_numbers = set(_long_numbers(normalize_text(text)))
    written_numbers.update(_long_numbers(_GROUP_SEPARATOR.sub("", normalize_text(text))))
    written_numbers -= current_numbers
    for id_ in chain.from_iterable(map(_ids_of, others)):
        plain_id = _cached_text(id_)
        ignores_case = plain_id not in current_ids and any(map(str.isdecimal, id_))
        if _has_id(plain, plain_id) if ignores_case else _has_id(exact, id_):
            return True
        if written_numbers and not written_numbers.isdisjoint(_long_number(id_)):
            return True
    return False


def _ids_of(patient: PatientRecord) -> Iterator[str]:
    """Yield the id and the record numbers, each number first with its system."""
    yield patient.id
    for number in patient.numbers:
        yield number
        if number_without_system(number) != number:
            yield number_without_system(number)


def _long_numbers(plain: str) -> Iterator[str]:
    """Yield the long numbers in a text, without leading zeros."""
    for match in _NUMBER.finditer(plain):
        yield from _long_number(match[1])


def _long_number(id_: str) -> Iterator[str]:
    """Yield the digits of an id that is a long number, without separators and leading zeros."""
    digits = id_.replace("-", "").replace(" ", "").lstrip("0")
    if len(digits) >= _MIN_NUMBER_DIGITS and digits.isdecimal():
        yield digits


def _has_id(text: str, id_: str) -> bool:
    if not id_.strip() or id_ not in text:
        return False
    if len(id_) >= (_MIN_ID_DIGITS if id_.isdecimal() else _MIN_ID_LENGTH):
        pattern = rf"{_separate_id(id_)}|{_LONG_ID_LABEL}{_escape_id(id_)}(?!\w|[-./:]\d)"
        return re.search(pattern, text) is not None
    labelled = re.compile(rf"{_LABEL}{_escape_id(id_)}(?![-./:]?\w){_NO_UNIT}")
    for match in labelled.finditer(text):
        if not any(date.start < match.end() <= date.end for date in find_dates(text)):
            return True
    return False


def _remove_id(id_: str, text: str) -> str:
    """Replace the id in the text by a NUL. Its label stays."""
    pattern = rf"(?P<label>{_LONG_ID_LABEL}){_escape_id(id_)}(?![-./:]?\w)|{_separate_id(id_)}"
    return re.sub(pattern, lambda match: f"{match['label'] or ''}\0", text) if id_.strip() else text


def _separate_id(id_: str) -> str:
    """Return a pattern of the id outside longer words, numbers and compound ids."""
    return rf"(?<!\w)(?<!\w[-./:]){_escape_id(id_)}(?![-./:]?\w)"


def _escape_id(id_: str) -> str:
    """Return a pattern of the id, with numbers also as written by spreadsheets: `10083814.0`."""
    return re.escape(id_) + (r"(?:\.0)?" if id_.isdecimal() else "")


def _has_name_of(text: str, current: PatientRecord | None, others: Sequence[PatientRecord]) -> bool:
    """Return whether the text has another patient's full name as the source writes it, or with the last name first."""
    if current is not None:
        # Anna Maria Muster is not Maria Muster, so the current patient's name is removed in all orders, unless this is
        # exactly another patient's name.
        names_of_others = set(chain.from_iterable(_source_names(patient.name) for patient in others))
        protected = names_of_others.difference(_source_names(current.name))
        for name in _name_orders(current.name):
            if name not in protected:
                text = _separate_name(name).sub("\0", text)
    for patient in others:
        # A name of common words counts only with capitals, see `_has_name_key_of`.
        if is_common(patient.name or ""):
            continue
        for name in _name_orders(patient.name):
            if name in text and _separate_name(name).search(text):
                return True
    return False


def _separate_name(name: str) -> re.Pattern[str]:
    """Return a pattern of the name outside longer names."""
    return re.compile(rf"(?<!\w)(?<!\w-){re.escape(name)}(?!-?\w)")


@lru_cache(maxsize=65536)
def _source_names(name: str | None) -> tuple[str, ...]:
    """Return a full name as the source writes it, `Muster, Anna` also as `Anna Muster`. A single word has none."""
    plain = _normalize_commas(name or "")
    last, _, first = plain.partition(", ")
    if first:
        return plain, f"{first} {last}"
    return (plain,) if " " in plain else ()


@lru_cache(maxsize=65536)
def _name_orders(name: str | None) -> tuple[str, ...]:
    """Return a full name in its possible orders, such as `Muster, Anna` and `Muster Anna` for `Anna Muster`."""
    names = _source_names(name)
    if len(names) == 2:
        return *names, names[0].replace(",", "", 1)
    words = names[0].split() if names else []
    # The words "patient test" are not a Test Patient.
    if len(words) > _MAX_NAME_WORDS or "patient" in words:
        return names
    orders = list(names)
    for split in range(1, len(words)):
        last, first = " ".join(words[split:]), " ".join(words[:split])
        orders += [f"{last}, {first}", f"{last} {first}"]
    return tuple(orders)


def _normalize_commas(text: str) -> str:
    """Return the normalised text with one blank after each comma and none before."""
    return re.sub(r" ?, ?", ", ", normalize_text(text)).strip()
