"""Test the rescoring of saved replies: their questions, sets and refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from epicrisis.core.errors import InputError
from epicrisis.core.types import Question
from epicrisis.evaluation.rescoring.rescoring import RescoredRun, make_table, rescore_runs
from tests.support.run_folders import QUESTIONS, Outcome, answers, folder

STATES: dict[int, Outcome] = {0: "failed", 1: "abstained", 2: "unparsed"}


def write_dataset(path: Path) -> Path:
    rows = [{"id": q.id, "text": q.text, "options": dict(q.options), "gold": q.gold} for q in QUESTIONS]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def count_states(found: RescoredRun, scoring: str) -> tuple[int, ...]:
    (item,) = (score for score in found.scores if score.scoring == scoring)
    return item.right, item.wrong, item.abstained, item.unparsed, item.failed


def test_rescore_runs_reads_recorded_letters_of_own_runs(tmp_path: Path) -> None:
    first = folder(tmp_path / "a", lambda i, _: STATES.get(i, i % 2 == 0))
    second = answers(tmp_path / "b.jsonl", lambda i: STATES.get(i, i % 2 == 0))
    one, other = rescore_runs([first, second], tmp_path)
    assert count_states(one, "ours") == count_states(other, "ours") == (18, 19, 1, 1, 1)
    # MIRAGE's scorers put A where there is no letter: that is right of question 0, wrong of 1 and 2.
    assert count_states(one, "mirage-head") == (18, 21, 0, 0, 1)
    notes = " ".join(make_table([one, other]).notes)
    assert "record the letter that was read, not the words of the reply" in notes


def test_rescore_runs_scores_each_condition_separately(tmp_path: Path) -> None:
    conditions = [{"arm": arm, "place": place, "repeat": 0} for arm in ("rag", "ends") for place in (0, 100)]
    path = folder(tmp_path / "a", lambda i, at: at["arm"] == "rag", conditions=conditions, questions=QUESTIONS[:6])
    table = make_table(rescore_runs([path], tmp_path, scorings=("ours",)))
    assert table.column("condition") == ("rag, place 0", "rag, place 100", "ends, place 0", "ends, place 100")
    assert table.column("right") == (6, 6, 0, 0)


def test_rescore_runs_leaves_out_open_questions_with_notice(tmp_path: Path) -> None:
    sample = (*QUESTIONS[:4], Question("What helps?", id="open"))
    path = answers(tmp_path / "a.jsonl", lambda i: "abstained" if i == 4 else True, questions=sample)
    (run,) = rescore_runs([path], tmp_path)
    assert (run.left_out, count_states(run, "ours")) == (1, (4, 0, 0, 0, 0))
    assert "a: 1 of its questions is left out, without options or gold letter." in make_table([run]).notes
    alone = answers(tmp_path / "b.jsonl", lambda i: "abstained", questions=sample[4:])
    with pytest.raises(InputError, match="no question with options and a gold letter"):
        rescore_runs([alone], tmp_path)


def test_rescore_runs_of_released_replies_uses_named_dataset(tmp_path: Path) -> None:
    released = tmp_path / "released.jsonl"
    rows = [{"id": q.id, "outputs": [f"The answer is {q.gold}."] if q.id != "7" else []} for q in QUESTIONS]
    released.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    (run,) = rescore_runs([released], tmp_path, dataset=str(write_dataset(tmp_path / "set.jsonl")))
    assert count_states(run, "ours") == (39, 0, 0, 0, 1)
    assert run.dataset == "set.jsonl"
    table = make_table([run])
    assert table.column("run") == ("released",) * 3
    assert table.column("questions") == (40,) * 3
    assert "released answers set.jsonl; guessing would be right in 33.33 %." in table.notes


def test_rescore_runs_reads_mirage_folder(tmp_path: Path) -> None:
    (tmp_path / "gpt").mkdir()
    for question in QUESTIONS:
        text = json.dumps([f'{{"answer_choice": "{question.gold}"}}'])
        (tmp_path / "gpt" / f"test_{question.id}.json").write_text(text, encoding="utf-8")
    (run,) = rescore_runs(
        [tmp_path / "gpt"], tmp_path, dataset=str(write_dataset(tmp_path / "set.jsonl")), scorings=("ours",)
    )
    assert (run.run, count_states(run, "ours")) == ("gpt", (40, 0, 0, 0, 0))


@pytest.mark.long
@pytest.mark.data
def test_rescore_runs_identifies_mirage_set_by_ids(data_folder: Path, tmp_path: Path) -> None:
    paths = [data_folder / "mirage" / f"gpt35_cot_{name}.jsonl" for name in ("bioasq", "pubmedqa")]
    runs = rescore_runs(paths, tmp_path, data=data_folder)
    assert [item.dataset for item in runs] == ["mirage/bioasq", "mirage/pubmedqa"]
    shorter = tmp_path / "shorter.jsonl"
    shorter.write_text("".join(paths[0].read_text(encoding="utf-8").splitlines(keepends=True)[1:]), encoding="utf-8")
    with pytest.raises(
        InputError, match="its 617 ids are not those of a set of MIRAGE: pass the questions with --dataset"
    ):
        rescore_runs([shorter], tmp_path, data=data_folder)


def test_rescore_runs_with_unsuitable_input_raises_input_error(tmp_path: Path) -> None:
    run = answers(tmp_path / "a.jsonl", lambda i: True)
    with pytest.raises(InputError, match="leave --dataset out"):
        rescore_runs([run], tmp_path, dataset="mirage/bioasq")
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(InputError, match="has no line with a JSON object"):
        rescore_runs([tmp_path / "empty.jsonl"], tmp_path)
    with pytest.raises(InputError, match="no such file"):
        rescore_runs([tmp_path / "nowhere"], tmp_path)
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match="no file called"):
        rescore_runs([tmp_path / "folder"], tmp_path)
