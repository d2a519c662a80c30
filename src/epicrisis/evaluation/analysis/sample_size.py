"""How many questions does a comparison need, and what is the least that so many can show? Arithmetic before a run.

Holm's correction is counted at its strictest (Bonferroni), so what is said here holds for the weakest of the
comparisons. Knows no run and no table.
"""

from __future__ import annotations

from dataclasses import dataclass

from epicrisis.errors import InputError
from epicrisis.evaluation.analysis.statistics import questions_needed, sign_test

ALPHA, POWER = 0.05, 0.8


@dataclass(frozen=True, slots=True)
class Need:
    """What was asked, and what it takes. Shares are 0 to 1."""

    difference: float
    discordant: float
    """Share of the questions that one of the two alone answers rightly."""
    power: float
    comparisons: int
    questions: int
    at_hand: int | None = None
    smallest: float | None = None
    """The least difference that the questions at hand find as often; `None` where there is none, or none are named."""

    @property
    def sentences(self) -> tuple[str, ...]:
        """In words: what is needed, and what those at hand can show."""
        corrected = f", corrected for {self.comparisons} comparisons" if self.comparisons > 1 else ""
        of_ten = often(self.power)
        needed = (
            f"To find a difference of {points(self.difference)} in {of_ten} such studies, {self.questions:,} questions "
            f"are needed, where one of the two systems alone is right in {100 * self.discordant:.3g} % of them "
            f"(McNemar's test, two-sided, 5 %{corrected})."
        )
        if self.at_hand is None:
            return (
                needed,
                "Places and repeats of a question add little: it is questions that count.",
            )
        if self.smallest is None:
            return needed, f"The {self.at_hand:,} questions at hand cannot show any difference so often."
        return (
            needed,
            f"With the {self.at_hand:,} questions at hand the smallest difference found as often is "
            f"{points(self.smallest)}.",
        )


def need(
    difference: float, discordant: float, power: float = POWER, comparisons: int = 1, at_hand: int | None = None
) -> Need:
    """What a paired comparison takes. Raises InputError where the figures cannot be."""
    if not 0 < power < 1:
        raise InputError(f"a power of {power:g} cannot be: give a share between 0 and 1, such as 0.8")
    if comparisons < 1 or (at_hand is not None and at_hand < 1):
        raise InputError("comparisons and questions are counted from 1: give a whole number")
    if not 0 < difference <= discordant <= 1:
        raise InputError(
            f"a difference of {points(difference)} with {100 * discordant:.3g} % discordant questions cannot be: give "
            "a difference above 0, and a share of discordant questions from that difference to 1"
        )
    alpha = ALPHA / comparisons
    smallest = None if at_hand is None else smallest_difference(at_hand, discordant, power, alpha)
    needed = questions_needed(difference, discordant, power, alpha)
    return Need(difference, discordant, power, comparisons, needed, at_hand, smallest)


def smallest_difference(n: int, discordant: float, power: float = POWER, alpha: float = ALPHA) -> float | None:
    """The inverse of `questions_needed`: what so many questions find at this power, as a share. `None`: nothing, for
    even if one system were right in all and the other in none, the test would not tell.

    A difference larger than `discordant` needs so many discordant questions itself.
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


def points(share: float) -> str:
    """A difference of shares in words: `6.2 points`."""
    shown = f"{100 * share:.1f}".removesuffix(".0")
    return f"{shown} point{'' if shown in ('1', '-1') else 's'}"


def often(power: float) -> str:
    """A power in words: `8 of 10`."""
    of = 10 if abs(10 * power - round(10 * power)) < 1e-9 else 100
    return f"{of * power:.4g} of {of}"
