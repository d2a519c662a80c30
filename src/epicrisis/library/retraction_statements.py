"""Statements of notices and lists about articles, such as retractions, in tables of the journal's database.

A statement names its target by a document id or a DOI, so it also applies to documents added later. A target with
changed statements is `due` until the library's documents carry its new marks. Libraries of earlier versions get the
tables with their first statement.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import starmap

from epicrisis.corpus.reader_base import ArticleStatement

SCHEMA = """
CREATE TABLE IF NOT EXISTS marks(
    target TEXT NOT NULL, source TEXT NOT NULL, mark TEXT NOT NULL, day INTEGER, PRIMARY KEY(target, source, mark)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS marks_by_source ON marks(source);
CREATE TABLE IF NOT EXISTS due(target TEXT PRIMARY KEY) WITHOUT ROWID;
"""
_SELECT = "SELECT target, source, mark, day FROM marks"


@dataclass(frozen=True, slots=True)
class Statement:
    """What one source states about one target."""

    target: str
    source: str
    mark: str
    day: int | None = None
    """Day as yyyymmdd, if known."""


def statements_about(articles: Iterable[ArticleStatement]) -> list[Statement]:
    """Return one statement for each name of each article."""
    statements = []
    for article in articles:
        statements += [Statement(target, article.source, article.mark, article.day) for target in article.targets]
    return statements


def has_tables(db: sqlite3.Connection) -> bool:
    """Return whether the library has the tables."""
    return db.execute("SELECT 1 FROM sqlite_master WHERE name = 'due'").fetchone() is not None


def replace_statements(db: sqlite3.Connection, sources: Sequence[str], statements: Iterable[Statement]) -> None:
    """Replace all statements of the sources and make changed targets due. The caller opens the transaction."""
    new = {(item.target, item.source, item.mark): item.day for item in statements}
    condition = "source IN (SELECT value FROM json_each(?))"
    old = {}
    for target, source, mark, day in db.execute(f"{_SELECT} WHERE {condition}", (json.dumps(list(sources)),)):
        old[target, source, mark] = day
    removed = old.keys() - new.keys()
    changed = [(*key, day) for key, day in new.items() if key not in old or old[key] != day]
    db.executemany("DELETE FROM marks WHERE target = ? AND source = ? AND mark = ?", removed)
    db.executemany("INSERT OR REPLACE INTO marks VALUES (?, ?, ?, ?)", changed)
    due = [(row[0],) for row in (*removed, *changed)]
    db.executemany("INSERT OR IGNORE INTO due VALUES (?)", due)


def read_statements(db: sqlite3.Connection, targets: Sequence[str] | None = None) -> list[Statement]:
    """Return the statements about these targets, or all statements."""
    if targets is None:
        rows = db.execute(_SELECT)
    else:
        rows = db.execute(f"{_SELECT} WHERE target IN (SELECT value FROM json_each(?))", (json.dumps(list(targets)),))
    return list(starmap(Statement, rows))
