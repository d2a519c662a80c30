"""From the claims of a token to a user: the account, a readable name, the role and the assigned patients."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from epicrisis.core.printable import printable
from epicrisis.server.errors import NoRole, SignInRefused
from epicrisis.server.identity_provider_settings import IdentityProviderSettings
from epicrisis.server.users import ROLES, Caller, Role, make_owner_id

MAX_PATIENTS = 10_000
_NAME_CLAIMS = ("preferred_username", "name", "email")
_MAX_NAME = 100
_SUBJECT = re.compile(r"[!-~]{1,255}")
"""A subject has up to 255 ASCII characters (OpenID Connect Core, section 2). Blanks would blur the access log."""


def read_caller(claims: Mapping[str, Any], settings: IdentityProviderSettings) -> Caller:
    """Return the user of checked claims, with the limits of the settings.

    Raises SignInRefused for claims of another form, and NoRole if no value of the role claim has a role here.
    """
    subject = claims.get("sub")
    if not isinstance(subject, str) or not _SUBJECT.fullmatch(subject):
        raise SignInRefused("the token has no subject of up to 255 characters, so nobody can be told apart")
    name = _read_name(claims) or subject
    return Caller(
        name=name,
        role=_read_role(claims, settings, name),
        patients=_read_patients(claims, settings),
        requests_per_minute=settings.requests_per_minute,
        running=settings.running,
        id=make_owner_id(settings.issuer, subject),
        account=f"{settings.issuer}#{subject}",
    )


def find_claim(claims: Mapping[str, Any], path: str) -> Any:
    """Return the claim with this name, or the one to which the parts between dots lead, or None."""
    if path in claims:
        return claims[path]
    value: Any = claims
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _read_name(claims: Mapping[str, Any]) -> str:
    """Return a readable name on one line, or an empty text."""
    for claim in _NAME_CLAIMS:
        value = claims.get(claim)
        if isinstance(value, str) and (name := " ".join(printable(value).split())):
            return name[:_MAX_NAME]
    return ""


def _read_role(claims: Mapping[str, Any], settings: IdentityProviderSettings, name: str) -> Role:
    value = find_claim(claims, settings.role_claim)
    if value is None:
        raise NoRole(
            f"you are signed in as {name}, but the identity provider sends no claim {settings.role_claim}, so your "
            "role here is not known"
        )
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list):
        raise NoRole(f"the claim {settings.role_claim} is neither a text nor a list of texts")
    roles = [settings.roles[item] for item in values if isinstance(item, str) and item in settings.roles]
    if not roles:
        raise NoRole(f"you are signed in as {name}, but the claim {settings.role_claim} holds no role of this server")
    return max(roles, key=ROLES.index)


def _read_patients(claims: Mapping[str, Any], settings: IdentityProviderSettings) -> frozenset[str] | None:
    """Return the assigned patients. Without the claim no patient is assigned; None without the setting."""
    if settings.patient_claim is None:
        return None
    value = find_claim(claims, settings.patient_claim)
    values = [] if value is None else [value] if isinstance(value, str) else value
    if not isinstance(values, list) or len(values) > MAX_PATIENTS or not all(isinstance(item, str) for item in values):
        raise SignInRefused(f"the claim {settings.patient_claim} is no list of patient ids, each a text")
    return frozenset(values)
