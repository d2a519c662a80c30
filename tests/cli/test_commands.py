"""The most common commands on the embedded models."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run


@pytest.mark.long
@pytest.mark.models
def test_add_again_adds_nothing_and_replaces_changed_documents(small_library: Path, papers: Path, run: Run) -> None:
    again = run("library", "add", small_library, papers, "--json")
    assert json.loads(again.stdout)["unchanged"] == 3
    changed = papers.read_text(encoding="utf-8").replace("shortens", "much shortens")
    papers.write_text(changed, encoding="utf-8")
    result = run("library", "add", small_library, papers, "--json")
    assert json.loads(result.stdout)["replaced"] == 1
    info = json.loads(run("library", "info", small_library, "--json").stdout)
    assert (info["documents"], info["problems"]) == (3, [])


@pytest.mark.long
@pytest.mark.models
@pytest.mark.parametrize("by", ["dense", "bm25", "hybrid"])
def test_search_ranks_matching_document_first_and_hides_newer_ones(by: str, small_library: Path, run: Run) -> None:
    ranking = json.loads(run("search", small_library, "aspirin and pre-eclampsia", "--by", by, "--json").stdout)
    assert ranking["hits"][0]["passage"]["document_id"] == "a"
    assert ranking["retriever"] == by
    older = run("search", small_library, "aspirin and pre-eclampsia", "--by", by, "--as-of", "2016", "--json")
    assert "a" not in {hit["passage"]["document_id"] for hit in json.loads(older.stdout)["hits"]}


@pytest.mark.long
@pytest.mark.models
def test_ask_verbose_shows_search_preflight_and_usage(small_library: Path, run: Run) -> None:
    question = ("Does aspirin lower the risk of pre-eclampsia?", "--options", "yes,no")
    result = run("ask", small_library, *question, "-k", 3, "--strategy", "brief-context", "--verbose")
    assert "Found by hybrid" in result.stdout
    assert "Preflight" in result.stdout
    assert "small model for demonstration" in result.stdout
    assert "prompt tokens" in result.stdout
    assert result.exit_code in (0, 2)


@pytest.mark.long
@pytest.mark.models
def test_ask_json_has_answer_with_trace(small_library: Path, run: Run) -> None:
    result = run(
        "ask",
        small_library,
        "Does zinc shorten diarrhoea?",
        "--strategy",
        "brief-context",
        "--setting",
        "preflight.enabled=false",
        "--setting",
        f"partition={2}",
        "--json",
        "-k",
        3,
    )
    answer = json.loads(result.stdout)
    events = [event["event"] for event in answer["trace"]]
    assert answer["state"] in ("answered", "abstained", "unparsed", "failed")
    assert events.count("map-started") == events.count("map-finished") == 2
    assert answer["usage"]["prompt_tokens"] > 0
    assert answer["preflight"] is None
    for citation in answer["citations"]:
        assert citation["number"] >= 1
        assert isinstance(citation["verified"], bool)


@pytest.mark.long
@pytest.mark.models
def test_ask_file_resumed_repeats_no_finished_question(small_library: Path, tmp_path: Path, run: Run) -> None:
    questions = tmp_path / "questions.jsonl"
    rows = [{"id": str(i), "text": text} for i, text in enumerate(("What does zinc do?", "What do statins do?"))]
    questions.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    answers = tmp_path / "answers.jsonl"
    arguments = ("ask", small_library, "--file", questions, "-o", answers, "-k", 2, "--strategy", "rag")
    run(*arguments)
    complete = answers.read_bytes()
    assert len(complete.splitlines()) == 2
    first = complete.splitlines(keepends=True)[0]
    answers.write_bytes(first + complete[len(first) : len(first) + 40])  # as a kill in the middle of a line leaves it
    run(*arguments)
    lines = answers.read_bytes().splitlines(keepends=True)
    assert lines[0] == first
    assert len(lines) == 2
    before = answers.read_bytes()
    run(*arguments)
    assert answers.read_bytes() == before
    conflicting = run(*arguments[:-1], "closed-book")
    assert conflicting.exit_code == 2
    assert "made with other settings (library, settings.strategy)" in conflicting.stderr


@pytest.mark.long
def test_doctor_lists_hosts_that_would_be_contacted(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EPICRISIS_MODELS__WRITER__NAME", "https://models.example.org/v1")
    monkeypatch.setenv("EPICRISIS_RERANK__NAME", "https://rerank.example.org")
    report = json.loads(run("doctor", "--json", "--local-only").stdout)
    assert {row["host"] for row in report["contacts"]} == {"models.example.org", "rerank.example.org"}
    assert all(row["refused"] for row in report["contacts"])
    monkeypatch.setenv("EPICRISIS_MODELS__WRITER__NAME", "http://127.0.0.1:9/v1")
    monkeypatch.delenv("EPICRISIS_RERANK__NAME")
    assert json.loads(run("doctor", "--json").stdout)["contacts"] == []


def test_models_list_shows_licence_size_and_pinning(run: Run) -> None:
    rows = json.loads(run("models", "list", "--json").stdout)
    assert {"minilm", "smollm2-135m"} <= {row["name"] for row in rows}
    assert all(row["licence"] for row in rows)
    assert all((row["bytes"] is not None and row["bytes"] > 1_000_000) == row["pinned"] for row in rows)
    sources = {row["name"]: (row["publisher"], row["source"]) for row in rows}
    hub = "hub: Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF@ebb2015119"
    assert sources["qwen2.5-coder-0.5b"] == ("Qwen", hub)
    assert sources["medcpt"][0] == "ncbi"
    listing = run("models", "list").stdout
    assert f"Qwen ({hub})" in listing
    assert "unpinned: downloaded from the hub in its current version" in listing
