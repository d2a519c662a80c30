"""Help, version and usage errors of every command: the tests walk the whole command tree."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from epicrisis import __version__
from epicrisis.cli import options
from epicrisis.cli.command import SharedOption
from epicrisis.cli.program import ASK, EVALUATE, LIBRARIES, MODELS, SERVER, app
from tests.cli.conftest import Run

Path = tuple[str, ...]
ROOT: Any = typer.main.get_command(app)


def walk_commands(command: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield every command with its path, groups included."""
    yield path, command
    for name, child in getattr(command, "commands", {}).items():
        yield from walk_commands(child, (*path, name))


TREE = dict(walk_commands(ROOT))
COMMANDS = {path: command for path, command in TREE.items() if not hasattr(command, "commands")}
WITHOUT_JSON = {("serve",), ("mcp",)}
"""Commands that run until they are stopped, and so print no result."""
GROUPS = {path: command for path, command in TREE.items() if hasattr(command, "commands")}
SHARED = [option for option in vars(options).values() if isinstance(option, SharedOption)] + list(options.BUDGET)
PANELS = {(option.parameter, option.option.help): option.option.rich_help_panel for option in SHARED}
"""The panel of each shared option, by parameter and help: some commands have their own option of that name."""


def examples_of(command: Any) -> list[str]:
    """Return the examples in the help of a command."""
    heading, *examples = str(command.epilog).split("\n\n")
    assert heading == ("Examples:" if len(examples) > 1 else "Example:")
    return examples


def command_of(arguments: list[str]) -> tuple[Path, list[str]]:
    """Split arguments into the path of a command and the arguments of that command."""
    length = next(n for n in range(1, len(arguments) + 1) if tuple(arguments[:n]) in COMMANDS)
    return tuple(arguments[:length]), arguments[length:]


def test_command_tree_has_the_documented_commands() -> None:
    names = {" ".join(path) for path in COMMANDS}
    assert {"ask", "search", "plan", "evaluate", "rescore", "sample-size", "experiment", "probe"} <= names
    assert {"compare", "report", "settings", "doctor", "models pull", "cache clear", "questions generate"} <= names
    assert {f"grade {name}" for name in ("run", "calibrate", "pairs", "preference", "verdicts", "correctness")} <= names


@pytest.mark.slow
@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_command_help_shows_purpose_and_examples_and_json(path: Path, run: Run) -> None:
    result = run(*path, "--help")
    assert (result.exit_code, result.stderr) == (0, "")
    text = " ".join(result.stdout.split())
    assert f"Usage: epicrisis {' '.join(path)}" in text
    assert ("--json" in text) != (path in WITHOUT_JSON)
    purpose = str(COMMANDS[path].help).split("\n\n")[0]
    assert purpose.endswith(".")
    assert purpose[0].isupper()
    examples = examples_of(COMMANDS[path])
    assert examples
    shown = text.rpartition("Example")[2]
    for example in examples:
        assert " ".join(example.split()) in shown


@pytest.mark.slow
@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_command_help_examples_are_accepted_by_the_command(path: Path) -> None:
    for example in examples_of(COMMANDS[path]):
        program, *arguments = shlex.split(example)
        named, rest = command_of(arguments)
        assert (program, named) == ("epicrisis", path)
        # Parsing raises a usage error for an unknown option or a missing argument.
        context = COMMANDS[path].make_context(" ".join(path), rest)
        assert not context.args


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_command_help_shows_shared_options_in_their_panels(path: Path) -> None:
    for parameter in COMMANDS[path].params:
        assert parameter.help, parameter.name
        shared_panel = PANELS.get((parameter.name, parameter.help))
        if shared_panel is not None:
            assert parameter.rich_help_panel == shared_panel, parameter.name


def test_ask_help_shows_every_panel(run: Run) -> None:
    lines = run("ask", "--help").stdout.splitlines()
    titles = [line.strip("╭╮─ ") for line in lines if line.startswith("╭")]
    assert titles[:2] == ["Arguments", "Options"]
    assert {*titles[2:]} == {options.ANSWERING, options.LIMITS, options.SEARCHING, options.SETTINGS}


def test_program_help_shows_commands_in_their_panels(run: Run) -> None:
    result = run("--help")
    lines = result.stdout.splitlines()
    titles = [line.strip("╭╮─ ") for line in lines if line.startswith("╭")]
    assert titles == ["Options", ASK, LIBRARIES, EVALUATE, MODELS, SERVER]
    for name in ROOT.commands:
        assert any(line.startswith(f"│ {name} ") for line in lines), name
    assert "Example: epicrisis library add" in result.stdout
    assert "--install-completion" in result.stdout


def test_help_shows_no_type_for_switches(run: Run) -> None:
    help_text = run("ask", "--help").output
    assert "--local-only" in help_text
    assert "<int>" in help_text
    assert "bool" not in help_text
    assert "bool" not in run("library", "--help").output


@pytest.mark.parametrize("path", GROUPS, ids=lambda path: " ".join(path) or "epicrisis")
def test_group_without_command_shows_its_help_once(path: Path, run: Run) -> None:
    result = run(*path)
    assert (result.exit_code, result.stderr) == (2, "")
    assert result.stdout.count("Usage: ") == 1
    assert result.stdout.split() == run(*path, "--help").stdout.split()
    for name in GROUPS[path].commands:
        assert name in result.stdout


def test_version_option_shows_the_version(run: Run) -> None:
    result = run("--version")
    assert (result.exit_code, result.stdout, result.stderr) == (0, f"epicrisis {__version__}\n", "")


@pytest.mark.parametrize("path", TREE, ids=lambda path: " ".join(path) or "epicrisis")
def test_unknown_option_reports_one_line(path: Path, run: Run) -> None:
    result = run(*path, "--no-such-option")
    assert (result.exit_code, result.stdout) == (2, "")
    name = " ".join(("epicrisis", *path))
    assert result.stderr.startswith("epicrisis: No such option: --no-such-option")
    assert result.stderr.endswith(f" (see `{name} --help`)\n")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("path", GROUPS, ids=lambda path: " ".join(path) or "epicrisis")
def test_unknown_command_reports_one_line(path: Path, run: Run) -> None:
    result = run(*path, "no-such-command")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("epicrisis: No such command 'no-such-command'")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("serch",), "No such command 'serch'. Did you mean 'search', "),
        (("ask",), "Missing argument 'LIBRARY'. (see `epicrisis ask --help`)"),
        (("search", "lib", "fever", "-k", "many"), "Invalid value for '-k': "),
        (("search", "lib", "fever", "--by", "magic"), "Invalid value for '--by': "),
        (("sample-size", "--power", "x"), "Invalid value for '--power': "),
        (("library", "optimize", "lib", "--recall", "2"), "Invalid value for '--recall': "),
        (("search", "lib", "fever", "-k"), "Option '-k' requires an argument."),
        (("search", "lib", "fever", "more"), "Got unexpected extra argument"),
        (("search", "lib", "fever", "--as-of\n\x1b[2J"), "No such option: --as-of"),
    ],
)
def test_usage_error_reports_one_line(arguments: tuple[str, ...], message: str, run: Run) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"epicrisis: {message}")
    assert result.stderr.count("\n") == 1
    assert "--help`)" in result.stderr
    assert result.stderr.rstrip("\n").isprintable()


@pytest.mark.long
def test_help_of_all_commands_imports_no_heavy_module() -> None:
    script = (
        "import sys\n"
        "from typer.testing import CliRunner\n"
        "from epicrisis.cli.program import app\n"
        f"for path in {[*TREE]!r}:\n"
        "    assert CliRunner().invoke(app, [*path, '--help']).exit_code == 0\n"
        "heavy = {'lancedb', 'tantivy', 'onnxruntime', 'openai', 'xllamacpp', 'numpy', 'pyarrow', 'tokenizers'}\n"
        "heavy |= {'altair', 'vl_convert', 'python_calamine', 'lxml', 'pypdfium2', 'torch'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    process = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert process.stdout.strip() == "[]"
