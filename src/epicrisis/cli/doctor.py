"""`epicrisis doctor`: what is installed, which models are here, what would be contacted and why, and what is written
down. Contacts nothing itself."""

from __future__ import annotations

import os
import platform
import re
import stat
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import getproxies, proxy_bypass

import typer

from epicrisis.cli.common import fail, show_json, translated
from epicrisis.cli.options import Config, Json, LocalOnly
from epicrisis.cli.terminal import say

if TYPE_CHECKING:
    from epicrisis.settings import ModelSettings, RerankSettings, Settings

PARTS = ("epicrisis", "lancedb", "tantivy", "onnxruntime", "tokenizers", "xllamacpp", "openai", "numpy", "torch")
DECLARED = ("context_tokens", "json_schema", "option_logprobs")
"""What the settings may say of a model, and what is asked of it at the first call where they do not."""

PIP_DEFAULT, HUB_DEFAULT = "pip's default index", "https://huggingface.co"


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(epilog="Example: epicrisis doctor --local-only")(doctor)


@translated
def doctor(config: Config = None, local_only: LocalOnly = False, json: Json = False) -> None:
    """Show what is installed, which models are here, every host that would be contacted and why, and what is written.

    With --local-only also what that would refuse.
    """
    from epicrisis.configuration import load_settings
    from epicrisis.errors import SettingsError

    refusal = None
    try:
        settings = load_settings({"local_only": local_only or None}, config)
    except SettingsError as error:
        # Where local_only alone is what the settings break, a list of it all helps more than the first line.
        settings = load_settings({"local_only": False}, config).model_copy(update={"local_only": True})
        refusal = error
    found = examine(settings)
    if json:
        show_json(found)
    else:
        _show(found)
    if refusal is not None:
        fail(refusal.message, refusal.exit_code)


def examine(settings: Settings) -> dict[str, Any]:
    """All that `doctor` tells. Contacts nothing."""
    from epicrisis.models.model_download import list_installed_models
    from epicrisis.privacy import TELEMETRY_OFF

    return {
        "python": platform.python_version(),
        "system": platform.system(),
        "cores": os.cpu_count(),
        "packages": {name: _version(name) for name in PARTS},
        "home": str(settings.home),
        "models": [model.name for model in list_installed_models(settings.home)],
        "roles": {role: _role(settings.model_for(role)) for role in settings.roles},
        "local_only": settings.local_only,
        "contacts": _contacts(settings),
        "pulls": [{**row, "refused": settings.local_only} for row in _pulls()],
        "telemetry_off": sorted(TELEMETRY_OFF),
        "written": _written(settings),
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _role(model: ModelSettings) -> dict[str, Any]:
    from epicrisis.privacy import strip_secrets

    return {"name": strip_secrets(model.name), **{key: getattr(model, key) for key in DECLARED}}


# -- hosts ----------------------------------------------------------------------------------------------------------


def _contacts(settings: Settings) -> list[dict[str, Any]]:
    """Hosts beyond this machine that a question could reach, and how."""
    from epicrisis.privacy import remote_host

    asked: dict[tuple[str, str], list[str]] = {}
    for role in settings.roles:
        model = settings.model_for(role)
        asked.setdefault((model.name, _key(model)), []).append(f"the {role} model")
    asked.setdefault((settings.rerank.name or "", _key(settings.rerank)), []).append("the reranker")
    rows: list[dict[str, Any]] = []
    for (name, key), parts in asked.items():
        if "://" not in name or remote_host(name) is None:
            continue
        url, signs = _endpoint(name)
        rows.append(_row(url, ", ".join(parts), key))
        if signs and key.endswith("(not set)"):
            own = "AWS's own credentials, where its tools look for them (here, or at its token service)"
            rows.append(_row("http://169.254.169.254", own, "AWS"))
    return [{**row, "refused": settings.local_only} for row in rows]


def _endpoint(name: str) -> tuple[str, bool]:
    """A URL with the host that the name stands for, and whether AWS signs the calls where there is no key."""
    from epicrisis.errors import ModelMissing
    from epicrisis.models.chat.endpoints.endpoint import parse_endpoint

    try:
        endpoint = parse_endpoint(name)
    except ModelMissing:
        return name, False
    return endpoint.host, endpoint.kind == "bedrock"


def _row(url: str, why: str, key: str) -> dict[str, Any]:
    from epicrisis.privacy import parse_host

    encrypted = url.startswith("https:")
    return {"host": parse_host(url), "why": why, "encrypted": encrypted, "key": key, "proxy": _proxy(url)}


def _key(part: ModelSettings | RerankSettings) -> str:
    """Where its key comes from; never the key."""
    file: Path | None = getattr(part, "api_key_file", None)
    if file is not None:
        return f"{file} ({_mode(file) or 'not there'})"
    return f"{part.api_key_env} ({'set' if os.environ.get(part.api_key_env) else 'not set'})"


def _proxy(url: str) -> str | None:
    """The proxy of the environment through which it would be reached. None is ever used for this machine."""
    from epicrisis.privacy import parse_host

    host, proxies = parse_host(url), getproxies()
    proxy = proxies.get(url.partition(":")[0]) or proxies.get("all")
    if host is None or proxy is None or proxy_bypass(host):
        return None
    return parse_host(proxy if "://" in proxy else f"http://{proxy}")


def _pulls() -> list[dict[str, Any]]:
    """Where `epicrisis models pull` and `questions pull` fetch from: commands of their own, no question comes there."""
    from epicrisis.evaluation.datasets.catalogue import load_catalogue
    from epicrisis.privacy import parse_host

    hub = parse_host(os.environ.get("HF_ENDPOINT") or HUB_DEFAULT)
    models = [*_pip_hosts(), (hub, "models of the hub, and wherever it keeps large files")]
    sets = dict.fromkeys(parse_host(file.url) for each in load_catalogue().values() for file in each.files)
    return [
        *({"host": host, "why": f"`epicrisis models pull`: {why}"} for host, why in models),
        *({"host": host, "why": "`epicrisis questions pull`: question sets"} for host in sets),
    ]


def _pip_hosts() -> list[tuple[str | None, str]]:
    """The hosts of pip's own settings, from its files and the environment; pip is asked, and contacts nothing."""
    from epicrisis.privacy import parse_host

    command = [sys.executable, "-m", "pip", "config", "list", "--disable-pip-version-check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    said = [line.partition("=")[::2] for line in done.stdout.splitlines()]
    indexes = [value for key, value in said if key.endswith("index-url")]
    urls = re.findall(r"https?://[^\s'\"\\]+", " ".join(indexes))
    hosts = list(dict.fromkeys(filter(None, map(parse_host, urls))))
    if not any(key.rpartition(".")[2] == "index-url" for key, _ in said):
        hosts.insert(0, PIP_DEFAULT)
    return [(host, "wheels that hold models (pip's settings)") for host in hosts]


# -- files ----------------------------------------------------------------------------------------------------------


def _written(settings: Settings) -> list[dict[str, Any]]:
    """What is written down while questions are answered, and who can read it."""
    from epicrisis.library.library_folder import REPLIES

    rows: list[tuple[str, Path, str]] = []
    if settings.cache.mode != "off":
        inside = "" if settings.cache.path else "; in the library where a question has one"
        rows.append(("replies", settings.cache.path or settings.home / REPLIES, f"replies of the models{inside}"))
    if settings.record is not None:
        rows.append(("record", settings.record, "every prompt and reply, with their texts"))
    if settings.log is not None:
        rows.append(("log", settings.log, "prompts and replies too" if settings.log_text else "ids and counts"))
    return [{"what": what, "path": str(path), "mode": _mode(path), "holds": holds} for what, path, holds in rows]


def _mode(path: Path) -> str | None:
    """Such as `0600`; `None` where there is no such file yet."""
    try:
        return f"{stat.S_IMODE(path.stat().st_mode):04o}"
    except OSError:
        return None


# -- the screen -----------------------------------------------------------------------------------------------------


def _show(found: dict[str, Any]) -> None:
    say(f"Python {found['python']} on {found['system']}, {found['cores']} cores")
    for name, installed in found["packages"].items():
        say(f"  {name:<12} {installed or 'not installed'}")
    say(f"models in {found['home']}: {', '.join(found['models']) or 'none (epicrisis models pull minilm)'}")
    for role, model in found["roles"].items():
        said = ", ".join(f"{key} {model[key]}" for key in DECLARED if model[key] is not None)
        say(f"  {role:<7} {model['name']}{f' (declared: {said})' if said else ''}")
    contacts = found["contacts"]
    say("would be contacted:" if contacts else "would be contacted: nothing beyond this machine")
    for row in contacts:
        through = f", through the proxy {row['proxy']}" if row["proxy"] else ""
        open_line = "" if row["encrypted"] else ", NOT ENCRYPTED (http)"
        say(f"  {row['host']}: {row['why']}, key from {row['key']}{through}{open_line}{_refused(row)}")
    say("by commands of their own:")
    for row in found["pulls"]:
        say(f"  {row['host']}: {row['why']}{_refused(row)}")
    say(f"reports of libraries to their makers: off ({', '.join(found['telemetry_off'])})")
    say("written down:" if found["written"] else "written down: nothing but the answers that are asked for")
    for row in found["written"]:
        mode = row["mode"] or "not there yet, will be 0600"
        say(f"  {row['what']:<7} {row['path']} ({mode}): {row['holds']}")


def _refused(row: dict[str, Any]) -> str:
    return " (refused: --local-only)" if row["refused"] else ""
