"""Readers of the pinned question sets: MIRAGE, prompt_engine, PubMedQA and MedQ.

MIRAGE's `benchmark.json` has five sets with options, PubMedQA without its abstracts. The key of a PubMedQA question is
the PMID of its gold document. BioASQ has PMIDs under `PMID`, but not in the first version of the file, which is refused
for that set.

The context-retrieval study's repository, HPAI-BSC/prompt_engine, has MedQA, MedMCQA, CareQA and MMLU. A file is one
object, `{key: {id, question, correct_answer, options}}`. The answer is a letter, or a text without options. CareQA's
entries also have a `category`. The name of a file may contradict its content (errata P13).

PubMedQA itself has contexts: each question comes with its abstract, unlike in MIRAGE's set (errata P9).
`corpus/readers/question_files.py` reads the format; the test split is added here.

MedQ has 48 open questions with a reference answer, in a sheet with the file name medq-30.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal, TypeAlias, get_args

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from epicrisis.core.errors import InputError
from epicrisis.core.printable import agree
from epicrisis.core.types import Document, Question
from epicrisis.corpus import sandbox
from epicrisis.corpus.base.reader_base import check_file, path_error, printable_path
from epicrisis.corpus.readers.question_files import load_pubmedqa, read_pubmedqa_documents, read_pubmedqa_questions
from epicrisis.evaluation.datasets.dataset import read_content

MirageSubset: TypeAlias = Literal["medqa", "medmcqa", "pubmedqa", "bioasq", "mmlu"]
MIRAGE_SUBSETS: tuple[MirageSubset, ...] = get_args(MirageSubset)
MEDQ_COLUMNS = ["ID", "Question", "Answer", "Domain"]
_Filled = Annotated[str, Field(min_length=1)]
_Options = dict[Annotated[str, Field(pattern="^[A-Z]$")], _Filled]


class _MirageEntry(BaseModel):
    model_config = ConfigDict(strict=True)

    question: _Filled
    options: _Options = Field(min_length=2)
    answer: str
    pmids: list[int] = Field(default=[], validation_alias="PMID")


class _PromptEngineEntry(BaseModel):
    model_config = ConfigDict(strict=True)

    id: _Filled | None = None
    question: _Filled
    correct_answer: _Filled
    options: _Options | None = Field(default=None, min_length=2)
    context: list[str] | None = None
    category: str | None = None


def read_mirage(path: Path, subset: MirageSubset) -> tuple[Question, ...]:
    """Return the questions of one set in order. Ids are the keys of the file, gold documents `pubmed:<PMID>`.

    Raises InputError for another file or an invalid entry.
    """
    benchmark = TypeAdapter(dict[str, dict[str, _MirageEntry]])
    try:
        entries = benchmark.validate_json(read_content(path)).get(subset, {})
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"][:3])) or "the start"
        raise path_error(path, f"not MIRAGE's benchmark.json (at {where}); pull it again") from None
    if not entries:
        raise path_error(path, f"holds no set {subset}; it must be MIRAGE's benchmark.json")
    questions = []
    for key, entry in entries.items():
        if entry.answer not in entry.options:
            raise path_error(path, f"{subset}.{key}: the answer is not a letter of the options; pull the file again")
        pmids = list(map(str, entry.pmids))
        if not pmids and subset == "pubmedqa":
            pmids = [key]
        if not pmids and subset == "bioasq":
            raise path_error(path, f"{subset}.{key} names no PMID, as in MIRAGE's first version; pull the pinned one")
        questions.append(
            Question(
                text=entry.question,
                options=entry.options,
                form="choice",
                id=key,
                gold=entry.answer,
                gold_documents=tuple(f"pubmed:{pmid}" for pmid in pmids),
            )
        )
    return tuple(questions)


def read_prompt_engine(path: Path) -> tuple[Question, ...]:
    """Return the questions in order. Ids are those of the entries (`medqa_4opt_validation_0`), or else their keys.

    Raises InputError for another file or an invalid entry, and for the repository's PubMedQA files: their abstracts
    belong to the prompt (errata P9), and a question cannot hold them.
    """
    try:
        entries = TypeAdapter(dict[str, _PromptEngineEntry]).validate_json(read_content(path))
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"][:3])) or "the start"
        raise path_error(path, f"not a question file of HPAI-BSC/prompt_engine (at {where}); pull it again") from None
    questions: dict[str, Question] = {}
    for key, entry in entries.items():
        if entry.context is not None:
            raise path_error(path, "its questions come with abstracts; ask pubmedqa/test, which keeps them")
        options = entry.options or {}
        if options and entry.correct_answer not in options:
            raise path_error(path, f"{key}: the answer is not a letter of the options; pull the file again")
        question = Question(
            text=entry.question,
            options=options,
            form="choice" if options else "open",
            id=entry.id or key,
            gold=entry.correct_answer,
            category=entry.category or "",
        )
        questions[question.id] = question
    if not questions:
        raise path_error(path, "holds no question; pull it again")
    if len(questions) < len(entries):
        raise path_error(path, "two of its questions have the same id; pull it again")
    return tuple(questions.values())


def read_medqa_test(open_path: Path, mirage_path: Path) -> tuple[Question, ...]:
    """Return the questions of OpenMedQA, under its ids, as MIRAGE has them: in the original words, with options.

    An id of OpenMedQA ends with the question's number in MedQA's test split. Raises InputError for another file, or if
    the two files have different answers.
    """
    originals = {int(question.id): question for question in read_mirage(mirage_path, "medqa")}
    questions: list[Question] = []
    for reworded in read_prompt_engine(open_path):
        original = originals.get(int(reworded.id.rpartition("_")[2]))
        answer = "" if original is None else original.options[original.gold or ""]
        if original is None or _letters(answer) != _letters(reworded.gold or ""):
            raise path_error(open_path, f"{reworded.id} is not in {printable_path(mirage_path.name)}; pull both again")
        questions.append(replace(original, id=reworded.id))
    return tuple(questions)


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text.casefold()))


def read_pubmedqa(path: Path, split: Path | None = None) -> tuple[tuple[Question, ...], Mapping[str, Document]]:
    """Return the questions of `ori_pqal.json`, and their abstracts by document id, without title and conclusion.

    With `split` (`test_ground_truth.json`), only the questions in the split, in its order. Raises InputError for
    another or an invalid file, or if the two files disagree.
    """
    questions = tuple(read_pubmedqa_questions(path))
    documents = {
        item.id: item for item in read_pubmedqa_documents(path, load_pubmedqa(path)) if isinstance(item, Document)
    }
    if split is None:
        return questions, documents
    try:
        decisions = TypeAdapter(dict[str, str]).validate_python(json.loads(read_content(split)), strict=True)
    except (ValueError, RecursionError):
        raise path_error(split, "not PubMedQA's test split, which maps PMIDs to decisions; pull it again") from None
    by_id = {question.id: question for question in questions}
    wrong = []
    for key, decision in decisions.items():
        question = by_id.get(key)
        if question is None or question.gold is None or question.options[question.gold] != decision:
            wrong.append(key)
    if wrong:
        entries = f"{len(wrong)} {agree(len(wrong), 'entry', 'entries')} ({wrong[0]!a}, ...)"
        raise path_error(split, f"{entries} are not as in {printable_path(path.name)}; pull both")
    chosen = tuple(by_id[decision] for decision in decisions)
    gold_documents = {
        document_id: documents[document_id] for question in chosen for document_id in question.gold_documents
    }
    return chosen, gold_documents


def read_medq(path: Path) -> tuple[tuple[Question, ...], dict[str, str]]:
    """Return the questions in order, with the reference answer as `gold`, and their medical domains by id, which are
    their categories as well.

    Raises InputError for another file, and for a row with an empty cell.
    """
    check_file(path)
    try:
        head, *rows = sandbox.sheet_rows(path)
    except ValueError as error:
        raise path_error(path, "not a sheet (.xlsx) that can be read; pull the file again") from error
    if head != MEDQ_COLUMNS:
        raise path_error(path, f"its columns are not {', '.join(MEDQ_COLUMNS)}; pull the file again")
    questions: list[Question] = []
    domains: dict[str, str] = {}
    for number, row in enumerate(rows, 2):
        key, text, answer, domain = map(str.strip, row)
        if not (key and text and answer and domain) or key in domains:
            raise InputError(
                f"{printable_path(path)}, row {number}: a cell is empty, or its ID occurs twice; pull it again"
            )
        questions.append(Question(text=text, form="open", id=key, gold=answer, category=domain))
        domains[key] = domain
    return tuple(questions), domains
