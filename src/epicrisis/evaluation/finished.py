"""From the folders of runs to what a report says of them. Asks nothing and draws nothing."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from epicrisis.errors import InputError

from .conclusions import conclusions
from .evaluating import NAME as EVALUATE
from .experiments.protocol import PROTOCOLS
from .findings import Findings, Source
from .folder import RECORDS, Manifest, read_manifest
from .published import published
from .records import read_records
from .studies import EXPERIMENTS, Experiment, Runs


def findings_of(folders: Sequence[Path]) -> tuple[Findings, ...]:
    """One for each experiment among the runs, those of the same experiment together.

    Runs of both RAG and BriefContext on the same placed passages are read for conflicts and for cost as well. Raises
    InputError where a folder holds no run, or none of these.
    """
    if len(set(map(Path.resolve, folders))) < len(folders):
        raise InputError("a run is named twice: name each once")
    by_name: dict[str, dict[Path, Manifest]] = defaultdict(dict)
    for folder in folders:
        manifest = read_manifest(folder)
        if manifest.plan.name not in (EVALUATE, *EXPERIMENTS):
            raise InputError(f"{folder} is a run of {manifest.plan.name}, which this program does not know: update it")
        by_name[manifest.plan.name][folder] = manifest
    return tuple(found for name, runs in by_name.items() for found in _findings(name, runs))


def _findings(name: str, manifests: Mapping[Path, Manifest]) -> Iterable[Findings]:
    if name == EVALUATE:
        from . import comparing

        yield comparing.findings(list(manifests))
        return
    names = names_of(manifests)
    runs = {names[folder]: partial(read_records, folder / RECORDS) for folder in manifests}
    sources = tuple(source(names[folder], manifest) for folder, manifest in manifests.items())
    remarks = dict.fromkeys(note for each in manifests.values() for note in _notes(each))
    yield _of(EXPERIMENTS[name], runs, sources, list(remarks))
    for also in _readable_as(name, manifests):
        yield _of(EXPERIMENTS[also], runs, sources, list(remarks))


def _of(wanted: Experiment, runs: Runs, sources: tuple[Source, ...], remarks: Sequence[str]) -> Findings:
    tables = wanted.tables(runs, remarks)
    return Findings(
        experiment=wanted.name,
        about=wanted.about,
        sources=sources,
        tables=tables,
        conclusions=tuple(sentence for table in tables for sentence in conclusions(table)),
        published=tuple(published()[each] for each in wanted.published),
    )


def _readable_as(name: str, manifests: Mapping[Path, Manifest]) -> list[str]:
    """Which other experiments the same records answer."""
    arms = [set(each.plan.arguments.get("arms", ())) for each in manifests.values()]
    needed = {"conflicts": {"rag", "brief-context"}, "cost": {"rag", "brief-context", "closed-book"}}
    return [also for also, need in needed.items() if also != name and all(need <= each for each in arms)]


def names_of(manifests: Mapping[Path, Manifest]) -> Mapping[Path, str]:
    """What tables call each run: its model, with the folder's name where several share one."""
    models = {folder: model_of(manifest) for folder, manifest in manifests.items()}
    often = Counter(models.values())
    return {folder: name if often[name] == 1 else f"{name} ({folder.name})" for folder, name in models.items()}


def model_of(manifest: Manifest) -> str:
    """The models that answer, each once; an endpoint's by its model's name, a file by its own."""
    names = [str(model["name"]) for model in manifest.plan.recipe["models"].values()]
    return " + ".join(dict.fromkeys(name.rpartition("#")[2].rpartition("/")[2] or name for name in names))


def source(name: str, manifest: Manifest) -> Source:
    """What a reader is told of the run."""
    plan = manifest.plan
    facts: dict[str, Any] = {
        "questions": plan.dataset,
        "sample": plan.sample,
        **plan.arguments,
        "seed": plan.seed,
        "cases": manifest.cases,
        "states": manifest.states,
        "usage": manifest.usage,
        "recipe": plan.recipe,
        "sessions": [
            {"started": each.started, "ended": each.ended, "commit": each.commit} for each in manifest.sessions
        ],
        "packages": manifest.sessions[-1].packages if manifest.sessions else {},
    }
    return Source(name, facts, manifest.complete)


def _notes(manifest: Manifest) -> tuple[str, ...]:
    protocol = PROTOCOLS.get(str(manifest.plan.arguments.get("protocol")))
    return protocol.notes if protocol else ()
