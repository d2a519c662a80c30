"""Patients on the command line: their list, and questions refused before a model is called."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from epicrisis.core.types import Document
from tests.cli.conftest import Run
from tests.support.hostile import HostileServer
from tests.support.patient_records import library
from tests.support.replies import schema_reply

ANNA, BERT = "10083814", "10083815"
SECRET = "colchicine"


@pytest.fixture
def ward(tmp_path: Path) -> Path:
    rows = [
        (ANNA, "2150-01", "discharge", "Anna Muster"),
        (ANNA, "2151", "radiology", "Anna Muster"),
        (BERT, None, "discharge", None),
    ]
    documents = [
        Document(
            f"n:{i}",
            f"The drug was {SECRET}.",
            date=date,
            patient=patient,
            metadata={"note_type": kind, "encounter": f"e{i}", **({"patient_name": name} if name else {})},
        )
        for i, (patient, date, kind, name) in enumerate(rows)
    ]
    with library(tmp_path / "ward", documents) as store:
        return store.path


def test_library_patients_lists_patients_without_text(ward: Path, run: Run) -> None:
    result = run("library", "patients", ward)
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        f"{ANNA} (Anna Muster): 2 notes, 2150-01 to 2151, 2 hospital stays; 1 discharge, 1 radiology",
        f"{BERT}: 1 note, no dates, 1 hospital stay; 1 discharge",
        "2 patients, 3 notes",
    ]
    rows_of_json = json.loads(run("library", "patients", ward, "--json").stdout)
    assert [(row["id"], row["notes"], row["name"]) for row in rows_of_json] == [
        (ANNA, 2, "Anna Muster"),
        (BERT, 1, None),
    ]
    assert SECRET not in result.stdout + json.dumps(rows_of_json)


MISMATCHES = {
    "nobody": ((), "What drug was given?", "holds only patients' notes: select a patient with --patient"),
    "unknown": (("--patient", "1008381"), "What drug was given?", "has no notes of patient '1008381'"),
    "another's id": (("--patient", ANNA), f"What was {BERT} given?", "names another patient of this library"),
    "another's name": (
        ("--patient", BERT),
        "What drug was anna MUSTER given?",
        "names another patient of this library",
    ),
}


@pytest.mark.parametrize("command", ["ask", "search"])
@pytest.mark.parametrize("mismatch", MISMATCHES)
def test_question_without_matching_patient_is_refused(command: str, mismatch: str, ward: Path, run: Run) -> None:
    options, text, reason = MISMATCHES[mismatch]
    with HostileServer(schema_reply, keep_bodies=True) as server:
        arguments = ("--strategy", "rag", "--model", server.url) if command == "ask" else ()
        result = run(command, ward, text, "--by", "bm25", *arguments, *options)
        assert server.received == ()
    assert result.exit_code == 2
    assert reason in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert SECRET not in result.stdout + result.stderr


@pytest.mark.parametrize("strategy", ["closed-book", "full-context"])
@pytest.mark.parametrize("mismatch", MISMATCHES)
def test_question_without_matching_patient_is_refused_without_search(
    strategy: str, mismatch: str, ward: Path, run: Run
) -> None:
    options, text, reason = MISMATCHES[mismatch]
    with HostileServer(schema_reply, keep_bodies=True) as server:
        arguments = ("--strategy", strategy, "--model", server.url)
        result = run("ask", ward, text, *arguments, *options)
        assert server.received == ()
        assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
        assert reason in result.stderr


@pytest.mark.slow
def test_closed_book_with_unknown_patient_is_refused(ward: Path, tmp_path: Path, run: Run) -> None:
    with library(tmp_path / "papers", [Document("p:1", "Aspirin was given.")]) as papers:
        path = papers.path
    with HostileServer(schema_reply) as server:
        arguments = ("--strategy", "closed-book", "--model", server.url)
        refused = run("ask", path, "What drug?", "--patient", "nobody", *arguments)
        assert (refused.exit_code, server.received) == (2, ())
        assert "has no notes of patient 'nobody'" in refused.stderr
        assert run("ask", path, "What drug?", *arguments).exit_code == 0
        assert run("ask", ward, "What drug?", "--patient", ANNA, *arguments).exit_code == 0


CONFLICTS = {
    "literature": (("--setting", "beside=nosuch", "--strategy", "full-context"), "setting beside: full-context reads"),
    "order": (("--setting", "order=rank", "--strategy", "full-context"), "setting order: full-context has no ranking"),
    "budget of passages": (
        ("--setting", "note_tokens=900", "--strategy", "rag"),
        "setting note_tokens: it only limits whole notes",
    ),
    "budget of a record": (
        ("--setting", "note_tokens=900", "--setting", "unit=note", "--strategy", "full-context"),
        "setting note_tokens: it only limits whole notes",
    ),
    "permission": (("--setting", "allow_remote=true"), "setting allow_remote: it is given once for each library"),
}


@pytest.mark.parametrize("conflict", CONFLICTS)
def test_ask_with_conflicting_settings_is_refused(conflict: str, ward: Path, run: Run) -> None:
    options, reason = CONFLICTS[conflict]
    with HostileServer(schema_reply) as server:
        result = run("ask", ward, "What drug was given?", "--patient", ANNA, "--model", server.url, *options)
        assert (result.exit_code, server.received) == (2, ())
    assert reason in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not (ward / "remote.jsonl").exists()


@pytest.mark.slow
def test_full_context_without_note_in_scope_makes_no_call(ward: Path, run: Run) -> None:
    with HostileServer(schema_reply) as server:
        arguments = ("--strategy", "full-context", "--patient", ANNA, "--model", server.url)
        result = run("ask", ward, "What drug was given?", "--as-of", "2149-01-01", *arguments)
        assert (result.exit_code, server.received) == (2, ())
        assert (
            "no note of this patient's record is within the scope: check the settings of scope (as_of, since"
            in result.stderr
        )
        assert run("ask", ward, "What drug was given?", "--as-of", "2150-06", *arguments).exit_code == 0


@pytest.mark.slow
def test_ask_file_with_unknown_patient_makes_no_call(ward: Path, tmp_path: Path, run: Run) -> None:
    file, answers = tmp_path / "questions.jsonl", tmp_path / "answers.jsonl"
    rows = [
        {"id": "one", "text": "What drug was given?", "patient": ANNA},
        {"id": "two", "text": "What?", "patient": "x"},
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with HostileServer(schema_reply, keep_bodies=True) as server:
        arguments = ("--strategy", "rag", "--by", "bm25", "--model", server.url)
        refused = run("ask", ward, "--file", file, "-o", answers, *arguments)
        assert (refused.exit_code, server.received) == (2, ())
        assert "question 'two': " in refused.stderr
        file.write_text(json.dumps(rows[0]) + "\n")
        assert run("ask", ward, "--file", file, "-o", answers, *arguments).exit_code == 0
        assert SECRET in json.dumps([dict(request.body) for request in server.received])
    assert len(answers.read_text().splitlines()) == 1


@pytest.mark.slow
def test_remote_model_needs_permission_that_can_be_withdrawn(ward: Path, run: Run) -> None:
    remote = ("--strategy", "rag", "--by", "bm25", "--model", "http://models.invalid/v1#m", "--patient", ANNA)
    refused = run("ask", ward, "What drug was given?", *remote)
    assert (refused.exit_code, len(refused.stderr.splitlines())) == (2, 1)
    assert "models.invalid is not this machine" in refused.stderr
    assert "sending them to other machines is refused (--allow-remote allows it)" in run("library", "info", ward).stdout
    contradiction = run("ask", ward, "What drug was given?", *remote, "--allow-remote", "--local-only")
    assert (contradiction.exit_code, "contradict each other" in contradiction.stderr) == (2, True)
    permission = ("--allow-remote", "--setting", "models.writer.tries=1", "--setting", "cache.mode=replay")
    assert "may reach models.invalid" in run("ask", ward, "What drug was given?", *remote, *permission).stdout
    assert json.loads(run("library", "info", ward, "--json").stdout)["remote"]["hosts"] == ["models.invalid"]
    assert "(models.invalid); `epicrisis library forbid-remote` withdraws it" in run("library", "info", ward).stdout
    assert "sending them to other machines is refused" in run("library", "forbid-remote", ward).stdout
    assert json.loads(run("library", "info", ward, "--json").stdout)["remote"]["allowed"] is False
    assert "models.invalid is not this machine" in run("ask", ward, "What drug was given?", *remote).stderr
