"""`epicrisis serve`, `users` and `audit`: what is refused before a library is opened, and keys that are shown once."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner

from epicrisis.cli.program import app
from epicrisis.cli.serve import is_loopback, normalize_host
from epicrisis.privacy.access_log import NAME, AccessLog
from epicrisis.server.base.users import USERS_FILE
from epicrisis.server.identity.identity_provider_settings import PROVIDER_FILE


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--host", "0.0.0.0"], "must be encrypted"),
        (["--host", "192.0.2.1"], "must be encrypted"),
        (["--host", "example.org"], "must be encrypted"),
        (["--host", "0.0.0.0", "--behind-proxy"], "--host-name"),
        (["--behind-proxy"], "--host-name"),
        (["--behind-proxy", "--host-name", "https://answers.example.org/epicrisis"], "give the name alone"),
        (["--behind-proxy", "--host-name", "a b"], "give the name alone"),
        (["--tls-key", "key.pem"], "give the other one too"),
        (["--tls-key", "key.pem", "--tls-certificate", "chain.pem"], "there is no file"),
        ([], "no library at"),
    ],
)
def test_serve_with_unsafe_options_is_refused(options: list[str], reason: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["serve", str(tmp_path / "nothing"), "--folder", str(tmp_path), *options])
    assert result.exit_code == 2
    assert reason in result.stderr
    assert result.stderr.strip().splitlines()[-1].startswith("epicrisis: ")


def test_taken_port_is_named_before_anything_is_served(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = CliRunner().invoke(app, ["serve", str(tmp_path / "lib"), "--port", str(port)])
    assert result.exit_code == 2
    assert f"--port {port}: another program uses it; choose another port" in result.stderr


def test_addresses_of_this_machine_are_told_from_others() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.0.0.2", "localhost", "::1")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "192.0.2.1", "localhost.example.org", "")))
    names = ("A.example.org", "::1", "[::1]", "a.example.org:8443", "[::1]:8443")
    normalized = ["a.example.org", "[::1]", "[::1]", "a.example.org:8443", "[::1]:8443"]
    assert list(map(normalize_host, names)) == normalized


@pytest.mark.parametrize(
    ("issuer", "options", "reason"),
    [
        ("https://login.hospital.example", ["--local-only"], "login.hospital.example is not this machine"),
        ("https://login.hospital.example", [], "no library at"),
        ("http://127.0.0.1:9", ["--local-only"], "no library at"),
        ("http://login.hospital.example", [], "must begin with https://"),
    ],
)
def test_identity_provider_elsewhere_is_refused_under_local_only(
    issuer: str, options: list[str], reason: str, tmp_path: Path
) -> None:
    chosen = {"issuer": issuer, "client_id": "epicrisis", "roles": {"doctor": "patient-reader"}}
    (tmp_path / PROVIDER_FILE).write_text(json.dumps(chosen))
    result = CliRunner().invoke(app, ["serve", str(tmp_path / "nothing"), "--folder", str(tmp_path), *options])
    assert result.exit_code == 2
    assert reason in result.stderr
    assert result.stderr.strip().splitlines()[-1].startswith("epicrisis: ")


def test_users_are_added_listed_and_removed(tmp_path: Path) -> None:
    folder = ["--folder", str(tmp_path / "server")]
    added = CliRunner().invoke(app, ["users", "add", "maria", "--role", "patient-reader", "--patient", "1", *folder])
    key = added.stdout.strip()
    path = tmp_path / "server" / USERS_FILE
    assert len(key) > 40
    assert key not in path.read_text()
    assert path.stat().st_mode & 0o077 == 0
    listed = json.loads(CliRunner().invoke(app, ["users", "list", "--json", *folder]).stdout)
    assert listed["maria"]["role"] == "patient-reader"
    assert "key_sha256" not in listed["maria"]
    assert CliRunner().invoke(app, ["users", "remove", "maria", *folder]).exit_code == 0
    assert CliRunner().invoke(app, ["users", "remove", "maria", *folder]).exit_code == 2


@pytest.mark.parametrize("arguments", [["a b"], ["../x"], ["maria", "--role", "king"]])
def test_user_with_wrong_name_or_role_is_refused(arguments: list[str], tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["users", "add", *arguments, "--folder", str(tmp_path)])
    assert result.exit_code == 2
    assert not (tmp_path / USERS_FILE).exists()


def test_audit_verify_fails_for_changed_log(tmp_path: Path) -> None:
    asyncio.run(AccessLog(tmp_path / NAME).record("maria", "ask", "ward", "1", ["note:1"]))
    command = ["audit", "verify", "--folder", str(tmp_path)]
    complete = CliRunner().invoke(app, command)
    assert (complete.exit_code, complete.stdout.startswith("1 entry, complete")) == (0, True)
    (tmp_path / NAME).write_text((tmp_path / NAME).read_text().replace("maria", "otto"))
    changed = CliRunner().invoke(app, command)
    assert changed.exit_code == 2
    assert "entry 1: was changed" in changed.stderr
