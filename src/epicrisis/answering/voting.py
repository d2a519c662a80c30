"""Counting of votes: the plurality, and an honest tie (the context-retrieval study, section 3.1).

Votes that abstained, failed or were unreadable count for no option. If more votes abstain than choose any one option,
the question ends as an abstention.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from epicrisis.answers import Vote
from epicrisis.types import AnswerState, TieRule

MAJORITY, TIE = "majority", "tie"


@dataclass(frozen=True, slots=True)
class VotingOptions:
    """How votes are drawn and counted."""

    n: int = 5
    temperature: float = 0.7
    top_p: float = 1.0
    shuffle: bool | None = None
    """Whether each vote sees the options in a different order. None leaves it to the strategy."""
    tie: TieRule = "abstain"


@dataclass(frozen=True, slots=True)
class Tally:
    """The result of counting votes. Only the state `answered` has a choice."""

    state: AnswerState
    choice: str | None = None
    decided_by: str = ""
    distribution: Mapping[str, float] = field(default_factory=dict)
    """Each option's share of all votes. The remainder to 1 abstained, failed or was unreadable."""


def count_votes(votes: Sequence[Vote], options: Sequence[str], tie: TieRule = "abstain") -> Tally:
    """Return the option with the most votes.

    If no vote has a choice, the state is `abstained` if a vote abstained, else `unparsed` if one was unreadable, else
    `failed`.
    """
    in_order = sorted(votes, key=lambda vote: vote.number)
    choices = [vote.choice for vote in in_order if vote.choice is not None]
    states = Counter(vote.state for vote in votes)
    if not choices:
        if states["abstained"]:
            return Tally("abstained")
        return Tally("unparsed" if states["unparsed"] else "failed")
    counts = Counter(choices)
    distribution = {letter: counts[letter] / len(votes) for letter in options}
    highest = max(counts.values())
    leaders = [letter for letter, count in counts.items() if count == highest]
    if states["abstained"] > highest:
        return Tally("abstained", None, MAJORITY, distribution)
    if len(leaders) == 1:
        return Tally("answered", leaders[0], MAJORITY, distribution)
    if tie == "first-vote":
        return Tally("answered", leaders[0], tie, distribution)
    return Tally("abstained", None, TIE, distribution)
