"""Finished runs as a pandas DataFrame, for analyses of your own.

frame = epicrisis.runs_to_dataframe("runs/rag", "runs/brief-context")
frame.groupby("run")["right"].mean()
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from epicrisis.core.errors import ModelMissing
from epicrisis.evaluation.runs.outcomes import score_record
from epicrisis.evaluation.runs.recorded_run import open_runs
from epicrisis.system.local_only import local_path

if TYPE_CHECKING:
    import pandas


def runs_to_dataframe(*paths: Path | str) -> pandas.DataFrame:
    """Return one row per question and arm of the runs, which are folders or files of answers.

    Columns: run, question (its id), question_key (cases of one question share it), strategy, state, choice and gold
    (letters), right (None if the case cannot be scored), prompt_tokens, completion_tokens, calls, seconds (of model
    time), usd (None if the price is unknown), and one column `condition.NAME` for each condition of an experiment. No
    text of questions, answers or documents is included. Raises InputError for a path without records, and ModelMissing
    without pandas.
    """
    try:
        import pandas
    except ImportError as error:
        raise ModelMissing('a DataFrame needs pandas: pip install "epicrisis[dataframe]"') from error
    rows: list[dict[str, Any]] = []
    for run in open_runs(list(map(local_path, paths))):
        for record in run.records():
            answer = record.answer
            row = {
                "run": run.name,
                "question": answer.question.id,
                "question_key": record.question_key,
                "strategy": answer.strategy,
                "state": answer.model_state,
                "choice": answer.choice,
                "gold": answer.question.gold if answer.question.options else None,
                "right": score_record(record).right,
                "prompt_tokens": answer.usage.prompt_tokens,
                "completion_tokens": answer.usage.completion_tokens,
                "calls": answer.usage.calls,
                "seconds": answer.usage.seconds,
                "usd": answer.usage.cost,
            }
            for name, value in record.condition.items():
                row[f"condition.{name}"] = value
            rows.append(row)
    return pandas.DataFrame(rows)
