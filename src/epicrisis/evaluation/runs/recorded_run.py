"""A run read back: its folder, or the file of answers that `epicrisis ask --file` wrote. Asks nothing.

What it was made with is told by name, so that two runs can be held against each other. Knows no statistics.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from epicrisis.errors import InputError
from epicrisis.evaluation.analysis.findings import RunSummary
from epicrisis.evaluation.runs.record import RunRecord, read_records
from epicrisis.evaluation.runs.run_folder import RECORDS, RunManifest, read_manifest
from epicrisis.serialization import to_json

_ASKED = {"repeats"}
"""Arguments that say what is asked, beside those that are lists (arms, places, ...), not how it is answered: each case
tells them by its condition."""
_UNTOLD = {"rerank.api_key_env"}


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """A run by the name that tables give it."""

    name: str
    path: Path
    """Of its records."""
    recipe: Mapping[str, Any]
    manifest: RunManifest | None = None
    """`None`: a file of answers."""

    def records(self) -> Iterator[RunRecord]:
        """The last record of each case. Raises InputError."""
        return read_records(self.path)

    @property
    def source(self) -> RunSummary:
        """What a reader is told of it."""
        if self.manifest is None:
            return RunSummary(self.name, {"answers": str(self.path), "recipe": self.recipe}, complete=True)
        plan = self.manifest.plan
        facts = {
            "questions": plan.dataset,
            "sample": plan.sample,
            **plan.arguments,
            "seed": plan.seed,
            "cases": self.manifest.cases,
            "states": self.manifest.states,
            "usage": self.manifest.usage,
            "recipe": plan.recipe,
            "sessions": to_json(self.manifest.sessions),
        }
        return RunSummary(self.name, facts, self.manifest.complete, str(plan.dataset.get("name", "")))

    @property
    def questions(self) -> str:
        """The question sets, by name and hash; empty for a file of answers, which does not tell them."""
        told = self.manifest.plan.dataset if self.manifest else {"sets": ()}
        return " + ".join(f"{each['name']} {str(each['sha256'])[:12]}" for each in told.get("sets", (told,)))

    @property
    def made_with(self) -> Mapping[str, Any]:
        """All that is recorded of how its questions were answered, by a name each: strategy, k, model, library, ..."""
        recipe = self.recipe
        facts = {"version": recipe.get("epicrisis"), "prompts": recipe.get("prompts")}
        facts |= _flat(recipe.get("settings", {}))
        facts |= _models(recipe.get("models", {}))
        if library := recipe.get("library"):
            others = [str(each["id"])[:8] for each in library.get("fused", ())]
            facts["library"] = " + ".join([f"{str(library['id'])[:8]} ({library['passages']:,} passages)", *others])
        return {name: value for name, value in {**facts, **self.planned}.items() if name not in _UNTOLD}

    @property
    def planned(self) -> Mapping[str, Any]:
        """Of that, what the run's plan tells; nothing of a file of answers, which has none."""
        if self.manifest is None:
            return {}
        plan = self.manifest.plan
        told = {
            name: value
            for name, value in plan.arguments.items()
            if name not in _ASKED and not isinstance(value, list | dict)
        }
        return {"experiment": plan.name, "run's seed": plan.seed, **told}


def open_runs(paths: Sequence[Path]) -> tuple[RecordedRun, ...]:
    """The runs in these folders and files, in their order, each by a name of its own.

    Raises InputError where one is named twice, is no run, or holds no record.
    """
    if len(set(map(Path.resolve, paths))) < len(paths):
        raise InputError("a run is named twice: name each once")
    return tuple(map(open_run, paths, name_runs(paths)))


@contextmanager
def refuse_mismatched_records(paths: Sequence[Path]) -> Iterator[None]:
    """Map what damaged records raise in the arithmetic of tables to InputError.

    Each line was checked when it was read. What a check cannot see, such as the records of one experiment under the
    manifest of another, ends here, and without its text: that may be a patient's.
    """
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        names = ", ".join(map(str, paths))
        raise InputError(
            f"{names}: the records and the manifest do not belong together, so no table can be made of them "
            f"({type(error).__name__}): restore the files, or run the same command into another folder"
        ) from error


def name_runs(paths: Sequence[Path]) -> tuple[str, ...]:
    """A name for each folder or file: its own, and its whole path where another is called so."""
    names = [path.resolve().name if path.is_dir() else path.stem for path in paths]
    return tuple(name if names.count(name) == 1 else str(path) for path, name in zip(paths, names, strict=True))


def open_run(path: Path, name: str) -> RecordedRun:
    """The run in this folder or file. Raises InputError."""
    if path.is_dir():
        manifest = read_manifest(path)
        if (path / RECORDS).exists():
            return RecordedRun(name, path / RECORDS, manifest.plan.recipe, manifest)
    elif first := next(read_records(path), None):
        return RecordedRun(name, path, first.recipe)
    raise InputError(f"{path} holds no record yet: run it first, by the command that made it")


def list_differences(first: RecordedRun, second: RecordedRun) -> tuple[str, ...]:
    """The names of what the two were not made with alike.

    Where one reads no library, by its strategy, the library is no difference of its own; nor is a run's seed that is
    the seed of its settings.
    """
    one, other = first.made_with, second.made_with
    names = [name for name in dict.fromkeys((*one, *other)) if one.get(name) != other.get(name)]
    implied = set()
    if "strategy" in names and not ("library" in one and "library" in other):
        implied.add("library")
    if "seed" in names:
        implied.add("run's seed")
    if first.manifest is None or second.manifest is None:
        implied |= {*first.planned, *second.planned}
    return tuple(name for name in names if name not in implied)


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return flat


def _models(models: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """What all roles have in common once, what they do not by role: `model`, `temperature`, `map model`."""
    told: dict[str, Any] = {}
    for name in dict.fromkeys(name for each in models.values() for name in each):
        values = {role: each.get(name) for role, each in models.items()}
        plain = "model" if name == "name" else name
        alike = len({repr(value) for value in values.values()}) == 1
        told |= {plain: next(iter(values.values()))} if alike else {f"{r} {plain}": v for r, v in values.items()}
    return told
