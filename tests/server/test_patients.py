"""Records of patients over HTTP: who may read them, what is logged, and what no other patient's request returns."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI

from epicrisis.core.errors import SettingsError, StorageError
from epicrisis.core.types import Document
from epicrisis.privacy.access_log import NAME, AccessLog
from epicrisis.server.app import ServerOptions, create_app
from epicrisis.server.base.users import USERS_FILE, UserStore
from epicrisis.testing.chat import ScriptedModel
from tests.support.patient_records import recorder
from tests.support.servers import connect, open_library, open_resources, read_access_log

ANNA, BERT = "10083814", "10083815"
NOTES = [
    Document(
        f"note:{patient}:{day}",
        f"{drug} was given on the ward.",
        date=f"2150-0{day}",
        patient=patient,
        metadata={"patient_name": name},
    )
    for patient, drug, name in ((ANNA, "Colchicine", "Anna Muster"), (BERT, "Warfarin", "Hildegard Nakamura"))
    for day in (1, 2)
]
ASK = {"question": "Which drug was given on the ward?"}


class Ward:
    """A server of two patients' notes with a user of each role, and the keys."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "server"
        users = UserStore(self.folder / USERS_FILE)
        self.keys = {
            "reader": users.add("reader", "literature-reader"),
            "nurse": users.add("nurse", "patient-reader", (ANNA,)),
            "doctor": users.add("doctor", "patient-reader"),
            "admin": users.add("admin", "administrator"),
        }
        self.model: ScriptedModel = recorder()
        self.app: FastAPI = create_app(
            open_resources(open_library(folder / "ward", self.model, NOTES)), ServerOptions(folder=self.folder)
        )

    def send(self, user: str, method: str, path: str, body: dict[str, Any] | None = None) -> httpx2.Response:
        async def request() -> httpx2.Response:
            async with connect(self.app, headers={"authorization": f"Bearer {self.keys[user]}"}) as client:
                return await client.request(method, f"/api/v1{path}", json=body)

        return asyncio.run(request())

    def entries(self) -> list[dict[str, Any]]:
        return read_access_log(self.folder)


@pytest.fixture
def ward(tmp_path: Path) -> Ward:
    return Ward(tmp_path)


def test_server_of_notes_without_user_does_not_start(tmp_path: Path) -> None:
    resources = open_resources(open_library(tmp_path / "ward", None, NOTES))
    for folder in (None, tmp_path / "server"):
        with pytest.raises(SettingsError, match="epicrisis users add"):
            create_app(resources, ServerOptions(folder=folder))


@pytest.mark.slow
def test_request_without_key_reads_nothing_of_patients(ward: Ward) -> None:
    async def request() -> list[int]:
        async with connect(ward.app) as client:
            ask = await client.post("/api/v1/ask", json={**ASK, "patient": ANNA})
            return [ask.status_code, (await client.get("/api/v1/libraries/ward/patients")).status_code]

    assert asyncio.run(request()) == [401, 401]
    assert ward.entries() == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/ask", {**ASK, "patient": ANNA}),
        ("/ask", {**ASK, "patient": ANNA, "stream": True}),
        ("/ask", {**ASK, "settings": {"strategy": "closed-book"}}),
        ("/search", {"query": "drug", "patient": ANNA}),
        ("/evidence", {"query": "drug", "patient": ANNA}),
        ("/document", {"id": f"note:{ANNA}:1", "patient": ANNA}),
        ("/passage", {"id": f"note:{ANNA}:1#0", "patient": ANNA}),
        ("/patient", {"patient": ANNA}),
    ],
)
def test_literature_reader_reads_no_record(path: str, body: dict[str, Any], ward: Ward) -> None:
    response = ward.send("reader", "POST", path, body)
    assert (response.status_code, response.json()["kind"]) == (403, "AccessDenied")
    assert ward.model.requests == []
    assert ward.send("reader", "GET", "/libraries").json() == []


def test_patient_reader_reads_record_and_log_says_so_without_text(ward: Ward) -> None:
    answer = ward.send("doctor", "POST", "/ask", {**ASK, "patient": ANNA}).json()
    assert answer["state"] == "answered"
    assert {citation["document_id"] for citation in answer["citations"]} <= {f"note:{ANNA}:1", f"note:{ANNA}:2"}
    first, second = ward.entries()
    assert (first["user"], first["action"], first["library"], first["patient"]) == ("doctor", "ask", "ward", ANNA)
    assert sorted(second["documents"]) == [f"note:{ANNA}:1", f"note:{ANNA}:2"]
    content = (ward.folder / NAME).read_text()
    assert "Colchicine" not in content
    assert "drug" not in content


@pytest.mark.parametrize("path", ["/document", "/passage"])
def test_note_of_another_patient_is_not_found(path: str, ward: Ward) -> None:
    """Cross-patient access: the same reply as for an id that does not exist."""
    end = "#0" if path == "/passage" else ""
    other = ward.send("doctor", "POST", path, {"id": f"note:{BERT}:1{end}", "patient": ANNA})
    missing = ward.send("doctor", "POST", path, {"id": f"note:nobody:1{end}", "patient": ANNA})
    without = ward.send("doctor", "POST", path, {"id": f"note:{BERT}:1{end}"})
    assert other.status_code == missing.status_code == without.status_code == 404
    assert other.json() == missing.json() == without.json()
    own = ward.send("doctor", "POST", path, {"id": f"note:{BERT}:1{end}", "patient": BERT})
    assert "Warfarin" in own.json()["text"]


@pytest.mark.slow
def test_note_is_not_read_by_address(ward: Ward) -> None:
    response = ward.send("doctor", "GET", f"/libraries/ward/documents/note:{ANNA}:1")
    assert response.status_code == 404


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/ask", {"question": f"Which drug was given to patient {BERT}?", "patient": ANNA}),
        ("/search", {"query": f"drug of patient {BERT}", "patient": ANNA}),
        ("/evidence", {"query": f"drug of patient {BERT}", "patient": ANNA}),
    ],
)
def test_question_that_names_another_patient_is_refused(path: str, body: dict[str, Any], ward: Ward) -> None:
    response = ward.send("doctor", "POST", path, body)
    assert response.status_code == 422
    assert str(ward.folder.parent) not in response.text
    assert ward.model.requests == []


@pytest.mark.slow
def test_every_reading_of_one_patient_holds_no_word_of_another(ward: Ward) -> None:
    replies = [
        ward.send("doctor", "POST", "/ask", {**ASK, "patient": ANNA, "trace": True}),
        ward.send("doctor", "POST", "/ask", {**ASK, "patient": ANNA, "stream": True}),
        ward.send("doctor", "POST", "/search", {"query": "warfarin drug", "patient": ANNA}),
        ward.send("doctor", "POST", "/evidence", {"query": "warfarin drug", "patient": ANNA}),
        ward.send("doctor", "POST", "/patient", {"patient": ANNA}),
    ]
    for reply in replies:
        assert reply.status_code == 200
        assert BERT not in reply.text
        assert "Warfarin" not in reply.text.replace('"warfarin drug"', "")


def test_unassigned_patient_needs_reason_which_is_logged(ward: Ward) -> None:
    body = {**ASK, "patient": BERT}
    refused = ward.send("nurse", "POST", "/ask", body)
    assert refused.status_code == 403
    (entry,) = ward.entries()
    assert (entry["outcome"], entry["documents"], entry["reason"]) == ("refused", [], None)
    allowed = ward.send("nurse", "POST", "/ask", {**body, "break_glass": "collapsed in the corridor"})
    assert allowed.status_code == 200
    assert {entry["reason"] for entry in ward.entries()[1:]} == {"collapsed in the corridor"}


def test_reason_of_blanks_is_no_reason(ward: Ward) -> None:
    response = ward.send("nurse", "POST", "/search", {"query": "drug", "patient": BERT, "break_glass": " " * 20})
    assert (response.status_code, ward.entries()) == (422, [])


def test_list_of_patients_holds_assigned_ones_only(ward: Ward) -> None:
    assert [row["id"] for row in ward.send("nurse", "GET", "/libraries/ward/patients").json()] == [ANNA]
    assert [row["id"] for row in ward.send("admin", "GET", "/libraries/ward/patients").json()] == [ANNA, BERT]


def test_log_that_cannot_be_written_stops_reading(ward: Ward, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise StorageError("the disk is full: free some space")

    monkeypatch.setattr(AccessLog, "append", fail)
    for path, body in (("/ask", {**ASK, "patient": ANNA}), ("/document", {"id": f"note:{ANNA}:1", "patient": ANNA})):
        assert ward.send("doctor", "POST", path, body).status_code == 507
    assert ward.model.requests == []


def write_entries(path: Path, count: int) -> list[str]:
    async def record() -> None:
        log = AccessLog(path)
        for number in range(count):
            await log.record("maria", "ask", "ward", ANNA, [f"note:{number}"])

    asyncio.run(record())
    return path.read_text().splitlines(keepends=True)


def test_complete_log_is_verified(tmp_path: Path) -> None:
    path = tmp_path / NAME
    write_entries(path, 3)
    lines = write_entries(path, 2)
    result = AccessLog(path).verify()
    assert (result.entries, result.fault) == (5, None)
    assert result.head == json.loads(lines[-1])["hash"]
    assert AccessLog(path).verify(json.loads(lines[2])["hash"]).fault is None


def test_changed_removed_and_moved_entries_are_detected(tmp_path: Path) -> None:
    path = tmp_path / NAME
    lines = write_entries(path, 5)
    for changed in (
        [lines[0], lines[1].replace("maria", "otto"), *lines[2:]],
        [lines[0], *lines[2:]],
        lines[1:],
        [lines[1], lines[0], *lines[2:]],
        [*lines[:2], lines[1], *lines[2:]],
        [*lines[:2], "no entry\n", *lines[2:]],
    ):
        path.write_text("".join(changed))
        assert AccessLog(path).verify().fault is not None
    path.write_text("".join(lines[:3]))
    assert "cut off" in str(AccessLog(path).verify().fault)
    state_end(path, lines[2])
    assert AccessLog(path).verify().fault is None
    assert AccessLog(path).verify(json.loads(lines[4])["hash"]).fault is not None


def state_end(path: Path, line: str) -> None:
    """Write the neighbour of the log that states its last entry."""
    entry = json.loads(line)
    path.with_suffix(".head").write_text(json.dumps({"number": entry["number"], "hash": entry["hash"]}))


@pytest.mark.parametrize("end", [1, 40, -1])
def test_log_cut_by_kill_continues(end: int, tmp_path: Path) -> None:
    path = tmp_path / NAME
    lines = write_entries(path, 3)
    path.write_text("".join(lines[:2]) + lines[2][:end])
    state_end(path, lines[1])
    write_entries(path, 2)
    assert AccessLog(path).verify().fault is None
    assert AccessLog(path).verify().entries == (5 if end == -1 else 4)


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/ask", "/search", "/evidence"])
@pytest.mark.parametrize(
    ("here", "nowhere"),
    [
        (f"patient {BERT}", "patient 10083899"),
        (f"MRN{BERT}", "MRN10083899"),
        ("Hildegard Nakamura", "Hildegard Nakatani"),
        ("Mr Nakamura", "Mr Nakatani"),
    ],
)
def test_caller_of_one_patient_does_not_learn_who_else_is_here(path: str, here: str, nowhere: str, ward: Ward) -> None:
    """The own patient's record is read, and the other name is said to be not this patient's."""
    replies = []
    for name in (here, nowhere):
        words = f"Which drug was given to {name} on the ward?"
        body = {"question": words, "trace": True} if path == "/ask" else {"query": words}
        response = ward.send("nurse", "POST", path, {**body, "patient": ANNA})
        assert response.status_code == 200
        assert "no name or number of this patient is" in response.text
        assert "Warfarin" not in response.text
        plain = name.removeprefix("patient ").removeprefix("Mr ").removeprefix("MRN")
        # Vectors of other words, and times.
        replies.append(re.sub(r"\d+\.\d+(e-\d+)?|[0-9a-f]{64}", "0", response.text.replace(plain, "NAME")))
    assert replies[0] == replies[1]


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/ask", "/search", "/evidence", "/patient"])
def test_other_patient_is_refused_as_one_who_is_not_here(path: str, ward: Ward) -> None:
    words = {"question" if path == "/ask" else "query": "Which drug?"} if path != "/patient" else {}
    here, nowhere = (ward.send("nurse", "POST", path, {**words, "patient": patient}) for patient in (BERT, "10083899"))
    assert (here.status_code, here.json()) == (nowhere.status_code, nowhere.json()) == (403, here.json())
    assert [entry["outcome"] for entry in ward.entries()] == ["refused", "refused"]


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/ask", "/search", "/evidence"])
def test_question_about_another_patient_is_logged_as_refused(path: str, ward: Ward) -> None:
    body = {"question" if path == "/ask" else "query": f"Which drug did {BERT} get?", "patient": ANNA}
    assert ward.send("doctor", "POST", path, body).status_code == 422
    assert [(entry["patient"], entry["outcome"]) for entry in ward.entries()] == [(ANNA, "refused")]


@pytest.mark.slow
def test_question_about_the_own_patient_has_no_note_on_other_persons(ward: Ward) -> None:
    """The own name, number and words of a question are no other person's."""
    words = f"Which drug did Anna Muster, patient {ANNA}, get? Was it on a Monday in May?"
    response = ward.send("nurse", "POST", "/ask", {"question": words, "patient": ANNA, "trace": True})
    assert response.status_code == 200
    assert "no name or number of this patient is" not in response.text


@pytest.mark.slow
def test_question_that_reads_no_record_has_no_note_on_a_record(tmp_path: Path) -> None:
    paper = Document("pubmed:1", "Colchicine was given on the ward in Heart Failure.", date="2150")
    users = UserStore(tmp_path / "server" / USERS_FILE)
    key = users.add("nurse", "patient-reader", (ANNA,))
    resources = open_resources(open_library(tmp_path / "ward", recorder(), [*NOTES, paper]))
    app = create_app(resources, ServerOptions(folder=tmp_path / "server"))

    async def request() -> httpx2.Response:
        async with connect(app, headers={"authorization": f"Bearer {key}"}) as client:
            body = {"question": "Does Hildegard Nakamura respond in Heart Failure?", "trace": True}
            return await client.post("/api/v1/ask", json=body)

    response = asyncio.run(request())
    assert response.status_code == 200, response.text
    assert "of this patient" not in response.text
