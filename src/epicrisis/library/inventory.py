"""List the files and documents that a library holds, from its journal: no text and no passage is read.

    with LibraryInventory.open(library) as inventory:
        for file in inventory.list_files():
            print(file.path, file.documents)

Documents of PubMed's files and notes of patients have no file recorded: later files may hold newer versions of them.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from epicrisis.library.journal import IngestedFile, Journal
from epicrisis.library.library import LibraryStore
from epicrisis.library.remote_store import is_in_database, load_database_engine

MAX_PREFIX_IDS = 1_000
"""Ids that `ids_with_prefix` returns at most."""


@dataclass(frozen=True, slots=True)
class LibraryFile:
    """A file that was added to a library."""

    path: str
    """Absolute, with links resolved. Only the name if the library does not record the folder."""
    documents: int | None
    """Documents that the library has of this file; None if their file is not recorded."""
    passages: int | None
    added: str
    """When it was last added completely, ISO 8601 in UTC. Empty if unknown."""


class LibraryInventory(Journal):
    """A connection to the journal that lists files and ids."""

    @classmethod
    @contextmanager
    def open(cls, library: LibraryStore) -> Iterator[LibraryInventory]:
        """Open the journal of an open library."""
        inventory = (
            load_database_engine().open_journal(library.path) if is_in_database(library.path) else cls(library.path)
        )
        try:
            yield inventory
        finally:
            inventory.close()

    def list_files(self) -> list[LibraryFile]:
        """Return the files with documents in the library in order of their paths, then files without recorded ones."""
        sources = self.sources()
        rows = self._read_files()
        names = Counter(Path(path).name for path, *_ in rows)
        files: list[LibraryFile] = []
        matched: set[str] = set()
        for path, digest, documents, passages in rows:
            name = Path(path).name
            of_file = [source for source in sources if source.sha256 == digest]
            if not of_file and names[name] == 1:
                of_file = [source for source in sources if source.name == name]
            matched.update(source.sha256 for source in of_file)
            added = max((source.added for source in of_file), default="")
            files.append(LibraryFile(path, documents, passages, added))
        for source in sources:
            if source.sha256 not in matched and source.name not in names:
                files.append(LibraryFile(source.name, None, None, source.added))
        return files

    def documents_of_file(self, path: str) -> list[str]:
        """Return the ids of the documents that are recorded for the file at this path, in order."""
        query = "SELECT id FROM origins JOIN source_files ON number = file WHERE path = ? ORDER BY id"
        return [id_ for (id_,) in self._read(query, (os.fsencode(path),))]

    def sources_of_file(self, path: str) -> list[IngestedFile]:
        """Return the versions of a file that were added completely, unless files of other folders have its name."""
        name = Path(path).name
        others = [other for other, *_ in self._read_files() if Path(other).name == name and other != path]
        return [] if others else [source for source in self.sources() if source.name == name]

    def ids_with_prefix(self, prefix: str) -> list[str]:
        """Return up to MAX_PREFIX_IDS ids of documents that begin with this text, in order."""
        # Ids with the same beginning are neighbours: nothing after the last of them is read.
        query = f"SELECT id FROM documents WHERE id BETWEEN ? AND ? ORDER BY id LIMIT {MAX_PREFIX_IDS}"
        return [id_ for (id_,) in self._read(query, (prefix, f"{prefix}\U0010ffff"))]

    def passage_counts(self, document_ids: Sequence[str]) -> dict[str, int]:
        """Map the existing documents among these to the number of their passages."""
        query = "SELECT id, passages FROM documents WHERE id IN (SELECT value FROM json_each(?))"
        return dict(self._read(query, (json.dumps(document_ids),)))

    def forget_sources(self, sources: Sequence[IngestedFile]) -> None:
        """Forget that these files were added completely. The caller has the library open for writing."""
        with self._transaction():
            for source in sources:
                self._db.execute("DELETE FROM sources WHERE sha256 = ?", (source.sha256,))

    def forget_traces(self, document_ids: Sequence[str], is_theirs: Callable[[str], bool]) -> None:
        """Forget what is left of deleted documents: deletions by their sources, paths and names of their files.

        `is_theirs` decides about each other name. The caller has the library open for writing.
        """
        documents = set(document_ids)
        deleted = [id_ for id_ in self.deletions() if id_ in documents or is_theirs(id_)]
        sources = [source for source in self.sources() if is_theirs(source.name)]
        with self._transaction():
            self._db.executemany("DELETE FROM deleted WHERE id = ?", zip(deleted))
            self._db.executemany("DELETE FROM sources WHERE sha256 = ?", [(source.sha256,) for source in sources])
            self._db.execute("DELETE FROM source_files WHERE number NOT IN (SELECT file FROM origins)")
            if self.has_statements:
                self._db.executemany("DELETE FROM marks WHERE source = ?", zip(document_ids))

    def _read_files(self) -> list[tuple[str, str, int, int]]:
        rows = self._read(
            "SELECT path, max(origins.sha256), count(*), sum(passages) FROM origins JOIN source_files ON number = file "
            "JOIN documents USING (id) GROUP BY file ORDER BY path"
        )
        return [(os.fsdecode(path), digest, documents, passages) for path, digest, documents, passages in rows]
