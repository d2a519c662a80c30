"""Does an answer state the numbers of the right one? With units, ranges, bounds, blood pressures and dates (errata E6).

Pure. Knows no language beside the numbers: that a drug is the wrong one is the matter of other metrics. Of Table 12 of
the EHR study METEOR and BERTScore give all four answers about 0.8, and entailment misses ranges; here 107/76
contradicts "SBP in the 80-90s", and 80-100s/55-70s agrees with it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from epicrisis.dates import may_overlap, time_range
from epicrisis.evaluation.metrics.quantities import DATE, SYSTOLIC, Quantity, find_quantities
from epicrisis.evaluation.metrics.text import normalize_answer

NumberMatch: TypeAlias = Literal["same", "vague", "none"]

WIDER = 2.0
"""A range in an answer agrees with a right range that it contains if it is at most so many times as wide."""
OF_VALUE = 0.25
"""And with a right value that it contains if it is at most so much of that value wide: `80s` is right for 82."""
ABOUT = 0.1
"""How far from a value `about` it may be, of the value."""
VAGUE_COUNTS = 0.5
_SOURCES = re.compile(r"\[(?:(?:doc|finding) )?\d{1,4}(?:[,;] ?(?:doc )?\d{1,4}){0,50}\]", re.ASCII | re.IGNORECASE)
"""Markers of what an answer cites: `[1]`, `[doc 2, 3]`. They say nothing of the patient."""


@dataclass(frozen=True, slots=True)
class QuantityPair:
    """A quantity of the right answer and the one of the answer that was held against it."""

    gold: Quantity
    answer: Quantity


@dataclass(frozen=True, slots=True)
class NumberComparison:
    """What became of each quantity of the right answer, in its order, and what the answer has beside them."""

    matched: tuple[QuantityPair, ...] = ()
    vague: tuple[QuantityPair, ...] = ()
    """The answer's range contains the right one and is too wide, or they only overlap."""
    contradicted: tuple[QuantityPair, ...] = ()
    """The answer gives another value for it."""
    incomparable: tuple[QuantityPair, ...] = ()
    """A mass against an amount (mg/dL and mmol/L): it depends on the substance, so they are neither right nor wrong."""
    missing: tuple[Quantity, ...] = ()
    extra: tuple[Quantity, ...] = ()
    """Quantities of the answer that no quantity of the right one was held against; they lower the precision."""

    @property
    def recall(self) -> float | None:
        """Return the share of the right answer's comparable quantities that the answer states, vague ones half.

        None where the right answer has none.
        """
        n = len(self.matched) + len(self.vague) + len(self.contradicted) + len(self.missing)
        return (len(self.matched) + VAGUE_COUNTS * len(self.vague)) / n if n else None

    @property
    def precision(self) -> float | None:
        """Return the share of the answer's comparable quantities that the right answer has, vague ones half.

        A quantity that matches several counts once, and one that says again in other units what the right answer says
        (98.6 F, 37 C) is no wrong one. None where the answer has none.
        """
        same = _distinct(pair.answer for pair in self.matched)
        vague = [each for each in _distinct(pair.answer for pair in self.vague) if not _is_in(each, same)]
        right = len(same) + VAGUE_COUNTS * len(vague) + sum(map(self._worth, self.extra))
        n = len(same) + len(vague) + len(self.contradicted) + len(self.extra)
        return right / n if n else None

    def _worth(self, extra: Quantity) -> float:
        pairs = (*self.matched, *self.vague, *self.contradicted)
        golds = [*(pair.gold for pair in pairs), *self.missing]
        alike = [gold for gold in golds if gold.label == extra.label or not gold.label or not extra.label]
        agreements = {match_quantities(gold, extra) for gold in alike}
        if "same" in agreements:
            return 1.0
        return VAGUE_COUNTS if "vague" in agreements else 0.0


@dataclass(frozen=True, slots=True)
class NumberScore:
    """How well an answer states the numbers of a right one, each share 0 to 1."""

    recall: float
    precision: float | None
    """None where the answer has no number that can be compared: it claims none."""

    @property
    def f1(self) -> float:
        """Return the harmonic mean of precision and recall; 0 where the answer states none of the numbers."""
        both = self.recall + (self.precision or 0.0)
        return 2 * self.recall * (self.precision or 0.0) / both if both else 0.0


def score_numbers(answer: str, golds: Sequence[str]) -> NumberScore | None:
    """Return the score of best F1, then recall, over the right answers.

    None where none of them has a quantity that can be compared. An answer in the very words of a right one states its
    numbers and no other, whether they can be read there or not.
    """
    scores = []
    for gold in golds:
        comparison = compare_numbers(answer, gold)
        if comparison.recall is not None:
            scores.append(NumberScore(comparison.recall, comparison.precision))
    if scores and any(normalize_answer(answer) == normalize_answer(gold) for gold in golds):
        return NumberScore(1.0, 1.0)
    return max(scores, key=lambda score: (score.f1, score.recall), default=None)


def _distinct(quantities_: Iterable[Quantity]) -> list[Quantity]:
    kept: list[Quantity] = []
    for quantity in quantities_:
        if not _is_in(quantity, kept):
            kept.append(quantity)
    return kept


def _is_in(quantity: Quantity, others: Sequence[Quantity]) -> bool:
    return any(_repeats(quantity, other) for other in others)


def compare_numbers(answer: str, gold: str) -> NumberComparison:
    """Each quantity of `gold` against those of `answer`.

    It is matched by the first that agrees, one of the same label (`creatinine`) before others; a quantity whose label
    belongs to another one of the right answer does not count, so that two values that were exchanged do not agree.
    One of the answer's may match several. What is left contradicts one of its kind.
    """
    right = find_quantities(gold)
    # "Only one admission" answers 1; elsewhere the word is no number.
    given = find_quantities(
        _SOURCES.sub(" ", answer), ones=any((each.unit, each.low, each.high) == ("", 1, 1) for each in right)
    )
    labels = {each.label for each in right if each.label}
    agreed: dict[int, tuple[NumberMatch, Quantity]] = {}
    for place, wanted in enumerate(right):
        fitting = [each for each in given if each.label == wanted.label or each.label not in labels or not wanted.label]
        fitting.sort(key=lambda each: (each.label != wanted.label, not _equal(wanted, each)))
        for agreement in ("same", "vague"):
            found = next((each for each in fitting if match_quantities(wanted, each) == agreement), None)
            if found is not None:
                agreed[place] = agreement, found
                break
    left = [each for each in given if not any(_repeats(each, used) for _, used in agreed.values())]
    rest = [wanted for place, wanted in enumerate(right) if place not in agreed]
    contradicted, rest, left = _held_against(rest, left, _contradicts)
    incomparable, rest, left = _held_against(rest, left, _incomparable)
    return NumberComparison(
        tuple(QuantityPair(right[place], found) for place, (agreement, found) in agreed.items() if agreement == "same"),
        tuple(
            QuantityPair(right[place], found) for place, (agreement, found) in agreed.items() if agreement == "vague"
        ),
        contradicted,
        incomparable,
        tuple(rest),
        tuple(left),
    )


def _equal(a: Quantity, b: Quantity) -> bool:
    return (a.unit, a.low, a.high, a.readings) == (b.unit, b.low, b.high, b.readings)


def _repeats(each: Quantity, used: Quantity) -> bool:
    return _equal(each, used) and each.label == used.label


def _held_against(
    right: list[Quantity], given: list[Quantity], rule: Callable[[Quantity, Quantity], bool]
) -> tuple[tuple[QuantityPair, ...], list[Quantity], list[Quantity]]:
    """Pairs by a rule, each quantity in one at most, the same label first; and what is left of both."""
    pairs, rest, left = list[QuantityPair](), list[Quantity](), list(given)
    for wanted in right:
        fitting = [each for each in left if rule(wanted, each)]
        if fitting:
            found = min(fitting, key=lambda each: each.label != wanted.label)
            left.remove(found)
            pairs.append(QuantityPair(wanted, found))
        else:
            rest.append(wanted)
    return tuple(pairs), rest, left


def _contradicts(gold: Quantity, answer: Quantity) -> bool:
    """One of its kind; of numbers without a unit only of the same label, or where a label is not known."""
    alike = gold.label == answer.label or not gold.label or not answer.label
    return gold.unit == answer.unit and (bool(gold.unit) or alike)


def _incomparable(gold: Quantity, answer: Quantity) -> bool:
    masses, amounts = {"mg"}, {"mmol", "mEq"}
    (one, *below), (other, *under) = gold.unit.split("/"), answer.unit.split("/")
    return below == under and ((one in masses and other in amounts) or (one in amounts and other in masses))


def match_quantities(gold: Quantity, answer: Quantity) -> NumberMatch:
    """Whether an answer's quantity says what the right one says.

    Same: equal as far as both are written (98.6 F and 37 C, 1.18 and 1.2, but not 1.4 and 1), within the right range,
    or around it and not much wider (`WIDER`, `OF_VALUE`). Vague: wider than that, or overlapping.
    """
    if DATE in (gold.unit, answer.unit):
        return _dates(gold, answer) if gold.unit == answer.unit else "none"
    spans = _comparable(gold, answer)
    if spans is None:
        return "none"
    (low, high), (since, until) = spans
    slack = _slack(gold, answer)
    if low - slack <= since and until <= high + slack:
        return "same"
    if since <= low and high <= until:
        middle = abs(low + high) / 2
        return "same" if until - since <= max(WIDER * (high - low), OF_VALUE * middle) else "vague"
    return "vague" if since <= high and low <= until else "none"


def _comparable(gold: Quantity, answer: Quantity) -> tuple[tuple[float, float], tuple[float, float]] | None:
    """Both in one unit; a number without a unit is taken as of the other's, as it is written there."""
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


def _slack(gold: Quantity, answer: Quantity) -> float:
    """How far two values may lie apart and be the same: by rounding where they are not written to the same digit."""
    values = [abs(each.low) for each in (gold, answer) if each.about]
    if values:
        return ABOUT * max(values)
    rounding = max(gold.rounding, answer.rounding) * (1 - 1e-9) if gold.rounding != answer.rounding else 0.0
    return max(rounding, 1e-9 * max(abs(gold.low), abs(answer.low), 1e-9))


def _dates(gold: Quantity, answer: Quantity) -> NumberMatch:
    """The same if the answer's date, in one of its readings, lies within the right one; vague if it is wider."""
    met = [
        (time_range(wanted), time_range(given))
        for wanted in gold.readings
        for given in answer.readings
        if may_overlap(time_range(wanted), time_range(given))
    ]
    if any(wanted[0] <= given[0] and given[1] <= wanted[1] for wanted, given in met):
        return "same"
    return "vague" if met else "none"
