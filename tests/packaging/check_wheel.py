"""Install the wheel in clean environments, one for the base and one for each extra, and use it there.

`make test-wheel` runs it, with the versions of the lock files. In every environment: `pip check`, the version of the
command, an import of all packages of the extra, and a search. In the base environment also: an import of every module,
so none needs an extra or a package that pyproject.toml does not name, and a library of the demo's documents. torch is
resolved only, as its wheels take gigabytes; `make test-torch` installs it.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
MAIN_LOCK, INTEGRATIONS_LOCK = "requirements.lock", "requirements-integrations.lock"
LOCKS = dict.fromkeys(("inspect", "langchain", "llama-index"), INTEGRATIONS_LOCK)
"""Extras whose packages are pinned in another lock."""
RESOLVED_ONLY = ("torch",)
_PIN = re.compile(r"^([A-Za-z0-9._-]+==\S+)(?: *;([^\\]*))?", re.MULTILINE)
IMPORT_MODULES = """
import importlib, pkgutil, epicrisis
names = [module.name for module in pkgutil.walk_packages(epicrisis.__path__, "epicrisis.")]
for name in names:
    # An integration imports the package of its extra.
    if not name.endswith("__main__") and ".integrations." not in name:
        importlib.import_module(name)
print(len(names), "modules imported")
"""
IMPORT_EXTRA = """
import importlib, re, sys
from importlib.metadata import packages_distributions, requires
wanted = set()
for line in requires("epicrisis"):
    name = re.match(r"[A-Za-z0-9._-]+", line)[0]
    if f'extra == "{sys.argv[1]}"' in line.replace("'", '"'):
        wanted.add(re.sub(r"[-_.]+", "-", name).lower())
by_package = {}
for module, names in packages_distributions().items():
    for name in names:
        by_package.setdefault(re.sub(r"[-_.]+", "-", name).lower(), []).append(module)
assert wanted, "the wheel has no such extra"
for name in sorted(wanted):
    modules = [module for module in by_package[name] if not module.startswith("_")]
    print(name, *modules)
    for module in modules:
        importlib.import_module(module)
"""


def main() -> None:
    """Check every environment. Exit with 1 at the first failure, after its output."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="folder of the wheel and the environments; replaced")
    parser.add_argument("--extra", action="append", help="check only this extra (repeatable)")
    arguments = parser.parse_args()
    start = time.monotonic()
    folder: Path = arguments.folder.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)], ROOT)
    (wheel,) = folder.glob("*.whl")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    library = folder / "library"
    for extra in ("", *(arguments.extra or extras)):
        began = time.monotonic()
        if extra in RESOLVED_ONLY:
            install(folder / "base", wheel, extra, resolve_only=True)
        else:
            check_environment(folder, wheel, extra, library)
        print(f"{extra or 'base'}: {time.monotonic() - began:.0f} s", flush=True)
    print(f"all environments: {time.monotonic() - start:.0f} s")


def check_environment(folder: Path, wheel: Path, extra: str, library: Path) -> None:
    """Install the wheel with this extra, and use it."""
    environment = folder / (extra or "base")
    install(environment, wheel, extra)
    scripts = environment / ("Scripts" if os.name == "nt" else "bin")
    python, program = str(scripts / "python"), str(scripts / "epicrisis")
    run([python, "-m", "pip", "check"], folder)
    assert run([program, "--version"], folder).strip() == f"epicrisis {wheel.name.split('-')[1]}"
    if extra:
        run([python, "-c", IMPORT_EXTRA, extra], folder)
    else:
        print(f"base: {run([python, '-c', IMPORT_MODULES], folder).strip()}")
        run([program, "library", "add", str(library), str(ROOT / "demo" / "documents.jsonl")], folder)
    hits = run([program, "search", str(library), "aspirin to prevent cancer in Lynch syndrome", "--json"], folder)
    assert "Lynch" in hits


def install(environment: Path, wheel: Path, extra: str, *, resolve_only: bool = False) -> None:
    """Install the wheel with an extra in a new environment, with uv if it is here. `resolve_only` installs nothing."""
    constraints = environment.parent / f"{extra or 'base'}.txt"
    lock = (ROOT / LOCKS.get(extra, MAIN_LOCK)).read_text("utf-8")
    # Without hashes: pip refuses packages without one if the constraints have some.
    pins = [f"{pin} ; {marker}" if marker.strip() else pin for pin, marker in _PIN.findall(lock)]
    constraints.write_text("\n".join(pins))
    requirement = f"{wheel}[{extra}]" if extra else str(wheel)
    dry_run = ["--dry-run"] if resolve_only else []
    uv = shutil.which("uv")
    options = ["install", "--quiet", *dry_run, "--constraint", str(constraints), requirement]
    if uv is not None:
        if not resolve_only:
            run([uv, "venv", "--quiet", "--python", sys.executable, str(environment)], ROOT)
        run([uv, "pip", *options[:1], "--python", str(environment), *options[1:]], environment.parent)
        return
    if not resolve_only:
        run([sys.executable, "-m", "venv", str(environment)], ROOT)
    scripts = environment / ("Scripts" if os.name == "nt" else "bin")
    run([str(scripts / "python"), "-m", "pip", *options], environment.parent)


def run(command: list[str], folder: Path) -> str:
    """Run a command outside the checkout's environment, and return its output. Exit with its messages if it fails."""
    variables = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    process = subprocess.run(
        command, cwd=folder, env=variables, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    if process.returncode != 0:
        print(process.stdout, process.stderr, sep="\n", file=sys.stderr)
        sys.exit(f"failed with {process.returncode}: {' '.join(command)[:400]}")
    return process.stdout


if __name__ == "__main__":
    main()
