"""How far a judge goes with people: its grades of summaries that people have counted the facts of, and its choice
between answers of which people prefer one. What it comes to is kept in a file, to stand beside the judge's figures.

The grades are those of the rubric, by the very prompt that grades answers; the choices those of blind pairs, each pair
in both orders. Knows no run.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from epicrisis.answering.structured_request import ModelClient
from epicrisis.answers import Usage
from epicrisis.errors import InputError
from epicrisis.evaluation.analysis.correlation import correlate
from epicrisis.evaluation.analysis.statistics import Interval, Mean, estimate_mean
from epicrisis.evaluation.grading import preference
from epicrisis.evaluation.grading.answer_notes import NoteTexts
from epicrisis.evaluation.grading.grader import GradeStore
from epicrisis.evaluation.grading.human_scores import PreferencePair, Summary
from epicrisis.evaluation.grading.human_verdicts import PreferredAnswer
from epicrisis.evaluation.grading.measurements import Measurement, read_measurements, store_name
from epicrisis.evaluation.grading.measurers import JUDGED_NOTES, Measurer, metric_name, notes_measurer, rubric_measurer
from epicrisis.evaluation.grading.preference import ORDERS, PairGrade, PresentationOrder, open_preference_store
from epicrisis.evaluation.grading.rubric import recipe
from epicrisis.evaluation.grading.run_measures import measure_answers, open_measure_store
from epicrisis.printable import printable_json
from epicrisis.privacy import open_private
from epicrisis.serialization import to_json

CALIBRATION = "calibration.json"
FORMAT = 1

# By aspect: what people counted of the same thing, and whether less of it is better.
_COUNTED: tuple[tuple[str, str, bool], ...] = (
    ("faithfulness", "FactualPrecision", False),
    ("faithfulness", "HallucinationRate", True),
    ("completeness", "FactualRecall", False),
    ("completeness", "OmissionRate", True),
    ("correctness", "FactualF1", False),
    (JUDGED_NOTES, "FactualPrecision", False),
    (JUDGED_NOTES, "HallucinationRate", True),
)


@dataclass(frozen=True, slots=True)
class HumanAgreement:
    """How far one aspect of a judge goes with what people counted; both so that more is better."""

    aspect: str
    counted: str
    n: int
    unscored: int
    """Summaries that the judge gave no grade, or people no figure."""
    spearman: float | None
    interval: Interval | None
    """95 %, conversations drawn whole."""
    kappa: float | None
    """Quadratic, of the grade and the share put on the same five steps."""
    kappa_interval: Interval | None
    same: float | None
    """The share of the summaries that people gave one and the same figure: where it is high, nobody's ranks can go
    with theirs."""


@dataclass(frozen=True, slots=True)
class ChoiceAccuracy:
    """A judge's choices in one subset, or in all: each pair in both orders."""

    subset: str
    pairs: int
    judged: int
    """Pairs with a verdict in both orders; the others are in no figure."""
    accuracy: Mean | None
    """Of the pairs, the mean of both orders: 1 for the preferred answer, 1/2 for a tie, 0 for the other. Chance is
    1/2, whatever place a guesser likes. `None` where none was judged."""
    right: int
    """In both orders."""
    wrong: int
    """In both orders."""
    changed: int
    """The choice went with the place, or a tie in one order was none in the other."""
    tied: int
    """A tie in both orders."""
    first: int
    """Verdicts, of twice as many as pairs, for the answer that stood first."""


@dataclass(frozen=True, slots=True)
class GraderCalibration:
    """All that is known of one judge."""

    model: str
    judge: Mapping[str, Any]
    """`rubric.recipe`: another prompt is another judge."""
    sample: Mapping[str, Any]
    with_people: tuple[HumanAgreement, ...]
    choices: tuple[ChoiceAccuracy, ...]
    """All pairs first, then by subset."""
    usage: Usage = field(default_factory=Usage)


async def calibrate_grader(
    asker: ModelClient,
    folder: Path,
    summaries: Sequence[Summary],
    pairs: Sequence[PreferencePair],
    *,
    against_talk: bool = False,
    sample: Mapping[str, Any] | None = None,
    tell: Callable[[Measurement | PairGrade], None] = lambda _: None,
) -> GraderCalibration:
    """Asks what has no reply in the folder yet, and sums all up in its file CALIBRATION. `against_talk`: each summary
    is judged against the conversation too, which costs as many calls again.

    Raises InputError where the folder holds another judge's files, and as `worked_off` does.
    """
    measurers = [rubric_measurer(asker), *([notes_measurer(asker, NoteTexts())] if against_talk else [])]
    usage = Usage()
    for measurer in measurers:
        file = open_measure_store(folder, measurer)
        async for made in measure_answers((each.response for each in summaries), measurer, file):
            tell(made)
        usage += file.usage
    replies = open_preference_store(folder / "pairs.jsonl", asker)
    async for reply in preference.grade_pairs([each.pair for each in pairs], asker, replies):
        tell(reply)
    model = str(asker.model_recipe["name"])
    grades = _grades(folder, measurers)
    found = GraderCalibration(
        model,
        recipe(asker),
        sample or {},
        compare_grades(grades, summaries, model),
        compare_choices(replies, pairs),
        usage + replies.usage,
    )
    _write(folder / CALIBRATION, found)
    return found


def count_missing(
    asker: ModelClient, folder: Path, summaries: Sequence[Summary], pairs: Sequence[PreferencePair]
) -> tuple[int, int]:
    """How many summaries, and verdicts on pairs, have to be asked for still."""
    file, replies = (
        open_measure_store(folder, rubric_measurer(asker)),
        open_preference_store(folder / "pairs.jsonl", asker),
    )
    return (
        sum(not file.is_done(each.response.key, each.response.of) for each in summaries),
        sum(not replies.is_done((each.pair.id, order)) for each in pairs for order in ORDERS),
    )


def _grades(folder: Path, measurers: Sequence[Measurer]) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for measurer in measurers:
        for key, made in read_measurements(folder / store_name(measurer.name))[1].items():
            found.setdefault(key, {}).update(made.values)
    return found


# -- arithmetic -------------------------------------------------------------------------------------------------------


def compare_grades(
    grades: Mapping[str, Mapping[str, float]], summaries: Sequence[Summary], model: str
) -> tuple[HumanAgreement, ...]:
    """`grades`: the judge's, by summary and metric. An aspect that was not asked for has no row."""
    asked = {name for each in grades.values() for name in each}
    rows = []
    for aspect, counted, less in _COUNTED:
        name = metric_name(f"judge-{aspect}", model)
        if name not in asked:
            continue
        said = [grades.get(each.response.key, {}).get(name) for each in summaries]
        people = [_counted(each, counted, less=less) for each in summaries]
        talks = [each.talk for each in summaries]
        rank = correlate(said, people, "spearman", talks)
        steps = correlate([_step(each) for each in said], [_step(each) for each in people], "quadratic-kappa", talks)
        often = Counter(figure for figure, grade in zip(people, said, strict=True) if None not in (figure, grade))
        same = max(often.values()) / rank.n if rank.n else None
        rows.append(
            HumanAgreement(
                aspect, counted, rank.n, rank.unscored, rank.value, rank.interval, steps.value, steps.interval, same
            )
        )
    return tuple(rows)


def _counted(summary: Summary, name: str, *, less: bool) -> float | None:
    share = summary.scores.get(name)
    return 1 - share if share is not None and less else share


def _step(share: float | None) -> float | None:
    """The nearest of the five grades, 1 to 5, halves upwards."""
    return None if share is None else 1.0 + int(4 * share + 0.5)


def compare_choices(replies: GradeStore[PairGrade], pairs: Sequence[PreferencePair]) -> tuple[ChoiceAccuracy, ...]:
    """Of all pairs, then of each subset."""
    if not pairs:
        return ()
    subsets = dict.fromkeys(each.subset for each in pairs)
    parts = {"all": list(pairs), **{name: [each for each in pairs if each.subset == name] for name in subsets}}
    return tuple(_choices(name, part, replies) for name, part in parts.items())


def _choices(name: str, pairs: Sequence[PreferencePair], replies: GradeStore[PairGrade]) -> ChoiceAccuracy:
    scores: list[float | None] = []
    kinds: Counter[str] = Counter()
    first = 0
    for each in pairs:
        both = [replies.replies.get((each.pair.id, order)) for order in ORDERS]
        said = [reply.choice for reply in both if reply is not None and reply.choice is not None]
        if len(said) < len(ORDERS):
            scores.append(None)
            continue
        first += said.count("1")
        points = [_points(choice, each.right, order) for choice, order in zip(said, ORDERS, strict=True)]
        scores.append(sum(points) / len(points))
        kinds[_kind(points)] += 1
    accuracy = estimate_mean(scores) if kinds else None
    return ChoiceAccuracy(
        name,
        len(pairs),
        sum(kinds.values()),
        accuracy,
        kinds["right"],
        kinds["wrong"],
        kinds["changed"],
        kinds["tied"],
        first,
    )


def _points(choice: PreferredAnswer, right: PreferredAnswer, order: PresentationOrder) -> float:
    if choice == "tie":
        return 0.5
    return float((choice == right) == (order == "shown"))


def _kind(points: Sequence[float]) -> str:
    if len(set(points)) > 1:
        return "changed"
    return {1.0: "right", 0.0: "wrong", 0.5: "tied"}[points[0]]


# -- files ------------------------------------------------------------------------------------------------------------


def _write(path: Path, calibration: GraderCalibration) -> None:
    told = json.dumps({"format": FORMAT, **to_json(calibration)}, indent=2, ensure_ascii=False)
    text = printable_json(told) + "\n"
    part = path.with_name(f"{path.name}.partial")
    with os.fdopen(open_private(part, os.O_WRONLY | os.O_TRUNC), "w", encoding="utf-8") as file:
        file.write(text)
    part.replace(path)


def read_calibration(path: Path) -> GraderCalibration:
    """Raises InputError where the file holds something else."""
    try:
        told = json.loads(path.read_bytes())
        if told.pop("format") != FORMAT:
            raise ValueError("another format")
        return GraderCalibration(
            told["model"],
            told["judge"],
            told["sample"],
            tuple(map(_with_people, told["with_people"])),
            tuple(map(_of_choices, told["choices"])),
            Usage(**told["usage"]),
        )
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}): calibrate the judge first") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise InputError(f"{path} is no calibration of a judge: make it anew (epicrisis judge calibrate)") from None


def _with_people(told: Mapping[str, Any]) -> HumanAgreement:
    return HumanAgreement(
        **{**told, "interval": _interval(told["interval"]), "kappa_interval": _interval(told["kappa_interval"])}
    )


def _of_choices(told: Mapping[str, Any]) -> ChoiceAccuracy:
    accuracy = told["accuracy"]
    mean = None if accuracy is None else Mean(**{**accuracy, "interval": Interval(**accuracy["interval"])})
    return ChoiceAccuracy(**{**told, "accuracy": mean})


def _interval(told: Mapping[str, Any] | None) -> Interval | None:
    return None if told is None else Interval(**told)
