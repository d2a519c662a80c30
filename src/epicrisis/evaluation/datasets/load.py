"""Question sets: the pinned ones of `catalogue.toml`, and loading of one by its name, or of a file.

Nothing is downloaded.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, cast

from epicrisis.core.errors import InputError
from epicrisis.core.printable import count_noun, quote_for_shell
from epicrisis.corpus.base.reader_base import fingerprint_file, is_folder, printable_path
from epicrisis.corpus.readers.question_files import read_questions
from epicrisis.evaluation.datasets import pinned_readers, trial_questions
from epicrisis.evaluation.datasets import published_sets as published
from epicrisis.evaluation.datasets.dataset import Dataset, classes_by_gold, require_readable

FOLDER = "datasets"
"""In the program's home, with a folder for each source."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file of a source. `path` is relative to the folder of question sets: `<source>/<file name>`."""

    path: str
    url: str
    """Empty if the file is not published in this form; then it is built from the source in `built_from`."""
    licence: str
    bytes: int | None = None
    sha256: str | None = None
    """None if the file is not pinned; then its questions are checked."""
    built_from: str = ""


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
    files = {table["path"]: SourceFile(**table) for table in tables["files"]}
    sets: dict[str, PinnedSet] = {}
    for table in tables["sets"]:
        table["files"] = tuple(files[item] for item in table["files"])
        sets[table["name"]] = PinnedSet(**table)
    return sets


def load_dataset(
    name: str, home: Path, place: Path | None = None, *, sets: Mapping[str, PinnedSet] | None = None
) -> Dataset:
    """Return the question set with this name, or the questions of a file with this path.

    `place` is the file of a pinned set, its folder, or the folder above, whatever its folders are called; by default
    `home/datasets`. Raises InputError if the set is missing or not the pinned one, or if a question of a file cannot be
    read.
    """
    catalogue = load_catalogue() if sets is None else sets
    if name not in catalogue:
        path = Path(name).expanduser()
        if not path.exists():
            raise InputError(f"{name} is neither a question set ({', '.join(catalogue)}) nor a file; check the name")
        questions = published.read(path) or tuple(require_readable(read_questions(path)))
        return Dataset(printable_path(path.name), questions, classes_by_gold(questions))
    pinned = catalogue[name]
    paths = [_find(file, pinned, place or home / FOLDER) for file in pinned.files]
    pull = f"epicrisis questions pull {quote_for_shell(name)}"
    if pinned.sha256 is None:
        for file, path in zip(pinned.files, paths, strict=True):
            if file.sha256 not in (None, fingerprint_file(path).sha256):
                raise InputError(
                    f"{printable_path(path)} is not the pinned file of {name} ({file.bytes:,} bytes, "
                    f"sha256 {file.sha256}): run `{pull}`, or load it by its path"
                )
    dataset = read_pinned(pinned, paths)
    if len(dataset.questions) != pinned.count or pinned.sha256 not in (None, dataset.sha256):
        n = len(dataset.questions)
        raise InputError(
            f"the file read for {name} holds {count_noun(n, 'question')}, not the pinned "
            f"{count_noun(pinned.count, 'question')}: run `{pull}`, or give your own questions as JSON lines"
        )
    return dataset


def read_pinned(pinned: PinnedSet, paths: list[Path]) -> Dataset:
    """Return the set in these files, without a comparison with the pinned questions. Raises InputError."""
    source, _, part = pinned.name.partition("/")
    match source:
        case "mirage":
            questions = pinned_readers.read_mirage(paths[0], cast(pinned_readers.MirageSubset, part))
        case "mmlu":
            # One of MMLU's six subjects, by the ids: `college_biology-017`.
            questions = tuple(
                question
                for question in pinned_readers.read_mirage(paths[0], "mmlu")
                if question.id.rpartition("-")[0] == part
            )
        case "pubmedqa":
            questions, documents = pinned_readers.read_pubmedqa(*paths)
            return Dataset(pinned.name, questions, classes_by_gold(questions), documents, pinned.licence)
        case "evidence-inference" | "med-evidence":
            reader = trial_questions.read_med_evidence
            if source == "evidence-inference":
                reader = trial_questions.read_evidence_inference
            questions, documents = reader(paths[0])
            return Dataset(pinned.name, questions, classes_by_gold(questions), documents, pinned.licence)
        case "medqa" if part == "test":
            questions = pinned_readers.read_medqa_test(*paths)
        case "medq":
            questions, domains = pinned_readers.read_medq(paths[0])
            return Dataset(pinned.name, questions, domains, licence=pinned.licence)
        case _:
            questions = pinned_readers.read_prompt_engine(paths[0])
    return Dataset(pinned.name, questions, classes_by_gold(questions), licence=pinned.licence)


def _find(file: SourceFile, pinned: PinnedSet, place: Path) -> Path:
    name = Path(file.path).name
    if place.exists() and not is_folder(place):
        # A single file may have any name; several files must have their own names in one folder.
        is_file = len(pinned.files) == 1 or place.name == name
        places = [place] if is_file else [place.parent / name]
    else:
        places = [place / name, place / file.path, *sorted(place.glob(f"*/{name}"))]
    for path in places:
        if path.is_file():
            return path
    cure = f"run `epicrisis questions pull {quote_for_shell(pinned.name)}`"
    if not file.url:
        cure = f"build it from {file.built_from} (docs/evaluation.md#question-sets says how)"
    raise InputError(
        f"{name} of {pinned.name} is not in {printable_path(place)}: {cure}, or give its file or folder with --data"
    )
