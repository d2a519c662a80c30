"""Test the store of JSON lines: after a kill at any byte, an editor, a full disk, and between two processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pydantic import Field

from epicrisis.core.answers import Usage
from epicrisis.core.errors import InputError, StorageError
from epicrisis.core.printable import replace_surrogates
from epicrisis.pipeline.recording.runner import RecordStore
from epicrisis.system import json_lines
from epicrisis.system.json_lines import acquire_lock, append_line, read_lines
from epicrisis.system.jsonl_store import JsonlStore, StoredLine, read_stored_lines


def list_values(path: Path) -> list[dict[str, Any]]:
    return [line.value for line in read_lines(path)]


def test_read_lines_returns_appended_values_in_order(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    assert list_values(path) == []
    for name in ("α", "line\nbreak", "a\u2028b", "half \ud800 a pair"):
        append_line(path, {"name": name})
    lines = list(read_lines(path))
    assert [(line.number, line.value["name"]) for line in lines] == [
        (1, "α"),
        (2, "line\nbreak"),
        (3, "a\u2028b"),
        (4, "half \ufffd a pair"),
    ]
    content = path.read_bytes()
    assert content.startswith('{"name": "α"}\n'.encode())
    assert content.decode("utf-8"), "what is no text is escaped"
    raw = [content[line.start :].split(b"\n")[0].decode() for line in lines]
    assert [json.loads(replace_surrogates(line)) for line in raw] == list_values(path)


def test_append_line_after_truncation_at_any_byte_continues(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    for i in range(3):
        append_line(path, {"i": i, "text": "ß}\\n{"})
    content = path.read_bytes()
    ends = [i for i, byte in enumerate(content, 1) if byte == ord("\n")]
    for cut in range(len(content) + 1):
        path.write_bytes(content[:cut])
        # An object is whole without its line's end.
        remaining = sum(end <= cut + 1 for end in ends)
        assert [value["i"] for value in list_values(path)] == list(range(remaining))
        assert path.read_bytes() == content[:cut], "reading changes nothing"
        append_line(path, {"i": 9})
        assert path.read_bytes() == content[: ends[remaining - 1] if remaining else 0] + b'{"i": 9}\n'


@pytest.mark.parametrize("length", [json_lines._BLOCK - 2, json_lines._BLOCK, 3 * json_lines._BLOCK])
def test_append_line_removes_long_incomplete_line(tmp_path: Path, length: int) -> None:
    path = tmp_path / "lines.jsonl"
    append_line(path, {"name": "a"})
    with path.open("ab") as file:
        file.write(b'{"name": "' + b"x" * length)
    append_line(path, {"name": "b"})
    assert path.read_text() == '{"name": "a"}\n{"name": "b"}\n'


def test_read_lines_accepts_editor_changes(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"i": 0}\r\n\r\n  \n{"i": 1}')
    assert [(line.number, line.value["i"]) for line in read_lines(path)] == [(1, 0), (4, 1)]
    append_line(path, {"i": 2})
    assert [(line.number, line.value["i"]) for line in read_lines(path)] == [(1, 0), (4, 1), (5, 2)]


@pytest.mark.parametrize(
    ("text", "number"), [("not ours\nnot even whole", 1), ('{"a": 1}\n{"b": \n{"c": 3}\n', 2), ('{"a": 1}\n[1]', 2)]
)
def test_read_lines_with_other_content_raises_and_leaves_file_unchanged(tmp_path: Path, text: str, number: int) -> None:
    path = tmp_path / "notes.txt"
    path.write_text(text)
    with pytest.raises(InputError, match=f"line {number}, is not a JSON object: repair it, or choose another file"):
        list_values(path)
    assert path.read_text() == text
    with pytest.raises(InputError, match="cannot be read"):
        list_values(tmp_path)


# -- typed lines ------------------------------------------------------------------------------------------------------


class Reply(StoredLine):
    """Hold a nested dataclass, a field with an alias on disk, and an optional field."""

    recipe: dict[str, Any] = Field(alias="made")
    id: str
    score: int
    usage: Usage = Usage()
    reason: str = ""

    @property
    def identity(self) -> str:
        return self.id


RECIPE = {"model": "m", "seed": 0}


def open_store(path: Path, recipe: Mapping[str, Any] = RECIPE, **options: Any) -> JsonlStore[Reply]:
    return JsonlStore(path, Reply, recipe, content="replies", **options)


def test_store_reopened_holds_last_line_of_each_identity(tmp_path: Path) -> None:
    path = tmp_path / "replies.jsonl"
    store = open_store(path)
    for id_, score in (("a", 1), ("b", 2), ("a", 3)):
        store.append(Reply(recipe=store.recipe, id=id_, score=score, usage=Usage(calls=score)))
    assert {key: line.score for key, line in store.lines.items()} == {"a": 3, "b": 2}
    reopened = open_store(path)
    assert reopened.lines == store.lines
    assert list(reopened.lines) == ["a", "b"]
    assert reopened.lines["a"].usage == Usage(calls=3)
    assert [line.score for line in read_stored_lines(path, Reply, "replies")] == [1, 2, 3]


def test_line_on_disk_has_aliases_and_only_set_fields(tmp_path: Path) -> None:
    path = tmp_path / "replies.jsonl"
    store = open_store(path)
    store.append(Reply(recipe=store.recipe, id="a", score=1))
    assert list_values(path) == [{"made": RECIPE, "id": "a", "score": 1}]


def test_store_after_incomplete_last_line_continues(tmp_path: Path) -> None:
    path = tmp_path / "replies.jsonl"
    store = open_store(path)
    for id_ in "ab":
        store.append(Reply(recipe=store.recipe, id=id_, score=1))
    path.write_bytes(path.read_bytes()[:-5])
    again = open_store(path)
    assert set(again.lines) == {"a"}
    again.append(Reply(recipe=again.recipe, id="b", score=2))
    assert [line.score for line in open_store(path).lines.values()] == [1, 2]


def test_store_with_lines_of_other_recipe_is_refused_or_skips_them(tmp_path: Path) -> None:
    path = tmp_path / "replies.jsonl"
    store = open_store(path)
    store.append(Reply(recipe=store.recipe, id="a", score=1))
    with pytest.raises(InputError, match=r"holds replies made with other settings \(seed\): use the same settings"):
        open_store(path, {"model": "m", "seed": 1})
    other = open_store(path, {"model": "m", "seed": 1}, other_recipes="skip")
    assert other.lines == {}
    other.append(Reply(recipe=other.recipe, id="b", score=2))
    assert [line["id"] for line in list_values(path)] == ["a", "b"]
    assert set(open_store(path, other_recipes="skip").lines) == {"a"}


@pytest.mark.parametrize(
    "changes", [{"score": "many"}, {"usage": {"calls": []}}, {"id": None}, {"made": 3}, {"score": 0.5}]
)
def test_line_of_other_type_is_refused_without_quoting_it(tmp_path: Path, changes: dict[str, Any]) -> None:
    path = tmp_path / "replies.jsonl"
    append_line(path, {"made": RECIPE, "id": "a", "score": 1})
    append_line(path, {"made": RECIPE, "id": "secret", "score": 1, **changes})
    with pytest.raises(InputError, match="line 2, does not belong to a file of replies: repair or remove") as refusal:
        open_store(path)
    assert "secret" not in str(refusal.value)


# -- the disk ---------------------------------------------------------------------------------------------------------

_IN_A_SMALL_SPACE = """
import resource, signal, sys
from pathlib import Path
from epicrisis.core.errors import StorageError
from epicrisis.system.json_lines import append_line
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
path = Path(sys.argv[1])
append_line(path, {"name": "a" * 40})
try:
    append_line(path, {"name": "b" * 80})
except StorageError as error:
    sys.stdout.write(str(error))
append_line(path, {"name": "c" * 20})
"""


@pytest.mark.slow
def test_append_line_on_full_disk_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    ended = subprocess.run([sys.executable, "-c", _IN_A_SMALL_SPACE, str(path)], capture_output=True, text=True)
    assert ended.stderr == ""
    assert "free some space and run the same command again" in ended.stdout
    assert [value["name"][0] for value in list_values(path)] == ["a", "c"]


def test_append_line_to_unwritable_path_raises_storage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"cannot be written .*free some space and run the same command again"):
        append_line(tmp_path / "file" / "lines.jsonl", {})
    with pytest.raises(StorageError, match="cannot be written"):
        acquire_lock(tmp_path / "file" / "lines.jsonl")


@pytest.mark.skipif(os.name != "posix", reason="modes are of POSIX")
def test_store_file_and_folder_are_private_to_owner(tmp_path: Path) -> None:
    path = tmp_path / "new" / "lines.jsonl"
    before = os.umask(0)
    try:
        append_line(path, {})
        assert [item.stat().st_mode & 0o777 for item in (path, path.parent)] == [0o600, 0o700]
        path.chmod(0o644)
        append_line(path, {})
        assert path.stat().st_mode & 0o777 == 0o600
    finally:
        os.umask(before)


# -- two processes ----------------------------------------------------------------------------------------------------

_HOLDS_THE_LOCK = """
import sys
from pathlib import Path
from epicrisis.system.json_lines import acquire_lock
lock = acquire_lock(Path(sys.argv[1]))
sys.stdout.write("locked\\n")
sys.stdout.flush()
sys.stdin.read()
"""


@pytest.mark.slow
def test_store_locked_by_other_process_raises_input_error(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    other = subprocess.Popen(
        [sys.executable, "-c", _HOLDS_THE_LOCK, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdout is not None
    assert other.stdout.readline() == "locked\n"
    for adds in (acquire_lock, open_store, partial(RecordStore, recipe={})):
        with pytest.raises(InputError, match=r"another process is using .*: wait until it ends, or stop it"):
            adds(path)
    assert list_values(path) == []
    other.kill()
    other.wait()
    other.stdout.close()
    first = acquire_lock(path)
    assert first.is_locked
    assert acquire_lock(path).is_locked, "whoever asks again in this process"
