"""Where a chat model answers, from what a user writes: the forms of address there are, and where a key comes from.

Knows no client: it opens nothing but the file of a key.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from epicrisis.errors import ModelMissing, SettingsError
from epicrisis.privacy import is_local

_AZURE = (".azure.com", ".azure.us", ".azure.cn")
_DEPLOYMENT = re.compile(r"/openai/deployments/([^/]+)$")
_BEDROCK = re.compile(r"(?:^|\.)bedrock-(runtime|mantle)(?:-fips)?\.([a-z]{2}(?:-[a-z]+)+-\d+)\.")
_REGION = re.compile(r"[a-z]{2}(?:-[a-z]+)+-\d+")
_CURE = "write http://HOST:PORT/v1#MODEL"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address taken apart. What may be secret (`query`, `login`) is in no other field and in no representation."""

    kind: Literal["openai", "azure", "bedrock"]
    """How a call proves who sends it: a bearer token, Azure's `api-key`, or AWS's signature where there is no key."""
    base_url: str
    """As OpenAI's clients take it, without login, query and fragment."""
    host: str
    """As messages name it."""
    local: bool
    model: str | None = None
    query: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Sent with every call (`api-version`)."""
    login: tuple[str, str] | None = field(default=None, repr=False)
    """User and password of the address, for HTTP's basic authentication."""
    region: str | None = None
    """Of AWS, for Bedrock."""

    @property
    def root(self) -> str:
        """Where servers keep what OpenAI has no path for (`/props`, `/tokenize`)."""
        return self.base_url.removesuffix("/v1")

    @property
    def secrets(self) -> tuple[str, ...]:
        """What no message may repeat, in both forms in which it can be written."""
        plain = (*self.query.values(), *((self.login[1],) if self.login else ()))
        return tuple({form for secret in plain for form in (secret, quote(secret, safe=""))})


def parse_endpoint(address: str) -> Endpoint:
    """The endpoint at this address: `URL#MODEL`, `URL?model=MODEL`, or without a model, which is then the first listed.

    * any compatible server: `http://127.0.0.1:8000/v1#qwen3`; `/v1` is added where the URL has no path;
    * Azure: `https://NAME.openai.azure.com/openai/v1#DEPLOYMENT`, or the older
      `https://NAME.openai.azure.com/openai/deployments/DEPLOYMENT?api-version=2024-10-21`;
    * Bedrock: `bedrock://REGION#MODEL`, or its own URLs (`https://bedrock-runtime.REGION.amazonaws.com/openai/v1`).

    Raises ModelMissing with the cure; no message repeats the address, which may hold a password.
    """
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ModelMissing(f"the URL of the model cannot be read: {_CURE}") from None
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    named = query.pop("model", "")
    model = parts.fragment or named or None
    if parts.scheme == "bedrock":
        return _bedrock(host or "", model)
    if parts.scheme not in ("http", "https") or not host:
        raise ModelMissing(f"the URL of the model has no host, or another scheme than http and https: {_CURE}")
    path = parts.path.rstrip("/").removesuffix("/chat/completions")
    deployment = _DEPLOYMENT.search(path)
    if deployment and "api-version" not in query:
        raise ModelMissing("the URL of an Azure deployment needs its API version: add ?api-version=2024-10-21 to it")
    azure = deployment is not None or host.endswith(_AZURE)
    bedrock = _BEDROCK.search(host)
    shown = f"[{host}]" if ":" in host else host
    origin = f"{parts.scheme}://{shown}" + (f":{port}" if port is not None else "")
    login = (unquote(parts.username or ""), unquote(parts.password or "")) if "@" in parts.netloc else None
    return Endpoint(
        kind="azure" if azure else "bedrock" if bedrock else "openai",
        base_url=origin + (path or ("/openai/v1" if azure or bedrock else "/v1")),
        host=origin,
        local=is_local(host),
        model=model or (unquote(deployment[1]) if deployment else None),
        query=query,
        login=login,
        region=bedrock[2] if bedrock else None,
    )


def _bedrock(region: str, model: str | None) -> Endpoint:
    if not _REGION.fullmatch(region):
        raise ModelMissing("bedrock:// is followed by a region of AWS: write bedrock://us-east-1#MODEL")
    domain = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
    origin = f"https://bedrock-runtime.{region}.{domain}"
    return Endpoint("bedrock", f"{origin}/openai/v1", origin, local=False, model=model, region=region)


def read_key(file: Path | None, variable: str) -> str | None:
    """The endpoint's key: what the file holds, else the environment variable, else none. Blanks around it are no part.

    Raises SettingsError where the file cannot be read, or what is there can be no key. No message repeats it.
    """
    if file is None:
        return _checked(os.environ.get(variable, ""), f"the environment variable {variable}") or None
    path = file.expanduser()
    try:
        text = path.read_text(encoding="ascii")
    except UnicodeDecodeError:
        text = "no key"
    except OSError as error:
        raise SettingsError(
            f"api_key_file {path} cannot be read ({error.strerror}): name a file with the key"
        ) from None
    key = _checked(text, f"api_key_file {path}")
    if not key:
        raise SettingsError(f"api_key_file {path} is empty: write the key into it, or leave api_key_file out")
    return key


def _checked(text: str, place: str) -> str:
    key = text.strip()
    if not re.fullmatch(r"[!-~]*", key):
        raise SettingsError(f"{place} holds something that can be no key: it is one line of letters, digits and signs")
    return key
