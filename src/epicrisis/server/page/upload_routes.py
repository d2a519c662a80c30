"""The pages of uploads: the form on the page of a library sends files, and each upload has a page with its progress."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from epicrisis.corpus.readers.sources import list_suffixes
from epicrisis.server.api.upload_api import follow_upload
from epicrisis.server.base.http_errors import NotFound
from epicrisis.server.base.users import Caller, CurrentCaller
from epicrisis.server.libraries.shelves import may_maintain
from epicrisis.server.libraries.streaming import EventStream, keep_alive
from epicrisis.server.page.library_view import format_bytes
from epicrisis.server.page.live import frame
from epicrisis.server.page.page_route import is_part
from epicrisis.server.page.rendering import html_response, render
from epicrisis.server.work.uploads import Uploads, UploadStatus

SHOWN_UPLOADS = 10


def add_upload_pages(router: APIRouter, uploads: Uploads) -> None:
    """Add the routes that receive files from the form, and show, stream and change an upload."""

    @router.post("/libraries/{name}/uploads")
    async def submit(name: str, request: Request, caller: CurrentCaller) -> Response:
        status = await uploads.submit(request, name, caller)
        return RedirectResponse(_address(status), status_code=303)

    @router.get("/libraries/{name}/uploads/{upload_id}")
    async def upload(name: str, upload_id: str, request: Request, caller: CurrentCaller) -> Response:
        status = _find(uploads, name, upload_id, caller)
        if is_part(request):
            return EventStream(keep_alive(_stream(uploads, upload_id, caller)))
        return html_response(render("upload", upload=status, library=name, page="libraries"))

    @router.post("/libraries/{name}/uploads/{upload_id}/cancel")
    async def cancel(name: str, upload_id: str, caller: CurrentCaller) -> Response:
        _find(uploads, name, upload_id, caller)
        return RedirectResponse(_address(await uploads.cancel(upload_id, caller)), status_code=303)

    @router.post("/libraries/{name}/uploads/{upload_id}/resume")
    async def resume(name: str, upload_id: str, caller: CurrentCaller) -> Response:
        _find(uploads, name, upload_id, caller)
        return RedirectResponse(_address(await uploads.resume(upload_id, caller)), status_code=303)

    @router.post("/libraries/{name}/uploads/{upload_id}/delete")
    async def remove(name: str, upload_id: str, caller: CurrentCaller) -> Response:
        _find(uploads, name, upload_id, caller)
        await uploads.remove(upload_id, caller)
        return RedirectResponse(f"/libraries/{quote(name)}#add", status_code=303)


def build_upload_form(uploads: Uploads | None, name: str, caller: Caller) -> dict[str, Any] | None:
    """Return what the form for a library shows, or None if the server or the role allows no upload."""
    if uploads is None or not may_maintain(caller):
        return None
    limits = uploads.limits
    sizes = f"Up to {limits.files:,} files of {format_bytes(limits.file_bytes)} each, "
    sizes += f"{format_bytes(limits.upload_bytes)} in all."
    listed = uploads.list_uploads(caller, name)[:SHOWN_UPLOADS]
    return {"limits": sizes, "accept": ",".join(list_suffixes()), "uploads": listed}


def _find(uploads: Uploads, name: str, upload_id: str, caller: Caller) -> UploadStatus:
    status = uploads.status(upload_id, caller)
    if status.library != name:
        raise NotFound("the library has no such upload")
    return status


def _address(status: UploadStatus) -> str:
    return f"/libraries/{quote(status.library, safe='')}/uploads/{status.id}"


async def _stream(uploads: Uploads, id_: str, caller: Caller) -> AsyncGenerator[bytes, None]:
    async for status in follow_upload(uploads, id_, caller):
        yield frame(render("upload_state", upload=status))
