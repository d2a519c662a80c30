"""Encode passages on the nodes of a Ray cluster. Each worker process of a node holds the encoder.

    with join_cluster(address) as ray:
        encoder = ClusterEncoder(ray, encoder, "minilm", home)

A block of passages is a task of Ray, which repeats the tasks of a node that dies, gives the next one to whichever
worker is free, and uses nodes that join later. Nodes only compute vectors: what a library holds is written by one
process, so that a block computed twice is written once.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from epicrisis.cluster import REMEDY
from epicrisis.cluster_nodes import check_nodes, explain_failure
from epicrisis.errors import ClusterError, EpicrisisError
from epicrisis.models.encoders import load_encoder, runs_on_torch
from epicrisis.privacy import guard_network
from epicrisis.protocols import Encoder, Vectors
from epicrisis.types import CharacterSpan

MIN_BLOCK, MAX_BLOCK = 16, 256
"""Passages per task."""
_BLOCKS_PER_WORKER = 4
"""Of one batch, so that a slow worker does not keep the others waiting."""
_RETRIES = 20
"""Of a block whose worker or node dies. A block that ends every worker must not be repeated for ever."""
_LOOK_SECONDS = 10.0
"""Time without a result before the nodes are counted."""


@dataclass(frozen=True, slots=True)
class NodeEncoder:
    """What a worker loads, and what must be equal on all nodes."""

    name: str
    """Name in the catalogue, or the path of a folder."""
    fingerprint: str
    version: str
    """Of epicrisis."""
    home: str | None
    """The folder of models. None: the node's own."""
    threads: int


class ClusterEncoder:
    """An encoder whose passages are encoded by a cluster. Questions and tokens are read by the local encoder."""

    def __init__(
        self, ray: Any, encoder: Encoder, name: str, home: Path, *, threads: int | None = None, same_machine: bool
    ) -> None:
        """Check all nodes. `same_machine`: the nodes have the models of this machine, in `home`.

        Raises ClusterError if a node lacks epicrisis, its version or the encoder, or if no node has a free core.
        """
        self.fingerprint, self.dimensions = encoder.fingerprint, encoder.dimensions
        self.max_tokens, self.max_query_tokens = encoder.max_tokens, encoder.max_query_tokens
        self.token_spans: Callable[[str], Sequence[CharacterSpan]] = encoder.token_spans
        self.encode_queries = encoder.encode_queries
        self._ray = ray
        self._spec = NodeEncoder(
            name if same_machine or "/" not in name else os.path.abspath(name),
            encoder.fingerprint,
            version("epicrisis"),
            str(home) if same_machine else None,
            threads or 1,
        )
        self._resources = choose_resources(ray.cluster_resources(), runs_on_torch(name, home), self._spec.threads)
        self._check_nodes()
        # Ray ends the process of a task with a GPU after one task, unless `max_calls` is 0.
        options = {**self._resources, "max_retries": _RETRIES, "max_calls": 0}
        self._encode = ray.remote(**options)(encode_block)

    def encode_passages(self, texts: Sequence[tuple[str, str]]) -> Vectors:
        return self.start_passages(texts)()

    def start_passages(self, texts: Sequence[tuple[str, str]]) -> Callable[[], Vectors]:
        """Begin to encode the passages, and return a function that waits for their vectors `(n, d)`.

        Texts of similar length should be neighbours. The function raises ClusterError if they cannot be computed.
        """
        size = choose_block(len(texts), self._count_workers())
        tasks = []
        for first in range(0, len(texts), size):
            tasks.append(self._encode.remote(self._spec, list(texts[first : first + size])))
        return partial(self._collect, tasks)

    def _collect(self, tasks: list[Any]) -> Vectors:
        waiting = tasks
        while waiting:
            done, waiting = self._ray.wait(waiting, num_returns=len(waiting), timeout=_LOOK_SECONDS)
            if not done and not self._count_workers():
                raise ClusterError(f"the cluster has no node left that can encode: {REMEDY}")
        vectors = [np.empty((0, self.dimensions), dtype=np.float32)]
        try:
            vectors += self._ray.get(tasks)
        except self._ray.exceptions.RayTaskError as error:
            raise explain_failure(error, "encode") from None
        return np.concatenate(vectors)

    def _count_workers(self) -> int:
        """Return how many blocks the cluster can encode at once."""
        resources = self._ray.cluster_resources()
        gpus = self._resources["num_gpus"]
        return int(resources.get("GPU", 0) // gpus if gpus else resources.get("CPU", 0) // self._resources["num_cpus"])

    def _check_nodes(self) -> None:
        if not self._count_workers():
            needs = f"{self._spec.threads} free cores" if self._spec.threads > 1 else "a free core"
            raise ClusterError(f"no node of the cluster has {needs} for the encoder: add a node, or lower the threads")
        check_nodes(self._ray, f"{__name__}:{load_node_encoder.__name__}", self._spec, "encode")


def choose_resources(resources: Mapping[str, float], on_torch: bool, threads: int) -> Mapping[str, float]:
    """Return what one worker occupies: a GPU if the cluster has one and the encoder can use it, otherwise cores."""
    if on_torch and resources.get("GPU", 0) >= 1:
        return {"num_gpus": 1, "num_cpus": 0}
    return {"num_gpus": 0, "num_cpus": threads}


def choose_block(passages: int, workers: int) -> int:
    """Return the passages per task: several tasks for each worker, as far as they do not become too small."""
    return min(MAX_BLOCK, max(MIN_BLOCK, -(-passages // (_BLOCKS_PER_WORKER * max(1, workers)))))


def encode_block(spec: NodeEncoder, texts: Sequence[tuple[str, str]]) -> Vectors:
    """Return the vectors `(n, d)` of the passages. Runs on a node, which must not contact others with the texts."""
    with guard_network():
        return load_node_encoder(spec).encode_passages(texts)


@cache
def load_node_encoder(spec: NodeEncoder) -> Encoder:
    """Load the encoder of a node, once per process. Raises ClusterError if it is missing, or not the same."""
    node = f"node {socket.gethostname()} of the cluster"
    if (installed := version("epicrisis")) != spec.version:
        raise ClusterError(f"{node} has epicrisis {installed}, not {spec.version}: install the same version")
    if spec.home is None:
        from epicrisis.configuration import load_settings

        home = load_settings().home.expanduser()
    else:
        home = Path(spec.home)
    try:
        encoder = load_encoder(spec.name, home, spec.threads)
    except EpicrisisError as error:
        raise ClusterError(f"{node} cannot load the encoder: {error.message}") from None
    if encoder.fingerprint != spec.fingerprint:
        raise ClusterError(
            f"{node} has another version of the encoder {spec.name}: copy the folder of this machine's model there"
        )
    return encoder
