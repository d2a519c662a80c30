"""A server's reviews and jobs without a forgotten patient: what is left of them is read as before."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from epicrisis.core.types import Document
from epicrisis.evaluation.grading.review_file import read_review
from epicrisis.operations.forgetting.forgetting import ForgetReport, Places, forget_patients
from epicrisis.privacy.record_access import SystemUser
from epicrisis.server.app import ServerOptions, create_app
from epicrisis.server.base.users import USERS_FILE, UserStore
from epicrisis.server.state.job_folder import JOBS_FOLDER
from epicrisis.server.state.state import REVIEWS_FOLDER
from tests.server.test_jobs import wait_until_ended
from tests.server.test_reviews import judge_all
from tests.support.patient_records import recorder
from tests.support.reviews import OURS, STRATEGIES, WORDS, Reviewer, add_users, answer_run, list_questions, make_app
from tests.support.servers import connect, open_existing, open_library, open_resources

FORGOTTEN, OTHER = "88120001", "88120002"
NOTES = [
    Document(
        "note:11", "She was given aspirin for the pain in her chest on the ward.", date="2150-01-01", patient=FORGOTTEN
    ),
    Document(
        "note:12",
        "Later colchicine was ordered against the gout of her left foot.",
        date="2150-02-01",
        patient=FORGOTTEN,
    ),
    Document(
        "note:21", "He received warfarin because of an irregular pulse in spring.", date="2150-01-01", patient=OTHER
    ),
    Document(
        "note:22", "In summer the physician prescribed metformin for his diabetes.", date="2150-02-01", patient=OTHER
    ),
]
TEXTS = ("Which drug was given first?", "Which drug was given later?")


def forget(folder: Path, library: str) -> ForgetReport:
    places = Places((folder / "runs",) if (folder / "runs").exists() else (), folder / "server")
    return forget_patients(folder / library, [FORGOTTEN], places, SystemUser("otto", "uid:7"))


def make_review(folder: Path, patients: tuple[str, ...]) -> tuple[str, dict[str, str]]:
    """Judge the answers about these patients, and return the address of the review and the keys of its users."""
    questions = [question for patient in patients for question in list_questions(TEXTS, patient)]
    for name, strategy in STRATEGIES.items():
        answer_run(folder / "runs" / name, folder / strategy, questions, strategy, WORDS[name], documents=NOTES)
    keys = add_users(folder, boss="administrator", nurse="patient-reader")
    app = make_app(folder, folder / "runs")
    review = Reviewer(app, keys["boss"]).start()
    judge_all(Reviewer(app, keys["nurse"]), review, lambda *_: "1", remark="clearer")
    return review, keys


@pytest.mark.long
def test_review_without_forgotten_patient_has_other_verdicts(tmp_path: Path) -> None:
    review, keys = make_review(tmp_path, (FORGOTTEN, OTHER))
    report = forget(tmp_path, STRATEGIES[OURS])
    assert report.is_clean, (report.remaining, report.problems)
    boss = Reviewer(make_app(tmp_path, tmp_path / "runs"), keys["boss"])
    assert "nurse: 2 of 2" in boss.open(review).html
    boss.post(f"{review}/close")
    assert "better" in boss.open(f"{review}/results").html
    assert boss.get(f"{review}/review.csv").text.count("clearer") == 2
    (tmp_path / "review.json").write_text(boss.get(f"{review}/review.json").text)
    pairs, verdicts = read_review(tmp_path / "review.json")
    assert (len(pairs.pairs), len(verdicts)) == (2, 2)


@pytest.mark.slow
def test_review_about_forgotten_patient_only_is_removed(tmp_path: Path) -> None:
    review, keys = make_review(tmp_path, (FORGOTTEN,))
    assert forget(tmp_path, STRATEGIES[OURS]).is_clean
    boss = Reviewer(make_app(tmp_path, tmp_path / "runs"), keys["boss"])
    assert boss.get(review).status_code == 404
    assert not (tmp_path / "server" / REVIEWS_FOLDER / review.rpartition("/")[2]).exists()


@pytest.mark.slow
@pytest.mark.parametrize("kept", [(OTHER,), ()])
def test_job_without_forgotten_patient_keeps_other_answers(kept: tuple[str, ...], tmp_path: Path) -> None:
    folder = tmp_path / "server"
    headers = {"authorization": f"Bearer {UserStore(folder / USERS_FILE).add('nurse', 'patient-reader')}"}
    questions = [{"question": TEXTS[0], "patient": patient} for patient in (FORGOTTEN, *kept)]

    async def ask() -> str:
        app = create_app(
            open_resources(open_library(tmp_path / "ward", recorder(), NOTES)), ServerOptions(folder=folder)
        )
        async with connect(app, headers=headers) as client:
            body = {"questions": questions, "break_glass": "called in at night"}
            response = await client.post("/api/v1/jobs", json=body)
            assert response.status_code == 202, response.text
            assert (await wait_until_ended(client, response.json()["id"]))["state"] == "done"
            return str(response.json()["id"])

    async def read(id_: str) -> tuple[int, int, list[dict[str, Any]]]:
        opened = open_existing(tmp_path / "ward", recorder())
        app = create_app(open_resources(opened), ServerOptions(folder=folder))
        async with app.router.lifespan_context(app), connect(app, headers=headers) as client:
            status = await client.get(f"/api/v1/jobs/{id_}")
            answers = await client.get(f"/api/v1/jobs/{id_}/answers")
            lines = [json.loads(line) for line in answers.text.splitlines()] if answers.status_code == 200 else []
            return status.status_code, status.json().get("questions", 0), lines

    id_ = asyncio.run(ask())
    assert forget(tmp_path, "ward").is_clean
    code, count, lines = asyncio.run(read(id_))
    assert (code, count) == ((200, 1) if kept else (404, 0))
    assert [line["answer"]["question"]["id"] for line in lines] == (["2"] if kept else [])
    if kept:
        job = json.loads((folder / JOBS_FOLDER / id_ / "job.json").read_text())
        assert job["body"]["questions"][0]["id"] == "2"
