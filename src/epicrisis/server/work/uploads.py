"""Uploads: files sent to the server and added to a library in the background, as `epicrisis library add` does.

    uploads = Uploads(resources, folder)
    status = await uploads.submit(request, "lib", caller)

An upload is a folder of the server's folder: `upload.json` and its files, under random names. The files are deleted
once they are imported, except PDFs, whose pages the page shows as images: these move to `originals`. An upload that
runs when the server is killed continues with the next start. Documents of the library are not added again.
"""

from __future__ import annotations

import asyncio
import secrets
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, TypeAlias

from fastapi import Request
from pydantic import BaseModel, ConfigDict, ValidationError

from epicrisis.core.errors import EpicrisisError, StorageError
from epicrisis.core.printable import printable
from epicrisis.models.hardware import measure_available_memory
from epicrisis.privacy.access_log import AccessLog
from epicrisis.server.base.error_log import log_fault
from epicrisis.server.base.http_errors import AccessDenied, NotFound, ServerBusy, ShuttingDown
from epicrisis.server.base.users import Caller
from epicrisis.server.libraries.caller_access import AccessControl
from epicrisis.server.libraries.resources import OpenLibrary, Resources
from epicrisis.server.libraries.shelves import find_store, require_maintainer
from epicrisis.server.work.import_process import (
    ImportFailed,
    ImportProgress,
    ImportResult,
    ImportTask,
    ReceivedFile,
    run_import,
)
from epicrisis.server.work.upload_import import delete_unused_originals
from epicrisis.server.work.upload_reception import UploadLimits, receive_upload
from epicrisis.system.concurrency import finish_in_thread
from epicrisis.system.local_only import is_local_only, replace_file
from epicrisis.system.remote_libraries import find_address

UPLOADS_FOLDER, ORIGINALS_FOLDER = "uploads", "originals"
MAX_RECEIVING = 4
"""Uploads that arrive at the same time."""
MAX_KEPT = 200
"""Uploads that are listed. The oldest finished one is forgotten first."""
MAX_KILLS = 2
"""Imports during which the server was killed so often are not continued unasked."""
_SHARE_OF_MEMORY = 0.75
"""The largest share of the available memory that an import may use. The rest is for the server."""
_LEAST_MEMORY = 1024**3
"""What an import may use of a small machine: encoder and library take 0.5 GB."""
_DESCRIPTION = "upload.json"
_KILLED = (
    f"the server ended {MAX_KILLS} times while it imported these files: one may need too much memory. Resume the "
    "upload, or delete it and send the largest file in parts"
)
_FAULT = "a fault of the program; its place is in the log of the server. Resume the upload, or delete it"

UploadState: TypeAlias = Literal["waiting", "running", "done", "cancelled", "stopped"]
"""`stopped`: an error ended the import. It can be resumed, as its files are kept."""


class UploadFile(BaseModel):
    """The content of `upload.json`."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    id: str
    library: str
    owner: str
    created: str
    """ISO 8601, UTC."""
    files: tuple[ReceivedFile, ...]
    replace: bool = False
    state: UploadState = "waiting"
    kills: int = 0
    """How often the server ended without notice during the import."""
    problem: str | None = None
    """Why the import stopped, and what to do."""
    result: ImportResult | None = None


class UploadStatus(BaseModel):
    """The progress of an upload."""

    id: str
    library: str
    created: str
    state: UploadState
    files: list[str]
    bytes: int
    progress: ImportProgress | None = None
    """While the import runs."""
    result: ImportResult | None = None
    """Once it has ended."""
    problem: str | None = None


class Uploads:
    """The uploads of a server. One is imported at a time, the others wait."""

    def __init__(self, resources: Resources, folder: Path, limits: UploadLimits, log: AccessLog | None = None) -> None:
        self.resources = resources
        self.access = AccessControl(log)
        self.limits = limits
        self._folder = folder / UPLOADS_FOLDER
        self._originals = folder / ORIGINALS_FOLDER
        self._uploads: dict[str, UploadFile] = {}
        self._progress: dict[str, ImportProgress] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._turn = asyncio.Lock()
        self._changing = asyncio.Lock()
        self._receiving = 0
        self._is_stopping = False

    def start(self) -> None:
        """Read the uploads of the folder, remove incomplete ones, and continue interrupted imports."""
        for path in sorted(self._folder.glob("*")):
            try:
                upload = UploadFile.model_validate_json((path / _DESCRIPTION).read_bytes())
            except FileNotFoundError:
                shutil.rmtree(path, ignore_errors=True)
                continue
            except (OSError, ValidationError):
                continue
            if upload.id == path.name:
                self._uploads[upload.id] = self._count_kill(upload) if upload.state == "running" else upload
        for upload in sorted(self._uploads.values(), key=lambda upload: upload.created):
            if upload.state == "waiting":
                self._launch(upload)
            elif upload.state == "done":
                # A kill may have come between the end of the import and the deletion.
                self._delete_files(upload.id)

    def _count_kill(self, upload: UploadFile) -> UploadFile:
        """Return an upload that ran when the server ended: it waits for its turn again, unless that is repeated."""
        kills = upload.kills + 1
        changes = {"state": "waiting"} if kills < MAX_KILLS else {"state": "stopped", "problem": _KILLED}
        counted = upload.model_copy(update={"kills": kills, **changes})
        self._store(counted)
        return counted

    async def check_allowed(self, name: str, caller: Caller) -> OpenLibrary:
        """Return the library that the caller may add documents to. The access log has a refusal for a library of notes.

        Raises NotFound, also for a store of another package, and AccessDenied without the role and for a library of
        notes.
        """
        library = self.resources.find(name)
        await self.access.check(caller, "upload", library, None)
        require_maintainer(caller)
        if library.holds_patients:
            raise AccessDenied(
                f"{library.name} holds patients' notes, which this version does not take as uploads: add them with "
                "`epicrisis library add`"
            )
        find_store(library)
        return library

    async def submit(self, request: Request, name: str, caller: Caller) -> UploadStatus:
        """Receive the files of a request and start their import. They are on the disk when this returns.

        Raises what `check_allowed` and `receive_upload` raise, ServerBusy, ShuttingDown, and StorageError.
        """
        library = await self.check_allowed(name, caller)
        if self._is_stopping:
            raise ShuttingDown("the server is stopping, and accepts no upload")
        if self._receiving >= MAX_RECEIVING:
            raise ServerBusy(f"{MAX_RECEIVING} uploads are arriving: try again later", retry_after=60)
        self._check_disk(request)
        folder = self._folder / secrets.token_hex(16)
        self._receiving += 1
        try:
            _make_folder(folder)
            received = await receive_upload(request, folder, self.limits)
            upload = UploadFile(
                id=folder.name,
                library=library.name,
                owner=caller.owner,
                created=datetime.now(UTC).isoformat(timespec="seconds"),
                files=received.files,
                replace=received.fields.get("replace", "") in ("true", "on", "1", "yes"),
            )
            await asyncio.to_thread(self._write, upload)
        except BaseException:  # an upload that is cut off leaves no file of a patient
            shutil.rmtree(folder, ignore_errors=True)
            raise
        finally:
            self._receiving -= 1
        self._forget_oldest()
        self._launch(upload)
        return self.status(upload.id, caller)

    def list_uploads(self, caller: Caller, library: str | None = None) -> list[UploadStatus]:
        """Return the uploads, to one library or to all, the newest first. Raises AccessDenied without the role."""
        require_maintainer(caller)
        uploads = [upload for upload in self._uploads.values() if library in (None, upload.library)]
        uploads.sort(key=lambda upload: (upload.created, upload.id), reverse=True)
        return [self.status(upload.id, caller) for upload in uploads]

    def status(self, id_: str, caller: Caller) -> UploadStatus:
        """Return the progress of an upload. Raises NotFound and AccessDenied."""
        upload = self._find(id_, caller)
        return UploadStatus(
            id=upload.id,
            library=upload.library,
            created=upload.created,
            state=upload.state,
            files=[file.name for file in upload.files],
            bytes=sum(file.bytes for file in upload.files),
            progress=self._progress.get(upload.id) if upload.state == "running" else None,
            result=upload.result,
            problem=upload.problem,
        )

    async def cancel(self, id_: str, caller: Caller) -> UploadStatus:
        """Stop an import. Documents that were added stay in the library. Raises NotFound and AccessDenied."""
        async with self._changing:
            upload = self._find(id_, caller)
            await self._end_task(upload.id)
            if self._uploads[upload.id].state in ("waiting", "running"):
                await self._change(upload.id, state="cancelled")
        return self.status(id_, caller)

    async def resume(self, id_: str, caller: Caller) -> UploadStatus:
        """Continue a cancelled or stopped import. Documents of the library are not added again."""
        async with self._changing:
            upload = self._find(id_, caller)
            if upload.state in ("cancelled", "stopped"):
                self._launch(await self._change(upload.id, state="waiting", problem=None, kills=0))
        return self.status(id_, caller)

    async def remove(self, id_: str, caller: Caller) -> None:
        """Stop an import, and delete its files and its description. Documents stay in the library."""
        async with self._changing:
            upload = self._find(id_, caller)
            await self._end_task(upload.id)
            await asyncio.to_thread(self._remove_files, self._uploads[upload.id])
            self._uploads.pop(upload.id, None)

    async def stop(self) -> None:
        """End the running import after its current commit. The next start continues it."""
        self._is_stopping = True
        for id_ in list(self._tasks):
            await self._end_task(id_)
            if self._uploads[id_].state == "running":
                await self._change(id_, state="waiting")

    def _check_disk(self, request: Request) -> None:
        length = int(request.headers.get("content-length") or 0)
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            free = shutil.disk_usage(self._folder).free
        except OSError as error:
            raise StorageError(f"the upload cannot be stored: {error.strerror}") from None
        if free - length < self.limits.free_bytes:
            raise StorageError(f"only {free / 1e9:.1f} GB of the server's disk are free: free some space")

    def _find(self, id_: str, caller: Caller) -> UploadFile:
        require_maintainer(caller)
        upload = self._uploads.get(id_)
        if upload is None:
            raise NotFound("there is no upload of this id: GET /api/v1/uploads lists them")
        return upload

    def _launch(self, upload: UploadFile) -> None:
        self._tasks[upload.id] = asyncio.create_task(self._run(upload.id))

    async def _end_task(self, id_: str) -> None:
        task = self._tasks.pop(id_, None)
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _run(self, id_: str) -> None:
        """Import an upload when it is its turn, and record how it ended. The caller of a cancellation records it."""
        async with self._turn:
            try:
                upload = await self._change(id_, state="running")
                task = await asyncio.to_thread(self._make_task, upload)
                self._progress[id_] = ImportProgress(files=len(upload.files))
                result = await run_import(task, lambda progress: self._progress.__setitem__(id_, progress))
            except ImportFailed as error:
                await self._change(id_, state="stopped", problem=error.message)
            except EpicrisisError as error:
                problem = f"{self.resources.hide_paths(error.message)}. Resume the upload, or delete it"
                await self._change(id_, state="stopped", problem=printable(problem))
            except Exception as error:  # noqa: BLE001 - the message of a fault may hold text of a record
                log_fault(error)
                await self._change(id_, state="stopped", problem=_FAULT)
            else:
                await finish_in_thread(self._finish, id_, result)

    def _make_task(self, upload: UploadFile) -> ImportTask:
        """Return what the process of the import needs to know. Raises NotFound for a library that is not served."""
        library = self.resources.find(upload.library)
        settings, path = library.pipeline.settings, find_store(library).path
        address = find_address(path)
        available = max(_LEAST_MEMORY, measure_available_memory() * _SHARE_OF_MEMORY)
        return ImportTask(
            library=str(path) if address is None else address.url,
            files=upload.files,
            folder=self._folder / upload.id,
            originals=self._originals,
            replace_others=upload.replace,
            encoder=settings.encoder,
            home=settings.home,
            threads=settings.threads,
            local_only=is_local_only(),
            memory_bytes=int(min(self.limits.memory_bytes, available)),
            processor_seconds=self.limits.processor_seconds,
        )

    def _finish(self, id_: str, result: ImportResult) -> None:
        """Record that an upload is imported, then delete its files. Others see it as done after that."""
        finished = self._uploads[id_].model_copy(update={"state": "done", "result": result, "problem": None})
        self._store(finished)
        self._delete_files(id_)
        self._uploads[id_] = finished

    def _remove_files(self, upload: UploadFile) -> None:
        """Delete the folder of an upload, and its PDFs in `originals` that no document of the library names."""
        try:
            library = self.resources.find(upload.library)
        except NotFound:
            # The server no longer serves the library, which may still name them.
            pass
        else:
            delete_unused_originals(find_store(library), upload.files, self._originals)
        shutil.rmtree(self._folder / upload.id, ignore_errors=True)

    def _delete_files(self, id_: str) -> None:
        """Delete the files of a finished upload. Its description stays."""
        for path in (self._folder / id_).iterdir():
            if path.name != _DESCRIPTION:
                path.unlink(missing_ok=True)

    async def _change(self, id_: str, **changes: object) -> UploadFile:
        changed = self._uploads[id_].model_copy(update=changes)
        await finish_in_thread(self._write, changed)
        return changed

    def _forget_oldest(self) -> None:
        finished = [upload for upload in self._uploads.values() if upload.state == "done"]
        finished.sort(key=lambda upload: upload.created)
        for upload in finished[: max(0, len(self._uploads) - MAX_KEPT)]:
            shutil.rmtree(self._folder / upload.id, ignore_errors=True)
            del self._uploads[upload.id]

    def _write(self, upload: UploadFile) -> None:
        self._store(upload)
        self._uploads[upload.id] = upload

    def _store(self, upload: UploadFile) -> None:
        """Store the description of an upload. It is complete or absent, also after a kill. Raises StorageError."""
        folder = self._folder / upload.id
        try:
            content = upload.model_dump_json().encode()
            replace_file(folder / _DESCRIPTION, folder / f"{_DESCRIPTION}.new", [content])
        except OSError as error:
            raise StorageError(f"the upload cannot be stored: {error.strerror}") from None


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True)
    except OSError as error:
        raise StorageError(f"the upload cannot be stored: {error.strerror}") from None
