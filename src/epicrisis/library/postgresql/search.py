"""Searches of a library in PostgreSQL: SQL for scopes, exact and indexed vector search, and BM25.

A search is exact where few passages are in scope, and goes through an index otherwise. The planner's estimate decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from epicrisis.core.dates import first_day, last_day
from epicrisis.core.protocols import ScoredId, Vectors
from epicrisis.core.types import RETRACTION_FACETS, Scope
from epicrisis.library.engines.vector_matrix import score_exactly
from epicrisis.library.engines.word_index import analyze_words, round_length
from epicrisis.library.postgresql.database_journal import storable_ids
from epicrisis.library.postgresql.database_schema import VECTOR_INDEX, WORD_INDEX, WORDS_LOST
from epicrisis.library.postgresql.database_table import escape_nul

if TYPE_CHECKING:
    from psycopg import Connection, Cursor

EXACT_PASSAGES = 20_000
"""Vector search compares every passage in scope if there are about as many or fewer."""
EXACT_WORD_PASSAGES = 2_000
"""Word search reads the words of every passage in scope if there are about as many or fewer."""
INDEX_SETTINGS = {
    "hnsw.iterative_scan": "relaxed_order",
    "hnsw.ef_search": "200",
    "hnsw.max_scan_tuples": "200000",
    "hnsw.scan_mem_multiplier": "4",
}
"""Settings of a search through the vector index, which goes on until the filter has passed enough.

`strict_order` leaves out passages that the scan meets late. Here all that are read are scored again and sorted.
"""
_MARGIN = 64
"""Passages read beyond `k`, of which ties and rounding decide."""
_WORD_DIGITS = 4
_K1, _B = 1.2, 0.75
_NORM = f"1 + {_K1} * ({1 - _B} + {_B} * {{length}} / mean)"
"""The denominator of BM25 for a word that occurs once."""
_HAS_VECTOR_INDEX = "SELECT 1 FROM pg_index WHERE indexrelid = to_regclass(%s) AND indisvalid"
_RETRACTED = "facets && %(retractions)s::text[]"
_DISTANCE = "words <@> to_bm25query(%(words)s, %(index)s)"
_SCORE_BY_INDEX = (
    f"SELECT id, {_DISTANCE}, {_RETRACTED} FROM passages WHERE {{condition}} ORDER BY {_DISTANCE} LIMIT {{limit}}"
)
# The score of a text of one word alone tells the weight of the word.
_WEIGH = f"""
SELECT word, -(word <@> to_bm25query(word, %(index)s)) * ({_NORM.format(length=1)}) / {_K1 + 1} AS weight, mean
FROM unnest(%(tokens)s::text[]) AS word, (SELECT word_mean AS mean FROM library WHERE word_mean > 0) AS length
"""
_LIST_WORDS = f"SELECT id, words, {_RETRACTED} FROM passages WHERE {{condition}}"
# The index tells how many passages have a word by the score of a text of this word alone, 0 for unknown words.
_SCORE_NEW = f"""
WITH posting AS MATERIALIZED (SELECT * FROM list_new_words(%(tokens)s::text[])),
total AS MATERIALIZED (
    SELECT word_passages AS built, (word_passages + new_passages)::float8 AS passages,
        CASE WHEN word_mean > 0 THEN word_mean
            ELSE compute_new_mean() END AS mean
    FROM library
),
word AS (
    SELECT word, count(*) AS added, -(word <@> to_bm25query(word, %(index)s)) AS score FROM posting GROUP BY word
),
weight AS (
    SELECT word, mean, ln((passages + 1) / (least(passages, added + CASE WHEN score > 0
        THEN (built + 1) / exp(score * ({_NORM.format(length=1)}) / {_K1 + 1}) - 0.5 ELSE 0 END) + 0.5)) AS idf
    FROM word, total
),
scored AS (
    SELECT passage, -sum(idf * count * {_K1 + 1} / (count - 1 + {_NORM.format(length="length")})) AS score
    FROM posting JOIN weight USING (word) GROUP BY passage
)
SELECT id, score, {_RETRACTED} FROM scored JOIN passages ON id = passage WHERE {{condition}}
ORDER BY round(score::numeric, {_WORD_DIGITS}), id LIMIT {{limit}}
"""
_ROUNDING = 1e-5
"""How much the server's rounding may change a score, relative to the lengths of both vectors."""


@dataclass(frozen=True, slots=True)
class ScopeFilter:
    """The condition of the passages in a scope, with its parameters."""

    sql: str
    values: Mapping[str, Any]
    facets: str = ""
    """The part of the condition that is about types and journals, empty for none."""
    listing: str = ""
    """The same as a list of ids, which the server can look up under row-level security."""


def find_patient(scope: Scope) -> str | None:
    """Return the patient of a scope. An id that the server cannot store belongs to no patient: None."""
    return next(iter(storable_ids([scope.patient])), None) if scope.patient is not None else None


def build_filter(scope: Scope, within: Sequence[str] | None = None) -> ScopeFilter:
    """Return the condition of the passages in scope, and of these ids if given."""
    conditions: list[str] = []
    values: dict[str, Any] = {}
    if (patient := find_patient(scope)) is None:
        conditions.append("patient IS NULL")
    else:
        conditions.append("(patient IS NULL OR patient = %(patient)s)")
        values["patient"] = patient
    if scope.as_of is not None:
        conditions.append("last_day <= %(until)s")
        values["until"] = last_day(scope.as_of)
    if scope.since is not None:
        conditions.append("last_day >= %(since)s")
        values["since"] = first_day(scope.since)
    listing, facet_conditions = "", []
    for number, facets in enumerate(scope.required_facets()):
        facet_conditions.append(f"facets && %(facets{number})s::text[]")
        values[f"facets{number}"] = storable_ids(list(map(escape_nul, sorted(facets))))
        listing = f"id IN (SELECT list_with_facets(%(facets0)s::text[], %(facets{number})s::text[]))"
    conditions += facet_conditions
    if scope.without_retracted:
        conditions.append(f"NOT {_RETRACTED}")
    if scope.hidden:
        conditions.append("document_id <> ALL(%(hidden)s)")
        values["hidden"] = storable_ids(sorted(scope.hidden))
    if within is not None:
        conditions.append("id = ANY(%(within)s)")
        values["within"] = storable_ids(within)
    values["retractions"] = sorted(RETRACTION_FACETS)
    return ScopeFilter(" AND ".join(conditions), values, " AND ".join(facet_conditions), listing)


def estimate_passages(connection: Connection[Any], scope_filter: ScopeFilter) -> int:
    """Return about how many passages meet the condition, by the statistics of the server. Nothing is read."""
    return _read_estimate(_ask_for_estimate(connection, scope_filter.sql, scope_filter.values))


def _ask_for_estimate(connection: Connection[Any], condition: str, values: Mapping[str, Any]) -> Cursor[Any]:
    query = f"EXPLAIN (FORMAT JSON) SELECT FROM passages WHERE {condition}"
    return connection.execute(query.encode(), values)


def _read_estimate(cursor: Cursor[Any]) -> int:
    row = cursor.fetchone()
    assert row is not None
    return int(row[0][0]["Plan"]["Plan Rows"])


def _add_listing(connection: Connection[Any], condition: str, scope_filter: ScopeFilter) -> str:
    """Return the condition, with the ids of the passages of these types and journals if they are few."""
    if not scope_filter.listing:
        return condition
    estimate = _ask_for_estimate(connection, scope_filter.facets, scope_filter.values)
    if _read_estimate(estimate) > EXACT_PASSAGES:
        return condition
    return f"{condition} AND {scope_filter.listing}"


def search_vectors(connection: Connection[Any], vector: Vectors, k: int, scope: Scope) -> tuple[ScoredId, ...]:
    """Return the `k` passages in scope with the highest inner product, best first, ties by passage id."""
    scope_filter = build_filter(scope)
    limit = k + _MARGIN
    values = {**scope_filter.values, "vector": f"[{','.join(map(repr, vector.tolist()))}]"}
    # Both are asked before either is read: one round trip.
    index = connection.execute(_HAS_VECTOR_INDEX.encode(), (VECTOR_INDEX,))
    estimate = _ask_for_estimate(connection, scope_filter.sql, scope_filter.values)
    has_index = index.fetchone() is not None
    is_narrow = _read_estimate(estimate) <= EXACT_PASSAGES
    condition = _add_listing(connection, scope_filter.sql, scope_filter) if is_narrow else scope_filter.sql
    through_index = has_index and not is_narrow
    while True:
        order = "vector <#> %(vector)s::halfvec" if through_index else "vector::vector <#> %(vector)s::vector"
        # Only the first order can use the index.
        query = f"SELECT id, vector, {_RETRACTED} FROM passages WHERE {condition} ORDER BY {order} LIMIT {limit:d}"
        rows = connection.execute(query.encode(), values, binary=True).fetchall()
        if through_index and len(rows) < limit:
            # The scan of the index ended before the filter had passed enough passages.
            through_index = False
            continue
        ranking = _rank(rows, vector)
        if len(rows) < limit or _is_settled(ranking, rows, vector, k):
            return tuple(ranking[:k])
        limit *= 4


def _rank(rows: Sequence[tuple[str, Any, bool]], vector: Vectors) -> list[ScoredId]:
    """Return the passages by exact scores, equal for equal vectors, ties by id."""
    if not rows:
        return []
    columns = np.stack([stored.to_numpy() for _, stored, _ in rows]).astype(np.float32).T
    scores = score_exactly(columns, np.arange(len(rows)), vector)
    ranking = [ScoredId(id_, float(scores[row]), is_retracted) for row, (id_, _, is_retracted) in enumerate(rows)]
    return sorted(ranking, key=lambda passage: (-passage.score, passage.id))


def _is_settled(ranking: Sequence[ScoredId], rows: Sequence[tuple[str, Any, bool]], vector: Vectors, k: int) -> bool:
    """Return whether no passage after the lowest one read can be among the first `k`, for all the rounding."""
    stored = rows[-1][1].to_numpy().astype(np.float64)
    slack = _ROUNDING * float(np.linalg.norm(stored) * np.linalg.norm(vector)) + 1e-30
    return ranking[k - 1].score > ranking[-1].score + slack


@dataclass(frozen=True, slots=True)
class WordState:
    """What the word index of a server holds."""

    lacking: Literal["primary", "standby", ""]
    """What the server is, if words are missing from its index."""
    build: int
    """The number of the build of the index. Passages with a higher one are not in it."""
    has_new: bool
    """Whether there are such passages."""


def read_word_state(connection: Connection[Any]) -> WordState:
    """Return the state of the word index."""
    query = f"SELECT {WORDS_LOST}, pg_is_in_recovery(), word_build, new_passages > 0 FROM library"
    row = connection.execute(query.encode()).fetchone()
    assert row is not None
    is_lacking, is_standby, build, has_new = row
    lacking: Literal["primary", "standby", ""] = ""
    if is_lacking:
        lacking = "standby" if is_standby else "primary"
    return WordState(lacking, int(build), has_new)


def search_words(
    connection: Connection[Any],
    schema: str,
    state: WordState,
    query: str,
    k: int,
    scope: Scope,
    within: Sequence[str] | None,
) -> tuple[ScoredId, ...]:
    """Return the `k` passages in scope with the highest BM25 score, best first, ties by passage id."""
    tokens = list(dict.fromkeys(analyze_words(query)))
    if not tokens:
        return ()
    scope_filter = build_filter(scope, within)
    exact = within is not None or estimate_passages(connection, scope_filter) <= EXACT_WORD_PASSAGES
    values = {**scope_filter.values, "words": " ".join(tokens), "tokens": tokens, "index": f"{schema}.{WORD_INDEX}"}
    # The server uses the index only for the condition with which it was built, or for a part of it.
    condition = f"{scope_filter.sql} AND build <= {state.build:d}"
    limit = k + _MARGIN
    new_rows: list[tuple[str, float, bool]] = []
    if state.has_new:
        statement = _SCORE_NEW.format(condition=scope_filter.sql, limit=limit)
        new_rows = connection.execute(statement.encode(), values).fetchall()
    if exact:
        if within is None:
            condition = _add_listing(connection, condition, scope_filter)
        return _rank_words([*new_rows, *_score_listed(connection, condition, values)])[:k]
    while True:
        statement = _SCORE_BY_INDEX.format(condition=condition, limit=limit)
        rows = connection.execute(statement.encode(), values).fetchall()
        ranking = _rank_words([*new_rows, *rows])
        is_complete = len(rows) < limit or rows[-1][1] >= 0
        if is_complete or (len(ranking) >= k and ranking[k - 1].score > round(-rows[-1][1], _WORD_DIGITS)):
            return ranking[:k]
        limit *= 4


def _rank_words(rows: Iterable[tuple[str, float, bool]]) -> tuple[ScoredId, ...]:
    """Return the passages of rows with negative scores, best first, ties by passage id."""
    # A scan of the index repeats rows where it starts anew with a higher limit of its own.
    passages = {
        id_: ScoredId(id_, round(-score, _WORD_DIGITS), is_retracted) for id_, score, is_retracted in rows if score < 0
    }
    return tuple(sorted(passages.values(), key=lambda passage: (-passage.score, passage.id)))


def _score_listed(
    connection: Connection[Any], condition: str, values: Mapping[str, Any]
) -> Iterator[tuple[str, float, bool]]:
    """Yield id, negative BM25 score and retraction of all passages that meet the condition.

    The operator of pg_textsearch takes half a millisecond for each passage, since it looks every word up again.
    """
    weights = connection.execute(_WEIGH.encode(), values)
    rows = connection.execute(_LIST_WORDS.format(condition=condition).encode(), values)
    weighed = weights.fetchall()
    for id_, text, is_retracted in rows.fetchall():
        words = text.split(" ")
        length = round_length(len(words))
        score = 0.0
        for word, weight, mean in weighed:
            count = words.count(word)
            score -= weight * count * (_K1 + 1) / (count + _K1 * (1 - _B + _B * length / mean))
        yield id_, score, is_retracted
