"""The software versions of a run: packages, interpreter, and the git commit of a checkout."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

_NAME = re.compile(r"[A-Za-z0-9._-]+")
_SOURCE = Path(__file__).resolve().parents[1]


def package_versions() -> Mapping[str, str]:
    """Return the versions of Python, epicrisis and its installed requirements."""
    required: set[str] = set()
    for requirement in metadata.requires("epicrisis") or ():
        required.update(_NAME.findall(requirement)[:1])
    versions = {"python": platform.python_version()}
    for name in ("epicrisis", *sorted(required)):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            # A requirement of an extra that is not installed.
            continue
    return versions


def git_commit(source: Path = _SOURCE) -> tuple[str, bool] | None:
    """Return the commit of the package's files and whether they differ from it.

    None if they are not in a git checkout, or git is not installed.
    """
    if _git(source, "ls-files", "--error-unmatch", "__init__.py") is None:
        # Installed into an environment inside another checkout: its commit does not apply.
        return None
    head, changes = _git(source, "rev-parse", "HEAD"), _git(source, "status", "--porcelain", "--", ".")
    return None if head is None or changes is None else (head, bool(changes))


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        process = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
            capture_output=True,
            text=True,
            check=True,
            timeout=30,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return process.stdout.strip()
