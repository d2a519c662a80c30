"""Comparison of the numbers in two answers, with units, ranges, bounds, blood pressures and dates (errata E6).

Only numbers are compared, so a wrong drug is left to other metrics. METEOR and BERTScore give all four answers in
Table 12 of the EHR study about 0.8, and entailment misses ranges. Here 107/76 contradicts "SBP in the 80-90s", and
80-100s/55-70s agrees with it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal, TypeAlias, get_args

from epicrisis.dates import may_overlap, time_range
from epicrisis.evaluation.metrics.quantities import DATE, SYSTOLIC, Quantity, find_quantities
from epicrisis.evaluation.metrics.text import normalize_answer

NumberMatch: TypeAlias = Literal["same", "vague", "none"]

WIDER = 2.0
"""A range agrees with a right range inside it if it is at most this many times as wide."""
WIDTH_OF_VALUE = 0.25
"""A range agrees with a right value inside it if at most this share of the value wide: `80s` is right for 82."""
APPROXIMATION = 0.1
"""The distance from an approximate value, as a share of it, that still agrees."""
VAGUE_WEIGHT = 0.5
_CITATIONS = re.compile(r"\[(?:(?:doc|finding) )?\d{1,4}(?:[,;] ?(?:doc )?\d{1,4}){0,50}\]", re.ASCII | re.IGNORECASE)
"""Citation markers of an answer: `[1]`, `[doc 2, 3]`."""


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
        same = _distinct([pair.answer for pair in self.matched])
        vague = _distinct([pair.answer for pair in self.vague], same)
        right = len(same) + VAGUE_WEIGHT * len(vague) + sum(map(self._weigh, self.extra))
        n = len(same) + len(vague) + len(self.contradicted) + len(self.extra)
        return right / n if n else None

    def _weigh(self, extra: Quantity) -> float:
        """Return the weight of an extra quantity: above 0 if it repeats a quantity of the right answer."""
        golds = [pair.gold for pair in (*self.matched, *self.vague, *self.contradicted)]
        matches: set[NumberMatch] = set()
        for gold in (*golds, *self.missing):
            if gold.label == extra.label or not gold.label or not extra.label:
                matches.add(match_quantities(gold, extra))
        if "same" in matches:
            return 1.0
        return VAGUE_WEIGHT if "vague" in matches else 0.0


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
    if scores and any(normalize_answer(answer) == normalize_answer(gold) for gold in golds):
        return NumberScore(1.0, 1.0)
    return max(scores, key=lambda score: (score.f1, score.recall), default=None)


def _distinct(quantities: Sequence[Quantity], without: Sequence[Quantity] = ()) -> list[Quantity]:
    """Return the quantities without repetitions, and without those in `without`."""
    distinct: list[Quantity] = []
    for quantity in quantities:
        if not any(_repeats(quantity, other) for other in (*distinct, *without)):
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
    ones = any((quantity.unit, quantity.low, quantity.high) == ("", 1, 1) for quantity in golds)
    answers = find_quantities(_CITATIONS.sub(" ", answer), ones=ones)
    labels = {quantity.label for quantity in golds if quantity.label}
    pairs: dict[NumberMatch, list[QuantityPair]] = {"same": [], "vague": []}
    missing: list[Quantity] = []
    used: list[Quantity] = []
    for quantity in golds:
        match, partner = _find_match(quantity, answers, labels)
        if partner is None:
            missing.append(quantity)
        else:
            pairs[match].append(QuantityPair(quantity, partner))
            used.append(partner)
    extra = [quantity for quantity in answers if not any(_repeats(quantity, other) for other in used)]
    contradicted, missing, extra = _pair_by_rule(missing, extra, _contradicts)
    incomparable, missing, extra = _pair_by_rule(missing, extra, _is_incomparable)
    return NumberComparison(
        tuple(pairs["same"]), tuple(pairs["vague"]), contradicted, incomparable, tuple(missing), tuple(extra)
    )


def _find_match(
    gold: Quantity, answers: Sequence[Quantity], labels: Collection[str]
) -> tuple[NumberMatch, Quantity | None]:
    """Return the first quantity of the answer that agrees with a right one, and how well."""
    candidates: list[Quantity] = []
    for answer in answers:
        if answer.label == gold.label or answer.label not in labels or not gold.label:
            candidates.append(answer)
    candidates.sort(key=lambda answer: (answer.label != gold.label, not _is_equal(gold, answer)))
    matches = [match_quantities(gold, answer) for answer in candidates]
    for match in get_args(NumberMatch)[:2]:
        if match in matches:
            return match, candidates[matches.index(match)]
    return "none", None


def _is_equal(a: Quantity, b: Quantity) -> bool:
    return (a.unit, a.low, a.high, a.readings) == (b.unit, b.low, b.high, b.readings)


def _repeats(quantity: Quantity, other: Quantity) -> bool:
    return _is_equal(quantity, other) and quantity.label == other.label


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
        candidates = [answer for answer in available if rule(gold, answer)]
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


def match_quantities(gold: Quantity, answer: Quantity) -> NumberMatch:
    """Return whether a quantity of the answer agrees with one of the right answer.

    `same`: equal to the digits of both (98.6 F and 37 C, 1.18 and 1.2, but not 1.4 and 1), inside the right range, or
    around it and not much wider (`WIDER`, `WIDTH_OF_VALUE`). `vague`: wider than that, or overlapping.
    """
    if DATE in (gold.unit, answer.unit):
        return _match_dates(gold, answer) if gold.unit == answer.unit else "none"
    spans = _convert_ranges(gold, answer)
    if spans is None:
        return "none"
    (low, high), (since, until) = spans
    tolerance = _tolerance(gold, answer)
    if low - tolerance <= since and until <= high + tolerance:
        return "same"
    if since <= low and high <= until:
        middle = abs(low + high) / 2
        return "same" if until - since <= max(WIDER * (high - low), WIDTH_OF_VALUE * middle) else "vague"
    return "vague" if since <= high and low <= until else "none"


def _convert_ranges(gold: Quantity, answer: Quantity) -> tuple[tuple[float, float], tuple[float, float]] | None:
    """Return both ranges in one unit, or None. A number without a unit takes the other's unit as written there."""
    if gold.unit == answer.unit:
        return (gold.low, gold.high), (answer.low, answer.high)
    if "" not in (gold.unit, answer.unit):
        return None
    bare = gold if not gold.unit else answer
    unit = answer if bare is gold else gold
    if unit.unit in (SYSTOLIC, "mmHg") and bare.label not in ("", "pressure", "bp", "sbp"):
        return None
    if unit.unit.startswith(("of ", "time", "ordinal", "mmHg dia")):
        return None
    return (
        (gold.low / gold.factor, gold.high / gold.factor),
        (answer.low / answer.factor, answer.high / answer.factor),
    )


def _tolerance(gold: Quantity, answer: Quantity) -> float:
    """Return the distance at which two values are still the same.

    It allows for rounding if the values are written to different digits.
    """
    approximate = [abs(quantity.low) for quantity in (gold, answer) if quantity.about]
    if approximate:
        return APPROXIMATION * max(approximate)
    rounding = max(gold.rounding, answer.rounding) * (1 - 1e-9) if gold.rounding != answer.rounding else 0.0
    return max(rounding, 1e-9 * max(abs(gold.low), abs(answer.low), 1e-9))


def _match_dates(gold: Quantity, answer: Quantity) -> NumberMatch:
    """Return `same` if a reading of the answer's date lies inside the right date, `vague` if it is wider."""
    match: NumberMatch = "none"
    for right, reading in product(gold.readings, answer.readings):
        if may_overlap(time_range(right), time_range(reading)):
            (start, end), (first, last) = time_range(right), time_range(reading)
            if start <= first and last <= end:
                return "same"
            match = "vague"
    return match
