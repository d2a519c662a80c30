"""What a reader must know of a run's judges: which of them had a part in what it judges (errata E4, P11), and how far
each goes with people. Knows no table."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from epicrisis.evaluation.grading.calibration import CALIBRATION, JudgeCalibration, read_calibration
from epicrisis.evaluation.grading.correctness import Judge, marking_of
from epicrisis.evaluation.grading.measure_file import file_name
from epicrisis.evaluation.grading.measurers import plain_model
from epicrisis.evaluation.grading.run_measures import folder_of, recipes
from epicrisis.printable import quote_for_shell

JUDGES = "judges"
"""The folder of the program's home that calibrations lie in, a folder each."""


def calibration_folder(home: Path, model: str) -> Path:
    """Where the calibration of this model lies."""
    return home / JUDGES / file_name(plain_model(model)).removesuffix(".jsonl")


def keep_calibrations(run: Path, home: Path) -> None:
    """Puts the calibration of each of the run's judges beside its measures, where there is one by the same prompt."""
    for made in _judges(run):
        path = calibration_folder(home, made["judge"]["name"]) / CALIBRATION
        if path.is_file() and _same(read_calibration(path).judge, made):
            shutil.copy(path, _kept(run, made["judge"]["name"]))


def calibrations(run: Path) -> dict[str, JudgeCalibration | None]:
    """By the model of each of the run's judges: how far it goes with people; `None` where nobody has found out.
    Raises InputError."""
    found: dict[str, JudgeCalibration | None] = {}
    for made in _judges(run):
        path = _kept(run, made["judge"]["name"])
        known = read_calibration(path) if path.is_file() else None
        found[str(made["judge"]["name"])] = known if known is not None and _same(known.judge, made) else None
    return found


def remarks(run: Path) -> tuple[str, ...]:
    """Sentences for the tables of a run that models have judged; none for others. Raises InputError."""
    judges = [str(made["judge"]["name"]) for made in _judges(run)]
    if not judges:
        return ()
    marking = replace(marking_of(run, []), judges={name: Judge(name, {}) for name in judges})
    parts = [
        f"Warning: {plain_model(name)} judges answers and {did}: a model may prefer its own words; let one of another "
        "family judge as well (errata E4)."
        for name in judges
        for did in marking.did(name)
    ]
    people = [_with_people(plain_model(name), found) for name, found in calibrations(run).items()]
    reference = (
        "Judged against the reference alone, true details beyond it count as unfaithful (errata E4): "
        "judge-faithful-to-notes is against the notes."
    )
    return (*parts, *people, reference)


def _with_people(name: str, found: JudgeCalibration | None) -> str:
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
    return (made for made in recipes(run) if "judge" in made and "library" not in made)


def _kept(run: Path, model: str) -> Path:
    return folder_of(run) / f"{file_name(plain_model(model)).removesuffix('.jsonl')}-{CALIBRATION}"


def _same(known: Mapping[str, Any], made: Mapping[str, Any]) -> bool:
    return all(known.get(name) == made.get(name) for name in ("judge", "prompt"))
