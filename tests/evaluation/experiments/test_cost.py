"""Equations 4 and 5 by hand and by the papers' printed tokens, and predictions against calls that were made."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epicrisis.errors import InputError
from epicrisis.evaluation.experiments.cost import (
    Shape,
    Tokens,
    implied_instruction,
    map_reduce,
    measured_table,
    prediction_table,
    rag,
    shape_of,
    spent,
    with_preflight,
)
from epicrisis.evaluation.runs.cases import Case
from epicrisis.evaluation.runs.folder import RECORDS
from epicrisis.evaluation.runs.records import Record, read_records
from epicrisis.evaluation.statistics import Difference, Mean
from epicrisis.evaluation.tables.published import published
from epicrisis.models.chat.prices import stated_cost
from epicrisis.pipeline import Treatment
from epicrisis.retrieval.ordering import in_order
from epicrisis.settings import Price
from epicrisis.testing.chat import ScriptedModel
from epicrisis.types import Question, StrategyName, Usage
from tests.answering.world import NOT_FOUND, by_stage, finding, passages, said
from tests.evaluation.experiments.world import answer, questions, row

SHAPE = Shape(context=1000, instruction=100, output=50, parts=4)
shapes = st.builds(Shape, st.floats(0, 1e5), st.floats(1, 1e4), st.floats(1, 1e3), st.integers(1, 50).map(float))


# -- equations --------------------------------------------------------------------------------------------------------


def test_the_equations_by_hand() -> None:
    assert rag(SHAPE) == Tokens(1100, 50, 1)
    assert map_reduce(SHAPE, "published") == Tokens(1400, 250, 5)
    assert map_reduce(SHAPE) == Tokens(1000 + 4 * 100 + 100 + 4 * 50, 250, 5)
    assert map_reduce(SHAPE, prefix_cache=True) == Tokens(1700, 250, 5, 300)
    assert with_preflight(SHAPE, 0.25) == Tokens(0.25 * 1100 + 0.75 * 1700, 0.25 * 50 + 0.75 * 250, 4)


@given(shapes)
def test_what_equation_5_leaves_out_is_what_reduce_reads(shape: Shape) -> None:
    """Errata B5: M partial answers, the instruction, the query again; the output is the same."""
    printed, right = map_reduce(shape, "published"), map_reduce(shape)
    assert right.input - printed.input == pytest.approx(shape.instruction + shape.parts * shape.output)
    assert (right.output, right.calls) == (printed.output, printed.calls)


@given(shapes)
def test_all_and_nothing_skipped(shape: Shape) -> None:
    for share, alone in ((1, rag(shape)), (0, map_reduce(shape))):
        mixed = with_preflight(shape, share)
        assert (mixed.input, mixed.output, mixed.calls) == pytest.approx((alone.input, alone.output, alone.calls))


def test_the_printed_tokens_do_not_come_out_of_equation_5_with_a_short_instruction() -> None:
    """Errata B5: "the lengths of instruction and output are much shorter than the context"; with two parts of four the
    instruction would be four fifths of plain RAG's prompt, and over a third still once reduce's input is counted."""
    cost = published()["cost"]
    printed = {strategy: (float(str(i)), float(str(o))) for strategy, i, o in cost.table.rows}
    (rag_in, _), (ours_in, ours_out) = printed["RAG"], printed["BriefContext"]
    as_printed = implied_instruction(rag_in, ours_in, parts=2)
    assert as_printed == 2430.5
    assert as_printed / rag_in == pytest.approx(0.793, abs=0.001)
    corrected = implied_instruction(rag_in, ours_in, parts=2, findings=ours_out * 2 / 3)
    assert corrected / rag_in == pytest.approx(0.369, abs=0.001)
    assert "B5" in cost.errata


@given(shapes.filter(lambda shape: shape.parts > 1))
def test_the_implied_instruction_is_the_instruction(shape: Shape) -> None:
    findings = shape.parts * shape.output
    for equation, given_findings in (("published", None), ("corrected", findings)):
        took = map_reduce(shape, equation).input  # type: ignore[arg-type]
        found = implied_instruction(rag(shape).input, took, shape.parts, given_findings)
        assert found == pytest.approx(shape.instruction, rel=1e-6, abs=1e-3)


@pytest.mark.parametrize("cached", [None, 0.1])
def test_dollars_are_those_of_the_price_list(cached: float | None) -> None:
    price = Price(input=2.0, output=8.0, cached=cached)
    usage = Usage(prompt_tokens=5000, cached_tokens=2000, completion_tokens=300)
    assert Tokens(5000, 300, 1, 2000).cost(price) == pytest.approx(stated_cost(usage, price))


# -- measured ---------------------------------------------------------------------------------------------------------

ASKED = questions(3)
FOUND = in_order(passages(8), "dense", {"k": 8})
REPLIES: dict[str, Any] = {
    "map": finding(1, "It helps somewhat."),
    "reduce": said(sources=[], answer="It helps.", choice="A"),
    "rag": said(quotes=[], answer="It helps.", choice="A"),
    "closed_book": said(answer="It helps.", choice="A"),
}
ARMS: tuple[StrategyName, ...] = ("rag", "brief-context", "closed-book")


def asked(
    tmp_path: Path, asked: list[Question] = ASKED, arms: tuple[StrategyName, ...] = ARMS, **replies: Any
) -> list[Record]:
    """A run of those arms over the same eight passages; words are tokens."""
    model = ScriptedModel(by_stage(**{**REPLIES, **replies}))
    cases = [
        Case(question, {"arm": arm} if arm == "closed-book" else {"arm": arm, "k": 8}, Treatment(arm, FOUND, False, 4))
        for question in asked
        for arm in arms
    ]
    asyncio.run(answer(cases, model, tmp_path / "run"))
    return list(read_records(tmp_path / "run" / RECORDS))


def test_what_each_stage_took(tmp_path: Path) -> None:
    records = asked(tmp_path)
    cases = spent(records)
    for case, record in zip(cases, records, strict=True):
        usage = record["answer"]["usage"]
        total = case.total
        assert (total.input, total.output, total.calls) == (
            usage["prompt_tokens"],
            usage["completion_tokens"],
            usage["calls"],
        )
        assert case.plain
        assert case.arm == record["condition"]["arm"]
        assert case.question == record["key"].partition(" {")[0]
    ours, plain = (next(case for case in cases if case.arm == arm) for arm in ("brief-context", "rag"))
    assert (ours.maps.calls, ours.reduce.calls, ours.one.calls) == (2, 1, 0)
    assert (plain.maps.calls, plain.reduce.calls, plain.one.calls) == (0, 0, 1)
    assert not ours.skipped
    assert not plain.skipped


def test_a_question_answered_from_one_prompt_skipped_the_rest(tmp_path: Path) -> None:
    (record,) = asked(tmp_path, ASKED[:1], ("rag",))
    (case,) = spent([{**record, "condition": {"arm": "brief-context", "k": 8}}])
    assert case.skipped
    assert case.one.calls == 1


def test_calls_that_were_no_plain_ones_are_in_no_mean(tmp_path: Path) -> None:
    records = asked(tmp_path, ASKED[:2], ("rag",))
    broken = {
        **records[0],
        "answer": {**records[0]["answer"], "usage": {**records[0]["answer"]["usage"], "replayed_calls": 1}},
    }
    cases = spent([broken, records[1]])
    assert [case.plain for case in cases] == [False, True]
    table = measured_table(cases)
    told = row(table, "rag", 8)
    assert (told["cases"], told["not plain"]) == (2, 1)
    assert told["input"].value == cases[1].one.input
    assert told["input"].n == 1


def test_a_reply_that_had_to_be_asked_for_again_is_no_plain_call(tmp_path: Path) -> None:
    (record,) = asked(tmp_path, ASKED[:1], ("rag",), rag="no JSON at all")
    (case,) = spent([record])
    assert case.one.calls == 2
    assert not case.plain


def test_the_table_of_what_it_took(tmp_path: Path) -> None:
    table = measured_table(spent(asked(tmp_path)))
    assert {each[:2] for each in table.rows} == {("rag", 8), ("brief-context", 8), ("closed-book", None)}
    ours = row(table, "brief-context", 8)
    assert (ours["cases"], ours["from one prompt"], ours["calls"].value) == (3, 0, 3)
    more = ours["input beyond RAG's"]
    assert isinstance(more, Difference)
    assert more.value == pytest.approx(ours["input"].value - row(table, "rag", 8)["input"].value)
    assert (more.n, more.clusters) == (3, 3)
    assert row(table, "rag", 8)["input beyond RAG's"] is None
    assert row(table, "closed-book", None)["input beyond RAG's"] is None
    assert isinstance(ours["US dollars"], Mean)


def test_the_shape_is_measured_on_the_other_arms(tmp_path: Path) -> None:
    cases = spent(asked(tmp_path))
    shape = shape_of(cases)
    closed = sum(case.one.input for case in cases if case.arm == "closed-book") / 3
    assert shape.instruction == closed
    assert rag(shape).input == pytest.approx(sum(case.one.input for case in cases if case.arm == "rag") / 3)
    assert shape.parts == 2
    assert shape_of(cases, instruction=7).instruction == 7


@pytest.mark.parametrize("left", ARMS)
def test_each_arm_is_needed(tmp_path: Path, left: StrategyName) -> None:
    cases = [case for case in spent(asked(tmp_path)) if case.arm != left]
    with pytest.raises(InputError, match=f"no plain case of {left}"):
        prediction_table(cases)


def test_the_corrected_equation_is_nearer_to_what_was_taken(tmp_path: Path) -> None:
    """Words as tokens; the prompts' own lengths differ from closed book's, so it is no equality."""
    price = Price(input=1.0, output=2.0)
    table = prediction_table(spent(asked(tmp_path)), price=price)
    told = {name: row(table, 8, name) for name in table.column("what")}
    measured = told["measured: read in parts"]
    printed, corrected = told["equation 5 as printed"], told["with the reduce call's input"]
    assert abs(corrected["input"] - measured["input"]) < abs(printed["input"] - measured["input"])
    assert told["equation 4: RAG"]["input"] == pytest.approx(told["measured: RAG"]["input"])
    assert told["measured: RAG"]["input to RAG's"] == 1
    assert measured["calls"] == 3
    assert measured["US dollars"] == pytest.approx((measured["input"] + 2 * measured["output"]) / 1e6)
    assert told["measured: all of BriefContext"]["input"] == measured["input"]
    assert len(table.rows) == 8


def test_where_nothing_is_found_reduce_is_not_called(tmp_path: Path) -> None:
    ours = spent(asked(tmp_path, ASKED[:1], ("brief-context",), map=NOT_FOUND))[0]
    assert (ours.maps.calls, ours.reduce.calls) == (2, 0)
    assert ours.plain
