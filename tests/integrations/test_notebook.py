"""The Python API in IPython, where an event loop may already run."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from epicrisis import Library

pytestmark = pytest.mark.integrations

try:
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.utils.capture import capture_output
except ImportError:
    # Skipped, saying so: tests/conftest.py.
    pass


def run_cells(*cells: str) -> tuple[list[Any], str]:
    """Return the results of the cells, run as a notebook does: within a running event loop. And what was printed."""
    shell = InteractiveShell.instance()

    async def run() -> list[Any]:
        results = []
        for cell in cells:
            results.append((await shell.run_cell_async(cell, transformed_cell=cell)).result)
        return results

    with capture_output() as captured:
        results = asyncio.run(run())
    return results, captured.stdout


def test_notebook_draws_answer_and_hits(library: Library) -> None:
    open_library = (
        "import epicrisis\n"
        "from epicrisis.testing.hashing_encoder import HashingEncoder\n"
        f"library = epicrisis.Library.open({str(library.path)!r}, encoder=HashingEncoder(64))"
    )
    ask = "library.ask('Does aspirin prevent pre-eclampsia?')"
    results, _ = run_cells(open_library, ask, "await library.asearch('zinc', k=1)", "library.close()")
    draw = InteractiveShell.instance().display_formatter.format
    for value in results[1:3]:
        data, _ = draw(value)
        assert {"text/plain", "text/html", "text/markdown"} <= data.keys()
        assert len(data["text/plain"].splitlines()) == 1
        assert "<script" not in data["text/html"]
    assert "Aspirin lowers the risk of preterm pre-eclampsia." in draw(results[1])[0]["text/html"]


def test_error_in_notebook_is_one_line(tmp_path: Path) -> None:
    _, printed = run_cells(f"import epicrisis\nepicrisis.Library.open({str(tmp_path / 'nowhere')!r})")
    assert printed.startswith("LibraryMissing: no library at ")
    assert "Traceback" not in printed
    assert len(printed.strip().splitlines()) == 1
