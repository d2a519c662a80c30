"""Test the tables and conclusions of a folder of recorded rankings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from epicrisis.evaluation.experiments.preflight import HIDDEN, holds_rankings, rankings_path, read_findings
from epicrisis.evaluation.experiments.preflight_calibration import calibrate
from epicrisis.evaluation.experiments.preflight_rules import PUBLISHED
from epicrisis.evaluation.experiments.recorded_rankings import Guard, QuestionRankings, RankingStore
from epicrisis.evaluation.experiments.run_findings import read_findings as findings_of_paths
from tests.evaluation.experiments.test_preflight_calibration import make_rankings

RECIPE = {"passages": 1200, "encoder": "hashing", "by": "dense", "depth": 16}


def write_rankings(path: Path, recorded: Sequence[QuestionRankings], hidden: Sequence[QuestionRankings] = ()) -> Path:
    path.mkdir()
    arms: dict[Guard, Sequence[QuestionRankings]] = {"none": recorded, HIDDEN: hidden}
    for guard, rankings in arms.items():
        if rankings:
            file = RankingStore(rankings_path(path, guard), {**RECIPE, "guard": guard})
            for ranking in rankings:
                file.append_rankings(ranking)
            del file
    return path


@pytest.fixture(scope="module")
def rankings_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_rankings(tmp_path_factory.mktemp("study") / "pubmed", make_rankings(1, 80), make_rankings(1, 80))


@pytest.mark.long
def test_findings_have_all_tables_of_recorded_rankings(rankings_folder: Path) -> None:
    assert holds_rankings(rankings_folder)
    (path,) = findings_of_paths([rankings_folder])
    assert path == read_findings(rankings_folder)
    titles = [table.title for table in path.tables]
    assert titles[:3] == ["Ranks of the key documents", "What is counted", "Is the issue foreseen?"]
    assert titles[-1] == "Preflight under leak guards"
    assert len(titles) == len(set(titles)) == 10
    assert {table.source for table in path.tables} == {
        "pubmed: 1,200 passages by hashing, read dense, counted by passages"
    }
    assert [item.name for item in path.published] == ["preflight", "preflight-rates"]


@pytest.mark.long
def test_findings_compare_both_rules_at_one_recall(rankings_folder: Path) -> None:
    """The specificity of each, at the recall of the papers' rule."""
    fitted = calibrate(make_rankings(1, 80), PUBLISHED)
    papers, ours = fitted.papers, fitted.at_recall(fitted.papers.recall.value)
    conclusion = read_findings(rankings_folder).conclusions[0]
    assert f"the papers' rule has a specificity of {100 * papers.specificity.value:.1f} % (" in conclusion
    assert f"set to that recall, {100 * ours.specificity.value:.1f} % (" in conclusion
    assert ours.recall.value >= papers.recall.value


@pytest.mark.long
@pytest.mark.parametrize("hidden", [80, 30, 0])
def test_findings_mark_unfinished_guard(tmp_path: Path, hidden: int) -> None:
    path = write_rankings(tmp_path / "run", make_rankings(1, 80), make_rankings(1, 80)[:hidden])
    (source,) = read_findings(path).sources
    assert source.complete is (hidden != 30)
    assert source.facts["questions"] == 80
    assert source.facts.get(f"questions, {HIDDEN}") == (hidden or None)


def test_findings_of_too_few_questions_fit_no_rule(tmp_path: Path) -> None:
    findings = read_findings(write_rankings(tmp_path / "run", make_rankings(1, 4)))
    titles = [table.title for table in findings.tables]
    assert titles == ["Ranks of the key documents", "What is counted", "Is the issue foreseen?"]
    assert all(
        conclusion.startswith("No rule was fitted for the issue that the key document is")
        for conclusion in findings.conclusions
    )
