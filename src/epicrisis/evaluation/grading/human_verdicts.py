"""Verdicts of reviewers on blind pairs, read from the files they filled in."""

from __future__ import annotations

import csv
import io
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from epicrisis.core.errors import InputError
from epicrisis.corpus.base import jsonl
from epicrisis.corpus.base.reader_base import Skipped, check_file, printable_path

PreferredAnswer: TypeAlias = Literal["1", "2", "tie"]
CHOICES: tuple[PreferredAnswer, ...] = get_args(PreferredAnswer)
PresentationOrder: TypeAlias = Literal["shown", "swapped"]
"""As the file of pairs has it, or the other way round."""
ORDERS: tuple[PresentationOrder, ...] = get_args(PresentationOrder)

CRITERIA: Mapping[str, str] = {
    "correctness": "Which answer is more correct?",
    "completeness": "Which answer leaves out less that matters?",
    "faithfulness": "Which answer is better supported by the sentences it cites?",
}
"""What reviewers may judge beside the whole answer, with the question they are asked."""

_COLUMNS = ("pair", "verdict")
_OTHER: Mapping[PreferredAnswer, PreferredAnswer] = {"1": "2", "2": "1", "tie": "tie"}


@dataclass(frozen=True, slots=True)
class HumanVerdict:
    """One reviewer's verdict on one pair."""

    pair: str
    reviewer: str
    choice: PreferredAnswer
    """The preferred answer by its place in the file of pairs."""
    why: str = ""
    order: PresentationOrder = "shown"
    """How this reviewer saw the pair."""
    criteria: Mapping[str, PreferredAnswer] = field(default_factory=dict)
    """The choices by criterion. Criteria without a choice are absent."""

    @property
    def place(self) -> PreferredAnswer:
        """The preferred answer by its place as this reviewer saw the pair."""
        return self.choice if self.order == "shown" else swap_places(self.choice)

    def under(self, criterion: str) -> HumanVerdict | None:
        """Return the verdict with the choice under a criterion, or None without one."""
        choice = self.criteria.get(criterion)
        return None if choice is None else replace(self, choice=choice)


def swap_places(choice: PreferredAnswer) -> PreferredAnswer:
    """Return the choice of a pair whose answers changed places."""
    return _OTHER[choice]


def read_verdicts(paths: Iterable[Path], pairs: Collection[str]) -> tuple[HumanVerdict, ...]:
    """Read the verdicts of all files. Rows without a verdict are skipped: a pair that was not judged is not a tie.

    Files are CSV (`.csv`, UTF-8, cells separated by comma, semicolon or tab) or JSON lines (`.jsonl`) with `pair`,
    `verdict` (1, 2 or tie), `reviewer` and `why`. A row without a reviewer belongs to the reviewer named like the file.
    `order` (shown or swapped, by default shown) and a choice for each of CRITERIA are optional. Raises InputError, with
    file and row, for a pair outside `pairs`, an unknown verdict or order, and a second verdict of one reviewer on one
    pair.
    """
    places: dict[tuple[str, str], str] = {}
    verdicts = []
    for path in paths:
        for place, row in _read_rows(path):
            cells: dict[str, str] = {}
            for name in (*_COLUMNS, "reviewer", "why", "order", *CRITERIA):
                cells[name] = "" if row.get(name) is None else str(row[name]).strip()
            pair, reviewer = cells["pair"], cells["reviewer"] or printable_path(path.stem)
            if pair not in pairs:
                raise InputError(f"{place}: the pair is not one of these: use the files that belong to this key")
            if not cells["verdict"]:
                continue
            choice = _read_choice(place, "verdict", cells["verdict"])
            if (pair, reviewer) in places:
                raise InputError(
                    f"{place}: {reviewer!a} judged pair {pair} before, in {places[pair, reviewer]}: keep one of "
                    "the two, or name two reviewers"
                )
            places[pair, reviewer] = place
            criteria = {name: _read_choice(place, name, cells[name]) for name in CRITERIA if cells[name]}
            verdicts.append(
                HumanVerdict(pair, reviewer, choice, cells["why"], _read_order(place, cells["order"]), criteria)
            )
    return tuple(verdicts)


def _read_choice(place: str, column: str, word: str) -> PreferredAnswer:
    for choice in CHOICES:
        if choice == word.casefold():
            return choice
    raise InputError(f"{place}: the {column} is none of {', '.join(CHOICES)}: write one of them, or nothing")


def _read_order(place: str, word: str) -> PresentationOrder:
    for order in ORDERS:
        if order == (word.casefold() or "shown"):
            return order
    raise InputError(f"{place}: the order is none of {', '.join(ORDERS)}: write one of them, or nothing")


def _read_rows(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield each row with its place for messages."""
    check_file(path)
    if path.suffix.lower() == ".csv":
        yield from _read_csv_rows(path)
    elif path.suffix.lower() == ".jsonl":
        for item in jsonl.read_objects(path):
            if isinstance(item, Skipped):
                raise InputError(f"{item.path}, {item.where}: {item.reason}")
            yield f"{printable_path(path)}, line {item[0]}", item[1]
    else:
        raise InputError(f"{printable_path(path)}: verdicts must be .csv or .jsonl: save the sheet as CSV (UTF-8)")


def _read_csv_rows(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    name = printable_path(path)
    try:
        text = path.read_bytes().decode("utf-8-sig")
        header = text.partition("\n")[0]
        rows = csv.reader(io.StringIO(text, newline=""), delimiter=max(",;\t", key=header.count), strict=True)
        columns = list(map(str.casefold, map(str.strip, next(rows, []))))
        if missing := [column for column in _COLUMNS if column not in columns]:
            raise InputError(f"{name}: has no column {' and '.join(missing)}: keep the first row as it was")
        # Number the rows as the spreadsheet does: a cell may span several lines of the file.
        for number, row in enumerate(rows, 2):
            if any(row):
                yield f"{name}, row {number}", dict(zip(columns, row, strict=False))
    except UnicodeDecodeError:
        raise InputError(f"{name}: is not UTF-8: save the sheet as CSV (UTF-8)") from None
    except csv.Error as error:
        raise InputError(f"{name}: is not a CSV file ({error}): save the sheet as CSV (UTF-8)") from None


def majority_choice(choices: Sequence[PreferredAnswer]) -> PreferredAnswer:
    """Return the choice of more than half of the reviewers, or else a tie."""
    choice, count = Counter(choices).most_common(1)[0]
    return choice if 2 * count > len(choices) else "tie"


def choices_by_reviewer(verdicts: Iterable[HumanVerdict]) -> dict[str, dict[str, PreferredAnswer]]:
    """Return each reviewer's choices by pair."""
    choices: dict[str, dict[str, PreferredAnswer]] = {}
    for verdict in verdicts:
        choices.setdefault(verdict.reviewer, {})[verdict.pair] = verdict.choice
    return choices


def majority_choices(raters: Iterable[Mapping[str, PreferredAnswer]]) -> dict[str, PreferredAnswer]:
    """Return the majority's choice for every pair that a rater judged."""
    choices: dict[str, list[PreferredAnswer]] = defaultdict(list)
    for rater in raters:
        for pair, choice in rater.items():
            choices[pair].append(choice)
    return dict(zip(choices, map(majority_choice, choices.values()), strict=True))
