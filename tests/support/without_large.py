"""The program where the extra `large` is not installed. Run as a module: FOLDER of an empty directory.

Adds, searches, answers and serves with a library on disk, and prints what each step gave as JSON.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

BLOCKED = ("lancedb", "pyarrow", "lance_namespace")


class Blocker(PathFinder):
    """Finds everything but the extra's packages."""

    @classmethod
    def find_spec(cls, fullname: str, path: Any = None, target: Any = None) -> Any:
        return None if fullname.partition(".")[0] in BLOCKED else super().find_spec(fullname, path, target)


def run_commands(folder: Path) -> dict[str, str]:
    """Run commands of the program in this process. Return the output of each."""
    from typer.testing import CliRunner

    from epicrisis.cli.program import app

    papers = folder / "papers.jsonl"
    rows = [
        {"id": "a", "title": "Aspirin", "text": "Aspirin lowers the risk of preterm pre-eclampsia.", "date": "2017"},
        {"id": "b", "title": "Zinc", "text": "Zinc shortens acute diarrhoea in children.", "date": "2002-05"},
    ]
    papers.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    notes = folder / "notes.csv"
    notes.write_text("patient,time,text\nanna,2020-01-02,Fever and cough since Monday.\n", encoding="utf-8")
    library, ward = str(folder / "lib"), str(folder / "ward")
    columns = [f"--column={name}={name}" for name in ("patient", "time", "text")]
    outputs = {}
    for name, arguments in {
        "add": ["library", "add", library, str(papers)],
        "words": ["search", library, "aspirin", "--by", "bm25"],
        "hybrid": ["search", library, "diarrhoea of children"],
        "evidence": ["ask", library, "Does zinc shorten diarrhoea?"],
        "info": ["library", "info", library],
        "check": ["library", "check", library],
        "optimize": ["library", "optimize", library],
        "add notes": ["library", "add", ward, str(notes), *columns],
        "patients": ["library", "patients", ward],
        "delete": ["library", "delete", library, "a"],
    }.items():
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, (name, result.output, result.exception)
        outputs[name] = result.stdout
    return outputs


async def serve(folder: Path) -> str:
    """Answer a question with a scripted chat model over HTTP. Return the text of the answer."""
    from epicrisis.server.app import create_app
    from tests.support.servers import QUESTION, connect, open_library, open_resources

    app = create_app(open_resources(open_library(folder)))
    async with connect(app) as client:
        response = await client.post("/api/v1/ask", json={"question": QUESTION})
        assert response.status_code == 200, response.text
        return response.text


def main(folder: Path) -> None:
    sys.meta_path[:] = [Blocker if finder is PathFinder else finder for finder in sys.meta_path]
    assert all(importlib.util.find_spec(name) is None for name in BLOCKED)
    outputs = run_commands(folder)
    outputs["serve"] = asyncio.run(serve(folder / "served"))
    assert not set(BLOCKED) & {name.partition(".")[0] for name in sys.modules}
    sys.stdout.write(json.dumps(outputs))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
