"""`epicrisis ask` without a chat model: sentences of the library, no model opened, and what names a model."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import epicrisis
from epicrisis.core.errors import ModelMissing
from epicrisis.models.chat import loading
from epicrisis.settings.configuration import NO_MODEL, choose_strategy, load_settings
from tests.cli.conftest import Run

QUESTION = "Does aspirin lower the risk of pre-eclampsia?"
SENTENCE = "Aspirin lowers the risk of preterm pre-eclampsia."


@pytest.fixture
def encoder_only(tmp_path: Path, small_library: Path, model_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Select a folder of models with the encoder and no chat model, and return the library."""
    home = tmp_path / "home"
    shutil.copytree(model_home / "models" / "minilm", home / "models" / "minilm")
    monkeypatch.setenv("EPICRISIS_HOME", str(home))
    return small_library


@pytest.mark.long
@pytest.mark.models
def test_ask_without_model_shows_sentences_and_opens_no_chat_model(
    encoder_only: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("a chat model was opened")

    monkeypatch.setattr(loading, "load_chat", refuse)
    result = run("ask", encoder_only, QUESTION)
    assert result.exit_code == 0, result.stderr
    assert result.stdout.count("without a chat model no answer is written") == 1
    assert "--model" in result.stdout
    assert "for demonstration" not in result.stdout
    assert SENTENCE in result.stdout
    assert not (encoder_only / "replies.sqlite").exists()
    answer = json.loads(run("ask", encoder_only, QUESTION, "--json").stdout)
    assert (answer["strategy"], answer["state"], answer["usage"]["calls"]) == ("evidence", "answered", 0)
    assert answer["claims"][0]["text"] == SENTENCE
    assert answer["citations"][0]["document_id"] == "a"


@pytest.mark.slow
@pytest.mark.models
def test_ask_without_model_abstains_from_choosing(encoder_only: Path, run: Run) -> None:
    result = run("ask", encoder_only, QUESTION, "--options", "yes,no", "--json")
    answer = json.loads(result.stdout)
    assert (result.exit_code, answer["state"], answer["choice"]) == (0, "abstained", None)
    assert answer["claims"][0]["text"] == SENTENCE


@pytest.mark.long
@pytest.mark.models
def test_ask_file_without_model_saves_sentences(encoder_only: Path, run: Run, tmp_path: Path) -> None:
    questions, output = tmp_path / "questions.jsonl", tmp_path / "answers.jsonl"
    rows = [{"id": "1", "text": QUESTION}, {"id": "2", "text": "What does zinc do in children?"}]
    questions.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    arguments = ("ask", encoder_only, "--file", questions, "-o", output)
    result = run(*arguments)
    assert result.exit_code == 0, result.stderr
    assert result.stderr.splitlines()[0] == f"note: {NO_MODEL}"
    first = output.read_bytes()
    answers = [json.loads(line)["answer"] for line in first.splitlines()]
    assert [answer["claims"][0]["text"][:7] for answer in answers] == ["Aspirin", "Zinc sh"]
    assert run(*arguments, "--json").exit_code == 0
    assert output.read_bytes() == first
    conflicting = run(*arguments, "--setting", "sentences=2")
    assert conflicting.exit_code == 2
    assert "made with other settings" in conflicting.stderr


@pytest.mark.slow
@pytest.mark.models
@pytest.mark.parametrize("by", ["hybrid", "bm25"])
def test_ask_without_encoder_names_the_cure_in_one_line(
    by: str, small_library: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EPICRISIS_HOME", str(tmp_path / "empty"))
    result = run("ask", small_library, QUESTION, "--by", by)
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert "epicrisis models pull minilm" in line
    assert "Traceback" not in result.output


@pytest.mark.slow
@pytest.mark.models
def test_ask_by_bm25_ranks_sentences_with_the_encoder(encoder_only: Path, run: Run) -> None:
    answer = json.loads(run("ask", encoder_only, QUESTION, "--by", "bm25", "--json").stdout)
    assert answer["claims"][0]["text"] == SENTENCE


@pytest.mark.long
@pytest.mark.models
def test_plan_of_evidence_has_no_calls(encoder_only: Path, run: Run) -> None:
    result = run("plan", encoder_only, QUESTION, "--strategy", "evidence")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith("1 question on no chat model")
    plan = json.loads(run("plan", encoder_only, QUESTION, "--strategy", "evidence", "--json").stdout)
    assert plan["strategies"][0]["calls"]["most"] == 0


@pytest.mark.long
@pytest.mark.models
def test_python_ask_without_model_returns_claims(encoder_only: Path) -> None:
    answer = epicrisis.ask(encoder_only, QUESTION)
    assert (answer.strategy, answer.claims[0].text) == ("evidence", SENTENCE)
    assert answer.claims[0].support == "supported"
    with pytest.raises(ModelMissing):
        epicrisis.ask(encoder_only, QUESTION, strategy="rag")


@pytest.mark.parametrize(
    "flags",
    [
        {"models": {"writer": {"name": "smollm2-135m"}}},
        {"models": {"map": {"name": "smollm2-135m"}}},
        {"models": {"reduce": {"name": "http://127.0.0.1:9/v1#m"}}},
        {"strategy": "brief-context"},
        {"preset": "ehr"},
    ],
)
def test_named_model_or_chosen_strategy_is_kept(flags: dict[str, Any]) -> None:
    settings = load_settings(flags)
    assert choose_strategy(settings) == (settings, ())


def test_model_in_environment_or_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('[models.writer]\nname = "smollm2-135m"\n', encoding="utf-8")
    assert choose_strategy(load_settings({}, file))[0].strategy == "brief-context"
    monkeypatch.setenv("EPICRISIS_MODELS__WRITER__TRIES", "1")
    settings, notices = choose_strategy(load_settings())
    assert settings.strategy == "evidence"
    assert [notice.message for notice in notices] == [NO_MODEL]
    monkeypatch.setenv("EPICRISIS_MODELS__WRITER__NAME", "smollm2-135m")
    assert choose_strategy(load_settings())[0].strategy == "brief-context"


def test_judge_alone_names_no_model_for_answers() -> None:
    assert choose_strategy(load_settings({"models": {"judge": {"name": "m.gguf"}}}))[0].strategy == "evidence"
