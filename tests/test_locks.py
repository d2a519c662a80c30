"""The two lock files, which are constraints of one environment where torch is tested."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def pinned(name: str) -> set[str]:
    return set(re.findall(r"(?m)^([\w.-]+)==", (ROOT / name).read_text(encoding="utf-8").lower()))


def test_no_package_is_pinned_twice() -> None:
    """Two versions of one cannot be installed, and `make lock` moves those of the first file alone."""
    first, second = pinned("requirements.lock"), pinned("requirements-torch.lock")
    assert "torch" in second
    assert "numpy" in first
    assert first & second == set()
