"""Commands and options in messages, help texts and docstrings of the program exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

import epicrisis
from epicrisis.cli.program import app

SOURCE = Path(epicrisis.__file__).parent
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*[a-z]")
COMMAND = re.compile(r"`epicrisis ([a-z-]+(?: [a-z-]+)?)")
OTHER_PROGRAMS = frozenset(
    {
        "cli/doctor.py",
        "models/cluster.py",
        "corpus/documents/ocr.py",
        "corpus/base/reader_base.py",
        "evaluation/runs/run_folder.py",
        "models/chat/endpoints/reply.py",
        "models/hardware.py",
        "models/model_files.py",
    }
)
"""Modules with command lines of pip, git, tesseract, LibreOffice, nvidia-smi and ray."""
STYLE_SHEETS = frozenset({"report/answer_files.py", "report/charts.py"})
"""Modules with custom properties of CSS, which begin like options."""


def list_commands(command: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the name of every command below `command`, such as `library add`, and the command."""
    for part, child in getattr(command, "commands", {}).items():
        yield f"{name} {part}".strip(), child
        yield from list_commands(child, f"{name} {part}".strip())


ROOT = typer.main.get_command(app)
COMMANDS = dict(list_commands(ROOT))


def list_options() -> set[str]:
    """Return the options of all commands."""
    options = {"--help"}
    for command in (ROOT, *COMMANDS.values()):
        for parameter in command.params:
            options.update(parameter.opts, parameter.secondary_opts)
    return options


def read_texts(path: Path) -> Iterator[str]:
    """Yield the string constants of a module, docstrings included."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


@pytest.fixture(scope="module")
def texts() -> dict[str, list[str]]:
    """Return the string constants of every module, by its path below the package."""
    return {path.relative_to(SOURCE).as_posix(): list(read_texts(path)) for path in SOURCE.rglob("*.py")}


@pytest.mark.long
def test_option_in_text_exists(texts: dict[str, list[str]]) -> None:
    options = list_options()
    unknown = []
    for module, constants in texts.items():
        if module in OTHER_PROGRAMS | STYLE_SHEETS:
            continue
        for text in constants:
            unknown += [f"{module}: {option}" for option in OPTION.findall(text) if option not in options]
    assert unknown == []


@pytest.mark.long
def test_command_in_text_exists(texts: dict[str, list[str]]) -> None:
    unknown = []
    for module, constants in texts.items():
        for text in constants:
            for command in COMMAND.findall(text):
                known = command in COMMANDS or command.partition(" ")[0] in COMMANDS
                group = COMMANDS.get(command.partition(" ")[0])
                if not known or (" " in command and hasattr(group, "commands") and command not in COMMANDS):
                    unknown.append(f"{module}: {command}")
    assert unknown == []
