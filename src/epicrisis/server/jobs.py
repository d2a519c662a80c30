"""Jobs: many questions answered in the background, recorded one by one, and continued after a kill.

A job is a folder of the server's folder: `job.json` with its questions and owner, and `answers.jsonl` in the format of
`epicrisis ask --file`. Requests name a job by its random id, which is looked up and never used as a path.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from epicrisis.answers import Answer, Answered
from epicrisis.errors import EpicrisisError, InputError, StorageError
from epicrisis.evaluation.runs.record import RunRecord
from epicrisis.evaluation.runs.runner import RecordStore
from epicrisis.privacy import open_private
from epicrisis.server.access import AccessReason
from epicrisis.server.concurrency import finish_in_thread
from epicrisis.server.error_log import log_fault
from epicrisis.server.errors import NotFound, ServerBusy, ShuttingDown, TooManyRequests, describe_error
from epicrisis.server.identity_provider import IdentityProvider
from epicrisis.server.questions import (
    MAX_QUESTION_CHARACTERS,
    Inquiry,
    LibraryName,
    Options,
    PatientId,
    QuestionBody,
    Questions,
    list_documents,
)
from epicrisis.server.request_body import RequestBody
from epicrisis.server.resources import RequestSettings
from epicrisis.server.users import LOCAL, Caller, UserStore

JOBS_FOLDER = "jobs"
MAX_QUESTIONS = 1_000
MAX_RUNNING_JOBS = 4
"""Jobs of one user that run at the same time."""
MAX_JOBS = 200
"""Jobs of one user that are kept."""
MAX_CONCURRENCY = 8
"""Questions of one job that are answered at the same time."""
_DESCRIPTION, _ANSWERS = "job.json", "answers.jsonl"
_ID_BYTES = 16
_BLOCK = 1 << 16
STALE_SECONDS = 60.0
"""After this time, an incomplete file belongs to a process that was killed."""
_FAULT = "a fault of the program; its place is in the log of the server"

JobState: TypeAlias = Literal["running", "done", "cancelled", "stopped"]
"""`stopped`: the server ended, or an error stopped the job. It can be resumed."""


class JobQuestion(RequestBody):
    """A question of a job."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: Annotated[str | None, Field(max_length=200, description="Default: its number, from 1.")] = None
    question: str = Field(min_length=1, max_length=MAX_QUESTION_CHARACTERS)
    options: Options = None
    patient: PatientId = None


class JobBody(RequestBody):
    """Questions to answer in the background, with the same settings."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        json_schema_extra={
            "examples": [
                {
                    "questions": [{"question": "Does aspirin prevent pre-eclampsia?", "options": ["yes", "no"]}],
                    "settings": {"k": 8},
                }
            ]
        },
    )

    questions: Annotated[tuple[JobQuestion, ...], Field(fail_fast=True), Field(min_length=1, max_length=MAX_QUESTIONS)]
    library: LibraryName = None
    settings: RequestSettings = RequestSettings()
    break_glass: AccessReason = None

    def body_of(self, number: int) -> QuestionBody:
        """Return the body of question `number`, from 0."""
        item = self.questions[number]
        return QuestionBody(
            question=item.question,
            options=item.options,
            library=self.library,
            patient=item.patient,
            settings=self.settings,
            break_glass=self.break_glass,
        )


class JobFile(BaseModel):
    """The content of `job.json`."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    id: str
    owner: str
    created: str
    body: JobBody
    state: JobState = "running"
    problem: str | None = None
    """Why the job stopped."""


@dataclass(frozen=True, slots=True)
class JobStatus:
    """The progress of a job."""

    id: str
    created: str
    state: JobState
    questions: int
    answers: Mapping[str, int]
    """The number of answers by state. Failed questions are asked again when the job is resumed."""
    problem: str | None = None


class Jobs:
    """The jobs of a server. Those that ran when the server ended continue with `start`."""

    def __init__(
        self,
        questions: Questions,
        folder: Path,
        users: UserStore | None = None,
        provider: IdentityProvider | None = None,
    ) -> None:
        self._questions = questions
        self._folder = folder / JOBS_FOLDER
        self._users = users
        self._provider = provider
        self._jobs: dict[str, JobFile] = {}
        self._records: dict[str, RecordStore] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._starting: Counter[str] = Counter()
        self._opening = Lock()
        # One request at a time cancels, resumes or deletes, so that no deleted job comes back.
        self._changing = asyncio.Lock()

    async def start(self) -> None:
        """Read the jobs of the folder, and continue those that were running. Damaged ones are left alone."""
        await asyncio.to_thread(self._read_jobs)
        for job in list(self._jobs.values()):
            if job.state == "running":
                self._launch(job)

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

    async def submit(self, body: JobBody, caller: Caller) -> JobStatus:
        """Start a job and return its status. It is on the disk when this returns.

        Raises InputError for the first question that cannot be asked, TooManyRequests, and what `prepare` raises.
        """
        self._check_running(caller)
        job_count = sum(job.owner == caller.owner for job in self._jobs.values()) + self._starting[caller.owner]
        if job_count >= MAX_JOBS:
            raise TooManyRequests(f"{caller.name} has {job_count} jobs, and no more are kept: delete one")
        self._starting[caller.owner] += 1
        try:
            return await self._start_job(body, caller)
        finally:
            self._starting[caller.owner] -= 1

    def _check_running(self, caller: Caller) -> None:
        """Raise TooManyRequests if no more jobs of the caller may run, and ShuttingDown."""
        running = [
            id_ for id_, task in self._tasks.items() if not task.done() and self._jobs[id_].owner == caller.owner
        ]
        count_of_running = len(running) + self._starting[caller.owner]
        if count_of_running >= MAX_RUNNING_JOBS:
            raise TooManyRequests(
                f"{caller.name} has {count_of_running} running jobs: wait, or cancel one", retry_after=60
            )
        if self._questions.is_stopping:
            raise ShuttingDown("the server is stopping, and accepts no new job")

    async def _start_job(self, body: JobBody, caller: Caller) -> JobStatus:
        names = Counter(_name_question(body, number) for number in range(len(body.questions)))
        repeated = [name for name, times in names.items() if times > 1]
        if repeated:
            raise InputError(f"questions: the id {repeated[0]!a} is used more than once: use each id once")
        for number in range(len(body.questions)):
            try:
                await self._questions.prepare(body.body_of(number), caller)
            except InputError as error:
                raise InputError(f"questions.{number}: {error.message}") from None
        created = datetime.now(UTC).isoformat(timespec="seconds")
        job = JobFile(id=secrets.token_hex(_ID_BYTES), owner=caller.owner, created=created, body=body)
        await asyncio.to_thread(self._write, job)
        self._launch(job)
        return await self.status(job.id, caller)

    async def list_jobs(self, caller: Caller) -> list[JobStatus]:
        """Return the jobs of the caller, the newest first."""
        jobs = [job for job in self._jobs.values() if job.owner == caller.owner]
        jobs.sort(key=lambda job: (job.created, job.id), reverse=True)
        return await asyncio.to_thread(lambda: list(map(self._describe, jobs)))

    async def status(self, id_: str, caller: Caller) -> JobStatus:
        """Return the progress of a job. Raises NotFound for a job of another user too."""
        return await asyncio.to_thread(self._describe, self._find(id_, caller))

    def _describe(self, job: JobFile) -> JobStatus:
        """Return the progress of a job. The first time, it reads the answers of the job from the disk."""
        answers: dict[str, int] = {}
        problem = job.problem
        try:
            answers = dict(Counter(list(self._open_records(job).states.values())))
        except EpicrisisError as error:
            problem = self._questions.resources.hide_paths(error.message)
        return JobStatus(job.id, job.created, job.state, len(job.body.questions), answers, problem)

    async def read_answers(self, id_: str, caller: Caller) -> Iterator[bytes]:
        """Return the lines of the answers so far, once the access log has them with the documents that they read.

        Raises NotFound for a job of another user too, and AccessDenied if the caller may no longer read a record of it.
        """
        job = self._find(id_, caller)
        documents: dict[str | None, list[str]] = {question.patient: [] for question in job.body.questions}
        path = self._folder / job.id / _ANSWERS
        size, documents_by_patient = await asyncio.to_thread(list_read_documents, path)
        for patient, ids in documents_by_patient.items():
            documents.setdefault(patient, []).extend(ids)
        library = self._questions.resources.find(job.body.library)
        await self._questions.record_reading(caller, "job", library, documents, job.body.break_glass)
        return _read_start(path, size)

    async def cancel(self, id_: str, caller: Caller) -> JobStatus:
        """Stop a job. The calls of its running questions end at once; its answers are kept. Raises NotFound."""
        async with self._changing:
            job = self._find(id_, caller)
            await self._end_task(job.id)
            if self._jobs[job.id].state == "running":
                await self._change(job, state="cancelled")
        return await self.status(job.id, caller)

    async def resume(self, id_: str, caller: Caller) -> JobStatus:
        """Ask the questions without an answer, and failed ones again. Raises NotFound and TooManyRequests."""
        async with self._changing:
            job = self._find(id_, caller)
            task = self._tasks.get(job.id)
            if task is None or task.done():
                self._check_running(caller)
                self._launch(await self._change(job, state="running", problem=None))
        return await self.status(job.id, caller)

    async def remove(self, id_: str, caller: Caller) -> None:
        """Stop and delete a job. Raises NotFound, and StorageError for a file that stays."""
        async with self._changing:
            job = self._find(id_, caller)
            await self._end_task(job.id)
            await asyncio.to_thread(self._delete, job.id)

    async def stop(self) -> None:
        """End all jobs. The next start continues them."""
        for id_ in list(self._tasks):
            await self._end_task(id_)

    def _find(self, id_: str, caller: Caller) -> JobFile:
        job = self._jobs.get(id_)
        if job is None or job.owner != caller.owner:
            raise NotFound("you have no job of this id: GET /api/v1/jobs lists yours")
        return job

    def _find_owner(self, job: JobFile) -> Caller:
        """Return the owner with the rights of now. Raises NotFound for a user who was removed.

        The rights of a user of the identity provider are those of the last sign-in, for a day.
        """
        has_users = self._users is not None and bool(self._users.users())
        if not has_users and self._provider is None and job.owner == LOCAL.owner:
            return LOCAL
        owner = None if self._users is None else self._users.find_owner(job.owner)
        if owner is None and self._provider is not None:
            owner = self._provider.sessions.find_owner(job.owner)
            if owner is None:
                raise NotFound("the owner of the job did not sign in for a day: sign in, and resume the job")
        if owner is None:
            raise NotFound("the owner of the job is no user any more")
        return owner

    def _delete(self, id_: str) -> None:
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

    def _open_records(self, job: JobFile) -> RecordStore:
        # Two requests, or a request and the job itself, may open it at the same time.
        with self._opening:
            if job.id not in self._jobs:
                # Opened now, its folder would come back.
                raise NotFound("the job was deleted")
            records = self._records.get(job.id)
            if records is None:
                library = self._questions.resources.find(job.body.library)
                recipe = library.with_settings(job.body.settings).recipe()
                path = self._folder / job.id / _ANSWERS
                records = self._records[job.id] = RecordStore(path, recipe)
            return records

    def _launch(self, job: JobFile) -> None:
        self._tasks[job.id] = asyncio.create_task(self._run(job))

    async def _end_task(self, id_: str) -> None:
        task = self._tasks.pop(id_, None)
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _run(self, job: JobFile) -> None:
        """Answer the questions of a job, and store how it ended."""
        try:
            limit = self._find_owner(job).running
            records = await asyncio.to_thread(self._open_records, job)
            concurrency = self._questions.resources.find(job.body.library).pipeline.concurrency
            pending = deque(range(len(job.body.questions)))
            async with asyncio.TaskGroup() as group:
                for _ in range(min(concurrency, MAX_CONCURRENCY, limit)):
                    group.create_task(self._answer_pending(job, records, pending))
        except Exception as error:  # noqa: BLE001 - the message of a fault may hold text of a record
            first = _first_error(error)
            problem = _FAULT
            if isinstance(first, EpicrisisError):
                problem = describe_error(first, self._questions.resources.hide_paths).detail
            else:
                log_fault(first)
            # A job that a stop interrupts is still running for the next start.
            if not isinstance(first, ShuttingDown):
                await self._change(job, state="stopped", problem=problem)
        else:
            await self._change(job, state="done")

    async def _answer_pending(self, job: JobFile, records: RecordStore, pending: deque[int]) -> None:
        while pending:
            number = pending.popleft()
            inquiry = await self._questions.prepare(job.body.body_of(number), self._find_owner(job))
            inquiry = inquiry.with_id(_name_question(job.body, number))
            if records.is_done(inquiry.question.key):
                continue
            answer = await self._answer(inquiry)
            await finish_in_thread(records.append_answer, answer)

    async def _answer(self, inquiry: Inquiry) -> Answer:
        """Return the answer. Waits while the server has no place."""
        for attempt in count():
            try:
                async with aclosing(self._questions.events(inquiry)) as events:
                    async for event in events:
                        if isinstance(event, Answered):
                            return event.answer
            except (ServerBusy, TooManyRequests):
                await asyncio.sleep(min(5.0, 0.1 * 2**attempt))
        raise RuntimeError("the last event of a question is its answer")

    async def _change(self, job: JobFile, **changes: Any) -> JobFile:
        changed = self._jobs.get(job.id, job).model_copy(update=changes)
        await finish_in_thread(self._write, changed)
        return changed

    def _write(self, job: JobFile) -> None:
        """Store the description of a job. It is complete or absent, also after a kill. Raises StorageError."""
        folder = self._folder / job.id
        try:
            for path in (self._folder, folder):
                path.mkdir(mode=0o700, parents=True, exist_ok=True)
            new = folder / f"{_DESCRIPTION}.new"
            with os.fdopen(open_private(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb") as file:
                file.write(job.model_dump_json().encode())
                file.flush()
                os.fsync(file.fileno())
            new.replace(folder / _DESCRIPTION)
        except OSError as error:
            raise StorageError(f"the job cannot be stored: {error.strerror}") from None
        self._jobs[job.id] = job


def list_read_documents(path: Path) -> tuple[int, dict[str | None, list[str]]]:
    """Return the bytes of the complete lines of a file of answers, and the documents that were read, by patient.

    Raises InputError for a line that is no answer.
    """
    size = 0
    documents: dict[str | None, dict[str, None]] = {}
    with suppress(FileNotFoundError), path.open("rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                break
            size += len(line)
            try:
                answer = RunRecord.model_validate_json(line).answer
            except ValidationError:
                raise InputError("the answers of the job are damaged: ask its questions again in a new job") from None
            ids = documents.setdefault(answer.patient or answer.question.patient, {})
            for event in answer.trace:
                ids.update(dict.fromkeys(list_documents(event)))
            ids.update(dict.fromkeys(citation.document_id for citation in answer.citations))
    return size, {patient: list(ids) for patient, ids in documents.items()}


def _read_start(path: Path, size: int) -> Iterator[bytes]:
    """Yield the first `size` bytes of a file: those of the access log, and none that were added later."""
    if not size:
        return
    with path.open("rb") as file:
        while size and (block := file.read(min(size, _BLOCK))):
            size -= len(block)
            yield block


def _name_question(body: JobBody, number: int) -> str:
    """Return the id of question `number`, from 0."""
    return body.questions[number].id or str(number + 1)


def _first_error(error: Exception) -> Exception:
    """Return the first error of a group, or the error itself."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error
