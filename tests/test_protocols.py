"""The request to a chat model: options that exclude each other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from epicrisis.core.protocols import ChatRequest, Message

REQUEST = ChatRequest((Message("user", "Which?"),), max_tokens=10, temperature=0.7, top_p=0.9, seed=3)


@pytest.mark.slow
def test_request_with_options_and_schema_raises() -> None:
    with pytest.raises(ValueError, match="schema"):
        replace(REQUEST, options=("A", "B"), schema={"type": "object"})
