"""Messages about damaged files repeat none of their content: a canary word is planted in every place that is read."""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from epicrisis.core.types import Document
from epicrisis.models.chat.cache import APPLICATION_ID, FORMAT
from tests.cli.conftest import Run
from tests.corpus.test_fhir import PATIENT, STAY, document, observation, packed
from tests.support.patient_records import library

CANARY = "kanarienvogel"
ODD = (
    CANARY,
    [CANARY],
    {CANARY: CANARY},
    {CANARY: [CANARY]},
    f"{CANARY}\0",
    f"{CANARY}\ud800",
    {"reference": CANARY},
    [[CANARY]],
)
"""Replacements of a value."""

FHIR = [
    {**PATIENT, "identifier": [{"system": "urn:x", "value": "4711"}], "birthDate": "1950-01-02"},
    STAY,
    document(packed("Plan"), relatesTo=[{"code": "replaces", "target": {"reference": "DocumentReference/d0"}}]),
    observation("Sodium", "2150-03-04T10:00", valueQuantity={"value": 1, "unit": "x"}),
]
LINE = {"id": "a", "text": "Fever.", "title": "T", "date": "2150", "patient": "p1", "metadata": {"k": 1}, "source": "s"}
QUESTION = {
    "id": "q",
    "text": "What?",
    "options": {"A": "x", "B": "y"},
    "gold": "A",
    "form": "choice",
    "patient": "p1",
    "also": ["z"],
    "evidence": [{"document_id": "d", "start": 0, "end": 1, "fact": "f"}],
    "gold_documents": ["d"],
}


def plant_canary(value: object) -> Iterator[object]:
    """Yield the value with the canary in place of each part and of each key, one at a time."""
    yield from ODD
    if isinstance(value, dict):
        for key, part in value.items():
            yield {name: other for name, other in value.items() if name != key} | {CANARY: part}
            for damaged in plant_canary(part):
                yield {**value, key: damaged}
    elif isinstance(value, list):
        for place, part in enumerate(value):
            for damaged in plant_canary(part):
                yield [*value[:place], damaged, *value[place + 1 :]]


def read_messages(paths: list[Path], **options: object) -> list[str]:
    from epicrisis.core.errors import EpicrisisError
    from epicrisis.corpus.base.reader_base import Skipped
    from epicrisis.corpus.readers.sources import read_sources

    try:
        items = list(read_sources(paths, **options))  # type: ignore[arg-type]
    except EpicrisisError as error:
        return [error.message]
    return [f"{item.where} {item.reason}" for item in items if isinstance(item, Skipped)]


@pytest.mark.long
@pytest.mark.parametrize("number", range(len(FHIR)))
def test_message_about_damaged_resource_repeats_no_content(number: int, tmp_path: Path) -> None:
    path = tmp_path / "export.ndjson"
    refused = 0
    for damaged in plant_canary(FHIR[number]):
        resources = [*FHIR[:number], damaged, *FHIR[number + 1 :]]
        path.write_text("".join(json.dumps(resource) + "\n" for resource in resources))
        texts = read_messages([path])
        refused += bool(texts)
        assert CANARY not in "".join(texts)
    assert refused


def test_message_about_damaged_line_repeats_no_content(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    for damaged in plant_canary(LINE):
        path.write_text(json.dumps(damaged) + "\n")
        assert CANARY not in "".join(read_messages([path]))
    for line in (CANARY, f'{{"{CANARY}', f'{{"id": 1{CANARY}}}', f'["{CANARY}"]', f'"{CANARY}"'):
        path.write_text(line)
        texts = read_messages([path])
        assert texts
        assert CANARY not in "".join(texts)


def test_message_about_damaged_question_repeats_no_content(tmp_path: Path) -> None:
    from epicrisis.corpus.base.reader_base import Skipped
    from epicrisis.corpus.readers.question_files import read_questions

    path = tmp_path / "questions.jsonl"
    for damaged in plant_canary(QUESTION):
        path.write_text(json.dumps(damaged) + "\n")
        assert CANARY not in "".join(item.reason for item in read_questions(path) if isinstance(item, Skipped))


ROWS = {
    "no header": f"{CANARY},Fever,Chills\n1,2,3\n",
    "header of data": f"17,{CANARY} since a week,x\n",
    "open quote": f'note_id,subject_id,note_type,charttime,text\n1,2,DS,2150,"{CANARY}\n',
    "too many columns": f"note_id,subject_id,note_type,charttime,text\n1,2,DS,2150,a,{CANARY}\n",
    "quote in the id": f'note_id,subject_id,note_type,charttime,text\n1,{CANARY}"x",DS,2150,a\n',
    "no patient": f"note_id,subject_id,note_type,charttime,text\n1,,DS,{CANARY},{CANARY}\n",
    "two of a name": f"{CANARY},{CANARY},subject_id,subject_id,text\n1,2,3,4,5\n",
    "another separator": f"{CANARY};subject_id\n",
    "quote behind a name": f'"{CANARY}"x,text\n',
}


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("is_compressed", [False, True])
def test_message_about_damaged_table_repeats_no_content(name: str, is_compressed: bool, tmp_path: Path) -> None:
    content = ROWS[name].encode()
    path = tmp_path / ("notes.csv.gz" if is_compressed else "notes.csv")
    path.write_bytes(gzip.compress(content) if is_compressed else content)
    texts = read_messages([path], format="notes")
    assert texts
    assert CANARY not in "".join(texts)


@pytest.fixture
def ward(tmp_path: Path) -> Path:
    with library(tmp_path / "ward", [Document("n:1", "The drug was aspirin.", patient="p1")]) as store:
        return store.path


def write_database(path: Path, damage: str) -> None:
    """Write a database with the canary as name of a table, in a row, or in a schema that SQLite quotes as malformed."""
    path.unlink(missing_ok=True)
    for end in ("-wal", "-shm"):
        path.with_name(path.name + end).unlink(missing_ok=True)
    with sqlite3.connect(path) as db:
        db.execute(f"CREATE TABLE {CANARY}(a)")
        if damage == "schema":
            db.execute("PRAGMA writable_schema=ON")
            db.execute(f"UPDATE sqlite_master SET sql = 'CREATE TABLE {CANARY} nonsense {CANARY}'")
        db.execute(f"PRAGMA application_id={APPLICATION_ID}")
        db.execute(f"PRAGMA user_version={FORMAT}")
    db.close()


ASK = (
    "ask",
    "What?",
    "--patient",
    "p1",
    "--strategy",
    "full-context",
    "--model",
    "http://127.0.0.1:9/v1#m",
    "--setting",
    "models.writer.tries=1",
)
READ_BY = {
    "replies.sqlite": (ASK, ("cache", "info")),
    "journal.sqlite": (("library", "info"), ("library", "patients")),
    "patients.sqlite": (("library", "patients"),),
}
"""Commands that read each file. The library's folder is inserted where the command takes it."""


@pytest.mark.slow
@pytest.mark.parametrize("part", READ_BY)
def test_message_about_damaged_database_repeats_no_content(part: str, ward: Path, run: Run) -> None:
    for damage in ("schema", "tables", "text"):
        if damage == "text":
            (ward / part).write_text(f"{CANARY} " * 2000)
        else:
            write_database(ward / part, damage)
        for command in READ_BY[part]:
            place = 1 if command is ASK else len(command)
            result = run(*command[:place], ward, *command[place:])
            assert result.exit_code == 2
            assert CANARY not in result.stdout + result.stderr
            assert isinstance(result.exception, SystemExit)


@pytest.mark.parametrize("part", ["manifest.json", "remote.jsonl", "removed.jsonl", "index.json"])
def test_message_about_damaged_library_file_repeats_no_content(part: str, ward: Path, run: Run) -> None:
    for content in (CANARY, json.dumps({CANARY: CANARY}), json.dumps({"format": CANARY}), json.dumps([CANARY])):
        (ward / part).write_text(content)
        result = run("library", "info", ward)
        assert CANARY not in result.stdout + result.stderr
        assert result.exception is None or isinstance(result.exception, SystemExit)


@pytest.mark.parametrize("command", [("report",), ("rescore",), ("grade", "run")])
def test_message_about_damaged_run_repeats_no_content(command: tuple[str, ...], tmp_path: Path, run: Run) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    records = folder / "records.jsonl"
    for content in (CANARY, json.dumps({CANARY: CANARY}), json.dumps({"key": CANARY, "answer": {CANARY: CANARY}})):
        for name in ("manifest.json", "records.jsonl"):
            (folder / name).write_text(content + "\n")
        result = run(*command, folder if command != ("rescore",) else records)
        assert "No such command" not in result.stderr
        assert CANARY not in result.stdout + result.stderr
        assert result.exception is None or isinstance(result.exception, SystemExit)
