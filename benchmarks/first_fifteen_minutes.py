"""The first fifteen minutes with epicrisis, paper-qa and llm: the same tasks, one after the other, on this machine.

    python benchmarks/rivals/endpoint.py qwen2.5-coder-0.5b --folder build/fifteen &
    PYTHONPATH=. python benchmarks/first_fifteen_minutes.py build/fifteen install
    PYTHONPATH=. python benchmarks/first_fifteen_minutes.py build/fifteen run
    PYTHONPATH=. python benchmarks/first_fifteen_minutes.py build/fifteen run llm search ask

`install` makes one environment for each program, by pip without its cache. `run` gives each program an empty home
folder and the folder of `rivals/mixed_folder.py`, and runs the commands of its own README in a terminal of 80 columns.
It prints steps (commands typed), seconds, seconds of CPU, calls to the endpoint and the exit code of each task, and
writes what the screen showed to `screens/PROGRAM-TASK.txt`. With recorded replies each call takes one second: run it
twice, and read the second.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rivals.mixed_folder import write_mixed_folder

ROOT = Path(__file__).parents[1]
URL = "http://127.0.0.1:8377/v1"
MODEL = "qwen2.5-coder-0.5b"
QUESTION = "Does aspirin lower the risk of preterm pre-eclampsia?"
SECOND = "Which antithrombotic dose was given, and until when?"
PACKAGES = {"epicrisis": [f"{ROOT}[office]"], "paper-qa": ["paper-qa[office]"], "llm": ["llm", "markitdown[pdf,docx]"]}
"""What reads the formats of the folder. llm itself reads text only."""

_CONTROL = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b\][^\x07]*\x07|\x1b[()][A-Z0-9]")


@dataclass(frozen=True, slots=True)
class Task:
    """A task: the commands that a user types, in bash. `stop_after` seconds it is interrupted by Ctrl-C."""

    name: str
    commands: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    stop_after: float | None = None


PQA = "pqa -s fast --embedding openai/text-embedding-3-small --agent.agent_type fake"
# `index .` would make another index than the one that `ask` looks for.
PQA_INDEX = f'{PQA} --llm openai/{MODEL} index "$PWD"'
PQA_ASK = f"{PQA} --llm openai/{MODEL} --summary_llm openai/{MODEL} ask"
LLM_CONFIG = f"""mkdir -p "$(dirname "$(llm logs path)")"
cat > "$(dirname "$(llm logs path)")/extra-openai-models.yaml" <<EOF
- model_id: local
  model_name: {MODEL}
  api_base: {URL}
EOF"""
LLM_ASK = (
    'llm similar papers -n 4 -p -c "{question}" | '
    'llm -m local -s "Answer from these excerpts only, and answer in one sentence: {question}"'
)
NO_NETWORK = {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1", "OPENAI_API_BASE": "http://127.0.0.1:9/v1"}
NO_KEY = {"OPENAI_API_KEY": "", "OPENAI_BASE_URL": "", "OPENAI_API_BASE": ""}

TASKS: Mapping[str, Sequence[Task]] = {
    "epicrisis": (
        Task("help", ["epicrisis"]),
        Task("set up", ["epicrisis models pull minilm"]),
        Task("interrupt", ["epicrisis library add ~/lib papers"], stop_after=2),
        Task("add", ["epicrisis library add ~/lib papers"]),
        Task("add again", ["epicrisis library add ~/lib papers"]),
        Task("list", ["epicrisis library list ~/lib"]),
        Task("search", ['epicrisis search ~/lib "aspirin pre-eclampsia" -k 3']),
        Task("ask without a chat model", [f'epicrisis ask ~/lib "{QUESTION}"']),
        Task("ask", [f'epicrisis ask ~/lib "{QUESTION}" --model {URL}#{MODEL}']),
        Task("second question", [f'epicrisis ask ~/lib "{SECOND}" --model {URL}#{MODEL}']),
        Task("wrong model", [f'epicrisis ask ~/lib "{QUESTION}" --model {URL}#qwen9']),
        Task("unknown model", [f'epicrisis ask ~/lib "{QUESTION}" --model llama9']),
        Task("no server", [f'epicrisis ask ~/lib "{QUESTION}" --model http://127.0.0.1:9/v1#qwen']),
        Task("no key", [f'epicrisis ask ~/lib "{QUESTION}" --model openai:gpt-4o'], NO_KEY),
        Task("citations", [f'epicrisis ask ~/lib "{QUESTION}" -o answer.bib', "cat answer.bib"]),
        Task("delete", ["epicrisis library delete ~/lib --file papers/aspirin-reye-syndrome.pdf --yes"]),
        Task(
            "python",
            [
                "python -c \"import epicrisis; library = epicrisis.Library.open('~/lib'); "
                f"print(library.ask('{QUESTION}'))\""
            ],
        ),
        Task("data", ["find ~ -type f -not -path '*/models/*' -printf '%m %8s %P\\n'"]),
    ),
    "paper-qa": (
        Task("help", ["pqa", "pqa --help"]),
        Task("interrupt", [f"cd papers && {PQA_INDEX}"], stop_after=15),
        Task("add", [f"cd papers && {PQA_INDEX}"]),
        Task("add again", [f"cd papers && {PQA_INDEX}"]),
        Task("search", [f'cd papers && {PQA} --llm openai/{MODEL} search "aspirin pre-eclampsia"']),
        Task("ask", [f'cd papers && {PQA_ASK} "{QUESTION}"']),
        Task("second question", [f'cd papers && {PQA_ASK} "{SECOND}"']),
        Task("wrong model", [f'cd papers && {PQA_ASK.replace(MODEL, "qwen9")} "{QUESTION}"']),
        Task("unknown model", [f'cd papers && pqa -s fast --llm llama9 --summary_llm llama9 ask "{QUESTION}"']),
        Task("no server", [f'cd papers && {PQA_ASK} "{QUESTION}"'], NO_NETWORK),
        Task("no key", [f'cd papers && pqa -s fast ask "{QUESTION}"'], NO_KEY),
        Task("delete", ["rm papers/aspirin-reye-syndrome.pdf", f"cd papers && {PQA_INDEX}"]),
        Task("data", ["find ~ -type f -not -path '*/papers/*' -printf '%m %8s %P\\n'"]),
    ),
    "llm": (
        Task("help", ["llm --help"]),
        Task("set up", [LLM_CONFIG, "llm models list | tail -3"]),
        Task(
            "add",
            [
                "mkdir texts",
                'for file in papers/*; do markitdown "$file" > "texts/$(basename "$file").md"; done',
                "llm embed-multi papers --files texts '*' --store -m 3-small",
            ],
        ),
        Task("add again", ["llm embed-multi papers --files texts '*' --store -m 3-small"]),
        Task("list", ["llm collections list"]),
        Task("search", ['llm similar papers -n 3 -c "aspirin pre-eclampsia"']),
        Task("ask", [LLM_ASK.format(question=QUESTION)]),
        Task("second question", [f'llm -c "{SECOND}"']),
        Task("wrong model", [f'llm openai endpoint {URL} -m qwen9 "{QUESTION}"']),
        Task("unknown model", [f'llm -m llama9 "{QUESTION}"']),
        Task("no server", [f'llm openai endpoint http://127.0.0.1:9/v1 -m qwen "{QUESTION}"']),
        Task("no key", [f'llm -m gpt-4o "{QUESTION}"'], NO_KEY),
        Task("data", ["find ~ -type f -not -path '*/texts/*' -not -path '*/papers/*' -printf '%m %8s %P\\n'"]),
    ),
}


@dataclass(frozen=True, slots=True)
class Measurement:
    """What a task took. `cpu` is of the program alone, without the endpoint."""

    seconds: float
    cpu: float
    code: int
    screen: str


def run_task(task: Task, program: str, folder: Path) -> Measurement:
    """Run the commands of a task in a terminal of 80 columns. Stop it as `stop_after` says, or after 9 minutes."""
    home = folder / "homes" / program
    environment = {
        "HOME": str(home),
        "PATH": f"{folder / 'environments' / program / 'bin'}:/usr/bin:/bin",
        "TERM": "xterm-256color",
        "LANG": "C.UTF-8",
        "OPENAI_API_KEY": "none",
        "OPENAI_BASE_URL": URL,
        "OPENAI_API_BASE": URL,
        # Without it litellm waits for a list of prices where there is no network.
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        **task.environment,
    }
    given = {name: value for name, value in environment.items() if value}
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    began = time.perf_counter()
    child = subprocess.Popen(
        ["/bin/bash", "-c", "\n".join(task.commands)],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        cwd=home,
        env=given,
        start_new_session=True,
        # A shell starts its background jobs with Ctrl-C ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    os.close(slave)
    return _watch(child.pid, master, began, task.stop_after)


def _watch(process: int, master: int, began: float, stop_after: float | None) -> Measurement:
    """Read the screen until the process ends."""
    os.set_blocking(master, False)
    shown = b""
    stopped, last = False, began
    while True:
        try:
            shown += os.read(master, 65536)
        except BlockingIOError:
            pass
        except OSError:
            break
        elapsed = time.perf_counter() - began
        if elapsed > (540 if stop_after is None or stopped else stop_after):
            if stopped:
                os.killpg(process, signal.SIGKILL)
            os.killpg(process, signal.SIGINT)
            stopped, stop_after = True, None
            began_stop = time.perf_counter()
            last = began_stop
        time.sleep(0.01)
    _, status, used = os.wait4(process, 0)
    seconds = time.perf_counter() - (last if stopped else began)
    os.close(master)
    text = _CONTROL.sub("", shown.decode(errors="replace")).replace("\r\n", "\n").replace("\r", "\n")
    return Measurement(seconds, used.ru_utime + used.ru_stime, os.waitstatus_to_exitcode(status), text)


def install(folder: Path) -> None:
    """Install each program by pip, without its cache, and print seconds and MB."""
    for program, packages in PACKAGES.items():
        place = folder / "environments" / program
        shutil.rmtree(place, ignore_errors=True)
        began = time.perf_counter()
        subprocess.run([sys.executable, "-m", "venv", place], check=True)
        subprocess.run([place / "bin" / "pip", "install", "-q", "--no-cache-dir", *packages], check=True)
        size = sum(path.lstat().st_size for path in place.rglob("*") if not path.is_dir())
        print(f"{program}: {time.perf_counter() - began:.0f} s, {size / 1e6:.0f} MB", flush=True)


def run(folder: Path, words: Sequence[str]) -> None:
    """Run the tasks whose program and name are among the words, or all. A program's first task empties its home."""
    log = folder / "requests.jsonl"
    screens = folder / "screens"
    screens.mkdir(exist_ok=True)
    programs = [word for word in words if word in TASKS] or list(TASKS)
    names = [word for word in words if word not in TASKS]
    print("| program | task | steps | seconds | CPU s | calls | exit code | lines |\n|---|---|---|---|---|---|---|---|")
    for program in programs:
        home = folder / "homes" / program
        if not names:
            shutil.rmtree(home, ignore_errors=True)
            home.mkdir(parents=True)
            write_mixed_folder(home / "papers", ROOT / "demo" / "documents.jsonl")
        for task in TASKS[program]:
            if names and task.name not in names:
                continue
            before = _count_calls(log)
            done = run_task(task, program, folder)
            calls = _count_calls(log) - before
            (screens / f"{program}-{task.name.replace(' ', '-')}.txt").write_text(done.screen)
            cells = [program, task.name, len(task.commands), f"{done.seconds:.1f}", f"{done.cpu:.1f}", calls, done.code]
            print("|", " | ".join(map(str, [*cells, len(done.screen.splitlines())])), "|", flush=True)


def _count_calls(log: Path) -> int:
    """Return the number of completions and embeddings so far."""
    if not log.exists():
        return 0
    return sum(1 for line in log.read_text().splitlines() if "/completions" in line or "/embeddings" in line)


def main() -> None:
    """Install the programs, or run the tasks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("action", choices=["install", "run"])
    parser.add_argument("words", nargs="*", help="programs and tasks; default: all")
    options = parser.parse_args()
    folder = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if options.action == "install":
        install(folder)
    else:
        run(folder, options.words)


if __name__ == "__main__":
    main()
