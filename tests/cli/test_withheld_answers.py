"""An answer that no quotation supports is shown as withheld, on the screen, in JSON and in runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from epicrisis.core.types import Document
from tests.cli.conftest import Run
from tests.support.hostile import HostileServer
from tests.support.patient_records import library

QUESTION = "Does aspirin prevent stroke?"


@pytest.fixture
def trials(tmp_path: Path) -> Path:
    document = Document("a", "Aspirin lowered the risk of stroke in adults.", title="Aspirin for primary prevention")
    with library(tmp_path / "trials", [document]) as store:
        return store.path


def reply_quoting(quote: str) -> Any:
    result = {"found": True, "quotes": [{"doc": 1, "quote": quote}], "answer": "It does.", "choice": "A"}
    return lambda body: json.dumps({"result": result})


def ask(run: Run, trials: Path, quote: str, *flags: str, strategy: str = "rag") -> Any:
    flags = (
        "--options",
        "yes,no",
        "--by",
        "bm25",
        "--setting",
        "cache.mode=off",
        "--setting",
        "citing=quotes",
        "--strategy",
        strategy,
        *flags,
    )
    with HostileServer(reply_quoting(quote)) as server:
        return run("ask", trials, QUESTION, *flags, "--model", server.url)


def test_ask_with_unverified_quotation_abstains_and_shows_reply(trials: Path, run: Run) -> None:
    result = ask(run, trials, "aspirin prevents every stroke")
    assert result.exit_code == 0
    assert "No answer (abstained): The model's answer is not trusted: its only quotation was not found" in result.stdout
    assert "The model answered: A. yes — It does." in result.stdout
    assert "“aspirin prevents every stroke” (NOT found in its document)" in result.stdout


def test_ask_json_with_unverified_quotation_holds_withheld_answer(trials: Path, run: Run) -> None:
    answer = json.loads(ask(run, trials, "aspirin prevents every stroke", "--json").stdout)
    assert (answer["state"], answer["choice"], answer["text"], answer["citations"]) == ("abstained", None, "", [])
    withheld = answer["withheld"]
    assert (withheld["choice"], withheld["citations"][0]["verified"]) == ("A", False)
    assert withheld["reason"] == "its only quotation was not found in the document it cites"


def test_ask_with_setting_keep_answers_without_verified_quotation(trials: Path, run: Run) -> None:
    result = ask(run, trials, "aspirin prevents every stroke", "--setting", "unverified=keep")
    assert "  * It does. [1] (not checked: it cites no sentence that stands in a document)" in result.stdout
    assert "No answer" not in result.stdout


def test_ask_with_verified_quotation_answers(trials: Path, run: Run) -> None:
    result = ask(run, trials, "Aspirin lowered the risk")
    assert "Answer: A. yes\n  * It does. [1] (not checked)\n" in result.stdout
    assert "“Aspirin lowered the risk” (not checked)" in result.stdout


def test_ask_with_title_as_quotation_cites_nothing(trials: Path, run: Run) -> None:
    result = ask(run, trials, "Aspirin for primary prevention")
    assert "  * It does. (not checked: no sentence was found that shows it)" in result.stdout
    assert (
        "It cites nothing: compare it with the nearest results that were read.\n\nNearest results\n  [1]"
        in result.stdout
    )


def test_ask_closed_book_answers_without_quotation(trials: Path, run: Run) -> None:
    result = ask(run, trials, "", strategy="closed-book")
    assert "Answer: A. yes — It does." in result.stdout
