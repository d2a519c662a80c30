"""Correctness of open answers: models compare each answer with the reference (context-retrieval study, open tasks).

The prompt holds question, reference and answer as fenced data, without citations and author. Abstained, unparsed and
failed answers are not graded; tables count them apart.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal, TypeAlias, get_args

from pydantic import Field, model_validator

from epicrisis.answering.structured_request import ModelClient
from epicrisis.answers import ExamplesFound, Failure, Usage
from epicrisis.errors import InputError
from epicrisis.evaluation.grading.blind_pairs import remove_citations
from epicrisis.evaluation.grading.grader import (
    PROMPTS,
    GradeLine,
    Grader,
    GradeState,
    GradeStore,
    grade_all,
    read_grades,
    verdict_format,
)
from epicrisis.evaluation.runs.outcomes import Outcome, score_record
from epicrisis.evaluation.runs.record import RunRecord, read_records
from epicrisis.evaluation.runs.run_folder import RECORDS
from epicrisis.prompts import Prompt, fence, render

CORRECTNESS_FOLDER = "marking"
"""The folder next to a run's records with a file of grades per judge, JUDGE.jsonl."""

CorrectnessVerdict: TypeAlias = Literal["correct", "incorrect", "cannot be said"]
VERDICTS: tuple[CorrectnessVerdict, ...] = get_args(CorrectnessVerdict)
FORMAT = verdict_format(VERDICTS, 400)

WROTE, SCORED, EXAMPLES = "wrote them", "scored their drafts", "wrote the examples shown for them"
"""Possible parts of a model in the answers that it judges (errata P11)."""


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


@dataclass(frozen=True, slots=True)
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
        counts = Counter(grades.grades[key].verdict for grades in judges if key in grades.grades)
        return next((verdict for verdict in VERDICTS if 2 * counts[verdict] > len(judges)), None)

    def outcomes(self, judge: str | None = None) -> tuple[Outcome, ...]:
        """Return the outcomes of the cases with a reference, for tables of right and wrong answers.

        A correct answer is right. One that "cannot be said" is `unparsed`, so it is not right. One without a verdict is
        `failed` and has no score, because that is not the answer's fault.
        """
        outcomes = []
        for case in self.cases:
            if case.gradable:
                outcomes.append(_apply_verdict(case.outcome, self.verdict(case.key, judge)))
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


def _apply_verdict(outcome: Outcome, verdict: CorrectnessVerdict | None) -> Outcome:
    if verdict is None:
        return replace(outcome, state="failed")
    if verdict == "cannot be said":
        return replace(outcome, state="unparsed")
    return replace(outcome, right=verdict == "correct")


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
            case.key, case.digest, grade.state, grade.value, grade.reason, grade.failure, grade.usage
        )

    missing = [case for case in cases if case.gradable and not store.is_done(case.key)]
    return grade_all(missing, grade_case, store, grader.client.concurrency)


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
        judges[name] = JudgeGrades(model, {grade.key: grade for grade in grades.values()})
    return CorrectnessGrades(cases, judges, models, unknown)


def read_correctness_verdicts(run: Path) -> dict[str, CorrectnessVerdict | None]:
    """Read the majority verdict of all judges in the run's CORRECTNESS_FOLDER, by the key of each open case.

    The verdict is None if there is none, or if the case is not gradable. Raises InputError.
    """
    correctness = read_correctness(run)
    verdicts: dict[str, CorrectnessVerdict | None] = {}
    for case in correctness.cases:
        verdicts[case.key] = correctness.verdict(case.key) if case.gradable else None
    return verdicts


def _check_subjects(path: Path, grades: Iterable[CorrectnessGrade], cases: Iterable[OpenCase]) -> None:
    digests = {case.key: case.digest for case in cases if case.gradable}
    if others := sum(digests.get(grade.key) != grade.digest for grade in grades):
        raise InputError(f"{path} holds {others} grades of other answers: name another file, or their run")


def _read_run(run: Path) -> tuple[tuple[OpenCase, ...], dict[str, frozenset[str]], bool]:
    """Read the open cases, the models by their part in the answers, and whether an example's author is unknown."""
    cases: list[OpenCase] = []
    models: dict[str, set[str]] = {WROTE: set(), SCORED: set(), EXAMPLES: set()}
    # Records are not kept: the traces of thousands of answers would fill the memory.
    for record in read_records(run / RECORDS if run.is_dir() else run):
        if record.answer.question.options:
            continue
        cases.append(_open_case(record))
        for role, model in record.recipe.get("models", {}).items():
            models[SCORED if role == "reward" else WROTE].add(str(model["name"]))
        for event in record.answer.trace:
            if isinstance(event, ExamplesFound):
                models[EXAMPLES].update(event.models)
    known = {part: frozenset(names - {""}) for part, names in models.items()}
    return tuple(cases), known, "" in models[EXAMPLES]


def _open_case(record: RunRecord) -> OpenCase:
    answer, question = record.answer, record.answer.question
    return OpenCase(
        key=record.key,
        outcome=score_record(record),
        question=question.text.strip(),
        reference=question.gold or None,
        answer=remove_citations(answer.text),
        patient=question.patient is not None,
    )
