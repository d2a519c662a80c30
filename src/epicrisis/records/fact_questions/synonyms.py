"""Abbreviations, brand names and common words of questions: `DVT`, `Coumadin`, `hx of`."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from functools import cache
from importlib import resources

from epicrisis.core.fact_kinds import FactKind

_SHORTHAND = (
    (re.compile(r"\bh/o\b|\bhx of\b", re.IGNORECASE), "history of"),
    (re.compile(r"\b(is|was|has|does|did) pt (?=on|taking|still|ever|have|had|allergic|take|get)", re.IGNORECASE),
     r"\1 patient "),
    (re.compile(r"\bd/c'?d\b", re.IGNORECASE), "discontinued"),
    (re.compile(r"\bmost recent set of\b|\blast set of\b", re.IGNORECASE), "last"),
)  # fmt: skip
"""What clinicians type, and the words that the rules know."""
_UPPER_CASE = re.compile(r"\b[A-Z][A-Z0-9]{1,5}s?\b")
_NO_VOWEL = re.compile(r"\b[bcdfghjklmnpqrstvwxz]{2,5}\b")


def expand_shorthand(text: str) -> str:
    """Return a question with the shorthand of its grammar written out. Names are left as they are."""
    for pattern, words in _SHORTHAND:
        text = pattern.sub(words, text)
    return text


@cache
def _load_synonyms() -> dict[str, dict[str, tuple[str, ...]]]:
    """Return what else each phrase may be called, by the table of its kind: `problem`, `drug`."""
    text = resources.files("epicrisis.records.fact_questions").joinpath("synonyms.toml").read_text(encoding="utf-8")
    tables = tomllib.loads(text)
    narrower: dict[str, list[str]] = tables.pop("narrower")
    synonyms: dict[str, dict[str, tuple[str, ...]]] = {}
    for kind, groups in tables.items():
        others = {phrase: tuple(phrases) for phrase, phrases in narrower.items()}
        for group in groups:
            for phrase in group:
                equal = tuple(other for other in group if other != phrase)
                others[phrase] = (*others.get(phrase, ()), *equal, *narrower.get(group[0], ()))
        synonyms[kind] = others
    return synonyms


def list_variants(words: Sequence[str], kind: FactKind) -> list[tuple[str, ...]]:
    """Return the words of a name, and these words with each phrase of them replaced by its synonyms."""
    synonyms = _load_synonyms().get("drug" if kind in ("medication", "allergy") else kind, {})
    variants = [tuple(words)]
    for start in range(len(words)):
        for end in range(start + 1, len(words) + 1):
            for other in synonyms.get(" ".join(words[start:end]), ()):
                variants.append((*words[:start], *other.split(), *words[end:]))
    return variants


def write_out(words: Sequence[str], kind: FactKind) -> tuple[str, ...]:
    """Return the words of a name with each phrase of the table as its first synonym: `GERD` is written out."""
    first_names = _load_first_names(kind)
    written: list[str] = []
    start = 0
    while start < len(words):
        for end in range(len(words), start, -1):
            first = first_names.get(" ".join(words[start:end]))
            if first is not None or end == start + 1:
                written += first.split() if first is not None else words[start:end]
                start = end
                break
    return tuple(written)


@cache
def _load_first_names(kind: FactKind) -> dict[str, str]:
    """Return the first phrase of the group of each phrase."""
    text = resources.files("epicrisis.records.fact_questions").joinpath("synonyms.toml").read_text(encoding="utf-8")
    groups: list[list[str]] = tomllib.loads(text).get(kind, [])
    return {phrase: group[0] for group in groups for phrase in group}


def names_drug(words: Sequence[str]) -> bool:
    """Return whether a name has a drug of the table: `allergy to penicillin`."""
    drugs = _load_synonyms()["drug"]
    for start in range(len(words)):
        for end in range(start + 1, len(words) + 1):
            if " ".join(words[start:end]) in drugs:
                return True
    return False


def has_unknown_abbreviation(text: str, words: Sequence[str]) -> bool:
    """Return whether one of the words looks like an abbreviation in the question, and has no synonym."""
    capitals = (
        {match.lower().removesuffix("s") for match in _UPPER_CASE.findall(text)} if text != text.upper() else set()
    )
    synonyms = frozenset().union(*_load_synonyms().values())
    for word in words:
        looks_short = word in capitals or word.removesuffix("s") in capitals or bool(_NO_VOWEL.fullmatch(word))
        if looks_short and synonyms.isdisjoint((word, word.removesuffix("s"))):
            return True
    return False
