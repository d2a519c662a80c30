"""Loading of question sets: a pinned set by its name, or a file. Nothing is downloaded."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import cast

from epicrisis.corpus.questions import read_questions
from epicrisis.corpus.reader_base import fingerprint_file, is_folder, printable_path
from epicrisis.errors import InputError
from epicrisis.evaluation.datasets import medq, mirage, prompt_engine, published, pubmedqa
from epicrisis.evaluation.datasets.catalogue import PinnedSet, SourceFile, load_catalogue
from epicrisis.evaluation.datasets.dataset import Dataset, classes_by_gold, require_readable
from epicrisis.printable import quote_for_shell

FOLDER = "datasets"
"""In the program's home, with a folder for each source."""


def load_dataset(
    name: str, home: Path, place: Path | None = None, *, sets: Mapping[str, PinnedSet] | None = None
) -> Dataset:
    """Return the question set with this name, or the questions of a file with this path.

    A file has a format of `published.read` or of `corpus.questions.read_questions`. `place` is the file of a pinned
    set, its folder, or the folder above; by default `home/datasets`. Raises InputError if the set is missing or not
    the pinned one, or if a question of a file cannot be read.
    """
    catalogue = load_catalogue() if sets is None else sets
    if name not in catalogue:
        return _load_file(name, catalogue)
    pinned = catalogue[name]
    paths = [_find(file, pinned, place or home / FOLDER) for file in pinned.files]
    if pinned.sha256 is None:
        _check_bytes(pinned, paths)
    dataset = read_pinned(pinned, paths)
    if len(dataset.questions) != pinned.count or pinned.sha256 not in (None, dataset.sha256):
        raise InputError(
            f"the file read for {name} holds {len(dataset.questions)} questions that are not the {pinned.count} pinned "
            f"ones: run `epicrisis questions pull {quote_for_shell(name)}`, or give your own questions as JSON lines"
        )
    return dataset


def _check_bytes(pinned: PinnedSet, paths: list[Path]) -> None:
    """Raise InputError unless the files of a set are the pinned ones."""
    for file, path in zip(pinned.files, paths, strict=True):
        if file.sha256 not in (None, fingerprint_file(path).sha256):
            pull = f"epicrisis questions pull {quote_for_shell(pinned.name)}"
            raise InputError(
                f"{printable_path(path)} is not the pinned file of {pinned.name} ({file.bytes:,} bytes, "
                f"sha256 {file.sha256}): run `{pull}`, or load it by its path"
            )


def read_pinned(pinned: PinnedSet, paths: list[Path]) -> Dataset:
    """Return the set in these files, without a comparison with the pinned questions. Raises InputError."""
    source, _, part = pinned.name.partition("/")
    match source:
        case "mirage":
            questions = mirage.read(paths[0], cast(mirage.Subset, part))
        case "mmlu":
            questions = mirage.read_subject(paths[0], part)
        case "pubmedqa":
            questions, documents = pubmedqa.read(*paths)
            return Dataset(pinned.name, questions, classes_by_gold(questions), documents, pinned.licence)
        case "medq":
            questions, domains = medq.read(paths[0])
            return Dataset(pinned.name, questions, domains, licence=pinned.licence)
        case _:
            questions = prompt_engine.read(paths[0])
    return Dataset(pinned.name, questions, classes_by_gold(questions), licence=pinned.licence)


def _load_file(name: str, catalogue: Mapping[str, PinnedSet]) -> Dataset:
    path = Path(name).expanduser()
    if not path.exists():
        raise InputError(f"{name} is neither a question set ({', '.join(catalogue)}) nor a file; check the name")
    questions = published.read(path) or tuple(require_readable(read_questions(path)))
    return Dataset(printable_path(path.name), questions, classes_by_gold(questions))


def _find(file: SourceFile, pinned: PinnedSet, place: Path) -> Path:
    name = Path(file.path).name
    if place.exists() and not is_folder(place):
        # A single file may have any name; several files must have their own names in one folder.
        is_file = len(pinned.files) == 1 or place.name == name
        places = [place] if is_file else [place.parent / name]
    else:
        places = [place / name, place / file.path]
    for path in places:
        if path.is_file():
            return path
    pull = f"epicrisis questions pull {quote_for_shell(pinned.name)}"
    raise InputError(
        f"{name} of {pinned.name} is not in {printable_path(place)}: run `{pull}`, "
        "or name the file or folder that holds it (--data)"
    )
