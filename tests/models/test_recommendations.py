"""Recommended chat models: the list, what fits, the memory of cards, and the page that shows the list."""

from __future__ import annotations

from pathlib import Path

import pytest

from epicrisis.models import hardware
from epicrisis.models.catalogue import load_catalogue
from epicrisis.models.hardware import GraphicsCard, list_graphics_cards
from epicrisis.models.recommendations import load_recommendations
from tests.models.models_page import BEGIN, END, PAGE, render_table


def test_list_is_sorted_and_names_existing_models_and_sources() -> None:
    recommendations = load_recommendations()
    models = recommendations.models
    needs = [model.needs_gb for model in models]
    assert needs == sorted(needs)
    marks: set[str] = set()
    for model in models:
        assert model.needs_gb > model.file_gb
        assert bool(model.start) == bool(model.option)
        assert model.measured or model.sources
        marks.update(model.sources, *[{scores.source} for scores in (model.published, model.also_published) if scores])
        if model.start.startswith("epicrisis models pull "):
            pinned = load_catalogue()[model.start.rpartition(" ")[2]]
            assert pinned.kind == "chat"
            assert pinned.licence == model.licence
            assert not pinned.bytes or pinned.bytes / 1e9 == pytest.approx(model.file_gb, rel=0.05)
            assert model.option.endswith(pinned.name)
    assert marks == recommendations.sources.keys()


@pytest.mark.parametrize(
    ("use", "memory", "first", "count"),
    [("answers", 24, "Qwen3-32B", 9), ("answers", 1.0, "Qwen2.5-Coder-0.5B", 1), ("judge", 8, "Selene-1-Mini", 1)],
)
def test_select_returns_models_that_fit_largest_first(use: str, memory: float, first: str, count: int) -> None:
    models = load_recommendations().select(use, memory)  # type: ignore[arg-type]
    assert models[0].name.startswith(first)
    assert len(models) == count
    assert all(model.needs_gb <= memory for model in models)


def test_page_shows_the_list() -> None:
    text = PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    assert text == render_table(), "run python -m tests.models.models_page"


def make_program(folder: Path, script: str) -> None:
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o700)


def test_cards_are_read_from_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_program(tmp_path, "printf 'NVIDIA H200, 143771\\nNVIDIA GB10, [N/A]\\nA, B, 24564\\n'")
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    assert list_graphics_cards() == [GraphicsCard("NVIDIA H200", 143771 << 20), GraphicsCard("A, B", 24564 << 20)]


@pytest.mark.parametrize("script", ["echo failed; exit 9", "exec sleep 30", "printf '\\377, 1'", "printf 'x'"])
def test_driver_that_fails_shows_no_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    make_program(tmp_path, script)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.setattr(hardware, "CARD_SECONDS", 0.5)
    assert list_graphics_cards() == []
