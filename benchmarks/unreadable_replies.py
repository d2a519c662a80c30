"""BriefContext against RAG when a share of the replies is prose without an answer: printed and true difference.

    PYTHONPATH=. python benchmarks/unreadable_replies.py 0.3 20
    PYTHONPATH=. python benchmarks/unreadable_replies.py 0.05 40

The arguments are the share of prompts whose replies are prose (the second draw too), and the number of questions, each
asked with the key document at five places. The command is `experiment positions -k 16` with the position-biased reader
of `epicrisis.testing` on loopback, over generated abstracts.

The printed figures are those of the tables. The true ones are counted from the records: right answers of all cases.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from epicrisis.core.protocols import ChatRequest, Message
from epicrisis.evaluation.analysis.statistics import Difference, Mean
from epicrisis.evaluation.experiments.positions import AVERAGED_BASELINE
from epicrisis.evaluation.experiments.run_findings import read_findings
from epicrisis.evaluation.runs.run_folder import RECORDS
from epicrisis.pipeline.recording.answer_record import read_records
from tests.support.hostile import HostileServer
from tests.support.position_biased_reader import KeyPassage, hash_to_unit_interval, position_biased_reader, u_curve

ABSTRACTS = 60
DISEASES = ("gout", "asthma", "anaemia", "migraine", "psoriasis")
OPTIONS = {"A": "yes", "B": "no", "C": "maybe"}
FINDINGS = (
    "fewer attacks than placebo over twelve months",
    "as many attacks as placebo over twelve months",
    "fewer attacks in one of two centres",
)
PROSE = "Thank you for these documents. They describe several trials of good quality."
SETTINGS = (
    "cache.mode=off",
    "models.writer.context_tokens=100000",
    "citing=quotes",
    "unverified=keep",
    "describe_sources=false",
)
"""The prompts that quote, so that the figures of every version of the program come from the same prompts."""


def write_lines(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """Write JSON lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def describe_trial(number: int) -> str:
    """Return the text of a generated abstract."""
    disease = DISEASES[number % len(DISEASES)]
    return f"In trial {number}, drug {number}x was given to patients with {disease}. It led to {FINDINGS[number % 3]}."


def make_question(number: int) -> dict[str, Any]:
    """Return the question that this abstract answers."""
    disease = DISEASES[number % len(DISEASES)]
    return {
        "id": f"q-{number}",
        "text": f"Does drug {number}x help patients with {disease}, as trial {number} found?",
        "options": OPTIONS,
        "gold": "ABC"[number % 3],
        "gold_documents": [f"trial-{number}"],
    }


def main() -> None:
    """Run the experiment and print one row of the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("share", type=float)
    parser.add_argument("questions", type=int)
    arguments = parser.parse_args()
    questions = [make_question(number) for number in range(arguments.questions)]
    keys = {
        str(question["text"]): KeyPassage(describe_trial(number), str(question["gold"]))
        for number, question in enumerate(questions)
    }
    reader = position_biased_reader(keys, u_curve())
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(1) as thread:

        def reply(body: dict[str, Any]) -> str:
            messages = tuple(Message(message["role"], message["content"]) for message in body["messages"])
            if hash_to_unit_interval("prose", messages[-1].content) < arguments.share:
                return PROSE
            schema = body.get("response_format", {}).get("json_schema", {}).get("schema")
            request = ChatRequest(
                messages, max_tokens=body.get("max_tokens") or 512, seed=body.get("seed") or 0, schema=schema
            )
            # The loop of the server runs in this thread.
            return thread.submit(asyncio.run, reader.complete(request)).result().text

        library, run = Path(folder) / "library", Path(folder) / "run"
        trials = [{"id": f"trial-{number}", "text": describe_trial(number)} for number in range(ABSTRACTS)]
        epicrisis("library", "add", library, write_lines(Path(folder) / "papers.jsonl", trials))
        with HostileServer(reply) as server:
            command: list[object] = ["experiment", "positions", "--library", library, "-o", run, "-k", 16]
            command += ["--set", write_lines(Path(folder) / "questions.jsonl", questions), "-n", len(questions)]
            command += ["--arm", "rag", "--arm", "brief-context", "--model", f"{server.url}#reader", "--yes"]
            for setting in SETTINGS:
                command += ["--setting", setting]
            epicrisis(*command)
        print_row(run)


def epicrisis(*arguments: object) -> None:
    """Run a command of the program without its output. Raises CalledProcessError unless all or some cases ended."""
    command = [sys.executable, "-m", "epicrisis", *map(str, arguments)]
    result = subprocess.run(command, check=False, stdout=subprocess.DEVNULL)
    # 2: some cases failed, and the run holds the others.
    if result.returncode not in (0, 2):
        raise subprocess.CalledProcessError(result.returncode, command)


def print_row(run: Path) -> None:
    """Print the figures of the averages over the places, and those counted from the records."""
    right: Counter[str] = Counter()
    cases: Counter[str] = Counter()
    states: dict[str, Counter[str]] = {}
    for record in read_records(run / RECORDS):
        arm = str(record.condition["arm"])
        cases[arm] += 1
        right[arm] += record.answer.state == "answered" and record.answer.choice == record.answer.question.gold
        states.setdefault(arm, Counter())[record.answer.state] += 1
    shares = {arm: 100 * right[arm] / n for arm, n in cases.items()}
    findings = read_findings([run])[0]
    table = next(table for table in findings.tables if table.title == "Accuracy averaged over the places")
    printed: dict[str, Mean] = {}
    difference: Difference | None = None
    for row in table.rows:
        cells = dict(zip(table.columns, row, strict=True))
        mean = cells["share right"]
        if isinstance(mean, Mean):
            printed[str(cells["arm"])] = mean
        if isinstance(cell := cells[f"difference to {AVERAGED_BASELINE}"], Difference):
            difference = cell
    assert difference is not None
    print("| cases an arm | RAG right | BriefContext right of all | printed | printed difference | true difference |")
    print(
        f"| {cases['rag']} | {shares['rag']:.1f} % | {shares['brief-context']:.1f} % | "
        f"{100 * printed['brief-context'].value:.1f} % ({printed['brief-context'].unscored} dropped) | "
        f"{100 * difference.value:+.1f} | {shares['brief-context'] - shares['rag']:+.1f} |"
    )
    for arm, counts in states.items():
        print(f"{arm}: {dict(counts)}")


if __name__ == "__main__":
    main()
