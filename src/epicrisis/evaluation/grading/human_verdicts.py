"""Verdicts of people, read back from the files that they filled in. Knows no arm: a verdict is `1`, `2` or `tie`."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from epicrisis.corpus import jsonl
from epicrisis.corpus.reader_base import Skipped, check_file, printable_path
from epicrisis.errors import InputError

PreferredAnswer: TypeAlias = Literal["1", "2", "tie"]
CHOICES: tuple[PreferredAnswer, ...] = get_args(PreferredAnswer)

_COLUMNS = ("pair", "verdict")


@dataclass(frozen=True, slots=True)
class HumanVerdict:
    """What one reviewer says of one pair."""

    pair: str
    reviewer: str
    choice: PreferredAnswer
    why: str = ""


def read_verdicts(paths: Iterable[Path], pairs: Collection[str]) -> tuple[HumanVerdict, ...]:
    """The verdicts of all files, rows without one left out: what was not judged is missing, no tie.

    CSV (`.csv`, UTF-8, cells parted by comma, semicolon or tab) or JSON lines (`.jsonl`): `pair`, `verdict` (1, 2 or
    tie), `reviewer` and `why`. Where a row names no reviewer he is called as the file is. Raises InputError, with file
    and row, for a pair that is none of `pairs`, a verdict that is no such word, and a second one by one reviewer.
    """
    found: dict[tuple[str, str], tuple[str, HumanVerdict]] = {}
    for path in paths:
        for where, row in _rows(path):
            if (verdict := _verdict(path, where, row, pairs)) is None:
                continue
            key = verdict.pair, verdict.reviewer
            if key in found:
                raise InputError(
                    f"{where}: {verdict.reviewer!a} judged pair {verdict.pair} before, in {found[key][0]}: keep one of "
                    "the two, or name two reviewers"
                )
            found[key] = where, verdict
    return tuple(verdict for _, verdict in found.values())


def _verdict(path: Path, where: str, row: Mapping[str, Any], pairs: Collection[str]) -> HumanVerdict | None:
    cells = {name: "" if row.get(name) is None else str(row[name]).strip() for name in (*_COLUMNS, "reviewer", "why")}
    if cells["pair"] not in pairs:
        raise InputError(f"{where}: its pair is none of these: take the files that were handed out with this key")
    if not cells["verdict"]:
        return None
    choice = next((each for each in CHOICES if each == cells["verdict"].casefold()), None)
    if choice is None:
        raise InputError(f"{where}: the verdict is none of {', '.join(CHOICES)}: write one of them, or nothing")
    return HumanVerdict(cells["pair"], cells["reviewer"] or printable_path(path.stem), choice, cells["why"])


def _rows(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each row with its place, as a message names it."""
    check_file(path)
    if path.suffix.lower() == ".csv":
        yield from _csv_rows(path)
    elif path.suffix.lower() == ".jsonl":
        for item in jsonl.read_objects(path):
            if isinstance(item, Skipped):
                raise InputError(f"{item.path}, {item.where}: {item.reason}")
            yield f"{printable_path(path)}, line {item[0]}", item[1]
    else:
        raise InputError(f"{printable_path(path)}: verdicts come as .csv or .jsonl: save the sheet as CSV (UTF-8)")


def _csv_rows(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    try:
        text = path.read_bytes().decode("utf-8-sig")
        head = text.partition("\n")[0]
        rows = csv.reader(io.StringIO(text, newline=""), delimiter=max(",;\t", key=head.count), strict=True)
        names = [name.strip().casefold() for name in next(rows, [])]
        if missing := [name for name in _COLUMNS if name not in names]:
            raise InputError(
                f"{printable_path(path)}: has no column {' and '.join(missing)}: keep the first row as it was"
            )
        # The sheet's own numbers: a cell may hold several lines of the file.
        for number, row in enumerate(rows, 2):
            if any(row):
                yield f"{printable_path(path)}, row {number}", dict(zip(names, row, strict=False))
    except UnicodeDecodeError:
        raise InputError(f"{printable_path(path)}: is not UTF-8: save the sheet as CSV (UTF-8)") from None
    except csv.Error as error:
        raise InputError(f"{printable_path(path)}: is no CSV file ({error}): save the sheet as CSV (UTF-8)") from None


def majority_choice(choices: Sequence[PreferredAnswer]) -> PreferredAnswer:
    """What more than half of the reviewers say, else a tie."""
    choice, count = Counter(choices).most_common(1)[0]
    return choice if 2 * count > len(choices) else "tie"


def choices_by_reviewer(verdicts: Iterable[HumanVerdict]) -> dict[str, dict[str, PreferredAnswer]]:
    """Each reviewer's choices by pair."""
    found: dict[str, dict[str, PreferredAnswer]] = {}
    for verdict in verdicts:
        found.setdefault(verdict.reviewer, {})[verdict.pair] = verdict.choice
    return found


def majority_choices(raters: Iterable[Mapping[str, PreferredAnswer]]) -> dict[str, PreferredAnswer]:
    """The majority's choice of every pair that one of them judged."""
    choices: dict[str, list[PreferredAnswer]] = {}
    for rater in raters:
        for pair, choice in rater.items():
            choices.setdefault(pair, []).append(choice)
    return {pair: majority_choice(given) for pair, given in choices.items()}
