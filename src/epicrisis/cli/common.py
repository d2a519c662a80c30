"""What the commands share: options, and the one table from errors to exit codes."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NoReturn, ParamSpec, TypeVar

import typer

from epicrisis.errors import EpicrisisError
from epicrisis.plain import to_json
from epicrisis.types import Remedy

P = ParamSpec("P")
T = TypeVar("T")

Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines instead of text.")]
LocalOnly = Annotated[bool, typer.Option("--local-only", help="Refuse every connection that leaves this machine.")]
Config = Annotated[Path | None, typer.Option("--config", help="Settings file (TOML) to use.")]
EncoderName = Annotated[str | None, typer.Option("--encoder", help="Encoder: a catalogue name or a folder.")]

AsOf = Annotated[str | None, typer.Option("--as-of", help="Hide what may be newer than this date (YYYY[-MM[-DD]]).")]
Since = Annotated[str | None, typer.Option("--since", help="Only what may have appeared since this date.")]
Types = Annotated[list[str] | None, typer.Option("--type", help="Only this publication type (repeat for more).")]
Journals = Annotated[list[str] | None, typer.Option("--journal", help="Only this journal (repeat for more).")]
Without = Annotated[list[str] | None, typer.Option("--without", help="Leave out: `retracted`.")]
Hide = Annotated[list[str] | None, typer.Option("--hide", help="Hide this document id (repeat for more).")]
Rerank = Annotated[str | None, typer.Option("--rerank", help="Score the hits anew: a reranker's name, folder or URL.")]
RerankDepth = Annotated[int | None, typer.Option("--rerank-depth", help="Hits that the reranker scores.")]
LongQuestions = Annotated[
    Remedy | None, typer.Option("--long-questions", help="What is done with a question longer than the encoder reads.")
]
Fuse = Annotated[
    list[Path] | None,
    typer.Option("--fuse", help="Fuse with this library of the same passages by another encoder (repeat for more)."),
]
RrfK = Annotated[int | None, typer.Option("--rrf-k", help="The constant of reciprocal rank fusion.")]

INTERRUPTED = 130


def translated(command: Callable[P, T]) -> Callable[P, T]:
    """Errors of the tree become one line on standard error and their exit code; Ctrl-C says what is kept."""

    @functools.wraps(command)
    def run(*arguments: P.args, **named: P.kwargs) -> T:
        try:
            return command(*arguments, **named)
        except EpicrisisError as error:
            fail(error.message, error.exit_code)
        except KeyboardInterrupt:
            fail("stopped. What was saved is kept; the same command goes on from there.", INTERRUPTED)
        except BrokenPipeError:
            sys.stderr.close()
            raise typer.Exit(0) from None

    return run


def scope_flags(
    as_of: str | None, since: str | None, types: list[str] | None, journals: list[str] | None,
    without: list[str] | None, hide: list[str] | None,
) -> dict[str, Any]:  # fmt: skip
    """The options of a scope as settings."""
    return {
        "as_of": as_of, "since": since, "types": types or None, "journals": journals or None,
        "without": without or None, "hide": hide or None,
    }  # fmt: skip


def fail(message: str, code: int) -> NoReturn:
    """Ends the command with one line on standard error."""
    typer.echo(f"epicrisis: {' '.join(message.split())}", err=True)
    raise typer.Exit(code) from None


def show_json(value: object) -> None:
    """Any value of the library as JSON on standard output."""
    typer.echo(json.dumps(to_json(value), ensure_ascii=False, indent=2))
