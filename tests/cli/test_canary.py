"""Nothing that stands in damaged files comes out in a message: a word of it is planted in every place that is read."""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from epicrisis.models.chat.layers.cache import APPLICATION_ID, FORMAT
from epicrisis.types import Document
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
"""What a value is replaced by."""

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


def planted(value: object) -> Iterator[object]:
    """The value with the canary in place of each of its parts, and of each of its keys, in turn."""
    yield from ODD
    if isinstance(value, dict):
        for key, part in value.items():
            yield {name: other for name, other in value.items() if name != key} | {CANARY: part}
            for odd in planted(part):
                yield {**value, key: odd}
    elif isinstance(value, list):
        for place, part in enumerate(value):
            for odd in planted(part):
                yield [*value[:place], odd, *value[place + 1 :]]


def messages(paths: list[Path], **named: object) -> list[str]:
    from epicrisis.corpus.reader_base import Skipped
    from epicrisis.corpus.readers import read_sources
    from epicrisis.errors import EpicrisisError

    try:
        items = list(read_sources(paths, **named))  # type: ignore[arg-type]
    except EpicrisisError as error:
        return [error.message]
    return [f"{item.where} {item.reason}" for item in items if isinstance(item, Skipped)]


@pytest.mark.parametrize("number", range(len(FHIR)))
def test_message_of_a_damaged_resource_repeats_nothing(number: int, tmp_path: Path) -> None:
    path = tmp_path / "export.ndjson"
    refused = 0
    for odd in planted(FHIR[number]):
        resources = [*FHIR[:number], odd, *FHIR[number + 1 :]]
        path.write_text("".join(json.dumps(each) + "\n" for each in resources))
        said = messages([path])
        refused += bool(said)
        assert CANARY not in "".join(said)
    assert refused


def test_message_of_a_damaged_line_repeats_nothing(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    for odd in planted(LINE):
        path.write_text(json.dumps(odd) + "\n")
        assert CANARY not in "".join(messages([path]))
    for line in (CANARY, f'{{"{CANARY}', f'{{"id": 1{CANARY}}}', f'["{CANARY}"]', f'"{CANARY}"'):
        path.write_text(line)
        said = messages([path])
        assert said
        assert CANARY not in "".join(said)


def test_message_of_a_damaged_question_repeats_nothing(tmp_path: Path) -> None:
    from epicrisis.corpus.questions import read_questions
    from epicrisis.corpus.reader_base import Skipped

    path = tmp_path / "questions.jsonl"
    for odd in planted(QUESTION):
        path.write_text(json.dumps(odd) + "\n")
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
@pytest.mark.parametrize("packs", [False, True])
def test_message_of_a_damaged_table_repeats_nothing(name: str, packs: bool, tmp_path: Path) -> None:
    content = ROWS[name].encode()
    path = tmp_path / ("notes.csv.gz" if packs else "notes.csv")
    path.write_bytes(gzip.compress(content) if packs else content)
    said = messages([path], format="notes")
    assert said
    assert CANARY not in "".join(said)


@pytest.fixture
def ward(tmp_path: Path) -> Path:
    with library(tmp_path / "ward", [Document("n:1", "The drug was aspirin.", patient="p1")]) as made:
        return made.path


def sqlite_of(path: Path, damage: str) -> None:
    """A database in which the canary is a table's name, a row, or part of a schema that SQLite quotes as malformed."""
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


ASKS = (
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
    "replies.sqlite": (ASKS, ("cache", "info")),
    "journal.sqlite": (("library", "info"), ("library", "patients")),
    "patients.sqlite": (("library", "patients"),),
}
"""What reads each file; the library's folder goes where the command takes it."""


@pytest.mark.parametrize("part", READ_BY)
def test_message_of_a_damaged_database_repeats_nothing(part: str, ward: Path, run: Run) -> None:
    for damage in ("schema", "tables", "text"):
        if damage == "text":
            (ward / part).write_text(f"{CANARY} " * 2000)
        else:
            sqlite_of(ward / part, damage)
        for command in READ_BY[part]:
            place = 1 if command is ASKS else len(command)
            result = run(*command[:place], ward, *command[place:])
            assert result.exit_code == 2
            assert CANARY not in result.stdout + result.stderr
            assert isinstance(result.exception, SystemExit)


@pytest.mark.parametrize("part", ["manifest.json", "remote.jsonl", "removed.jsonl", "index.json"])
def test_message_of_a_damaged_file_of_a_library_repeats_nothing(part: str, ward: Path, run: Run) -> None:
    for content in (CANARY, json.dumps({CANARY: CANARY}), json.dumps({"format": CANARY}), json.dumps([CANARY])):
        (ward / part).write_text(content)
        result = run("library", "info", ward)
        assert CANARY not in result.stdout + result.stderr
        assert result.exception is None or isinstance(result.exception, SystemExit)


@pytest.mark.parametrize("command", ["report", "score", "measure"])
def test_message_of_a_damaged_run_repeats_nothing(command: str, tmp_path: Path, run: Run) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    records = folder / "records.jsonl"
    for content in (CANARY, json.dumps({CANARY: CANARY}), json.dumps({"key": CANARY, "answer": {CANARY: CANARY}})):
        for name in ("manifest.json", "records.jsonl"):
            (folder / name).write_text(content + "\n")
        result = run(command, folder if command != "score" else records)
        assert CANARY not in result.stdout + result.stderr
        assert result.exception is None or isinstance(result.exception, SystemExit)
