"""Values of a cost plan, and the extrapolation from a sample of questions to all."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Literal, TypeAlias

ReplySize: TypeAlias = Literal["least", "expected", "most"]
REPLY_SIZES: tuple[ReplySize, ReplySize, ReplySize] = ("least", "expected", "most")

Z = 1.96
"""Half the width of a 95 % interval in standard errors (normal approximation)."""


@dataclass(frozen=True, slots=True)
class CostRange:
    """An estimate with its lowest and highest possible value."""

    least: float
    expected: float
    most: float
    margin: float = 0.0
    """Half the 95 % interval of `expected` if it comes from a sample of the questions, else 0."""

    @property
    def is_exact(self) -> bool:
        """Whether only one value is possible."""
        return self.least == self.most and not self.margin


@dataclass(frozen=True, slots=True)
class Speed:
    """The measured speed of a single call, in tokens per second."""

    prompt: float
    completion: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyPlan:
    """The estimate for all questions with one strategy."""

    strategy: str
    calls: CostRange
    prompt_tokens: CostRange
    completion_tokens: CostRange
    """Including reasoning."""
    usd: CostRange | None
    """US dollars; 0 for free models, None for an unknown price."""
    seconds: CostRange | None
    exact: bool
    """Whether the prompt tokens are exact: no prompt depends on a reply, and the model's tokenizer counted all."""
    states: Mapping[str, int]
    """Numbers of planned questions by state, such as `read in parts`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostPlan:
    """The estimates of all strategies, in order."""

    questions: int
    planned: int
    models: tuple[str, ...]
    exact_counts: bool
    """False: a model does not count tokens, so their number is an upper bound."""
    strategies: tuple[StrategyPlan, ...]
    speeds: Mapping[str, Speed]
    """By model; empty without measurements."""
    at_once: Mapping[str, int]


def extrapolate(rows: Sequence[Sequence[float]], questions: int) -> CostRange:
    """Return the sum over all questions, from rows (least, expected, most) of two or more drawn without replacement."""
    if not rows:
        return CostRange(0, 0, 0)
    factor = questions / len(rows)
    values = list(map(itemgetter(1), rows))
    least, expected, most = sum(map(min, rows)), sum(values), sum(map(max, rows))
    if factor == 1:
        return CostRange(least, expected, most)
    # Half the 95 % interval of the sum, corrected for a finite population (Cochran, 1977, section 2.6).
    n = len(values)
    margin = Z * questions * statistics.stdev(values) / math.sqrt(n) * math.sqrt(1 - n / questions)
    return CostRange(least * factor, expected * factor, most * factor, margin)


def format_dollars(amount: float) -> str:
    """Return an amount like `$12.30`, with four decimals below one dollar."""
    if 0 < amount < 0.0001:
        return "<$0.0001"
    return f"${amount:,.4f}" if 0 < amount < 1 else f"${amount:,.2f}"
