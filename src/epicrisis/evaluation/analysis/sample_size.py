"""The sample size of a paired comparison, and the smallest difference that a sample can show.

Holm's correction is counted at its strictest (Bonferroni), so the figures hold for the weakest of the comparisons.
"""

from __future__ import annotations

from dataclasses import dataclass

from epicrisis.core.errors import InputError
from epicrisis.core.printable import agree, count_noun
from epicrisis.evaluation.analysis.statistics import questions_needed, sign_test

ALPHA, POWER = 0.05, 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleSize:
    """The number of questions that a comparison needs. Shares are 0 to 1."""

    difference: float
    discordant: float
    """The share of questions that only one of the two systems answers correctly."""
    power: float
    comparisons: int
    questions: int
    at_hand: int | None = None
    """The number of available questions, if the caller has a sample."""
    smallest: float | None = None
    """The smallest difference that the available questions show at this power; None if there is none."""

    @property
    def sentences(self) -> tuple[str, ...]:
        """The need of a comparison, and the power of the available questions."""
        corrected = f", corrected for {self.comparisons} comparisons" if self.comparisons > 1 else ""
        needed = (
            f"To find a difference of {format_points(self.difference)} in {format_power(self.power)} such studies, "
            f"{count_noun(self.questions, 'question')} {agree(self.questions, 'is', 'are')} needed, if only one of the "
            "two systems is right in "
            f"{100 * self.discordant:.3g} % of them (McNemar's test, two-sided, 5 %{corrected})."
        )
        if self.at_hand is None:
            return needed, "Positions and repeats of a question add little: the number of questions counts."
        if self.smallest is None:
            return (
                needed,
                f"The {count_noun(self.at_hand, 'question')} at hand cannot show any difference at this power.",
            )
        return (
            needed,
            f"With the {count_noun(self.at_hand, 'question')} at hand the smallest difference found at this power is "
            f"{format_points(self.smallest)}.",
        )


def compute_sample_size(
    difference: float, discordant: float, power: float = POWER, comparisons: int = 1, at_hand: int | None = None
) -> SampleSize:
    """Return what a paired comparison needs. Raises InputError for impossible figures."""
    if not 0 < power < 1:
        raise InputError(f"a power of {power:g} is not possible: give a share between 0 and 1, such as 0.8")
    if comparisons < 1 or (at_hand is not None and at_hand < 1):
        raise InputError("comparisons and questions are counted from 1: give a whole number")
    if not 0 < difference <= discordant <= 1:
        raise InputError(
            f"a difference of {format_points(difference)} with {100 * discordant:.3g} % discordant questions is not "
            "possible: give a difference above 0, and a share of discordant questions from that difference to 1"
        )
    alpha = ALPHA / comparisons
    smallest = None if at_hand is None else smallest_difference(at_hand, discordant, power, alpha)
    questions = questions_needed(difference, discordant, power, alpha)
    return SampleSize(
        difference=difference,
        discordant=discordant,
        power=power,
        comparisons=comparisons,
        questions=questions,
        at_hand=at_hand,
        smallest=smallest,
    )


def smallest_difference(n: int, discordant: float, power: float = POWER, alpha: float = ALPHA) -> float | None:
    """Return the smallest difference, as a share, that `n` questions show at this power: `questions_needed` inverted.

    A difference larger than `discordant` needs as many discordant questions itself. Returns None if the test could not
    even tell a system that is always right from one that is always wrong.
    """
    if sign_test(n, 0) > alpha or questions_needed(1.0, 1.0, power, alpha) > n:
        return None
    low, high = 0.0, 1.0
    while high - low > 1e-5:
        middle = (low + high) / 2
        if questions_needed(middle, max(discordant, middle), power, alpha) > n:
            low = middle
        else:
            high = middle
    return high


def format_points(share: float) -> str:
    """Return a difference of shares in percentage points: `6.2 points`."""
    number = f"{100 * share:.1f}".removesuffix(".0")
    return f"{number} point{'' if number in ('1', '-1') else 's'}"


def format_power(power: float) -> str:
    """Return a power in words: `8 of 10`."""
    studies = 10 if abs(10 * power - round(10 * power)) < 1e-9 else 100
    return f"{studies * power:.4g} of {studies}"
