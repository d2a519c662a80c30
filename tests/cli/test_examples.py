"""`epicrisis examples build | info | add`, against an endpoint on loopback and the embedded encoder."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from epicrisis.core.protocols import ChatRequest
from epicrisis.testing.chat import ScriptedModel
from tests.cli.conftest import Run
from tests.support.hostile import HostileServer
from tests.support.served_models import served

OPTIONS = {"A": "iron", "B": "vitamin K", "C": "zinc"}
SOLVED = {"id": "1", "question": "What stops bleeding?", "options": OPTIONS, "choice": "B", "answer": "Vitamin K."}
STEM = "A sailor of forty has bleeding gums and bruises after some months at sea. What helps in disease {}?"


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each test its own cache of replies."""
    monkeypatch.setenv("EPICRISIS_CACHE__PATH", str(tmp_path / "cache.sqlite"))


@pytest.fixture
def train(tmp_path: Path) -> Path:
    """Return a file of six questions with the answers A, B, C, A, ... and of one without a known answer."""
    rows: list[dict[str, Any]] = [
        {"id": f"q-{i}", "text": STEM.format(i), "options": OPTIONS, "gold": "ABC"[i % 3]} for i in range(6)
    ]
    return _write_lines(tmp_path / "train.jsonl", *rows, {"id": "q-6", "text": STEM.format(6), "options": OPTIONS})


def _write_lines(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def solver(request: ChatRequest) -> str:
    """Answer correctly except in q-4. Given the answer, reason to another one at first, and always in q-2."""
    number = int(re.findall(r"disease (\d+)", request.messages[-1].content)[-1])
    knows_answer = "The right answer is known" in request.messages[-1].content
    wrong = (number == 2 or request.seed < 2) if knows_answer else number == 4
    choice = "ABC"[(number + wrong) % 3]
    reasoning = f"Option A is a metal. The answer is {choice}."
    return json.dumps({"reasoning": reasoning, "result": {"found": True, "answer": "So it is.", "choice": choice}})


@pytest.fixture
def server() -> Iterator[HostileServer]:
    with served(ScriptedModel(solver)) as running:
        yield running


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.long
@pytest.mark.usefixtures("model_home")
def test_build_from_set_fills_library_and_info_shows_leaks(
    train: Path, tmp_path: Path, run: Run, server: HostileServer
) -> None:
    library = tmp_path / "solved"
    command = ("examples", "build", library, "--from", train, "--how", "solved", "--model", f"{server.url}#tested")
    first = run(*command, "-n", 3)
    assert first.exit_code == 0, first.output
    assert "train.jsonl: 3 questions; in " in first.stdout
    assert "not asked: 1 question (no known answer)" in first.stdout
    second = run(*command, "--json")
    assert second.exit_code == 0, second.output
    summary = json.loads(second.stdout)
    assert (summary["questions"], summary["left_aside"], summary["failed"]) == (6, {"no known answer": 1}, 0)
    assert summary["lines"] == {"kept": 5, "wrong": 1}
    assert (summary["usage"]["calls"], server.ledger.calls) == (3, 6)
    assert summary["output"] == str(tmp_path / "solved.solved.jsonl")
    assert [line["state"] for line in read_lines(tmp_path / "solved.solved.jsonl")].count("kept") == 5

    (hit, *_) = json.loads(run("search", library, STEM.format(1), "--json").stdout)["hits"]
    summary = hit["passage"]["metadata"]
    assert hit["passage"]["document_id"] == "train.jsonl/q-1"
    assert (summary["choice"], summary["how"], summary["form"], summary["question_id"]) == (
        "B",
        "solved",
        "choice",
        "q-1",
    )
    assert summary["model"].endswith("#tested")

    info = run("examples", "info", library)
    assert info.exit_code == 0, info.output
    assert "5 solved questions, encoder minilm" in info.stdout
    assert re.search(r"5  train\.jsonl, solved, \S+#tested, choice", info.stdout)
    planted = [{"id": "t-0", "text": STEM.format(3).upper()}, {"id": "t-1", "text": "Which?"}]
    test = _write_lines(tmp_path / "test.jsonl", *planted, {"id": "q-5", "text": "Who?"})
    listing = run("examples", "info", library, "--against", test).stdout
    assert f"5 of them are questions of {test} (1 by id, 5 by a text of similarity 0.8 or more)" in listing
    (leak,) = [
        entry
        for entry in json.loads(run("examples", "info", library, "--against", test, "--json").stdout)["leaks"]
        if entry["similarity"] == 1
    ]
    assert (leak["example"], leak["question"], leak["same_id"]) == ("train.jsonl/q-3", "t-0", False)
    another = _write_lines(tmp_path / "other.jsonl", planted[1])
    assert "none of them is a question of" in run("examples", "info", library, "--against", another).stdout


@pytest.mark.usefixtures("model_home")
def test_build_after_kill_before_documents_adds_them_without_calls(
    train: Path, tmp_path: Path, run: Run, server: HostileServer
) -> None:
    library, output = tmp_path / "cot", tmp_path / "lines.jsonl"
    command = (
        "examples",
        "build",
        library,
        "--from",
        train,
        "--how",
        "chain-of-thought",
        "--model",
        f"{server.url}#writer",
        "-o",
        output,
        "--setting",
        f"questions_at_once={1}",
        "--setting",
        "cache.mode=off",
        "--json",
    )
    first_summary = json.loads(run(*command).stdout)
    assert first_summary["lines"] == {"kept": 5, "wrong": 1}
    assert server.ledger.calls == 5 * 2 + 3
    assert {line["tries"] for line in read_lines(output) if line["state"] == "kept"} == {2}
    assert run("library", "delete", library, "train.jsonl/q-0", "train.jsonl/q-5").exit_code == 0
    output.write_bytes(output.read_bytes()[:-25])
    second = run(*command)
    assert second.exit_code == 0, second.output
    summary = json.loads(second.stdout)
    assert (summary["added"]["added"], summary["added"]["unchanged"], summary["added"]["replaced"]) == (2, 3, 0)
    assert summary["usage"]["calls"] == 2, "the line that was cut off"
    assert summary["lines"] == first_summary["lines"]


@pytest.mark.long
@pytest.mark.usefixtures("model_home")
def test_build_over_budget_stops_and_keeps_its_examples(
    train: Path, tmp_path: Path, run: Run, server: HostileServer
) -> None:
    command = ("examples", "build", tmp_path / "lib", "--from", train, "--how", "solved", "--model", f"{server.url}#m")
    stopped = run(*command, "--setting", f"questions_at_once={1}", "--budget-tokens", 1500)
    assert stopped.exit_code == 2
    assert "raise --budget-tokens" in stopped.stderr
    rows_kept = sum(line["state"] == "kept" for line in read_lines(tmp_path / "lib.solved.jsonl"))
    assert 0 < rows_kept < 5
    assert f"{rows_kept} solved questions added" in stopped.stdout
    assert run(*command).exit_code == 0
    assert json.loads(run("examples", "info", tmp_path / "lib", "--json").stdout)["examples"] == 5
    assert server.ledger.calls == 6, "no call is paid twice"


@pytest.mark.usefixtures("model_home")
def test_build_with_refusing_endpoint_creates_neither_lines_nor_library(train: Path, tmp_path: Path, run: Run) -> None:
    with HostileServer(api_key="another") as down:
        result = run(
            "examples", "build", tmp_path / "l", "--from", train, "--how", "solved", "--model", f"{down.url}#m"
        )
    assert result.exit_code == 2
    assert "in a row failed, so the run was stopped" in result.stderr
    assert not (tmp_path / "l.solved.jsonl").exists()
    assert not (tmp_path / "l").exists()


@pytest.mark.usefixtures("model_home")
def test_build_with_one_failing_question_counts_it_and_solves_the_others(train: Path, tmp_path: Path, run: Run) -> None:
    long = {"id": "long", "text": "On and on. " * 4000, "options": OPTIONS, "gold": "A"}
    train.write_text(json.dumps(long) + "\n" + train.read_text())
    with HostileServer(context_tokens=4000) as small:
        model = ("--model", f"{small.url}#m")
        result = run("examples", "build", tmp_path / "l", "--from", train, "--how", "solved", *model, "--json")
    assert result.exit_code == 2
    assert "1 question failed; the same command asks them again" in result.stderr
    summary = json.loads(result.stdout)
    assert (summary["failed"], sum(summary["lines"].values())) == (1, 6)
    assert "long" not in {line["id"] for line in read_lines(tmp_path / "l.solved.jsonl")}


@pytest.mark.long
@pytest.mark.usefixtures("model_home")
def test_build_into_library_of_papers_is_refused_without_calls(
    train: Path, small_library: Path, run: Run, server: HostileServer
) -> None:
    model = ("--model", f"{server.url}#m")
    for command in (
        ("build", small_library, "--from", train, "--how", "solved", *model),
        ("add", small_library, train),
    ):
        result = run("examples", *command)
        assert result.exit_code == 2
        assert "is not a solved question: give a library that `epicrisis examples build` made" in result.stderr
    assert server.ledger.calls == 0


@pytest.mark.usefixtures("model_home")
def test_add_with_some_broken_examples_warns_and_adds_the_others(tmp_path: Path, run: Run) -> None:
    own = _write_lines(
        tmp_path / "own.jsonl", SOLVED, {**SOLVED, "id": "2", "choice": "X"}, {**SOLVED, "id": "3", "patient": "anna"}
    )
    result = run("examples", "add", tmp_path / "library", own)
    assert result.exit_code == 0
    assert "1 solved questions added, 0 replaced, 0 unchanged, 2 skipped" in result.stdout
    assert "line 2: choice: none of the options" in result.stderr
    assert "line 3: patient:" in result.stderr
    second = run("examples", "add", tmp_path / "library", _write_lines(tmp_path / "own.jsonl", SOLVED), "--json")
    assert second.exit_code == 0, second.output
    assert json.loads(second.stdout)["unchanged"] == 1


@pytest.mark.long
@pytest.mark.usefixtures("model_home")
def test_build_after_kill_continues_without_repeated_calls(train: Path, tmp_path: Path, run: Run) -> None:
    killed = threading.Event()
    requests: list[ChatRequest] = []

    def answer_slowly(request: ChatRequest) -> str:
        requests.append(request)
        if len(requests) == 4:
            killed.wait(60)
        return solver(request)

    output = tmp_path / "lib.solved.jsonl"
    with served(ScriptedModel(answer_slowly)) as server:
        command = (
            "examples",
            "build",
            tmp_path / "lib",
            "--from",
            train,
            "--how",
            "solved",
            "--model",
            f"{server.url}#m",
            "--setting",
            f"questions_at_once={1}",
        )
        child = subprocess.Popen([sys.executable, "-m", "epicrisis", *map(str, command)], stderr=subprocess.DEVNULL)
        while len(requests) < 4 and child.poll() is None:
            time.sleep(0.02)
        child.kill()
        child.wait()
        killed.set()
        assert [line["id"] for line in read_lines(output)] == ["q-0", "q-1", "q-2"]
        assert not (tmp_path / "lib").exists(), "killed before any document was added"
        result = run(*command, "--json")
    assert result.exit_code == 0, result.output
    summary = json.loads(result.stdout)
    assert (summary["lines"], summary["added"]["added"]) == ({"kept": 5, "wrong": 1}, 5)
    assert summary["usage"]["calls"] == 3
    assert len(requests) == 4 + 3, "the one that was under way is asked again, and no other"


@pytest.mark.long
@pytest.mark.usefixtures("model_home")
def test_build_with_open_asks_without_options(tmp_path: Path, run: Run) -> None:
    stem = "Which of the following is the remedy in disease {}?"
    rows: list[dict[str, Any]] = [
        *({"id": f"q-{i}", "text": stem.format(i), "options": OPTIONS, "gold": "ABC"[i]} for i in range(3)),
        {"id": "q-3", "text": "Which of the following remedies helps in disease 3?", "options": OPTIONS, "gold": "A"},
        {"id": "q-4", "text": "What helps in disease 4?", "gold": "zinc"},
    ]
    train, library = _write_lines(tmp_path / "train.jsonl", *rows), tmp_path / "solved"
    requests: list[str] = []

    def answer_openly(request: ChatRequest) -> str:
        requests.append(request.messages[-1].content)
        answer = ["Iron it is.", "Vitamin K.", "Give nothing.", "", "Zinc."][int(requests[-1].split("disease ")[1][0])]
        return json.dumps({"reasoning": "So.", "result": {"found": True, "answer": answer}})

    with served(ScriptedModel(answer_openly)) as server:
        command = ("examples", "build", library, "--from", train, "--how", "solved", "--model", f"{server.url}#m")
        first = run(*command, "--open")
        assert first.exit_code == 0, first.output
        assert "train.jsonl: 4 questions; in " in first.stdout
        assert "not asked: 1 question (asks for one of its options)" in first.stdout
        second = json.loads(run(*command, "--open", "--json").stdout)
        assert (second["usage"]["calls"], second["lines"]) == (0, {"kept": 3, "wrong": 1})
        assert len(requests) == 4
        assert "What is the remedy in disease 1?" in "".join(requests)
        assert not any("Options:" in entry or "Which" in entry for entry in requests)
        output = tmp_path / "solved.solved.open.jsonl"
        assert second["output"] == str(output)
        rows_kept = {line["id"]: line for line in read_lines(output) if line["state"] == "kept"}
        assert rows_kept.keys() == {"q-0", "q-1", "q-4"}
        line = rows_kept["q-1"]
        assert (line["set"], line["options"], line["choice"], line["form"]) == ("train.jsonl", {}, None, "open")
        run("examples", "build", tmp_path / "other", *command[3:])
    choice_prompts = {line["id"]: line["asked"] for line in read_lines(tmp_path / "other.solved.jsonl")}
    assert {name for name, line in rows_kept.items() if choice_prompts[name] == line["asked"]} == {"q-4"}
    assert re.search(r"3  train\.jsonl, solved, \S+#m, open", run("examples", "info", library).stdout)


def _encoder_of(library: Path, run: Run) -> str:
    return str(json.loads(run("examples", "info", library, "--json").stdout)["encoder"])


@pytest.mark.long
def test_new_example_library_uses_encoder_of_settings_and_keeps_it(
    train: Path, tmp_path: Path, run: Run, model_home: Path, server: HostileServer
) -> None:
    own = tmp_path / "own"
    own.symlink_to(model_home / "models" / "minilm")
    config, another = tmp_path / "own.toml", tmp_path / "other.toml"
    config.write_text(f'[examples]\nencoder = "{own}"\n')
    another.write_text('[examples]\nencoder = "pubmedbert"\n')
    build = ("--from", train, "--how", "solved", "--model", f"{server.url}#m", "-n", 3)
    for method, options in (("build", build), ("add", (_write_lines(tmp_path / "own.jsonl", SOLVED),))):
        new_library, with_encoder = tmp_path / method, tmp_path / f"{method}-given"
        assert run("examples", method, new_library, *options, "--config", config).exit_code == 0
        assert _encoder_of(new_library, run) == str(own)
        rows_kept = run("examples", method, new_library, *options, "--config", another)
        assert rows_kept.exit_code == 0, rows_kept.output
        assert (
            run("examples", method, with_encoder, *options, "--config", another, "--encoder", "minilm").exit_code == 0
        )
        assert _encoder_of(with_encoder, run) == "minilm"


@pytest.mark.usefixtures("model_home")
def test_build_with_missing_encoder_reports_one_line_without_calls(
    train: Path, tmp_path: Path, run: Run, server: HostileServer
) -> None:
    config = tmp_path / "c.toml"
    config.write_text('[examples]\nencoder = "no-such-encoder"\n')
    build = ("build", tmp_path / "l", "--from", train, "--how", "solved", "--model", f"{server.url}#m")
    for command, name in (
        ((*build, "--config", config), "no-such-encoder"),
        (("add", tmp_path / "l", _write_lines(tmp_path / "own.jsonl", SOLVED), "--config", config), "no-such-encoder"),
        ((*build, "--setting", "preset=cr"), "pubmedbert"),
    ):
        result = run("examples", *command)
        assert result.exit_code == 2
        assert len(result.stderr.splitlines()) == 1
        assert name in result.stderr
    assert server.ledger.calls == 0
    assert not (tmp_path / "l").exists()
