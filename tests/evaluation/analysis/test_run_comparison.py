"""Test the comparison of runs: pairs, tests, and differences of their settings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.multitest import multipletests

from epicrisis.core.errors import InputError
from epicrisis.core.types import Question
from epicrisis.evaluation.analysis.conclusions import DIFFERENCE_TO
from epicrisis.evaluation.analysis.findings import Findings
from epicrisis.evaluation.analysis.grouping import DIFFERENCE_BOUNDS, P_COLUMN, SHARE_BOUNDS, SHARE_COLUMN
from epicrisis.evaluation.analysis.run_comparison import compare_run_files
from epicrisis.evaluation.analysis.statistics import Difference, Interval, Mean
from epicrisis.evaluation.analysis.table import Cell, Table
from epicrisis.pipeline.recording.case import Condition
from tests.support.run_folders import QUESTIONS, Outcome, answers, folder, recipe

DIFFERENCE = f"{DIFFERENCE_TO}the other"


def find_table(found: Findings, title: str) -> Table:
    return next(table for table in found.tables if table.title.startswith(title))


def list_rows(table: Table) -> list[Mapping[str, Cell]]:
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def list_difference_rows(*paths: Path, **fields: Any) -> list[Mapping[str, Cell]]:
    return list_rows(find_table(compare_run_files(paths, **fields), "Differences"))


def get_difference(row: Mapping[str, Cell]) -> Difference:
    result = row[DIFFERENCE]
    assert isinstance(result, Difference)
    return result


@pytest.mark.slow
def test_compare_two_runs_matches_manual_counts(tmp_path: Path) -> None:
    """20 both right, 12 the second alone, 4 the first alone, 4 neither."""
    first = folder(tmp_path / "rag", lambda i, _: i < 24)
    second = folder(tmp_path / "new", lambda i, _: i < 20 or 24 <= i < 36)
    (row,) = list_difference_rows(first, second)
    assert (row["run"], row["against"]) == ("new", "rag")
    assert [row[name] for name in ("pairs", "won", "lost", "not scored", "test")] == [40, 12, 4, 0, "McNemar"]
    result = get_difference(row)
    assert result.value == pytest.approx(8 / 40)
    assert result.p == pytest.approx(mcnemar([[20, 12], [4, 4]], exact=True).pvalue)
    assert row[P_COLUMN] == result.p, "one comparison"
    assert result.interval.low < 0.2 < result.interval.high


def test_runs_table_counts_each_state_separately(tmp_path: Path) -> None:
    states: dict[int, Outcome] = {0: "failed", 1: "abstained", 2: "unparsed"}
    first = folder(tmp_path / "a", lambda i, _: states.get(i, i % 2 == 0))
    (row,) = list_rows(find_table(compare_run_files([first]), "The runs"))
    assert [row[name] for name in ("right", "wrong", "abstained", "unparsed", "failed")] == [18, 19, 1, 1, 1]
    share = row[SHARE_COLUMN]
    assert isinstance(share, Mean)
    assert (share.value, share.n, share.unscored) == (18 / 40, 40, 0)
    assert row[SHARE_BOUNDS] == Interval(18 / 40, 19 / 40, 1.0)
    assert "33.3 % of the 40 questions" in " ".join(compare_run_files([first]).tables[0].notes)


def test_comparison_counts_unpaired_and_unscored_questions(tmp_path: Path) -> None:
    """20 questions are in one run alone, 10 in the other; of the 10 in both one failed, which is not right."""
    first = answers(tmp_path / "a.jsonl", lambda i: True, questions=QUESTIONS[:30])
    second = answers(tmp_path / "b.jsonl", lambda i: "failed" if i == 0 else i < 5, questions=QUESTIONS[20:])
    (row,) = list_difference_rows(first, second)
    assert [row[name] for name in ("pairs", "only in the run", "only in the other", "not scored")] == [10, 10, 20, 0]
    assert get_difference(row).value == pytest.approx(-0.6)
    bounds = row[DIFFERENCE_BOUNDS]
    assert isinstance(bounds, Interval)
    assert [bounds.low, bounds.high] == pytest.approx([-0.6, -0.5])


def test_comparison_measure_selects_scored_cases(tmp_path: Path) -> None:
    first = answers(tmp_path / "a.jsonl", lambda i: i < 20)
    second = answers(tmp_path / "b.jsonl", lambda i: "abstained" if i >= 20 else i < 20)
    (row,) = list_difference_rows(first, second)
    assert (row["pairs"], get_difference(row).value) == (40, 0)
    (row,) = list_difference_rows(first, second, measure="right-of-answered")
    assert (row["pairs"], row["not scored"], get_difference(row).value) == (20, 20, 0)


@pytest.mark.slow
def test_comparison_corrects_all_pairs_together(tmp_path: Path) -> None:
    runs = [
        answers(tmp_path / "a.jsonl", lambda i: i < 10),
        answers(tmp_path / "b.jsonl", lambda i: i < 17),
        answers(tmp_path / "c.jsonl", lambda i: i < 30),
    ]
    rows = list_difference_rows(*runs)
    assert [(row["run"], row["against"]) for row in rows] == [("b", "a"), ("c", "a"), ("c", "b")]
    expected = multipletests([get_difference(row).p for row in rows], method="holm")[1]
    assert [row[P_COLUMN] for row in rows] == pytest.approx(list(expected))


ARMS: list[Condition] = [
    *({"arm": arm, "k": 8, "place": place, "repeat": 0} for arm in ("rag", "brief-context") for place in (0, 50, 100)),
    {"arm": "oracle", "repeat": 0},
]
FEW = QUESTIONS[:12]
ASKED = {"arms": ["rag", "brief-context", "oracle"]}


@pytest.mark.slow
def test_comparison_tests_each_arm_and_clusters_places_by_question(tmp_path: Path) -> None:
    first = folder(
        tmp_path / "a", lambda i, at: at.get("place") != 50 and i < 8, conditions=ARMS, questions=FEW, arguments=ASKED
    )
    second = folder(tmp_path / "b", lambda i, at: i < 8, conditions=ARMS[::-1], questions=FEW, arguments=ASKED)
    rows = list_difference_rows(first, second)
    assert [(row["arm"], row["k"], row["pairs"], row["test"]) for row in rows] == [
        ("rag", 8, 36, "sign flips"),
        ("brief-context", 8, 36, "sign flips"),
        ("oracle", None, 12, "McNemar"),
    ]
    assert [get_difference(row).clusters for row in rows] == [12, 12, 12]
    assert get_difference(rows[0]).value == pytest.approx(8 / 36)
    assert get_difference(rows[0]).p == pytest.approx(2 / 2**8), "eight questions, not as many cases"
    assert get_difference(rows[2]).value == 0
    assert len(list_rows(find_table(compare_run_files([first, second]), "The runs"))) == 6


@pytest.mark.slow
def test_comparison_of_plain_run_with_arms_averages_places(tmp_path: Path) -> None:
    """Each arm of the one is held against the whole other; a question's places are averaged."""
    placed = folder(
        tmp_path / "a", lambda i, at: at.get("place") != 50, conditions=ARMS, questions=FEW, arguments=ASKED
    )
    plain = folder(tmp_path / "b", lambda i, _: True, questions=FEW)
    rows = list_difference_rows(placed, plain)
    assert [(row["arm"], row["pairs"]) for row in rows] == [("rag", 12), ("brief-context", 12), ("oracle", 12)]
    assert get_difference(rows[0]).value == pytest.approx(1 / 3)
    assert (rows[0]["won"], rows[0]["lost"], rows[0]["test"]) == (12, 0, "sign flips")


@pytest.mark.slow
def test_comparison_of_one_arm_uses_same_arm_of_other_run(tmp_path: Path) -> None:
    alone = folder(tmp_path / "a", lambda i, at: False, conditions=ARMS[:3], questions=FEW)
    several = folder(tmp_path / "b", lambda i, at: True, conditions=ARMS, questions=FEW)
    (row,) = list_difference_rows(alone, several)
    assert (row["arm"], row["pairs"]) == ("rag", 36)


# -- what else sets them apart ----------------------------------------------------------------------------------------


def read_conclusions(*paths: Path) -> tuple[str, ...]:
    return compare_run_files(paths).conclusions


@pytest.mark.slow
def test_comparison_names_one_difference_and_warns_of_several(tmp_path: Path) -> None:
    rag = folder(tmp_path / "rag", lambda i, _: i < 20)
    brief = folder(tmp_path / "brief", lambda i, _: i < 25, made_with=recipe(strategy="brief-context"))
    other = folder(
        tmp_path / "other",
        lambda i, _: i < 25,
        made_with=recipe("llama", library="ffff", strategy="brief-context", k=8),
    )
    assert "brief and rag differ in one thing: strategy." in read_conclusions(rag, brief)
    (warning,) = (item for item in read_conclusions(brief, other) if item.startswith("Warning"))
    assert warning.startswith(
        "Warning: other and brief differ in 3 things: k, model, library. They are compared all at"
    )
    table = find_table(compare_run_files([brief, other]), "Settings in which the runs differ")
    assert table.columns == ("what", "brief", "other")
    assert table.rows[:2] == (("k", 16, 8), ("model", "qwen", "llama"))


@pytest.mark.slow
def test_comparison_of_equal_recipes_reports_same_settings(tmp_path: Path) -> None:
    first, second = (folder(tmp_path / name, lambda i, _: i < 20) for name in "ab")
    sentences = read_conclusions(first, second)
    assert sentences[0].startswith("b and a have the same recorded settings")
    assert not any(table.title.startswith("What the runs") for table in compare_run_files([first, second]).tables)


@pytest.mark.slow
def test_comparison_of_closed_book_run_ignores_missing_library(tmp_path: Path) -> None:
    rag = folder(tmp_path / "rag", lambda i, _: True)
    closed = folder(tmp_path / "closed", lambda i, _: True, made_with=recipe(library=None, strategy="closed-book"))
    assert "closed and rag differ in one thing: strategy." in read_conclusions(rag, closed)


@pytest.mark.slow
def test_comparison_treats_constant_condition_as_difference(tmp_path: Path) -> None:
    first = folder(tmp_path / "a", lambda i, _: True, conditions=[{"k": 8}], name="x", arguments={"ks": [8]})
    second = folder(tmp_path / "b", lambda i, _: i < 9, conditions=[{"k": 16}], name="x", arguments={"ks": [16]})
    assert "b and a differ in one thing: k." in read_conclusions(first, second)
    (row,) = list_difference_rows(first, second)
    assert row["pairs"] == 40


def test_comparison_ignores_settings_overridden_by_condition(tmp_path: Path) -> None:
    """Arms name their strategy and k; what the settings said plays no part."""
    result = recipe(strategy="brief-context", k=4)
    first = folder(tmp_path / "a", lambda i, _: True, conditions=ARMS, questions=FEW[:3])
    second = folder(tmp_path / "b", lambda i, _: True, conditions=ARMS, questions=FEW[:3], made_with=result)
    assert "b and a have the same recorded settings" in read_conclusions(first, second)[0]


def test_comparison_names_models_of_single_roles(tmp_path: Path) -> None:
    mixed = recipe()
    mixed["models"]["map"] = {"name": "llama", "temperature": 0.5}
    first = folder(tmp_path / "a", lambda i, _: True)
    second = folder(tmp_path / "b", lambda i, _: True, made_with=mixed)
    (warning,) = (item for item in read_conclusions(first, second) if item.startswith("Warning"))
    assert "map model" in warning
    assert "map temperature" in warning


def test_comparison_reports_different_question_sets(tmp_path: Path) -> None:
    first = folder(tmp_path / "a", lambda i, _: True)
    second = folder(tmp_path / "b", lambda i, _: True, questions=QUESTIONS[:20], sha256="7" * 64)
    assert any(
        "different question sets (own 777777777777; own 555555555555)" in item
        for item in read_conclusions(first, second)
    )


def test_comparison_without_common_question_warns_and_compares_nothing(tmp_path: Path) -> None:
    first = answers(tmp_path / "a.jsonl", lambda i: True, questions=QUESTIONS[:9])
    second = answers(tmp_path / "b.jsonl", lambda i: True, questions=QUESTIONS[9:])
    assert read_conclusions(first, second) == (
        "Warning: b and a have no question in common, so they were not compared.",
    )
    (row,) = list_difference_rows(first, second)
    assert (row["pairs"], row[DIFFERENCE], row[P_COLUMN], row["test"]) == (0, None, None, None)


def test_comparison_reports_unfinished_and_failed_cases(tmp_path: Path) -> None:
    first = folder(tmp_path / "a", lambda i, _: "failed" if i < 3 else True, unasked=5)
    assert read_conclusions(first) == ("a is not complete: of its 40 cases 5 have no record yet, and 3 failed.",)


def test_comparison_leaves_out_open_questions_with_notice(tmp_path: Path) -> None:
    sample = (*QUESTIONS[:10], Question("What helps?", id="open"), Question("Why?", id="why", gold="It does."))
    first = answers(tmp_path / "a.jsonl", lambda i: "abstained" if i > 9 else True, questions=sample)
    (row,) = list_rows(find_table(compare_run_files([first]), "The runs"))
    assert (row["right"], row["abstained"]) == (10, 0)
    assert read_conclusions(first)[0].startswith("a: 2 cases are of questions without options or gold letter")


@pytest.mark.slow
def test_comparison_of_equal_folder_names_uses_full_paths(tmp_path: Path) -> None:
    first, second = (folder(tmp_path / where / "run", lambda i, _: True) for where in ("x", "y"))
    names = [source.name for source in compare_run_files([first, second]).sources]
    assert names == [str(first), str(second)]
    with pytest.raises(InputError, match="named twice"):
        compare_run_files([first, first / ".." / "run"])


def test_comparison_of_path_without_run_raises_input_error(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").touch()
    started = folder(tmp_path / "begun", lambda i, _: True)
    (started / "records.jsonl").unlink()
    for path, why in (
        (tmp_path / "empty.jsonl", "holds no record yet"),
        (started, "holds no record yet"),
        (tmp_path, "is not a run"),
        (tmp_path / "nowhere", "does not exist"),
    ):
        with pytest.raises(InputError, match=why):
            compare_run_files([path])
