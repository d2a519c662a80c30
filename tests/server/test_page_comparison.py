"""The comparison of two runs on the page: its figures, the questions that changed, both answers, files, and access."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest

from epicrisis.core.serialization import to_json
from epicrisis.evaluation.analysis.run_comparison import compare_run_files
from epicrisis.privacy.access_log import NAME
from epicrisis.report.table_cells import table_rows
from epicrisis.server.base.users import USERS_FILE, UserStore
from tests.server.test_page_runs import get
from tests.support.pages import Page
from tests.support.run_folders import QUESTIONS, folder, recipe

PAIR = "first=before&second=after"
EVIL = "<script>alert(1)</script> <img src=x onerror=alert(2)>\u202e"


def make_pair(parent: Path, patient: str | None = None) -> None:
    questions = [replace(question, patient=patient) for question in QUESTIONS]
    folder(parent / "before", lambda i, _: i < 20, questions=questions)
    made = recipe(strategy="brief-context")
    folder(
        parent / "after",
        lambda i, _: 5 <= i < 30 or ("failed" if i == 1 else False),
        questions=questions,
        made_with=made,
    )


@pytest.mark.slow
def test_list_of_runs_offers_comparison(tmp_path: Path) -> None:
    make_pair(tmp_path / "runs")
    (listed,) = get(tmp_path, "/runs")
    options = [option.attributes["value"] for option in Page(listed.text).all("option")]
    assert options == ["after", "before"] * 2


@pytest.mark.slow
def test_page_has_the_figures_of_compare(tmp_path: Path) -> None:
    make_pair(tmp_path / "runs")
    (response,) = get(tmp_path, f"/comparisons?{PAIR}")
    page = Page(response.text)
    text = " ".join(page.one("main").text.split())
    findings = compare_run_files([tmp_path / "runs" / "before", tmp_path / "runs" / "after"])
    for table in findings.tables:
        for row in table_rows(table):
            for cell in row:
                assert str(cell) in text
    assert [heading.text for heading in page.all("h2")][:2] == ["Share right", "Differences"]
    assert len(page.all("svg", "interval")) == 3
    assert "right, then wrong or no answer5" in text
    assert "wrong or no answer, then right10" in text
    assert all("style" not in element.attributes for element in page.elements)


@pytest.mark.long
def test_changed_question_opens_both_answers(tmp_path: Path) -> None:
    make_pair(tmp_path / "runs")
    (response,) = get(tmp_path, f"/comparisons?{PAIR}")
    links = [link for link in Page(response.text).all("a") if "/comparisons/questions/" in link.attributes["href"]]
    assert len(links) == 15
    paths = (links[0].attributes["href"], links[1].attributes["href"], f"/comparisons/questions/17?{PAIR}")
    wrong, failed, none = get_again(tmp_path, *paths)
    page = Page(wrong)
    before, after = page.all("section", "side")
    assert links[0].text in page.one("h1").text
    assert "A. yes" in before.text
    assert "B. no" in after.text
    assert "chosen" in before.classes
    # A case that failed is one that the run lost.
    assert "No answer (failed)" in failed
    assert "no such question" in none


def get_again(parent: Path, *paths: str) -> list[str]:
    (parent / "again").mkdir()
    (parent / "runs").rename(parent / "again" / "runs")
    return [response.text for response in get(parent / "again", *paths)]


@pytest.mark.slow
def test_files_hold_every_changed_question_and_the_findings(tmp_path: Path) -> None:
    make_pair(tmp_path / "runs")
    questions, runs, everything, other = get(
        tmp_path,
        *(f"/comparisons/export/{name}?{PAIR}" for name in ("questions.csv", "runs.csv", "json", "passwd")),
    )
    rows = list(csv.DictReader(io.StringIO(questions.text)))
    assert [row["change"] for row in rows] == ["lost"] * 5 + ["won"] * 10
    assert next(csv.DictReader(io.StringIO(runs.text)))["won"] == "10"
    data = json.loads(everything.text)
    findings = compare_run_files([tmp_path / "runs" / "before", tmp_path / "runs" / "after"])
    assert data["findings"] == json.loads(json.dumps(to_json(findings)))
    assert len(data["changed"]) == 15
    assert everything.headers["content-disposition"].endswith('"comparison.json"')
    assert other.status_code == 404


@pytest.mark.slow
@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("first=before&second=before", 422),
        ("first=before&second=nobody", 404),
        ("first=before&second=..%2f..%2fetc", 404),
        ("first=before", 422),
        ("", 422),
    ],
)
def test_wrong_choice_is_refused_in_words(tmp_path: Path, query: str, status: int) -> None:
    make_pair(tmp_path / "runs")
    (response,) = get(tmp_path, f"/comparisons?{query}")
    assert response.status_code == status
    assert response.headers["content-type"].startswith("text/html")
    assert str(tmp_path) not in response.text


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/comparisons", "/comparisons/questions/1", "/comparisons/export/json"])
def test_runs_about_patients_need_role_and_are_logged(tmp_path: Path, path: str) -> None:
    make_pair(tmp_path / "runs", patient="1")
    users = UserStore(tmp_path / "server" / USERS_FILE)
    nurse = users.add("nurse", "patient-reader", ("1",))
    doctor = users.add("doctor", "patient-reader")
    (refused,) = get(tmp_path, f"{path}?{PAIR}", key=nurse)
    assert refused.status_code == 404
    (tmp_path / "lib").rename(tmp_path / "old")
    (allowed,) = get(tmp_path, f"{path}?{PAIR}", key=doctor)
    assert allowed.status_code == 200
    entries = [json.loads(line) for line in (tmp_path / "server" / NAME).read_text().splitlines()]
    assert [entry["user"] for entry in entries] == ["nurse", "doctor", "doctor"]


@pytest.mark.slow
def test_hostile_question_stays_text(tmp_path: Path) -> None:
    questions = [replace(QUESTIONS[0], text=f"Does it {EVIL}?")]
    folder(tmp_path / "runs" / "before", lambda i, _: True, questions=questions)
    folder(tmp_path / "runs" / "after", lambda i, _: False, questions=questions)
    compared, opened = get(tmp_path, f"/comparisons?{PAIR}", f"/comparisons/questions/1?{PAIR}")
    for response in (compared, opened):
        page = Page(response.text)
        assert page.all("img") == []
        assert all("src" in script.attributes for script in page.all("script"))
        assert "\u202e" not in response.text
