"""`epicrisis models`: what can be had, what is here, and fetching it."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from epicrisis.cli.common import show_json, translated
from epicrisis.cli.options import Config, Json, LocalOnly
from epicrisis.cli.terminal import open_console, say

models = typer.Typer(no_args_is_help=True, help="List and fetch the models of the catalogue.")


def register(app: typer.Typer) -> None:
    """Adds the command group."""
    app.add_typer(models, name="models")


@models.command("list", epilog="Example: epicrisis models list --json")
@translated
def list_(config: Config = None, json: Json = False) -> None:
    """Every model of the catalogue: its kind, size, licence, and whether it is here."""
    from epicrisis.configuration import load_settings
    from epicrisis.models.catalogue import load_catalogue
    from epicrisis.models.model_download import list_installed_models

    here = {model.name for model in list_installed_models(load_settings({}, config).home)}
    rows: list[dict[str, Any]] = [
        {
            "name": model.name,
            "kind": model.kind,
            "here": model.name in here,
            "bytes": model.bytes or None,
            "pinned": not model.unpinned,
            "licence": model.licence,
            "description": model.description,
        }
        for model in load_catalogue().values()
    ]
    if json:
        show_json(rows)
        return
    for row in rows:
        state = "here" if row["here"] else "not pulled"
        size = "unpinned" if row["bytes"] is None else f"{row['bytes'] / 1e6:.0f} MB"
        say(f"{row['name']:<22} {row['kind']:<13} {size:>10}  {state:<11} {row['licence']}")
        say(f"{'':<22} {row['description']}")
    say("unpinned: fetched from the hub as it is there; hashes are recorded at the first pull and kept to")


@models.command(epilog="Example: epicrisis models pull minilm smollm2-135m")
@translated
def pull(
    names: Annotated[list[str], typer.Argument(help="Names of the catalogue.")],
    config: Config = None,
    local_only: LocalOnly = False,
    json: Json = False,
) -> None:
    """Fetch models and check their sha256. What is here already is not fetched again."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    from epicrisis.configuration import load_settings
    from epicrisis.models import model_download as pulling
    from epicrisis.models.catalogue import get_pinned_model, load_catalogue

    settings = load_settings({"local_only": local_only or None}, config)
    for name in names:
        get_pinned_model(name, load_catalogue())
    folders = {}
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with Progress(*columns, console=open_console(stderr=True), disable=json) as bar:
        for name in names:
            task = bar.add_task(name, total=None)

            def show(done: int, total: int, task: object = task) -> None:
                bar.update(task, completed=done, total=total)  # type: ignore[arg-type]

            folders[name] = str(pulling.pull_model(name, settings.home, show, local_only=settings.local_only))
    if json:
        show_json(folders)
    else:
        for name, folder in folders.items():
            say(f"{name}: {folder}")
