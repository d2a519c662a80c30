"""Test judges against human scores with built-in biases."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from epicrisis.core.errors import EndpointTimeout, InputError
from epicrisis.core.prompts import unfence
from epicrisis.core.protocols import ChatRequest
from epicrisis.core.types import Passage
from epicrisis.evaluation.grading.blind_pairs import BlindPair
from epicrisis.evaluation.grading.calibration import (
    CALIBRATION,
    GraderCalibration,
    calibrate_grader,
    calibration_tables,
    compare_grades,
    read_calibration,
)
from epicrisis.evaluation.grading.human_scores import (
    RATES,
    PreferencePair,
    Summary,
    read_preference_pairs,
    read_summaries,
    sample_items,
)
from epicrisis.evaluation.grading.measurers import metric_name
from epicrisis.evaluation.grading.scored_answers import ScoredAnswer
from tests.support.measuring import JUDGE, asker_of, graded, requests_of


def make_summary(i: int, share: float) -> Summary:
    """Return a summary whose text is its human score."""
    talk = Passage(id=f"talk:{i // 4}#0", document_id=f"talk:{i // 4}", ordinal=0, start=0, end=4, text="Doctor: well?")
    response = ScoredAnswer(
        key=f"s{i}",
        question="Sum up.",
        references=("the note",),
        answer=f"{share}",
        question_key=f"talk:{i // 4}",
        given=(talk,),
    )
    return Summary(response, str(i // 4), {name: 1 - share if "Rate" in name else share for name in RATES})


SUMMARIES = [make_summary(i, (i % 5) / 4) for i in range(40)]
PAIRS = [
    PreferencePair(
        BlindPair(f"p{i}", f"Do {i}.", *(("good", "bad") if i % 2 else ("bad", "good"))), "1" if i % 2 else "2", "all"
    )
    for i in range(20)
]


def make_judge(grade: Callable[[float], int], choice: Callable[[Sequence[str]], str]) -> Callable[[ChatRequest], str]:
    def script(request: ChatRequest) -> str:
        texts = unfence(request.messages[-1].content)
        if len(texts) == 2:
            return json.dumps({"reason": "x", "verdict": choice(texts)})
        result = grade(float(texts[2]))
        return graded(result, result, result)

    return script


def grade_fairly(share: float) -> int:
    return round(1 + 4 * share)


def choose_good(texts: Sequence[str]) -> str:
    return str(texts.index("good") + 1)


def run_calibration(tmp_path: Path, script: Callable[[ChatRequest], str], **fields: bool) -> GraderCalibration:
    return asyncio.run(calibrate_grader(asker_of(script), tmp_path, SUMMARIES, PAIRS, **fields))  # type: ignore[arg-type]


def test_calibration_of_perfect_judge_has_full_agreement(tmp_path: Path) -> None:
    result = run_calibration(tmp_path, make_judge(grade_fairly, choose_good))
    assert {item.aspect for item in result.with_people} == {"correctness", "completeness", "faithfulness"}
    assert all(item.spearman == pytest.approx(1) and item.kappa == pytest.approx(1) for item in result.with_people)
    choices = result.choices[0]
    assert choices.accuracy is not None
    assert (choices.accuracy.value, choices.right, choices.changed, choices.first) == (1.0, 20, 0, 20)


@pytest.mark.slow
def test_calibration_of_mild_and_contrary_judges_has_expected_coefficients(tmp_path: Path) -> None:
    mild = run_calibration(tmp_path / "mild", make_judge(lambda share: 5 if share >= 0.5 else 4, choose_good))
    contrary = run_calibration(tmp_path / "contrary", make_judge(lambda share: 6 - grade_fairly(share), choose_good))
    for gentle, against in zip(mild.with_people, contrary.with_people, strict=True):
        assert gentle.spearman is not None
        assert gentle.kappa is not None
        assert gentle.spearman > 0.8 > 0.4 > gentle.kappa > 0
        assert against.spearman == pytest.approx(-1)
        assert against.kappa is not None
        assert against.kappa < -0.9


@pytest.mark.parametrize(
    ("choice", "accuracy", "changed", "tied", "first"),
    [
        (lambda texts: "1", 0.5, 20, 0, 40),
        (lambda texts: "2", 0.5, 20, 0, 0),
        (lambda texts: "tie", 0.5, 0, 20, 0),
        (lambda texts: str(texts.index("bad") + 1), 0.0, 0, 0, 20),
        (lambda texts: "1" if texts[0] == "good" else "tie", 0.75, 20, 0, 20),
    ],
)
def test_calibration_of_guessing_judge_has_half_accuracy(
    tmp_path: Path, choice: Callable[[Sequence[str]], str], accuracy: float, changed: int, tied: int, first: int
) -> None:
    choices = run_calibration(tmp_path, make_judge(grade_fairly, choice)).choices[0]
    assert choices.accuracy is not None
    assert (choices.accuracy.value, choices.changed, choices.tied, choices.first) == (accuracy, changed, tied, first)


@pytest.mark.slow
def test_calibration_counts_missing_verdicts_in_no_figure(tmp_path: Path) -> None:
    def script(request: ChatRequest) -> str:
        texts = unfence(request.messages[-1].content)
        if len(texts) == 2 and texts[0] == "bad" and "Do 3." in request.messages[-1].content:
            raise EndpointTimeout("too late: wait")
        return "no grade" if texts[-1] == "0.0" else make_judge(grade_fairly, choose_good)(request)

    result = run_calibration(tmp_path, script)
    assert [(item.n, item.unscored) for item in result.with_people] == [(32, 8)] * 5
    choices = result.choices[0]
    assert (choices.pairs, choices.complete_pairs) == (20, 19)
    assert choices.accuracy is not None
    assert choices.accuracy.unscored == 1
    asker = asker_of(script)
    asyncio.run(calibrate_grader(asker, tmp_path, SUMMARIES, PAIRS))
    assert len(requests_of(asker)) == 1, "the failed call alone is made again"


def test_calibration_is_saved_and_read_back(tmp_path: Path) -> None:
    result = run_calibration(tmp_path, make_judge(grade_fairly, choose_good))
    assert read_calibration(tmp_path / CALIBRATION) == result
    grades, choices = calibration_tables(result)
    assert len(grades.rows) == 5
    assert choices.column("accuracy")[0] == result.choices[0].accuracy
    (tmp_path / CALIBRATION).write_text("{}")
    with pytest.raises(InputError, match="is not a calibration"):
        read_calibration(tmp_path / CALIBRATION)


def test_compare_grades_has_row_for_faithfulness_to_notes() -> None:
    grades = {item.answer.key: {metric_name("judge-faithful-to-notes", JUDGE): 1.0} for item in SUMMARIES}
    rows = compare_grades(grades, SUMMARIES, JUDGE)
    assert [row.aspect for row in rows] == ["faithful-to-notes"] * 2
    assert [row.spearman for row in rows] == [None, None], "one grade for all ranks nothing"
    assert [row.same for row in rows] == [0.2, 0.2]


def test_sample_items_of_smaller_size_is_subset() -> None:
    some, more = sample_items(range(100), 10, 3), sample_items(range(100), 20, 3)
    assert set(some) < set(more)
    assert list(some) == sorted(some)
    assert sample_items(range(100), 10, 4) != some
    assert sample_items(range(5), None, 0) == sample_items(range(5), 9, 0) == tuple(range(5))


# -- real files -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.data
def test_mts_dialog_scores_belong_to_their_summaries(data_folder: Path) -> None:
    summaries = read_summaries(data_folder / "judge")
    assert len(summaries) == 400
    assert len({item.conversation for item in summaries}) == 100
    assert len({item.answer.key for item in summaries}) == 400

    def shared(each: Summary) -> float:
        gold, reply = (set(text.lower().split()) for text in (each.answer.references[0], each.answer.answer))
        return len(gold & reply) / len(gold)

    # Words recalled go with facts recalled row by row, and not once the scores are moved by a row.
    grades = [{metric_name("judge-completeness", JUDGE): shared(item)} for item in summaries]
    aligned = dict(zip((item.answer.key for item in summaries), grades, strict=True))
    moved = dict(zip((item.answer.key for item in summaries), grades[1:] + grades[:1], strict=True))
    here, there = (compare_grades(item, summaries, JUDGE)[0].spearman for item in (aligned, moved))
    assert here is not None
    assert there is not None
    assert here > 0.35 > 0.2 > there
    assert sum(item.scores["HallucinationRate"] == 0 for item in summaries) == 367
    assert sum("OmissionRate" not in item.scores for item in summaries) == 2, "people gave none"


@pytest.mark.data
def test_llmbar_has_419_pairs_in_five_subsets(data_folder: Path) -> None:
    pairs = read_preference_pairs(data_folder / "judge")
    assert len(pairs) == len({pair.pair.id for pair in pairs}) == 419
    sizes = {name: sum(pair.subset == name for pair in pairs) for name in dict.fromkeys(pair.subset for pair in pairs)}
    assert sizes == {
        "Adversarial/GPTInst": 92,
        "Adversarial/GPTOut": 47,
        "Adversarial/Manual": 46,
        "Adversarial/Neighbor": 134,
        "Natural": 100,
    }
    assert {pair.right for pair in pairs} == {"1", "2"}
