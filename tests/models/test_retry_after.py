"""When to come back, in every form there is."""

from __future__ import annotations

import time
from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epicrisis.models.chat.endpoints.failures import ErrorResponse, map_error_response, read_retry_after

PAST = "Wed, 21 Oct 2015 07:28:00 GMT"
LATER = "Wed, 21 Oct 2015 07:29:30 GMT"


@pytest.mark.parametrize(
    ("headers", "message", "seconds"),
    [
        ({"retry-after-ms": "250"}, "", 0.25),
        ({"retry-after-ms": "250", "retry-after": "9"}, "try again in 5s", 0.25),
        ({"retry-after": "3"}, "", 3.0),
        ({"retry-after": " 0.5 "}, "", 0.5),
        ({"retry-after": "0"}, "", 0.0),
        ({"retry-after": PAST}, "", 0.0),
        ({"retry-after": LATER, "date": PAST}, "", 90.0),
        ({"retry-after": PAST, "date": LATER}, "", 0.0),
        ({"retry-after": "9" * 30}, "", 1e30),
        ({}, "Rate limit reached. Please try again in 1.2s. Visit our page 4 times.", 1.2),
        ({}, "Please try again in 20ms.", 0.02),
        ({}, "Please retry after 7 seconds.", 7.0),
        ({}, "Please retry in 36.2s.", 36.2),
        ({}, "try again in 6m0s", 360.0),
        ({}, "Try again in 1 h 2 min 3 s, please", 3723.0),
        ({"retry-after": "soon"}, "try again in 3s", 3.0),
        ({"x-ratelimit-reset-requests": "1s", "x-ratelimit-reset-tokens": "6m0s"}, "", 1.0),
        (
            {
                "x-ratelimit-reset-requests": "1s",
                "x-ratelimit-remaining-requests": "41",
                "x-ratelimit-reset-tokens": "6m0s",
                "x-ratelimit-remaining-tokens": "0",
            },
            "",
            360.0,
        ),
        ({"x-ratelimit-reset-requests": "120ms"}, "", 0.12),
        ({"x-ratelimit-reset-tokens": "12"}, "", 12.0),
    ],
)
def test_read_retry_after_supported_forms_return_seconds(headers: dict[str, str], message: str, seconds: float) -> None:
    assert read_retry_after(headers, message) == pytest.approx(seconds)


@pytest.mark.parametrize("value", ["", "-1", "soon", "nan", "inf", "1e3", "0x10", "1,5", "9" * 400, "Wed, 99 Oct"])
def test_read_retry_after_invalid_header_returns_none(value: str) -> None:
    assert read_retry_after({"retry-after": value, "retry-after-ms": value, "x-ratelimit-reset-tokens": value}) is None


def test_read_retry_after_unreached_limit_is_ignored() -> None:
    """OpenAI tells when they reset with every reply, and a failure of its own is no limit."""
    limits = {"x-ratelimit-reset-requests": "60s", "x-ratelimit-remaining-requests": "9999"}
    assert read_retry_after(limits) == 60
    assert read_retry_after(limits, limited=False) is None
    assert read_retry_after(limits | {"retry-after": "3"}, limited=False) == 3
    assert map_error_response(ErrorResponse(429, {}, "", limits), "host", []).retry_after == 60
    assert map_error_response(ErrorResponse(500, {}, "", limits), "host", []).retry_after is None


@pytest.mark.parametrize(
    "message", ["try again", "try again in a while", "retry in -3s", "in 3s", "again in 5 parsecs"]
)
def test_read_retry_after_message_without_time_returns_none(message: str) -> None:
    assert read_retry_after({}, message) is None


def test_read_retry_after_date_without_server_date_counts_from_now() -> None:
    seconds = read_retry_after({"retry-after": formatdate(4_000_000_000, usegmt=True)})
    assert seconds is not None
    assert seconds > 1_000_000_000


@given(st.integers(0, 99), st.integers(0, 59), st.integers(0, 59), st.integers(0, 999))
def test_read_retry_after_duration_parts_are_summed(hours: int, minutes: int, seconds: int, milliseconds: int) -> None:
    text = f"{hours}h{minutes}m{seconds}s{milliseconds}ms"
    expected = 3600 * hours + 60 * minutes + seconds + milliseconds / 1000
    assert read_retry_after({"x-ratelimit-reset-tokens": text}) == pytest.approx(expected)
    assert read_retry_after({}, f"Please try again in {text}.") == pytest.approx(expected)


@pytest.mark.slow
@given(st.text(), st.text())
def test_read_retry_after_any_text_returns_seconds_or_none(header: str, message: str) -> None:
    seconds = read_retry_after({"retry-after": header, "x-ratelimit-reset-requests": header}, message)
    assert seconds is None or seconds >= 0


@pytest.mark.parametrize(
    "message", ["9" * 60_000, "try again in " + "9" * 60_000, "try again in 1" + " " * 60_000 + "s"]
)
def test_read_retry_after_long_message_takes_linear_time(message: str) -> None:
    start = time.thread_time()
    read_retry_after({"retry-after": message, "x-ratelimit-reset-tokens": message}, message)
    assert time.thread_time() - start < 1
