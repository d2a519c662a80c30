"""Orders that need no scoring."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from epicrisis.core.types import Passage
from epicrisis.retrieval.rankings import move_worst_to_middle, rank_in_order


def names(ids: tuple[str, ...]) -> str:
    return "".join(id_[0] for id_ in ids)


def of(letters: str) -> list[Passage]:
    return [Passage(id=f"{letter}#0", document_id=letter, ordinal=0, start=0, end=1, text=letter) for letter in letters]


def test_move_worst_to_middle_puts_best_at_both_ends() -> None:
    assert names(move_worst_to_middle(rank_in_order(of("abcdefgh"), "dense", {})).ids) == "aceghfdb"
    assert names(move_worst_to_middle(rank_in_order(of("abcde"), "dense", {})).ids) == "acedb"
    assert names(move_worst_to_middle(rank_in_order(of("a"), "dense", {})).ids) == "a"
    assert move_worst_to_middle(rank_in_order((), "dense", {})).hits == ()


@given(st.integers(1, 30))
def test_ordering_keeps_all_passages_and_names_method(n: int) -> None:
    passages = [Passage(id=f"d{i}#0", document_id=f"d{i}", ordinal=0, start=0, end=1, text="x") for i in range(n)]
    ranking = rank_in_order(passages, "dense", {"k": n})
    moved = move_worst_to_middle(ranking)
    assert set(moved.ids) == set(ranking.ids)
    assert [hit.rank for hit in moved.hits] == list(range(n))
    assert (moved.retriever, moved.parameters) == ("dense+ends", {"k": n})
    worst = moved.ids.index(ranking.ids[-1])
    assert abs(worst - (n - 1) / 2) <= 1
