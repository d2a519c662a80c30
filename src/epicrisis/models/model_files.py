"""A model's files on this disk: those of a downloaded model, or the user's own file or folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from epicrisis.errors import ModelFileInvalid, ModelMissing
from epicrisis.models.catalogue import ModelKind
from epicrisis.types import Metadata

T = TypeVar("T")

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
        files = _select_prefix(self.files, prefix)
        if not files:
            return self
        return replace(self, folder=self.folder / prefix, files=files, sha256=_select_prefix(self.sha256, prefix))


def _select_prefix(values: Mapping[str, T], prefix: str) -> dict[str, T]:
    return {name.removeprefix(prefix): value for name, value in values.items() if name.startswith(prefix)}


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
    """Return the user's own file or folder under the catalogue's names, without settings.

    Raise ModelMissing with the name of a missing file.
    """
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
