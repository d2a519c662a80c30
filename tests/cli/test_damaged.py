"""Damaged libraries, invalid values and files of another kind: one line and exit code 2, never a traceback.

A sample: docs/design/library.md has the counts of more damages.
"""

from __future__ import annotations

import ast
import io
import json
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from epicrisis.core.errors import InputError, LibraryDamaged, SettingsError
from epicrisis.corpus.articles import medcpt
from epicrisis.evaluation.datasets.patient_records import mimic_iv_sets
from epicrisis.library.base.manifest import read_manifest
from epicrisis.settings.configuration import load_settings, parse_overrides
from tests.cli.conftest import Program, Run
from tests.conftest import _missing
from tests.support.damage import damage

DEEP = 100_000


@pytest.mark.slow
@pytest.mark.models
def test_commands_on_damaged_library_end_without_traceback(
    program: Program, small_library: Path, papers: Path, tmp_path: Path
) -> None:
    for seed in (3, 13, 24):
        folder = tmp_path / f"damaged-{seed}"
        shutil.copytree(small_library, folder)
        path, kind = damage(folder, seed)
        commands = [
            ("library", "info", folder),
            ("search", folder, "aspirin", "--by", "bm25"),
            ("library", "check", folder),
            ("library", "add", folder, papers),
            ("library", "repair", folder),
        ]
        code = program.run_all(commands)
        case = f"seed {seed}: {kind} of {path}: {program.output}"
        assert code in (0, 2), case
        assert len(program.codes) == len(commands), case
        assert set(program.codes) <= {0, 2}, case
        assert "Traceback" not in program.output, case


# -- a manifest ------------------------------------------------------------------------------------------------------

MANIFEST: dict[str, Any] = {
    "format": 3,
    "library_id": "0" * 32,
    "encoder_fingerprint": "minilm-0",
    "encoder_name": "minilm",
    "dimensions": 384,
    "splitter": "tokens",
    "max_tokens": 254,
    "overlap": 32,
    "software": {"epicrisis": "1"},
    "created": "2026-01-01T00:00:00+00:00",
    "complete": True,
}
INVALID = [
    ("dimensions", -1),
    ("dimensions", 0),
    ("dimensions", 10**12),
    ("dimensions", 1.5),
    ("dimensions", True),
    ("dimensions", float("nan")),
    ("dimensions", "384"),
    ("max_tokens", -254),
    ("max_tokens", 10**30),
    ("overlap", -1),
    ("overlap", 254),
    ("overlap", None),
    ("splitter", "none"),
    ("splitter", ["tokens"]),
    ("encoder_name", "a\ud800"),
    ("encoder_name", "a\x1b[2J"),
    ("encoder_name", "a" * 100_000),
    ("software", {"a": 1}),
    ("software", []),
    ("complete", 1),
    ("format", float("inf")),
    ("format", -2),
    ("format", 10**40),
    ("format", None),
]


def test_valid_manifest_is_read(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps(MANIFEST))
    assert read_manifest(tmp_path).dimensions == 384


@pytest.mark.parametrize(("key", "value"), INVALID, ids=lambda value: repr(value)[:20])
def test_manifest_with_invalid_value_reports_one_line(key: str, value: object, run: Run, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps({**MANIFEST, key: value}))
    for command in (("library", "info", tmp_path), ("search", tmp_path, "aspirin"), ("library", "repair", tmp_path)):
        result = run(*command)
        assert result.exit_code == 2
        assert result.stderr.startswith("epicrisis: ")
        assert result.stderr.count("\n") == 1
        assert len(result.stderr) < 600


def test_deeply_nested_manifest_is_damaged(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text("[" * DEEP)
    with pytest.raises(LibraryDamaged, match="not JSON"):
        read_manifest(tmp_path)


@pytest.mark.slow
@pytest.mark.models
def test_manifest_of_other_dimensions_is_damaged(run: Run, small_library: Path) -> None:
    path = small_library / "manifest.json"
    path.write_text(path.read_text().replace("384", "383"))
    result = run("library", "info", small_library)
    assert result.exit_code == 2
    assert "manifest.json" in result.stderr or "dimensions" in result.stderr


@pytest.mark.slow
@pytest.mark.models
def test_add_with_overlap_longer_than_passages_is_refused(
    run: Run, papers: Path, tmp_path: Path, model_home: Path
) -> None:
    result = run("library", "add", tmp_path / "library", papers, "--overlap", "300")
    assert result.exit_code == 2
    assert "--overlap" in result.stderr
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "library").exists()


# -- settings and data -----------------------------------------------------------------------------------------------


def test_nested_settings_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "epicrisis.toml"
    path.write_text(f"k = {'[' * DEEP}")
    with pytest.raises(SettingsError, match="nested too deep"):
        load_settings({}, path)
    with pytest.raises(SettingsError):
        load_settings(parse_overrides([f"k={'[' * DEEP}"]))


def _archive() -> bytes:
    data = io.BytesIO()
    np.savez(data, vectors=np.zeros((2, 3), np.float32))
    return data.getvalue()


def _broken_archive() -> bytes:
    return _archive()[:40]


def _header(text: str) -> bytes:
    encoded = text.encode("latin1")
    return b"\x93NUMPY\x01\x00" + len(encoded).to_bytes(2, "little") + encoded


@pytest.mark.parametrize(
    "data",
    [
        _archive(),
        _broken_archive(),
        b"PK\x03\x04",
        _header("(" * 5000),
        _header("{'descr':" * 900),
        _header("{'descr': '<f4', 'fortran_order': False, 'shape': (9999999999999, 99999)}\n"),
        _header("{'descr': [], 'fortran_order': 0, 'shape': -1}\n"),
        _header("-" * 9000 + "1"),
        b"\x80\x04.",
        _header("{'descr': '<f4', 'fortran_order': False, 'shape': (-4, 2)}\n"),
        b"",
    ],
)
def test_invalid_npy_file_is_refused(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "embeds.npy"
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"embeds\.npy"):
        medcpt._open_vectors(path)


def test_valid_npy_file_is_read(tmp_path: Path) -> None:
    np.save(tmp_path / "embeds.npy", np.ones((2, 3), np.float32))
    assert medcpt._open_vectors(tmp_path / "embeds.npy").shape == (2, 3)


@pytest.mark.parametrize("text", ["[" * DEEP, "-" * DEEP + "1", "(" * 190 + "1", "{[]: 1}", "1+" * 5000 + "1"])
def test_nested_literal_is_kept_as_text(text: str) -> None:
    with pytest.raises((ValueError, SyntaxError, TypeError, RecursionError, MemoryError)):
        ast.literal_eval(text)
    assert mimic_iv_sets._parse_list(text) == text


# -- read-only media -------------------------------------------------------------------------------------------------

_READ_ONLY = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && shift && exec "$@"'


@cache
def _read_only_command() -> tuple[str, ...]:
    """Return a command prefix that mounts a folder read-only, or an empty tuple if this machine does not allow it."""
    if shutil.which("unshare") is None:
        return ()
    for flags in ("-rm", "-m"):
        mount_command = ("unshare", flags, "sh", "-c", _READ_ONLY, "sh")
        if subprocess.run([*mount_command, "/var/tmp", "true"], capture_output=True).returncode == 0:
            return mount_command
    return ()


_RUN_COMMANDS = """
import json, sys
from typer.testing import CliRunner
from epicrisis.cli.program import app
results = [CliRunner().invoke(app, command) for command in json.loads(sys.argv[1])]
sys.stdout.write(json.dumps([(result.exit_code, result.stdout, result.stderr) for result in results]))
"""


@pytest.mark.long
@pytest.mark.models
def test_library_on_read_only_media_is_readable_and_refuses_changes(small_library: Path, papers: Path) -> None:
    if not _read_only_command():
        _missing("unshare, to mount a folder read-only")
    folder = str(small_library)
    reading = [
        ["library", "info", folder],
        ["library", "check", folder],
        ["search", folder, "aspirin"],
        ["search", folder, "aspirin", "--by", "bm25"],
    ]
    writing = [
        ["library", "add", folder, str(papers)],
        ["library", "delete", folder, "a"],
        ["library", "repair", folder],
        ["library", "optimize", folder],
    ]
    process = subprocess.run(
        [*_read_only_command(), folder, sys.executable, "-c", _RUN_COMMANDS, json.dumps([*reading, *writing])],
        capture_output=True,
        text=True,
        check=True,
    )
    results = json.loads(process.stdout)
    for code, out, err in results[: len(reading)]:
        assert code == 0, err
        assert out
    assert "a#0" in results[2][1]
    for code, _, err in results[len(reading) :]:
        assert code == 2
        assert "is read-only" in err
        assert err.startswith("epicrisis: ")
        assert err.count("\n") == 1
