"""Orders in which a question's options are shown, and letters mapped back (the context-retrieval study, section 3.1).

Balanced and seeded: every option stands in every place equally often where the votes are a multiple of the options,
else as equally as can be (errata P3: the study's code falls back to the order as it is once its permutations run out).
Draws from no global random state.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

from epicrisis.question_options import first_same_option


@dataclass(frozen=True, slots=True)
class ShuffledOptions:
    """The options of one vote as the model sees them: `letters[i]` is the question's own letter of what stands in
    place i, under the question's i-th letter."""

    options: Mapping[str, str]
    letters: tuple[str, ...]

    def own(self, letter: str) -> str:
        """Return the question's own letter of what was shown under `letter`; of options with one text the first."""
        texts = dict(zip(self.letters, self.options.values(), strict=True))
        in_order = {place: texts[place] for place in self.options}
        return first_same_option(in_order, self.letters[list(self.options).index(letter)])


def as_they_are(options: Mapping[str, str]) -> ShuffledOptions:
    """The options in their own order."""
    return ShuffledOptions(options, tuple(options))


def shuffled(options: Mapping[str, str], votes: int, seed: int | str) -> tuple[ShuffledOptions, ...]:
    """For each vote an order of the options, drawn by the seed.

    Each block of as many votes as there are options is a Latin square: a random order and its rotations, in random
    turn. No option is ever more than one vote ahead of another in a place. Which one that is, the seed decides: a seed
    of each question's own keeps it from being the same one for all.
    """
    letters = tuple(options)
    drawn = random.Random(seed)
    orders: list[tuple[str, ...]] = []
    while len(orders) < votes and letters:
        first = tuple(drawn.sample(letters, len(letters)))
        square = [first[i:] + first[:i] for i in range(len(letters))]
        orders += drawn.sample(square, len(square))
    return tuple(
        ShuffledOptions({place: options[own] for place, own in zip(letters, order, strict=True)}, order)
        for order in orders[:votes]
    )
