"""Findings of the context-retrieval study's experiments, off runs on disk whose answers are chosen."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from epicrisis.core.answers import Answer, Usage
from epicrisis.core.types import Example, Examples, Question
from epicrisis.evaluation.analysis.findings import Findings
from epicrisis.evaluation.experiments import ensembles, medprompt, model_comparison, openmedprompt
from epicrisis.evaluation.experiments.run_findings import read_findings
from epicrisis.evaluation.experiments.vote_sampling import SHUFFLED
from epicrisis.evaluation.runs.energy import EquipmentEnergy, SessionEnergy
from epicrisis.evaluation.runs.run_folder import Run, RunPlan
from epicrisis.pipeline.recording.case import Case
from tests.support.correctness_marks import RIGHT, WRONG, marked_by
from tests.support.experiments import build_cases
from tests.support.run_folders import recipe

N = 12
_OPTIONS = {"A": "gout", "B": "scurvy", "C": "rickets", "D": "measles"}
CHOICE = tuple(
    Question(f"Case {i}: what is it?", options=_OPTIONS, form="choice", id=str(i), gold="ABCD"[i % 4]) for i in range(N)
)
OPEN = tuple(Question(f"Case {i}: what helps?", form="open", id=str(i), gold="Rest.") for i in range(N))
_TAKEN = SessionEnergy(
    1800.0, 0.205, (EquipmentEnergy("processors", "measured", 1.8e6, "RAPL's counters of package-0"),)
)

Right = Callable[[int, Case], bool]


def found(name: str, cases: Sequence[Case], right: Right, dataset: str, writers: Sequence[str] = ("tiny",)) -> Findings:
    """Of a run for each writer, on disk and back; the last question fails, open answers are marked."""
    with TemporaryDirectory() as folder:
        paths = [Path(folder, writer) for writer in writers]
        for path in paths:
            _write(path, name, cases, right, dataset)
            if not cases[0].question.options:
                marked_by(path)
        (findings,) = read_findings(paths)
        return findings


def _write(path: Path, name: str, cases: Sequence[Case], right: Right, dataset: str) -> None:
    told = {"name": dataset, "sha256": "5" * 64, "n": N, "licence": ""}
    arms = tuple(dict.fromkeys(str(case.condition["arm"]) for case in cases))
    plan = RunPlan(name, {"arms": arms}, recipe(path.name, library=None), told, {"how": "all"}, 0)
    with Run.open(path, plan, cases) as run:
        for case in cases:
            run.records.append_answer(_answer(case, right(int(case.question.id), case)), case.condition)
        run.record_energy(_TAKEN)


def _answer(case: Case, right: bool) -> Answer:
    question, strategy = case.question, str(case.treatment.strategy)
    calls = int(str(case.condition.get("votes", case.condition.get("n", 1))))
    usage = Usage(calls=calls, prompt_tokens=900 * calls, completion_tokens=100 * calls, seconds=float(calls))
    if int(question.id) == N - 1:
        return Answer(question=question, strategy=strategy, state="failed", usage=usage)
    if not question.options:
        return Answer(
            question=question, strategy=strategy, state="answered", text=RIGHT if right else WRONG, usage=usage
        )
    choice = question.gold if right else next(letter for letter in question.options if letter != question.gold)
    return Answer(question=question, strategy=strategy, state="answered", text="So it is.", choice=choice, usage=usage)


FIVE = Examples(tuple(Example(id=f"e{i}", text=f"Example {i}?", answer="So.") for i in range(5)))


def some(_: Question) -> Examples:
    return FIVE


@cache
def by_votes() -> Findings:
    cases = build_cases(ensembles, CHOICE, votes=(1, 5, 20))

    def right(i: int, case: Case) -> bool:
        votes = int(str(case.condition.get("votes", 1)))
        return i % 3 != 0 if case.condition["arm"] == SHUFFLED and votes > 1 else i % 2 == 0

    return found(ensembles.NAME, cases, right, "mirage/medqa", ("tiny", "small"))


@cache
def by_examples() -> Findings:
    sources = {"train-cot": some, "train-cot+reranker": some, "random": some, "fixed": some}
    cases = build_cases(medprompt, CHOICE, examples=sources)
    return found(medprompt.NAME, cases, lambda i, case: i % (2 + len(str(case.condition["examples"])) % 3) > 0, "own")


@cache
def by_model() -> Findings:
    asked = {"mirage/medqa": CHOICE[:6], "careqa": CHOICE[6:]}
    cases = build_cases(model_comparison, asked, examples={"train-cot": some}, votes=(20,))
    return found(
        model_comparison.NAME,
        cases,
        lambda i, case: i % len(str(case.condition["arm"])) % 3 > 0,
        "both",
        ("tiny", "small"),
    )


@cache
def by_drafts() -> Findings:
    cases = build_cases(openmedprompt, OPEN, examples={"cot": some, "tot": some}, votes=(3, 5, 10), ks=(0, 1, 5))

    def right(i: int, case: Case) -> bool:
        return (i + int(str(case.condition.get("n", 0)))) % 3 > 0

    return found(openmedprompt.NAME, cases, right, "medqa/open-test")


EXPERIMENTS: Mapping[str, Callable[[], Findings]] = {
    ensembles.NAME: by_votes,
    medprompt.NAME: by_examples,
    model_comparison.NAME: by_model,
    openmedprompt.NAME: by_drafts,
}


def everything() -> tuple[Findings, ...]:
    return tuple(read() for read in EXPERIMENTS.values())
