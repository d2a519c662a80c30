"""The structure of the package: imports run one way, type names are unique, and only the terminal writes."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

import epicrisis

SOURCE = Path(epicrisis.__file__).parent
PROJECT = Path(__file__).parents[1] / "pyproject.toml"

FORBIDDEN_CALLS = {"print", "eval", "exec"}
parse = cache(ast.parse)
LOUD_CALLS = {"print", "typer.echo", "typer.secho", "Console", "sys.stdout.write", "sys.stderr.write"}


def top_folder(module: str) -> str:
    """Return the first part of a dotted name."""
    return module.split(".")[0]


def modules_of(source: Path) -> dict[str, ast.Module]:
    """Return the syntax tree of every module by its dotted name, including `__init__`."""
    return {
        ".".join(path.relative_to(source).with_suffix("").parts): parse(path.read_text(encoding="utf-8"))
        for path in sorted(source.rglob("*.py"))
    }


def reused_type_names(source: Path) -> dict[str, list[str]]:
    """Return the public classes and type aliases defined in several modules, with these modules."""
    places: defaultdict[str, list[str]] = defaultdict(list)
    for module, tree in modules_of(source).items():
        names = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
        for node in tree.body:
            if isinstance(node, ast.AnnAssign) and "TypeAlias" in ast.unparse(node.annotation):
                names.add(ast.unparse(node.target))
        for name in names:
            if not name.startswith("_"):
                places[name].append(module)
    return {name: modules for name, modules in places.items() if len(modules) > 1}


def shape_faults(source: Path) -> list[str]:
    """Return forbidden calls, and `__init__` modules with code."""
    found = []
    for name, tree in modules_of(source).items():
        if name.endswith(".__init__") and not (len(tree.body) == 1 and ast.get_docstring(tree)):
            found.append(f"{name} holds more than a docstring, or none")
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and top_folder(name) != "cli":
                called = ast.unparse(node.func)
                if called in FORBIDDEN_CALLS:
                    found.append(f"{name}:{node.lineno} calls {called}")
    return found


def loud_calls(source: Path) -> list[str]:
    """Return the calls that write to the screen without `cli.terminal`, which makes text printable."""
    return [
        f"{name}:{node.lineno} calls {ast.unparse(node.func)}"
        for name, tree in modules_of(source).items()
        if name != "cli.terminal"
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in LOUD_CALLS
    ]


def loose_dataclasses(source: Path) -> list[str]:
    """Return the dataclasses without slots, and public ones that are not frozen."""
    return [
        f"{name}:{node.lineno} {node.name}"
        for name, tree in modules_of(source).items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for decorator in node.decorator_list
        if ast.unparse(decorator).startswith(("dataclass", "dataclasses.dataclass"))
        and not ({"slots=True"} if node.name.startswith("_") else {"frozen=True", "slots=True"})
        <= {ast.unparse(keyword) for keyword in getattr(decorator, "keywords", [])}
    ]


def lint_imports(source: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Check the contracts of pyproject.toml on the package in `source`, which is a copy or the package itself."""
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache", "--no-logo", str(PROJECT)]
    environment = {**os.environ, "PYTHONPATH": str(source)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


@pytest.mark.long
def test_imports_run_one_way(tmp_path: Path) -> None:
    checked = lint_imports(SOURCE.parent, tmp_path)
    assert checked.returncode == 0, checked.stdout


@pytest.mark.long
@pytest.mark.parametrize(
    ("module", "statement", "contract"),
    [
        ("core/errors.py", "from epicrisis.cli import program", "A package imports only what stands below it"),
        (
            "corpus/documents/html.py",
            "def f():\n    from epicrisis.library.core import library_store",
            "A package imports only",
        ),
        ("evaluation/runs/run_folder.py", "from epicrisis.evaluation.grading import grader", "Experiments stand"),
        ("server/work/jobs.py", "from epicrisis.report import page", "Of the server, only the pages of runs"),
        ("attic/__init__.py", '"""A."""', "A package imports only"),
    ],
)
def test_planted_import_breaks_a_contract(tmp_path: Path, module: str, statement: str, contract: str) -> None:
    copy = Path(shutil.copytree(SOURCE, tmp_path / "src" / "epicrisis", ignore=shutil.ignore_patterns("__pycache__")))
    (copy / module).parent.mkdir(exist_ok=True)
    with (copy / module).open("a", encoding="utf-8") as file:
        file.write(f"\n{statement}\n")
    checked = lint_imports(copy.parent, tmp_path)
    assert checked.returncode == 1
    assert re.search(rf"{contract}.*(BROKEN|missing|not listed)", checked.stdout + checked.stderr, re.S)


@pytest.mark.slow
def test_public_type_names_are_unique() -> None:
    assert reused_type_names(SOURCE) == {}


@pytest.mark.long
def test_functions_are_quiet() -> None:
    assert shape_faults(SOURCE) == []


@pytest.mark.long
def test_only_terminal_writes_to_the_screen(tmp_path: Path) -> None:
    assert loud_calls(SOURCE) == []
    plant(tmp_path, {"cli/a.py": "typer.echo('x')\nConsole(stderr=True)", "cli/terminal.py": "typer.echo('x')"})
    assert loud_calls(tmp_path) == ["cli.a:1 calls typer.echo", "cli.a:2 calls Console"]


@pytest.mark.slow
def test_every_module_has_docstring() -> None:
    assert [name for name, tree in modules_of(SOURCE).items() if not ast.get_docstring(tree)] == []


@pytest.mark.long
def test_dataclasses_are_frozen_and_slotted() -> None:
    assert loose_dataclasses(SOURCE) == []


def plant(folder: Path, files: Mapping[str, str]) -> Path:
    """Write these files (path -> text) under `folder` and return it."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("file", "text", "complaint"),
    [
        ("library/a.py", "print('x')", "library.a:1 calls print"),
        ("library/a.py", "def f(x):\n    return eval(x)", "library.a:2 calls eval"),
        ("library/__init__.py", '"""A face."""\nimport json', "library.__init__ holds more than a docstring"),
        ("library/__init__.py", "", "library.__init__ holds more than a docstring, or none"),
    ],
)
def test_planted_shape_fault_is_found(tmp_path: Path, file: str, text: str, complaint: str) -> None:
    found = shape_faults(plant(tmp_path, {file: text}))
    assert len(found) == 1
    assert found[0].startswith(complaint)


def test_allowed_shapes_are_no_fault(tmp_path: Path) -> None:
    plant(
        tmp_path,
        {
            "__init__.py": '"""Root."""\n__version__ = "1"',
            "cli/program.py": "print('x')",
            "library/__init__.py": '"""A face."""',
        },
    )
    assert shape_faults(tmp_path) == []


@pytest.mark.parametrize("decorator", ["dataclass", "dataclass(frozen=True)", "dataclasses.dataclass(slots=True)"])
def test_planted_loose_dataclass_is_found(tmp_path: Path, decorator: str) -> None:
    plant(tmp_path, {"library/a.py": f"@{decorator}\nclass A:\n    x: int"})
    assert loose_dataclasses(tmp_path) == ["library.a:2 A"]
    allowed = "@dataclass(frozen=True, slots=True)\nclass A:\n    x: int\n@dataclass(slots=True)\nclass _B:\n    x: int"
    plant(tmp_path, {"library/a.py": allowed})
    assert loose_dataclasses(tmp_path) == []


@pytest.mark.parametrize("definition", ["class Run:\n    x: int", "Run: TypeAlias = str"])
def test_planted_reused_type_name_is_found(tmp_path: Path, definition: str) -> None:
    plant(tmp_path, {"library/a.py": "class Run: ...\nclass _Run: ...", "cli/a.py": "class _Run: ...\nRun = 1"})
    assert reused_type_names(tmp_path) == {}
    plant(tmp_path, {"report/b.py": definition})
    assert reused_type_names(tmp_path) == {"Run": ["library.a", "report.b"]}
