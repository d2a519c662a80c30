"""What software a run was made with: packages, interpreter, and the commit where the package lies in a git checkout."""

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
    """Versions of epicrisis, of what it requires as far as that is installed, and of Python."""
    required = [found[0] for each in metadata.requires("epicrisis") or () if (found := _NAME.match(each))]
    versions = {"python": platform.python_version()}
    for name in ("epicrisis", *sorted(set(required))):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            # Of an extra that was not asked for.
            continue
    return versions


def git_commit(source: Path = _SOURCE) -> tuple[str, bool] | None:
    """(commit, whether the package's files differ from it); `None` where they are in no git checkout, or git is not
    there to ask."""
    if _git(source, "ls-files", "--error-unmatch", "__init__.py") is None:
        # The package lies in somebody else's checkout, an environment within it: that commit says nothing of it.
        return None
    head, changes = _git(source, "rev-parse", "HEAD"), _git(source, "status", "--porcelain", "--", ".")
    return None if head is None or changes is None else (head, bool(changes))


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
            capture_output=True,
            text=True,
            check=True,
            timeout=30,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
