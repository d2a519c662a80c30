"""Spreadsheets (.xlsx): the rows of the first sheet as text. Read them through `sandbox`: a small file may hold a
sheet of any size."""

from __future__ import annotations

from pathlib import Path

LARGEST = 64 * 1024 * 1024
"""Bytes of a file."""


def rows(path: Path) -> list[list[str]]:
    """Return the cells of each row. Raises ValueError with the reason."""
    from python_calamine import CalamineError, CalamineWorkbook

    try:
        if path.stat().st_size > LARGEST:
            raise ValueError(f"larger than {LARGEST // 2**20} MB")
        sheet = CalamineWorkbook.from_path(path).get_sheet_by_index(0)
        return [[str(cell) for cell in row] for row in sheet.to_python()]
    except (CalamineError, OSError, IndexError) as error:
        raise ValueError("not a sheet (.xlsx) that can be read") from error
