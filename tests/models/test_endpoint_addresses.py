"""The forms of address of an endpoint, and where its key is read from."""

from __future__ import annotations

from pathlib import Path

import pytest

from epicrisis.core.errors import ModelMissing, SettingsError
from epicrisis.models.chat.endpoints.endpoint import Endpoint, parse_endpoint, read_key

PASSWORD = "p@ss/word"
AZURE = "https://mine.openai.azure.com"


@pytest.mark.parametrize(
    ("address", "kind", "base_url", "model"),
    [
        ("http://127.0.0.1:8000", "openai", "http://127.0.0.1:8000/v1", None),
        ("http://127.0.0.1:8000/", "openai", "http://127.0.0.1:8000/v1", None),
        ("http://127.0.0.1:8000/v1/#qwen/x:7b", "openai", "http://127.0.0.1:8000/v1", "qwen/x:7b"),
        ("http://127.0.0.1:8000/v1/chat/completions#m", "openai", "http://127.0.0.1:8000/v1", "m"),
        ("HTTP://[::1]:8000/v1#m", "openai", "http://[::1]:8000/v1", "m"),
        ("https://models.example/api/v1?model=m", "openai", "https://models.example/api/v1", "m"),
        ("https://api.openai.com/v1#gpt-5.4", "openai", "https://api.openai.com/v1", "gpt-5.4"),
        (f"{AZURE}/openai/v1#mine", "azure", f"{AZURE}/openai/v1", "mine"),
        (f"{AZURE}#mine", "azure", f"{AZURE}/openai/v1", "mine"),
        (
            f"{AZURE}/openai/deployments/my%20own?api-version=2024-10-21",
            "azure",
            f"{AZURE}/openai/deployments/my%20own",
            "my own",
        ),
        ("bedrock://eu-central-1#m", "bedrock", "https://bedrock-runtime.eu-central-1.amazonaws.com/openai/v1", "m"),
        ("bedrock://cn-north-1#m", "bedrock", "https://bedrock-runtime.cn-north-1.amazonaws.com.cn/openai/v1", "m"),
        (
            "https://bedrock-mantle.us-east-1.api.aws/v1#m",
            "bedrock",
            "https://bedrock-mantle.us-east-1.api.aws/v1",
            "m",
        ),
        (
            "https://vpce-1.bedrock-runtime.us-gov-west-1.vpce.amazonaws.com/openai/v1#m",
            "bedrock",
            "https://vpce-1.bedrock-runtime.us-gov-west-1.vpce.amazonaws.com/openai/v1",
            "m",
        ),
    ],
)
def test_parse_endpoint_valid_address_returns_kind_url_and_model(
    address: str, kind: str, base_url: str, model: str | None
) -> None:
    endpoint = parse_endpoint(address)
    assert (endpoint.kind, endpoint.base_url, endpoint.model) == (kind, base_url, model)
    assert endpoint.local == ("127.0.0.1" in base_url or "::1" in base_url)
    assert base_url.startswith(endpoint.host)


def test_parse_endpoint_address_with_login_and_query_keeps_secrets_out_of_repr() -> None:
    endpoint = parse_endpoint("https://me:p%40ss%2Fword@models.example:8443/v1?api-version=2&code=s3cret&model=m#n")
    assert (endpoint.host, endpoint.model) == ("https://models.example:8443", "n")
    assert (endpoint.login, endpoint.query) == (("me", PASSWORD), {"api-version": "2", "code": "s3cret"})
    assert "s3cret" not in repr(endpoint)
    assert PASSWORD not in repr(endpoint)
    assert {PASSWORD, "p%40ss%2Fword", "s3cret"} <= set(endpoint.secrets)
    assert parse_endpoint("https://bedrock-runtime.us-east-1.amazonaws.com").region == "us-east-1"
    assert parse_endpoint("http://localhost:1/openai/v1").root == "http://localhost:1/openai"


@pytest.mark.parametrize(
    ("address", "hint"),
    [
        ("http://", "no host"),
        ("ftp://me:s3cret@models.example/v1", "its scheme is not http"),
        ("http://[::1/v1?key=s3cret", "cannot be parsed"),
        ("http://me:s3cret@models.example:port/v1", "cannot be parsed"),
        (f"{AZURE}/openai/deployments/s3cret", "add .api-version"),
        ("bedrock://s3cret", "bedrock://us-east-1#MODEL"),
        ("bedrock://", "bedrock://us-east-1#MODEL"),
    ],
)
def test_parse_endpoint_invalid_address_explains_format_without_secrets(address: str, hint: str) -> None:
    with pytest.raises(ModelMissing, match=hint) as caught:
        parse_endpoint(address)
    assert "s3cret" not in caught.value.message
    assert "\n" not in caught.value.message


# -- keys -----------------------------------------------------------------------------------------------------------


def test_read_key_file_takes_precedence_over_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "key"
    file.write_text("sk-of-file\r\n")
    monkeypatch.setenv("MY_KEY", " sk-of-variable\n")
    assert read_key(file, "MY_KEY") == "sk-of-file"
    assert read_key(None, "MY_KEY") == "sk-of-variable"
    assert read_key(None, "NO_KEY_THERE") is None
    monkeypatch.setenv("MY_KEY", " ")
    assert read_key(None, "MY_KEY") is None


@pytest.mark.parametrize(
    ("content", "hint"),
    [
        (None, "cannot be read"),
        (b"", "is empty: write the key into it"),
        (b" \n", "is empty"),
        (b"sk-s3cret\nsk-second", "does not hold a key"),
        (b"sk s3cret", "does not hold a key"),
        (b"sk-s3cret\x00", "does not hold a key"),
        ("sk-s3cret-é".encode(), "does not hold a key"),
        (b"\xff\xfes\x003\x00c\x00", "does not hold a key"),
    ],
)
def test_read_key_invalid_file_raises_settings_error_without_content(
    tmp_path: Path, content: bytes | None, hint: str
) -> None:
    file = tmp_path / "key"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(SettingsError, match=f"api_key_file .*{hint}") as caught:
        read_key(file, "MY_KEY")
    assert "s3cret" not in caught.value.message


def test_read_key_invalid_variable_raises_settings_error_without_content(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "sk-s3cret and more")
    with pytest.raises(SettingsError, match="variable MY_KEY does not hold a key") as caught:
        read_key(None, "MY_KEY")
    assert "s3cret" not in caught.value.message


def test_parse_endpoint_returns_comparable_endpoint() -> None:
    assert parse_endpoint("http://127.0.0.1:1/v1#m") == Endpoint(
        kind="openai", base_url="http://127.0.0.1:1/v1", host="http://127.0.0.1:1", local=True, model="m"
    )
