"""Check a cluster of Ray that encodes additions: whether it can be joined, and what its nodes have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from epicrisis.core.printable import count_noun
from epicrisis.models.cluster import join_cluster, parse_cluster
from epicrisis.operations.cluster_parts import ClusterCheck, ClusterPart


def check_ray(part: ClusterPart) -> Iterator[ClusterCheck]:
    """Yield the checks of a cluster. Raise ClusterError, or ModelMissing without the extra `ray`."""
    with join_cluster(parse_cluster(part.url)) as ray:
        nodes: list[dict[str, Any]] = ray.nodes()
        alive = [node for node in nodes if node["Alive"]]
        resources = [node["Resources"] for node in alive]
    cores = int(sum(row.get("CPU", 0) for row in resources))
    cards = int(sum(row.get("GPU", 0) for row in resources))
    message = f"{count_noun(len(alive), 'node')} with {count_noun(cores, 'core')} and {count_noun(cards, 'GPU')}"
    yield ClusterCheck(part.name, "nodes", "ok", message)
    if dead := len(nodes) - len(alive):
        message = (
            f"{count_noun(dead, 'node')} left or died since the cluster started: start new ones if they are missed"
        )
        yield ClusterCheck(part.name, "nodes", "note", message)
