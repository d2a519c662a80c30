"""Jobs in PostgreSQL, which every server process may answer. One process at a time holds the lease of a job.

A process renews its leases every few seconds. The jobs of a process that was killed are free when their leases end.
Whatever a process writes of a job, it writes only while it holds the lease, in the transaction that checks it. A
process that was suspended and has lost the lease therefore writes nothing.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from epicrisis.core.answers import Answer
from epicrisis.core.errors import InputError
from epicrisis.core.serialization import to_json
from epicrisis.pipeline.recording.runner import build_record
from epicrisis.server.base.http_errors import NotFound
from epicrisis.server.state.job_models import JobFile, JobTaken
from epicrisis.server.state.shared_state.shared_database import StateDatabase
from epicrisis.system.json_lines import dump_line, parse_json
from epicrisis.system.jsonl_store import list_changes

LEASE_SECONDS = 15.0
_BATCH = 50
_JOB = "kind = 'job' AND part = 'job'"
_TAKE = (
    "INSERT INTO leases(kind, id, holder, ends) "
    f"SELECT kind, id, %s, now() + make_interval(secs => %s) FROM items WHERE {_JOB} AND id = %s "
    "ON CONFLICT (kind, id) DO UPDATE SET holder = excluded.holder, ends = excluded.ends"
)


class JobTable:
    """The jobs of all processes. Every method raises StateUnavailable."""

    is_shared = True

    def __init__(self, database: StateDatabase) -> None:
        self._database = database

    def claim_abandoned(self, active: Collection[str], libraries: Collection[str | None]) -> list[JobFile]:
        """Take one running job that no process holds, and return it. The others are for the next call, or process.

        Jobs of other libraries than these, and jobs that are `active` here, are left alone.
        """
        query = (
            f"SELECT i.content FROM items i LEFT JOIN leases l ON l.kind = i.kind AND l.id = i.id WHERE i.{_JOB} "
            "AND state = 'running' AND (l.ends IS NULL OR l.ends < now()) AND i.id <> ALL(%s) ORDER BY at"
        ).replace("AND part", "AND i.part")
        for (content,) in self._database.rows(query, list(active)):
            job = _parse_job(content)
            if job is None or job.body.library not in libraries:
                continue
            claim = f"{_TAKE} WHERE leases.ends < now() RETURNING id"
            if self._database.rows(claim, self._database.holder, LEASE_SECONDS, job.id):
                # It may have ended between the two statements.
                current = self.find(job.id)
                if current is not None and current.state == "running":
                    return [current]
                self.release(job.id)
        return []

    def take(self, id_: str) -> None:
        """Hold the job from now on, whoever had it. Of a deleted job nothing is stored."""
        self._database.rows(_TAKE, self._database.holder, LEASE_SECONDS, id_)

    def keep(self, ids: Collection[str]) -> set[str]:
        """Renew the leases of these jobs. Return those that this process has lost."""
        command = (
            "UPDATE leases SET ends = now() + make_interval(secs => %s) "
            "WHERE kind = 'job' AND holder = %s AND id = ANY(%s) RETURNING id"
        )
        rows = self._database.rows(command, LEASE_SECONDS, self._database.holder, list(ids)) if ids else []
        return set(ids) - {id_ for (id_,) in rows}

    def release(self, id_: str) -> None:
        """Give the job up, if this process holds it."""
        command = "DELETE FROM leases WHERE kind = 'job' AND id = %s AND holder = %s"
        self._database.rows(command, id_, self._database.holder)

    def list_jobs(self, owner: str) -> list[JobFile]:
        """Return the jobs of an owner. Damaged ones, and those of another version, are left out."""
        rows = self._database.rows(f"SELECT content FROM items WHERE {_JOB} AND owner = %s", owner)
        return [job for (content,) in rows if (job := _parse_job(content)) is not None]

    def find(self, id_: str) -> JobFile | None:
        """Return the job, or None if there is none."""
        for (content,) in self._database.rows(f"SELECT content FROM items WHERE {_JOB} AND id = %s", id_):
            return _parse_job(content)
        return None

    def add(self, job: JobFile) -> None:
        """Keep a new job, and hold it."""
        command = "INSERT INTO items(kind, id, part, owner, state, content) VALUES ('job', %s, 'job', %s, %s, %s)"
        with self._database.transact():
            self._database.rows(command, job.id, job.owner, job.state, job.model_dump_json().encode())
            self.take(job.id)

    def change(self, job: JobFile) -> None:
        """Store the description of a job that this process holds.

        Raises JobTaken if it does not, and NotFound if the job was deleted.
        """
        command = f"UPDATE items SET state = %s, content = %s WHERE {_JOB} AND id = %s RETURNING id"
        with self._database.transact():
            check_lease(self._database, job.id)
            if not self._database.rows(command, job.state, job.model_dump_json().encode(), job.id):
                raise NotFound("the job was deleted")

    def remove(self, id_: str) -> None:
        """Delete a job with its answers. The process that answers it notices."""
        with self._database.transact():
            for table in ("leases", "items", "lines"):
                self._database.rows(f"DELETE FROM {table} WHERE kind = 'job' AND id = %s", id_)

    def open_records(self, job: JobFile, recipe: Mapping[str, Any]) -> JobLines:
        """Return the answers of a job that this process holds. Raises InputError for answers of another recipe."""
        new = to_json(recipe)
        with self._database.transact():
            check_lease(self._database, job.id)
            query = "SELECT content FROM items WHERE kind = 'job' AND part = 'recipe' AND id = %s"
            for (content,) in self._database.rows(query, job.id):
                old = parse_json(bytes(content))
                if old != new:
                    raise InputError(
                        f"the job holds answers made with other settings ({list_changes(old, new)}): resume it at a "
                        "server with the same settings, or ask its questions in a new job"
                    )
                break
            else:
                command = "INSERT INTO items(kind, id, part, content) VALUES ('job', %s, 'recipe', %s)"
                self._database.rows(command, job.id, dump_line(new))
        return JobLines(self._database, job.id, new)

    def count_answers(self, job: JobFile, recipe: Mapping[str, Any]) -> dict[str, int]:
        """Return the number of answers by state."""
        return dict(Counter(_read_states(self._database, job.id).values()))

    def find_end(self, id_: str) -> int:
        """Return the number of the last answer of a job at this moment, for `read_lines`."""
        query = "SELECT coalesce(max(number), 0) FROM lines WHERE kind = 'job' AND id = %s"
        return int(self._database.rows(query, id_)[0][0])

    def read_lines(self, id_: str, end: int) -> Iterator[bytes]:
        """Yield the answers of a job, one a line, up to this end, and none that were added later."""
        last = 0
        query = (
            "SELECT number, content FROM lines WHERE kind = 'job' AND id = %s AND number > %s AND number <= %s "
            "ORDER BY number LIMIT %s"
        )
        while rows := self._database.rows(query, id_, last, end, _BATCH):
            for last, content in rows:  # noqa: B007 - the last number is where the next batch begins
                yield bytes(content)


class JobLines:
    """The answers of a job. Only the process that holds the job adds to them."""

    def __init__(self, database: StateDatabase, id_: str, recipe: Mapping[str, Any]) -> None:
        self._database = database
        self._id = id_
        self._recipe = recipe
        self.states = _read_states(database, id_)

    def is_done(self, key: str) -> bool:
        """Return whether the question has an answer. Failed ones are answered again."""
        return self.states.get(_hash_key(key), "failed") != "failed"

    def append_answer(self, answer: Answer) -> None:
        """Keep an answer, durable when this returns; a question has one.

        Raises JobTaken if another process has the job.
        """
        record = build_record(answer, self._recipe)
        key = _hash_key(record.key)
        command = (
            "INSERT INTO lines(kind, id, key, state, content) VALUES ('job', %s, %s, %s, %s) ON CONFLICT DO NOTHING"
        )
        with self._database.transact():
            check_lease(self._database, self._id)
            self._database.rows(command, self._id, key, answer.state, dump_line(record.to_json()))
        self.states[key] = answer.state


def check_lease(database: StateDatabase, id_: str) -> None:
    """Raise JobTaken unless this process holds the job. No other process takes it before the end of the transaction."""
    query = "SELECT 1 FROM leases WHERE kind = 'job' AND id = %s AND holder = %s FOR UPDATE"
    if not database.rows(query, id_, database.holder):
        if not database.rows(f"SELECT 1 FROM items WHERE {_JOB} AND id = %s", id_):
            raise NotFound("the job was deleted")
        raise JobTaken("another server process has taken the job over")


def _parse_job(content: bytes) -> JobFile | None:
    """Return the description of a job, or None for a damaged one and one of another version."""
    try:
        return JobFile.model_validate_json(bytes(content))
    except ValidationError:
        return None


def _hash_key(key: str) -> str:
    """Return the key of a question as the database has it: the id in it may hold NUL, which is no text there."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def _read_states(database: StateDatabase, id_: str) -> dict[str, str]:
    """Return the state of each question with an answer, by the hash of its key; the last one if it was asked again."""
    rows = database.rows("SELECT key, state FROM lines WHERE kind = 'job' AND id = %s ORDER BY number", id_)
    return dict(rows)
