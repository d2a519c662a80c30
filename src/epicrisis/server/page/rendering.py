"""Render the templates of the page, and the headers that every page has."""

from __future__ import annotations

from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Any

from starlette.responses import HTMLResponse

from epicrisis.report.templates import build_environment
from epicrisis.server.page.evidence_map import STATEMENT_LABELS
from epicrisis.server.page.menu import ALWAYS, Menu
from epicrisis.server.page.plain_words import leave_out_command
from epicrisis.server.page.static_files import static_address
from epicrisis.server.users import LOCAL, Caller

if TYPE_CHECKING:
    from jinja2 import Environment

HEADERS = {"Cache-Control": "no-store", "Vary": "HX-Request"}
"""Pages with answers are kept by no cache. `guards.SECURITY_HEADERS` has the content security policy."""


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
    environment.filters["plain"] = leave_out_command
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


def list_menu() -> tuple[tuple[str, str, str], ...]:
    """Return address, words and name of each page that the menu names."""
    menu = MENU.get()
    return ALWAYS if menu is None else menu.list_items()


def html_response(text: str, status: int = 200) -> HTMLResponse:
    """Return the response of a page or of a part of one."""
    return HTMLResponse(text, status_code=status, headers=HEADERS)
