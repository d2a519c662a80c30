"""Which packages an import brings along."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Collection


def list_imported(modules: str, packages: Collection[str]) -> list[str]:
    """Import the modules, separated by commas, in a new process. Return those of the packages that it then holds."""
    code = f"import sys, {modules}; print(*sorted({set(packages)!r} & set(sys.modules)))"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
