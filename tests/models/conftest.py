"""Tests marked `torch` are skipped, saying so, where the extra is not installed; `make test-torch` has it."""

from __future__ import annotations

from importlib.util import find_spec

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Runs after the tests are found, before any of them starts."""
    missing = [name for name in ("torch", "transformers", "sentence_transformers", "onnx") if find_spec(name) is None]
    skip = pytest.mark.skip(reason=f"needs {', '.join(missing)}: make test-torch")
    for item in items:
        if missing and item.get_closest_marker("torch"):
            item.add_marker(skip)
