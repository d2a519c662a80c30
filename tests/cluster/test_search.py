"""`ask --file --on` and `evaluate --on`: the same answers as without, killed workers and nodes, and one line for each
failure."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from epicrisis.core.errors import ClusterError, InputError, LibraryDamaged, SettingsError
from epicrisis.core.types import Document, Question, Ranking, Scope
from epicrisis.models.cluster import ClusterAddress
from epicrisis.pipeline.additions import AddOptions, add_files
from epicrisis.pipeline.cluster_search import (
    ClusterSearch,
    NodeLibrary,
    describe_node_library,
    open_node_library,
    search_block,
    search_on_cluster,
)
from epicrisis.pipeline.evidence_selection import EvidenceSearch
from epicrisis.pipeline.pipeline import Pipeline
from epicrisis.pipeline.question_evidence import build_context
from epicrisis.settings.settings import Settings
from epicrisis.testing.hashing_encoder import HashingEncoder
from tests.support.imported_modules import list_imported
from tests.support.ray_cluster import ENCODER, RayCluster, install_encoder, make_documents, make_environment

REMOTE = ClusterAddress("192.0.2.9", 10001)
QUESTIONS = 40
WRITER = {"writer": {"name": "http://127.0.0.1:9/v1#m"}}
"""A chat model that is not called."""
BY_WORDS = Settings.model_validate({"strategy": "rag", "by": "bm25", "k": 3, "models": WRITER})


def add_documents(library: Path, *documents: Document, name: str = "hashing") -> None:
    add_files(Settings(), library, [], AddOptions(), documents=documents, encoder=(HashingEncoder(), name))


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("shared") / "library"
    documents = [document for document in make_documents(60) if isinstance(document, Document)]
    add_documents(path, *documents, name=ENCODER)
    return path


@pytest.fixture
def spec(library: Path) -> Iterator[NodeLibrary]:
    async def close(pipeline: Pipeline) -> None:
        await pipeline.aclose()

    pipeline = Pipeline.open(BY_WORDS, library)
    assert pipeline.search is not None
    yield describe_node_library(pipeline.settings, library, pipeline.search, same_machine=True)
    asyncio.run(close(pipeline))


# -- without Ray ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_questions_without_on_do_not_import_ray() -> None:
    imported = list_imported("epicrisis.cli.ask, epicrisis.pipeline.cluster_search", ["epicrisis", "ray", "grpc"])
    assert imported == ["epicrisis"]


def test_node_finds_same_passages_as_pipeline(spec: NodeLibrary, library: Path) -> None:
    async def search() -> Ranking:
        async with Pipeline.open(BY_WORDS, library) as pipeline:
            return await build_context(pipeline, lambda _: None, Scope()).retrieve(
                Question(id="a", text="aspirin cohort 17")
            )

    calls: list[Any] = [("find", ("aspirin cohort 17", Scope()), {})]
    ((ranking, failure),) = pickle.loads(search_block(spec, pickle.dumps(calls)))
    assert failure is None
    assert ranking == asyncio.run(search())
    assert len(ranking.hits) == 3


def test_failed_search_fails_alone(spec: NodeLibrary, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's error belongs to its question. An error of the program ends the task."""

    def refuse(self: EvidenceSearch, scope: Scope) -> Ranking:
        raise LibraryDamaged("the record cannot be read: restore it")

    monkeypatch.setattr(EvidenceSearch, "read_record", refuse)
    calls: list[Any] = [("read_record", (Scope(),), {}), ("find", ("aspirin", Scope()), {})]
    first, second = pickle.loads(search_block(spec, pickle.dumps(calls)))
    assert isinstance(first[1], LibraryDamaged)
    assert first[1].message == "the record cannot be read: restore it"
    assert len(second[0].hits) == 3
    with pytest.raises(AttributeError):
        search_block(spec, pickle.dumps([("no_such_search", (), {})]))


def test_settings_of_nodes_name_no_chat_model(library: Path) -> None:
    settings = BY_WORDS.model_copy(update={"allow_remote": True, "k": 7})
    settings = settings.model_validate(
        {**settings.model_dump(), "models": {"writer": {"name": "http://user:secret@host.example.org/v1#m"}}}
    )
    pipeline = Pipeline.open(BY_WORDS, library)
    assert pipeline.search is not None
    spec = describe_node_library(settings, library, pipeline.search, same_machine=False)
    asyncio.run(pipeline.aclose())
    assert "secret" not in repr(spec)
    assert "host.example.org" not in repr(spec)
    node = Settings.model_validate_json(spec.settings)
    assert (node.k, node.by, node.strategy, node.allow_remote) == (7, "bm25", "rag", False)
    assert spec.home is None


def test_other_version_of_library_is_one_line(spec: NodeLibrary, library: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(library, copy)
    assert open_node_library(replace(spec, library=str(copy))).retriever is not None
    later = tmp_path / "later"
    shutil.copytree(library, later)
    add_documents(later, Document("new", "Aspirin."), name=ENCODER)
    with pytest.raises(ClusterError, match="has another version of the library"):
        open_node_library(replace(spec, library=str(later)))
    with pytest.raises(ClusterError, match="cannot open the library"):
        open_node_library(replace(spec, library=str(tmp_path / "none")))
    with pytest.raises(ClusterError, match=r"has epicrisis .*, not 0\.0\.0"):
        open_node_library(replace(spec, version="0.0.0"))


class DeadServer:
    """Ray's client after the end of its server."""

    exceptions = SimpleNamespace(RayTaskError=KeyError, RayError=LookupError)

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 1.0}

    def nodes(self) -> list[Any]:
        return []

    def remote(self, **_: object) -> Any:
        return lambda _: SimpleNamespace(remote=self._refuse)

    def _refuse(self, *_: object) -> None:
        raise RuntimeError("the channel is closed")


def test_unexpected_error_of_client_ends_every_search(spec: NodeLibrary, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("epicrisis.pipeline.cluster_search.check_nodes", lambda *_: None)

    async def search() -> list[object]:
        cluster = ClusterSearch(DeadServer(), spec, {"num_cpus": 1, "num_gpus": 0})
        searches = [cluster.run("find", ("aspirin", Scope()), {}) for _ in range(40)]
        outcomes = await asyncio.wait_for(asyncio.gather(*searches, return_exceptions=True), 60)
        cluster.close()
        return outcomes

    outcomes = asyncio.run(search())
    assert len(outcomes) == 40
    for outcome in outcomes:
        assert isinstance(outcome, ClusterError)
        assert "the same command again" in outcome.message


def refuse(settings: Settings, library: Path, **changes: Any) -> None:
    """Ask for a remote cluster. The refusal comes before it is contacted."""

    async def ask() -> None:
        async with Pipeline.open(settings, library) as pipeline:
            with search_on_cluster(pipeline, settings.model_copy(update=changes), library, REMOTE):
                raise AssertionError("joined")

    asyncio.run(ask())


def test_library_of_notes_refuses_remote_cluster(tmp_path: Path) -> None:
    add_documents(tmp_path / "ward", Document("note:1", "Admitted with chest pain.", patient="p1", date="2020-01-01"))
    with pytest.raises(SettingsError, match="would read patients' notes"):
        refuse(BY_WORDS, tmp_path / "ward")


def test_local_only_refuses_remote_cluster(library: Path) -> None:
    with pytest.raises(SettingsError, match="use --on local"):
        refuse(BY_WORDS, library, local_only=True)


def test_strategy_without_search_refuses_cluster(library: Path) -> None:
    with pytest.raises(InputError, match="the strategy full-context has none"):
        refuse(BY_WORDS.model_copy(update={"strategy": "full-context"}), library)


@pytest.mark.slow
def test_single_question_refuses_cluster(library: Path) -> None:
    command = [sys.executable, "-m", "epicrisis", "ask", str(library), "Does aspirin help?", "--on", "local"]
    outcome = subprocess.run(command, capture_output=True, text=True, check=False)
    assert outcome.returncode == 2
    assert "--on is for a file of questions" in outcome.stderr


# -- clusters of Ray --------------------------------------------------------------------------------------------------


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    path = tmp_path / "questions.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for number in range(QUESTIONS):
            text = f"Which outcome was recorded in cohort {number}, number {number * 31}?"
            file.write(json.dumps({"id": f"q{number}", "text": text}) + "\n")
    return path


def start(
    library: Path, questions: Path, output: Path, environment: Mapping[str, str], *options: str
) -> subprocess.Popen[str]:
    program = [sys.executable, "-m", "epicrisis", "ask", str(library), "--file", str(questions), "-o", str(output)]
    program += ["--strategy", "evidence", "--by", "hybrid", "--json", "--yes"]
    return subprocess.Popen(
        [*program, *options], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def ask(library: Path, questions: Path, output: Path, environment: Mapping[str, str], *options: str) -> list[Any]:
    """Ask all questions and return the records of a successful command."""
    process = start(library, questions, output, environment, *options)
    return finish(process, output)


def finish(process: subprocess.Popen[str], output: Path) -> list[Any]:
    _, errors = process.communicate()
    assert process.returncode == 0, errors
    assert "Traceback" not in errors
    return read_records(output)


def read_records(output: Path) -> list[Any]:
    """Return the records without the times of their steps."""
    records = []
    for line in output.read_text(encoding="utf-8").splitlines():
        records.append(remove_times(json.loads(line)))
    return records


def remove_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: remove_times(item) for key, item in value.items() if key not in ("seconds", "time", "created")}
    return [remove_times(item) for item in value] if isinstance(value, list) else value


def wait_for_some(output: Path, process: subprocess.Popen[str]) -> None:
    """Return when a few answers are on the disk, and not all."""
    while process.poll() is None:
        if output.exists() and len(output.read_bytes().splitlines()) >= 4:
            return
        time.sleep(0.05)
    raise AssertionError(f"the command ended too soon: {process.communicate()}")


@pytest.fixture(scope="module")
def expected(
    library: Path, environment: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[Any]]:
    """The records of a run without a cluster, once computed."""
    return {}


@pytest.fixture
def alone(
    library: Path, questions: Path, tmp_path: Path, environment: Mapping[str, str], expected: dict[str, list[Any]]
) -> list[Any]:
    if not expected:
        fast = {**environment, "SLOW_HASHING_SECONDS": "0"}
        expected["records"] = ask(library, questions, tmp_path / "alone.jsonl", fast)
    return expected["records"]


@pytest.mark.ray
def test_local_cluster_gives_same_answers(
    library: Path, questions: Path, tmp_path: Path, environment: Mapping[str, str], alone: list[Any]
) -> None:
    own = {name: value for name, value in environment.items() if not name.startswith("RAY_")}
    own |= {"HOME": str(tmp_path), "TMPDIR": "/tmp"}
    records = ask(library, questions, tmp_path / "answers.jsonl", own, "--on", "local", "--local-only")
    assert len(records) == QUESTIONS
    for record in records:
        # With --local-only, each question says that the encoder is not part of epicrisis.
        notice = record["answer"]["trace"].pop(0)
        assert notice["kind"] == "unchecked"
    assert records == alone


@pytest.mark.ray
def test_killed_worker_and_node_lose_and_repeat_nothing(
    library: Path,
    questions: Path,
    tmp_path: Path,
    environment: Mapping[str, str],
    cluster: RayCluster,
    alone: list[Any],
) -> None:
    output = tmp_path / "answers.jsonl"
    process = start(library, questions, output, environment, "--on", cluster.url)
    wait_for_some(output, process)
    assert cluster.kill_worker("node-0")
    time.sleep(0.3)
    cluster.kill_node("node-1")
    assert finish(process, output) == alone
    cluster.add_node("node-1")


@pytest.mark.ray
def test_killed_command_continues(
    library: Path,
    questions: Path,
    tmp_path: Path,
    environment: Mapping[str, str],
    cluster: RayCluster,
    alone: list[Any],
) -> None:
    """It continues without the cluster: the recipe of an answer does not name who searched."""
    output = tmp_path / "answers.jsonl"
    process = start(library, questions, output, environment, "--on", cluster.url)
    wait_for_some(output, process)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert 0 < len(read_records(output)) < QUESTIONS
    assert ask(library, questions, output, {**environment, "SLOW_HASHING_SECONDS": "0"}) == alone


@pytest.mark.ray
def test_evaluation_on_cluster_gives_same_records(
    library: Path, questions: Path, tmp_path: Path, environment: Mapping[str, str], cluster: RayCluster
) -> None:
    states = []
    for name, options in (("alone", ()), ("cluster", ("--on", cluster.url))):
        program = [sys.executable, "-m", "epicrisis", "evaluate", str(questions), "--library", str(library)]
        program += ["-o", str(tmp_path / name), "--strategy", "evidence", "-n", "6", "--json", "--yes", *options]
        outcome = subprocess.run(program, env=environment, capture_output=True, text=True, check=False)
        assert outcome.returncode == 0, outcome.stderr
        records = read_records(tmp_path / name / "records.jsonl")
        states.append(sorted(records, key=lambda record: str(record["key"])))
    assert states[0] == states[1]
    assert len(states[0]) == 6


@pytest.mark.ray
def test_encoder_missing_on_nodes_is_one_line(
    library: Path, questions: Path, tmp_path: Path, cluster: RayCluster
) -> None:
    """This machine has a package with the encoder of the library, and the nodes do not."""
    packages = tmp_path / "packages"
    install_encoder(packages)
    place = packages / "slow_hashing-1.0.dist-info" / "entry_points.txt"
    place.write_text(place.read_text().replace(ENCODER, "only-here"), encoding="utf-8")
    add_documents(tmp_path / "library", Document("a", "Aspirin."), name="only-here")
    process = start(
        tmp_path / "library", questions, tmp_path / "a.jsonl", make_environment(packages), "--on", cluster.url
    )
    _, errors = process.communicate()
    assert process.returncode == 2
    assert "of the cluster cannot open the library: " in errors
    assert len(errors.strip().splitlines()) == 1


@pytest.mark.ray
def test_killed_head_is_one_line_and_command_continues(
    library: Path,
    questions: Path,
    tmp_path: Path,
    environment: Mapping[str, str],
    cluster: RayCluster,
    alone: list[Any],
) -> None:
    """The last test of the cluster: nothing of it is left."""
    output = tmp_path / "answers.jsonl"
    process = start(library, questions, output, environment, "--on", cluster.url)
    wait_for_some(output, process)
    cluster.kill_head()
    _, errors = process.communicate()
    assert process.returncode == 2
    assert "run the same command again" in errors
    assert "Traceback" not in errors
    assert ask(library, questions, output, {**environment, "SLOW_HASHING_SECONDS": "0"}) == alone
