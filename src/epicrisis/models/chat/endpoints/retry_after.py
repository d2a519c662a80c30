"""When an endpoint wants to be asked again, in every form in which endpoints say it.

Knows no client, and no clock but where a date is told without the server's own.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterable, Mapping
from email.utils import parsedate_to_datetime

_NUMBER = r"\d{1,400}+(?:\.\d{1,400}+)?"
"""Of more digits than any clock needs it is nonsense."""
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART = re.compile(
    rf"(?<![\d.])({_NUMBER})\s*+(ms|milliseconds?|s|seconds?|secs?|m|minutes?|mins?|h|hours?|d|days?)(?![a-z])", re.I
)
_HINT = re.compile(rf"\b(?:again|retry)\s++(?:in|after)\s++((?:{_NUMBER}\s*+[a-z]++[\s,]*+)++)", re.IGNORECASE)
_RESETS = (
    ("x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"),
    ("x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"),
)


def read_retry_after(headers: Mapping[str, str], said: str = "", *, limited: bool = True) -> float | None:
    """Seconds to wait by a refusal's headers (names in any case where the mapping does not care) and its message.

    The first that can be read of: `retry-after-ms`; `retry-after` (seconds, or a date, which is 0 where it is past);
    "try again in 1.2s" in the message; where the call was `limited`, the reset of the limit that is used up, else the
    earliest that is told. `None` for silence, nonsense and what is below zero. However long it is, it is passed on.
    """
    told = (
        _scaled(headers.get("retry-after-ms", ""), 0.001),
        _scaled(headers.get("retry-after", ""), 1.0),
        _until(headers.get("retry-after", ""), headers.get("date", "")),
        _hint(said),
        # Endpoints tell these with every reply, failures of their own too.
        _reset(headers) if limited else None,
    )
    return next((seconds for seconds in told if seconds is not None), None)


def _scaled(text: str, unit: float) -> float | None:
    return _finite(float(text.strip()) * unit) if re.fullmatch(_NUMBER, text.strip(), re.ASCII) else None


def _until(text: str, now: str) -> float | None:
    """To a date, by the server's own clock where it tells it: ours may differ."""
    try:
        end = parsedate_to_datetime(text).timestamp()
    except (TypeError, ValueError, OverflowError):
        return None
    try:
        begin = parsedate_to_datetime(now).timestamp()
    except (TypeError, ValueError, OverflowError):
        begin = time.time()
    return max(0.0, end - begin)


def _hint(said: str) -> float | None:
    found = _HINT.search(said)
    return _sum(_PART.findall(found[1])) if found else None


def _reset(headers: Mapping[str, str]) -> float | None:
    resets = [(headers.get(left), _duration(headers.get(reset, ""))) for left, reset in _RESETS]
    known = [(left, seconds) for left, seconds in resets if seconds is not None]
    used_up = [seconds for left, seconds in known if left is not None and left.strip() == "0"]
    return max(used_up) if used_up else min((seconds for _, seconds in known), default=None)


def _duration(text: str) -> float | None:
    """`6m0s`, `120ms`, or seconds."""
    if re.fullmatch(rf"(?:{_NUMBER}(?:ms|[smhd]))+", text.strip(), re.ASCII):
        return _sum(_PART.findall(text))
    return _scaled(text, 1.0)


def _sum(parts: Iterable[tuple[str, str]]) -> float | None:
    amounts = [float(number) * _UNITS[_unit(word.lower())] for number, word in parts]
    return _finite(sum(amounts)) if amounts else None


def _unit(word: str) -> str:
    return "ms" if word.startswith(("ms", "milli")) else word[0]


def _finite(seconds: float) -> float | None:
    return seconds if math.isfinite(seconds) else None
