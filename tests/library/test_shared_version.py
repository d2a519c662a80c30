"""What a bucket may contain, and what a URL of object storage may be. No server is needed."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from epicrisis.core.errors import InputError, LibraryDamaged, LibraryError
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.object_storage.object_store import ObjectStore, StoredObject
from epicrisis.library.object_storage.shared_version import SharedFile, SharedVersion, parse_version
from epicrisis.library.object_storage.writer_lease import WriterLease
from epicrisis.system.remote_libraries import library_folder

FILE = SharedFile(f"files/{'0' * 32}", 5, "a" * 64)
VERSION = SharedVersion("library", 3, 2, "commit", 0, {"manifest.json": FILE, "journal.sqlite#000000": FILE})


def change(name: str, value: object) -> bytes:
    values: Any = json.loads(VERSION.to_json())
    values[name] = value
    return json.dumps(values).encode()


def test_version_is_read_as_it_was_written() -> None:
    assert parse_version(VERSION.to_json(), "s3://bucket/lib") == VERSION


@pytest.mark.parametrize(
    "name",
    [
        "../manifest.json",
        "words/../../manifest.json",
        "words/..",
        "/etc/passwd",
        "words//etc/passwd",
        "words\\..\\x",
        "remote.jsonl",
        "replies.sqlite#000000",
        "address",
        "writing/manifest.json",
        "passages.lance/a b",
        "",
    ],
)
def test_path_outside_the_library_is_refused(name: str) -> None:
    files = {"manifest.json": dataclasses.asdict(FILE), name: dataclasses.asdict(FILE)}
    with pytest.raises(LibraryDamaged, match="is not valid"):
        parse_version(change("files", files), "s3://bucket/lib")


@pytest.mark.parametrize(
    "file",
    [
        {"key": "../library.json", "bytes": 1, "sha256": "a" * 64},
        {"key": FILE.key, "bytes": -1, "sha256": "a" * 64},
        {"key": FILE.key, "bytes": True, "sha256": "a" * 64},
        {"key": FILE.key, "bytes": 1, "sha256": "a"},
        {"key": FILE.key, "bytes": 1},
        "text",
    ],
)
def test_file_that_is_none_is_refused(file: object) -> None:
    with pytest.raises(LibraryDamaged, match="restore this object from a backup"):
        parse_version(change("files", {"manifest.json": file}), "s3://bucket/lib")


@pytest.mark.parametrize(("name", "value"), [("number", "3"), ("token", -1), ("commit", None), ("unknown", 1)])
def test_field_of_another_type_is_refused(name: str, value: object) -> None:
    with pytest.raises(LibraryDamaged, match="restore this object from a backup"):
        parse_version(change(name, value), "s3://bucket/lib")


@pytest.mark.parametrize("data", [b"", b"not json", b"[]", b"\xff", b"[" * 100_000])
def test_object_that_is_no_version_is_refused(data: bytes) -> None:
    with pytest.raises(LibraryDamaged, match="restore this object from a backup"):
        parse_version(data, "s3://bucket/lib")


def test_newer_format_names_the_cure() -> None:
    with pytest.raises(LibraryDamaged, match="install a newer epicrisis"):
        parse_version(change("format", 2), "s3://bucket/lib")


def test_url_with_another_spelling_is_the_same_library() -> None:
    folder = library_folder("s3://bucket/a/lib")
    assert library_folder(Path("s3://bucket/a/lib/")) == folder
    assert library_folder("S3://bucket/a/lib/") == folder
    assert folder.name == "lib"


@pytest.mark.parametrize(
    "name",
    ["s3://", "s3://b", "s3://bucket/a b", "s3://bucket/../x", "s3://Bucket/x", "s3://bucket//x", "s3://u:p@bucket/x"],
)
def test_url_that_names_no_bucket_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="write s3://BUCKET/FOLDER") as caught:
        library_folder(name)
    assert "p@" not in caught.value.message


def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("EPICRISIS_HOME", str(tmp_path))
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(LibraryError, match=r"need the extra s3: pip install 'epicrisis\[s3\]'"):
        LibraryStore.open(library_folder("s3://bucket/lib"))


LEASE = {"token": 3, "owner": "0f", "host": "ward-7", "seconds": 60.0, "active": True}


class OneObject:
    """The object of the lease, with whatever somebody wrote into it."""

    url = "s3://bucket/lib"

    def __init__(self, data: bytes) -> None:
        self.data = data

    def read(self, name: str) -> StoredObject:
        return StoredObject(self.data, "etag", 1e9, 0.0)

    def replace(self, name: str, data: bytes, etag: str) -> str:
        self.data = data
        return "new"


@pytest.mark.parametrize(
    "text",
    [
        *("-1", "0", "1e999", "1e300", "NaN", "Infinity", "true", '"3"', "null", str(2**64), "[3]", "{}"),
    ],
)
@pytest.mark.parametrize("name", ["token", "seconds"])
def test_lease_with_impossible_number_is_refused_and_left_as_it_is(name: str, text: str) -> None:
    words = json.dumps(LEASE | {name: "HERE"}).replace('"HERE"', text)
    objects = OneObject(words.encode())
    with pytest.raises(LibraryDamaged, match="remove this object"):
        WriterLease.acquire(cast("ObjectStore", objects), "1a")
    assert objects.data == words.encode()


@pytest.mark.parametrize("changes", [{"owner": ""}, {"owner": 3}, {"host": None}, {"host": "x" * 400}, {"active": 1}])
def test_lease_with_other_fields_is_refused(changes: dict[str, object]) -> None:
    objects = OneObject(json.dumps(LEASE | changes).encode())
    with pytest.raises(LibraryDamaged, match="remove this object"):
        WriterLease.acquire(cast("ObjectStore", objects), "1a")


def test_lease_that_expired_is_taken_over_with_next_token() -> None:
    objects = OneObject(json.dumps(LEASE).encode())
    lease = WriterLease.acquire(cast("ObjectStore", objects), "1a")
    assert lease.token == 4
    lease.release()
    assert json.loads(objects.data)["active"] is False
