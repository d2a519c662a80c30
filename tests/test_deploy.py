"""The files of `deploy/` agree with the product: its options, settings, paths, time limits and pinned packages."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import shutil
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml  # type: ignore[import-untyped]

from epicrisis.cli.program import app
from epicrisis.server.app import STOP_SECONDS, create_app
from epicrisis.settings.configuration import load_settings
from tests.support import deployment
from tests.support.servers import open_library, open_resources, running

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
CONTAINER = (DEPLOY / "Containerfile").read_text(encoding="utf-8")
PAGE = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8")
UNIT = DEPLOY / "epicrisis.service"
PINNED = re.compile(r"(?m)^([a-z0-9][a-z0-9._-]*)==(\S+)")
HASH = re.compile(r"--hash=(sha256:[0-9a-f]{64})")
VARIABLE = re.compile(r"\$\{(\w+)")
COPIED = re.compile(r"(?m)^COPY (?!--from)(.+) \S+$")
CHECK = re.compile(r"HEALTHCHECK[^\[]*(\[.*\])")


def read_compose() -> dict[str, Any]:
    """Return the compose file."""
    content: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
    return content


def read_unit() -> ConfigParser:
    """Return the unit of systemd. Of a key that is repeated the last value is read."""
    parser = ConfigParser(strict=False, interpolation=None, delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string(UNIT.read_text(encoding="utf-8").replace("\\\n", " "))
    return parser


def read_lock(path: Path) -> dict[str, tuple[str, frozenset[str]]]:
    """Return the version and the hashes of each package of a lock."""
    text = path.read_text(encoding="utf-8")
    starts = list(PINNED.finditer(text))
    ends = [*(match.start() for match in starts[1:]), len(text)]
    packages: dict[str, tuple[str, frozenset[str]]] = {}
    for match, end in zip(starts, ends, strict=True):
        packages[match[1]] = match[2], frozenset(HASH.findall(text[match.start() : end]))
    return packages


def check_serve_options(arguments: list[str]) -> dict[str, Any]:
    """Return the values of a command line of `epicrisis serve`. Raises UsageError for an unknown option."""
    group: Any = typer.main.get_command(app)
    command = group.get_command(None, arguments[0])
    context = command.make_context(arguments[0], arguments[1:])
    values: dict[str, Any] = context.params
    return values


def test_lock_of_the_image_pins_what_was_tested() -> None:
    image, tested = read_lock(DEPLOY / "requirements.lock"), read_lock(ROOT / "requirements.lock")
    assert len(image) > 50
    for name, pinned in image.items():
        assert pinned[1], f"{name} has no hash"
        assert tested.get(name) == pinned, f"{name} differs: make lock"
    assert not image.keys() & {"pytest", "mypy", "ruff", "playwright"}
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8").partition("dependencies = [")[2].partition("\n]")[0]
    needed = set(re.findall(r'"([a-z0-9_.-]+)', project))
    assert {"fastapi", "tantivy", "uvicorn"} <= needed <= image.keys()
    assert {"lancedb", "boto3"} <= image.keys()


def test_container_file_installs_with_hashes_and_runs_as_another_user() -> None:
    assert "--require-hashes --no-deps --only-binary=:all: -r deploy/requirements.lock" in CONTAINER
    final = CONTAINER.rpartition("\nFROM ")[2]
    assert re.search(r"(?m)^USER 10001:10001$", final)
    bases = re.findall(r"(?m)^FROM (\S+)", CONTAINER)
    assert set(bases) == {"python:3.13-slim"}
    ignored = (DEPLOY / "Containerfile.dockerignore").read_text(encoding="utf-8")
    for line in COPIED.findall(CONTAINER):
        for name in line.split():
            assert (ROOT / name).exists()
            assert f"\n!{name}\n" in ignored


@pytest.mark.slow
def test_health_check_of_the_container_tells_a_running_server_from_none(tmp_path: Path) -> None:
    match = CHECK.search(CONTAINER)
    assert match is not None
    command = json.loads(match[1])

    async def check() -> tuple[int, int]:
        codes: list[int] = []
        async with running(create_app(open_resources(open_library(tmp_path / "lib", by="bm25")))) as url:
            port = url.rpartition(":")[2]
            here = [sys.executable, *(part.replace(":8080", f":{port}") for part in command[1:])]
            codes.append((await asyncio.to_thread(subprocess.run, here, capture_output=True)).returncode)
        codes.append((await asyncio.to_thread(subprocess.run, here, capture_output=True)).returncode)
        return codes[0], codes[1]

    assert asyncio.run(check()) == (0, 1)


def test_compose_hides_the_model_server_and_pins_versions() -> None:
    compose = read_compose()
    server, model = compose["services"]["epicrisis"], compose["services"]["model"]
    assert "ports" not in model
    assert model["networks"] == ["models"]
    assert compose["networks"]["models"] == {"internal": True}
    assert re.search(r":-[a-z/-]+:v\d+\.\d+\.\d+}$", model["image"])
    assert all(port.startswith("127.0.0.1:") for port in server["ports"])
    assert server["read_only"] is True
    assert server["cap_drop"] == ["ALL"]
    written = [volume.split(":")[1] for volume in server["volumes"] if not volume.endswith(":ro")]
    assert written == ["/data"]
    assert server["depends_on"]["model"]["condition"] == "service_healthy"
    assert model["healthcheck"]["test"][0] == "CMD"
    assert float(server["stop_grace_period"].removesuffix("s")) > STOP_SECONDS
    assert (DEPLOY / server["build"]["context"] / server["build"]["dockerfile"]).is_file()


def test_variables_of_compose_are_documented() -> None:
    names = set(VARIABLE.findall((DEPLOY / "compose.yaml").read_text(encoding="utf-8")))
    assert {"EPICRISIS_HOST_NAME", "MODEL_FOLDER"} <= names
    missing = [name for name in names if name not in PAGE]
    assert not missing


def test_compose_command_is_understood() -> None:
    command = [part.partition("${")[0] or part for part in read_compose()["services"]["epicrisis"]["command"]]
    values = check_serve_options([part + "x" if part.endswith("name=") else part for part in command])
    assert values["libraries"] == [Path("/libraries/main")] or list(map(str, values["libraries"])) == [
        "/libraries/main"
    ]
    assert values["behind_proxy"] is True


def test_settings_of_the_container_are_valid_and_name_the_model_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EPICRISIS_THREADS", raising=False)
    settings = load_settings(config=DEPLOY / "epicrisis.toml")
    name = settings.models.writer.name
    compose = read_compose()["services"]["model"]
    assert name.startswith("http://model:8000/v1#")
    assert f"--served-model-name={name.partition('#')[2]}" in compose["command"]
    assert "--port=8000" in compose["command"]


def test_unit_stops_after_the_server_and_writes_only_its_state() -> None:
    service = read_unit()["Service"]
    assert float(service["TimeoutStopSec"]) > STOP_SECONDS
    hardening = {"ProtectSystem": "strict", "NoNewPrivileges": "yes", "KillSignal": "SIGTERM", "User": "epicrisis"}
    assert {key: service[key] for key in hardening} == hardening
    assert service["StateDirectory"] == "epicrisis"
    assert service["LoadCredential"].startswith("model-key:")
    command = shlex.split(service["ExecStart"])
    values = check_serve_options(command[1:])
    assert list(values["host_name"]) == ["answers.example.org"]
    # A reader of PDF files limits its own memory.
    assert "@resources" not in service["SystemCallFilter"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "epicrisis.service"
    text = UNIT.read_text(encoding="utf-8").replace("/opt/epicrisis/bin/epicrisis", sys.executable)
    unit.write_text(text, encoding="utf-8")
    result = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.slow
def test_cluster_shows_only_the_proxy_and_stops_after_its_servers() -> None:
    compose = deployment.read_compose({"EPICRISIS_HOST_NAME": "answers.example.org"})
    services = compose["services"]
    assert [name for name, service in services.items() if "ports" in service] == ["proxy"]
    for network in ("database", "models"):
        assert compose["networks"][network] == {"internal": True}
    assert services["db"]["networks"] == ["database"]
    assert services["model"]["networks"] == ["models"]
    for name in deployment.NAMES:
        server = services[name]
        assert float(server["stop_grace_period"].removesuffix("s")) > STOP_SECONDS
        assert (server["read_only"], server["cap_drop"]) == (True, ["ALL"])
        values = check_serve_options(server["command"])
        assert (values["behind_proxy"], values["host_name"][0]) == (True, "answers.example.org")
        assert services["proxy"]["environment"][name.upper().replace("-", "_")] == f"{name}:8080"
        assert {key: server[key] for key in server if key != "command"} == {
            key: services["server-1"][key] for key in server if key != "command"
        }
    assert {mount.split(":")[1] for mount in services["admin"]["volumes"]} == {
        "/data",
        "/documents",
        "/etc/epicrisis/epicrisis.toml",
    }
    for service in services.values():
        assert set(service["networks"]) <= compose["networks"].keys()
        assert set(service.get("depends_on", ())) <= services.keys()


def test_variables_of_the_cluster_are_documented() -> None:
    names = set(VARIABLE.findall((deployment.DEPLOY / "compose.yaml").read_text(encoding="utf-8")))
    assert "SERVER_PASSWORD" in names
    assert [name for name in sorted(names) if name not in PAGE] == []


def test_cluster_settings_name_the_model_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EPICRISIS_THREADS", raising=False)
    settings = load_settings(config=deployment.DEPLOY / "epicrisis.toml")
    model = deployment.read_compose({})["services"]["model"]
    name, _, served = settings.models.writer.name.partition("#")
    assert name == "http://model:8000/v1"
    assert f"--served-model-name={served}" in model["command"]


def test_cluster_database_has_the_commands_of_the_manual() -> None:
    commands = deployment.read_database_commands(
        dict.fromkeys(("OWNER_PASSWORD", "IMPORTER_PASSWORD", "SERVER_PASSWORD"), "it's")
    )
    assert "PASSWORD 'it''s'" in commands
    assert not re.search(r"^\\", commands, re.MULTILINE)
    manual = " ".join(PAGE.split())
    for line in " ".join(commands.split()).split("; "):
        if line.startswith(
            ("CREATE EXTENSION", "REVOKE", "CREATE ROLE epicrisis_reader", "CREATE ROLE epicrisis_writer")
        ):
            assert line.rstrip(";") in manual
