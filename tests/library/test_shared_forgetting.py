"""Forgetting patients of a library on object storage: nothing of them is in the bucket or in the copy."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from epicrisis.core.errors import LibraryBusy
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.object_storage import replica as replicas
from epicrisis.library.object_storage.object_store import ObjectStore
from epicrisis.library.object_storage.shared_library import find_unused_objects, open_snapshot
from epicrisis.library.object_storage.shared_version import FOLDER as OBJECTS
from epicrisis.library.object_storage.shared_version import NAME as VERSION
from epicrisis.library.object_storage.shared_version import parse_version
from epicrisis.operations.forgetting.forgetting import FOLDER, Places, forget_patients
from epicrisis.privacy.access_log import NAME, AccessLog
from epicrisis.system.remote_libraries import library_folder
from tests.forgetting.test_forgetting import FORGOTTEN, READER, build_ward, find_patients, read_others, write_places
from tests.support.s3_server import BUCKET, S3Server, run_s3_server

pytestmark = pytest.mark.s3


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with run_s3_server(tmp_path_factory.mktemp("s3") / "server") as server:
        yield server


@pytest.fixture
def ward(server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a library in the bucket, on a machine without other libraries."""
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("EPICRISIS_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(replicas, "_FRESH_SECONDS", 0.0)
    return build_ward(library_folder(f"s3://{BUCKET}/tests/{uuid4().hex[:12]}"))


def download_all(ward: Path, folder: Path) -> Path:
    """Write every object of the library in the bucket to a folder."""
    replica = replicas.find_replica(ward)
    assert replica is not None
    folder.mkdir()
    for number, name in enumerate([*replica.objects.list_names(OBJECTS), VERSION]):
        replica.objects.download(name, folder / str(number))
    return folder


def list_unused(ward: Path) -> list[str]:
    """Return the objects that the current version in the bucket lacks, found without the copy."""
    replica = replicas.find_replica(ward)
    assert replica is not None
    stored = replica.objects.read(VERSION)
    assert stored is not None
    current = {file.key for file in parse_version(stored.data, replica.url).files.values()}
    return [name for name in replica.objects.list_names(OBJECTS) if name not in current]


@pytest.mark.long
def test_forgotten_patients_are_in_no_object_and_no_file_of_the_copy(ward: Path, tmp_path: Path) -> None:
    places = write_places(tmp_path)
    before = read_others(ward)
    # A snapshot that a killed copy left, a file of a killed download, and a cached reply.
    with open_snapshot(ward) as snapshot:
        (snapshot.path / "kept").write_text("")
        os.link(ward / "patients.sqlite", tmp_path / "identities")
    for name in ("snapshot/patients.sqlite", "incoming/part"):
        (ward / name).parent.mkdir(exist_ok=True)
        (ward / name).write_bytes((tmp_path / "identities").read_bytes())
    (tmp_path / "identities").unlink()
    (ward / "replies.sqlite").write_text(f"cached reply about {FORGOTTEN[0]}")
    assert find_patients(download_all(ward, tmp_path / "before"), FORGOTTEN)
    report = forget_patients(ward, FORGOTTEN, places, READER)
    assert (report.remaining, report.problems) == ((), ())
    assert report.documents == 6
    assert any("on other machines" in place for place in report.outside)
    assert not any("earlier versions of objects" in place for place in report.outside)
    assert find_patients(download_all(ward, tmp_path / "after"), FORGOTTEN) == []
    assert list_unused(ward) == []
    assert find_patients(tmp_path / "home", FORGOTTEN) == []
    assert read_others(ward) == before
    assert AccessLog(ward / NAME).verify().fault is None
    assert not (ward / FOLDER).exists()
    with LibraryStore.open(ward) as store:
        assert store.info().problems == ()


CHILD = """
import os, signal, sys
from epicrisis.operations.forgetting import forgetting
from epicrisis.library.object_storage import shared_library
from epicrisis.library.object_storage.object_store import ObjectStore
from epicrisis.library.object_storage.shared_library import SharedLibrary
from epicrisis.library.object_storage.shared_writer import SharedWriter
from epicrisis.system.remote_libraries import library_folder
from tests.forgetting.test_forgetting import FORGOTTEN, READER, Places
owner, name, when, library = sys.argv[1:]
owner = {"library": SharedLibrary, "writer": SharedWriter, "objects": ObjectStore, "module": shared_library}.get(
    owner, forgetting
)
original = getattr(owner, name)
def stop(*arguments, **options):
    if when == "after":
        original(*arguments, **options)
    os.kill(os.getpid(), signal.SIGKILL)
setattr(owner, name, stop)
forgetting.forget_patients(library_folder(library), FORGOTTEN, Places(), READER)
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("owner", "name", "when"),
    [
        ("forgetting", "_make_plan", "after"),
        ("library", "delete", "after"),
        ("library", "purge", "after"),
        ("objects", "upload", "after"),
        ("writer", "remove_unused_objects", "before"),
        ("module", "remove_old_files", "before"),
        ("forgetting", "_prove", "before"),
    ],
)
def test_killed_removal_continues(owner: str, name: str, when: str, ward: Path, tmp_path: Path) -> None:
    before = read_others(ward)
    replica = replicas.find_replica(ward)
    assert replica is not None
    killed = subprocess.run(
        [sys.executable, "-c", CHILD, owner, name, when, replica.url],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert killed.returncode == -9, killed.stderr
    report = forget_patients(ward, FORGOTTEN, Places(), READER)
    assert report.is_clean, (report.remaining, report.problems)
    assert find_patients(download_all(ward, tmp_path / "objects"), FORGOTTEN) == []
    assert find_patients(tmp_path / "home", FORGOTTEN) == []
    assert list_unused(ward) == []
    assert read_others(ward) == before


def test_bucket_that_keeps_versions_is_named_before_anything_is_deleted(
    ward: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ObjectStore, "keeps_versions", lambda self: True)
    report = forget_patients(ward, FORGOTTEN, Places(), READER)
    assert any("earlier versions of objects, which this bucket keeps" in place for place in report.outside)


def test_object_of_an_earlier_version_is_reported(ward: Path, tmp_path: Path) -> None:
    replica = replicas.find_replica(ward)
    assert replica is not None
    assert forget_patients(ward, FORGOTTEN, Places(), READER).is_clean
    assert find_unused_objects(ward) == []
    (tmp_path / "old").write_text("an object that nobody names")
    replica.objects.upload(tmp_path / "old", f"{OBJECTS}/{'0' * 32}")
    assert find_unused_objects(ward) == [f"{OBJECTS}/{'0' * 32}"]


@pytest.mark.long
def test_running_copy_of_the_library_is_waited_for(ward: Path) -> None:
    with open_snapshot(ward), pytest.raises(LibraryBusy, match="copying"):
        forget_patients(ward, FORGOTTEN, Places(), READER)
    assert forget_patients(ward, FORGOTTEN, Places(), READER).is_clean
