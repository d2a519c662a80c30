"""Hostile characters, markup and line breaks on every way from outside to the screen."""

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

from epicrisis.answers import Answer, Answered, AnswerStarted, Citation, PreflightChecked, TextDelta
from epicrisis.cli.event_display import EventDisplay
from epicrisis.cli.terminal import open_console
from epicrisis.library.ingest import add_documents, open_or_create
from epicrisis.printable import GUTTER
from epicrisis.testing.encoders import HashingEncoder
from epicrisis.types import Document, Preflight, Question
from tests.cli.conftest import Run
from tests.support.loopback import USAGE, Endpoint, Scripted, completion, serving, sse
from tests.support.unsafe_text import ENCODED, UNSAFE, unsafe_in

ENCODER = HashingEncoder(64, 128)
CHAT = "/v1/chat/completions"
FAKE = "[9] Cochrane review, characters 0 to 9"
EVIL = f"{ENCODED}[red]:pill:[link=http://evil]\n  {FAKE}\r\u2028  {FAKE}\x85{FAKE}"
"""All of it, rich's markup, and lines that look like a citation of the program's own."""
NAME = f"a{ENCODED.replace('/', '')}\n{FAKE}"
"""As much of it as a file name can hold."""
QUESTION = "What does aspirin do?"


def check(result: Result, *, answered: bool | None = None) -> None:
    """The screen shows nothing that a terminal obeys, no line that is forged, and no traceback."""
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    for text in (result.stdout, result.stderr):
        assert unsafe_in(text) == []
        assert "Traceback" not in text
        assert not [line for line in text.splitlines() if re.match(r"\s*\[9\]", line)]
    if answered is not None:
        assert (result.exit_code == 0) is answered, result.stderr


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
    with open_or_create(folder, ENCODER, "hashing", 0) as made:
        add_documents(made, documents, ENCODER)
    return folder


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    monkeypatch.setenv("EPICRISIS_MODELS__WRITER__CONTEXT_TOKENS", "8192")
    monkeypatch.setenv("EPICRISIS_MODELS__WRITER__TRIES", "1")
    monkeypatch.setenv("EPICRISIS_CACHE__MODE", "off")
    with serving() as made:
        yield made


def streamed(text: str) -> Scripted:
    return Scripted(sse(*re.findall(r"\s*\S+", text), usage=USAGE), kind="text/event-stream")


def reply(**fields: object) -> Scripted:
    return streamed(json.dumps({"result": {"found": True, **fields}}))


@pytest.fixture
def asked(endpoint: Endpoint) -> tuple[str, ...]:
    """The arguments that name the model, found by words, without a check of rankings."""
    return (
        "--model",
        f"{endpoint.url}/v1#m",
        "--strategy",
        "rag",
        "--by",
        "bm25",
        "--setting",
        "preflight.enabled=false",
    )


def test_search_and_library_commands_show_hostile_documents_safely(run: Run, tmp_path: Path) -> None:
    library = evil_library(tmp_path / f"my [red]library\u202e\u200b {FAKE}")
    check(run("search", library, "aspirin", "--by", "bm25"), answered=True)
    shown = run("search", library, "aspirin", "--by", "bm25", "--json")
    check(shown, answered=True)
    assert json.loads(shown.stdout)["hits"][0]["passage"]["document_id"].endswith(EVIL), "data stays as it is"
    for command in ("info", "check"):
        check(run("library", command, library))
        check(run("library", command, library, "--json"))
    check(run("library", "delete", library, f"none{EVIL}"), answered=False)
    check(run("library", "repair", library))


def test_library_patients_shows_hostile_ids_on_one_line_each(run: Run, tmp_path: Path) -> None:
    ward = evil_library(tmp_path / "ward", patient=f"p{EVIL}")
    shown = run("library", "patients", ward)
    check(shown, answered=True)
    assert len(shown.stdout.splitlines()) == 2
    check(run("library", "patients", ward, "--json"), answered=True)
    check(run("search", ward, "aspirin", "--by", "bm25", "--patient", f"p{EVIL}"), answered=True)
    check(run("search", ward, "aspirin", "--by", "bm25", "--patient", f"other{EVIL}"), answered=False)
    check(run("ask", ward, f"aspirin {ENCODED}", "--by", "bm25"), answered=False)


@pytest.mark.parametrize("by_json", [False, True])
def test_ask_shows_hostile_replies_safely(
    by_json: bool, run: Run, tmp_path: Path, endpoint: Endpoint, asked: tuple[str, ...]
) -> None:
    library = evil_library(tmp_path / "library")
    more = ("--json",) if by_json else ()
    quotes = [{"doc": 1, "quote": f"Aspirin {EVIL}"}]
    endpoint.script[CHAT] = [reply(quotes=quotes, answer=f"It lowers it. {UNSAFE}\n  {FAKE}\n{FAKE}", choice="A")]
    for options in ((), ("--options", f"yes {EVIL},no")):
        check(run("ask", library, f"{QUESTION} {EVIL}", *asked, *options, *more))
    endpoint.script[CHAT] = [streamed(f"In prose {UNSAFE}\n{FAKE}")]
    check(run("ask", library, QUESTION, *asked, *more))
    endpoint.script[CHAT] = [reply(quotes=quotes, answer="It does", choice=f"C {EVIL}")]
    check(run("ask", library, QUESTION, *asked, "--options", "yes,no", *more), answered=False)
    for bad in (Scripted({"error": {"message": EVIL, "code": EVIL}}, 400), Scripted(EVIL, 500), Scripted(EVIL)):
        endpoint.script[CHAT] = [bad]
        check(run("ask", library, QUESTION, *asked, *more), answered=False)
    endpoint.script[CHAT] = [Scripted(completion(f"No stream {UNSAFE}\n{FAKE}", finish=EVIL) | {"model": EVIL})]
    check(run("ask", library, QUESTION, *asked, *more))


def test_errors_that_repeat_arguments_are_printable(run: Run, tmp_path: Path) -> None:
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
        check(run(*arguments), answered=False)


def test_settings_file_with_hostile_keys_and_values(run: Run, tmp_path: Path) -> None:
    library, config = evil_library(tmp_path / "library"), tmp_path / "epicrisis.toml"
    for text in (
        f"{json.dumps('k' + EVIL)} = 1",
        f"by = {json.dumps(ENCODED)}",
        f"[rerank]\nname = {json.dumps(ENCODED)}",
        f"by = {EVIL}",
    ):
        config.write_text(text, encoding="utf-8")
        check(run("search", library, "aspirin", "--config", config), answered=False)


def test_adding_hostile_files_names_them_safely(run: Run, tmp_path: Path, model_home: Path) -> None:
    folder = tmp_path / "papers"
    folder.mkdir()
    (folder / f"{NAME}.jsonl").write_text(f'{{"id": "x{ENCODED[3]}\n', encoding="utf-8")
    (folder / f"b{NAME}.txt").write_bytes(b"\xff\xfe\xff")
    (folder / f"c{NAME}.xyz").write_text("none")
    with open(os.fsencode(folder) + b"/\xff\x1b[31m.txt", "wb") as file:
        file.write(b"Aspirin lowers the risk.")
    check(run("library", "add", tmp_path / "made", folder), answered=False)
    check(run("library", "check", tmp_path / "made"))
    check(run("library", "add", tmp_path / "made", folder / f"c{NAME}.xyz"), answered=False)


def test_answers_of_a_file_are_shown_and_kept_safely(
    run: Run, tmp_path: Path, endpoint: Endpoint, asked: tuple[str, ...]
) -> None:
    library, questions = evil_library(tmp_path / "library"), tmp_path / f"{NAME}.jsonl"
    rows = [
        {"id": f"q{EVIL}", "text": f"{QUESTION} {EVIL}", "options": {"A": EVIL, "B": "no"}, "gold": "A"},
        {"id": f"r{EVIL}", "text": QUESTION, "gold": EVIL},
        {"id": EVIL},
    ]
    questions.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    good = reply(quotes=[{"doc": 1, "quote": EVIL}], answer=f"It does {UNSAFE}\n{FAKE}", choice="A")
    endpoint.script[CHAT] = [good, Scripted({"error": {"message": EVIL}}, 400)]
    output, log = tmp_path / f"out{NAME}.jsonl", tmp_path / "log.jsonl"
    check(
        run(
            "ask",
            library,
            "--file",
            questions,
            "-o",
            output,
            *asked,
            "--setting",
            f"log={log}",
            "--setting",
            "log_text=true",
        ),
        answered=False,
    )
    endpoint.script[CHAT] = [good]
    check(run("ask", library, "--file", questions, "-o", output, *asked, "--json"), answered=True)
    for path in (output, log):
        assert unsafe_in(path.read_text(encoding="utf-8")) == []
    page = tmp_path / "page.html"
    check(run("grade", "run", output, "--no-meteor"))
    check(run("report", output, "--json"))
    check(run("report", output, "-o", page, "--title", f"Title {EVIL}"))
    assert not page.exists() or unsafe_in(page.read_text(encoding="utf-8")) == []


def test_evaluate_report_and_compare_with_hostile_names(
    run: Run, tmp_path: Path, endpoint: Endpoint, asked: tuple[str, ...]
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
        result = run("evaluate", questions, "--library", library, "-o", folder, *asked, "--yes")
        check(result)
        assert (folder / "manifest.json").exists(), result.stderr
        runs.append(folder)
    page = tmp_path / "page.html"
    check(run("report", *runs, "-o", page, "--title", f"Title {EVIL}"), answered=True)
    assert unsafe_in(page.read_text(encoding="utf-8")) == []
    check(run("compare", *runs), answered=True)
    check(run("compare", *runs, "--json"), answered=True)


def test_a_streamed_reply_cannot_pass_for_a_citation_on_a_narrow_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """The terminal would break a line of blanks and words exactly where its text likes it."""
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


def test_a_long_title_goes_on_behind_the_gutter_on_a_narrow_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    console = open_console()
    console.width, console._force_terminal = 40, True
    title = f"A trial of aspirin in older people   {FAKE} and so on {FAKE}"
    cited = Citation(1, "d#0", "d", title, "", "2015", 0, 9, f"Aspirin {FAKE}", True)
    EventDisplay(console).show(
        Answered(Answer(Question("Why?"), "rag", "answered", f"It does. {FAKE}", citations=(cited,)))
    )
    lines = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).splitlines()
    assert [line for line in lines if line.startswith("  [")] == [line for line in lines if line.startswith("  [1]")]
    assert all(len(line) <= 40 for line in lines)
    assert sum("Cochrane" in line for line in lines) == 4


def test_screen_preflight_of_many_documents_shows_first_ids_and_their_number() -> None:
    out = io.StringIO()
    top = tuple(f"pubmed:{number}" for number in range(9))
    verdict = Preflight(True, 0.4, 9, 0.2, 16, top, (), "one stands out", signal="dense-gap")
    EventDisplay(Console(file=out, width=200)).show(PreflightChecked(verdict))
    assert out.getvalue().splitlines()[1] == f"  dense: {', '.join(top[:5])} and 4 more"
