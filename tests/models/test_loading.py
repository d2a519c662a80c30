"""From what stands after `--model` to a model."""

from pathlib import Path

import pytest

from epicrisis.core.errors import ModelFileInvalid, ModelMissing
from epicrisis.models.catalogue import is_demo
from epicrisis.models.chat.embedded import read_gguf_header
from epicrisis.models.chat.loading import load_chat
from epicrisis.pipeline.components import list_notices
from epicrisis.settings.configuration import load_settings
from epicrisis.settings.settings import ModelSettings


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("http://127.0.0.1:8000/v1#qwen/x:7b", "qwen/x:7b at http://127.0.0.1:8000"),
        ("https://models.example/v1?model=m", "m at https://models.example"),
        ("https://user:password@models.example/v1#m", "m at https://models.example"),
    ],
)
def test_load_chat_address_returns_endpoint_model(address: str, name: str, tmp_path: Path) -> None:
    assert load_chat(ModelSettings(name=address), tmp_path).name == name


def test_load_chat_file_returns_embedded_model_without_loading(tmp_path: Path) -> None:
    (tmp_path / "mine.gguf").write_bytes(b"GGUF")
    assert load_chat(ModelSettings(name=str(tmp_path / "mine.gguf")), tmp_path).name == "mine"
    assert load_chat(ModelSettings(name=str(tmp_path)), tmp_path).name == "mine"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("smollm2-135m", "epicrisis models pull smollm2-135m"),
        ("smollm-135m", "Did you mean smollm2-135m"),
        ("groq:meta/llama", "no chat model is called"),
        ("minilm", "kind encoder"),
        ("nowhere/model.gguf", "no file or folder"),
        ("model.gguf", "no file or folder"),
    ],
)
def test_load_chat_missing_model_suggests_remedy(name: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ModelMissing, match=message):
        load_chat(ModelSettings(name=name), tmp_path)


def test_small_chat_model_is_announced_with_its_measurement() -> None:
    settings = load_settings({"models": {"writer": {"name": "qwen2.5-coder-1.5b"}}})
    (notice,) = list_notices(settings, ["writer"], ())
    assert notice.kind == "small-model"
    assert notice.message.startswith("qwen2.5-coder-1.5b was right on ")
    other = load_settings({"models": {"writer": {"name": "http://127.0.0.1:8000/v1#m"}}})
    assert list_notices(other, ["writer"], ()) == []


def test_is_demo_recognizes_demo_model() -> None:
    assert is_demo("smollm2-135m")
    assert not is_demo("qwen2.5-coder-0.5b")
    assert not is_demo("http://127.0.0.1:8000")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a GGUF"),
        (b"<html>", "not a GGUF"),
        (b"GGUF", "damaged"),
        (b"GGUF" + b"\xff" * 60, "damaged"),
        (b"GGUF\x03\0\0\0" + b"\0" * 8 + b"\x01" + b"\0" * 7 + b"\xff" * 8, "damaged"),
    ],
)
def test_read_gguf_header_invalid_file_is_refused_in_one_line(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelFileInvalid, match=message) as caught:
        read_gguf_header(path)
    assert "\n" not in caught.value.message
    with pytest.raises(ModelFileInvalid, match="cannot be read"):
        read_gguf_header(tmp_path)


@pytest.mark.models
def test_read_gguf_header_real_model_returns_architecture(model_home: Path) -> None:
    head = read_gguf_header(model_home / "models" / "smollm2-135m" / "model.gguf")
    assert (head.architecture, head.context_tokens) == ("llama", 8192)
