"""Records of a library in PostgreSQL about its passages: documents, files, deletions and statements.

There are no open batches: one transaction writes passages, vectors, words and this.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from epicrisis.core.protocols import StoredDocument
from epicrisis.core.types import Origin
from epicrisis.library.core.journal import MAX_PREFIX_IDS, DocumentRow, IngestedFile, Journal, Statement
from epicrisis.library.postgresql.database import Database


class PostgresqlJournal(Journal):
    """The journal of a library in PostgreSQL. Writes join the transaction of the writer."""

    _among = "= ANY(?)"
    _counts = "library"
    _files = "origins"

    def __init__(self, folder: Path, database: Database) -> None:
        self._folder = folder
        self._database = database

    def close(self) -> None:
        """Do nothing: the connections belong to the database."""

    def open_batches(self) -> list[tuple[int, list[str]]]:
        return []

    def write_documents(self, documents: Sequence[StoredDocument]) -> list[str]:
        """Record these documents with the files they were read from. Return the ids of those that they replace."""
        ids = [document.id for document in documents]
        before = self.hashes(ids)
        changed, rows, origins = [], [], {}
        for document in documents:
            if before.get(document.id) != document.content_hash:
                changed.append(document.id)
            if document.origin is not None:
                origins[document.id] = document.origin
            digest = bytes.fromhex(document.content_hash)
            rows.append((document.id, document.passages[0].patient, digest, len(document.passages), document.revision))
        with self._database.write() as connection:
            connection.execute("DELETE FROM origins WHERE id = ANY(%s)", (changed,))
            with connection.cursor() as cursor:
                cursor.executemany(
                    "INSERT INTO documents(id, patient, content_hash, passages, revision) VALUES (%s, %s, %s, %s, %s) "
                    "ON CONFLICT (id) DO UPDATE SET patient = excluded.patient, content_hash = excluded.content_hash, "
                    "passages = excluded.passages, revision = excluded.revision",
                    rows,
                )
        self.set_origins(origins)
        return list(before)

    def delete_documents(self, document_ids: Sequence[str]) -> None:
        """Delete documents with their passages and files."""
        with self._database.write() as connection:
            connection.execute("DELETE FROM documents WHERE id = ANY(%s)", (list(document_ids),))

    def update_counts(self, document_ids: Sequence[str], before: tuple[int, int, int]) -> None:
        """Set the counts of the library. `before` is `count_among` of these documents before they were written."""
        after = self.count_among(document_ids)
        changes = [new - old for new, old in zip(after, before, strict=True)]
        with self._database.write() as connection:
            connection.execute(
                "UPDATE library SET documents = documents + %s, passages = passages + %s, notes = notes + %s, "
                "version = version + 1",
                changes,
            )

    def count_among(self, document_ids: Sequence[str]) -> tuple[int, int, int]:
        """Return the numbers of documents, passages, and passages of patients among these documents."""
        query = (
            "SELECT count(*), coalesce(sum(passages), 0), "
            "coalesce(sum(passages) FILTER (WHERE patient IS NOT NULL), 0) FROM documents WHERE id = ANY(?)"
        )
        ((documents, passages, notes),) = self._read(query, list(document_ids))
        return int(documents), int(passages), int(notes)

    def documents(self) -> Iterator[DocumentRow]:
        with self._database.read() as connection, connection.cursor("documents_read") as cursor:
            cursor.execute("SELECT id, content_hash, passages, revision FROM documents ORDER BY id")
            for id_, digest, passages, revision in cursor:
                yield DocumentRow(id_, digest.hex(), passages, revision)

    def set_origins(self, origins: Mapping[str, Origin]) -> None:
        rows = [(os.fsencode(origin.path), origin.name, origin.sha256, id_) for id_, origin in origins.items()]
        self._write_rows(
            "INSERT INTO origins(path, name, sha256, id) SELECT %s, %s, %s, id FROM documents WHERE id = %s "
            "ON CONFLICT (id) DO UPDATE SET path = excluded.path, name = excluded.name, sha256 = excluded.sha256",
            rows,
        )

    def count_deletion(self) -> None:
        """Count a deletion, after which every machine removes its cached replies."""
        with self._database.write() as connection:
            connection.execute("UPDATE library SET deletions = deletions + 1")

    def record_deletions(self, revisions: Mapping[str, str]) -> None:
        self._write_rows(
            "INSERT INTO deleted VALUES (%s, %s) "
            "ON CONFLICT (id) DO UPDATE SET revision = greatest(deleted.revision, excluded.revision)",
            revisions.items(),
        )

    def add_source(self, source: IngestedFile) -> None:
        self._write_rows(
            "INSERT INTO sources VALUES (%s, %s, %s, %s) ON CONFLICT (sha256) DO UPDATE SET name = excluded.name, "
            "bytes = excluded.bytes, added = excluded.added",
            [(source.sha256, source.name, source.bytes, source.added)],
        )

    def forget_sources(self, sources: Sequence[IngestedFile]) -> None:
        self._write_rows("DELETE FROM sources WHERE sha256 = %s", [(source.sha256,) for source in sources])

    def forget_traces(self, document_ids: Sequence[str], is_theirs: Callable[[str], bool]) -> None:
        documents = set(document_ids)
        deleted = [id_ for id_ in self.deletions() if id_ in documents or is_theirs(id_)]
        self.forget_sources([source for source in self.sources() if is_theirs(source.name)])
        with self._database.write() as connection:
            connection.execute("DELETE FROM deleted WHERE id = ANY(%s)", (storable_ids(deleted),))
            connection.execute("DELETE FROM marks WHERE source = ANY(%s)", (storable_ids(document_ids),))

    @property
    def has_statements(self) -> bool:
        return True

    def create_statements(self, statements: Iterable[Statement]) -> None:
        """Write these statements. Their tables exist from the beginning."""
        rows = list(statements)
        self.replace_statements(sorted({statement.source for statement in rows}), rows)

    def replace_statements(self, sources: Sequence[str], statements: Iterable[Statement]) -> None:
        removed, changed, due = self._compare_statements(sources, statements)
        with self._database.write():
            self._write_rows("DELETE FROM marks WHERE target = %s AND source = %s AND mark = %s", removed)
            self._write_rows(
                "INSERT INTO marks VALUES (%s, %s, %s, %s) ON CONFLICT (target, source, mark) DO UPDATE SET "
                "day = excluded.day",
                changed,
            )
            self._write_rows("INSERT INTO due VALUES (%s) ON CONFLICT DO NOTHING", due)

    def clear_due(self, targets: Sequence[str]) -> None:
        with self._database.write() as connection:
            connection.execute("DELETE FROM due WHERE target = ANY(%s)", (list(targets),))

    def ids_with_prefix(self, prefix: str) -> list[str]:
        if not storable_ids([prefix]):
            return []
        query = f"SELECT id FROM documents WHERE id >= ? AND starts_with(id, ?) ORDER BY id LIMIT {MAX_PREFIX_IDS}"
        return [id_ for (id_,) in self._read(query, prefix, prefix)]

    def _read(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        return self._database.query(query.replace("?", "%s"), *values)

    def _bind(self, ids: Sequence[str]) -> object:
        return storable_ids(ids)

    def _write_rows(self, command: str, rows: Iterable[Sequence[object]]) -> None:
        with self._database.write() as connection, connection.cursor() as cursor:
            cursor.executemany(command.encode(), rows)


def storable_ids(ids: Sequence[str]) -> list[str]:
    """Return the ids that the server can store. It has no others."""
    storable = []
    for id_ in ids:
        try:
            if b"\0" not in id_.encode():
                storable.append(id_)
        except UnicodeEncodeError:
            continue
    return storable
