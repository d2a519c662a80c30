"""Endpoints that refuse, hang or talk nonsense: one clear line, exit code 2, a failed state in the JSON."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.cli.test_bad_input import assert_one_line
from tests.support.loopback import USAGE, Endpoint, Scripted, answer_with, completion, serving

pytestmark = pytest.mark.models

CHAT = "/v1/chat/completions"


HEALTHY = answer_with(json.dumps({"result": {"found": True, "answer": "Zinc shortens it."}}))

BAD: dict[str, tuple[Scripted, str]] = {
    "HTML": (Scripted("<html><body>Welcome</body></html>", kind="text/html"), "ReplyInvalid"),
    "malformed JSON": (Scripted('{"choices": [{"message": '), "ReplyInvalid"),
    "no choices": (Scripted({"choices": []}), "ReplyInvalid"),
    "an empty answer": (Scripted(completion("", usage=USAGE)), "ReplyEmpty"),
    "a server error": (Scripted({"error": {"message": "broken"}}, 500), "EndpointBusy"),
    "no such model": (Scripted({"error": {"message": "no such model"}}, 404), "EndpointRejected"),
    "a hanging server": (Scripted(hangs=True), "EndpointTimeout"),
}


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with serving() as server:
        yield server


@pytest.mark.long
@pytest.mark.parametrize("kind", BAD)
def test_ask_with_failing_endpoint_reports_one_line_and_state(
    kind: str, endpoint: Endpoint, small_library: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EPICRISIS_MODELS__WRITER__TIMEOUT_SECONDS", "0.3")
    monkeypatch.setenv("EPICRISIS_MODELS__WRITER__TRIES", "2")
    monkeypatch.setenv("EPICRISIS_MODELS__WRITER__CONTEXT_TOKENS", "8192")
    reply, failure = BAD[kind]
    endpoint.script[CHAT] = [reply]
    arguments = ("ask", small_library, "What does zinc do?", "--model", f"{endpoint.url}/v1#m", "--strategy", "rag")
    result = run(*arguments, "--json")
    assert_one_line(result)
    answer = json.loads(result.stdout)
    # An empty reply is one that was given.
    state = "unparsed" if failure == "ReplyEmpty" else "failed"
    assert (answer["state"], answer["failure"]["kind"]) == (state, failure)
    assert "zinc do" not in result.stderr
    assert answer["usage"]["failed_calls"] >= 1


@pytest.mark.slow
def test_ask_with_unreachable_endpoint_reports_one_line(small_library: Path, run: Run) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    result = run("ask", small_library, "What does zinc do?", "--model", f"http://127.0.0.1:{port}/v1#m")
    assert_one_line(result, f"127.0.0.1:{port}", "--model")


@pytest.mark.slow
def test_ask_with_reply_in_prose_reads_the_choice(endpoint: Endpoint, small_library: Path, run: Run) -> None:
    endpoint.script[CHAT] = [answer_with("The answer is B.")]
    result = run(
        "ask",
        small_library,
        "Does zinc lengthen diarrhoea?",
        "--options",
        "yes,no",
        "--strategy",
        "closed-book",
        "--model",
        f"{endpoint.url}/v1#m",
        "--json",
    )
    answer = json.loads(result.stdout)
    assert (answer["state"], answer["choice"]) == ("answered", "B")


@pytest.mark.slow
def test_ask_file_after_failures_continues_and_repeats_only_failed_questions(
    endpoint: Endpoint, small_library: Path, tmp_path: Path, run: Run
) -> None:
    questions, answers = tmp_path / "questions.jsonl", tmp_path / "answers.jsonl"
    rows = [{"id": str(i), "text": f"What does zinc do, {i}?"} for i in range(3)]
    questions.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    refused = Scripted({"error": {"message": "no"}}, 403)
    endpoint.script[CHAT] = [HEALTHY, refused, HEALTHY]
    arguments = (
        "ask",
        small_library,
        "--file",
        questions,
        "-o",
        answers,
        "--strategy",
        "closed-book",
        "--model",
        f"{endpoint.url}/v1#m",
    )
    first = run(*arguments)
    assert_one_line(first, "1 question failed")
    assert len(answers.read_text(encoding="utf-8").splitlines()) == 3
    calls_before = len(endpoint.bodies(CHAT))
    second = run(*arguments, "--json")
    assert second.exit_code == 0, second.stderr
    assert json.loads(second.stdout)["answered"] == 3
    assert len(endpoint.bodies(CHAT)) == calls_before + 1
