"""Correctness of open answers: models compare each answer with the reference (context-retrieval study, open tasks).

The prompt holds question, reference and answer as fenced data, without citations and author. Abstained, unparsed and
failed answers are not graded; tables count them separately. Differences between arms are tested by the experiments' own
tables, which take `CorrectnessGrades.outcomes`.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, combinations, filterfalse
from pathlib import Path
from typing import Annotated, Literal, TypeAlias, get_args

from pydantic import Field, model_validator

from epicrisis.answering.structured_request import ModelClient
from epicrisis.core.answers import ExamplesFound, Failure, Usage
from epicrisis.core.errors import InputError
from epicrisis.core.printable import count_noun
from epicrisis.core.prompts import Prompt, fence, render
from epicrisis.core.types import AnswerState
from epicrisis.evaluation.analysis.agreement import (
    RaterAgreement,
    describe_agreement,
    make_agreement_table,
    measure_agreement,
)
from epicrisis.evaluation.analysis.grouping import INTERVALS, AccuracyMeasure, group_by, mean_score
from epicrisis.evaluation.analysis.run_comparison import find_varying_conditions
from epicrisis.evaluation.analysis.statistics import Mean
from epicrisis.evaluation.analysis.table import Cell, Table
from epicrisis.evaluation.grading.blind_pairs import remove_citations
from epicrisis.evaluation.grading.grader import (
    PROMPTS,
    GradeLine,
    Grader,
    GradeState,
    GradeStore,
    read_grades,
    verdict_format,
)
from epicrisis.evaluation.runs.outcomes import STATES, Outcome, read_model_text, score_record
from epicrisis.evaluation.runs.run_folder import RECORDS
from epicrisis.pipeline.recording.answer_record import read_records
from epicrisis.system.concurrency import store_results

CORRECTNESS_FOLDER = "marking"
"""The folder next to a run's records with a file of grades per judge, JUDGE.jsonl."""

CorrectnessVerdict: TypeAlias = Literal["correct", "incorrect", "cannot be said"]
VERDICTS: tuple[CorrectnessVerdict, ...] = get_args(CorrectnessVerdict)
FORMAT = verdict_format(VERDICTS, 400)

WROTE, SCORED, EXAMPLES = "wrote them", "scored their drafts", "wrote the examples shown for them"
"""Possible parts of a model in the answers that it judges (errata P11)."""

SHARE, OF_DECIDED = "share correct", "of those decided"

_GRADE_NOTES = (
    "Share correct: of all questions that did not fail. An answer that abstains or cannot be read, and one with the "
    "verdict `cannot be said`, is not correct. Of those decided: correct of correct and incorrect.",
    "Unreadable, call failed, not marked: the judge gave no verdict; such answers are in no share.",
    INTERVALS,
)
_MAJORITY_NOTE = (
    "With several judges, more than half of all must give the same verdict. Otherwise there is no majority, and the "
    "answer is in no share."
)
_AGREEMENT_NOTES = (
    "Over the answers with a verdict of at least two of them. Intervals are 95 %, by a bootstrap of whole questions; "
    "none if all resamples are equal. No coefficient if all verdicts are the same word.",
)


@dataclass(frozen=True, slots=True)
class OpenCase:
    """A case of a run with a question without options."""

    key: str
    outcome: Outcome
    """How it ended, not yet right or wrong."""
    question: str
    reference: str | None
    """The question's gold answer. None without one; then the case cannot be graded."""
    answer: str
    """The answer without citations, as the judge sees it."""
    patient: bool = False
    """Whether the question is about a patient's record."""

    @property
    def gradable(self) -> bool:
        return self.outcome.state == "answered" and self.reference is not None

    @property
    def digest(self) -> str:
        """A hash of all texts the judge sees. A grade of other texts does not belong to this case."""
        return hashlib.sha256(json.dumps([self.question, self.reference, self.answer]).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectnessGrade:
    """One judge's grade of one case."""

    key: str
    """Key of the case."""
    digest: Annotated[str, Field(alias="of")] = field(metadata={"json": "of"})
    """`OpenCase.digest`."""
    state: GradeState
    verdict: CorrectnessVerdict | None = None
    """None unless the state is `judged`."""
    reason: str = ""
    failure: Failure | None = None
    usage: Usage = field(default_factory=Usage)


class _CorrectnessLine(GradeLine[CorrectnessGrade]):
    @model_validator(mode="after")
    def _check(self) -> _CorrectnessLine:
        if (self.grade.verdict is None) == (self.grade.state == "judged"):
            raise ValueError("a verdict without a judgement, or the reverse")
        return self


@dataclass(frozen=True, slots=True)
class JudgeGrades:
    """The grades of one judge by case key."""

    model: str
    grades: Mapping[str, CorrectnessGrade]

    @property
    def verdicts(self) -> dict[str, CorrectnessVerdict]:
        """The verdicts by case key, for replies that could be read."""
        return {key: grade.verdict for key, grade in self.grades.items() if grade.verdict is not None}


@dataclass(frozen=True, slots=True)
class CorrectnessGrades:
    """The open cases of one run with the grades of all judges."""

    cases: tuple[OpenCase, ...]
    judges: Mapping[str, JudgeGrades] = field(default_factory=dict)
    """By name: the model's name, followed by the file's name if two files have the same model."""
    models: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """By their part in the answers (WROTE, SCORED, EXAMPLES): the names of models."""
    unknown: bool = False
    """Whether the author of some examples is unknown."""

    def verdict(self, key: str, judge: str | None = None) -> CorrectnessVerdict | None:
        """Return the judge's verdict, or without `judge` the verdict of more than half of all judges.

        Returns None if there is none: a tie is not a verdict, nor is the verdict of one judge if the others have none.
        """
        judges = list(self.judges.values()) if judge is None else [self.judges[judge]]
        counts: Counter[CorrectnessVerdict | None] = Counter()
        for grades in judges:
            if key in grades.grades:
                counts[grades.grades[key].verdict] += 1
        del counts[None]
        for verdict, count in counts.items():
            if 2 * count > len(judges):
                return verdict
        return None

    def outcomes(self, judge: str | None = None) -> tuple[Outcome, ...]:
        """Return the outcomes of the cases with a reference, for tables of right and wrong answers.

        A correct answer is right. One that "cannot be said" is `unparsed`, so it is not right. One without a verdict is
        `failed` and unmarked: it has no score, because that is not the answer's fault.
        """
        outcomes = []
        for case in self.cases:
            verdict = self.verdict(case.key, judge) if case.gradable else None
            if verdict in ("correct", "incorrect"):
                outcomes.append(replace(case.outcome, right=verdict == "correct"))
            elif case.gradable:
                state: AnswerState = "failed" if verdict is None else "unparsed"
                outcomes.append(replace(case.outcome, state=state, is_unmarked=verdict is None))
            elif case.reference is not None:
                outcomes.append(case.outcome)
        return tuple(outcomes)

    def parts_of_judge(self, judge: str) -> tuple[str, ...]:
        """Return the part of the judge's model in the answers: WROTE, SCORED, EXAMPLES."""
        model = _short_name(self.judges[judge].model)
        return tuple(part for part, models in self.models.items() if model in map(_short_name, models))


def _short_name(model: str) -> str:
    """Return the model's name without the address that serves it."""
    name = model.rpartition("#")[2]
    return (name if "://" in name else name.rpartition("/")[2]).casefold()


def render_prompt(question: str, reference: str, answer: str) -> Prompt:
    """Return the prompt for one case: the three texts in one fence, in this order."""
    return render(PROMPTS, "correctness", documents=fence([question, reference, answer]))


def correctness_grader(client: ModelClient) -> Grader[CorrectnessVerdict]:
    """Return the model as a grader of correctness."""
    return Grader(client, render_prompt("", "", "").template, FORMAT)


def grade_cases(
    cases: Iterable[OpenCase], grader: Grader[CorrectnessVerdict], store: GradeStore[CorrectnessGrade]
) -> AsyncGenerator[CorrectnessGrade, None]:
    """Grade the gradable cases, and yield the grades that were missing. Raises as `run_concurrently` does."""

    async def grade_case(case: OpenCase) -> CorrectnessGrade:
        grade = await grader.grade(render_prompt(case.question, case.reference or "", case.answer))
        return CorrectnessGrade(
            key=case.key,
            digest=case.digest,
            state=grade.state,
            verdict=grade.value,
            reason=grade.reason,
            failure=grade.failure,
            usage=grade.usage,
        )

    gradable = (case for case in cases if case.gradable)
    missing = list(filterfalse(lambda case: store.is_done(case.key), gradable))
    return store_results(missing, grade_case, store.add, grader.client.concurrency)


def open_correctness_store(
    path: Path, grader: Grader[CorrectnessVerdict], cases: Iterable[OpenCase]
) -> GradeStore[CorrectnessGrade]:
    """Open this grader's file to add to it. Raises InputError as `GradeStore` does, and for grades of other answers."""
    store = GradeStore(path, _CorrectnessLine, grader.recipe)
    _check_subjects(path, store.grades.values(), cases)
    return store


def read_open_cases(run: Path) -> tuple[OpenCase, ...]:
    """Read the open cases of a run's folder, or of its records, in their order. Raises InputError."""
    return _read_run(run)[0]


def read_correctness(run: Path, files: Sequence[Path] | None = None) -> CorrectnessGrades:
    """Read a run's open cases with the grades in these files, or else in all files of its CORRECTNESS_FOLDER.

    Raises InputError if a file holds anything else, or grades of other answers.
    """
    cases, models, unknown = _read_run(run)
    folder = (run if run.is_dir() else run.parent) / CORRECTNESS_FOLDER
    judges: dict[str, JudgeGrades] = {}
    for path in sorted(folder.glob("*.jsonl")) if files is None else files:
        recipe, grades = read_grades(path, _CorrectnessLine)
        _check_subjects(path, grades.values(), cases)
        model = str(recipe["judge"]["name"])
        name = f"{model} ({path.name})" if model in judges else model
        judges[name] = JudgeGrades(model, dict(zip(map(str, grades), grades.values(), strict=True)))
    return CorrectnessGrades(cases, judges, models, unknown)


def read_correctness_verdicts(run: Path) -> dict[str, CorrectnessVerdict | None]:
    """Read the majority verdict of all judges in the run's CORRECTNESS_FOLDER, by the key of each open case.

    The verdict is None if there is none, or if the case is not gradable. Raises InputError.
    """
    correctness = read_correctness(run)
    return {case.key: correctness.verdict(case.key) if case.gradable else None for case in correctness.cases}


def _check_subjects(path: Path, grades: Iterable[CorrectnessGrade], cases: Iterable[OpenCase]) -> None:
    digests = {case.key: case.digest for case in cases if case.gradable}
    if others := sum(digests.get(grade.key) != grade.digest for grade in grades):
        raise InputError(
            f"{path} holds {count_noun(others, 'grade')} of other answers: choose another file, or their run"
        )


def _read_run(run: Path) -> tuple[tuple[OpenCase, ...], dict[str, frozenset[str]], bool]:
    """Read the open cases, the models by their part in the answers, and whether an example's author is unknown."""
    cases: list[OpenCase] = []
    models: dict[str, set[str]] = {WROTE: set(), SCORED: set(), EXAMPLES: set()}
    # Records are not kept: the traces of thousands of answers would fill the memory.
    for record in read_records(run / RECORDS if run.is_dir() else run):
        if record.answer.question.options:
            continue
        answer, question = record.answer, record.answer.question
        case = OpenCase(
            key=record.key,
            outcome=score_record(record),
            question=question.text.strip(),
            reference=question.gold or None,
            answer=remove_citations(read_model_text(answer)),
            patient=question.patient is not None,
        )
        cases.append(case)
        for role, model in record.recipe.get("models", {}).items():
            models[SCORED if role == "reward" else WROTE].add(str(model["name"]))
        for event in answer.trace:
            if isinstance(event, ExamplesFound):
                models[EXAMPLES].update(event.models)
    model_names = {part: frozenset(names - {""}) for part, names in models.items()}
    return tuple(cases), model_names, "" in models[EXAMPLES]


def correctness_tables(runs: Mapping[str, CorrectnessGrades]) -> tuple[Table, ...]:
    """Return the tables of graded runs, by the name of their model.

    They show how the open questions ended, the share correct by judge and condition, and the agreement of the judges.
    """
    conditions = _varying_conditions(runs)
    tables = [_endings_table(runs, conditions)]
    if any(run.judges for run in runs.values()):
        tables.append(_grades_table(runs, conditions))
    if _have_several_judges(runs):
        tables.append(_agreement_table(runs))
    return tuple(tables)


def correctness_conclusions(runs: Mapping[str, CorrectnessGrades]) -> tuple[str, ...]:
    """Return sentences: the share correct by the majority or the one judge, the agreement of several judges, and the
    judges with a part in what they judge."""
    conditions = _varying_conditions(runs)
    sentences: list[str] = []
    for labels, grades in _strata(runs, conditions):
        share = correct_share(grades, "right") if grades.judges else None
        if share is not None:
            where = " ".join(map(str, filter(lambda label: label is not None, labels)))
            low, high = 100 * share.interval.low, 100 * share.interval.high
            sentences.append(
                f"{where}, by {_judges_name(grades)}: {100 * share.value:.1f} % of {share.n} are correct "
                f"(95 % interval {low:.1f} to {high:.1f})."
            )
    if _have_several_judges(runs):
        sentences.extend(describe_agreement(_agreement_table(runs), "agree on"))
    return (*sentences, *_independence_warnings(runs.values()))


def correctness_remarks(grades: CorrectnessGrades, judge: str | None = None) -> tuple[str, ...]:
    """Return notes for tables of right and wrong answers from `grades.outcomes(judge)`."""
    gradable = [case for case in grades.cases if case.gradable]
    verdicts = Counter(map(partial(grades.verdict, judge=judge), (item.key for item in gradable)))
    return (
        f"Right: marked correct against the reference by {judge or _judges_name(grades)}. Of "
        f"{count_noun(len(gradable), 'answer')}, "
        f"{verdicts['cannot be said']} have the verdict `cannot be said` and count as unparsed; {verdicts[None]} have "
        "no verdict and count as failed.",
        *_independence_warnings([grades]),
    )


def _judges_name(grades: CorrectnessGrades) -> str:
    judges = tuple(grades.judges)
    if not judges:
        return "no judge"
    return f"majority of {len(judges)} judges" if len(judges) > 1 else judges[0]


def _independence_warnings(runs: Iterable[CorrectnessGrades]) -> tuple[str, ...]:
    """Return the judges that took part in the judged answers, and whether this is unknown for some examples."""
    warnings, unknown = [], False
    for grades in runs:
        unknown = unknown or grades.unknown
        for judge in grades.judges:
            for part in grades.parts_of_judge(judge):
                warnings.append(
                    f"Warning: {judge} judges answers and {part}: a model may prefer its own words; let another one "
                    "judge as well (errata P11)."
                )
    if unknown:
        warnings.append("The author of some examples is not known: check that it is not a judge (errata P11).")
    return tuple(dict.fromkeys(warnings))


def _have_several_judges(runs: Mapping[str, CorrectnessGrades]) -> bool:
    return any(len(grades.judges) > 1 for grades in runs.values())


def _varying_conditions(runs: Mapping[str, CorrectnessGrades]) -> tuple[str, ...]:
    return find_varying_conditions((case.outcome for case in grades.cases) for grades in runs.values())


def _strata(
    runs: Mapping[str, CorrectnessGrades], names: Sequence[str]
) -> Iterator[tuple[tuple[Cell, ...], CorrectnessGrades]]:
    """Yield the grades of each run by the values of these conditions, numbers by size and texts by name.

    The labels are the name of the model and these values. Concurrent requests end in any order, but tables always have
    the same.
    """

    def place(case: OpenCase) -> list[tuple[float, str]]:
        key: list[tuple[float, str]] = []
        for name in names:
            value = case.outcome.condition.get(name, "")
            key.append((0.0, value) if isinstance(value, str) else (float(value), ""))
        return key

    for model, grades in runs.items():
        cases = sorted(grades.cases, key=place)
        for labels, stratum in group_by(
            cases, lambda case: tuple(case.outcome.condition.get(name) for name in names)
        ).items():
            yield (model, *labels), replace(grades, cases=tuple(stratum))


def _endings_table(runs: Mapping[str, CorrectnessGrades], conditions: Sequence[str]) -> Table:
    cases = chain.from_iterable(run.cases for run in runs.values())
    states = list(STATES)
    if "over-window" not in (case.outcome.state for case in cases):
        states.remove("over-window")
    rows: list[tuple[Cell, ...]] = []
    for labels, grades in _strata(runs, conditions):
        counts = Counter(case.outcome.state for case in grades.cases)
        without_reference = [*(case.reference for case in grades.cases)].count(None)
        words = [len(case.answer.split()) for case in grades.cases if case.gradable]
        length = sum(words) / len(words) if words else None
        rows.append((*labels, len(grades.cases), *(counts[state] for state in states), without_reference, length))
    columns = ("model", *conditions, "asked", *states, "without a reference", "words of an answer")
    note = "Questions without options. An answer without a reference, and a question without an answer, is not marked."
    return Table("How the open questions ended", columns, tuple(rows), (note,))


def _grades_table(runs: Mapping[str, CorrectnessGrades], conditions: Sequence[str]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for labels, grades in _strata(runs, conditions):
        keys = [case.key for case in grades.cases if case.gradable]
        for name, judge in grades.judges.items():
            states = Counter(judge.grades[key].state if key in judge.grades else "" for key in keys)
            gaps = None, states["unparsed"], states["failed"], states[""]
            rows.append((*labels, name, *_verdict_cells(grades, name, keys), *gaps))
        if len(grades.judges) > 1:
            undecided = [*(grades.verdict(key) for key in keys)].count(None)
            cells = _verdict_cells(grades, None, keys)
            rows.append((*labels, _judges_name(grades), *cells, undecided, None, None, None))
    shares = (SHARE, OF_DECIDED)
    reasons = ("no majority", "unreadable", "call failed", "not marked")
    majority = (_MAJORITY_NOTE,) if _have_several_judges(runs) else ()
    notes = (*_GRADE_NOTES, *majority, *_independence_warnings(runs.values()))
    columns = ("model", *conditions, "judge", *shares, *VERDICTS, *reasons)
    return Table("Marked against the reference", columns, tuple(rows), notes)


def _verdict_cells(grades: CorrectnessGrades, judge: str | None, keys: Sequence[str]) -> tuple[Cell, ...]:
    counts = Counter(map(partial(grades.verdict, judge=judge), keys))
    right = correct_share(grades, "right", judge)
    right_of_answered = correct_share(grades, "right-of-answered", judge)
    return (right, right_of_answered, *(counts[verdict] for verdict in VERDICTS))


def correct_share(grades: CorrectnessGrades, measure: AccuracyMeasure, judge: str | None = None) -> Mean | None:
    """Return the share marked correct by this judge, or else by the majority. None if nothing is scored."""
    share = mean_score(grades.outcomes(judge), measure)
    return share if share.n else None


def _agreement_table(runs: Mapping[str, CorrectnessGrades]) -> Table:
    """Return the agreement of each two judges of a run, and of all of them if there are more."""
    agreements: list[tuple[str, str, RaterAgreement]] = []
    for model, grades in runs.items():
        questions = {case.key: case.outcome.question for case in grades.cases}
        groups: list[tuple[str, ...]] = [*combinations(grades.judges, 2)]
        if len(grades.judges) > 2:
            groups.append(tuple(grades.judges))
        for group in groups:
            raters = [grades.judges[name].verdicts for name in group]
            name = " and ".join(group) if len(group) == 2 else "all"
            agreements.append((model, name, measure_agreement(raters, clusters=questions)))
    return make_agreement_table(agreements, "answers", _AGREEMENT_NOTES)
