"""Checks on the demonstration texts and questions in ``demo/``."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

DEMO = Path(__file__).resolve().parent.parent / "demo"


def _rows(name: str) -> list[dict[str, Any]]:
    lines = (DEMO / name).read_text(encoding="utf-8").split("\n")
    return [json.loads(line) for line in lines if line]


def test_counts_and_unique_ids() -> None:
    for name, count in (("documents.jsonl", 62), ("questions.jsonl", 12)):
        ids = [row["id"] for row in _rows(name)]
        assert len(ids) == count
        assert len(set(ids)) == count


def test_document_fields() -> None:
    for row in _rows("documents.jsonl"):
        assert set(row) == {"id", "title", "text", "source", "date", "metadata"}, row["id"]
        assert re.fullmatch(r"demo:[a-z0-9]+(-[a-z0-9]+)*", row["id"]), row["id"]
        assert row["title"].strip(), row["id"]
        assert row["source"] == "epicrisis demo", row["id"]
        assert re.fullmatch(r"(19|20)\d\d", row["date"]), row["id"]


def test_text_length() -> None:
    for row in _rows("documents.jsonl"):
        assert 90 <= len(row["text"].split()) <= 170, row["id"]


def test_sources_name_a_year() -> None:
    for row in _rows("documents.jsonl"):
        sources = row["metadata"]["sources"]
        assert sources, row["id"]
        years = [re.search(r"\b(19|20)\d\d\b", source) for source in sources]
        assert all(years), row["id"]
        # the date is the year of one of the sources
        assert any(re.search(rf"\b{row['date']}\b", source) for source in sources), row["id"]


def test_gold_documents_exist() -> None:
    known = {row["id"] for row in _rows("documents.jsonl")}
    for row in _rows("questions.jsonl"):
        gold = row["gold_documents"]
        assert gold, row["id"]
        assert set(gold) <= known, row["id"]


def test_gold_answers() -> None:
    for row in _rows("questions.jsonl"):
        assert row["text"].strip(), row["id"]
        if "options" in row:
            assert row["gold"] in row["options"], row["id"]
            assert list(row["options"]) == list("ABCD")[: len(row["options"])], row["id"]
        else:
            assert row["gold"].strip(), row["id"]


def test_mix_of_questions() -> None:
    sizes = [len(row.get("options", {})) for row in _rows("questions.jsonl")]
    assert sum(size in (2, 3) for size in sizes) == 5
    assert sizes.count(4) == 3
    assert sizes.count(0) == 4
