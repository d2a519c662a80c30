"""The models that can be downloaded, as `catalogue.toml` pins them."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Literal, TypeAlias

from epicrisis.core.errors import ModelMissing
from epicrisis.core.names import match_case
from epicrisis.core.types import Metadata

ModelKind: TypeAlias = Literal["encoder", "token-encoder", "sparse", "reranker", "chat", "reward", "nli", "lexicon"]


@dataclass(frozen=True, slots=True)
class WheelPart:
    """A member of a wheel on the package registry; `wheel` is `name==version`."""

    wheel: str
    member: str
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class NpmFile:
    """A member of a package on npm's registry; `package` is `name@version`."""

    package: str
    member: str


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file of a hub repository at a fixed revision."""

    repo: str
    revision: str
    path: str


@dataclass(frozen=True, slots=True)
class PinnedFile:
    """A file of a model. `source` is a file of the hub or of npm's registry, or the parts to join in this order.

    `copies` are parts with the same bytes, for machines that reach the package registry and not the hub.
    """

    path: str
    bytes: int
    sha256: str
    source: HubFile | NpmFile | tuple[WheelPart, ...]
    copies: tuple[WheelPart, ...] = ()


@dataclass(frozen=True, slots=True)
class HubFolder:
    """Files of a hub repository as they are at the first download, without hashes in the catalogue.

    `take` holds names or patterns (`model-*.safetensors`); `into` is the target folder, with a slash at its end.
    """

    repo: str
    take: tuple[str, ...]
    revision: str = "main"
    into: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedModel:
    """A model of the catalogue, with `files`, or with `unpinned` ones whose hashes the first download records."""

    name: str
    kind: ModelKind
    description: str
    licence: str
    settings: Metadata
    files: tuple[PinnedFile, ...]
    demo: bool = False
    measurement: str = ""
    """What a small chat model got right in a measurement of this project, as the end of a sentence."""
    unpinned: tuple[HubFolder, ...] = ()
    english_only: bool = False
    """Whether an encoder reads no other language."""
    publisher: str = ""
    """Who made the files, and who packaged them. For files of the hub empty: the owner of the repository."""

    @property
    def source(self) -> str:
        """Where the files come from: repositories of the hub with the commit, or packages."""
        names = dict.fromkeys(f"hub: {folder.repo}@{folder.revision}" for folder in self.unpinned)
        for file in self.files:
            if isinstance(file.source, HubFile):
                names[f"hub: {file.source.repo}@{file.source.revision[:10]}"] = None
            elif isinstance(file.source, NpmFile):
                names[f"npm: {file.source.package}"] = None
            else:
                names[f"package registry: {', '.join(part.wheel for part in file.source)}"] = None
        return "; ".join(names)

    @property
    def bytes(self) -> int:
        """The size of all files; 0 for an unpinned model."""
        return sum(file.bytes for file in self.files)


Catalogue: TypeAlias = Mapping[str, PinnedModel]


@cache
def load_catalogue() -> Catalogue:
    """Return the installed catalogue by name, in the order of its file."""
    return parse_catalogue(resources.files("epicrisis.models").joinpath("catalogue.toml").read_text("utf-8"))


def parse_catalogue(text: str) -> Catalogue:
    """Parse a catalogue in TOML. Raise TypeError for an unknown or missing key."""
    models = {}
    for table in tomllib.loads(text)["models"]:
        files, unpinned = table.pop("files", None), table.pop("unpinned", None)
        if (files is None) == (unpinned is None):
            raise TypeError(f"the model {table.get('name')!r} needs either `files` or `unpinned`")
        pinned_files: list[PinnedFile] = []
        for file in files or ():
            hub, npm = file.pop("hub", None), file.pop("npm", None)
            parts = tuple(WheelPart(**part) for part in file.pop("parts", ()))
            if (hub is not None) + (npm is not None) > 1 or not (hub or npm or parts) or (npm and parts):
                raise TypeError(
                    f"the file {file.get('path')!r} needs one of `parts`, `hub` and `npm`, or `hub` and `parts`"
                )
            if hub is not None:
                pinned_files.append(PinnedFile(source=HubFile(**hub), copies=parts, **file))
            else:
                pinned_files.append(PinnedFile(source=NpmFile(**npm) if npm else parts, **file))
        folders = tuple(HubFolder(**folder | {"take": tuple(folder["take"])}) for folder in unpinned or ())
        model = PinnedModel(files=tuple(pinned_files), unpinned=folders, **table)
        models[model.name] = model
    return models


def is_demo(name: str) -> bool:
    """Return whether the catalogue marks this model as a demo: its answers mean nothing. A path is never a demo."""
    return name in load_catalogue() and load_catalogue()[name].demo


def reads_english_only(name: str) -> bool:
    """Return whether an encoder of the catalogue reads no other language. Nothing is known of others."""
    return name in load_catalogue() and load_catalogue()[name].english_only


def get_measurement(name: str) -> str:
    """Return what this model of the catalogue got right in a measurement, or an empty string."""
    return load_catalogue()[name].measurement if name in load_catalogue() else ""


def get_pinned_model(name: str, models: Catalogue) -> PinnedModel:
    """Return the model of that name. Raise ModelMissing with similar names."""
    name = match_case(name, models)
    if name not in models:
        raise ModelMissing(f"no model is called {name!r}; {suggest_names(name, models)}")
    return models[name]


def suggest_names(name: str, candidates: Iterable[str]) -> str:
    """Return `did you mean ...?` with similar names, or a list of all names if none is similar."""
    names = list(candidates)
    similar = difflib.get_close_matches(name, names, n=2, cutoff=0.5)
    return f"did you mean {' or '.join(similar)}?" if similar else f"available models: {', '.join(names)}"
