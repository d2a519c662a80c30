"""`epicrisis library`: add to one, look at one, mend one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from epicrisis.cli.common import Config, EncoderName, Json, LocalOnly, fail, show_json, translated

if TYPE_CHECKING:
    from epicrisis.corpus.reading import Skipped
    from epicrisis.library.ingest import IngestReport
    from epicrisis.library.library import Library
    from epicrisis.seams import Encoder
    from epicrisis.types import Document

library = typer.Typer(no_args_is_help=True, help="Make, fill, look at and mend libraries.")

SKIPPED = 2
LibraryPath = Annotated[Path, typer.Argument(help="The library's folder.")]


def register(app: typer.Typer) -> None:
    """Adds the command group."""
    app.add_typer(library, name="library")


@library.command(epilog="Example: epicrisis library add ~/lib papers/*.jsonl notes/")
@translated
def add(
    path: LibraryPath,
    sources: Annotated[list[Path], typer.Argument(help="JSONL files, text or Markdown files and folders.")],
    format: Annotated[str | None, typer.Option(help="Take every source as this format.")] = None,
    overlap: Annotated[int, typer.Option(min=0, help="Tokens neighbouring passages share (new libraries).")] = 32,
    encoder: EncoderName = None,
    config: Config = None,
    local_only: LocalOnly = False,
    json: Json = False,
) -> None:
    """Add documents; a new library is made, unchanged documents cost nothing, changed ones are replaced.

    Interrupted, the same command goes on where it stopped.
    """
    from epicrisis.corpus.reading import read
    from epicrisis.library.ingest import add_documents, open_or_create
    from epicrisis.pipeline import DEFAULT_ENCODER, encoder_for
    from epicrisis.privacy import set_local_only
    from epicrisis.settings import load

    settings = load({"encoder": encoder, "local_only": local_only or None}, config)
    set_local_only(settings.local_only)
    items = _begun(read(sources, format))
    used = encoder_for(settings, path.expanduser())
    with open_or_create(path.expanduser(), used, settings.encoder or DEFAULT_ENCODER, overlap) as opened:
        report = add_documents(opened, items, used) if json else _with_progress(opened, items, used)
    _tell(report, json)


def _begun(items: Iterator[Document | Skipped]) -> Iterator[Document | Skipped]:
    """The same items, the first one read already: wrong arguments are told before a library is made."""
    first = next(items, None)
    return chain(() if first is None else (first,), items)


def _with_progress(opened: Library, items: Iterator[Document | Skipped], encoder: Encoder) -> IngestReport:
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from epicrisis.library.ingest import add_documents

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("Adding", total=None)
        return add_documents(
            opened,
            items,
            encoder,
            on_progress=lambda now: bar.update(
                task,
                description=f"Adding: {now.documents} documents read, {now.added + now.replaced} saved, "
                f"{now.unchanged} unchanged, {now.passages} passages",
            ),
        )


def _tell(report: IngestReport, json: bool) -> None:
    if json:
        show_json(report)
    else:
        typer.echo(
            f"{report.added} documents added, {report.replaced} replaced, {report.unchanged} unchanged, "
            f"{report.skipped} skipped; {report.passages} passages in {report.seconds:.1f} s"
        )
    for item in report.first_skipped:
        place = ", ".join(part for part in (item.path, item.where) if part)
        typer.echo(f"epicrisis: {place}: {item.reason}", err=True)
    if report.skipped:
        fail(f"{report.skipped} items were skipped, the first ones named above; all others are saved", SKIPPED)


@library.command(epilog="Example: epicrisis library info ~/lib --json")
@translated
def info(path: LibraryPath, json: Json = False) -> None:
    """What is in a library, how it was encoded, and whether it is sound."""
    from epicrisis.library.library import Library

    with Library.open(path.expanduser()) as opened:
        found = opened.info()
    if json:
        show_json(found)
    else:
        made = found.manifest
        typer.echo(f"{path}: {found.documents} documents, {found.passages} passages")
        typer.echo(f"encoder: {made.encoder_name} ({made.dimensions} dimensions), {made.encoder_fingerprint}")
        typer.echo(f"passages of up to {made.max_tokens} tokens, {made.overlap} shared by neighbours")
        sizes = ", ".join(f"{name} {size / 1e6:.1f} MB" for name, size in found.bytes_on_disk.items())
        typer.echo(f"on disk: {sizes}")
        if found.open_batches:
            typer.echo("a writer is at work, or was stopped: the next `epicrisis library add` settles what it left")
        typer.echo("NOT SOUND" if found.problems else "sound")
    if found.problems:
        fail("; ".join(found.problems), SKIPPED)


@library.command(epilog="Example: epicrisis library repair ~/lib")
@translated
def repair(path: LibraryPath, json: Json = False) -> None:
    """Make the word index and the list of documents anew from the passages."""
    from epicrisis.library.library import Library

    found = Library.repair(path.expanduser())
    if json:
        show_json(found)
    else:
        typer.echo(f"mended: {found.documents} documents, {found.passages} passages")
    if found.problems:
        fail("; ".join(found.problems), SKIPPED)
