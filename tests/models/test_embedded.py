"""The embedded model, for real: SmolLM2-135M in this process."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from epicrisis.errors import ContextOverflow, ModelFileInvalid
from epicrisis.models.chat.embedded import EmbeddedModel
from epicrisis.seams import ChatReply, ChatRequest, Message
from epicrisis.testing.chat import check_chat_model

T = TypeVar("T")

pytestmark = pytest.mark.models

MESSAGES = (Message("system", "You answer in JSON."), Message("user", "Is aspirin an antiplatelet drug?"))


def use(home: Path, work: Callable[[EmbeddedModel], Awaitable[T]], context_tokens: int = 1024) -> T:
    async def run() -> T:
        model = EmbeddedModel(home / "models" / "smollm2-135m" / "model.gguf", "smollm2-135m", context_tokens)
        try:
            return await work(model)
        finally:
            await model.aclose()

    return asyncio.run(run())


def test_it_keeps_the_contract_and_prints_nothing(model_home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    use(model_home, check_chat_model)
    assert capfd.readouterr() == ("", "")


def test_it_counts_the_very_tokens_of_a_prompt_and_streams_what_it_says(model_home: Path) -> None:
    async def work(model: EmbeddedModel) -> None:
        pieces: list[str | None] = []
        reply = await model.complete(ChatRequest(MESSAGES, 12), pieces.append)
        assert reply.usage.prompt_tokens == await model.count_tokens(MESSAGES) > 10
        assert "".join(filter(None, pieces)) == reply.text
        assert (reply.model, reply.usage.cost, reply.finish_reason) == ("smollm2-135m", 0.0, "length")
        assert reply.usage.completion_tokens == 12
        told = await model.capabilities()
        assert (told.context_tokens, told.json_schema, told.exact_token_counts) == (1024, True, True)

    use(model_home, work)


def test_the_window_is_never_wider_than_the_one_trained(model_home: Path) -> None:
    async def window(model: EmbeddedModel) -> int | None:
        return (await model.capabilities()).context_tokens

    assert use(model_home, window, 100_000) == 8192


def test_a_prompt_over_the_window_is_refused_with_the_counts(model_home: Path) -> None:
    async def work(model: EmbeddedModel) -> ChatReply:
        return await model.complete(ChatRequest((Message("user", "word " * 2000),), 5))

    with pytest.raises(ContextOverflow, match=r"smollm2-135m \(20\d\d tokens, the window holds 1024\)"):
        use(model_home, work)


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


def test_it_is_held_to_json_schemas(model_home: Path) -> None:
    async def work(model: EmbeddedModel) -> dict[str, Any]:
        replies = {}
        for name, (schema, _) in SCHEMAS.items():
            reply = await model.complete(ChatRequest(MESSAGES, 150, schema=schema))
            assert reply.finish_reason == "stop", f"{name}: {reply.text}"
            replies[name] = json.loads(reply.text)
        return replies

    for name, value in use(model_home, work).items():
        assert SCHEMAS[name][1](value["x"]), f"{name}: {value}"


def test_only_the_holder_of_the_key_may_talk_to_it(model_home: Path) -> None:
    async def work(model: EmbeddedModel) -> None:
        await model.capabilities()
        address = model._address
        assert address.startswith("http://127.0.0.1:")
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(f"{address}/props")

    use(model_home, work)


def test_closed_it_frees_its_port_and_starts_anew_when_asked(model_home: Path) -> None:
    async def work(model: EmbeddedModel) -> None:
        await model.capabilities()
        address = model._address
        await model.aclose()
        await model.aclose()
        with pytest.raises(urllib.error.URLError):
            urllib.request.urlopen(f"{address}/health")
        assert (await model.complete(ChatRequest(MESSAGES, 3))).text

    use(model_home, work)


def test_calls_side_by_side_all_come_back(model_home: Path) -> None:
    async def work(model: EmbeddedModel) -> list[ChatReply]:
        requests = [ChatRequest((Message("user", f"Count from {number}"),), 5) for number in range(4)]
        return await asyncio.gather(*(model.complete(request) for request in requests))

    assert all(reply.text for reply in use(model_home, work))


def test_a_damaged_file_is_one_clear_line(model_home: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    whole = model_home / "models" / "smollm2-135m" / "model.gguf"
    cut = tmp_path / "cut.gguf"
    with whole.open("rb") as stream:
        cut.write_bytes(stream.read(3_000_000))
    with pytest.raises(ModelFileInvalid, match="damaged") as caught:
        asyncio.run(EmbeddedModel(cut, "cut").complete(ChatRequest(MESSAGES, 3)))
    assert "\n" not in caught.value.message
    assert capfd.readouterr() == ("", "")
