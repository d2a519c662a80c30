"""No regular expression of the package takes more time than its text is long, whatever the text."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import epicrisis
from epicrisis.answering.reply_parsing import TextStream
from epicrisis.core.study_types import STUDY_TYPES
from epicrisis.corpus.records import assertions
from epicrisis.library.core import patient_check
from epicrisis.reading import mentions
from epicrisis.retrieval import event_mentions
from epicrisis.retrieval.time_expressions import NOTE_KINDS
from tests.support.regex_attacks import METHODS, Place, compiled, load, places, slow_attack

SOURCE = Path(epicrisis.__file__).parent
_KIND_PATTERNS = [pattern for kind in NOTE_KINDS.values() for pattern in kind]
_EVENT = r"\bhip[\s-]+replacement(?:e?s)?\b"

_WORDS = mentions._match_words(frozenset(("seizu", "pain")))
_GAP = mentions._GAP

EXAMPLES: dict[str, list[re.Pattern[Any] | str]] = {
    "corpus.base.reference_lists:_goes_on": [r"(?m)^\W?12\b\W"],
    "library.core.patient_check:_own_id": [patient_check._own_id("10083815"), patient_check._own_id("a-1")],
    "reading.mentions:is_outcome_turned": [
        rf"(?i){_WORDS}{mentions._AFTER}",
        rf"(?i){mentions._BEFORE}{_GAP}{_WORDS}",
        rf"(?i)\b(non)-?{_WORDS}",
        rf"(?i){mentions._match_name('the low-dose aspirin')}",
    ],
    "reading.mentions:_names_end": [rf"(?i)\b(?:{mentions._LOST})", r"(?i)\b(?:reli)"],
    "reading.mentions:_is_less_of_change": [
        rf"(?i)\b{mentions._REDUCTION} (?:in|of) {_GAP}{_WORDS}[^.;]{{0,80}}{mentions._LESS}",
        rf"(?i){_WORDS} {mentions._REDUCTION}\b[^.;]{{0,80}}{mentions._MORE}",
        rf"(?i){mentions._MORE} {_WORDS} {mentions._REDUCTION}\b",
        rf"(?i)(?:\bimprovements? (?:in|of) {_GAP}{_WORDS}|{_WORDS} improvements?\b)[^.;]{{0,80}}{mentions._MORE}",
        rf"(?i){mentions._MORE} {_WORDS} improvements?\b",
        rf"(?i)\b(?:{mentions._REDUCTION}|improvements?)\b",
    ],
    "reading.mentions:is_other_exposure": [
        rf"(?i){mentions._match_name('the low-dose aspirin')}|{_WORDS}(?:[\s-]{_WORDS})*"
    ],
    "reading.mentions:_is_another": [r"(?i)\bwithd"],
    "answering.reply_parsing:TextStream.__init__": [TextStream("answer")._start],
    "answering.voting:_choose_text": [r"\b[ABCDbcd]\b|(?i:\b[ABCD][)\].:]|\boptions? [ABCD]\b)"],
    "corpus.records.assertions:_compile_rules": [pattern for _, _, pattern in assertions._load_rules().modifiers],
    "corpus.records.assertions:_load_rules": [
        assertions._load_rules().empty,
        assertions._load_rules().other,
        assertions._load_rules().beginning,
        assertions._load_rules().ending,
        assertions._load_rules().family,
    ],
    "corpus.base.csv_rows:CsvLayout.find_embedded_row": [r"\n(?:[^,\n]*,){3}", r"\n(?:[^\|\n]*\|){1}"],
    "corpus.records.hl7.messages:Hl7Segment.unescape": [r"\\([^\\\r\n]{1,400})\\"],
    "privacy.deidentification.deidentifier:ReplacedTexts._pattern": [
        r"(?:(?<![^\W_])|(?<=\\[nrt]))(?P<before>(?:[A-Z]\.?[ ]){0,2})"
        r"(?P<word>2150\-03\-04(?![^\W_])|(?i:Ada\ Byron|Byron)(?![^\W_]))(?P<after>(?:,?[ ][A-Z](?![^\W_]|'))?)"
    ],
    "privacy.deidentification.deidentifier:_compile_numbers": [
        r"(?i)(?<!\d)(?:0{0,6}4[-./ \u2010-\u2013_]?7[-./ \u2010-\u2013_]?1[-./ \u2010-\u2013_]?1)(?!\d)"
        r"|(?<![^\W_])(?:0{0,6}M[-./ \u2010-\u2013_]?R[-./ \u2010-\u2013_]?9)(?![^\W_])"
    ],
    "evaluation.synthesis.patient_records.record_questions:_RecordEvidence._is_unique": [
        r"(?<!\w)5\ mg\ of\ warfarin(?!\w)"
    ],
    "records.fact_questions.fact_conflicts:find_value_conflicts": [
        r"(?i)(?<![\w-])(?:serum[\s-]+creatinine|creatinine)(?![\w-])"
    ],
    "records.fact_questions.fact_conflicts:find_drug_conflicts": [
        r"(?i)\blisinopril(?:\s+\w+)?\s+(?:was|has been)\s+(?:stopped|d/c'?d)\b|\bstopped\s+(?:the |his )?lisinopril\b"
    ],
    "library.core.patient_check:_has_id": [
        rf"{patient_check._separate_id('10083815')}|{patient_check._LONG_ID_LABEL}{patient_check._escape_id('10083815')}(?!\w|[-./:]\d)",
        rf"{patient_check._LABEL}{patient_check._escape_id('432')}(?![-./:]?\w){patient_check._NO_UNIT}",
    ],
    "library.core.patient_check:_remove_id": [
        rf"(?P<label>{patient_check._LONG_ID_LABEL}){patient_check._escape_id('a-1')}(?![-./:]?\w)|{patient_check._separate_id('a-1')}"
    ],
    "library.core.patient_check:_separate_name": [patient_check._separate_name("anna maria muster")],
    "models.chat.openai_compatible:_mentions_parameter": [
        r"(?:^|[`'\"])seed(?:[`'\"]|:)|\b(?:argument|parameter|field|option)s?\b[^.]{0,30}?\bseed\b"
    ],
    "retrieval.event_mentions:find_event_mentions": [
        re.compile(rf"\b(?:surg|{event_mentions._LOOKING_BACK}|{event_mentions._UNSPECIFIC['surgery']})", re.IGNORECASE)
    ],
    "retrieval.event_mentions:_is_done_undated": [
        r"(?i)\b(?:underwent|taken to the (?:or|operating room)|was performed)\b|\bhad (?:an? )?(?=surgery)",
        rf"(?i)\b(?:{event_mentions._UNSPECIFIC['surgery']})",
    ],
    "retrieval.event_mentions:find_notes_with_date": [r"(?<!\d)(?:2015|2016)(?!\d)", r"\d/(?:15|16)(?!\d)"],
    "retrieval.event_mentions:_read_mentions": [re.compile(_EVENT, re.IGNORECASE)],
    "retrieval.event_mentions:_dates_done": [
        re.compile(
            rf"\b(?:s/p|underwent|had (?=an? |\w+ ⟨)) ?{event_mentions._WORDS}{_EVENT}{event_mentions._CLOSE}",
            re.IGNORECASE,
        ),
        re.compile(rf"{_EVENT}(?: of (?:the )?[\w-]+)? (?:was|were) performed{event_mentions._CLOSE}", re.IGNORECASE),
        re.compile(
            rf"\bon ⟨(?P<date>\d+)⟩,? (?:(?:the|pt) ){{0,3}}underwent {event_mentions._WORDS}{_EVENT}", re.IGNORECASE
        ),
    ],
    "retrieval.time_expressions:_kind_of_note": [*_KIND_PATTERNS],
    "retrieval.hospital_stays:NoteTime.is_of": [*_KIND_PATTERNS],
    "core.study_types:_words": [row.title for row in STUDY_TYPES if row.title is not None],
}
"""Patterns as they are where a function makes them of values that only exist while it runs."""


def _module_names() -> list[str]:
    names = []
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE.parent).with_suffix("").parts
        if parts[-1] != "__main__" and re.search(r"\bre\b", path.read_text(encoding="utf-8")):
            names.append(".".join(parts).removesuffix(".__init__"))
    return names


def _places(name: str) -> list[Place]:
    path = SOURCE.parent.joinpath(*name.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return list(places(name.removeprefix("epicrisis."), ast.parse(path.read_text(encoding="utf-8")), load(name)))


def _patterns(name: str) -> Iterator[tuple[re.Pattern[Any], frozenset[str]]]:
    """Yield each pattern of a module with the methods that are called on it."""
    known = set()
    for place in _places(name):
        if place.pattern is not None:
            known.add(place.pattern)
            yield place.pattern, place.methods
        elif not place.name.endswith(":"):
            for example in EXAMPLES[place.name]:
                yield re.compile(example), METHODS
    for value in vars(load(name)).values():
        for pattern in compiled(value):
            if pattern not in known:
                known.add(pattern)
                yield pattern, METHODS


MODULES = _module_names()


@pytest.mark.long
@pytest.mark.parametrize("name", MODULES)
def test_pattern_on_attacks_from_its_own_parse_tree_takes_linear_time(name: str) -> None:
    for pattern, methods in _patterns(name):
        attack = slow_attack(pattern, methods)
        assert attack is None, f"{name}: {pattern.pattern[:200]!r} is slow on {attack}"


@pytest.mark.long
def test_every_pattern_is_a_global_or_has_an_example() -> None:
    dynamic = set()
    for name in MODULES:
        for place in _places(name):
            if place.pattern is None:
                dynamic.add(place.name)
    made_in_functions = {name for name in dynamic if not name.endswith(":")}
    assert made_in_functions == set(EXAMPLES)
    for name in dynamic - made_in_functions:
        assert any(True for value in vars(load(f"epicrisis.{name[:-1]}")).values() for _ in compiled(value)), name


@pytest.mark.long
@pytest.mark.parametrize(
    ("pattern", "method"),
    [
        (r"(a+)+b", "match"),
        (r"\[(?:doc\s*\d+(?:\s*,\s*(?:doc)?\s*\d+)*)\]", "sub"),
        (r"x(?:\w|\d\d?)*y", "fullmatch"),
        (r"\s*,", "sub"),
        (r"<[^>]*>", "sub"),
        (r"on\s*,?\s*off", "fullmatch"),
        (r"(\w*)-(\w*)", "search"),
        (r"\d+ ?mg", "findall"),
        (r"\w*TOOL_\w+\]", "match"),
        (r"how long[^?]*before", "search"),
        (rb"=\s*[\"']?\s*;", "match"),
    ],
)
def test_planted_slow_pattern_is_detected(pattern: str | bytes, method: str) -> None:
    assert slow_attack(re.compile(pattern), frozenset({method})) is not None


@pytest.mark.parametrize(
    ("pattern", "method"),
    [(r"\s*,", "match"), (r"(?<!\s)\s*+,", "sub"), (r"\w+", "findall"), (r"\b(?:\w++\W++){0,5}end", "search")],
)
def test_safe_pattern_is_not_accused(pattern: str, method: str) -> None:
    assert slow_attack(re.compile(pattern), frozenset({method})) is None


@pytest.mark.parametrize(
    "source",
    [
        "from re import sub",
        "import re as regex",
        "import re\nuse = re.sub",
        "import re\nfrom functools import partial\nclean = partial(re.sub, 'a+', '')",
        "import re\nre.template('a')",
    ],
)
def test_use_of_re_that_cannot_be_followed_is_refused(source: str) -> None:
    with pytest.raises(AssertionError):
        list(places("planted", ast.parse(source), None))


def test_methods_of_a_pattern_are_those_called_on_its_name() -> None:
    source = "import re\n_A = re.compile('a')\n_B = re.compile('b')\n_A.match('')\nuse(_B)\n_B.match('')"
    first, second = places("planted", ast.parse(source), None)
    assert first.methods == {"match"}
    assert second.methods == METHODS
