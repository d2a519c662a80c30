"""The routes of uploads: `epicrisis library add` over HTTP, for servers that were started with `--upload`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from starlette.responses import Response

from epicrisis.core.serialization import to_json
from epicrisis.server.api.library_api import Name
from epicrisis.server.api.question_api import PREFIX
from epicrisis.server.base.users import Caller, CurrentCaller
from epicrisis.server.libraries.streaming import EventStream, format_event, keep_alive
from epicrisis.server.work.uploads import Uploads, UploadStatus

POLL_SECONDS = 0.3
UploadId = Annotated[str, Path(pattern="^[0-9a-f]{32}$", description="Id of an upload.")]
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["files"],
                    "properties": {
                        "files": {"type": "array", "items": {"type": "string", "format": "binary"}},
                        "replace": {
                            "type": "string",
                            "enum": ["true", "false"],
                            "description": "Replace documents of the same id from other files.",
                        },
                    },
                }
            }
        },
    }
}

_EVENTS_RESPONSE: dict[str, Any] = {
    "description": "Events `status`, the last one when the import has ended.",
    "content": {"text/event-stream": {"schema": {"type": "string"}}},
}


def make_upload_routes(uploads: Uploads) -> APIRouter:
    """Return the routes of uploads. They need the role administrator, if the server has users."""
    router = APIRouter(prefix=PREFIX, tags=["Uploads"])

    @router.post(
        "/libraries/{library}/documents", status_code=202, summary="Add files to a library", openapi_extra=_BODY
    )
    async def submit(library: Name, request: Request, caller: CurrentCaller) -> UploadStatus:
        """Receive files, and add their documents in the background. The status tells when they are in the library."""
        return await uploads.submit(request, library, caller)

    @router.get("/uploads", summary="List the uploads")
    async def list_uploads(caller: CurrentCaller) -> list[UploadStatus]:
        """Return the uploads, the newest first."""
        return uploads.list_uploads(caller)

    @router.get("/uploads/{id}", summary="Show the progress of an upload")
    async def status(id: UploadId, caller: CurrentCaller) -> UploadStatus:
        """Return the state of an upload, and what was skipped, with the reason and the cure."""
        return uploads.status(id, caller)

    @router.get(
        "/uploads/{id}/events",
        summary="Follow the progress of an upload",
        response_class=Response,
        responses={200: _EVENTS_RESPONSE},
    )
    async def follow(id: UploadId, caller: CurrentCaller) -> Response:
        """Return the status as server-sent events `status`, until the import has ended."""
        uploads.status(id, caller)
        return EventStream(keep_alive(_stream(uploads, id, caller)))

    @router.post("/uploads/{id}/cancel", summary="Cancel an upload")
    async def cancel(id: UploadId, caller: CurrentCaller) -> UploadStatus:
        """Stop the import. Documents that were added stay in the library."""
        return await uploads.cancel(id, caller)

    @router.post("/uploads/{id}/resume", summary="Resume an upload")
    async def resume(id: UploadId, caller: CurrentCaller) -> UploadStatus:
        """Continue a cancelled or stopped import."""
        return await uploads.resume(id, caller)

    @router.delete("/uploads/{id}", status_code=204, summary="Delete an upload")
    async def remove(id: UploadId, caller: CurrentCaller) -> Response:
        """Stop the import, and delete the files of the upload. Documents that were added stay in the library."""
        await uploads.remove(id, caller)
        return Response(status_code=204)

    return router


async def follow_upload(uploads: Uploads, id_: str, caller: Caller) -> AsyncGenerator[UploadStatus, None]:
    """Yield the status of an upload whenever it changes, the last one when the import has ended."""
    shown = None
    while True:
        status = uploads.status(id_, caller)
        if status != shown:
            shown = status
            yield status
        if status.state not in ("waiting", "running"):
            return
        await asyncio.sleep(POLL_SECONDS)


async def _stream(uploads: Uploads, id_: str, caller: Caller) -> AsyncGenerator[bytes, None]:
    async for status in follow_upload(uploads, id_, caller):
        yield format_event("status", to_json(status.model_dump(mode="json")))
