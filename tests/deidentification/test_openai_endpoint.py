"""Conversations with the OpenAI-compatible API: the patient's registered names reach no chat model."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path

import pytest

from epicrisis.core.types import Document
from epicrisis.corpus.base.reader_base import PatientIdentity, ReaderItem
from epicrisis.privacy.deidentification.library_files import read_key
from epicrisis.privacy.deidentification.opened_deidentifier import LibraryDeidentification
from epicrisis.server.app import ServerOptions, create_app
from epicrisis.server.base.users import USERS_FILE, UserStore
from tests.support.patient_records import recorder
from tests.support.servers import connect, open_library, open_resources

pytestmark = pytest.mark.deidentification
PATIENT = "P-48213377"
NAMES = ("Trayanic", "Broonwy")
"""Names that no list has, so that only the registration tells them."""


def test_conversation_has_no_registered_name_in_any_prompt(tmp_path: Path) -> None:
    model = recorder()
    documents: list[ReaderItem] = [
        PatientIdentity(PATIENT, names=(f"{NAMES[0]}, {NAMES[1]}",)),
        Document("note:1", "Metoprolol 25 mg was stopped because of dizziness.", date="2022-06-02", patient=PATIENT),
    ]
    opened = open_library(tmp_path / "ward", model, documents)
    search = opened.pipeline.search
    assert search is not None
    layer = LibraryDeidentification(read_key(tmp_path / "ward"), search.rosters, search.store)
    pipeline = dataclasses.replace(opened.pipeline, deidentification=layer)
    opened = dataclasses.replace(opened, pipeline=pipeline)
    key = UserStore(tmp_path / "server" / USERS_FILE).add("nurse", "patient-reader")
    messages = [
        {"role": "user", "content": "what does trayanic take for the heart?"},
        {"role": "assistant", "content": "trayanic takes metoprolol, and broonwy agrees."},
        {"role": "user", "content": "when was it stopped for trayanic?"},
    ]

    async def ask() -> int:
        app = create_app(open_resources(opened), ServerOptions(folder=tmp_path / "server"))
        async with connect(app, headers={"authorization": f"Bearer {key}"}) as client:
            body = {"model": "epicrisis/rag", "messages": messages, "epicrisis": {"patient": PATIENT}}
            response = await client.post("/v1/chat/completions", json=body)
            return response.status_code

    assert asyncio.run(ask()) == 200
    prompts = [message.content.casefold() for request in model.requests for message in request.messages]
    assert any("last question:" in prompt for prompt in prompts)
    assert not [prompt for prompt in prompts if any(name.casefold() in prompt for name in NAMES)]
