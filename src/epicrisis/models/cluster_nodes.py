"""Run tasks on the nodes of a Ray cluster, and explain in one line why a node cannot do the work.

    tasks = NodeTasks(ray, encode_block, choose_resources(ray.cluster_resources(), on_torch, threads), "encode")
    task = tasks.send(spec, texts)

Ray repeats the tasks of a worker or node that ends. After a cut network link it may wait for ever for the node, even if
it has declared the node dead: it holds requests for workers of that node, one for each kind of task. `NodeTasks` then
names another kind, so that Ray asks the other nodes, and the caller sends the waiting tasks again.
"""

from __future__ import annotations

import platform
import socket
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from epicrisis.core.errors import ClusterError, EpicrisisError
from epicrisis.models.cluster import REMEDY

RETRIES = 20
"""Of a task whose worker or node dies. A task that ends every worker must not be repeated for ever."""
LOOK_SECONDS = 10.0
"""Time without a result before the nodes are counted."""
SILENT_SECONDS = 30.0
"""Time without a result, with a node that has died, before the waiting tasks are sent again."""
LONGEST_SILENCE = 300.0
"""Time without a result after the tasks were sent again, before the work ends with an error."""


class NodeFault(ClusterError):
    """A node of the cluster cannot do the work. `reason` is the rest of the sentence, as in "lacks the encoder"."""

    def __init__(self, reason: str, node: str | None = None) -> None:
        """Name `node`, by default the machine of this process."""
        self.reason, self.node = reason, node or socket.gethostname()
        super().__init__(f"node {self.node} of the cluster {reason}")

    def __reduce__(self) -> tuple[type[NodeFault], tuple[str, str]]:
        return NodeFault, (self.reason, self.node)


class NodeTasks:
    """Sends tasks of one function to the workers of a cluster, and notices when Ray waits for a node in vain."""

    def __init__(self, ray: Any, function: Callable[..., Any], worker: Mapping[str, float], task: str) -> None:
        """Prepare tasks that occupy the resources `worker`. `task` is a verb for the reader: `encode`."""
        self._ray, self._function, self._worker, self._task = ray, function, worker, task
        self.kind = 0
        """Tasks of an earlier kind that still wait must be sent again."""
        self._remote = self._make_remote()
        self._dead = set(_list_nodes(ray, is_alive=False))
        self._silent: list[str] = []
        """The names of the nodes because of which the last kind was begun."""
        self._last_progress = time.monotonic()

    def send(self, *arguments: Any) -> Any:
        """Start a task, and return Ray's reference to its result."""
        return self._remote.remote(*arguments)

    def count_workers(self) -> int:
        """Return how many tasks the cluster can run at once."""
        return count_workers(self._ray, self._worker)

    def note_progress(self) -> None:
        """Note the end of a task, or the start of the first one: the silence begins again."""
        self._last_progress = time.monotonic()

    def look(self) -> int:
        """Return `count_workers`, and begin another kind if no task has ended for long and a node has died.

        Raises ClusterError if no worker is left, or if nothing ended for long after the tasks were sent again.
        """
        workers = self.count_workers()
        if not workers:
            raise ClusterError(f"the cluster has no node left that can {self._task}: {REMEDY}")
        silence = time.monotonic() - self._last_progress
        if silence < SILENT_SECONDS:
            return workers
        dead = _list_nodes(self._ray, is_alive=False)
        if dead.keys() - self._dead:
            self._silent = sorted(dead[node] for node in dead.keys() - self._dead)
            self._dead.update(dead)
            self.kind += 1
            self._remote = self._make_remote()
            self.note_progress()
        elif self._silent and silence >= LONGEST_SILENCE:
            raise ClusterError(
                f"the cluster has given no result for {silence:.0f} s, since its connection to the node "
                f"{', '.join(self._silent)} was lost: {REMEDY}"
            )
        return workers

    def _make_remote(self) -> Any:
        """Return Ray's form of the function. Tasks that need other amounts of memory are of another kind to Ray."""
        # Ray ends the process of a task with a GPU after one task, unless `max_calls` is 0.
        options: dict[str, Any] = {**self._worker, "max_retries": RETRIES, "max_calls": 0}
        if self.kind:
            options["memory"] = self.kind
        return self._ray.remote(**options)(self._function)


def choose_resources(resources: Mapping[str, float], on_torch: bool, threads: int) -> Mapping[str, float]:
    """Return what one worker occupies: a GPU if the cluster has one and the model can use it, otherwise cores."""
    if on_torch and resources.get("GPU", 0) >= 1:
        return {"num_gpus": 1, "num_cpus": 0}
    return {"num_gpus": 0, "num_cpus": threads}


def count_workers(ray: Any, worker: Mapping[str, float]) -> int:
    """Return how many workers that occupy these resources the cluster can run at once."""
    resources = ray.cluster_resources()
    if worker["num_gpus"]:
        return int(resources.get("GPU", 0) // worker["num_gpus"])
    return int(resources.get("CPU", 0) // worker["num_cpus"])


def find_node_home(home: str | None, expected_version: str) -> Path:
    """Return the folder of models on this node: `home`, or the node's own. Raises NodeFault for another epicrisis."""
    if (installed := version("epicrisis")) != expected_version:
        raise NodeFault(f"has epicrisis {installed}, not {expected_version}: install the same version")
    if home is not None:
        return Path(home)
    from epicrisis.settings.configuration import load_settings

    return load_settings().home.expanduser()


def check_nodes(ray: Any, load: str, spec: Any, task: str) -> None:
    """Check every node for the files of its work. Raises NodeFault for a node without them.

    `load` is the module and the function that gets `spec`: `epicrisis.models.cluster_encoding:load_node_encoder`.
    `task` is a verb for the reader: `encode`.
    """
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    checks = []
    for node in ray.nodes():
        if node["Alive"] and node["Resources"].get("CPU"):
            affinity = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            check = ray.remote(num_cpus=0, scheduling_strategy=affinity)(_make_check(load))
            checks.append((check.remote(spec), node["NodeID"], node["NodeManagerHostname"]))
    for check, node_id, name in checks:
        if not _wait_for_node(ray, check, node_id):
            continue
        try:
            reason = ray.get(check)
        except ray.exceptions.RayTaskError as error:
            raise explain_failure(error, task) from None
        except ray.exceptions.RayError:
            # It has died since. The tasks go to the others.
            continue
        if reason is not None:
            raise NodeFault(reason, name)


def _wait_for_node(ray: Any, check: Any, node_id: str) -> bool:
    """Wait for the check of a node. Return False if the node dies without an answer."""
    while not ray.wait([check], timeout=LOOK_SECONDS)[0]:
        if node_id not in _list_nodes(ray, is_alive=True):
            return False
    return True


def _list_nodes(ray: Any, *, is_alive: bool) -> dict[str, str]:
    """Return the names of the live nodes, or of the dead ones, by their ids."""
    nodes = [node for node in ray.nodes() if node["Alive"] == is_alive]
    return {node["NodeID"]: node["NodeManagerHostname"] for node in nodes}


def explain_failure(error: Any, task: str) -> ClusterError:
    """Return the error of a task in one line. Others than ours are named by their kind: they may quote the text."""
    cause = getattr(error, "cause", error)
    if isinstance(cause, EpicrisisError):
        return ClusterError(cause.message)
    return ClusterError(
        f"a node of the cluster could not {task} ({type(cause).__name__}): are the same epicrisis and the same models "
        "on every node?"
    )


def _make_check(load: str) -> Callable[[Any], str | None]:
    """Return a function for Ray to send as code. It runs on nodes without epicrisis."""
    python, expected = platform.python_version(), version("epicrisis")

    def check(spec: Any) -> str | None:
        import importlib
        import importlib.metadata
        import importlib.util
        import sys

        if importlib.util.find_spec("epicrisis") is None:
            return f"lacks epicrisis in {sys.prefix}: install it there for Python {python}, in the same version"
        if (installed := importlib.metadata.version("epicrisis")) != expected:
            return f"has epicrisis {installed}, not {expected}: install the same version"
        module, function = load.split(":")
        from epicrisis.models.cluster_nodes import NodeFault

        try:
            getattr(importlib.import_module(module), function)(spec)
        except NodeFault as fault:
            return fault.reason
        return None

    return check
