"""Commands that calibrate, score again and generate: one run of each on real data, with a real model where one asks."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from epicrisis.cli.program import app
from epicrisis.core.types import Question
from epicrisis.corpus.readers.question_files import read_questions

pytestmark = [pytest.mark.data, pytest.mark.models, pytest.mark.long]

DEMO = ("--model", "smollm2-135m")
CLAIMS, ABSTRACTS = 80, 300


def run(*arguments: object) -> Result:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result


def write_lines(path: Path, rows: list[dict[str, object]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def questions(data_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """Return a function that writes the first questions of PubMedQA into a file."""
    folder = tmp_path_factory.mktemp("pubmedqa")

    def write(n: int) -> Path:
        items = islice(read_questions(data_folder / "pubmedqa" / "ori_pqal.json"), n)
        rows: list[dict[str, object]] = []
        for item in items:
            assert isinstance(item, Question)
            rows.append({"id": item.id, "text": item.text, "options": dict(item.options), "gold": item.gold})
        return write_lines(folder / f"{n}.jsonl", rows)

    return write


@pytest.fixture(scope="module")
def scifact(data_folder: Path, tmp_path_factory: pytest.TempPathFactory, model_home: Path) -> tuple[Path, Path]:
    """Return a library of SciFact's abstracts and a file of claims with the abstracts that speak of them."""
    path = Path(__file__).parents[2] / "benchmarks" / "literature_retrieval.py"
    spec = importlib.util.spec_from_file_location("literature_retrieval", path)
    assert spec is not None
    assert spec.loader is not None
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    claims = benchmark.scifact_claims(data_folder)[:CLAIMS]
    gold = {document for _, documents in claims for document in documents}
    folder = tmp_path_factory.mktemp("scifact")
    documents: list[dict[str, object]] = []
    for document in benchmark.scifact(data_folder):
        if document.id in gold or len(documents) < ABSTRACTS:
            documents.append({"id": document.id, "title": document.title, "text": document.text})
    rows: list[dict[str, object]] = [
        {"id": str(number), "text": claim, "gold_documents": sorted(documents)}
        for number, (claim, documents) in enumerate(claims)
    ]
    run("library", "add", folder / "library", write_lines(folder / "abstracts.jsonl", documents))
    return folder / "library", write_lines(folder / "claims.jsonl", rows)


def test_preflight_calibrate_fits_a_rule_to_scifact(scifact: tuple[Path, Path], tmp_path: Path) -> None:
    library, claims = scifact
    arguments = ("--library", library, "--file", claims, "--definition", "published", "--recall", "0.5")
    result = run("preflight", "calibrate", *arguments, "-o", tmp_path / "rankings.jsonl")
    assert "fitted, held out" in result.stdout
    assert "[preflight]" in result.stdout
    rankings = (tmp_path / "rankings.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(rankings) == CLAIMS


def test_confidence_of_next_tokens_is_calibrated(questions: Callable[[int], Path], tmp_path: Path) -> None:
    answers = tmp_path / "answers"
    run("evaluate", questions(60), "--strategy", "zero-shot", *DEMO, "-o", answers, "--yes")
    shown = json.loads(run("calibrate", "confidence", "--file", answers, "-o", tmp_path / "c.json", "--json").stdout)
    assert shown["calibration"] == json.loads((tmp_path / "c.json").read_text(encoding="utf-8"))
    assert (shown["calibration"]["strategy"], shown["calibration"]["components"]) == ("zero-shot", ["probability"])
    assert shown["tables"][0]["rows"][0][0] == "before"


def test_judge_is_calibrated_against_people(data_folder: Path, tmp_path: Path) -> None:
    result = run("grade", "calibrate", *DEMO, "--data", data_folder, "-n", 1, "-o", tmp_path / "judge", "--yes")
    assert "summaries" in result.stdout
    assert any((tmp_path / "judge").rglob("*.jsonl"))


def test_released_replies_are_scored_by_three_rules(data_folder: Path) -> None:
    file = data_folder / "mirage" / "gpt35_cot_pubmedqa.jsonl"
    (shown,) = json.loads(run("rescore", file, "--data", data_folder, "--json").stdout)
    scores = shown["scores"]
    assert [(score["scoring"], score["right"], score["n"]) for score in scores] == [
        ("ours", 181, 500),
        ("mirage-2024", 180, 500),
        ("mirage-head", 180, 500),
    ]


def test_questions_are_generated_from_an_abstract(scifact: tuple[Path, Path], tmp_path: Path) -> None:
    output = tmp_path / "generated.jsonl"
    data = json.loads(run("questions", "generate", scifact[0], "-n", 1, *DEMO, "-o", output, "--json").stdout)
    assert (data["drawn"], data["failed"]) == (1, 0)
    (line,) = map(json.loads, output.read_text(encoding="utf-8").splitlines())
    assert line["state"] in ("proposed", "left-out")


def test_sample_size_for_the_papers_105_questions() -> None:
    data = json.loads(run("sample-size", "--difference", 5, "--comparisons", 5, "--available", 105, "--json").stdout)
    assert data["questions"] == 932
    assert data["smallest"] == pytest.approx(0.147, abs=0.0005)
