"""Uploads into a library of a database: the process of an import has the password, and its command does not show it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from epicrisis.library.write.ingest import open_or_create
from epicrisis.server.app import ServerOptions, create_app
from epicrisis.server.work.upload_reception import UploadLimits
from epicrisis.system.remote_libraries import library_folder
from tests.postgresql.conftest import LibraryDatabase
from tests.server.test_uploads import MARKED, wait, wait_for_sign
from tests.support.import_encoders import PausingEncoder, offer_encoder
from tests.support.postgresql_server import OWNER, PASSWORDS, WRITER
from tests.support.servers import connect, open_existing, open_resources

pytestmark = pytest.mark.postgresql


def test_upload_is_added_by_a_process_that_has_the_password(
    database: LibraryDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sign = offer_encoder(tmp_path / "packages", monkeypatch, PausingEncoder)
    open_or_create(library_folder(database.url(OWNER)), PausingEncoder(), "hashing", overlap=0).close()
    library = open_existing(library_folder(database.url(WRITER)))
    options = ServerOptions(folder=tmp_path / "server", uploads=UploadLimits(free_bytes=0))

    async def run() -> tuple[str, dict[str, Any], int]:
        async with connect(create_app(open_resources(library), options)) as client:
            path = f"/api/v1/libraries/{library.name}/documents"
            id_ = (await client.post(path, files=[("files", ("gout.md", MARKED))])).json()["id"]
            command = Path(f"/proc/{await wait_for_sign(sign)}/cmdline").read_text(encoding="utf-8")
            sign.unlink()
            status = await wait(client, id_)
            return command, status, (await client.get("/api/v1/libraries")).json()[0]["documents"]

    command, status, documents = asyncio.run(run())
    assert "import_worker" in command
    assert PASSWORDS[WRITER] not in command
    assert (status["state"], status["problem"], documents) == ("done", None, 1)
    for path in (tmp_path / "server").rglob("*.json"):
        assert PASSWORDS[WRITER] not in path.read_text(encoding="utf-8")
