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

from epicrisis.protocols import ChatRequest
from epicrisis.testing.chat import ScriptedModel
from epicrisis.testing.hostile import HostileServer
from tests.cli.conftest import Run
from tests.support.served_models import served

OPTIONS = {"A": "iron", "B": "vitamin K", "C": "zinc"}
READY = {"id": "1", "question": "What stops bleeding?", "options": OPTIONS, "choice": "B", "answer": "Vitamin K."}
STEM = "A sailor of forty has bleeding gums and bruises after some months at sea. What helps in disease {}?"


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No reply is kept but those of this test."""
    monkeypatch.setenv("EPICRISIS_CACHE__PATH", str(tmp_path / "cache.sqlite"))


@pytest.fixture
def train(tmp_path: Path) -> Path:
    """Six questions, the right one is A, B, C, A... and one without a known answer."""
    rows: list[dict[str, Any]] = [
        {"id": f"q-{i}", "text": STEM.format(i), "options": OPTIONS, "gold": "ABC"[i % 3]} for i in range(6)
    ]
    return _written(tmp_path / "train.jsonl", *rows, {"id": "q-6", "text": STEM.format(6), "options": OPTIONS})


def _written(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def solver(request: ChatRequest) -> str:
    """Right, but for q-4; told the answer, it reasons to another one at first, and always in q-2."""
    number = int(re.findall(r"disease (\d+)", request.messages[-1].content)[-1])
    told = "The right answer is known" in request.messages[-1].content
    wrong = (number == 2 or request.seed < 2) if told else number == 4
    choice = "ABC"[(number + wrong) % 3]
    reasoning = f"Option A is a metal. The answer is {choice}."
    return json.dumps({"reasoning": reasoning, "result": {"found": True, "answer": "So it is.", "choice": choice}})


@pytest.fixture
def server() -> Iterator[HostileServer]:
    with served(ScriptedModel(solver)) as it:
        yield it


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("command", ["build", "info", "add"])
def test_help_shows_an_example(command: str, run: Run) -> None:
    result = run("examples", command, "--help")
    assert result.exit_code == 0
    assert "--json" in result.stdout
    assert f"epicrisis examples {command} ~/" in result.stdout


@pytest.mark.usefixtures("model_home")
def test_from_a_set_to_a_library_whose_leaks_are_told(
    train: Path, tmp_path: Path, run: Run, server: HostileServer
) -> None:
    library = tmp_path / "solved"
    command = ("examples", "build", library, "--from", train, "--how", "solved", "--model", f"{server.url}#tested")
    first = run(*command, "-n", 3)
    assert first.exit_code == 0, first.output
    assert "train.jsonl: 3 questions; in " in first.stdout
    assert "not asked: 1 questions (no known answer)" in first.stdout
    more = run(*command, "--json")
    assert more.exit_code == 0, more.output
    told = json.loads(more.stdout)
    assert (told["questions"], told["left_aside"], told["failed"]) == (6, {"no known answer": 1}, 0)
    assert told["lines"] == {"kept": 5, "wrong": 1}
    assert (told["usage"]["calls"], server.ledger.calls) == (3, 6)
    assert told["output"] == str(tmp_path / "solved.solved.jsonl")
    assert [line["state"] for line in lines(tmp_path / "solved.solved.jsonl")].count("kept") == 5

    (hit, *_) = json.loads(run("search", library, STEM.format(1), "--json").stdout)["hits"]
    told = hit["passage"]["metadata"]
    assert hit["passage"]["document_id"] == "train.jsonl/q-1"
    assert (told["choice"], told["how"], told["form"], told["question_id"]) == ("B", "solved", "choice", "q-1")
    assert told["model"].endswith("#tested")

    info = run("examples", "info", library)
    assert info.exit_code == 0, info.output
    assert "5 solved questions, encoder minilm" in info.stdout
    assert re.search(r"5  train\.jsonl, solved, \S+#tested, choice", info.stdout)
    planted = [{"id": "t-0", "text": STEM.format(3).upper()}, {"id": "t-1", "text": "Which?"}]
    test = _written(tmp_path / "test.jsonl", *planted, {"id": "q-5", "text": "Who?"})
    said = run("examples", "info", library, "--against", test).stdout
    assert f"5 of them are questions of {test} (1 by id, 5 by a text of similarity 0.8 or more)" in said
    (leak,) = [
        each
        for each in json.loads(run("examples", "info", library, "--against", test, "--json").stdout)["leaks"]
        if each["similarity"] == 1
    ]
    assert (leak["example"], leak["question"], leak["same_id"]) == ("train.jsonl/q-3", "t-0", False)
    other = _written(tmp_path / "other.jsonl", planted[1])
    assert "none of them is a question of" in run("examples", "info", library, "--against", other).stdout


@pytest.mark.usefixtures("model_home")
def test_killed_between_line_and_document_the_document_is_added_and_nothing_is_asked(
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
    whole = json.loads(run(*command).stdout)
    assert whole["lines"] == {"kept": 5, "wrong": 1}
    assert server.ledger.calls == 5 * 2 + 3
    assert {line["tries"] for line in lines(output) if line["state"] == "kept"} == {2}
    assert run("library", "delete", library, "train.jsonl/q-0", "train.jsonl/q-5").exit_code == 0
    output.write_bytes(output.read_bytes()[:-25])
    again = run(*command)
    assert again.exit_code == 0, again.output
    told = json.loads(again.stdout)
    assert (told["added"]["added"], told["added"]["unchanged"], told["added"]["replaced"]) == (2, 3, 0)
    assert told["usage"]["calls"] == 2, "the line that was cut off"
    assert told["lines"] == whole["lines"]


@pytest.mark.usefixtures("model_home")
def test_a_budget_stops_it_and_what_is_done_is_in_the_library(
    train: Path, tmp_path: Path, run: Run, server: HostileServer
) -> None:
    command = ("examples", "build", tmp_path / "lib", "--from", train, "--how", "solved", "--model", f"{server.url}#m")
    stopped = run(*command, "--setting", f"questions_at_once={1}", "--budget-tokens", 1500)
    assert stopped.exit_code == 2
    assert "raise --budget-tokens" in stopped.stderr
    kept = sum(line["state"] == "kept" for line in lines(tmp_path / "lib.solved.jsonl"))
    assert 0 < kept < 5
    assert f"{kept} solved questions added" in stopped.stdout
    assert run(*command).exit_code == 0
    assert json.loads(run("examples", "info", tmp_path / "lib", "--json").stdout)["examples"] == 5
    assert server.ledger.calls == 6, "no call is paid twice"


@pytest.mark.usefixtures("model_home")
def test_an_endpoint_that_refuses_leaves_neither_lines_nor_a_library(train: Path, tmp_path: Path, run: Run) -> None:
    with HostileServer(api_key="another") as down:
        result = run(
            "examples", "build", tmp_path / "l", "--from", train, "--how", "solved", "--model", f"{down.url}#m"
        )
    assert result.exit_code == 2
    assert "in a row failed, so the run was stopped" in result.stderr
    assert not (tmp_path / "l.solved.jsonl").exists()
    assert not (tmp_path / "l").exists()


@pytest.mark.usefixtures("model_home")
def test_one_that_fails_is_told_and_counted_and_all_others_are_done(train: Path, tmp_path: Path, run: Run) -> None:
    long = {"id": "long", "text": "On and on. " * 4000, "options": OPTIONS, "gold": "A"}
    train.write_text(json.dumps(long) + "\n" + train.read_text())
    with HostileServer(context_tokens=4000) as small:
        model = ("--model", f"{small.url}#m")
        result = run("examples", "build", tmp_path / "l", "--from", train, "--how", "solved", *model, "--json")
    assert result.exit_code == 2
    assert "1 questions failed; the same command asks them again" in result.stderr
    told = json.loads(result.stdout)
    assert (told["failed"], sum(told["lines"].values())) == (1, 6)
    assert "long" not in {line["id"] for line in lines(tmp_path / "l.solved.jsonl")}


@pytest.mark.usefixtures("model_home")
def test_a_library_of_papers_is_refused_before_anything_is_asked(
    train: Path, small_library: Path, run: Run, server: HostileServer
) -> None:
    model = ("--model", f"{server.url}#m")
    for command in (
        ("build", small_library, "--from", train, "--how", "solved", *model),
        ("add", small_library, train),
    ):
        result = run("examples", *command)
        assert result.exit_code == 2
        assert "is no solved question: name a library that `epicrisis examples build` made" in result.stderr
    assert server.ledger.calls == 0


@pytest.mark.usefixtures("model_home")
def test_ready_made_ones_are_added_and_broken_lines_are_named(tmp_path: Path, run: Run) -> None:
    own = _written(
        tmp_path / "own.jsonl", READY, {**READY, "id": "2", "choice": "X"}, {**READY, "id": "3", "patient": "anna"}
    )
    result = run("examples", "add", tmp_path / "library", own)
    assert result.exit_code == 0
    assert "1 solved questions added, 0 replaced, 0 unchanged, 2 skipped" in result.stdout
    assert "line 2: choice: none of the options" in result.stderr
    assert "line 3: patient:" in result.stderr
    again = run("examples", "add", tmp_path / "library", _written(tmp_path / "own.jsonl", READY), "--json")
    assert again.exit_code == 0, again.output
    assert json.loads(again.stdout)["unchanged"] == 1


@pytest.mark.usefixtures("model_home")
def test_killed_in_the_middle_it_goes_on_and_pays_for_nothing_twice(train: Path, tmp_path: Path, run: Run) -> None:
    killed = threading.Event()
    asked: list[ChatRequest] = []

    def stalls(request: ChatRequest) -> str:
        asked.append(request)
        if len(asked) == 4:
            killed.wait(60)
        return solver(request)

    output = tmp_path / "lib.solved.jsonl"
    with served(ScriptedModel(stalls)) as server:
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
        while len(asked) < 4 and child.poll() is None:
            time.sleep(0.02)
        child.kill()
        child.wait()
        killed.set()
        assert [line["id"] for line in lines(output)] == ["q-0", "q-1", "q-2"]
        assert not (tmp_path / "lib").exists(), "killed before any document was added"
        result = run(*command, "--json")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert (told["lines"], told["added"]["added"]) == ({"kept": 5, "wrong": 1}, 5)
    assert told["usage"]["calls"] == 3
    assert len(asked) == 4 + 3, "the one that was under way is asked again, and no other"


@pytest.mark.usefixtures("model_home")
def test_a_set_with_options_is_asked_openly_and_shown_so(tmp_path: Path, run: Run) -> None:
    stem = "Which of the following is the remedy in disease {}?"
    rows: list[dict[str, Any]] = [
        *({"id": f"q-{i}", "text": stem.format(i), "options": OPTIONS, "gold": "ABC"[i]} for i in range(3)),
        {"id": "q-3", "text": "Which of the following remedies helps in disease 3?", "options": OPTIONS, "gold": "A"},
        {"id": "q-4", "text": "What helps in disease 4?", "gold": "zinc"},
    ]
    train, library = _written(tmp_path / "train.jsonl", *rows), tmp_path / "solved"
    asked: list[str] = []

    def openly(request: ChatRequest) -> str:
        asked.append(request.messages[-1].content)
        answer = ["Iron it is.", "Vitamin K.", "Give nothing.", "", "Zinc."][int(asked[-1].split("disease ")[1][0])]
        return json.dumps({"reasoning": "So.", "result": {"found": True, "answer": answer}})

    with served(ScriptedModel(openly)) as server:
        command = ("examples", "build", library, "--from", train, "--how", "solved", "--model", f"{server.url}#m")
        first = run(*command, "--open")
        assert first.exit_code == 0, first.output
        assert "train.jsonl: 4 questions; in " in first.stdout
        assert "not asked: 1 questions (asks for one of its options)" in first.stdout
        again = json.loads(run(*command, "--open", "--json").stdout)
        assert (again["usage"]["calls"], again["lines"]) == (0, {"kept": 3, "wrong": 1})
        assert len(asked) == 4
        assert "What is the remedy in disease 1?" in "".join(asked)
        assert not any("Options:" in each or "Which" in each for each in asked)
        output = tmp_path / "solved.solved.open.jsonl"
        assert again["output"] == str(output)
        kept = {line["id"]: line for line in lines(output) if line["state"] == "kept"}
        assert kept.keys() == {"q-0", "q-1", "q-4"}
        line = kept["q-1"]
        assert (line["set"], line["options"], line["choice"], line["form"]) == ("train.jsonl", {}, None, "open")
        run("examples", "build", tmp_path / "other", *command[3:])
    of_choices = {line["id"]: line["asked"] for line in lines(tmp_path / "other.solved.jsonl")}
    assert {name for name, line in kept.items() if of_choices[name] == line["asked"]} == {"q-4"}
    assert re.search(r"3  train\.jsonl, solved, \S+#m, open", run("examples", "info", library).stdout)


def _encoder_of(library: Path, run: Run) -> str:
    return str(json.loads(run("examples", "info", library, "--json").stdout)["encoder"])


def test_a_new_library_is_made_with_the_encoder_of_the_examples_and_keeps_it(
    train: Path, tmp_path: Path, run: Run, model_home: Path, server: HostileServer
) -> None:
    own = tmp_path / "own"
    own.symlink_to(model_home / "models" / "minilm")
    config, other = tmp_path / "own.toml", tmp_path / "other.toml"
    config.write_text(f'[examples]\nencoder = "{own}"\n')
    other.write_text('[examples]\nencoder = "pubmedbert"\n')
    build = ("--from", train, "--how", "solved", "--model", f"{server.url}#m", "-n", 3)
    for how, more in (("build", build), ("add", (_written(tmp_path / "own.jsonl", READY),))):
        made, given = tmp_path / how, tmp_path / f"{how}-given"
        assert run("examples", how, made, *more, "--config", config).exit_code == 0
        assert _encoder_of(made, run) == str(own)
        kept = run("examples", how, made, *more, "--config", other)
        assert kept.exit_code == 0, kept.output
        assert run("examples", how, given, *more, "--config", other, "--encoder", "minilm").exit_code == 0
        assert _encoder_of(given, run) == "minilm"


@pytest.mark.usefixtures("model_home")
def test_an_encoder_that_is_not_installed_is_named_before_anything_is_asked(
    train: Path, tmp_path: Path, run: Run, server: HostileServer
) -> None:
    config = tmp_path / "c.toml"
    config.write_text('[examples]\nencoder = "no-such-encoder"\n')
    build = ("build", tmp_path / "l", "--from", train, "--how", "solved", "--model", f"{server.url}#m")
    for command, name in (
        ((*build, "--config", config), "no-such-encoder"),
        (("add", tmp_path / "l", _written(tmp_path / "own.jsonl", READY), "--config", config), "no-such-encoder"),
        ((*build, "--setting", "preset=cr"), "pubmedbert"),
    ):
        result = run("examples", *command)
        assert result.exit_code == 2
        assert len(result.stderr.splitlines()) == 1
        assert name in result.stderr
    assert server.ledger.calls == 0
    assert not (tmp_path / "l").exists()
