"""Recorded runs: run folders, and files of answers that `epicrisis ask --file` wrote, opened for reading."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from epicrisis.core.errors import InputError
from epicrisis.core.printable import count_noun
from epicrisis.core.serialization import to_json
from epicrisis.evaluation.runs.run_folder import RECORDS, RunManifest, read_manifest
from epicrisis.pipeline.recording.answer_record import RunRecord, read_records

_CASE_ARGUMENTS = {"repeats"}
"""Arguments that select cases and do not change answers, besides those that are lists (arms, places). The condition of
each case holds their values."""
_HIDDEN_SETTINGS = {"rerank.api_key_env"}


@dataclass(frozen=True, slots=True)
class RunSummary:
    """The description of one run in a report."""

    name: str
    """Its name in the tables: the model, with the name of the folder if two runs share a model."""
    facts: Mapping[str, Any]
    """Questions, settings and software by name, as in the manifest."""
    complete: bool
    questions: str = ""
    """The name of the question set, several joined by ` + `; empty if unknown."""


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """A recorded run, with the name that tables use."""

    name: str
    path: Path
    """The file of its records."""
    recipe: Mapping[str, Any]
    manifest: RunManifest | None = None
    """None for a file of answers."""

    def records(self) -> Iterator[RunRecord]:
        """Yield the last record of each case. Raises InputError."""
        return read_records(self.path)

    @property
    def source(self) -> RunSummary:
        """The description of the run for a report."""
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
        """Names and hashes of the question sets; empty for a file of answers, which does not record them."""
        if self.manifest is None:
            return ""
        dataset = self.manifest.plan.dataset
        sets = dataset.get("sets", (dataset,))
        return " + ".join(f"{values['name']} {str(values['sha256'])[:12]}" for values in sets)

    @property
    def made_with(self) -> Mapping[str, Any]:
        """The recorded settings that decide answers, by name: strategy, k, model, library..."""
        recipe = self.recipe
        settings = {"version": recipe.get("epicrisis"), "prompts": recipe.get("prompts")}
        settings |= _flatten(recipe.get("settings", {}))
        settings |= _flatten_models(recipe.get("models", {}))
        if library := recipe.get("library"):
            fused = [str(other["id"])[:8] for other in library.get("fused", ())]
            settings["library"] = " + ".join(
                [f"{str(library['id'])[:8]} ({count_noun(library['passages'], 'passage')})", *fused]
            )
        settings |= self.planned
        return {name: value for name, value in settings.items() if name not in _HIDDEN_SETTINGS}

    @property
    def planned(self) -> Mapping[str, Any]:
        """The part of these settings that comes from the run's plan; empty for a file of answers."""
        if self.manifest is None:
            return {}
        plan = self.manifest.plan
        settings: dict[str, Any] = {"experiment": plan.name, "run's seed": plan.seed}
        for name, value in plan.arguments.items():
            if name not in _CASE_ARGUMENTS and not isinstance(value, list | dict):
                settings[name] = value
        return settings


def open_runs(paths: Sequence[Path]) -> tuple[RecordedRun, ...]:
    """Return the runs in these folders and files, each with a name of its own.

    Raises InputError if a path occurs twice, is not a run, or holds no record.
    """
    if len(set(map(Path.resolve, paths))) < len(paths):
        raise InputError("the same run is named twice: give each run once")
    return tuple(map(open_run, paths, name_runs(paths)))


@contextmanager
def refuse_mismatched_records(paths: Sequence[Path]) -> Iterator[None]:
    """Raise InputError instead of the errors that inconsistent records cause in the computation of tables.

    Each line is checked when it is read. Inconsistencies between files, such as the records of one experiment with the
    manifest of another, fail here. The message does not quote the error, which may hold text of a patient.
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
    """Return a name for each folder or file: its own, or its path if another has the same name."""
    names = [path.resolve().name if path.is_dir() else path.stem for path in paths]
    return tuple(name if names.count(name) == 1 else str(path) for path, name in zip(paths, names, strict=True))


def open_run(path: Path, name: str) -> RecordedRun:
    """Return the run in a folder or file. Raises InputError."""
    if path.is_dir():
        manifest = read_manifest(path)
        if (path / RECORDS).exists():
            return RecordedRun(name, path / RECORDS, manifest.plan.recipe, manifest)
    elif first := next(read_records(path), None):
        return RecordedRun(name, path, first.recipe)
    raise InputError(f"{path} holds no record yet: run the command that made it again")


def list_differences(first: RecordedRun, second: RecordedRun) -> tuple[str, ...]:
    """Return the names of the settings in which two runs differ.

    If a strategy reads no library, the library is not a difference of its own; nor is the run's seed if the seeds of
    the settings differ.
    """
    one, other = first.made_with, second.made_with
    names = [name for name in {**one, **other} if one.get(name) != other.get(name)]
    implied: set[str] = set()
    if "strategy" in names and not ("library" in one and "library" in other):
        implied.add("library")
    if "seed" in names:
        implied.add("run's seed")
    if first.manifest is None or second.manifest is None:
        implied.update(first.planned, second.planned)
    return tuple(name for name in names if name not in implied)


def _flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            flat |= _flatten(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def _flatten_models(models: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return values that all roles share once, and others by role: `model`, `temperature`, `map model`."""
    flat: dict[str, Any] = {}
    names: dict[str, None] = {}
    for settings in models.values():
        names |= dict.fromkeys(settings)
    for name in names:
        label = "model" if name == "name" else name
        values = {role: settings.get(name) for role, settings in models.items()}
        if len(set(map(repr, values.values()))) == 1:
            flat[label] = next(iter(values.values()))
        else:
            for role, value in values.items():
                flat[f"{role} {label}"] = value
    return flat
