"""Open the libraries of solved questions that an experiment shows."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from epicrisis.components import ExampleSearch, open_examples
from epicrisis.errors import InputError
from epicrisis.evaluation.experiments.experiment import Grid, Request
from epicrisis.evaluation.experiments.medprompt import ARMS, CONTROLS, RERANKED
from epicrisis.settings import Settings


def open_sources(request: Request, settings: Settings, stack: ExitStack, grid: Grid) -> dict[str, ExampleSearch]:
    """Open a search for each library of solved questions in the request, by its name in the tables.

    With a reranker each library has a second search that uses it. The control arms of the grid search the first
    library. The stack closes the libraries. Raises UserError.
    """
    libraries = list(request.examples)
    if not libraries and settings.examples.library is not None:
        libraries = [(settings.examples.library.name, settings.examples.library)]
    _check_names([name for name, _ in libraries])
    # Deep enough for the largest number of examples.
    k = max(grid.ks, default=settings.examples.k)
    searches: dict[str, ExampleSearch] = {}
    for name, path in libraries:
        searches[name] = _open(settings, stack, library=path, rerank=None, k=k)
        if request.reranker is not None:
            searches[f"{name}{RERANKED}"] = _open(settings, stack, library=path, rerank=request.reranker, k=k)
    for arm in grid.arms:
        if libraries and arm in CONTROLS:
            searches[arm] = _open(settings, stack, library=libraries[0][1], choose=arm, k=k)
    return searches


def _check_names(names: Sequence[str]) -> None:
    """Raise InputError for names that the tables could not tell apart."""
    reserved = [name for name in names if name in ARMS or name.endswith(RERANKED) or not name]
    distinct = len(set(names))
    if reserved or distinct < len(names):
        which = repr(reserved[0]) if reserved else f"{len(names)} libraries with {distinct} names"
        raise InputError(f"--examples: {which} cannot be told from others: give each a name, --examples NAME=FOLDER")


def _open(settings: Settings, stack: ExitStack, **changes: Any) -> ExampleSearch:
    examples = settings.examples.model_copy(update=changes)
    search = open_examples(settings.model_copy(update={"examples": examples}))
    if search is None:
        raise InputError("this experiment shows solved questions: name a library of them with --examples")
    stack.enter_context(search.search)
    return search
