"""What `load_catalogue.toml` pins, as values. Knows nothing of networks, of disks, or of how a model is run."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal, TypeAlias

from epicrisis.errors import ModelMissing
from epicrisis.types import Metadata

ModelKind: TypeAlias = Literal["encoder", "token-encoder", "sparse", "reranker", "chat", "reward", "nli"]


@dataclass(frozen=True, slots=True)
class WheelPart:
    """A member of a wheel on the package registry; `wheel` is `name==version`."""

    wheel: str
    member: str
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class HubFile:
    """One file of a hub repository at a fixed revision."""

    repo: str
    revision: str
    path: str


@dataclass(frozen=True, slots=True)
class PinnedFile:
    """One file of a model; `source` is one hub file, or the parts that are joined in their order."""

    path: str
    bytes: int
    sha256: str
    source: HubFile | tuple[WheelPart, ...]


@dataclass(frozen=True, slots=True)
class HubFolder:
    """Files of a hub repository as they are at the first pull: nobody has stated their hashes beforehand.

    `take` are names or patterns (`model-*.safetensors`), `into` is the folder they get, a slash at its end.
    """

    repo: str
    take: tuple[str, ...]
    revision: str = "main"
    into: str = ""


@dataclass(frozen=True, slots=True)
class PinnedModel:
    """One model of the catalogue. `settings` are those of its kind, see the head of `catalogue.toml`.

    Its files are stated one by one, or it is unpinned: their revision and hashes are recorded at the first pull.
    """

    name: str
    kind: ModelKind
    description: str
    licence: str
    settings: Metadata
    files: tuple[PinnedFile, ...]
    demo: bool = False
    unpinned: tuple[HubFolder, ...] = ()

    @property
    def bytes(self) -> int:
        """Of all files; 0 where they are not stated."""
        return sum(file.bytes for file in self.files)


Catalogue: TypeAlias = Mapping[str, PinnedModel]


@cache
def load_catalogue() -> Catalogue:
    """The shipped catalogue by name, in the order of the file."""
    return parse_catalogue(resources.files("epicrisis.models").joinpath("catalogue.toml").read_text("utf-8"))


def parse_catalogue(text: str) -> Catalogue:
    """A catalogue from TOML as `load_catalogue.toml` describes it. An unknown or missing key raises TypeError."""
    models = (_model(**table) for table in tomllib.loads(text)["models"])
    return {model.name: model for model in models}


def is_demo(name: str) -> bool:
    """Whether the catalogue marks this model as one for the demo: its answers mean nothing. A path is never one."""
    return name in load_catalogue() and load_catalogue()[name].demo


def get_pinned_model(name: str, models: Catalogue) -> PinnedModel:
    """The model of that name. Raises ModelMissing with the nearest names."""
    if name not in models:
        raise ModelMissing(f"no model is called {name!r}; {suggest_names(name, models)}")
    return models[name]


def suggest_names(name: str, known: Iterable[str]) -> str:
    """`did you mean ...?` where some known name is near, else all of them."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=2, cutoff=0.5)
    return f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(names)}"


def _model(
    files: list[dict[str, Any]] | None = None, unpinned: list[dict[str, Any]] | None = None, **table: Any
) -> PinnedModel:
    if (files is None) == (unpinned is None):
        raise TypeError(f"the model {table.get('name')!r} needs either `files` or `unpinned`")
    folders = tuple(HubFolder(take=tuple(folder.pop("take")), **folder) for folder in unpinned or ())
    return PinnedModel(files=tuple(_file(**file) for file in files or ()), unpinned=folders, **table)


def _file(parts: list[dict[str, Any]] | None = None, hub: dict[str, str] | None = None, **table: Any) -> PinnedFile:
    if (parts is None) == (hub is None):
        raise TypeError(f"the file {table.get('path')!r} needs either `parts` or `hub`")
    source = HubFile(**hub) if hub is not None else tuple(WheelPart(**part) for part in parts or ())
    return PinnedFile(source=source, **table)
