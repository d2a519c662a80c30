"""`epicrisis grade`: open answers graded by metrics, by models and by people, and how well models agree with people."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from itertools import chain, product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from epicrisis.cli.command import Flags, command, fail
from epicrisis.cli.grade_run import grading_progress, settings_for_run, with_judge
from epicrisis.cli.options import GRADER, Data, Draw, Json, Yes, output_option
from epicrisis.cli.run_progress import confirm, file_name_part, usage_line, warn_about_demo_models
from epicrisis.cli.terminal import say, show_conclusions, show_data, show_json, show_tables
from epicrisis.core.errors import InputError
from epicrisis.core.printable import count_noun, quote_for_shell

if TYPE_CHECKING:
    from epicrisis.evaluation.grading.calibration import GraderCalibration
    from epicrisis.evaluation.grading.correctness import CorrectnessGrade
    from epicrisis.evaluation.grading.grader import GradeStore
    from epicrisis.evaluation.grading.preference import PairGrade
    from epicrisis.settings.settings import Settings

PairsFolder = Annotated[Path, Argument(help="A folder written by `grade pairs`.")]
RunPath = Annotated[Path, Argument(metavar="RUN", help="Folder of a run, or its file of records.")]


@command(
    *GRADER,
    examples=[
        "epicrisis grade correctness runs/openmedqa --model URL",
        "epicrisis grade correctness runs/openmedqa --show",
    ],
)
def correctness(
    run: RunPath,
    files: Annotated[
        list[Path] | None, Argument(metavar="[MARKS]...", help="Files of marks. Default: all of the run.")
    ] = None,
    show: Annotated[bool, Option("--show", help="Show the marks of all judges without asking one.")] = False,
    output: Annotated[Path | None, output_option(help="File of the marks. Default: RUN/marking/MODEL.jsonl.")] = None,
    *,
    flags: Flags,
    json: Json = False,
) -> None:
    """Mark each open answer against its reference with a model: correct, incorrect or undecidable.

    The model does not see the author. Use several judges, none of them an author of the answers or their examples.
    After an interruption, the same command continues. `--show` compares the judges.
    """
    if show or files:
        _show_correctness(run, files, json)
        return
    from epicrisis.evaluation.grading import correctness as grading
    from epicrisis.evaluation.grading.model_client import open_model_client

    cases = grading.read_open_cases(run)
    gradable = [case for case in cases if case.gradable]
    if not gradable:
        raise InputError(f"{run} has no answer to grade: choose a run of open questions with a reference (`gold`)")
    settings, role = _grader_settings(flags, run, patients=any(case.patient for case in cases))
    if output is None:
        folder = run if run.is_dir() else run.parent
        output = folder / grading.CORRECTNESS_FOLDER / f"{file_name_part(settings.model_for(role).name)}.jsonl"

    async def grade_answers() -> GradeStore[CorrectnessGrade]:
        async with open_model_client(settings, role) as client:
            grader = grading.correctness_grader(client)
            store = grading.open_correctness_store(output, grader, cases)
            with grading_progress(json) as start:
                advance = start("Grading", len(gradable), sum(store.is_done(case.key) for case in gradable))
                async for grade in grading.grade_cases(gradable, grader, store):
                    advance(grade, grade.key)
        return store

    store = asyncio.run(grade_answers())
    states = Counter(grade.state for grade in store.grades.values())
    if json:
        row = {"to_mark": len(gradable), "marks": dict(sorted(states.items())), "usage": store.usage}
        show_json({**row, "output": str(output)})
    else:
        say(
            f"{states['judged']} of {len(gradable)} answers graded, written to {output}; {states['unparsed']} "
            f"unreadable verdicts; {len(cases) - len(gradable)} open cases have nothing to grade"
        )
        say(usage_line(store.usage))
    if states["failed"]:
        fail(f"{count_noun(states['failed'], 'call')} failed; the same command repeats them")


def _show_correctness(run: Path, files: Sequence[Path] | None, json: bool) -> None:
    """Show the share of correct answers by each judge and by their majority, and the agreement of the judges."""
    from epicrisis.evaluation.grading import correctness as grading

    grades = grading.read_correctness(run, files or None)
    if not grades.judges:
        grade = f"epicrisis grade correctness {quote_for_shell(run)} --model URL"
        raise InputError(f"{run} has no grades yet: let a model grade its answers with `{grade}`")
    by_model = {" and ".join(sorted(grades.models[grading.WROTE])): grades}
    tables, conclusions = grading.correctness_tables(by_model), grading.correctness_conclusions(by_model)
    show_conclusions(tables, conclusions, json=json)


def _grader_settings(flags: Flags, run: Path, *, patients: bool) -> tuple[Settings, str]:
    """Return the settings, and the role of the grader: `writer` if --model names it, else `judge`."""
    settings = settings_for_run(flags.settings(), run, patients)
    model = flags.values.get("models", {}).get("writer", {}).get("name")
    role = "judge" if model is None else "writer"
    warn_about_demo_models(settings, [role])
    return settings, role


@command(examples=["epicrisis grade pairs runs/medq"])
def pairs(
    runs: Annotated[list[Path], Argument(metavar="RUN", help="Folder or records of a run; or one run for each arm.")],
    output: Annotated[Path | None, output_option(help="New folder. Default: `judging` in the first run.")] = None,
    seed: Annotated[int, Option("--seed", help="Seed for the order of the two answers.")] = 0,
    json: Json = False,
) -> None:
    """Write the answers of RAG and BriefContext as blind pairs for reviewers.

    Give pairs.csv (a spreadsheet) or pairs.jsonl to the reviewers. Keep pairs.key.json: it names the authors. A verdict
    is 1, 2 or tie.
    """
    from epicrisis.evaluation.experiments.open_ended import ARMS, JUDGING
    from epicrisis.evaluation.grading.blind_pairs import KEY, make_pairs, write_pairs
    from epicrisis.evaluation.runs.run_folder import RECORDS
    from epicrisis.pipeline.recording.answer_record import read_records

    paths = [run / RECORDS if run.is_dir() else run for run in runs]
    blind = make_pairs(chain.from_iterable(map(read_records, paths)), ARMS, seed)
    output = output or paths[0].parent / JUDGING
    write_pairs(blind, output)
    same_words, left_out = len(blind.key.same), len(blind.key.left_out)
    if json:
        row = {"pairs": len(blind.pairs), "same_words": same_words, "left_out": left_out, "telling": blind.revealing}
        show_json({**row, "output": str(output)})
        return
    say(
        f"{len(blind.pairs)} pairs in {output}; {same_words} questions with two identical answers (ties), {left_out} "
        "without a pair because an arm did not answer"
    )
    if blind.revealing:
        say(
            f"note: in {blind.revealing} pairs only one answer mentions documents or findings, which may reveal its arm"
        )
    say(f"keep {KEY} away from the reviewers")


@command(*GRADER, examples=["epicrisis grade preference runs/medq/judging --model URL"])
def preference(
    folder: PairsFolder,
    output: Annotated[
        Path | None, output_option(help="File of the verdicts. Default: judged-MODEL.jsonl there.")
    ] = None,
    *,
    flags: Flags,
    json: Json = False,
) -> None:
    """Choose the better answer of each pair with a model, in both orders.

    After an interruption, the same command continues.
    """
    from epicrisis.evaluation.experiments.open_ended import MODELS
    from epicrisis.evaluation.grading.blind_pairs import read_pairs
    from epicrisis.evaluation.grading.human_verdicts import ORDERS
    from epicrisis.evaluation.grading.model_client import open_model_client
    from epicrisis.evaluation.grading.preference import grade_pairs, open_preference_store, preference_grader

    blind = read_pairs(folder)
    settings, role = _grader_settings(flags, folder, patients=blind.key.patients)
    output = output or folder / MODELS.replace("*", file_name_part(settings.model_for(role).name))
    subjects = list(product((pair.id for pair in blind.pairs), ORDERS))

    async def grade_both_orders() -> GradeStore[PairGrade]:
        async with open_model_client(settings, role) as client:
            grader = preference_grader(client)
            store = open_preference_store(output, grader)
            with grading_progress(json) as start:
                advance = start("Grading", len(subjects), sum(store.is_done(subject) for subject in subjects))
                async for grade in grade_pairs(blind.pairs, grader, store):
                    advance(grade, grade.pair)
        return store

    store = asyncio.run(grade_both_orders())
    states = Counter(grade.state for grade in store.grades.values())
    if json:
        show_json({"replies": dict(sorted(states.items())), "usage": store.usage, "output": str(output)})
    else:
        say(f"{states.total()} replies to {len(blind.pairs)} pairs in both orders, written to {output}")
        say(usage_line(store.usage))
    if states["failed"]:
        fail(f"{count_noun(states['failed'], 'call')} failed; the same command repeats them")


@command(
    examples=[
        "epicrisis grade verdicts runs/medq/judging",
        "epicrisis grade verdicts runs/medq/judging anna.csv ben.csv",
        "epicrisis grade verdicts review.json",
    ]
)
def verdicts(
    folder: Annotated[
        Path,
        Argument(metavar="PAIRS", help="A folder written by `grade pairs`, or the JSON file of a review on the page."),
    ],
    files: Annotated[list[Path] | None, Argument(help="Files filled in by reviewers (CSV or JSONL).")] = None,
    models: Annotated[list[Path] | None, Option("--judged", help="File of a model's verdicts (repeatable).")] = None,
    json: Json = False,
) -> None:
    """Show the verdicts: wins and losses with a test, agreement of the reviewers, and position bias.

    Without files, those in the folder are read: verdicts-NAME.csv or .jsonl of reviewers, judged-NAME.jsonl of models.
    The file of a review has its own verdicts.
    `epicrisis report` of the run shows them too.
    """
    from epicrisis.evaluation.experiments import open_ended

    if files or models:
        judging = open_ended.read_judging(folder, files or (), models or ())
    else:
        judging = open_ended.read_judging_folder(folder)
    if not (judging.people or judging.models):
        raise InputError("there are no verdicts: give the files of reviewers, or a model's file with --judged")
    judgings = {" and ".join(judging.paired.key.writers): judging}
    tables, conclusions = open_ended.tables(judgings), open_ended.conclusions(judgings)
    show_conclusions(tables, conclusions, json=json)


@command(*GRADER, examples=["epicrisis grade calibrate --model URL#judge -n 100 --data FOLDER"])
def calibrate(
    data: Data = None,
    sample: Annotated[
        int | None, Option("--questions", "-n", min=1, help="Random sample of this many summaries, and as many pairs.")
    ] = None,
    draw: Draw = 0,
    against_talk: Annotated[
        bool, Option("--against-talk", help="Also grade faithfulness to the conversation; doubles the calls.")
    ] = False,
    output: Annotated[
        Path | None, output_option(help="Folder of the result. Default: in the data folder (EPICRISIS_HOME).")
    ] = None,
    yes: Yes = False,
    *,
    flags: Flags,
    json: Json = False,
) -> None:
    """Measure how well a judge model agrees with people.

    Uses 400 summaries with facts counted by people (MTS-Dialog), and 419 pairs of answers with people's preferences
    (LLMBar), in both orders. `epicrisis grade run` and reports show the result with that judge's grades. After an
    interruption, the same command continues.
    """
    from epicrisis.evaluation.grading.calibration import (
        CALIBRATION,
        calibrate_grader,
        calibration_folder,
        calibration_tables,
    )
    from epicrisis.evaluation.grading.human_scores import read_preference_pairs, read_summaries, sample_items
    from epicrisis.evaluation.grading.model_client import cost_question, open_model_client

    if data is None:
        raise InputError("give the folder that contains `judge` (files of MTS-Dialog and LLMBar) with --data")
    summaries = sample_items(read_summaries(data / "judge"), sample, draw)
    preferences = sample_items(read_preference_pairs(data / "judge"), sample, draw)
    model = flags.values.get("models", {}).get("writer", {}).get("name")
    settings = with_judge(flags.with_values({"models": {"writer": {"name": None}}}).settings(), model)
    folder = output or calibration_folder(settings.home, settings.models.writer.name)

    async def grade_all() -> GraderCalibration:
        warn_about_demo_models(settings, ["writer"])
        async with open_model_client(settings) as client:
            if not yes:
                # Each pair takes two calls of about the length of a summary's.
                answers = [summary.answer for summary in summaries]
                talks = answers if against_talk else []
                confirm(await cost_question(client, settings, settings.model_for("writer"), answers * 3, talks))
            calls = (2 if against_talk else 1) * len(summaries) + 2 * len(preferences)
            options = {"n": sample, "seed": draw, "against_talk": against_talk}
            with grading_progress(json) as start:
                return await calibrate_grader(
                    client,
                    folder,
                    summaries,
                    preferences,
                    against_talk=against_talk,
                    sample=options,
                    on_grade=start("calibrating", calls, 0),
                )

    calibration = asyncio.run(grade_all())
    tables = calibration_tables(calibration)
    if json:
        show_data({"calibration": calibration, "tables": tables, "output": str(folder / CALIBRATION)})
        return
    show_tables(tables)
    say(f"saved in {folder / CALIBRATION}")
    say(usage_line(calibration.usage))
