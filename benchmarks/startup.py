"""Measure the CPU seconds of commands from start to exit, each in a process of its own, on a library of the demo.

    python benchmarks/startup.py
    python benchmarks/startup.py --runs 15

The least of several runs is shown, since other work on the machine only adds to it, and its ratio to the import of
numpy and pydantic alone, which depends less on the machine. `ask` calls a real HTTP server on loopback that answers at
once. The first run of all is not counted: it may write the compiled modules, as the first start after an installation.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

from ask_latency import PARTS, QUESTION, ROOT, DelayedEndpoint, make_environment

COMPARISON = (sys.executable, "-c", "import numpy, pydantic.main, pydantic.fields")


def measure_cpu(command: Sequence[str], environment: dict[str, str], runs: int) -> float:
    """Return the least CPU seconds of the command, user and system time."""
    seconds: list[float] = []
    for _ in range(runs + 1):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(seconds[1:])


def main() -> None:
    """Measure the commands and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=9)
    options = parser.parse_args()
    program = (sys.executable, "-m", "epicrisis")
    with tempfile.TemporaryDirectory() as name, DelayedEndpoint(0.0) as endpoint:
        threading.Thread(target=endpoint.serve_forever, daemon=True).start()
        library, environment = str(Path(name) / "demo"), make_environment(Path(name) / "home")
        add = (*program, "library", "add", library, str(ROOT / "demo/documents.jsonl"))
        subprocess.run(add, check=True, stdout=subprocess.DEVNULL, env=environment)
        model = ("--model", f"http://127.0.0.1:{endpoint.server_port}/v1#scripted", "--setting", "cache.mode=off")
        parts = ("--strategy", "brief-context", "-k", str(2 * PARTS), "--setting", "partition=2")
        commands = {
            "--help": ("--help",),
            "library info": ("library", "info", library),
            "search --by bm25": ("search", library, QUESTION, "--by", "bm25"),
            "search": ("search", library, QUESTION),
            "ask": ("ask", library, QUESTION),
            "ask --strategy rag --model URL": ("ask", library, QUESTION, "--strategy", "rag", *model),
            f"ask, BriefContext in {PARTS} parts": (
                *("ask", library, QUESTION, *parts, "--setting", "preflight.enabled=false", *model),
            ),
        }
        unit = measure_cpu(COMPARISON, environment, options.runs)
        print(f"numpy and pydantic alone: {unit:.2f} s of CPU; the least of {options.runs} runs\n")
        print("| command | CPU seconds | times numpy and pydantic |\n|---|---|---|")
        for title, arguments in commands.items():
            seconds = measure_cpu((*program, *arguments), environment, options.runs)
            print(f"| `{title}` | {seconds:.2f} | {seconds / unit:.1f} |", flush=True)
        endpoint.shutdown()


if __name__ == "__main__":
    main()
