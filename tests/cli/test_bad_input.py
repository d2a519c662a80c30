"""Bad input: one clear line on standard error, exit code 2, no traceback, and saved documents are kept."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from epicrisis.core.types import Document
from epicrisis.library.write.ingest import add_documents, open_or_create
from epicrisis.testing.hashing_encoder import HashingEncoder
from tests.cli.conftest import Run

pytestmark = pytest.mark.models


def assert_one_line(result: Result, *parts: str) -> None:
    """Check that the command ended with exit code 2 and one line that contains `parts`."""
    assert result.exit_code == 2, (result.exit_code, result.stdout, result.stderr, result.exception)
    assert isinstance(result.exception, SystemExit)
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith("epicrisis: ")
    for word in parts:
        assert word in last, last
    assert "Traceback" not in result.stderr


def count_documents(run: Run, library: Path) -> int:
    info = json.loads(run("library", "info", library, "--json").stdout)
    assert info["problems"] == []
    return int(info["documents"])


BAD_SOURCES: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (lambda path: None, "bad.jsonl"),
    "empty": (lambda path: path.write_bytes(b""), "empty"),
    "a directory without readable files": (lambda path: path.mkdir(), "bad.jsonl"),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", BAD_SOURCES)
def test_add_with_unreadable_source_reports_one_line_and_adds_nothing(
    kind: str, small_library: Path, papers: Path, tmp_path: Path, run: Run
) -> None:
    damage, word = BAD_SOURCES[kind]
    bad = tmp_path / "bad.jsonl"
    damage(bad)
    assert_one_line(run("library", "add", small_library, papers, bad), word)
    assert count_documents(run, small_library) == 3


def test_add_with_missing_source_creates_no_library(tmp_path: Path, run: Run, model_home: Path) -> None:
    assert_one_line(run("library", "add", tmp_path / "new", tmp_path / "missing.jsonl"), "missing.jsonl")
    assert not (tmp_path / "new").exists()


@pytest.mark.slow
def test_add_with_some_broken_lines_warns_and_adds_the_others(small_library: Path, tmp_path: Path, run: Run) -> None:
    mixed = tmp_path / "mixed.jsonl"
    lines = [b'{"id": "x", "text": "A good line."}', b'{"id": "y", "text": ', b'{"id": "z", "text": "\xff\xfe"}']
    lines += [b'{"id": "x", "text": "The same id, another text."}', b'{"id": "w", "text": "Another good line."}']
    mixed.write_bytes(b"\n".join(lines) + b"\n")
    result = run("library", "add", small_library, mixed)
    assert result.exit_code == 0, result.stderr
    assert result.stderr.splitlines()[-1].startswith("warning: 3 items were skipped")
    assert "2 documents added" in result.stdout
    for place in ("line 2:", "line 3:", "same id"):
        assert place in result.stderr
    assert count_documents(run, small_library) == 5


def test_command_on_folder_without_library_reports_one_line(tmp_path: Path, run: Run) -> None:
    (tmp_path / "thing").write_text("x", encoding="utf-8")
    assert_one_line(run("search", tmp_path, "aspirin", "--by", "bm25"), "library")
    assert_one_line(run("search", tmp_path / "nothing", "aspirin", "--by", "bm25"), "library")
    assert_one_line(run("library", "info", tmp_path / "nothing"), "library")


def test_search_with_other_encoder_than_library_reports_one_line(tmp_path: Path, run: Run, model_home: Path) -> None:
    path = tmp_path / "hashed"
    with open_or_create(path, HashingEncoder(32), "hashing") as store:
        add_documents(store, [Document("a", "Aspirin lowers the risk of stroke.")], HashingEncoder(32))
    assert_one_line(run("search", path, "aspirin", "--by", "dense", "--encoder", "minilm"), "encoder")
    assert run("search", path, "aspirin", "--by", "bm25").exit_code == 0


@pytest.mark.slow
def test_search_with_changed_manifest_reports_one_line(small_library: Path, run: Run) -> None:
    manifest = small_library / "manifest.json"
    text = manifest.read_text(encoding="utf-8")
    fingerprint = json.loads(text)["encoder_fingerprint"]
    manifest.write_text(text.replace(fingerprint, "another-encoder:0"), encoding="utf-8")
    assert_one_line(run("search", small_library, "aspirin", "--by", "dense"), "manifest.json changed")


@pytest.mark.slow
@pytest.mark.parametrize("part", ["passages.sqlite", "words", "journal.sqlite"])
def test_search_in_incomplete_copy_of_library_reports_one_line(
    part: str, small_library: Path, tmp_path: Path, run: Run
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(small_library, copy, ignore=shutil.ignore_patterns(part))
    assert_one_line(run("search", copy, "aspirin", "--by", "bm25"), "copy")


@pytest.mark.long
def test_ask_with_missing_model_reports_one_line(
    small_library: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_one_line(run("ask", small_library, "Why?", "--model", "qwen2.5-coder"), "qwen2.5-coder-0.5b")
    assert_one_line(run("ask", small_library, "Why?", "--model", tmp_path / "none.gguf"), "none.gguf")
    monkeypatch.setenv("EPICRISIS_HOME", str(tmp_path / "empty"))
    assert_one_line(run("ask", small_library, "Why?", "--strategy", "closed-book"), "epicrisis models pull")


@pytest.mark.slow
@pytest.mark.parametrize("content", [b"", b"not a model at all", b"GGUF" + b"\0" * 64])
def test_ask_with_invalid_model_file_reports_one_line(
    content: bytes, small_library: Path, tmp_path: Path, run: Run
) -> None:
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(content)
    assert_one_line(run("ask", small_library, "Why?", "--strategy", "closed-book", "--model", bad), "bad.gguf")


@pytest.mark.slow
def test_command_with_invalid_settings_reports_one_line(small_library: Path, tmp_path: Path, run: Run) -> None:
    config = tmp_path / "epicrisis.toml"
    config.write_text("[preflight]\ntreshold = 0.3\n", encoding="utf-8")
    assert_one_line(run("ask", small_library, "Why?", "--config", config), "preflight.threshold")
    assert_one_line(run("ask", small_library, "Why?", "-k", 0), "k")
    assert_one_line(run("ask", small_library, "  "), "empty")
    assert_one_line(run("ask", small_library, "half a \udcff character"), "UTF-8")
    assert_one_line(run("ask", small_library), "give either a question, or --file")
    assert_one_line(
        run("ask", small_library, "--file", tmp_path / "none.jsonl", "-o", tmp_path / "a.jsonl"), "none.jsonl"
    )
    assert_one_line(run("search", small_library, "aspirin", "--by", "bm25", "--as-of", "yesterday"), "YYYY")


@pytest.mark.slow
def test_ask_with_local_only_and_remote_model_reports_one_line(small_library: Path, run: Run) -> None:
    result = run("ask", small_library, "Why?", "--local-only", "--model", "http://203.0.113.7/v1#x", "-k", 2)
    assert_one_line(result, "--local-only")
    from epicrisis.system.local_only import set_local_only

    set_local_only(False)
