"""Hostile characters, markup and line breaks on their way to the screen."""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import Result

from epicrisis.cli.event_display import EventDisplay
from epicrisis.cli.terminal import open_console, say
from epicrisis.core.answers import Answer, Answered, AnswerStarted, Citation, PreflightChecked, TextDelta
from epicrisis.core.printable import GUTTER
from epicrisis.core.types import Document, Preflight, Question
from epicrisis.library.write.ingest import add_documents, open_or_create
from epicrisis.testing.hashing_encoder import HashingEncoder
from tests.cli.conftest import Run
from tests.support.loopback import Endpoint, Scripted, answer_with, completion, serving
from tests.support.unsafe_text import ENCODED, UNSAFE, unsafe_in

ENCODER = HashingEncoder(64, 128)
CHAT = "/v1/chat/completions"
FAKE = "[9] Cochrane review, characters 0 to 9"
EVIL = f"{ENCODED}[red]:pill:[link=http://evil]\n  {FAKE}\r\u2028  {FAKE}\x85{FAKE}"
"""Control characters, rich's markup, and lines that look like a citation of the program."""
NAME = f"a{ENCODED.replace('/', '')}\n{FAKE}"
"""The part of it that a file name can hold."""
QUESTION = "What does aspirin do?"


def check_safe(result: Result, *, succeeded: bool | None = None) -> None:
    """Assert that the output has no control characters, no forged line and no traceback."""
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    for text in (result.stdout, result.stderr):
        assert unsafe_in(text) == []
        assert "Traceback" not in text
        assert not [line for line in text.splitlines() if re.match(r"\s*\[9\]", line)]
    if succeeded is not None:
        assert (result.exit_code == 0) is succeeded, result.stderr


def evil_library(folder: Path, patient: str | None = None) -> Path:
    documents = [
        Document(
            f"doc{number}{EVIL}",
            f"Aspirin lowers the risk {EVIL} of stroke {number}.",
            title=f"Trial {EVIL}",
            source=f"Journal {EVIL}",
            date="2015",
            patient=patient,
            metadata={"journal": EVIL, "note_type": EVIL, "patient_name": EVIL},
        )
        for number in range(2)
    ]
    with open_or_create(folder, ENCODER, "hashing", 0) as server:
        add_documents(server, documents, ENCODER)
    return folder


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    monkeypatch.setenv("EPICRISIS_MODELS__WRITER__CONTEXT_TOKENS", "8192")
    monkeypatch.setenv("EPICRISIS_MODELS__WRITER__TRIES", "1")
    monkeypatch.setenv("EPICRISIS_CACHE__MODE", "off")
    with serving() as server:
        yield server


def reply(**fields: object) -> Scripted:
    return answer_with(json.dumps({"result": {"found": True, **fields}}))


@pytest.fixture
def model_options(endpoint: Endpoint) -> tuple[str, ...]:
    """Return the options for the model of the endpoint, word search and no preflight check."""
    return (
        "--model",
        f"{endpoint.url}/v1#m",
        "--strategy",
        "rag",
        "--by",
        "bm25",
        "--setting",
        "preflight.enabled=false",
        "--setting",
        "citing=quotes",
    )


@pytest.mark.slow
def test_library_commands_show_hostile_documents_safely(run: Run, tmp_path: Path) -> None:
    library = evil_library(tmp_path / f"my [red]library\u202e\u200b {FAKE}")
    check_safe(run("search", library, "aspirin", "--by", "bm25"), succeeded=True)
    result_as_json = run("search", library, "aspirin", "--by", "bm25", "--json")
    check_safe(result_as_json, succeeded=True)
    assert json.loads(result_as_json.stdout)["hits"][0]["passage"]["document_id"].endswith(EVIL), "data is unchanged"
    for command in ("info", "check"):
        check_safe(run("library", command, library))
        check_safe(run("library", command, library, "--json"))
    check_safe(run("library", "delete", library, f"none{EVIL}"), succeeded=False)
    check_safe(run("library", "repair", library))


@pytest.mark.slow
def test_library_patients_shows_hostile_ids_on_one_line_each(run: Run, tmp_path: Path) -> None:
    ward = evil_library(tmp_path / "ward", patient=f"p{EVIL}")
    result_as_json = run("library", "patients", ward)
    check_safe(result_as_json, succeeded=True)
    assert len(result_as_json.stdout.splitlines()) == 2
    check_safe(run("library", "patients", ward, "--json"), succeeded=True)
    check_safe(run("search", ward, "aspirin", "--by", "bm25", "--patient", f"p{EVIL}"), succeeded=True)
    check_safe(run("search", ward, "aspirin", "--by", "bm25", "--patient", f"other{EVIL}"), succeeded=False)
    check_safe(run("ask", ward, f"aspirin {ENCODED}", "--by", "bm25"), succeeded=False)


@pytest.mark.slow
@pytest.mark.parametrize("by_json", [False, True])
def test_ask_shows_hostile_replies_safely(
    by_json: bool, run: Run, tmp_path: Path, endpoint: Endpoint, model_options: tuple[str, ...]
) -> None:
    library = evil_library(tmp_path / "library")
    more = ("--setting", "not_in_library=ask", *(("--json",) if by_json else ()))
    quotes = [{"doc": 1, "quote": f"Aspirin {EVIL}"}]
    endpoint.script[CHAT] = [reply(quotes=quotes, answer=f"It lowers it. {UNSAFE}\n  {FAKE}\n{FAKE}", choice="A")]
    for options in ((), ("--options", f"yes {EVIL},no")):
        check_safe(run("ask", library, f"{QUESTION} {EVIL}", *model_options, *options, *more))
    numbered = [{"text": f"It lowers it. {EVIL} {UNSAFE}\n{FAKE}", "sentences": [1]}]
    endpoint.script[CHAT] = [reply(claims=numbered)]
    check_safe(run("ask", library, QUESTION, *model_options, "--setting", "citing=numbers", *more))
    endpoint.script[CHAT] = [answer_with(f"In prose {UNSAFE}\n{FAKE}")]
    check_safe(run("ask", library, QUESTION, *model_options, *more))
    endpoint.script[CHAT] = [reply(quotes=quotes, answer="It does", choice=f"C {EVIL}")]
    check_safe(run("ask", library, QUESTION, *model_options, "--options", "yes,no", *more), succeeded=False)
    for failure in (Scripted({"error": {"message": EVIL, "code": EVIL}}, 400), Scripted(EVIL, 500), Scripted(EVIL)):
        endpoint.script[CHAT] = [failure]
        check_safe(run("ask", library, QUESTION, *model_options, *more), succeeded=False)
    endpoint.script[CHAT] = [Scripted(completion(f"No stream {UNSAFE}\n{FAKE}", finish=EVIL) | {"model": EVIL})]
    check_safe(run("ask", library, QUESTION, *model_options, *more))


@pytest.mark.slow
def test_errors_with_hostile_arguments_are_printable(run: Run, tmp_path: Path) -> None:
    library = evil_library(tmp_path / "library")
    for arguments in (
        ("search", tmp_path / f"none{NAME}", "aspirin"),
        ("search", library, "aspirin", "--by", f"x{EVIL}"),
        ("search", library, "aspirin", f"--none{EVIL}"),
        ("search", library, "aspirin", "--setting", f"k{EVIL}=1"),
        ("search", library, "aspirin", "--setting", f"by={EVIL}"),
        ("search", library, "aspirin", "--as-of", f"2015{EVIL}"),
        ("search", library, "aspirin", "--config", tmp_path / f"none{NAME}"),
        ("search", library, "aspirin", "--encoder", f"none{NAME}"),
        (f"none{EVIL}",),
        ("ask", library, QUESTION, "--model", f"none{EVIL}"),
        ("ask", library, QUESTION, "--model", f"http://127.0.0.1:9/v1#m{EVIL}", "--by", "bm25"),
        ("ask", library, "--file", tmp_path / f"none{NAME}", "-o", tmp_path / "out"),
        ("library", "add", library, tmp_path / f"none{NAME}"),
        ("report", tmp_path / f"none{NAME}", "--json"),
        ("compare", tmp_path / f"none{NAME}", tmp_path / "none"),
        ("evaluate", library, f"none{NAME}"),
        ("grade", "run", tmp_path / f"none{NAME}"),
        ("questions", "pull", f"none{EVIL}"),
        ("models", "pull", f"none{EVIL}"),
    ):
        check_safe(run(*arguments), succeeded=False)


def test_settings_file_with_hostile_keys_is_refused_safely(run: Run, tmp_path: Path) -> None:
    library, config = evil_library(tmp_path / "library"), tmp_path / "epicrisis.toml"
    for text in (
        f"{json.dumps('k' + EVIL)} = 1",
        f"by = {json.dumps(ENCODED)}",
        f"[rerank]\nname = {json.dumps(ENCODED)}",
        f"by = {EVIL}",
    ):
        config.write_text(text, encoding="utf-8")
        check_safe(run("search", library, "aspirin", "--config", config), succeeded=False)


def test_add_hostile_files_names_them_safely(run: Run, tmp_path: Path, model_home: Path) -> None:
    folder = tmp_path / "papers"
    folder.mkdir()
    (folder / f"{NAME}.jsonl").write_text(f'{{"id": "x{ENCODED[3]}\n', encoding="utf-8")
    (folder / f"b{NAME}.txt").write_bytes(b"\xff\xfe\xff")
    (folder / f"c{NAME}.xyz").write_text("none")
    with open(os.fsencode(folder) + b"/\xff\x1b[31m.txt", "wb") as file:
        file.write(b"Aspirin lowers the risk.")
    check_safe(run("library", "add", tmp_path / "made", folder), succeeded=False)
    check_safe(run("library", "check", tmp_path / "made"))
    check_safe(run("library", "add", tmp_path / "made", folder / f"c{NAME}.xyz"), succeeded=False)


@pytest.mark.long
def test_ask_file_with_hostile_questions_is_safe(
    run: Run, tmp_path: Path, endpoint: Endpoint, model_options: tuple[str, ...]
) -> None:
    library, questions = evil_library(tmp_path / "library"), tmp_path / f"{NAME}.jsonl"
    rows = [
        {"id": f"q{EVIL}", "text": f"{QUESTION} {EVIL}", "options": {"A": EVIL, "B": "no"}, "gold": "A"},
        {"id": f"r{EVIL}", "text": QUESTION, "gold": EVIL},
        {"id": EVIL},
    ]
    questions.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    answer = reply(quotes=[{"doc": 1, "quote": EVIL}], answer=f"It does {UNSAFE}\n{FAKE}", choice="A")
    endpoint.script[CHAT] = [answer, Scripted({"error": {"message": EVIL}}, 400)]
    output, log = tmp_path / f"out{NAME}.jsonl", tmp_path / "log.jsonl"
    check_safe(
        run(
            "ask",
            library,
            "--file",
            questions,
            "--setting",
            "not_in_library=ask",
            "-o",
            output,
            *model_options,
            "--setting",
            f"log={log}",
            "--setting",
            "log_text=true",
        ),
        succeeded=False,
    )
    endpoint.script[CHAT] = [answer]
    again = ("--setting", "not_in_library=ask", "--json")
    check_safe(run("ask", library, "--file", questions, "-o", output, *model_options, *again), succeeded=True)
    for path in (output, log):
        assert unsafe_in(path.read_text(encoding="utf-8")) == []
    page = tmp_path / "page.html"
    check_safe(run("grade", "run", output, "--no-meteor"))
    check_safe(run("report", output, "--json"))
    check_safe(run("report", output, "-o", page, "--title", f"Title {EVIL}"))
    assert not page.exists() or unsafe_in(page.read_text(encoding="utf-8")) == []


@pytest.mark.long
def test_evaluate_report_and_compare_with_hostile_names_are_safe(
    run: Run, tmp_path: Path, endpoint: Endpoint, model_options: tuple[str, ...]
) -> None:
    library, questions = evil_library(tmp_path / "library"), tmp_path / f"{NAME}.jsonl"
    rows = [
        {"id": f"q{number}{EVIL}", "text": f"{QUESTION} {number}", "options": {"A": EVIL, "B": "no"}, "gold": "A"}
        for number in range(2)
    ]
    questions.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    runs = []
    for name in ("one", "two"):
        endpoint.script[CHAT] = [reply(quotes=[{"doc": 1, "quote": EVIL}], answer="It does", choice="A")]
        folder = tmp_path / f"{name}{NAME}"
        result = run("evaluate", questions, "--library", library, "-o", folder, *model_options, "--yes")
        check_safe(result)
        assert (folder / "manifest.json").exists(), result.stderr
        runs.append(folder)
    page = tmp_path / "page.html"
    check_safe(run("report", *runs, "-o", page, "--title", f"Title {EVIL}"), succeeded=True)
    assert unsafe_in(page.read_text(encoding="utf-8")) == []
    check_safe(run("compare", *runs), succeeded=True)
    check_safe(run("compare", *runs, "--json"), succeeded=True)


def test_streamed_reply_on_narrow_terminal_keeps_gutter(capsys: pytest.CaptureFixture[str]) -> None:
    """A terminal would break a line of blanks and words where the text wants it."""
    console = open_console()
    console.width, console._force_terminal = 40, True
    screen = EventDisplay(console)
    screen.show(AnswerStarted("rag", 2))
    for piece in ("It does.", " " * 20, FAKE, "\n", f"  {FAKE}"):
        screen.show(TextDelta("rag", piece))
    lines = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).split("\n")
    assert lines[0].startswith("RAG over 2 passages: It does.")
    assert all(line.startswith(GUTTER) for line in lines[1:])
    assert all(len(line) <= 40 for line in lines)


def test_pipe_with_force_color_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jupyter sets it for the commands of its cells."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert not open_console(file=io.StringIO()).is_terminal


def test_long_title_on_narrow_terminal_keeps_gutter(capsys: pytest.CaptureFixture[str]) -> None:
    console = open_console()
    console.width, console._force_terminal = 40, True
    title = f"A trial of aspirin in older people   {FAKE} and so on {FAKE}"
    citation = Citation(
        number=1,
        passage_id="d#0",
        document_id="d",
        title=title,
        source="",
        date="2015",
        start=0,
        end=9,
        quotation=f"Aspirin {FAKE}",
        verified=True,
    )
    EventDisplay(console).show(
        Answered(
            Answer(
                question=Question("Why?"),
                strategy="rag",
                state="answered",
                text=f"It does. {FAKE}",
                citations=(citation,),
            )
        )
    )
    lines = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).splitlines()
    assert [line for line in lines if line.startswith("  [")] == [line for line in lines if line.startswith("  [1]")]
    assert all(len(line) <= 40 for line in lines)
    assert sum("Cochrane" in line for line in lines) == 4


def test_preflight_of_many_documents_shows_first_ids() -> None:
    out = io.StringIO()
    top = tuple(f"pubmed:{number}" for number in range(9))
    verdict = Preflight(
        rankings_agree=True,
        value=0.4,
        n=9,
        threshold=0.2,
        depth=16,
        dense_top=top,
        bm25_top=(),
        reason="one stands out",
        signal="dense-gap",
    )
    EventDisplay(Console(file=out, width=200)).show(PreflightChecked(verdict))
    assert out.getvalue().splitlines()[1] == f"  dense: {', '.join(top[:5])} and 4 more"


class _Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def test_long_line_is_broken_between_words_in_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    path, line = (
        "/a/" + "long" * 12,
        f"warning: 2 pieces of hidden text were left out ({'/a/' + 'long' * 12}; --option x)",
    )
    terminal, pipe = _Terminal(), io.StringIO()
    monkeypatch.setattr("sys.stderr", terminal)
    say(line, err=True)
    monkeypatch.setattr("sys.stderr", pipe)
    say(line, err=True)
    assert pipe.getvalue() == f"{line}\n"
    first, *others = terminal.getvalue().splitlines()
    assert first == "warning: 2 pieces of hidden text were"
    assert all(other.startswith("    ") for other in others)
    assert " ".join(map(str.strip, terminal.getvalue().splitlines())) == line
    assert path in terminal.getvalue()
