"""Read the direction of an outcome in a sentence, with a probability.

    effect = read_effect("Stroke was less frequent with aspirin (p = 0.01).", comparison)
    effect.direction, effect.probability   # ("decreased", 0.97)

Rules (`direction_rules`) and the words of the sentence, with outcome, intervention and comparator masked, are the
features of a logistic regression that is trained on the marked sentences of trial reports.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal, TypeAlias, cast, get_args

from epicrisis.reading.comparisons import Comparison, read_comparison
from epicrisis.reading.direction_rules import (
    SIGNIFICANT_P,
    STEM_CHARACTERS,
    Direction,
    compare_figures,
    find_clause_direction,
    find_direction,
    is_unwanted,
    list_p_values,
    list_stems,
    read_rates,
)
from epicrisis.reading.mentions import is_other_exposure, is_outcome_turned
from epicrisis.reading.opposites import count_opposites, list_opposites, names_other_kind, read_kinds
from epicrisis.reading.text_classifier import TextClassifier

Effect: TypeAlias = Literal["increased", "decreased", "no-difference"]
THRESHOLDS: Mapping[Effect, float] = {"no-difference": 0.75, "increased": 0.93, "decreased": 0.93}
"""A direction that the rules read too is said from this probability on (docs/design/conflicts.md)."""
OF_RATES = 0.95
"""The probability of a direction that follows from two rates and their ratio; see docs/design/conflicts.md."""
_EFFECTS: Mapping[Effect, str] = {
    "increased": "an increase",
    "decreased": "a decrease",
    "no-difference": "no difference",
}
_OPTIONS: Mapping[Effect, re.Pattern[str]] = {
    "no-difference": re.compile(
        r"\b(?:no|not|neither)\b.{0,30}\b(?:differ\w*|chang\w*|effect|impact|affect\w*|increas\w*|decreas\w*|higher|lower)\b|"
        r"\b(?:unchanged|unaffected|(?:the )?same|similar|equal)\b",
        re.IGNORECASE,
    ),
    "increased": re.compile(r"\b(?:increas\w*|higher|more|greater|raise[sd]?|rise[sn]?|rose|longer)\b", re.IGNORECASE),
    "decreased": re.compile(
        r"\b(?:decreas\w*|lower\w*|less|fewer|smaller|reduc\w*|fall[s]?|fell|fallen|shorter)\b", re.IGNORECASE
    ),
}
_TOKEN = re.compile(r"[a-z]+|[<>=≤≥%±]|\d+(?:\.\d+)?")


@dataclass(frozen=True, slots=True)
class EffectReading:
    """What a sentence says of an outcome."""

    direction: Effect
    probability: float
    by_rules: bool
    """Whether the rules read this direction, too."""

    @property
    def is_sure(self) -> bool:
        """Whether the direction can be said: the rules read it, and the probability is high enough."""
        return self.by_rules and self.probability >= THRESHOLDS[self.direction]


def find_effect(question: str, sentence: str, title: str = "") -> EffectReading | None:
    """Return which way the outcome of the question went in a sentence of a document with this title, if it is sure.

    None if the question compares nothing, if the sentence states no result on the outcome, if neither sentence nor
    title names the intervention, and if the probability is too low. A sentence that names the opposite of a word of the
    question (at term, preterm) is about something else, and so is another part of the sentence. An increase in freedom
    from the outcome is no increase in it, and has no direction. Neither has a sentence on another exposure, such as the
    withdrawal of the intervention, or another treatment of its users.
    """
    comparison = read_comparison(question)
    if not is_about(question, comparison, sentence, title):
        return None
    effect = read_effect(sentence, comparison)
    in_clause = find_clause_direction(sentence, comparison)
    if not effect.is_sure or in_clause not in (effect.direction, "none") or is_other_exposure(sentence, comparison):
        return None
    is_turned = effect.direction != "no-difference" and is_outcome_turned(sentence, comparison)
    return None if is_turned else effect


def is_about(question: str, comparison: Comparison, sentence: str, title: str = "") -> bool:
    """Return whether a sentence of a document with this title is about outcome and intervention of the question."""
    outcome, intervention = list_stems(comparison.outcome), list_stems(comparison.intervention)
    names = list_stems(sentence)
    if not outcome or 2 * len(outcome & names) < len(outcome) or not intervention & (names | list_stems(title)):
        return False
    is_other = count_opposites(list_opposites(question), sentence) > 0
    return not is_other and not names_other_kind(read_kinds(question), sentence, title)


def match_options(options: Mapping[str, str]) -> dict[Effect, str]:
    """Return the letter of the option that names each direction. Empty unless one names each of two or three.

    `No significant increase` names no difference. Other options, such as `insufficient data`, may stand beside them.
    """
    letters: dict[Effect, str] = {}
    for letter, text in options.items():
        effects = [effect for effect, pattern in _OPTIONS.items() if pattern.search(text)]
        if not effects:
            continue
        first = effects[0]
        if (first != "no-difference" and len(effects) > 1) or first in letters:
            return {}
        letters[first] = letter
    return letters if len(letters) > 1 else {}


def describe_effect(direction: Effect) -> str:
    """Return the direction in words, such as `a decrease`."""
    return _EFFECTS[direction]


def read_effect(sentence: str, comparison: Comparison) -> EffectReading:
    """Return the most probable direction of the outcome under the intervention, for a sentence that states a result."""
    stated = read_rates(sentence, comparison)
    if stated != "none":
        return EffectReading(stated, OF_RATES, by_rules=True)
    classifier = _load_classifier()
    (probabilities,) = classifier.predict([mask_words(sentence, comparison)], [list_signs(sentence, comparison)])
    best = int(probabilities.argmax())
    direction = cast(Effect, classifier.classes[best])
    return EffectReading(direction, float(probabilities[best]), find_direction(sentence, comparison) == direction)


def mask_words(sentence: str, comparison: Comparison) -> list[str]:
    """Return the words of a sentence, with placeholders for numbers and for the words of the comparison."""
    intervention, comparator = list_stems(comparison.intervention), list_stems(comparison.comparator)
    names = {"INTERVENTION": intervention - comparator, "COMPARATOR": comparator - intervention}
    names["OUTCOME"] = list_stems(comparison.outcome, intervention | comparator)
    words: list[str] = []
    for token in _TOKEN.findall(sentence.lower().replace("·", ".")):
        word = token
        if token[0].isdigit():
            word = "0.0" if token.startswith("0.0") else "0.1" if token.startswith("0.") else "1"
        for name, stems in names.items():
            if token[:STEM_CHARACTERS] in stems:
                word = name
        if not (words and words[-1] == word and word in names):
            words.append(word)
    return words


def list_signs(sentence: str, comparison: Comparison) -> Sequence[float]:
    """Return what the rules read, also for outcomes of which less is better, and figures, as numbers from -1 to 1."""
    direction = find_direction(sentence, comparison)
    unwanted = float(is_unwanted(comparison.outcome))
    read = [float(direction == name) for name in get_args(Direction)]
    figures, values = compare_figures(sentence, comparison), list_p_values(sentence)
    is_significant = bool(values) and min(values) < SIGNIFICANT_P
    return [
        *read,
        unwanted,
        *(unwanted * value for value in read),
        float(figures),
        float(figures * is_significant),
        float(is_significant),
        float(bool(values) and not is_significant),
    ]


@cache
def _load_classifier() -> TextClassifier:
    return TextClassifier.from_bytes((files(__package__) / "weights" / "directions.npz").read_bytes())
