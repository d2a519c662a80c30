"""The program `epicrisis` and its commands.

A start imports the module of the one command that is named, and heavy packages are imported inside its function.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib import import_module
from typing import Annotated, Any

import typer
from typer import Option

from epicrisis import __version__
from epicrisis.cli.command import INTERRUPTED, OK, Command, PlainGroup
from epicrisis.cli.terminal import say

ASK, LIBRARIES, EVALUATE, MODELS, SERVER = "Ask", "Libraries", "Evaluate", "Models and settings", "Server"
COMMANDS: Mapping[str, Mapping[str, str]] = {
    ASK: {"ask": "ask.ask", "search": "ask.search", "plan": "plan.plan"},
    SERVER: {"serve": "serve.serve", "mcp": "serve.mcp"},
    EVALUATE: {
        "evaluate": "evaluate.evaluate",
        "rescore": "evaluate.rescore",
        "sample-size": "evaluate.sample_size",
        "experiment": "experiment.experiment",
        "probe": "experiment.probe",
        "compare": "evaluate.compare",
        "report": "evaluate.report",
        "synthesize-record": "questions.synthesize_record",
    },
    MODELS: {"settings": "models.settings", "doctor": "doctor.doctor"},
}
"""Names of commands by panel, and their functions below `epicrisis.cli`."""
GROUPS: Mapping[str, tuple[str, str, Mapping[str, str]]] = {
    "library": (
        LIBRARIES,
        "Create, fill, inspect and repair libraries of documents.",
        {
            "add": "library_add.add",
            "info": "library.info",
            "list": "library_documents.list_contents",
            "show": "library_documents.show",
            "patients": "library.patients",
            "delete": "library.delete",
            "export": "library_documents.export",
            "check": "library.check",
            "optimize": "library.optimize",
            "copy": "library.copy",
            "repair": "library.repair",
            "forbid-remote": "library.forbid_remote",
            "measure-deidentification": "library.measure_deidentification",
        },
    ),
    "patient": (
        LIBRARIES,
        "Show one patient's record, summarize it, or forget it.",
        {"show": "patient.show", "summary": "patient.summary", "forget": "patient.forget"},
    ),
    "grade": (
        EVALUATE,
        "Grade open answers: by metrics, by models, by people.",
        {
            "run": "grade_run.grade_runs",
            "correctness": "grade.correctness",
            "pairs": "grade.pairs",
            "preference": "grade.preference",
            "verdicts": "grade.verdicts",
            "calibrate": "grade.calibrate",
        },
    ),
    "preflight": (
        EVALUATE,
        "Fit the check that decides whether one prompt is enough.",
        {"calibrate": "calibrate.calibrate"},
    ),
    "calibrate": (
        EVALUATE,
        "Fit the confidence of answers to how often they are right.",
        {"confidence": "calibrate.confidence"},
    ),
    "questions": (
        EVALUATE,
        "List, download and generate question sets.",
        {"list": "questions.list_sets", "pull": "questions.pull", "generate": "questions.generate"},
    ),
    "examples": (
        EVALUATE,
        "Create, fill and inspect libraries of solved questions.",
        {"build": "examples.build", "add": "examples.add", "info": "examples.info"},
    ),
    "users": (
        SERVER,
        "Add, list and remove users of the server.",
        {"add": "access.add", "list": "access.list_users", "remove": "access.remove"},
    ),
    "audit": (
        SERVER,
        "Show and verify the access log of a library or of the server.",
        {"verify": "access.verify", "show": "access.show"},
    ),
    "models": (
        MODELS,
        "List, download and recommend models.",
        {"list": "models.list_models", "pull": "models.pull", "recommend": "models.recommend"},
    ),
    "cache": (
        MODELS,
        "Inspect and clear cached replies of chat models.",
        {"info": "models.info", "clear": "models.clear"},
    ),
}
"""Panel, purpose and commands of each group."""


class LazyCommands(Mapping[str, Any]):
    """Commands by name. Each is imported when it is looked up, since all together take a tenth of a second."""

    def __init__(self, loaders: Mapping[str, Callable[[], Any]]) -> None:
        self._loaders = loaders
        self._commands: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._commands:
            self._commands[name] = self._loaders[name]()
        return self._commands[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._loaders)

    def __len__(self) -> int:
        return len(self._loaders)


def _load_command(name: str, function: str, panel: str | None = None) -> Any:
    module, _, attribute = function.rpartition(".")
    command: Command = getattr(import_module(f"epicrisis.cli.{module}"), attribute)
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")
    command.add_to(app, name, panel)
    return typer.main.get_command(app)


def _make_group(name: str) -> Any:
    panel, purpose, functions = GROUPS[name]
    loaders = {command: partial(_load_command, command, function) for command, function in functions.items()}
    commands: Any = LazyCommands(loaders)
    return PlainGroup(
        name=name,
        commands=commands,
        help=purpose,
        no_args_is_help=True,
        rich_help_panel=panel,
        rich_markup_mode="rich",
    )


class Program(PlainGroup):
    """All commands. Usage errors are one printable line with a hint at the command's help."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        loaders: dict[str, Callable[[], Any]] = {}
        for panel in (ASK, LIBRARIES, EVALUATE, MODELS, SERVER):
            for name, function in COMMANDS.get(panel, {}).items():
                loaders[name] = partial(_load_command, name, function, panel)
            for name, (group_panel, _, _) in GROUPS.items():
                if group_panel == panel:
                    loaders[name] = partial(_make_group, name)
        commands: Any = LazyCommands(loaders)
        self.commands = commands

    def main(self, *args: Any, **options: Any) -> Any:
        """Run the program and exit with its code."""
        try:
            code = super().main(*args, **{**options, "standalone_mode": False})
        except typer.Abort:
            sys.exit(INTERRUPTED)
        except typer.TyperException as error:
            if type(error).__name__ != "NoArgsIsHelpError":  # Raising that one showed the help already.
                context = getattr(error, "ctx", None)
                command = self.name if context is None else context.command_path
                message = error.format_message().replace(": Value error, ", ": ")
                say(f"epicrisis: {message} (see `{command} --help`)", err=True)
            sys.exit(error.exit_code)
        sys.exit(code if isinstance(code, int) else OK)


app = typer.Typer(
    cls=Program,
    name="epicrisis",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Example: epicrisis library add ~/lib papers/   then   epicrisis ask ~/lib 'Does aspirin prevent cancer?'",
)


def _show_version(value: bool) -> None:
    if value:
        say(f"epicrisis {__version__}")
        raise typer.Exit


@app.callback()
def _program(
    version: Annotated[
        bool, Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Answer medical questions from long evidence, with checked quotations. Not a medical device."""


def main() -> None:
    """Run the program."""
    # Plugins of other packages would see all that is validated, and all installed packages are searched for them.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    app(prog_name="epicrisis")
