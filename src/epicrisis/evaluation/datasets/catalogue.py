"""What `load_catalogue.toml` pins of every question set, as values. Knows nothing of networks and disks."""

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
    """One file of a source. `path`: below the folder of question sets, `<source>/<file name>`."""

    path: str
    url: str
    licence: str
    bytes: int | None = None
    sha256: str | None = None
    """`None` where nobody has read this very file: then the questions in it are the check."""


@dataclass(frozen=True, slots=True)
class PinnedSet:
    """A question set by its name: the files it is read from, how many questions it has, and their `Dataset.sha256`."""

    name: str
    description: str
    files: tuple[SourceFile, ...]
    count: int
    split: str | None = None
    """Which part of its source it is: `train`, `validation` or `test`; `None` where the source is not split."""
    sha256: str | None = None
    """None where the files alone are pinned: then their bytes are the check, and the number of questions."""

    @property
    def licence(self) -> str:
        """Those of its files."""
        return ", ".join(dict.fromkeys(file.licence for file in self.files))


@cache
def load_catalogue() -> Mapping[str, PinnedSet]:
    """The pinned sets by name, in the order of the file."""
    return parse_catalogue(
        resources.files("epicrisis.evaluation.datasets").joinpath("catalogue.toml").read_text("utf-8")
    )


def find_pinned_set(name: str, sets: Mapping[str, PinnedSet]) -> PinnedSet:
    """The set of that name. Raises InputError with the known names."""
    if name not in sets:
        raise InputError(f"no question set is called {name!r}; known are {', '.join(sets)}")
    return sets[name]


def parse_catalogue(text: str) -> Mapping[str, PinnedSet]:
    """The sets of a TOML text as `load_catalogue.toml` describes it. A key unknown or missing: TypeError, KeyError."""
    tables: dict[str, list[dict[str, Any]]] = tomllib.loads(text)
    files = {table["path"]: SourceFile(**table) for table in tables["files"]}
    return {
        table["name"]: PinnedSet(**{**table, "files": tuple(files[path] for path in table["files"])})
        for table in tables["sets"]
    }
