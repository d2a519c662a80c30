"""Files that were cut short or garbled on their way: one line for each, and the rest of the folder is read."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from epicrisis.core.types import Document
from epicrisis.corpus.base.reader_base import Skipped
from epicrisis.corpus.base.removal_log import REMOVAL_LOG_FILE, RemovalLog
from epicrisis.corpus.readers.sources import read_sources
from tests.corpus.test_fhir import PATIENT, document, packed

_DOCUMENTS = [document(packed(f"Note {number}: fever."), id=f"d{number}") for number in range(9)]
_RESOURCES = [PATIENT, *_DOCUMENTS]
_ROWS = [f'n{number},{number},DS,2150-03-0{number + 1},"Fever\n and more"\n' for number in range(9)]
_LINES = [json.dumps({"id": f"x{number}", "text": f"fever {number}"}) + "\n" for number in range(9)]
_ARTICLE = (
    '<?xml version="1.0"?><!DOCTYPE article><article><front><article-meta><article-id pub-id-type="pmc">1</article-id>'
    "<title-group><article-title>T</article-title></title-group></article-meta></front><body><sec><p>fever</p></sec>"
    "</body></article>"
)
_CITATION = (
    '<?xml version="1.0"?><PubmedArticleSet><PubmedArticle><MedlineCitation><PMID Version="1">1</PMID><Article>'
    "<ArticleTitle>T</ArticleTitle><Abstract><AbstractText>fever</AbstractText></Abstract></Article></MedlineCitation>"
    "</PubmedArticle></PubmedArticleSet>"
)
FILES = {
    "bundle.json.gz": json.dumps({"resourceType": "Bundle", "entry": [{"resource": each} for each in _RESOURCES]}),
    "export.ndjson.gz": "".join(json.dumps(each) + "\n" for each in _RESOURCES),
    "notes.csv.gz": "note_id,subject_id,note_type,charttime,text\n" + "".join(_ROWS),
    "lines.jsonl.gz": "".join(_LINES),
    "article.nxml.gz": _ARTICLE,
    "pubmed.xml.gz": _CITATION,
}
WHOLE = ("bundle.json.gz", "export.ndjson.gz")
"""Of these nothing is taken where a byte is wrong."""


def damaged(content: bytes, count: int, seed: int) -> Iterator[bytes]:
    """The file with one bit flipped, or, each fifth time, cut short."""
    dice = random.Random(seed)
    for number in range(count):
        if number % 5 == 0:
            yield content[: dice.randrange(1, len(content))]
        else:
            place = dice.randrange(len(content) * 8)
            flipped = bytearray(content)
            flipped[place // 8] ^= 1 << place % 8
            yield bytes(flipped)


@pytest.mark.parametrize("name", FILES)
def test_damaged_gzip_is_skipped_and_the_folder_is_read(name: str, tmp_path: Path) -> None:
    (tmp_path / "good.jsonl").write_text('{"id": "good", "text": "Good."}\n')
    path = tmp_path / name
    whole = gzip.compress(FILES[name].encode(), mtime=0)
    path.write_bytes(whole)
    right = [item for item in read_sources([tmp_path]) if isinstance(item, Document)]
    # Pools of processes read PubMed's files.
    for content in damaged(whole, 10 if name.startswith("pubmed") else 60, seed=5):
        path.write_bytes(content)
        items = list(read_sources([tmp_path]))
        documents = [item for item in items if isinstance(item, Document)]
        skipped = [item for item in items if isinstance(item, Skipped)]
        assert "good" in {item.id for item in documents}
        assert documents == right or skipped
        if name in WHOLE:
            assert documents == right or (len(documents), len(skipped)) == (1, 1)
        assert not any("\n" in item.reason or "fever" in item.reason.lower() for item in skipped)


def test_damaged_csv_of_notes_gives_no_row(tmp_path: Path) -> None:
    whole = gzip.compress(FILES["notes.csv.gz"].encode(), mtime=0)
    # The checksum alone is wrong: whatever the rows say cannot be believed.
    path = tmp_path / "notes.csv.gz"
    path.write_bytes(whole[:-8] + bytes(4) + whole[-4:])
    (only,) = read_sources([path])
    assert isinstance(only, Skipped)
    assert "breaks off" in only.reason


def test_ndjson_without_fhir_is_skipped_in_folder(tmp_path: Path) -> None:
    (tmp_path / "a.ndjson").write_text('{"resourceTyqe": "Patient"}\n')
    (tmp_path / "b.ndjson").write_text(FILES["export.ndjson.gz"])
    items = list(read_sources([tmp_path]))
    assert [item.path.endswith("a.ndjson") for item in items if isinstance(item, Skipped)] == [True]
    assert sum(isinstance(item, Document) for item in items) == len(_DOCUMENTS)
    # Under a format that was named as well.
    assert sum(isinstance(item, Document) for item in read_sources([tmp_path], "fhir")) == len(_DOCUMENTS)


@pytest.mark.parametrize("odd", [3, [3], [[None]], {"a": {"b": 1}}, True])
@pytest.mark.parametrize("key", ["id", "identifier", "name", "period", "class", "subject", "content", "status"])
def test_malformed_resource_does_not_end_import(key: str, odd: object, tmp_path: Path) -> None:
    stay = {"resourceType": "Encounter", "id": "e1"}
    broken = [{**each, key: odd} for each in (PATIENT, stay, document(packed("Bad"), id="bad"))]
    path = tmp_path / "export.ndjson"
    path.write_text("".join(json.dumps(each) + "\n" for each in (*broken, document(packed("Good"), id="good"))))
    assert "note:good" in {item.id for item in read_sources([path]) if isinstance(item, Document)}


def test_damaged_removal_log_is_kept_and_extended(tmp_path: Path) -> None:
    source = tmp_path / "notes.csv"
    source.write_text(FILES["notes.csv.gz"])
    kept = tmp_path / REMOVAL_LOG_FILE
    damaged_lines = [b"[1]}\n", b'{"sha256": {}}\n', b'{"text": "\xff"}\n', b"x" * 20 + b"}\n"]
    kept.write_bytes(b"".join(damaged_lines))
    log = RemovalLog(keep_texts=True)
    log.write_to(tmp_path)
    log.record(log.begin_source(source, "notes.csv"), "duplicate", "note:1", ["Fever"])
    log.close()
    assert len(kept.read_bytes().splitlines()) == len(damaged_lines) + 1
