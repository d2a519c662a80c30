"""Search for many questions on the nodes of a Ray cluster. Each worker process of a node has opened the library.

    with search_on_cluster(pipeline, settings, library, address) as pipeline:
        ...

Only the search goes to the nodes. Questions, budgets, rate limits, endpoints, the cache and the file of answers stay in
this process. A few searches together are a task of Ray. Ray repeats the tasks of a dead worker or node.
"""

from __future__ import annotations

import asyncio
import json
import pickle
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from epicrisis.answering.strategy import find_strategy
from epicrisis.core.errors import ClusterError, EpicrisisError, InputError
from epicrisis.models.cluster import REMEDY, ClusterAddress, join_cluster
from epicrisis.models.cluster_nodes import (
    LOOK_SECONDS,
    NodeFault,
    NodeTasks,
    check_nodes,
    choose_resources,
    explain_failure,
    find_node_home,
)
from epicrisis.models.encoders import runs_on_torch
from epicrisis.pipeline.components import LibrarySearch, describe_search, open_library_search
from epicrisis.pipeline.evidence_selection import EvidenceSearch
from epicrisis.pipeline.pipeline import Pipeline
from epicrisis.privacy.patient_data_policy import check_cluster, record_cluster
from epicrisis.settings.settings import ExampleSettings, ModelsByRole, Settings
from epicrisis.system.local_only import guard_network, local_path, silence_dependency_logs
from epicrisis.system.remote_libraries import find_address, library_folder

MAX_BLOCK = 8
"""Searches per task. Each task costs this process a few milliseconds."""
_BLOCKS_PER_WORKER = 2
"""Tasks on the way for each worker: one that runs, and one that waits."""


@dataclass(frozen=True, slots=True)
class NodeLibrary:
    """The library of a worker, which must be equal on all nodes."""

    library: str
    """An absolute path or a URL."""
    settings: str
    """JSON, without chat models."""
    description: str
    """See `_describe`."""
    version: str
    """Of epicrisis."""
    home: str | None
    """The folder of models. None: the node's own."""


@dataclass(frozen=True, slots=True)
class _Call:
    """A search that waits for its result."""

    method: str
    arguments: Sequence[Any]
    keywords: Mapping[str, Any]
    result: asyncio.Future[Any]


@contextmanager
def search_on_cluster(
    pipeline: Pipeline, settings: Settings, library: Path | str | None, address: ClusterAddress | None
) -> Iterator[Pipeline]:
    """Start or join the cluster for the time of the block, and give the pipeline with its searches done there.

    Without an address, give the pipeline itself. Raises InputError for settings without a search that nodes can do,
    SettingsError if the text of the library may not leave this machine, and ClusterError.
    """
    if address is None:
        yield pipeline
        return
    if library is None or pipeline.search is None or not find_strategy(settings.strategy).needs_search:
        raise InputError(f"--on distributes searches, and the strategy {settings.strategy} has none: leave it out")
    if settings.store is not None or "://" in (settings.rerank.name or ""):
        raise InputError("--on is for libraries of epicrisis, and for rerankers that the nodes can load: leave it out")
    folder = library_folder(library)
    for place in (folder, *map(local_path, settings.fuse), *map(local_path, settings.beside)):
        check_cluster(settings, place, address)
    spec = describe_node_library(pipeline.settings, folder, pipeline.search, same_machine=not address.is_remote)
    with join_cluster(address) as ray:
        record_cluster(settings, folder, address)
        search = ClusterSearch(ray, spec, choose_worker(ray, pipeline.settings, pipeline.search))
        try:
            yield replace(pipeline, remote_search=search)
        finally:
            search.close()


def choose_worker(ray: Any, settings: Settings, search: LibrarySearch) -> Mapping[str, float]:
    """Return what one worker occupies: a GPU if there is one and the encoder can use it, otherwise cores."""
    on_torch = search.retriever.encoder is not None and runs_on_torch(
        search.library.manifest.encoder_name, settings.home
    )
    return choose_resources(ray.cluster_resources(), on_torch, settings.threads or 1)


def describe_node_library(
    settings: Settings, folder: Path, search: LibrarySearch, *, same_machine: bool
) -> NodeLibrary:
    """Return what the workers open. Chat models, logs and permissions are the business of this process alone."""
    address = find_address(folder)
    library = str(folder.absolute())
    if address is not None:
        library = address.url if same_machine else address.public
    changes: dict[str, Any] = {
        "models": ModelsByRole(),
        "examples": ExampleSettings(),
        "threads": settings.threads or 1,
        "fuse": tuple(str(local_path(path).absolute()) for path in settings.fuse),
        "beside": tuple(str(local_path(path).absolute()) for path in settings.beside),
        "allow_remote": False,
        "log": None,
        "calibration": None,
    }
    if settings.encoder is not None:
        changes["encoder"] = _resolve_name(settings.encoder)
    if settings.rerank.name is not None:
        name = _resolve_name(settings.rerank.name)
        changes["rerank"] = settings.rerank.model_copy(update={"name": name})
    return NodeLibrary(
        library,
        settings.model_copy(update=changes).model_dump_json(),
        _describe(search),
        version("epicrisis"),
        str(settings.home) if same_machine else None,
    )


def _resolve_name(name: str) -> str:
    """Return the name of a model, or the absolute path of its folder."""
    return str(Path(name).expanduser().absolute()) if "/" in name else name


def _describe(search: LibrarySearch) -> str:
    """Return what must be equal on all nodes: the ids and sizes of the libraries, and their encoders."""
    libraries = (search.library, *search.others, *search.literature)
    encoders = [library.manifest.encoder_fingerprint for library in libraries]
    documents = [library.count()[0] for library in libraries]
    return json.dumps([describe_search(search), documents, encoders])


class ClusterSearch:
    """A RemoteSearch on the nodes of a cluster. Use from one event loop, and close it."""

    def __init__(self, ray: Any, spec: NodeLibrary, resources: Mapping[str, float]) -> None:
        """Check all nodes. Raises ClusterError if one lacks epicrisis, the library or a model, or has others."""
        self._ray, self._spec = ray, spec
        self._tasks = NodeTasks(ray, search_block, resources, "search")
        self._workers = self._tasks.count_workers()
        if not self._workers:
            raise ClusterError("no node of the cluster has free cores for a search: add a node, or lower the threads")
        check_nodes(ray, f"{__name__}:{open_node_library.__name__}", spec, "search")
        self._waiting: deque[_Call] = deque()
        self._blocks: dict[asyncio.Task[None], Sequence[_Call]] = {}
        self._error: EpicrisisError | None = None
        self._next_look = time.monotonic() + LOOK_SECONDS
        # Ray's client waits for the server's answer to every call.
        self._thread = ThreadPoolExecutor(1)

    @property
    def places(self) -> int:
        return self._workers * _BLOCKS_PER_WORKER * MAX_BLOCK

    async def run(self, method: str, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        if self._error is not None:
            raise self._error
        call = _Call(method, arguments, keywords, asyncio.get_running_loop().create_future())
        self._waiting.append(call)
        # Questions that start together search together.
        asyncio.get_running_loop().call_soon(self._start_blocks)
        return await call.result

    def close(self) -> None:
        """Stop the thread. Tasks under way are forgotten."""
        for block in self._blocks:
            block.cancel()
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _start_blocks(self) -> None:
        """Send searches that wait, as many as the workers can have on the way."""
        if not self._blocks:
            self._tasks.note_progress()
        while self._waiting and len(self._blocks) < self._workers * _BLOCKS_PER_WORKER:
            size = min(MAX_BLOCK, -(-len(self._waiting) // self._workers))
            calls: list[_Call] = []
            while self._waiting and len(calls) < size:
                call = self._waiting.popleft()
                if not call.result.done():
                    calls.append(call)
            if calls:
                block = asyncio.create_task(self._run_block(calls))
                self._blocks[block] = calls
                block.add_done_callback(self._end_block)

    def _end_block(self, block: asyncio.Task[None]) -> None:
        """Send the next searches, or let all fail. A dead server gives errors of several packages."""
        calls = self._blocks.pop(block)
        error = asyncio.CancelledError() if block.cancelled() else block.exception()
        if error is None:
            self._start_blocks()
        elif isinstance(error, EpicrisisError):
            self._fail(error, calls)
        else:
            self._fail(ClusterError(f"the cluster failed ({type(error).__name__}): {REMEDY}"), calls)

    async def _run_block(self, calls: Sequence[_Call]) -> None:
        """Search on a node, and pass the results on."""
        outcomes = await self._search_remotely(calls)
        for call, (result, failure) in zip(calls, outcomes, strict=True):
            if call.result.done():
                continue
            if failure is None:
                call.result.set_result(result)
            else:
                call.result.set_exception(failure)

    def _fail(self, error: EpicrisisError, calls: Sequence[_Call]) -> None:
        """Set the error for these searches, those that wait and all later ones, and give up the tasks on the way."""
        self._error = self._error or error
        for call in (*calls, *self._waiting):
            if not call.result.done():
                call.result.set_exception(self._error)
        self._waiting.clear()
        for block in self._blocks:
            block.cancel()

    async def _search_remotely(self, calls: Sequence[_Call]) -> list[tuple[Any, EpicrisisError | None]]:
        """Return the results of one task. Raises ClusterError."""
        # Bytes pass through Ray's processes unread.
        payload = pickle.dumps([(call.method, call.arguments, call.keywords) for call in calls])
        loop = asyncio.get_running_loop()
        try:
            kind = self._tasks.kind
            pending = await self._send(payload)
            while not pending.done():
                await asyncio.wait([pending], timeout=max(0.0, self._next_look - time.monotonic()))
                if time.monotonic() >= self._next_look:
                    self._next_look = time.monotonic() + LOOK_SECONDS
                    self._workers = await loop.run_in_executor(self._thread, self._tasks.look)
                if kind != self._tasks.kind and not pending.done():
                    kind = self._tasks.kind
                    pending = await self._send(payload)
            self._tasks.note_progress()
            outcomes: list[tuple[Any, EpicrisisError | None]] = pickle.loads(pending.result())
        except self._ray.exceptions.RayTaskError as error:
            raise explain_failure(error, "search") from None
        except self._ray.exceptions.RayError as error:
            raise ClusterError(f"the cluster failed ({type(error).__name__}): {REMEDY}") from error
        except ConnectionError as error:
            raise ClusterError(f"the connection to the cluster was lost: {REMEDY}") from error
        return outcomes

    async def _send(self, payload: bytes) -> asyncio.Future[bytes]:
        """Start a task, and return its results to come.

        Nobody may wait for them: a task is sent again where nodes were lost, and all give up when one fails.
        Then its own error has been said already.
        """

        def send() -> Future[bytes]:
            future: Future[bytes] = self._tasks.send(self._spec, payload).future()
            return future

        pending = asyncio.wrap_future(await asyncio.get_running_loop().run_in_executor(self._thread, send))
        pending.add_done_callback(lambda task: task.cancelled() or task.exception())
        return pending


def search_block(spec: NodeLibrary, payload: bytes) -> bytes:
    """Return the results of several searches, each with None, or None with its error. Runs on a node."""
    # A folder is read without a network; a database or a bucket is not.
    with nullcontext() if "://" in spec.library else guard_network():
        search = open_node_library(spec)
        outcomes: list[tuple[Any, EpicrisisError | None]] = []
        for method, arguments, keywords in pickle.loads(payload):
            try:
                outcomes.append((getattr(search, method)(*arguments, **keywords), None))
            except EpicrisisError as error:
                outcomes.append((None, error))
    return pickle.dumps(outcomes)


@cache
def open_node_library(spec: NodeLibrary) -> EvidenceSearch:
    """Open the library of a node, once per process. Raises NodeFault if it cannot be opened, or is not the same."""
    home = find_node_home(spec.home, spec.version)
    silence_dependency_logs()
    settings = Settings.model_validate_json(spec.settings)
    settings = settings.model_copy(update={"home": home})
    try:
        search = open_library_search(settings, spec.library)
        description = _describe(search)
    except EpicrisisError as error:
        raise NodeFault(f"cannot open the library: {error.message}") from None
    if description != spec.description:
        search.close()
        raise NodeFault("has another version of the library: let every node read the same folder, or copy it again")
    return EvidenceSearch(settings, search.retriever)
