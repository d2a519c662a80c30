"""`epicrisis calibrate confidence`: the confidence of answers fitted to how often they are right."""

from __future__ import annotations

import json as json_format
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from epicrisis.cli.command import command
from epicrisis.cli.options import Json, output_option
from epicrisis.cli.terminal import say, show_data, show_tables
from epicrisis.core.errors import InputError, StorageError
from epicrisis.core.printable import quote_for_shell

if TYPE_CHECKING:
    from epicrisis.answering.confidence import ConfidenceCalibration
    from epicrisis.evaluation.analysis.confidence_calibration import CalibrationFit


@command(
    examples=[
        "epicrisis calibrate confidence --file runs/bc",
        "epicrisis calibrate confidence --file answers.jsonl -o ~/lib-confidence.json",
    ]
)
def confidence(
    file: Annotated[
        Path,
        Option("--file", help="Answers to questions with a gold letter: a file of `epicrisis ask --file`, or a run."),
    ],
    output: Annotated[
        Path | None, output_option(help="File of the calibration. Default: confidence.json beside the answers.")
    ] = None,
    json: Json = False,
) -> None:
    """Fit the confidence of answers to how often they are right. No chat model is called.

    Compares the error of the confidence as a probability before and after the fit, on questions that it has not seen.
    Answers by the same strategy and models show the fitted value if the setting `calibration` names the file.
    """
    from epicrisis.evaluation.analysis.confidence_calibration import calibrate_confidence, make_calibration_table
    from epicrisis.evaluation.runs.recorded_run import open_runs, refuse_mismatched_records

    _refuse_questions(file)
    path = output or (file if file.is_dir() else file.parent) / "confidence.json"
    with refuse_mismatched_records([file]):
        (run,) = open_runs([file])
        fit = calibrate_confidence(run)
        table = make_calibration_table(fit, str(file))
    _write(path, fit.calibration)
    if json:
        show_data({"calibration": fit.calibration, "output": str(path), "tables": [table]})
        return
    show_tables([table], _conclude(fit))
    say()
    say(f"written to {path}; answers show it with --setting {quote_for_shell(f'calibration={path}')}")


def _refuse_questions(file: Path) -> None:
    """Raise InputError, with the command to run first, for a file of questions without answers."""
    if not file.is_file():
        return
    try:
        with file.open(encoding="utf-8") as lines:
            first = json_format.loads(next(lines, "null"))
    except (OSError, ValueError, RecursionError):
        return  # The reader of records says what is wrong.
    if isinstance(first, dict) and "text" in first and "answer" not in first:
        raise InputError(
            f"{file} holds questions without answers: answer them first with `epicrisis ask LIBRARY --file {file} "
            "-o answers.jsonl`, then name answers.jsonl here"
        )


def _conclude(fit: CalibrationFit) -> list[str]:
    from epicrisis.evaluation.analysis.confidence_calibration import squared_errors

    sentences: list[str] = []
    if fit.calibration.slope < 0:
        sentences.append("The more confident answers were less often right: do not rely on this confidence.")
    after, alone = (sum(squared_errors(fit.answers, values)) for values in (fit.held_out, fit.base_rates))
    if after >= alone:
        sentences.append(
            "Held out, the calibrated confidence predicts no better than the share right alone: it does not tell right "
            "from wrong answers here."
        )
    return sentences


def _write(path: Path, calibration: ConfidenceCalibration) -> None:
    from epicrisis.core.serialization import to_json

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json_format.dumps(to_json(calibration), indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise StorageError(f"{path} cannot be written ({error.strerror}): name another file with -o") from error
