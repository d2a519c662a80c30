"""Check that the nodes of a Ray cluster can do the work, and explain in one line why they cannot."""

from __future__ import annotations

import platform
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

from epicrisis.errors import ClusterError, EpicrisisError


def check_nodes(ray: Any, load: str, spec: Any, task: str) -> None:
    """Let every node load what its work needs. Raises ClusterError for a node that cannot.

    `load` is the module and the function that gets `spec`: `epicrisis.cluster_encoding:load_node_encoder`. `task` is a
    verb for the reader: `encode`.
    """
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    checks = {}
    for node in ray.nodes():
        if node["Alive"] and node["Resources"].get("CPU"):
            affinity = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            check = ray.remote(num_cpus=0, scheduling_strategy=affinity)(_make_check(load))
            checks[check.remote(spec)] = node["NodeManagerHostname"]
    for check, name in checks.items():
        try:
            fault = ray.get(check)
        except ray.exceptions.RayTaskError as error:
            raise explain_failure(error, task) from None
        except ray.exceptions.RayError:
            # It has died since. The tasks go to the others.
            continue
        if fault is not None:
            raise ClusterError(f"node {name} of the cluster {fault}")


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
    """Return a function that Ray sends as code, so that it runs where epicrisis is missing."""
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
        from epicrisis.errors import ClusterError

        try:
            getattr(importlib.import_module(module), function)(spec)
        except ClusterError as error:
            return error.message.split(" of the cluster ", 1)[1]
        return None

    return check
