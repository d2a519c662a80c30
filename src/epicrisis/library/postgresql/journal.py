"""Records of a library in PostgreSQL about its passages: documents, files, deletions and statements.

There are no open batches: one transaction writes passages, vectors, words and this.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import starmap
from pathlib import Path
from typing import Any

from epicrisis.core.protocols import StoredDocument
from epicrisis.core.types import Origin
from epicrisis.library.inventory import MAX_PREFIX_IDS, LibraryInventory
from epicrisis.library.journal import DocumentRow, IngestedFile, Statement
from epicrisis.library.postgresql.database import Database


class PostgresqlJournal(LibraryInventory):
    """The journal of a library in PostgreSQL. Writes join the transaction of the writer."""

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
            "coalesce(sum(passages) FILTER (WHERE patient IS NOT NULL), 0) FROM documents WHERE id = ANY(%s)"
        )
        ((documents, passages, notes),) = self._rows(query, list(document_ids))
        return int(documents), int(passages), int(notes)

    def documents(self) -> Iterator[DocumentRow]:
        with self._database.read() as connection, connection.cursor("documents_read") as cursor:
            cursor.execute("SELECT id, content_hash, passages, revision FROM documents ORDER BY id")
            for id_, digest, passages, revision in cursor:
                yield DocumentRow(id_, digest.hex(), passages, revision)

    def hashes(self, document_ids: Sequence[str]) -> Mapping[str, str]:
        rows = self._rows("SELECT id, content_hash FROM documents WHERE id = ANY(%s)", storable_ids(document_ids))
        return {id_: digest.hex() for id_, digest in rows}

    def revisions(self, document_ids: Sequence[str]) -> Mapping[str, str | None]:
        ids = storable_ids(document_ids)
        existing = dict(self._rows("SELECT id, revision FROM documents WHERE id = ANY(%s)", ids))
        deleted = dict(self._rows("SELECT id, revision FROM deleted WHERE id = ANY(%s)", ids))
        return {id_: max(existing.get(id_) or "", deleted.get(id_, "")) or None for id_ in (*existing, *deleted)}

    def origins(self, document_ids: Sequence[str] | None = None) -> Mapping[str, Origin]:
        if document_ids is None:
            return self._read_origin_rows("id != %s", "")
        return self._read_origin_rows("id = ANY(%s)", storable_ids(document_ids))

    def find_origin(self, *, path: str | None = None, sha256: str = "") -> Origin | None:
        if path is not None:
            origins = self._read_origin_rows("path = %s AND name != '' LIMIT 1", os.fsencode(path))
        else:
            origins = self._read_origin_rows("sha256 = %s AND name != '' ORDER BY name LIMIT 1", sha256)
        return next(iter(origins.values()), None)

    def _read_origin_rows(self, condition: str, value: object) -> dict[str, Origin]:
        rows = self._rows(f"SELECT id, path, name, sha256 FROM origins WHERE {condition}", value)
        return {id_: Origin(os.fsdecode(path), name, sha256) for id_, path, name, sha256 in rows}

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

    def deletions(self) -> Mapping[str, str]:
        return dict(self._rows("SELECT id, revision FROM deleted"))

    def add_source(self, source: IngestedFile) -> None:
        self._write_rows(
            "INSERT INTO sources VALUES (%s, %s, %s, %s) ON CONFLICT (sha256) DO UPDATE SET name = excluded.name, "
            "bytes = excluded.bytes, added = excluded.added",
            [(source.sha256, source.name, source.bytes, source.added)],
        )

    def sources(self) -> list[IngestedFile]:
        rows = self._rows('SELECT sha256, name, bytes, added FROM sources ORDER BY added, name COLLATE "C"')
        return list(starmap(IngestedFile, rows))

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
        new = {(item.target, item.source, item.mark): item.day for item in statements}
        old = {}
        for *key, day in self._rows(
            "SELECT target, source, mark, day FROM marks WHERE source = ANY(%s)", list(sources)
        ):
            old[tuple(key)] = day
        removed = old.keys() - new.keys()
        changed = [(*key, day) for key, day in new.items() if key not in old or old[key] != day]
        due = [(row[0],) for row in (*removed, *changed)]
        with self._database.write():
            self._write_rows("DELETE FROM marks WHERE target = %s AND source = %s AND mark = %s", removed)
            self._write_rows(
                "INSERT INTO marks VALUES (%s, %s, %s, %s) ON CONFLICT (target, source, mark) DO UPDATE SET "
                "day = excluded.day",
                changed,
            )
            self._write_rows("INSERT INTO due VALUES (%s) ON CONFLICT DO NOTHING", due)

    def statements(self, targets: Sequence[str] | None = None) -> list[Statement]:
        query = "SELECT target, source, mark, day FROM marks"
        if targets is None:
            return list(starmap(Statement, self._rows(query)))
        return list(starmap(Statement, self._rows(f"{query} WHERE target = ANY(%s)", storable_ids(targets))))

    def due_targets(self) -> list[str]:
        return [target for (target,) in self._rows("SELECT target FROM due ORDER BY target")]

    def clear_due(self, targets: Sequence[str]) -> None:
        with self._database.write() as connection:
            connection.execute("DELETE FROM due WHERE target = ANY(%s)", (list(targets),))

    def count(self) -> tuple[int, int]:
        ((documents, passages),) = self._rows("SELECT documents, passages FROM library")
        return int(documents), int(passages)

    def recount(self) -> tuple[int, int]:
        ((documents, passages),) = self._rows("SELECT count(*), coalesce(sum(passages), 0) FROM documents")
        return int(documents), int(passages)

    def documents_of_file(self, path: str) -> list[str]:
        rows = self._rows("SELECT id FROM origins WHERE path = %s ORDER BY id", os.fsencode(path))
        return [id_ for (id_,) in rows]

    def ids_with_prefix(self, prefix: str) -> list[str]:
        if not storable_ids([prefix]):
            return []
        query = f"SELECT id FROM documents WHERE id >= %s AND starts_with(id, %s) ORDER BY id LIMIT {MAX_PREFIX_IDS}"
        return [id_ for (id_,) in self._rows(query, prefix, prefix)]

    def passage_counts(self, document_ids: Sequence[str]) -> dict[str, int]:
        return dict(self._rows("SELECT id, passages FROM documents WHERE id = ANY(%s)", storable_ids(document_ids)))

    def _read_files(self) -> list[tuple[str, str, int, int]]:
        rows = self._rows(
            "SELECT path, max(origins.sha256), count(*), sum(passages) FROM origins JOIN documents USING (id) "
            "GROUP BY path ORDER BY path"
        )
        return [(os.fsdecode(path), digest, documents, int(passages)) for path, digest, documents, passages in rows]

    def _rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        return self._database.query(query, *values)

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
