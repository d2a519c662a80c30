"""How values show themselves in Python: in a notebook, printed, as a table or as a file.

`epicrisis.report.displays`, which draws, lies above the values, so it is found by name when it is needed.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_DISPLAYS = "epicrisis.report.displays"


class NotebookDisplay:
    """Draws itself in notebooks. IPython calls these methods."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return load_displays().draw_html(self)  # type: ignore[no-any-return]

    def _repr_markdown_(self) -> str:
        return load_displays().draw_markdown(self)  # type: ignore[no-any-return]


def load_displays() -> Any:
    """Return the module that draws."""
    return import_module(_DISPLAYS)
