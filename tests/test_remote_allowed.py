"""A library of notes holds whoever opens it to this machine, until its own folder says otherwise."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from epicrisis.core.answers import Notice
from epicrisis.core.errors import NetworkRefused, SettingsError
from epicrisis.core.types import Question
from epicrisis.evaluation.experiments.recorded_rankings import open_rankers
from epicrisis.library.base.remote_consent import NAME, forbid_remote, read_remote
from epicrisis.pipeline.components import open_library_search
from epicrisis.pipeline.pipeline import Pipeline
from epicrisis.privacy.patient_data_policy import protect_patient_data, protect_run_folder
from epicrisis.settings.configuration import load_settings
from epicrisis.settings.settings import Settings
from tests.support.patient_records import ENCODER, PATIENTS, library, notes, papers

REMOTE = "https://user:secret@models.example.org/v1?key=hidden#m"
HOST = "models.example.org"
LOCAL = "http://127.0.0.1:9/v1#m"


@pytest.fixture
def ward(tmp_path: Path) -> Path:
    with library(tmp_path / "ward", notes()) as made:
        return made.path


@pytest.fixture
def literature(tmp_path: Path) -> Path:
    with library(tmp_path / "papers", papers()) as made:
        return made.path


def settings(model: str = REMOTE, **more: Any) -> Settings:
    return load_settings(
        {"models": {"writer": {"name": model}}, "strategy": "rag", "by": "bm25", "cache": {"mode": "off"}, **more}
    )


def held() -> bool:
    """Whether this process may ask nobody but this machine."""
    try:
        socket.getaddrinfo("203.0.113.7", 9, flags=socket.AI_NUMERICHOST)
    except NetworkRefused:
        return True
    return False


def opened(made: Settings, path: Path | None) -> dict[str, Any]:
    """The recipe of a pipeline that was opened so."""

    async def run() -> dict[str, Any]:
        async with Pipeline.open(made, path) as pipeline:
            return pipeline.recipe()

    return asyncio.run(run())


def test_remote_model_is_rejected_with_both_remedies(ward: Path) -> None:
    with pytest.raises(SettingsError) as refused:
        opened(settings(), ward)
    assert refused.value.message == (
        f"setting models.writer.name: {ward} holds patients' notes and {HOST} is not this machine: name something on "
        "this machine, or give --allow-remote once for this folder"
    )
    assert not (ward / NAME).exists()


def test_local_model_activates_guard(ward: Path) -> None:
    assert not held()
    assert "remote" not in opened(settings(LOCAL), ward)
    assert held()


def test_literature_allows_remote_model(literature: Path) -> None:
    assert "remote" not in opened(settings(), literature)
    assert not held()
    opened(settings(allow_remote=True), literature)
    assert not (literature / NAME).exists(), "there was nothing to allow"


OPENERS: dict[str, Callable[[Settings, Path], object]] = {
    "pipeline": opened,
    "question alone": lambda made, path: opened(made.model_copy(update={"strategy": "closed-book"}), path),
    "guarded": protect_patient_data,
    "fused": lambda made, path: protect_patient_data(made.model_copy(update={"fuse": (path,)}), None),
    "beside": lambda made, path: protect_patient_data(made.model_copy(update={"beside": (path,)}), None),
    "examples": lambda made, path: protect_patient_data(
        made.model_copy(update={"examples": made.examples.model_copy(update={"library": path})})
    ),
    "run": lambda made, path: protect_run_folder(made, path, patients=True),
}


@pytest.mark.parametrize("opener", OPENERS)
def test_all_openers_reject_remote_model(opener: str, ward: Path) -> None:
    with pytest.raises(SettingsError, match=r"holds patients' notes and models\.example\.org is not this machine"):
        OPENERS[opener](settings(), ward)


def test_search_is_protected_only_for_reranker(ward: Path) -> None:
    with open_library_search(settings(), ward):
        assert held()
    reranked = settings(rerank={"name": f"https://{HOST}"})
    with pytest.raises(SettingsError, match=r"setting rerank\.name"):
        open_library_search(reranked, ward)
    with pytest.raises(SettingsError, match=r"setting rerank\.name"), open_rankers(reranked, ward):
        pass


def test_evidence_does_not_call_the_remote_model_and_is_protected(ward: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A settings file may name an endpoint for other questions. The reranker would be called, and is rejected."""
    monkeypatch.setattr("epicrisis.models.encoders.load_encoder", lambda *_: ENCODER)
    recipe = opened(settings(strategy="evidence"), ward)
    assert (recipe["models"], "remote" in recipe) == ({}, False)
    assert held()
    assert not (ward / NAME).exists()
    with pytest.raises(SettingsError, match=r"setting rerank\.name"):
        opened(settings(strategy="evidence", rerank={"name": f"https://{HOST}"}), ward)


def test_permission_is_recorded_and_persists(ward: Path) -> None:
    assert opened(settings(allow_remote=True), ward)["remote"] == [HOST]
    assert read_remote(ward).hosts == (HOST,)
    assert "secret" not in (ward / NAME).read_text()
    assert "hidden" not in (ward / NAME).read_text()
    other = settings("https://other.example.org/v1#m")
    assert opened(other, ward)["remote"] == ["other.example.org"]
    assert read_remote(ward).hosts == (HOST, "other.example.org")
    assert "remote" not in opened(settings(LOCAL), ward)
    assert not held()
    forbid_remote(ward)
    with pytest.raises(SettingsError, match="holds patients' notes"):
        opened(settings(), ward)


def test_local_only_overrides_permission(ward: Path) -> None:
    opened(settings(LOCAL, allow_remote=True), ward)
    assert read_remote(ward).allowed
    assert not held()
    opened(settings(LOCAL, local_only=True), ward)
    assert held()
    with pytest.raises(SettingsError, match="contradict each other: give one of them"):
        settings(LOCAL, local_only=True, allow_remote=True)


@pytest.mark.slow
def test_two_libraries_must_both_allow_remote(ward: Path, tmp_path: Path) -> None:
    with library(tmp_path / "second", notes()) as second:
        path = second.path
    protect_patient_data(settings(allow_remote=True), ward)
    with pytest.raises(SettingsError, match="second holds patients' notes"):
        protect_patient_data(settings(fuse=[path]), ward)
    assert not protect_patient_data(settings(fuse=[path], allow_remote=True), ward).local_only
    assert read_remote(path).hosts == (HOST,)


@pytest.mark.parametrize("strategy", ["rag", "closed-book"])
def test_trace_reports_remote_permission_and_host(strategy: str, ward: Path) -> None:
    made = settings(allow_remote=True, strategy=strategy, cache={"mode": "replay"})

    async def run() -> list[Notice]:
        async with Pipeline.open(made, ward) as pipeline:
            answer = await pipeline.answer(Question("Which drug was given for stroke?", patient=PATIENTS[0]))
        return [event for event in answer.trace if isinstance(event, Notice) and event.kind == "remote-allowed"]

    assert asyncio.run(run()) == [Notice("remote-allowed", f"by --allow-remote patients' notes may reach {HOST}")]


def test_permission_applies_to_one_folder(ward: Path, tmp_path: Path) -> None:
    """Settings go from gate to gate: what the first found allowed is not taken for said at the second."""
    protect_run_folder(settings(allow_remote=True), tmp_path, patients=True)
    passed = protect_run_folder(settings(), tmp_path, patients=True)
    with pytest.raises(SettingsError, match="holds patients' notes"):
        protect_patient_data(passed, ward)
    assert not (ward / NAME).exists()


def test_run_folder_has_own_permission(tmp_path: Path) -> None:
    assert protect_run_folder(settings(), tmp_path, patients=False).models.writer.name == REMOTE
    assert not protect_run_folder(settings(allow_remote=True), tmp_path, patients=True).local_only
    assert json.loads((tmp_path / NAME).read_text())["hosts"] == [HOST]
    assert not protect_run_folder(settings(), tmp_path, patients=True).local_only


@pytest.mark.parametrize("where", ["environment", "file"])
def test_settings_file_and_environment_cannot_grant_permission(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = None
    if where == "file":
        config = tmp_path / "settings.toml"
        config.write_text("allow_remote = true\n")
    else:
        monkeypatch.setenv("EPICRISIS_ALLOW_REMOTE", "true")
    with pytest.raises(
        SettingsError, match="given once for each library, with --allow-remote, never in a settings file"
    ):
        load_settings({}, config)
