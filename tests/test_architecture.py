"""The house stays as it is drawn: imports run one way, no cycles, short files and functions, no print."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

import epicrisis

SOURCE = Path(epicrisis.__file__).parent
ROOT = "epicrisis"

# A room may import only rooms of a lower floor; rooms on one floor do not know each other.
FLOORS = {
    room: floor
    for floor, rooms in enumerate(
        [
            ["dates", "printable", "question_options"],
            ["types"],
            ["answers", "partitioning"],
            ["errors", "serialization", "temporary_folders"],
            ["protocols"],
            ["privacy"],
            ["settings", "prompts"],
            ["configuration"],
            ["logs"],
            ["corpus", "models", "testing"],
            ["library"],
            ["retrieval"],
            ["answering"],
            ["components", "evidence_selection", "overrides"],
            ["pipeline"],
            ["api", "plan"],
            ["evaluation"],
            ["report"],
            ["serve"],
            ["cli"],
        ]
    )
    for room in rooms
}
EDGE = {"__init__", "__main__"}
"""The package's face and its door: they may import any room."""
ONLY = {
    room: {
        "dates",
        "printable",
        "question_options",
        "types",
        "answers",
        "partitioning",
        "errors",
        "protocols",
        "prompts",
        room,
    }
    for room in ("retrieval", "answering")
}
FORBIDDEN_CALLS = {"print", "eval", "exec"}
LOUD_CALLS = {"print", "typer.echo", "typer.secho", "Console", "sys.stdout.write", "sys.stderr.write"}


@dataclass(frozen=True)
class Import:
    """One module of the package imported by another, dotted without the package's name; the root itself is ''."""

    importer: str
    line: int
    imported: str


def room_of(module: str) -> str:
    return module.split(".")[0]


def modules_of(source: Path) -> dict[str, ast.Module]:
    """Every module by its dotted name, a package's `__init__` included, parsed."""
    return {
        ".".join(path.relative_to(source).with_suffix("").parts): ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(source.rglob("*.py"))
    }


def imports_of(modules: Mapping[str, ast.Module]) -> Iterator[Import]:
    """All imports of the package's own modules, wherever in a module they stand."""
    for name, tree in modules.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                targets = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                targets = _targets(name, node)
            else:
                continue
            for target in targets:
                if target == ROOT or target.startswith(f"{ROOT}."):
                    yield Import(name, node.lineno, _known(target.removeprefix(ROOT).lstrip("."), modules))


def _targets(name: str, node: ast.ImportFrom) -> list[str]:
    """The dotted names that `from X import a, b` may mean: X.a where that is a module, else X."""
    base = node.module or ""
    if node.level:
        home = [ROOT, *name.split(".")][: -node.level]
        base = ".".join([*home, *([node.module] if node.module else [])])
    return [f"{base}.{alias.name}" for alias in node.names]


def _known(target: str, modules: Mapping[str, ast.Module]) -> str:
    """The longest beginning of the dotted name that is a module here; a package stands for its `__init__`."""
    parts = target.split(".") if target else []
    while parts:
        for name in (".".join(parts), ".".join([*parts, "__init__"])):
            if name in modules:
                return name
        if len(parts) == 1:
            break
        parts.pop()
    return parts[0] if parts and parts[0] in FLOORS else ""


def violations(source: Path) -> list[str]:
    """Imports that do not run down the floors."""
    found = []
    for row in imports_of(modules_of(source)):
        mine, theirs = room_of(row.importer), room_of(row.imported)
        if mine in EDGE:
            continue
        if not theirs:
            found.append(f"{row.importer}:{row.line} imports the package root")
        elif mine not in FLOORS:
            found.append(f"{row.importer}:{row.line} stands on no floor")
        elif theirs != mine and not (theirs in FLOORS and FLOORS[theirs] < FLOORS[mine]):
            found.append(f"{row.importer}:{row.line} imports {theirs}, which stands above or beside {mine}")
        elif theirs not in ONLY.get(mine, {theirs}):
            found.append(f"{row.importer}:{row.line} imports {theirs}, which {mine} does not need")
    return found


def cycles(source: Path) -> list[list[str]]:
    """Modules that import each other, directly or around corners; imports inside functions count."""
    modules = modules_of(source)
    graph: dict[str, set[str]] = {name: set() for name in modules}
    for row in imports_of(modules):
        if row.imported in modules and row.imported != row.importer:
            graph[row.importer].add(row.imported)
    found: list[list[str]] = []
    done: set[str] = set()

    def visit(name: str, path: list[str]) -> None:
        if name in path:
            found.append([*path[path.index(name) :], name])
            return
        if name not in done:
            for inner in sorted(graph[name]):
                visit(inner, [*path, name])
            done.add(name)

    for name in graph:
        visit(name, [])
    return found


def shape_faults(source: Path) -> list[str]:
    """Files over 500 lines, functions over 80, forbidden calls, and package faces that hold more than a docstring."""
    found = []
    for name, tree in modules_of(source).items():
        path = source.joinpath(*name.split(".")).with_suffix(".py")
        if len(path.read_text(encoding="utf-8").splitlines()) > 500:
            found.append(f"{name} is longer than 500 lines")
        if name.endswith(".__init__") and not (len(tree.body) == 1 and ast.get_docstring(tree)):
            found.append(f"{name} holds more than a docstring, or none")
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                if (node.end_lineno or 0) - node.lineno + 1 > 80:
                    found.append(f"{name}:{node.lineno} {node.name} is longer than 80 lines")
            elif isinstance(node, ast.Call) and room_of(name) != "cli":
                called = ast.unparse(node.func)
                if called in FORBIDDEN_CALLS:
                    found.append(f"{name}:{node.lineno} calls {called}")
    return found


def loud_calls(source: Path) -> list[str]:
    """Calls that put text on the screen past `cli.terminal`, which makes it printable."""
    return [
        f"{name}:{node.lineno} calls {ast.unparse(node.func)}"
        for name, tree in modules_of(source).items()
        if name != "cli.terminal"
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in LOUD_CALLS
    ]


def loose_dataclasses(source: Path) -> list[str]:
    """Dataclasses that could grow or change: each is slotted, and frozen unless it is a module's private notebook."""
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


def test_imports_run_one_way() -> None:
    assert violations(SOURCE) == []


def test_no_module_imports_itself_around_corners() -> None:
    assert cycles(SOURCE) == []


def test_files_and_functions_are_short_and_quiet() -> None:
    assert shape_faults(SOURCE) == []


def test_one_module_writes_to_the_screen(tmp_path: Path) -> None:
    assert loud_calls(SOURCE) == []
    plant(tmp_path, {"cli/a.py": "typer.echo('x')\nConsole(stderr=True)", "cli/terminal.py": "typer.echo('x')"})
    assert loud_calls(tmp_path) == ["cli.a:1 calls typer.echo", "cli.a:2 calls Console"]


def test_every_module_says_what_it_is() -> None:
    assert [name for name, tree in modules_of(SOURCE).items() if not ast.get_docstring(tree)] == []


def test_values_cannot_change_or_grow() -> None:
    assert loose_dataclasses(SOURCE) == []


def test_the_walk_sees_the_real_imports() -> None:
    """An empty list above must mean that nothing is wrong, not that nothing was looked at."""
    seen = {(row.importer, row.imported) for row in imports_of(modules_of(SOURCE))}
    assert ("errors", "answers") in seen
    assert ("protocols", "types") in seen
    assert ("answering.brief_context", "answering.citations") in seen
    assert {room_of(importer) for importer, _ in seen} >= {"retrieval", "answering", "testing", "corpus", "models"}


def plant(folder: Path, files: Mapping[str, str]) -> Path:
    """A small package of these files (path -> text) under `folder`."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("file", "text", "complaint"),
    [
        ("types.py", "from epicrisis.errors import X", "types:1 imports errors"),
        ("types.py", "import epicrisis.cli.app", "types:1 imports cli"),
        ("types.py", "from . import errors", "types:1 imports errors"),
        ("types.py", "from .errors import X", "types:1 imports errors"),
        ("corpus/a.py", "from ..library import store", "corpus.a:1 imports library"),
        ("corpus/a.py", "from epicrisis.models.chat import bounded", "corpus.a:1 imports models"),
        ("prompts.py", "from epicrisis.settings import load", "prompts:1 imports settings"),
        ("errors.py", "def f():\n    from epicrisis.protocols import X", "errors:2 imports protocols"),
        ("errors.py", "if TYPE_CHECKING:\n    from epicrisis.protocols import X", "errors:2 imports protocols"),
        ("library/a.py", "from epicrisis import __version__", "library.a:1 imports the package root"),
        ("library/a.py", "import epicrisis", "library.a:1 imports the package root"),
        ("library/a.py", "from .. import __version__", "library.a:1 imports the package root"),
        ("retrieval/a.py", "from epicrisis.library.store import X", "retrieval.a:1 imports library, which retrieval"),
        (
            "answering/a.py",
            "from epicrisis.retrieval import fusion",
            "answering.a:1 imports retrieval, which answering",
        ),
        ("answering/a.py", "from epicrisis import settings", "answering.a:1 imports settings, which answering"),
        ("attic.py", "from epicrisis.types import X", "attic:1 stands on no floor"),
    ],
)
def test_a_planted_import_is_found(tmp_path: Path, file: str, text: str, complaint: str) -> None:
    found = violations(plant(tmp_path, {file: text}))
    assert len(found) == 1
    assert found[0].startswith(complaint)


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("errors.py", "from .types import X"),
        ("answering/a.py", "from epicrisis.prompts import fence\nfrom epicrisis.answering.b import y\nfrom . import b"),
        ("cli/a.py", "from epicrisis.library import library\nfrom epicrisis.models import catalogue"),
        ("__main__.py", "from epicrisis.cli.app import main"),
        ("types.py", "import json\nfrom epicrisis_other import x"),
    ],
)
def test_downward_imports_are_no_violation(tmp_path: Path, file: str, text: str) -> None:
    assert violations(plant(tmp_path, {file: text})) == []


def test_planted_cycles_are_found(tmp_path: Path) -> None:
    plant(
        tmp_path,
        {
            "answering/a.py": "from epicrisis.answering import b",
            "answering/b.py": "def f():\n    from epicrisis.answering.c import x",
            "answering/c.py": "from .a import y",
            "answering/d.py": "from .a import y",
        },
    )
    assert cycles(tmp_path) == [["answering.a", "answering.b", "answering.c", "answering.a"]]
    (tmp_path / "answering/c.py").write_text("import json")
    assert cycles(tmp_path) == []


@pytest.mark.parametrize(
    ("file", "text", "complaint"),
    [
        ("library/a.py", "print('x')", "library.a:1 calls print"),
        ("library/a.py", "def f(x):\n    return eval(x)", "library.a:2 calls eval"),
        ("library/a.py", "x = 1\n" * 501, "library.a is longer than 500 lines"),
        ("library/a.py", "async def f():\n" + "    x = 1\n" * 80, "library.a:1 f is longer than 80 lines"),
        ("library/__init__.py", '"""A face."""\nimport json', "library.__init__ holds more than a docstring"),
        ("library/__init__.py", "", "library.__init__ holds more than a docstring, or none"),
    ],
)
def test_a_planted_fault_of_shape_is_found(tmp_path: Path, file: str, text: str, complaint: str) -> None:
    found = shape_faults(plant(tmp_path, {file: text}))
    assert len(found) == 1
    assert found[0].startswith(complaint)


def test_what_is_allowed_is_no_fault_of_shape(tmp_path: Path) -> None:
    plant(
        tmp_path,
        {
            "__init__.py": '"""Root."""\n__version__ = "1"',
            "cli/app.py": "print('x')",
            "library/__init__.py": '"""A face."""',
            "library/a.py": "def f():\n" + "    x = 1\n" * 59 + "x = 1\n" * 340,
        },
    )
    assert shape_faults(tmp_path) == []


@pytest.mark.parametrize("decorator", ["dataclass", "dataclass(frozen=True)", "dataclasses.dataclass(slots=True)"])
def test_a_planted_loose_dataclass_is_found(tmp_path: Path, decorator: str) -> None:
    plant(tmp_path, {"library/a.py": f"@{decorator}\nclass A:\n    x: int"})
    assert loose_dataclasses(tmp_path) == ["library.a:2 A"]
    allowed = "@dataclass(frozen=True, slots=True)\nclass A:\n    x: int\n@dataclass(slots=True)\nclass _B:\n    x: int"
    plant(tmp_path, {"library/a.py": allowed})
    assert loose_dataclasses(tmp_path) == []
