"""A primary and its synchronous standby, a writer that goes on while they are killed, and the comparison of both."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np

from epicrisis.core.types import Scope
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.postgresql.database_schema import WORD_TABLESPACE
from epicrisis.testing.stores import DIMENSIONS
from tests.support.postgresql_server import OWNER, READER, WRITER, PostgresqlServer, format_url
from tests.support.postgresql_writer_child import expect_passages

_TABLES = ("passages", "documents", "origins", "sources", "deleted", "marks", "due", "patients")
_QUERIES = ("aspirin risk", "warfarin bleeding women", "stroke n7", "mortality placebo dose", "n3 v1")


class ServerPair:
    """Two servers with the same databases. `primary` and `standby` change places when the primary is killed."""

    def __init__(self, primary: PostgresqlServer, standby: PostgresqlServer) -> None:
        self.primary, self.standby = primary, standby
        self.database = ""
        self._all = (primary, standby)

    def start(self) -> None:
        """Start both. A commit is acknowledged when both have it."""
        self.primary.create()
        self.primary.create_tablespace()
        # Before the standby is copied: once it is promoted, its commits must wait for the other one too.
        self.primary.execute(
            "ALTER SYSTEM SET wal_retrieve_retry_interval = '200ms'",
            "ALTER SYSTEM SET wal_keep_size = '256MB'",
            "ALTER SYSTEM SET synchronous_standby_names = '*'",
            "SELECT pg_reload_conf()",
        )
        self.follow()

    def create_library(self, database: str, *, is_logged: bool = True) -> None:
        """Create an empty library in a new database. If it `is_logged`, its word index is on the standby too."""
        self.database = database
        verb = "GRANT CREATE ON TABLESPACE {} TO {}" if is_logged else "REVOKE CREATE ON TABLESPACE {} FROM {}"
        self.primary.execute(verb.format(WORD_TABLESPACE, OWNER))
        self.primary.create_database(database)
        LibraryStore.create(
            format_url(database, OWNER, self.primary),
            encoder_fingerprint="check",
            encoder_name="check",
            dimensions=DIMENSIONS,
            max_tokens=64,
            overlap=8,
        ).close()

    def follow(self) -> None:
        """Make the standby a copy of the primary, and start it."""
        self.standby.copy_from(self.primary, "-R", "-X", "stream")
        self.standby.start()

    def fail_over(self) -> None:
        """Promote the standby after the primary has been killed, and make the old primary its standby."""
        self.standby.promote()
        self.exchange()
        self.follow()

    def exchange(self) -> None:
        """Call the standby the primary, and the primary the standby."""
        self.primary, self.standby = self.standby, self.primary

    def url(self, user: str) -> str:
        """Return the URL of the library, which names both servers, in an order that does not change."""
        return format_url(self.database, user, *self._all)

    def remove(self) -> None:
        """Stop both."""
        for server in self._all:
            server.remove()


class Writer:
    """A process that adds batches to the library."""

    def __init__(self, url: str, folder: Path) -> None:
        self._acknowledged = folder / "acknowledged"
        self._acknowledged.touch()
        command = [sys.executable, "-m", "tests.support.postgresql_writer_child", url, str(self._acknowledged)]
        self._errors: IO[bytes] = (folder / "errors").open("wb")
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=self._errors)

    def count(self) -> int:
        """Return how many batches were acknowledged."""
        return len(self._acknowledged.read_text().split())

    def wait_for(self, batches: int) -> None:
        """Wait until so many batches have been acknowledged. Raise RuntimeError if the writer has died."""
        while self.count() < batches:
            if self._process.poll() is not None:
                raise RuntimeError(f"the writer died: {Path(self._errors.name).read_text()[-2000:]}")
            time.sleep(0.05)

    def end(self) -> None:
        """Let the writer finish, and wait for it."""
        self._process.communicate(timeout=120)
        self._errors.close()
        assert self._process.returncode == 0, Path(self._errors.name).read_text()[-2000:]

    def kill(self) -> None:
        """Kill the writer."""
        self._process.kill()
        self._process.communicate()
        self._errors.close()


@contextmanager
def run_writer(pair: ServerPair, folder: Path) -> Iterator[Writer]:
    """Run a writer until the block ends."""
    writer = Writer(pair.url(WRITER), folder)
    try:
        yield writer
    finally:
        writer.kill()


def kill_at_random(pair: ServerPair, writer: Writer, who: str, chance: random.Random) -> tuple[int, int]:
    """Kill `primary` or `standby` while the writer adds. Return the lost and the duplicated passages afterwards."""
    writer.wait_for(writer.count() + 1)
    time.sleep(chance.uniform(0, 1.5))
    if who == "primary":
        pair.primary.kill()
        # Batches that were acknowledged before this moment must be on the other server.
        batches = writer.count()
        pair.fail_over()
    else:
        pair.standby.kill()
        time.sleep(chance.uniform(0, 0.5))
        batches = writer.count()
        pair.standby.start()
    return count_faults(pair, batches)


def count_faults(pair: ServerPair, batches: int) -> tuple[int, int]:
    """Return how many passages of so many batches are missing on the primary, and how many are there twice."""
    with pair.primary.connect(pair.database) as connection:
        rows = connection.execute("SELECT id, document_id, text FROM epicrisis.passages").fetchall()
    stored = {id_: text for id_, _, text in rows}
    lost = 0
    for id_, text in expect_passages(batches).items():
        # The writer may have gone on, and replaced the document by a later version, which its last word names.
        if id_ not in stored or stored[id_].split()[-2] != text.split()[-2] or stored[id_][-1] < text[-1]:
            lost += 1
    places = {(document, id_[-2:]) for id_, document, _ in rows}
    return lost, len(rows) - len(places)


def find_differences(pair: ServerPair, batches: int) -> list[str]:
    """Return what differs between the library of so many batches, the primary and the standby."""
    pair.standby.wait_for(pair.primary)
    differences: list[str] = []
    for table in _TABLES:
        states: list[object] = []
        for server in (pair.primary, pair.standby):
            with server.connect(pair.database) as connection:
                query = f"SELECT count(*), md5(string_agg(t::text, '|' ORDER BY t::text)) FROM epicrisis.{table} t"
                states.append(connection.execute(query.encode()).fetchone())
        if states[0] != states[1]:
            differences.append(f"table {table}: {states}")
    with pair.primary.connect(pair.database) as connection:
        stored = dict(connection.execute("SELECT id, text FROM epicrisis.passages").fetchall())
        counts = connection.execute("SELECT documents, passages FROM epicrisis.library").fetchone()
    expected = expect_passages(batches)
    if stored != expected:
        differences.append(f"{len(stored)} passages instead of {len(expected)}")
    if counts != (len(expected) // 2, len(expected)):
        differences.append(f"counts {counts}")
    return differences + compare_rankings(pair)


def compare_rankings(pair: ServerPair) -> list[str]:
    """Return the searches whose rankings differ between primary and standby, or that find nothing."""
    stores = [LibraryStore.open(format_url(pair.database, READER, server)) for server in (pair.primary, pair.standby)]
    vectors = np.random.default_rng(1).normal(size=(len(_QUERIES), DIMENSIONS)).astype(np.float32)
    differences: list[str] = []
    for patient in (None, "patient3"):
        scope = Scope(patient=patient)
        for query, vector in zip(_QUERIES, vectors, strict=True):
            by_words = [store.search_words(query, 20, scope) for store in stores]
            by_vectors = [store.search_vectors(vector, 20, scope) for store in stores]
            for name, rankings in (("words", by_words), ("vectors", by_vectors)):
                if rankings[0] != rankings[1] or not rankings[0]:
                    differences.append(f"{name}: {query} for {patient}")
        records = [store.fetch_record(scope) for store in stores]
        if records[0] != records[1] or bool(records[0]) == (patient is None):
            differences.append(f"record of {patient}")
    return differences
