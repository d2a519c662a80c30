"""Lines, rows and packed files without an end: passed over or refused in one line, and never held in memory."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from pathlib import Path

import pytest

from epicrisis.core.errors import InputError
from epicrisis.core.types import Document
from epicrisis.corpus.articles import medcpt
from epicrisis.corpus.base import csv_rows, jsonl, plain_text, reader_base
from epicrisis.corpus.base.csv_rows import CsvLayout, read_rows
from epicrisis.corpus.base.reader_base import Skipped
from epicrisis.corpus.base.xml_text import BrokenXML, read_records
from epicrisis.corpus.readers import question_files as questions
from epicrisis.corpus.readers import sources as readers
from epicrisis.library.core.patient_check import _name_orders
from tests.corpus.test_fhir import read_file

GOOD = b'{"id": "a", "text": "Aspirin."}\n'


def packed_zeros(size: int, repeated: bytes = b"0") -> bytes:
    """A gzip file of so many bytes of one line, quickly made."""
    piece = gzip.compress(repeated * (2**20 // len(repeated)), 9)
    return piece * (size // 2**20)


@pytest.mark.slow
def test_line_over_length_limit_is_skipped_and_others_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonl, "MAX_LINE_BYTES", 1024 * 1024)
    path = tmp_path / "lines.jsonl.gz"
    path.write_bytes(
        gzip.compress(GOOD) + packed_zeros(64 * 2**20) + gzip.compress(b"\n" + GOOD.replace(b"a", b"b", 1))
    )
    tracemalloc.start()
    items = list(jsonl.read_documents(path))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [item.where if isinstance(item, Skipped) else item.id for item in items[:2]] == ["a", "line 2"]
    assert isinstance(items[1], Skipped)
    assert items[1].reason == "a line of 64 MB, and the limit is 1; split it into several documents, one a line"
    assert len(items) == 3
    assert peak < 16 * 2**20


def test_line_of_maximum_length_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonl, "MAX_LINE_BYTES", len(GOOD) - 1)
    path = tmp_path / "lines.jsonl"
    path.write_bytes(GOOD + GOOD.strip())
    assert [type(item) for item in jsonl.read_documents(path)] == [Document, Document]


def test_line_with_too_many_values_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonl, "MAX_LINE_VALUES", 1000)
    path = tmp_path / "lines.jsonl"
    path.write_bytes(b'{"id": "x", "text": "t", "more": [' + b"[]," * 1000 + b"[]]}\n" + GOOD)
    skipped, good = jsonl.read_documents(path)
    assert skipped == Skipped(str(path), "line 1", "holds more than 1,000 values; split it")
    assert isinstance(good, Document)


@pytest.mark.long
def test_gzip_over_expansion_limit_ends_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_base, "UNPACK_ALLOWANCE", 8 * 2**20)
    path = tmp_path / "lines.jsonl.gz"
    path.write_bytes(gzip.compress(GOOD) + packed_zeros(64 * 2**20))
    good, skipped = jsonl.read_documents(path)
    assert isinstance(good, Document)
    assert isinstance(skipped, Skipped)
    assert skipped.where == "after line 1"
    assert "it unpacks to more than 0.0 GB, over 200 times its size" in skipped.reason
    path.write_bytes(gzip.compress(b"<set>") + packed_zeros(64 * 2**20, b"<a/>"))
    with pytest.raises(BrokenXML, match="over 200 times its size"):
        list(read_records(path, ("x",)))


@pytest.mark.slow
def test_gzip_of_ordinary_text_is_read_completely(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_base, "UNPACK_ALLOWANCE", 0)
    path = tmp_path / "lines.jsonl.gz"
    lines = [json.dumps({"id": n, "text": f"Note {n} of many that are much alike."}) for n in range(2000)]
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
    assert len(list(jsonl.read_documents(path))) == 2000


def test_unterminated_csv_row_ends_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a row that is too long the delimiters are held, to find its end: a row of nothing else was held whole."""
    monkeypatch.setattr(csv_rows, "_MAX_SEARCH_BYTES", 4 * 2**20)
    monkeypatch.setattr(csv_rows, "MAX_ROW_BYTES", 2**20)
    path = tmp_path / "notes.csv"
    path.write_bytes(b"patient,text\np1,fever\np2," + b"," * (8 * 2**20) + b"\np3,chills\n")
    tracemalloc.start()
    good, skipped = read_rows(path, CsvLayout(2, ",", 0, 1))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert not isinstance(good, Skipped)
    assert isinstance(skipped, Skipped)
    assert (skipped.where, skipped.reason) == (
        "after line 2",
        "line 3 begins a row of more than 4 MB, and nothing more was read: look for a missing quote",
    )
    assert peak < 64 * 2**20


def test_json_file_over_value_limit_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonl, "MAX_VALUES", 1000)
    monkeypatch.setattr(jsonl.check_value_count, "__defaults__", (1000,))
    many = b"[" + b"[]," * 1000 + b"[]]"
    bundle, entries, ids = (tmp_path / name for name in ("bundle.json", "entries.json", "pmids_chunk_0.json"))
    bundle.write_bytes(b'{"resourceType": "Bundle", "entry": ' + many + b"}")
    entries.write_bytes(b'{"1": {"CONTEXTS": ' + many + b"}}")
    ids.write_bytes(many)
    (skipped,) = read_file(bundle, "bundle.json")
    assert isinstance(skipped, Skipped)
    assert skipped.reason == "holds more than 1,000 values; split it"
    with pytest.raises(InputError, match=r"entries.json: holds more than 1,000 values; split it"):
        questions.load_pubmedqa(entries)
    with pytest.raises(InputError, match="not a JSON list of PMIDs"):
        medcpt._read_ids(ids)


def test_text_file_over_size_limit_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_text, "MAX_TEXT_BYTES", 2**20)
    path = tmp_path / "a.txt"
    path.write_bytes(b"x" * (3 * 2**20))
    assert list(readers.read_sources([path])) == [Skipped(str(path), "", "larger than 1 MB; split it")]


def test_long_name_has_limited_name_orders() -> None:
    """One for each place where it can be turned round would take 3 GB for 20,000 words."""
    name = " ".join(f"name{n}" for n in range(20_000))
    assert _name_orders(name) == (name,)
    assert len(_name_orders(" ".join(["Anna", "Maria", "von", "Muster"]))) == 7
