"""Test MIRAGE's scorers to the digit on released replies, and its patterns on any text."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from epicrisis.evaluation.datasets.pinned_readers import MirageSubset, read_mirage
from epicrisis.evaluation.rescoring.scores import (
    SCORINGS,
    Reading,
    find_letter,
    pair_with_replies,
    read_like_early_2024,
    read_like_head,
    read_released_replies,
    score_replies,
)

# As `locate_answer` of MIRAGE tries them, one after the other.
PATTERNS = (
    r"^\s*(A|B|C|D)$",
    r"^\s*(A|B|C|D) or",
    r"^\s*(A|B|C|D) and",
    r"^\s*(A|B|C|D)/",
    r"^\s*(A|B|C|D),",
    r"[Oo]ption (A|B|C|D)",
    r":\s*(A|B|C|D)",
    r"^\s*(A|B|C|D)\.",
    r'^\s*(A|B|C|D)"',
    r"^\s*(A|B|C|D):",
)

PIECES = st.one_of(
    st.sampled_from(['"answer_choice": "', "Option ", "option ", "OPTION ", " or ", " and ", "Aspirin", "None", '"}']),
    st.sampled_from('ABCDEa"/,.:{ \n\xa0\x1c'),
)
TEXTS = st.one_of(st.lists(PIECES, max_size=12).map("".join), st.text())


def find_letter_by_patterns(reply: str) -> str | None:
    text = reply.split('"answer_choice": "')[-1].strip()
    return next((result[0] for pattern in PATTERNS if (result := re.findall(pattern, text))), None)


@pytest.mark.slow
@given(TEXTS)
@example('{"answer_choice": "B"}')
@example('{"answer_choice": "A or B"}')
@example("the answer is: Beta")
@example('x "answer_choice": "A" y "answer_choice": "D. none"}')
def test_find_letter_equals_ten_original_patterns(reply: str) -> None:
    assert find_letter(reply) == find_letter_by_patterns(reply)


@pytest.mark.parametrize(
    ("reply", "found"),
    [
        ('{"step_by_step_thinking": "A: no", "answer_choice": "C"}', "C"),
        ('{"step_by_step_thinking": "...", "answer_choice": "B. no"}', "B"),
        ('{"answer_choice": "A/B"}', "A"),
        ('{"answer_choice": "C and D"}', "C"),
        ('{"answer_choice": "either, so option B, not option A"}', "B"),
        ('{"answer_choice": "Unknown"}', None),
        ('{"answer_choice": "None of the above"}', None),
        ("The answer is: Aspirin", "A"),
        ("The answer is B", None),
        ('{"step_by_step_thinking": "the answer choice is B. no"}', None),
        ("", None),
    ],
)
def test_find_letter_returns_expected_letter(reply: str, found: str | None) -> None:
    assert find_letter(reply) == found


def test_mirage_scorers_read_unreadable_reply_as_a() -> None:
    for scorer in (read_like_head, read_like_early_2024):
        assert list(scorer([["Unknown"], ["B"], [""]])) == [
            Reading("answered", "A", by_default=True),
            Reading("answered", "B"),
            Reading("answered", "A", by_default=True),
        ]


def test_mirage_2024_scorer_reuses_previous_reply_for_empty_list() -> None:
    replies = [[], ["B"], [], [], ["Unknown"], []]
    from_before, default = Reading("answered", "B", by_default=True), Reading("answered", "A", by_default=True)
    assert list(read_like_early_2024(replies)) == [
        Reading("failed"),
        Reading("answered", "B"),
        from_before,
        from_before,
        default,
        default,
    ]
    assert list(read_like_head(replies)) == [
        Reading("failed"),
        Reading("answered", "B"),
        Reading("failed"),
        Reading("failed"),
        default,
        Reading("failed"),
    ]


@pytest.mark.slow
@given(st.lists(st.lists(TEXTS, max_size=3), max_size=20))
def test_mirage_scorers_differ_only_for_empty_lists(replies: list[list[str]]) -> None:
    for outputs, now, then in zip(replies, read_like_head(replies), read_like_early_2024(replies), strict=True):
        if outputs:
            assert now == then
            assert now.choice == (find_letter_by_patterns(outputs[0]) or "A")
        else:
            assert now == Reading("failed")
            assert then.by_default or then == Reading("failed")


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "published", "present", "by_default"), [("pubmedqa", 36.00, 36.00, 1), ("bioasq", 74.27, 74.11, 3)]
)
def test_mirage_scorers_reproduce_published_figures(
    name: MirageSubset, published: float, present: float, by_default: int, data_folder: Path
) -> None:
    """GPT-3.5, chain of thought, closed book: MIRAGE's paper and leaderboard, and its present program (errata M1)."""
    questions = read_mirage(data_folder / "mirage" / "benchmark.json", name)
    replied = pair_with_replies(questions, read_released_replies(data_folder / "mirage" / f"gpt35_cot_{name}.jsonl"))
    early, now = score_replies(replied, "mirage-2024"), score_replies(replied, "mirage-head")
    assert f"{early.accuracy:.2%}" == f"{published:.2f}%"
    assert f"{now.accuracy:.2%}" == f"{present:.2f}%"
    assert early.by_default == by_default
    assert score_replies(tuple(reversed(replied)), "mirage-2024") == early


@pytest.mark.data
def test_own_scoring_separates_states_that_mirage_counts_as_letters(data_folder: Path) -> None:
    questions = read_mirage(data_folder / "mirage" / "benchmark.json", "bioasq")
    replied = pair_with_replies(questions, read_released_replies(data_folder / "mirage" / "gpt35_cot_bioasq.jsonl"))
    ours, early, now = (score_replies(replied, scoring) for scoring in SCORINGS)
    assert (ours.n, ours.right, ours.wrong, ours.abstained, ours.unparsed, ours.failed) == (618, 457, 157, 2, 1, 1)
    assert (early.right, early.wrong, now.right, now.wrong, now.failed) == (459, 159, 458, 159, 1)
    assert ours.chance == 0.5
