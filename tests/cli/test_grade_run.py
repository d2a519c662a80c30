"""`epicrisis grade run` and `grade calibrate`, with a judge on loopback."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from epicrisis.core.prompts import unfence
from epicrisis.core.protocols import ChatRequest
from epicrisis.core.types import Document, Passage
from epicrisis.evaluation.grading.human_scores import PAIRS, RATES, SCORES, SUMMARIES
from epicrisis.evaluation.grading.measurements import MEASURES
from epicrisis.library.write.ingest import add_documents, open_or_create
from epicrisis.testing.chat import ScriptedModel
from epicrisis.testing.hashing_encoder import HashingEncoder
from tests.cli.conftest import Run
from tests.support.measuring import folder_of, graded, note, question, record, shown
from tests.support.served_models import served


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty home, so that only replies and calibrations of this test are kept."""
    monkeypatch.setenv("EPICRISIS_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("EPICRISIS_DATA", raising=False)
    return tmp_path / "home"


def reply_by_length(request: ChatRequest) -> str:
    """Return a grade that grows with the length of the answer, or the longer answer of a pair."""
    texts = unfence(request.messages[-1].content)
    if len(texts) == 2:
        longer = max(range(2), key=lambda place: len(texts[place]))
        return json.dumps({"reason": "It is longer.", "verdict": str(longer + 1)})
    grade = min(5, len(shown(request)[2].split()))
    return graded(grade, grade, grade)


def write_run(path: Path, patient: str | None = None) -> Path:
    texts = ("one", "one two", "one two three four five")
    lines = [record(question(i, patient=patient), text) for i, text in enumerate(texts)]
    return folder_of(path, [*lines, record(question(9, patient=patient), "", "failed", failure="EmptyReply")])


def test_grade_help_shows_example(run: Run) -> None:
    for command in (("grade", "run"), ("grade", "calibrate")):
        result = run(*command, "--help")
        assert result.exit_code == 0
        assert "--json" in result.stdout
        assert f"epicrisis {' '.join(command)}" in result.stdout


@pytest.mark.slow
def test_grade_run_repeated_calls_judge_once(tmp_path: Path, run: Run) -> None:
    folder = write_run(tmp_path / "ehr")
    with served(ScriptedModel(reply_by_length)) as server:
        arguments = ("grade", "run", folder, "--no-meteor", "--judge", f"{server.url}#one")
        for _ in range(2):
            result = run(*arguments)
            assert result.exit_code == 0, result.output
        assert server.ledger.calls == 3, "no answer is judged twice"
        assert "judge-correctness[one]" in result.stdout
        assert "3 answered, 1 empty" in result.stdout
        assert "The agreement of one with people is not known: epicrisis grade calibrate --model one" in result.stdout
        output = json.loads(run(*arguments, "--json").stdout)["runs"][0]
    assert output["endings"] == {"answered": 3, "empty": 1}
    rows = {row[0]: row for row in output["table"]["rows"]}
    assert rows["judge-completeness[one]"][1]["value"] == pytest.approx((0 + 0.25 + 1) / 3)
    assert rows["exact-match"][1]["value"] == 0.0
    assert len(list((folder / MEASURES).glob("judge*.jsonl"))) == 1


@pytest.mark.slow
def test_grade_run_two_judges_without_model_name_have_separate_grades(tmp_path: Path, run: Run) -> None:
    folder = write_run(tmp_path / "ehr")

    def strict(request: ChatRequest) -> str:
        return json.dumps({"reason": "no", "correctness": 1, "completeness": 1, "faithfulness": 1})

    with served(ScriptedModel(reply_by_length)) as one, served(ScriptedModel(strict)) as two:
        arguments = ("grade", "run", folder, "--no-meteor", "--json")
        both = run(*arguments, "--judge", one.url, "--judge", two.url)
        assert both.exit_code == 0, both.output
        names = [server.url.partition("://")[2].removesuffix("/v1") for server in (one, two)]
        rows = {row[0]: row for row in json.loads(both.stdout)["runs"][0]["table"]["rows"]}
        means = [rows[f"judge-completeness[{name}]"][1]["value"] for name in names]
        assert means == [pytest.approx((0 + 0.25 + 1) / 3), 0.0]
        assert len(list((folder / MEASURES).glob("judge*.jsonl"))) == 2
        calls = one.ledger.calls, two.ledger.calls
        again = run(*arguments, "--judge", two.url, "--judge", one.url)
        assert again.stdout == both.stdout
        assert (one.ledger.calls, two.ledger.calls) == calls
        refused = run(*arguments, "--judge", f"{one.url}#m", "--judge", f"{two.url}#m")
        assert refused.exit_code == 2
        assert "two judges have the short name m" in refused.stderr
        assert run(*arguments, "--judge", f"{one.url}#m").exit_code == 0
        later = run(*arguments, "--judge", f"{two.url}#m")
        assert later.exit_code == 2
        assert "has the same short name" in later.stderr


def test_grade_run_judge_that_wrote_answers_is_warned_about(tmp_path: Path, run: Run) -> None:
    folder = write_run(tmp_path / "ehr")
    with served(ScriptedModel(reply_by_length)) as server:
        result = run("grade", "run", folder, "--no-meteor", "--judge", f"{server.url}#writer-model")
    assert "Warning: writer-model judges answers and wrote them" in result.stdout
    assert "errata E4" in result.stdout


def test_grade_run_patient_answers_need_local_judge_and_no_shared_cache(tmp_path: Path, run: Run, home: Path) -> None:
    folder = write_run(tmp_path / "ehr", patient="anna")
    refused = run("grade", "run", folder, "--no-meteor", "--judge", "https://judge.example.org/v1#one")
    assert refused.exit_code == 2
    assert "--allow-remote" in refused.stderr
    with served(ScriptedModel(reply_by_length)) as server:
        result = run("grade", "run", folder, "--no-meteor", "--judge", f"{server.url}#one")
    assert result.exit_code == 0, result.output
    assert not list(home.rglob("*")), "no cache of replies"


@pytest.mark.slow
def test_grade_run_expensive_judge_needs_confirmation(tmp_path: Path, run: Run) -> None:
    folder = write_run(tmp_path / "ehr")
    config = tmp_path / "dear.toml"
    config.write_text(
        "[models.judge]\nprice = {input = 900.0, output = 9000.0}\n[plan]\nask_above_usd = 0.5\n", encoding="utf-8"
    )
    with served(ScriptedModel(reply_by_length)) as server:
        arguments = ("grade", "run", folder, "--no-meteor", "--judge", f"{server.url}#one", "--config", config)
        result = run(*arguments)
        assert result.exit_code == 2
        assert "3 cases on" in result.stderr
        assert "add --yes to run it" in result.stderr
        assert server.ledger.calls == 0
        assert run(*arguments, "--yes").exit_code == 0
        assert server.ledger.calls == 3


@pytest.mark.slow
def test_grade_run_cost_estimate_includes_notes(tmp_path: Path, run: Run) -> None:
    """At $100 per million tokens three answers cost cents, and their notes of 40,000 characters a dollar each."""
    long_note = note("anna", "He had 40 mg of furosemide. " * 1500)
    lines = [record(question(i, patient="anna"), f"{i} mg.", given=[long_note]) for i in range(3)]
    folder, config, library = folder_of(tmp_path / "ehr", lines), tmp_path / "dear.toml", tmp_path / "ward"
    config.write_text("[models.judge]\nprice = {input = 100.0, output = 0.0}\n[plan]\nask_above_usd = 1.0\n")
    with open_or_create(library, HashingEncoder(), "hashing") as store:
        add_documents(
            store, [Document(id=long_note.document_id, text=long_note.text, patient="anna")], HashingEncoder()
        )
    with served(ScriptedModel(reply_by_length)) as server:
        arguments = ("grade", "run", folder, "--no-meteor", "--judge", f"{server.url}#one", "--config", config)
        assert "3 cases on" not in run(*arguments).stderr
        assert server.ledger.calls == 3
        result = run(*arguments, "--against-notes", library)
        assert result.exit_code == 2, result.output
        assert "3 cases on" in result.stderr
        assert "expected to cost $3." in result.stderr
        assert server.ledger.calls == 3


def test_grade_invalid_input_reports_one_line(tmp_path: Path, run: Run) -> None:
    ungradable = folder_of(tmp_path / "nothing", [record(question(gold=None), "40 mg")])
    for arguments, message in (
        (("run", tmp_path / "none"), "give the folder of a run, or a file of answers"),
        (("run", ungradable), "has no answer to measure: choose a run of open questions with a reference"),
        (("run", write_run(tmp_path / "ehr"), "--against-notes", tmp_path), "--against-notes needs a judge"),
        (("run", tmp_path / "ehr", "--no-meteor", "--nli", "no-such-model"), "no-such-model"),
        (
            ("run", tmp_path / "ehr", "--local-only", "--judge", "https://a.example.org/v1#one"),
            "is not this machine",
        ),
        (("calibrate", "--model", "http://127.0.0.1:9/v1#one"), "with --data"),
        (("calibrate", "--data", tmp_path, "--model", "http://127.0.0.1:9/v1#one"), "judge"),
    ):
        result = run("grade", *arguments)
        assert result.exit_code == 2, result.output
        assert message in result.stderr
        assert len(result.stderr.splitlines()) == 1


def write_human_scores(folder: Path, summaries: int = 12, pairs: int = 6) -> Path:
    """Write files in the published formats: longer summaries score better, and longer answers are preferred."""
    folder.mkdir(parents=True)
    with (folder / SUMMARIES).open("w", encoding="utf-8-sig", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["ID", "Dialogue", "Reference Summary", "Automatic Summary"])
        writer.writerows(
            [i, f"Doctor: Talk {i}?", "one two three four five", f"w{i} " * (1 + i % 5)] for i in range(summaries)
        )
    with (folder / SCORES).open("w", encoding="utf-8-sig", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*RATES, "Edit Distance (Correction)"])
        good = [(i % 5) / 4 for i in range(summaries)]
        writer.writerows([share, share, share, 1 - share, 1 - share, 0] for share in good)
    for subset in ("Natural", "Adversarial/Manual"):
        path = folder / PAIRS / subset / "dataset.json"
        path.parent.mkdir(parents=True)
        texts = ["long, long", "short"]
        rows = [
            {"input": f"Do {subset} {i}.", "output_1": texts[i % 2], "output_2": texts[1 - i % 2], "label": 1 + i % 2}
            for i in range(pairs)
        ]
        path.write_text(json.dumps(rows), encoding="utf-8")
    return folder.parent


@pytest.mark.slow
def test_calibrate_agreement_appears_in_grade_run(tmp_path: Path, run: Run, home: Path) -> None:
    data = write_human_scores(tmp_path / "data" / "judge")
    with served(ScriptedModel(reply_by_length)) as server:
        arguments = ("grade", "calibrate", "--data", data, "--model", f"{server.url}#one")
        result = run(*arguments)
        assert result.exit_code == 0, result.output
        assert server.ledger.calls == 12 + 2 * 12
        assert run(*arguments).exit_code == 0
        assert server.ledger.calls == 36, "no call is repeated"
        output = json.loads(run(*arguments, "--json").stdout)
        assert Path(output["output"]).is_relative_to(home)
        folder = write_run(tmp_path / "ehr")
        measured = run("grade", "run", folder, "--no-meteor", "--judge", f"{server.url}#one")
    calibration = output["calibration"]
    assert [agreement["spearman"] for agreement in calibration["with_people"]] == [pytest.approx(1.0)] * 5
    assert calibration["choices"][0]["accuracy"]["value"] == 1.0
    assert "one against people, Spearman's rho on MTS-Dialog's summaries: faithfulness with" in measured.stdout
    assert "chooses right between LLMBar's answers in 100.0 % of 12 pairs" in measured.stdout


def test_calibrate_with_sample_calls_judge_for_sample_only(tmp_path: Path, run: Run) -> None:
    data = write_human_scores(tmp_path / "data" / "judge")
    with served(ScriptedModel(reply_by_length)) as server:
        result = run(
            "grade",
            "calibrate",
            "--data",
            data,
            "--model",
            f"{server.url}#one",
            "-n",
            4,
            "-o",
            tmp_path / "out",
            "--json",
        )
        assert result.exit_code == 0, result.output
        assert server.ledger.calls == 4 + 2 * 4
    output = json.loads(result.stdout)["calibration"]
    assert output["sample"]["n"] == 4
    assert {agreement["n"] for agreement in output["with_people"]} == {4}


def test_grade_run_against_notes_grades_faithfulness_to_notes(
    tmp_path: Path, run: Run, model_home: Path, papers: Path
) -> None:
    # By its folder: the home of this test is empty.
    text = "Furosemide 40 mg was given."
    notes = tmp_path / "notes.jsonl"
    notes.write_text(json.dumps({"id": "note:anna-1", "text": text, "patient": "anna", "date": "2150"}) + "\n")
    library, folder = tmp_path / "ward", tmp_path / "ehr"
    added = run("library", "add", library, notes, papers, "--literature", "--encoder", model_home / "models" / "minilm")
    assert added.exit_code == 0, added.output
    passage = Passage(
        id="note:anna-1#0",
        document_id="note:anna-1",
        ordinal=0,
        start=0,
        end=len(text),
        text=text,
        title="",
        source="",
        date="2150",
        patient="anna",
    )
    folder_of(folder, [record(question(patient="anna"), "40 mg", given=[passage])])
    prompts: list[str] = []

    def script(request: ChatRequest) -> str:
        prompts.append(request.messages[-1].content)
        return graded(5, 5, 3)

    with served(ScriptedModel(script)) as server:
        result = run(
            "grade", "run", folder, "--no-meteor", "--judge", f"{server.url}#one", "--against-notes", library, "--json"
        )
        assert result.exit_code == 0, result.output
    table = json.loads(result.stdout)["runs"][0]["table"]
    values = {row[0]: row[1] for row in table["rows"]}
    assert values["judge-faithful-to-notes[one]"]["value"] == 0.5
    assert sum(text in prompt for prompt in prompts) == 1
    assert not any("Aspirin" in prompt for prompt in prompts), "only passages that the model read"
