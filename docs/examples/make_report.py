"""Make `positions.html`: the report of a run of `positions` with the position-biased reader on generated documents.

    PYTHONPATH=. python docs/examples/make_report.py docs/examples/positions.html

The reader is served on loopback, so that every command is the one a user types. The models needed are those of
`epicrisis models pull minilm`.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from epicrisis.core.protocols import ChatRequest, Message
from tests.support.hostile import HostileServer
from tests.support.position_biased_reader import KeyPassage, position_biased_reader, u_curve

QUESTIONS = 60
DISEASES = ("gout", "asthma", "anaemia", "migraine", "psoriasis")
OPTIONS = {"A": "yes", "B": "no", "C": "maybe"}
FINDINGS = {
    "A": "fewer attacks than placebo over twelve months",
    "B": "as many attacks as placebo over twelve months",
    "C": "fewer attacks in one of two centres",
}


def gold(number: int) -> str:
    """Return the letter of the right answer."""
    return "ABC"[number % 3]


def disease(number: int) -> str:
    """Return the disease of a trial."""
    return DISEASES[number % len(DISEASES)]


def abstract(number: int) -> str:
    """Return the text of a generated abstract."""
    treatment = f"In trial {number}, drug {number}x was given to patients with {disease(number)}."
    return f"{treatment} It led to {FINDINGS[gold(number)]}."


def question(number: int) -> str:
    """Return the question that this abstract answers."""
    return f"Does drug {number}x help patients with {disease(number)}, as trial {number} found?"


def write_lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    """Write JSON lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def epicrisis(*arguments: object) -> None:
    """Run a command of the program."""
    subprocess.run([sys.executable, "-m", "epicrisis", *map(str, arguments)], check=True)


def main(report: Path) -> None:
    """Build the library, run the experiment, and write the report."""
    reader = position_biased_reader(
        {question(number): KeyPassage(abstract(number), gold(number)) for number in range(QUESTIONS)}, u_curve()
    )
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(1) as thread:
        library, run = Path(folder) / "library", Path(folder) / "positions"
        papers = [{"id": f"trial-{number}", "text": abstract(number)} for number in range(QUESTIONS)]
        epicrisis("library", "add", library, write_lines(Path(folder) / "papers.jsonl", papers))
        questions = [
            {
                "id": f"q-{number}",
                "text": question(number),
                "options": OPTIONS,
                "gold": gold(number),
                "gold_documents": [f"trial-{number}"],
            }
            for number in range(QUESTIONS)
        ]
        path = write_lines(Path(folder) / "questions.jsonl", questions)

        def reply(body: dict[str, Any]) -> str:
            request = ChatRequest(
                tuple(Message(message["role"], message["content"]) for message in body["messages"]),
                max_tokens=body.get("max_tokens") or 512,
                seed=body.get("seed") or 0,
                schema=body.get("response_format", {}).get("json_schema", {}).get("schema"),
            )
            # The loop of the server runs in this thread.
            return thread.submit(asyncio.run, reader.complete(request)).result().text

        with HostileServer(reply) as server:
            experiment: list[object] = ["experiment", "positions", "--library", library, "--set", path, "-o", run]
            experiment += ["-n", QUESTIONS, "-k", 16, "--model", f"{server.url}#position-biased-reader", "--yes"]
            for arm in ("rag", "brief-context", "oracle", "closed-book"):
                experiment += ["--arm", arm]
            for setting in ("cache.mode=off", "models.writer.context_tokens=100000"):
                experiment += ["--setting", setting]
            epicrisis(*experiment)
        epicrisis("report", run, "-o", report, "--no-plots", "--title", "Positions: the position-biased reader")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
