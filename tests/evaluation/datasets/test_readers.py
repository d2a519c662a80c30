"""Test the readers of question sets and their error messages."""

from __future__ import annotations

import hashlib
import json
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from epicrisis.core.errors import InputError
from epicrisis.core.types import Question
from epicrisis.evaluation.datasets import published_sets as published
from epicrisis.evaluation.datasets.load import load_catalogue, load_dataset, parse_catalogue
from epicrisis.evaluation.datasets.pinned_readers import (
    MEDQ_COLUMNS,
    read_medq,
    read_mirage,
    read_prompt_engine,
    read_pubmedqa,
)

ENTRY: dict[str, Any] = {"question": "Does it help?", "options": {"A": "yes", "B": "no"}, "answer": "B"}
ABSTRACT: dict[str, Any] = {"QUESTION": "Does it?", "CONTEXTS": ["We asked.", "It did."], "final_decision": "yes"}


def write_file(folder: Path, name: str, value: object) -> Path:
    path = folder / name
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return path


# -- MIRAGE ---------------------------------------------------------------------------------------------------------


def test_read_mirage_question(tmp_path: Path) -> None:
    path = write_file(tmp_path, "b.json", {"bioasq": {"5c": {**ENTRY, "PMID": [7, 9]}}, "pubmedqa": {"12": ENTRY}})
    sample = Question(text="Does it help?", options={"A": "yes", "B": "no"}, form="choice", id="5c", gold="B")
    (bioasq,), (without_pmid,) = read_mirage(path, "bioasq"), read_mirage(path, "pubmedqa")
    assert (bioasq.text, bioasq.options, bioasq.form, bioasq.id, bioasq.gold) == (
        sample.text,
        sample.options,
        sample.form,
        sample.id,
        sample.gold,
    )
    assert bioasq.gold_documents == ("pubmed:7", "pubmed:9")
    assert without_pmid.gold_documents == ("pubmed:12",)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "not MIRAGE's benchmark.json"),
        ([], "not MIRAGE's benchmark.json"),
        ({"bioasq": {"1": {**ENTRY, "options": {"yes": "x", "no": "y"}}}}, r"at bioasq\.1\.options"),
        ({"bioasq": {"1": {**ENTRY, "question": ""}}}, r"at bioasq\.1\.question"),
        ({"bioasq": {"1": {**ENTRY, "PMID": [1], "answer": "C"}}}, r"bioasq\.1: the answer is not a letter"),
        ({"bioasq": {"1": ENTRY}}, r"bioasq\.1 names no PMID, as in MIRAGE's first version"),
        ({"mmlu": {"1": ENTRY}}, "holds no set bioasq"),
        ("", "the file is empty"),
    ],
)
def test_read_mirage_with_other_file_raises_input_error(tmp_path: Path, content: object, said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_mirage(write_file(tmp_path, "b.json", content), "bioasq")


# -- PubMedQA -------------------------------------------------------------------------------------------------------


def test_read_pubmedqa_split_selects_and_orders_questions(tmp_path: Path) -> None:
    path = write_file(
        tmp_path, "ori_pqal.json", {"1": ABSTRACT, "2": {**ABSTRACT, "final_decision": "no"}, "3": ABSTRACT}
    )
    split = write_file(tmp_path, "split.json", {"3": "yes", "2": "no"})
    every, documents = read_pubmedqa(path)
    assert [question.id for question in every] == ["1", "2", "3"]
    assert documents["pubmed:2"].text == "We asked.\nIt did."
    some, theirs = read_pubmedqa(path, split)
    assert [(question.id, question.gold) for question in some] == [("3", "A"), ("2", "B")]
    assert list(theirs) == ["pubmed:3", "pubmed:2"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"2": "yes"}, r"1 entry \('2', \.\.\.\) are not as in ori_pqal.json"),
        ({"1": "no"}, r"1 entry \('1', \.\.\.\) are not as in ori_pqal.json"),
        (["1"], "not PubMedQA's test split"),
        ({"1": 1}, "not PubMedQA's test split"),
        ("{", "not PubMedQA's test split"),
    ],
)
def test_read_pubmedqa_with_split_of_other_file_raises_input_error(tmp_path: Path, content: object, said: str) -> None:
    path = write_file(tmp_path, "ori_pqal.json", {"1": ABSTRACT})
    with pytest.raises(InputError, match=said):
        read_pubmedqa(path, write_file(tmp_path, "split.json", content))


# -- MedQ -----------------------------------------------------------------------------------------------------------


def write_sheet(path: Path, *rows: list[str]) -> Path:
    """Write a minimal .xlsx file with one sheet and inline texts."""
    main = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
    relations = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    of_package = 'xmlns="http://schemas.openxmlformats.org/package/2006/relationships"'
    cells = "".join(
        f'<row r="{number}">'
        + "".join(
            f'<c r="{"ABCD"[at]}{number}" t="inlineStr"><is><t>{cell}</t></is></c>' for at, cell in enumerate(row)
        )
        + "</row>"
        for number, row in enumerate(rows, 1)
    )
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(
            "_rels/.rels",
            f'<Relationships {of_package}><Relationship Id="a" Type="{relations}/officeDocument" Target="xl/w.xml"/>'
            "</Relationships>",
        )
        archive.writestr(
            "xl/workbook.xml",
            f'<workbook {main} xmlns:r="{relations}"><sheets><sheet name="S" sheetId="1" r:id="b"/></sheets>'
            "</workbook>",
        )
        archive.writestr(
            "xl/_rels/workbook.xml.rels",
            f'<Relationships {of_package}><Relationship Id="b" Type="{relations}/worksheet" Target="worksheets/s.xml"/>'
            "</Relationships>",
        )
        archive.writestr("xl/worksheets/s.xml", f"<worksheet {main}><sheetData>{cells}</sheetData></worksheet>")
    return path


def test_read_medq_question(tmp_path: Path) -> None:
    questions, domains = read_medq(
        write_sheet(tmp_path / "m.xlsx", MEDQ_COLUMNS, ["q-1", " Why? ", "Because.", "Skin"])
    )
    assert questions == (Question(text="Why?", id="q-1", gold="Because.", category="Skin"),)
    assert domains == {"q-1": "Skin"}


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([["ID", "Question", "Answer", "Field"], ["1", "Why?", "So.", "Skin"]], "its columns are not ID, Question"),
        ([MEDQ_COLUMNS, ["1", "Why?", "", "Skin"]], "row 2: a cell is empty"),
        (
            [MEDQ_COLUMNS, ["1", "Why?", "So.", "Skin"], ["1", "How?", "So.", "Skin"]],
            "row 3: .*its ID occurs twice",
        ),
    ],
)
def test_read_medq_with_damaged_sheet_raises_input_error(tmp_path: Path, rows: list[list[str]], said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_medq(write_sheet(tmp_path / "m.xlsx", *rows))


@pytest.mark.parametrize("content", ["no sheet", "PK\x03\x04 nor this"])
def test_read_medq_with_other_file_raises_input_error(tmp_path: Path, content: str) -> None:
    with pytest.raises(InputError, match=r"not a sheet \(\.xlsx\) that can be read"):
        read_medq(write_file(tmp_path, "m.xlsx", content))


# -- prompt_engine ----------------------------------------------------------------------------------------------------

SOLVED: dict[str, Any] = {"id": "q_0", "question": "Which?", "correct_answer": "B", "options": {"A": "x", "B": "y"}}
OPEN: dict[str, Any] = {"id": "q_1", "question": "Why?", "correct_answer": "Because."}
CAREQA: dict[str, Any] = {"exam_id": 26, "year": 2024, "category": "Medicine", **SOLVED}
del CAREQA["id"]


def test_read_prompt_engine_solved_questions(tmp_path: Path) -> None:
    path = write_file(tmp_path, "medqa_4opt_val.json", {"u0": SOLVED, "u1": OPEN, "u2": CAREQA})
    choice, opened, without_id = read_prompt_engine(path)
    assert choice == Question(text="Which?", options={"A": "x", "B": "y"}, form="choice", id="q_0", gold="B")
    assert opened == Question(text="Why?", id="q_1", gold="Because.")
    assert (without_id.id, without_id.gold) == ("u2", "B")
    # The other files of that repository are questions of one's own.
    assert load_dataset(str(path), tmp_path).questions == (choice, opened, without_id)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", r"not a question file of HPAI-BSC/prompt_engine \(at the start\); pull it again"),
        ({"u0": {**SOLVED, "question": ""}}, r"prompt_engine \(at u0\.question\)"),
        ({"u0": {**SOLVED, "options": {"first": "x", "second": "y"}}}, r"at u0\.options"),
        ({"u0": {**SOLVED, "correct_answer": "C"}}, "u0: the answer is not a letter of the options; pull"),
        ({"u0": SOLVED, "u1": SOLVED}, "two of its questions have the same id"),
        ({"u0": {**SOLVED, "context": ["We asked."]}}, "come with abstracts; ask pubmedqa/test"),
        ({}, "holds no question"),
    ],
)
def test_read_prompt_engine_with_other_file_raises_input_error(tmp_path: Path, content: object, said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_prompt_engine(write_file(tmp_path, "v.json", content))


def test_careqa_catalogue_entry_has_bytes_and_count() -> None:
    pinned = load_catalogue()["careqa"]
    (file,) = pinned.files
    assert (file.bytes, pinned.count) == (3_596_003, 5_621)
    assert file.sha256 == "5105f92f9ba10d816543d0922a5948371e1d8c7c6f75889c8504f4b056ae55b8"


@pytest.mark.slow
def test_load_careqa_with_other_bytes_raises_input_error(tmp_path: Path) -> None:
    path = write_file(tmp_path, "careqa_test.json", {f"u{number}": CAREQA for number in range(5621)})
    with pytest.raises(InputError, match=r"is not the pinned file of careqa \(3,596,003 bytes, sha256 5105f92f"):
        load_dataset("careqa", tmp_path, path)
    assert len(load_dataset(str(path), tmp_path).questions) == 5621, "as a file of one's own it is read"


@pytest.mark.slow
def test_load_set_pinned_by_file_checks_bytes_and_count(tmp_path: Path) -> None:
    """With the pin of a file of CareQA's form in the place of CareQA's own."""
    path = write_file(tmp_path, "careqa_test.json", {f"u{number}": CAREQA for number in range(5621)})
    real = load_catalogue()["careqa"]
    content = path.read_bytes()
    file = replace(real.files[0], bytes=len(content), sha256=hashlib.sha256(content).hexdigest())
    sets = {"careqa": replace(real, files=(file,))}
    dataset = load_dataset("careqa", tmp_path, path, sets=sets)
    assert [dataset.questions[place].id for place in (0, 9, -1)] == ["u0", "u9", "u5620"]
    assert {question.category for question in dataset.questions} == {"Medicine"}
    assert (dataset.classes["u0"], dataset.licence) == ("B", "Apache-2.0")
    fewer = {"careqa": replace(sets["careqa"], count=5622)}
    with pytest.raises(InputError, match=r"holds 5,621 questions, not the pinned 5,622 questions: run .* pull careqa"):
        load_dataset("careqa", tmp_path, path, sets=fewer)


def test_read_equal_options_keeps_both_letters(tmp_path: Path) -> None:
    twice = {**CAREQA, "options": {"A": "x", "B": "x ", "C": "y"}}
    (question,) = read_prompt_engine(write_file(tmp_path, "careqa_test.json", {"u0": twice}))
    assert (question.options, question.gold) == (twice["options"], "B")
    dataset = load_dataset(str(write_file(tmp_path, "CareQA_en.json", [{**CARE_ROW, "op1": "x", "cop": 4}])), tmp_path)
    assert dataset.questions[0].options == {"A": "x", "B": "x", "C": "y", "D": "z"}
    assert dataset.questions[0].category == "Medicine"


# -- as published ---------------------------------------------------------------------------------------------------

MEDQA: dict[str, Any] = {
    "question": "Which?",
    "answer": "y",
    "options": {"A": "x", "B": "y", "C": "z"},
    "meta_info": "step1",
    "answer_idx": "B",
}
MEDMCQA: dict[str, Any] = {
    "question": "Which?",
    "exp": None,
    "cop": 1,
    "opa": "w",
    "opb": "x",
    "opc": "y",
    "opd": "z",
    "subject_name": "Anatomy",
    "topic_name": None,
    "id": "a-1",
    "choice_type": "single",
}
CARE_ROW: dict[str, Any] = {
    "exam_id": 26,
    "question": "Which?",
    "op1": "w",
    "op2": "x",
    "op3": "y",
    "op4": "z",
    "cop": 2,
    "year": 2024,
    "category": "Medicine",
    "unique_id": "c-1",
}


def join_lines(*rows: object) -> str:
    return "\n".join(map(json.dumps, rows))


def map_gold_answers(questions: tuple[Question, ...] | None) -> dict[str, str | None]:
    return {question.id: question.gold for question in questions or ()}


def test_load_medqa_lines(tmp_path: Path) -> None:
    path = write_file(tmp_path, "phrases_no_exclude_train.jsonl", join_lines(MEDQA, {**MEDQA, "answer_idx": "C"}))
    dataset = load_dataset(str(path), tmp_path)
    assert dataset.questions[0] == Question(text="Which?", options=MEDQA["options"], form="choice", id="1", gold="B")
    assert dataset.classes == {"1": "B", "2": "C"}


@pytest.mark.parametrize(
    ("numbers", "letters"),
    [
        ((1, 4, 2), ("A", "D", "B")),  # as the authors' own files count
        ((0, 3, 1), ("A", "D", "B")),  # as the hub's do
        (("1", "4", "2"), ("A", "D", "B")),
        ((-1, -1, -1), (None, None, None)),
        ((None, 4, 1), (None, "D", "A")),
    ],
)
def test_load_medmcqa_lines_with_numbers_from_zero_or_one(
    tmp_path: Path, numbers: tuple[object, ...], letters: tuple[str | None, ...]
) -> None:
    rows = [{**MEDMCQA, "id": f"a-{place}", "cop": number} for place, number in enumerate(numbers)]
    for name in ("train.json", "train.jsonl"):
        questions = published.read(write_file(tmp_path, name, join_lines(*rows)))
        assert map_gold_answers(questions) == {f"a-{place}": letter for place, letter in enumerate(letters)}
    assert questions is not None
    assert questions[0].options == {"A": "w", "B": "x", "C": "y", "D": "z"}


def test_load_careqa_list(tmp_path: Path) -> None:
    path = write_file(tmp_path, "CareQA_en.json", [CARE_ROW, {**CARE_ROW, "unique_id": "c-2", "cop": 4}])
    dataset = load_dataset(str(path), tmp_path)
    assert dataset.classes == {"c-1": "B", "c-2": "D"}
    assert dataset.questions[1].options == {"A": "w", "B": "x", "C": "y", "D": "z"}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (
            join_lines(MEDMCQA),
            r"\(cop\) from 0 to 3 and from 1 to 4 cannot be distinguished .*give the whole file, or write",
        ),
        (join_lines({**MEDMCQA, "cop": 0}, {**MEDMCQA, "cop": 4}), "cannot be distinguished"),
        (
            join_lines({**MEDMCQA, "cop": 4}, {**MEDMCQA, "id": "a-2", "cop": 5}),
            "line 2: gold: not a letter of the options",
        ),
        (join_lines({**MEDMCQA, "cop": 4}, MEDMCQA), "line 2: its id occurs twice; give each question its own"),
        (join_lines({**MEDMCQA, "opc": " "}, {**MEDMCQA, "cop": 4}), r"line 1: options\.C: .*correct or remove it"),
        (
            join_lines(MEDQA, {**MEDQA, "answer_idx": "E"}),
            "line 2: gold: not a letter of the options; correct or remove it",
        ),
        (join_lines(MEDQA, {**MEDQA, "options": {}}), "line 2: .*correct or remove it"),
        (join_lines(MEDQA, {"question": "Why?"}), "line 2: .*correct or remove it"),
        (join_lines(MEDQA) + "\n{", "line 2: not JSON"),
        ([CARE_ROW, {**CARE_ROW, "cop": 4}], "entry 2: its id occurs twice"),
        ([CARE_ROW, "and", {**CARE_ROW, "cop": 4}], "entry 2: .*correct or remove it"),
        ([{**CARE_ROW, "question": "half \ud800", "cop": 4}], "entry 1: .*surrogate.*correct or remove it"),
    ],
)
def test_load_dataset_with_invalid_row_names_row_without_quoting(tmp_path: Path, content: object, said: str) -> None:
    with pytest.raises(InputError, match=said) as caught:
        load_dataset(str(write_file(tmp_path, "q.json", content)), tmp_path)
    assert "Which" not in str(caught.value)


def test_read_published_with_other_form_returns_none(tmp_path: Path) -> None:
    line = {"text": "Which?", "options": ["x", "y"], "gold": "B", "answer_idx": "A"}
    own = write_file(tmp_path, "own.jsonl", join_lines(line))
    pubmed = write_file(tmp_path, "ori_pqal.json", {"1": ABSTRACT})
    assert published.read(own) is published.read(pubmed) is None
    assert [map_gold_answers(load_dataset(str(path), tmp_path).questions) for path in (own, pubmed)] == [
        {"1": "B"},
        {"1": "A"},
    ]
    with pytest.raises(InputError, match="not PubMedQA's file"):
        load_dataset(str(write_file(tmp_path, "list.json", [])), tmp_path)


# -- the door -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.data
def test_load_dataset_finds_file_by_path_folder_and_parent(tmp_path: Path, data_folder: Path) -> None:
    for name, file in (("medq", "medq/medq-30.xlsx"), ("pubmedqa/test", "pubmedqa/test_ground_truth.json")):
        places = (data_folder / file, (data_folder / file).parent, data_folder)
        assert {load_dataset(name, tmp_path, place).sha256 for place in places} == {load_catalogue()[name].sha256}
    renamed = tmp_path / "mine.xlsx"
    renamed.write_bytes((data_folder / "medq" / "medq-30.xlsx").read_bytes())
    assert len(load_dataset("medq", tmp_path, renamed).questions) == 48


def test_load_dataset_without_file_names_remedy(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"benchmark.json of mirage/mmlu is not in .*run `epicrisis questions pull mirage"
    ):
        load_dataset("mirage/mmlu", tmp_path)
    with pytest.raises(InputError, match=r"mirage/mmlv is neither a question set \(mirage/medqa, .*\) nor a file"):
        load_dataset("mirage/mmlv", tmp_path)


def test_load_dataset_with_other_questions_raises_input_error(tmp_path: Path) -> None:
    path = write_file(tmp_path, "benchmark.json", {"mmlu": {"anatomy-000": ENTRY}})
    with pytest.raises(InputError, match="holds 1 question, not the pinned 1,089 questions"):
        load_dataset("mirage/mmlu", tmp_path, path)


def test_load_dataset_reads_users_own_questions(tmp_path: Path) -> None:
    lines = [{"id": "q1", "text": "Which?", "options": ["x", "y"], "gold": "B"}, {"id": "q2", "text": "Why?"}]
    path = write_file(tmp_path, "own.jsonl", "\n".join(map(json.dumps, lines)))
    dataset = load_dataset(str(path), tmp_path)
    assert dataset.name == "own.jsonl"
    assert [question.id for question in dataset.questions] == ["q1", "q2"]
    assert dataset.classes == {"q1": "B"}
    write_file(tmp_path, "own.jsonl", "\n".join([json.dumps(lines[0]), "{"]))
    with pytest.raises(InputError, match=r"own.jsonl, line 2: not JSON"):
        load_dataset(str(path), tmp_path)


def test_dataset_digest_covers_questions_not_file(tmp_path: Path) -> None:
    line = {"id": "q1", "text": "Which?", "options": ["x", "y"], "gold": "B"}
    first = load_dataset(str(write_file(tmp_path, "a.jsonl", json.dumps(line))), tmp_path)
    second = load_dataset(
        str(write_file(tmp_path, "b.jsonl", json.dumps(line, indent=None, separators=(",", ":")))), tmp_path
    )
    assert first.sha256 == second.sha256
    for change in ({"text": "What?"}, {"gold": "A"}, {"options": ["y", "x"]}, {"gold_documents": ["d"]}, {"id": "q2"}):
        other = load_dataset(str(write_file(tmp_path, "c.jsonl", json.dumps(line | change))), tmp_path)
        assert other.sha256 != first.sha256


def test_catalogue_entries_are_complete() -> None:
    sets = load_catalogue()
    assert len(sets) == 22
    assert [name for name, pinned in sets.items() if pinned.sha256 is None] == ["careqa"]
    for pinned in sets.values():
        assert pinned.sha256 is None or len(bytes.fromhex(pinned.sha256)) == 32
        assert pinned.split in (None, "train", "validation", "test")
        # What a reader of the list must see, too: the name or the description says the split.
        text = f"{pinned.name} {pinned.description}"
        assert pinned.split is None or pinned.split in text
        for file in pinned.files:
            assert file.licence
            if not file.url:
                # Not published in this form: the source is named, and the file pinned.
                assert file.built_from
                assert file.sha256 is not None
                continue
            commit = file.url.removeprefix("https://raw.githubusercontent.com/").split("/")[2]
            assert len(bytes.fromhex(commit)) == 20
            assert file.path.split("/")[-1] == file.url.split("/")[-1]
    with pytest.raises(TypeError, match="colour"):
        parse_catalogue("[[files]]\npath = 'a'\nurl = ''\nlicence = ''\ncolour = 'red'\n[[sets]]\n")
