"""The documentation names only commands, options, settings, links, modules and folders that exist."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.main

from epicrisis.cli.program import app
from epicrisis.settings.settings import Settings

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "epicrisis"
PAGES = [ROOT / "README.md", *sorted((ROOT / "deploy").rglob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
DESIGN = ROOT / "docs" / "design"
USER_PAGES = sorted((ROOT / "docs").glob("*.md"))

FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)#\s]*)(#[^)\s]*)?\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
OPTION = re.compile(r"(?:--[a-z][a-z-]*|-[a-zA-Z])")
MODULE = re.compile(r"(?:[\w-]+/)*[\w-]+\.(?:py|jinja|toml)")
FOLDER = re.compile(r"[a-z]\w+(?:/[a-z]\w+)*/")
OTHER_FILES = {"words/", "datasets/", "judging/", "runs/", "config/", "epicrisis.toml", "pyproject.toml"}
"""Folders and files of libraries, runs, users and of the repository itself, which pages of the design name too."""
COMPREHENSIVE = 100
"""The fewest commands in the documentation, so that a broken pattern cannot pass for correct pages."""


def commands_in(text: str) -> Iterator[str]:
    """Yield the `epicrisis ...` commands of code blocks without a language, and of inline code."""
    for language, block in FENCE.findall(text):
        lines = block.replace("\\\n", " ").splitlines() if not language else []
        yield from (line[line.index("epicrisis ") :] for line in lines if re.match(r"(\w+=\S+ )*epicrisis ", line))
    inline = INLINE.findall(FENCE.sub("", text))
    yield from (code for code in inline if code.startswith("epicrisis "))


@cache
def root_command() -> Any:
    """Return the command tree. A group has `commands`, whichever copy of click made it."""
    return typer.main.get_command(app)


@cache
def setting_keys() -> frozenset[str]:
    """Return the dotted keys of the settings, including tables."""
    return frozenset(_keys(Settings.model_json_schema(), Settings.model_json_schema()["$defs"]))


def _keys(schema: dict[str, Any], definitions: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for name, value in schema.get("properties", {}).items():
        yield prefix + name
        for option in [value, *value.get("anyOf", []), *value.get("allOf", [])]:
            if "$ref" in option:
                yield from _keys(definitions[option["$ref"].rpartition("/")[2]], definitions, f"{prefix}{name}.")


def problem_with(command: str) -> str | None:
    """Return what in a documented command does not exist, or None."""
    words = shlex.split(re.sub(r"\s+#.*", "", command))[1:]
    node = root_command()
    while hasattr(node, "commands") and words and not words[0].startswith("-"):
        if re.fullmatch(r"[A-Z]+", words[0]):
            return None
        child = node.commands.get(words[0])
        if child is None:
            return f"no command {words[0]}"
        node, words = child, words[1:]
    known = {name for option in node.params for name in (*option.opts, *option.secondary_opts)} | {"--help", "-h"}
    for position, word in enumerate(words):
        option = word.partition("=")[0]
        if OPTION.fullmatch(option) and option not in known:
            return f"no option {option}"
        if option == "--setting":
            key = words[position + 1].partition("=")[0]
            if key not in setting_keys() | {"KEY"}:
                return f"no setting {key}"
    return None


def settings_in(text: str) -> Iterator[str]:
    """Yield the keys of `--setting KEY=VALUE` anywhere in a page."""
    yield from re.findall(r"--setting ['\"]?([a-z_.]+)=", text)


def anchor(heading: str) -> str:
    """Return the anchor of a heading, as code hosts make it."""
    return "#" + re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def broken_links(page: Path, text: str) -> list[str]:
    """Return the relative links of a page whose file or heading does not exist."""
    broken = []
    for target, fragment in LINK.findall(text):
        if re.match(r"\w+:", target):
            continue
        path = (page.parent / target).resolve() if target else page
        headings = HEADING.findall(path.read_text(encoding="utf-8")) if path.is_file() and fragment else []
        if not path.exists() or (fragment and fragment not in map(anchor, headings)):
            broken.append(target + fragment)
    return broken


@cache
def repository_paths() -> tuple[str, ...]:
    """Return every file and folder of sources, tests, benchmarks and documentation, folders with a slash at the end."""
    paths = [path for name in ("src", "tests", "benchmarks", "docs") for path in (ROOT / name).rglob("*")]
    named = ["/" + path.relative_to(ROOT).as_posix() + ("/" if path.is_dir() else "") for path in paths]
    return tuple(name for name in named if "__pycache__" not in name)


def missing_paths(text: str) -> list[str]:
    """Return the modules, prompts and folders in inline code that no file or folder of the repository has."""
    missing = []
    for code in INLINE.findall(FENCE.sub("", text)):
        if code in OTHER_FILES:
            continue
        is_path = MODULE.fullmatch(code) or FOLDER.fullmatch(code)
        if is_path and not any(name.endswith("/" + code) for name in repository_paths()):
            missing.append(code)
        dotted = re.fullmatch(r"epicrisis((?:\.[a-z_]+)+)", code)
        if dotted and not _is_module(dotted[1].strip(".").split(".")):
            missing.append(code)
    return missing


def _is_module(parts: list[str]) -> bool:
    """Return whether the parts name a module or folder, or a public name in one."""
    for length in (len(parts), len(parts) - 1):
        path = SOURCE.joinpath(*parts[:length])
        module = path if path.is_dir() else path.with_suffix(".py")
        if module.exists():
            text = (module / "__init__.py" if module.is_dir() else module).read_text(encoding="utf-8")
            return length == len(parts) or re.search(rf"\b{parts[-1]}\b", text) is not None
    return False


@pytest.mark.slow
def test_documented_commands_exist() -> None:
    commands = [(page.name, command) for page in PAGES for command in commands_in(page.read_text(encoding="utf-8"))]
    problems = [(page, command, problem) for page, command in commands if (problem := problem_with(command))]
    assert len(commands) >= COMPREHENSIVE
    assert problems == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_documented_settings_and_links_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert [key for key in settings_in(text) if key not in setting_keys()] == []
    assert broken_links(page, FENCE.sub("", text)) == []


@pytest.mark.parametrize("page", sorted(DESIGN.glob("*.md")), ids=lambda page: page.name)
def test_paths_in_the_design_exist(page: Path) -> None:
    assert missing_paths(page.read_text(encoding="utf-8")) == []


def test_every_page_is_linked_from_an_index() -> None:
    """A page that no index lists is found by nobody."""
    start, design = ((ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("index.md", "design/README.md"))
    pages = [path.name for path in USER_PAGES if path.name != "index.md"]
    assert [name for name in pages if f"]({name})" not in start] == []
    assert [path.name for path in DESIGN.glob("*.md") if path.name != "README.md" and path.name not in design] == []


@pytest.mark.parametrize("page", [ROOT / "README.md", *USER_PAGES], ids=lambda page: page.name)
def test_pages_for_users_lead_to_no_design_page(page: Path) -> None:
    targets = [target for target, _ in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8")))]
    assert [target for target in targets if "design/" in target] == []


@pytest.mark.slow
def test_pages_that_messages_name_exist() -> None:
    """A message names a page and its heading: `docs/deployment.md#users-and-keys`."""
    names = set()
    for path in SOURCE.rglob("*.py"):
        names |= set(re.findall(r"docs/[a-z/-]+\.md(?:#[a-z0-9-]+)?", path.read_text(encoding="utf-8")))
    assert len(names) >= 10
    assert broken_links(ROOT / "README.md", " ".join(f"]({name})" for name in names)) == []


@pytest.mark.parametrize("name", ["README.md", "docs/index.md"])
def test_first_pages_use_no_words_of_the_machinery(name: str) -> None:
    words = re.findall(r"[a-z]+", (ROOT / name).read_text(encoding="utf-8").lower())
    assert {"preflight", "map", "reduce"} & set(words) == set()


def test_modules_of_the_package_are_in_the_architecture() -> None:
    text = (DESIGN / "architecture.md").read_text(encoding="utf-8")
    folders = [path.name for path in SOURCE.iterdir() if path.is_dir() and (path / "__init__.py").exists()]
    modules = [path.name for path in SOURCE.glob("[a-z]*.py")]
    assert [name for name in folders + modules if f"`{name}`" not in text] == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("```\nepicrisis judge calibrate --model URL\n```", "no command judge"),
        ("```\nepicrisis ask ~/lib \\\n    --beside ~/pubmed\n```", "no option --beside"),
        ("run `epicrisis search LIB -z 3` now", "no option -z"),
        ("```\nEPICRISIS_BY=dense epicrisis ask LIB --setting votes.m=1   # comment\n```", "no setting votes.m"),
        ("`epicrisis library chek LIB`", "no command chek"),
        ("```\nepicrisis grade run RUN --judge URL#one   # a comment with --no-such-option\n```", None),
        ("`epicrisis experiment NAME -n 3`", None),
    ],
)
def test_planted_command_is_judged(text: str, problem: str | None) -> None:
    (command,) = commands_in(text)
    assert problem_with(command) == problem


def test_planted_link_setting_and_paths_are_found() -> None:
    page = ROOT / "README.md"
    text = "[a](docs/settings.md) [b](docs/nowhere.md) [c](CHANGELOG.md#no-such-heading) [d](https://example.org/x)"
    assert broken_links(page, text) == ["docs/nowhere.md", "CHANGELOG.md#no-such-heading"]
    assert list(settings_in("with `--setting votes.m=3`")) == ["votes.m"]
    text = "`pipeline.py` `house.py` `cli/` `evaluation/tables/` `epicrisis.api.ask` `epicrisis.opening` `words/`"
    assert missing_paths(text) == ["house.py", "evaluation/tables/", "epicrisis.opening"]
