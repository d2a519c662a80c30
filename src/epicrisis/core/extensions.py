"""Encoders, chat models, rerankers, readers and stores of other installed packages, found through their entry points.

A package names them in its pyproject.toml, and settings then use the name:

    [project.entry-points."epicrisis.encoders"]
    our-encoder = "our_package:OurEncoder"

Names of the catalogue win. Nothing of a package is imported before its name is used.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal, TypeAlias

from epicrisis.core.errors import EpicrisisError, ModelMissing

ExtensionKind: TypeAlias = Literal["encoder", "chat model", "reranker", "reader", "store"]
GROUPS: Mapping[ExtensionKind, str] = {
    "encoder": "epicrisis.encoders",
    "chat model": "epicrisis.chat_models",
    "reranker": "epicrisis.rerankers",
    "reader": "epicrisis.readers",
    "store": "epicrisis.stores",
}


def list_extensions(kind: ExtensionKind) -> tuple[str, ...]:
    """Return the names of this kind that the installed packages offer."""
    return tuple(_find_all(kind, tuple(sys.path)))


def find_package(kind: ExtensionKind, name: str) -> str | None:
    """Return the package that offers this name, or None."""
    entry = _find_all(kind, tuple(sys.path)).get(name)
    return None if entry is None else _package(entry)


def make_extension(kind: ExtensionKind, name: str, *arguments: Any) -> Any:
    """Return what the callable of this name returns for these arguments, or None if no package offers the name.

    Raises ModelMissing, with the package, if it cannot be imported or called.
    """
    entry = _find_all(kind, tuple(sys.path)).get(name)
    if entry is None:
        return None
    try:
        return entry.load()(*arguments)
    except EpicrisisError:
        raise
    except Exception as error:  # the code of another package may raise any error
        raise ModelMissing(
            f"the {kind} {name} of the package {_package(entry)} cannot be loaded ({type(error).__name__}: {error}): "
            "repair or remove the package, or choose another"
        ) from error


@cache
def _find_all(kind: ExtensionKind, path: tuple[str, ...]) -> Mapping[str, EntryPoint]:
    """Return the entry points by name. They depend on the folders of packages only."""
    return {entry.name: entry for entry in entry_points(group=GROUPS[kind])}


def _package(entry: EntryPoint) -> str:
    return "unknown" if entry.dist is None else entry.dist.name
