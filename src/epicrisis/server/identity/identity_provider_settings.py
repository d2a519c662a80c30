"""The settings of a hospital's identity provider: the file `identity-provider.json` in the server's folder.

    {"issuer": "https://login.hospital.example/realms/clinic", "client_id": "epicrisis",
     "role_claim": "realm_access.roles", "roles": {"clinic-reader": "patient-reader"}}

The secret of the client is in the environment or in a file of its own, never in this file and never in an argument.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from epicrisis.core.errors import SettingsError
from epicrisis.server.base.users import Role
from epicrisis.system.local_only import is_local, remote_host

PROVIDER_FILE = "identity-provider.json"
SECRET_VARIABLE = "EPICRISIS_API_KEY_OIDC"
"""The environment variable with the secret of the client."""
_SHOWN_FAULTS = 3


def _check_issuer(issuer: str) -> str:
    try:
        parts = urlsplit(issuer)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host, parts = None, urlsplit("")
    if not host or parts.query or parts.fragment or "@" in parts.netloc or not issuer.isascii():
        raise ValueError("give the address of the provider, such as https://login.hospital.example/realms/clinic")
    if parts.scheme != "https" and not (parts.scheme == "http" and is_local(host)):
        raise ValueError("the address must begin with https://, except on this machine")
    return issuer


Claim = Annotated[str, Field(min_length=1, max_length=200)]


class IdentityProviderSettings(BaseModel):
    """The place of sign-in, and the claims for roles and patients."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    issuer: Annotated[str, Field(max_length=500), AfterValidator(_check_issuer)]
    """The address of the provider, exactly as its tokens have it."""
    client_id: str = Field(min_length=1, max_length=200)
    client_secret_file: Path | None = None
    """File with the secret of the client. Default: the environment variable; without both, a public client."""
    role_claim: Claim = "roles"
    """The claim with roles or groups. Dots lead into it: `realm_access.roles`."""
    roles: Mapping[str, Role] = Field(min_length=1)
    """The role here for each value of that claim. The highest one counts."""
    patient_claim: Claim | None = None
    """The claim with the ids of assigned patients. None: patient readers read every record."""
    scopes: str = Field("openid profile", pattern=r"^openid( [!#-\[\]-~]+)*$")
    audience: Annotated[str, Field(min_length=1, max_length=500)] | None = None
    """The audience of access tokens that the API accepts. None: the API accepts none."""
    session_minutes: int = Field(60, ge=1, le=24 * 60)
    """How long a sign-in on the page lasts."""
    requests_per_minute: int = Field(120, ge=1)
    """Requests of one user."""
    running: int = Field(8, ge=1)
    """Questions of one user at the same time."""

    @property
    def host(self) -> str:
        """The host of the provider."""
        return urlsplit(self.issuer).hostname or ""

    @property
    def remote_host(self) -> str | None:
        """The host of the provider if it is another machine."""
        return remote_host(self.issuer)


def read_provider_settings(folder: Path, file: Path | None = None) -> IdentityProviderSettings | None:
    """Return the settings in this file, or else in the server's folder; None if the folder has none.

    Raises SettingsError with the field and the fault; values are not repeated.
    """
    path = folder / PROVIDER_FILE if file is None else file
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        if file is not None:
            raise SettingsError(f"there is no file {path}: name an existing file of an identity provider") from None
        return None
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from None
    try:
        return IdentityProviderSettings.model_validate_json(content)
    except ValidationError as error:
        faults: list[str] = []
        for fault in error.errors(include_url=False, include_input=False)[:_SHOWN_FAULTS]:
            place = ".".join(map(str, fault["loc"])) or "file"
            faults.append(f"{place}: {fault['msg'].removeprefix('Value error, ')}")
        raise SettingsError(f"{path}: {'; '.join(faults)}") from None


def read_client_secret(settings: IdentityProviderSettings) -> str | None:
    """Return the secret of the client from its file or the environment, or None for a public client.

    Raises SettingsError, which never repeats the secret.
    """
    path = settings.client_secret_file
    place = f"the environment variable {SECRET_VARIABLE}" if path is None else f"client_secret_file {path}"
    try:
        text = os.environ.get(SECRET_VARIABLE, "") if path is None else path.expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise SettingsError(f"{place} cannot be read: name a file that holds the secret of the client") from None
    secret = text.strip()
    if not secret.isprintable() or (path is not None and not secret):
        raise SettingsError(f"{place} holds no secret: a secret is one line")
    return secret or None
