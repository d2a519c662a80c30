"""Encode passages on the nodes of a Ray cluster. Each worker process of a node holds the encoder.

    with join_cluster(address) as ray:
        encoder = ClusterEncoder(ray, encoder, "minilm", home)

A block of passages is a task of Ray. Ray gives the next task to a free worker, repeats the tasks of a dead node, and
uses nodes that join later. Nodes only compute vectors. One process writes the library, so a block computed twice is
written once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from epicrisis.core.errors import ClusterError, EpicrisisError
from epicrisis.core.protocols import Encoder, Vectors
from epicrisis.core.types import CharacterSpan
from epicrisis.models.cluster_nodes import (
    LOOK_SECONDS,
    NodeFault,
    NodeTasks,
    check_nodes,
    choose_resources,
    explain_failure,
    find_node_home,
)
from epicrisis.models.encoders import load_encoder, runs_on_torch
from epicrisis.system.local_only import guard_network

MIN_BLOCK, MAX_BLOCK = 16, 256
"""Passages per task."""
_BLOCKS_PER_WORKER = 4
"""Of one batch, so that a slow worker does not keep the others waiting."""


@dataclass(frozen=True, slots=True)
class NodeEncoder:
    """The encoder of a worker, which must be equal on all nodes."""

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
        worker = choose_resources(ray.cluster_resources(), runs_on_torch(name, home), self._spec.threads)
        self._tasks = NodeTasks(ray, encode_block, worker, "encode")
        self._check_nodes()

    def encode_passages(self, texts: Sequence[tuple[str, str]]) -> Vectors:
        return self.start_passages(texts)()

    def start_passages(self, texts: Sequence[tuple[str, str]]) -> Callable[[], Vectors]:
        """Begin to encode the passages, and return a function that waits for their vectors `(n, d)`.

        Texts of similar length should be neighbours. The function raises ClusterError if they cannot be computed.
        """
        size = choose_block(len(texts), self._tasks.count_workers())
        blocks = [list(texts[first : first + size]) for first in range(0, len(texts), size)]
        kind = self._tasks.kind
        return partial(self._collect, blocks, [self._tasks.send(self._spec, block) for block in blocks], kind)

    def _collect(self, blocks: Sequence[list[tuple[str, str]]], tasks: list[Any], kind: int) -> Vectors:
        """Wait for the tasks, of this kind of `NodeTasks`, and return the vectors of the blocks."""
        self._tasks.note_progress()
        waiting = list(tasks)
        while waiting:
            done, waiting = self._ray.wait(waiting, num_returns=len(waiting), timeout=LOOK_SECONDS)
            if done:
                self._tasks.note_progress()
            else:
                self._tasks.look()
            if kind != self._tasks.kind:
                kind = self._tasks.kind
                numbers = [tasks.index(task) for task in waiting]
                for number in numbers:
                    tasks[number] = self._tasks.send(self._spec, blocks[number])
                waiting = [tasks[number] for number in numbers]
        vectors = [np.empty((0, self.dimensions), dtype=np.float32)]
        try:
            vectors += self._ray.get(tasks)
        except self._ray.exceptions.RayTaskError as error:
            raise explain_failure(error, "encode") from None
        return np.concatenate(vectors)

    def _check_nodes(self) -> None:
        if not self._tasks.count_workers():
            needs = f"{self._spec.threads} free cores" if self._spec.threads > 1 else "a free core"
            raise ClusterError(f"no node of the cluster has {needs} for the encoder: add a node, or lower the threads")
        check_nodes(self._ray, f"{__name__}:{load_node_encoder.__name__}", self._spec, "encode")


def choose_block(passages: int, workers: int) -> int:
    """Return the passages per task: several tasks for each worker, as far as they do not become too small."""
    return min(MAX_BLOCK, max(MIN_BLOCK, -(-passages // (_BLOCKS_PER_WORKER * max(1, workers)))))


def encode_block(spec: NodeEncoder, texts: Sequence[tuple[str, str]]) -> Vectors:
    """Return the vectors `(n, d)` of the passages. Runs on a node, which must not contact others with the texts."""
    with guard_network():
        return load_node_encoder(spec).encode_passages(texts)


@cache
def load_node_encoder(spec: NodeEncoder) -> Encoder:
    """Load the encoder of a node, once per process. Raises NodeFault if it is missing, or not the same."""
    home = find_node_home(spec.home, spec.version)
    try:
        encoder = load_encoder(spec.name, home, spec.threads)
    except EpicrisisError as error:
        raise NodeFault(f"cannot load the encoder: {error.message}") from None
    if encoder.fingerprint != spec.fingerprint:
        raise NodeFault(
            f"has another version of the encoder {spec.name}: copy the folder of this machine's model there"
        )
    return encoder
