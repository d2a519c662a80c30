"""Remove quotations of patients outside of the library: records of runs, answers, jobs, reviews, logs, cached replies.

    removal = clean_place(Path("runs/ward"), ["10083814"], strings)

A line of a JSON file, or an item of a list, belongs to the patient in its key `patient`. A line or file without one
belongs to the patients it quotes. Nothing that names another patient is removed. Every file is replaced completely or
not at all, so a removal continues after a kill when it is called again.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from epicrisis.core.errors import InputError, StorageError
from epicrisis.library.write.record_removal import filter_lines
from epicrisis.models.chat.cache import APPLICATION_ID, ReplyCache
from epicrisis.operations.forgetting.file_scan import list_files, scan_file
from epicrisis.operations.forgetting.patient_strings import PatientStrings
from epicrisis.system.local_only import replace_file
from epicrisis.system.remote_libraries import is_remote

_LINES = frozenset((".jsonl", ".ndjson", ".log", ".txt"))
_MANIFEST, _RECORDS = "manifest.json", "records.jsonl"
_SERVER_FOLDERS = frozenset(("answers", "jobs", "reviews", "uploads", "originals"))
_SERVER_FILES = ("access.", "users.", "identity-provider.")
_APPLICATION_ID_PLACE = 68
"""Where SQLite writes the application id of a file."""


@dataclass(frozen=True, slots=True)
class PlaceRemoval:
    """What was removed from a folder or file."""

    lines: int = 0
    """Lines, such as records of a run."""
    files: tuple[Path | str, ...] = ()
    """Files, or items of a database, that were deleted or shortened as a whole: answers, reports, cached replies."""

    def __add__(self, other: PlaceRemoval) -> PlaceRemoval:
        return PlaceRemoval(self.lines + other.lines, (*self.files, *other.files))


def clean_place(place: Path, patients: Collection[str], strings: PatientStrings) -> PlaceRemoval:
    """Remove quotations of these patients from a folder, or from one file. A missing one has none.

    Other files than lines and JSON are deleted only in the folder of a run or of a server, since the program can write
    those again. Raises StorageError.
    """
    removal = PlaceRemoval()
    for path in list_files([place]):
        try:
            removal += _clean_file(path, place, patients, strings)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise StorageError(
                f"{path} cannot be changed ({error.strerror}): check the rights of its folder"
            ) from error
    return removal


def _clean_file(path: Path, place: Path, patients: Collection[str], strings: PatientStrings) -> PlaceRemoval:
    if path.name.startswith(_SERVER_FILES) or path.name.endswith(".lock"):
        return PlaceRemoval()
    if _is_reply_cache(path):
        # Replies are stored under hashes of their prompts, so nobody can tell which ones quote these patients.
        cache = ReplyCache(path)
        try:
            cleared = cache.clear()
        finally:
            cache.close()
        return PlaceRemoval(files=(path,) if cleared else ())
    match = scan_file(path, strings)
    if not (match.names or match.texts):
        return PlaceRemoval()
    if path.suffix == ".json":
        return _clean_json(path, patients, strings)
    if path.suffix in _LINES or path == place:
        lines = filter_lines(path, lambda line: not is_line_of(line, patients, strings))
        return PlaceRemoval(lines=lines)
    if _is_derived(path, place):
        path.unlink()
        return PlaceRemoval(files=(path,))
    return PlaceRemoval()


def is_line_of(line: str, patients: Collection[str], strings: PatientStrings) -> bool:
    """Return whether a line belongs to these patients: it names one of them, or it names no patient and quotes them."""
    if not strings.is_in(line):
        return False
    try:
        owners = set(_find_owners(json.loads(line)))
    except (ValueError, RecursionError):
        return True
    return bool(owners.intersection(patients)) or not owners


def _clean_json(path: Path, patients: Collection[str], strings: PatientStrings) -> PlaceRemoval:
    """Remove the items about these patients from a JSON file, or the file if all of it is about them."""
    try:
        value = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        raise InputError(
            f"{path} quotes a forgotten patient and is no JSON: delete it, and repeat the command"
        ) from None
    remaining = remove_items(value, patients, strings)
    if remaining is None:
        path.unlink()
    elif remaining == value:
        return PlaceRemoval()
    else:
        content = json.dumps(remaining, ensure_ascii=False).encode()
        replace_file(path, path.with_name(f".{path.name}.forgetting"), [content])
    return PlaceRemoval(files=(path,))


def remove_items(value: Any, patients: Collection[str], strings: PatientStrings) -> Any:
    """Return JSON data without the items about these patients, or None if all of it is about them."""
    owners = set(_find_owners(value))
    if owners and not owners.intersection(patients):
        return value
    pruned = _prune(value, patients)
    others = set(_find_owners(pruned)) - set(patients)
    content = json.dumps(pruned, ensure_ascii=False)
    if not others and (not owners or owners <= set(patients) or strings.is_in(content)):
        return None
    return pruned


def _find_owners(value: Any) -> Iterator[str]:
    """Yield every patient whom JSON data name."""
    if isinstance(value, dict):
        patient = value.get("patient")
        if isinstance(patient, str) and patient:
            yield patient
        for item in value.values():
            yield from _find_owners(item)
    elif isinstance(value, list):
        for item in value:
            yield from _find_owners(item)


def _prune(value: Any, patients: Collection[str]) -> Any:
    """Return JSON data without the items of lists that name one of these patients."""
    if isinstance(value, dict):
        return {key: _prune(item, patients) for key, item in value.items()}
    if isinstance(value, list):
        return [
            _prune(item, patients) for item in value if not (isinstance(item, dict) and item.get("patient") in patients)
        ]
    return value


def _is_derived(path: Path, place: Path) -> bool:
    """Return whether a file lies in the folder of a run or of a server, whose contents the program wrote."""
    for parent in path.parents:
        if (parent / _MANIFEST).is_file() and (parent / _RECORDS).is_file():
            return True
        if parent.name in _SERVER_FOLDERS and (
            is_remote(parent.parent) or any((parent.parent / name).exists() for name in ("users.json", "answers"))
        ):
            return True
        if parent == place:
            return False
    return False


def _is_reply_cache(path: Path) -> bool:
    """Return whether a file is a cache of replies, by its application id."""
    with path.open("rb") as file:
        header = file.read(_APPLICATION_ID_PLACE + 4)
    number = int.from_bytes(header[_APPLICATION_ID_PLACE:], "big")
    return header.startswith(b"SQLite format 3\0") and number == APPLICATION_ID
