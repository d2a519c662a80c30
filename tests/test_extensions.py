"""Components of other packages, found through metadata on the path."""

from __future__ import annotations

from pathlib import Path

import pytest

from epicrisis.core.errors import ModelMissing
from epicrisis.core.extensions import find_package, list_extensions, make_extension
from epicrisis.models.encoders import load_encoder
from epicrisis.settings.settings import Settings


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, entry: str) -> None:
    """Put a package with one encoder on the path."""
    place = folder / "theirs-1.0.dist-info"
    place.mkdir()
    (place / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n", encoding="utf-8")
    (place / "entry_points.txt").write_text(f"[epicrisis.encoders]\n{entry}\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(folder))


def test_encoder_of_package_is_found_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "theirs" not in list_extensions("encoder")
    install(tmp_path, monkeypatch, "theirs = epicrisis.testing.hashing_encoder:HashingEncoder")
    assert find_package("encoder", "theirs") == "theirs"
    assert load_encoder("theirs", Settings().home).fingerprint.startswith("hashing")
    assert make_extension("reranker", "theirs") is None


def test_broken_package_is_one_line_with_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, "broken = no_such_module:Encoder")
    with pytest.raises(ModelMissing, match=r"the encoder broken of the package theirs cannot be loaded \(Module"):
        load_encoder("broken", Settings().home)


def test_name_of_catalogue_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, "medcpt = epicrisis.testing.hashing_encoder:HashingEncoder")
    with pytest.raises(ModelMissing, match="medcpt is not installed"):
        load_encoder("medcpt", tmp_path)
