"""Jobs in the folder of one server process, which answers all of them.

A job is a folder: `job.json` with its questions and owner, and `answers.jsonl` in the format of `epicrisis ask --file`.
The same in a database is `shared_state.jobs.JobTable`, with the same methods.
"""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any

from pydantic import ValidationError

from epicrisis.core.errors import StorageError
from epicrisis.pipeline.recording.runner import RecordStore
from epicrisis.server.base.http_errors import NotFound
from epicrisis.server.state.job_models import JobFile
from epicrisis.system.local_only import replace_file

JOBS_FOLDER = "jobs"
STALE_SECONDS = 60.0
"""After this time, an incomplete file belongs to a process that was killed."""
_DESCRIPTION, _ANSWERS = "job.json", "answers.jsonl"


class JobFolder:
    """The jobs of one process."""

    is_shared = False
    """Whether other processes may answer the jobs too."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / JOBS_FOLDER
        self._jobs: dict[str, JobFile] = {}
        self._records: dict[str, RecordStore] = {}
        self._opening = Lock()

    def claim_abandoned(self, active: Collection[str], libraries: Collection[str | None]) -> list[JobFile]:
        """Read the jobs of the folder, and return those that were running. Damaged ones are left alone."""
        self._read_jobs()
        return [job for job in self._jobs.values() if job.state == "running" and job.id not in active]

    def _read_jobs(self) -> None:
        for path in self._folder.glob(f"*/{_DESCRIPTION}.new"):
            # A job whose first description is incomplete was never confirmed to its owner.
            with suppress(OSError):
                if time.time() - path.stat().st_mtime > STALE_SECONDS:
                    path.unlink()
                    path.parent.rmdir()
        for path in sorted(self._folder.glob(f"*/{_DESCRIPTION}")):
            try:
                job = JobFile.model_validate_json(path.read_bytes())
            except (OSError, ValidationError):
                continue
            if job.id == path.parent.name:
                self._jobs[job.id] = job

    def take(self, id_: str) -> None:
        """Do nothing: no other process has the job."""

    def keep(self, ids: Collection[str]) -> set[str]:
        """Return the jobs that another process has taken: none."""
        return set()

    def release(self, id_: str) -> None:
        """Do nothing: no other process waits for the job."""

    def list_jobs(self, owner: str) -> list[JobFile]:
        """Return the jobs of an owner."""
        return [job for job in self._jobs.values() if job.owner == owner]

    def find(self, id_: str) -> JobFile | None:
        """Return the job, or None if there is none."""
        return self._jobs.get(id_)

    def add(self, job: JobFile) -> None:
        """Keep a new job. Raises StorageError."""
        self.change(job)

    def change(self, job: JobFile) -> None:
        """Store the description of a job. It is complete or absent, also after a kill. Raises StorageError."""
        folder = self._folder / job.id
        try:
            for path in (self._folder, folder):
                path.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(folder / _DESCRIPTION, folder / f"{_DESCRIPTION}.new", [job.model_dump_json().encode()])
        except OSError as error:
            raise StorageError(f"the job cannot be stored: {error.strerror}") from None
        self._jobs[job.id] = job

    def remove(self, id_: str) -> None:
        """Delete the folder of a job. Raises StorageError if a file stays."""
        with self._opening:
            try:
                shutil.rmtree(self._folder / id_)
            except FileNotFoundError:
                pass
            except OSError as error:
                raise StorageError(f"the job cannot be deleted: {error.strerror}") from error
            self._jobs.pop(id_, None)
            self._records.pop(id_, None)

    def open_records(self, job: JobFile, recipe: Mapping[str, Any]) -> RecordStore:
        """Return the answers of a job, to add to them.

        Raises InputError for answers of another recipe, and NotFound.
        """
        # Two requests, or a request and the job itself, may open it at the same time.
        with self._opening:
            if job.id not in self._jobs:
                # Opened now, its folder would come back.
                raise NotFound("the job was deleted")
            records = self._records.get(job.id)
            if records is None:
                records = self._records[job.id] = RecordStore(self._folder / job.id / _ANSWERS, recipe)
            return records

    def count_answers(self, job: JobFile, recipe: Mapping[str, Any]) -> dict[str, int]:
        """Return the number of answers by state. The first time, it reads them. Raises as `open_records`."""
        return dict(Counter(list(self.open_records(job, recipe).states.values())))

    def find_end(self, id_: str) -> int:
        """Return where the complete answers of a job end at this moment, for `read_lines`."""
        size = 0
        with suppress(FileNotFoundError), (self._folder / id_ / _ANSWERS).open("rb") as file:
            for line in file:
                if line.endswith(b"\n"):
                    size += len(line)
        return size

    def read_lines(self, id_: str, end: int) -> Iterator[bytes]:
        """Yield the answers of a job, one a line, up to this end, and none that were added later."""
        if not end:
            return
        with (self._folder / id_ / _ANSWERS).open("rb") as file:
            while end and (line := file.readline(end)):
                end -= len(line)
                yield line
