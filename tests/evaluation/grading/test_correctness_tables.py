"""Test tables of correctness verdicts: shares, majorities, agreement and warnings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from epicrisis.evaluation.analysis.statistics import Interval, Mean, wilson
from epicrisis.evaluation.analysis.table import Table
from epicrisis.evaluation.grading.correctness import (
    EXAMPLES,
    OF_DECIDED,
    SCORED,
    SHARE,
    WROTE,
    CorrectnessGrades,
    correct_share,
    correctness_conclusions,
    correctness_remarks,
    correctness_tables,
    read_open_cases,
)
from tests.support.correctness_marks import RIGHT, folder_of, marking, run_of
from tests.support.grading import questions, record


def select_columns(table: Table, *columns: str) -> list[tuple[object, ...]]:
    return list(zip(*(table.column(name) for name in columns), strict=True))


def test_correctness_tables_show_share_with_wilson_interval_and_states(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", [RIGHT] * 10 + ["abstained", "unparsed", "failed"])
    answers, marks = correctness_tables({"qwen": marking(run, one="cccccii?uf...")})
    assert select_columns(answers, "asked", "answered", "abstained", "unparsed", "failed") == [(13, 10, 1, 1, 1)]
    (row,) = select_columns(
        marks, "judge", "correct", "incorrect", "cannot be said", "unreadable", "call failed", "not marked"
    )
    assert row == ("one", 5, 2, 1, 1, 1, 0)
    # Of 13 two have no score, as no judge gave a verdict. The failed case is not right.
    assert marks.column(SHARE) == (Mean(5 / 11, wilson(5, 11), 11, 2),)
    assert marks.column(OF_DECIDED) == (Mean(5 / 7, wilson(5, 7), 7, 6),)
    (text,) = correctness_conclusions({"qwen": marking(run, one="cccccii?uf...")})
    assert text == "qwen, by one: 45.5 % of 11 are correct (95 % interval 21.3 to 72.0)."


def test_correctness_tables_separate_arms_in_fixed_order(tmp_path: Path) -> None:
    lines = [record(question, arm, RIGHT) for arm in ("rag", "brief-context") for question in questions(4)]
    run = folder_of(tmp_path / "run", lines)
    grades = marking(run, one="ccciiiic")
    result = select_columns(correctness_tables({"qwen": grades})[1], "arm", "correct", "incorrect")
    assert result == [("brief-context", 1, 3), ("rag", 3, 1)]
    assert result == select_columns(
        correctness_tables({"qwen": replace(grades, cases=grades.cases[::-1])})[1], "arm", "correct", "incorrect"
    )
    # Both arms together: each question stands twice, so whole questions are resampled.
    share = correct_share(grades, "right")
    assert share is not None
    assert (share.value, share.n) == (0.5, 8)
    assert share.interval != wilson(4, 8)


def test_correctness_tables_without_grades_show_endings_only(tmp_path: Path) -> None:
    result = CorrectnessGrades(read_open_cases(run_of(tmp_path / "run", [RIGHT, "failed"])))
    assert [table.title for table in correctness_tables({"qwen": result})] == ["How the open questions ended"]
    assert correctness_conclusions({"qwen": result}) == ()
    nothing = marking(run_of(tmp_path / "none", ["failed"]), one=".")
    assert select_columns(correctness_tables({"qwen": nothing})[1], SHARE, OF_DECIDED, "not marked") == [
        (Mean(0.0, wilson(0, 1), 1, 0), None, 0)
    ]


def test_correctness_tables_majority_row_counts_ties_as_no_majority(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", [RIGHT] * 6)
    marks = correctness_tables({"qwen": marking(run, a="cciiuc", b="cici?c", c="ci?c?u")})[1]
    columns = ("judge", "correct", "incorrect", "cannot be said", "no majority")
    # By case: ccc, cii, ic?, iic, u??, ccu.
    assert select_columns(marks, *columns) == [
        ("a", 3, 2, 0, None),
        ("b", 3, 2, 1, None),
        ("c", 2, 1, 2, None),
        ("majority of 3 judges", 2, 2, 1, 1),
    ]
    two = correctness_tables({"qwen": marking(run, a="cciiuc", b="cici?c")})[1]
    assert select_columns(two, *columns)[-1] == ("majority of 2 judges", 2, 1, 0, 3)
    assert two.column(SHARE)[-1] == Mean(2 / 3, wilson(2, 3), 3, 3)
    assert any("more than half of all" in note for note in two.notes)


def test_agreement_of_two_judges_matches_manual_kappa_and_alpha(tmp_path: Path) -> None:
    # 4 both correct, 2 correct and incorrect, 1 the other way, 3 both incorrect; one that the second could not read.
    run = run_of(tmp_path / "run", [RIGHT] * 11)
    result = {"qwen": marking(run, a="cccccc" + "iiii" + "c", b="cccciic" + "iii" + "u")}
    agreed = correctness_tables(result)[2]
    ((judges, n, answers, raw, kappa, alpha),) = select_columns(
        agreed, "judges", "n judges", "answers", "agreement", "Cohen's kappa", "Krippendorff's alpha"
    )
    assert (judges, n, answers) == ("a and b", 2, 10)
    assert isinstance(raw, Mean)
    assert raw == Mean(0.7, wilson(7, 10), 10)
    # Expected by chance: 0.6 * 0.5 + 0.4 * 0.5.
    assert kappa == pytest.approx((0.7 - 0.5) / (1 - 0.5))
    # 11 correct and 9 incorrect among 20 words: disagreement 6 / 20 observed, 198 / 380 expected.
    assert alpha == pytest.approx(1 - (6 / 20) / (198 / 380))
    for name, value in (("kappa interval", 0.4), ("alpha interval", 0.424)):
        (interval,) = agreed.column(name)
        assert isinstance(interval, Interval)
        assert interval.low < value < interval.high
    assert (
        correctness_conclusions(result)[-1]
        == "qwen: a and b agree on 70.0 % of 10 answers (Krippendorff's alpha 0.42)."
    )


def test_alpha_of_three_judges_matches_manual_calculation(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", [RIGHT] * 4)
    agreed = correctness_tables({"qwen": marking(run, a="ccic", b="ccii", c="ciii")})[2]
    rows = select_columns(agreed, "judges", "n judges", "Cohen's kappa", "Krippendorff's alpha")
    assert [row[0] for row in rows] == ["a and b", "a and c", "b and c", "all"]
    # Six of each word; in two of the four answers one judge differs from two: 4 / 12 observed, 72 / 132 expected.
    assert rows[-1][1:] == (3, None, pytest.approx(1 - (4 / 12) / (72 / 132)))
    assert all(kappa is not None for _, _, kappa, _ in rows[:-1])


def test_agreement_interval_resamples_whole_questions(tmp_path: Path) -> None:
    """The same verdicts on four arms of each question tell no more than those on one."""
    letters = {"a": "ccccciiiiicci", "b": "ccciciiiicici"}
    once = run_of(tmp_path / "once", [RIGHT] * 13)
    often = run_of(tmp_path / "often", [RIGHT] * 13, ("r1", "r2", "r3", "r4"))
    repeated = {name: "".join(4 * letter for letter in item) for name, item in letters.items()}
    one, four = (correctness_tables({"m": item})[2] for item in (marking(once, **letters), marking(often, **repeated)))
    assert (one.column("answers"), four.column("answers")) == ((13,), (52,))
    assert one.column("Cohen's kappa") == pytest.approx(four.column("Cohen's kappa"))
    assert one.column("kappa interval") == four.column("kappa interval")


def test_correctness_conclusions_warn_of_judge_that_wrote_answers(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", [RIGHT])
    result = replace(
        marking(run, qwen="c", teacher="c", third="c"),
        models={WROTE: frozenset(["org/Qwen"]), SCORED: frozenset(), EXAMPLES: frozenset(["teacher"])},
        unknown=True,
    )
    warnings = [sentence for sentence in correctness_conclusions({"m": result}) if "P11" in sentence]
    assert [sentence.split(":")[:2] for sentence in warnings] == [
        ["Warning", " qwen judges answers and wrote them"],
        ["Warning", " teacher judges answers and wrote the examples shown for them"],
        ["The author of some examples is not known", " check that it is not a judge (errata P11)."],
    ]
    assert set(warnings) <= set(correctness_tables({"m": result})[1].notes)
    assert set(warnings) <= set(correctness_remarks(result))


def test_correctness_remarks_state_majority_and_unscored_answers(tmp_path: Path) -> None:
    result = marking(run_of(tmp_path / "run", [RIGHT] * 5), one="cc?ui", two="cc?ic")
    (note,) = correctness_remarks(result)
    assert "by majority of 2 judges" in note
    assert "Of 5 answers, 1 have the verdict `cannot be said`" in note
    assert "2 have no verdict" in note
    assert "by one. Of 5 answers" in correctness_remarks(result, "one")[0]
