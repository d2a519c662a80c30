"""What a strategy is, and which there are: each module of `strategies` is one.

A new strategy is one new file there. Commands, the page, the server, plans and limits derive what they need from its
`STRATEGY`. The names are those of the files, so that settings are checked without importing any of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Literal, TypeAlias

from epicrisis.core.answers import Answer
from epicrisis.core.errors import InputError
from epicrisis.core.strategy_names import list_strategy_names
from epicrisis.core.types import Question, Ranking

if TYPE_CHECKING:
    from epicrisis.answering.strategy_context import Context

Answering: TypeAlias = "Callable[[Question, Context], Awaitable[Answer]]"
Cutting: TypeAlias = "Callable[[Question, Context, Ranking, int], Awaitable[Ranking]]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """One way to answer a question."""

    name: str
    run: Answering
    label: str
    """On the page, in a few words."""
    help: str
    """What it reads and how it answers, in one sentence."""
    needs_library: bool = True
    needs_search: bool = True
    """Whether it reads a ranking of the library, rather than all of a record."""
    needs_model: bool = True
    needs_sentences: bool = False
    """Whether sentences are selected for it."""
    examples: Literal["unused", "optional", "required"] = "unused"
    """Whether it shows solved questions."""
    needs_reward: bool = False
    """Whether answers are scored for it."""
    checks_rankings: bool = False
    """Whether the preflight check runs before it."""
    routes: bool = False
    """Whether the setting `route` gives its question a second way."""
    cut: Cutting | None = None
    """Return the longest beginning of a ranking that it can read within so many prompt tokens. None: it has no limit.

    Raises ChatError.
    """

    def compares_texts(self, preflight: bool) -> bool:
        """Return whether it needs the encoder beside the search. `preflight`: whether rankings are checked at all."""
        return self.needs_sentences or (self.checks_rankings and preflight)

    @property
    def cites(self) -> bool:
        """Whether a chat model writes claims that cite documents."""
        return self.needs_library and self.needs_model


def find_strategy(name: str) -> Strategy:
    """Return the strategy of this name. Raises InputError if there is none."""
    if name not in list_strategy_names():
        raise InputError(f"no strategy is called {name}: known are {', '.join(list_strategy_names())}")
    strategy: Strategy = import_module(f"epicrisis.answering.strategies.{name.replace('-', '_')}").STRATEGY
    return strategy


@cache
def list_strategies() -> tuple[Strategy, ...]:
    """Return all strategies: those that read the library first, then those without documents, then with examples."""
    strategies = [find_strategy(name) for name in list_strategy_names()]
    return tuple(sorted(strategies, key=lambda strategy: (not strategy.needs_library, strategy.examples != "unused")))


def writes_citations(name: str) -> bool:
    """Return whether answers of this strategy cite documents in a chat model's claims. Other programs' do not."""
    return name in list_strategy_names() and find_strategy(name).cites
