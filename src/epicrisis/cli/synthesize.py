"""`epicrisis synthesize-record`: fictional patient records with questions whose answers and places are known."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from epicrisis.cli.common import show_json, translated
from epicrisis.cli.options import Json
from epicrisis.cli.terminal import say


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(
        "synthesize-record",
        epilog="Examples: epicrisis synthesize-record -o records/ --patients 10 --tokens 128000   |   "
        "epicrisis synthesize-record -o records/ --patients 25 --tokens-spread 4000,8000,16000,32000,128000",
    )(synthesize)


@translated
def synthesize(
    output: Annotated[Path, typer.Option("-o", "--output", help="New folder for notes.csv and questions.jsonl.")],
    patients: Annotated[int, typer.Option("--patients", min=1, max=999, help="Patients, one record each.")] = 10,
    tokens: Annotated[
        int, typer.Option("--tokens", help="Length of each record in tokens, about; from 4,000.")
    ] = 128_000,
    tokens_spread: Annotated[
        str | None,
        typer.Option("--tokens-spread", help="Several lengths, from 4,000, with commas; patients take them in turn."),
    ] = None,
    stays: Annotated[
        int | None, typer.Option("--stays", min=1, help="Stays of each patient (default: more for longer records).")
    ] = None,
    questions_each: Annotated[
        int, typer.Option("--questions-each", min=0, help="Questions of each patient; kinds and forms in turn.")
    ] = 21,
    seed: Annotated[int, typer.Option("--seed", help="Another seed makes other records.")] = 0,
    json: Json = False,
) -> None:
    """Write fictional patient records of any length, with questions whose answers and places are known.

    Nothing in them is of a real person, and every note says so. The same options make the same files. Lengths are
    estimated without a model; what a model counts comes within a tenth where it reads numbers digit by digit.
    """
    from epicrisis.evaluation.synthesis.patient_records.record_files import write_records

    lengths = _lengths(tokens_spread) if tokens_spread is not None else [tokens]
    made = write_records(output, patients, lengths, stays, seed, questions_each)
    if json:
        show_json({"output": str(output), "seed": seed, "records": made})
        return
    for each in made:
        say(
            f"{each.patient}: {each.stays} stays, {each.notes} notes, {each.characters} characters, "
            f"about {each.tokens} tokens, {each.questions} questions"
        )
    short = sum(each.questions < questions_each for each in made)
    if short:
        say(f"{short} records give fewer than {questions_each} questions of known answer; longer ones give more")
    say(f"in {output}: notes.csv, questions.jsonl, README.md (all fictional)")


def _lengths(spread: str) -> list[int]:
    """Raises InputError where they are not whole numbers with commas between them."""
    from epicrisis.errors import InputError

    try:
        return [int(each) for each in spread.split(",")]
    except ValueError:
        raise InputError("--tokens-spread is none: write whole numbers with commas, such as 4000,8000,16000") from None
