"""Test the context-retrieval experiments from request to tables: libraries, sets and refusals."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from epicrisis.core.errors import InputError
from epicrisis.core.types import Document
from epicrisis.evaluation.analysis.table import Cell
from epicrisis.evaluation.experiments.definition import Grid, Request
from epicrisis.evaluation.experiments.openmedprompt import ONE, REFINING
from epicrisis.evaluation.experiments.planning import plan_experiment
from epicrisis.evaluation.experiments.registry import find_experiment
from epicrisis.evaluation.experiments.run_findings import read_findings
from epicrisis.evaluation.experiments.vote_sampling import COT, MEDPROMPT, NO_EXAMPLES, SC
from epicrisis.evaluation.runs.run_folder import RECORDS, RunPlan
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.write.ingest import add_documents
from epicrisis.pipeline.pipeline import Pipeline
from epicrisis.pipeline.recording.case import Case, canonical_condition
from epicrisis.settings.configuration import load_settings
from epicrisis.testing.chat import ScriptedModel
from epicrisis.testing.hashing_encoder import HashingEncoder
from tests.support.correctness_marks import RIGHT, WRONG, marked_by, run_of
from tests.support.run_folders import QUESTIONS, folder

OPTIONS = {"A": "gout", "B": "scurvy"}


@pytest.fixture(autouse=True)
def use_hashing_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Open libraries with the fake encoder that made them."""
    monkeypatch.setattr("epicrisis.models.encoders.load_encoder", lambda *_: HashingEncoder(16))


def make_library(path: Path, n: int = 6) -> Path:
    """Create a library with `n` solved questions."""
    example = {"options": OPTIONS, "choice": "A", "reasoning": "So.", "answer": "It is gout."}
    texts = [f"Case {i}: which disease comes with a swollen toe number {i}?" for i in range(n)]
    encoder = HashingEncoder(16)
    with LibraryStore.create(
        path, encoder_fingerprint=encoder.fingerprint, encoder_name="hashing", dimensions=16, max_tokens=64, overlap=0
    ) as result:
        documents = (
            Document(f"made/{i}", text, metadata={**example, "question": text, "question_id": f"case-{i}"})
            for i, text in enumerate(texts)
        )
        add_documents(result, documents, encoder)
    return path


def write_questions(path: Path, form: str = "choice", n: int = 4) -> str:
    """Write a file of questions."""
    more: dict[str, Any] = {"options": OPTIONS, "gold": "B"} if form == "choice" else {"gold": "Scurvy."}
    lines = [{"id": f"{path.stem}-{i}", "question": f"What is it, {i}, in {path.stem}?", **more} for i in range(n)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return str(path)


def plan_cases(name: str, *sets: str, **request: Any) -> tuple[RunPlan, tuple[Case, ...]]:
    settings = load_settings({"strategy": find_experiment(name).strategy})
    pipeline = Pipeline(settings, dict.fromkeys(settings.roles, ScriptedModel(lambda _: "")), None)
    return plan_experiment(find_experiment(name), Request(sets=sets, questions=2, **request), settings, pipeline)


def list_shown_examples(cases: tuple[Case, ...]) -> list[tuple[object, int]]:
    """Return the condition `examples` of each case and the number of examples shown."""
    return [
        (case.condition["examples"], len(case.treatment.examples.examples) if case.treatment.examples else 0)
        for case in cases
    ]


# -- libraries --------------------------------------------------------------------------------------------------------


def test_plan_records_example_libraries_and_controls(tmp_path: Path) -> None:
    libraries = (("cot", make_library(tmp_path / "one")), ("tot", make_library(tmp_path / "two")))
    plan, cases = plan_cases(
        "medprompt", write_questions(tmp_path / "a.jsonl"), examples=libraries, grid=Grid(votes=(2,))
    )
    assert list_shown_examples(cases[:5]) == [("none", 0), ("cot", 5), ("tot", 5), ("random", 5), ("fixed", 5)]
    assert list(plan.arguments["examples"]) == ["cot", "tot", "random", "fixed"]
    assert {argument["encoder"] for argument in plan.arguments["examples"].values()} == {"hashing"}
    assert plan.arguments["arms"] == ("none", "retrieved", "random", "fixed")


def test_plan_shows_number_of_examples_of_grid(tmp_path: Path) -> None:
    one = (("cot", make_library(tmp_path / "one", 8)),)
    open_ones = write_questions(tmp_path / "open.jsonl", "open")
    _, cases = plan_cases("openmedprompt", open_ones, examples=one, grid=Grid((ONE, REFINING), (0, 8), votes=(3,)))
    assert {(case.condition["k"], n) for case, (_, n) in zip(cases, list_shown_examples(cases), strict=True)} == {
        (0, 0),
        (8, 8),
    }
    with pytest.raises(InputError, match="a library has 8 solved questions to show of 9: give less with -k"):
        plan_cases("openmedprompt", open_ones, examples=one, grid=Grid((ONE, REFINING), (9,), votes=(3,)))


def test_plan_without_required_examples_raises_input_error(tmp_path: Path) -> None:
    open_ones = write_questions(tmp_path / "open.jsonl", "open")
    with pytest.raises(InputError, match=f"--examples NAME=LIBRARY, or ask --arm {ONE} alone"):
        plan_cases("openmedprompt", open_ones)
    _, cases = plan_cases("openmedprompt", open_ones, grid=Grid((ONE,)))
    assert list_shown_examples(cases) == [("none", 0)] * 2
    with pytest.raises(InputError, match="ensembles shows no solved questions: leave --examples out"):
        plan_cases("ensembles", write_questions(tmp_path / "a.jsonl"), examples=(("cot", tmp_path / "one"),))
    with pytest.raises(InputError, match="medprompt does not vary that: leave -k out"):
        plan_cases("medprompt", write_questions(tmp_path / "b.jsonl"), grid=Grid(ks=(0,)))


@pytest.mark.parametrize("names", [("solved", "solved"), ("",), ("random",), ("cot+reranker",)])
def test_plan_with_indistinguishable_libraries_raises_input_error(tmp_path: Path, names: tuple[str, ...]) -> None:
    named = tuple((name, tmp_path / "one") for name in names)
    with pytest.raises(InputError, match="give each a name, --examples NAME=FOLDER"):
        plan_cases("medprompt", write_questions(tmp_path / "a.jsonl"), examples=named)


# -- tables -----------------------------------------------------------------------------------------------------------


def read_tables(path: Path) -> Mapping[str, list[Mapping[str, Cell]]]:
    (result,) = read_findings([path])
    return {table.title: [dict(zip(table.columns, row, strict=True)) for row in table.rows] for table in result.tables}


@pytest.mark.slow
def test_medprompt_tables_compare_with_first_named_library(tmp_path: Path) -> None:
    """Calls at once end in any order."""
    arms = {NO_EXAMPLES: "self-consistency+shuffling", "cot": MEDPROMPT, "tot": MEDPROMPT, "random": MEDPROMPT}
    rates = {NO_EXAMPLES: 4, "cot": 3, "tot": 2, "random": 5}
    path = folder(
        tmp_path / "run",
        lambda i, at: i % rates[str(at["examples"])] == 0,
        conditions=[{"arm": arm, "examples": name, "repeat": 0} for name, arm in arms.items()],
        name="medprompt",
        arguments={"examples": {"cot": {}, "tot": {}, "random": {}}, "repeats": 1},
    )
    lines = (path / RECORDS).read_text("utf-8").splitlines(keepends=True)
    random.Random(3).shuffle(lines)
    (path / RECORDS).write_text("".join(sorted(lines, key=lambda line: '"random"' not in line)), "utf-8")
    result = read_tables(path)
    assert [row["examples"] for row in result["Accuracy by the examples that are shown"]] == [
        "none",
        "cot",
        "tot",
        "random",
    ]
    assert [row["examples"] for row in result["Which examples"]] == ["tot", "random"]


def test_openmedprompt_findings_without_grades_show_no_accuracy(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", [RIGHT, WRONG, "abstained"], (ONE, REFINING))
    records = [json.loads(line) for line in (run / RECORDS).read_text("utf-8").splitlines()]
    for record in records:
        question = record["key"].removesuffix(f" {canonical_condition(record['condition'])}")
        record["condition"] |= {"examples": "cot", "k": 3, **({"n": 3} if record["condition"]["arm"] != ONE else {})}
        record["key"] = f"{question} {canonical_condition(record['condition'])}"
    path = folder(tmp_path / "whole", lambda *_: True, questions=QUESTIONS[:1], name="openmedprompt")
    (path / RECORDS).write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")
    (result,) = read_findings([path])
    (took,) = (table for table in result.tables if table.title == "What it took")
    assert result.tables[0] is took
    assert "these open answers are not marked yet" in took.notes[0]
    assert not any("difference" in conclusion for conclusion in result.conclusions)
    marked_by(path)
    shares = {row["examples"]: row["share right"].value for row in read_tables(path)["One draft"]}  # type: ignore[union-attr]
    assert shares == {"cot": pytest.approx(1 / 3)}


def test_ensembles_tables_separate_question_sets(tmp_path: Path) -> None:
    sets = (write_questions(tmp_path / "b.jsonl"), write_questions(tmp_path / "a.jsonl"))
    _, cases = plan_cases("ensembles", *sets, grid=Grid((COT, SC), votes=(3,), temperatures=(0.7,)))
    assert {(case.question.id.partition("-")[0], case.condition["set"]) for case in cases} == {
        ("a", "a.jsonl"),
        ("b", "b.jsonl"),
    }
    result = folder(
        tmp_path / "run",
        lambda i, at: at["set"] == "a.jsonl",
        conditions=[{"set": name, "arm": COT, "repeat": 0} for name in ("b.jsonl", "a.jsonl")],
        questions=QUESTIONS[:6],
        name="ensembles",
    )
    shares = {row["model"]: row["share right"].value for row in read_tables(result)["Accuracy by method"]}  # type: ignore[union-attr]
    assert shares == {"qwen, a.jsonl": 1.0, "qwen, b.jsonl": 0.0}
    assert [row["model"] for row in read_tables(result)["What it took"]] == ["qwen, a.jsonl", "qwen, b.jsonl"]
