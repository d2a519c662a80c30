"""Sign in with a hospital's identity provider: OpenID Connect by Authlib.

    provider = IdentityProvider(settings, secret)
    response = await provider.start_sign_in(request, "https://answers.example.org/sign-in/callback")
    caller = await provider.finish_sign_in(request)     # in the callback
    caller = await provider.check_token(token)          # a bearer token of the API

The page uses the authorization code flow with PKCE, state and nonce. No token is kept after its claims are read.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from epicrisis.core.errors import ModelMissing
from epicrisis.core.printable import printable
from epicrisis.server.base.http_errors import NoRole, ProviderFailed, SignInRefused, TokenRefused
from epicrisis.server.base.users import ROLES, Caller, Role, make_owner_id
from epicrisis.server.identity.identity_provider_settings import IdentityProviderSettings
from epicrisis.server.identity.provider_documents import ALGORITHMS, TIMEOUT_SECONDS, ProviderDocuments
from epicrisis.server.state.sessions import Sessions
from epicrisis.system.local_only import permit_host

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from epicrisis.server.state.shared_state.shared_database import StateDatabase

CALLBACK_PATH = "/sign-in/callback"
START_PATH = "/sign-in/provider"
CLOCK_SECONDS = 60
"""How far the clocks of provider and server may differ."""
STATE_SECONDS = 600
"""How long a user may take to sign in at the provider."""
_NAME = "provider"
_ERROR_CODE = re.compile(r"[a-z_]{1,50}")
_TOKEN_TYPES = frozenset(("at+jwt", "application/at+jwt", "jwt"))
"""What the header of an access token says: RFC 9068, and what most providers write."""
_ID_TOKEN_CLAIMS = {"at_hash", "c_hash"}
_CLOCKS = "it is expired, or the clocks of the provider and of this server differ by more than a minute"


MAX_PATIENTS = 10_000
_NAME_CLAIMS = ("preferred_username", "name", "email")
_MAX_NAME = 100
_SUBJECT = re.compile(r"[!-~]{1,255}")
"""A subject has up to 255 ASCII characters (OpenID Connect Core, section 2). Blanks would blur the access log."""


class IdentityProvider:
    """The identity provider of a server: signs users in on the page, and checks access tokens."""

    def __init__(
        self,
        settings: IdentityProviderSettings,
        secret: str | None,
        clock: Callable[[], float] = time.monotonic,
        database: StateDatabase | None = None,
    ) -> None:
        """Raise ModelMissing without the extra `oidc`. Contacts no machine but the server's own database."""
        self.settings = settings
        self.documents = ProviderDocuments(settings, clock)
        try:
            self.sessions = Sessions(settings.session_minutes, clock, database)
            self._client = _make_client(settings, secret, self.documents)
        except ImportError as error:
            raise ModelMissing('an identity provider needs Authlib: pip install "epicrisis[oidc]"') from error

    async def start_sign_in(self, request: Request, redirect_uri: str) -> Response:
        """Return the redirection to the provider. State, nonce and verifier are in the request's session.

        Raises ProviderFailed.
        """
        with self._explain():
            response: Response = await self._client.authorize_redirect(request, redirect_uri)
        return response

    async def finish_sign_in(self, request: Request) -> Caller:
        """Return the user of a callback. Raises SignInRefused, NoRole and ProviderFailed."""
        error = request.query_params.get("error")
        if error is not None:
            raise SignInRefused(_describe_refusal(error))
        if request.query_params.get("iss", self.settings.issuer) != self.settings.issuer:
            raise SignInRefused("the answer is from another identity provider")
        if not request.query_params.get("code") or not request.query_params.get("state"):
            raise SignInRefused("the answer of the identity provider has no code or no state")
        options = {
            "iss": {"essential": True, "value": self.settings.issuer},
            "aud": {"essential": True, "value": self.settings.client_id},
        }
        with self._explain():
            token = await self._client.authorize_access_token(request, claims_options=options, leeway=CLOCK_SECONDS)
        claims = token.get("userinfo")
        if not isinstance(claims, Mapping):
            raise SignInRefused("the identity provider sent no ID token")
        return read_caller(claims, self.settings)

    async def check_token(self, token: str) -> Caller:
        """Return the user of an access token. Raises TokenRefused, SignInRefused, NoRole and ProviderFailed."""
        if self.settings.audience is None:
            raise TokenRefused("this server accepts no access tokens of its identity provider")
        claims = await self._read_claims(token)
        caller = read_caller(claims, self.settings)
        await asyncio.to_thread(self.sessions.keep_rights, caller)
        return caller

    async def make_sign_out_address(self, return_to: str) -> str | None:
        """Return the address where the user ends the session at the provider, or None if it has none."""
        from authlib.common.urls import add_params_to_uri

        metadata = await self.documents.read_metadata()
        address = metadata.get("end_session_endpoint")
        if address is None:
            return None
        values = {"client_id": self.settings.client_id, "post_logout_redirect_uri": return_to}
        return str(add_params_to_uri(address, values))

    async def _read_claims(self, token: str) -> Mapping[str, Any]:
        """Return the claims of an access token whose signature, issuer, audience and times are right."""
        from joserfc.errors import InvalidKeyIdError, JoseError
        from joserfc.jwt import JWTClaimsRegistry

        try:
            try:
                decoded = _decode(token, await self.documents.read_keys())
            except InvalidKeyIdError:
                decoded = _decode(token, await self.documents.read_keys(renew=True))
            registry = JWTClaimsRegistry(
                leeway=CLOCK_SECONDS,
                iss={"essential": True, "value": self.settings.issuer},
                aud={"essential": True, "value": self.settings.audience or ""},
                sub={"essential": True},
                exp={"essential": True},
            )
            registry.validate(decoded.claims)
        except JoseError as error:
            raise TokenRefused(f"the access token is refused: {_explain_token(error)}") from None
        except (ValueError, KeyError, TypeError):
            raise TokenRefused("the access token is refused: it is no signed token") from None
        if str(decoded.header.get("typ") or "JWT").lower() not in _TOKEN_TYPES or _is_other_token(decoded.claims):
            raise TokenRefused("the token is no access token: send the one for the API, not the ID token")
        return dict(decoded.claims)

    @contextmanager
    def _explain(self) -> Iterator[None]:
        """Permit the host of the provider, and translate errors of a sign-in."""
        import httpx2
        from authlib.integrations.base_client import MismatchingStateError, OAuthError
        from joserfc.errors import JoseError

        issuer = self.settings.issuer
        try:
            with permit_host(self.settings.host):
                yield
        except MismatchingStateError:
            raise SignInRefused("this browser did not start this sign-in, or started it too long ago") from None
        except OAuthError as error:
            raise SignInRefused(_describe_refusal(str(error.error))) from None
        except JoseError as error:
            raise SignInRefused(f"the ID token is refused: {_explain_token(error)}") from None
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            raise ProviderFailed(f"{issuer} cannot be reached: {type(error).__name__}") from None
        except (ValueError, KeyError, TypeError, AttributeError, RuntimeError):
            # Replies of another form fail inside Authlib with the errors of Python.
            raise ProviderFailed(f"{issuer} answers with something else than OpenID Connect") from None


def _make_client(settings: IdentityProviderSettings, secret: str | None, documents: ProviderDocuments) -> Any:
    """Return Authlib's client, which reads endpoints and keys from `documents`. Raises ImportError."""
    from authlib.integrations.starlette_client import StarletteIntegration, StarletteOAuth2App

    class Client(StarletteOAuth2App):  # type: ignore[misc]
        """Authlib's client with documents that are renewed and checked."""

        async def load_server_metadata(self) -> Mapping[str, Any]:
            return dict(await documents.read_metadata())

        async def fetch_jwk_set(self, force: bool = False) -> Mapping[str, Any]:
            return await documents.read_keys(renew=force)

    integration = StarletteIntegration(_NAME)
    integration.expires_in = STATE_SECONDS
    options = {"scope": settings.scopes, "code_challenge_method": "S256", "timeout": TIMEOUT_SECONDS}
    return Client(integration, _NAME, client_id=settings.client_id, client_secret=secret, client_kwargs=options)


def _decode(token: str, keys: Mapping[str, Any]) -> Any:
    from joserfc import jwt
    from joserfc.jwk import KeySet
    from joserfc.jws import JWSRegistry

    registry = JWSRegistry(algorithms=ALGORITHMS, strict_check_header=False)
    return jwt.decode(token, KeySet.import_key_set({"keys": keys["keys"]}), registry=registry)


def _is_other_token(claims: Mapping[str, Any]) -> bool:
    """Return whether the claims are those of an ID token or a refresh token, whose audience may be the same."""
    if not _ID_TOKEN_CLAIMS.isdisjoint(claims) or claims.get("typ") in ("ID", "Refresh", "Logout"):
        return True
    return "nonce" in claims and "scope" not in claims and "scp" not in claims


def _explain_token(error: Exception) -> str:
    """Return why a token is refused, without its values."""
    from joserfc.errors import ClaimError, ExpiredTokenError, MissingClaimError

    if isinstance(error, ExpiredTokenError):
        return _CLOCKS
    if isinstance(error, MissingClaimError):
        return "one of the claims iss, sub, aud, exp, iat and nonce is missing"
    if isinstance(error, ClaimError):
        return _CLAIM_REASONS.get(error.claim, "one of its claims is wrong")
    return "it is not signed by the identity provider of this server"


_CLAIM_REASONS: Mapping[str, str] = {
    "iss": "it is from another issuer",
    "aud": "it is meant for another program",
    "azp": "it is meant for another program",
    "nonce": "it does not belong to this sign-in",
    "sub": "its subject is no text",
    "exp": _CLOCKS,
    "nbf": _CLOCKS,
    "iat": _CLOCKS,
}


def _describe_refusal(code: str) -> str:
    """Return the reason of a refusal. Only its code is shown, as anybody can write the rest of the address."""
    if code == "access_denied":
        return "the identity provider or you refused the sign-in"
    return f"the identity provider refused the sign-in ({code if _ERROR_CODE.fullmatch(code) else 'unknown error'})"


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
