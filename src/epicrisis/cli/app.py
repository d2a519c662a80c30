"""The program `epicrisis` and its commands. Heavy imports happen inside the commands, so that `--help` is fast."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer
from typer import Option

from epicrisis import __version__
from epicrisis.cli import (
    ask,
    calibrate,
    doctor,
    evaluate,
    examples,
    experiment,
    grade,
    grade_run,
    library,
    library_add,
    library_documents,
    mcp,
    models,
    plan,
    preflight,
    questions,
    serve,
    users,
)
from epicrisis.cli.command import OK, Command, PlainGroup
from epicrisis.cli.interruption import INTERRUPTED
from epicrisis.cli.terminal import say

ASK, LIBRARIES, EVALUATE, MODELS, SERVER = "Ask", "Libraries", "Evaluate", "Models and settings", "Server"


class OneLineErrors(PlainGroup):
    """Commands whose usage errors are one printable line with a hint at the command's help."""

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

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the commands, panel by panel."""
        panels = (ASK, LIBRARIES, EVALUATE, MODELS, SERVER)
        return sorted(
            super().list_commands(ctx),
            key=lambda name: panels.index(getattr(self.commands[name], "rich_help_panel", ASK)),
        )


app = typer.Typer(
    cls=OneLineErrors,
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


COMMANDS: dict[str, tuple[Command, ...]] = {
    ASK: (ask.ask, ask.search, plan.plan),
    SERVER: (serve.serve, mcp.mcp),
    EVALUATE: (
        evaluate.evaluate,
        evaluate.rescore,
        evaluate.sample_size,
        experiment.experiment,
        experiment.probe,
        evaluate.compare,
        evaluate.report,
        questions.synthesize_record,
    ),
    MODELS: (models.settings, doctor.doctor),
}
GROUPS: dict[str, tuple[str, str, tuple[Command, ...]]] = {
    "library": (
        LIBRARIES,
        "Create, fill, inspect and repair libraries of documents.",
        (
            library_add.add,
            library.info,
            library_documents.list_contents,
            library_documents.show,
            library.patients,
            library.delete,
            library_documents.export,
            library.check,
            library.optimize,
            library.repair,
            library.forbid_remote,
        ),
    ),
    "grade": (
        EVALUATE,
        "Grade open answers: by metrics, by models, by people.",
        (grade_run.grade_runs, grade.correctness, grade.pairs, grade.preference, grade.verdicts, grade.calibrate),
    ),
    "preflight": (EVALUATE, "Fit the check that decides whether one prompt is enough.", (preflight.calibrate,)),
    "calibrate": (EVALUATE, "Fit the confidence of answers to how often they are right.", (calibrate.confidence,)),
    "questions": (
        EVALUATE,
        "List, download and generate question sets.",
        (questions.list_sets, questions.pull, questions.generate),
    ),
    "examples": (
        EVALUATE,
        "Create, fill and inspect libraries of solved questions.",
        (examples.build, examples.add, examples.info),
    ),
    "users": (SERVER, "Add, list and remove users of the server.", (users.add, users.list_users, users.remove)),
    "audit": (SERVER, "Verify the access log of the server.", (users.verify,)),
    "models": (MODELS, "List, download and recommend models.", (models.list_models, models.pull, models.recommend)),
    "cache": (MODELS, "Inspect and clear cached replies of chat models.", (models.info, models.clear)),
}
for panel, commands in COMMANDS.items():
    for entry in commands:
        entry.add_to(app, panel)
for group_name, (panel, purpose, commands) in GROUPS.items():
    group = typer.Typer(cls=PlainGroup, no_args_is_help=True, help=purpose)
    # With a callback a group of one command keeps its name.
    group.callback()(lambda: None)
    app.add_typer(group, name=group_name, rich_help_panel=panel)
    for entry in commands:
        entry.add_to(group)


def main() -> None:
    """Run the program."""
    app(prog_name="epicrisis")
