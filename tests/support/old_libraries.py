"""Write `tests/library/libraries-0.1.0.tar.xz`: libraries as an earlier version of the program left them.

    git worktree add ../epicrisis-0.1.0 ef9ca967
    python -m tests.support.old_libraries ../epicrisis-0.1.0

They are kept as files, since tests must read what was written then, also where the history is not at hand.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

ARCHIVE = Path(__file__).parents[1] / "library" / "libraries-0.1.0.tar.xz"
PAPERS: tuple[Mapping[str, object], ...] = (
    {"id": "a", "title": "Aspirin", "text": "Aspirin lowers the risk of preterm pre-eclampsia.", "date": "2017"},
    {"id": "b", "title": "Statins", "text": "Simvastatin lowers mortality in coronary disease.", "date": "1994"},
    {"id": "c", "title": "Zinc", "text": "Zinc shortens acute diarrhoea in children.", "date": "2002-05"},
    {"id": "d", "title": "Old", "text": "This paper was deleted.", "date": "1990"},
)
REPLACED: tuple[Mapping[str, object], ...] = (
    {"id": "c", "title": "Zinc", "text": "Zinc shortens acute and persistent diarrhoea.", "date": "2003"},
)
NOTES: tuple[Mapping[str, object], ...] = (
    {"id": "n1", "patient": "7", "text": "Admitted with chest pain. Aspirin was given.", "date": "2019-03-01"},
    {"id": "n2", "patient": "8", "text": "Seen for asthma. Salbutamol was prescribed.", "date": "2020-03-01"},
)


def unpack(folder: Path) -> Path:
    """Unpack the libraries `papers` and `ward` into a folder, and return it."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder


def make_libraries(checkout: Path) -> None:
    """Build the libraries with the program of an old checkout, and write the archive."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for stem, rows in (("papers", PAPERS), ("replaced", REPLACED), ("notes", NOTES)):
            lines = [json.dumps(row) + "\n" for row in rows]
            (folder / f"{stem}.jsonl").write_text("".join(lines), encoding="utf-8")
        _run(checkout, folder, "add", "papers", "papers.jsonl")
        _run(checkout, folder, "add", "papers", "replaced.jsonl", "--replace")
        _run(checkout, folder, "delete", "papers", "d")
        _run(checkout, folder, "add", "ward", "notes.jsonl")
        with tarfile.open(ARCHIVE, "w:xz") as archive:
            for library in ("papers", "ward"):
                archive.add(folder / library, library)


def _run(checkout: Path, folder: Path, action: str, library: str, *arguments: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(checkout.resolve() / "src")}
    command: Sequence[str] = [sys.executable, "-m", "epicrisis", "library", action, library, *arguments]
    subprocess.run(command, cwd=folder, env=environment, check=True)


if __name__ == "__main__":
    make_libraries(Path(sys.argv[1]))
