"""Lone surrogates, which no file and no terminal can hold, in replies and arguments."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.support.hostile import HostileServer

LONE_SURROGATE = "\udcff"
"""A byte that is not UTF-8, as it arrives on the command line."""


@pytest.mark.long
@pytest.mark.models
@pytest.mark.parametrize("escaped", [False, True])
def test_ask_with_lone_surrogate_in_reply_replaces_it_with_notice(
    escaped: bool, tmp_path: Path, run: Run, small_library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EPICRISIS_CACHE__PATH", str(tmp_path / "replies.sqlite"))

    def reply(body: dict[str, Any]) -> str:
        found = {"found": True, "answer": "It does \ud800.", "finding": "It does \ud800."}
        quotes = [{"doc": 1, "quote": "Aspirin \udfff lowers the risk"}]
        return json.dumps({"result": {**found, "quotes": quotes}}, ensure_ascii=escaped)

    with HostileServer(reply) as server:
        record = tmp_path / "record.jsonl"
        arguments = (
            small_library,
            "Does aspirin lower the risk?",
            "--model",
            f"{server.url}#m",
            "--setting",
            f"record={record}",
            "--setting",
            "citing=quotes",
        )
        results = [run("ask", *arguments) for _ in range(2)]
        calls = server.ledger.calls
    for result in results:
        assert result.exit_code == 0, result.output
        assert "It does \ufffd." in result.stdout
        assert (
            "the reply contains a lone surrogate, which is not a character: it was replaced by U+FFFD" in result.output
        )
    assert calls == 1, "the second answer comes from the cache"
    assert len(record.read_text(encoding="utf-8").splitlines()) == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ("ask", "LIBRARY", f"Does it {LONE_SURROGATE}?"),
        ("ask", "LIBRARY", "Does it?", "--patient", f"p{LONE_SURROGATE}"),
        ("search", "LIBRARY", f"heart {LONE_SURROGATE}"),
        ("library", "delete", "LIBRARY", f"id{LONE_SURROGATE}"),
    ],
)
def test_argument_that_is_not_utf8_reports_one_line(arguments: tuple[str, ...], tmp_path: Path, run: Run) -> None:
    result = run(*(str(tmp_path) if argument == "LIBRARY" else argument for argument in arguments))
    assert result.exit_code == 2
    assert "is not valid UTF-8" in result.stderr
    assert len(result.stderr.splitlines()) == 1
