"""Settings: who wins, what is refused, and in which words."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from epicrisis.core.errors import SettingsError
from epicrisis.settings.configuration import (
    explain_unknown_variables,
    load_settings,
    merge_tables,
    parse_overrides,
    setting_rows,
)
from epicrisis.settings.settings import ROLES, ModelSettings, Price, Settings


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
        load_settings(flags, config)
    assert "\n" not in error.value.message
    return error.value.message


def test_default_settings_are_as_documented(tmp_path: Path) -> None:
    settings = load_settings()
    assert settings == Settings().model_copy(update={"home": tmp_path / "home/.local/share/epicrisis"})
    assert (settings.k, settings.partition, settings.by, settings.strategy) == (16, 4, "hybrid", "brief-context")
    check = settings.preflight
    assert (check.rule, check.signal, check.n, check.threshold, check.depth) == ("fitted", None, None, None, 16)
    assert (settings.count, settings.count_unit(), settings.count_unit("p1")) == (None, "documents", "passages")
    assert settings.local_only is False


def test_flags_override_environment_file_and_defaults(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = write(tmp_path / "s.toml", "k = 1\npartition = 1\nseed = 1\n[preflight]\nn = 1\ndepth = 1\n")
    assert (load_settings(config=file).k, load_settings().k) == (1, 16)
    monkeypatch.setenv("EPICRISIS_PARTITION", "2")
    monkeypatch.setenv("EPICRISIS_SEED", "2")
    monkeypatch.setenv("EPICRISIS_PREFLIGHT__DEPTH", "2")
    settings = load_settings({"seed": 3, "preflight": {"enabled": False}}, file)
    assert (settings.rrf_k, settings.k, settings.partition, settings.seed) == (60, 1, 2, 3)
    assert (settings.preflight.threshold, settings.preflight.n, settings.preflight.depth) == (None, 1, 2)
    assert settings.preflight.enabled is False


def test_unset_flag_has_no_effect(tmp_path: Path) -> None:
    file = write(tmp_path / "s.toml", 'k = 1\n[models.writer]\nname = "x.gguf"\n')
    settings = load_settings(
        {"k": None, "models": {"writer": {"name": None, "temperature": 0.5}, "map": {"name": None}}}, file
    )
    assert settings.k == 1
    assert (settings.models.writer.name, settings.models.writer.temperature) == ("x.gguf", 0.5)
    assert settings.models.map is None


def test_flag_of_false_or_zero_has_effect(tmp_path: Path) -> None:
    file = write(tmp_path / "s.toml", "local_only = true\nseed = 5\n")
    settings = load_settings({"local_only": False, "seed": 0}, file)
    assert (settings.local_only, settings.seed) == (False, 0)


def test_settings_file_is_searched_in_order(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    write(tmp_path / "home/.config/epicrisis/epicrisis.toml", "k = 1")
    assert load_settings().k == 1
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    assert load_settings().k == 16
    write(tmp_path / "xdg/epicrisis/epicrisis.toml", "k = 2")
    assert load_settings().k == 2
    write(tmp_path / "epicrisis.toml", "k = 3")
    assert load_settings().k == 3
    monkeypatch.setenv("EPICRISIS_CONFIG", str(write(tmp_path / "named.toml", "k = 4")))
    assert load_settings().k == 4
    assert load_settings(config=write(tmp_path / "flag.toml", "k = 5")).k == 5


def test_file_of_the_folder_is_above_the_users_own(tmp_path: Path) -> None:
    own = 'k = 1\nlocal_only = true\n[models.writer]\nname = "http://127.0.0.1:8000/v1#m"\napi_key_env = "WARD_KEY"\n'
    write(tmp_path / "home/.config/epicrisis/epicrisis.toml", own)
    write(tmp_path / "epicrisis.toml", "k = 3\n[models.writer]\ntemperature = 0.5\n")
    settings = load_settings()
    assert (settings.k, settings.local_only, settings.models.writer.temperature) == (3, True, 0.5)
    assert settings.models.writer.api_key_env == "WARD_KEY"


@pytest.mark.parametrize(
    "line",
    [
        *(
            'models.writer.api_key_env = "OPENAI_API_KEY"',
            'models.map.api_key_file = "k"',
            "models.judge.extra = {a = 1}",
        ),
        *('models.writer.name = "https://evil.example/v1#m"', 'models.reduce.name = "openai:gpt-5"'),
        *('models.writer.name = "ollama:"', 'models.writer.name = " OpenAI:"', 'rerank.name = "https://evil.example"'),
        *('rerank.api_key_env = "A"', 'examples.rerank = "http://127.0.0.1:1/v1"', 'fuse = ["a", "s3://evil/lib"]'),
        *(
            'beside = ["postgresql://evil.example/lib"]',
            'examples.library = "s3://evil/lib"',
            'record = "answers.jsonl"',
        ),
        *('log = "log.jsonl"', "log_text = true", 'home = "home"', 'store = "evil"', 'cache.path = "replies"'),
        *('literature.pubmed = "https://evil.example"', 'literature.email = "a@evil.example"', "local_only = false"),
        *('beside = ["postgresql:/u@evil.example/db"]', 'fuse = ["s3:/evil/lib"]', 'fuse = ["a", "s3:\\t/evil/lib"]'),
        *('examples.library = "//evil/share"', "examples.library = '\\\\evil\\share'"),
        *("deidentify = 0.1", "allow_remote = true", 'break_glass = "x"'),
    ],
)
def test_file_of_the_folder_says_nothing_of_secrets_hosts_and_logs(tmp_path: Path, line: str) -> None:
    write(tmp_path / "epicrisis.toml", line)
    key = line.partition(" ")[0]
    with pytest.raises(SettingsError, match=rf"setting {key}\b.*(--config|break_glass|allow_remote)"):
        load_settings()


def test_file_of_the_folder_may_be_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = write(tmp_path / "epicrisis.toml", '[models.writer]\nname = "http://127.0.0.1:1/v1#m"\n')
    assert load_settings(config=file).models.writer.name == "http://127.0.0.1:1/v1#m"
    monkeypatch.setenv("EPICRISIS_CONFIG", str(file))
    assert load_settings().models.writer.name == "http://127.0.0.1:1/v1#m"


def test_file_of_the_folder_may_choose_models_of_this_machine_and_more_privacy(tmp_path: Path) -> None:
    write(tmp_path / "epicrisis.toml", 'local_only = true\n[models.writer]\nname = "x.gguf"\n')
    assert (load_settings().local_only, load_settings().models.writer.name) == (True, "x.gguf")


def test_model_home_is_resolved(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert load_settings().home == tmp_path / "data/epicrisis"
    monkeypatch.setenv("EPICRISIS_HOME", "~/models")
    assert load_settings().home == tmp_path / "home/models"


def test_environment_sets_nested_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EPICRISIS_MODELS__WRITER__NAME", "http://127.0.0.1:8000/v1#m")
    monkeypatch.setenv("EPICRISIS_LOCAL_ONLY", "true")
    monkeypatch.setenv("EPICRISIS_DEADLINE_SECONDS", "1.5")
    settings = load_settings()
    assert settings.models.writer.name == "http://127.0.0.1:8000/v1#m"
    assert settings.local_only is True
    assert settings.deadline_seconds == 1.5


@pytest.mark.parametrize(
    ("signal", "threshold"), [("overlap", 0.99), ("rank-biased-overlap", 0), ("dense-gap", 1.5), ("bm25-gap", 12)]
)
def test_threshold_range_depends_on_signal(signal: str, threshold: float, tmp_path: Path) -> None:
    file = write(tmp_path / "s.toml", f'[preflight]\nsignal = "{signal}"\nthreshold = {threshold}\n')
    check = load_settings(config=file).preflight
    assert (check.signal, check.threshold) == (signal, threshold)


def test_reranker_signal_requires_reranker() -> None:
    by_reranker = {"preflight": {"signal": "reranker-overlap"}}
    assert "choose one with rerank.name" in refusal(by_reranker)
    assert load_settings({**by_reranker, "rerank": {"name": "medcpt"}}).preflight.signal == "reranker-overlap"
    assert not load_settings({"preflight": {"signal": "reranker-overlap", "enabled": False}}).preflight.enabled


def test_preflight_recipe_contains_set_values() -> None:
    told = {"enabled": True, "rule": "fitted", "signal": None, "n": None, "threshold": None, "depth": 16}
    assert load_settings().model_dump(include={"preflight"}) == {"preflight": told}
    other = load_settings({"preflight": {"signal": "dense-gap", "n": 5}}).model_dump(include={"preflight"})
    assert other == {"preflight": {**told, "signal": "dense-gap", "n": 5}}


@pytest.mark.parametrize("count", ["documents", "passages"])
def test_count_setting_applies_to_records_and_literature(count: str) -> None:
    settings = load_settings({"count": count})
    assert (settings.count_unit(), settings.count_unit("p1")) == (count, count)


@pytest.mark.parametrize("name", ["EPICRISIS_DATA", "EPICRISIS_REQUIRE_ALL", "epicrisis_k", "OTHER_EPICRISIS_K"])
def test_other_environment_variables_are_ignored(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "nonsense")
    assert load_settings().k == 16


def test_environment_table_and_value_of_equal_name_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EPICRISIS_PREFLIGHT", "off")
    monkeypatch.setenv("EPICRISIS_PREFLIGHT__N", "3")
    assert "EPICRISIS_PREFLIGHT__N" in refusal()
    assert "unset one" in refusal()


@pytest.mark.parametrize(
    ("name", "temperature", "thinking"),
    [("qwen2.5-7b", 0, 0), ("huatuogpt-o1-7b", 1, 8000), ("qwen2.5-32b", 0, 0), ("qwq-32b", 1, 20_000)],
)
def test_ehr_preset_sets_prompting_but_no_model(name: str, temperature: float, thinking: int) -> None:
    address = "http://127.0.0.1:1/v1#m"
    settings = load_settings({"preset": f"ehr-{name}", "models": {"writer": {"name": address}}})
    writer = settings.models.writer
    assert (writer.name, writer.temperature, writer.max_reasoning_tokens) == (address, temperature, thinking)
    assert writer.extra == {"frequency_penalty": 0, "presence_penalty": 0}
    assert settings.models.judge is None, "a judge without a name would be the writer (errata E4)"
    assert settings.preset == f"ehr-{name}"
    found = (settings.by, settings.k, settings.fusion_times, settings.rrf_k, settings.order, settings.preflight.enabled)
    assert found == ("hybrid", 15, 2, 60, "time", False)
    assert (settings.encoder, settings.rerank.name) == ("qwen3-embedding-8b", "reason-moderncolbert")
    assert settings.rerank.depth == 2 * 2 * settings.k, "whatever the two retrievers find is reranked"
    assert load_settings({"preset": f"ehr-{name}"}).models.writer.name == ModelSettings().name
    assert load_settings({"preset": "ehr", "k": 5}).k == 5


def test_unknown_key_of_options_and_files_is_rejected(tmp_path: Path) -> None:
    said = "unknown setting partiton: did you mean partition?"
    assert refusal({"partiton": 1}) == said
    assert refusal(config=write(tmp_path / "s.toml", "partiton = 1")) == said


def test_key_of_a_chat_model_without_table_is_the_writers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Messages name such keys alone: `raise max_reasoning_tokens`."""
    file = write(tmp_path / "s.toml", "max_reasoning_tokens = 100\ncontext_tokens = 300\ntimeout_seconds = 3\n")
    monkeypatch.setenv("EPICRISIS_CONTEXT_TOKENS", "400")
    flags = merge_tables({"models": {"writer": {"timeout_seconds": 5}}}, parse_overrides(["retry_seconds=7"]))
    writer = load_settings(flags, file)
    chosen = writer.models.writer
    assert (chosen.max_reasoning_tokens, chosen.context_tokens, chosen.timeout_seconds) == (100, 400, 5.0)
    assert chosen.retry_seconds == 7.0
    named = merge_tables({"models": {"writer": {"temperature": 0.5}}}, parse_overrides(["temperature=0.1"]))
    assert load_settings(named).models.writer.temperature == 0.1
    assert "unknown setting max_reasoning" in refusal({"max_reasoning": 1})
    write(tmp_path / "epicrisis.toml", "extra = { a = 1 }")
    assert "names no keys" in refusal()


@pytest.mark.parametrize(
    ("name", "cure"),
    [
        ("EPICRISIS_VENV", "unset it if unused"),
        ("EPICRISIS_PARTITON", "did you mean EPICRISIS_PARTITION?"),
        ("EPICRISIS_PREFLIGHT__TRESHOLD", "did you mean EPICRISIS_PREFLIGHT__THRESHOLD?"),
        ("EPICRISIS_K__N__X", None),
        ("EPICRISIS__", "unset it if unused"),
        ("EPICRISIS_GITHUB_TOKEN", "unset it if unused"),
    ],
)
def test_unknown_variable_is_named_and_ignored(monkeypatch: pytest.MonkeyPatch, name: str, cure: str | None) -> None:
    monkeypatch.setenv(name, "nonsense")
    if cure is None:
        # A setting whose value is no table.
        assert "setting k" in refusal()
        return
    assert load_settings().k == 16
    assert explain_unknown_variables() == [f"the environment variable {name} names no setting and is ignored: {cure}"]


@pytest.mark.parametrize("name", ["EPICRISIS_LOCALONLY", "EPICRISIS_DEIDENTIFI"])
def test_misspelt_variable_that_protects_records_is_rejected(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "true")
    assert "did you mean EPICRISIS_" in refusal()


def test_unknown_nested_key_is_rejected() -> None:
    assert refusal({"models": {"writer": {"temprature": 1}}}) == (
        "unknown setting models.writer.temprature: did you mean models.writer.temperature?"
    )


def test_unknown_setting_without_similar_key_names_the_command_that_lists_all() -> None:
    assert refusal({"zzzzzzzz": 1}) == "unknown setting zzzzzzzz: `epicrisis settings` lists all"
    keys = [row.key for row in setting_rows()]
    assert {"home", "k", "models.map.name", "preflight.n"} <= set(keys)
    assert not {"models", "preflight", "models.writer"} & set(keys)


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
        ({"preflight": {"threshold": 1, "signal": "rank-biased-overlap"}}, "preflight.threshold", "1"),
        ({"preflight": {"threshold": -0.1, "signal": "dense-gap"}}, "preflight.threshold", "-0.1"),
        ({"preflight": {"signal": "guess", "threshold": 2}}, "preflight.signal", "'guess'"),
        ({"preflight": {"n": 0}}, "preflight.n", "0"),
        ({"models": {"writer": {"temperature": 3}}}, "models.writer.temperature", "3"),
        ({"models": {"map": {"context_tokens": 255}}}, "models.map.context_tokens", "255"),
        ({"models": {"writer": {"concurrency": 0}}}, "models.writer.concurrency", "0"),
    ],
)
def test_invalid_value_is_rejected_in_one_line(flags: dict[str, Any], key: str, value: str) -> None:
    said = refusal(flags)
    assert said.startswith(f"setting {key}: ")
    assert said.endswith(f"(got {value})")


def test_table_with_plain_value_suggests_key() -> None:
    assert refusal({"models": {"map": "gpt"}}) == (
        "setting models.map is a table: set one of its keys, such as models.map.name"
    )


def test_list_setting_accepts_single_text() -> None:
    settings = load_settings({"scope": {"types": "Review", "hide": ("a", "b")}, "beside": "other"})
    assert settings.scope.types == ("Review",)
    assert settings.scope.hide == ("a", "b")
    assert settings.beside == (Path("other"),)


def test_missing_settings_file_raises(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    missing = tmp_path / "none.toml"
    assert refusal(config=missing) == f"no settings file at {missing}: give --config an existing TOML file"
    assert str(tmp_path) in refusal(config=tmp_path)
    monkeypatch.setenv("EPICRISIS_CONFIG", str(missing))
    assert str(missing) in refusal()


@pytest.mark.parametrize("content", [b"k = ", b"just words", b"k = 1\nk = 2", b"\xff\xfe", b"[models"])
def test_settings_file_without_toml_raises(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "s.toml"
    file.write_bytes(content)
    assert refusal(config=file).startswith(f"{file} is not a TOML file: ")


def test_role_without_model_uses_writer() -> None:
    settings = load_settings({"models": {"writer": {"name": "w", "temperature": 0.7}, "reduce": {"name": "r"}}})
    assert [settings.model_for(role).name for role in ROLES] == ["w", "w", "r"]
    assert settings.model_for("reduce").temperature == 0.0
    assert settings.model_for("judge") is settings.models.writer


def test_role_without_name_modifies_writer_settings() -> None:
    settings = load_settings({"models": {"writer": {"name": "w", "concurrency": 2}, "map": {"temperature": 0.7}}})
    mapper = settings.model_for("map")
    assert (mapper.name, mapper.concurrency, mapper.temperature) == ("w", 2, 0.7)
    assert settings.model_for("writer").temperature == 0.0


def test_role_tables_stay_tables() -> None:
    settings = load_settings({"models": {"map": {"price": {"input": 1, "output": 2}, "extra": {"top_k": 1}}}})
    mapper = settings.model_for("map")
    assert mapper.price == Price(input=1, output=2)
    assert mapper.extra == {"top_k": 1}
    assert settings.model_for("writer").price is None


def test_model_settings_compare_and_hash_by_value() -> None:
    one, same, other = (ModelSettings(extra={"a": [value]}) for value in (1, 1, 2))
    assert one == same != other
    assert hash(one) == hash(same)
    assert len({one, same, other}) == 2


# -- the newer tables -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "near"),
    [
        ({"cache": {"mod": "on"}}, "cache.mode"),
        ({"budget": {"token": 5}}, "budget.tokens"),
        ({"plan": {"ask_above": 5}}, "plan.ask_above_usd"),
        ({"models": {"writer": {"price": {"inputs": 1, "output": 1}}}}, "models.writer.price.input"),
        ({"models": {"writer": {"request_per_minute": 1}}}, "models.writer.requests_per_minute"),
        ({"models": {"writer": {"api_key": "sk-planted"}}}, "models.writer.api_key_"),
        ({"logs": "x"}, "log"),
    ],
)
def test_unknown_key_of_newer_table_suggests_nearest_key(flags: dict[str, Any], near: str) -> None:
    said = refusal(flags)
    assert f": did you mean {near}" in said
    assert "planted" not in said


def test_environment_sets_every_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    variables = {
        "BUDGET__TOKENS": "1000",
        "BUDGET__USD": "0.5",
        "CACHE__MODE": "replay",
        "CACHE__PATH": "~/replies",
        "LOG": "here.log",
        "LOG_TEXT": "true",
        "QUESTIONS_AT_ONCE": "4",
        "MODELS__WRITER__PRICE__INPUT": "0.1",
        "MODELS__WRITER__PRICE__OUTPUT": "0.4",
        "MODELS__WRITER__JSON_SCHEMA": "false",
        "MODELS__WRITER__EXTRA": '{"reasoning_effort": "low", "top_k": 5}',
        "MODELS__MAP__API_KEY_ENV": "MAP_KEY",
        "SCOPE__TYPES": '["Review", "Meta-Analysis"]',
        "FUSE": '["~/other"]',
    }
    for name, value in variables.items():
        monkeypatch.setenv(f"EPICRISIS_{name}", value)
    settings = load_settings()
    assert (settings.budget.tokens, settings.budget.usd, settings.budget.minutes) == (1000, 0.5, None)
    assert (settings.cache.mode, settings.cache.path) == ("replay", tmp_path / "home/replies")
    assert (settings.log, settings.log_text, settings.questions_at_once) == (Path("here.log"), True, 4)
    writer = settings.model_for("writer")
    assert (writer.price, writer.json_schema) == (Price(input=0.1, output=0.4), False)
    assert writer.extra == {"reasoning_effort": "low", "top_k": 5}
    assert settings.model_for("map").api_key_env == "MAP_KEY"
    assert settings.scope.types == ("Review", "Meta-Analysis")
    assert settings.fuse == (tmp_path / "home/other",)


def test_environment_value_resembling_json_is_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EPICRISIS_MODELS__WRITER__NAME", "[old] model.gguf")
    assert load_settings().models.writer.name == "[old] model.gguf"
    monkeypatch.setenv("EPICRISIS_MODELS__WRITER__EXTRA", "{planted")
    assert refusal() == "setting models.writer.extra: input should be a valid dictionary"


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"log_text": True}, "setting log_text: there is no log for the texts: name its file with log"),
        ({"log": "a", "record": "a"}, "settings log, record and cache.path are the same file: give each its own"),
        ({"log": "a", "cache": {"path": "a"}}, "settings log, record and cache.path are the same file"),
        ({"budget": {"tokens": 0}}, "setting budget.tokens: input should be greater than or equal to 1 (got 0)"),
        ({"budget": {"usd": float("inf")}}, "setting budget.usd: input should be a finite number (got inf)"),
        ({"budget": {"minutes": float("nan")}}, "setting budget.minutes: input should be "),
        ({"questions_at_once": 0}, "setting questions_at_once: input should be greater than or equal to 1 (got 0)"),
        ({"cache": {"mode": "maybe"}}, "setting cache.mode: input should be 'on', 'off' or 'replay' (got 'maybe')"),
        ({"models": {"writer": {"price": {"input": 1}}}}, "setting models.writer.price.output: field required"),
        ({"models": {"writer": {"price": {"input": -1, "output": 0}}}}, "setting models.writer.price.input: "),
        ({"models": {"writer": {"tries": 0}}}, "setting models.writer.tries: "),
        ({"record": "s3://bucket/x"}, "setting record: s3:// is not a folder or file on this machine: copy it here"),
        ({"home": "hf://models"}, "setting home: hf:// is not a folder"),
        ({"encoder": "gs://models/x"}, "setting encoder: gs:// is not a folder"),
        ({"fuse": ["a", "az://b/x"]}, "setting fuse.1: az:// is not a folder"),
    ],
)
def test_conflicting_settings_are_rejected_in_one_line(flags: dict[str, Any], said: str) -> None:
    assert refusal(flags).startswith(said)


def test_flag_disables_cache_configured_in_file(tmp_path: Path) -> None:
    """Without an error about the path that is now of no use."""
    file = write(tmp_path / "s.toml", '[cache]\nmode = "on"\npath = "replies"\n')
    assert load_settings({"cache": {"mode": "off"}}, file).cache.mode == "off"


# -- local only -----------------------------------------------------------------------------------------------------

ELSEWHERE: list[tuple[dict[str, Any], str, str]] = [
    ({"models": {"writer": {"name": "https://models.example.org/v1#m"}}}, "models.writer.name", "models.example.org"),
    ({"models": {"map": {"name": "http://10.0.0.1/v1"}}}, "models.map.name", "10.0.0.1"),
    ({"models": {"reduce": {"name": "http://localhost./v1"}}}, "models.reduce.name", "localhost."),
    ({"models": {"writer": {"name": "http://127.0.0.1@example.org/v1"}}}, "models.writer.name", "example.org"),
    ({"models": {"writer": {"name": "bedrock://us-east-1#m"}}}, "models.writer.name", "bedrock://us-east-1"),
    ({"models": {"writer": {"name": "hf://org/model"}}}, "models.writer.name", "hf://org"),
    ({"models": {"writer": {"name": r"\\server\share\m.gguf"}}}, "models.writer.name", "server"),
    ({"rerank": {"name": "https://rerank.example.org/v1"}}, "rerank.name", "rerank.example.org"),
    ({"log": r"\\server\share\x.log"}, "log", "server"),
    ({"cache": {"path": r"\\server\share\x"}}, "cache.path", "server"),
    ({"fuse": [r"\\server\share\lib"]}, "fuse", "server"),
]


@pytest.mark.parametrize(("flags", "key", "place"), ELSEWHERE)
def test_local_only_rejects_remote_places(flags: dict[str, Any], key: str, place: str) -> None:
    load_settings(flags)
    assert refusal({**flags, "local_only": True}) == (
        f"setting {key}: local_only (--local-only) is on and {place} is not this machine: name something on this "
        "machine, or turn local_only off"
    )


def test_local_only_accepts_local_addresses() -> None:
    here = {
        "models": {"writer": {"name": "http://127.0.0.1:8000/v1#m"}, "map": {"name": "http://[::1]:80/v1"}},
        "rerank": {"name": "http://localhost:9/rerank"},
        "scope": {"hide": ["https://example.org/an-id-of-a-document"]},
        "encoder": "./models/minilm",
    }
    assert load_settings({**here, "local_only": True}).local_only


# -- secrets --------------------------------------------------------------------------------------------------------

PLANTED = "s3cr3t"
WITH_SECRETS: dict[str, Any] = {
    "models": {
        "writer": {"name": f"https://user:{PLANTED}@example.org/v1?key={PLANTED}#m", "extra": {"token": PLANTED}},
        "map": {"name": f"http://{PLANTED}@127.0.0.1:80/v1"},
    },
    "rerank": {"name": f"http://user:{PLANTED}@127.0.0.1/rerank"},
}


def test_settings_dump_contains_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EPICRISIS_API_KEY", PLANTED)
    monkeypatch.setenv("EPICRISIS_API_KEY_MAP", PLANTED)
    settings = load_settings(WITH_SECRETS)
    assert PLANTED in settings.models.writer.name
    for written in (repr(settings), str(settings), f"{settings.models!r}{settings.model_for('map')}"):
        assert PLANTED not in written
        assert "https://example.org/v1?key=...#m" in written or "http://127.0.0.1:80/v1" in written
    without_extra = {"models": {"writer": {"extra"}}}
    assert PLANTED not in str(settings.model_dump(exclude=without_extra))
    assert PLANTED not in settings.model_dump_json(exclude=without_extra)


@pytest.mark.parametrize(
    "flags",
    [
        {"models": {"writer": {"name": f"http://user:{PLANTED}@[::1/v1"}}},
        {"models": {"writer": {"name": f"http://user:{PLANTED}@example.org:port/v1"}}},
        {"models": {"writer": {"name": f"  http://user:pa/{PLANTED}@example.org/v1"}}},
        {"models": {"writer": f"http://user:{PLANTED}@example.org/v1"}},
        {"models": f" http://user:{PLANTED}@example.org/v1"},
        {"models": {"writer": {"api_key_env": f"sk-{PLANTED}"}}},
        {"models": {"writer": {"api_key_file": f"s3://key:{PLANTED}@bucket/x"}}},
        {"models": {"writer": {"api_key_file": 5, "api_key": PLANTED}}},
        {"models": {"writer": {"extra": PLANTED}}},
        {"models": {"writer": {"timeout_seconds": {"key": PLANTED}}}},
        {"rerank": {"api_key_env": f"{PLANTED} "}},
        {"record": f"s3://key:{PLANTED}@bucket/x"},
        {**WITH_SECRETS, "local_only": True},
        {**WITH_SECRETS, "log_text": True},
        {**WITH_SECRETS, "k": 0},
    ],
)
def test_settings_error_contains_no_secret(flags: dict[str, Any]) -> None:
    assert PLANTED not in refusal(flags)


def test_unreadable_url_is_rejected_with_expected_form() -> None:
    said = refusal({"models": {"writer": {"name": "http://host:port/v1"}}})
    assert "this URL cannot be read: write it as http://HOST:PORT/v1#model-name" in said
    assert load_settings({"models": {"writer": {"name": " HTTP://h/v1 "}}}).models.writer.name == "http://h/v1"


def test_setting_rows_describe_every_key() -> None:
    rows = {row.key: row for row in setting_rows()}
    assert [row.key for row in setting_rows() if not row.meaning] == []
    assert rows["votes.n"] == ("votes.n", "5", "votes", "Sampled answers per question.")
    assert rows["models.writer.timeout_seconds"][1:3] == ("600.0", "seconds")
    assert (rows["models.map.name"].default, rows["scope.without"].default) == ("", '["retracted"]')
    assert rows["preflight.enabled"].default == "true"


def test_env_file_in_working_folder_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    before = load_settings()
    (tmp_path / ".env").write_text(
        "EPICRISIS_MODELS__WRITER__NAME=http://elsewhere.example/v1#m\nEPICRISIS_API_KEY=sk-planted\n"
    )
    assert load_settings() == before
    assert "sk-planted" not in os.environ.values()
