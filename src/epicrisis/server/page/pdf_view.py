"""Show the pages of PDF files, with boxes around cited words.

    viewer = PdfViewer()
    view = await viewer.add_pages(view, library, passages, highlight, "/answers/ID/documents/0")

Files are those that the library recorded when it read them, and are used only while their hash is the recorded one. A
process of its own draws one page at a time, with limits on time and memory (`corpus.sandbox`).
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import ParamSpec, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from epicrisis.core.references import list_page_starts
from epicrisis.core.types import Origin, Passage
from epicrisis.corpus import sandbox
from epicrisis.corpus.documents.pdf_pages import PageWords, fold_letters
from epicrisis.library.core.checked_store import CheckedStore
from epicrisis.server.base.http_errors import NotFound, ServerBusy
from epicrisis.server.libraries.reading import offload
from epicrisis.server.libraries.resources import OpenLibrary
from epicrisis.server.page.document_view import DocumentView, Highlight, read_span

P = ParamSpec("P")
T = TypeVar("T")

MAX_SHEETS = 3
"""Pages that are shown of one place. A sentence has one or two."""
MAX_PAGES = 40
"""Pages of a document that is opened to read."""
MAX_WAITING = 32
"""Requests for pages that wait for their turn. More are refused."""
RETRY_SECONDS = 5
MAX_IMAGE_BYTES = 64 * 1024 * 1024
"""Bytes of images kept in memory. The one used least recently is forgotten first."""
IMAGE_HEADERS = {"Cache-Control": "private, no-cache"}
"""A browser may keep an image, but asks before each use, so that access is checked and logged each time."""
_UNKNOWN_FILE = "the library does not know its file; add the file again"


@dataclass(frozen=True, slots=True)
class PageImage:
    """A page of a PDF file as PNG."""

    content: bytes
    tag: str
    """Names the file's content and the page, so that a browser need not load the same image again."""


class PdfViewer:
    """Draws pages of PDF files for all requests of the server."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="pdf-pages")
        self._waiting = 0
        self._images: OrderedDict[str, bytes] = OrderedDict()

    async def add_pages(
        self,
        view: DocumentView,
        library: OpenLibrary,
        passages: Sequence[Passage],
        highlight: Highlight,
        address: str,
    ) -> DocumentView:
        """Return the view with the pages of the highlight, or with a remark why they cannot be shown.

        `passages` are all of the document. Its pages are below its `address`. A document
        without pages is returned as it is.
        """
        places = list_places(passages, highlight)
        if not places:
            return view
        try:
            origin = await find_file(library, passages[0].document_id)
            pages = await self._run(sandbox.find_words, Path(origin.path), origin.sha256, places[:MAX_SHEETS])
        except (ValueError, NotFound, ServerBusy) as error:
            return view.with_remark(f"The page of the PDF is not shown: {error}. Its text is below.")
        view = replace(view, sheets=pages, address=address)
        if len(places) > MAX_SHEETS:
            view = view.with_remark(f"The place goes on for {len(places) - MAX_SHEETS} more pages, not shown here.")
        return view

    async def add_all_pages(
        self, view: DocumentView, library: OpenLibrary, passages: Sequence[Passage], address: str
    ) -> DocumentView:
        """Return the view with all pages of its PDF file to read, or with a remark why they cannot be shown.

        The arguments are those of `add_pages`. A document without pages is returned as it is.
        """
        starts = list_page_starts(passages)
        if not starts or passages[0].patient is not None:
            return view
        last = max(page for _, page in starts)
        blank = [PageWords(page, "") for page in range(1, min(last, MAX_PAGES) + 1)]
        try:
            origin = await find_file(library, passages[0].document_id)
            pages = await self._run(sandbox.find_words, Path(origin.path), origin.sha256, blank)
        except (ValueError, NotFound, ServerBusy) as error:
            return view.with_remark(f"The pages of the PDF are not shown: {error}. The text is below.")
        view = replace(view, sheets=pages, address=address, is_reading=True)
        if last > MAX_PAGES:
            view = view.with_remark(f"The file has {last - MAX_PAGES:,} more pages. Their text is below.")
        return view

    async def draw(self, origin: Origin, page: int) -> PageImage:
        """Return the image of a page, from 1. Raises NotFound with the reason, and ServerBusy."""
        tag = f"{origin.sha256[:40]}-{page}"
        content = self._images.get(tag)
        if content is None:
            try:
                content = await self._run(sandbox.render_page, Path(origin.path), origin.sha256, page)
            except ValueError as error:
                raise NotFound(f"the page of the PDF is not shown: {error}") from None
            self._images[tag] = content
        self._images.move_to_end(tag)
        while len(self._images) > 1 and sum(map(len, self._images.values())) > MAX_IMAGE_BYTES:
            self._images.popitem(last=False)
        return PageImage(content, tag)

    async def _run(self, work: Callable[P, T], *arguments: P.args, **keywords: P.kwargs) -> T:
        """Return the result of work in the only thread for pages. Raises ServerBusy if too many requests wait."""
        if self._waiting >= MAX_WAITING:
            raise ServerBusy("many pages are being drawn; open it again in a moment", retry_after=RETRY_SECONDS)
        self._waiting += 1
        try:
            # Other work of the server has threads of its own, so slow files do not hold it up.
            future = self._thread.submit(work, *arguments, **keywords)
        except BaseException:
            self._waiting -= 1
            raise
        loop = asyncio.get_running_loop()
        future.add_done_callback(lambda _: loop.call_soon_threadsafe(self._leave))
        return await asyncio.wrap_future(future)

    def _leave(self) -> None:
        self._waiting -= 1


async def find_file(library: OpenLibrary, document_id: str) -> Origin:
    """Return the file of a document of literature. Raises NotFound if the library did not record it."""
    search = library.pipeline.search
    stores = () if search is None else (search.store, *search.literature)
    for store in stores:
        if isinstance(store, CheckedStore):
            continue
        origins = await offload(library.pipeline, store.origins, [document_id])
        origin = origins.get(document_id)
        if origin is not None and origin.sha256:
            return origin
    raise NotFound(_UNKNOWN_FILE)


def send_image(request: Request, image: PageImage) -> Response:
    """Return the response of an image, empty if the browser has it already."""
    headers = {**IMAGE_HEADERS, "ETag": f'"{image.tag}"'}
    if request.headers.get("If-None-Match") == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    return Response(image.content, media_type="image/png", headers=headers)


def list_places(passages: Sequence[Passage], highlight: Highlight) -> list[PageWords]:
    """Return the words of a highlight on each page of their PDF file. Empty for documents without pages, and notes."""
    ordered = sorted(passages, key=lambda passage: (passage.start, passage.end))
    starts = list_page_starts(ordered)
    if not starts or ordered[0].patient is not None:
        return []
    if highlight.in_title:
        return [PageWords(starts[0][1], ordered[0].title)]
    places: list[PageWords] = []
    for (start, page), (end, _) in pairwise([*starts, (inf, 0)]):
        first, last = max(start, highlight.span[0]), min(end, highlight.span[1])
        if first >= last:
            continue
        words = read_span(ordered, (int(first), int(last)))
        before = read_span(ordered, (int(start), int(first)))
        if words.strip():
            places.append(PageWords(page, words, len(fold_letters(before))))
    return places
