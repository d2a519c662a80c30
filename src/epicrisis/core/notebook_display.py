"""How values show themselves in a notebook: as HTML or Markdown, drawn by `epicrisis.report.notebook`.

The drawing lies above the values, so it is found by name, at the moment when a notebook asks for it.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_DRAWING = "epicrisis.report.notebook"


class NotebookDisplay:
    """Draws itself in notebooks. IPython calls these methods."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return _drawing().draw_html(self)  # type: ignore[no-any-return]

    def _repr_markdown_(self) -> str:
        return _drawing().draw_markdown(self)  # type: ignore[no-any-return]


def _drawing() -> Any:
    return import_module(_DRAWING)
