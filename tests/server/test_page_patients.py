"""The pages of patients: who reads which record, what the log has, and what the time filter left out."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI

from epicrisis.core.types import Document
from epicrisis.server.app import ServerOptions, create_app
from epicrisis.server.base.users import USERS_FILE, UserStore
from tests.server.test_page_unsafe_text import EVIL, check_page
from tests.support.chart_documents import CHART_DOCUMENTS
from tests.support.pages import Page, ask, open_page, quoting_model
from tests.support.servers import connect, open_library, open_resources, read_access_log

ANNA, BERT = "10083814", "10083815"
STAYS = {"e1": ("2150-01-03", "2150-01-09"), "e2": ("2150-06-01", "2150-06-05")}
REASON = "collapsed in the corridor"


def note(patient: str, name: str, day: str, text: str, encounter: str = "") -> Document:
    metadata: dict[str, Any] = {"note_type": "Progress note"}
    if encounter:
        admitted, discharged = STAYS[encounter]
        metadata |= {"encounter": encounter, "admitted": admitted, "discharged": discharged}
    return Document(
        f"note:{patient}:{name}",
        text,
        title=f"Note {name}",
        source="notes",
        date=day,
        patient=patient,
        metadata=metadata,
    )


NOTES = [
    note(ANNA, "late", "2150-06-02", "In June the patient was given warfarin for the heart.", "e2"),
    note(ANNA, "letter", "2150-03-01", "The patient was seen in the clinic and took colchicine."),
    note(ANNA, "early", "2150-01-04", "In January the patient was given aspirin for the pain.", "e1"),
    note(BERT, "only", "2150-01-04", f"Heparin was given to this other patient every day {EVIL}.", "e1"),
]


class Hospital:
    """A server of two patients' notes, with keys of its users."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "server"
        users = UserStore(self.folder / USERS_FILE)
        self.keys = {
            "reader": users.add("reader", "literature-reader"),
            "nurse": users.add("nurse", "patient-reader", (ANNA,)),
            "doctor": users.add("doctor", "patient-reader"),
        }
        library = open_library(folder / "ward", quoting_model(), NOTES, unverified="keep")
        self.app: FastAPI = create_app(open_resources(library), ServerOptions(folder=self.folder))

    def connect(self, user: str) -> httpx2.AsyncClient:
        return connect(self.app, headers={"authorization": f"Bearer {self.keys[user]}"})

    def send(self, user: str, method: str, path: str, **more: Any) -> httpx2.Response:
        async def request() -> httpx2.Response:
            async with self.connect(user) as client:
                return await client.request(method, path, **more)

        return asyncio.run(request())

    def entries(self) -> list[dict[str, Any]]:
        return read_access_log(self.folder)


@pytest.fixture
def hospital(tmp_path: Path) -> Hospital:
    return Hospital(tmp_path)


@pytest.mark.slow
def test_record_shows_stays_and_notes_in_order_of_time_and_is_logged(hospital: Hospital) -> None:
    page = Page(hospital.send("doctor", "POST", "/patients/record", data={"patient": ANNA}).text)
    headings = [heading.text for heading in page.all("h3")]
    assert headings == [
        "Hospital stay e2 2150-06-01 to 2150-06-05",
        "Outside a hospital stay 2150-03-01",
        "Hospital stay e1 2150-01-03 to 2150-01-09",
    ]
    titles = [item.text.split("  ")[0].split(" ", 1)[1] for item in page.all("li", "note")]
    assert [title[:10] for title in titles] == ["Note late ", "Note lette", "Note early"]
    assert "no structured entries" in page.one("p", "allergies").text
    (entry,) = hospital.entries()
    assert (entry["user"], entry["action"], entry["patient"]) == ("doctor", "patient", ANNA)
    assert len(entry["documents"]) == 3


@pytest.mark.slow
def test_note_opens_from_record_whole_and_is_logged(hospital: Hospital) -> None:
    data = {"patient": ANNA, "document": f"note:{ANNA}:early"}
    whole = hospital.send("doctor", "POST", "/patients/note", data=data)
    part = hospital.send("doctor", "POST", "/patients/note", data=data, headers={"HX-Request": "true"})
    assert "given aspirin for the pain" in Page(whole.text).one("div", "text").text
    assert "<html" in whole.text
    assert "<html" not in part.text
    assert "cited place" not in part.text
    assert [entry["documents"] for entry in hospital.entries()] == [[f"note:{ANNA}:early"]] * 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "path", "data"),
    [
        ("GET", "/patients", None),
        ("POST", "/patients/record", {"patient": ANNA}),
        ("POST", "/patients/note", {"patient": ANNA, "document": f"note:{ANNA}:early"}),
    ],
)
def test_literature_reader_opens_no_page_of_patients(
    method: str, path: str, data: dict[str, str] | None, hospital: Hospital
) -> None:
    response = hospital.send("reader", method, path, data=data)
    assert response.status_code == 403
    assert ANNA not in response.text
    assert [(entry["outcome"], entry["documents"]) for entry in hospital.entries()] == [("refused", [])]


@pytest.mark.slow
def test_note_of_another_patient_is_not_found(hospital: Hospital) -> None:
    data = {"patient": ANNA, "document": f"note:{BERT}:only"}
    response = hospital.send("doctor", "POST", "/patients/note", data=data)
    assert response.status_code == 404
    assert "Heparin" not in response.text


@pytest.mark.slow
def test_unassigned_patient_needs_reason_which_every_reading_logs(hospital: Hospital) -> None:
    listed = hospital.send("nurse", "GET", "/patients").text
    assert ANNA in listed
    assert BERT not in listed
    refused = hospital.send("nurse", "POST", "/patients/record", data={"patient": BERT})
    assert refused.status_code == 403
    record = hospital.send("nurse", "POST", "/patients/record", data={"patient": BERT, "break_glass": REASON})
    form = {
        field.attributes["name"]: field.attributes["value"]
        for field in Page(record.text).all("input")
        if field.attributes.get("type") == "hidden" and field.attributes["name"] != "library"
    }
    assert form["break_glass"] == REASON
    assert hospital.send("nurse", "POST", "/patients/note", data=form).status_code == 200
    entries = [(entry["outcome"], entry["reason"]) for entry in hospital.entries() if entry["patient"] == BERT]
    assert entries == [("refused", None), ("allowed", REASON), ("allowed", REASON)]


@pytest.mark.slow
def test_patient_is_in_no_address_of_the_pages(hospital: Hospital) -> None:
    for page in (
        hospital.send("doctor", "GET", "/patients"),
        hospital.send("doctor", "POST", "/patients/record", data={"patient": ANNA}),
    ):
        for element in Page(page.text).elements:
            for name in ("href", "action", "hx-get", "hx-post"):
                assert ANNA not in element.attributes.get(name, "")


@pytest.mark.slow
def test_record_of_answer_marks_cited_and_left_out_notes(hospital: Hospital) -> None:
    async def run() -> tuple[Page, Page, Page]:
        async with hospital.connect("doctor") as client:
            question = "Which drug was given during the first admission?"
            address = await ask(client, question, patient=ANNA, strategy="evidence")
            answer = await open_page(client, address)
            record = await open_page(client, f"{address}/record")
            source = await open_page(client, record.all("a", "cite")[0].attributes["href"])
            return answer, record, source

    answer, record, source = asyncio.run(run())
    assert "left out" in next(element.text for element in answer.all("section") if "Record of the" in element.text)
    left_out = [element.text for element in record.all("li", "left-out")]
    assert len(left_out) == 2
    assert any("Note late" in text for text in left_out)
    assert not any("Note early" in text for text in left_out)
    assert "2 of the notes below were left out" in record.one("p", "warning").text
    assert "aspirin" in source.all("mark")[0].text


@pytest.mark.slow
def test_note_opened_from_ranking_is_logged_by_its_id(hospital: Hospital) -> None:
    async def run() -> list[str]:
        async with hospital.connect("doctor") as client:
            address = await ask(client, "Which drug was given?", patient=ANNA, strategy="evidence")
            pages = [await open_page(client, f"{address}/ranks/{rank}") for rank in (1, 2, 3)]
            return [page.one("div", "text").text for page in pages]

    texts = asyncio.run(run())
    opened = [entry for entry in hospital.entries() if entry["action"] == "document"]
    assert {entry["documents"][0] for entry in opened} == {
        f"note:{ANNA}:{name}" for name in ("early", "letter", "late")
    }
    assert all(entry["patient"] == ANNA and len(entry["documents"]) == 1 for entry in opened)
    assert len(texts) == len(opened)


@pytest.mark.slow
def test_record_of_another_users_answer_is_not_found(hospital: Hospital) -> None:
    async def run() -> list[int]:
        async with hospital.connect("doctor") as client:
            address = await ask(client, "Which drug was given?", patient=ANNA, strategy="evidence")
        async with hospital.connect("nurse") as client:
            return [(await client.get(f"{address}{end}")).status_code for end in ("", "/record")]

    assert asyncio.run(run()) == [404, 404]


@pytest.mark.slow
def test_pages_of_patients_never_render_text_as_markup(hospital: Hospital) -> None:
    record = hospital.send("doctor", "POST", "/patients/record", data={"patient": BERT})
    data = {"patient": BERT, "document": f"note:{BERT}:only"}
    for response in (record, hospital.send("doctor", "POST", "/patients/note", data=data)):
        check_page(response.text)
    check_page(hospital.send("doctor", "POST", "/patients/record", data={"patient": EVIL}).text)


@pytest.mark.slow
def test_record_opens_with_allergies_problems_medications_and_last_stay(tmp_path: Path) -> None:
    folder = tmp_path / "server"
    key = UserStore(folder / USERS_FILE).add("doctor", "patient-reader")
    library = open_library(tmp_path / "ward", quoting_model(), CHART_DOCUMENTS)
    app = create_app(open_resources(library), ServerOptions(folder=folder))

    async def run() -> tuple[Page, Page]:
        async with connect(app, headers={"authorization": f"Bearer {key}"}) as client:
            data = {"patient": "p1", "library": "ward"}
            page = Page((await client.post("/patients/record", data=data)).text)
            allergy = page.all("button", "link")[0]
            note = await client.post("/patients/note", data={**data, "document": allergy.attributes["value"]})
            return page, Page(note.text)

    page, note = asyncio.run(run())
    assert page.one("p", "allergies").text.startswith("Allergies: Penicillin rash")
    assert "Penicillin" in note.one("div", "text").text
    assert page.one("section", "problems").text.split() == ["Problems", "Heart", "failure", "since", "2150-03"]
    medications = page.one("section", "medications").text
    assert medications.index("Torasemide 10 mg") < medications.index("1 stopped") < medications.index("furosemide")
    assert "letter" in page.one("section", "last-stay").text
    assert "Creatinine" in page.one("section", "last-values").text
    # The name of the other patient, and the command line, are nowhere.
    assert "p2" not in page.html
