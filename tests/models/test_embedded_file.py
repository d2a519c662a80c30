"""What the embedded model makes of its file while nothing is loaded: whether it fits, and its fingerprint."""

from __future__ import annotations

import asyncio
import json
import re
from functools import partial
from pathlib import Path

import pytest

from epicrisis.core.errors import ModelFileInvalid
from epicrisis.models.chat import embedded
from epicrisis.models.chat.embedded import EmbeddedModel, estimate_memory
from epicrisis.models.chat.loading import load_chat
from epicrisis.models.hardware import measure_available_memory
from epicrisis.settings.settings import ModelSettings
from tests.models.test_gguf import SMALL, gguf, u32
from tests.models.test_hardware import V2, machine, meminfo, v2

# -- memory ---------------------------------------------------------------------------------------------------------


def make_file(path: Path, weights_bytes: int, window: int) -> Path:
    """Write a file with the header of a model of 22.5 KiB for each token of the window."""
    path.write_bytes(gguf(SMALL | {"llama.context_length": u32(window)}))
    with path.open("r+b") as stream:
        stream.truncate(weights_bytes)
    return path


def read_refusal(monkeypatch: pytest.MonkeyPatch, root: Path, model: EmbeddedModel) -> str:
    """Return the error message on a machine whose system files are under `root`."""
    monkeypatch.setattr(embedded, "measure_available_memory", partial(measure_available_memory, root))
    with pytest.raises(ModelFileInvalid) as caught:
        asyncio.run(model.capabilities())
    return caught.value.message


def test_embedded_file_weights_over_memory_are_refused_with_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_file(tmp_path / "large.gguf", 5 * 2**30, 8192)
    assert read_refusal(
        monkeypatch, machine(tmp_path / "root", {"proc/meminfo": meminfo(4)}), EmbeddedModel(path, "m")
    ) == (f"{path} needs 5.2 GiB of memory (weights 5.0, window 0.2) and 4.0 GiB are available: use a smaller model")


def test_embedded_file_window_over_memory_suggests_fitting_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_file(tmp_path / "wide.gguf", 2**20, 131_072)
    limited = {"proc/meminfo": meminfo(20), "proc/self/cgroup": V2.format("/app")} | v2("/app", 3.0, 1.0)
    message = read_refusal(
        monkeypatch, machine(tmp_path / "root", limited), EmbeddedModel(path, "m", context_tokens=1_000_000)
    )
    assert "needs 3.0 GiB of memory (weights 0.0, window 2.8) and 2.0 GiB are available" in message
    fits = re.search(r"set context_tokens to (\d+) or less, or use a smaller model$", message)
    assert fits is not None
    assert 50_000 < int(fits[1]) < 131_072
    assert estimate_memory(path, int(fits[1])).total <= 2 * 2**30 < estimate_memory(path, 131_072).total


def test_estimate_memory_split_model_counts_all_parts(tmp_path: Path) -> None:
    first = make_file(tmp_path / "split-00001-of-00002.gguf", 2**20, 8192)
    make_file(tmp_path / "split-00002-of-00002.gguf", 3 * 2**20, 8192)
    assert estimate_memory(first, 8192).weights == 4 * 2**20
    assert estimate_memory(first, 8192).window == 180 * 2**20


# -- the fingerprint ------------------------------------------------------------------------------------------------


def fingerprint(path: Path) -> str:
    return asyncio.run(EmbeddedModel(path, "m").fingerprint())


def test_embedded_fingerprint_depends_on_file_content(tmp_path: Path) -> None:
    one, same, other = tmp_path / "one.gguf", tmp_path / "same.gguf", tmp_path / "other.gguf"
    one.write_bytes(gguf(SMALL))
    same.write_bytes(gguf(SMALL))
    other.write_bytes(gguf(SMALL) + b"\0")
    assert fingerprint(one) == fingerprint(same) != fingerprint(other)
    assert json.loads(fingerprint(one)).keys() == {"weights", "xllamacpp"}


def test_embedded_fingerprint_split_model_covers_all_parts(tmp_path: Path) -> None:
    first, second = (tmp_path / f"m-0000{number}-of-00002.gguf" for number in (1, 2))
    first.write_bytes(b"first")
    second.write_bytes(b"second")
    before = fingerprint(first)
    assert before == fingerprint(second)
    second.write_bytes(b"changed")
    assert fingerprint(first) != before


@pytest.mark.models
def test_embedded_fingerprint_downloaded_model_uses_recorded_checksum(
    model_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = fingerprint(model_home / "models" / "smollm2-135m" / "model.gguf")

    def never(path: Path) -> str:
        raise AssertionError(f"{path} is read")

    monkeypatch.setattr(embedded, "compute_sha256", never)
    assert asyncio.run(load_chat(ModelSettings(name="smollm2-135m"), model_home).fingerprint()) == read
