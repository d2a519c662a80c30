"""Settings: who wins, what is refused, and in which words."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from epicrisis.errors import SettingsError
from epicrisis.settings import ROLES, Settings, known_keys, load


@pytest.fixture(autouse=True)
def _bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No settings but those of the test: an empty working folder, an empty home, a clean environment."""
    for name in os.environ:
        if name.startswith(("EPICRISIS_", "XDG_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def refusal(flags: dict[str, Any] | None = None, config: Path | None = None) -> str:
    """The one line with which these settings are refused."""
    with pytest.raises(SettingsError) as error:
        load(flags, config)
    assert "\n" not in error.value.message
    return error.value.message


def test_defaults(tmp_path: Path) -> None:
    settings = load()
    assert settings == Settings().model_copy(update={"home": tmp_path / "home/.local/share/epicrisis"})
    assert (settings.k, settings.partition, settings.by, settings.strategy) == (16, 4, "hybrid", "brief-context")
    assert (settings.preflight.n, settings.preflight.threshold, settings.preflight.depth) == (3, 0.2, 16)
    assert settings.local_only is False


def test_flags_beat_environment_beats_file_beats_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = write(tmp_path / "s.toml", "k = 1\npartition = 1\nseed = 1\n[preflight]\nn = 1\ndepth = 1\n")
    assert (load(config=file).k, load().k) == (1, 16)
    monkeypatch.setenv("EPICRISIS_PARTITION", "2")
    monkeypatch.setenv("EPICRISIS_SEED", "2")
    monkeypatch.setenv("EPICRISIS_PREFLIGHT__DEPTH", "2")
    settings = load({"seed": 3, "preflight": {"enabled": False}}, file)
    assert (settings.rrf_k, settings.k, settings.partition, settings.seed) == (60, 1, 2, 3)
    assert (settings.preflight.threshold, settings.preflight.n, settings.preflight.depth) == (0.2, 1, 2)
    assert settings.preflight.enabled is False


def test_a_flag_that_was_not_given_says_nothing(tmp_path: Path) -> None:
    file = write(tmp_path / "s.toml", 'k = 1\n[models.writer]\nname = "x.gguf"\n')
    settings = load({"k": None, "models": {"writer": {"name": None, "temperature": 0.5}, "map": {"name": None}}}, file)
    assert settings.k == 1
    assert (settings.models.writer.name, settings.models.writer.temperature) == ("x.gguf", 0.5)
    assert settings.models.map is None


def test_a_flag_of_false_or_zero_says_something(tmp_path: Path) -> None:
    file = write(tmp_path / "s.toml", "local_only = true\nseed = 5\n")
    settings = load({"local_only": False, "seed": 0}, file)
    assert (settings.local_only, settings.seed) == (False, 0)


def test_where_the_file_is_looked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    write(tmp_path / "home/.config/epicrisis/epicrisis.toml", "k = 1")
    assert load().k == 1
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    assert load().k == 16
    write(tmp_path / "xdg/epicrisis/epicrisis.toml", "k = 2")
    assert load().k == 2
    write(tmp_path / "epicrisis.toml", "k = 3")
    assert load().k == 3
    monkeypatch.setenv("EPICRISIS_CONFIG", str(write(tmp_path / "named.toml", "k = 4")))
    assert load().k == 4
    assert load(config=write(tmp_path / "flag.toml", "k = 5")).k == 5


def test_where_the_models_lie(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert load().home == tmp_path / "data/epicrisis"
    monkeypatch.setenv("EPICRISIS_HOME", "~/models")
    assert load().home == tmp_path / "home/models"


def test_environment_of_nested_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EPICRISIS_MODELS__WRITER__NAME", "http://127.0.0.1:8000/v1#m")
    monkeypatch.setenv("EPICRISIS_LOCAL_ONLY", "true")
    monkeypatch.setenv("EPICRISIS_DEADLINE_SECONDS", "1.5")
    settings = load()
    assert settings.models.writer.name == "http://127.0.0.1:8000/v1#m"
    assert settings.local_only is True
    assert settings.deadline_seconds == 1.5


@pytest.mark.parametrize("name", ["EPICRISIS_DATA", "EPICRISIS_REQUIRE_ALL", "epicrisis_k", "OTHER_EPICRISIS_K"])
def test_variables_that_are_not_settings(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "nonsense")
    assert load().k == 16


def test_a_table_and_a_value_of_one_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EPICRISIS_PREFLIGHT", "off")
    monkeypatch.setenv("EPICRISIS_PREFLIGHT__N", "3")
    assert "EPICRISIS_PREFLIGHT__N" in refusal()
    assert "unset one" in refusal()


def test_an_unknown_key_is_refused_wherever_it_stands(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    said = "unknown setting partiton: did you mean partition?"
    assert refusal({"partiton": 1}) == said
    assert refusal(config=write(tmp_path / "s.toml", "partiton = 1")) == said
    monkeypatch.setenv("EPICRISIS_PARTITON", "1")
    assert refusal() == said


def test_an_unknown_nested_key(monkeypatch: pytest.MonkeyPatch) -> None:
    assert refusal({"models": {"writer": {"temprature": 1}}}) == (
        "unknown setting models.writer.temprature: did you mean models.writer.temperature?"
    )
    monkeypatch.setenv("EPICRISIS_PREFLIGHT__TRESHOLD", "1")
    assert refusal() == "unknown setting preflight.treshold: did you mean preflight.threshold?"


def test_a_key_like_no_other_lists_what_there_is() -> None:
    said = refusal({"zzzzzzzz": 1})
    assert said == f"unknown setting zzzzzzzz: known are {', '.join(known_keys())}"
    assert {"home", "k", "models.map.name", "preflight.n"} <= set(known_keys())
    assert not {"models", "preflight", "models.writer"} & set(known_keys())


@pytest.mark.parametrize(
    ("flags", "key", "value"),
    [
        ({"k": 0}, "k", "0"),
        ({"k": 1001}, "k", "1001"),
        ({"k": "many"}, "k", "'many'"),
        ({"by": "magic"}, "by", "'magic'"),
        ({"strategy": "guess"}, "strategy", "'guess'"),
        ({"partition": 0}, "partition", "0"),
        ({"deadline_seconds": 0}, "deadline_seconds", "0"),
        ({"preflight": {"threshold": 1}}, "preflight.threshold", "1"),
        ({"preflight": {"n": 0}}, "preflight.n", "0"),
        ({"models": {"writer": {"temperature": 3}}}, "models.writer.temperature", "3"),
        ({"models": {"map": {"context_tokens": 255}}}, "models.map.context_tokens", "255"),
        ({"models": {"map": "gpt"}}, "models.map", "'gpt'"),
        ({"models": {"writer": {"concurrency": 0}}}, "models.writer.concurrency", "0"),
    ],
)
def test_a_bad_value_is_refused_in_one_line(flags: dict[str, Any], key: str, value: str) -> None:
    said = refusal(flags)
    assert said.startswith(f"setting {key}: ")
    assert said.endswith(f"(it says {value})")


def test_a_file_that_is_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    missing = tmp_path / "none.toml"
    assert refusal(config=missing) == f"no settings file at {missing}: give --config an existing TOML file"
    assert str(tmp_path) in refusal(config=tmp_path)
    monkeypatch.setenv("EPICRISIS_CONFIG", str(missing))
    assert str(missing) in refusal()


@pytest.mark.parametrize("content", [b"k = ", b"just words", b"k = 1\nk = 2", b"\xff\xfe", b"[models"])
def test_a_file_that_is_not_toml(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "s.toml"
    file.write_bytes(content)
    assert refusal(config=file).startswith(f"{file} is not a TOML file: ")


def test_each_role_has_its_model_or_the_writers() -> None:
    settings = load({"models": {"writer": {"name": "w", "temperature": 0.7}, "reduce": {"name": "r"}}})
    assert [settings.model_for(role).name for role in ROLES] == ["w", "w", "r"]
    assert settings.model_for("reduce").temperature == 0.0
    assert settings.model_for("judge") is settings.models.writer


def test_a_role_without_a_name_changes_the_writers_settings() -> None:
    settings = load({"models": {"writer": {"name": "w", "concurrency": 2}, "map": {"temperature": 0.7}}})
    mapper = settings.model_for("map")
    assert (mapper.name, mapper.concurrency, mapper.temperature) == ("w", 2, 0.7)
    assert settings.model_for("writer").temperature == 0.0
