"""`epicrisis doctor`: hosts with their reasons, files with their permissions, and never a key."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run

SECRET = "s3cr3t"


@pytest.fixture(autouse=True)
def _bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Remove settings, proxies and registries that are not of the test."""
    for name in os.environ:
        if name.lower().endswith("_proxy") or name.startswith(("EPICRISIS_", "PIP_", "HF_", "XDG_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


def read_report(run: Run, *arguments: str) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(run("doctor", "--json", *arguments).stdout)
    return report


def write_settings(path: Path, text: str) -> None:
    """Write the user's own settings file, whose home is `path/home`."""
    file = path / "home" / ".config" / "epicrisis" / "epicrisis.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


@pytest.mark.slow
def test_doctor_with_default_settings_contacts_no_host(run: Run) -> None:
    report = read_report(run)
    assert report["contacts"] == []
    assert [row["refused"] for row in report["pulls"]] == [False] * 5
    assert report["pulls"][0]["host"] == "pip's default index"
    assert "ORT_DISABLE_TELEMETRY" in report["telemetry_off"]
    assert "hosts that would be contacted: none but this machine" in run("doctor").stdout


@pytest.mark.slow
def test_doctor_shows_reason_key_encryption_and_proxy_of_every_host(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "key").write_text(SECRET)
    (tmp_path / "key").chmod(0o644)
    write_settings(
        tmp_path,
        f"""
        [models.writer]
        name = "https://user:{SECRET}@one.example.org/v1?key={SECRET}#m"
        [models.map]
        name = "http://two.example.org:8000/v1"
        api_key_file = "key"
        context_tokens = 4096
        [models.reduce]
        name = "bedrock://eu-west-1#m"
        api_key_env = "BEDROCK_KEY"
        [rerank]
        name = "http://127.0.0.1:9/v1"
        """,
    )
    monkeypatch.setenv("EPICRISIS_API_KEY", SECRET)
    monkeypatch.setenv("https_proxy", f"http://user:{SECRET}@proxy.example.org:3128")
    monkeypatch.setenv("no_proxy", "amazonaws.com")
    result = run("doctor", "--json")
    rows = {row["host"]: row for row in json.loads(result.stdout)["contacts"]}
    one, two = rows["one.example.org"], rows["two.example.org"]
    assert one["why"] == "the writer model"
    assert (one["encrypted"], one["proxy"], one["key"]) == (True, "proxy.example.org", "EPICRISIS_API_KEY (set)")
    assert two["why"] == "the map model"
    assert (two["encrypted"], two["proxy"], two["key"]) == (False, None, "key (0644)")
    aws = rows["bedrock-runtime.eu-west-1.amazonaws.com"]
    assert (aws["why"], aws["encrypted"], aws["proxy"]) == ("the reduce model", True, None)
    assert "AWS credentials (from this machine, or from AWS's token service)" in rows["169.254.169.254"]["why"]
    assert len(rows) == 4
    text = run("doctor")
    assert (text.exit_code, text.stderr) == (0, "")
    assert "two.example.org: the map model, key from key (0644), NOT ENCRYPTED (http)" in text.stdout
    assert "through the proxy proxy.example.org" in text.stdout
    assert "http://two.example.org:8000/v1 (declared: context_tokens 4096)" in text.stdout
    assert SECRET not in result.stdout + text.stdout


@pytest.mark.long
def test_doctor_says_that_ask_calls_no_model_unless_one_is_named(run: Run, tmp_path: Path) -> None:
    line = "`ask` calls none of these under these settings"
    assert line in run("doctor").stdout
    assert read_report(run)["ask_calls_model"] is False
    for text in ('strategy = "rag"\n', '[models.writer]\nname = "smollm2-135m"\n'):
        write_settings(tmp_path, text)
        assert line not in run("doctor").stdout
        assert read_report(run)["ask_calls_model"] is True


@pytest.mark.slow
def test_doctor_with_shared_model_shows_one_line_for_all_roles(run: Run, tmp_path: Path) -> None:
    write_settings(tmp_path, '[models.writer]\nname = "https://one.example.org/v1"\n')
    rows = read_report(run)["contacts"]
    assert [(row["host"], row["why"]) for row in rows] == [
        ("one.example.org", "the writer model, the map model, the reduce model")
    ]


@pytest.mark.slow
def test_doctor_shows_every_endpoint_of_a_pool(run: Run, tmp_path: Path) -> None:
    pool = "http://127.0.0.1:8000/v1,https://two.example.org/v1,http://three.example.org/v1#m"
    write_settings(tmp_path, f'[models.writer]\nname = "{pool}"\n')
    rows = read_report(run)["contacts"]
    assert [(row["host"], row["encrypted"]) for row in rows] == [
        ("two.example.org", True),
        ("three.example.org", False),
    ]


@pytest.mark.slow
def test_doctor_shows_download_hosts_without_secrets(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", f"https://user:{SECRET}@index.example.org/simple")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "https://a.example.org/simple https://b.example.org/simple")
    monkeypatch.setenv("HF_ENDPOINT", f"https://{SECRET}@hub.example.org")
    result = run("doctor", "--json")
    pulls = json.loads(result.stdout)["pulls"]
    models, sets = pulls[:4], pulls[4:]
    hosts = ["index.example.org", "a.example.org", "b.example.org", "hub.example.org"]
    assert sorted(row["host"] for row in models) == sorted(hosts)
    assert all("`epicrisis models pull`" in row["why"] for row in models)
    assert [row["host"] for row in sets] == ["raw.githubusercontent.com", "eutils.ncbi.nlm.nih.gov", "www.ebi.ac.uk"]
    assert "`epicrisis questions pull`" in sets[0]["why"]
    assert SECRET not in result.stdout
    monkeypatch.delenv("PIP_INDEX_URL")
    assert {row["host"] for row in read_report(run)["pulls"][:4]} == {"pip's default index", *hosts[1:]}


@pytest.mark.slow
def test_doctor_shows_written_files_with_permissions(run: Run, tmp_path: Path) -> None:
    (tmp_path / "calls.jsonl").write_text("")
    (tmp_path / "calls.jsonl").chmod(0o640)
    write_settings(tmp_path, 'home = "models"\nlog = "x.log"\nlog_text = true\nrecord = "calls.jsonl"\n')
    rows = {row["what"]: row for row in read_report(run)["written"]}
    assert rows["log"] == {"what": "log", "path": "x.log", "mode": None, "holds": "prompts and replies too"}
    assert (rows["record"]["mode"], rows["record"]["holds"]) == ("0640", "every prompt and reply, with their texts")
    assert rows["replies"]["path"] == "models/replies.sqlite"
    assert "x.log (does not exist yet, will be 0600): prompts and replies too" in run("doctor").stdout
    write_settings(tmp_path, '[cache]\nmode = "off"\n')
    assert read_report(run)["written"] == []
    assert "files written: only the requested answers" in run("doctor").stdout


@pytest.mark.slow
def test_doctor_with_local_only_shows_refused_hosts_and_fails(run: Run, tmp_path: Path) -> None:
    write_settings(
        tmp_path, '[models.writer]\nname = "https://one.example.org/v1"\n[rerank]\nname = "https://r.example.org"\n'
    )
    result = run("doctor", "--json", "--local-only")
    report = json.loads(result.stdout)
    assert [row["host"] for row in report["contacts"]] == ["one.example.org", "r.example.org"]
    assert all(row["refused"] for row in (*report["contacts"], *report["pulls"]))
    assert result.exit_code == 2
    assert result.stderr.startswith("epicrisis: setting rerank.name: local_only (--local-only) is on")
    assert "one.example.org: the writer model" in run("doctor", "--local-only").stdout
    write_settings(tmp_path, "local_only = true\n")
    assert run("doctor").exit_code == 0


def test_doctor_with_invalid_setting_reports_one_line(run: Run, tmp_path: Path) -> None:
    write_settings(tmp_path, 'local_only = true\nk = 0\n[models.writer]\nname = "https://one.example.org/v1"\n')
    result = run("doctor", "--json")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("epicrisis: setting k: ")
