"""The folder of a run.

    manifest.json    the plan of the run and its sessions: written first, completed last
    records.jsonl    one line for each answered case
    run.lock         held by the process that adds records

Only the owner can read it: it holds questions, answers and quotations, which may be a patient's. A run may take several
sessions.
"""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import re
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from filelock import FileLock
from pydantic import TypeAdapter

from epicrisis.core.answers import Usage
from epicrisis.core.errors import InputError, StorageError
from epicrisis.core.printable import agree, count_noun, printable_json
from epicrisis.core.serialization import to_json
from epicrisis.evaluation.datasets.dataset import Dataset
from epicrisis.evaluation.runs.energy import SessionEnergy
from epicrisis.library.base.manifest import sync_path
from epicrisis.pipeline.recording.answer_record import check_recipe
from epicrisis.pipeline.recording.case import Case
from epicrisis.pipeline.recording.runner import RecordStore
from epicrisis.system.json_lines import acquire_lock, parse_json
from epicrisis.system.jsonl_store import list_changes
from epicrisis.system.local_only import open_private, restrict_to_owner

MANIFEST, RECORDS, LOCK = "manifest.json", "records.jsonl", "run.lock"
TEMPORARY = "manifest.json.partial"
FORMAT = 1
_LIST_ARGUMENTS = frozenset({"arms", "ks", "places", "votes", "temperatures"})
"""Arguments of a plan that must be lists."""


@dataclass(frozen=True, slots=True)
class RunPlan:
    """All that decides the records of a run. Another plan is another run."""

    name: str
    """The experiment, or `evaluate`."""
    arguments: Mapping[str, Any]
    """Its arguments, defaults included: arms, places, protocol..."""
    recipe: Mapping[str, Any]
    """`Pipeline.recipe()`: settings, models, identity and size of the library, prompts, version."""
    dataset: Mapping[str, Any]
    """See `describe_dataset`."""
    sample: Mapping[str, Any]
    """The sample of the questions: `how`, `n`, `seed`."""
    seed: int


@dataclass(frozen=True, slots=True)
class Session:
    """One process that worked on the run. Its values differ between equal runs. Times are UTC in ISO form."""

    started: str
    packages: Mapping[str, str]
    ended: str | None = None
    """None if the process was killed, or still runs."""
    commit: str | None = None
    """The git commit of the program, or None outside a checkout."""
    dirty: bool | None = None
    """Whether the program's files differed from that commit."""
    taken: SessionEnergy | None = None
    """Time and energy of the calls, or None if the process did not end normally or measured nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunManifest:
    """The content of `manifest.json`."""

    plan: RunPlan
    cases: int
    sessions: tuple[Session, ...]
    complete: bool = False
    """Whether every case has an answer that did not fail."""
    states: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """Cases by state at the end of the last session, or at its start while it runs."""
    usage: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """The usage of all records at that time, those of earlier attempts included. The usage of a case that was
    interrupted before its record is not included."""
    format: int = FORMAT


def describe_dataset(dataset: Dataset) -> dict[str, Any]:
    """Return the description of a question set in a plan, before a sample is drawn."""
    return {"name": dataset.name, "sha256": dataset.sha256, "n": len(dataset.questions), "licence": dataset.licence}


class Run:
    """The folder of a run, open to add records. Use `open`, as a context manager; leaving it writes the manifest."""

    def __init__(
        self, folder: Path, manifest: RunManifest, records: RecordStore, lock: FileLock, keys: set[str]
    ) -> None:
        self.folder = folder
        self.records = records
        self._manifest = manifest
        self._lock = lock
        self._keys = keys

    @classmethod
    def open(cls, folder: Path, plan: RunPlan, cases: Sequence[Case]) -> Self:
        """Return the run of a plan in a folder, new or continued.

        Raises InputError if the folder holds another run or anything else, if another process uses it, or if two cases
        are the same; StorageError if the disk refuses it.
        """
        keys = {case.key for case in cases}
        if len(keys) < len(cases):
            raise InputError(
                f"{count_noun(len(cases) - len(keys), 'case')} {agree(len(cases) - len(keys), 'occurs', 'occur')} "
                "twice: give each question and condition once"
            )
        with _map_disk_errors(folder):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Not per thread: any thread that closes the run releases the lock.
        lock = acquire_lock(folder, FileLock(folder / LOCK, timeout=0, thread_local=False))
        with ExitStack() as stack:
            stack.callback(lock.release)
            # As it is read back from JSON.
            plan = RunPlan(**to_json(plan))
            earlier = read_manifest(folder) if (folder / MANIFEST).exists() else None
            _check_folder(folder, earlier, plan)
            # It may have existed before, empty and readable by others.
            restrict_to_owner(folder)
            records = RecordStore(folder / RECORDS, plan.recipe, texts=False, lock=lock)
            commit, dirty = git_commit() or (None, None)
            session = Session(_now(), package_versions(), commit=commit, dirty=dirty)
            sessions = (*(earlier.sessions if earlier else ()), session)
            run = cls(folder, RunManifest(plan=plan, cases=len(cases), sessions=sessions), records, lock, keys)
            run._write()
            stack.pop_all()
        return run

    @property
    def remaining(self) -> int:
        """The number of cases without an answer."""
        return len(self._keys) - sum(self.records.is_done(key) for key in self._keys)

    def record_energy(self, energy: SessionEnergy) -> None:
        """Set the energy of this session. It is written when the run is closed."""
        self._update_session(taken=energy)

    def close(self) -> RunManifest:
        """Write the manifest, release the lock and return the manifest. Closing twice is harmless."""
        if not self._lock.is_locked:
            return self._manifest
        self._update_session(ended=_now())
        try:
            self._write()
        finally:
            self._lock.release()
        return self._manifest

    def _update_session(self, **changes: Any) -> None:
        *earlier, session = self._manifest.sessions
        self._manifest = replace(self._manifest, sessions=(*earlier, replace(session, **changes)))

    def _write(self) -> None:
        states = Counter(self.records.states[key] for key in self._keys & self.records.states.keys())
        self._manifest = replace(
            self._manifest,
            complete=self.remaining == 0,
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
    """Return the manifest of a run. Raises InputError if the folder holds no run, or one of another format."""
    path = folder / MANIFEST
    try:
        values = parse_json(path.read_bytes())
        if "library_id" in values:
            raise ValueError("the manifest of a library, which has the same name")
        if (version := values["format"]) != FORMAT:
            raise InputError(
                f"{path} has format {version}, and this program reads format {FORMAT}: use the program that made it, "
                "or run the experiment again into another folder"
            )
        manifest = _manifest_adapter().validate_json(json.dumps(values), strict=True)
        _check_facts(manifest)
    except OSError as error:
        raise InputError(f"{folder} is not a run ({error.strerror}): give the folder of a run") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise InputError(f"{path} is not the manifest of a run: give the folder of a run") from None
    return manifest


@cache
def _manifest_adapter() -> TypeAdapter[RunManifest]:
    return TypeAdapter(RunManifest)


def _check_facts(manifest: RunManifest) -> None:
    """Raise ValueError, KeyError or TypeError unless the fields that reports read have the right types."""
    plan = manifest.plan
    check_recipe(plan.recipe)
    Usage(**manifest.usage) + Usage()
    texts = [plan.dataset["name"]]
    for dataset in plan.dataset.get("sets", [plan.dataset]):
        texts += [dataset["name"], dataset["sha256"]]
    if set(map(type, texts)) != {str}:
        raise TypeError("a question set has no name or hash")
    for name in _LIST_ARGUMENTS.intersection(plan.arguments):
        if not isinstance(plan.arguments[name], list):
            raise TypeError(f"{name} is not a list")


def write_manifest(folder: Path, manifest: RunManifest) -> None:
    """Write the manifest, completely or not at all. It is on the disk when this returns. Raises StorageError."""
    text = printable_json(json.dumps(to_json(manifest), indent=2, ensure_ascii=False)) + "\n"
    with _map_disk_errors(folder):
        with os.fdopen(open_private(folder / TEMPORARY, os.O_WRONLY | os.O_TRUNC), "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        (folder / TEMPORARY).replace(folder / MANIFEST)
        sync_path(folder)


def _check_folder(folder: Path, earlier: RunManifest | None, plan: RunPlan) -> None:
    """Raise InputError if a new run would write into a folder with content, or an earlier run had another plan."""
    if earlier is None:
        others = sorted({item.name for item in folder.iterdir()} - {LOCK, TEMPORARY})
        if others:
            raise InputError(
                f"{folder} is not empty ({others[0]}...): choose an empty folder, or one that does not exist"
            )
        return
    differences: list[str] = []
    for field in dataclasses.fields(plan):
        old, new = getattr(earlier.plan, field.name), getattr(plan, field.name)
        if old != new:
            differences.append(f"{field.name} ({list_changes(old, new)})" if isinstance(new, dict) else field.name)
    if differences:
        raise InputError(
            f"{folder} holds another run, which differs in {', '.join(differences)}: choose another folder, or use the "
            "same settings"
        )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


@contextmanager
def _map_disk_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"{folder} cannot be written ({error.strerror}): free some space, or choose another"
        ) from error


_NAME = re.compile(r"[A-Za-z0-9._-]+")
_SOURCE = Path(__file__).resolve().parents[1]


def package_versions() -> Mapping[str, str]:
    """Return the versions of Python, epicrisis and its installed requirements."""
    required: set[str] = set()
    for requirement in metadata.requires("epicrisis") or ():
        required.update(_NAME.findall(requirement)[:1])
    versions = {"python": platform.python_version()}
    for name in ("epicrisis", *sorted(required)):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            # A requirement of an extra that is not installed.
            continue
    return versions


def git_commit(source: Path = _SOURCE) -> tuple[str, bool] | None:
    """Return the commit of the package's files and whether they differ from it.

    None if they are not in a git checkout, or git is not installed.
    """
    if _git(source, "ls-files", "--error-unmatch", "__init__.py") is None:
        # Installed into an environment inside another checkout: its commit does not apply.
        return None
    head, changes = _git(source, "rev-parse", "HEAD"), _git(source, "status", "--porcelain", "--", ".")
    return None if head is None or changes is None else (head, bool(changes))


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        process = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
            capture_output=True,
            text=True,
            check=True,
            timeout=30,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return process.stdout.strip()
