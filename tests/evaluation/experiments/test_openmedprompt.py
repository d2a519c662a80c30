"""Test open answers of a scripted writer of known quality, graded by a scripted judge."""

from __future__ import annotations

import pytest

from epicrisis.core.errors import InputError
from epicrisis.core.types import Example, Examples, Question
from epicrisis.evaluation.experiments import openmedprompt
from epicrisis.evaluation.experiments.openmedprompt import BEST, CHOICE, LAST, ONE, REFINING, Sizes
from epicrisis.evaluation.runs.outcomes import Outcome
from epicrisis.pipeline.recording.case import Case, Condition
from tests.support.experiments import build_cases, row

OPEN = [Question(f"What helps in case {i}?", form="open", id=str(i), gold=f"Drug {i}") for i in range(30)]
FIVE = Examples(tuple(Example(id=f"e{i}", text=f"Example {i}?", answer="So.") for i in range(5)))
SIZES = Sizes((3, 5, 7), (0, 1, 5))


def describe_case(case: Case) -> tuple[object, ...]:
    return tuple(case.condition.get(name) for name in ("arm", "examples", "k", "n"))


def test_cases_vary_drafts_and_examples_separately() -> None:
    cases = build_cases(openmedprompt, OPEN[:1], examples={"cot": lambda _: FIVE}, votes=SIZES.ns, ks=SIZES.ks)
    sizes = [(7, 5), (5, 0), (5, 1), (5, 5), (3, 5)]
    assert [describe_case(case) for case in cases] == [
        (ONE, "none", 0, None),
        (ONE, "cot", 5, None),
        *((arm, "cot", k, n) for arm in (REFINING, LAST, BEST) for n, k in sizes),
    ]
    by_condition = {describe_case(case): case.treatment for case in cases}
    text = {key: treatment.examples for key, treatment in by_condition.items()}
    assert all(examples is not None and len(examples.examples) == key[2] for key, examples in text.items())
    last, best = (by_condition[arm, "cot", 5, 7].options["refine"] for arm in (LAST, BEST))
    assert (last.rounds, last.keep, best.keep) == (7, "last", "best")
    first = by_condition[ONE, "none", 0, None]
    assert (first.strategy, first.options["refine"].rounds) == ("self-reflection", 0)


def test_cases_of_smaller_grid_use_only_named_sizes() -> None:
    cases = build_cases(openmedprompt, OPEN, examples={"cot": lambda _: FIVE}, votes=(3,), ks=(2,))
    assert {describe_case(case)[2:] for case in cases} == {(0, None), (2, None), (2, 3)}
    outcomes = [
        Outcome(question=case.question.key, condition=case.condition, state="answered", right=right(case))
        for case in cases
    ]
    _, by_n = openmedprompt.tables({"m": outcomes})
    assert [cells[1:4] for cells in by_n.rows] == [(arm, "cot", 3) for arm in (REFINING, LAST, BEST)]


def test_cases_without_answer_or_of_unknown_arm_raise_input_error() -> None:
    with pytest.raises(InputError, match="has no answer to mark by"):
        build_cases(openmedprompt, [Question("Why?", id="w")], examples={})
    with pytest.raises(InputError, match="no arm is called magic: known are multiple-choice, one-draft"):
        build_cases(openmedprompt, OPEN, examples={}, arms=("magic",))


def test_question_with_options_is_asked_by_next_token_alone() -> None:
    """Table 10: multiple choice, and the same questions without options."""
    choices = [
        Question("Which?", options={"A": "x", "B": "y"}, form="choice", id=str(i), gold="AB"[i % 2]) for i in range(8)
    ]
    cases = build_cases(openmedprompt, [*OPEN[:8], *choices], examples={}, arms=(CHOICE, ONE))
    assert [describe_case(case) for case in cases] == [(ONE, "none", 0, None)] * 8 + [(CHOICE, "none", 0, None)] * 8
    assert {case.treatment.strategy for case in cases[8:]} == {"zero-shot"}
    outcomes = [
        Outcome(
            question=case.question.key,
            condition=case.condition,
            state="answered",
            right=case.condition["arm"] == CHOICE,
        )
        for case in cases
    ]
    one, _ = openmedprompt.tables({"m": outcomes})
    assert [cells[1:4] for cells in one.rows] == [(CHOICE, "none", 0), (ONE, "none", 0)]
    assert row(one, "m", CHOICE)["share right"].value == 1.0
    assert row(one, "m", CHOICE)["difference to no examples"] is None
    assert not build_cases(openmedprompt, choices, examples={}, arms=(ONE,))


def right(case: Case) -> bool:
    """Return whether a case is right. One draft: a third, with examples a half; refined: two thirds for any n, but
    for the best by reward, which is always right."""
    i, condition = int(case.question.id), case.condition
    if condition["arm"] == ONE:
        return i % 3 == 0 if condition["examples"] == "none" else i % 2 == 0
    return True if condition["arm"] == BEST else i % 3 != 0


def test_tables_have_expected_shares() -> None:
    cases = build_cases(openmedprompt, OPEN, examples={"cot": lambda _: FIVE}, votes=SIZES.ns, ks=SIZES.ks)

    def outcome(question: Question, condition: Condition, is_right: bool) -> Outcome:
        return Outcome(question=question.key, condition=condition, state="answered", right=is_right)

    outcomes = [outcome(case.question, case.condition, right(case)) for case in cases]
    one, by_n, by_k = openmedprompt.tables({"m": outcomes})
    assert row(one, "m", ONE, "none", 0)["share right"].value == pytest.approx(1 / 3)
    assert row(one, "m", ONE, "cot", 5)["difference to no examples"].value == pytest.approx(1 / 2 - 1 / 3)
    assert [cells[:4] for cells in by_n.rows] == [
        ("m", arm, "cot", n) for arm in (REFINING, LAST, BEST) for n in (3, 5, 7)
    ]
    best = row(by_n, "m", BEST, "cot", 7)
    assert best["difference to one draft with the same examples"].value == 0.5
    assert best["p (Holm)"] < 0.01
    assert [cells[3] for cells in by_k.rows if cells[1] == LAST] == [0, 1, 5]
