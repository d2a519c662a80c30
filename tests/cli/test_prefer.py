"""`--prefer` on the command line: search and evidence, a filter, and unknown types."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.cli.test_bad_input import assert_one_line

pytestmark = pytest.mark.models
QUESTION = "Do statins lower mortality in coronary disease?"


@pytest.fixture
def studies(tmp_path: Path, run: Run) -> Path:
    """Return a library of ten reviews and a trial that search ranks below some of them."""
    rows: list[dict[str, object]] = []
    for number in range(10):
        text = f"Statins lower mortality in coronary disease, says review {number}."
        rows.append(
            {"id": f"r{number}", "title": "Statins", "text": text, "metadata": {"publication_types": ["Review"]}}
        )
    text = "Simvastatin was compared with placebo after a heart attack."
    trial = {"publication_types": ["Randomized Controlled Trial"]}
    rows.append({"id": "trial", "title": "Simvastatin", "text": text, "metadata": trial})
    file = tmp_path / "studies.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    path = tmp_path / "library"
    result = run("library", "add", path, file)
    assert result.exit_code == 0, result.stderr
    return path


def ids(stdout: str) -> list[str]:
    return [hit["passage"]["document_id"] for hit in json.loads(stdout)["hits"]]


@pytest.mark.long
def test_search_with_prefer_moves_the_study_type_forward(run: Run, studies: Path) -> None:
    plain = run("search", studies, QUESTION, "-k", 20, "--json")
    preferred = run("search", studies, QUESTION, "-k", 20, "--json", "--prefer", "randomised-trial")
    assert plain.exit_code == preferred.exit_code == 0, plain.stderr + preferred.stderr
    assert ids(plain.stdout).index("trial") - ids(preferred.stdout).index("trial") >= 5
    assert sorted(ids(plain.stdout)) == sorted(ids(preferred.stdout))


@pytest.mark.long
def test_search_with_filter_returns_preferred_types_only(run: Run, studies: Path) -> None:
    options = ("--prefer", "randomised-trial", "--prefer", "cohort", "--setting", "prefer_mode=only")
    result = run("search", studies, QUESTION, "-k", 20, "--json", *options)
    assert ids(result.stdout) == ["trial"]
    assert "the others are left out" in run("search", studies, QUESTION, "-k", 20, *options).stdout


@pytest.mark.slow
def test_evidence_of_preferred_types_only_cites_the_trial(run: Run, studies: Path) -> None:
    only = ("--prefer", "randomised-trial", "--setting", "prefer_mode=only", "--setting", "not_in_library=ask")
    options = ("--strategy", "evidence", *only, "--json")
    answer = json.loads(run("ask", studies, QUESTION, *options).stdout)
    assert {citation["document_id"] for citation in answer["citations"]} == {"trial"}


@pytest.mark.slow
def test_unknown_study_type_is_one_line_that_lists_the_known_ones(run: Run, studies: Path) -> None:
    result = run("search", studies, QUESTION, "--prefer", "rct")
    assert_one_line(result)
    assert result.exit_code == 2
    assert "randomised-trial" in result.stderr
