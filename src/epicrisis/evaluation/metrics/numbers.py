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
from itertools import product
from operator import attrgetter
from typing import Literal, TypeAlias

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
        same = _distinct(map(attrgetter("answer"), self.matched))
        vague = _distinct(map(attrgetter("answer"), self.vague), same)
        right = len(same) + VAGUE_WEIGHT * len(vague)
        golds = [*map(attrgetter("gold"), (*self.matched, *self.vague, *self.contradicted)), *self.missing]
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
    return max(scores, key=attrgetter("f1", "recall"), default=None)


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
    ones = ("", 1, 1) in map(attrgetter("unit", "low", "high"), golds)
    answers = find_quantities(_CITATIONS.sub(" ", answer), ones=ones)
    labels = set(map(attrgetter("label"), golds)) - {""}
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
    repeated = set(map(_identity, map(attrgetter("answer"), pairs["same"] + pairs["vague"])))
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


def match_quantities(gold: Quantity, answer: Quantity) -> NumberMatch:
    """Return whether a quantity of the answer agrees with one of the right answer.

    `same`: equal to the digits of both (98.6 F and 37 C, 1.18 and 1.2, but not 1.4 and 1), inside the right range, or
    around it and not much wider (`WIDER`, `WIDTH_OF_VALUE`). `vague`: wider than that, or overlapping.
    """
    if DATE in (gold.unit, answer.unit):
        return _match_dates(gold, answer) if gold.unit == answer.unit else "none"
    low, high, since, until = gold.low, gold.high, answer.low, answer.high
    if gold.unit != answer.unit:
        if "" not in (gold.unit, answer.unit):
            return "none"
        # A number without a unit takes the other's unit as written there.
        bare, unit = (answer, gold.unit) if gold.unit else (gold, answer.unit)
        if unit in (SYSTOLIC, "mmHg") and bare.label not in ("", "pressure", "bp", "sbp"):
            return "none"
        if unit.startswith(("of ", "time", "ordinal", "mmHg dia")):
            return "none"
        low, high, since, until = low / gold.factor, high / gold.factor, since / answer.factor, until / answer.factor
    tolerance = _tolerance(gold, answer)
    if low - tolerance <= since and until <= high + tolerance:
        return "same"
    if since <= low and high <= until:
        middle = abs(low + high) / 2
        return "same" if until - since <= max(WIDER * (high - low), WIDTH_OF_VALUE * middle) else "vague"
    return "vague" if since <= high and low <= until else "none"


def _tolerance(gold: Quantity, answer: Quantity) -> float:
    """Return the distance at which two values, perhaps written to different digits, are still the same."""
    if gold.about or answer.about:
        return APPROXIMATION * max(abs(quantity.low) for quantity in (gold, answer) if quantity.about)
    rounding = max(gold.rounding, answer.rounding) * (1 - 1e-9) if gold.rounding != answer.rounding else 0.0
    return max(rounding, 1e-9 * max(abs(gold.low), abs(answer.low), 1e-9))


def _match_dates(gold: Quantity, answer: Quantity) -> NumberMatch:
    """Return `same` if a reading of the answer's date lies inside the right date, `vague` if it is wider."""
    match: NumberMatch = "none"
    for right, reading in product(map(time_range, gold.readings), map(time_range, answer.readings)):
        if may_overlap(right, reading):
            if right[0] <= reading[0] and reading[1] <= right[1]:
                return "same"
            match = "vague"
    return match
