"""One patient's record on the command line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from epicrisis.core.types import Document
from epicrisis.library.write.ingest import add_documents, open_or_create
from epicrisis.testing.hashing_encoder import HashingEncoder
from tests.cli.conftest import Run

ENCODER = HashingEncoder(64, 128)
FILLER = "The patient slept well and walked in the ward every day without help. " * 12
NOTES = [
    Document("note:2", f"Chest pain again. {FILLER} Chest film clear.", date="2151-05", patient="p1", source="notes"),
    Document("note:1", f"Chest pain. {FILLER} Aspirin begun.", date="2150-05", patient="p1", source="notes"),
    Document("note:3", "Chest pain of another.", date="2149", patient="p2", source="notes"),
]
PAPERS = [
    Document("paper:1", "Aspirin for chest pain: a trial.", date="2001"),
    Document("case:1", "Chest pain of a patient of theirs.", date="2001", patient="p1"),
]


def library(path: Path, documents: Sequence[Document]) -> Path:
    with open_or_create(path, ENCODER, "hashing", 0) as new_library:
        add_documents(new_library, documents, ENCODER)
    return path


@pytest.fixture
def ward(tmp_path: Path) -> Path:
    return library(tmp_path / "ward", NOTES)


def search_passages(run: Run, *arguments: object) -> list[dict[str, Any]]:
    result = run("search", *arguments, "--by", "bm25", "--json")
    assert result.exit_code == 0, result.stderr
    return [hit["passage"] for hit in json.loads(result.stdout)["hits"]]


def test_search_of_patient_by_time_rank_and_notes(run: Run, ward: Path) -> None:
    chunks = search_passages(run, ward, "chest pain", "--patient", "p1")
    dates = [passage["date"] for passage in chunks]
    assert dates == sorted(dates)
    assert {passage["document_id"] for passage in chunks} == {"note:1", "note:2"}
    notes = search_passages(
        run, ward, "chest film", "--patient", "p1", "--setting", "unit=note", "--setting", "order=rank"
    )
    assert [passage["id"] for passage in notes] == ["note:2#whole", "note:1#whole"]
    assert notes[0]["text"] == NOTES[0].text
    assert [
        passage["id"]
        for passage in search_passages(run, ward, "chest film", "--patient", "p1", "--setting", "unit=note", "-k", 1)
    ] == ["note:2#whole"]


@pytest.mark.slow
def test_search_with_time_expression_narrows_record(run: Run, ward: Path) -> None:
    query = (ward, "chest pain since 2151", "--patient", "p1")
    assert {passage["document_id"] for passage in search_passages(run, *query)} == {"note:2"}
    screen = run("search", *query, "--by", "bm25").stdout
    assert "since 2151: 2151-01-01/2151-12-31" in screen
    assert "1 of 2 notes is left out: by their times and types they seem to be about another time" in screen
    everything = search_passages(run, *query, "--setting", "timeline=false")
    assert {passage["document_id"] for passage in everything} == {"note:1", "note:2"}
    unknown_stay = run("search", ward, "chest pain of the ninth admission", "--patient", "p1", "--by", "bm25").stdout
    assert "no note is left out" in unknown_stay


def test_search_without_hit_in_narrowed_notes_uses_complete_record(run: Run, ward: Path) -> None:
    screen = run("search", ward, "aspirin since 2151", "--patient", "p1", "--by", "bm25").stdout
    assert "nothing is found in the remaining notes: searching the whole record" in screen
    assert "note:1" in screen


@pytest.mark.slow
def test_search_of_patient_and_literature_shows_sources(run: Run, ward: Path, tmp_path: Path) -> None:
    papers = library(tmp_path / "papers", PAPERS)
    passages = search_passages(run, ward, "chest pain", "--patient", "p1", "--setting", f"beside={papers}")
    assert {passage["document_id"] for passage in passages} == {"note:1", "note:2", "paper:1"}
    assert passages[-1]["document_id"] == "paper:1", "literature stands behind the notes"
    assert passages[-1]["source"] == "papers"
    screen = run(
        "search", ward, "chest pain", "--patient", "p1", "--setting", f"beside={papers}", "--by", "bm25"
    ).stdout
    assert "papers. 2001\n" in screen
    assert "notes. 2150-05" in screen


def test_search_library_beside_itself_is_refused(run: Run, ward: Path) -> None:
    result = run("search", ward, "chest pain", "--setting", f"beside={ward}", "--by", "bm25")
    assert result.exit_code == 2
    assert "contains a library twice" in result.stderr


def test_ask_file_about_other_patient_is_refused(run: Run, ward: Path, tmp_path: Path) -> None:
    questions = tmp_path / "questions.jsonl"
    questions.write_text('{"id": "q7", "text": "Chest pain?", "patient": "p2"}\n', encoding="utf-8")
    result = run("ask", ward, "--file", questions, "-o", tmp_path / "out.jsonl", "--patient", "p1", "--by", "bm25")
    assert result.exit_code == 2
    assert "question q7 is about another patient than --patient" in result.stderr
    assert not (tmp_path / "out.jsonl").exists()


@pytest.mark.long
def test_add_with_invalid_chunk_tokens_is_refused(run: Run, tmp_path: Path, papers: Path, model_home: Path) -> None:
    new_library = tmp_path / "library"
    result = run("library", "add", new_library, papers, "--chunk-tokens", 512)
    assert result.exit_code == 2
    assert "longer than the 254 that minilm reads" in result.stderr
    assert not new_library.exists()
    result = run("library", "add", new_library, papers, "--chunk-tokens", 16)
    assert "cannot share 32" in result.stderr
    assert run("library", "add", new_library, papers, "--chunk-tokens", 128).exit_code == 0
    assert json.loads((new_library / "manifest.json").read_text())["max_tokens"] == 128
    result = run("library", "add", new_library, papers, "--chunk-tokens", 64)
    assert result.exit_code != 0
    assert "has chunks of 128 tokens, not of 64" in result.stderr
