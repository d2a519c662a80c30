"""What a reader must know of a run's judges: which of them had a part in what it judges (errata E4, P11), and how far
each goes with people. Knows no table."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from epicrisis.evaluation.grading.calibration import CALIBRATION, GraderCalibration, read_calibration
from epicrisis.evaluation.grading.correctness import JudgeGrades, read_correctness
from epicrisis.evaluation.grading.measurements import store_name
from epicrisis.evaluation.grading.measurers import short_model_name
from epicrisis.evaluation.grading.run_measures import measures_folder, read_recipes
from epicrisis.printable import quote_for_shell

CALIBRATIONS_FOLDER = "judges"
"""The folder of the program's home that calibrations lie in, a folder each."""


def calibration_folder(home: Path, model: str) -> Path:
    """Where the calibration of this model lies."""
    return home / CALIBRATIONS_FOLDER / store_name(short_model_name(model)).removesuffix(".jsonl")


def copy_calibrations(run: Path, home: Path) -> None:
    """Puts the calibration of each of the run's judges beside its measures, where there is one by the same prompt."""
    for made in _judges(run):
        path = calibration_folder(home, made["judge"]["name"]) / CALIBRATION
        if path.is_file() and _same(read_calibration(path).judge, made):
            shutil.copy(path, _kept(run, made["judge"]["name"]))


def read_calibrations(run: Path) -> dict[str, GraderCalibration | None]:
    """By the model of each of the run's judges: how far it goes with people; `None` where nobody has found out.
    Raises InputError."""
    found: dict[str, GraderCalibration | None] = {}
    for made in _judges(run):
        path = _kept(run, made["judge"]["name"])
        known = read_calibration(path) if path.is_file() else None
        found[str(made["judge"]["name"])] = known if known is not None and _same(known.judge, made) else None
    return found


def judge_remarks(run: Path) -> tuple[str, ...]:
    """Sentences for the tables of a run that models have judged; none for others. Raises InputError."""
    judges = [str(made["judge"]["name"]) for made in _judges(run)]
    if not judges:
        return ()
    marking = replace(read_correctness(run, []), judges={name: JudgeGrades(name, {}) for name in judges})
    parts = [
        f"Warning: {short_model_name(name)} judges answers and {did}: a model may prefer its own words; let one of another "
        "family judge as well (errata E4)."
        for name in judges
        for did in marking.did(name)
    ]
    people = [_with_people(short_model_name(name), found) for name, found in read_calibrations(run).items()]
    reference = (
        "Judged against the reference alone, true details beyond it count as unfaithful (errata E4): "
        "judge-faithful-to-notes is against the notes."
    )
    return (*parts, *people, reference)


def _with_people(name: str, found: GraderCalibration | None) -> str:
    if found is None:
        return (
            f"How far {name} goes with people is not known: epicrisis judge calibrate --model {quote_for_shell(name)}."
        )
    told = [
        f"{each.aspect} with {each.counted} {'not defined' if each.spearman is None else format(each.spearman, '.2f')}"
        + ("" if each.interval is None else f" ({each.interval.low:.2f} to {each.interval.high:.2f})")
        + f" over {each.n}"
        for each in found.with_people
    ]
    said = f"{name} against people, Spearman's rho on MTS-Dialog's summaries: {', '.join(told)}" if told else ""
    chosen = ""
    if found.choices and (accuracy := found.choices[0].accuracy) is not None:
        each = found.choices[0]
        chosen = (
            f"{name} chooses right between LLMBar's answers in {100 * accuracy.value:.1f} % of {each.judged} pairs "
            f"(95 % interval {100 * accuracy.interval.low:.1f} to {100 * accuracy.interval.high:.1f}; chance 50 %), "
            f"and changed its choice with the order in {each.changed}"
        )
    return "; ".join(filter(None, (said, chosen))) + "." if said or chosen else _with_people(name, None)


def _judges(run: Path) -> Iterator[Mapping[str, Any]]:
    """The recipes of those that judge against the reference."""
    return (made for made in read_recipes(run) if "judge" in made and "library" not in made)


def _kept(run: Path, model: str) -> Path:
    return measures_folder(run) / f"{store_name(short_model_name(model)).removesuffix('.jsonl')}-{CALIBRATION}"


def _same(known: Mapping[str, Any], made: Mapping[str, Any]) -> bool:
    return all(known.get(name) == made.get(name) for name in ("judge", "prompt"))
