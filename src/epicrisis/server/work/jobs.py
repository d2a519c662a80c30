"""Jobs: many questions answered in the background, recorded one by one, and continued after a kill.

    jobs = Jobs(questions, open_state(folder))
    status = await jobs.submit(body, caller)

Jobs lie in the server's folder, or in its database. There any server process continues those of a killed one.
Requests name a job by its random id, which is looked up and never used as a path.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from epicrisis.core.answers import Answer
from epicrisis.core.errors import EpicrisisError, InputError, StorageError
from epicrisis.pipeline.recording.answer_record import RunRecord
from epicrisis.pipeline.recording.runner import RecordStore
from epicrisis.privacy.record_access import list_documents
from epicrisis.server.base.error_log import log_fault
from epicrisis.server.base.http_errors import (
    NotFound,
    ServerBusy,
    ShuttingDown,
    StateUnavailable,
    TooManyRequests,
    describe_error,
)
from epicrisis.server.base.users import LOCAL, Caller
from epicrisis.server.identity.identity_provider import IdentityProvider
from epicrisis.server.libraries.asked_questions import Inquiry, Questions
from epicrisis.server.state.job_folder import JobFolder
from epicrisis.server.state.job_models import JobBody, JobFile, JobStatus, JobTaken
from epicrisis.server.state.state import ServerState
from epicrisis.system.concurrency import finish_in_thread

if TYPE_CHECKING:
    from epicrisis.server.state.shared_state.shared_jobs import JobLines, JobTable

MAX_RUNNING_JOBS = 4
"""Jobs of one user that run at the same time."""
MAX_JOBS = 200
"""Jobs of one user that are kept."""
MAX_CONCURRENCY = 8
"""Questions of one job that are answered at the same time."""
WATCH_SECONDS = 2.0
"""How often a process renews its leases of shared jobs, and looks for one that nobody answers."""
LIBRARY_WAITS = (1.0, 4.0, 10.0, 20.0, 25.0)
"""Seconds between the attempts of a question while the database of its library does not answer."""
_ID_BYTES = 16
_FAULT = "a fault of the program; its place is in the log of the server"


class Jobs:
    """The jobs of a server. Those that ran when a server ended continue with `start`, or at another process."""

    def __init__(self, questions: Questions, state: ServerState, provider: IdentityProvider | None = None) -> None:
        self._questions = questions
        self._store: JobFolder | JobTable = JobFolder(state.folder)
        if state.database is not None:
            from epicrisis.server.state.shared_state.shared_jobs import JobTable

            self._store = JobTable(state.database)
        self._users = state.users
        self._provider = provider
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._watching: asyncio.Task[None] | None = None
        self._starting: dict[str, str] = {}
        """The owners of jobs that are being started, by the id of the job."""
        # One request at a time cancels, resumes or deletes, so that no deleted job comes back.
        self._changing = asyncio.Lock()

    async def start(self) -> None:
        """Continue the jobs that were running. Of shared ones, continue what other processes abandon."""
        if self._store.is_shared:
            self._watching = asyncio.create_task(self._watch())
        else:
            await self._continue_abandoned()

    async def _watch(self) -> None:
        """Keep the leases of the jobs of this process, and take over abandoned ones, until cancelled."""
        while True:
            try:
                active = {id_: task for id_, task in self._tasks.items() if not task.done()}
                for id_ in await asyncio.to_thread(self._store.keep, list(active)):
                    # A job that was resumed here meanwhile has another task, and its lease.
                    if self._tasks.get(id_) is active[id_]:
                        await self._end_task(id_)
                await self._continue_abandoned()
            except StateUnavailable:
                # The next attempt is soon. Nothing can be written meanwhile.
                pass
            except Exception as error:  # noqa: BLE001 - one fault must not end the watch over all jobs
                log_fault(error)
            await asyncio.sleep(WATCH_SECONDS)

    async def _continue_abandoned(self) -> None:
        active = [id_ for id_, task in self._tasks.items() if not task.done()]
        libraries: list[str | None] = [None, *self._questions.resources.libraries]
        for job in await finish_in_thread(self._store.claim_abandoned, active, libraries):
            self._launch(job)

    async def submit(self, body: JobBody, caller: Caller) -> JobStatus:
        """Start a job and return its status. It is stored when this returns.

        Raises InputError for the first question that cannot be asked, TooManyRequests, and what `prepare` raises.
        """
        # A job that was starting may be stored after the list is made.
        before = self._list_starting(caller)
        jobs = await asyncio.to_thread(self._store.list_jobs, caller.owner)
        starting = (before | self._list_starting(caller)) - {job.id for job in jobs}
        self._check_running(jobs, caller, len(starting))
        job_count = len(jobs) + len(starting)
        if job_count >= MAX_JOBS:
            raise TooManyRequests(f"{caller.name} has {job_count} jobs, and no more are kept: delete one")
        id_ = secrets.token_hex(_ID_BYTES)
        self._starting[id_] = caller.owner
        try:
            return await self._start_job(id_, body, caller)
        finally:
            del self._starting[id_]

    def _list_starting(self, caller: Caller) -> set[str]:
        return {id_ for id_, owner in self._starting.items() if owner == caller.owner}

    def _check_running(self, jobs: Iterable[JobFile], caller: Caller, starting: int) -> None:
        """Raise TooManyRequests if no more jobs of the caller may run, and ShuttingDown."""
        running = sum(job.state == "running" for job in jobs) + starting
        if running >= MAX_RUNNING_JOBS:
            raise TooManyRequests(f"{caller.name} has {running} running jobs: wait, or cancel one", retry_after=60)
        if self._questions.is_stopping:
            raise ShuttingDown("the server is stopping, and accepts no new job")

    async def _start_job(self, id_: str, body: JobBody, caller: Caller) -> JobStatus:
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
        job = JobFile(id=id_, owner=caller.owner, created=created, body=body)
        await asyncio.to_thread(self._store.add, job)
        self._launch(job)
        # The job is stored. An error from here on would make a proxy or client send it again.
        return JobStatus(job.id, job.created, job.state, len(body.questions), {})

    async def list_jobs(self, caller: Caller) -> list[JobStatus]:
        """Return the jobs of the caller, the newest first."""
        jobs = await asyncio.to_thread(self._store.list_jobs, caller.owner)
        jobs.sort(key=lambda job: (job.created, job.id), reverse=True)
        return await asyncio.to_thread(lambda: list(map(self._describe, jobs)))

    async def status(self, id_: str, caller: Caller) -> JobStatus:
        """Return the progress of a job. Raises NotFound for a job of another user too."""
        return await asyncio.to_thread(self._describe, await self._find(id_, caller))

    def _describe(self, job: JobFile) -> JobStatus:
        """Return the progress of a job."""
        answers: dict[str, int] = {}
        problem = job.problem
        try:
            answers = self._store.count_answers(job, self._find_recipe(job))
        except StateUnavailable:
            raise
        except EpicrisisError as error:
            problem = self._questions.resources.hide_paths(error.message)
        return JobStatus(job.id, job.created, job.state, len(job.body.questions), answers, problem)

    async def read_answers(self, id_: str, caller: Caller) -> Iterator[bytes]:
        """Return the lines of the answers so far, once the access log has them with the documents that they read.

        Raises NotFound for a job of another user too, and AccessDenied if the caller may no longer read a record of it.
        """
        job = await self._find(id_, caller)
        documents: dict[str | None, list[str]] = {question.patient: [] for question in job.body.questions}
        end = await asyncio.to_thread(self._store.find_end, job.id)
        lines = self._store.read_lines(job.id, end)
        for patient, ids in (await asyncio.to_thread(list_read_documents, lines)).items():
            documents.setdefault(patient, []).extend(ids)
        library = self._questions.resources.find(job.body.library)
        await self._questions.record_reading(caller, "job", library, documents, job.body.break_glass)
        return self._store.read_lines(job.id, end)

    async def cancel(self, id_: str, caller: Caller) -> JobStatus:
        """Stop a job. The calls of its running questions end at once; its answers are kept. Raises NotFound.

        At another process they end within a few seconds, and nothing of them is kept.
        """
        async with self._changing:
            job = await self._find(id_, caller)
            await self._end_task(job.id)
            await finish_in_thread(self._store.take, job.id)
            try:
                job = await self._find(id_, caller)
                if job.state == "running":
                    await self._change(job, state="cancelled")
            finally:
                # Also of a job that another process has deleted meanwhile.
                await finish_in_thread(self._store.release, job.id)
        return await self.status(job.id, caller)

    async def resume(self, id_: str, caller: Caller) -> JobStatus:
        """Ask the questions without an answer, and failed ones again. Raises NotFound and TooManyRequests."""
        async with self._changing:
            job = await self._find(id_, caller)
            task = self._tasks.get(job.id)
            is_elsewhere = self._store.is_shared and job.state == "running"
            if not is_elsewhere and (task is None or task.done()):
                jobs = await asyncio.to_thread(self._store.list_jobs, caller.owner)
                others = [other for other in jobs if other.id != job.id]
                self._check_running(others, caller, len(self._list_starting(caller)))
                await finish_in_thread(self._store.take, job.id)
                try:
                    job = await self._change(job, state="running", problem=None)
                except NotFound:
                    await finish_in_thread(self._store.release, job.id)
                    raise
                self._launch(job)
        return await self.status(job.id, caller)

    async def remove(self, id_: str, caller: Caller) -> None:
        """Stop and delete a job. Raises NotFound, and StorageError for a file that stays."""
        async with self._changing:
            job = await self._find(id_, caller)
            await self._end_task(job.id)
            await asyncio.to_thread(self._store.remove, job.id)

    async def stop(self) -> None:
        """End all jobs. The next start continues them, or another process at once."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])
        for id_ in list(self._tasks):
            await self._end_task(id_)
            with suppress(StateUnavailable):
                await asyncio.to_thread(self._store.release, id_)

    async def _find(self, id_: str, caller: Caller) -> JobFile:
        job = await asyncio.to_thread(self._store.find, id_)
        if job is None or job.owner != caller.owner:
            raise NotFound("you have no job of this id: GET /api/v1/jobs lists yours")
        return job

    def _find_owner(self, job: JobFile) -> Caller:
        """Return the owner with the rights of now. Raises NotFound for a user who was removed.

        The rights of a user of the identity provider are those of the last sign-in, for a day.
        """
        is_open = self._provider is None and not self._users.is_shared
        if is_open and job.owner == LOCAL.owner and not self._users.has_users():
            return LOCAL
        owner = self._users.find_owner(job.owner)
        if owner is None and self._provider is not None:
            owner = self._provider.sessions.find_owner(job.owner)
            if owner is None:
                raise NotFound("the owner of the job did not sign in for a day: sign in, and resume the job")
        if owner is None:
            raise NotFound("the owner of the job is no user any more")
        return owner

    def _find_recipe(self, job: JobFile) -> dict[str, Any]:
        library = self._questions.resources.find(job.body.library)
        return dict(library.with_settings(job.body.settings).recipe())

    def _open_records(self, job: JobFile) -> RecordStore | JobLines:
        return self._store.open_records(job, self._find_recipe(job))

    def _launch(self, job: JobFile) -> None:
        self._tasks[job.id] = asyncio.create_task(self._run(job))

    async def _end_task(self, id_: str) -> None:
        task = self._tasks.pop(id_, None)
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _run(self, job: JobFile) -> None:
        """Answer the questions of a job, and store how it ended."""
        state, problem = "done", None
        try:
            limit = (await asyncio.to_thread(self._find_owner, job)).running
            records = await asyncio.to_thread(self._open_records, job)
            concurrency = self._questions.resources.find(job.body.library).pipeline.concurrency
            pending = deque(range(len(job.body.questions)))
            async with asyncio.TaskGroup() as group:
                for _ in range(min(concurrency, MAX_CONCURRENCY, limit)):
                    group.create_task(self._answer_pending(job, records, pending))
        except Exception as error:  # noqa: BLE001 - the message of a fault may hold text of a record
            first = _first_error(error)
            # A job that a stop interrupts is still running for the next start, and one without its database for the
            # next process that has it. What another process has taken is no longer to be changed here.
            if isinstance(first, ShuttingDown | JobTaken) or _is_away(first):
                return
            state, problem = "stopped", _FAULT
            if isinstance(first, EpicrisisError):
                problem = describe_error(first, self._questions.resources.hide_paths).detail
            else:
                log_fault(first)
        # Without its database, the job is still running for the next process that has it.
        with suppress(StateUnavailable, JobTaken, NotFound):
            await self._change(job, state=state, problem=problem)
            await finish_in_thread(self._store.release, job.id)

    async def _answer_pending(self, job: JobFile, records: RecordStore | JobLines, pending: deque[int]) -> None:
        while pending:
            number = pending.popleft()
            # Servers that share a database are to survive its restart. A full disk lasts.
            waits = iter(LIBRARY_WAITS if self._store.is_shared else ())
            while True:
                try:
                    await self._answer_number(job, records, number)
                    break
                except StorageError:
                    seconds = next(waits, None)
                    if seconds is None:
                        raise
                await asyncio.sleep(seconds)

    async def _answer_number(self, job: JobFile, records: RecordStore | JobLines, number: int) -> None:
        """Answer a question of a job, and keep the answer, unless it has one."""
        owner = await asyncio.to_thread(self._find_owner, job)
        inquiry = await self._questions.prepare(job.body.body_of(number), owner)
        inquiry = inquiry.with_id(_name_question(job.body, number))
        if not records.is_done(inquiry.question.key):
            await finish_in_thread(records.append_answer, await self._answer(inquiry))

    async def _answer(self, inquiry: Inquiry) -> Answer:
        """Return the answer. Waits while the server has no place."""
        pause = 0.1
        while True:
            try:
                return await self._questions.answer(inquiry)
            except (ServerBusy, TooManyRequests):
                await asyncio.sleep(pause)
                pause = min(5.0, 2 * pause)

    async def _change(self, job: JobFile, **changes: Any) -> JobFile:
        changed = job.model_copy(update=changes)
        await finish_in_thread(self._store.change, changed)
        return changed


def list_read_documents(lines: Iterable[bytes]) -> dict[str | None, list[str]]:
    """Return the documents that these answers read, by patient. Raises InputError for a line that is no answer."""
    documents: dict[str | None, dict[str, None]] = {}
    for line in lines:
        try:
            answer = RunRecord.model_validate_json(line).answer
        except ValidationError:
            raise InputError("the answers of the job are damaged: ask its questions again in a new job") from None
        ids = documents.setdefault(answer.patient or answer.question.patient, {})
        for event in answer.trace:
            ids.update(dict.fromkeys(list_documents(event)))
        ids.update(dict.fromkeys(citation.document_id for citation in answer.citations))
    return {patient: list(ids) for patient, ids in documents.items()}


def _name_question(body: JobBody, number: int) -> str:
    """Return the id of question `number`, from 0."""
    return body.questions[number].id or str(number + 1)


def _is_away(error: BaseException) -> bool:
    """Return whether the error is of a database that comes back. Repeating others would call models in vain."""
    return isinstance(error, StateUnavailable) and error.retry_after is not None


def _first_error(error: Exception) -> Exception:
    """Return the first error of a group, or the error itself."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error
