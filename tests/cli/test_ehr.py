"""The EHR study as one command: fictional records, read by a reader whose blind spot is known; all of it comes out as
constructed."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from epicrisis.cli.app import app
from epicrisis.evaluation.datasets.patient_records.lengths import find_length_bin
from epicrisis.evaluation.datasets.patient_records.recordset import RecordSet, load_records
from epicrisis.evaluation.experiments import record_arms
from epicrisis.evaluation.experiments.ehr_study import NAME
from epicrisis.evaluation.grading.measurements import MeasuredCase, read_measured_cases
from epicrisis.retrieval.record_context import sort_by_time
from epicrisis.testing.reader import PositionCurve, find_key_passages, position_biased_reader, u_curve
from epicrisis.types import Document, Passage
from tests.support.served_models import served

pytestmark = pytest.mark.models


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def notes_of(records: RecordSet) -> dict[str, Document]:
    return {item.id: item for item in records.notes() if isinstance(item, Document)}


@contextmanager
def reader(records: RecordSet, curve: PositionCurve) -> Iterator[str]:
    """The address of a reader of these records."""
    texts = {name: note.text for name, note in notes_of(records).items()}
    with served(position_biased_reader(find_key_passages(records.questions, texts), curve)) as server:
        yield f"{server.url}#reader"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records of three lengths with their questions."""
    folder = tmp_path_factory.mktemp("ehr") / "records"
    made = run(
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
    assert made.exit_code == 0, made.output
    return folder


@pytest.fixture(scope="module")
def records(place: Path) -> RecordSet:
    return load_records(place)


def ask(place: Path, model: str, output: Path, name: str = NAME, *more: object) -> Result:
    library = place.parent / "library"
    settings = ("--setting", "models.writer.context_tokens=100000", "--library", library, "--yes", "--json")
    return run("experiment", name, "--data", place, "--model", model, "-o", output, *settings, *more)


@pytest.fixture(scope="module")
def study(place: Path, records: RecordSet, model_home: Path) -> tuple[dict[str, object], tuple[MeasuredCase, ...]]:
    """What the whole study says, and its cases, by a reader that loses the middle."""
    folder = place.parent / "run"
    with reader(records, u_curve()) as model:
        ended = ask(place, model, folder)
    assert ended.exit_code == 0, ended.stderr
    return json.loads(ended.stdout), read_measured_cases(folder)


def right(case: MeasuredCase) -> bool:
    if case.unanswerable:
        return case.ending == "abstained"
    return case.values.get("accuracy" if case.form == "choice" else "token-f1", 0.0) > 0.99


def of(cases: Sequence[MeasuredCase], arm: str, *, answerable: bool = True) -> list[MeasuredCase]:
    """The arm's cases; `answerable`: of questions that some note answers."""
    return [
        case
        for case in cases
        if case.condition["arm"] == arm and not (answerable and case.condition["category"] == "absence")
    ]


def test_every_arm_bin_form_and_kind_of_question_is_asked(study: tuple[object, tuple[MeasuredCase, ...]]) -> None:
    cases = study[1]
    conditions = [case.condition for case in cases]
    assert {each["arm"] for each in conditions} == {*record_arms.SETTINGS, *record_arms.RETRIEVAL_ARMS} - {
        record_arms.FULL
    }
    assert {each["bin"] for each in conditions} == {"0-8K"}
    assert {each["form"] for each in conditions} == {"choice", "extractive", "open"}
    assert len({each["category"] for each in conditions}) == 7
    assert all(each["bin"] == find_length_bin(int(each["tokens"])) for each in conditions)
    assert {case.ending for case in cases} == {"answered", "abstained"}


def test_without_the_related_notes_nothing_is_answered_and_with_them_alone_all(
    study: tuple[object, tuple[MeasuredCase, ...]],
) -> None:
    cases = study[1]
    assert not any(right(case) for case in (*of(cases, record_arms.NONE), *of(cases, record_arms.UNRELATED)))
    alone = [case for case in of(cases, record_arms.RELATED) if case.condition["category"] != "holistic"]
    assert alone
    assert all(right(case) for case in alone if case.form != "extractive")


def test_where_no_note_answers_abstaining_is_right_whatever_is_read(
    study: tuple[object, tuple[MeasuredCase, ...]],
) -> None:
    nothing = [case for case in study[1] if case.unanswerable]
    assert {case.condition["arm"] for case in nothing} >= {record_arms.ALL, "rag-5", record_arms.BRIEF}
    assert all(right(case) for case in nothing)


def test_full_context_is_as_right_as_the_curve_says(
    study: tuple[object, tuple[MeasuredCase, ...]], records: RecordSet
) -> None:
    """Each note is attended to by its place among the record's notes, oldest first; one place of the answer will do."""
    curve, notes = u_curve(), notes_of(records)
    expected, variance, observed = 0.0, 0.0, 0
    for case in of(study[1], record_arms.ALL):
        if case.condition["category"] == "holistic":
            continue
        question = next(each for each in records.questions if case.question.startswith(f"{each.id}:"))
        own = [
            Passage(note.id, note.id, 0, 0, 1, "x", date=note.date, patient=note.patient)
            for note in notes.values()
            if note.patient == question.patient
        ]
        order = [passage.document_id for passage in sort_by_time(own)]
        places = {order.index(each.document_id) for each in question.evidence}
        missed = math.prod(1 - curve(place, len(order)) for place in places)
        expected, variance = expected + 1 - missed, variance + missed * (1 - missed)
        observed += right(case)
    assert abs(observed - expected) <= 3 * math.sqrt(variance)


def test_nobody_is_right_about_what_was_not_read(study: tuple[object, tuple[MeasuredCase, ...]]) -> None:
    answered = [case for case in study[1] if case.condition["category"] != "absence" and right(case)]
    assert answered
    assert all(case.values["evidence-recall"] > 0 for case in answered)


def test_the_findings_have_the_studys_tables(study: tuple[dict[str, object], tuple[MeasuredCase, ...]]) -> None:
    found: Any = study[0]["findings"]
    (findings,) = found
    titles = [table["title"] for table in findings["tables"]]
    assert titles[:3] == [
        "Every metric by arm",
        "By the length of the record",
        "When does retrieval beat full context?",
    ]
    at = titles.index("Questions and patients")
    assert titles[at + 1 : at + 3] == ["How long the records are", "Records by their length"]
    (row,) = findings["tables"][at]["rows"]
    assert row[1:4] == ["generated", "all", 42]
    assert row[4] == 2
    assert any(title.startswith("Correlations of the metrics") for title in titles)


def test_a_record_over_the_window_is_counted_and_not_asked_again(
    place: Path, records: RecordSet, tmp_path: Path, model_home: Path
) -> None:
    folder = tmp_path / "narrow"
    more = ("--setting", "models.writer.context_tokens=3000", "--arm", record_arms.ALL, "--arm", "rag-5", "-n", "16")
    with reader(records, u_curve()) as model:
        first = ask(place, model, folder, "ehr-context", *more)
        again = ask(place, model, folder, "ehr-context", *more)
    assert (first.exit_code, again.exit_code) == (0, 0), first.stderr
    cases = read_measured_cases(folder)
    shortest = min(int(case.condition["tokens"]) for case in cases)
    for case in of(cases, record_arms.ALL, answerable=False):
        assert (case.ending == "over-window") == (int(case.condition["tokens"]) > shortest)
    manifest = json.loads(again.stdout)["manifest"]
    assert manifest["complete"]
    assert manifest["states"]["over-window"] == sum(case.ending == "over-window" for case in cases) > 0


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--arm", "rag"), "no arm is called rag"),
        (("--population", "table-9"), "no population is called"),
        (("--population", "table-3"), "table-3 of the EHR study is not about generated"),
        (("--arm", "rag-5+splade"), "need a sparse encoder: name one with --sparse"),
        (("-k", "3"), "does not vary that: leave -k out"),
    ],
)
def test_what_cannot_be_asked_is_said_in_one_line(
    place: Path, records: RecordSet, tmp_path: Path, model_home: Path, more: tuple[str, ...], said: str
) -> None:
    with reader(records, u_curve()) as model:
        ended = ask(place, model, tmp_path / "none", "ehr-retrieval", *more)
    assert ended.exit_code == 2
    assert said in ended.stderr
    assert ended.stderr.strip().count("\n") == 0
    assert not (tmp_path / "none").exists()
