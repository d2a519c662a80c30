"""Is an open answer correct? Models mark it against the reference (context-retrieval study, open-ended tasks).

A mark is found by the case's key, never by its place in a file (errata P4). The judge sees question, reference and
answer, each in the fence of documents and without citations: never who wrote it. Abstained, unparsed and failed answers
are not marked, they stand apart. Knows no table.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from epicrisis.answering.structured_request import JsonFormat, ModelClient, Unreadable, read_object, text_schema
from epicrisis.answers import ExamplesFound, Failure, Usage
from epicrisis.errors import InputError
from epicrisis.evaluation.grading.blind_pairs import remove_citations
from epicrisis.evaluation.grading.grader import STATES, GradeState, GradeStore, read_grades
from epicrisis.evaluation.runs.concurrency import run_concurrently
from epicrisis.evaluation.runs.outcomes import Outcome, score_record
from epicrisis.evaluation.runs.record import RunRecord, read_records
from epicrisis.evaluation.runs.run_folder import RECORDS
from epicrisis.prompts import Prompt, fence, render
from epicrisis.serialization import to_json

PROMPTS = "epicrisis.evaluation.grading.prompts"
REASON_CHARACTERS = 400
CORRECTNESS_FOLDER = "marking"
"""The folder beside a run's records that its judges' files lie in, JUDGE.jsonl each."""

CorrectnessVerdict: TypeAlias = Literal["correct", "incorrect", "cannot be said"]
VERDICTS: tuple[CorrectnessVerdict, ...] = get_args(CorrectnessVerdict)

WROTE, SCORED, EXAMPLES = "wrote them", "scored their drafts", "wrote the examples shown for them"
"""What a model may have done for the answers that it judges (errata P11)."""


@dataclass(frozen=True, slots=True)
class OpenCase:
    """A case of a run whose question has no options."""

    key: str
    outcome: Outcome
    """How it ended; neither right nor wrong as yet."""
    question: str
    reference: str | None
    """The question's gold answer; `None` where nobody gave one, so that nothing can be marked."""
    answer: str
    """As the judge sees it: without what names its evidence."""
    patient: bool = False
    """Whether it is about a patient's record."""

    @property
    def to_mark(self) -> bool:
        return self.outcome.state == "answered" and self.reference is not None

    @property
    def of(self) -> str:
        """A hash of all that the judge sees: a mark of other words is no mark of this case."""
        return hashlib.sha256(json.dumps([self.question, self.reference, self.answer]).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class CorrectnessGrade:
    """What came of one call of one judge."""

    key: str
    """Of the case."""
    of: str
    """`OpenCase.of`."""
    state: GradeState
    verdict: CorrectnessVerdict | None = None
    """`None` unless the state is `judged`: neither an unreadable reply nor a failed call says anything."""
    reason: str = ""
    failure: Failure | None = None
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True, slots=True)
class JudgeGrades:
    """One judge's file."""

    model: str
    marks: Mapping[str, CorrectnessGrade]
    """By case key."""

    @property
    def verdicts(self) -> dict[str, CorrectnessVerdict]:
        """By case key, where it could be read."""
        return {key: grade_cases.verdict for key, grade_cases in self.marks.items() if grade_cases.verdict is not None}


@dataclass(frozen=True, slots=True)
class CorrectnessGrades:
    """The open cases of one run, and what each judge says of them."""

    cases: tuple[OpenCase, ...]
    judges: Mapping[str, JudgeGrades] = field(default_factory=dict)
    """By name: the model's, and the file's where two share one."""
    models: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """By what they did (WROTE, SCORED, EXAMPLES): the models' names."""
    unknown: bool = False
    """Of some examples that were shown nobody says who wrote them."""

    def verdict(self, key: str, judge: str | None = None) -> CorrectnessVerdict | None:
        """The judge's; without a name what more than half of all the judges say. `None` where there is none such: a
        tie is no verdict, and nor is that of one judge where the others have none."""
        asked = self.judges.values() if judge is None else [self.judges[judge]]
        said = Counter(each.marks[key].verdict for each in asked if key in each.marks)
        return next((verdict for verdict in VERDICTS if 2 * said[verdict] > len(asked)), None)

    def outcomes(self, judge: str | None = None) -> tuple[Outcome, ...]:
        """The cases with a reference as tables of right and wrong take them (`tables.analysis`), in their order.

        Right is an answer that is marked correct. One of which it cannot be said is `unparsed`: none that is right.
        One without a verdict is `failed`: it has no score, for that is no fault of the answer.
        """
        return tuple(
            _marked(case.outcome, self.verdict(case.key, judge)) if case.to_mark else case.outcome
            for case in self.cases
            if case.reference is not None
        )

    def did(self, judge: str) -> tuple[str, ...]:
        """What else the judge's model did for these answers: WROTE, SCORED, EXAMPLES."""
        model = _plain(self.judges[judge].model)
        return tuple(what for what, models in self.models.items() if model in map(_plain, models))


def _plain(model: str) -> str:
    """The model's own name, wherever it is served."""
    name = model.rpartition("#")[2]
    return (name if "://" in name else name.rpartition("/")[2]).casefold()


def _marked(outcome: Outcome, verdict: CorrectnessVerdict | None) -> Outcome:
    if verdict is None or verdict == "cannot be said":
        return replace(outcome, state="unparsed" if verdict else "failed")
    return replace(outcome, right=verdict == "correct")


# -- asking -----------------------------------------------------------------------------------------------------------


def render_prompt(question: str, reference: str, answer: str) -> Prompt:
    """The prompt for one case: the three texts in one fence, in this order."""
    return render(PROMPTS, "correctness", documents=fence([question, reference, answer]))


def recipe(asker: ModelClient) -> dict[str, Any]:
    """What decides the marks, beside the answers."""
    return {"judge": to_json(asker.model_recipe), "prompt": render_prompt("", "", "").template, "seed": asker.seed}


def _read(reply: str) -> tuple[CorrectnessVerdict, str]:
    value = read_object(reply, "verdict")
    verdict = next((each for each in VERDICTS if each == str(value["verdict"]).strip().casefold()), None)
    if verdict is None:
        raise Unreadable(f"the verdict is none of {', '.join(VERDICTS)}")
    return verdict, str(value.get("reason", ""))


FORM: JsonFormat[tuple[CorrectnessVerdict, str]] = JsonFormat(
    {"reason": text_schema(REASON_CHARACTERS), "verdict": {"enum": list(VERDICTS)}}, REASON_CHARACTERS, _read
)


async def grade_cases(
    cases: Iterable[OpenCase], asker: ModelClient, file: GradeStore[CorrectnessGrade]
) -> AsyncGenerator[CorrectnessGrade, None]:
    """The marks that were not there yet, as they come. Raises as `run_concurrently` does."""
    left = [case for case in cases if case.to_mark and not file.is_done(case.key)]

    async def work(case: OpenCase) -> CorrectnessGrade:
        said = await asker.request(render_prompt(case.question, case.reference or "", case.answer), FORM)
        if said.value is None:
            state: GradeState = "failed" if said.failure else "unparsed"
            return CorrectnessGrade(case.key, case.of, state, None, said.unreadable or "", said.failure, said.usage)
        return CorrectnessGrade(case.key, case.of, "judged", *said.value, usage=said.usage)

    # Left half-way it must end what it works on now, not when it is collected.
    async with aclosing(
        run_concurrently(left, work, file.append, lambda mark: mark.failure, asker.concurrency)
    ) as marks:
        async for each in marks:
            yield each


# -- files ------------------------------------------------------------------------------------------------------------


def read_open_cases(run: Path) -> tuple[OpenCase, ...]:
    """Those of a run's folder, or of its records, in the order of the records. Raises InputError."""
    return _read_run(run)[0]


def open_correctness_store(path: Path, asker: ModelClient, cases: Iterable[OpenCase]) -> GradeStore[CorrectnessGrade]:
    """This judge's file, to be added to. Raises InputError as ReplyFile does, and where its marks are of others."""
    file = GradeStore(path, recipe(asker), _mark)
    _check(path, file.replies.values(), cases)
    return file


def read_correctness(run: Path, files: Sequence[Path] | None = None) -> CorrectnessGrades:
    """A run's open cases with the marks in these files, else in all files of its folder MARKING.

    Raises InputError where a file holds something else, or marks of other answers.
    """
    cases, models, unknown = _read_run(run)
    folder = (run if run.is_dir() else run.parent) / CORRECTNESS_FOLDER
    judges: dict[str, JudgeGrades] = {}
    for path in sorted(folder.glob("*.jsonl")) if files is None else files:
        made, marks = read_grades(path, _mark)
        _check(path, marks.values(), cases)
        model = str(made["judge"]["name"])
        judges[f"{model} ({path.name})" if model in judges else model] = JudgeGrades(
            model, {each.key: each for each in marks.values()}
        )
    return CorrectnessGrades(cases, judges, models, unknown)


def read_correctness_verdicts(run: Path) -> dict[str, CorrectnessVerdict | None]:
    """By the key of each open case: the verdict of the judges whose files lie in the run's folder MARKING, by majority;
    `None` where there is none, or nothing to mark. Raises InputError."""
    marking = read_correctness(run)
    return {case.key: marking.verdict(case.key) if case.to_mark else None for case in marking.cases}


def _mark(**told: Any) -> CorrectnessGrade:
    """Raises TypeError, ValueError."""
    made = CorrectnessGrade(**told)
    said = made.verdict in VERDICTS if made.state == "judged" else made.verdict is None
    if not said or made.state not in STATES or not isinstance(made.key, str):
        raise ValueError("no mark")
    return made


def _check(path: Path, marks: Iterable[CorrectnessGrade], cases: Iterable[OpenCase]) -> None:
    known = {case.key: case.of for case in cases if case.to_mark}
    if others := sum(known.get(each.key) != each.of for each in marks):
        raise InputError(f"{path} holds {others} marks of other answers: name another file, or the run they are of")


def _read_run(run: Path) -> tuple[tuple[OpenCase, ...], dict[str, frozenset[str]], bool]:
    """The open cases, the models by what they did, and whether examples were shown of which nobody says who wrote
    them."""
    cases: list[OpenCase] = []
    models: dict[str, set[str]] = {WROTE: set(), SCORED: set(), EXAMPLES: set()}
    # Not the records themselves: the traces of thousands would fill the memory.
    for record in read_records(run / RECORDS if run.is_dir() else run):
        if record.answer.question.options:
            continue
        cases.append(_open_case(record))
        for role, model in record.recipe.get("models", {}).items():
            models[SCORED if role == "reward" else WROTE].add(str(model["name"]))
        for event in record.answer.trace:
            if isinstance(event, ExamplesFound):
                models[EXAMPLES].update(event.models)
    known = {did: frozenset(names - {""}) for did, names in models.items()}
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
