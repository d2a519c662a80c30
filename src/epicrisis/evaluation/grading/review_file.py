"""A blind review in one file: its pairs, the key, and the verdicts of all reviewers.

    path.write_text(dump_review(pairs, verdicts))
    pairs, verdicts = read_review(path)

The page writes it. `epicrisis grade verdicts` reads it in place of a folder of pairs. The table of verdicts (CSV) is
read with it, as the file of a reviewer is.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, TypeAdapter

from epicrisis.core.errors import InputError
from epicrisis.core.printable import printable_json, without_formula
from epicrisis.corpus.base.reader_base import os_error_reason, printable_path
from epicrisis.evaluation.grading.blind_pairs import (
    COLUMNS,
    FORMAT,
    BlindPair,
    BlindPairs,
    check_format,
    parse_key,
    parse_pair,
)
from epicrisis.evaluation.grading.human_verdicts import (
    CRITERIA,
    HumanVerdict,
    PreferredAnswer,
    PresentationOrder,
)

TABLE_COLUMNS = (*COLUMNS, "order", *CRITERIA, "run of answer 1", "run of answer 2")


class _VerdictRow(BaseModel):
    """A verdict in the file."""

    model_config = ConfigDict(extra="forbid")

    pair: str
    reviewer: str
    verdict: PreferredAnswer
    why: str = ""
    order: PresentationOrder = "shown"
    criteria: dict[Annotated[str, BeforeValidator(lambda name: _check_criterion(name))], PreferredAnswer] = {}

    def to_verdict(self) -> HumanVerdict:
        return HumanVerdict(self.pair, self.reviewer, self.verdict, self.why, self.order, self.criteria)


_ROWS = TypeAdapter(list[_VerdictRow])


def _check_criterion(name: object) -> object:
    if name not in CRITERIA:
        raise ValueError("an unknown criterion")
    return name


def dump_review(pairs: BlindPairs, verdicts: Iterable[HumanVerdict]) -> str:
    """Return the file of a review as JSON."""
    rows: list[dict[str, object]] = []
    for verdict in verdicts:
        choice = {"pair": verdict.pair, "reviewer": verdict.reviewer, "verdict": verdict.choice}
        rows.append({**choice, "why": verdict.why, "order": verdict.order, "criteria": dict(verdict.criteria)})
    value = {
        "format": FORMAT,
        "key": asdict(pairs.key),
        "pairs": [_pair_row(pair) for pair in pairs.pairs],
        "verdicts": rows,
    }
    return printable_json(json.dumps(value, ensure_ascii=False, indent=2)) + "\n"


def dump_verdict_table(pairs: BlindPairs, verdicts: Iterable[HumanVerdict]) -> str:
    """Return a table with a row for each verdict, as CSV for a spreadsheet.

    The verdict is about answer 1 and answer 2 of its row, in any place the reviewer saw them in.
    """
    by_id = {pair.id: pair for pair in pairs.pairs}
    table = io.StringIO(newline="")
    writer = csv.writer(table, quoting=csv.QUOTE_ALL)
    writer.writerow(TABLE_COLUMNS)
    for verdict in verdicts:
        pair = by_id[verdict.pair]
        choices = [verdict.criteria.get(name, "") for name in CRITERIA]
        runs = [pairs.key.preferred(pair.id, place) or "" for place in ("1", "2")]
        texts = [pair.id, pair.question, pair.first, pair.second, verdict.choice, verdict.reviewer, verdict.why]
        writer.writerow([*map(without_formula, texts), verdict.order, *choices, *map(without_formula, runs)])
    return "\ufeff" + table.getvalue()


def read_review(path: Path) -> tuple[BlindPairs, tuple[HumanVerdict, ...]]:
    """Read the file of `dump_review`. Raises InputError if it cannot be read, or holds anything else."""
    try:
        value = json.loads(path.read_text("utf-8"))
        check_format(path, value["format"])
        pairs = tuple(map(parse_pair, value["pairs"]))
        key = parse_key(value["key"])
        verdicts = tuple(row.to_verdict() for row in _ROWS.validate_python(value["verdicts"]))
        _check_ids(pairs, key.first, verdicts)
    except OSError as error:
        raise InputError(
            f"{printable_path(path)}: {os_error_reason(error)}; give the JSON file that a review was exported to"
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise InputError(
            f"{printable_path(path)} is not the file of a blind review: export the review again as JSON"
        ) from None
    return BlindPairs(pairs, key), verdicts


def _check_ids(pairs: Sequence[BlindPair], ids: Collection[str], verdicts: Sequence[HumanVerdict]) -> None:
    """Raise ValueError unless pairs, key and verdicts are of one review, with one verdict of a reviewer on a pair."""
    pair_ids = {pair.id for pair in pairs}
    subjects = {(verdict.pair, verdict.reviewer) for verdict in verdicts}
    if pair_ids != set(ids) or len(pair_ids) < len(pairs) or len(subjects) < len(verdicts):
        raise ValueError("an id occurs twice or is missing")
    if not {pair for pair, _ in subjects} <= pair_ids:
        raise ValueError("a verdict on another pair")


def _pair_row(pair: BlindPair) -> dict[str, str]:
    return {"pair": pair.id, "question": pair.question, "answer_1": pair.first, "answer_2": pair.second}
