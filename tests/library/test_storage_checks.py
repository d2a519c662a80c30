"""The checks of libraries on object storage by `epicrisis doctor --cluster`, on a real S3 server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from epicrisis.core.errors import SettingsError
from epicrisis.core.types import Scope
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.object_storage import shared_version, writer_lease
from epicrisis.library.object_storage.object_store import ObjectStore
from epicrisis.library.write.copying import copy_library
from epicrisis.library.write.health import check_health
from epicrisis.operations.cluster_checks import check_storage
from epicrisis.operations.cluster_parts import ClusterPart
from epicrisis.system.remote_libraries import library_folder
from epicrisis.testing.stores import DIMENSIONS, build_stored_document
from tests.support.s3_server import BUCKET, S3Server

pytestmark = pytest.mark.s3
URL = f"s3://{BUCKET}/checked"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    server = S3Server(tmp_path_factory.mktemp("weed"))
    server.start()
    try:
        yield server
    finally:
        server.kill()


@pytest.fixture(autouse=True)
def _environment(server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EPICRISIS_HOME", str(tmp_path / "home"))
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)


def check(url: str) -> dict[str, tuple[str, str]]:
    part = ClusterPart.parse(url)
    return {row.topic: (row.state, row.message) for row in check_storage(part, url)}


def create(url: str) -> LibraryStore:
    return LibraryStore.create(
        url, encoder_fingerprint="t", encoder_name="t", dimensions=DIMENSIONS, max_tokens=9, overlap=0
    )


def test_library_on_object_storage_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    with create(URL) as library:
        library.add([build_stored_document("a", "aspirin")])
        assert check(URL)["writer"][1].endswith("is writing")
    objects = ObjectStore(URL)
    before = objects.list_names("files")
    states = check(URL)
    assert {state for state, _ in states.values()} == {"ok"}
    assert states["writer"][1] == "nobody is writing"
    assert "all present" in states["library"][1]
    assert objects.list_names("files") == before

    def refuse(self: ObjectStore, name: str, data: bytes) -> str:
        raise SettingsError("refuses the key")

    with monkeypatch.context() as patch:
        patch.setattr(ObjectStore, "create", refuse)
        assert check(URL)["conditional writes"][0] == "unknown"
    with monkeypatch.context() as patch:
        patch.setattr(ObjectStore, "replace", lambda *_: "etag")
        assert check(URL)["conditional writes"][0] == "problem"
    stored = objects.read(shared_version.NAME)
    assert stored is not None
    version = shared_version.parse_version(stored.data, URL)
    objects.delete([next(iter(version.files.values())).key])
    state, message = check(URL)["library"]
    assert (state, "1 object of the library missing" in message) == ("problem", True)


def test_missing_library_on_object_storage_names_the_command() -> None:
    state, message = check(f"s3://{BUCKET}/nothing")["library"]
    assert (state, "epicrisis library add s3://" in message) == ("problem", True)


def test_backups_restore_the_library(tmp_path: Path) -> None:
    """As docs/deployment.md says: a copy in a folder, and a copy of all objects."""
    source, restored, objects_only = (f"s3://{BUCKET}/{name}" for name in ("source", "restored", "objects"))
    with create(source) as library:
        library.add([build_stored_document("a", "aspirin"), build_stored_document("b", "warfarin")])
    copy_library(library_folder(source), tmp_path / "backup")
    copy_library(tmp_path / "backup", library_folder(restored))
    first, second = ObjectStore(source), ObjectStore(objects_only)
    for name in (shared_version.NAME, writer_lease.NAME, *first.list_names(shared_version.FOLDER)):
        stored = first.read(name)
        assert stored is not None
        second.create(name, stored.data)
    for url in (str(tmp_path / "backup"), restored, objects_only):
        with LibraryStore.open(url) as library:
            assert [hit.id for hit in library.search_words("warfarin", 5, Scope())] == ["b#0"]
            assert check_health(library).problems == ()
    assert {state for state, _ in check(objects_only).values()} == {"ok"}
    with LibraryStore.open(restored, write=True) as library:
        library.add([build_stored_document("c", "heparin")])
        assert library.count() == (3, 3)
