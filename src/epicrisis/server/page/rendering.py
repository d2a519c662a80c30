"""Render the templates of the page, and the headers that every page has."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import quote

from starlette.responses import HTMLResponse

from epicrisis.core.printable import count_noun, format_seconds
from epicrisis.core.prompts import MARK_LABELS
from epicrisis.core.references import name_document
from epicrisis.report.templates import build_environment
from epicrisis.server.base.users import LOCAL, Caller
from epicrisis.server.page.evidence_map import STATEMENT_LABELS
from epicrisis.server.page.plain_words import (
    format_moment,
    leave_out_command,
    leave_out_commands,
    make_sentence,
)
from epicrisis.server.page.static_files import static_address

if TYPE_CHECKING:
    from jinja2 import Environment

HEADERS = {"Cache-Control": "no-store", "Vary": "HX-Request"}
"""Pages with answers are kept by no cache. `guards.SECURITY_HEADERS` has the content security policy."""

MenuItem: TypeAlias = tuple[str, str, str]
"""Address, words and name of a page."""
ALWAYS: tuple[MenuItem, ...] = (
    ("/", "Ask", "ask"),
    ("/libraries", "Libraries", "libraries"),
    ("/history", "History", "history"),
)
_KEEP_SECONDS = 5.0


class Menu:
    """The menu of every page: only what has something to show."""

    def __init__(self, list_more: Callable[[], Sequence[MenuItem]] = tuple) -> None:
        """`list_more` returns the pages that stand before the history, if they have something to show."""
        self._list_more = list_more
        self._items = ALWAYS
        self._until = 0.0

    def list_items(self) -> tuple[MenuItem, ...]:
        """Return the items. Folders are looked at again after some seconds."""
        now = time.monotonic()
        if now >= self._until:
            self._items, self._until = (*ALWAYS[:2], *self._list_more(), *ALWAYS[2:]), now + _KEEP_SECONDS
        return self._items


CALLER: ContextVar[Caller | None] = ContextVar("caller", default=None)
"""The user whose request is answered. Every page names this user beside the sign-out."""

MENU: ContextVar[Menu | None] = ContextVar("menu", default=None)
"""The menu of the server whose page is rendered. None before the sign-in."""


@cache
def _environment() -> Environment:
    from jinja2 import PackageLoader

    environment = build_environment(PackageLoader("epicrisis.server.page", "templates"))
    environment.globals["static"] = static_address
    environment.globals["statements"] = STATEMENT_LABELS
    environment.globals["page"] = ""
    environment.globals["name_document"] = name_document
    environment.globals["mark_labels"] = MARK_LABELS
    environment.globals["document_address"] = find_document_address
    environment.filters["sentence"] = make_sentence
    environment.filters["moment"] = format_moment
    environment.filters["count"] = count_noun
    environment.filters["seconds"] = format_seconds
    environment.filters["plain"] = leave_out_command
    environment.filters["plain_lines"] = leave_out_commands
    environment.globals["account"] = find_account
    environment.globals["menu"] = list_menu
    return environment


def render(template: str, **values: Any) -> str:
    """Return a template as text. Every text in `values` is escaped and made printable."""
    return _environment().get_template(f"{template}.html.jinja").render(**values)


def find_account() -> Caller | None:
    """Return the user whose page is rendered, or None on a server without users and before the sign-in."""
    caller = CALLER.get()
    return None if caller is LOCAL else caller


def list_menu() -> tuple[MenuItem, ...]:
    """Return the pages that the menu names."""
    menu = MENU.get()
    return ALWAYS if menu is None else menu.list_items()


def find_document_address(library: str, document_id: str) -> str:
    """Return the address of a document of literature in its library."""
    return f"/libraries/{quote(library, safe='')}/documents/{quote(document_id, safe=':')}"


def html_response(text: str, status: int = 200) -> HTMLResponse:
    """Return the response of a page or of a part of one."""
    return HTMLResponse(text, status_code=status, headers=HEADERS)
