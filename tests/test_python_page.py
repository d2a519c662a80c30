"""Every example of docs/python.md runs, section by section, in a folder with the files it names."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.integrations.test_inspect_task import build_model
from tests.support import run_folders
from tests.support.hostile import HostileServer
from tests.support.replies import schema_reply

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
SECTION = re.compile(r"^## (.+)\n((?:(?!^## ).*\n?)*)", re.MULTILINE)
BLOCK = re.compile(r"^```(python|toml)\n(.*?)^```", re.DOTALL | re.MULTILINE)
MODULE = re.compile(r"# (\w+)\.py\n")
ENDPOINT = "http://127.0.0.1:8000/v1#qwen"
FRAMEWORKS = ("LangChain", "LlamaIndex", "Inspect")
SECTIONS = {title: BLOCK.findall(text) for title, text in SECTION.findall(PAGE)}
WITH_EXAMPLES = [title for title, blocks in SECTIONS.items() if blocks]


def mark(title: str) -> Any:
    marks = [pytest.mark.models]
    return pytest.param(title, id=title, marks=[*marks, pytest.mark.integrations] if title in FRAMEWORKS else marks)


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory, model_home: Path) -> Path:
    """A folder with all files that the page names, and with the library of its first section."""
    folder = tmp_path_factory.mktemp("page")
    papers, reports = folder / "papers", folder / "reports"
    papers.mkdir()
    reports.mkdir()
    demo = (ROOT / "demo" / "documents.jsonl").read_text(encoding="utf-8").splitlines()
    chosen = [line for line in demo if "Lynch" in line or "Reye" in line]
    (papers / "abstracts.jsonl").write_text("\n".join(chosen), encoding="utf-8")
    (reports / "gout.our").write_text("Colchicine helps in gout.", encoding="utf-8")
    questions = (ROOT / "demo" / "questions.jsonl").read_text(encoding="utf-8").splitlines()
    with_options = [line for line in questions if "options" in line]
    (folder / "questions.jsonl").write_text("\n".join(with_options[:3]), encoding="utf-8")
    for name in ("rag", "brief-context"):
        run_folders.folder(folder / "runs" / name, lambda number, _: number % 2 == 0, name=name)
    return folder


@pytest.fixture
def place(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(workplace)
    return workplace


def run_section(title: str, folder: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the examples of a section in one namespace, and install the package that it shows, if any."""
    namespace: dict[str, Any] = {}
    exec("import epicrisis", namespace)
    if title == "Inspect":
        namespace["scripted_model"] = build_model(3)
    for language, code in SECTIONS[title]:
        if language == "toml":
            install_metadata(folder / "site", tomllib.loads(code)["project"])
        elif module := MODULE.match(code):
            (folder / "site" / f"{module[1]}.py").write_text(code, encoding="utf-8")
            monkeypatch.syspath_prepend(str(folder / "site"))
        else:
            code = code.replace(ENDPOINT, url).replace('"openai/gpt-4o-mini"', "scripted_model")
            exec(compile(code, f"docs/python.md, {title}", "exec"), namespace)


def install_metadata(folder: Path, project: dict[str, Any]) -> None:
    """Write the metadata that an installer would write."""
    place = folder / f"{project['name'].replace('-', '_')}-1.0.dist-info"
    place.mkdir(parents=True)
    (place / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 1.0\n", encoding="utf-8")
    lines = []
    for group, entries in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in entries.items())]
    (place / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")


@pytest.mark.long
@pytest.mark.parametrize("title", list(map(mark, WITH_EXAMPLES)))
def test_examples_of_section_run(
    title: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first = WITH_EXAMPLES[0]
    with HostileServer(schema_reply) as server:
        if title != first and not (place / "aspirin").exists():
            run_section(first, place, server.url, monkeypatch)
        run_section(title, place, server.url, monkeypatch)
    sys.modules.pop("our_package", None)
    printed = capsys.readouterr().out
    assert printed
    expected = {
        first: "2 documents added, 0 skipped",
        "Three scripts": "['anna', 'bert']\n",
        "Keep answers and read runs": "brief-context",
        "Your own encoder, chat model, reranker, file format or store": "1 document added\n<Ranking by hybrid+our-"
        "reranker: 1 passage: gout>\nabstained\n1 added to our-store\n",
        "Inspect": "success 3 questions",
    }.get(title, "")
    assert expected in printed
    if title == "Three scripts":
        assert "randomised trial" in (place / "studies.csv").read_text(encoding="utf-8")
        assert (place / "answer-2.docx").stat().st_size
        assert printed.endswith("Allopurinol was stopped after a rash.\n")


def test_scripts_are_short_and_import_epicrisis_alone() -> None:
    scripts = [code for _, code in SECTIONS["Three scripts"]]
    assert len(scripts) == 3
    for code in scripts:
        assert len(code.splitlines()) <= 20
        assert re.findall(r"^(?:import|from) .*$", code, re.MULTILINE) == ["import epicrisis"]


def test_page_has_examples_of_every_kind() -> None:
    """A broken pattern must not pass for a page without faults."""
    assert len(WITH_EXAMPLES) >= 9
    assert {*FRAMEWORKS} <= SECTIONS.keys()
    assert sum(len(blocks) for blocks in SECTIONS.values()) >= 14
