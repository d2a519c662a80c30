"""The EHR study as one command, on fictional records, with a simulated reader that misses the middle of its prompt."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from epicrisis.cli.program import app
from epicrisis.core.types import Document, Passage
from epicrisis.evaluation.datasets.patient_records.populations import GENERATED_FACTS, find_length_bin
from epicrisis.evaluation.datasets.patient_records.recordset import load_records
from epicrisis.evaluation.datasets.patient_records.source import RecordSet
from epicrisis.evaluation.experiments import record_arms
from epicrisis.evaluation.experiments.record_studies import EHR, WHOLE
from epicrisis.evaluation.grading.measurements import MeasuredCase, read_measured_cases
from epicrisis.retrieval.record_context import sort_by_time
from epicrisis.testing.chat import ScriptedModel
from tests.support.position_biased_reader import PositionCurve, find_key_passages, position_biased_reader, u_curve
from tests.support.served_models import served

pytestmark = [pytest.mark.models, pytest.mark.slow]


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def read_notes(records: RecordSet) -> dict[str, Document]:
    return {item.id: item for item in records.notes() if isinstance(item, Document)}


@contextmanager
def serve_reader(records: RecordSet, curve: PositionCurve) -> Iterator[str]:
    """Serve a reader of these records, and yield its address."""
    texts = {name: note.text for name, note in read_notes(records).items()}
    with served(position_biased_reader(find_key_passages(records.questions, texts), curve)) as server:
        yield f"{server.url}#reader"


@pytest.fixture(scope="module")
def record_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of records of two lengths with their questions."""
    folder = tmp_path_factory.mktemp("ehr") / "records"
    result = run(
        "synthesize-record",
        "-o",
        folder,
        "--patients",
        2,
        "--tokens",
        "4000,8000",
        "--questions-each",
        21,
        "--seed",
        3,
    )
    assert result.exit_code == 0, result.output
    return folder


@pytest.fixture(scope="module")
def records(record_folder: Path) -> RecordSet:
    return load_records(record_folder)


def ask(record_folder: Path, model: str, output: Path, name: str = EHR, *options: object) -> Result:
    library = record_folder.parent / "library"
    settings = ("--setting", "models.writer.context_tokens=100000", "--library", library, "--yes", "--json")
    return run("experiment", name, "--data", record_folder, "--model", model, "-o", output, *settings, *options)


@pytest.fixture(scope="module")
def study(
    record_folder: Path, records: RecordSet, model_home: Path
) -> tuple[dict[str, object], tuple[MeasuredCase, ...]]:
    """Return the JSON and the cases of the whole study, with a reader that loses the middle."""
    folder = record_folder.parent / "run"
    arms = (*WHOLE.grid.arms, record_arms.GOLD)
    with serve_reader(records, u_curve()) as model:
        # With numbers, the sentences to number are selected anew for each of 600 prompts.
        options = ("--setting", "citing=quotes", *chain.from_iterable(("--arm", arm) for arm in arms))
        result = ask(record_folder, model, folder, EHR, *options)
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout), read_measured_cases(folder)


def is_correct(case: MeasuredCase) -> bool:
    if case.unanswerable:
        return case.ending == "abstained"
    return case.values.get("accuracy" if case.form == "choice" else "token-f1", 0.0) > 0.99


def select_cases(cases: Sequence[MeasuredCase], arm: str, *, answerable: bool = True) -> list[MeasuredCase]:
    """Return the cases of an arm. `answerable` leaves out questions that no note answers."""
    return [
        case
        for case in cases
        if case.condition["arm"] == arm and not (answerable and case.condition["category"] == "absence")
    ]


@pytest.mark.long
def test_ehr_study_covers_every_arm_length_form_and_category(study: tuple[object, tuple[MeasuredCase, ...]]) -> None:
    cases = study[1]
    conditions = [case.condition for case in cases]
    assert {condition["arm"] for condition in conditions} == {*WHOLE.grid.arms, record_arms.GOLD}
    assert {condition["bin"] for condition in conditions} == {"0-8K"}
    assert {condition["form"] for condition in conditions} == {"choice", "extractive", "open"}
    assert len({condition["category"] for condition in conditions}) == 7
    assert all(condition["bin"] == find_length_bin(int(condition["tokens"])) for condition in conditions)
    assert {case.ending for case in cases} == {"answered", "abstained"}


@pytest.mark.long
def test_ehr_study_without_related_notes_answers_nothing_and_with_the_gold_note_everything(
    study: tuple[object, tuple[MeasuredCase, ...]],
) -> None:
    cases = study[1]
    assert not any(
        is_correct(case)
        for case in (*select_cases(cases, record_arms.NONE), *select_cases(cases, record_arms.UNRELATED))
    )
    gold_cases = [case for case in select_cases(cases, record_arms.GOLD) if case.condition["category"] != "holistic"]
    assert gold_cases
    assert all(is_correct(case) for case in gold_cases if case.form != "extractive")
    assert any(is_correct(case) for case in select_cases(cases, record_arms.RELATED))


def test_ehr_study_counts_abstention_correct_for_unanswerable_questions(
    study: tuple[object, tuple[MeasuredCase, ...]],
) -> None:
    unanswerable_cases = [case for case in study[1] if case.unanswerable]
    assert {case.condition["arm"] for case in unanswerable_cases} >= {record_arms.ALL, "rag-5", record_arms.BRIEF}
    assert all(is_correct(case) for case in unanswerable_cases)


def test_ehr_study_full_context_accuracy_follows_the_position_curve(
    study: tuple[object, tuple[MeasuredCase, ...]], records: RecordSet
) -> None:
    """The reader sees a note with a probability by its position, oldest first. One note with the answer is enough."""
    curve, notes = u_curve(), read_notes(records)
    expected, variance, observed = 0.0, 0.0, 0
    for case in select_cases(study[1], record_arms.ALL):
        if case.condition["category"] == "holistic":
            continue
        question = next(item for item in records.questions if case.question.startswith(f"{item.id}:"))
        passages = [
            Passage(
                id=note.id,
                document_id=note.id,
                ordinal=0,
                start=0,
                end=1,
                text="x",
                date=note.date,
                patient=note.patient,
            )
            for note in notes.values()
            if note.patient == question.patient
        ]
        note_order = [passage.document_id for passage in sort_by_time(passages)]
        positions = {note_order.index(span.document_id) for span in question.evidence}
        miss_probability = math.prod(1 - curve(position, len(note_order)) for position in positions)
        expected, variance = expected + 1 - miss_probability, variance + miss_probability * (1 - miss_probability)
        observed += is_correct(case)
    assert abs(observed - expected) <= 3 * math.sqrt(variance)


def test_ehr_study_correct_answers_have_evidence_in_the_prompt(study: tuple[object, tuple[MeasuredCase, ...]]) -> None:
    answered = [case for case in study[1] if case.condition["category"] != "absence" and is_correct(case)]
    assert answered
    assert all(case.values["evidence-recall"] > 0 for case in answered)


def test_ehr_study_findings_have_the_tables_of_the_study(
    study: tuple[dict[str, object], tuple[MeasuredCase, ...]],
) -> None:
    data: Any = study[0]["findings"]
    (findings,) = data
    titles = [table["title"] for table in findings["tables"]]
    assert titles[:3] == [
        "Every metric by arm",
        "By the length of the record",
        "When does retrieval beat full context?",
    ]
    table_index = titles.index("Questions and patients")
    assert titles[table_index + 1 : table_index + 3] == ["How long the records are", "Records by their length"]
    (row,) = findings["tables"][table_index]["rows"]
    assert row[1:4] == ["generated", "all", 42]
    assert row[4] == 2
    assert any(title.startswith("Correlations of the metrics") for title in titles)


@pytest.mark.long
def test_record_longer_than_window_is_counted_and_not_asked_again(
    record_folder: Path, records: RecordSet, tmp_path: Path, model_home: Path
) -> None:
    folder = tmp_path / "narrow"
    options = ("--setting", "models.writer.context_tokens=3000", "--arm", record_arms.ALL, "--arm", "rag-5", "-n", "16")
    with serve_reader(records, u_curve()) as model:
        first = ask(record_folder, model, folder, "ehr-context", *options)
        again = ask(record_folder, model, folder, "ehr-context", *options)
    assert (first.exit_code, again.exit_code) == (0, 0), first.stderr
    cases = read_measured_cases(folder)
    shortest = min(int(case.condition["tokens"]) for case in cases)
    for case in select_cases(cases, record_arms.ALL, answerable=False):
        assert (case.ending == "over-window") == (int(case.condition["tokens"]) > shortest)
    manifest = json.loads(again.stdout)["manifest"]
    assert manifest["complete"]
    assert manifest["states"]["over-window"] == sum(case.ending == "over-window" for case in cases) > 0


@pytest.mark.long
@pytest.mark.parametrize("name", ["ehr-extractive", "ehr-context"])
def test_ehr_experiment_of_unreadable_replies_ends_without_an_error(
    record_folder: Path, tmp_path: Path, model_home: Path, name: str
) -> None:
    arms = ("--arm", record_arms.ALL, "--arm", record_arms.BRIEF, "--arm", "rag-5", "-n", "2")
    with served(ScriptedModel(lambda _: "The notes describe several visits.")) as server:
        result = ask(record_folder, f"{server.url}#prose", tmp_path / "run", name, *arms)
    assert result.exit_code == 0, result.stderr
    manifest = json.loads(result.stdout)["manifest"]
    assert manifest["complete"]
    assert set(manifest["states"]) == {"unparsed"}


@pytest.mark.long
def test_ehr_study_as_published_has_its_prompts_and_says_so(
    record_folder: Path, records: RecordSet, tmp_path: Path, model_home: Path
) -> None:
    """The notes before the question, no quotations; the plan and the notes of the tables name the prompts."""
    kept = tmp_path / "prompts.jsonl"
    options = ("--protocol", "published", "--arm", record_arms.FULL, "--arm", record_arms.BRIEF, "-n", "2")
    with serve_reader(records, u_curve()) as model:
        result = ask(record_folder, model, tmp_path / "run", "ehr", *options, "--setting", f"record={kept}")
    assert result.exit_code == 0, result.stderr
    shown = json.loads(result.stdout)
    assert shown["manifest"]["plan"]["arguments"]["prompts"]["name"] == "ehr"
    notes = {note for table in shown["findings"][0]["tables"] for note in table["notes"]}
    assert any(note.startswith("Protocol published: the prompts of the study") for note in notes)
    requests = [json.loads(line)["request"] for line in kept.read_text(encoding="utf-8").splitlines()]
    users = [request["messages"][-1]["content"] for request in requests]
    asked_last = [text for text in users if "\nQuestion: " in text.rpartition("</documents>")[2]]
    asked_first = [text for text in users if text.startswith("Question: ")]
    assert len(asked_last) == 2, "the study's prompt"
    assert len(asked_first) == len(users) - 2 > 0, "ours in the arm brief-context"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--arm", "rag"), "no arm is called rag"),
        (("--population", "table-9"), "no population is called"),
        (("--population", "table-3"), "table-3 of the EHR study is not about generated"),
        (("--arm", "rag-5+splade"), "need a sparse encoder: give one with --sparse"),
        (("-k", "3"), "does not vary that: leave -k out"),
        (("--protocol", "as-coded"), "ehr-retrieval has no protocol as-coded"),
        (("--protocol", "published", "--setting", "citing=numbers"), "which know no citing=numbers"),
    ],
)
def test_ehr_experiment_with_invalid_options_reports_one_line(
    record_folder: Path, records: RecordSet, tmp_path: Path, model_home: Path, options: tuple[str, ...], message: str
) -> None:
    with serve_reader(records, u_curve()) as model:
        result = ask(record_folder, model, tmp_path / "none", "ehr-retrieval", *options)
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.strip().count("\n") == 0
    assert not (tmp_path / "none").exists()


@pytest.mark.long
def test_fact_questions_are_asked_with_and_without_structured_entries(tmp_path: Path, model_home: Path) -> None:
    folder = tmp_path / "records"
    made = run("synthesize-record", "-o", folder, "--patients", 2, "--tokens", 4000, "--structured", "fhir")
    assert made.exit_code == 0, made.output
    questions = load_records(folder, GENERATED_FACTS)
    assert {question.patient for question in questions.questions} == {"fict0-001", "fict0-002"}
    arms = "--arm", record_arms.FULL, "--arm", f"{record_arms.FULL}+facts"
    with serve_reader(questions, u_curve()) as model:
        result = ask(folder, model, tmp_path / "run", "ehr-retrieval", "--set", GENERATED_FACTS, *arms)
    assert result.exit_code == 0, result.stderr
    tables = {table["title"]: table for table in json.loads(result.stdout)["findings"][0]["tables"]}
    missing = tables["Missing information"]
    assert [row[2] for row in missing["rows"]] == [record_arms.FULL, f"{record_arms.FULL}+facts"]
    number = sum(question.gold == "" for question in questions.questions)
    assert [row[3] for row in missing["rows"]] == [number, number]
    assert number > 0
    computed = tables["Computed answers"]
    total = dict(zip(computed["columns"], computed["rows"][-1], strict=True))
    assert total["cases"] == len(questions.questions)
    assert total["exact"] + total["rightly-abstained"] == len(questions.questions)
    assert total["rightly-abstained"] == number
    assert "With and without structured entries" in tables
