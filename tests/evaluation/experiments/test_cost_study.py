"""Test equations 4 and 5 against manual calculation, printed tokens and measured calls."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epicrisis.core.answers import ModelCalled, Usage
from epicrisis.core.errors import InputError
from epicrisis.core.types import Question
from epicrisis.evaluation.analysis.published import load_published
from epicrisis.evaluation.analysis.statistics import Mean
from epicrisis.evaluation.experiments.arms import Study
from epicrisis.evaluation.experiments.definition import CaseInputs
from epicrisis.evaluation.experiments.registry import find_experiment
from epicrisis.evaluation.experiments.study_protocols import PROTOCOLS
from epicrisis.evaluation.experiments.token_costs import (
    CHECKED,
    CLOSED_BOOK,
    CaseCost,
    PromptShape,
    TokenTotals,
    case_costs,
    map_reduce_tokens,
    mean_shape,
    measured_table,
    prediction_table,
    preflight_tokens,
    rag_tokens,
    token_ratio,
)
from epicrisis.evaluation.runs.run_folder import RECORDS
from epicrisis.models.chat.prices import compute_cost
from epicrisis.pipeline.overrides import RunOverrides
from epicrisis.pipeline.recording.answer_record import RunRecord, read_records
from epicrisis.pipeline.recording.case import Case
from epicrisis.retrieval.rankings import rank_in_order
from epicrisis.settings.settings import Price, Settings
from epicrisis.testing.chat import ScriptedModel
from tests.support.experiments import answer, evidence, questions, row
from tests.support.strategies import NOT_FOUND, by_stage, finding, passages, said

CORRECTED = PROTOCOLS["corrected"]
SHAPE = PromptShape(context=1000, instruction=100, output=50, parts=4)
shapes = st.builds(PromptShape, st.floats(0, 1e5), st.floats(1, 1e4), st.floats(1, 1e3), st.integers(1, 50).map(float))


# -- equations --------------------------------------------------------------------------------------------------------


def test_token_equations_match_manual_calculation() -> None:
    assert rag_tokens(SHAPE) == TokenTotals(1100, 50, 1)
    assert map_reduce_tokens(SHAPE, "published") == TokenTotals(1400, 250, 5)
    assert map_reduce_tokens(SHAPE) == TokenTotals(1000 + 4 * 100 + 100 + 4 * 50, 250, 5)
    assert map_reduce_tokens(SHAPE, prefix_cache=True) == TokenTotals(1700, 250, 5, 300)
    assert preflight_tokens(SHAPE, 0.25) == TokenTotals(0.25 * 1100 + 0.75 * 1700, 0.25 * 50 + 0.75 * 250, 4)


@given(shapes)
def test_corrected_equation_adds_input_of_reduce(shape: PromptShape) -> None:
    """Errata B5: M partial answers, the instruction, the query again; the output is the same."""
    printed, right = map_reduce_tokens(shape, "published"), map_reduce_tokens(shape)
    assert right.input - printed.input == pytest.approx(shape.instruction + shape.parts * shape.output)
    assert (right.output, right.calls) == (printed.output, printed.calls)


@given(shapes)
def test_preflight_tokens_equal_extremes_at_shares_zero_and_one(shape: PromptShape) -> None:
    for share, alone in ((1, rag_tokens(shape)), (0, map_reduce_tokens(shape))):
        mixed = preflight_tokens(shape, share)
        assert (mixed.input, mixed.output, mixed.calls) == pytest.approx((alone.input, alone.output, alone.calls))


def implied_instruction(
    rag_input: float, map_reduce_input: float, parts: float, findings: float | None = None
) -> float:
    """Return the length of the instruction implied by both inputs: by equation 5, or, with the tokens of M findings, by
    the corrected one. Needs two parts or more, or findings."""
    if findings is None:
        return (map_reduce_input - rag_input) / (parts - 1)
    return (map_reduce_input - rag_input - findings) / parts


def test_printed_tokens_contradict_equation_5_with_short_instruction() -> None:
    """Errata B5: "the lengths of instruction and output are much shorter than the context"; with two parts of four the
    instruction would be four fifths of plain RAG's prompt, and over a third still once reduce's input is counted."""
    cost = load_published()["cost"]
    printed = {strategy: (float(str(i)), float(str(o))) for strategy, i, o in cost.table.rows}
    (rag_in, _), (ours_in, ours_out) = printed["RAG"], printed["BriefContext"]
    as_printed = implied_instruction(rag_in, ours_in, parts=2)
    assert as_printed == 2430.5
    assert as_printed / rag_in == pytest.approx(0.793, abs=0.001)
    corrected = implied_instruction(rag_in, ours_in, parts=2, findings=ours_out * 2 / 3)
    assert corrected / rag_in == pytest.approx(0.369, abs=0.001)
    assert "B5" in cost.errata


@given(shapes.filter(lambda shape: shape.parts > 1))
def test_implied_instruction_inverts_equations(shape: PromptShape) -> None:
    findings = shape.parts * shape.output
    for equation, given_findings in (("published", None), ("corrected", findings)):
        took = map_reduce_tokens(shape, equation).input  # type: ignore[arg-type]
        result = implied_instruction(rag_tokens(shape).input, took, shape.parts, given_findings)
        assert result == pytest.approx(shape.instruction, rel=1e-6, abs=1e-3)


# -- measured ---------------------------------------------------------------------------------------------------------

ASKED = questions(3)
FOUND = rank_in_order(passages(8), "dense", {"k": 8})
REPLIES: dict[str, Any] = {
    "map": finding(1, "It helps somewhat."),
    "reduce": said(sources=[], answer="It helps.", choice="A"),
    "rag": said(quotes=[], answer="It helps.", choice="A"),
    "closed_book": said(answer="It helps.", choice="A"),
}
ARMS: tuple[str, ...] = ("rag", "brief-context", "closed-book")


def run_arms(
    tmp_path: Path, asked: list[Question] = ASKED, arms: tuple[str, ...] = ARMS, **replies: Any
) -> list[RunRecord]:
    """Run the arms over the same eight passages; words count as tokens."""
    model = ScriptedModel(by_stage(**{**REPLIES, **replies}))
    cases = [
        Case(
            question,
            {"arm": arm} if arm == "closed-book" else {"arm": arm, "k": 8},
            RunOverrides(options={"strategy": arm, "partition": 4}, ranking=FOUND, preflight=False),
        )
        for question in asked
        for arm in arms
    ]
    asyncio.run(answer(cases, model, tmp_path / "run"))
    return list(read_records(tmp_path / "run" / RECORDS))


def replace_answer(record: RunRecord, **changes: Any) -> RunRecord:
    return record.model_copy(update={"answer": replace(record.answer, **changes)})


def test_case_costs_split_usage_by_stage(tmp_path: Path) -> None:
    records = run_arms(tmp_path)
    cases = case_costs(records)
    for case, record in zip(cases, records, strict=True):
        usage = record.answer.usage
        total = case.total
        assert (total.input, total.output, total.calls) == (
            usage.prompt_tokens,
            usage.completion_tokens,
            usage.calls,
        )
        assert case.plain
        assert case.arm == record.arm
        assert case.question == record.question_key
    ours, plain = (next(case for case in cases if case.arm == arm) for arm in ("brief-context", "rag"))
    assert (ours.maps.calls, ours.reduce.calls, ours.single.calls) == (2, 1, 0)
    assert (plain.maps.calls, plain.reduce.calls, plain.single.calls) == (0, 0, 1)
    assert not ours.skipped
    assert not plain.skipped


def test_case_costs_of_single_prompt_are_marked_skipped(tmp_path: Path) -> None:
    (record,) = run_arms(tmp_path, ASKED[:1], ("rag",))
    (case,) = case_costs([record.model_copy(update={"condition": {"arm": "brief-context", "k": 8}})])
    assert case.skipped
    assert case.single.calls == 1


def test_measured_table_leaves_out_replayed_calls(tmp_path: Path) -> None:
    records = run_arms(tmp_path, ASKED[:2], ("rag",))
    broken = replace_answer(records[0], usage=replace(records[0].answer.usage, replayed_calls=1))
    cases = case_costs([broken, records[1]])
    assert [case.plain for case in cases] == [False, True]
    table = measured_table(cases)
    cells = row(table, "rag", 8)
    assert (cells["cases"], cells["not counted"], cells["asked again"]) == (2, 1, 0)
    assert cells["input"].value == cases[1].single.input
    assert cells["input"].n == 1


def test_measured_table_includes_repeated_calls_and_prediction_does_not(tmp_path: Path) -> None:
    """A model that often has to be asked twice is that much dearer."""
    records = run_arms(tmp_path, ASKED[:1], reduce="no JSON at all")
    ours = next(case for case in case_costs(records) if case.arm == "brief-context")
    assert ours.total.calls == 4
    assert (ours.counted, ours.repeated, ours.plain) == (True, True, False)
    cells = row(measured_table(case_costs(records)), "brief-context", 8)
    assert (cells["asked again"], cells["calls"].value) == (1, 4)
    assert not prediction_table(case_costs(records)).rows


def test_case_costs_of_replayed_parts_are_not_skipped(tmp_path: Path) -> None:
    """They are read in parts, though no token of them is counted."""
    (record,) = run_arms(tmp_path, ASKED[:1], ("brief-context",))
    calls = [
        replace(event, usage=replace(event.usage, calls=0)) if isinstance(event, ModelCalled) else event
        for event in record.answer.trace
    ]
    usage = replace(record.answer.usage, calls=0, replayed_calls=3)
    (case,) = case_costs([replace_answer(record, trace=tuple(calls), usage=usage)])
    assert (case.counted, case.skipped) == (False, False)


def test_measured_table_has_means_by_arm_and_k(tmp_path: Path) -> None:
    table = measured_table(case_costs(run_arms(tmp_path)))
    assert {item[:2] for item in table.rows} == {("rag", 8), ("brief-context", 8), ("closed-book", None)}
    ours = row(table, "brief-context", 8)
    assert (ours["cases"], ours["from one prompt"], ours["calls"].value) == (3, 0, 3)
    more = ours["input beyond RAG's"]
    assert isinstance(more, Mean)
    assert more.value == pytest.approx(ours["input"].value - row(table, "rag", 8)["input"].value)
    assert more.n == 3
    assert ours["calls"].interval.low == ours["calls"].interval.high == 3, "tokens are no shares"
    assert row(table, "rag", 8)["input beyond RAG's"] is None
    assert row(table, "closed-book", None)["input beyond RAG's"] is None
    assert isinstance(ours["US dollars"], Mean)


def split_by_arm(records: list[RunRecord]) -> list[list[CaseCost]]:
    return [[case for case in case_costs(records) if case.arm == arm] for arm in ("brief-context", "rag", CLOSED_BOOK)]


def test_mean_shape_is_measured_on_other_arms(tmp_path: Path) -> None:
    ours, rivals, closed = split_by_arm(run_arms(tmp_path))
    shape = mean_shape(ours, rivals, closed)
    assert shape.instruction == sum(case.single.input for case in closed) / 3
    assert rag_tokens(shape).input == pytest.approx(sum(case.single.input for case in rivals) / 3)
    assert shape.parts == 2


@pytest.mark.parametrize("left", ARMS)
def test_prediction_table_with_missing_arm_has_note_and_no_rows(tmp_path: Path, left: str) -> None:
    """A report of a run that was broken off, or that took its replies out of the cache, is a report all the same."""
    cases = [case for case in case_costs(run_arms(tmp_path)) if case.arm != left]
    table = prediction_table(cases)
    assert table.rows == ()
    assert table.notes[0].startswith("k = 8: no prediction, for there is no case that rag and brief-context (in parts)")
    assert measured_table(cases).rows


def test_prediction_with_corrected_equation_is_nearer_to_measurement(tmp_path: Path) -> None:
    """Words as tokens; the prompts' own lengths differ from closed book's, so it is no equality."""
    table = prediction_table(case_costs(run_arms(tmp_path)))
    cells_by_name = {name: row(table, 8, name) for name in table.column("what")}
    measurement = cells_by_name["measured: read in parts"]
    printed, corrected = cells_by_name["equation 5 as printed"], cells_by_name["with the reduce call's input"]
    took = measurement["input"].value
    assert abs(corrected["input"] - took) < abs(printed["input"] - took)
    for name in ("input", "output", "seconds"):
        assert measurement[name].interval.low <= measurement[name].value <= measurement[name].interval.high
    assert cells_by_name["equation 4: RAG"]["input"] == pytest.approx(cells_by_name["measured: RAG"]["input"].value)
    assert cells_by_name["measured: RAG"]["input to RAG's"] == 1
    assert measurement["calls"].value == 3
    assert len(table.rows) == 6, "nothing was answered from one prompt"
    assert any(note.startswith("Cached: the prediction counts what the map calls") for note in table.notes)


def test_prediction_table_compares_same_questions(tmp_path: Path) -> None:
    """One that RAG alone answered plainly is in neither figure."""
    records = run_arms(tmp_path)
    changed = [
        replace_answer(record, usage=replace(record.answer.usage, prompt_tokens=10**6, failed_calls=1))
        if record.arm == "brief-context" and record.answer.question.id == "2"
        else record
        for record in records
    ]
    table = prediction_table(case_costs(changed))
    ours, rivals, _ = split_by_arm(records)
    mean = sum(rival.single.input for rival in rivals[:2]) / 2
    assert row(table, 8, "measured: RAG")["input"].value == pytest.approx(mean)
    assert "2 cases" in table.notes[0]
    session = [sum(item.total.input + item.total.output for item in arm[:2]) for arm in (ours, rivals)]
    assert token_ratio(case_costs(changed), 8) == pytest.approx(session[0] / session[1])
    assert token_ratio(case_costs(changed), 16) is None


@pytest.mark.parametrize("cached", [0.0, 0.5])
def test_predicted_dollars_match_linear_price(tmp_path: Path, cached: float) -> None:
    """Exactly, for a price is linear; the calls that are predicted are none of those that it is read off."""
    price = Price(input=2.0, output=8.0, cached=0.5)
    cases = []
    for number, case in enumerate(case_costs(run_arms(tmp_path))):
        part = case.single * 1.0 if case.arm != "brief-context" else case.maps
        saved = replace(part, cached=round(part.input * cached) + (number if cached else 0))
        case = replace(case, single=saved) if case.arm != "brief-context" else replace(case, maps=saved)
        total = case.total
        usage = Usage(
            prompt_tokens=int(total.input), cached_tokens=int(total.cached), completion_tokens=int(total.output)
        )
        cases.append(replace(case, cost=compute_cost(usage, price)))
    table = prediction_table(cases)
    cells = row(table, 8, "with the reduce call's input")
    assert cells["US dollars"] == pytest.approx((2 * cells["input"] + 8 * cells["output"]) / 1e6)
    prefix = row(table, 8, "and a prefix cache")
    per_cached = price.cached if cached else price.input
    assert prefix["US dollars"] == pytest.approx(
        (2 * (prefix["input"] - prefix["cached"]) + (per_cached or 0) * prefix["cached"] + 8 * prefix["output"]) / 1e6
    )
    unknown = prediction_table([replace(case, cost=None) for case in cases])
    assert set(unknown.column("US dollars")) == {None}
    assert all(item is not None for item in unknown.column("seconds"))


@pytest.mark.slow
def test_prediction_table_predicts_preflight_saving(tmp_path: Path) -> None:
    records = run_arms(tmp_path)
    rags = {record.question_key: record for record in records if record.arm == "rag"}
    mixed = [
        rags[record.question_key].model_copy(update={"key": record.key, "condition": record.condition})
        if record.arm == "brief-context" and record.answer.question.id == "0"
        else record
        for record in records
    ]
    cells_by_name = {
        name: row(prediction_table(case_costs(mixed)), 8, name)
        for name in prediction_table(case_costs(mixed)).column("what")
    }
    assert cells_by_name["and preflight, 33.3 % from one prompt"]["calls"] == pytest.approx((1 + 3 + 3) / 3)
    assert cells_by_name["measured: with preflight"]["calls"].value == pytest.approx((1 + 3 + 3) / 3)
    assert cells_by_name["measured: read in parts"]["calls"].value == 3


@pytest.mark.slow
def test_cost_cases_include_arm_with_preflight(tmp_path: Path) -> None:
    """Of each seven questions three have their key among the first three, where both rankings agree here."""
    some = questions(14)
    study = Study(evidence(words=lambda question, ids: [(id_, 0.0) for id_ in rank_agreeing(question, ids)]), CORRECTED)
    experiment = find_experiment("cost")
    grid = replace(experiment.grid, ks=(8, 16))
    result = experiment.cases(CaseInputs({"own": some}, study, grid, Settings()))
    assert [case.condition.get("k") for case in result].count(None) == 14, "closed book once, whatever k is"
    assert len({case.key for case in result}) == len(result) == 14 * (1 + 2 * 3)
    asyncio.run(answer(result, ScriptedModel(by_stage(**REPLIES)), tmp_path / "run"))
    cases = case_costs(list(read_records(tmp_path / "run" / RECORDS)))
    assert row(measured_table(cases), CHECKED, 16)["from one prompt"] == 6
    table = prediction_table(cases)
    for k, parts in ((8, 2), (16, 4)):
        mean = (6 * 1 + 8 * (parts + 1)) / 14
        assert row(table, k, "measured: with preflight")["calls"].value == pytest.approx(mean)
        assert row(table, k, "and preflight, 42.9 % from one prompt")["calls"] == pytest.approx(mean)
        assert row(table, k, "measured: read in parts")["calls"].value == parts + 1


def rank_agreeing(question: Question, ids: Sequence[str]) -> Sequence[str]:
    return ids if int(question.id) % 7 < 3 else ids[::-1]


def test_cost_and_integration_cases_with_reranker_raise_input_error() -> None:
    """A reranker of the settings would reorder what the check compares."""
    settings = Settings.model_validate({"rerank": {"name": "overlap"}})
    for name in ("cost", "integration"):
        experiment = find_experiment(name)
        inputs = CaseInputs({"own": questions(1)}, Study(evidence(), CORRECTED), experiment.grid, settings)
        with pytest.raises(InputError, match="leave rerank out of the settings"):
            experiment.cases(inputs)


def test_case_costs_without_findings_have_no_reduce_call(tmp_path: Path) -> None:
    ours = case_costs(run_arms(tmp_path, ASKED[:1], ("brief-context",), map=NOT_FOUND))[0]
    assert (ours.maps.calls, ours.reduce.calls) == (2, 0)
    assert ours.plain
