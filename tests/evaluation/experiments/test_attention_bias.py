"""Test the attention-bias study with readers of known bias."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from epicrisis.core.prompts import unfence
from epicrisis.core.protocols import ChatReply, ChatRequest, DeltaCallback
from epicrisis.evaluation.analysis import statistics
from epicrisis.evaluation.analysis.grouping import P_COLUMN, SHARE_COLUMN
from epicrisis.evaluation.experiments import attention_bias
from epicrisis.evaluation.experiments.arms import Study
from epicrisis.evaluation.experiments.study_protocols import PROTOCOLS
from epicrisis.evaluation.runs.outcomes import Outcome
from epicrisis.testing.chat import ScriptedModel
from tests.support.experiments import build_cases, evidence, key_of, near, passage, questions, reader, row, run

STUDY = Study(evidence(), PROTOCOLS["corrected"])
DIFFERENCE = "difference to the same arm among retrieved documents"


class ByNeighbours(ScriptedModel):
    """Reads a prompt of random documents by one curve, any other prompt by another: the paper's hypothesis as a model,
    which no reader that knows places alone can be."""

    def __init__(self, among_random: ScriptedModel, among_retrieved: ScriptedModel) -> None:
        super().__init__(lambda _: "")
        self._among_random, self._among_retrieved = among_random, among_retrieved

    async def complete(self, request: ChatRequest, on_delta: DeltaCallback | None = None) -> ChatReply:
        items = unfence(request.messages[-1].content)
        model = self._among_random if any("Elsewhere" in item for item in items) else self._among_retrieved
        return await model.complete(request, on_delta)


def test_cases_place_key_in_middle_of_retrieved_and_random_documents() -> None:
    sample = questions(4)
    cases = build_cases(attention_bias, sample, STUDY)
    assert len(cases) == 4 * 4
    for case in cases:
        if "distractors" not in case.condition:
            continue
        assert case.treatment.ranking is not None
        ids = case.treatment.ranking.ids
        assert len(ids) == 16
        assert ids[8] == key_of(case.question).id
        random = case.condition["distractors"] == "random"
        assert {id_.partition(":")[0] for id_ in ids} == {"gold", "pool" if random else "doc"}
    by_question = {
        case.treatment.ranking.ids
        for case in cases
        if case.treatment.ranking and case.condition.get("distractors") == "random"
    }
    assert len(by_question) == 4, "each question has random documents of its own"
    strategies = {case.treatment.strategy for case in cases if "distractors" not in case.condition}
    assert strategies == {"rag", "chain-of-thought"}


def test_cases_never_use_gold_documents_as_distractors() -> None:
    sample = [replace(item, gold_documents=(*item.gold_documents, "pool:3")) for item in questions(1)]
    result = evidence(
        gold_passages=lambda question: {
            question.gold_documents[0]: (key_of(question),),
            "pool:3": (passage("pool:3", "Also gold."),),
        }
    )
    for seed in range(8):
        cases = build_cases(attention_bias, sample, Study(result, PROTOCOLS["corrected"], seed=seed))
        for case in cases:
            if "distractors" in case.condition:
                assert case.treatment.ranking is not None
                assert len({"gold:0#0", "pool:3#0"} & set(case.treatment.ranking.ids)) == 1


@pytest.mark.long
def test_tables_detect_reader_misled_by_retrieved_distractors(tmp_path: Path) -> None:
    sample = questions(60)
    model = ByNeighbours(reader(sample, lambda place, n: 0.9), reader(sample, lambda place, n: 1.0 if n == 1 else 0.5))
    result = run(build_cases(attention_bias, sample, STUDY), model, tmp_path / "run")
    (table,) = attention_bias.tables({"m": result}, remarks=PROTOCOLS["corrected"].notes)
    random, retrieved = (row(table, "m", "rag", 16, item) for item in ("random", "retrieved"))
    assert near(random[SHARE_COLUMN].value, 0.9, 60)
    assert near(retrieved[SHARE_COLUMN].value, 0.5, 60)
    assert random[DIFFERENCE].interval.low <= 0.4 <= random[DIFFERENCE].interval.high
    assert random[P_COLUMN] < 0.001
    assert retrieved[DIFFERENCE] is None
    assert row(table, "m", "oracle", None, None)[SHARE_COLUMN].value == 1.0
    assert row(table, "m", "chain-of-thought", None, None)["abstained"] == 60


@pytest.mark.slow
def test_tables_show_no_difference_for_reader_biased_by_place(tmp_path: Path) -> None:
    sample = questions(60)
    result = run(build_cases(attention_bias, sample, STUDY), reader(sample, lambda place, n: 0.6), tmp_path / "run")
    (table,) = attention_bias.tables({"m": result})
    assert row(table, "m", "rag", 16, "random")[P_COLUMN] > 0.05


def test_tables_order_rows_independently_of_outcomes() -> None:
    result = [
        Outcome(
            question="q",
            condition={"arm": "rag", "k": k, "place": 50, "distractors": name, "repeat": 0},
            state="answered",
            right=True,
            chance=0.5,
        )
        for k in (16, 8)
        for name in ("random", "retrieved")
    ]
    (table,) = attention_bias.tables({"m": result})
    assert [cells[2:4] for cells in table.rows] == [
        (8, "retrieved"),
        (8, "random"),
        (16, "retrieved"),
        (16, "random"),
    ]


@pytest.mark.long
def test_tables_without_effect_have_nominal_false_alarms(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two models in one table either may raise it."""
    monkeypatch.setattr(statistics, "RESAMPLES", 500)
    alarms = 0
    for seed in range(200):
        dice = np.random.default_rng(seed)
        runs = {
            model: [
                Outcome(
                    question=str(question),
                    condition={"arm": "rag", "k": 16, "place": 50, "distractors": distractors, "repeat": repeat},
                    state="answered",
                    right=bool(dice.random() < 0.6),
                    chance=1 / 3,
                )
                for question in range(40)
                for distractors in ("retrieved", "random")
                for repeat in range(2)
            ]
            for model in ("one", "other")
        }
        (table,) = attention_bias.tables(runs)
        alarms += min(p for p in table.column(P_COLUMN) if isinstance(p, float)) < 0.05
    assert 1 <= alarms <= 16
