"""The file of replies: private, shared, durable; damaged or full it says so, and a paid reply is never lost."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from epicrisis.core.answers import Usage
from epicrisis.core.errors import InputError, StorageError
from epicrisis.core.protocols import Capabilities, ChatReply, OptionLogprobs
from epicrisis.models.chat.cache import CacheStats, ReplyCache
from tests.support.cache_child import CALLS, make_key, make_reply
from tests.support.loopback import run_in_thread

FULL = ChatReply(
    text="an answer",
    finish_reason="length",
    model="served",
    usage=Usage(
        calls=3,
        failed_calls=2,
        uncounted_calls=1,
        prompt_tokens=100,
        cached_tokens=20,
        completion_tokens=50,
        reasoning_tokens=10,
        seconds=1.5,
        cost=None,
    ),
    reasoning="long thoughts",
    conforms=False,
    option_logprobs=OptionLogprobs({"A": -0.25, "B": -1.5}, 0.75, ("C",)),
    notes=("no top_p there",),
)


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[ReplyCache]:
    reply_cache = ReplyCache(tmp_path / "replies.sqlite")
    yield reply_cache
    reply_cache.close()


def put_replies(cache: ReplyCache, *numbers: int) -> None:
    async def all_of_them() -> None:
        await asyncio.gather(*(cache.put(make_key(number), make_reply(number)) for number in numbers))

    asyncio.run(all_of_them())


def run_child(*arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.support.cache_child", *map(str, arguments)],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


# -- what is kept -----------------------------------------------------------------------------------------------------


def test_reply_cache_reply_round_trips_all_fields(cache: ReplyCache) -> None:
    asyncio.run(cache.put(make_key(1), FULL))
    assert cache.get(make_key(1)) == FULL
    assert cache.get(make_key(2)) is None
    cache.close()
    assert ReplyCache(cache.path).get(make_key(1)) == FULL


def test_reply_cache_second_put_keeps_first_reply(cache: ReplyCache) -> None:
    put_replies(cache, 1)
    asyncio.run(cache.put(make_key(1), FULL))
    assert cache.get(make_key(1)) == make_reply(1)


def test_reply_cache_last_model_fact_is_returned(cache: ReplyCache) -> None:
    for capabilities in (Capabilities(4096, True, True), Capabilities(None, False, False, True)):
        cache.put_fact(make_key(1), capabilities)
    cache.put_fact(make_key(2), 17)
    cache.close()
    assert cache.get_fact(make_key(1), Capabilities) == Capabilities(None, False, False, True)
    assert cache.get_fact(make_key(2), int) == 17
    assert cache.get_fact(make_key(3), int) is None


def test_reply_cache_file_is_created_at_first_read(tmp_path: Path) -> None:
    path = tmp_path / "made" / "by the way" / "replies.sqlite"
    cache = ReplyCache(path)
    assert cache.stats() == CacheStats(0, 0)
    assert cache.clear() == 0
    assert not path.parent.exists()
    assert cache.get(make_key(1)) is None
    assert path.exists()
    cache.close()


def test_reply_cache_clear_removes_replies_and_shrinks_file(cache: ReplyCache) -> None:
    put_replies(cache, *range(200))
    cache.put_fact(make_key(1), 17)
    full = cache.stats()
    assert full.replies == 200
    assert full.bytes > 200 * 1000
    assert cache.clear() == 200
    assert cache.stats().replies == 0
    assert cache.stats().bytes < 50_000
    assert cache.get(make_key(1)) is None
    assert cache.get_fact(make_key(1), int) is None
    assert all(b"word" not in file.read_bytes() for file in cache.path.parent.iterdir())
    put_replies(cache, 1)
    assert cache.get(make_key(1)) == make_reply(1)


def test_reply_cache_cancelled_put_stores_reply(cache: ReplyCache) -> None:
    async def cancelled() -> None:
        task = asyncio.create_task(cache.put(make_key(1), make_reply(1)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    cache.close()
    assert cache.get(make_key(1)) == make_reply(1)


# -- private ----------------------------------------------------------------------------------------------------------


@pytest.fixture(params=[0o000, 0o022, 0o777])
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    old = os.umask(request.param)
    yield
    os.umask(old)


@pytest.mark.usefixtures("umask")
def test_reply_cache_files_are_private_at_every_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the first byte on: looked at after each step of its making, whatever the umask."""
    modes: list[int] = []
    real = sqlite3.connect

    def connect(*arguments: object, **named: object) -> sqlite3.Connection:
        record_modes()
        db: sqlite3.Connection = real(*arguments, **named)  # type: ignore[call-overload]
        db.set_trace_callback(lambda _: record_modes())
        return db

    def record_modes() -> None:
        modes.extend(stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir())

    monkeypatch.setattr(sqlite3, "connect", connect)
    cache = ReplyCache(tmp_path / "replies.sqlite")
    put_replies(cache, *range(50))
    record_modes()
    file_names = {file.name for file in tmp_path.iterdir()}
    assert file_names == {"replies.sqlite", "replies.sqlite-wal", "replies.sqlite-shm"}
    cache.close()
    assert len(modes) > 20
    assert set(modes) == {0o600}


def test_reply_cache_opening_readable_file_restricts_mode(cache: ReplyCache) -> None:
    put_replies(cache, 1)
    cache.close()
    cache.path.chmod(0o644)
    again = ReplyCache(cache.path)
    assert stat.S_IMODE(cache.path.stat().st_mode) == 0o600
    assert again.get(make_key(1)) == make_reply(1)
    again.close()


# -- replaying --------------------------------------------------------------------------------------------------------


def test_reply_cache_replay_creates_and_writes_nothing(cache: ReplyCache, tmp_path: Path) -> None:
    missing = ReplyCache(tmp_path / "elsewhere" / "replies.sqlite", replay=True)
    assert missing.get(make_key(1)) is None
    assert not missing.path.parent.exists()
    put_replies(cache, 1)
    replaying = ReplyCache(cache.path, replay=True)
    assert replaying.get(make_key(1)) == make_reply(1)
    with pytest.raises(StorageError, match=r"set cache\.mode to on"):
        put_replies(replaying, 2)
    # What another process writes meanwhile is seen.
    put_replies(cache, 3)
    assert replaying.get(make_key(3)) == make_reply(3)
    replaying.close()


def test_reply_cache_replay_in_unwritable_folder_reads_replies(cache: ReplyCache) -> None:
    """Where SQLite cannot make the files it keeps beside its own, as on a read-only disk. Root may write anywhere, so a
    folder in the place of one of them stands for that."""
    put_replies(cache, 1)
    cache.close()
    Path(f"{cache.path}-shm").mkdir()
    replaying = ReplyCache(cache.path, replay=True)
    assert replaying.get(make_key(1)) == make_reply(1)
    replaying.close()


# -- what is wrong with the file --------------------------------------------------------------------------------------


def write_other_database(path: Path) -> None:
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE replies(key, reply)")
    db.close()


def write_newer_format(path: Path) -> None:
    cache = ReplyCache(path)
    put_replies(cache, 1)
    cache.close()
    db = sqlite3.connect(path)
    db.execute("PRAGMA user_version=2")
    db.close()


def overwrite_pages(path: Path) -> None:
    cache = ReplyCache(path)
    put_replies(cache, *range(200))
    cache.close()
    size = path.stat().st_size
    with path.open("r+b") as file:
        for place in range(4096, size, 4096):
            file.seek(place)
            file.write(b"\xff" * 4096)


def write_invalid_replies(path: Path) -> None:
    cache = ReplyCache(path)
    put_replies(cache, 1)
    cache.close()
    db = sqlite3.connect(path)
    db.execute("UPDATE replies SET reply = '{}'")
    db.commit()
    db.close()


@pytest.mark.parametrize("replay", [False, True])
@pytest.mark.parametrize(
    "make",
    [
        lambda path: path.write_text("Not a database at all. " * 100),
        write_other_database,
        write_newer_format,
        overwrite_pages,
        write_invalid_replies,
    ],
)
def test_reply_cache_foreign_or_damaged_file_raises_input_error_and_is_unchanged(
    make: object, replay: bool, tmp_path: Path
) -> None:
    path = tmp_path / "replies.sqlite"
    make(path)  # type: ignore[operator]
    before = path.read_bytes()
    with pytest.raises(InputError, match=r"delete it \(it only saves calls\)") as caught:
        ReplyCache(path, replay=replay).get(make_key(1))
    assert str(path) in caught.value.message
    assert path.read_bytes() == before


@pytest.mark.parametrize("empty", [b"", None])
def test_reply_cache_empty_file_after_kill_is_initialized(empty: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "replies.sqlite"
    if empty is None:
        db = sqlite3.connect(path)
        db.execute("PRAGMA journal_mode=WAL")
        db.close()
    else:
        path.write_bytes(empty)
    cache = ReplyCache(path)
    put_replies(cache, 1)
    assert cache.get(make_key(1)) == make_reply(1)
    cache.close()


def test_reply_cache_unwritable_path_raises_storage_error_before_any_call(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a file where a folder should be")
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "file" / "replies.sqlite", tmp_path / "folder", Path("/proc/replies.sqlite")):
        with pytest.raises(StorageError, match=r"cache\.mode to off") as caught:
            ReplyCache(path).get(make_key(1))
        assert str(path) in caught.value.message


def test_reply_cache_read_only_folder_raises_storage_error_on_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: mode & os.W_OK == 0 and real(path, mode))
    with pytest.raises(StorageError, match=f"{tmp_path} is not a writable folder.*cache.mode to off"):
        ReplyCache(tmp_path / "replies.sqlite")


# -- full disk --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_reply_cache_full_disk_returns_replies_with_note(tmp_path: Path) -> None:
    """Files that may not grow beyond a limit stand for a full disk."""
    path = tmp_path / "replies.sqlite"
    output, errors = run_child("fill", path, 40_000).communicate(timeout=60)
    assert errors == ""
    notes = output.splitlines()
    assert len(notes) == 10
    assert all(note.startswith("this reply was not cached: ") and "cache.mode to off" in note for note in notes)
    cache = ReplyCache(path)
    assert cache.stats().replies == 1
    cache.close()


# -- several processes ------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_reply_cache_four_processes_share_replies(tmp_path: Path) -> None:
    path, count = tmp_path / "replies.sqlite", 100
    child = run_child("share", path, 4, count)
    output, errors = child.communicate(timeout=60)
    assert (child.returncode, errors) == (0, "")
    foreign = [int(line) for line in output.splitlines()]
    # Each key was written by one, and read by all.
    assert len(foreign) == 4
    assert sum(foreign) == 3 * count
    cache = ReplyCache(path)
    assert cache.stats().replies == count
    writers = {reply.model for number in range(count) if (reply := cache.get(make_key(number))) is not None}
    assert len(writers) > 1, "they hardly met: the test shows nothing"
    cache.close()


# -- kill -9 ----------------------------------------------------------------------------------------------------------


class CountingHandler(BaseHTTPRequestHandler):
    """Answers each question, some of them late, and counts how often each was asked."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1
    counts: Counter[str]
    random = random.Random(4)

    def do_GET(self) -> None:
        self._say({"data": [{"id": "served"}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        question = body["messages"][0]["content"]
        self.counts[question] += 1
        time.sleep(self.random.choice((0, 0, 0.005, 0.02)))
        choice = {"message": {"role": "assistant", "content": f"reply to {question}"}, "finish_reason": "stop"}
        self._say({"model": "served", "choices": [choice], "usage": {"prompt_tokens": 2, "completion_tokens": 4}})

    def _say(self, value: object) -> None:
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


class QuietServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, *_: object) -> None:
        """Ignore callers that were killed."""


@contextmanager
def run_counting_server() -> Iterator[tuple[str, Counter[str]]]:
    counts: Counter[str] = Counter()
    server = QuietServer(("127.0.0.1", 0), type("Handler", (CountingHandler,), {"counts": counts}))
    with run_in_thread(server) as url:
        yield url, counts


@pytest.mark.long
def test_reply_cache_killed_process_repeats_no_completed_call(tmp_path: Path) -> None:
    """Whatever came back is never asked for again; asked twice is at most what was on its way at a kill."""
    chance, acknowledged = random.Random(9), tmp_path / "acknowledged"
    on_their_way, paid = 0, dict[str, int]()
    with run_counting_server() as (url, counts):
        runs = run_child("calls", url, tmp_path / "replies.sqlite", acknowledged)
        assert runs.stdin is not None
        assert runs.stdout is not None
        for share in (0.15, 0.4, 0.6, 0.85, None):
            runs.stdin.write("\n")
            runs.stdin.flush()
            child = int(runs.stdout.readline())
            if share is not None:
                wait_for(counts, CALLS * (share + chance.uniform(-0.1, 0.1)))
                time.sleep(chance.uniform(0, 0.01))
                os.kill(child, signal.SIGKILL)
            assert int(runs.stdout.readline()) == (0 if share is None else -signal.SIGKILL)
            time.sleep(0.1)  # until the server has counted what a dead caller sent
            returned = {f"question {line}" for line in acknowledged.read_text().split()}
            assert {question: counts[question] for question in paid} == paid, "asked again though it had come back"
            paid = {question: counts[question] for question in returned}
            on_their_way += len(counts) - len(returned)
        runs.stdin.close()
        runs.stdout.close()
        runs.wait(10)
    assert len(paid) == len(counts) == CALLS
    assert counts.total() <= CALLS + on_their_way
    assert 0 < on_their_way < 0.3 * CALLS, "the kills fell between the calls: the test shows nothing"


def wait_for(counts: Counter[str], count: float) -> None:
    until = time.monotonic() + 60
    while counts.total() < count and time.monotonic() < until:
        time.sleep(0.001)
