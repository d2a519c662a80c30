"""Open answers marked against their references: how many are correct by each judge, and how far the judges agree.

Knows no file and no model. What sets arms apart is tested by the experiments' own tables, which take
`Marking.outcomes`; what a reader of those must know stands in `remarks`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from epicrisis.evaluation.analysis.agreement import RaterAgreement, measure_agreement
from epicrisis.evaluation.analysis.grouping import INTERVALS, AccuracyMeasure, mean_score
from epicrisis.evaluation.analysis.run_comparison import REPEATED
from epicrisis.evaluation.analysis.statistics import Mean
from epicrisis.evaluation.analysis.table import Cell, Table
from epicrisis.evaluation.grading.correctness import VERDICTS, CorrectnessGrades, OpenCase
from epicrisis.evaluation.runs.case import Condition
from epicrisis.evaluation.runs.outcomes import STATES

SHARE, OF_DECIDED = "share correct", "of those decided"

_MARKS = (
    "Share correct: of all that were asked and did not fail; an answer that abstains or cannot be read, and one of "
    "which it cannot be said, is none that is correct. Of those decided: correct of correct and incorrect.",
    "Unreadable, call failed, not marked: the judge gave no verdict; such answers are in no share.",
    INTERVALS,
)
_MAJORITY = (
    "Of several judges more than half of all must say the same; else there is no majority, and no share has the answer."
)
_AGREEMENT = (
    "Over the answers that at least two of them gave a verdict on. Intervals are 95 %, by a bootstrap of whole "
    "questions; none where every resample gives the same. No coefficient where all that was said is one word.",
)


def correctness_tables(
    markings: Mapping[str, CorrectnessGrades], *, more: Sequence[str] = (), seed: int = 0
) -> tuple[Table, ...]:
    """Of marked runs, by the name of their model: how the open questions ended, the share marked correct by judge and
    condition, and the judges' agreement. `more`: notes for each table."""
    names = _telling(markings)
    made = [_answers(markings, names)]
    if any(each.judges for each in markings.values()):
        made.append(_marks(markings, names, seed))
    if any(len(each.judges) > 1 for each in markings.values()):
        made.append(_agreements(markings, seed))
    return tuple(replace(table, notes=(*table.notes, *more)) for table in made)


def correctness_conclusions(markings: Mapping[str, CorrectnessGrades], *, seed: int = 0) -> tuple[str, ...]:
    """Plain sentences: the share correct by the majority, or by the one judge; how far several agree; and which judge
    had a part in what it judges."""
    names = _telling(markings)
    said = [sentence for model, each in markings.items() for sentence in _shares(model, each, names, seed)]
    if any(len(each.judges) > 1 for each in markings.values()):
        for model, judges, _, n, raw, _, _, alpha, _ in _agreements(markings, seed).rows:
            if isinstance(raw, Mean):
                coefficient = "not defined" if alpha is None else f"{alpha:.2f}"
                said.append(
                    f"{model}: {judges} agree on {100 * raw.value:.1f} % of {n} answers (Krippendorff's alpha "
                    f"{coefficient})."
                )
    return (*said, *_parts(markings))


def correctness_remarks(marking: CorrectnessGrades, judge: str | None = None) -> tuple[str, ...]:
    """Notes for tables of right and wrong that are made of `marking.outcomes(judge)`."""
    to_mark = [case for case in marking.cases if case.to_mark]
    said = Counter(marking.verdict(case.key, judge) for case in to_mark)
    who = _who(marking) if judge is None else judge
    return (
        f"Right: marked correct against the reference by {who}. Of {len(to_mark)} answers it cannot be said of "
        f"{said['cannot be said']}, which stand among the unparsed; {said[None]} have no verdict, they stand among the "
        "failed.",
        *_parts({"": marking}),
    )


def _who(marking: CorrectnessGrades) -> str:
    judges = tuple(marking.judges)
    return f"majority of {len(judges)} judges" if len(judges) > 1 else "".join(judges) or "nobody"


def _parts(markings: Mapping[str, CorrectnessGrades]) -> tuple[str, ...]:
    """Which judge had a part in what it judges, and where nobody can say so."""
    found = [
        f"Warning: {judge} judges answers and {did}: a model may prefer its own words; let another one judge as well "
        "(errata P11)."
        for marking in markings.values()
        for judge in marking.judges
        for did in marking.did(judge)
    ]
    found += [
        "Who wrote some of the examples that were shown is not known: see that no judge did (errata P11)."
        for marking in markings.values()
        if marking.unknown
    ]
    return tuple(dict.fromkeys(found))


# -- conditions -------------------------------------------------------------------------------------------------------


def _telling(markings: Mapping[str, CorrectnessGrades]) -> tuple[str, ...]:
    """Conditions that tell parts of a run apart."""
    runs = [[case.outcome.condition for case in each.cases] for each in markings.values()]
    names = dict.fromkeys(name for run in runs for condition in run for name in condition)
    return tuple(
        name
        for name in names
        if name not in REPEATED and any(len({condition.get(name) for condition in run}) > 1 for run in runs)
    )


def _strata(cases: Sequence[OpenCase], names: Sequence[str]) -> dict[tuple[Cell, ...], tuple[OpenCase, ...]]:
    """The cases by their values of these conditions: numbers by size, words by name, for calls at once end in any
    order and tables have one."""
    parts: dict[tuple[Cell, ...], list[OpenCase]] = {}
    for case in sorted(cases, key=lambda case: [_place(case.outcome.condition, name) for name in names]):
        parts.setdefault(tuple(case.outcome.condition.get(name) for name in names), []).append(case)
    return {labels: tuple(part) for labels, part in parts.items()}


def _place(condition: Condition, name: str) -> tuple[float, str]:
    value = condition.get(name, "")
    return (0.0, value) if isinstance(value, str) else (float(value), "")


# -- the tables -------------------------------------------------------------------------------------------------------


def _answers(markings: Mapping[str, CorrectnessGrades], names: Sequence[str]) -> Table:
    there = {case.outcome.state for each in markings.values() for case in each.cases}
    states = [state for state in STATES if state != "over-window" or state in there]
    rows: list[tuple[Cell, ...]] = []
    for model, marking in markings.items():
        for labels, cases in _strata(marking.cases, names).items():
            ended = Counter(case.outcome.state for case in cases)
            without = sum(case.reference is None for case in cases)
            words = [len(case.answer.split()) for case in cases if case.to_mark]
            length = sum(words) / len(words) if words else None
            rows.append((model, *labels, len(cases), *(ended[state] for state in states), without, length))
    columns = ("model", *names, "asked", *states, "without a reference", "words of an answer")
    note = "Questions without options. What has no reference, or was not answered, is not marked."
    return Table("How the open questions ended", columns, tuple(rows), (note,))


def _marks(markings: Mapping[str, CorrectnessGrades], names: Sequence[str], seed: int) -> Table:
    rows = tuple(
        (model, *labels, *cells)
        for model, marking in markings.items()
        for labels, cases in _strata(marking.cases, names).items()
        for cells in _judged(replace(marking, cases=cases), seed)
    )
    columns = (
        "model",
        *names,
        "judge",
        SHARE,
        OF_DECIDED,
        *VERDICTS,
        "no majority",
        "unreadable",
        "call failed",
        "not marked",
    )
    several = any(len(each.judges) > 1 for each in markings.values())
    notes = (*_MARKS, *([_MAJORITY] if several else []), *_parts(markings))
    return Table("Marked against the reference", columns, rows, notes)


def _judged(marking: CorrectnessGrades, seed: int) -> Iterator[tuple[Cell, ...]]:
    """A row for each judge, and one for the majority of several."""
    keys = [case.key for case in marking.cases if case.to_mark]
    for name, judge in marking.judges.items():
        states = Counter(judge.marks[key].state if key in judge.marks else "" for key in keys)
        yield (
            name,
            *_verdicts(marking, name, keys, seed),
            None,
            states["unparsed"],
            states["failed"],
            states[""],
        )
    if len(marking.judges) > 1:
        without = sum(marking.verdict(key) is None for key in keys)
        yield (_who(marking), *_verdicts(marking, None, keys, seed), without, None, None, None)


def _verdicts(marking: CorrectnessGrades, judge: str | None, keys: Sequence[str], seed: int) -> tuple[Cell, ...]:
    said = Counter(marking.verdict(key, judge) for key in keys)
    shares = (correct_share(marking, measure, judge, seed) for measure in ("right", "right-of-answered"))
    return (*shares, *(said[verdict] for verdict in VERDICTS))


def correct_share(
    marking: CorrectnessGrades, measure: AccuracyMeasure, judge: str | None = None, seed: int = 0
) -> Mean | None:
    """The share marked correct by this judge, else by the majority; `None` where nothing is scored."""
    found = mean_score(marking.outcomes(judge), measure, seed)
    return found if found.n else None


def _shares(model: str, marking: CorrectnessGrades, names: Sequence[str], seed: int) -> Iterator[str]:
    for labels, cases in _strata(marking.cases, names).items() if marking.judges else ():
        found = correct_share(replace(marking, cases=cases), "right", seed=seed)
        if found is not None:
            where = " ".join(map(str, (model, *(label for label in labels if label is not None))))
            low, high = 100 * found.interval.low, 100 * found.interval.high
            yield (
                f"{where}, by {_who(marking)}: {100 * found.value:.1f} % of {found.n} are correct "
                f"(95 % interval {low:.1f} to {high:.1f})."
            )


def _agreements(markings: Mapping[str, CorrectnessGrades], seed: int) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for model, marking in markings.items():
        questions = {case.key: case.outcome.question for case in marking.cases}
        for name, raters in _compared(marking):
            rows.append((model, *_agreement_cells(name, measure_agreement(raters, seed, questions))))
    columns = (
        "model",
        "judges",
        "n judges",
        "answers",
        "agreement",
        "Cohen's kappa",
        "kappa interval",
        "Krippendorff's alpha",
        "alpha interval",
    )
    return Table("How far the judges agree", columns, tuple(rows), _AGREEMENT)


def _compared(marking: CorrectnessGrades) -> Iterator[tuple[str, list[Mapping[str, str]]]]:
    """Each two judges, and all where there are more."""
    said = {name: judge.verdicts for name, judge in marking.judges.items()}
    for place, name in enumerate(said):
        for other in list(said)[place + 1 :]:
            yield f"{name} and {other}", [said[name], said[other]]
    if len(said) > 2:
        yield "all", list(said.values())


def _agreement_cells(name: str, found: RaterAgreement) -> tuple[Cell, ...]:
    kappa, alpha = found.kappa, found.alpha
    of_two = (None, None) if kappa is None else (kappa.value, kappa.interval)
    return (name, found.raters, found.units, found.raw if found.units else None, *of_two, alpha.value, alpha.interval)
