"""A strategy is one file: everything that names strategies finds it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import epicrisis
from epicrisis.answering.strategy import find_strategy, list_strategies
from epicrisis.core.errors import InputError
from epicrisis.core.strategy_names import list_strategy_names

TWO_PASS = '''
"""Two-pass RAG."""

from epicrisis.answering.strategies.rag import rag
from epicrisis.answering.strategy import Strategy

STRATEGY = Strategy(name="two-pass", run=rag, label="Read everything twice", help="RAG, and RAG again.", routes=True)
'''
SHOW = """
import json
from typing import get_args
from epicrisis.answering.strategy import find_strategy, writes_citations
from epicrisis.core.strategy_names import StrategyName
from epicrisis.cli.options import STRATEGY
from epicrisis.server.page.question_form import find_strategy as of_page
from epicrisis.server.libraries.resources import RequestSettings, list_possible_strategies
from epicrisis.settings.settings import Settings
settings = Settings(models={"writer": {"name": "http://localhost:1/v1#model"}})
schema = json.dumps(RequestSettings.model_json_schema())
print(json.dumps({
    "settings": Settings(strategy="two-pass").strategy,
    "help": "two-pass" in STRATEGY.option.help,
    "page": of_page("two-pass").label,
    "server": "two-pass" in list_possible_strategies(settings),
    "schema": "two-pass" in schema,
    "warnings": writes_citations("two-pass"),
}))
"""


@pytest.mark.slow
def test_strategy_in_one_new_file_is_known_everywhere(tmp_path: Path) -> None:
    source = Path(epicrisis.__file__).parent
    package = tmp_path / "epicrisis"
    package.mkdir()
    for path in source.iterdir():
        if path.name != "answering":
            (package / path.name).symlink_to(path)
    (package / "answering").mkdir()
    for path in (source / "answering").iterdir():
        if path.name != "strategies" and path.name != "strategy.py":
            (package / "answering" / path.name).symlink_to(path)
    (package / "answering" / "strategy.py").write_bytes((source / "answering" / "strategy.py").read_bytes())
    (package / "answering" / "strategies").mkdir()
    for path in (source / "answering" / "strategies").glob("*.py"):
        (package / "answering" / "strategies" / path.name).write_bytes(path.read_bytes())
    (package / "answering" / "strategies" / "two_pass.py").write_text(TWO_PASS, encoding="utf-8")
    command = [sys.executable, "-c", SHOW]
    done = subprocess.run(
        command,
        env={"PYTHONPATH": str(tmp_path), "PATH": "", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == {
        "settings": "two-pass",
        "help": True,
        "page": "Read everything twice",
        "server": True,
        "schema": True,
        "warnings": True,
    }


def test_files_and_names_agree_and_every_strategy_is_described() -> None:
    found = list_strategies()
    assert sorted(strategy.name for strategy in found) == list(list_strategy_names())
    assert all(strategy.label and strategy.help.endswith(".") for strategy in found)
    assert [strategy.name for strategy in found if not strategy.needs_model] == ["evidence"]
    assert [strategy.name for strategy in found if strategy.checks_rankings] == ["brief-context"]


def test_unknown_strategy_names_the_known_ones() -> None:
    with pytest.raises(InputError, match="no strategy is called nonsense: known are brief-context"):
        find_strategy("nonsense")


@pytest.mark.parametrize(
    ("name", "preflight", "compares"),
    [("evidence", False, True), ("brief-context", True, True), ("brief-context", False, False), ("rag", True, False)],
)
def test_encoder_is_needed_for_sentences_and_for_checked_rankings(name: str, preflight: bool, compares: bool) -> None:
    assert find_strategy(name).compares_texts(preflight) is compares
