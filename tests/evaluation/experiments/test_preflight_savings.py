"""Test both errors of a rule and its savings against manual calculation."""

from __future__ import annotations

import pytest

from epicrisis.answering.reply_parsing import AnswerFormat
from epicrisis.core.protocols import StoredDocument
from epicrisis.core.types import Passage, Question, Scope
from epicrisis.evaluation.analysis.statistics import sign_test
from epicrisis.evaluation.experiments.preflight_calibration import (
    HeldOutResult,
    PreflightCalibration,
    errors_table,
    estimated_shape,
    savings_table,
)
from epicrisis.evaluation.experiments.preflight_rules import PUBLISHED, Label, Rule
from epicrisis.evaluation.experiments.recorded_rankings import QuestionRankings
from epicrisis.evaluation.experiments.token_costs import PromptShape
from epicrisis.models.chat.call_costs import estimate_tokens
from epicrisis.retrieval.preflight import Signal
from epicrisis.testing.hashing_encoder import HashingEncoder
from epicrisis.testing.stores import MemoryStore
from tests.support.experiments import row, rows

SHAPE = PromptShape(context=1000, instruction=100, output=50, parts=4)


def make_results(label: Label, pairs: str) -> list[HeldOutResult]:
    """Return results from letters: f agrees by the fitted rule only, p by the papers' only, b by both, n by neither."""
    return [HeldOutResult(f"{label}{i}", label, item in "fb", item in "pb", 0.5) for i, item in enumerate(pairs)]


def make_calibration(*parts: list[HeldOutResult], recall: float | None = None) -> PreflightCalibration:
    item = tuple(one for part in parts for one in part)
    return PreflightCalibration(Rule(Signal("dense-gap", 5), 0.25), PUBLISHED, recall, (), item)


DONE = make_calibration(
    make_results("no-issue", "fffffbpnnn"), make_results("issue", "ppfn"), make_results("no-key", "fb")
)


def test_errors_table_matches_manual_rates() -> None:
    table = errors_table(DONE, "here")
    papers, fitted = row(table, "papers' rule"), row(table, "fitted, held out")
    assert (papers["missed where needed"].value, papers["missed where needed"].n) == (2 / 4, 4)
    assert (fitted["missed where needed"].value, fitted["missed where needed"].n) == (1 / 4, 4)
    assert papers["run where not needed"].value == pytest.approx(8 / 10)
    assert fitted["run where not needed"].value == pytest.approx(4 / 10)
    assert papers["skipped"].value == pytest.approx((2 + 2 + 1) / 16)
    assert (papers["questions"], papers["apart"]) == (14, 2)
    for name in ("missed where needed", "run where not needed", "skipped"):
        assert papers[name].interval.low < papers[name].value < papers[name].interval.high
    less = row(table, "fitted, held out, less papers'")
    needless = less["run where not needed"]
    assert needless.value == pytest.approx(-0.4)
    assert needless.interval.low < -0.4 < needless.interval.high
    assert needless.p == 2 * sign_test(5, 1), "corrected for two"
    assert less["missed where needed"].value == pytest.approx(-1 / 4)
    assert (table.source, "dense-gap@5 > 0.25" in table.notes[1]) == ("here", True)
    assert "no more than the papers' rule" in table.notes[1]
    assert (
        "a recall of at least 0.9"
        in errors_table(make_calibration(*([result] for result in DONE.results), recall=0.9)).notes[1]
    )


def test_savings_table_lies_between_always_and_never() -> None:
    """Always: 1000 + 4 (100) + 100 + 4 (50) in, 5 (50) out; never: 1100 in, 50 out."""
    table = savings_table(
        SHAPE, {"a quarter": 0.25}, lambda usage: (usage.prompt_tokens + 2 * usage.completion_tokens) / 1000, "as given"
    )
    assert [row[:5] for row in table.rows] == [
        ("always map-reduce", 0.0, 5, 1700, 250),
        ("a quarter", 0.25, 4, 0.25 * 1100 + 0.75 * 1700, 0.25 * 50 + 0.75 * 250),
        ("never map-reduce", 1.0, 1, 1100, 50),
    ]
    always, quarter, never = rows(table)
    assert [item["US dollars for 1,000 questions"] for item in (always, quarter, never)] == [2200, 1950, 1200]
    assert [item["US dollars saved"] for item in (always, quarter, never)] == pytest.approx([0, 250, 1000])
    assert quarter["tokens saved"] == pytest.approx(1 - 1750 / 1950)
    text = " ".join(table.notes)
    for item in ("Assumed: 1,000 tokens of passages, 100 of instruction", "4.0 parts", "no prefix cache", "as given"):
        assert item in text


def test_savings_table_with_unknown_price_has_no_dollars() -> None:
    table = savings_table(SHAPE, {}, lambda _: None, "not known")
    assert table.column("US dollars for 1,000 questions") == (None, None)
    assert table.column("US dollars saved") == (None, None)


def test_mean_shape_uses_passages_that_are_read() -> None:
    encoder, store = HashingEncoder(), MemoryStore()
    texts = [f"Trial {i} of aspirin {'and stroke ' * i}." for i in range(6)]
    for i, text in enumerate(texts):
        passage = Passage(id=f"d{i}#0", document_id=f"d{i}", ordinal=0, start=0, end=len(text), text=text)
        store.add([StoredDocument(f"d{i}", "sha", (passage,), encoder.encode_passages([("", text)]))])

    def asked(number: int, *read: int) -> tuple[Question, QuestionRankings]:
        question = Question(f"What of {number}?", options={"A": "yes", "B": "no"}, id=str(number))
        return question, QuestionRankings(
            key=question.key,
            dataset="set",
            dense=(),
            bm25=(),
            reranked=None,
            read=tuple(f"d{i}#0" for i in read),
            gold=(),
            held=(),
        )

    def shape(*each: tuple[Question, QuestionRankings]) -> PromptShape:
        return estimated_shape(each, store, lambda question: Scope(), k=5, partition=2)

    one = shape(asked(1, 5, 4, 3, 2, 1, 0))
    assert one.context == sum(estimate_tokens(texts[i]) for i in (5, 4, 3, 2, 1))
    assert one.parts == 3
    assert one.output == AnswerFormat({"A": "", "B": ""}, documents=5).max_tokens / 4
    assert 50 < one.instruction < 1000
    both = shape(asked(1, 5, 4, 3, 2, 1, 0), asked(2, 0), asked(3))
    assert both.context == pytest.approx((one.context + estimate_tokens(texts[0])) / 2), (
        "who found nothing reads nothing"
    )
    assert both.parts == 2
    assert shape() == shape(asked(3)) == PromptShape(0, 0, 0, 0)


def test_savings_table_of_empty_prompts_has_no_saving() -> None:
    nothing = PromptShape(0, 0, 0, 0)
    assert savings_table(nothing, {}, lambda usage: 0.0, "none").column("tokens saved") == (
        None,
        None,
    )
