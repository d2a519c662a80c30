"""The template environment of every HTML page: texts are escaped and made printable, missing names are errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from epicrisis.core.printable import printable

if TYPE_CHECKING:
    from jinja2 import BaseLoader, Environment


def build_environment(loader: BaseLoader | None = None) -> Environment:
    """Return an environment that escapes every text and replaces characters for reordering and hiding.

    Markup that a template made is not a plain `str` and stays as it is.
    """
    from jinja2 import Environment, StrictUndefined

    return Environment(
        loader=loader,
        undefined=StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: printable(value, lines=True) if type(value) is str else value,
    )
