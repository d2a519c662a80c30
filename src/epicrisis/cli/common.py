"""What the commands share: the one table from errors to exit codes, and output for machines."""

from __future__ import annotations

import functools
import json
import re
import sys
from collections.abc import Callable, Mapping
from typing import NoReturn, ParamSpec, TypeVar

import typer

from epicrisis.cli.terminal import say, say_text
from epicrisis.errors import EpicrisisError, InputError
from epicrisis.printable import has_surrogate, printable, printable_json
from epicrisis.serialization import to_json

P = ParamSpec("P")
T = TypeVar("T")

INTERRUPTED = 130


def translated(command: Callable[P, T]) -> Callable[P, T]:
    """Errors of the tree become one line on standard error and their exit code; Ctrl-C says what is kept."""

    @functools.wraps(command)
    def run(*arguments: P.args, **named: P.kwargs) -> T:
        try:
            _check_texts(dict(named))
            return command(*arguments, **named)
        except EpicrisisError as error:
            fail(error.message, error.exit_code)
        except KeyboardInterrupt:
            fail("stopped. What was saved is kept; the same command goes on from there.", INTERRUPTED)
        except BrokenPipeError:
            sys.stderr.close()
            raise typer.Exit(0) from None

    return run


def _check_texts(values: Mapping[str, object]) -> None:
    """Raise InputError for a text that is not valid UTF-8. A path may hold any bytes."""
    for name, value in values.items():
        texts = value if isinstance(value, list | tuple) else [value]
        if any(isinstance(text, str) and has_surrogate(text) for text in texts):
            raise InputError(f"{name} is not valid UTF-8: type it again in a terminal whose encoding is UTF-8")


def plain_name(name: str) -> str:
    """A name as part of a file's: letters, digits and dots, and hyphens for all else."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-")


def fail(message: str, code: int) -> NoReturn:
    """Ends the command with one line on standard error."""
    say(f"epicrisis: {' '.join(printable(message).split())}", err=True)
    raise typer.Exit(code) from None


def show_json(value: object) -> None:
    """Print any value of the library as JSON; what a terminal would obey is escaped, so that it stays the same data."""
    say_text(printable_json(json.dumps(to_json(value), ensure_ascii=False, indent=2)))
