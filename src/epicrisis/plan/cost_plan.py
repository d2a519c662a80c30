"""What a plan says: ranges from least to most, and how a sample of questions stands for all of them.

Pure arithmetic and values; knows no model and no strategy.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

ReplySize: TypeAlias = Literal["least", "expected", "most"]
REPLY_SIZES: tuple[ReplySize, ReplySize, ReplySize] = ("least", "expected", "most")

Z = 1.96
"""Standard errors to either side of a mean that hold 95 % (normal approximation)."""


@dataclass(frozen=True, slots=True)
class CostRange:
    """A figure between its ends. `margin`: half the width of the 95 % interval of `expected`, where it was worked out
    from a sample of the questions; 0 where every question was planned."""

    least: float
    expected: float
    most: float
    margin: float = 0.0

    @property
    def known(self) -> bool:
        """Whether there is but one value."""
        return self.least == self.most and not self.margin


@dataclass(frozen=True, slots=True)
class Speed:
    """Tokens a second of one call alone, measured."""

    prompt: float
    completion: float


@dataclass(frozen=True, slots=True)
class StrategyPlan:
    """What all the questions take with one strategy."""

    strategy: str
    calls: CostRange
    prompt_tokens: CostRange
    completion_tokens: CostRange
    """Thinking included."""
    usd: CostRange | None
    """US dollars; 0 where nobody charges, `None` where the price is unknown."""
    seconds: CostRange | None
    """Wall clock of the run; `None` where no speed was measured."""
    exact: bool
    """The prompt tokens are the very number: every prompt is known, none depends on a reply, and the model's own
    tokenizer counted them all."""
    states: Mapping[str, int]
    """Of the planned questions, how many: `read in parts`, `re-partitioned to fit the window`, `may be asked again with
    the whole record`, `nothing retrieved`,
    `does not fit the window` (no answer, however short the replies), `may not fit the window` (with the longest)."""


@dataclass(frozen=True, slots=True)
class CostPlan:
    """Strategies side by side, in the order asked for."""

    questions: int
    planned: int
    """Fewer than `questions` where a sample stands for all of them."""
    models: tuple[str, ...]
    exact_counts: bool
    """False: a model counts no tokens, so they are estimated from above."""
    strategies: tuple[StrategyPlan, ...]
    speeds: Mapping[str, Speed]
    """By model; empty where none was measured."""
    at_once: Mapping[str, int]
    """By model: calls in flight that the times assume."""


def extrapolate(rows: Sequence[Sequence[float]], questions: int) -> CostRange:
    """Of rows (least, expected, most), one a planned question, the sum over `questions` of which they are a random
    sample of two or more without replacement. Ends out of order are put in order."""
    if not rows:
        return CostRange(0, 0, 0)
    factor = questions / len(rows)
    least, expected, most = (
        sum(min(row) for row in rows),
        sum(row[1] for row in rows),
        sum(max(row) for row in rows),
    )
    if factor == 1:
        return CostRange(least, expected, most)
    return CostRange(least * factor, expected * factor, most * factor, _margin([row[1] for row in rows], questions))


def _margin(values: Sequence[float], questions: int) -> float:
    """Half the 95 % interval of the sum, with the correction for a finite population (Cochran, 1977, section 2.6)."""
    n = len(values)
    return Z * questions * statistics.stdev(values) / math.sqrt(n) * math.sqrt(1 - n / questions)


def format_dollars(amount: float) -> str:
    """`$12.30`; below a dollar with four digits."""
    if 0 < amount < 0.0001:
        return "<$0.0001"
    return f"${amount:,.4f}" if 0 < amount < 1 else f"${amount:,.2f}"
