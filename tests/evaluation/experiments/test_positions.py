"""The position study against a reader whose blind spot is known, and against one that has none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from epicrisis.errors import InputError
from epicrisis.evaluation.analysis import statistics
from epicrisis.evaluation.analysis.grouping import P_COLUMN, SHARE_COLUMN
from epicrisis.evaluation.analysis.published import load_published
from epicrisis.evaluation.analysis.table import Cell, Table
from epicrisis.evaluation.analysis.table_text import is_p_column
from epicrisis.evaluation.experiments import positions
from epicrisis.evaluation.experiments.arms import ARMS, UNPLACED, Study
from epicrisis.evaluation.experiments.placement import PLACES, first_rank
from epicrisis.evaluation.experiments.study_protocols import PROTOCOLS
from epicrisis.evaluation.runs.case import Case
from epicrisis.evaluation.runs.outcomes import Outcome
from epicrisis.prompts import unfence
from epicrisis.testing.chat import ScriptedModel
from epicrisis.testing.reader import u_curve
from epicrisis.types import Question, Ranking
from tests.support.experiments import evidence, found_for, key_of, near, questions, reader, retrieve, row, run

N = 48
K = 16
PARTITION = 4
CURVE = u_curve()
EVERY_ARM = tuple(ARMS)


def study(protocol: str = "corrected", **changes: Any) -> Study:
    return Study(evidence(), PROTOCOLS[protocol], **changes)


def ranking_of(case: Case) -> Ranking:
    assert case.treatment.ranking is not None
    return case.treatment.ranking


def key_rank(case: Case) -> int:
    return ranking_of(case).ids.index(key_of(case.question).id)


# -- the cases --------------------------------------------------------------------------------------------------------


def test_every_condition_once() -> None:
    asked = questions(3)
    made = positions.cases(asked, study(repeats=2), arms=EVERY_ARM)
    placed = [arm for arm in ARMS if arm not in UNPLACED]
    assert len(made) == 3 * 2 * (len(UNPLACED) + len(placed) * 2 * 5)
    assert len({case.key for case in made}) == len(made)
    assert {case.treatment.seed for case in made if case.condition["repeat"] == 1} == {1}
    assert {case.treatment.temperature for case in made} == {0.0}
    assert [case.question.id for case in made] == sorted(case.question.id for case in made)


@pytest.mark.parametrize("k", [8, 16])
def test_all_arms_read_the_same_passages_and_the_key_is_where_it_was_put(k: int) -> None:
    made = [case for case in positions.cases(questions(4), study(), ks=(k,), arms=EVERY_ARM) if "k" in case.condition]
    sets = {(case.question.id, frozenset(ranking_of(case).ids)) for case in made}
    assert len(sets) == 4, "one set of passages a question"
    for case in made:
        rank = first_rank(int(case.condition["place"]), k)
        if case.condition["arm"] in ("rag", "brief-context"):
            assert key_rank(case) == rank
            others = [id_ for id_ in ranking_of(case).ids if id_ != key_of(case.question).id]
            found = [each.id for each in found_for(case.question) if each.id != key_of(case.question).id]
            assert others == found[: k - 1], "the others stand as they were found"
        elif case.condition["arm"] == "ends":
            assert key_rank(case) == (rank // 2 if rank % 2 == 0 else k - 1 - rank // 2)


def test_a_reranker_puts_the_key_at_one_place_wherever_it_stood() -> None:
    made = [case for case in positions.cases(questions(2), study(), arms=("reranked",)) if case.question.id == "1"]
    assert len({(case.condition["k"], ranking_of(case).ids) for case in made}) == 2


def test_fusion_moves_the_key_towards_where_words_put_it() -> None:
    made = positions.cases(questions(1), study(), ks=(16,), arms=("rag", "fused"))
    ranks = {(case.condition["arm"], case.condition["place"]): key_rank(case) for case in made}
    assert [ranks["rag", place] for place in PLACES] == [0, 4, 8, 11, 15]
    assert ranks["fused", 0] == 0
    assert all(ranks["fused", place] < ranks["rag", place] for place in PLACES[1:])


def test_bounds_see_the_key_alone_or_nothing() -> None:
    made = positions.cases(questions(1), study(), arms=("oracle", "closed-book", "chain-of-thought"))
    assert [case.treatment.strategy for case in made] == ["rag", "closed-book", "chain-of-thought"]
    assert ranking_of(made[0]).passages == (key_of(made[0].question),)
    assert made[1].treatment.ranking is None
    assert made[2].treatment.ranking is None


def test_what_is_missing_is_an_error_before_anything_is_asked() -> None:
    asked = questions(3)
    lost = evidence(
        gold_passages=lambda question: {} if question.id == "1" else {f"gold:{question.id}": (key_of(question),)}
    )
    with pytest.raises(InputError, match=r"1 of 3 questions have gold documents .*\(gold:1 of question '1'"):
        positions.cases(asked, Study(lost, PROTOCOLS["corrected"]))
    shallow = evidence(retrieve=lambda question, k: retrieve(question, 9))
    with pytest.raises(InputError, match=r"question '0': 8 documents other than the key ones .* needs 15"):
        positions.cases(asked, Study(shallow, PROTOCOLS["corrected"]))
    for without in ("reranker", "words"):
        with pytest.raises(InputError, match="needs a"):
            positions.cases(asked, Study(evidence(**{without: None}), PROTOCOLS["corrected"]), arms=EVERY_ARM)
    with pytest.raises(InputError, match="no arm is called map-reduce"):
        positions.cases(asked, study(), arms=("map-reduce",))
    with pytest.raises(InputError, match="1 of 1 questions have no options, no gold letter or no gold document"):
        positions.cases([Question("What?", gold="It does.", gold_documents=("gold:0",))], study())


# -- protocols --------------------------------------------------------------------------------------------------------


def test_as_coded_map_reduce_reads_what_was_retrieved() -> None:
    """Errata C1: at every place the same prompts, while RAG reads the study's ranking."""
    made = positions.cases(questions(3), study("as-coded"), ks=(16,), arms=("rag", "brief-context"))
    for case in made:
        if case.condition["arm"] == "brief-context":
            assert ranking_of(case).ids == retrieve(case.question, 16).ids
            assert (case.treatment.partition, case.treatment.temperature) == (8, 0.2)
        else:
            assert key_rank(case) == first_rank(int(case.condition["place"]), 16)


def test_published_leaves_the_temperature_to_the_settings() -> None:
    made = positions.cases(questions(1), study("published"))
    assert {case.treatment.temperature for case in made} == {None}
    assert {case.treatment.partition for case in made if case.condition["arm"] == "brief-context"} == {4}


# -- known answers, through the whole path ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def biased(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Case], ScriptedModel, tuple[Outcome, ...]]:
    asked = questions(N)
    made = positions.cases(asked, study(), ks=(K,), arms=("rag", "brief-context", "oracle", "closed-book"))
    model = reader(asked, CURVE)
    return list(made), model, run(made, model, tmp_path_factory.mktemp("biased"))


def test_the_prompts_hold_the_key_where_the_study_put_it(
    biased: tuple[list[Case], ScriptedModel, tuple[Outcome, ...]],
) -> None:
    """Of RAG and of every map call (errata C1)."""
    _, model, _ = biased
    asked = {key_of(question).text: question.id for question in questions(N)}
    seen: set[tuple[str, int, int]] = set()
    for request in model.requests:
        items = unfence(request.messages[-1].content)
        seen |= {(asked[item], place, len(items)) for place, item in enumerate(items) if item in asked}
    for question in questions(N):
        for place in PLACES:
            rank = first_rank(place, K)
            assert (question.id, rank, K) in seen
            assert (question.id, rank % PARTITION, PARTITION) in seen
    assert {place for _, place, documents in seen if documents == K} == {0, 4, 8, 11, 15}


def test_rag_is_a_u_and_brief_context_is_flat(biased: tuple[list[Case], ScriptedModel, tuple[Outcome, ...]]) -> None:
    by_place, averages, middle = positions.tables({"reader": biased[2]})
    for place in PLACES:
        rank = first_rank(place, K)
        for arm, expected in (("rag", CURVE(rank, K)), ("brief-context", CURVE(rank % PARTITION, PARTITION))):
            found = row(by_place, "reader", K, arm, place)
            assert found[SHARE_COLUMN].n == N
            assert found["wrong"] == found["unparsed"] == found["failed"] == 0
            assert near(found[SHARE_COLUMN].value, expected, N)
    gain = np.mean([CURVE(first_rank(p, K) % PARTITION, PARTITION) - CURVE(first_rank(p, K), K) for p in PLACES])
    overall = row(averages, "reader", K, "brief-context")
    difference = overall["difference to rag at that k"]
    assert difference.interval.low <= gain <= difference.interval.high
    assert difference.interval.low > 0
    assert overall[P_COLUMN] < 0.001
    assert (difference.n, difference.clusters) == (5 * N, N)
    assert row(averages, "reader", K, "rag")["SD over places"] > 3 * overall["SD over places"]
    assert row(averages, "reader", K, "oracle")[SHARE_COLUMN].value == 1.0
    assert row(averages, "reader", K, "closed-book")[SHARE_COLUMN].value == 0.0
    assert row(averages, "reader", K, "closed-book")["abstained"] == N
    assert row(averages, "reader", K, "oracle")["difference to rag at that k"].value > 0
    assert row(averages, "reader", K, "oracle")[P_COLUMN] is None, "a bound is no hypothesis"
    lost = {arm: row(middle, "reader", K, arm) for arm in ("rag", "brief-context")}
    ends = np.mean([CURVE(0, K), CURVE(K - 1, K)])
    between = np.mean([CURVE(first_rank(place, K), K) for place in (25, 50, 75)])
    interval = lost["rag"]["lost in the middle"].interval
    assert interval.low <= ends - between <= interval.high
    assert lost["brief-context"]["lost less than rag"].interval.low > 0


def test_only_of_those_answered_the_reader_is_never_wrong(
    biased: tuple[list[Case], ScriptedModel, tuple[Outcome, ...]],
) -> None:
    by_place, _, _ = positions.tables({"reader": biased[2]}, measure="right-of-answered")
    found = row(by_place, "reader", K, "rag", 50)
    assert found[SHARE_COLUMN].value == 1.0
    assert found[SHARE_COLUMN].n == N - found["abstained"]
    assert found[SHARE_COLUMN].unscored == found["abstained"] > 0


def test_an_unbiased_reader_gives_no_alarm(tmp_path: Path) -> None:
    asked = questions(N)
    made = positions.cases(asked, study(), ks=(8,), arms=("rag", "brief-context"))
    found = run(made, reader(asked, lambda place, documents: 1.0 if documents == 1 else 0.7), tmp_path / "run")
    for table in positions.tables({"reader": found}):
        assert min((cell for cell in table.column(P_COLUMN) if isinstance(cell, float)), default=1.0) > 0.05


# -- known answers, by the analysis alone ------------------------------------------------------------------------------


def simulated(seed: int, shares: Mapping[str, Sequence[float]], n: int, repeats: int = 1) -> list[Outcome]:
    """Each question has an ease of its own, so that its answers are alike; the mean share at each place is as told."""
    dice = np.random.default_rng(seed)
    ease = dice.uniform(-0.2, 0.2, n)
    return [
        Outcome(
            str(question),
            {"arm": arm, "k": 8, "place": place, "repeat": repeat},
            "answered",
            bool(dice.random() < share + ease[question]),
            1 / 3,
        )
        for question in range(n)
        for arm, curve in shares.items()
        for place, share in zip(PLACES, curve, strict=True)
        for repeat in range(repeats)
    ]


def test_no_false_alarms(monkeypatch: pytest.MonkeyPatch) -> None:
    """At most 16 of 200 seeds, for each table: any of its comparisons counts, so Holm's correction must hold."""
    monkeypatch.setattr(statistics, "RESAMPLES", 500)
    alarms = np.zeros(3, dtype=int)
    for seed in range(200):
        found = simulated(seed, {"rag": [0.6] * 5, "brief-context": [0.6] * 5}, 20)
        for number, table in enumerate(positions.tables({"m": found})):
            alarms[number] += min(p for p in _p_values(table) if isinstance(p, float)) < 0.05
    assert max(alarms) <= 16
    assert alarms.sum() >= 8, "a test that never speaks says nothing"


def _p_values(table: Table) -> list[Cell]:
    return [cell for name in table.columns if is_p_column(name) for cell in table.column(name)]


def test_an_effect_is_found_as_often_as_it_should(monkeypatch: pytest.MonkeyPatch) -> None:
    """And its size lies in the interval about as often as that says."""
    monkeypatch.setattr(statistics, "RESAMPLES", 1000)
    shares = {"rag": [0.7, 0.5, 0.4, 0.5, 0.7], "brief-context": [0.7] * 5}
    gain, found, covered = 0.14, 0, 0
    for seed in range(30):
        averages = positions.tables({"m": simulated(seed, shares, 60)})[1]
        difference = row(averages, "m", 8, "brief-context")["difference to rag at that k"]
        found += difference.p < 0.05
        covered += difference.interval.low <= gain <= difference.interval.high
    assert found >= 29
    assert covered >= 25


def test_spreads_over_places_and_over_repeats_are_two_things(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "RESAMPLES", 100)
    found = simulated(1, {"rag": [0.8, 0.4, 0.4, 0.4, 0.8]}, 200, repeats=4)
    averages = positions.tables({"m": found})[1]
    spread = row(averages, "m", 8, "rag")
    assert spread["SD over places"] == pytest.approx(np.std([0.8, 0.4, 0.4, 0.4, 0.8], ddof=1), abs=0.03)
    assert 0 < spread["SD over repeats"] < 0.05
    once = positions.tables({"m": simulated(1, {"rag": [0.5] * 5}, 20)})[1]
    assert row(once, "m", 8, "rag")["SD over repeats"] is None


def test_bounds_are_shown_where_nothing_was_placed() -> None:
    found = [Outcome(str(i), {"arm": "oracle", "repeat": 0}, "answered", i < 6, 0.5) for i in range(8)]
    by_place, averages, middle = positions.tables({"m": found})
    assert row(averages, "m", None, "oracle")["right"] == 6
    assert by_place.rows == middle.rows == ()


def test_an_arm_or_a_place_that_is_missing_is_no_zero() -> None:
    """Of a run that was broken off: what has no rival has no difference, and pairs are of what both were asked."""
    found = simulated(0, {"rag": [0.5] * 5, "brief-context": [0.7] * 5}, 10)
    alone = [each for each in found if each.condition["arm"] == "brief-context"]
    averages = positions.tables({"m": alone})[1]
    assert row(averages, "m", 8, "brief-context")["difference to rag at that k"] is None
    short = [each for each in found if each.condition["arm"] == "rag" or each.condition["place"] in (0, 25)]
    _, averages, middle = positions.tables({"m": short})
    assert row(averages, "m", 8, "brief-context")["difference to rag at that k"].n == 20
    assert row(middle, "m", 8, "brief-context")["lost in the middle"].clusters == 10
    assert [row(middle, "m", 8, "rag")[name] for name in ("questions", "not scored")] == [10, 0]
    failed = [
        replace(each, state="failed", right=None)
        if each.question == "3" and each.condition["place"] in (0, 100)
        else each
        for each in found
    ]
    middle = positions.tables({"m": failed})[2]
    assert [row(middle, "m", 8, "rag")[name] for name in ("questions", "not scored")] == [9, 1]
    only = [each for each in found if each.condition["place"] == 50]
    assert row(positions.tables({"m": only})[2], "m", 8, "rag")["lost in the middle"] is None


def test_two_documents_have_two_ends_and_no_middle() -> None:
    made = positions.cases(questions(2), study(), ks=(2,), arms=("rag",))
    assert [(case.condition["place"], key_rank(case)) for case in made] == 2 * [(0, 0), (100, 1)]
    outcomes = [Outcome(each.question.key, each.condition, "answered", True, 0.5) for each in made]
    assert row(positions.tables({"m": outcomes})[2], "m", 2, "rag")["lost in the middle"] is None


def test_the_tables_name_what_they_need() -> None:
    found = simulated(0, {"rag": [0.5] * 5, "brief-context": [0.5] * 5, "ends": [0.5] * 5}, 10)
    for table in positions.tables({"m": found}, remarks=PROTOCOLS["published"].notes):
        said = " ".join(table.notes)
        for each in (
            "Protocol published",
            "preflight",
            "Holm",
            "did not fail",
            "are ours under every protocol",
        ):
            assert each in said
    for table in positions.tables({"m": found}):
        assert "Guessing among the options would be right in 33.3 % of the 10 questions." in table.notes
    assert set(positions.EXPERIMENT.published) <= set(load_published())
