"""Precomputed chunks: read in step, checked before reading, and nothing lost without a word."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from epicrisis.core.errors import InputError
from epicrisis.core.types import Document
from epicrisis.corpus.articles.medcpt import find_chunks, read_chunk
from epicrisis.corpus.base.reader_base import EncodedDocument, Skipped

NONCODE = {"d": "20071115", "t": "NONCODE v2.0.", "a": "A database of ncRNAs.", "m": "humans!|rna*|rna!genetics|"}


def write(folder: Path, number: int, texts: dict[str, Any], pmids: list[str] | None = None) -> np.ndarray[Any, Any]:
    """One chunk whose row n is n + number / 10 everywhere."""
    pmids = list(texts) if pmids is None else pmids
    vectors = np.repeat(np.arange(len(pmids), dtype=np.float32)[:, None] + np.float32(number / 10), 4, axis=1)
    np.save(folder / f"embeds_chunk_{number}.npy", vectors)
    (folder / f"pmids_chunk_{number}.json").write_text(json.dumps(pmids))
    (folder / f"pubmed_chunk_{number}.json").write_text(json.dumps(texts))
    return vectors


def read_folder(folder: Path) -> Iterator[EncodedDocument | Skipped]:
    return chain.from_iterable(map(read_chunk, find_chunks(folder)))


def article(n: int) -> dict[str, str]:
    return {"d": "20200131", "t": f"Title {n}", "a": f"Abstract {n}. " + 'é\\"x' * (n % 7), "m": ""}


def found(folder: Path) -> tuple[dict[str, list[float]], list[Skipped]]:
    items = list(read_folder(folder))
    vectors = {item.document.id: item.vector.tolist() for item in items if isinstance(item, EncodedDocument)}
    return vectors, [item for item in items if isinstance(item, Skipped)]


def test_published_article_is_read_with_vector(tmp_path: Path) -> None:
    write(tmp_path, 18, {"18000000": NONCODE})
    (item,) = read_folder(tmp_path)
    assert isinstance(item, EncodedDocument)
    assert item.document == Document(
        "pubmed:18000000",
        "A database of ncRNAs.",
        title="NONCODE v2.0.",
        source="PubMed",
        date="2007-11-15",
        metadata={"mesh": ["humans", "rna*", "rna/genetics"]},
    )
    assert item.vector.dtype == np.float32
    assert item.vector.tolist() == [np.float32(1.8)] * 4


@pytest.mark.slow
def test_chunks_are_ordered_by_number_with_own_vectors(tmp_path: Path) -> None:
    for number in (10, 2, 0):
        shuffled = [(str(1000 * number + n), article(n)) for n in range(1500)]
        pmids = [pmid for pmid, _ in shuffled]
        random.Random(number).shuffle(shuffled)
        write(tmp_path, number, dict(shuffled), pmids)
    made = find_chunks(tmp_path)
    assert [(chunk.number, chunk.rows, chunk.dimensions) for chunk in made] == [(n, 1500, 4) for n in (0, 2, 10)]
    vectors, skipped = found(tmp_path)
    assert skipped == []
    for number in (0, 2, 10):
        assert all(vectors[f"pubmed:{1000 * number + n}"][0] == np.float32(n + number / 10) for n in range(1000))


@pytest.mark.slow
def test_text_file_larger_than_buffer_is_read(tmp_path: Path) -> None:
    texts = {str(n): {"t": f"T{n}", "a": f"{n} " + "naïve β-cells " * 150} for n in range(2500)}
    write(tmp_path, 0, texts)
    assert (tmp_path / "pubmed_chunk_0.json").stat().st_size > 5_000_000
    items = list(read_folder(tmp_path))
    assert [(i.document.title, i.document.text) for i in items if isinstance(i, EncodedDocument)] == [
        (entry["t"], entry["a"].strip()) for entry in texts.values()
    ]


@pytest.mark.parametrize(
    ("given_", "date", "kept"),
    [
        ("20071115", "2007-11-15", None),
        ("2007-11-15", "2007-11-15", None),
        ("20071100", "2007-11", None),
        ("20070000", "2007", None),
        ("200711", "2007-11", None),
        ("2007", "2007", None),
        ("20071331", None, "20071331"),
        ("2007 Nov", None, "2007 Nov"),
        ("", None, None),
        (None, None, None),
    ],
)
def test_article_dates_are_parsed(tmp_path: Path, given_: str | None, date: str | None, kept: str | None) -> None:
    write(tmp_path, 0, {"1": {"t": "T", "a": "A", "d": given_}})
    (item,) = read_folder(tmp_path)
    assert isinstance(item, EncodedDocument)
    assert (item.document.date, item.document.metadata.get("date_as_given")) == (date, kept)


def test_article_with_missing_fields_is_reported(tmp_path: Path) -> None:
    texts: dict[str, Any] = {
        "1": {"t": "Only a title"},
        "2": {"a": "Only an abstract"},
        "3": {"d": "2001", "t": " ", "a": ""},
        "4": ["t", "a"],
        "5": {"t": 7, "a": "A"},
        "6": {"t": "T", "a": "half \ud800 a pair"},
        "99": {"t": "T", "a": "no vector"},
        "x": {"t": "T", "a": "no PMID"},
    }
    write(tmp_path, 0, texts, ["1", "2", "3", "4", "5", "6", "7"])
    items = list(read_folder(tmp_path))
    documents = [item.document for item in items if isinstance(item, EncodedDocument)]
    assert [(d.id, d.title, d.text) for d in documents] == [
        ("pubmed:1", "Only a title", "Only a title"),
        ("pubmed:2", "", "Only an abstract"),
    ]
    assert [document.metadata for document in documents] == [{"abstract": False}, {}]
    reasons = {item.where: item.reason for item in items if isinstance(item, Skipped)}
    assert reasons == {
        "entry '3'": "no text: neither title nor abstract",
        "entry '4'": "not an object",
        "entry '5'": "t: not a text",
        "entry '6'": "contains half of a surrogate pair, which is not a character",
        "entry '99'": "no vector: not in pmids_chunk_0.json",
        "entry 'x'": "no vector: not in pmids_chunk_0.json",
        "row 6": "no text: PMID 7 is not in pubmed_chunk_0.json",
    }


def test_non_finite_vector_is_reported(tmp_path: Path) -> None:
    vectors = write(tmp_path, 0, {str(n): article(n) for n in range(3)})
    vectors[1, 2] = np.nan
    np.save(tmp_path / "embeds_chunk_0.npy", vectors)
    good, skipped = found(tmp_path)
    assert list(good) == ["pubmed:0", "pubmed:2"]
    assert [(item.where, item.reason) for item in skipped] == [
        ("row 1", "the vector of pubmed:1 is not finite; fetch it again")
    ]


def test_duplicate_entry_is_reported(tmp_path: Path) -> None:
    write(tmp_path, 0, {"1": article(1)})
    (tmp_path / "pubmed_chunk_0.json").write_text('{"1": {"t": "first"}, "1": {"t": "second"}}')
    items = list(read_folder(tmp_path))
    assert [item.document.text for item in items if isinstance(item, EncodedDocument)] == ["first"]
    assert [item.reason for item in items if isinstance(item, Skipped)] == ["occurs twice"]


@pytest.mark.parametrize("cut", [40, 200, 1000])
def test_truncated_text_file_is_reported(tmp_path: Path, cut: int) -> None:
    write(tmp_path, 0, {str(n): article(n) for n in range(30)})
    path = tmp_path / "pubmed_chunk_0.json"
    whole = path.read_text()
    (chunk,) = find_chunks(tmp_path)
    path.write_text(whole[:-cut])
    items = list(read_chunk(chunk))
    assert isinstance(items[-1], Skipped)
    assert items[-1].where == f"after entry {len(items) - 1}"
    assert f", {31 - len(items)} articles lost; fetch it again" in items[-1].reason
    assert all(isinstance(item, EncodedDocument) for item in items[:-1])
    assert len(items) > 1


@pytest.mark.parametrize(
    ("name", "harm", "says"),
    [
        ("pubmed_chunk_0.json", Path.unlink, "pubmed_chunk_0.json missing; fetch them"),
        ("embeds_chunk_0.npy", Path.unlink, "embeds_chunk_0.npy missing; fetch them"),
        ("embeds_chunk_0.npy", lambda p: p.write_bytes(p.read_bytes()[:-4]), "not a numpy array, or truncated"),
        ("embeds_chunk_0.npy", lambda p: p.write_bytes(b"<html>404"), "not a numpy array, or truncated"),
        ("embeds_chunk_0.npy", lambda p: np.save(p, np.zeros((3, 4))), "not float32 vectors"),
        ("embeds_chunk_0.npy", lambda p: np.save(p, np.zeros(12, np.float32)), "not float32 vectors"),
        ("embeds_chunk_0.npy", lambda p: np.save(p, np.zeros((2, 4), np.float32)), "2 vectors for the 3 PMIDs"),
        ("pmids_chunk_0.json", lambda p: p.write_text('["1", "2", "2"]'), "a PMID occurs twice"),
        ("pmids_chunk_0.json", lambda p: p.write_text('["1", "2", "PMC3"]'), "not a JSON list of PMIDs"),
        ("pmids_chunk_0.json", lambda p: p.write_text('{"1": 1}'), "not a JSON list of PMIDs"),
        ("pmids_chunk_0.json", lambda p: p.write_text('["7", "8", "9"]'), "none of its first articles is in"),
        ("pmids_chunk_0.json", lambda p: p.write_bytes(b""), "the file is empty"),
        ("pubmed_chunk_0.json", lambda p: p.write_text("[1]"), "not an object of articles by PMID"),
        ("pubmed_chunk_0.json", lambda p: p.write_bytes(b'{"1": {"t": "\xff"}}'), "not UTF-8"),
    ],
)
def test_mismatched_files_are_rejected_before_reading(
    tmp_path: Path, name: str, harm: Callable[[Path], Any], says: str
) -> None:
    write(tmp_path, 0, {str(n): article(n) for n in (1, 2, 3)})
    harm(tmp_path / name)
    with pytest.raises(InputError) as caught:
        read_folder(tmp_path)
    assert says in caught.value.message
    assert ";" in caught.value.message


def test_folder_without_medcpt_files_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds no embeds_chunk_N\.npy"):
        find_chunks(tmp_path)
    (tmp_path / "a").write_text("x")
    with pytest.raises(InputError, match="a file; give the folder"):
        find_chunks(tmp_path / "a")
    with pytest.raises(InputError, match="no such file or folder"):
        find_chunks(tmp_path / "b")


def test_empty_chunk_gives_no_items(tmp_path: Path) -> None:
    write(tmp_path, 0, {})
    np.save(tmp_path / "embeds_chunk_0.npy", np.zeros((0, 4), np.float32))
    assert found(tmp_path) == ({}, [])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:invalid escape sequence")
@given(st.binary(max_size=40), st.integers(0, 2), st.integers(0, 400))
def test_corrupted_bytes_are_rejected_or_reported(
    tmp_path_factory: pytest.TempPathFactory, junk: bytes, which: int, at: int
) -> None:
    folder = tmp_path_factory.mktemp("chunk")
    write(folder, 0, {str(n): article(n) for n in (1, 2, 3)})
    path = folder / ("embeds_chunk_0.npy", "pmids_chunk_0.json", "pubmed_chunk_0.json")[which]
    data = path.read_bytes()
    path.write_bytes(data[:at] + junk + data[at + len(junk) :])
    try:
        items = list(read_folder(folder))
    except InputError:
        return
    assert sum(isinstance(item, EncodedDocument) for item in items) <= 3
    assert len(items) >= 1
