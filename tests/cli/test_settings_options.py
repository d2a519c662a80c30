"""Shared options and `--setting KEY=VALUE` reach the settings; `epicrisis settings` lists every key."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner, Result

from epicrisis.cli import options
from epicrisis.cli.command import Flags, command
from epicrisis.cli.options import ANSWER, ENCODER
from epicrisis.settings.configuration import load_settings, parse_overrides, setting_rows
from epicrisis.settings.settings import Settings
from tests.cli.conftest import Run

ReadSettings = Callable[..., Settings]


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run without a settings file."""
    monkeypatch.chdir(tmp_path)


def run_probe(*arguments: object) -> tuple[Result, list[Settings]]:
    """Run a command that has every shared option and reads its settings."""
    results: list[Settings] = []
    probe_app = typer.Typer()

    @command(*ANSWER, ENCODER, examples=["epicrisis probe here"])
    def probe(place: Annotated[str, typer.Argument()] = "here", *, flags: Flags) -> None:
        """Read the settings."""
        results.append(flags.settings())

    probe.add_to(probe_app, "probe")
    return CliRunner().invoke(probe_app, [str(argument) for argument in arguments]), results


def read_settings(*arguments: object) -> Settings:
    result, (settings,) = run_probe(*arguments)
    assert result.exit_code == 0, result.stderr
    return settings


def value_of(settings: Settings, key: str) -> Any:
    """Return the value of a dotted key."""
    value: Any = settings
    for name in key.split("."):
        value = getattr(value, name)
    return value


@pytest.mark.parametrize(
    ("arguments", "key", "value"),
    [
        (("--strategy", "rag"), "strategy", "rag"),
        (("--model", "http://127.0.0.1:9/v1#m"), "models.writer.name", "http://127.0.0.1:9/v1#m"),
        (("--seed", 7), "seed", 7),
        (("--by", "bm25"), "by", "bm25"),
        (("-k", 3), "k", 3),
        (("--as-of", "2015-06"), "scope.as_of", "2015-06"),
        (("--encoder", "pubmedbert"), "encoder", "pubmedbert"),
        (("--budget-tokens", 5000), "budget.tokens", 5000),
        (("--budget-usd", 1.5), "budget.usd", 1.5),
        (("--budget-minutes", 2.5), "budget.minutes", 2.5),
        (("--local-only",), "local_only", True),
        (("--allow-remote",), "allow_remote", True),
        (("--setting", "preflight.enabled=false"), "preflight.enabled", False),
        (("--setting", "timeline=false"), "timeline", False),
        (("--setting", "votes.n=20"), "votes.n", 20),
        (("--setting", "preflight.threshold=0.3"), "preflight.threshold", 0.3),
        (("--setting", "rerank.name=medcpt"), "rerank.name", "medcpt"),
        (("--setting", "record=calls.jsonl"), "record", Path("calls.jsonl")),
        (("--setting", "scope.types=Review"), "scope.types", ("Review",)),
        (("--setting", 'scope.types=["Review", "Trial"]'), "scope.types", ("Review", "Trial")),
        (("--setting", "scope.types=Review", "--setting", "scope.types=Trial"), "scope.types", ("Review", "Trial")),
        (("--setting", "scope.include=retracted"), "scope.include", ("retracted",)),
        (("--setting", "models.map.name=http://127.0.0.1:9/v1#a=b"), "models.map.name", "http://127.0.0.1:9/v1#a=b"),
        (("-k", 3, "--setting", "k=5"), "k", 5),
    ],
)
def test_option_sets_its_setting(arguments: tuple[object, ...], key: str, value: object) -> None:
    assert value_of(read_settings(*arguments), key) == value


def test_every_shared_option_names_an_existing_setting() -> None:
    keys = {row.key for row in setting_rows()}
    for option in (*ANSWER, ENCODER):
        assert option.key in keys or option in (options.SETTING, options.CONFIG), option.parameter


def test_command_without_options_has_the_default_settings() -> None:
    assert read_settings() == load_settings()


def test_option_wins_over_environment_and_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "own.toml"
    config.write_text('k = 3\nby = "dense"\nlocal_only = true\n[votes]\nn = 4\n')
    settings = read_settings("--config", config)
    assert (settings.k, settings.by, settings.votes.n, settings.local_only) == (3, "dense", 4, True)
    monkeypatch.setenv("EPICRISIS_K", "5")
    assert read_settings("--config", config).k == 5
    changed = read_settings("--config", config, "-k", 7, "--setting", "votes.n=9", "--setting", "local_only=false")
    assert (changed.k, changed.by, changed.votes.n, changed.local_only) == (7, "dense", 9, False)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nope=1", "unknown setting nope: "),
        ("preflight.treshold=1", "unknown setting preflight.treshold: did you mean preflight.threshold?"),
        ("k", "a setting has the form KEY=VALUE, such as votes.n=20"),
        ("=3", "a setting has the form KEY=VALUE, such as votes.n=20"),
        ("k=many", "setting k: input should be a valid integer"),
        ("k=0", "setting k: "),
        ("preflight.enabled=perhaps", "setting preflight.enabled: input should be a valid boolean"),
        ("scope.include=[1]", "setting scope.include"),
        ("models=gpt", "setting models is a table: set one of its keys, such as models."),
        ("allow_remote=true", "setting allow_remote: it is given once for each library, with --allow-remote"),
    ],
)
def test_wrong_setting_reports_one_line(text: str, message: str, run: Run, tmp_path: Path) -> None:
    for result in (run_probe("--setting", text)[0], run("search", tmp_path, "fever", "--setting", text)):
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr.startswith(f"epicrisis: {message}")
        assert result.stderr.count("\n") == 1


@pytest.mark.long
@pytest.mark.models
def test_search_follows_shared_options_and_settings(run: Run, small_library: Path) -> None:
    def search(*arguments: object) -> list[str]:
        result = run("search", small_library, "aspirin lowers mortality", "--json", *arguments)
        assert result.exit_code == 0, result.stderr
        hits = json.loads(result.stdout)["hits"]
        return [hit["passage"]["document_id"] for hit in hits]

    assert len(search()) == 3
    assert len(search("-k", 1)) == len(search("--setting", "k=1")) == 1
    assert {*search("--as-of", "2001")} == {*search("--setting", "scope.as_of=2001")} == {"b"}
    assert {*search("--setting", "scope.hide=b")} == {"a", "c"}


# -- epicrisis settings ----------------------------------------------------------------------------------------------


def test_settings_json_lists_every_key_with_default_unit_and_meaning(run: Run) -> None:
    rows = json.loads(run("settings", "--json").stdout)
    assert rows == [row._asdict() for row in setting_rows()]
    assert all(set(row) == {"key", "default", "unit", "meaning"} for row in rows)
    assert all(row["meaning"] for row in rows)
    by_key = {row["key"]: row for row in rows}
    assert (by_key["k"]["default"], by_key["preflight.enabled"]["default"]) == ("16", "true")
    assert by_key["scope.without"]["default"] == '["retracted"]'
    assert by_key["scope.as_of"]["unit"] == "date"


def test_settings_lists_every_key_with_its_meaning_as_text(run: Run) -> None:
    result = run("settings")
    assert (result.exit_code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    rows = setting_rows()
    assert len(lines) == 2 * len(rows)
    for row, heading, meaning in zip(rows, lines[::2], lines[1::2], strict=True):
        unit = f" ({row.unit})" if row.unit else ""
        assert heading == f"{row.key} = {row.default}{unit}"
        assert meaning == f"    {row.meaning}"


def test_settings_with_prefix_lists_only_its_keys(run: Run) -> None:
    keys = [row["key"] for row in json.loads(run("settings", "preflight.", "--json").stdout)]
    assert keys == [row.key for row in setting_rows() if row.key.startswith("preflight.")] != []


def test_settings_with_unknown_prefix_reports_one_line(run: Run) -> None:
    result = run("settings", "nope")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "epicrisis: no setting begins with 'nope': `epicrisis settings` lists all\n"


def test_settings_defaults_are_accepted_as_values() -> None:
    no_defaults = {"allow_remote", "home"}  # Tests have a home of their own.
    texts = [f"{row.key}={row.default}" for row in setting_rows() if row.default and row.key not in no_defaults]
    assert load_settings(parse_overrides(texts)) == load_settings()


def test_wrong_settings_for_library_at_url_are_one_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are read while the arguments are parsed, before the command begins."""
    monkeypatch.setenv("EPICRISIS_LOCAL_ONLY", "perhaps")
    result = run("search", "s3://bucket/library", "aspirin")
    assert result.exit_code == 2
    assert "local_only" in result.stderr
    assert "Traceback" not in result.stderr
