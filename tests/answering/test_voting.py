"""What votes come to, and the orders in which options are shown: hand-made cases and properties."""

from __future__ import annotations

import itertools
import string
from collections import Counter
from random import Random
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epicrisis.answering.voting import count_votes, keep_order, shuffle_options
from epicrisis.core.answers import Vote
from epicrisis.core.types import AnswerState, TieRule

LETTERS = "ABCD"


def votes(stated: str) -> list[Vote]:
    """One a letter; `-` abstained, `?` could not be read, `!` failed."""
    states: dict[str, AnswerState] = {"-": "abstained", "?": "unparsed", "!": "failed"}
    return [
        Vote(
            number=i,
            letter_order=tuple(LETTERS),
            state=states.get(each, "answered"),
            choice=None if each in states else each,
        )
        for i, each in enumerate(stated)
    ]


@pytest.mark.parametrize(
    ("stated", "tie", "state", "choice", "decided_by"),
    [
        ("AAB", "abstain", "answered", "A", "majority"),
        ("ABBCC", "abstain", "abstained", None, "tie"),
        ("CBBCA", "first-vote", "answered", "C", "first-vote"),
        ("ABCD", "abstain", "abstained", None, "tie"),
        ("A---B", "abstain", "abstained", None, "majority"),
        ("AA--B", "abstain", "answered", "A", "majority"),
        ("A!!!?", "abstain", "answered", "A", "majority"),
        ("!-?", "abstain", "abstained", None, ""),
        ("!?!", "abstain", "failed", None, ""),
        ("??", "abstain", "unparsed", None, ""),
        ("!!", "first-vote", "failed", None, ""),
    ],
)
def test_votes_give_expected_result(
    stated: str, tie: TieRule, state: AnswerState, choice: str | None, decided_by: str
) -> None:
    counted = count_votes(votes(stated), LETTERS, tie)
    assert (counted.state, counted.choice, counted.decided_by) == (state, choice, decided_by)


def test_vote_spread_counts_only_stated_options() -> None:
    assert count_votes(votes("AAB-!"), LETTERS).distribution == {"A": 0.4, "B": 0.2, "C": 0.0, "D": 0.0}
    assert count_votes(votes("-!"), LETTERS).distribution == {}


@pytest.mark.slow
@given(st.text(alphabet=LETTERS + "-?!", min_size=1, max_size=25), st.randoms(use_true_random=False))
def test_result_is_independent_of_vote_order(stated: str, random: Random) -> None:
    made = votes(stated)
    mixed = list(made)
    random.shuffle(mixed)
    for tie in get_args(TieRule):
        assert count_votes(mixed, LETTERS, tie) == count_votes(made, LETTERS, tie)


@pytest.mark.slow
@given(st.text(alphabet=LETTERS + "-?!", min_size=1, max_size=25))
def test_choice_needs_most_votes_and_more_than_abstentions(stated: str) -> None:
    counted = count_votes(votes(stated), LETTERS)
    often = Counter(each for each in stated if each in LETTERS)
    if counted.choice is None:
        assert counted.state != "answered"
    else:
        assert all(often[counted.choice] > often[other] for other in often if other != counted.choice)
        assert often[counted.choice] >= stated.count("-")


# -- orders of options ------------------------------------------------------------------------------------------------


def options(n: int) -> dict[str, str]:
    return {letter: f"text {letter}" for letter in string.ascii_uppercase[:n]}


@pytest.mark.slow
@given(st.integers(2, 6), st.integers(1, 40), st.integers(0, 10**6))
def test_orders_balance_option_positions(n: int, times: int, seed: int) -> None:
    """Errata P3: also where votes exceed the permutations of the options (15 of 20 votes on three options, there)."""
    shown = shuffle_options(options(n), times, seed)
    assert len(shown) == times
    often = Counter((place, letter) for each in shown for place, letter in enumerate(each.letters))
    counts = [often[place, letter] for place, letter in itertools.product(range(n), options(n))]
    assert max(counts) - min(counts) <= (1 if times % n else 0)


@given(st.integers(1, 6), st.integers(1, 12), st.integers(0, 10**6))
def test_shuffled_letters_map_to_original_options(n: int, times: int, seed: int) -> None:
    own = options(n)
    for shown in (*shuffle_options(own, times, seed), keep_order(own)):
        assert list(shown.options) == list(own), "letters keep their places"
        assert all(own[shown.restore_letter(letter)] == text for letter, text in shown.options.items())


def test_orders_depend_only_on_seed() -> None:
    assert shuffle_options(options(4), 8, 1) == shuffle_options(options(4), 8, 1)
    assert shuffle_options(options(4), 8, 1) != shuffle_options(options(4), 8, 2)
    assert shuffle_options(options(4), 20, 3)[:8] == shuffle_options(options(4), 8, 3), (
        "more votes change none of the first"
    )
