"""Whether a reply is what its schema asks for. Knows nothing of who made it; repairs nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NoReturn


def build_schema_check(schema: Mapping[str, Any]) -> Callable[[str], bool]:
    """Says of a text whether it is JSON that satisfies the schema. Raises ValueError where the schema is none.

    References lead nowhere but within the schema: nothing is fetched.
    """
    from jsonschema_rs import validator_for

    validator = validator_for(dict(schema), retriever=_refuse)

    def conforms(text: str) -> bool:
        try:
            return validator.is_valid(json.loads(text, parse_constant=_refuse))
        except (ValueError, RecursionError):
            return False

    return conforms


def _refuse(said: str) -> NoReturn:
    raise ValueError(f"{said} is no JSON, and nothing that is fetched")
