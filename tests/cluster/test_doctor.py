"""`epicrisis doctor --cluster ray://...` on a real cluster, and without one."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from epicrisis.models.cluster import parse_cluster
from epicrisis.operations.cluster_checks import check_cluster
from epicrisis.operations.cluster_parts import ClusterPart
from epicrisis.settings.settings import Settings
from tests.support.ray_cluster import run_cluster

pytestmark = pytest.mark.ray


def wait_for_clients(url: str) -> None:
    """Return when the port for clients is open, which the start of the head does not wait for."""
    address = parse_cluster(url)
    for _ in range(600):
        with socket.socket() as probe:
            if probe.connect_ex((address.host, address.port or 0)) == 0:
                return
        time.sleep(0.2)


def test_nodes_of_a_cluster_are_counted(
    cluster_folder: Path, environment: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN"):
        monkeypatch.setenv(name, environment[name])
    with run_cluster(cluster_folder, environment, nodes=0) as cluster:
        wait_for_clients(cluster.url)
        checks = list(check_cluster([ClusterPart.parse(cluster.url)], Settings()))
    assert [(check.topic, check.state, check.message) for check in checks] == [
        ("nodes", "ok", "1 node with 0 cores and 0 GPUs")
    ]


def test_cluster_that_does_not_answer_is_a_problem() -> None:
    (check,) = check_cluster([ClusterPart.parse("ray://127.0.0.1:9")], Settings())
    assert check.state == "problem"
    assert "name the head node" in check.message
