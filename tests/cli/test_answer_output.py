"""What `epicrisis ask` prints and writes of one answer: views, files by suffix, and the progress line."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from docx import Document as WordDocument
from rich.console import Console

from epicrisis.cli.progress import AnswerProgress, ProgressLine
from epicrisis.core.answers import AnswerStarted, MapFinished, MapStarted, ModelCalled, PartialAnswer, TextDelta, Usage
from epicrisis.core.types import Document
from tests.cli.conftest import Run
from tests.support.hostile import HostileServer
from tests.support.patient_records import library

QUESTION = "Does aspirin prevent stroke?"
QUOTE = "Aspirin lowered the risk of stroke"
REPLY = {"found": True, "quotes": [{"doc": 1, "quote": QUOTE}], "answer": "It does."}


@pytest.fixture
def trials(tmp_path: Path) -> Path:
    metadata = {"publication_types": ["Randomized Controlled Trial"], "retracted": True, "journal": "Gut"}
    document = Document("a", f"{QUOTE} in adults.", title="Aspirin for prevention", date="2015", metadata=metadata)
    with library(tmp_path / "trials", [document]) as store:
        return store.path


def ask(run: Run, trials: Path, *flags: object) -> Any:
    settings = ("--setting", "cache.mode=off", "--setting", "scope.include=retracted", "--setting", "citing=quotes")
    with HostileServer(lambda _: json.dumps({"result": REPLY})) as server:
        return run(
            "ask", trials, QUESTION, "--by", "bm25", "--strategy", "rag", *settings, *flags, "--model", server.url
        )


def test_ask_prints_answer_first_and_no_path(trials: Path, run: Run) -> None:
    lines = ask(run, trials).stdout.splitlines()
    assert lines[0] == "Answer: It does. [1: RETRACTED] (not checked)"
    assert "  [1] [RETRACTED] Aspirin for prevention. Gut. 2015" in lines
    assert "      Study type: randomised trial" in lines
    assert not [line for line in lines if line.startswith(("Found by", "RAG over")) or "prompt tokens" in line]


def test_ask_verbose_adds_path_and_usage(trials: Path, run: Run) -> None:
    text = ask(run, trials, "-v").stdout
    assert text.index("Found by bm25") < text.index("Answer: It does. [1: RETRACTED]") < text.index("prompt tokens")


def test_ask_quiet_prints_verdict_only(trials: Path, run: Run) -> None:
    result = ask(run, trials, "--quiet")
    assert (result.stdout, result.stderr) == ("Answer: It does. [1: RETRACTED] (not checked)\n", "")


def test_ask_with_two_views_fails(trials: Path, run: Run) -> None:
    result = ask(run, trials, "--quiet", "--json")
    assert result.exit_code == 2
    assert "different outputs" in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["md", "html", "json", "HTML"])
def test_ask_with_output_writes_answer_with_mark_for_owner_only(
    suffix: str, trials: Path, run: Run, tmp_path: Path
) -> None:
    path = tmp_path / f"answer.{suffix}"
    for _ in range(2):
        result = ask(run, trials, "-o", path)
        assert result.exit_code == 0, result.stderr
    text = path.read_text(encoding="utf-8")
    assert ("retracted" if suffix == "json" else "RETRACTED") in text
    assert QUOTE in text
    assert path.stat().st_mode & 0o777 == 0o600
    assert not list(tmp_path.glob(".answer*"))
    if suffix == "json":
        (citation,) = json.loads(text)["citations"]
        assert (citation["marks"], citation["reference"]["study"]["type"]) == (["retracted"], "randomised-trial")


@pytest.mark.slow
def test_ask_with_word_output_writes_answer_again_until_somebody_saves_it(
    trials: Path, run: Run, tmp_path: Path
) -> None:
    path = tmp_path / "answer.docx"
    for _ in range(2):
        result = ask(run, trials, "-o", path)
        assert result.exit_code == 0, result.stderr
    document = WordDocument(str(path))
    text = "\n".join(paragraph.text for paragraph in document.paragraphs)
    assert text.startswith(f"{QUESTION}\nAnswer: It does. [1: RETRACTED] (not checked)\n")
    assert QUOTE in text
    assert path.stat().st_mode & 0o777 == 0o600
    document.core_properties.last_modified_by = "A reader"
    document.save(str(path))
    result = ask(run, trials, "-o", path)
    assert result.exit_code == 2
    assert "no answer that this program wrote" in result.stderr


def test_ask_verbose_with_output_writes_path(trials: Path, run: Run, tmp_path: Path) -> None:
    ask(run, trials, "-v", "-o", tmp_path / "a.md")
    text = (tmp_path / "a.md").read_text(encoding="utf-8")
    assert text.index("**Answer:**") < text.index("## How the answer was found") < text.index("* Found by bm25")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a.pdf", "suffix is unknown"),
        ("none/a.md", "is not a folder"),
        ("mine.json", "no answer that this program wrote"),
    ],
)
def test_ask_with_unusable_output_fails_before_any_call(
    name: str, message: str, trials: Path, run: Run, tmp_path: Path
) -> None:
    (tmp_path / "mine.json").write_text("{}", encoding="utf-8")
    result = ask(run, trials, "-o", tmp_path / name)
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stdout == ""
    assert (tmp_path / "mine.json").read_text(encoding="utf-8") == "{}"


def test_ask_file_refuses_page_as_output(trials: Path, run: Run, tmp_path: Path) -> None:
    questions = tmp_path / "q.jsonl"
    questions.write_text('{"text": "Why?"}\n', encoding="utf-8")
    result = run("ask", trials, "--file", questions, "-o", tmp_path / "a.html")
    assert result.exit_code == 2
    assert "answers.jsonl" in result.stderr


def call(tokens: int) -> ModelCalled:
    return ModelCalled(
        stage="rag",
        model="m",
        prompt_sha256="",
        template="",
        seed=0,
        sample=0,
        finish_reason="stop",
        usage=Usage(calls=1, prompt_tokens=tokens),
        at=0.0,
    )


def test_progress_counts_parts_and_tokens() -> None:
    progress = AnswerProgress()
    assert progress.describe() == "Opening the library and the model, 0 s"
    for event in (
        MapStarted(0, ()),
        MapStarted(1, ()),
        call(1200),
        MapFinished(PartialAnswer(partition=0, passages=(), state="nothing")),
    ):
        progress.follow(event)
    progress.follow(AnswerStarted("reduce", 1))
    progress.follow(TextDelta("reduce", "It"))
    assert progress.describe() == "Writing the answer, 0 s, 1 of 2 parts, 1,201 tokens"


@pytest.mark.parametrize("is_terminal", [True, False])
def test_progress_line_is_drawn_at_once_on_a_terminal_only(is_terminal: bool) -> None:
    out = io.StringIO()
    line = ProgressLine(Console(file=out, force_terminal=is_terminal, width=80))
    with line.running():
        assert ("the model, 0 s" in out.getvalue()) is is_terminal
        line.hide()
        line.show()
    assert (out.getvalue() != "") is is_terminal
