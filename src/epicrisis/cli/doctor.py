"""`epicrisis doctor`: what is installed, which models are here, and what would be contacted."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import typer

from epicrisis.cli.common import show_json, translated
from epicrisis.cli.options import Config, Json, LocalOnly

if TYPE_CHECKING:
    from epicrisis.settings import Settings

PARTS = ("epicrisis", "lancedb", "tantivy", "onnxruntime", "tokenizers", "xllamacpp", "openai", "numpy", "torch")


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(epilog="Example: epicrisis doctor --local-only")(doctor)


@translated
def doctor(config: Config = None, local_only: LocalOnly = False, json: Json = False) -> None:
    """Show what is installed, which models are here, and every host that would be contacted and why."""
    from epicrisis.settings import load

    settings = load({"local_only": local_only or None}, config)
    found = examine(settings)
    if json:
        show_json(found)
        return
    typer.echo(f"Python {found['python']} on {found['system']}, {found['cores']} cores")
    for name, installed in found["packages"].items():
        typer.echo(f"  {name:<12} {installed or 'not installed'}")
    typer.echo(f"models in {found['home']}: {', '.join(found['models']) or 'none (epicrisis models pull minilm)'}")
    for role, name in found["roles"].items():
        typer.echo(f"  {role:<7} {name}")
    contacts = found["contacts"]
    typer.echo("would be contacted:" if contacts else "would be contacted: nothing beyond this machine")
    for row in contacts:
        typer.echo(f"  {row['host']}: {row['why']}{' (refused: --local-only)' if row['refused'] else ''}")


def examine(settings: Settings) -> dict[str, Any]:
    """All that `doctor` tells. Contacts nothing."""
    from epicrisis.models.pull import installed
    from epicrisis.settings import ROLES

    return {
        "python": platform.python_version(),
        "system": platform.system(),
        "cores": os.cpu_count(),
        "packages": {name: _version(name) for name in PARTS},
        "home": str(settings.home),
        "models": [model.name for model in installed(settings.home)],
        "roles": {role: settings.model_for(role).name for role in ROLES},
        "local_only": settings.local_only,
        "contacts": _contacts(settings),
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _contacts(settings: Settings) -> list[dict[str, Any]]:
    """Hosts beyond this machine that a question could reach; `models pull` is a command of its own."""
    from epicrisis.privacy import is_local
    from epicrisis.settings import ROLES

    asked = {f"the {role} model": settings.model_for(role).name for role in ROLES}
    asked["the reranker"] = settings.rerank.name or ""
    rows = []
    for why, name in asked.items():
        url = urlsplit(name)
        if url.scheme in ("http", "https") and not is_local(url.hostname):
            rows.append({"host": url.hostname, "why": why, "refused": settings.local_only})
    return rows
