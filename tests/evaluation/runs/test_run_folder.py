"""Test a run's folder: manifest, records, lock, and resuming by the same plan only."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from epicrisis.core.errors import EndpointUnreachable, InputError, RunStopped, StorageError
from epicrisis.core.protocols import ChatReply, ChatRequest, DeltaCallback
from epicrisis.evaluation.datasets.dataset import Dataset
from epicrisis.evaluation.experiments import positions
from epicrisis.evaluation.experiments.arms import Study
from epicrisis.evaluation.experiments.study_protocols import PROTOCOLS
from epicrisis.evaluation.runs import run_folder
from epicrisis.evaluation.runs.run_folder import MANIFEST, RECORDS, Run, describe_dataset, read_manifest
from epicrisis.pipeline.pipeline import Pipeline
from epicrisis.pipeline.recording.answer_record import read_records
from epicrisis.pipeline.recording.case import Case, canonical_condition
from epicrisis.pipeline.recording.runner import answer_cases
from epicrisis.settings.settings import ROLES, Settings
from epicrisis.testing.chat import ScriptedModel
from tests.support.experiments import answer, build_cases, evidence, plan, questions, reader, run
from tests.support.position_biased_reader import u_curve
from tests.support.run_folders import remove_volatile

ASKED = questions(4)
CASES = build_cases(positions, ASKED, Study(evidence(), PROTOCOLS["corrected"]), ks=(8,), arms=("rag", "brief-context"))


class Failing(ScriptedModel):
    """Read like the biased reader, but fail at every nth call."""

    def __init__(self, every: int) -> None:
        super().__init__(lambda _: "", name="position-biased-reader")
        self._inner = reader(ASKED, u_curve())
        self._every, self.asked = every, 0

    async def complete(self, request: ChatRequest, on_delta: DeltaCallback | None = None) -> ChatReply:
        self.asked += 1
        if self.asked % self._every == 0:
            raise EndpointUnreachable("nobody there")
        return await self._inner.complete(request, on_delta)


def make_pipeline(**settings: Any) -> Pipeline:
    return Pipeline(Settings(strategy="rag", **settings), dict.fromkeys(ROLES, reader(ASKED, u_curve())))


def read_lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / RECORDS).read_text(encoding="utf-8").splitlines()]


@pytest.mark.slow
def test_runs_of_same_seed_have_equal_records_without_volatile_fields(tmp_path: Path) -> None:
    run(CASES, reader(ASKED, u_curve()), tmp_path / "one")
    run(CASES, reader(ASKED, u_curve()), tmp_path / "two")
    first, second = read_lines(tmp_path / "one"), read_lines(tmp_path / "two")
    assert first != second, "times differ"
    assert [remove_volatile(item) for item in first] == [remove_volatile(item) for item in second]
    usages = [[{**item["answer"]["usage"], "seconds": 0} for item in item] for item in (first, second)]
    assert usages[0] == usages[1]


@pytest.mark.slow
def test_run_of_other_seed_has_other_outcomes(tmp_path: Path) -> None:
    sample = questions(12)
    answers = []
    for seed in (0, 1):
        cases = build_cases(
            positions, sample, Study(evidence(), PROTOCOLS["corrected"], seed=seed), ks=(8,), arms=("rag",)
        )
        answers.append([item.state for item in run(cases, reader(sample, u_curve()), tmp_path / str(seed))])
    assert answers[0] != answers[1]


@pytest.mark.slow
def test_manifest_exists_before_first_call_and_is_completed_at_end(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    at_first: list[dict[str, Any]] = []

    def script(request: ChatRequest) -> str:
        at_first.append(json.loads((folder / MANIFEST).read_text(encoding="utf-8")))
        return "The answer is A."

    asyncio.run(answer(CASES, ScriptedModel(script), folder))
    first, last = at_first[0], json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    assert (first["complete"], first["cases"], first["sessions"][0]["ended"]) == (False, len(CASES), None)
    assert last["complete"]
    assert sum(last["states"].values()) == len(CASES)
    assert last["usage"]["calls"] >= len(CASES)
    assert first["plan"] == last["plan"]
    plan_record = last["plan"]
    assert (plan_record["name"], plan_record["seed"], plan_record["dataset"]["n"]) == ("positions", 0, 60)
    assert set(plan_record["recipe"]["models"]) == set(ROLES)
    (session,) = last["sessions"]
    assert session["packages"]["epicrisis"] == plan_record["recipe"]["epicrisis"]
    assert {"python", "numpy", "pydantic"} <= set(session["packages"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", session["started"])
    assert session["started"] <= session["ended"]


@pytest.mark.slow
def test_record_has_condition_and_no_passage_texts(tmp_path: Path) -> None:
    run(CASES, reader(ASKED, u_curve()), tmp_path / "run")
    for record in read_lines(tmp_path / "run"):
        assert record["key"].endswith(canonical_condition(record["condition"]))
        (ranking,) = [item["ranking"] for item in record["answer"]["trace"] if item["event"] == "retrieved"]
        assert ranking["parameters"]["place"] == record["condition"]["place"]
        assert len(ranking["hits"]) == 8
        assert all("text" not in hit["passage"] and hit["passage"]["id"] for hit in ranking["hits"])


@pytest.mark.slow
def test_run_resumed_asks_failed_cases_again(tmp_path: Path) -> None:
    folder, cases = tmp_path / "run", [case for case in CASES if case.condition["arm"] == "rag"]
    asyncio.run(answer(cases, Failing(5), folder))
    manifest = read_manifest(folder)
    assert not manifest.complete
    failed = manifest.states["failed"]
    assert failed == len(cases) // 5
    again = reader(ASKED, u_curve())
    asyncio.run(answer(cases, again, folder))
    assert len(again.requests) == failed
    after = read_manifest(folder)
    assert after.complete
    assert "failed" not in after.states
    assert len(after.sessions) == 2
    assert len(read_lines(folder)) == len(cases) + failed
    unbroken = tmp_path / "unbroken"
    asyncio.run(answer(cases, reader(ASKED, u_curve()), unbroken))
    result = [
        {record.key: remove_volatile(record) for record in read_records(path / RECORDS)} for path in (folder, unbroken)
    ]
    assert result[0] == result[1]
    assert list(result[0]) == list(result[1]), "a case keeps its place"


@pytest.mark.slow
def test_tables_state_number_of_failed_parts(tmp_path: Path) -> None:
    """BriefContext answers without them (errata C4): such a case is not asked again, and the tables say how many."""
    result = run([case for case in CASES if case.condition["arm"] == "brief-context"], Failing(5), tmp_path / "run")
    partly = [item for item in result if item.state != "failed" and item.unread_parts]
    assert partly
    notes = positions.tables({"m": result})[0].notes
    assert any(note.startswith(f"In {len(partly)} cases some parts could not be read") for note in notes)


def test_run_stopped_records_its_progress(tmp_path: Path) -> None:
    with pytest.raises(RunStopped):
        asyncio.run(answer(CASES, Failing(1), tmp_path / "run", at_once=1))
    manifest = read_manifest(tmp_path / "run")
    assert (manifest.complete, manifest.states) == (False, {"failed": 3})
    assert manifest.sessions[0].ended is not None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"seed": 1}, "differs in seed"),
        ({"name": "context-length"}, "differs in name"),
        ({"arguments": {"ks": [8], "protocol": "corrected"}}, r"differs in arguments \(ks\)"),
        ({"dataset": {"name": "made-up", "sha256": "1" * 64, "n": 60}}, r"differs in dataset \(sha256\)"),
    ],
)
def test_run_open_with_other_plan_raises_input_error(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    result = make_pipeline()
    Run.open(tmp_path / "run", plan(result), CASES).close()
    Run.open(tmp_path / "run", plan(result), CASES).close()
    with pytest.raises(InputError, match=said):
        Run.open(tmp_path / "run", plan(result, **changes), CASES)
    with pytest.raises(InputError, match=r"recipe \(settings\.k\)"):
        Run.open(tmp_path / "run", plan(make_pipeline(k=3)), CASES)
    Run.open(tmp_path / "run", plan(result), CASES).close()


def test_run_open_in_other_folder_leaves_it_unchanged(tmp_path: Path) -> None:
    (tmp_path / "letters.txt").write_text("Dear all", encoding="utf-8")
    with pytest.raises(InputError, match=r"is not empty \(letters.txt"):
        Run.open(tmp_path, plan(make_pipeline()), CASES)
    with pytest.raises(InputError, match="is not a run"):
        read_manifest(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (None, "is not the manifest of a run"),
        ({"plan": None}, "is not the manifest of a run"),
        ({"sessions": 3}, "is not the manifest of a run"),
        ({"states": "many"}, "is not the manifest of a run"),
        (
            {"plan": {"name": "n", "arguments": "k", "recipe": {}, "dataset": {}, "sample": {}, "seed": 0}},
            "is not the manifest of a run",
        ),
        ({"format": 2, "library_id": "abc"}, "is not the manifest of a run"),
        ({"format": 2, "of another time": True}, "has format 2, and this program reads format 1: use the program"),
    ],
)
def test_read_manifest_with_changed_content_raises_input_error(
    tmp_path: Path, changes: dict[str, Any] | None, said: str
) -> None:
    result = plan(make_pipeline())
    Run.open(tmp_path / "run", result, CASES).close()
    path = tmp_path / "run" / MANIFEST
    manifest = {"format": 1} if changes is None else {**json.loads(path.read_text(encoding="utf-8")), **changes}
    path.write_text(json.dumps(manifest), encoding="utf-8")
    with pytest.raises(InputError, match=said):
        read_manifest(tmp_path / "run")
    with pytest.raises(InputError, match=said):
        Run.open(tmp_path / "run", result, CASES)


def test_run_open_by_second_process_raises_input_error(tmp_path: Path) -> None:
    result = plan(make_pipeline())
    with Run.open(tmp_path / "run", result, CASES) as first:
        assert first.remaining == len(CASES)
        with pytest.raises(InputError, match="another process is using"):
            Run.open(tmp_path / "run", result, CASES)
    Run.open(tmp_path / "run", result, CASES).close()


def test_run_after_close_writes_nothing(tmp_path: Path) -> None:
    """Another process may be at work on it by then."""
    result = plan(make_pipeline())
    with Run.open(tmp_path / "run", result, CASES) as run:
        first = run.close()
        with Run.open(tmp_path / "run", result, CASES):
            assert run.close() is first
            assert len(read_manifest(tmp_path / "run").sessions) == 2
    assert len(read_manifest(tmp_path / "run").sessions) == 2


@pytest.mark.slow
def test_run_reopened_keeps_states_and_usage(tmp_path: Path) -> None:
    asyncio.run(answer(CASES, reader(ASKED, u_curve()), tmp_path / "run"))
    before = read_manifest(tmp_path / "run")
    with Run.open(tmp_path / "run", before.plan, CASES):
        killed_here = read_manifest(tmp_path / "run")
    assert killed_here.complete
    assert (killed_here.states, killed_here.usage) == (before.states, before.usage)
    assert len(killed_here.sessions) == 2


@pytest.mark.skipif(os.name != "posix", reason="modes are of POSIX")
@pytest.mark.parametrize("was_there", [False, True])
def test_run_folder_is_private_to_owner(was_there: bool, tmp_path: Path) -> None:
    before = os.umask(0o022)
    if was_there:
        (tmp_path / "run").mkdir()
    try:
        asyncio.run(answer(CASES[:3], reader(ASKED, u_curve()), tmp_path / "run"))
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "run", *(tmp_path / "run").iterdir())}
    assert {name: modes[name] for name in ("run", MANIFEST, RECORDS)} == {"run": 0o700, MANIFEST: 0o600, RECORDS: 0o600}


@pytest.mark.slow
def test_manifest_contains_no_texts(tmp_path: Path) -> None:
    asyncio.run(answer(CASES, reader(ASKED, u_curve()), tmp_path / "run"))
    manifest = (tmp_path / "run" / MANIFEST).read_text(encoding="utf-8")
    assert "disease" in ASKED[0].text
    assert "disease" in (tmp_path / "run" / RECORDS).read_text(encoding="utf-8")
    assert "disease" not in manifest


def test_run_open_with_repeated_cases_raises_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="1 case occurs twice"):
        Run.open(tmp_path / "run", plan(make_pipeline()), (*CASES, CASES[0]))
    assert not (tmp_path / "run").exists()


def test_run_open_at_path_of_file_raises_storage_error(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("", encoding="utf-8")
    with pytest.raises(StorageError, match="cannot be written"):
        Run.open(tmp_path / "run", plan(make_pipeline()), CASES)


def test_run_abandoned_early_keeps_finished_cases(tmp_path: Path) -> None:
    async def some() -> None:
        async with make_pipeline() as result:
            with Run.open(tmp_path / "run", plan(result), CASES) as opened:
                answers = answer_cases(result, CASES, opened.records, 2)
                async for _ in answers:
                    if opened.remaining == len(CASES) - 5:
                        break
                await answers.aclose()

    asyncio.run(some())
    manifest = read_manifest(tmp_path / "run")
    assert not manifest.complete
    assert len(read_lines(tmp_path / "run")) == sum(manifest.states.values()) == 5


def test_case_key_is_question_and_sorted_condition() -> None:
    question = ASKED[0]
    assert Case(question).key == question.key
    one, other = Case(question, {"arm": "rag", "k": 8}), Case(question, {"k": 8, "arm": "rag"})
    assert one.key == other.key == f'{question.key} {{"arm":"rag","k":8}}'
    assert Case(question, {"arm": "rag", "k": 16}).key != one.key


def test_describe_dataset_has_name_digest_and_licence() -> None:
    dataset = Dataset("made-up", tuple(ASKED), {}, licence="MIT")
    assert describe_dataset(dataset) == {"name": "made-up", "sha256": dataset.sha256, "n": 4, "licence": "MIT"}


# -- software ---------------------------------------------------------------------------------------------------------


def test_git_commit_states_commit_and_changes(tmp_path: Path) -> None:
    source = tmp_path / "src" / "epicrisis"
    source.mkdir(parents=True)
    (source / "__init__.py").write_text("", encoding="utf-8")
    assert run_folder.git_commit(source) is None

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(tmp_path), "-c", "user.name=x", "-c", "user.email=x@x", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    git("init", "-q")
    assert run_folder.git_commit(source) is None, "in a checkout, but no part of it"
    git("add", "src")
    git("commit", "-qm", "first")
    assert run_folder.git_commit(source) == (git("rev-parse", "HEAD"), False)
    (tmp_path / "answers.jsonl").write_text("", encoding="utf-8")
    assert run_folder.git_commit(source) == (git("rev-parse", "HEAD"), False)
    (source / "new.py").write_text("", encoding="utf-8")
    assert run_folder.git_commit(source) == (git("rev-parse", "HEAD"), True)
    shutil.rmtree(tmp_path / ".git")
    assert run_folder.git_commit(source) is None


def test_git_commit_without_git_returns_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert run_folder.git_commit() is None
