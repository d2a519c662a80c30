"""What calls cost: told, counted, estimated, or unknown; never nothing because nobody said."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epicrisis.core.answers import Usage
from epicrisis.core.errors import EpicrisisError
from epicrisis.core.protocols import ChatReply, ChatRequest, Message
from epicrisis.models.chat.endpoints.endpoint import parse_endpoint
from epicrisis.models.chat.endpoints.probing import read_reported_usage
from epicrisis.models.chat.openai_compatible import OpenAICompatibleModel
from epicrisis.models.chat.prices import compute_cost
from epicrisis.settings.settings import Price
from tests.support.faults import Fault
from tests.support.hostile import HostileServer
from tests.support.loopback import USAGE, Endpoint, Scripted, completion, sse

REQUEST = ChatRequest((Message("user", "Does the blind worm see?"),), max_tokens=40)
TEXT = "It does not see a thing."
TOKENS = (5, 6)
PRICE = Price(input=1_000_000.0, output=10_000_000.0, cached=100_000.0)


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bypass proxies, since remote endpoints are simulated on this machine."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


async def complete_once(url: str, *, local: bool, price: Price | None, streams: bool, timeout: float) -> ChatReply:
    address = replace(parse_endpoint(url), local=local)
    cost = None if price is None else partial(compute_cost, price=price)
    model = OpenAICompatibleModel(address, "m", timeout_seconds=timeout, price=cost)
    try:
        return await model.complete(REQUEST, (lambda _: None) if streams else None)
    finally:
        await model.aclose()


def measure_usage(
    url: str, *, local: bool = True, price: Price | None = None, streams: bool = False, timeout: float = 5.0
) -> Usage:
    return asyncio.run(complete_once(url, local=local, price=price, streams=streams, timeout=timeout)).usage


def write_text(_: object) -> str:
    return TEXT


FALSE_USAGES = [
    Fault.USAGE_MISSING,
    Fault.USAGE_NULL,
    Fault.USAGE_ZERO,
    Fault.USAGE_NEGATIVE,
    Fault.USAGE_WORDS,
    Fault.USAGE_CACHED,
]


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("fault", [None, *FALSE_USAGES])
def test_usage_missing_or_false_is_counted_by_endpoint_tokenizer(fault: Fault | None, streams: bool) -> None:
    with HostileServer(write_text, script=[fault]) as server:
        usage = measure_usage(server.url, local=False, price=PRICE, streams=streams)
        ledger = server.ledger
    assert (usage.prompt_tokens, usage.completion_tokens) == TOKENS == (ledger.prompt_tokens, ledger.completion_tokens)
    assert (usage.calls, usage.failed_calls, usage.uncounted_calls, usage.cached_tokens) == (1, 0, 0, 0)
    assert usage.cost == pytest.approx(5 + 60)


@pytest.mark.parametrize(
    "usage",
    [
        None,
        {},
        [5, 6],
        "5",
        USAGE | {"prompt_tokens": True},
        USAGE | {"prompt_tokens": "50"},
        USAGE | {"prompt_tokens": 5.5},
        USAGE | {"prompt_tokens": 0},
        USAGE | {"prompt_tokens": 10**12},
        USAGE | {"completion_tokens": 0},
        USAGE | {"completion_tokens": 10**12},
        USAGE | {"total_tokens": 10**12},
        USAGE | {"prompt_tokens_details": {"cached_tokens": 51}},
        USAGE | {"prompt_tokens_details": {"cached_tokens": -1}},
        USAGE | {"completion_tokens_details": {"reasoning_tokens": 5}},
    ],
)
def test_usage_without_tokenizer_is_estimated_with_unknown_cost(endpoint: Endpoint, usage: Any) -> None:
    endpoint.script["/v1/chat/completions"] = [Scripted(completion(TEXT, usage=usage))]
    estimated = measure_usage(endpoint.url, local=False, price=PRICE)
    assert estimated.prompt_tokens == -(-len(REQUEST.messages[0].content) // 3) + 8
    assert estimated.completion_tokens == len(TEXT) // 3
    assert (estimated.uncounted_calls, estimated.cost) == (1, None)
    assert measure_usage(endpoint.url).cost == 0.0


@pytest.mark.slow
def test_usage_cached_tokens_have_own_price(endpoint: Endpoint) -> None:
    endpoint.script["/v1/chat/completions"] = [Scripted(completion(TEXT, usage=USAGE))]
    assert measure_usage(endpoint.url, local=False, price=PRICE).cost == pytest.approx(30 + 2 + 40)
    assert measure_usage(endpoint.url, price=PRICE).cost == pytest.approx(72)
    assert measure_usage(endpoint.url).cost == 0.0
    assert measure_usage(endpoint.url, local=False).cost is None


ABSTRACT = (
    "Women at high risk of preterm pre-eclampsia received aspirin 150 mg or placebo from 11 to 14 weeks. Preterm "
    "pre-eclampsia occurred in 1.6 % of the aspirin group and 4.3 % of the placebo group (odds ratio 0.38; 95 % CI, "
    "0.20 to 0.74; P=0.004). There were no significant between-group differences in neonatal adverse outcomes.\n"
)
"""97 tokens in the vocabulary of GPT-4o, 100 in that of Llama 3, 110 in that of Qwen 2.5."""


@pytest.mark.parametrize(
    ("text", "times", "tokens", "is_noted"),
    [
        (ABSTRACT, 40, 97 * 40, False),
        (ABSTRACT, 40, 78 * 40, True),
        (ABSTRACT, 80, 4096, True),
        (ABSTRACT, 4, 100, False),
        ("二甲双胍降低了糖尿病患者的糖化血红蛋白。", 200, 13 * 200, False),
        ("二甲双胍降低了糖尿病患者的糖化血红蛋白。", 200, 2048, True),
        ("37.8\t120\t0.013\n", 300, 10 * 300, False),
        ("worms " * 100, 1, 40, False),
        ("x" * 6000, 1, 50, True),
    ],
)
def test_prompt_read_in_part_is_noted(endpoint: Endpoint, text: str, times: int, tokens: int, is_noted: bool) -> None:
    usage = USAGE | {"prompt_tokens": tokens}
    endpoint.script["/v1/chat/completions"] = [Scripted(completion(TEXT, usage=usage))]
    notes = complete_long(endpoint, text * times).notes
    assert [f"read {tokens:,} tokens" in note for note in notes] == [True] * is_noted


def complete_long(endpoint: Endpoint, prompt: str) -> ChatReply:
    async def run() -> ChatReply:
        model = OpenAICompatibleModel(endpoint.url, "m", timeout_seconds=5)
        await model.capabilities()
        reply = await model.complete(replace(REQUEST, messages=(Message("user", prompt),)))
        await model.aclose()
        return reply

    return asyncio.run(run())


def test_window_of_ollama_is_asked_again_when_the_model_is_loaded(endpoint: Endpoint) -> None:
    """Ollama's list of loaded models is empty before the first reply."""
    loaded = {"models": [{"name": "m:latest", "model": "m:latest", "context_length": 4096}]}
    endpoint.script["/api/ps"] = [Scripted({"models": []}), Scripted(loaded)]
    usage = USAGE | {"prompt_tokens": 4096}
    endpoint.script["/v1/chat/completions"] = [Scripted(completion(TEXT, usage=usage))]
    (note,) = complete_long(endpoint, ABSTRACT * 80).notes
    assert "its window of 4,096 tokens cut it" in note
    assert [path for path, _, _ in endpoint.asked].count("/api/ps") == 2


@pytest.mark.parametrize(
    ("loaded", "window"),
    [
        ({"models": [{"name": "other:latest", "context_length": 8192}, {"name": "m", "context_length": 4096}]}, 4096),
        ({"models": [{"model": "m:latest", "context_length": 4096}]}, 4096),
        ({"models": [{"name": "m"}]}, None),
        ({"models": [{"name": "other", "context_length": 8192}]}, None),
        ({"other": 1}, None),
    ],
)
def test_window_of_ollama_is_that_of_the_loaded_model(endpoint: Endpoint, loaded: object, window: int | None) -> None:
    endpoint.script["/api/ps"] = [Scripted(loaded)]

    async def run() -> int | None:
        model = OpenAICompatibleModel(endpoint.url, "m", timeout_seconds=5)
        capabilities = await model.capabilities()
        await model.aclose()
        return capabilities.context_tokens

    assert asyncio.run(run()) == window


def test_usage_tokenizer_failure_keeps_reply(endpoint: Endpoint) -> None:
    endpoint.script["/tokenize"] = [Scripted({"count": 1}), Scripted("", 500)]
    endpoint.script["/v1/chat/completions"] = [Scripted(completion(TEXT))]
    usage = measure_usage(endpoint.url)
    assert (usage.uncounted_calls, usage.completion_tokens) == (1, 8)


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize(
    ("fault", "has_cost"),
    [
        *[(fault, True) for fault in (Fault.BUSY_SILENT, Fault.SERVER_ERROR, Fault.UNAVAILABLE, Fault.OVERFLOW_VLLM)],
        *[(fault, True) for fault in (Fault.FILTERED_PROMPT, Fault.EMPTY_TEXT, Fault.FILTERED_REPLY)],
        *[(fault, True) for fault in (Fault.NULL_TEXT, Fault.EMPTY_CHOICES)],
        *[(fault, False) for fault in (Fault.SLOW, Fault.RESET_AT_ONCE, Fault.RESET_MIDWAY, Fault.CUT)],
        *[(fault, False) for fault in (Fault.MALFORMED_JSON, Fault.TRUNCATED_JSON, Fault.HTML, Fault.ERROR_WITHIN)],
    ],
)
def test_usage_failure_that_may_be_charged_has_unknown_cost(fault: Fault, has_cost: bool, streams: bool) -> None:
    with HostileServer(write_text, script=[fault], slow=9.0) as server:
        timeout = 0.3 if fault is Fault.SLOW else 5.0
        with pytest.raises(EpicrisisError) as caught:
            measure_usage(server.url, local=False, price=PRICE, streams=streams, timeout=timeout)
        ledger = server.ledger
    usage = caught.value.usage
    assert (usage.calls, usage.failed_calls, usage.uncounted_calls) == (1, 1, int(not has_cost))
    assert (usage.cost is not None) == has_cost
    assert (usage.prompt_tokens, usage.completion_tokens) == (ledger.told_prompt_tokens, ledger.told_completion_tokens)
    assert usage.seconds > 0


def test_usage_local_failure_is_free() -> None:
    with HostileServer(write_text, script=[Fault.RESET_AT_ONCE]) as server, pytest.raises(EpicrisisError) as caught:
        measure_usage(server.url)
    assert (caught.value.usage.cost, caught.value.usage.uncounted_calls) == (0.0, 1)


def test_usage_unreachable_endpoint_is_free() -> None:
    with HostileServer(write_text) as server:
        url = server.url
    with pytest.raises(EpicrisisError, match="nothing answers") as caught:
        measure_usage(url, local=False)
    assert (caught.value.usage.cost, caught.value.usage.uncounted_calls, caught.value.usage.failed_calls) == (0.0, 0, 1)


def test_usage_stream_without_usage_is_estimated(endpoint: Endpoint) -> None:
    endpoint.script["/v1/chat/completions"] = [Scripted(sse("Ye", "s."), kind="text/event-stream")]
    usage = measure_usage(endpoint.url, local=False, streams=True)
    assert (usage.completion_tokens, usage.uncounted_calls, usage.cost) == (2, 1, None)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
NAMES = ["prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details", "completion_tokens_details"]


@pytest.mark.slow
@given(st.dictionaries(st.sampled_from(NAMES), json_values | st.integers(-5, 500)), st.booleans())
def test_read_reported_usage_any_json_is_plausible_or_none(raw: dict[str, Any], has_text: bool) -> None:
    usage = read_reported_usage(json.loads(json.dumps(raw)), REQUEST, has_text)
    if usage is not None:
        assert 0 <= usage.cached <= usage.prompt < 20_000
        assert usage.prompt > 0
        assert 0 <= (usage.reasoning or 0) <= usage.completion < 2000
        assert usage.completion > 0 or not has_text
