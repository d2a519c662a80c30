"""The task for Inspect, run by Inspect with its scripted model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from epicrisis import EpicrisisError, Library
from epicrisis.core.errors import InputError

pytestmark = pytest.mark.integrations

try:
    from inspect_ai import eval as run_inspect
    from inspect_ai.model import ModelOutput, ModelUsage, get_model

    from epicrisis.integrations.inspect_task import evidence_questions
except (ImportError, EpicrisisError):
    # Skipped, saying so: tests/conftest.py.
    pass


def build_model(calls: int) -> Any:
    """Return a model that answers with A. It says its usage, for which Inspect would download a tokenizer."""
    outputs = []
    for _ in range(calls):
        output = ModelOutput.from_content("mockllm/model", "ANSWER: A")
        output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
        outputs.append(output)
    return get_model("mockllm/model", custom_outputs=outputs)


def write_questions(folder: Path, *rows: dict[str, Any]) -> Path:
    path = folder / "questions.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_task_gives_evidence_and_scores_letters(library: Library, tmp_path: Path) -> None:
    options = {"A": "yes", "B": "no"}
    questions = write_questions(
        tmp_path,
        {"id": "q1", "text": "Does aspirin prevent pre-eclampsia?", "options": options, "gold": "A"},
        {"id": "q2", "text": "Does zinc prolong diarrhoea?", "options": options, "gold": "B"},
    )
    model = build_model(2)
    (log,) = run_inspect(
        evidence_questions(str(library.path), str(questions), k=1, by="bm25"),
        model=model,
        log_dir=str(tmp_path / "logs"),
        display="none",
    )
    assert log.status == "success", log.error
    samples = {str(sample.id): sample for sample in log.samples}
    assert {id_: sample.scores["choice"].value for id_, sample in samples.items()} == {"q1": "C", "q2": "I"}
    assert samples["q2"].metadata["evidence"] == ["pubmed:3"]
    system = samples["q2"].messages[0].content
    assert "<documents>\n[doc 1] Zinc (2002)\nZinc shortens acute diarrhoea in children.\n</documents>" in system


def test_question_without_options_is_refused(library: Library, tmp_path: Path) -> None:
    questions = write_questions(tmp_path, {"id": "q1", "text": "What is given?", "gold": "zinc"})
    with pytest.raises(InputError, match="question q1 has no options"):
        evidence_questions(str(library.path), str(questions))
