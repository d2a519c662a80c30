"""What notices and lists say of documents, beside the journal: which statements there are, and what they come to.

A statement names its target by an id or a DOI, so that it waits for a document that is added later. Targets whose
statements changed are `due` until the documents of the library say so too. A library of before has no such tables; they
are made with the first statement.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from epicrisis.corpus.reader_base import ArticleStatement
from epicrisis.corpus.retractions import REINSTATED
from epicrisis.types import RETRACTED

SCHEMA = """
CREATE TABLE IF NOT EXISTS marks(
    target TEXT NOT NULL, source TEXT NOT NULL, mark TEXT NOT NULL, day INTEGER, PRIMARY KEY(target, source, mark)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS marks_by_source ON marks(source);
CREATE TABLE IF NOT EXISTS due(target TEXT PRIMARY KEY) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True)
class Statement:
    """What one source says of one target."""

    target: str
    source: str
    mark: str
    day: int | None = None


def statements_of(marked: ArticleStatement) -> list[Statement]:
    """Return one statement for each name of the article."""
    return [Statement(target, marked.source, marked.mark, marked.day) for target in marked.targets]


def standing(statements: Iterable[Statement]) -> list[dict[str, Any]]:
    """Return the marks that the statements of one document come to, as its metadata hold them.

    A reinstatement lifts the retractions of earlier days. Where a day is not known, the retraction stands.
    """
    known = {(each.source, each.mark): each for each in statements}.values()
    lifted = max((each.day for each in known if each.mark == REINSTATED and each.day is not None), default=0)
    marks = [
        each
        for each in known
        if each.mark != REINSTATED and not (each.mark == RETRACTED and each.day is not None and each.day < lifted)
    ]
    marks.sort(key=lambda each: (each.mark, each.day or 0, each.source))
    return [_told(each) for each in marks]


def _told(statement: Statement) -> dict[str, Any]:
    told: dict[str, Any] = {"mark": statement.mark, "by": statement.source}
    if statement.day is not None:
        told["date"] = date(statement.day // 10_000, statement.day // 100 % 100, statement.day % 100).isoformat()
    return told


def with_marks(metadata: Mapping[str, Any], marks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the metadata with these marks in the place of those that were added before."""
    rest = {name: value for name, value in metadata.items() if name != "marks"}
    return {**rest, "marks": list(marks)} if marks else rest


def stated_in(metadata: Mapping[str, Any]) -> Iterator[tuple[str, str, int | None]]:
    """Yield mark, source and day of what `standing` wrote; what is not of its form is passed over."""
    marks = metadata.get("marks")
    for entry in marks if isinstance(marks, list) else ():
        if isinstance(entry, dict) and isinstance(entry.get("mark"), str) and isinstance(entry.get("by"), str):
            day = str(entry.get("date", "")).replace("-", "")
            yield entry["mark"], entry["by"], int(day) if len(day) == 8 and day.isdecimal() else None


# -- tables -----------------------------------------------------------------------------------------------------------


def there_are(db: sqlite3.Connection) -> bool:
    """Return whether the library has the tables."""
    return db.execute("SELECT 1 FROM sqlite_master WHERE name = 'due'").fetchone() is not None


def replace_of(db: sqlite3.Connection, sources: Sequence[str], statements: Iterable[Statement]) -> None:
    """Put these statements in the place of all that the sources said before; what changed is due. In a transaction."""
    given = {(each.target, each.source, each.mark): each.day for each in statements}
    among = "source IN (SELECT value FROM json_each(?))"
    rows = db.execute(f"SELECT target, source, mark, day FROM marks WHERE {among}", (json.dumps(list(sources)),))
    before = {(target, source, mark): day for target, source, mark, day in rows}
    gone = before.keys() - given.keys()
    new = {key: day for key, day in given.items() if key not in before or before[key] != day}
    db.executemany("DELETE FROM marks WHERE target = ? AND source = ? AND mark = ?", gone)
    db.executemany("INSERT OR REPLACE INTO marks VALUES (?, ?, ?, ?)", [(*key, day) for key, day in new.items()])
    db.executemany("INSERT OR IGNORE INTO due VALUES (?)", [(key[0],) for key in (*gone, *new)])


def of_targets(db: sqlite3.Connection, targets: Sequence[str]) -> list[Statement]:
    """Return the statements about these targets."""
    among = "target IN (SELECT value FROM json_each(?))"
    rows = db.execute(f"SELECT target, source, mark, day FROM marks WHERE {among}", (json.dumps(list(targets)),))
    return [Statement(*row) for row in rows]
