"""What votes come to: the plurality, and an honest tie (the context-retrieval study, section 3.1). Pure.

Votes that abstained, could not be read or failed are none for any option. An abstention is an answer as well: where
more votes abstain than state any one option, so does the question.
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
    """How votes are drawn and counted. `shuffle`: the options in another order for each; `None`: as the strategy has
    it."""

    n: int = 5
    temperature: float = 0.7
    top_p: float = 1.0
    shuffle: bool | None = None
    tie: TieRule = "abstain"


@dataclass(frozen=True, slots=True)
class Tally:
    """`state` is `answered` with a choice alone. `distribution`: each option's share of all votes; what is missing to 1
    abstained, could not be read or failed."""

    state: AnswerState
    choice: str | None = None
    decided_by: str = ""
    distribution: Mapping[str, float] = field(default_factory=dict)


def count_votes(votes: Sequence[Vote], options: Sequence[str], tie: TieRule = "abstain") -> Tally:
    """The option that most votes state. Without any such vote the question is `abstained` if a vote is, else `unparsed`
    if one is, else `failed`."""
    stated = [vote.choice for vote in sorted(votes, key=lambda vote: vote.number) if vote.choice is not None]
    states = Counter(vote.state for vote in votes)
    if not stated:
        state: AnswerState = next((each for each in ("abstained", "unparsed") if states[each]), "failed")
        return Tally(state)
    counts = Counter(stated)
    distribution = {letter: counts[letter] / len(votes) for letter in options}
    most = max(counts.values())
    leaders = [letter for letter in dict.fromkeys(stated) if counts[letter] == most]
    if states["abstained"] > most:
        return Tally("abstained", None, MAJORITY, distribution)
    if len(leaders) == 1:
        return Tally("answered", leaders[0], MAJORITY, distribution)
    if tie == "first-vote":
        return Tally("answered", leaders[0], tie, distribution)
    return Tally("abstained", None, TIE, distribution)
