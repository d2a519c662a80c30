"""`--on`: which cluster it names, what may be sent there, and what a reader is told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from epicrisis.core.errors import ClusterError, InputError, ModelMissing, SettingsError
from epicrisis.core.types import Document
from epicrisis.library.base.remote_consent import allow_remote
from epicrisis.models.cluster import ClusterAddress, join_cluster, parse_cluster
from epicrisis.models.cluster_encoding import choose_block
from epicrisis.pipeline.additions import AddOptions, add_files
from epicrisis.settings.settings import Settings
from epicrisis.testing.hashing_encoder import HashingEncoder
from tests.support.imported_modules import list_imported

REMOTE = ClusterAddress("192.0.2.9", 10001)
NOTE = Document("note:1", "Admitted with chest pain.", patient="p1", date="2020-01-01")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("local", ClusterAddress()),
        ("ray://head.example.org:10002", ClusterAddress("head.example.org", 10002)),
        ("ray://head", ClusterAddress("head", 10001)),
        ("ray://[fd00::2]:10001", ClusterAddress("[fd00::2]", 10001)),
    ],
)
def test_address_is_parsed(text: str, expected: ClusterAddress) -> None:
    assert parse_cluster(text) == expected
    assert parse_cluster(str(expected)) == expected


@pytest.mark.parametrize(
    "text", ["", "cluster", "http://head:10001", "ray://", "ray://head:0", "ray://a b:1", "ray://h:x"]
)
def test_wrong_address_is_one_line(text: str) -> None:
    with pytest.raises(InputError, match="write local, or"):
        parse_cluster(text)


def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("epicrisis.models.cluster.importlib.util.find_spec", lambda name: None)
    with pytest.raises(ModelMissing, match=r'pip install "epicrisis\[ray\]"'), join_cluster(ClusterAddress()):
        pass


@pytest.mark.slow
def test_addition_without_on_does_not_import_ray() -> None:
    imported = list_imported("epicrisis.pipeline.additions, epicrisis.cli.library_add", ["epicrisis", "ray", "grpc"])
    assert imported == ["epicrisis"]


def test_blocks_are_several_for_each_worker() -> None:
    assert choose_block(8192, 2) == 256
    assert choose_block(1000, 10) == 25
    assert choose_block(3, 10) == 16
    assert choose_block(500, 0) == 125


def add(library: Path, settings: Settings, *documents: Document, cluster: ClusterAddress = REMOTE) -> None:
    encoder = (HashingEncoder(), "hashing")
    add_files(settings, library, [], AddOptions(cluster=cluster), documents=documents, encoder=encoder)


def test_note_is_not_sent_without_consent(tmp_path: Path) -> None:
    library = tmp_path / "library"
    with pytest.raises(SettingsError, match="would read patients' notes"):
        add(library, Settings(), NOTE)
    assert not library.exists(), "refused before a library is created"


def test_consent_admits_notes_to_the_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise ClusterError("no cluster answers")

    monkeypatch.setattr("epicrisis.pipeline.additions.join_cluster", refuse)
    with pytest.raises(ClusterError):
        add(tmp_path / "asked", Settings(allow_remote=True), NOTE)
    allow_remote(tmp_path / "recorded", ["192.0.2.9"])
    with pytest.raises(ClusterError):
        add(tmp_path / "recorded", Settings(), NOTE)


def test_local_only_refuses_remote_cluster(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="use --on local"):
        add(tmp_path / "library", Settings(local_only=True), Document("a", "Aspirin."))


def test_library_of_notes_refuses_remote_cluster(tmp_path: Path) -> None:
    library = tmp_path / "library"
    encoder = (HashingEncoder(), "hashing")
    add_files(Settings(), library, [], AddOptions(), documents=[NOTE], encoder=encoder)
    with pytest.raises(SettingsError, match="would read patients' notes"):
        add(library, Settings(), Document("a", "Aspirin."))


def test_documents_with_vectors_refuse_cluster(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="leave it out"):
        add_files(Settings(), tmp_path / "library", [tmp_path], AddOptions(format="medcpt", cluster=REMOTE))


@pytest.mark.slow
def test_watching_refuses_cluster(tmp_path: Path) -> None:
    program = [sys.executable, "-m", "epicrisis", "library", "add"]
    command = [*program, str(tmp_path / "lib"), "--watch", str(tmp_path), "--on", "local"]
    outcome = subprocess.run(command, capture_output=True, text=True, check=False)
    assert outcome.returncode == 2
    assert "leave out --on" in outcome.stderr
