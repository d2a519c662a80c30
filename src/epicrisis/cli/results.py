"""`epicrisis compare` and `report`: finished runs side by side, and as a page."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

import typer

from epicrisis.cli.command import command
from epicrisis.cli.options import Json
from epicrisis.cli.terminal import say, show_data, show_findings
from epicrisis.errors import InputError, StorageError
from epicrisis.privacy import open_private

Runs = Annotated[list[Path], typer.Argument(metavar="RUN", help="Folders of runs, or files of answers (`ask --file`).")]


@command(
    examples=[
        "epicrisis compare runs/rag runs/brief-context",
        "epicrisis compare before.jsonl after.jsonl --measure right-of-answered",
    ]
)
def compare(
    runs: Runs,
    measure: Annotated[
        Literal["right", "right-of-answered"],
        typer.Option(help="Correct among all questions that did not fail, or among those with a choice."),
    ] = "right",
    ascii_only: Annotated[bool, typer.Option("--ascii", help="Draw with ASCII characters.")] = False,
    json: Json = False,
) -> None:
    """Compare runs question by question: accuracy, paired differences, and conclusions.

    Each run is compared with each run named before it. If two runs differ in more than one setting, this is shown,
    because no difference can then be attributed to one of them.
    """
    from epicrisis.evaluation.analysis.run_comparison import compare_run_files

    if len(runs) < 2:
        raise InputError("a comparison needs two or more runs")
    comparison = compare_run_files(runs, measure=measure)
    if json:
        show_data(comparison)
    else:
        show_findings(comparison, ascii_only=ascii_only, with_intervals=True)


@command(
    examples=[
        "epicrisis report runs/positions -o report.html",
        "epicrisis report runs/* -o report.html --no-plots",
    ]
)
def report(
    runs: Runs,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", help="File of the page. An existing report is overwritten, other files are not."
        ),
    ] = None,
    plots: Annotated[bool, typer.Option("--plots/--no-plots", help="Draw plots (needs the extra `report`).")] = True,
    title: Annotated[str, typer.Option(help="Title of the page.")] = "Report of experiments",
    json: Json = False,
) -> None:
    """Write one HTML page about finished runs: tables, plots with their data, and the papers' figures.

    The page works offline, without JavaScript, and on paper. Runs of one experiment share their tables; `preflight`
    has a section for each library. No model is called.
    """
    from epicrisis.evaluation.experiments.run_findings import read_findings

    if output is None and not json:
        raise InputError("name the page with -o report.html, or add --json")
    if output is not None:
        _check_output(output)
    findings = read_findings(runs)
    if output is not None:
        from epicrisis.report.page import render_page

        _write(output, render_page(findings, title, plots=plots))
    if json:
        show_data(findings)
    elif output is not None:
        say(f"{len(findings)} experiment{'s' if len(findings) != 1 else ''} written to {output}")


def _check_output(path: Path) -> None:
    """Raise InputError if the page cannot be written there."""
    from epicrisis.report.page import GENERATOR

    if not path.parent.is_dir():
        raise InputError(f"{path.parent} is not a folder: choose a file in an existing folder")
    if not path.exists():
        return
    if path.is_file():
        with path.open(encoding="utf-8", errors="replace") as file:
            if GENERATOR in file.read(2_000):
                return
    raise InputError(f"{path} exists and is not a report of this program: choose another file")


def _write(path: Path, text: str) -> None:
    """Write the file completely or not at all, readable by its owner only. Raises StorageError."""
    temporary = path.with_name(f".{path.name}.new")
    try:
        descriptor = open_private(temporary, os.O_WRONLY | os.O_TRUNC)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror}; make room, or choose another file") from error
    finally:
        temporary.unlink(missing_ok=True)
