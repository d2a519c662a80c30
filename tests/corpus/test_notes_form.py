"""Quotes left open in CSV files of notes, which put one patient's notes into another's; and notes that hold tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from epicrisis.corpus.base.reader_base import FileFingerprint
from epicrisis.corpus.readers.sources import read_sources
from epicrisis.corpus.records.note_tables import NoteColumns
from tests.corpus.test_notes import OWN, given_by, put, skipped, table

LONG_HEAD = b"pid,when,kind,stay,body\n"


@pytest.mark.parametrize(
    ("head", "body", "line"),
    [
        (
            LONG_HEAD,
            b'10083815,2150-03-05,a,3,"Open\n10083816,2150-01-02,a,4,Other\n10083817,2150-01-03,a,5,"\nMore"\n',
            4,
        ),
        (LONG_HEAD, b'P0015,2150-03-05,a,3,"Open\r\nP7,,a,4,Other\r\nP8,2150-01-03,a,5,"\r\nMore\r\n', 4),
        (LONG_HEAD, b'15,03/05/2150,a,3,"Open\n16,3/4/2150,a,4,Other, and more\n17,03/07/2150,a,5,"\nMore\n', 4),
        (LONG_HEAD, b'1,2150,a,3,"Open\n2,2150,a,4,"\nMore\n', 4),
        (b"stay,pid,body\n", b'3,9f3c-11ab,"Open\n4,aa0b-2e21,Other\n5,7c7c-7c7c,"\nMore\n', 4),
        (b"body,pid,when\n", b'"Open,15,2150-01-02\nOther,16,2150-01-02\n"\nMore",17,2150-01-02\n', 0),
        (b"pid;body\n", b'15;"Open\n16;Other\n17;"\nMore\n', 4),
        (LONG_HEAD, b'15,2150-01-02,"a,3,Open\n16,2150-01-02,a,4,Other\n17,2150-01-02,",a,3\n', 4),
    ],
)
def test_row_embedded_in_quoted_text_ends_file(tmp_path: Path, head: bytes, body: bytes, line: int) -> None:
    columns = NoteColumns(patient="pid", text="body", time=("when",) if b"when" in head else ())
    mark = b";" if b";" in head else b","
    first = mark.join(b"Fine" if name == b"body" else b"2149" for name in head.strip().split(mark))
    path = put(tmp_path, head + first + b"\n" + body + b"99,2150-01-02,a,3,Last\n")
    assert [note.text for note in given_by(path, columns)] == ["Fine"]
    ((where, reason),) = skipped(path, columns)
    assert where == "after line 2"
    if line:
        assert f"line {line} has the form of a row but is within quotes of the row of line 3," in reason
    assert "close those quotes" in reason if line else "doubled" in reason
    assert "Other" not in reason
    assert not any(isinstance(item, FileFingerprint) for item in read_sources([path], "notes", columns=columns))


def test_malformed_row_after_multiline_row_drops_both(tmp_path: Path) -> None:
    drawn_in = b'A,2150,a,3,"Fine\nindeed"\nB,2150,a,3,"Open\nC-7,2150,a,4,"\n\nMore of C-7\nD,2150,a,5,Last\n'
    path = put(tmp_path, LONG_HEAD + drawn_in)
    assert [note.text for note in given_by(path, OWN)] == ["Fine\nindeed"]
    ((where, reason),) = skipped(path)
    assert where == "after line 3"
    assert "line 7 begins a broken row" in reason
    assert "from line 4" in reason
    torn = put(tmp_path, LONG_HEAD + drawn_in.replace(b"More of", b'"More" of'))
    assert [note.text for note in given_by(torn, OWN)] == ["Fine\nindeed"]
    assert [where for where, _ in skipped(torn)] == ["after line 3"]


@pytest.mark.parametrize(
    "text",
    [
        "Labs:\n140,4.1,102,24,1.1,98\n141, 1000, 101, 24, 1.2\n7.4, 40, 90, 22, ok\n1,000 mL, then, 500, more, given",
        "Seen on\n2150-03-04, 10:30, by Dr. A, in, the ward\n12, left, arm, no, change\n3,2,1,0",
        "Na,140,K,4.1,low\nP1,,,,\n,,,,\n\n10083816 was, as said, his, other, number",
        "The table ''10083816,2150-01-02,a,4,x'' of a line\nand 10083816, 2150-01-02, a, 4",
    ],
)
@pytest.mark.parametrize("when", [("when",), ()])
def test_tables_in_note_are_kept_as_text(tmp_path: Path, text: str, when: tuple[str, ...]) -> None:
    for patient in ("10083815", "1"):
        content = table([patient, "2150-03-05", "a", 3, text], [patient, "2150-03-06", "a", 3, "Last\nline"])
        path = put(tmp_path, LONG_HEAD + content)
        columns = NoteColumns(patient="pid", time=when, text="body")
        assert [note.text for note in given_by(path, columns)] == [text, "Last\nline"]
        assert skipped(path, columns) == []
    short = put(tmp_path, b"pid,body\n" + table(["1", text]))
    assert len(given_by(short, NoteColumns(patient="pid", text="body"))) == 1


@pytest.mark.parametrize("row", [b'2",2150,a,4,"Lost its first quote\nthere"\n', b'2,2150,"a,4,Closed\n",\n'])
def test_quotes_in_id_or_delimiters_in_quotes_end_file(tmp_path: Path, row: bytes) -> None:
    path = put(tmp_path, LONG_HEAD + b"1,2150,a,3,Fine\n" + row + b"99,2150-01-02,a,3,Last\n")
    assert [note.text for note in given_by(path, OWN)] == ["Fine"]
    assert [where for where, _ in skipped(path)] == ["after line 2"]
