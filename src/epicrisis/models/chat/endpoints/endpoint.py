"""The address of a chat endpoint, parsed from what a user writes, and its key."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from epicrisis.core.errors import ModelMissing, SettingsError
from epicrisis.settings.model_services import find_service
from epicrisis.settings.settings import API_KEY_VARIABLE, ModelSettings
from epicrisis.system.local_only import is_local, parse_host

_AZURE_DOMAINS = (".azure.com", ".azure.us", ".azure.cn")
_DEPLOYMENT = re.compile(r"/openai/deployments/([^/]+)$")
_BEDROCK = re.compile(r"(?:^|\.)bedrock-(runtime|mantle)(?:-fips)?\.([a-z]{2}(?:-[a-z]+)+-\d+)\.")
_REGION = re.compile(r"[a-z]{2}(?:-[a-z]+)+-\d+")
_REMEDY = "write http://HOST:PORT/v1#MODEL"


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A parsed address. Only `query` and `login` may contain secrets; its representation leaves them out."""

    kind: Literal["openai", "azure", "bedrock"]
    """How calls are authenticated: a bearer token, Azure's `api-key`, or AWS's signature if there is no key."""
    base_url: str
    """The base URL of OpenAI's paths, without login, query and fragment."""
    host: str
    """The name of the endpoint in messages."""
    local: bool
    model: str | None = None
    query: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Parameters of every call (`api-version`)."""
    login: tuple[str, str] | None = field(default=None, repr=False)
    """User and password for HTTP basic authentication."""
    region: str | None = None

    @property
    def root(self) -> str:
        """The URL above `/v1`, for paths outside OpenAI's API (`/props`, `/tokenize`)."""
        return self.base_url.removesuffix("/v1")

    @property
    def secrets(self) -> tuple[str, ...]:
        """Texts that no message may repeat, plain and percent-encoded."""
        secrets = set(self.query.values())
        if self.login:
            secrets.add(self.login[1])
        return tuple(secrets.union(quote(secret, safe="") for secret in secrets))


def parse_endpoint(address: str) -> Endpoint:
    """Parse `URL#MODEL`, `URL?model=MODEL`, or a URL without a model. The model is then the first the endpoint lists.

    * any compatible server: `http://127.0.0.1:8000/v1#qwen3`; `/v1` is added to a URL without a path;
    * Azure: `https://NAME.openai.azure.com/openai/v1#DEPLOYMENT`, or the older
      `https://NAME.openai.azure.com/openai/deployments/DEPLOYMENT?api-version=2024-10-21`;
    * Bedrock: `bedrock://REGION#MODEL`, or its own URLs (`https://bedrock-runtime.REGION.amazonaws.com/openai/v1`).

    Raise ModelMissing with a remedy. No message repeats the address, since it may contain a password.
    """
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ModelMissing(f"the URL of the model cannot be parsed: {_REMEDY}") from None
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    query_model = query.pop("model", "")
    model = parts.fragment or query_model or None
    if parts.scheme == "bedrock":
        region = host or ""
        if not _REGION.fullmatch(region):
            raise ModelMissing("bedrock:// needs an AWS region: write bedrock://us-east-1#MODEL")
        domain = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
        origin = f"https://bedrock-runtime.{region}.{domain}"
        return Endpoint(
            kind="bedrock", base_url=f"{origin}/openai/v1", host=origin, local=False, model=model, region=region
        )
    if parts.scheme not in ("http", "https") or not host:
        raise ModelMissing(f"the URL of the model has no host, or its scheme is not http or https: {_REMEDY}")
    path = parts.path.rstrip("/").removesuffix("/chat/completions")
    deployment = _DEPLOYMENT.search(path)
    if deployment and "api-version" not in query:
        raise ModelMissing("the URL of an Azure deployment needs its API version: add ?api-version=2024-10-21 to it")
    bedrock = _BEDROCK.search(host)
    kind: Literal["openai", "azure", "bedrock"] = "bedrock" if bedrock else "openai"
    if deployment is not None or host.endswith(_AZURE_DOMAINS):
        kind = "azure"
    origin = f"{parts.scheme}://[{host}]" if ":" in host else f"{parts.scheme}://{host}"
    if port is not None:
        origin += f":{port}"
    default_path = "/v1" if kind == "openai" else "/openai/v1"
    if model is None and deployment:
        model = unquote(deployment[1])
    return Endpoint(
        kind=kind,
        base_url=origin + (path or default_path),
        host=origin,
        local=is_local(host),
        model=model,
        query=query,
        login=(unquote(parts.username or ""), unquote(parts.password or "")) if "@" in parts.netloc else None,
        region=bedrock[2] if bedrock else None,
    )


def choose_key_variable(settings: ModelSettings) -> str:
    """Return the environment variable with the key of this endpoint.

    It is the one that the settings name. Without a name of their own, a service's own variable (`OPENAI_API_KEY`) comes
    first where it is set, and is read for that service's host only.
    """
    service = find_service(settings.name)
    if settings.api_key_env != API_KEY_VARIABLE or service is None or service.key_variable is None:
        return settings.api_key_env
    if os.environ.get(service.key_variable) or not os.environ.get(API_KEY_VARIABLE):
        return service.key_variable
    return API_KEY_VARIABLE


def read_key(file: Path | None, variable: str) -> str | None:
    """Return the endpoint's key from the file, else from the environment variable, else None; without blanks around it.

    Raise SettingsError, which never repeats the key, if the file cannot be read or the key is invalid.
    """
    if file is None:
        return _validate_key(os.environ.get(variable, ""), f"the environment variable {variable}") or None
    path = file.expanduser()
    try:
        text = path.read_text(encoding="ascii")
    except UnicodeDecodeError:
        text = "no key"
    except OSError as error:
        raise SettingsError(
            f"api_key_file {path} cannot be read ({error.strerror}): set it to a file with the key"
        ) from None
    key = _validate_key(text, f"api_key_file {path}")
    if not key:
        raise SettingsError(f"api_key_file {path} is empty: write the key into it, or remove api_key_file")
    return key


def require_key(settings: ModelSettings) -> str | None:
    """Return the key of these settings' endpoint as `read_key` does. Raise SettingsError if its service needs one."""
    key = read_key(settings.api_key_file, choose_key_variable(settings))
    service = find_service(settings.name)
    if key is None and service is not None and parse_endpoint(settings.name).login is None:
        raise SettingsError(
            f"{service.title} needs a key: set the environment variable {service.key_variable} (it is sent to "
            f"{parse_host(service.url)} only), or api_key_file. Nothing was sent"
        )
    return key


def _validate_key(text: str, place: str) -> str:
    key = text.strip()
    if not re.fullmatch(r"[!-~]*", key):
        raise SettingsError(f"{place} does not hold a key: a key is one line of ASCII characters without blanks")
    return key
