"""Comparison of the numbers in two answers, with units, ranges, bounds, blood pressures and dates (errata E6).

Only numbers are compared, so a wrong drug is left to other metrics. METEOR and BERTScore give all four answers in
Table 12 of the EHR study about 0.8, and entailment misses ranges. Here 107/76 contradicts "SBP in the 80-90s", and
80-100s/55-70s agrees with it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter

from epicrisis.core.quantities import NumberMatch, Quantity, find_quantities, match_quantities
from epicrisis.evaluation.metrics.text import normalize_answer

VAGUE_WEIGHT = 0.5
_CITATIONS = re.compile(r"\[(?:(?:doc|finding) )?\d{1,4}(?:[,;] ?(?:doc )?\d{1,4}){0,50}\]", re.ASCII | re.IGNORECASE)
"""Citation markers of an answer: `[1]`, `[doc 2, 3]`."""
_identity = attrgetter("unit", "low", "high", "readings", "label")
"""The attributes in which a quantity equals its repetitions."""


@dataclass(frozen=True, slots=True)
class QuantityPair:
    """A quantity of the right answer and the quantity of the answer that it is compared with."""

    gold: Quantity
    answer: Quantity


@dataclass(frozen=True, slots=True)
class NumberComparison:
    """The result for each quantity of the right answer, and the other quantities of the answer."""

    matched: tuple[QuantityPair, ...] = ()
    vague: tuple[QuantityPair, ...] = ()
    """The answer's range contains the right one and is too wide, or the two overlap."""
    contradicted: tuple[QuantityPair, ...] = ()
    """The answer gives another value."""
    incomparable: tuple[QuantityPair, ...] = ()
    """A mass and an amount (mg/dL and mmol/L), whose relation depends on the substance: neither right nor wrong."""
    missing: tuple[Quantity, ...] = ()
    extra: tuple[Quantity, ...] = ()
    """Quantities of the answer that are in no pair. They lower the precision."""

    @property
    def recall(self) -> float | None:
        """Return the share of the right answer's comparable quantities in the answer; vague ones count half.

        None if the right answer has none.
        """
        n = len(self.matched) + len(self.vague) + len(self.contradicted) + len(self.missing)
        return (len(self.matched) + VAGUE_WEIGHT * len(self.vague)) / n if n else None

    @property
    def precision(self) -> float | None:
        """Return the share of the answer's comparable quantities in the right answer; vague ones count half.

        A quantity that matches several counts once. One that repeats the right answer in other units (98.6 F, 37 C) is
        not wrong. None if the answer has none.
        """
        same = _distinct(item.answer for item in self.matched)
        vague = _distinct((item.answer for item in self.vague), same)
        right = len(same) + VAGUE_WEIGHT * len(vague)
        golds = [*(item.gold for item in (*self.matched, *self.vague, *self.contradicted)), *self.missing]
        for extra in self.extra:
            matches: set[NumberMatch] = set()
            for gold in golds:
                if gold.label == extra.label or not gold.label or not extra.label:
                    matches.add(match_quantities(gold, extra))
            right += 1.0 if "same" in matches else VAGUE_WEIGHT * ("vague" in matches)
        n = len(same) + len(vague) + len(self.contradicted) + len(self.extra)
        return right / n if n else None


@dataclass(frozen=True, slots=True)
class NumberScore:
    """Recall and precision of the numbers of an answer, 0 to 1."""

    recall: float
    precision: float | None
    """None if the answer has no comparable number."""

    @property
    def f1(self) -> float:
        """Return the harmonic mean of precision and recall; 0 if the answer has none of the numbers."""
        both = self.recall + (self.precision or 0.0)
        return 2 * self.recall * (self.precision or 0.0) / both if both else 0.0


def score_numbers(answer: str, golds: Sequence[str]) -> NumberScore | None:
    """Return the score with the best F1, then recall, over the right answers; None if they have no comparable quantity.

    An answer with the same words as a right answer scores 1, even if its numbers cannot be read.
    """
    scores = []
    for gold in golds:
        comparison = compare_numbers(answer, gold)
        if comparison.recall is not None:
            scores.append(NumberScore(comparison.recall, comparison.precision))
    if scores and normalize_answer(answer) in map(normalize_answer, golds):
        return NumberScore(1.0, 1.0)
    return max(scores, key=lambda score: (score.f1, score.recall), default=None)


def _distinct(quantities: Iterable[Quantity], without: Iterable[Quantity] = ()) -> list[Quantity]:
    """Return the quantities without repetitions, and without those in `without`."""
    seen = set(map(_identity, without))
    distinct: list[Quantity] = []
    for quantity in quantities:
        if _identity(quantity) not in seen:
            seen.add(_identity(quantity))
            distinct.append(quantity)
    return distinct


def compare_numbers(answer: str, gold: str) -> NumberComparison:
    """Compare the quantities of an answer with those of the right answer.

    A quantity of the right answer matches the first that agrees, one with the same label (`creatinine`) before others.
    A label that belongs to another quantity of the right answer does not match, so exchanged values do not agree. One
    quantity of the answer may match several. The remaining ones contradict a quantity of the same kind.
    """
    golds = find_quantities(gold)
    # "Only one admission" answers 1; elsewhere the word is not a number.
    ones = ("", 1, 1) in ((gold.unit, gold.low, gold.high) for gold in golds)
    answers = find_quantities(_CITATIONS.sub(" ", answer), ones=ones)
    labels = {gold.label for gold in golds} - {""}
    pairs: dict[NumberMatch, list[QuantityPair]] = {"same": [], "vague": []}
    missing: list[Quantity] = []
    value = attrgetter("unit", "low", "high", "readings")
    for quantity in golds:
        candidates: list[Quantity] = []
        for other in answers:
            if other.label == quantity.label or other.label not in labels or not quantity.label:
                candidates.append(other)
        candidates.sort(key=lambda other: (other.label != quantity.label, value(other) != value(quantity)))
        matches = list(map(partial(match_quantities, quantity), candidates))
        match: NumberMatch = "same" if "same" in matches else "vague"
        if match in matches:
            pairs[match].append(QuantityPair(quantity, candidates[matches.index(match)]))
        else:
            missing.append(quantity)
    repeated = {_identity(pair.answer) for pair in pairs["same"] + pairs["vague"]}
    extra = [quantity for quantity in answers if _identity(quantity) not in repeated]
    contradicted, missing, extra = _pair_by_rule(missing, extra, _contradicts)
    incomparable, missing, extra = _pair_by_rule(missing, extra, _is_incomparable)
    return NumberComparison(
        tuple(pairs["same"]), tuple(pairs["vague"]), contradicted, incomparable, tuple(missing), tuple(extra)
    )


def _pair_by_rule(
    golds: Sequence[Quantity], answers: Sequence[Quantity], rule: Callable[[Quantity, Quantity], bool]
) -> tuple[tuple[QuantityPair, ...], list[Quantity], list[Quantity]]:
    """Return pairs by a rule, with each quantity in one pair at most, and the rest of both sequences.

    A partner with the same label comes first.
    """
    pairs: list[QuantityPair] = []
    unpaired: list[Quantity] = []
    available = list(answers)
    for gold in golds:
        candidates = list(filter(partial(rule, gold), available))
        if candidates:
            partner = next((answer for answer in candidates if answer.label == gold.label), candidates[0])
            available.remove(partner)
            pairs.append(QuantityPair(gold, partner))
        else:
            unpaired.append(gold)
    return tuple(pairs), unpaired, available


def _contradicts(gold: Quantity, answer: Quantity) -> bool:
    """Return whether both are of one kind. Numbers without a unit also need the same label, or an unknown one."""
    same_label = gold.label == answer.label or not gold.label or not answer.label
    return gold.unit == answer.unit and (bool(gold.unit) or same_label)


def _is_incomparable(gold: Quantity, answer: Quantity) -> bool:
    masses, amounts = {"mg"}, {"mmol", "mEq"}
    (one, *below), (other, *other_below) = gold.unit.split("/"), answer.unit.split("/")
    one_of_each = (one in masses and other in amounts) or (one in amounts and other in masses)
    return below == other_below and one_of_each
