"""One patient's record on the command line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from epicrisis.library.ingest import add_documents, open_or_create
from epicrisis.testing.encoders import HashingEncoder
from epicrisis.types import Document
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
    with open_or_create(path, ENCODER, "hashing", 0) as made:
        add_documents(made, documents, ENCODER)
    return path


@pytest.fixture
def ward(tmp_path: Path) -> Path:
    return library(tmp_path / "ward", NOTES)


def found(run: Run, *arguments: object) -> list[dict[str, Any]]:
    result = run("search", *arguments, "--by", "bm25", "--json")
    assert result.exit_code == 0, result.stderr
    return [hit["passage"] for hit in json.loads(result.stdout)["hits"]]


def test_search_of_a_patient_by_time_by_rank_and_by_notes(run: Run, ward: Path) -> None:
    chunks = found(run, ward, "chest pain", "--patient", "p1")
    dates = [passage["date"] for passage in chunks]
    assert dates == sorted(dates)
    assert {passage["document_id"] for passage in chunks} == {"note:1", "note:2"}
    notes = found(run, ward, "chest film", "--patient", "p1", "--setting", "unit=note", "--setting", "order=rank")
    assert [passage["id"] for passage in notes] == ["note:2#whole", "note:1#whole"]
    assert notes[0]["text"] == NOTES[0].text
    assert [
        each["id"] for each in found(run, ward, "chest film", "--patient", "p1", "--setting", "unit=note", "-k", 1)
    ] == ["note:2#whole"]


def test_search_holds_what_is_said_of_time_against_the_record(run: Run, ward: Path) -> None:
    query = (ward, "chest pain since 2151", "--patient", "p1")
    assert {passage["document_id"] for passage in found(run, *query)} == {"note:2"}
    shown = run("search", *query, "--by", "bm25").stdout
    assert "since 2151: 2151-01-01/2151-12-31" in shown
    assert "1 of 2 notes is left out: by their times and types they seem to be about another time" in shown
    everything = found(run, *query, "--setting", "timeline=false")
    assert {passage["document_id"] for passage in everything} == {"note:1", "note:2"}
    open_ = run("search", ward, "chest pain of the ninth admission", "--patient", "p1", "--by", "bm25").stdout
    assert "no note is left out" in open_


def test_search_without_a_hit_in_narrowed_notes_searches_the_whole_record(run: Run, ward: Path) -> None:
    shown = run("search", ward, "aspirin since 2151", "--patient", "p1", "--by", "bm25").stdout
    assert "nothing is found in the remaining notes: searching the whole record" in shown
    assert "note:1" in shown


def test_search_of_a_patient_and_of_the_literature(run: Run, ward: Path, tmp_path: Path) -> None:
    papers = library(tmp_path / "papers", PAPERS)
    passages = found(run, ward, "chest pain", "--patient", "p1", "--setting", f"beside={papers}")
    assert {passage["document_id"] for passage in passages} == {"note:1", "note:2", "paper:1"}
    assert passages[-1]["document_id"] == "paper:1", "literature stands behind the notes"
    assert passages[-1]["source"] == "papers"
    shown = run("search", ward, "chest pain", "--patient", "p1", "--setting", f"beside={papers}", "--by", "bm25").stdout
    assert "(2001), papers" in shown
    assert "(2150-05), notes" in shown


def test_a_library_beside_itself_is_refused(run: Run, ward: Path) -> None:
    result = run("search", ward, "chest pain", "--setting", f"beside={ward}", "--by", "bm25")
    assert result.exit_code == 2
    assert "names a library twice" in result.stderr


def test_ask_of_a_file_keeps_to_each_questions_patient(run: Run, ward: Path, tmp_path: Path) -> None:
    questions = tmp_path / "questions.jsonl"
    questions.write_text('{"id": "q7", "text": "Chest pain?", "patient": "p2"}\n', encoding="utf-8")
    result = run("ask", ward, "--file", questions, "-o", tmp_path / "out.jsonl", "--patient", "p1", "--by", "bm25")
    assert result.exit_code == 2
    assert "question q7 is about another patient than --patient" in result.stderr
    assert not (tmp_path / "out.jsonl").exists()


def test_chunks_longer_than_the_encoder_reads_are_an_error(
    run: Run, tmp_path: Path, papers: Path, model_home: Path
) -> None:
    made = tmp_path / "library"
    result = run("library", "add", made, papers, "--chunk-tokens", 512)
    assert result.exit_code == 2
    assert "longer than the 254 that minilm reads" in result.stderr
    assert not made.exists()
    result = run("library", "add", made, papers, "--chunk-tokens", 16)
    assert "cannot share 32" in result.stderr
    assert run("library", "add", made, papers, "--chunk-tokens", 128).exit_code == 0
    assert json.loads((made / "manifest.json").read_text())["max_tokens"] == 128
    result = run("library", "add", made, papers, "--chunk-tokens", 64)
    assert result.exit_code != 0
    assert "has chunks of 128 tokens, not of 64" in result.stderr
