"""The lock files: what is installed for development, each file of it by its hash."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HASHED = ("requirements.lock", "requirements-torch.lock")
TORCH = "requirements-torch-wheel.lock"
INTEGRATIONS = "requirements-integrations.lock"
OBJECT_STORAGE = "requirements-s3.lock"
RAY = "requirements-ray.lock"
DEIDENTIFICATION = "requirements-deidentification.lock"
DOCS = "requirements-docs.lock"


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def pinned(name: str) -> set[str]:
    return set(re.findall(r"(?m)^([\w.-]+)==", read(name).lower()))


def test_lock_pins_every_package_once() -> None:
    """Two versions of one cannot be installed, and `make lock` moves those of the first file alone."""
    first, second, torch = (pinned(name) for name in (*HASHED, TORCH))
    assert torch == {"torch"}
    assert "numpy" in first
    assert "transformers" in second
    assert first & second == set()
    assert (first | second) & torch == set()


@pytest.mark.parametrize("name", [*HASHED, INTEGRATIONS, OBJECT_STORAGE, DEIDENTIFICATION, RAY, DOCS])
def test_lock_pins_have_hashes_and_no_urls(name: str) -> None:
    pins = re.split(r"(?m)^(?=[\w.-]+==)", read(name))[1:]
    without = [pin.split("\n")[0] for pin in pins if not re.search(r"(?m)^    --hash=sha256:[0-9a-f]{64}( \\)?$", pin)]
    assert len(pins) >= len(pinned(name)) > 10, "one for each of several Pythons"
    assert without == []
    assert "://" not in read(name)
    assert "index" not in re.sub(r"(?m)^ +#.*$", "", read(name)).replace("llama-index", "")


def test_lock_contains_build_requirements() -> None:
    assert {"hatchling", "editables"} <= pinned("requirements.lock")


@pytest.mark.parametrize("uv", ["", "uv"])
@pytest.mark.parametrize("target", ["environment", "torch", "integrations", "s3", "deidentification", "ray", "docs"])
def test_makefile_installs_only_with_hashes(uv: str, target: str, tmp_path: Path) -> None:
    """Every install is from a file of hashes, of torch's wheel, or of this package without what it depends on."""
    venv = tmp_path / "venv"
    goal = str(venv / ".installed") if target == "environment" else f"-W pyproject.toml .venv-{target}/.installed"
    command = ["make", "-n", *goal.split(), f"VENV={venv}", f"UV={uv}"]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    installs = [line for line in printed.replace("\\\n", " ").splitlines() if " pip install " in line]
    files = [re.findall(r"-r (\S+)", line) for line in installs if "--dry-run" not in line]
    expected = {
        "environment": [["requirements.lock"]],
        "torch": [list(HASHED), [TORCH]],
        "integrations": [[INTEGRATIONS]],
        "s3": [[OBJECT_STORAGE]],
        "deidentification": [[DEIDENTIFICATION]],
        "ray": [[RAY]],
        "docs": [[DOCS]],
    }
    assert [names for names in files if names] == expected[target]
    for line in installs:
        of_torch = TORCH in line
        assert of_torch or "--require-hashes" in line or "--no-build-isolation --editable ." in line
        assert "--no-deps" in line or "--dry-run" in line
        assert " -c " not in line


def wheel(folder: Path) -> None:
    """A package that can be installed, made here."""
    path = folder / "tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("tiny.py", "")
        file.writestr("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        file.writestr("tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr("tiny-1.0.dist-info/RECORD", "")


@pytest.mark.slow
def test_installer_rejects_file_with_other_hash(tmp_path: Path) -> None:
    """With the options of the Makefile, on a package made here."""
    options = re.findall(r"(?m)^LOCKED := (.*)$", read("Makefile"))[0].split()
    wheel(tmp_path)
    lock = tmp_path / "one.lock"
    lock.write_text(f"tiny==1.0 --hash=sha256:{'0' * 64}\n", encoding="utf-8")
    source = ("--no-index", "--find-links", str(tmp_path), "--target", str(tmp_path / "there"))
    command = [sys.executable, "-m", "pip", "install", "--isolated", *options, *source, "-r", str(lock)]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert "DO NOT MATCH THE HASHES" in refused.stderr
