"""The catalogue of pinned question sets, `catalogue.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from epicrisis.errors import InputError


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file of a source. `path` is relative to the folder of question sets: `<source>/<file name>`."""

    path: str
    url: str
    licence: str
    bytes: int | None = None
    sha256: str | None = None
    """None if the file is not pinned; then its questions are checked."""


@dataclass(frozen=True, slots=True)
class PinnedSet:
    """A question set: its files, the number of its questions, and their `Dataset.sha256`."""

    name: str
    description: str
    files: tuple[SourceFile, ...]
    count: int
    split: str | None = None
    """The part of the source: `train`, `validation` or `test`. None if the source is not split."""
    sha256: str | None = None
    """None if only the files are pinned; then their bytes and the number of questions are checked."""

    @property
    def licence(self) -> str:
        """The licences of its files."""
        return ", ".join(dict.fromkeys(file.licence for file in self.files))


@cache
def load_catalogue() -> Mapping[str, PinnedSet]:
    """Return the pinned sets by name, in the order of the file."""
    return parse_catalogue(
        resources.files("epicrisis.evaluation.datasets").joinpath("catalogue.toml").read_text("utf-8")
    )


def find_pinned_set(name: str, sets: Mapping[str, PinnedSet]) -> PinnedSet:
    """Return the set with this name. Raises InputError with the known names."""
    if name not in sets:
        raise InputError(f"no question set is called {name!r}; known are {', '.join(sets)}")
    return sets[name]


def parse_catalogue(text: str) -> Mapping[str, PinnedSet]:
    """Return the sets of a TOML text in the form of `catalogue.toml`. Raises TypeError or KeyError for other keys."""
    tables: dict[str, list[dict[str, Any]]] = tomllib.loads(text)
    files: dict[str, SourceFile] = {}
    for table in tables["files"]:
        files[table["path"]] = SourceFile(**table)
    sets: dict[str, PinnedSet] = {}
    for table in tables["sets"]:
        table["files"] = tuple(map(files.__getitem__, table["files"]))
        sets[table["name"]] = PinnedSet(**table)
    return sets
