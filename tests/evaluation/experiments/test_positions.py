"""Test the position study with a reader of known blind spot and with an unbiased one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from epicrisis.core.errors import InputError
from epicrisis.core.prompts import unfence
from epicrisis.core.protocols import ChatRequest
from epicrisis.core.types import Question, Ranking
from epicrisis.evaluation.analysis import statistics
from epicrisis.evaluation.analysis.conclusions import draw_headline
from epicrisis.evaluation.analysis.grouping import P_COLUMN, SHARE_COLUMN
from epicrisis.evaluation.analysis.published import load_published
from epicrisis.evaluation.analysis.table import Cell, Table
from epicrisis.evaluation.analysis.table_text import is_p_column
from epicrisis.evaluation.experiments import positions
from epicrisis.evaluation.experiments.arms import ARMS, UNPLACED, Study
from epicrisis.evaluation.experiments.definition import conclude_from_tables
from epicrisis.evaluation.experiments.placement import PLACES, first_rank
from epicrisis.evaluation.experiments.study_protocols import PROTOCOLS
from epicrisis.evaluation.runs.outcomes import Outcome
from epicrisis.evaluation.runs.run_folder import RECORDS
from epicrisis.pipeline.recording.answer_record import read_records
from epicrisis.pipeline.recording.case import Case
from epicrisis.testing.chat import ScriptedModel
from tests.support.experiments import (
    build_cases,
    evidence,
    found_for,
    key_of,
    near,
    questions,
    reader,
    retrieve,
    row,
    run,
)
from tests.support.position_biased_reader import u_curve

N = 48
K = 16
PARTITION = 4
CURVE = u_curve()
EVERY_ARM = tuple(ARMS)
AVERAGED_DIFFERENCE = "difference to rag at that k, averaged over the places"


def make_study(protocol: str = "corrected", **changes: Any) -> Study:
    return Study(evidence(), PROTOCOLS[protocol], **changes)


def ranking_of(case: Case) -> Ranking:
    assert case.treatment.ranking is not None
    return case.treatment.ranking


def key_rank(case: Case) -> int:
    return ranking_of(case).ids.index(key_of(case.question).id)


# -- the cases --------------------------------------------------------------------------------------------------------


def test_cases_have_each_condition_once() -> None:
    sample = questions(3)
    cases = build_cases(positions, sample, make_study(repeats=2), arms=EVERY_ARM)
    placed = [arm for arm in ARMS if arm not in UNPLACED]
    assert len(cases) == 3 * 2 * (len(UNPLACED) + len(placed) * 2 * 5)
    assert len({case.key for case in cases}) == len(cases)
    assert {case.treatment.options["seed"] for case in cases if case.condition["repeat"] == 1} == {1}
    assert {case.treatment.temperature for case in cases} == {None}, "that of the settings"
    assert [case.question.id for case in cases] == sorted(case.question.id for case in cases)


@pytest.mark.parametrize("k", [8, 16])
def test_cases_of_all_arms_read_same_passages_with_key_at_place(k: int) -> None:
    placed_cases = [
        case
        for case in build_cases(positions, questions(4), make_study(), ks=(k,), arms=EVERY_ARM)
        if "k" in case.condition
    ]
    sets = {(case.question.id, frozenset(ranking_of(case).ids)) for case in placed_cases}
    assert len(sets) == 4, "one set of passages a question"
    for case in placed_cases:
        rank = first_rank(int(case.condition["place"]), k)
        if case.condition["arm"] in ("rag", "brief-context"):
            assert key_rank(case) == rank
            others = [id_ for id_ in ranking_of(case).ids if id_ != key_of(case.question).id]
            result = [item.id for item in found_for(case.question) if item.id != key_of(case.question).id]
            assert others == result[: k - 1], "the others stand as they were found"
        elif case.condition["arm"] == "ends":
            assert key_rank(case) == (rank // 2 if rank % 2 == 0 else k - 1 - rank // 2)


def test_cases_reranked_put_key_at_one_rank() -> None:
    result = [
        case
        for case in build_cases(positions, questions(2), make_study(), arms=("reranked",))
        if case.question.id == "1"
    ]
    assert len({(case.condition["k"], ranking_of(case).ids) for case in result}) == 2


def test_cases_fused_move_key_towards_its_word_rank() -> None:
    cases = build_cases(positions, questions(1), make_study(), ks=(16,), arms=("rag", "fused"))
    ranks = {(case.condition["arm"], case.condition["place"]): key_rank(case) for case in cases}
    assert [ranks["rag", place] for place in PLACES] == [0, 4, 8, 11, 15]
    assert ranks["fused", 0] == 0
    assert all(ranks["fused", place] < ranks["rag", place] for place in PLACES[1:])


def test_cases_of_bounds_read_key_alone_or_nothing() -> None:
    cases = build_cases(positions, questions(1), make_study(), arms=("oracle", "closed-book", "chain-of-thought"))
    assert [case.treatment.strategy for case in cases] == ["rag", "closed-book", "chain-of-thought"]
    assert ranking_of(cases[0]).passages == (key_of(cases[0].question),)
    assert cases[1].treatment.ranking is None
    assert cases[2].treatment.ranking is None


def test_cases_with_missing_documents_raise_input_error() -> None:
    sample = questions(3)
    lost = evidence(
        gold_passages=lambda question: {} if question.id == "1" else {f"gold:{question.id}": (key_of(question),)}
    )
    with pytest.raises(InputError, match=r"1 of 3 questions has gold documents .*\(gold:1 of question '1'"):
        build_cases(positions, sample, Study(lost, PROTOCOLS["corrected"]))
    shallow = evidence(retrieve=lambda question, k: retrieve(question, 9))
    with pytest.raises(InputError, match=r"question '0': 8 documents other than the key ones .* needs 15"):
        build_cases(positions, sample, Study(shallow, PROTOCOLS["corrected"]))
    with pytest.raises(InputError, match="needs a"):
        build_cases(positions, sample, Study(evidence(reranker=None), PROTOCOLS["corrected"]), arms=EVERY_ARM)
    with pytest.raises(InputError, match="no arm is called map-reduce"):
        build_cases(positions, sample, make_study(), arms=("map-reduce",))
    with pytest.raises(InputError, match="1 of 1 question has no options, no gold letter or no gold document"):
        build_cases(positions, [Question("What?", gold="It does.", gold_documents=("gold:0",))], make_study())


# -- protocols --------------------------------------------------------------------------------------------------------


def test_cases_as_coded_partition_retrieved_order() -> None:
    """Errata C1: at every place the same prompts, while RAG reads the study's ranking."""
    cases = build_cases(positions, questions(3), make_study("as-coded"), ks=(16,), arms=("rag", "brief-context"))
    for case in cases:
        if case.condition["arm"] == "brief-context":
            assert ranking_of(case).ids == retrieve(case.question, 16).ids
            assert (case.treatment.options["partition"], case.treatment.temperature) == (8, 0.2)
        else:
            assert key_rank(case) == first_rank(int(case.condition["place"]), 16)


@pytest.mark.parametrize("protocol", ["as-coded", "as-coded-mixtral", "as-coded-llama-3"])
def test_run_as_coded_asks_and_reads_as_notebooks(tmp_path: Path, protocol: str) -> None:
    """Through the pipeline: sampling, parts, raw partial answers, choices in a format of the model's choice."""
    sample = questions(2)
    partial = '{"answer": "A. yes", "explanation": "One trial."}'
    texts: list[str] = []

    def script(request: ChatRequest) -> str:
        text = request.messages[-1].content
        texts.append(text)
        assert (request.temperature, request.max_tokens) == (0.2, 512)
        return "B. no\nThe trials differ." if "was extracted" in text else partial

    arms = ("rag", "brief-context", "closed-book")
    cases = build_cases(positions, sample, make_study(protocol), ks=(8,), places=(50,), arms=arms)
    run(cases, ScriptedModel(script), tmp_path)
    answers = {
        (record.condition["arm"], record.answer.state, record.answer.choice)
        for record in read_records(tmp_path / RECORDS)
    }
    assert answers == {
        ("rag", "answered", "A"),
        ("brief-context", "answered", "B"),
        ("closed-book", "answered", "A"),
    }
    reduces = [text for text in texts if "was extracted" in text]
    assert len(reduces) == len(sample)
    assert all(f"{partial}\n\n{partial}" in text for text in reduces), "8 documents are two parts"
    assert not any(key_of(question).text in text for question in sample for text in reduces)


def test_cases_as_published_leave_temperature_to_settings() -> None:
    cases = build_cases(positions, questions(1), make_study("published"))
    assert {case.treatment.temperature for case in cases} == {None}
    assert {case.treatment.options["partition"] for case in cases if case.condition["arm"] == "brief-context"} == {4}


# -- known answers, through the whole path ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def biased_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Case], ScriptedModel, tuple[Outcome, ...]]:
    sample = questions(N)
    cases = build_cases(
        positions, sample, make_study(), ks=(K,), arms=("rag", "brief-context", "oracle", "closed-book")
    )
    model = reader(sample, CURVE)
    return list(cases), model, run(cases, model, tmp_path_factory.mktemp("biased"))


@pytest.mark.long
def test_prompts_hold_key_at_its_place(
    biased_run: tuple[list[Case], ScriptedModel, tuple[Outcome, ...]],
) -> None:
    """Of RAG and of every map call (errata C1)."""
    _, model, _ = biased_run
    sample = {key_of(question).text: question.id for question in questions(N)}
    observed: set[tuple[str, int, int]] = set()
    for request in model.requests:
        items = unfence(request.messages[-1].content)
        observed |= {(sample[item], place, len(items)) for place, item in enumerate(items) if item in sample}
    for question in questions(N):
        for place in PLACES:
            rank = first_rank(place, K)
            assert (question.id, rank, K) in observed
            assert (question.id, rank % PARTITION, PARTITION) in observed
    assert {place for _, place, documents in observed if documents == K} == {0, 4, 8, 11, 15}


@pytest.mark.long
def test_tables_show_u_curve_for_rag_and_flat_brief_context(
    biased_run: tuple[list[Case], ScriptedModel, tuple[Outcome, ...]],
) -> None:
    averages, by_place, middle = positions.tables({"reader": biased_run[2]})
    for place in PLACES:
        rank = first_rank(place, K)
        for arm, expected in (("rag", CURVE(rank, K)), ("brief-context", CURVE(rank % PARTITION, PARTITION))):
            result = row(by_place, "reader", K, arm, place)
            assert result[SHARE_COLUMN].n == N
            assert result["wrong"] == result["unparsed"] == result["failed"] == 0
            assert near(result[SHARE_COLUMN].value, expected, N)
    gain = np.mean([CURVE(first_rank(p, K) % PARTITION, PARTITION) - CURVE(first_rank(p, K), K) for p in PLACES])
    overall = row(averages, "reader", K, "brief-context")
    difference = overall[AVERAGED_DIFFERENCE]
    assert difference.interval.low <= gain <= difference.interval.high
    assert difference.interval.low > 0
    assert overall[P_COLUMN] < 0.001
    assert (difference.n, difference.clusters) == (5 * N, N)
    assert row(averages, "reader", K, "rag")["SD over places"] > 3 * overall["SD over places"]
    assert row(averages, "reader", K, "oracle")[SHARE_COLUMN].value == 1.0
    assert row(averages, "reader", K, "closed-book")[SHARE_COLUMN].value == 0.0
    assert row(averages, "reader", K, "closed-book")["abstained"] == N
    assert row(averages, "reader", K, "oracle")[AVERAGED_DIFFERENCE].value > 0
    assert row(averages, "reader", K, "oracle")[P_COLUMN] is None, "a bound is no hypothesis"
    lost = {arm: row(middle, "reader", K, arm) for arm in ("rag", "brief-context")}
    ends = np.mean([CURVE(0, K), CURVE(K - 1, K)])
    between = np.mean([CURVE(first_rank(place, K), K) for place in (25, 50, 75)])
    interval = lost["rag"]["lost in the middle"].interval
    assert interval.low <= ends - between <= interval.high
    assert lost["brief-context"]["lost less than rag"].interval.low > 0


@pytest.mark.long
def test_tables_of_unbiased_reader_show_no_significant_difference(tmp_path: Path) -> None:
    sample = questions(N)
    cases = build_cases(positions, sample, make_study(), ks=(8,), arms=("rag", "brief-context"))
    result = run(cases, reader(sample, lambda place, documents: 1.0 if documents == 1 else 0.7), tmp_path / "run")
    for table in positions.tables({"reader": result}):
        assert min((cell for cell in table.column(P_COLUMN) if isinstance(cell, float)), default=1.0) > 0.05


# -- known answers, by the analysis alone ------------------------------------------------------------------------------


def simulate_outcomes(seed: int, shares: Mapping[str, Sequence[float]], n: int, repeats: int = 1) -> list[Outcome]:
    """Simulate outcomes with the given mean share at each place; questions differ in difficulty."""
    dice = np.random.default_rng(seed)
    ease = dice.uniform(-0.2, 0.2, n)
    return [
        Outcome(
            question=str(question),
            condition={"arm": arm, "k": 8, "place": place, "repeat": repeat},
            state="answered",
            right=bool(dice.random() < share + ease[question]),
            chance=1 / 3,
        )
        for question in range(n)
        for arm, curve in shares.items()
        for place, share in zip(PLACES, curve, strict=True)
        for repeat in range(repeats)
    ]


@pytest.mark.long
def test_tables_without_effect_have_nominal_false_alarms(monkeypatch: pytest.MonkeyPatch) -> None:
    """At most 16 of 200 seeds, for each table: any of its comparisons counts, so Holm's correction must hold."""
    monkeypatch.setattr(statistics, "RESAMPLES", 500)
    alarms = np.zeros(3, dtype=int)
    for seed in range(200):
        result = simulate_outcomes(seed, {"rag": [0.6] * 5, "brief-context": [0.6] * 5}, 20)
        for number, table in enumerate(positions.tables({"m": result})):
            alarms[number] += min(p for p in _p_values(table) if isinstance(p, float)) < 0.05
    assert max(alarms) <= 16
    assert alarms.sum() >= 8, "a test that never speaks says nothing"


def _p_values(table: Table) -> list[Cell]:
    return [cell for name in table.columns if is_p_column(name) for cell in table.column(name)]


@pytest.mark.long
def test_tables_detect_effect_at_stated_power_and_coverage(monkeypatch: pytest.MonkeyPatch) -> None:
    """And its size lies in the interval about as often as that says."""
    monkeypatch.setattr(statistics, "RESAMPLES", 1000)
    shares = {"rag": [0.7, 0.5, 0.4, 0.5, 0.7], "brief-context": [0.7] * 5}
    gain, result, covered = 0.14, 0, 0
    for seed in range(30):
        averages = positions.tables({"m": simulate_outcomes(seed, shares, 60)})[0]
        difference = row(averages, "m", 8, "brief-context")[AVERAGED_DIFFERENCE]
        result += difference.p < 0.05
        covered += difference.interval.low <= gain <= difference.interval.high
    assert result >= 29
    assert covered >= 25


def test_first_finding_is_about_the_average_over_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """The paper compares averages: each place alone may show nothing when they do."""
    monkeypatch.setattr(statistics, "RESAMPLES", 1000)
    result = simulate_outcomes(0, {"rag": [0.5] * 5, "brief-context": [0.66] * 5}, 40)
    averages, by_place, _ = tables = positions.tables({"m": result})
    assert row(averages, "m", 8, "brief-context")[P_COLUMN] < 0.05
    assert not any(isinstance(p, float) and p < 0.05 for p in by_place.column(P_COLUMN))
    first, second, *_ = conclude_from_tables((), tables)
    assert first.startswith("brief-context was right ")
    assert "more often than rag at that k, averaged over the places (" in first
    assert first == draw_headline(tables[0])
    assert second.startswith("Smaller differences")


def test_tables_separate_spread_over_places_from_spread_over_repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "RESAMPLES", 100)
    result = simulate_outcomes(1, {"rag": [0.8, 0.4, 0.4, 0.4, 0.8]}, 200, repeats=4)
    averages = positions.tables({"m": result})[0]
    spread = row(averages, "m", 8, "rag")
    assert spread["SD over places"] == pytest.approx(np.std([0.8, 0.4, 0.4, 0.4, 0.8], ddof=1), abs=0.03)
    assert 0 < spread["SD over repeats"] < 0.05
    once = positions.tables({"m": simulate_outcomes(1, {"rag": [0.5] * 5}, 20)})[0]
    assert row(once, "m", 8, "rag")["SD over repeats"] is None


def test_tables_show_bounds_without_placed_cases() -> None:
    result = [
        Outcome(question=str(i), condition={"arm": "oracle", "repeat": 0}, state="answered", right=i < 6, chance=0.5)
        for i in range(8)
    ]
    averages, by_place, middle = positions.tables({"m": result})
    assert row(averages, "m", None, "oracle")["right"] == 6
    assert by_place.rows == middle.rows == ()


def test_tables_with_missing_arm_or_place_show_no_difference() -> None:
    """Of a run that was broken off: what has no rival has no difference, and pairs are of what both were asked."""
    result = simulate_outcomes(0, {"rag": [0.5] * 5, "brief-context": [0.7] * 5}, 10)
    alone = [item for item in result if item.condition["arm"] == "brief-context"]
    averages = positions.tables({"m": alone})[0]
    assert row(averages, "m", 8, "brief-context")[AVERAGED_DIFFERENCE] is None
    short = [item for item in result if item.condition["arm"] == "rag" or item.condition["place"] in (0, 25)]
    averages, _, middle = positions.tables({"m": short})
    assert row(averages, "m", 8, "brief-context")[AVERAGED_DIFFERENCE].n == 20
    assert row(middle, "m", 8, "brief-context")["lost in the middle"].clusters == 10
    assert [row(middle, "m", 8, "rag")[name] for name in ("questions", "not compared")] == [10, 0]
    failed = [
        replace(item, state="failed", right=None)
        if item.question == "3" and item.condition["place"] in (0, 100)
        else item
        for item in result
    ]
    middle = positions.tables({"m": failed})[2]
    assert [row(middle, "m", 8, "rag")[name] for name in ("questions", "not compared")] == [10, 0]
    assert any("4 of 100 cases failed" in note for note in middle.notes)
    only = [item for item in result if item.condition["place"] == 50]
    assert row(positions.tables({"m": only})[2], "m", 8, "rag")["lost in the middle"] is None


def test_cases_of_two_documents_have_two_ends_and_no_middle() -> None:
    cases = build_cases(positions, questions(2), make_study(), ks=(2,), arms=("rag",))
    assert [(case.condition["place"], key_rank(case)) for case in cases] == 2 * [(0, 0), (100, 1)]
    outcomes = [
        Outcome(question=item.question.key, condition=item.condition, state="answered", right=True, chance=0.5)
        for item in cases
    ]
    assert row(positions.tables({"m": outcomes})[2], "m", 2, "rag")["lost in the middle"] is None


def test_tables_notes_state_protocol_and_guessing_rate() -> None:
    result = simulate_outcomes(0, {"rag": [0.5] * 5, "brief-context": [0.5] * 5, "ends": [0.5] * 5}, 10)
    for table in positions.tables({"m": result}, remarks=PROTOCOLS["published"].notes):
        text = " ".join(table.notes)
        for item in (
            "Protocol published",
            "preflight",
            "Holm",
            "of all cases",
            "are ours under every protocol",
        ):
            assert item in text
    for table in positions.tables({"m": result}):
        assert "Guessing among the options would be right in 33.3 % of the 10 questions." in table.notes
    assert set(positions.EXPERIMENT.published) <= set(load_published())
