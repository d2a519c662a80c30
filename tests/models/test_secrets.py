"""Keys are planted in every place where one may be, and looked for in whatever comes out, however a call fails."""

from __future__ import annotations

import asyncio
import json
import logging
import traceback
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from epicrisis.core.errors import EpicrisisError, NetworkRefused
from epicrisis.core.protocols import ChatModel, ChatRequest, Message
from epicrisis.models.chat.cache import ReplyCache
from epicrisis.models.chat.endpoints.failures import walk_causes
from epicrisis.models.chat.loading import add_layers, load_chat
from epicrisis.settings.settings import ModelSettings
from epicrisis.system.local_only import set_local_only
from epicrisis.system.logs import open_log
from tests.support.faults import Fault
from tests.support.hostile import HostileServer
from tests.support.loopback import USAGE, Scripted, completion, serving

KEY = "sk-planted-0123456789-abcdefghij"
PROMPT = "Mrs. Almeida of Rua Augusta has a rare disease"
REQUEST = ChatRequest((Message("user", PROMPT),), max_tokens=40)

PLACES = ["variable", "file", "login", "query"]


def make_settings(
    place: str, url: str, folder: Path, monkeypatch: pytest.MonkeyPatch, timeout: float = 10.0
) -> ModelSettings:
    """Return the settings of a model at `url` with the key in `place`."""
    parts = urlsplit(url)
    if place == "variable":
        monkeypatch.setenv("EPICRISIS_API_KEY", f"{KEY}\n")
    if place == "file":
        (folder / "key").write_text(f"{KEY}\n")
        return ModelSettings(name=f"{url}#m", api_key_file=folder / "key", timeout_seconds=timeout)
    login, query = ("me:" + KEY + "@" if place == "login" else ""), (f"?key={KEY}" if place == "query" else "")
    return ModelSettings(name=f"{parts.scheme}://{login}{parts.netloc}{parts.path}{query}#m", timeout_seconds=timeout)


@pytest.fixture
def log_lines() -> Iterator[list[str]]:
    """Return the list of everything logged at the lowest level."""
    lines: list[str] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(f"{record.getMessage()} {record.args} {record.exc_info}")

    root, handler = logging.getLogger(), Kept(level=0)
    level = root.level
    root.addHandler(handler)
    root.setLevel(0)
    yield lines
    root.removeHandler(handler)
    root.setLevel(level)


def format_error(error: BaseException) -> str:
    """Return the texts of an error and of its causes."""
    chain = list(walk_causes(error))
    lines = [part for cause in chain for part in (str(cause), repr(cause), repr(cause.args), repr(vars(cause)))]
    return "\n".join([*lines, *traceback.format_exception(error)])


def call_model(settings: ModelSettings, *, streams: bool) -> EpicrisisError | None:
    """Return the error of a call, or None."""

    async def run() -> EpicrisisError | None:
        model = load_chat(settings, Path("/nonexistent"))
        try:
            await model.complete(REQUEST, (lambda _: None) if streams else None)
        except EpicrisisError as error:
            return error
        finally:
            texts = [repr(settings), str(settings.model_dump(mode="json")), repr(model), model.name]
            assert KEY not in "".join([*texts, await model.fingerprint()])
            await model.aclose()
        return None

    return asyncio.run(run(), debug=True)


def assert_clean(error: EpicrisisError, log_lines: list[str]) -> None:
    """Check that the error and the log contain neither key nor prompt, and the traceback no foreign frames."""
    assert list(walk_causes(error)) == [error]
    text = format_error(error)
    assert KEY not in text
    assert PROMPT not in text
    files = {frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)}
    assert not [file for file in files if "site-packages" in file]
    assert KEY not in "\n".join(log_lines)
    assert PROMPT not in "\n".join(log_lines)


@pytest.mark.parametrize(
    ("place", "fault"),
    [(PLACES[number % 4], fault) for number, fault in enumerate(Fault) if fault.name != "ENDLESS_TEXT"],
)
def test_any_fault_does_not_reveal_key(
    place: str, fault: Fault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log_lines: list[str]
) -> None:
    streams = list(Fault).index(fault) % 8 > 3
    timeout = 0.3 if fault in (Fault.SLOW, Fault.ENDLESS_COMMENTS) else 10.0
    with HostileServer(lambda _: "It does not.", script=[fault], slow=60.0) as server:
        error = call_model(make_settings(place, server.url, tmp_path, monkeypatch, timeout), streams=streams)
    if error is not None:
        assert_clean(error, log_lines)
    assert KEY not in "\n".join(log_lines)


ECHO = f"you sent {KEY} and {PROMPT}"
PAGE = f"<html>{ECHO}</html>"
EVENT = f"data: {json.dumps({'error': {'message': ECHO, 'code': 500}})}\n\n"
ECHOES = [
    *[
        Scripted({"error": {"message": ECHO, "code": KEY, "type": KEY, "param": KEY}}, status)
        for status in range(400, 430)
    ],
    *[Scripted({"error": {"message": ECHO}}, status, headers={"Retry-After": KEY}) for status in (500, 502, 503, 504)],
    Scripted(PAGE, 500, "text/html"),
    Scripted(PAGE, 200, "text/html"),
    Scripted(ECHO, 307, headers={"Location": f"http://{KEY}@127.0.0.1/{KEY}?{KEY}"}),
    Scripted({"detail": [{"loc": ["body", KEY], "msg": ECHO, "input": PROMPT}]}, 422),
    Scripted({"error": ECHO}),
    Scripted({"choices": [{"message": {"content": 5}, KEY: PROMPT}]}),
    Scripted(completion("", "stop")),
    Scripted(f'{{"choices": [{ECHO}'),
    Scripted(EVENT, kind="text/event-stream"),
    Scripted(f"data: {{{ECHO}\n\n", kind="text/event-stream"),
    Scripted("", hangs=True),
]


@pytest.mark.parametrize("script", ECHOES, ids=range(len(ECHOES)))
def test_echoing_server_is_not_quoted(
    script: Scripted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log_lines: list[str]
) -> None:
    with serving() as endpoint:
        endpoint.script["/v1/chat/completions"] = [script]
        settings = make_settings("file", f"{endpoint.url}/v1", tmp_path, monkeypatch, 1.0 if script.hangs else 10.0)
        for streams in (False, True):
            error = call_model(settings, streams=streams)
            assert error is not None
            assert_clean(error, log_lines)
            assert KEY in str(endpoint.asked[-1])


@pytest.mark.parametrize("place", PLACES)
def test_unreachable_and_refused_endpoints_do_not_reveal_key(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log_lines: list[str]
) -> None:
    with serving() as endpoint:
        closed_url = f"{endpoint.url}/v1"
    error = call_model(make_settings(place, closed_url, tmp_path, monkeypatch), streams=False)
    assert error is not None
    assert_clean(error, log_lines)
    set_local_only(True)
    try:
        refused = call_model(make_settings(place, "http://192.0.2.1:9/v1", tmp_path, monkeypatch), streams=True)
    finally:
        set_local_only(False)
    assert isinstance(refused, NetworkRefused)
    assert_clean(refused, log_lines)


@pytest.mark.parametrize("place", PLACES)
def test_cache_recording_and_log_do_not_contain_key(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cache, the recording, the log with its texts: the prompt is in all of them."""
    folder = tmp_path / "kept"

    async def calls(settings: ModelSettings, cache: ReplyCache) -> None:
        model = add_layers(load_chat(settings, tmp_path), settings, cache=cache, record=folder / "calls", log_text=True)
        assert (await model.complete(REQUEST)).usage.calls == 1
        await model.count_tokens(REQUEST.messages)
        await model.capabilities()
        with pytest.raises(EpicrisisError):
            await model.complete(ChatRequest(REQUEST.messages, max_tokens=41))
        await model.aclose()

    with serving() as endpoint:
        query = f"?key={KEY}" if place == "query" else ""
        refusal = Scripted({"error": {"message": ECHO, "code": KEY}}, 400, headers={"Location": KEY})
        endpoint.script[f"/v1/chat/completions{query}"] = [Scripted(completion("Yes.", usage=USAGE)), refusal]
        settings, cache = (
            make_settings(place, f"{endpoint.url}/v1", tmp_path, monkeypatch),
            ReplyCache(folder / "replies"),
        )
        with closing(open_log(folder / "log", with_text=True)):
            asyncio.run(calls(settings, cache))
        assert cache.stats().replies == 1
        assert KEY in str(endpoint.asked) or place == "login"
    contents = {file.name: file.read_bytes() for file in folder.iterdir()}
    cache.close()
    assert {"calls", "replies", "replies-wal", "log"} <= set(contents)
    assert [name for name in ("calls", "log") if PROMPT.encode() not in contents[name]] == []
    assert [name for name, data in contents.items() if KEY.encode() in data] == []


@pytest.mark.parametrize("place", PLACES)
def test_failed_probe_does_not_reveal_key(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log_lines: list[str]
) -> None:
    async def count(model: ChatModel) -> None:
        try:
            await model.count_tokens(REQUEST.messages)
        finally:
            await model.aclose()

    with serving() as endpoint:
        busy = Scripted({"error": {"message": ECHO}}, 500)
        query = f"?key={KEY}" if place == "query" else ""
        endpoint.script |= {f"{path}{query}": [busy] for path in ("/apply-template", "/tokenize", "/props")}
        settings = make_settings(place, f"{endpoint.url}/v1", tmp_path, monkeypatch)
        with pytest.raises(EpicrisisError, match="failed") as caught:
            asyncio.run(count(load_chat(settings, tmp_path)))
        assert_clean(caught.value, log_lines)


@pytest.mark.slow
def test_key_is_sent_in_configured_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving() as endpoint:
        for place, sent in zip(PLACES, ["Bearer", "Bearer", "Basic", "?key="], strict=True):
            monkeypatch.delenv("EPICRISIS_API_KEY", raising=False)
            paths = ["/v1/chat/completions", f"/v1/chat/completions?key={KEY}"]
            endpoint.script |= {path: [Scripted(completion("Yes."))] for path in paths}
            assert call_model(make_settings(place, f"{endpoint.url}/v1", tmp_path, monkeypatch), streams=False) is None
            chat = [(path, headers) for path, _, headers in endpoint.asked if "completions" in path]
            assert sent in chat[-1][0] + chat[-1][1]["authorization"]
