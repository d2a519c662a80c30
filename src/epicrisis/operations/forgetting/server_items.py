"""Remove patients from the reviews and jobs of a server, and keep the rest of each readable.

    removal = clean_server_items(Path("server"), ["10083814"], strings)

A review refers to its questions by pair, and a job counts its questions. These references are corrected here, before
`places` removes lines and items. Every step can be repeated, so a removal continues after a kill.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Any

from epicrisis.core.errors import InputError
from epicrisis.library.write.record_removal import filter_lines
from epicrisis.operations.forgetting.patient_strings import PatientStrings
from epicrisis.operations.forgetting.places import PlaceRemoval
from epicrisis.system.local_only import replace_file

_REVIEW, _ITEMS, _VERDICTS = "review.json", "items.json", "verdicts.jsonl"
_JOB = "job.json"


def clean_server_items(server: Path, patients: Collection[str], strings: PatientStrings) -> PlaceRemoval:
    """Remove the questions about these patients from reviews, with their verdicts, and prepare jobs for it.

    Raises InputError for a file that is damaged, and StorageError.
    """
    removal = PlaceRemoval()
    for path in sorted(server.glob(f"reviews/*/{_REVIEW}")):
        removal += _clean_review(path, patients, strings)
    for path in sorted(server.glob(f"jobs/*/{_JOB}")):
        job = _read_json(path)
        if number_questions(job, patients):
            _write_json(path, job)
    return removal


def _clean_review(path: Path, patients: Collection[str], strings: PatientStrings) -> PlaceRemoval:
    """Remove questions from a review, or the review if it has no other questions."""
    folder = path.parent
    items, plan = _read_json(folder / _ITEMS), _read_json(path)
    others, changed = prune_review(plan, items, patients, strings)
    if not others:
        # Without its plan there is no review, also after a kill.
        path.unlink()
        shutil.rmtree(folder)
        return PlaceRemoval(files=(path,))
    if len(others) == len(items) and changed == plan:
        return PlaceRemoval()
    pairs = {item["pair"] for item in others}
    lines = filter_lines(folder / _VERDICTS, lambda line: is_about(line, pairs))
    _write_json(path, changed)
    # Last, since the items tell which pairs are removed.
    _write_json(folder / _ITEMS, others)
    return PlaceRemoval(lines, (folder / _ITEMS,))


def prune_review(
    plan: Any, items: list[Any], patients: Collection[str], strings: PatientStrings
) -> tuple[list[Any], Any]:
    """Return the questions of a review that are not about these patients, and its plan without the others."""
    others = [item for item in items if item["patient"] not in patients]
    pairs = {item["pair"] for item in others}
    key = dict(plan["key"])
    for name in ("first", "questions"):
        key[name] = {pair: value for pair, value in key[name].items() if pair in pairs}
    key["same"] = [name for name in key["same"] if not strings.is_in(name)]
    key["left_out"] = {name: value for name, value in key["left_out"].items() if not strings.is_in(name)}
    return others, {**plan, "key": key}


def is_about(line: str, pairs: Collection[str]) -> bool:
    """Return whether a line is a verdict on one of these pairs, or none, such as the end of the review."""
    try:
        pair = json.loads(line).get("pair")
    except (ValueError, AttributeError):
        return True
    return pair is None or pair in pairs


def number_questions(job: Any, patients: Collection[str]) -> bool:
    """Write the numbers of a job's questions as their ids, if some questions will be removed. Return whether they are.

    Its answers name the numbers, which would shift.
    """
    questions = job["body"]["questions"]
    if not any(question.get("patient") in patients for question in questions):
        return False
    for number, question in enumerate(questions, 1):
        question["id"] = question.get("id") or str(number)
    return True


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        raise InputError(f"{path} cannot be read: delete {path.parent}, and repeat the command") from None


def _write_json(path: Path, value: Any) -> None:
    replace_file(path, path.with_name(f".{path.name}.forgetting"), [json.dumps(value, ensure_ascii=False).encode()])
