"""A file of lines after a kill, in a stranger's hands, and on a disk that takes nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from epicrisis.errors import StorageError
from epicrisis.evaluation.runs.lines import append_line, whole_lines


def test_what_was_appended_is_read_in_its_order(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    assert list(whole_lines(path)) == []
    for name in ("α", "line\nbreak"):
        append_line(path, {"name": name})
    assert [(number, json.loads(line)["name"]) for number, line in whole_lines(path)] == [(1, "α"), (2, "line\nbreak")]
    assert path.read_bytes().startswith('{"name": "α"}\n'.encode())


@pytest.mark.parametrize("half", [b"{", b'{"name": "c"}'])
def test_half_a_line_is_taken_back_and_the_next_one_stands_alone(tmp_path: Path, half: bytes) -> None:
    path = tmp_path / "lines.jsonl"
    append_line(path, {"name": "a"})
    whole = path.read_bytes()
    path.write_bytes(whole + half)
    assert list(whole_lines(path)) == [(1, whole)]
    assert path.read_bytes() == whole
    append_line(path, {"name": "b"})
    assert [json.loads(line)["name"] for _, line in whole_lines(path)] == ["a", "b"]


def test_a_file_of_something_else_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not ours\nnot even whole")
    number, line = next(whole_lines(path))
    assert (number, line) == (1, b"not ours\n")
    assert path.read_text() == "not ours\nnot even whole"


def test_a_disk_that_does_not_take_it(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"cannot be written .*free some space and run the same command again"):
        append_line(tmp_path / "nowhere" / "lines.jsonl", {})
