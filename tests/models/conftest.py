"""Fixtures of the tests of the models."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.loopback import Endpoint, serving


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    """Return a scripted endpoint on loopback."""
    with serving() as endpoint:
        yield endpoint
