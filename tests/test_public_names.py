"""The public names of the package are those documented here, and each has a docstring."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

import epicrisis

PUBLIC_NAMES = [
    "Answer",
    "Citation",
    "Document",
    "EpicrisisError",
    "Event",
    "Hit",
    "Library",
    "Passage",
    "Pipeline",
    "Question",
    "Ranking",
    "Scope",
    "SentenceRanking",
    "Settings",
    "ask",
    "runs_to_dataframe",
    "stream",
    "to_json",
    "write_references",
]


def test_public_names_are_listed_in_all_and_dir() -> None:
    assert epicrisis.__all__ == PUBLIC_NAMES
    assert dir(epicrisis) == sorted([*PUBLIC_NAMES, "__version__"])


@pytest.mark.parametrize("name", PUBLIC_NAMES)
def test_public_name_has_own_docstring(name: str) -> None:
    value = getattr(epicrisis, name)
    if name == "Event":
        source = Path(inspect.getfile(epicrisis.Answer)).read_text(encoding="utf-8")
        assert ')\n"""' in source.partition("Event: TypeAlias")[2].partition("Trace:")[0], "an attribute docstring"
        return
    doc = value.__doc__ or ""
    assert doc.strip(), f"{name} has no docstring"
    assert not doc.startswith(f"{name}("), f"{name} has only the generated docstring of a dataclass"


def test_unknown_name_raises_attribute_error_with_public_names() -> None:
    with pytest.raises(AttributeError, match="its public names are Answer, Citation"):
        getattr(epicrisis, "nonsense")  # noqa: B009
