"""The file that names an identity provider, its secret, and the claims that give a role and patients."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from epicrisis.core.errors import SettingsError
from epicrisis.server.base.http_errors import NoRole
from epicrisis.server.identity.identity_provider import read_caller
from epicrisis.server.identity.identity_provider_settings import (
    PROVIDER_FILE,
    SECRET_VARIABLE,
    IdentityProviderSettings,
    read_client_secret,
    read_provider_settings,
)

RIGHT = {
    "issuer": "https://login.hospital.example/realms/clinic",
    "client_id": "epicrisis",
    "roles": {"reader": "literature-reader", "doctor": "patient-reader", "chief": "administrator"},
}


def make_settings(**changes: Any) -> IdentityProviderSettings:
    return IdentityProviderSettings.model_validate({**RIGHT, **changes})


def test_folder_without_file_has_no_provider(tmp_path: Path) -> None:
    assert read_provider_settings(tmp_path) is None


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"issuer": "http://login.hospital.example"}, "must begin with https://"),
        ({"issuer": "login.hospital.example"}, "give the address of the provider"),
        ({"issuer": "https://user:word@login.hospital.example"}, "give the address of the provider"),
        ({"issuer": "https://login.hospital.example/?x=1"}, "give the address of the provider"),
        ({"issuer": "https://[::1"}, "give the address of the provider"),
        ({"roles": {}}, "roles"),
        ({"roles": {"doctor": "king"}}, "roles.doctor"),
        ({"client_secret": "never here"}, "client_secret: Extra inputs"),
        ({"scopes": "profile"}, "scopes"),
        ({"session_minutes": 0}, "session_minutes"),
    ],
)
def test_wrong_file_is_refused_with_the_field(changes: dict[str, Any], reason: str, tmp_path: Path) -> None:
    (tmp_path / PROVIDER_FILE).write_text(json.dumps({**RIGHT, **changes}))
    with pytest.raises(SettingsError) as refused:
        read_provider_settings(tmp_path)
    assert reason in refused.value.message
    assert PROVIDER_FILE in refused.value.message
    assert "never here" not in refused.value.message
    assert "word" not in refused.value.message


def test_file_that_is_no_json_is_refused(tmp_path: Path) -> None:
    (tmp_path / PROVIDER_FILE).write_text("{")
    with pytest.raises(SettingsError, match="Invalid JSON"):
        read_provider_settings(tmp_path)


def test_secret_comes_from_file_or_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_client_secret(make_settings()) is None
    monkeypatch.setenv(SECRET_VARIABLE, "from the environment\n")
    assert read_client_secret(make_settings()) == "from the environment"
    file = tmp_path / "secret"
    file.write_text("from the file\n")
    assert read_client_secret(make_settings(client_secret_file=file)) == "from the file"
    for content in (b"", b"two\nlines", b"\xff"):
        file.write_bytes(content)
        with pytest.raises(SettingsError, match="client_secret_file"):
            read_client_secret(make_settings(client_secret_file=file))
    with pytest.raises(SettingsError, match="cannot be read"):
        read_client_secret(make_settings(client_secret_file=tmp_path / "missing"))


@pytest.mark.parametrize(
    ("path", "claims"),
    [
        ("roles", {"roles": ["doctor"]}),
        ("roles", {"roles": "doctor"}),
        ("realm_access.roles", {"realm_access": {"roles": ["offline_access", "doctor"]}}),
        ("https://hospital.example/roles", {"https://hospital.example/roles": ["doctor"]}),
        ("roles", {"roles": ["reader", "doctor"]}),
    ],
)
def test_role_is_the_highest_of_the_claim(path: str, claims: dict[str, Any]) -> None:
    caller = read_caller({"sub": "1", **claims}, make_settings(role_claim=path))
    assert caller.role == "patient-reader"


@pytest.mark.parametrize("claims", [{}, {"realm_access": []}, {"realm_access": {"roles": None}}, {"realm_access": "x"}])
def test_user_without_role_claim_is_refused(claims: dict[str, Any]) -> None:
    with pytest.raises(NoRole, match=r"sends no claim realm_access\.roles"):
        read_caller({"sub": "1", **claims}, make_settings(role_claim="realm_access.roles"))


def test_patients_are_those_of_the_claim_and_none_without_it() -> None:
    claims = {"sub": "1", "roles": "doctor"}
    assert read_caller(claims, make_settings()).patients is None
    settings = make_settings(patient_claim="patients")
    assert read_caller(claims, settings).patients == frozenset()
    assert read_caller({**claims, "patients": ["7", "8"]}, settings).patients == frozenset(["7", "8"])


def test_name_of_provider_is_printable_and_on_one_line() -> None:
    caller = read_caller(
        {"sub": "1", "roles": "doctor", "name": "Anna\n\u202egnaW\x1b[2J" + "x" * 200}, make_settings()
    )
    assert "\n" not in caller.log_name
    assert "\u202e" not in caller.name
    assert "\x1b" not in caller.name
    assert len(caller.name) <= 100
    assert caller.log_name.startswith("https://login.hospital.example/realms/clinic#1 Anna")


def test_two_issuers_with_one_subject_are_two_owners() -> None:
    claims = {"sub": "1", "roles": "doctor", "preferred_username": "maria"}
    first = read_caller(claims, make_settings())
    second = read_caller(claims, make_settings(issuer="https://other.example"))
    assert first.name == second.name
    assert len({first.owner, second.owner, "maria"}) == 3
