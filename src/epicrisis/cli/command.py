"""One way to declare a command: shared options, examples in its help, and errors as one line with an exit code.

    @command(*SEARCH, examples=['epicrisis search ~/lib "aspirin" -k 5'])
    def search(library: LibraryPath, query: str, *, flags: Flags, json: Json = False) -> None:
        settings = flags.settings()

A command with a parameter `flags` gets the shared options it names, and reads its settings from them. `app.py` puts the
commands together.
"""

from __future__ import annotations

import functools
import inspect
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from epicrisis.cli.terminal import say
from epicrisis.core.errors import EpicrisisError, InputError
from epicrisis.core.printable import has_surrogate, printable

if TYPE_CHECKING:
    from epicrisis.settings.settings import Settings

OK = 0
ERROR = 2
"""Exit code for bad input, or incomplete work: part of it failed and can be done again."""


@dataclass(frozen=True, slots=True)
class SharedOption:
    """An option that several commands have, and the key of the settings it sets."""

    parameter: str
    key: str
    kind: Any
    option: Any
    default: Any = None
    """False for a switch, which can turn a setting on but not off."""


@dataclass(frozen=True, slots=True)
class Flags:
    """Values of the shared options of one call."""

    values: Mapping[str, Any]
    """Nested like the settings. None where an option was not given."""
    config: Path | None = None

    def with_values(self, values: Mapping[str, Any]) -> Flags:
        """Return flags with `values`, nested like the settings, in addition."""
        from epicrisis.settings.configuration import merge_tables

        return Flags(merge_tables(self.values, values), self.config)

    def settings(
        self, changes: Mapping[str, Any] | None = None, *, defaults: Mapping[str, Any] | None = None
    ) -> Settings:
        """Return the settings: `defaults`, file, environment, the options of this call, and last `changes`.

        A value of None changes nothing. Spans are sent from here on if the environment names a collector. Raises
        SettingsError for an unknown key, a value out of range, or a collector that cannot be used.
        """
        from epicrisis.settings.configuration import load_settings, merge_tables
        from epicrisis.system.telemetry import start

        settings = load_settings(merge_tables(merge_tables(defaults or {}, self.values), changes or {}), self.config)
        start(local_only=settings.local_only)
        return settings


@dataclass(frozen=True, slots=True)
class Command:
    """A command of the program."""

    function: Callable[..., None]
    shared: tuple[SharedOption, ...]
    examples: Sequence[str]

    def add_to(self, app: typer.Typer, name: str, panel: str | None = None) -> None:
        """Add the command to `app`. Errors of the program end it with one line on standard error and an exit code."""
        callback = _with_one_line_errors(_with_shared_options(self.function, self.shared))
        # The lines of a paragraph are joined, so that the help fits terminals of any width.
        paragraphs = [" ".join(part.split()) for part in (inspect.getdoc(self.function) or "").split("\n\n")]
        epilog = "\n\n".join(["Examples:" if len(self.examples) > 1 else "Example:", *self.examples])
        help_text = "\n\n".join(paragraphs)
        app.command(name, cls=PlainCommand, help=help_text, epilog=epilog, rich_help_panel=panel)(callback)


class _WithPlainSwitches:
    """A help that shows switches without the type `<bool>`, since they take no value."""

    def get_params(self, ctx: Any) -> Any:
        """Return the parameters, with the help option."""
        parameters = super().get_params(ctx)  # type: ignore[misc]
        for parameter in parameters:
            if getattr(parameter, "is_flag", False) and parameter.metavar is None:
                parameter.metavar = ""
        return parameters


class PlainCommand(_WithPlainSwitches, TyperCommand):
    """A command with plain switches in its help."""


class PlainGroup(_WithPlainSwitches, TyperGroup):
    """A group of commands with plain switches in its help."""


def command(*shared: SharedOption, examples: Sequence[str]) -> Callable[[Callable[..., None]], Command]:
    """Return a decorator that makes a function a command with `shared` options and `examples` in its help."""
    return lambda function: Command(function, shared, examples)


def _take_options(
    shared: Sequence[SharedOption], arguments: dict[str, Any]
) -> tuple[dict[str, Any], Path | None, Sequence[str]]:
    """Remove the shared options from the arguments. Return their nested settings, the file, and the overrides."""
    nested: dict[str, Any] = {}
    config, overrides = None, ()
    for option in shared:
        value = arguments.pop(option.parameter)
        if option.parameter == "config":
            config = value
        elif option.parameter == "setting":
            overrides = value or ()
        else:
            *tables, key = option.key.split(".")
            table = nested
            for part in tables:
                table = table.setdefault(part, {})
            table[key] = None if value is False and option.default is False else value
    return nested, config, overrides


def _with_shared_options(function: Callable[..., None], shared: Sequence[SharedOption]) -> Callable[..., None]:
    """Return `function` with its parameter `flags` replaced by the shared options."""
    signature = inspect.signature(function)
    if "flags" not in signature.parameters:
        return function
    hints = get_type_hints(function, include_extras=True)
    parameters = []
    for parameter in signature.parameters.values():
        if parameter.name == "flags":
            for option in shared:
                annotation = Annotated[option.kind, option.option]  # type: ignore[name-defined]
                parameters.append(
                    inspect.Parameter(
                        option.parameter, parameter.KEYWORD_ONLY, default=option.default, annotation=annotation
                    )
                )
        else:
            keyword = parameter.replace(kind=parameter.KEYWORD_ONLY, annotation=hints[parameter.name])
            parameters.append(keyword)

    @functools.wraps(function)
    def run(**arguments: Any) -> None:
        from epicrisis.settings.configuration import (
            explain_unknown_variables,
            find_folder_file,
            merge_tables,
            parse_overrides,
        )

        nested, config, overrides = _take_options(shared, arguments)
        if folder_file := find_folder_file(config):
            say(f"note: the settings in {folder_file} of this folder are used", err=True)
        for line in explain_unknown_variables():
            say(f"warning: {line}", err=True)
        function(flags=Flags(merge_tables(nested, parse_overrides(overrides)), config), **arguments)

    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _with_one_line_errors(function: Callable[..., None]) -> Callable[..., None]:
    """Return `function` with errors of the program, Ctrl-C, SIGTERM and a closed pipe turned into an exit code."""

    @functools.wraps(function)
    def run(**arguments: Any) -> None:
        with sigterm_as_interrupt():
            run_once(arguments)

    def run_once(arguments: Mapping[str, Any]) -> None:
        try:
            for name, value in arguments.items():
                for text in value if isinstance(value, list | tuple) else [value]:
                    # A path may hold any bytes.
                    if isinstance(text, str) and has_surrogate(text):
                        raise InputError(
                            f"{name} is not valid UTF-8: type it again in a terminal whose encoding is UTF-8"
                        )
            function(**arguments)
        except EpicrisisError as error:
            fail(error.message, error.exit_code)
        except KeyboardInterrupt:
            fail("stopped. What was saved is kept; the same command continues from there.", exit_code())
        except BrokenPipeError:
            sys.stderr.close()
            raise typer.Exit(0) from None

    return run


def fail(message: str, code: int = ERROR) -> NoReturn:
    """Write one line to standard error, and exit with `code`."""
    say(f"epicrisis: {' '.join(printable(message).split())}", err=True)
    raise typer.Exit(code) from None


INTERRUPTED = 130
"""Exit code for Ctrl-C. Everything saved until then is kept."""
TERMINATED = 143
"""Exit code for SIGTERM, which a service manager, a batch system or a closed container sends."""

_received: set[int] = set()


def exit_code() -> int:
    """Return the exit code of a command that was stopped: 143 after SIGTERM, else 130."""
    return TERMINATED if signal.SIGTERM in _received else INTERRUPTED


@contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
    """Treat SIGTERM like Ctrl-C during the block.

    The current handler of Ctrl-C receives it: asyncio's cancels its tasks first, for example. Programs with a handler
    of SIGTERM, and threads other than the main one, are not changed.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        _received.add(number)
        handler = signal.getsignal(signal.SIGINT)
        if not callable(handler):
            # A shell starts its background jobs with Ctrl-C ignored. SIGTERM is not.
            handler = signal.default_int_handler
        handler(signal.SIGINT, frame)

    signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        _received.clear()
