"""Names that differ in capitals only are taken."""

from __future__ import annotations

import pytest

from epicrisis.core.errors import SettingsError
from epicrisis.core.names import match_case
from epicrisis.evaluation.experiments.registry import find_experiment
from epicrisis.models.catalogue import get_pinned_model, load_catalogue
from epicrisis.settings.configuration import load_settings


@pytest.mark.parametrize(
    ("typed", "known", "read"),
    [
        ("MiniLM", ["minilm", "medcpt"], "minilm"),
        ("minilm", ["minilm", "MiniLM"], "minilm"),
        ("MINILM", ["minilm", "MiniLM"], "MINILM"),
        ("mini", ["minilm"], "mini"),
    ],
)
def test_only_capitals_may_differ(typed: str, known: list[str], read: str) -> None:
    assert match_case(typed, known) == read


def test_settings_models_presets_and_experiments_take_capitals() -> None:
    settings = load_settings({"by": "BM25", "strategy": "RAG", "route": "Brief-Context", "check": "Off"})
    assert (settings.by, settings.strategy, settings.route, settings.check) == ("bm25", "rag", "brief-context", "off")
    assert load_settings({"preset": "EHR"}).preset in ("EHR", "ehr")
    assert get_pinned_model("MiniLM", load_catalogue()).name == "minilm"
    assert find_experiment("Positions").name == "positions"
    with pytest.raises(SettingsError, match="input should be 'dense', 'bm25' or 'hybrid'"):
        load_settings({"by": "words"})
