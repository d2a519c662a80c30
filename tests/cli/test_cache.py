"""`epicrisis cache`, and the cache, the budget and the replay of a real run against a server on loopback."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner

from epicrisis.cli.program import app
from epicrisis.core.types import Document
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.write.ingest import add_documents
from epicrisis.testing.hashing_encoder import HashingEncoder
from tests.support.faults import Fault
from tests.support.hostile import HostileServer

WORDS = (
    "aspirin",
    "stroke",
    "trial",
    "dose",
    "placebo",
    "risk",
    "fever",
    "biopsy",
    "cohort",
    "plasma",
    "serum",
    "liver",
    "renal",
    "statin",
)


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """Return a library of forty documents with hashed vectors, so that no model is needed."""
    folder, encoder = tmp_path / "library", HashingEncoder(16, max_tokens=64)
    with LibraryStore.create(
        folder, encoder_fingerprint=encoder.fingerprint, encoder_name="hashing", dimensions=16, max_tokens=64, overlap=0
    ) as store:
        texts = [f"Report {i}: " + " ".join(WORDS[(i * j) % len(WORDS)] for j in range(1, 12)) for i in range(40)]
        add_documents(store, [Document(f"doc:{i}", text) for i, text in enumerate(texts)], encoder)
    return folder


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    path = tmp_path / "questions.jsonl"
    rows = [
        {"id": str(i), "text": f"Does {word} help?", "options": {"A": "yes", "B": "no"}} for i, word in enumerate(WORDS)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


FATAL = tuple(fault for fault in Fault if not fault.name.startswith(("SLOW", "USAGE", "WRONG", "OVERFLOW")))
"""Faults after which no answer is possible, in one part or in many."""


def run(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert "Traceback" not in result.output
    return result.exit_code, result.stdout, result.stderr


def ask(library: Path, url: str, *more: object) -> tuple[int, str, str]:
    return run(
        "ask",
        library,
        "--model",
        f"{url}#hostile",
        "--by",
        "bm25",
        "--setting",
        "preflight.enabled=false",
        "-k",
        8,
        *more,
    )


def read_choices(path: Path) -> dict[str, str]:
    return {row["key"]: row["answer"]["choice"] for row in map(json.loads, path.read_text().splitlines())}


@pytest.mark.slow
def test_rerun_with_cache_repeats_no_call_and_replays_without_server(
    library: Path, questions: Path, tmp_path: Path
) -> None:
    with HostileServer() as server:
        code, out, err = ask(library, server.url, "--file", questions, "-o", tmp_path / "one.jsonl")
        assert (code, err.count("failed")) == (0, 0), err
        paid_calls = server.ledger.calls
        assert paid_calls > 2 * len(WORDS)
        assert ask(library, server.url, "--file", questions, "-o", tmp_path / "two.jsonl")[0] == 0
        assert server.ledger.calls == paid_calls
        url = server.url
    code, out, err = ask(
        library, url, "--file", questions, "-o", tmp_path / "three.jsonl", "--setting", "cache.mode=replay"
    )
    assert code == 0, err
    assert f"0 calls and {paid_calls:,} cached replies" in out
    assert (
        read_choices(tmp_path / "one.jsonl")
        == read_choices(tmp_path / "two.jsonl")
        == read_choices(tmp_path / "three.jsonl")
    )
    file = library / "replies.sqlite"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert run("cache", "info", library)[1].startswith(f"{paid_calls:,} replies in {file}")
    assert run("cache", "clear", library)[1].startswith(f"deleted {paid_calls:,} replies")
    code, out, err = ask(library, url, "Does statin help?", "--options", "yes,no", "--setting", "cache.mode=replay")
    assert code == 2
    assert "once with cache.mode = on" in err


@pytest.mark.slow
def test_ask_with_cache_off_stores_no_replies(library: Path) -> None:
    with HostileServer() as server:
        for _ in range(2):
            assert ask(library, server.url, "Does statin help?", "--setting", "cache.mode=off")[0] == 0
        assert server.ledger.calls == 6
    assert not (library / "replies.sqlite").exists()


@pytest.mark.slow
def test_ask_file_over_token_budget_stops_and_keeps_its_answers(library: Path, questions: Path, tmp_path: Path) -> None:
    answers = tmp_path / "answers.jsonl"
    with HostileServer() as server:
        code, _, err = ask(library, server.url, "--file", questions, "-o", answers, "--budget-tokens", 5_000)
        assert code == 2
        assert "of 5,000 tokens are spent" in err
        assert "raise --budget-tokens" in err
        server_ledger = server.ledger
        assert server_ledger.told_prompt_tokens + server_ledger.told_completion_tokens <= 5_000
        assert 0 < len(read_choices(answers)) < len(WORDS)
        assert ask(library, server.url, "--file", questions, "-o", answers)[0] == 0
        assert len(read_choices(answers)) == len(WORDS)
        cache_info = run("cache", "info", library)[1]
        assert cache_info.startswith(f"{server.ledger.healthy} replies"), "none was paid for twice"


def test_ask_with_dollar_budget_and_unknown_price_fails(library: Path, questions: Path, tmp_path: Path) -> None:
    config = tmp_path / "epicrisis.toml"
    config.write_text('[models.writer]\nname = "https://models.example.org/v1#no-such-model"\n')
    code, _, err = run(
        "ask",
        library,
        "Does statin help?",
        "--by",
        "bm25",
        "--setting",
        "preflight.enabled=false",
        "--config",
        config,
        "--budget-usd",
        1,
    )
    assert code == 2
    assert "price" in err


def test_ask_about_patient_with_cache_outside_library_is_refused(tmp_path: Path) -> None:
    folder, encoder = tmp_path / "ward", HashingEncoder(16, max_tokens=64)
    with LibraryStore.create(
        folder, encoder_fingerprint=encoder.fingerprint, encoder_name="hashing", dimensions=16, max_tokens=64, overlap=0
    ) as store:
        add_documents(store, [Document("note:1", "aspirin was stopped", patient="anna")], encoder)
    config = tmp_path / "epicrisis.toml"
    config.write_text(f'[cache]\npath = "{tmp_path / "elsewhere.sqlite"}"\n')
    with HostileServer() as server:
        code, _, err = ask(folder, server.url, "Does aspirin help?", "--config", config)
        assert code == 2
        assert "patients' notes" in err
        assert server.ledger.calls == 0
        assert not (tmp_path / "elsewhere.sqlite").exists()


@pytest.mark.slow
def test_ask_with_record_setting_saves_every_call_with_owner_only_permissions(library: Path, tmp_path: Path) -> None:
    record = tmp_path / "calls.jsonl"
    with HostileServer() as server:
        for _ in range(2):
            assert ask(library, server.url, "Does statin help?", "--setting", f"record={record}")[0] == 0
    rows = [json.loads(line) for line in record.read_text().splitlines()]
    assert [row["replayed"] for row in rows] == [False] * 3 + [True] * 3
    assert all("Does statin help?" in row["request"]["messages"][1]["content"] for row in rows)
    assert stat.S_IMODE(record.stat().st_mode) == 0o600


@pytest.mark.slow
def test_ask_file_with_dead_endpoint_stops_with_one_line(library: Path, questions: Path, tmp_path: Path) -> None:
    config = tmp_path / "epicrisis.toml"
    config.write_text("[models.writer]\ntimeout_seconds = 1\nretry_seconds = 1\ntries = 2\n")
    with HostileServer(faults=FATAL, rate=1.0, slow=0.2, retry_after=0.2) as server:
        code, _, err = ask(
            library,
            server.url,
            "--file",
            questions,
            "-o",
            tmp_path / "answers.jsonl",
            "--config",
            config,
            "--setting",
            f"questions_at_once={3}",
        )
    assert code == 2
    assert "in a row failed, so the run was stopped" in err.splitlines()[-1]


def test_cache_commands_without_library_fail(tmp_path: Path) -> None:
    for command in ("info", "clear"):
        code, _, err = run("cache", command, tmp_path / "nowhere")
        assert (code, "no library" in err) == (2, True)
