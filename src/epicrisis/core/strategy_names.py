"""The names of the strategies: those of the files in `answering/strategies`.

Settings are checked by them without importing a strategy.
"""

from __future__ import annotations

import pkgutil
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias


@cache
def list_strategy_names() -> tuple[str, ...]:
    """Return the names of all strategies, in alphabetical order."""
    folder = Path(__file__).parents[1] / "answering" / "strategies"
    return tuple(sorted(module.name.replace("_", "-") for module in pkgutil.iter_modules([str(folder)])))


if TYPE_CHECKING:
    StrategyName: TypeAlias = str
else:
    StrategyName = Literal[list_strategy_names()]
"""The name of a strategy, checked where it enters."""
