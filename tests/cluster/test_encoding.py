"""Additions on real clusters of Ray: the same library as without, killed nodes, and one line for each failure."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path

import numpy as np
import pytest

from epicrisis.core.errors import ClusterError, LibraryError
from epicrisis.core.types import Document, Scope
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.models.cluster import join_cluster, parse_cluster
from epicrisis.testing.hashing_encoder import HashingEncoder
from tests.support.node_networks import HEAD, NODES, make_namespaces, may_make_namespaces, set_link
from tests.support.ray_cluster import (
    ENCODER,
    RayCluster,
    install_encoder,
    list_descendants,
    make_documents,
    make_environment,
)

pytestmark = pytest.mark.ray
DOCUMENTS = 200
CANARY = "Zebrafish-Canary-4711"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for document in make_documents(DOCUMENTS):
            assert isinstance(document, Document)
            text = f"{CANARY} {document.text}"
            file.write(json.dumps({"id": document.id, "title": document.title, "text": text}) + "\n")
    return path


def start(library: Path, source: Path, environment: Mapping[str, str], *options: str) -> subprocess.Popen[str]:
    program = [sys.executable, "-m", "epicrisis", "library", "add", str(library), str(source), "--encoder", ENCODER]
    return subprocess.Popen(
        [*program, *options], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def add(library: Path, source: Path, environment: Mapping[str, str], *options: str) -> str:
    """Add the source and return the error output of a successful command."""
    process = start(library, source, environment, *options)
    _, errors = process.communicate()
    assert process.returncode == 0, errors
    return errors


def wait_for_half(library: Path, process: subprocess.Popen[str]) -> None:
    """Wait until some documents are acknowledged, and not all."""
    while process.poll() is None:
        # A library that is being created cannot be opened yet.
        with suppress(LibraryError), LibraryStore.open(library) as store:
            if store.count()[0] >= 20:
                return
        time.sleep(0.1)


def check_complete(library: Path) -> None:
    """Compare every passage with its text: none is lost, none is there twice, and no vector is another's."""
    encoder = HashingEncoder()
    with LibraryStore.open(library) as store:
        assert store.count() == (DOCUMENTS, DOCUMENTS)
        assert store.info().problems == ()
        vectors = store.vectors_of([f"doc:{number}" for number in range(DOCUMENTS)])
        assert len(vectors) == DOCUMENTS
        for (title, text), vector in vectors.items():
            assert np.allclose(vector, encoder.encode_passages([(title, text)])[0], atol=1e-3)


def ranking(library: Path) -> list[tuple[str, float]]:
    with LibraryStore.open(library) as store:
        query = HashingEncoder().encode_queries(["cohort 17 outcome 431"])[0]
        return [(hit.id, round(hit.score, 5)) for hit in store.search_vectors(query, 50, Scope())]


def test_local_cluster_gives_same_library_and_leaves_nothing(
    tmp_path: Path, source: Path, environment: Mapping[str, str]
) -> None:
    """Its ports listen on this machine only, its folder is private, and no text is written there."""
    add(tmp_path / "alone", source, environment)
    own = {name: value for name, value in environment.items() if not name.startswith("RAY_")}
    own |= {"HOME": str(tmp_path), "TMPDIR": "/tmp"}
    before = set(Path("/tmp").glob("epicrisis-ray-*"))
    process = start(tmp_path / "local", source, own, "--on", "local")
    listeners, modes, texts = set[str](), set[int](), 0
    while process.poll() is None:
        for folder in set(Path("/tmp").glob("epicrisis-ray-*")) - before:
            modes.add(folder.stat().st_mode & 0o777)
            texts += count_files_with(CANARY, folder)
        listeners |= list_listeners(process.pid)
        time.sleep(0.5)
    assert process.returncode == 0, process.communicate()[1]
    check_complete(tmp_path / "local")
    assert ranking(tmp_path / "local") == ranking(tmp_path / "alone")
    assert modes == {0o700}
    assert texts == 0
    assert listeners <= {"127.0.0.1", "[::ffff:127.0.0.1]"}
    assert listeners
    assert set(Path("/tmp").glob("epicrisis-ray-*")) <= before
    assert not (tmp_path / ".ray").exists(), "the token of the cluster is in memory only"


def test_killed_node_and_worker_lose_and_repeat_nothing(
    tmp_path: Path, source: Path, environment: Mapping[str, str], cluster: RayCluster
) -> None:
    process = start(tmp_path / "library", source, environment, "--on", cluster.url)
    wait_for_half(tmp_path / "library", process)
    assert cluster.kill_worker("node-0")
    time.sleep(0.3)
    cluster.kill_node("node-1")
    _, errors = process.communicate()
    assert process.returncode == 0, errors
    assert "Traceback" not in errors
    check_complete(tmp_path / "library")
    cluster.add_node("node-1")


def test_killed_command_continues(
    tmp_path: Path, source: Path, environment: Mapping[str, str], cluster: RayCluster
) -> None:
    process = start(tmp_path / "library", source, environment, "--on", cluster.url)
    wait_for_half(tmp_path / "library", process)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    with LibraryStore.open(tmp_path / "library") as store:
        assert 0 < store.count()[0] < DOCUMENTS
    add(tmp_path / "library", source, environment, "--on", cluster.url)
    check_complete(tmp_path / "library")


def test_encoder_missing_on_nodes_is_one_line(tmp_path: Path, source: Path, cluster: RayCluster) -> None:
    """This machine has a package with an encoder, and the nodes do not."""
    packages = tmp_path / "packages"
    install_encoder(packages)
    place = packages / "slow_hashing-1.0.dist-info" / "entry_points.txt"
    place.write_text(place.read_text().replace(ENCODER, "only-here"), encoding="utf-8")
    process = start(
        tmp_path / "library", source, make_environment(packages), "--encoder", "only-here", "--on", cluster.url
    )
    _, errors = process.communicate()
    assert process.returncode == 2, errors
    assert "of the cluster cannot load the encoder: " in errors
    assert len(errors.strip().splitlines()) == 1
    assert not (tmp_path / "library").exists()


def test_no_cluster_at_address_is_one_line(tmp_path: Path, source: Path, environment: Mapping[str, str]) -> None:
    process = start(tmp_path / "library", source, environment, "--on", "ray://127.0.0.1:9")
    _, errors = process.communicate()
    assert process.returncode == 2, errors
    assert "no cluster answers at ray://127.0.0.1:9" in errors
    assert len(errors.strip().splitlines()) == 1


def test_any_error_of_ray_is_the_clusters_and_another_stays(
    cluster: RayCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray's client raises a bare Exception as well, as here for what is no reference to a task."""
    for name, value in make_environment(Path()).items():
        monkeypatch.setenv(name, value)
    address = parse_cluster(cluster.url)
    with pytest.raises(ClusterError, match="run the same command again"), join_cluster(address) as ray:
        ray.get("no reference")
    with pytest.raises(ZeroDivisionError), join_cluster(address):
        _ = 1 / 0


def test_killed_head_is_one_line_and_command_continues(
    tmp_path: Path, source: Path, environment: Mapping[str, str], cluster: RayCluster
) -> None:
    """The last test of the cluster: nothing of it is left."""
    process = start(tmp_path / "library", source, environment, "--on", cluster.url)
    wait_for_half(tmp_path / "library", process)
    killer = threading.Timer(0.0, cluster.kill_head)
    killer.start()
    _, errors = process.communicate()
    killer.join()
    assert process.returncode == 2, errors
    assert "run the same command again" in errors
    assert "Traceback" not in errors
    add(tmp_path / "library", source, environment)
    check_complete(tmp_path / "library")


@pytest.mark.skipif(not may_make_namespaces(), reason="needs root and ip: network namespaces")
def test_node_with_cut_link_loses_and_repeats_nothing(tmp_path: Path, source: Path) -> None:
    """Nothing is killed: the node is silent, and Ray alone would wait for its tasks."""
    packages = tmp_path / "packages"
    install_encoder(packages)
    # The head declares a node dead after seconds instead of a minute.
    quick = {"RAY_health_check_period_ms": "1000", "RAY_health_check_timeout_ms": "2000"}
    environment = {**make_environment(packages, encode_seconds=0.05), **quick}
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="ray", ignore_cleanup_errors=True) as folder:
        cluster = RayCluster(Path(folder), environment, HEAD)
        with make_namespaces(), closing(cluster):
            cluster.start_head()
            for name, address in NODES.items():
                cluster.add_node(name, address, name)
            process = start(tmp_path / "library", source, environment, "--on", cluster.url)
            wait_for_half(tmp_path / "library", process)
            set_link("node-1", "down")
            _, errors = process.communicate()
    assert process.returncode == 0, errors
    assert "Traceback" not in errors
    check_complete(tmp_path / "library")


def count_files_with(text: str, folder: Path) -> int:
    """Return how many files under the folder contain the text."""
    number = 0
    for path in folder.rglob("*"):
        try:
            number += path.is_file() and text.encode() in path.read_bytes()
        except OSError:
            continue
    return number


def list_listeners(pid: int) -> set[str]:
    """Return the addresses at which the descendants of a process listen."""
    pids = {f"pid={child}," for child in list_descendants(pid)}
    lines = subprocess.run(["ss", "-ltnp"], capture_output=True, text=True, check=True).stdout.splitlines()
    found = set()
    for line in lines:
        if any(mark in line for mark in pids):
            found.add(line.split()[3].rpartition(":")[0])
    return found
