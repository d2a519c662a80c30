"""Notes of patients from CSV files, the good rows and the bad ones."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from epicrisis.core.errors import InputError
from epicrisis.core.types import Document
from epicrisis.corpus.base import csv_rows
from epicrisis.corpus.base.reader_base import DeletedDocument, FileFingerprint, FileRemark, Skipped
from epicrisis.corpus.base.removal_log import RemovalLog
from epicrisis.corpus.readers.sources import read_sources
from epicrisis.corpus.records import note_tables
from epicrisis.corpus.records.note_documents import NoteCleaning, normalize_id
from epicrisis.corpus.records.note_tables import NoteColumns

MIMIC_3 = [
    "ROW_ID",
    "SUBJECT_ID",
    "HADM_ID",
    "CHARTDATE",
    "CHARTTIME",
    "STORETIME",
    "CATEGORY",
    "DESCRIPTION",
    "CGID",
    "ISERROR",
    "TEXT",
]
MIMIC_4 = ["note_id", "subject_id", "hadm_id", "note_type", "note_seq", "charttime", "storetime", "text"]
OWN = NoteColumns(patient="pid", time=("when",), type="kind", text="body")
HEAD = b"pid,when,kind,body\n"


def table(*rows: Sequence[object]) -> bytes:
    held = io.StringIO(newline="")
    csv.writer(held).writerows(rows)
    return held.getvalue().encode()


def put(folder: Path, content: bytes, name: str = "notes.csv") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def given_by(path: Path, columns: NoteColumns | None = None, treatment: NoteCleaning | None = None) -> list[Document]:
    return [item for item in note_tables.read_notes(path, path.name, columns, treatment) if isinstance(item, Document)]


def skipped(path: Path, columns: NoteColumns | None = OWN) -> list[tuple[str, str]]:
    return [
        (item.where, item.reason)
        for item in note_tables.read_notes(path, path.name, columns)
        if isinstance(item, Skipped)
    ]


def test_mimic_iii_noteevents_is_detected_by_header(tmp_path: Path) -> None:
    content = table(
        MIMIC_3,
        [
            7,
            10,
            "100.0",
            "2150-03-04 00:00:00",
            "",
            "",
            "Discharge summary",
            "Report",
            1,
            "",
            "Allergies: none\r\nHome",
        ],
        [8, 10, 100, "2150-03-04 00:00:00", "2150-03-04 10:30:00", "", "Nursing", "Report", 1, "", "Slept well."],
        [9, 10, 100, "2150-03-04 00:00:00", "", "", "Nursing", "Report", 1, "1", "Another patient's."],
    )
    log = RemovalLog()
    first, second = given_by(
        put(tmp_path, gzip.compress(content), "NOTEEVENTS.csv.gz"), None, NoteCleaning(removal_log=log)
    )
    assert first == Document(
        id="note:7",
        text="Allergies: none\nHome",
        title="Discharge summary, 2150-03-04",
        source="notes",
        date="2150-03-04",
        patient="10",
        metadata={
            "note_type": "Discharge summary",
            "encounter": "100",
            "sections": [[0, 20, "Allergies"]],
            "description": "Report",
        },
    )
    assert second.date == "2150-03-04T10:30"
    assert log.summary().kinds["marked-as-error"].notes == 1


def test_mimic_iv_is_detected_in_files_and_folders(tmp_path: Path) -> None:
    put(tmp_path, table(MIMIC_4, ["10-DS-1", 10, 5, "DS", 1, "2180-05-07 00:00:00", "", "Home."]), "discharge.csv")
    put(tmp_path, b"name,colour\nA,red\n", "colours.csv")
    document, _fingerprint, skip = sorted(read_sources([tmp_path]), key=lambda item: type(item).__name__)
    assert isinstance(document, Document)
    assert (document.id, document.metadata["note_type"]) == ("note:10-DS-1", "discharge summary")
    assert isinstance(skip, Skipped)
    assert skip.path.endswith("colours.csv")


def test_named_columns_are_read(tmp_path: Path) -> None:
    head = ["Pid", "when", "kind", "body", "name", "in", "out"]
    row = ["10.0", "4 Mar 2150 09:05", "ward round", "Better.", " Ada  Byron ", "2150-03-01", "soon"]
    columns = NoteColumns(
        patient="pid", time=("when",), type="kind", text="body", patient_name="name", admitted="in", discharged="out"
    )
    (document,) = given_by(put(tmp_path, b"\xef\xbb\xbf" + table(head, row).replace(b",", b";")), columns)
    assert (document.patient, document.date, document.title) == ("10", "2150-03-04T09:05", "Ward round, 2150-03-04")
    assert document.metadata == {
        "note_type": "ward round",
        "patient_name": "Ada Byron",
        "admitted": "2150-03-01",
        "discharged_given": "soon",
    }


def test_note_times_missing_unparsed_and_with_format(tmp_path: Path) -> None:
    rows = [
        ["1", "", "a", "One."],
        ["1", "03/04/2150 10:00", "a", "Two."],
        ["1", "2150-03-04T23:00+02:00", "a", "Three."],
    ]
    path = put(tmp_path, HEAD + table(*rows))
    log = RemovalLog()
    one, two, three = given_by(path, OWN, NoteCleaning(removal_log=log))
    assert [note.date for note in (one, two, three)] == [None, None, "2150-03-04T23:00"]
    assert one.metadata["time_missing"] is True
    assert two.metadata["time_given"] == "03/04/2150 10:00"
    assert three.metadata["time_zone"] == "+02:00"
    assert (log.summary().without_time, log.summary().time_not_read) == (1, 1)
    assert given_by(path, OWN, NoteCleaning(time_format="%d/%m/%Y %H:%M"))[1].date == "2150-04-03T10:00"


def test_duplicate_note_of_one_day_is_read_once(tmp_path: Path) -> None:
    same = ["1", "2150-03-04 10:00", "a", "No change."]
    others = [
        ["2", *same[1:]],
        ["1", "2150-03-05 10:00", "a", "No change."],
        ["1", "2150-03-04 10:00", "a", "No changes."],
    ]
    log = RemovalLog()
    found = given_by(
        put(tmp_path, HEAD + table(same, [*same[:3], "No change. \r\n"], *others)), OWN, NoteCleaning(removal_log=log)
    )
    assert [(note.patient, str(note.date)[:10], note.text) for note in found] == [
        ("1", "2150-03-04", "No change."),
        ("2", "2150-03-04", "No change."),
        ("1", "2150-03-05", "No change."),
        ("1", "2150-03-04", "No changes."),
    ]
    assert log.summary().kinds["duplicate"].notes == 1
    assert len({note.id for note in found}) == 4


def test_equal_notes_without_date_are_kept(tmp_path: Path) -> None:
    head = b"pid,when,kind,stay,body\n"
    times = ["03/04/2150", "03/05/2150", "03/06/2150", "03/06/2150", "2150-03", "2150-03"]
    rows = [["1", time, "a", "", "No change."] for time in times]
    rows += [["1", time, "a", stay, "No change."] for time in ("", "2150-04") for stay in ("7", "8", "8.0")]
    columns = NoteColumns(patient="pid", time=("when",), type="kind", text="body", encounter="stay")
    log = RemovalLog()
    found = given_by(put(tmp_path, head + table(*rows)), columns, NoteCleaning(removal_log=log))
    assert [(note.metadata.get("time_given") or note.date, note.metadata.get("encounter")) for note in found] == [
        ("03/04/2150", None),
        ("03/05/2150", None),
        ("03/06/2150", None),
        ("2150-03", None),
        (None, "7"),
        (None, "8"),
        ("2150-04", "7"),
        ("2150-04", "8"),
    ]
    assert len({note.id for note in found}) == 8
    assert log.summary().kinds["duplicate"].notes == 4


def test_notes_without_ids_have_stable_ids_across_files(tmp_path: Path) -> None:
    one, two = ["1", "2150", "a", "One."], ["1", "2151", "a", "Two."]
    both = given_by(put(tmp_path, HEAD + table(one, two)), OWN)
    alone = given_by(put(tmp_path, HEAD + table(two), "later.csv"), OWN)
    assert alone == both[1:]


@pytest.mark.parametrize("mark", [",", ";", "\t", "|"])
def test_quoted_header_is_read(tmp_path: Path, mark: str) -> None:
    path = put(tmp_path, f'"pid"{mark}"body"\r\n"1"{mark}"Good, ""so""."\r\n'.encode())
    assert [note.text for note in given_by(path, NoteColumns(patient="pid", text="body"))] == ['Good, "so".']


@pytest.mark.parametrize("cell", ["", " ", "nan", "NULL", "None"])
def test_row_without_patient_is_skipped(tmp_path: Path, cell: str) -> None:
    path = put(tmp_path, HEAD + table([cell, "2150", "a", "A secret."], ["1", "2150", "a", "Good."]))
    assert [note.text for note in given_by(path, OWN)] == ["Good."]
    ((where, reason),) = skipped(path)
    assert where == "line 2"
    assert "names no patient" in reason
    assert "secret" not in reason
    assert normalize_id(cell) == ""


def test_file_with_mixed_encodings_is_read(tmp_path: Path) -> None:
    path = put(tmp_path, HEAD + "1,2150,a,naïve\n".encode() + "1,2150,a,naïf\n".encode("cp1252") + b"1,2150,a,plain\n")
    assert [note.text for note in given_by(path, OWN)] == ["naïve", "plain"]
    ((where, reason),) = skipped(path)
    assert where == "line 3"
    assert "byte 12 of line 3" in reason
    assert "iconv" in reason


def test_columns_with_names_in_windows_1252_are_read(tmp_path: Path) -> None:
    path = put(tmp_path, "pid,grö\n1,klein\n".encode("cp1252"))
    note, *others = read_sources([path], "notes", columns=NoteColumns(patient="pid", text="grö"))
    assert isinstance(note, Document)
    assert note.text == "klein"
    assert any(isinstance(item, FileRemark) and "read as cp1252" in item.text for item in others)


@pytest.mark.slow
@pytest.mark.parametrize("line_ends", [True, False])
def test_note_over_length_limit_is_skipped_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line_ends: bool
) -> None:
    monkeypatch.setattr(csv_rows, "MAX_ROW_BYTES", 200_000)
    long = ('He said ""no"", twice, and so on' + ("\n" if line_ends else " ")) * 20_000
    path = put(tmp_path, HEAD + b"1,2150,a,First\n" + f'1,2150,a,"{long}"\n'.encode() + b"1,2150,a,Last\n")
    assert [note.text for note in given_by(path, OWN)] == ["First", "Last"]
    ((where, reason),) = skipped(path)
    assert where == "line 3"
    assert "longer than" in reason


def test_unbalanced_quotes_end_file_before_next_patient(tmp_path: Path) -> None:
    body = b'1,2150,a,"Fine"\n1,2150,a,"Open\n2,2150,a,"Other patient"\n2,2151,a,More\n'
    path = put(tmp_path, HEAD + body)
    items = list(read_sources([path], "notes", columns=OWN))
    assert [item.text for item in items if isinstance(item, Document)] == ["Fine"]
    (skip,) = [item for item in items if isinstance(item, Skipped)]
    assert skip.where == "after line 2"
    assert "doubled" in skip.reason
    assert not any(isinstance(item, FileFingerprint) for item in items)
    assert skipped(put(tmp_path, HEAD + b'1,2150,a,"never closed\n1,2150,a,x\n'))[0][0] == "after line 1"


def test_rows_with_wrong_width_or_nul_bytes_are_reported(tmp_path: Path) -> None:
    path = put(tmp_path, HEAD + b"1,2150,a\n1,2150,a,b\0d\r\n\r\n1,2150,a,\n1,2150,a,Good\r\n")
    assert [where for where, _ in skipped(path)] == ["line 2", "line 3", "line 5"]
    assert [note.text for note in given_by(path, OWN)] == ["Good"]
    torn = put(tmp_path, gzip.compress(HEAD + b"1,2150,a,Good\n" * 9)[:-9], "torn.csv.gz")
    assert skipped(torn)[-1][0].startswith("after line")


@pytest.mark.parametrize(
    ("content", "columns", "cure"),
    [
        (b"a,b\n1,2\n", None, r"--column patient=NAME --column text=NAME .*its first line has 2 columns"),
        (HEAD, NoteColumns(patient="pid", text="note"), "no column is called 'note'; its first line has 4 columns"),
        (HEAD, NoteColumns(patient="pid", text="body", time=("at",)), "no column is called 'at'"),
        (b"pid,body,body\n", NoteColumns(patient="pid", text="body"), "2 columns are called 'body'"),
        (b"10083814,2150-03-04,Fever since a week\n", OWN, "its first line is no header"),
        (b"Muster,March,Fever\n", OWN, "no column is called 'pid'; its first line has 3 columns"),
        ("pid,grö\n".encode("cp1252") + "1,naïve\n".encode(), OWN, "iconv -f WINDOWS-1252"),
        ("pid,body\n".encode("utf-16-le"), OWN, "iconv -f UTF-16"),
        (b"PK\x03\x04xxxx", OWN, "save the sheet as CSV"),
        (b"", OWN, "the file is empty"),
        (b'"pid"x,body\n', OWN, "quotes within a field must be doubled"),
        (b"\n1,2150,a,b\n", OWN, "its first line does not consist of column names"),
    ],
)
def test_csv_without_notes_is_rejected(tmp_path: Path, content: bytes, columns: NoteColumns | None, cure: str) -> None:
    with pytest.raises(InputError, match=cure) as raised:
        read_sources([put(tmp_path, content)], "notes", columns=columns)
    assert "Fever" not in raised.value.message
    assert "\n" not in raised.value.message


def test_removal_log_keeps_files_of_equal_name_apart(tmp_path: Path) -> None:
    (tmp_path / "library").mkdir()
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        path = put(
            tmp_path / folder, HEAD + f"1,2150,a,Note {folder}\n".encode() + table(["1", "2150", "a", f"Note {folder}"])
        )
        for _ in range(2):
            log = RemovalLog(keep_texts=True)
            log.write_to(tmp_path / "library")
            given_by(path, OWN, NoteCleaning(removal_log=log))
            log.close()
    kept = (tmp_path / "library" / "removed.jsonl").read_text().splitlines()
    assert [json.loads(line)["text"] for line in kept] == ["Note a", "Note b"], "each once"


def test_note_marked_as_error_deletes_earlier_version(tmp_path: Path) -> None:
    path = put(tmp_path, table(MIMIC_3, [9, 10, 100, "2150-03-04", "", "", "Nursing", "", 1, "1", ""]))
    assert list(note_tables.read_notes(path, path.name)) == [DeletedDocument("note:9", patient="10")]
