"""MIRAGE's `benchmark.json`: five sets with options, PubMedQA without its abstracts.

The key of a PubMedQA question is the PMID of its gold document. BioASQ has PMIDs under `PMID`, but not in the first
version of the file, which is refused for that set.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, TypeAlias, get_args

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from epicrisis.corpus.reader_base import path_error
from epicrisis.evaluation.datasets.dataset import read_content
from epicrisis.types import Question

Subset: TypeAlias = Literal["medqa", "medmcqa", "pubmedqa", "bioasq", "mmlu"]
SUBSETS: tuple[Subset, ...] = get_args(Subset)

_Filled = Annotated[str, Field(min_length=1)]


class _Entry(BaseModel):
    model_config = ConfigDict(strict=True)

    question: _Filled
    options: dict[Annotated[str, Field(pattern="^[A-Z]$")], _Filled] = Field(min_length=2)
    answer: str
    pmids: list[int] = Field(default=[], validation_alias="PMID")


def read(path: Path, subset: Subset) -> tuple[Question, ...]:
    """Return the questions of one set in order. Ids are the keys of the file, gold documents `pubmed:<PMID>`.

    Raises InputError for another file or an invalid entry.
    """
    benchmark = TypeAdapter(dict[str, dict[str, _Entry]])
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
                gold_documents=tuple(map("pubmed:{}".format, pmids)),
            )
        )
    return tuple(questions)
