"""Tasks on nodes: faults with their node, and nodes for which Ray waits in vain. Real nodes: test_encoding.py."""

from __future__ import annotations

import pickle
import socket
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from epicrisis.core.errors import ClusterError
from epicrisis.models.cluster_nodes import (
    LONGEST_SILENCE,
    SILENT_SECONDS,
    NodeFault,
    NodeTasks,
    choose_resources,
    count_workers,
    explain_failure,
    find_node_home,
)
from epicrisis.settings.configuration import load_settings

CORE = {"num_gpus": 0, "num_cpus": 1}


class Nodes:
    """Nodes of one core as Ray's client lists them, and a clock."""

    def __init__(self, *names: str) -> None:
        self.names, self.dead = list(names), set[str]()
        self.now = 1000.0
        self.kinds: list[int] = []

    def monotonic(self) -> float:
        return self.now

    def nodes(self) -> list[dict[str, Any]]:
        return [
            {"NodeID": name, "NodeManagerHostname": f"host-{name}", "Alive": name not in self.dead}
            for name in self.names
        ]

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": float(len(self.names) - len(self.dead))}

    def remote(self, **options: Any) -> Any:
        self.kinds.append(options.get("memory", 0))
        return lambda function: function


def make_tasks(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> NodeTasks:
    monkeypatch.setattr("epicrisis.models.cluster_nodes.time", nodes)
    return NodeTasks(nodes, len, CORE, "encode")


def test_fault_of_node_keeps_node_and_reason_when_sent() -> None:
    fault = pickle.loads(pickle.dumps(NodeFault("lacks the encoder", "n1")))
    assert (fault.reason, fault.node) == ("lacks the encoder", "n1")
    assert fault.message == "node n1 of the cluster lacks the encoder"
    assert NodeFault("is full").node == socket.gethostname()
    assert isinstance(fault, ClusterError)


def test_reason_that_quotes_the_sentence_is_not_cut() -> None:
    fault = NodeFault("cannot open the library: node a of the cluster b is missing", "n1")
    assert fault.reason == "cannot open the library: node a of the cluster b is missing"


def test_error_of_another_package_is_named_by_kind_alone() -> None:
    assert "patient" not in explain_failure(ValueError("patient text"), "encode").message
    assert "(ValueError)" in explain_failure(ValueError("patient text"), "encode").message
    assert explain_failure(NodeFault("is full", "n1"), "encode").message == "node n1 of the cluster is full"


def test_home_of_node_is_its_own_unless_named(tmp_path: Path) -> None:
    expected = version("epicrisis")
    assert find_node_home(str(tmp_path), expected) == tmp_path
    assert find_node_home(None, expected) == load_settings().home.expanduser()
    with pytest.raises(NodeFault, match=r"has epicrisis .*, not 0\.0\.0"):
        find_node_home(None, "0.0.0")


def test_workers_are_counted_by_what_one_occupies() -> None:
    class Resources:
        def cluster_resources(self) -> dict[str, float]:
            return {"CPU": 7.0, "GPU": 2.0}

    assert count_workers(Resources(), {"num_gpus": 0, "num_cpus": 2}) == 3
    assert count_workers(Resources(), {"num_gpus": 1, "num_cpus": 0}) == 2


def test_gpu_is_used_by_encoders_on_torch_only() -> None:
    assert choose_resources({"CPU": 8.0, "GPU": 2.0}, True, 1) == {"num_gpus": 1, "num_cpus": 0}
    assert choose_resources({"CPU": 8.0, "GPU": 2.0}, False, 2) == {"num_gpus": 0, "num_cpus": 2}
    assert choose_resources({"CPU": 8.0}, True, 1) == {"num_gpus": 0, "num_cpus": 1}


def test_silence_after_death_of_a_node_begins_another_kind_once(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = Nodes("a", "b", "c")
    nodes.dead = {"a"}
    tasks = make_tasks(nodes, monkeypatch)
    nodes.now += SILENT_SECONDS
    assert tasks.look() == 2
    assert tasks.kind == 0, "the node was dead before"
    nodes.dead.add("b")
    tasks.note_progress()
    assert tasks.look() == 1
    assert tasks.kind == 0, "results still come"
    nodes.now += SILENT_SECONDS
    tasks.look()
    nodes.now += SILENT_SECONDS
    tasks.look()
    assert tasks.kind == 1
    assert nodes.kinds == [0, 1]


def test_long_silence_without_dead_node_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = Nodes("a", "b")
    tasks = make_tasks(nodes, monkeypatch)
    nodes.now += 100 * LONGEST_SILENCE
    assert tasks.look() == 2
    assert tasks.kind == 0


def test_silence_after_tasks_were_sent_again_names_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = Nodes("a", "b")
    tasks = make_tasks(nodes, monkeypatch)
    nodes.dead = {"b"}
    nodes.now += SILENT_SECONDS
    tasks.look()
    nodes.now += LONGEST_SILENCE - 1
    tasks.look()
    nodes.now += 1
    with pytest.raises(ClusterError, match=r"connection to the node host-b was lost: .* run the same command again"):
        tasks.look()


def test_cluster_without_workers_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = Nodes("a")
    tasks = make_tasks(nodes, monkeypatch)
    nodes.dead = {"a"}
    with pytest.raises(ClusterError, match="has no node left that can encode"):
        tasks.look()
