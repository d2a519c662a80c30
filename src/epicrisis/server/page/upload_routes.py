"""The pages of uploads: the form on the page of a library sends files, and each upload has a page with its progress."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from urllib.parse import quote

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from epicrisis.core.printable import count_noun, format_seconds, printable
from epicrisis.corpus.readers import list_suffixes
from epicrisis.server.errors import NotFound
from epicrisis.server.page.library_view import format_bytes
from epicrisis.server.page.live import frame
from epicrisis.server.page.page_route import is_part
from epicrisis.server.page.rendering import html_response, render
from epicrisis.server.shelves import may_maintain
from epicrisis.server.streaming import EventStream, keep_alive
from epicrisis.server.upload_api import follow_upload
from epicrisis.server.upload_import import describe_result
from epicrisis.server.uploads import Uploads, UploadStatus
from epicrisis.server.users import Caller, CurrentCaller

SHOWN_UPLOADS = 10
_STATES = {
    "waiting": "waiting for its turn",
    "running": "being added",
    "done": "added",
    "cancelled": "not imported completely: cancelled",
    "stopped": "not imported completely: stopped by an error",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadView:
    """An upload on the page. All texts are printable."""

    href: str
    label: str
    created: str
    state: str
    is_active: bool
    can_resume: bool
    progress: str
    share: int
    """Of the files read, 0 to 100."""
    summary: str
    problem: str
    reasons: tuple[str, ...]
    remarks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class UploadForm:
    """The form for an upload, and the latest uploads to the library."""

    limits: str
    accept: str
    """Endings of files, for the dialog of the browser."""
    uploads: tuple[UploadView, ...]


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
        page = render("upload", upload=view_upload(status), library=printable(name), page="libraries")
        return html_response(page)

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


def build_upload_form(uploads: Uploads | None, name: str, caller: Caller) -> UploadForm | None:
    """Return the form for a library, or None if the server or the role allows no upload."""
    if uploads is None or not may_maintain(caller):
        return None
    limits = uploads.limits
    sizes = f"Up to {limits.files:,} files of {format_bytes(limits.file_bytes)} each, "
    sizes += f"{format_bytes(limits.upload_bytes)} in all."
    listed = uploads.list_uploads(caller, name)[:SHOWN_UPLOADS]
    return UploadForm(sizes, ",".join(list_suffixes()), tuple(map(view_upload, listed)))


def view_upload(status: UploadStatus) -> UploadView:
    """Return the view of an upload."""
    names = ", ".join(status.files[:3]) + (f" and {len(status.files) - 3:,} more" if len(status.files) > 3 else "")
    progress, share = "", 0
    if status.progress is not None:
        counts = status.progress
        share = round(100 * counts.files_read / max(1, counts.files))
        progress = (
            f"File {min(counts.files_read + 1, counts.files):,} of {counts.files:,}: {counts.file}. "
            f"{count_noun(counts.documents, 'document')} read, {counts.saved:,} saved, {counts.skipped:,} skipped, "
            f"{count_noun(counts.passages, 'passage')}, {counts.passages_per_second:,.0f} per second"
            f"{'' if counts.seconds_left is None else f', {format_seconds(counts.seconds_left)} left'}"
        )
    result = status.result
    reasons: list[str] = []
    for skipped in result.reasons if result is not None else ():
        others = f" and {skipped.count - len(skipped.names):,} more" if skipped.count > len(skipped.names) else ""
        reasons.append(f"{', '.join(skipped.names)}{others}: {skipped.reason}")
    if result is not None and result.more_skipped:
        reasons.append(f"{result.more_skipped:,} more were skipped, whose reasons were not kept")
    return UploadView(
        href=_address(status),
        label=printable(names),
        created=status.created.replace("T", " ").removesuffix("+00:00") + " UTC",
        state=_STATES[status.state],
        is_active=status.state in ("waiting", "running"),
        can_resume=status.state in ("cancelled", "stopped"),
        progress=printable(progress),
        share=share,
        summary="" if result is None else describe_result(result),
        problem=printable(status.problem or ""),
        reasons=tuple(map(printable, reasons)),
        remarks=() if result is None else tuple(map(printable, result.remarks)),
    )


def _find(uploads: Uploads, name: str, upload_id: str, caller: Caller) -> UploadStatus:
    status = uploads.status(upload_id, caller)
    if status.library != name:
        raise NotFound("the library has no such upload")
    return status


def _address(status: UploadStatus) -> str:
    return f"/libraries/{quote(status.library, safe='')}/uploads/{status.id}"


async def _stream(uploads: Uploads, id_: str, caller: Caller) -> AsyncGenerator[bytes, None]:
    async for status in follow_upload(uploads, id_, caller):
        yield frame(render("upload_state", upload=view_upload(status)))
