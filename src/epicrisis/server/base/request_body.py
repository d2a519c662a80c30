"""The base of all JSON bodies: no unknown fields, and no more fields than a request can have.

Each fault of a body delays the answers to everybody. A body of 1 MB can have 100,000 unknown fields.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator
from pydantic_core import PydanticCustomError

MAX_FIELDS = 64
"""The most fields of one object of a body, options of a question included."""


def limit_fields(value: Any) -> Any:
    """Return the value. Raises for an object or list with more than `MAX_FIELDS`, before its parts are read."""
    if isinstance(value, dict | list) and len(value) > MAX_FIELDS:
        raise PydanticCustomError("too_many_fields", "has more than {limit} fields or items", {"limit": MAX_FIELDS})
    return value


class RequestBody(BaseModel):
    """A JSON object that a client sends."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _limit_fields(cls, value: Any) -> Any:
        return limit_fields(value)
