"""Mutation testing: change one place of the source at a time, and see whether a test fails (`make mutants`).

    python benchmarks/mutants.py FILE.py ...           # every mutant of these files
    python benchmarks/mutants.py --sample 600          # so many at random, of all files in AREAS
    python benchmarks/mutants.py --since main          # of the files in AREAS that differ from a commit

mutmut makes the mutants and runs for each the fast tests that reach its function. It works on a copy below `build`,
where it continues what was interrupted, until a file changes. Mutants of strings that only people read are counted.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from fnmatch import fnmatch
from pathlib import Path

from epicrisis.evaluation.analysis.statistics import wilson

ROOT = Path(__file__).parents[1]
COPY = ROOT / "build" / "mutation"
AREAS: Mapping[str, tuple[str, ...]] = {
    "answering": ("answering/*.py",),
    "preflight": ("retrieval/preflight.py",),
    "privacy": ("privacy/*.py",),
    "forgetting": ("operations/forgetting/*.py",),
    "facts": ("records/fact_questions/*.py", "core/clinical_facts.py", "core/computed_values.py", "core/fact_times.py"),
}
"""Globs below `src/epicrisis` of what must not be wrong.

`system/local_only.py` is left out, since its audit hook would run inside mutmut, and `privacy/deidentification`,
whose tests have an environment of their own.
"""
TESTS = ("answering", "retrieval", "evaluation", "forgetting", "fact_questions", "test_*.py")
"""What runs of `tests`; those that read the source itself would see the mutants there."""
READ_SOURCE = ("test_architecture.py", "test_patterns.py", "test_documentation.py", "test_public_names.py")
_CONFIGURATION = """
[tool.mutmut]
source_paths = ["src"]
only_mutate = {only_mutate}
also_copy = {also_copy}
pytest_add_cli_args = ["-m", "not slow and not long and not models and not data", "-p", "no:cacheprovider"]
pytest_add_cli_args_test_selection = {tests}
"""
_STATES = {"survived": "survived", "no tests": "no test", "timeout": "timeout"}
"""By mutmut's names; every other end of the tests is a mutant that they noticed."""


def main() -> None:
    """Make and run the mutants, and print how many tests notice, by area."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, help="files of src/epicrisis")
    parser.add_argument("--since", help="mutate the files in AREAS that differ from this commit")
    parser.add_argument("--sample", type=int, help="this many mutants at random, of all files in AREAS")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    files = [str(path.resolve().relative_to(ROOT)) for path in arguments.files]
    if arguments.since:
        files += [path for path in _list_changed(arguments.since) if find_area(path) is not None]
    if arguments.sample:
        files += [f"src/epicrisis/{pattern}" for patterns in AREAS.values() for pattern in patterns]
    if not files:
        print("no file of these areas has changed: name files, or give --sample")
        return
    _prepare(files)
    names = None
    if arguments.sample:
        # A first run makes all mutants, and finds out which tests reach them.
        _run_mutmut(["epicrisis.retrieval.preflight.x_score_gap__mutmut_1"])
        names = random.Random(arguments.seed).sample(sorted(_read_results()), arguments.sample)
    _run_mutmut(names or [])
    _print_table(names)


def find_area(path: str) -> str | None:
    """Return the area of a file such as `src/epicrisis/operations/forgetting/places.py`, or None."""
    for area, patterns in AREAS.items():
        if any(fnmatch(path, f"src/epicrisis/{pattern}") for pattern in patterns):
            return area
    return None


def _list_changed(commit: str) -> list[str]:
    command = ["git", "diff", "--name-only", "--diff-filter=d", commit, "--", "src/*.py"]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()


def _prepare(files: Collection[str]) -> None:
    """Copy what git knows, with mutmut's settings."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True)
    paths = listed.stdout.decode().splitlines()
    digest = hashlib.sha256(b"".join((ROOT / path).read_bytes() for path in paths)).hexdigest()
    mark = COPY / "digest"
    if mark.is_file() and mark.read_text("utf-8") != digest:
        # mutmut would keep what it copied before.
        shutil.rmtree(COPY)
    for path in paths:
        (COPY / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / path, COPY / path)
    beside = sorted({Path(path).parts[0] for path in paths} - {"src", "tests", "pyproject.toml"})
    mark.write_text(digest, "utf-8")
    tests = [str(path.relative_to(ROOT)) for name in TESTS for path in sorted((ROOT / "tests").glob(name))]
    selected = [path for path in tests if Path(path).name not in READ_SOURCE]
    settings = _CONFIGURATION.format(
        only_mutate=json.dumps(sorted(files)), also_copy=json.dumps(beside), tests=json.dumps(selected)
    )
    (COPY / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text("utf-8") + settings, "utf-8")


def _run_mutmut(names: Collection[str]) -> None:
    subprocess.run([sys.executable, "-m", "mutmut", "run", *names], cwd=COPY, check=True)


def _read_results() -> Mapping[str, int | None]:
    """Map each mutant to the exit code of its tests, or to None if it has not run."""
    results: dict[str, int | None] = {}
    for path in (COPY / "mutants" / "src").rglob("*.meta"):
        results |= json.loads(path.read_text("utf-8"))["exit_code_by_key"]
    return results


def _print_table(names: Collection[str] | None) -> None:
    print(
        f"{'area':<12}{'mutants':>9}{'noticed':>9}{'survived':>10}{'no test':>9}{'timeout':>9}  noticed, 95 % interval"
    )
    counts: dict[str, Counter[str]] = {}
    for area, state in _list_states(names):
        counts.setdefault(area, Counter())[state] += 1
    counts["all"] = sum(counts.values(), Counter())
    for area, states in counts.items():
        n, noticed = states.total(), states["noticed"] + states["timeout"]
        interval = wilson(noticed, n)
        row = "".join(
            f"{states[state]:>{width}}" for state, width in (("noticed", 9), ("survived", 10), ("no test", 9))
        )
        print(
            f"{area:<12}{n:>9}{row}{states['timeout']:>9}  {noticed / n:.2f} [{interval.low:.2f}, {interval.high:.2f}]"
        )


def _list_states(names: Collection[str] | None) -> Iterator[tuple[str, str]]:
    """Yield the area of each mutant that ran, and whether a test noticed."""
    from mutmut.stats import status_by_exit_code

    for name, code in sorted(_read_results().items()):
        if code is not None and (names is None or name in names):
            module = name.rpartition(".")[0].replace(".", "/")
            yield find_area(f"src/{module}.py") or "other", _STATES.get(status_by_exit_code[code], "noticed")


if __name__ == "__main__":
    main()
