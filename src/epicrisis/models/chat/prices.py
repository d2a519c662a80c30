"""What tokens cost: by the settings, else by the price list that is installed. Contacts nothing.

A price that nobody tells is unknown, never 0; a model on this machine charges nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from epicrisis.answers import Usage
from epicrisis.models.chat.endpoints.endpoint import parse_endpoint
from epicrisis.settings import ModelSettings, Price

MILLION = 1_000_000


def build_cost_function(settings: ModelSettings) -> Callable[[Usage], float | None]:
    """US dollars of a usage of that model; `None` where the price is unknown.

    The settings' price goes first, on this machine too. A model that the address does not name has no known price.
    """
    price = settings.price
    if price is not None:
        return lambda usage: compute_cost(usage, price)
    endpoint = parse_endpoint(settings.name) if settings.is_endpoint else None
    if endpoint is None or endpoint.local:
        return lambda usage: 0.0
    model, address = endpoint.model, endpoint.base_url
    return lambda usage: look_up_cost(usage, model, address) if model else None


def compute_cost(usage: Usage, price: Price) -> float:
    """By the settings; cached tokens cost what others do where they have no price of their own."""
    cached = price.input if price.cached is None else price.cached
    fresh = usage.prompt_tokens - usage.cached_tokens
    return (fresh * price.input + usage.cached_tokens * cached + usage.completion_tokens * price.output) / MILLION


def look_up_cost(usage: Usage, model: str, address: str) -> float | None:
    """By the installed list; `None` where it does not know the endpoint or the model."""
    from genai_prices import Usage as PricedUsage
    from genai_prices import calc_price

    tokens = PricedUsage(
        input_tokens=usage.prompt_tokens,
        cache_read_tokens=usage.cached_tokens,
        output_tokens=usage.completion_tokens,
    )
    try:
        return float(calc_price(tokens, model, provider_api_url=address).total_price)
    except LookupError:
        return None
