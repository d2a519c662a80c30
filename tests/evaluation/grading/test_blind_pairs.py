"""Test blind pairs: balanced, anonymous and complete."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from epicrisis.core.errors import InputError
from epicrisis.evaluation.analysis.statistics import sign_test
from epicrisis.evaluation.grading.blind_pairs import CSV, JSONL, KEY, read_pairs, remove_citations, write_pairs
from tests.support.grading import ARMS, WRITER, pair_records, paired, questions, record, records


@pytest.mark.parametrize("n", [1, 8, 47, 48])
def test_pair_records_balance_arm_that_comes_first(n: int) -> None:
    result = paired(n)
    first = list(result.key.first.values())
    assert abs(first.count("rag") - first.count("brief-context")) == n % 2
    assert len(result.pairs) == n == result.key.asked
    for pair in result.pairs:
        by_arm = {result.key.first[pair.id]: pair.first}
        assert all(("whole" in text) == (arm == "rag") for arm, text in by_arm.items())
        assert ("whole" in pair.first) != ("whole" in pair.second)


@pytest.mark.slow
def test_pair_records_depend_on_seed_and_questions_only() -> None:
    assert paired(48) == paired(48)
    assert pair_records(reversed(records(48)), ARMS, 0) == paired(48)
    moved = [paired(48).key.first, paired(48, seed=1).key.first]
    by_question = [
        {item.key.questions[pair]: arm for pair, arm in first.items()}
        for item, first in zip((paired(48), paired(48, 1)), moved, strict=True)
    ]
    assert by_question[0] != by_question[1]


@pytest.mark.slow
def test_pair_records_order_does_not_reveal_arm() -> None:
    inputs = records(48)
    result = [pair_records(inputs, ARMS, seed) for seed in range(40)]
    runs = [[item.key.first[pair.id] for pair in item.pairs] for item in result]
    changes = sum(one != other for first in runs for one, other in pairwise(first))
    # 40 x 47 neighbours; alternating or sorted files would have all or none of them differ.
    assert 0.4 < changes / (40 * 47) < 0.65
    odd = sum(first[::2].count("rag") for first in runs)
    assert sign_test(odd, 40 * 24 - odd) > 0.001


def test_pair_records_odd_pair_has_random_first_arm() -> None:
    assert {next(iter(paired(1, seed).key.first.values())) for seed in range(10)} == set(ARMS)


def test_pair_id_changes_with_text_and_is_no_number() -> None:
    result = paired(2)
    other = [{**item, "answer": {**item["answer"], "text": item["answer"]["text"] + " Much."}} for item in records(2)]
    assert not {pair.id for pair in result.pairs} & {pair.id for pair in pair_records(other, ARMS, 0).pairs}
    assert all(pair.id.startswith("p") for pair in result.pairs)


@pytest.mark.parametrize(
    ("text", "bare"),
    [
        ("It helps. [1][2]", "It helps."),
        ("It helps [doc 3], mostly [finding 1, finding 2].", "It helps, mostly."),
        ("It helps (doc 3), mostly (findings 1 and 2).", "It helps, mostly."),
        ("It helps (see document 4).", "It helps."),
        ("The findings (95 % CI 1 to 2) hold in 3 documents.", "The findings (95 % CI 1 to 2) hold in 3 documents."),
    ],
)
def test_remove_citations_removes_labels_of_both_arms(text: str, bare: str) -> None:
    assert remove_citations(text) == bare


def test_pair_records_count_revealing_words() -> None:
    sample = questions(2)
    result = pair_records(
        [
            record(sample[0], "rag", "The documents say it helps."),
            record(sample[0], "brief-context", "It helps."),
            record(sample[1], "rag", "The documents say it helps."),
            record(sample[1], "brief-context", "The findings say it helps."),
        ],
        ARMS,
        0,
    )
    assert result.revealing == 1


def test_pair_records_with_equal_words_are_ties_without_pair() -> None:
    (question,) = questions(1)
    result = pair_records(
        [record(question, "rag", "It helps. [1]"), record(question, "brief-context", "It  Helps.")], ARMS, 0
    )
    assert result.pairs == ()
    assert result.key.same == (question.key,)


def test_pair_records_report_questions_without_pair() -> None:
    sample = questions(4)
    inputs = [
        record(sample[0], "rag", "", "abstained"),
        record(sample[0], "brief-context", "It does."),
        record(sample[1], "rag", "It does."),
        record(sample[1], "brief-context", "", "failed"),
        record(sample[2], "rag", "It does."),
        record(sample[3], "rag", "It does."),
        record(sample[3], "brief-context", "It may."),
    ]
    result = pair_records(inputs, ARMS, 0)
    assert result.key.left_out == {
        sample[0].key: {"rag": "abstained", "brief-context": "answered"},
        sample[1].key: {"rag": "answered", "brief-context": "failed"},
        sample[2].key: {"rag": "answered", "brief-context": "not asked"},
    }
    assert len(result.pairs) == 1
    assert result.key.asked == 4


def test_pair_records_of_runs_without_arms_use_strategy() -> None:
    inputs = [
        {**item, "key": item["key"].partition(" {")[0], "condition": {}} for item in records(3)
    ]  # as `evaluate --strategy` writes them, without an arm
    assert len(pair_records(inputs, ARMS, 0).pairs) == 3


def test_pair_records_with_missing_or_repeated_arm_raise_input_error() -> None:
    with pytest.raises(InputError, match="no record of brief-context: name runs of both rag and brief-context"):
        pair_records([item for item in records(2) if item["condition"]["arm"] == "rag"], ARMS, 0)
    with pytest.raises(InputError, match="rag answered question '0' twice"):
        pair_records([*records(2), *records(1)], ARMS, 0)


# -- files ------------------------------------------------------------------------------------------------------------


def test_written_pairs_reveal_nothing_about_arms(tmp_path: Path) -> None:
    result = paired(6)
    write_pairs(result, tmp_path)
    for name in (CSV, JSONL):
        text = (tmp_path / name).read_text("utf-8")
        assert not [hint for hint in (*ARMS, WRITER, "seed", result.key.questions[result.pairs[0].id]) if hint in text]
    key = json.loads((tmp_path / KEY).read_text("utf-8"))
    assert key["first"] == dict(result.key.first)
    assert key["writers"] == [WRITER]
    assert read_pairs(tmp_path) == result


def test_written_csv_is_readable_row_by_row(tmp_path: Path) -> None:
    sample = replace(questions(1)[0], text='Does "X", or Y, help?\nSay why.')
    result = pair_records(
        [record(sample, "rag", "It; does."), record(sample, "brief-context", "Größer als α.")], ARMS, 0
    )
    write_pairs(result, tmp_path)
    assert (tmp_path / CSV).read_bytes().startswith(b"\xef\xbb\xbf")
    with (tmp_path / CSV).open(encoding="utf-8-sig", newline="") as file:
        (row,) = csv.DictReader(file)
    assert row["question"] == sample.text
    assert {row["answer 1"], row["answer 2"]} == {"It; does.", "Größer als α."}
    assert (row["verdict"], row["reviewer"], row["why"]) == ("", "", "")


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "＝"])
def test_written_csv_has_no_formula(tmp_path: Path, start: str) -> None:
    evil = f'{start}HYPERLINK("http://127.0.0.1/"&A1)'
    (question,) = questions(1)
    write_pairs(
        pair_records([record(question, "rag", evil), record(question, "brief-context", "No.")], ARMS, 0), tmp_path
    )
    with (tmp_path / CSV).open(encoding="utf-8-sig", newline="") as file:
        (row,) = csv.DictReader(file)
    assert f"'{evil}" in (row["answer 1"], row["answer 2"])
    assert evil in json.loads((tmp_path / JSONL).read_text("utf-8")).values()


def test_write_pairs_refuses_to_overwrite(tmp_path: Path) -> None:
    write_pairs(paired(2), tmp_path)
    before = (tmp_path / CSV).read_bytes()
    with pytest.raises(InputError, match=r"holds pairs\.csv already"):
        write_pairs(paired(3), tmp_path)
    assert (tmp_path / CSV).read_bytes() == before


@pytest.mark.skipif(os.name != "posix", reason="modes are of POSIX")
def test_written_pairs_are_private_to_owner(tmp_path: Path) -> None:
    write_pairs(paired(2), tmp_path / "judging")
    result = [tmp_path / "judging", *(tmp_path / "judging" / name for name in (CSV, JSONL, KEY))]
    assert [path.stat().st_mode & 0o777 for path in result] == [0o700, 0o600, 0o600, 0o600]


def test_written_pairs_keep_unicode_line_separators(tmp_path: Path) -> None:
    (question,) = questions(1)
    result = pair_records(
        [record(question, "rag", "It\u2028helps."), record(question, "brief-context", "It\x85may.")], ARMS, 0
    )
    write_pairs(result, tmp_path)
    assert read_pairs(tmp_path) == result


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda folder: (folder / KEY).unlink(), r"pairs\.key\.json: No such file"),
        (lambda folder: (folder / KEY).write_text("{}"), "were changed"),
        (lambda folder: (folder / JSONL).write_text(""), "were changed"),
        (
            lambda folder: (folder / JSONL).write_text((folder / JSONL).read_text().replace("whole", "whole,")),
            "were changed",
        ),
        (lambda folder: (folder / KEY).write_text('{"format": 9}'), "has format 9, but this version reads format 1"),
    ],
)
def test_read_pairs_with_changed_files_raises_input_error(
    tmp_path: Path, spoil: Callable[[Path], object], message: str
) -> None:
    write_pairs(paired(3), tmp_path)
    spoil(tmp_path)
    with pytest.raises(InputError, match=message):
        read_pairs(tmp_path)
