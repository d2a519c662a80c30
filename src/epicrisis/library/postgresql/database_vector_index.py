"""The recall of the index of vectors of a library in PostgreSQL.

    measure_index(database, table, min_recall, on_step)     # None if every search is exact
    read_report(text)

Only literature is measured: a patient's record is nearly always small enough to be compared whole.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from epicrisis.core.protocols import Vectors
from epicrisis.core.types import Scope
from epicrisis.library.engines.index_recall import IndexReport, K, draw_sample, parse_report, read_time
from epicrisis.library.postgresql import search
from epicrisis.library.postgresql.database import Database
from epicrisis.library.postgresql.database_schema import VECTOR_INDEX
from epicrisis.library.postgresql.database_table import PostgresqlTable, parse_columns

if TYPE_CHECKING:
    import numpy.typing as npt

_LITERATURE = "patient IS NULL"
_DRAW = f"SELECT id, vector FROM passages WHERE {_LITERATURE} ORDER BY hashtextextended(id, 0), id LIMIT %s"
_NEWEST = (
    "SELECT percentile_disc(%s) WITHIN GROUP (ORDER BY last_day) FROM passages "
    f"WHERE {_LITERATURE} HAVING count(last_day) * 2 >= count(*)"
)
_OPTIONS = "SELECT reloptions FROM pg_class WHERE oid = to_regclass(%s)"
_DEFAULTS = {"m": 16, "ef_construction": 64}
"""Parameters of an index that pgvector has built without options."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphReport(IndexReport):
    """The measurement of a graph (HNSW), as saved in the table `library`."""

    m: int
    """The most links of a passage in each layer of the graph."""
    ef_construction: int
    """The candidates for links that were compared for each passage."""

    @property
    def parameters(self) -> str:
        return f"graph with m {self.m}, ef_construction {self.ef_construction}"

    @property
    def effect_below_recall(self) -> str:
        return "searches may miss some of the nearest passages"


def read_report(text: str | None) -> GraphReport | None:
    """Return the saved measurement, or None without a valid one."""
    return parse_report(GraphReport, text or "")


def measure_index(
    database: Database, table: PostgresqlTable, min_recall: float, on_step: Callable[[str], None]
) -> GraphReport | None:
    """Measure and save the recall of the index. Return None if every search is exact."""
    report = _measure(database, table, min_recall, on_step)
    text = None if report is None else json.dumps(dataclasses.asdict(report))
    with database.write() as connection:
        connection.execute("UPDATE library SET vector_report = %s", (text,))
    return report


def _read_options(database: Database) -> dict[str, int]:
    """Return the parameters of the index."""
    options = dict(_DEFAULTS)
    # A transaction for writing reads the primary: a standby may not have a new index yet.
    with database.write() as connection:
        row = connection.execute(_OPTIONS, (VECTOR_INDEX,)).fetchone()
    for option in (row and row[0]) or ():
        name, _, value = option.partition("=")
        if name in options:
            options[name] = int(value)
    return options


def _measure(
    database: Database, table: PostgresqlTable, min_recall: float, on_step: Callable[[str], None]
) -> GraphReport | None:
    # A transaction for writing reads the primary, as the searches below do. A standby may be behind.
    with database.write():
        passages = table.count(_LITERATURE)
        if passages <= search.EXACT_PASSAGES:
            return None
        on_step("finding the exact neighbours of a sample")
        sample = draw_sample(_Literature(database, table), passages, lambda rows: rows > search.EXACT_PASSAGES)
    on_step("measuring the recall")
    recall, filtered_recall = sample.measure(partial(_search, database))
    return GraphReport(
        passages=passages,
        recall=recall,
        filtered_recall=filtered_recall,
        queries=len(sample.ids),
        asked=min_recall,
        measured=read_time(),
        **_read_options(database),
    )


def _search(database: Database, vector: Vectors, since: int | None) -> list[tuple[str, float]]:
    day = "" if since is None else f"{since:08d}"
    scope = Scope(since=f"{day[:4]}-{day[4:6]}-{day[6:]}") if day else Scope()
    with database.read_for(None, search.INDEX_SETTINGS, primary=True) as connection:
        return [(hit.id, hit.score) for hit in search.search_vectors(connection, vector, K + 1, scope)]


class _Literature:
    """The vectors of the literature of a library, see MeasurableVectors."""

    def __init__(self, database: Database, table: PostgresqlTable) -> None:
        self._database = database
        self._table = table

    def draw(self, count: int) -> tuple[list[str], Vectors]:
        with self._database.read_long() as connection:
            rows = connection.execute(_DRAW.encode(), (count,), binary=True).fetchall()
        columns = parse_columns(("id", "vector"), rows)
        return columns["id"], columns["vector"].astype(np.float32)

    def newest(self, share: float) -> int | None:
        with self._database.read_long() as connection:
            row = connection.execute(_NEWEST.encode(), (1 - share,)).fetchone()
        return None if row is None else int(row[0])

    def blocks(self) -> Iterator[tuple[list[str], npt.NDArray[np.int32], Vectors]]:
        for columns in self._table.read_columns(("id", "last_day", "vector"), _LITERATURE):
            days = np.array([day or 0 for day in columns["last_day"]], dtype=np.int32)
            yield columns["id"], days, columns["vector"].astype(np.float32)
