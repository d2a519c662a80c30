"""The access log has every refused attempt on a patient and every reading, with its documents and without text."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from epicrisis.privacy.access_log import NAME, AccessLog
from epicrisis.server.app import ServerOptions, create_app
from epicrisis.server.base.users import USERS_FILE, UserStore
from tests.server.test_patients import ANNA, ASK, BERT, Ward
from tests.support.run_folders import QUESTIONS, folder
from tests.support.servers import connect, open_library, open_resources, read_access_log

JOBS = "/api/v1/jobs"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("user", "method", "path", "body", "action", "patient"),
    [
        ("reader", "POST", "/api/v1/ask", {**ASK, "patient": ANNA}, "ask", ANNA),
        ("nurse", "POST", "/api/v1/ask", {**ASK, "patient": BERT}, "ask", BERT),
        ("nurse", "POST", "/api/v1/ask", {**ASK, "patient": f"id:{BERT}"}, "ask", BERT),
        ("reader", "POST", "/api/v1/ask", {**ASK, "patient": "Anna Meier, gout"}, "ask", None),
        ("nurse", "POST", "/api/v1/search", {"query": "drug", "patient": BERT}, "search", BERT),
        ("nurse", "POST", "/api/v1/evidence", {"query": "drug", "patient": BERT}, "evidence", BERT),
        ("nurse", "POST", "/api/v1/document", {"id": f"note:{BERT}:1", "patient": BERT}, "document", BERT),
        ("nurse", "POST", "/api/v1/passage", {"id": f"note:{BERT}:1#0", "patient": BERT}, "passage", BERT),
        ("nurse", "POST", "/api/v1/patient", {"patient": BERT}, "patient", BERT),
        ("reader", "GET", "/api/v1/libraries/ward/patients", None, "patients", None),
        ("reader", "GET", "/patients", None, "patients", None),
        ("reader", "GET", "/libraries/ward", None, "library", None),
        ("nurse", "POST", JOBS, {"questions": [{**ASK, "patient": BERT}]}, "ask", BERT),
    ],
)
def test_refused_attempt_is_logged_with_its_outcome(
    user: str, method: str, path: str, body: Any, action: str, patient: str | None, tmp_path: Path
) -> None:
    ward = Ward(tmp_path)

    async def send() -> int:
        async with connect(ward.app, headers={"authorization": f"Bearer {ward.keys[user]}"}) as client:
            return (await client.request(method, path, json=body)).status_code

    assert asyncio.run(send()) == 403
    (entry,) = ward.entries()
    assert (entry["user"], entry["action"], entry["patient"]) == (user, action, patient)
    assert (entry["outcome"], entry["library"], entry["documents"]) == ("refused", "ward", [])
    assert "Meier" not in (ward.folder / NAME).read_text()
    assert AccessLog(ward.folder / NAME).verify().fault is None


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "suffix"), [("document", ""), ("passage", "#0")])
def test_note_that_is_not_the_patients_is_refused_and_logged_as_one_that_is_not_there(
    kind: str, suffix: str, tmp_path: Path
) -> None:
    ward = Ward(tmp_path)
    ids = (f"note:{BERT}:1{suffix}", f"note:nobody:1{suffix}")

    async def send() -> list[tuple[int, str]]:
        async with connect(ward.app, headers={"authorization": f"Bearer {ward.keys['nurse']}"}) as client:
            replies = [await client.post(f"/api/v1/{kind}", json={"id": id_, "patient": ANNA}) for id_ in ids]
        return [(reply.status_code, reply.text) for reply in replies]

    there, absent = asyncio.run(send())
    assert there == absent
    assert there[0] == 404
    entries = [(entry["action"], entry["outcome"], entry["patient"]) for entry in ward.entries()]
    assert entries == [(kind, "refused", ANNA)] * 2


@pytest.mark.slow
def test_refused_question_of_openai_client_is_logged(tmp_path: Path) -> None:
    ward = Ward(tmp_path)
    body = {
        "model": "epicrisis/rag",
        "messages": [{"role": "user", "content": ASK["question"]}],
        "epicrisis": {"patient": BERT},
    }

    async def send() -> int:
        async with connect(ward.app, headers={"authorization": f"Bearer {ward.keys['nurse']}"}) as client:
            return (await client.post("/v1/chat/completions", json=body)).status_code

    assert asyncio.run(send()) == 403
    assert [(entry["outcome"], entry["patient"]) for entry in ward.entries()] == [("refused", BERT)]


@pytest.mark.slow
def test_stored_answer_after_role_was_lost_is_refused_and_logged(tmp_path: Path) -> None:
    ward = Ward(tmp_path)
    users = UserStore(ward.folder / USERS_FILE)

    async def run() -> int:
        async with connect(ward.app) as client:
            headers = {"authorization": f"Bearer {ward.keys['nurse']}"}
            asked = await client.post("/ask", data={**ASK, "patient": ANNA}, headers=headers)
            headers = {"authorization": f"Bearer {users.add('nurse', 'literature-reader')}"}
            return (await client.get(asked.headers["location"], headers=headers)).status_code

    assert asyncio.run(run()) == 403
    entry = ward.entries()[-1]
    assert (entry["action"], entry["outcome"], entry["patient"]) == ("answer", "refused", ANNA)


def test_users_of_one_name_have_different_ids_in_log(tmp_path: Path) -> None:
    ward = Ward(tmp_path)
    users = UserStore(ward.folder / USERS_FILE)
    ward.send("nurse", "POST", "/patient", {"patient": ANNA})
    users.remove("nurse")
    ward.keys["nurse"] = users.add("nurse", "patient-reader")
    ward.send("nurse", "POST", "/patient", {"patient": ANNA})
    first, second = ward.entries()
    assert first["user"] == second["user"] == "nurse"
    assert first["user_id"] != second["user_id"]


@pytest.mark.slow
def test_entry_of_job_names_the_documents_of_each_patient(tmp_path: Path) -> None:
    ward = Ward(tmp_path)

    async def run() -> None:
        async with connect(ward.app, headers={"authorization": f"Bearer {ward.keys['doctor']}"}) as client:
            body = {"questions": [{**ASK, "patient": patient} for patient in (ANNA, BERT)]}
            id_ = (await client.post(JOBS, json=body)).json()["id"]
            async with asyncio.timeout(20):
                while (await client.get(f"{JOBS}/{id_}")).json()["state"] == "running":
                    await asyncio.sleep(0.02)
            answers = await client.get(f"{JOBS}/{id_}/answers")
            assert len(answers.text.splitlines()) == 2
            assert answers.headers["content-disposition"] == 'attachment; filename="answers.jsonl"'

    asyncio.run(run())
    entries = [entry for entry in ward.entries() if entry["action"] == "job"]
    documents = {entry["patient"]: sorted(entry["documents"]) for entry in entries}
    assert documents == {patient: [f"note:{patient}:1", f"note:{patient}:2"] for patient in (ANNA, BERT)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("role", "status", "outcome"), [("patient-reader", 200, "allowed"), ("literature-reader", 404, "refused")]
)
@pytest.mark.parametrize("path", ["/api/v1/runs/ward/report", "/api/v1/runs/ward", "/runs/ward/report"])
def test_run_about_patients_is_logged_whether_opened_or_refused(
    path: str, role: Any, status: int, outcome: str, tmp_path: Path
) -> None:
    (tmp_path / "runs").mkdir()
    folder(tmp_path / "runs" / "papers", lambda i, _: i < 24)
    about = [replace(question, patient="1") for question in QUESTIONS[:4]]
    folder(tmp_path / "runs" / "ward", lambda i, _: i < 3, questions=about)
    server = tmp_path / "server"
    key = UserStore(server / USERS_FILE).add("maria", role)

    async def run() -> list[int]:
        app = create_app(
            open_resources(open_library(tmp_path / "lib")), ServerOptions(folder=server, runs=tmp_path / "runs")
        )
        async with connect(app, headers={"authorization": f"Bearer {key}"}) as client:
            paths = (path, path.replace("ward", "papers"), path.replace("ward", "none"))
            return [(await client.get(opened)).status_code for opened in paths]

    assert asyncio.run(run()) == [status, 200, 404]
    (entry,) = read_access_log(server)
    assert (entry["action"], entry["library"], entry["outcome"]) == ("run", "ward", outcome)


@pytest.mark.parametrize(
    ("old", "new"), [('"refused"', '"allowed"'), ('"owner:1"', '"owner:2"'), (', "outcome": "refused"', "")]
)
def test_changed_outcome_breaks_the_chain(old: str, new: str, tmp_path: Path) -> None:
    path = tmp_path / NAME
    asyncio.run(AccessLog(path).record("otto", "ask", "ward", BERT, (), user_id="owner:1", outcome="refused"))
    content = path.read_text()
    assert old in content
    path.write_text(content.replace(old, new))
    assert AccessLog(path).verify().fault is not None
