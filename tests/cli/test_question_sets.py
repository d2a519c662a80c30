"""`epicrisis questions list | pull`, with a source on loopback."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from epicrisis.evaluation.datasets import catalogue
from tests.cli.conftest import Run
from tests.evaluation.datasets.hosted import BODY, NAME, hosted
from tests.support.loopback import Endpoint, Scripted, serving


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Endpoint]:
    """The source of the only set there is."""
    with serving() as endpoint:
        endpoint.script["/benchmark.json"] = [Scripted(BODY)]
        sets = hosted(endpoint.url, tmp_path)
        monkeypatch.setattr(catalogue, "load_catalogue", lambda: sets)
        yield endpoint


def test_pulled_it_is_here_and_is_not_fetched_again(run: Run, server: Endpoint, tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert "not pulled" in run("questions", "list", "--setting", f"home={home}").stdout
    pulled = run("questions", "pull", NAME, NAME, "--setting", f"home={home}")
    assert pulled.exit_code == 0
    file = home / "datasets" / "mirage" / "benchmark.json"
    assert pulled.stdout == f"{NAME}: 1 questions in {file} (MIT)\n"
    assert "benchmark.json" in pulled.stderr, "the progress bar"
    again = run("questions", "pull", NAME, "--setting", f"home={home}", "--local-only", "--json")
    assert json.loads(again.stdout) == {NAME: {"questions": 1, "files": [str(file)]}}
    assert again.stderr == ""
    (row,) = json.loads(run("questions", "list", "--setting", f"home={home}", "--json").stdout)
    assert (row["name"], row["questions"], row["here"], row["licence"]) == (NAME, 1, True, "MIT")
    assert row["sources"] == [f"{server.url}/benchmark.json"]
    assert len(server.asked) == 1


@pytest.mark.usefixtures("server")
def test_the_folder_of_the_settings(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EPICRISIS_HOME", str(tmp_path / "other"))
    assert run("questions", "pull", NAME).exit_code == 0
    assert (tmp_path / "other" / "datasets" / "mirage" / "benchmark.json").is_file()


def test_an_unknown_name_before_anything_is_fetched(run: Run, server: Endpoint, tmp_path: Path) -> None:
    result = run("questions", "pull", NAME, "mirage", "--setting", f"home={tmp_path}")
    assert result.exit_code == 2
    assert result.stderr == f"epicrisis: no question set is called 'mirage'; known are {NAME}\n"
    assert server.asked == []


def test_local_only_fetches_nothing(run: Run, server: Endpoint, tmp_path: Path) -> None:
    result = run("questions", "pull", NAME, "--setting", f"home={tmp_path / 'home'}", "--local-only")
    assert result.exit_code == 2
    assert "--local-only is on: pull it once without that option" in result.stderr
    assert server.asked == []


def test_a_source_that_has_something_else(run: Run, server: Endpoint, tmp_path: Path) -> None:
    server.script["/benchmark.json"] = [Scripted("", 404)]
    result = run("questions", "pull", NAME, "--setting", f"home={tmp_path / 'home'}", "--json")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"epicrisis: {server.url}/benchmark.json cannot be fetched (status 404)")
    assert result.stderr.count("\n") == 1


def test_every_set_of_the_catalogue_is_listed(run: Run, tmp_path: Path) -> None:
    said = run("questions", "list", "--setting", f"home={tmp_path}").stdout
    for each in catalogue.load_catalogue().values():
        assert f"{each.count:,} questions" in said
        assert all(text in said for text in (each.name, each.description, each.licence, each.files[0].url))
