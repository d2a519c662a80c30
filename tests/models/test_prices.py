"""What tokens cost: by the settings, else by the installed list; unknown is unknown and this machine is free."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from epicrisis.core.answers import Usage
from epicrisis.models.chat.prices import build_cost_function, look_up_cost
from epicrisis.settings.settings import ModelSettings, Price
from epicrisis.system.local_only import set_local_only

USAGE = Usage(
    calls=1, prompt_tokens=1_000_000, cached_tokens=400_000, completion_tokens=100_000, reasoning_tokens=50_000
)
OPENAI = "https://api.openai.com/v1"


@pytest.fixture(autouse=True)
def _nothing_is_contacted() -> Iterator[None]:
    set_local_only(True)
    yield
    set_local_only(False)


def compute_call_cost(name: str, price: Price | None = None, usage: Usage = USAGE) -> float | None:
    return build_cost_function(ModelSettings(name=name, price=price))(usage)


@pytest.mark.parametrize(
    "name",
    [
        f"{OPENAI}#gpt-4o-mini",
        "https://mine.openai.azure.com#gpt-4o-mini",
        "bedrock://us-east-1#openai.gpt-oss-20b-1:0",
        "https://openrouter.ai/api/v1#openai/gpt-4o-mini",
    ],
)
def test_cost_known_model_uses_price_list(name: str) -> None:
    usd = compute_call_cost(name)
    assert usd is not None
    assert 0.01 < usd < 10
    assert compute_call_cost(name, usage=Usage(prompt_tokens=1)) != compute_call_cost(
        name, usage=Usage(completion_tokens=1)
    )


def test_cost_cached_tokens_are_cheaper() -> None:
    fresh, cached = (
        look_up_cost(Usage(prompt_tokens=1000, cached_tokens=count), "gpt-4o-mini", OPENAI) for count in (0, 1000)
    )
    assert fresh is not None
    assert cached is not None
    assert 0 < cached < fresh


@pytest.mark.parametrize(
    "name",
    [
        "https://models.example/v1#gpt-4o-mini",
        f"{OPENAI}#no-such-model",
        OPENAI,
        "https://mine.openai.azure.com/openai/deployments/mine?api-version=2024-10-21",
    ],
)
def test_cost_unknown_model_is_none(name: str) -> None:
    assert compute_call_cost(name) is None
    assert compute_call_cost(name, Price(input=1, output=2)) == pytest.approx(1.2)


def test_cost_local_model_is_zero_without_configured_price() -> None:
    for name in ("http://127.0.0.1:8000/v1#gpt-4o-mini", "http://[::1]:8000", "smollm2-135m"):
        assert compute_call_cost(name) == 0.0
        assert compute_call_cost(name, Price(input=1, output=2, cached=0.5)) == pytest.approx(0.6 + 0.2 + 0.2)
