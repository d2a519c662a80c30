"""The structure of the package: imports run one way, type names are unique, files and functions are short."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

import epicrisis

SOURCE = Path(epicrisis.__file__).parent
ROOT = "epicrisis"

# A folder or module may import only those of lower floors. Those on one floor do not import each other.
FLOORS = {
    name: floor
    for floor, names in enumerate(
        [
            ["dates", "notebook_display", "printable", "process_limits", "question_options", "ucum"],
            ["types", "quantities"],
            ["clinical_facts", "computed_values", "reading", "study_types", "partitioning"],
            ["references"],
            ["answers", "study_identity"],
            ["errors", "fact_times", "serialization", "temporary_folders"],
            ["protocols"],
            ["extensions", "privacy", "model_services"],
            ["cluster", "json_lines", "local_cluster", "prompts", "remote_libraries", "telemetry_export"],
            ["access_log", "settings_tables", "telemetry", "user_rights"],
            ["settings"],
            ["configuration"],
            ["cluster_nodes", "logs"],
            ["corpus", "models", "testing"],
            ["fhir_server", "library", "literature"],
            ["retrieval", "deidentification"],
            ["answering"],
            [
                "patient_data_policy",
                "record_access",
                "cluster_encoding",
                "evidence_selection",
                "fact_questions",
                "model_pool",
                "overrides",
            ],
            ["components", "patient_chart"],
            ["additions", "passage_search", "pipeline"],
            ["api", "cluster_search", "patient_summary", "plan"],
            ["evaluation"],
            ["report"],
            ["integrations", "operations", "server"],
            ["forgetting"],
            ["cli"],
        ]
    )
    for name in names
}
EVALUATION_FLOORS = {
    name: floor
    for floor, names in enumerate(
        [
            ["datasets", "metrics"],
            ["runs"],
            ["analysis"],
            ["grading"],
            ["rescoring", "synthesis"],
            ["experiments"],
        ]
    )
    for name in names
}
"""The floors inside `evaluation`."""
EDGE = {"__init__", "__main__"}
"""These may import everything."""
ONLY = {
    name: {
        "dates",
        "notebook_display",
        "quantities",
        "ucum",
        "printable",
        "question_options",
        "reading",
        "types",
        "study_identity",
        "study_types",
        "clinical_facts",
        "computed_values",
        "references",
        "answers",
        "partitioning",
        "errors",
        "protocols",
        "prompts",
        "telemetry",
        name,
    }
    for name in ("retrieval", "answering")
}
"""The only modules these folders may import."""
FORBIDDEN_CALLS = {"print", "eval", "exec"}
parse = cache(ast.parse)
MAX_FORMAT_SKIPS = 5
FORMAT_SKIP = re.compile(r"# fmt: ?(?:skip|off)")
LOUD_CALLS = {"print", "typer.echo", "typer.secho", "Console", "sys.stdout.write", "sys.stderr.write"}


@dataclass(frozen=True)
class Import:
    """One module of the package imported by another, dotted without the package's name; the root itself is ''."""

    importer: str
    line: int
    imported: str


def top_folder(module: str) -> str:
    """Return the first part of a dotted name."""
    return module.split(".")[0]


def modules_of(source: Path) -> dict[str, ast.Module]:
    """Return the syntax tree of every module by its dotted name, including `__init__`."""
    return {
        ".".join(path.relative_to(source).with_suffix("").parts): parse(path.read_text(encoding="utf-8"))
        for path in sorted(source.rglob("*.py"))
    }


def imports_of(modules: Mapping[str, ast.Module]) -> Iterator[Import]:
    """Yield all imports of modules of the package, including those inside functions."""
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
    """Return the dotted names X.a and X.b for `from X import a, b`."""
    base = node.module or ""
    if node.level:
        home = [ROOT, *name.split(".")][: -node.level]
        base = ".".join([*home, *([node.module] if node.module else [])])
    return [f"{base}.{alias.name}" for alias in node.names]


def _known(target: str, modules: Mapping[str, ast.Module]) -> str:
    """Return the longest prefix of the dotted name that is a module. A package is its `__init__`."""
    parts = target.split(".") if target else []
    while parts:
        for name in (".".join(parts), ".".join([*parts, "__init__"])):
            if name in modules:
                return name
        if len(parts) == 1:
            break
        parts.pop()
    return parts[0] if parts and parts[0] in FLOORS else ""


def import_faults(source: Path) -> list[str]:
    """Return the imports that do not run down the floors."""
    found = []
    for row in imports_of(modules_of(source)):
        importer, imported = top_folder(row.importer), top_folder(row.imported)
        if importer in EDGE:
            continue
        if not imported and row.importer == "cli.app":
            continue  # `--version` shows the version of the package root
        if not imported:
            found.append(f"{row.importer}:{row.line} imports the package root")
        elif importer not in FLOORS:
            found.append(f"{row.importer}:{row.line} is on no floor")
        elif imported != importer and not (imported in FLOORS and FLOORS[imported] < FLOORS[importer]):
            found.append(f"{row.importer}:{row.line} imports {imported}, which is not below {importer}")
        elif imported not in ONLY.get(importer, {imported}):
            found.append(f"{row.importer}:{row.line} imports {imported}, which {importer} does not need")
    return found


def evaluation_faults(source: Path) -> list[str]:
    """Return the imports inside `evaluation` that do not run down its floors. Imports inside functions count."""
    faults = []
    for row in imports_of(modules_of(source)):
        importer, imported = row.importer.split("."), row.imported.split(".")
        if importer[0] != "evaluation" or imported[0] != "evaluation" or len(imported) < 2 or len(importer) < 3:
            continue
        if importer[1] not in EVALUATION_FLOORS:
            faults.append(f"{row.importer}:{row.line} is on no floor of evaluation")
        elif imported[1] != importer[1] and (
            EVALUATION_FLOORS.get(imported[1], len(EVALUATION_FLOORS)) >= EVALUATION_FLOORS[importer[1]]
        ):
            faults.append(f"{row.importer}:{row.line} imports {imported[1]}, which is not below {importer[1]}")
    return faults


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


def format_skips(source: Path) -> int:
    """Return the number of comments that turn the formatter off."""
    return sum(len(FORMAT_SKIP.findall(path.read_text(encoding="utf-8"))) for path in source.rglob("*.py"))


def unresolved_imports(source: Path) -> list[str]:
    """Return the imported names of the package that no module defines, imports inside functions included."""
    modules = modules_of(source)
    found = []
    for name, tree in modules.items():
        for node in ast.walk(tree):
            if not isinstance(node, ast.ImportFrom) or node.level or not (node.module or "").startswith(f"{ROOT}."):
                continue
            target = (node.module or "").removeprefix(f"{ROOT}.")
            defined = defined_names(modules[target]) if target in modules else set()
            for alias in node.names:
                submodule = f"{target}.{alias.name}"
                if alias.name not in defined and submodule not in modules and f"{submodule}.__init__" not in modules:
                    found.append(f"{name}:{node.lineno} imports {submodule}, which does not exist")
    return found


def defined_names(tree: ast.Module) -> set[str]:
    """Return the names that a module defines or imports at its top level, in conditions too."""
    names: set[str] = set()
    pending: list[ast.AST] = [*tree.body]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names.update((alias.asname or alias.name).split(".")[0] for alias in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        else:
            pending.extend(ast.iter_child_nodes(node))
    return names


def cycles(source: Path) -> list[list[str]]:
    """Return the import cycles of modules. Imports inside functions count."""
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
    """Return functions over 80 lines, forbidden calls, and `__init__` modules with code."""
    found = []
    for name, tree in modules_of(source).items():
        if name.endswith(".__init__") and not (len(tree.body) == 1 and ast.get_docstring(tree)):
            found.append(f"{name} holds more than a docstring, or none")
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                if (node.end_lineno or 0) - node.lineno + 1 > 80:
                    found.append(f"{name}:{node.lineno} {node.name} is longer than 80 lines")
            elif isinstance(node, ast.Call) and top_folder(name) != "cli":
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


@pytest.mark.long
def test_imports_run_one_way() -> None:
    assert import_faults(SOURCE) == []


@pytest.mark.long
def test_imports_inside_evaluation_run_one_way() -> None:
    assert evaluation_faults(SOURCE) == []


@pytest.mark.slow
def test_public_type_names_are_unique() -> None:
    assert reused_type_names(SOURCE) == {}


def test_formatter_is_rarely_turned_off() -> None:
    assert format_skips(SOURCE) <= MAX_FORMAT_SKIPS


@pytest.mark.long
def test_modules_have_no_import_cycles() -> None:
    assert cycles(SOURCE) == []


@pytest.mark.long
def test_functions_are_short_and_quiet() -> None:
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


@pytest.mark.long
def test_imports_of_finds_real_imports() -> None:
    """An empty list of faults must not be the result of finding no import at all."""
    seen = {(row.importer, row.imported) for row in imports_of(modules_of(SOURCE))}
    assert ("errors", "answers") in seen
    assert ("protocols", "types") in seen
    assert ("answering.brief_context", "answering.strategy_context") in seen
    assert {top_folder(importer) for importer, _ in seen} >= {"retrieval", "answering", "testing", "corpus", "models"}


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
        ("attic.py", "from epicrisis.types import X", "attic:1 is on no floor"),
    ],
)
def test_planted_import_is_found(tmp_path: Path, file: str, text: str, complaint: str) -> None:
    found = import_faults(plant(tmp_path, {file: text}))
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
def test_downward_imports_are_no_fault(tmp_path: Path, file: str, text: str) -> None:
    assert import_faults(plant(tmp_path, {file: text})) == []


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
        ("library/a.py", "async def f():\n" + "    x = 1\n" * 80, "library.a:1 f is longer than 80 lines"),
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
            "cli/app.py": "print('x')",
            "library/__init__.py": '"""A face."""',
            "library/a.py": "def f():\n" + "    x = 1\n" * 59 + "x = 1\n" * 340,
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


@pytest.mark.parametrize(
    ("file", "text", "fault"),
    [
        ("metrics/a.py", "from epicrisis.evaluation.datasets.b import x", "metrics.a:1 imports datasets, which is not"),
        ("runs/a.py", "def f():\n    from epicrisis.evaluation.grading import b", "runs.a:2 imports grading, which is"),
        ("analysis/a.py", "from ..experiments import b", "analysis.a:1 imports experiments, which is not below"),
        ("synthesis/c/a.py", "from ...rescoring import b", "synthesis.c.a:1 imports rescoring, which is not below"),
        ("attic/a.py", "from epicrisis.evaluation.runs import b", "attic.a:1 is on no floor of evaluation"),
    ],
)
def test_planted_import_inside_evaluation_is_found(tmp_path: Path, file: str, text: str, fault: str) -> None:
    files = {f"evaluation/{name}/b.py": "x = 1" for name in EVALUATION_FLOORS}
    plant(tmp_path, {**files, "evaluation/experiments/b.py": "from ..grading import b\nfrom . import c"})
    assert evaluation_faults(tmp_path) == []
    (found,) = evaluation_faults(plant(tmp_path, {f"evaluation/{file}": text}))
    assert found.startswith(f"evaluation.{fault}")


@pytest.mark.parametrize("definition", ["class Run:\n    x: int", "Run: TypeAlias = str"])
def test_planted_reused_type_name_is_found(tmp_path: Path, definition: str) -> None:
    plant(tmp_path, {"library/a.py": "class Run: ...\nclass _Run: ...", "cli/a.py": "class _Run: ...\nRun = 1"})
    assert reused_type_names(tmp_path) == {}
    plant(tmp_path, {"report/b.py": definition})
    assert reused_type_names(tmp_path) == {"Run": ["library.a", "report.b"]}


def test_planted_format_skips_are_counted(tmp_path: Path) -> None:
    plant(
        tmp_path, {"library/a.py": "x = 1  # fmt: skip\n# fmt: off\ny = 2\n# fmt: on", "cli/a.py": "z = 1  # fmt:skip"}
    )
    assert format_skips(tmp_path) == 3


@pytest.mark.long
def test_imported_names_exist() -> None:
    """An installed older version can hide a stale import inside a function from the type checker."""
    assert unresolved_imports(SOURCE) == []


@pytest.mark.parametrize(
    "statement",
    [
        "from epicrisis.library.gone import x",
        "from epicrisis.library.b import gone",
        "def f():\n    from epicrisis.library import gone",
    ],
)
def test_planted_import_of_missing_name_is_reported(tmp_path: Path, statement: str) -> None:
    files = {"library/__init__.py": '"""A."""', "library/a.py": statement, "library/b.py": "x = 1"}
    plant(tmp_path, files)
    assert len(unresolved_imports(tmp_path)) == 1
    plant(tmp_path, {"library/a.py": "from epicrisis.library import b\nfrom epicrisis.library.b import x"})
    assert unresolved_imports(tmp_path) == []
