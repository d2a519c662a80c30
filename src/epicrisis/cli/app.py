"""The program `epicrisis` and its commands. Heavy imports wait inside the commands, so that `--help` is fast."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from epicrisis.cli import (
    ask,
    cache,
    compare,
    doctor,
    evaluate,
    examples,
    experiment,
    library,
    measure,
    models,
    open_ended,
    patients,
    plan,
    preflight,
    probe,
    question_sets,
    report,
    search,
    synthesize,
)
from epicrisis.printable import printable


class PrintableErrors(TyperGroup):
    """The commands, with what a wrong argument repeats of itself made printable."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command. Raises typer's own errors with a printable message."""
        try:
            return super().invoke(ctx)
        except typer.TyperException as error:
            if isinstance(message := getattr(error, "message", None), str):
                error.message = printable(message)
            raise


app = typer.Typer(
    cls=PrintableErrors,
    name="epicrisis",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help=(
        "Answers medical questions from long evidence, wherever in the pile the key sentence lay. Not a medical device."
    ),
)


for _command in (
    library,
    patients,
    search,
    ask,
    plan,
    evaluate,
    experiment,
    compare,
    report,
    probe,
    preflight,
    question_sets,
    synthesize,
    open_ended,
    measure,
    examples,
    cache,
    models,
    doctor,
):
    _command.register(app)


def main() -> None:
    """The entry point."""
    app(prog_name="epicrisis")
