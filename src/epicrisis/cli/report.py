"""`epicrisis report`: finished runs as one page to read, offline or on paper."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from epicrisis.cli.common import translated
from epicrisis.cli.options import Json
from epicrisis.cli.tables import show_data
from epicrisis.cli.terminal import say


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(
        epilog="Examples: epicrisis report runs/positions -o report.html   |   "
        "epicrisis report runs/* -o report.html --no-plots"
    )(report)


@translated
def report(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN", help="Folders of runs, or files of answers (ask --file).")
    ],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="The page. A file that is there is overwritten if it is such a page."),
    ] = None,
    plots: Annotated[bool, typer.Option("--plots/--no-plots", help="Plots need the extra `report`.")] = True,
    title: Annotated[str, typer.Option(help="Of the page.")] = "Report of experiments",
    json: Json = False,
) -> None:
    """Make one HTML page of finished runs: tables, plots with their data, and what the papers print.

    It works offline, without JavaScript and on paper. Runs of one experiment stand in the same tables, but for
    `preflight`, which has a section for each library. No model is asked.
    """
    from epicrisis.errors import InputError
    from epicrisis.evaluation.experiments.run_findings import read_findings

    if output is None and not json:
        raise InputError("name the page with -o report.html, or give --json")
    if output is not None:
        _check(output)
    findings = read_findings(runs)
    if output is not None:
        from epicrisis.report.page import render_page

        _write(output, render_page(findings, title, plots=plots))
    if json:
        show_data(findings)
    elif output is not None:
        say(f"{len(findings)} experiment{'s' if len(findings) != 1 else ''} written to {output}")


def _check(path: Path) -> None:
    """Before anything is computed. Raises InputError where the page cannot be put there."""
    from epicrisis.errors import InputError
    from epicrisis.report.page import GENERATOR

    if not path.parent.is_dir():
        raise InputError(f"{path.parent} is no folder: name a file in one that is there")
    if path.exists() and not (path.is_file() and GENERATOR in _beginning(path)):
        raise InputError(f"{path} is there and is no page of this program: name another file")


def _beginning(path: Path) -> str:
    with path.open(encoding="utf-8", errors="replace") as file:
        return file.read(2_000)


def _write(path: Path, text: str) -> None:
    """Whole or not at all. Raises StorageError."""
    from epicrisis.errors import StorageError
    from epicrisis.privacy import open_private

    new = path.with_name(f".{path.name}.new")
    try:
        # Of its owner alone: failures and findings tell of patients.
        descriptor = open_private(new, os.O_WRONLY | os.O_TRUNC)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror}; make room, or name another file") from error
    finally:
        new.unlink(missing_ok=True)
