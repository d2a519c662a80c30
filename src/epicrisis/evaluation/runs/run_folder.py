"""The folder of a run, which describes the run wholly.

    manifest.json    what was asked, of what, with what: written first, completed last
    records.jsonl    one line a case, as it ended
    run.lock         held by the one process that adds records

All of it is its owner's alone to read: it holds questions, answers and quotations, which may be a patient's. A run may
take several sessions, each with its times and software. Knows no experiment and no metric.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from filelock import FileLock
from pydantic import TypeAdapter

from epicrisis.answers import Usage
from epicrisis.errors import InputError, StorageError
from epicrisis.evaluation.datasets.dataset import Dataset
from epicrisis.evaluation.runs.case import Case
from epicrisis.evaluation.runs.energy import SessionEnergy
from epicrisis.evaluation.runs.jsonl_store import acquire_lock, parse_json
from epicrisis.evaluation.runs.recipe_differences import list_changes
from epicrisis.evaluation.runs.record import check_recipe
from epicrisis.evaluation.runs.runner import RecordStore
from epicrisis.evaluation.runs.versions import git_commit, package_versions
from epicrisis.library.manifest import sync_folder
from epicrisis.printable import printable_json
from epicrisis.privacy import open_private, restrict_to_owner
from epicrisis.serialization import to_json

MANIFEST, RECORDS, LOCK = "manifest.json", "records.jsonl", "run.lock"
TEMPORARY = "manifest.json.partial"
FORMAT = 1
_LISTS = frozenset({"arms", "ks", "places", "votes", "temperatures"})
"""Arguments of a plan that hold several values, where they are there."""


@dataclass(frozen=True, slots=True)
class RunPlan:
    """What a run asks, and with what: all that decides its records. Another plan is another run."""

    name: str
    """Of the experiment, or `evaluate`."""
    arguments: Mapping[str, Any]
    """As they were given, defaults included: arms, places, protocol..."""
    recipe: Mapping[str, Any]
    """`Pipeline.recipe()`: settings, models, the library's identity and size, prompts, version."""
    dataset: Mapping[str, Any]
    """See `describe_dataset`."""
    sample: Mapping[str, Any]
    """How the questions were drawn from it: `how`, `n`, `seed`."""
    seed: int


@dataclass(frozen=True, slots=True)
class Session:
    """One process that worked on the run. Volatile, all of it. Times are UTC in ISO form."""

    started: str
    packages: Mapping[str, str]
    ended: str | None = None
    """`None` where the process was killed, or works still."""
    commit: str | None = None
    """Of the checkout that the program lies in; `None` where there is none."""
    dirty: bool | None = None
    """Whether its files differed from that commit."""
    taken: SessionEnergy | None = None
    """Time and energy of its asking; `None` where the process was killed, works still, or told nothing of it."""


@dataclass(frozen=True, slots=True)
class RunManifest:
    """What `manifest.json` holds."""

    plan: RunPlan
    cases: int
    sessions: tuple[Session, ...]
    complete: bool = False
    """Whether every case has ended, and none has failed."""
    states: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """Cases by state, as of the last session's end, or else its beginning."""
    usage: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Of all records then, those of earlier tries of a case included (volatile). What a case had cost that was broken
    off before its record is in none."""
    format: int = FORMAT


def describe_dataset(dataset: Dataset) -> dict[str, Any]:
    """What a plan says of its question set, before any sample is drawn."""
    return {"name": dataset.name, "sha256": dataset.sha256, "n": len(dataset.questions), "licence": dataset.licence}


class Run:
    """A run's folder, open to add records. Use as a context manager; what it holds when left is in the manifest."""

    def __init__(
        self, folder: Path, manifest: RunManifest, records: RecordStore, lock: FileLock, keys: set[str]
    ) -> None:
        """Not for callers: use `open`. `lock` is held."""
        self.folder = folder
        self.records = records
        self._manifest = manifest
        self._lock = lock
        self._keys = keys

    @classmethod
    def open(cls, folder: Path, plan: RunPlan, cases: Sequence[Case]) -> Self:
        """The run of this plan in that folder, begun or gone on with. Nothing is asked yet.

        Raises InputError where the folder holds another run or anything else, where another process is at work on it,
        or where two cases are one; StorageError where the disk does not take it.
        """
        keys = {case.key for case in cases}
        if len(keys) < len(cases):
            raise InputError(f"{len(cases) - len(keys)} cases are asked twice: give each question and condition once")
        with _kept(folder):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Not per thread: whoever closes the run frees the lock.
        lock = acquire_lock(folder, FileLock(folder / LOCK, timeout=0, thread_local=False))
        with ExitStack() as held:
            held.callback(lock.release)
            plan = replace(plan, **{each.name: to_json(getattr(plan, each.name)) for each in dataclasses.fields(plan)})
            known = read_manifest(folder) if (folder / MANIFEST).exists() else None
            _check(folder, known, plan)
            # It may have been there before, empty and open to others.
            restrict_to_owner(folder)
            records = RecordStore(folder / RECORDS, plan.recipe, texts=False, lock=lock)
            sessions = (*(known.sessions if known else ()), _begun())
            run = cls(folder, RunManifest(plan, len(cases), sessions), records, lock, keys)
            run._write()
            held.pop_all()
        return run

    @property
    def left(self) -> int:
        """Cases that are still to be asked."""
        return sum(not self.records.is_done(key) for key in self._keys)

    def took(self, taken: SessionEnergy) -> None:
        """Says what this session took; written down when the run is closed."""
        *before, session = self._manifest.sessions
        self._manifest = replace(self._manifest, sessions=(*before, replace(session, taken=taken)))

    def close(self) -> RunManifest:
        """Writes down how the run stands, and lets others at it. Idempotent."""
        if not self._lock.is_locked:
            return self._manifest
        *before, session = self._manifest.sessions
        self._manifest = replace(self._manifest, sessions=(*before, replace(session, ended=_now())))
        try:
            self._write()
        finally:
            self._lock.release()
        return self._manifest

    def _write(self) -> None:
        states = Counter(state for key, state in self.records.states.items() if key in self._keys)
        self._manifest = replace(
            self._manifest,
            complete=self.left == 0,
            states=dict(sorted(states.items())),
            usage=to_json(self.records.usage),
        )
        write_manifest(self.folder, self._manifest)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def read_manifest(folder: Path) -> RunManifest:
    """Raises InputError where the folder holds no run, or one of another format."""
    path = folder / MANIFEST
    try:
        values = parse_json(path.read_bytes())
        # A library's manifest has the same name.
        if (made := values["format"]) != FORMAT and "library_id" not in values:
            raise InputError(f"{path} has format {made}, this program knows {FORMAT}: use the one that made it")
        _form().validate_json(json.dumps(values), strict=True)
        values["sessions"] = tuple(map(_session, values["sessions"]))
        manifest = RunManifest(**{**values, "plan": RunPlan(**values["plan"])})
        _check_facts(manifest)
    except OSError as error:
        raise InputError(f"{folder} is no run ({error.strerror}): name a folder that a run was written to") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise InputError(f"{path} is no manifest of a run: name a folder that a run was written to") from None
    return manifest


@cache
def _form() -> TypeAdapter[RunManifest]:
    return TypeAdapter(RunManifest)


def _session(values: Mapping[str, Any]) -> Session:
    taken = values.get("taken")
    return Session(**{**values, "taken": None if taken is None else SessionEnergy.of_json(taken)})


def _check_facts(manifest: RunManifest) -> None:
    """Raise ValueError, KeyError or TypeError unless the tables of facts hold what reports read of them."""
    plan = manifest.plan
    check_recipe(plan.recipe)
    Usage(**manifest.usage) + Usage()
    for dataset in plan.dataset.get("sets", [plan.dataset]):
        if not isinstance(dataset["name"], str) or not isinstance(dataset["sha256"], str):
            raise TypeError("the question set is not named")
    if not isinstance(plan.dataset["name"], str):
        raise TypeError("the question set is not named")
    for name in _LISTS.intersection(plan.arguments):
        if not isinstance(plan.arguments[name], list):
            raise TypeError(f"{name} is no list")


def write_manifest(folder: Path, manifest: RunManifest) -> None:
    """Whole or not at all, and durable when it returns. Raises StorageError."""
    text = printable_json(json.dumps(to_json(manifest), indent=2, ensure_ascii=False)) + "\n"
    with _kept(folder):
        with os.fdopen(open_private(folder / TEMPORARY, os.O_WRONLY | os.O_TRUNC), "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        (folder / TEMPORARY).replace(folder / MANIFEST)
        sync_folder(folder)


def _check(folder: Path, known: RunManifest | None, plan: RunPlan) -> None:
    if known is None:
        others = sorted(path.name for path in folder.iterdir() if path.name not in (LOCK, TEMPORARY))
        if others:
            raise InputError(
                f"{folder} holds something else ({others[0]}...): name a folder that is empty or not there"
            )
        return
    differ = [
        f"{each.name} ({list_changes(old, new)})" if isinstance(new, dict) else each.name
        for each in dataclasses.fields(plan)
        if (old := getattr(known.plan, each.name)) != (new := getattr(plan, each.name))
    ]
    if differ:
        raise InputError(
            f"{folder} holds another run: {', '.join(differ)} differ; name another folder, or ask the same"
        )


def _begun() -> Session:
    found = git_commit()
    return Session(_now(), package_versions(), commit=found[0] if found else None, dirty=found[1] if found else None)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


@contextmanager
def _kept(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"{folder} cannot be written ({error.strerror}): free some space, or name another"
        ) from error
