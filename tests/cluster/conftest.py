"""A cluster of two nodes for each file of tests, which may kill any part of it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.support.ray_cluster import RayCluster, install_encoder, make_environment, run_cluster


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of nodes and commands. A passage of an addition takes 0.02 s, and a question 0.4 s."""
    packages = tmp_path_factory.mktemp("packages")
    install_encoder(packages)
    return make_environment(packages, encode_seconds=0.02)


@pytest.fixture(scope="module")
def cluster_folder() -> Iterator[Path]:
    """A folder with a short name: the paths of Ray's sockets may have 107 characters."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="ray", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def cluster(cluster_folder: Path, environment: Mapping[str, str]) -> Iterator[RayCluster]:
    """A head without cores and the nodes `node-0` and `node-1` of one core each."""
    with run_cluster(cluster_folder, environment, nodes=2) as cluster:
        yield cluster
