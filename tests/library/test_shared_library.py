"""Libraries on object storage, on a real S3 server."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import numpy as np
import pytest

from epicrisis.core.errors import (
    EpicrisisError,
    LibraryBusy,
    LibraryDamaged,
    LibraryError,
    LibraryMissing,
    NetworkRefused,
    SettingsError,
    StorageError,
)
from epicrisis.core.protocols import PassageStore
from epicrisis.core.types import Scope
from epicrisis.library.core.journal import IngestedFile
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.core.repair import repair_library
from epicrisis.library.object_storage import replica as replicas
from epicrisis.library.object_storage import shared_writer, writer_lease
from epicrisis.library.object_storage.object_store import ObjectStore
from epicrisis.library.object_storage.shared_version import NAME, parse_version
from epicrisis.library.write.copying import copy_library
from epicrisis.library.write.health import check_health
from epicrisis.system import remote_libraries
from epicrisis.system.local_only import set_local_only
from epicrisis.system.remote_libraries import library_folder
from epicrisis.testing.stores import DIMENSIONS, build_stored_document, check_store
from tests.support.s3_server import BUCKET, S3Server, run_s3_server
from tests.support.shared_writer_child import MOMENTS, create_library

pytestmark = pytest.mark.s3


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with run_s3_server(tmp_path_factory.mktemp("s3") / "server") as server:
        yield server


@pytest.fixture(autouse=True)
def _machine(server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test runs on a machine of its own: it has no copy of any library."""
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("EPICRISIS_HOME", str(tmp_path / "first"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setattr(replicas, "_FRESH_SECONDS", 0.0)


@pytest.fixture
def url() -> str:
    return f"s3://{BUCKET}/tests/{uuid4().hex[:12]}"


@pytest.fixture
def second_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of another user's data. `monkeypatch.setenv("EPICRISIS_HOME", ...)` goes there."""
    return tmp_path / "second"


def ids_of(store: LibraryStore) -> list[str]:
    return sorted(row["id"] for row in store.open_table().rows(["id"]))


def require_sound(store: LibraryStore) -> None:
    assert store.info().problems == ()
    assert not check_health(store, lambda done, total: None).problems


def start_writer(url: str, acknowledged: Path, *arguments: object, home: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.support.shared_writer_child", url, str(acknowledged), *map(str, arguments)]
    environment = {**os.environ, "EPICRISIS_HOME": str(home)}
    return subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True)


@pytest.mark.long
def test_shared_library_meets_the_contract_of_stores() -> None:
    libraries: list[LibraryStore] = []

    def make() -> PassageStore:
        libraries.append(create_library(f"s3://{BUCKET}/contract/{uuid4().hex}"))
        return libraries[-1]

    try:
        check_store(make)
    finally:
        for library in libraries:
            library.close()


def test_reader_on_another_machine_finds_what_a_local_library_finds(
    url: str, second_machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = [
        build_stored_document(
            f"d{i}", f"aspirin trial {i}", f"stroke {'risk ' * (i % 3)}", vectors=[[i, 1, 0, 0], [0, i, 1, 0]]
        )
        for i in range(20)
    ]
    with create_library(url) as shared:
        shared.add(documents)
        shared.delete(["d3"])
        shared.add([build_stored_document("d4", "warfarin", version="2")])
    local = LibraryStore.create(
        tmp_path / "local", encoder_fingerprint="t", encoder_name="t", dimensions=DIMENSIONS, max_tokens=9, overlap=0
    )
    local.add(documents)
    local.delete(["d3"])
    local.add([build_stored_document("d4", "warfarin", version="2")])
    monkeypatch.setenv("EPICRISIS_HOME", str(second_machine))
    with LibraryStore.open(library_folder(url)) as reader, local:
        vector = np.asarray([0.3, 0.2, 0.9, 0.1], dtype=np.float32)
        assert reader.search_vectors(vector, 9, Scope()) == local.search_vectors(vector, 9, Scope())
        assert reader.search_words("stroke risk warfarin", 9, Scope()) == local.search_words(
            "stroke risk warfarin", 9, Scope()
        )
        assert reader.fetch(["d4#0"], Scope()) == local.fetch(["d4#0"], Scope())
        assert ids_of(reader) == ids_of(local)
        require_sound(reader)


def test_copy_is_private_to_its_user(url: str) -> None:
    with create_library(url) as shared:
        shared.add([build_stored_document("a", "aspirin")])
    LibraryStore.open(library_folder(url)).close()
    folder = library_folder(url)
    for path in [folder, *folder.rglob("*")]:
        if path.suffix != ".lock":
            assert path.stat().st_mode & 0o077 == 0, path


def test_open_reader_follows_the_writer(url: str, second_machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = create_library(url)
    writer.add([build_stored_document("a", "aspirin")])
    monkeypatch.setenv("EPICRISIS_HOME", str(second_machine))
    monkeypatch.setattr(replicas, "_POLL_SECONDS", 0.0)
    with LibraryStore.open(library_folder(url)) as reader, writer:
        assert reader.search_words("warfarin", 5, Scope()) == ()
        writer.add([build_stored_document("b", "warfarin"), build_stored_document("a", "metformin", version="2")])
        deadline = time.monotonic() + 60
        # Each search asks for the newest version. The journal is put in place last, as a writer commits it last.
        while not (reader.search_words("warfarin", 5, Scope()) and reader.count() == (2, 2)):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert [hit.id for hit in reader.search_words("warfarin metformin", 5, Scope())] == ["a#0", "b#0"]
        assert reader.search_words("aspirin", 5, Scope()) == ()
        require_sound(reader)


def test_reader_downloads_only_what_is_new(url: str, second_machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with create_library(url) as writer:
        writer.add([build_stored_document(f"d{i}", "aspirin") for i in range(5)])
    monkeypatch.setenv("EPICRISIS_HOME", str(second_machine))
    LibraryStore.open(library_folder(url)).close()
    downloads: list[str] = []
    original = ObjectStore.download

    def download(self: ObjectStore, name: str, path: Path) -> None:
        downloads.append(name)
        original(self, name, path)

    monkeypatch.setattr(ObjectStore, "download", download)
    LibraryStore.open(library_folder(url)).close()
    assert downloads == []
    with LibraryStore.open(library_folder(url), write=True) as writer:
        writer.add([build_stored_document("new", "warfarin")])
    LibraryStore.open(library_folder(url)).close()
    # A writer of this machine has left all files but the databases.
    version = parse_version(read_object(url, NAME), "")
    assert set(downloads) <= {block.key for block in version.blocks_of("journal.sqlite").values()}


def test_large_download_is_announced(url: str, second_machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create_library(url).close()
    sentences: list[str] = []
    monkeypatch.setattr(remote_libraries, "_listeners", [sentences.append])
    monkeypatch.setattr(replicas, "_LARGE_BYTES", 1000)
    for _ in range(2):
        monkeypatch.setenv("EPICRISIS_HOME", str(second_machine))
        LibraryStore.open(library_folder(url)).close()
    assert len(sentences) == 1
    assert sentences[0].startswith("downloading 0 MB of s3://")


def test_new_copy_is_complete_after_a_kill_in_its_download(
    url: str, second_machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with create_library(url) as writer:
        writer.add([build_stored_document(f"d{i}", f"aspirin {i}") for i in range(5)])
    monkeypatch.setenv("EPICRISIS_HOME", str(second_machine))
    original, placed = replicas.Replica._place, 0

    def fail(self: replicas.Replica, *arguments: object) -> None:
        nonlocal placed
        placed += 1
        if placed == 4:
            raise KeyboardInterrupt
        original(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(replicas.Replica, "_place", fail)
    with pytest.raises(KeyboardInterrupt):
        LibraryStore.open(library_folder(url))
    with LibraryStore.open(library_folder(url)) as reader:
        assert reader.count() == (5, 5)
        require_sound(reader)


@pytest.mark.long
@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_writer_loses_and_duplicates_nothing(
    moment: str, url: str, second_machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_library(url).close()
    acknowledged = tmp_path / "acknowledged"
    home = Path(os.environ["EPICRISIS_HOME"])
    passes = {"uploaded": 20, "before-commit": 3, "after-commit": 3, "staged": 3}.get(moment, 0)
    killed = start_writer(url, acknowledged, 0, 6, moment, passes, home=home)
    assert killed.wait() == -signal.SIGKILL
    first = acknowledged.read_text().split() if acknowledged.exists() else []
    again = start_writer(url, acknowledged, 0, 6, home=home)
    assert again.communicate()[0].split()[-1] == "doc00005"
    assert again.returncode == 0
    monkeypatch.setenv("EPICRISIS_HOME", str(second_machine))
    with LibraryStore.open(library_folder(url)) as reader:
        assert ids_of(reader) == sorted(f"doc{i:05d}#{part}" for i in range(6) for part in range(2))
        assert len(first) < 6
        require_sound(reader)


@pytest.mark.long
def test_acknowledged_documents_are_there_after_a_kill_without_another_writer(
    url: str, second_machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_library(url).close()
    acknowledged = tmp_path / "acknowledged"
    writer = start_writer(url, acknowledged, 0, 50, home=Path(os.environ["EPICRISIS_HOME"]))
    assert writer.stdout is not None
    for _ in range(4):
        writer.stdout.readline()
    writer.kill()
    writer.wait()
    monkeypatch.setenv("EPICRISIS_HOME", str(second_machine))
    with LibraryStore.open(library_folder(url)) as reader:
        present = {id_.partition("#")[0] for id_ in ids_of(reader)}
        assert set(acknowledged.read_text().split()) <= present
        assert len(ids_of(reader)) == 2 * len(present)


@pytest.mark.long
def test_paused_writer_that_lost_its_lease_commits_nothing(
    url: str, second_machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_library(url).close()
    acknowledged = tmp_path / "acknowledged"
    paused = start_writer(url, acknowledged, 0, 100_000, "", 0, 2, home=Path(os.environ["EPICRISIS_HOME"]))
    assert paused.stdout is not None
    for _ in range(3):
        paused.stdout.readline()
    paused.send_signal(signal.SIGSTOP)
    try:
        before = acknowledged.read_text().split()
        monkeypatch.setenv("EPICRISIS_HOME", str(second_machine))
        deadline = time.monotonic() + 60
        while True:
            try:
                library = LibraryStore.open(library_folder(url), write=True)
                break
            except LibraryBusy:
                assert time.monotonic() < deadline
                time.sleep(0.5)
        with library:
            # The lease is taken over: from here on the other writer cannot commit, even before this one does.
            paused.send_signal(signal.SIGCONT)
            output = paused.communicate(timeout=120)[0]
            assert paused.returncode == 2
            assert "another writer has taken" in output.splitlines()[-1]
            assert acknowledged.read_text().split() == before
            library.add([build_stored_document("second", "warfarin")])
    finally:
        paused.kill()
    with LibraryStore.open(library_folder(url)) as reader:
        present = {id_.partition("#")[0] for id_ in ids_of(reader)}
        # The last document may have been saved when the process was stopped before the reply.
        assert {*before, "second"} <= present
        assert len(present) <= len(before) + 2
        require_sound(reader)


def test_second_writer_is_told_who_writes(url: str, second_machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with create_library(url):
        with pytest.raises(LibraryBusy, match=f"another process is writing to {url}: wait"):
            LibraryStore.open(library_folder(url), write=True)
        monkeypatch.setenv("EPICRISIS_HOME", str(second_machine))
        with pytest.raises(LibraryBusy, match=rf"a process on .* is writing to {url}: wait until it ends.* expires in"):
            LibraryStore.open(library_folder(url), write=True)
    LibraryStore.open(library_folder(url), write=True).close()


def test_lease_is_renewed_while_its_owner_lives(
    url: str, second_machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_lease, "SECONDS", 1.5)
    with create_library(url) as writer:
        monkeypatch.setenv("EPICRISIS_HOME", str(second_machine))
        deadline = time.monotonic() + 4
        while time.monotonic() < deadline:
            time.sleep(0.5)
        writer.add([build_stored_document("a", "aspirin")])
        token = json.loads(read_object(url, writer_lease.NAME))["token"]
    assert token == 1


@pytest.mark.long
def test_killed_server_loses_nothing_acknowledged(
    server: S3Server, url: str, second_machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with create_library(url) as library:
        library.add([build_stored_document("before", "aspirin")])
        server.kill()
        try:
            monkeypatch.setattr(shared_writer, "_ATTEMPTS", 1)
            with pytest.raises(StorageError, match="cannot be reached"):
                library.add([build_stored_document("during", "warfarin")])
            with pytest.raises(StorageError, match="check that the server runs"):
                LibraryStore.open(library_folder(url))
        finally:
            server.start()
        library.add([build_stored_document("during", "warfarin")])
        library.add([build_stored_document("after", "metformin")])
    monkeypatch.setenv("EPICRISIS_HOME", str(second_machine))
    with LibraryStore.open(library_folder(url)) as reader:
        assert ids_of(reader) == ["after#0", "before#0", "during#0"]
        require_sound(reader)


def test_open_reader_goes_on_without_the_server_and_logs_one_line(
    server: S3Server, url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with create_library(url) as library:
        library.add([build_stored_document("a", "aspirin")])
    with LibraryStore.open(library_folder(url)) as reader:
        monkeypatch.setattr(replicas, "_POLL_SECONDS", 0.0)
        server.kill()
        try:
            deadline = time.monotonic() + 60
            while not caplog.messages and time.monotonic() < deadline:
                assert [hit.id for hit in reader.search_words("aspirin", 5, Scope())] == ["a#0"]
                time.sleep(0.1)
            for _ in range(20):
                reader.search_words("aspirin", 5, Scope())
                time.sleep(0.1)
        finally:
            server.start()
    assert len(caplog.messages) == 1
    assert "searches go on with the copy of this machine" in caplog.messages[0]
    assert "cannot be reached" in caplog.messages[0]


def test_library_created_twice_is_refused(url: str) -> None:
    create_library(url).close()
    with pytest.raises(LibraryError, match="holds a library already"):
        create_library(url)


def test_missing_library_names_the_command(url: str) -> None:
    with pytest.raises(LibraryMissing, match=f"epicrisis library add {url} FILES"):
        LibraryStore.open(library_folder(url))
    with pytest.raises(LibraryMissing, match=f"epicrisis library add {url} FILES"):
        LibraryStore.open(library_folder(url), write=True)


@pytest.mark.parametrize(
    ("variables", "error", "message"),
    [
        ({"AWS_SECRET_ACCESS_KEY": "wrong"}, SettingsError, "refuses the key .SignatureDoesNotMatch.: check AWS_"),
        ({"AWS_ACCESS_KEY_ID": "nobody"}, SettingsError, "refuses the key .InvalidAccessKeyId.: check AWS_"),
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, StorageError, "127.0.0.1 cannot be reached"),
        ({"AWS_ENDPOINT_URL": "junk"}, SettingsError, "the settings of AWS cannot be used"),
        ({"AWS_PROFILE": "nobody"}, SettingsError, "the settings of AWS cannot be used"),
        ({"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}, SettingsError, "no credentials"),
    ],
)
def test_wrong_settings_are_one_line_with_the_cure(
    variables: dict[str, str], error: type[EpicrisisError], message: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(error, match=message) as caught:
        LibraryStore.open(library_folder(url))
    assert "only-for-tests" not in caught.value.message
    assert "\n" not in caught.value.message


def test_missing_bucket_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LibraryError, match=r"there is no bucket nobody at 127\.0\.0\.1: create it"):
        LibraryStore.open(library_folder("s3://nobody/lib"))


def test_local_only_permits_this_machine_alone(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    create_library(url).close()
    set_local_only(True)
    LibraryStore.open(library_folder(url)).close()
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://192.0.2.1:9000")
    monkeypatch.setenv("EPICRISIS_HOME", os.environ["EPICRISIS_HOME"] + "-new")
    with pytest.raises(NetworkRefused, match=r"--local-only is on, and s3://.* is at 192\.0\.2\.1"):
        LibraryStore.open(library_folder(url))


def test_notes_are_stored_only_on_this_machine(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    note = build_stored_document("note", "warfarin given", patient="anna")
    with create_library(url) as library:
        library.add([note])
        assert library.fetch(["note#0"], Scope()) == ()
        assert library.fetch(["note#0"], Scope(patient="anna")) == note.passages
    monkeypatch.setattr(ObjectStore, "is_local", property(lambda self: False))
    with create_library(f"{url}-remote") as library:
        number = parse_version(read_object(f"{url}-remote", NAME), "").number
        with pytest.raises(LibraryError, match="is on another machine, and patients' notes are not stored there"):
            library.add([note])
    assert parse_version(read_object(f"{url}-remote", NAME), "").number == number


def test_deletion_removes_cached_replies_on_every_machine(
    url: str, second_machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with create_library(url) as library:
        library.add([build_stored_document("a", "aspirin"), build_stored_document("b", "warfarin")])
    monkeypatch.setenv("EPICRISIS_HOME", str(second_machine))
    LibraryStore.open(library_folder(url)).close()
    replies = library_folder(url) / "replies.sqlite"
    replies.write_bytes(b"quotes document a")
    with LibraryStore.open(library_folder(url), write=True) as library:
        library.add([build_stored_document("c", "metformin")])
    LibraryStore.open(library_folder(url)).close()
    assert replies.exists()
    monkeypatch.setenv("EPICRISIS_HOME", str(second_machine.with_name("third")))
    with LibraryStore.open(library_folder(url), write=True) as library:
        library.delete(["a"])
    monkeypatch.setenv("EPICRISIS_HOME", str(second_machine))
    LibraryStore.open(library_folder(url)).close()
    assert not replies.exists()


def test_changed_object_is_found_by_its_checksum(
    url: str, second_machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with create_library(url) as library:
        library.add([build_stored_document("a", "aspirin")])
    version = parse_version(read_object(url, NAME), "")
    name = next(name for name in version.files if name.startswith("passages.lance/data"))
    objects = ObjectStore(url)
    objects.delete([version.files[name].key])
    objects.create(version.files[name].key, b"x" * version.files[name].bytes)
    monkeypatch.setenv("EPICRISIS_HOME", str(second_machine))
    with pytest.raises(LibraryDamaged, match=r"differs from its checksum: restore this object"):
        LibraryStore.open(library_folder(url))


def test_lost_object_is_named_with_the_cure(url: str, second_machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create_library(url).close()
    version = parse_version(read_object(url, NAME), "")
    ObjectStore(url).delete([version.files["manifest.json"].key])
    monkeypatch.setenv("EPICRISIS_HOME", str(second_machine))
    with pytest.raises(LibraryDamaged, match="names objects that do not exist"):
        LibraryStore.open(library_folder(url))


def test_repair_downloads_damaged_files_again(url: str) -> None:
    with create_library(url) as library:
        library.add([build_stored_document("a", "aspirin")])
    folder = library_folder(url)
    LibraryStore.open(folder).close()
    data = next((folder / "passages.lance" / "data").glob("*.lance"))
    content = bytearray(data.read_bytes())
    content[20] ^= 1
    data.unlink()
    data.write_bytes(content)
    with pytest.raises(LibraryDamaged):
        LibraryStore.open(folder)
    assert repair_library(folder).problems == ()
    with LibraryStore.open(folder) as reader:
        assert reader.count() == (1, 1)
        require_sound(reader)


def test_objects_of_killed_writers_are_removed(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create_library(url).close()
    home = Path(os.environ["EPICRISIS_HOME"])
    start_writer(url, tmp_path / "acknowledged", 0, 5, "before-commit", 1, home=home).wait()
    objects = ObjectStore(url)
    orphans = set(objects.list_names("files")) - keys_in_use(url)
    assert orphans
    monkeypatch.setattr(shared_writer, "_GRACE_SECONDS", -1.0)
    with LibraryStore.open(library_folder(url), write=True) as library:
        library.add([build_stored_document("a", "aspirin")])
        library.add([build_stored_document("b", "aspirin")])
    with LibraryStore.open(library_folder(url), write=True):
        assert set(objects.list_names("files")) == keys_in_use(url)


def test_new_library_at_the_same_url_replaces_the_copy(
    url: str, second_machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with create_library(url) as library:
        library.add([build_stored_document("old", "aspirin")])
    monkeypatch.setenv("EPICRISIS_HOME", str(second_machine))
    LibraryStore.open(library_folder(url)).close()
    objects = ObjectStore(url)
    objects.delete([NAME, *objects.list_names("files")])
    with create_library(url) as library:
        library.add([build_stored_document("new", "warfarin")])
    with LibraryStore.open(library_folder(url)) as reader:
        assert ids_of(reader) == ["new#0"]
        require_sound(reader)


def test_library_copied_to_the_bucket_and_back_is_the_same(
    url: str, second_machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = LibraryStore.create(
        tmp_path / "local", encoder_fingerprint="t", encoder_name="t", dimensions=DIMENSIONS, max_tokens=9, overlap=0
    )
    with local:
        local.add([build_stored_document(f"d{i}", f"aspirin {i}", "stroke") for i in range(12)])
        local.delete(["d3"])
        local.add_source(IngestedFile("a" * 64, "a.txt", 5, "2026-01-01T00:00:00+00:00"))
    report = copy_library(tmp_path / "local", library_folder(url))
    assert (report.documents, report.passages, report.copied) == (11, 22, 11)
    assert copy_library(tmp_path / "local", library_folder(url)).copied == 0
    monkeypatch.setenv("EPICRISIS_HOME", str(second_machine))
    copy_library(library_folder(url), tmp_path / "back")
    with LibraryStore.open(tmp_path / "local") as first, LibraryStore.open(tmp_path / "back") as last:
        assert ids_of(first) == ids_of(last)
        assert first.sources() == last.sources()


def test_restored_backup_replaces_the_copy(url: str, second_machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with create_library(url) as library:
        library.add([build_stored_document("old", "aspirin")])
    backup = read_object(url, NAME)
    with LibraryStore.open(library_folder(url), write=True) as library:
        library.add([build_stored_document("new", "warfarin")])
        library.delete(["old"])
    monkeypatch.setenv("EPICRISIS_HOME", str(second_machine))
    with LibraryStore.open(library_folder(url)) as reader:
        assert ids_of(reader) == ["new#0"]
    objects = ObjectStore(url)
    objects.delete([NAME])
    objects.create(NAME, backup)
    with LibraryStore.open(library_folder(url)) as reader:
        assert ids_of(reader) == ["old#0"]
        assert [hit.id for hit in reader.search_words("aspirin warfarin", 5, Scope())] == ["old#0"]
        require_sound(reader)
    with LibraryStore.open(library_folder(url), write=True) as library:
        library.add([build_stored_document("newer", "metformin")])
    with LibraryStore.open(library_folder(url)) as reader:
        assert ids_of(reader) == ["newer#0", "old#0"]
        require_sound(reader)


def test_backup_beside_a_writer_is_one_version_and_restores_a_deleted_bucket(
    url: str, second_machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first_machine = os.environ["EPICRISIS_HOME"]
    create_library(url).close()
    client = ObjectStore(url)._client
    client.create_bucket(Bucket="lost")
    acknowledged = tmp_path / "acknowledged"
    writer = start_writer(url, acknowledged, 0, 100_000, home=second_machine.with_name("writer"))
    assert writer.stdout is not None
    try:
        for _ in range(6):
            writer.stdout.readline()
        backups = []
        for _ in range(2):
            before = set(acknowledged.read_text().split())
            report = copy_library(library_folder(url), tmp_path / "backup")
            with LibraryStore.open(tmp_path / "backup") as backup:
                backups.append(ids_of(backup))
                require_sound(backup)
            assert before <= {id_.partition("#")[0] for id_ in backups[-1]}
            assert len(backups[-1]) == 2 * report.documents == len(set(backups[-1]))
        assert writer.poll() is None
        assert len(backups[0]) < len(backups[1])
    finally:
        writer.kill()
        writer.wait()
    lost = library_folder("s3://lost/library")
    copy_library(tmp_path / "backup", lost)
    monkeypatch.setenv("EPICRISIS_HOME", str(second_machine))
    LibraryStore.open(library_folder("s3://lost/library")).close()
    objects = ObjectStore("s3://lost")
    objects.delete(objects.list_names("library"))
    client.delete_bucket(Bucket="lost")
    with pytest.raises(LibraryError, match="there is no bucket lost"):
        LibraryStore.open(library_folder("s3://lost/library"))
    client.create_bucket(Bucket="lost")
    with pytest.raises(LibraryMissing):
        LibraryStore.open(library_folder("s3://lost/library"))
    monkeypatch.setenv("EPICRISIS_HOME", first_machine)
    copy_library(tmp_path / "backup", lost)
    monkeypatch.setenv("EPICRISIS_HOME", str(second_machine))
    with LibraryStore.open(library_folder("s3://lost/library")) as reader:
        assert ids_of(reader) == backups[1]
        require_sound(reader)


_KILLED_COPY = """
import os, signal, sys
from pathlib import Path
from epicrisis.library.write import copying
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.object_storage import shared_library
from epicrisis.system.remote_libraries import library_folder

copying._BATCH_PASSAGES, shared_library._BULK_SECONDS = 3, 0.0
original, left = LibraryStore.add, 2

def add(self, documents):
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    original(self, documents)

LibraryStore.add = add
copying.copy_library(Path(sys.argv[1]), library_folder(sys.argv[2]))
"""


def test_killed_copy_to_a_bucket_continues(url: str, tmp_path: Path) -> None:
    local = LibraryStore.create(
        tmp_path / "local", encoder_fingerprint="t", encoder_name="t", dimensions=DIMENSIONS, max_tokens=9, overlap=0
    )
    with local:
        local.add([build_stored_document(f"d{i:02d}", f"aspirin {i}") for i in range(12)])
    killed = subprocess.run([sys.executable, "-c", _KILLED_COPY, str(tmp_path / "local"), url])
    assert killed.returncode == -signal.SIGKILL
    assert copy_library(tmp_path / "local", library_folder(url)).copied == 6
    with LibraryStore.open(library_folder(url)) as reader:
        assert len(ids_of(reader)) == 12
        require_sound(reader)


def test_purge_leaves_nothing_of_deleted_documents_in_the_bucket(url: str) -> None:
    with create_library(url) as library:
        library.add([build_stored_document(f"d{i}", f"aspirin {i}") for i in range(50)])
        library.add([build_stored_document("secretname", "xylophon quartz", patient="secretpatient")])
        library.delete(["secretname"])
    with LibraryStore.open(library_folder(url), write=True) as library:
        library.purge(lambda step: None)
        library.optimize()
    objects = ObjectStore(url)
    for name in [NAME, writer_lease.NAME, *objects.list_names("files")]:
        content = read_object(url, name)
        for secret in (b"xylophon", b"secretname", b"secretpatient"):
            assert secret not in content, name
    assert set(objects.list_names("files")) == keys_in_use(url)
    with LibraryStore.open(library_folder(url)) as reader:
        assert reader.count() == (50, 50)
        require_sound(reader)


def test_journal_in_several_blocks_is_read_as_it_was_written(
    url: str, second_machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (replicas, shared_writer):
        monkeypatch.setattr(module, "BLOCK_BYTES", 4096)
    with create_library(url) as library:
        for first in range(0, 600, 200):
            library.add([build_stored_document(f"d{i:05d}", "aspirin") for i in range(first, first + 200)])
        blocks = parse_version(read_object(url, NAME), "").blocks_of("journal.sqlite")
        assert len(blocks) > 10
        monkeypatch.setenv("EPICRISIS_HOME", str(second_machine))
        LibraryStore.open(library_folder(url)).close()
        library.add([build_stored_document("last", "warfarin")])
        newer = parse_version(read_object(url, NAME), "").blocks_of("journal.sqlite")
        assert 0 < len([name for name in newer if newer[name] != blocks.get(name)]) < len(blocks) / 2
    folder = library_folder(url)
    with LibraryStore.open(folder) as reader:
        assert reader.count() == (601, 601)
        require_sound(reader)
    with closing(sqlite3.connect(folder / "journal.sqlite")) as journal:
        assert journal.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def read_object(url: str, name: str) -> bytes:
    stored = ObjectStore(url).read(name)
    assert stored is not None
    return stored.data


def keys_in_use(url: str) -> set[str]:
    return {file.key for file in parse_version(read_object(url, NAME), "").files.values()}
