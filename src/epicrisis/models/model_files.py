"""A model's files on this disk: those of a pulled model, or a file or folder of the user's own.

Knows nothing of what is in them, but for the list of parts that a split model carries, and nothing of downloads.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from epicrisis.errors import ModelFileInvalid, ModelMissing
from epicrisis.models.catalogue import ModelKind
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
"""Where weights lie in a folder, the first that is there is taken."""

NETWORK_FOLDERS = ("query/", "article/")
"""The folders of a model of two networks: one reads questions, one reads passages."""


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A model on this disk. `files` are paths by the names the catalogue gives them, `sha256` theirs where known."""

    name: str
    kind: ModelKind
    folder: Path
    files: Mapping[str, Path]
    settings: Metadata
    sha256: Mapping[str, str]

    def part(self, prefix: str) -> ModelFiles:
        """The files of one of two networks, named without the prefix; all of them where the model is one network."""
        if not any(name.startswith(prefix) for name in self.files):
            return self
        return replace(
            self,
            folder=self.folder / prefix,
            files={name.removeprefix(prefix): path for name, path in self.files.items() if name.startswith(prefix)},
            sha256={name.removeprefix(prefix): value for name, value in self.sha256.items() if name.startswith(prefix)},
        )


def compute_sha256(path: Path) -> str:
    """The sha256 of a file's bytes, in hex."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def read_json(path: Path) -> Any:
    """What a JSON file says, `None` where it is not there. Raises ModelFileInvalid when it is not JSON."""
    if not path.is_file():
        return None
    try:
        return json.loads(path.read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ModelFileInvalid(f"{path} is not JSON: {error}") from error


def find_local_files(path: Path, kind: ModelKind) -> ModelFiles:
    """A file or folder of the user's own, under the names of the catalogue; its settings are for its loader to read.

    Raises ModelMissing that names what is not there.
    """
    folder = path if path.is_dir() else path.parent
    if kind == "chat":
        found = sorted(folder.glob("*.gguf")) if path.is_dir() else [path]
        if len(found) != 1:
            raise ModelMissing(f"{folder} holds {len(found)} .gguf files, wanted is one: name the file itself")
        return ModelFiles(found[0].stem, kind, folder, {"model.gguf": found[0]}, {}, {})
    if all((folder / part).is_dir() for part in NETWORK_FOLDERS):
        files = {
            part + name: file for part in NETWORK_FOLDERS for name, file in _network(folder / part, None, kind).items()
        }
    else:
        if folder.name == "onnx" and not (folder / "tokenizer.json").is_file():
            folder = folder.parent
        files = _network(folder, path if path.is_file() else None, kind)
    return ModelFiles(folder.resolve().name, kind, folder, files, {}, {})


def _network(folder: Path, named: Path | None, kind: ModelKind) -> dict[str, Path]:
    """The files that decide what one network computes: weights in all their parts, configuration, vocabulary."""
    weights = named or next((folder / name for name in WEIGHTS if (folder / name).is_file()), None)
    if weights is None:
        raise ModelMissing(
            f"{folder} is no {kind}: it lacks model.onnx or model.safetensors (wanted: one of them, tokenizer.json)"
        )
    words = "tokenizer.json"
    if kind == "token-encoder" and not (folder / words).is_file() and (folder / "vocab.txt").is_file():
        words = "vocab.txt"
    files = {words: folder / words}
    if weights.suffix == ".onnx":
        files[ONNX] = weights
        # Weights over 2 GB lie beside an ONNX file, which names them.
        files |= {outside.name: outside for outside in sorted(weights.parent.glob(f"{weights.name}[._]data*"))}
    else:
        files |= {"config.json": folder / "config.json", weights.name: weights}
        parts = (read_json(weights) or {}).get("weight_map", {}).values() if weights.suffix == ".json" else ()
        files |= {name: folder / name for name in sorted(set(parts))}
    for file in files.values():
        if not file.is_file():
            raise ModelMissing(f"{folder} is no {kind}: it lacks {file.name}")
    return files
