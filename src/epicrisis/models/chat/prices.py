"""What calls cost in US dollars, by the settings or the installed list of prices."""

from __future__ import annotations

from collections.abc import Callable

from epicrisis.core.answers import Usage
from epicrisis.models.chat.endpoints.endpoint import parse_endpoint
from epicrisis.settings.settings import ModelSettings, Price

MILLION = 1_000_000


def build_cost_function(settings: ModelSettings) -> Callable[[Usage], float | None]:
    """Return a function from a usage of that model to US dollars, or to None if the price is unknown.

    A price in the settings comes first, on this machine too, which else costs nothing.
    """
    price = settings.price
    if price is not None:
        return lambda usage: compute_cost(usage, price)
    endpoints = [parse_endpoint(member.name) for member in settings.endpoints] if settings.is_endpoint else []
    endpoint = next((endpoint for endpoint in endpoints if not endpoint.local), None)
    if endpoint is None:
        return lambda usage: 0.0
    model, address = endpoint.model, endpoint.base_url
    return lambda usage: look_up_cost(usage, model, address) if model else None


def compute_cost(usage: Usage, price: Price) -> float:
    """Return the US dollars of a usage. Cached tokens without a price of their own cost what other prompt tokens do."""
    cached = price.input if price.cached is None else price.cached
    fresh = usage.prompt_tokens - usage.cached_tokens
    return (fresh * price.input + usage.cached_tokens * cached + usage.completion_tokens * price.output) / MILLION


def look_up_cost(usage: Usage, model: str, address: str) -> float | None:
    """Return the US dollars of a usage by the installed price list, or None if it lacks the endpoint or the model."""
    from genai_prices import Usage as PricedUsage
    from genai_prices import calc_price

    tokens = PricedUsage(
        input_tokens=usage.prompt_tokens, cache_read_tokens=usage.cached_tokens, output_tokens=usage.completion_tokens
    )
    try:
        return float(calc_price(tokens, model, provider_api_url=address).total_price)
    except LookupError:
        return None
