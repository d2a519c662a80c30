"""The embedded model, for real: SmolLM2-135M in this process."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

from epicrisis.core.answers import Usage
from epicrisis.core.errors import ContextOverflow, ModelFileInvalid
from epicrisis.core.protocols import ChatReply, ChatRequest, DeltaCallback, Message
from epicrisis.models.chat import embedded
from epicrisis.models.chat.embedded import BATCH_TOKENS, EmbeddedModel
from epicrisis.testing.chat import check_chat_model

T = TypeVar("T")

pytestmark = pytest.mark.models

MESSAGES = (Message("system", "You answer in JSON."), Message("user", "Is aspirin an antiplatelet drug?"))


def weights_path(home: Path) -> Path:
    return home / "models" / "smollm2-135m" / "model.gguf"


def run_with_model(
    home: Path,
    work: Callable[[EmbeddedModel], Awaitable[T]],
    context_tokens: int = 1024,
    *,
    prefix_cache: bool = True,
) -> T:
    async def run() -> T:
        # One thread waits for no other, which is fastest where other work runs.
        model = EmbeddedModel(weights_path(home), "smollm2-135m", context_tokens, 1, prefix_cache=prefix_cache)
        try:
            return await work(model)
        finally:
            await model.aclose()

    return asyncio.run(run())


@pytest.mark.long
def test_embedded_model_satisfies_contract_and_prints_nothing(
    model_home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run_with_model(model_home, check_chat_model)
    assert capfd.readouterr() == ("", "")


@pytest.mark.long
def test_embedded_model_counts_prompt_tokens_and_streams_reply(model_home: Path) -> None:
    async def work(model: EmbeddedModel) -> None:
        pieces: list[str | None] = []
        reply = await model.complete(ChatRequest(MESSAGES, max_tokens=12), pieces.append)
        assert reply.usage.prompt_tokens == await model.count_tokens(MESSAGES) > 10
        assert "".join(filter(None, pieces)) == reply.text
        assert (reply.model, reply.usage.cost, reply.finish_reason) == ("smollm2-135m", 0.0, "length")
        assert reply.usage.completion_tokens == 12
        capabilities = await model.capabilities()
        assert (capabilities.context_tokens, capabilities.json_schema, capabilities.exact_token_counts) == (
            1024,
            True,
            True,
        )

    run_with_model(model_home, work)


@pytest.mark.slow
def test_embedded_model_context_is_limited_to_trained_window(model_home: Path) -> None:
    async def window(model: EmbeddedModel) -> int | None:
        return (await model.capabilities()).context_tokens

    assert run_with_model(model_home, window, 100_000) == 8192


@pytest.mark.slow
def test_embedded_model_oversized_prompt_raises_context_overflow(model_home: Path) -> None:
    async def work(model: EmbeddedModel) -> ChatReply:
        return await model.complete(ChatRequest((Message("user", "word " * 2000),), max_tokens=5))

    with pytest.raises(ContextOverflow, match=r"smollm2-135m \(20\d\d tokens, the window holds 1024\)"):
        run_with_model(model_home, work)


def obj(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


QUOTATION = obj(document={"type": "integer"}, text={"type": "string", "maxLength": 20})
SCHEMAS: dict[str, tuple[dict[str, Any], Callable[[Any], bool]]] = {
    "maxLength": (obj(x={"type": "string", "maxLength": 5}), lambda x: len(x) <= 5),
    "enum": (obj(x={"enum": ["A", "B"]}), lambda x: x in ("A", "B")),
    "const": (obj(x={"const": "report"}), lambda x: x == "report"),
    "anyOf null": (obj(x={"anyOf": [{"enum": ["A"]}, {"type": "null"}]}), lambda x: x in ("A", None)),
    "bounds": (obj(x={"type": "integer", "minimum": 3, "maximum": 5}), lambda x: 3 <= x <= 5),
    "$ref and items": (
        obj(x={"type": "array", "items": {"$ref": "#/$defs/Q"}, "minItems": 2, "maxItems": 2})
        | {"$defs": {"Q": QUOTATION}},
        lambda x: [set(item) for item in x] == [{"document", "text"}] * 2,
    ),
}


@pytest.mark.long
def test_embedded_model_reply_conforms_to_json_schema(model_home: Path) -> None:
    async def work(model: EmbeddedModel) -> dict[str, Any]:
        replies = {}
        for name, (schema, _) in SCHEMAS.items():
            reply = await model.complete(ChatRequest(MESSAGES, max_tokens=150, schema=schema))
            assert reply.finish_reason == "stop", f"{name}: {reply.text}"
            replies[name] = json.loads(reply.text)
        return replies

    for name, value in run_with_model(model_home, work).items():
        assert SCHEMAS[name][1](value["x"]), f"{name}: {value}"


@pytest.mark.slow
def test_embedded_server_without_key_returns_401(model_home: Path) -> None:
    async def work(model: EmbeddedModel) -> None:
        await model.capabilities()
        address = model._address
        assert address.startswith("http://127.0.0.1:")
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(f"{address}/props")

    run_with_model(model_home, work)


@pytest.mark.long
def test_embedded_model_after_aclose_frees_port_and_restarts(model_home: Path) -> None:
    async def work(model: EmbeddedModel) -> None:
        await model.capabilities()
        address = model._address
        await model.aclose()
        await model.aclose()
        with pytest.raises(urllib.error.URLError):
            urllib.request.urlopen(f"{address}/health")
        assert (await model.complete(ChatRequest(MESSAGES, max_tokens=3))).text

    run_with_model(model_home, work)


@pytest.mark.long
def test_embedded_model_concurrent_calls_all_return(model_home: Path) -> None:
    async def work(model: EmbeddedModel) -> list[ChatReply]:
        requests = [ChatRequest((Message("user", f"Count from {number}"),), max_tokens=5) for number in range(4)]
        return await asyncio.gather(*(model.complete(request) for request in requests))

    assert all(reply.text for reply in run_with_model(model_home, work))


def test_embedded_model_damaged_file_raises_one_line(
    model_home: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    whole = weights_path(model_home)
    cut = tmp_path / "cut.gguf"
    with whole.open("rb") as stream:
        cut.write_bytes(stream.read(3_000_000))
    with pytest.raises(ModelFileInvalid, match="damaged") as caught:
        asyncio.run(EmbeddedModel(cut, "cut").complete(ChatRequest(MESSAGES, max_tokens=3)))
    assert "\n" not in caught.value.message
    assert capfd.readouterr() == ("", "")


# -- what was read before -------------------------------------------------------------------------------------------

INSTRUCTION = Message("system", "You read one document and say what it tells about the question. " * 6)


def make_request(document: str) -> ChatRequest:
    return ChatRequest((INSTRUCTION, Message("user", f"The {document} was given to some. " * 5)), max_tokens=2)


async def ask_about(model: EmbeddedModel, *documents: str) -> list[Usage]:
    return [(await model.complete(make_request(document))).usage for document in documents]


@pytest.mark.long
def test_prefix_cache_repeated_prompt_computes_one_token(model_home: Path) -> None:
    first, *others, again, at_once = run_with_model(
        model_home, lambda model: ask_about(model, "aspirin", "digoxin", "zinc", *["aspirin"] * 2)
    )
    assert first.cached_tokens == 0
    shared = min(usage.cached_tokens for usage in others)
    assert 60 < shared < first.prompt_tokens - 20
    assert [usage.prompt_tokens - usage.cached_tokens for usage in (again, at_once)] == [1, 1]


@pytest.mark.long
def test_prefix_cache_disabled_computes_every_prompt(model_home: Path) -> None:
    usages = run_with_model(
        model_home, lambda model: ask_about(model, "aspirin", "aspirin", "zinc"), prefix_cache=False
    )
    assert [usage.cached_tokens for usage in usages] == [0, 0, 0]


# -- calls that are given up ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Work:
    """What the server says it has done: batches of prompts and tokens of replies, and the calls it is at work on."""

    steps: int
    calls: int


async def read_work(model: EmbeddedModel) -> Work:
    assert model._client is not None
    bearer = {"Authorization": f"Bearer {model._client._api_key()}"}
    request = urllib.request.Request(f"{model._address}/metrics", headers=bearer)
    text = await asyncio.to_thread(lambda: urllib.request.urlopen(request).read().decode())
    metrics = dict(re.findall(r"^llamacpp:(\w+) (\d+)$", text, re.MULTILINE))
    return Work(int(metrics["n_decode_total"]), int(metrics["requests_processing"]))


async def wait_for_work(model: EmbeddedModel, holds: Callable[[Work], bool]) -> Work:
    async with asyncio.timeout(300):
        while not holds(work := await read_work(model)):
            await asyncio.sleep(0.01)
        return work


LONG_REPLY = ChatRequest((Message("user", "Count up for ever."),), max_tokens=1500, extra={"ignore_eos": True})
LONG_PROMPT = ChatRequest((Message("user", "word " * 4000),), max_tokens=1)


@pytest.mark.long
@pytest.mark.parametrize(
    ("request_", "on_delta", "steps"),
    [(LONG_REPLY, None, 1500), (LONG_REPLY, lambda _: None, 1500), (LONG_PROMPT, None, 4000 // BATCH_TOKENS)],
    ids=["reply", "streamed reply", "prompt"],
)
def test_embedded_model_cancelled_call_ends_at_server(
    model_home: Path, request_: ChatRequest, on_delta: DeltaCallback | None, steps: int
) -> None:
    async def work(model: EmbeddedModel) -> tuple[int, ChatReply]:
        await model.capabilities()
        call = asyncio.create_task(model.complete(request_, on_delta))
        await wait_for_work(model, lambda work: work.steps > 0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        ended = await wait_for_work(model, lambda work: work.calls == 0)
        return ended.steps, await model.complete(ChatRequest(MESSAGES, max_tokens=3))

    done, next_reply = run_with_model(model_home, work, 8192)
    assert 0 < done < steps / 2
    assert next_reply.text


# -- start and stop -------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_embedded_model_aclose_during_start_stops_server_and_allows_restart(model_home: Path) -> None:
    async def work(model: EmbeddedModel) -> None:
        call = asyncio.create_task(model.complete(ChatRequest(MESSAGES, max_tokens=3)))
        while not model._starting.locked():
            await asyncio.sleep(0)
        await model.aclose()
        [ended] = await asyncio.gather(call, return_exceptions=True)
        assert isinstance(ended, Exception)
        with pytest.raises(urllib.error.URLError):
            urllib.request.urlopen(f"{model._address}/health")
        assert (await model.complete(ChatRequest(MESSAGES, max_tokens=3))).text

    run_with_model(model_home, work)


CHILD = """
import asyncio, signal, sys
from pathlib import Path
from epicrisis.models.chat.embedded import EmbeddedModel
from epicrisis.core.protocols import ChatRequest, Message

# A shell starts what runs in its background with Ctrl-C switched off.
signal.signal(signal.SIGINT, signal.default_int_handler)
path, what = Path(sys.argv[1]), sys.argv[2]
model = EmbeddedModel(path, "m", 2048, 1)

async def idle():
    # Stopped at once, a server may not yet have begun.
    for _ in range(3):
        early = EmbeddedModel(path, "m", 512, 1)
        early._start()
        early._stop()
    await model.complete(ChatRequest((Message("user", "Hello"),), max_tokens=2))

async def busy():
    begun = asyncio.Event()
    request = ChatRequest((Message("user", "Count up for ever."),), max_tokens=1500, extra={"ignore_eos": True})
    call = asyncio.create_task(model.complete(request, lambda _: begun.set()))
    await begun.wait()
    print("at work", flush=True)
    if what == "busy":
        await call

asyncio.run(idle() if what == "idle" else busy())
"""


@pytest.mark.long
@pytest.mark.parametrize("what", ["idle", "left in a call"])
def test_embedded_model_unclosed_process_exits_cleanly(model_home: Path, what: str) -> None:
    command = [sys.executable, "-c", CHILD, str(weights_path(model_home)), what]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.long
@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C is no signal to one process there")
def test_embedded_model_interrupt_during_call_ends_process(model_home: Path) -> None:
    command = [sys.executable, "-c", CHILD, str(weights_path(model_home)), "busy"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "at work\n"
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=300)
    assert process.returncode == -signal.SIGINT
    assert stderr.startswith("Traceback")
    assert stderr.endswith("\nKeyboardInterrupt\n")


@pytest.mark.parametrize(
    ("cores", "idle", "threads", "writing", "reading"),
    [
        (8, 8, None, 7, 8),
        (8, 3, None, 3, 3),
        (2, 2, None, 1, 2),
        (2, 1, None, 1, 1),
        (1, 1, None, 1, 1),
        (8, 8, 3, 3, 3),
    ],
)
def test_embedded_params_use_idle_cores_and_leave_one_free_for_generation(
    monkeypatch: pytest.MonkeyPatch, cores: int, idle: int, threads: int | None, writing: int, reading: int
) -> None:
    monkeypatch.setattr(embedded, "count_usable_cores", lambda: cores)
    monkeypatch.setattr(embedded, "count_idle_cores", lambda: idle)
    params = embedded._build_params(Path("m.gguf"), "m", "key", 4096, threads, 2**30)
    assert (params.cpuparams.n_threads, params.cpuparams_batch.n_threads) == (writing, reading)
    assert (params.n_ctx, params.n_parallel, params.cache_ram_mib) == (4096, 1, 1024)
