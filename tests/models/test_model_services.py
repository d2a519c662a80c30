"""Familiar names of chat models: where they lead, whose key goes where, and what an unknown name is told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from epicrisis.core.errors import ModelMissing, SettingsError
from epicrisis.core.protocols import ChatRequest, Message
from epicrisis.models import local_servers
from epicrisis.models.chat.endpoints.endpoint import choose_key_variable, require_key
from epicrisis.models.chat.loading import load_chat
from epicrisis.settings.configuration import load_settings
from epicrisis.settings.model_services import SERVICES, ModelService, expand_model_name, find_service
from epicrisis.settings.settings import ModelSettings
from tests.support.loopback import run_in_thread

KEYS = {"OPENAI_API_KEY": "sk-openai", "ANTHROPIC_API_KEY": "sk-anthropic", "EPICRISIS_API_KEY": "sk-own"}


@pytest.mark.parametrize(
    ("name", "url"),
    [
        ("ollama:llama3.1", "http://127.0.0.1:11434/v1#llama3.1"),
        ("Ollama: qwen3:8b ", "http://127.0.0.1:11434/v1#qwen3:8b"),
        ("ollama:hf.co/unsloth/x-GGUF:Q4_K_M", "http://127.0.0.1:11434/v1#hf.co/unsloth/x-GGUF:Q4_K_M"),
        ("ollama:", "http://127.0.0.1:11434/v1"),
        ("lmstudio:qwen/qwen3-8b", "http://127.0.0.1:1234/v1#qwen/qwen3-8b"),
        ("vllm:Qwen/Qwen3-8B", "http://127.0.0.1:8000/v1#Qwen/Qwen3-8B"),
        ("llamacpp:", "http://127.0.0.1:8080/v1"),
        ("openai:gpt-5.4", "https://api.openai.com/v1#gpt-5.4"),
        ("anthropic:claude-sonnet-4-6", "https://api.anthropic.com/v1#claude-sonnet-4-6"),
        ("smollm2-135m", "smollm2-135m"),
        ("./ollama.gguf", "./ollama.gguf"),
        ("C:\\models\\mine.gguf", "C:\\models\\mine.gguf"),
        ("vllm://host/v1", "vllm://host/v1"),
    ],
)
def test_model_name_with_service_becomes_url(name: str, url: str) -> None:
    assert ModelSettings(name=name).name == url
    assert load_settings({"models": {"writer": {"name": name}}}).models.writer.name == url


@pytest.mark.parametrize("name", ["openai:", "anthropic: "])
def test_remote_service_without_model_is_refused(name: str) -> None:
    with pytest.raises(SettingsError, match=f"{name.strip()}MODEL"):
        load_settings({"models": {"writer": {"name": name}}})


def test_remote_service_is_refused_under_local_only() -> None:
    with pytest.raises(SettingsError, match=r"models\.map\.name: local_only .* api\.anthropic\.com"):
        load_settings({"models": {"map": {"name": "anthropic:claude"}}, "local_only": True})
    assert load_settings({"models": {"writer": {"name": "ollama:llama3.1"}}, "local_only": True}).local_only


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("openai:gpt-5.4", "sk-openai"),
        ("https://api.openai.com/v1#gpt-5.4", "sk-openai"),
        ("HTTPS://API.OPENAI.COM:443/v1#gpt-5.4", "sk-openai"),
        ("anthropic:claude", "sk-anthropic"),
        # Whatever looks like the service without being its host gets the key for any endpoint, as before.
        ("http://api.openai.com/v1#gpt-5.4", "sk-own"),
        ("https://api.openai.com:8443/v1#m", "sk-own"),
        ("https://api.openai.com.example.org/v1#m", "sk-own"),
        ("https://api.openai.com@example.org/v1#m", "sk-own"),
        ("https://example.org/v1#api.openai.com", "sk-own"),
        ("https://eu.api.openai.com/v1#m", "sk-own"),
        ("https://mine.openai.azure.com/openai/v1#m", "sk-own"),
        ("ollama:llama3.1", "sk-own"),
        ("vllm:api.openai.com", "sk-own"),
    ],
)
def test_key_of_service_is_read_for_its_host_only(name: str, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, value in KEYS.items():
        monkeypatch.setenv(variable, value)
    assert require_key(ModelSettings(name=name)) == key


def test_key_without_own_variable_falls_back_and_named_one_wins(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("EPICRISIS_API_KEY", "sk-own")
    assert choose_key_variable(ModelSettings(name="openai:m")) == "EPICRISIS_API_KEY"
    monkeypatch.setenv("OPENAI_API_KEY", "sk-openai")
    monkeypatch.setenv("MINE", "sk-mine")
    assert require_key(ModelSettings(name="openai:m", api_key_env="MINE")) == "sk-mine"
    (tmp_path / "key").write_text("sk-file\n")
    assert require_key(ModelSettings(name="openai:m", api_key_file=tmp_path / "key")) == "sk-file"


def test_service_without_key_is_an_error_before_anything_is_sent(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for variable in KEYS:
        monkeypatch.delenv(variable, raising=False)
    # The key for OpenAI is no key for Anthropic.
    monkeypatch.setenv("OPENAI_API_KEY", "sk-openai")
    model = load_chat(ModelSettings(name="anthropic:claude"), tmp_path)
    with pytest.raises(SettingsError, match=r"ANTHROPIC_API_KEY .*api\.anthropic\.com only"):
        asyncio.run(model.complete(ChatRequest((Message("user", "a"),), max_tokens=1)))


def test_schema_is_not_sent_to_service_that_ignores_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    model = load_chat(ModelSettings(name="anthropic:claude"), tmp_path)
    assert json.loads(asyncio.run(model.fingerprint()))["json_schema"] is False
    declared = load_chat(ModelSettings(name="anthropic:claude", json_schema=True), tmp_path)
    assert "json_schema" not in json.loads(asyncio.run(declared.fingerprint()))


def test_every_remote_service_has_key_and_encryption_and_no_local_one_has() -> None:
    for prefix, service in SERVICES.items():
        assert (find_service(service.url) is service) == (service.key_variable is not None)
        assert service.url.startswith("https://" if service.key_variable else "http://127.0.0.1:")
        assert expand_model_name(f"{prefix}:m") == f"{service.url}#m"


# -- servers on this machine -----------------------------------------------------------------------------------------


class _Handler(BaseHTTPRequestHandler):
    reply: object = None
    status = 200
    paths: list[str]

    def do_GET(self) -> None:
        self.paths.append(self.path)
        body = self.reply if isinstance(self.reply, bytes) else json.dumps(self.reply).encode()
        self.send_response(self.status)
        self.send_header("Location", "http://127.0.0.1:9/")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def serve(reply: object, status: int = 200) -> Iterator[tuple[str, list[str]]]:
    """Yield the URL of a server with this reply, and the paths that it was asked for."""
    paths: list[str] = []
    handler = type("Handler", (_Handler,), {"reply": reply, "status": status, "paths": paths})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    with run_in_thread(server) as url:
        yield f"{url}/v1", paths


def list_models(*names: str, owner: str = "library") -> dict[str, object]:
    return {"object": "list", "data": [{"id": name, "owned_by": owner} for name in names]}


Serve = Callable[..., list[str]]


@pytest.fixture
def services(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Return a function that starts servers by their prefix. All other local services have a closed port."""
    closed = {prefix: ModelService(service.title, "http://127.0.0.1:9/v1") for prefix, service in SERVICES.items()}
    table = {
        prefix: closed[prefix] if service.key_variable is None else service for prefix, service in SERVICES.items()
    }
    monkeypatch.setattr(local_servers, "SERVICES", table)
    monkeypatch.setattr(local_servers.find_local_servers, "__defaults__", (table,))
    with ExitStack() as stack:

        def start(prefix: str, reply: object, status: int = 200) -> list[str]:
            server: AbstractContextManager[tuple[str, list[str]]] = serve(reply, status)
            url, paths = stack.enter_context(server)
            table[prefix] = ModelService(SERVICES[prefix].title, url)
            return paths

        yield start


def test_unknown_model_names_running_server_with_its_models(services: Serve, tmp_path: Path) -> None:
    paths = services("ollama", list_models("llama3.1:8b", "qwen3:8b", "a", "b", "c"))
    with pytest.raises(ModelMissing) as caught:
        load_chat(ModelSettings(name="medical-model"), tmp_path)
    assert caught.value.message == (
        "no chat model is called 'medical-model'. Ollama is running here with llama3.1:8b, qwen3:8b, a, b, ...: write "
        "ollama:llama3.1:8b. A model is a name of `epicrisis models list`, a .gguf file, SERVICE:MODEL (ollama, "
        "lmstudio, vllm, llamacpp, openai, anthropic), or http://HOST:PORT/v1#MODEL."
    )
    assert paths == ["/v1/models"]


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("smollm-135m", "Did you mean smollm2-135m?"),
        ("olama:llama3.1", "Did you mean ollama:llama3.1?"),
        ("gpt-5.4", "Did you mean openai:gpt-5.4?"),
        ("claude-sonnet-4-6", "Did you mean anthropic:claude-sonnet-4-6?"),
        ("zzz", "No server of Ollama, LM Studio, vLLM or llama.cpp is running here."),
        ("groq:llama", "No server of Ollama, LM Studio, vLLM or llama.cpp is running here."),
    ],
)
def test_unknown_model_without_servers_suggests_similar_names(
    name: str, suggestion: str, services: Serve, tmp_path: Path
) -> None:
    with pytest.raises(ModelMissing) as caught:
        load_chat(ModelSettings(name=name), tmp_path)
    assert f"called '{name}'. {suggestion} " in caught.value.message


@pytest.mark.parametrize(
    ("prefix", "reply", "status"),
    [
        ("vllm", list_models("m", owner="someone"), 200),
        ("vllm", list_models("epicrisis/focused", owner="epicrisis"), 200),
        ("llamacpp", list_models("epicrisis/focused", owner="epicrisis"), 200),
        ("ollama", b"<html>", 200),
        ("ollama", {"data": None}, 200),
        ("ollama", {"data": [None]}, 200),
        ("ollama", [], 200),
        ("ollama", list_models(), 200),
        ("ollama", b"[" * 100_000, 200),
        ("ollama", list_models("m"), 302),
        ("ollama", list_models("m"), 500),
    ],
)
def test_other_server_at_port_is_not_a_model_server(prefix: str, reply: object, status: int, services: Serve) -> None:
    paths = services(prefix, reply, status)
    assert local_servers.find_local_servers() == []
    assert paths == ["/v1/models"]


def test_vllm_is_recognized_by_its_owner(services: Serve) -> None:
    services("vllm", list_models("Qwen/Qwen3-8B", owner="vllm"))
    assert local_servers.find_local_servers() == [local_servers.LocalServer("vllm", ("Qwen/Qwen3-8B",))]
