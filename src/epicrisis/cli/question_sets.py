"""`epicrisis questions`: the question sets that are known by name, and fetching them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from epicrisis.cli import questions_generate
from epicrisis.cli.common import show_json, translated
from epicrisis.cli.options import Config, Json, LocalOnly
from epicrisis.cli.terminal import open_console, say

if TYPE_CHECKING:
    from rich.progress import TaskID

    from epicrisis.settings import Settings

Home = Annotated[
    Path | None, typer.Option("--home", help="Folder of models and question sets, in place of the setting `home`.")
]

group = typer.Typer(no_args_is_help=True, help="List, fetch and make question sets.")


def register(app: typer.Typer) -> None:
    """Adds the command group."""
    questions_generate.register(group)
    app.add_typer(group, name="questions")


@group.command("list", epilog="Example: epicrisis questions list --json")
@translated
def list_(home: Home = None, config: Config = None, json: Json = False) -> None:
    """Every known question set: how many questions, their licence and source, and whether it is here."""
    from epicrisis.evaluation.datasets.catalogue import load_catalogue
    from epicrisis.evaluation.datasets.download import is_downloaded

    folder, sets = _settings(home, config).home, load_catalogue()
    rows = [
        {
            "name": each.name,
            "questions": each.count,
            "split": each.split,
            "here": is_downloaded(each.name, folder, sets=sets),
            "licence": each.licence,
            "sources": [file.url for file in each.files],
            "description": each.description,
        }
        for each in sets.values()
    ]
    if json:
        show_json(rows)
        return
    width = max(map(len, sets))
    for each, row in zip(sets.values(), rows, strict=True):
        state = "here" if row["here"] else "not pulled"
        say(f"{each.name:<{width}} {each.count:>6,} questions  {state:<11} {each.licence}")
        say(f"{'':<{width}} {each.description}")
        for file in each.files:
            say(f"{'':<{width}} {file.url}")


@group.command(epilog="Example: epicrisis questions pull mirage/pubmedqa medq")
@translated
def pull(
    names: Annotated[list[str], typer.Argument(help="Names of `epicrisis questions list`.")],
    home: Home = None,
    config: Config = None,
    local_only: LocalOnly = False,
    json: Json = False,
) -> None:
    """Fetch question sets and check that they hold the pinned questions. What is here is not fetched again."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    from epicrisis.evaluation.datasets import download as pulling
    from epicrisis.evaluation.datasets.catalogue import find_pinned_set, load_catalogue
    from epicrisis.evaluation.datasets.load import FOLDER

    settings, sets = _settings(home, config, local_only), load_catalogue()
    wanted = [find_pinned_set(name, sets) for name in dict.fromkeys(names)]
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with Progress(*columns, console=open_console(stderr=True), disable=json) as bar:
        tasks: dict[str, TaskID] = {}

        def show(file: str, done: int, total: int | None) -> None:
            if file not in tasks:
                tasks[file] = bar.add_task(file)
            bar.update(tasks[file], completed=done, total=total)

        for each in wanted:
            pulling.download_dataset(each.name, settings.home, show, local_only=settings.local_only, sets=sets)
    files = {each.name: [str(settings.home / FOLDER / file.path) for file in each.files] for each in wanted}
    if json:
        show_json({each.name: {"questions": each.count, "files": files[each.name]} for each in wanted})
        return
    for each in wanted:
        say(f"{each.name}: {each.count:,} questions in {', '.join(files[each.name])} ({each.licence})")


def _settings(home: Path | None, config: Path | None, local_only: bool = False) -> Settings:
    from epicrisis.configuration import load_settings

    return load_settings({"home": home, "local_only": local_only or None}, config)
