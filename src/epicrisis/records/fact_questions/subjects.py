"""Find the subject of a question about facts: analytes of a record, or entries with the question's words.

Names are compared by whole words, with common synonyms (`synonyms`). An analyte is one substance in one specimen, so
`creatinine` is ambiguous in a record with values in serum and in urine.
"""

from __future__ import annotations

import re
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from itertools import permutations

from epicrisis.core.clinical_facts import ClinicalFact
from epicrisis.core.fact_kinds import FactKind
from epicrisis.records.fact_questions.synonyms import list_variants

_WORD = re.compile(r"[a-z0-9][a-z0-9'.+]*(?<![.'])")
_LOINC_NAME = re.compile(r"\[[^\]]{1,60}\].*")
_SPECIMEN = re.compile(r"(?i)\b(?:in|of) ((?:serum|plasma|blood|urine|csf|stool|fluid|saliva)\b.*)")
_DOSE_WORD = re.compile(
    r"\d.*|mg|ml|mcg|ug|g|hr|actuat|oral|tablet|capsule|injection|solution|product|extended|release"
)
PRESSURE = frozenset({"blood pressure", "bp"})
PRESSURES = frozenset({"systolic blood pressure", "diastolic blood pressure"})


@dataclass(frozen=True, slots=True)
class Analyte:
    """A row of the table of analytes."""

    name: str
    words: tuple[str, ...]
    loinc: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ValueSeries:
    """The values of one analyte in a record."""

    name: str
    """As the record calls it, with the table's name if that says more."""
    phrases: set[str] = field(default_factory=set)
    """What a question may call it."""
    facts: list[ClinicalFact] = field(default_factory=list)


@cache
def load_analytes() -> tuple[Analyte, ...]:
    """Return the table of analytes."""
    text = resources.files("epicrisis.records.fact_questions").joinpath("analytes.toml").read_text(encoding="utf-8")
    rows = tomllib.loads(text)["analyte"]
    return tuple(Analyte(row["name"], tuple(row["words"]), tuple(row["loinc"])) for row in rows)


@cache
def _analytes_by_code() -> dict[str, Analyte]:
    return {f"loinc:{code}": analyte for analyte in load_analytes() for code in analyte.loinc}


@cache
def _analytes_by_phrase() -> dict[str, tuple[Analyte, ...]]:
    analytes: dict[str, list[Analyte]] = defaultdict(list)
    for analyte in load_analytes():
        for words in (analyte.name, *analyte.words):
            analytes[normalize(words)].append(analyte)
    return {phrase: tuple(dict.fromkeys(group)) for phrase, group in analytes.items()}


def normalize(text: str) -> str:
    """Return the words of a text in lower case with one blank between them."""
    return " ".join(split_words(text))


def split_words(text: str) -> list[str]:
    """Return the words of a text in lower case, without possessives."""
    return [re.sub(r"'s?$", "", word) for word in _WORD.findall(text.lower().replace("’", "'"))]


def list_series(facts: Iterable[ClinicalFact]) -> tuple[ValueSeries, ...]:
    """Return the values of a record by analyte.

    Facts are of one analyte if the table lists their LOINC codes together, or if they share a code, or a name without
    codes. A name without a code joins an analyte of the table only if no other analyte has that name.
    """
    series: dict[str, ValueSeries] = {}
    for fact in facts:
        analyte, key = _identify(fact)
        if key not in series:
            series[key] = ValueSeries(fact.name if analyte is None else analyte.name)
        entry = series[key]
        entry.facts.append(fact)
        entry.phrases.update(_list_phrases(fact))
        if analyte is not None:
            entry.phrases.update(map(normalize, (analyte.name, *analyte.words)))
    return tuple(series.values())


def _identify(fact: ClinicalFact) -> tuple[Analyte | None, str]:
    """Return the analyte of the table, or None, and a key that values of one analyte share."""
    for code in fact.codes:
        if analyte := _analytes_by_code().get(code):
            return analyte, f"table:{analyte.name}"
    codes = [code for code in fact.codes if code.startswith("loinc:")] or list(fact.codes)
    if codes:
        return None, codes[0]
    name = normalize(fact.name)
    candidates = _analytes_by_phrase().get(name, ())
    if len(candidates) == 1:
        return candidates[0], f"table:{candidates[0].name}"
    return None, f"name:{name}"


_NAME_END = re.compile(r"\s[-\u2013]\s|\s?[(\[]")
_HOW = frozenset(("measured", "reported", "recorded", "observed", "measurement"))
_MOST_PERMUTED, _MOST_NEAR = 3, 5


def _list_phrases(fact: ClinicalFact) -> set[str]:
    """Return what a question may call a value: its name, and for a LOINC name the component, also with the specimen.

    What stands before a dash or a bracket names it too, without how it was got, and in any order: `BP Systolic`.
    """
    phrases = {normalize(fact.name)}
    words = [word for word in split_words(_NAME_END.split(fact.name)[0]) if word not in _HOW]
    if len(words) <= _MOST_PERMUTED:
        phrases.update(" ".join(permutation) for permutation in permutations(words))
    short = _LOINC_NAME.sub("", fact.name).strip()
    if short and short != fact.name:
        phrases.add(normalize(short))
        if specimen := _SPECIMEN.search(fact.name):
            phrases.update(f"{word} {normalize(short)}" for word in split_words(specimen[1]) if word != "or")
    return phrases - {""}


@dataclass(frozen=True, slots=True)
class SeriesMatch:
    """The words of a question that name values, and the analytes they may mean."""

    phrase: str
    series: tuple[ValueSeries, ...]

    @property
    def is_pressure(self) -> bool:
        """Whether it is the pair of blood pressures."""
        return self.phrase in PRESSURE


def find_series(words: Sequence[str], series: Sequence[ValueSeries]) -> SeriesMatch | None:
    """Return the longest phrase of the question that names values of the record, or None."""
    best: SeriesMatch | None = None
    for start in range(len(words)):
        for end in range(len(words), start, -1):
            phrase = " ".join(words[start:end])
            if best is not None and end - start <= len(best.phrase.split()):
                break
            matches = [entry for entry in series if phrase in entry.phrases or _singular(phrase) in entry.phrases]
            if phrase in PRESSURE:
                matches = [entry for entry in series if entry.name in PRESSURES] or matches
            if matches:
                best = SeriesMatch(phrase, tuple(matches))
                break
    return best


def find_near_names(words: Iterable[str], series: Sequence[ValueSeries]) -> list[str]:
    """Return the names of up to five values that share a word with these, those with most words in common first."""
    subject = {_singular(word) for word in words}
    shared: dict[str, int] = {}
    for entry in series:
        names = {_singular(word) for phrase in entry.phrases for word in phrase.split()}
        if common := len(subject & names):
            shared[entry.name] = common
    return sorted(shared, key=lambda name: (-shared[name], name))[:_MOST_NEAR]


def is_analyte(phrase: str) -> bool:
    """Return whether the table knows the words as values."""
    return phrase in _analytes_by_phrase() or phrase in PRESSURE


def find_known_phrase(words: Sequence[str]) -> str:
    """Return the longest phrase that the table knows as values, or an empty text."""
    for size in range(len(words), 0, -1):
        for start in range(len(words) - size + 1):
            phrase = " ".join(words[start : start + size])
            if is_analyte(phrase):
                return phrase
    return ""


def _singular(text: str) -> str:
    if text.endswith("ies") and len(text) > 5:
        return f"{text[:-3]}y"
    return text[:-1] if text.endswith("s") and not text.endswith("ss") and len(text) > 4 else text


_NOT_STATED = re.compile(
    r"\b(?:family|fh|no|not|without|negative|denies|denied|risk|screening|screen|suspected|suspicion|possible|"
    r"rule|r/o|exposure|contact|maternal|paternal|mother|father|sibling|counseling|education|prophylaxis|prevention|"
    r"absence|never|history|hx|h/o|vaccination|encounter|fear|concern|evaluation|newborn|contraindication)\b",
    re.IGNORECASE,
)
"""Words of a name that make it something else than the thing it names: `Family history of diabetes mellitus`."""


@dataclass(frozen=True, slots=True)
class EntryMatch:
    """The entries whose names have all words of the question."""

    certain: tuple[ClinicalFact, ...]
    doubtful: tuple[ClinicalFact, ...]
    """Entries that name it among other words that may mean something else: `Family history of ...`, or a reaction."""


def match_entries(words: Sequence[str], facts: Iterable[ClinicalFact]) -> EntryMatch:
    """Return the entries whose names have all these words or those of a synonym, a plural like its singular."""
    words_asked = set(map(_singular, words))
    variants: dict[FactKind, list[set[str]]] = {}
    certain: list[ClinicalFact] = []
    doubtful: list[ClinicalFact] = []
    for fact in facts:
        names = set(map(_singular, split_words(fact.name)))
        if fact.kind not in variants:
            variants[fact.kind] = [set(map(_singular, variant)) for variant in list_variants(words, fact.kind)]
        if not any(targets <= names for targets in variants[fact.kind]):
            # "Rash after amoxicillin" may be the reaction of an allergy to penicillins.
            words_beside = names | set(map(_singular, split_words(fact.value))) if fact.kind == "allergy" else names
            if any(targets <= words_beside for targets in variants[fact.kind]):
                doubtful.append(fact)
            continue
        asked_too = set(map(str.lower, _NOT_STATED.findall(fact.name))) <= words_asked
        is_doubtful = fact.kind == "problem" and _NOT_STATED.search(fact.name) and not asked_too
        (doubtful if is_doubtful else certain).append(fact)
    return EntryMatch(tuple(certain), tuple(doubtful))


def drug_key(fact: ClinicalFact) -> str:
    """Return a key that the entries of one drug share: its name without doses and forms."""
    words = [word for word in split_words(fact.name) if not _DOSE_WORD.fullmatch(word)]
    return " ".join(words) or normalize(fact.name)
