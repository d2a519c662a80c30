"""Recompute the printed figures of the EHR study. Deviations are errata."""

from __future__ import annotations

from typing import Any

from epicrisis.evaluation.analysis.published import load_published

STUDY = {name: each for name, each in load_published().items() if each.paper.name == "EHR study"}
ARMS = ("RAG 5", "RAG 10", "RAG 15", "RAG HIR 3", "RAG HIR 5", "RAG HIR 7")


def rows(name: str) -> list[dict[str, Any]]:
    return [dict(zip(STUDY[name].table.columns, row, strict=True)) for row in STUDY[name].table.rows]


def read_notes(name: str) -> str:
    return " ".join(STUDY[name].table.notes)


def test_study_has_every_table_with_notes_as_sentences() -> None:
    assert [item.table.source for item in STUDY.values()] == [
        f"EHR study, Table {n}" for n in (1, 2, 3, 4, 6, 7, 8, 12)
    ]
    assert [len(item.table.rows) for item in STUDY.values()] == [4, 16, 21, 4, 6, 6, 7, 4]
    for each in STUDY.values():
        for note in each.table.notes:
            assert note.endswith(".")
            assert "  " not in note
            assert "\n" not in note


def test_shares_are_between_0_and_100_percent() -> None:
    for name in ("ehr-context", "ehr-retrieval", "ehr-extractive", "ehr-sparse"):
        assert all(0 < cell < 100 for row in rows(name) for cell in row.values() if not isinstance(cell, str))
    assert all(0 <= cell <= 1 for row in rows("ehr-numbers") for cell in row.values() if not isinstance(cell, str))


def test_include_all_figures_differ_between_tables() -> None:
    """Include All has other figures in each table (E5)."""
    all_lengths = {row["model"]: row for row in rows("ehr-context") if row["setting"] == "Include All"}
    for name in ("ehr-retrieval", "ehr-extractive"):
        assert "E5" in STUDY[name].errata
        for row in rows(name):
            if row["arm"] == "Include All":
                same = [column for column in row if row[column] == all_lengths[row["model"]].get(column)]
                assert same == ["model"]


def test_best_of_six_arms_wins_more_often_than_any_single_arm() -> None:
    wins = dict.fromkeys(ARMS, 0)
    best = 0
    for model in ("HuatuoGPT-o1 7B", "Qwen2.5 7B", "Qwen2.5 32B"):
        by_arm = {row["arm"]: row for row in rows("ehr-retrieval") if row["model"] == model}
        full = by_arm["Include All"]
        for column in STUDY["ehr-retrieval"].table.columns[2:]:
            best += max(by_arm[arm][column] for arm in ARMS) > full[column]
            for arm in ARMS:
                wins[arm] += by_arm[arm][column] > full[column]
    assert best == 21
    assert f"it is {', '.join(str(wins[arm]) for arm in ARMS[:5])} and {wins['RAG HIR 7']}." in read_notes(
        "ehr-retrieval"
    )
    first = rows("ehr-retrieval")[0]
    assert (first["EHRNoteQA LLM"], rows("ehr-retrieval")[5]["EHRNoteQA LLM"]) == (70.68, 70.92)
    assert "E9" in STUDY["ehr-retrieval"].errata


def test_larger_model_is_worse_on_ehr_ds_qa() -> None:
    of = {(row["setting"], row["model"]): row["EHR-DS-QA LLM"] for row in rows("ehr-context")}
    for setting in ("Include All", "Include Related"):
        small, large = of[setting, "Qwen2.5 7B"], of[setting, "Qwen2.5 32B"]
        assert small > large
        assert f"{small}" in read_notes("ehr-context")
        assert f"{large}" in read_notes("ehr-context")
    assert "E8" in STUDY["ehr-context"].errata


def test_models_without_notes_lack_overlap_on_extractive_questions_only() -> None:
    bare = [row for row in rows("ehr-context") if row["setting"] == "Exclude All" and "32B" in row["model"]]
    scores = [row[f"{name} LLM"] for row in bare for name in ("RadQA", "CliniQG4QA")]
    overlaps = [row[f"{name} F1"] for row in bare for name in ("RadQA", "CliniQG4QA")]
    assert f"{min(scores)} to {max(scores)} by the judge" in read_notes("ehr-context")
    assert f"F1 {min(overlaps)} to {max(overlaps)};" in read_notes("ehr-context")
    assert all(row["EHRNoteQA F1"] > 66 for row in bare)
    assert "E2" in STUDY["ehr-context"].errata


def test_word_metrics_are_highest_for_wrong_number() -> None:
    wrong = next(row for row in rows("ehr-numbers") if row["LLM correctness"] == 0)
    for metric in ("BERTScore F1", "METEOR"):
        assert wrong[metric] == max(row[metric] for row in rows("ehr-numbers"))
    assert "E6" in STUDY["ehr-numbers"].errata


def test_retrieval_on_radqa_gains_by_two_metrics_and_loses_by_nli() -> None:
    full, few = rows("ehr-extractive")[0::2], rows("ehr-extractive")[1::2]
    gains = [
        {column: after[column] - before[column] for column in before if "QA " in column}
        for before, after in zip(full, few, strict=True)
    ]
    assert all(gain["RadQA LLM"] > 0 and gain["RadQA F1"] > 0 for gain in gains)
    assert [round(-gain["RadQA NLI"]) for gain in gains] == [19, 20]


def test_dedicated_judges_agree_most() -> None:
    for name in ("EHR-DS-QA", "EHRNoteQA"):
        pairs = {(row["judge"], row["other judge"]): row["answers"] for row in rows("ehr-judges") if row["set"] == name}
        assert min(pairs, key=lambda pair: pairs[pair]) == ("Prometheus", "Selene-8B")
