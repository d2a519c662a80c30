"""Recording: every call a line, however it ends, in a file that only its owner reads."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from epicrisis.core.answers import Usage
from epicrisis.core.errors import EndpointRejected, StorageError
from epicrisis.core.protocols import ChatRequest
from epicrisis.core.serialization import to_json
from epicrisis.models.chat.cache import CachedModel, ReplyCache
from epicrisis.models.chat.layers import RecordingModel
from epicrisis.testing.chat import ScriptedModel, check_chat_model
from tests.support.virtual_clock import SlowModel, make_request, run_in_virtual_time


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_recording_line_contains_request_and_reply(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    request = make_request("Größe?", schema={"type": "object"}, sample=3, extra={"effort": "low"})
    model = RecordingModel(ScriptedModel(lambda _: "{}"), path)
    reply = asyncio.run(model.complete(request))
    (line,) = read_lines(path)
    assert line.pop("seconds") >= 0
    assert datetime.fromisoformat(line.pop("time")).tzinfo is not None
    assert line == {
        "model": "scripted",
        "request": to_json(request),
        "reply": to_json(reply),
        "usage": to_json(reply.usage),
        "replayed": False,
    }
    assert line["request"]["messages"] == [{"role": "user", "content": "Größe?"}]


def test_recording_failed_and_cancelled_calls_are_written(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    usage = Usage(calls=1, failed_calls=1, prompt_tokens=7)
    inner = SlowModel(failure=lambda request: EndpointRejected("bad key", usage=usage) if request.sample else None)
    model = RecordingModel(inner, path)

    async def both() -> None:
        with pytest.raises(EndpointRejected):
            await model.complete(make_request(sample=1))
        task = asyncio.create_task(model.complete(make_request()))
        await asyncio.sleep(0.5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run_in_virtual_time(both())
    failed, cancelled = read_lines(path)
    assert failed["error"] == {"kind": "EndpointRejected", "message": "bad key"}
    assert failed["usage"] == to_json(usage)
    assert cancelled["error"]["kind"] == "Cancelled"
    assert cancelled["usage"]["cost"] is None
    assert "reply" not in failed | cancelled


def test_recording_replayed_reply_is_marked(tmp_path: Path) -> None:
    cache = ReplyCache(tmp_path / "replies.sqlite")
    model = RecordingModel(CachedModel(ScriptedModel(lambda _: "yes"), cache), tmp_path / "calls.jsonl")

    async def twice() -> None:
        await model.complete(make_request())
        await model.complete(make_request())
        await model.aclose()

    asyncio.run(twice())
    cache.close()
    first, second = read_lines(tmp_path / "calls.jsonl")
    assert (first["replayed"], second["replayed"]) == (False, True)
    assert second["reply"]["text"] == "yes"


@pytest.mark.parametrize("umask", [0o000, 0o777])
def test_recording_file_is_private(umask: int, tmp_path: Path) -> None:
    old = os.umask(umask)
    try:
        path = tmp_path / "new" / "calls.jsonl"
        asyncio.run(RecordingModel(ScriptedModel(lambda _: "yes"), path).complete(make_request()))
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_recording_to_device_keeps_mode() -> None:
    before = os.stat(os.devnull).st_mode
    asyncio.run(RecordingModel(ScriptedModel(lambda _: "yes"), Path(os.devnull)).complete(make_request()))
    assert os.stat(os.devnull).st_mode == before


def test_recording_appends_after_existing_and_partial_lines(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    path.write_text('{"whole": true}\n{"half": ')
    for _ in range(2):
        asyncio.run(RecordingModel(ScriptedModel(lambda _: "yes"), path).complete(make_request()))
    whole, half, *new = path.read_text().splitlines()
    assert (whole, half) == ('{"whole": true}', '{"half": ')
    assert [json.loads(line)["reply"]["text"] for line in new] == ["yes", "yes"]


def test_recording_lines_of_several_models_stay_whole(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"

    async def together() -> None:
        models = [RecordingModel(ScriptedModel(lambda _: "word " * 5000, name=name), path) for name in "abc"]
        await asyncio.gather(*(model.complete(make_request()) for model in models for _ in range(5)))

    asyncio.run(together())
    assert sorted(line["model"] for line in read_lines(path)) == list("aaaaabbbbbccccc")


def test_recording_unwritable_path_sends_nothing(tmp_path: Path) -> None:
    inner = ScriptedModel(lambda _: "yes")
    with pytest.raises(StorageError, match=r"cannot be recorded there .*leave out the setting record; the cache"):
        asyncio.run(RecordingModel(inner, tmp_path).complete(make_request()))
    assert inner.requests == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is always full")
@pytest.mark.parametrize("fails", [False, True])
def test_recording_full_disk_raises_storage_error(fails: bool) -> None:
    def script(_: ChatRequest) -> str:
        if fails:
            raise EndpointRejected("bad key")
        return "yes"

    with pytest.raises(StorageError, match="No space left"):
        asyncio.run(RecordingModel(ScriptedModel(script), Path("/dev/full")).complete(make_request()))


def test_recording_call_ending_after_close_is_written_to_own_file(tmp_path: Path) -> None:
    model = RecordingModel(SlowModel(), tmp_path / "calls.jsonl")

    async def closed() -> None:
        task = asyncio.create_task(model.complete(make_request()))
        await asyncio.sleep(0.5)
        await model.aclose()
        with (tmp_path / "another").open("wb"):
            await task

    run_in_virtual_time(closed())
    assert [line["reply"]["text"] for line in read_lines(tmp_path / "calls.jsonl")] == ["yes"]
    assert (tmp_path / "another").stat().st_size == 0


def test_recording_model_satisfies_chat_model_contract(tmp_path: Path) -> None:
    asyncio.run(check_chat_model(RecordingModel(ScriptedModel(lambda _: "yes"), tmp_path / "calls.jsonl")))
