"""Records of several patients, a word in each that no other patient's prompts may hold, and who looks for it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from epicrisis.core.protocols import ChatRequest
from epicrisis.core.types import Document, Question
from epicrisis.corpus.base.chunking import find_sentences
from epicrisis.corpus.base.reader_base import ReaderItem
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.core.patients import Roster
from epicrisis.library.write.ingest import add_documents, open_or_create
from epicrisis.pipeline.components import ExampleSearch, LibrarySearch
from epicrisis.retrieval.id_rankings import SearchableStore
from epicrisis.retrieval.retriever import Retriever
from epicrisis.settings.settings import ExampleSettings
from epicrisis.testing.chat import ScriptedModel
from epicrisis.testing.hashing_encoder import HashingEncoder
from epicrisis.testing.scorers import TermOverlapReranker
from tests.support.replies import schema_reply

PATIENTS = (
    "P-100",
    "P-1001",
    "P-100/7",
    "o'br\"ien; --",
    "пациент ü",
    " x",
    "none 1",
    "null-1",
    "01",
    "%1",
    "' OR 1=1 --",
)
"""Beginnings of each other, what SQL and JSON read otherwise, and what looks like nobody."""
LITERATURE = len(PATIENTS)
"""The number of the word in papers, which everybody may read."""
ENCODER, OTHER_ENCODER = HashingEncoder(32, max_tokens=24), HashingEncoder(48, max_tokens=12)
SHARED = "Aspirin was given for stroke on the ward, as on every other day."
OPTIONS = {"A": "aspirin", "B": "warfarin"}

_WORD = re.compile(r"kanary(\d+)q")
_CASE = re.compile(r"case (\d+)z")


def word(number: int) -> str:
    """Return the word that only prompts of that patient's questions may contain."""
    return f"kanary{number}q"


def question(number: int, case: str = "", **more: object) -> Question:
    """Return a question of patient `number` that matches every note. Its prompts identify the patient."""
    text = f"Which drug was given for stroke (case {number}z{case}) in the discharge summary and on the ward?"
    return Question(text, options=OPTIONS, form="choice", id=f"q{number}{case}", patient=PATIENTS[number], **more)  # type: ignore[arg-type]


def notes() -> Iterator[Document]:
    """Yield three notes for each patient, and one with a shared text. Each cites the next patient by id."""
    for number, patient in enumerate(PATIENTS):
        other = PATIENTS[(number + 1) % len(PATIENTS)]
        metadata = {"note_type": "discharge", "encounter": f"e{number}"}
        for day in range(1, 4):
            yield Document(
                f"note:{other}:{patient}:{day}",
                f"Discharge summary. The drug that was given for stroke was aspirin, says {word(number)}. "
                f"See the record of {other}. On the ward {word(number)} had fever. The drug was stopped. " * 2,
                title=f"Note of {word(number)}",
                source="notes",
                date=f"2150-0{day}",
                patient=patient,
                metadata=metadata,
            )
        yield Document(f"shared:{patient}", SHARED, source="notes", date="2150-05", patient=patient, metadata=metadata)


def papers() -> Iterator[Document]:
    for number in range(4):
        text = f"Aspirin was the drug given for stroke in trial {number}, says {word(LITERATURE)}."
        yield Document(f"paper:{number}", text, title=f"Trial {number}", date="2015")


def solved() -> Iterator[Document]:
    """Yield solved questions and one misplaced note."""
    for number in range(3):
        text = f"Which drug was given for stroke in the solved question number {number} of this set?"
        metadata = {"question": text, "options": OPTIONS, "choice": "A", "answer": "Aspirin.", "reasoning": "It is."}
        yield Document(f"solved:{number}", text, metadata=metadata)
    yield Document("strayed", f"Which drug was given for stroke? {word(0)}", patient=PATIENTS[0])


def library(path: Path, documents: Iterable[ReaderItem], encoder: HashingEncoder = ENCODER) -> LibraryStore:
    """Create a library of these documents and open it for reading."""
    with open_or_create(path, encoder, "hashing", overlap=0) as store:
        add_documents(store, documents, encoder)
    return LibraryStore.open(path)


def ward(folder: Path, *, fused: bool = False, reranked: bool = False, beside: bool = False) -> LibrarySearch:
    """Return the search of the records and papers in one library, or with the papers in a second one."""
    records = list(notes()) if beside else [*notes(), *papers()]
    first = library(folder / "ward", records)
    fused_stores = [SearchableStore(library(folder / "other", records, OTHER_ENCODER), OTHER_ENCODER)] if fused else []
    # Notes of the same ids as well: another person's, for all that anybody knows.
    literature = (
        [SearchableStore(library(folder / "papers", [*papers(), *notes()]), ENCODER, "papers")] if beside else []
    )
    retriever = Retriever(
        first,
        ENCODER,
        also=fused_stores,
        beside=literature,
        remedy="segments",
        sentences=find_sentences,
        reranker=("overlap", TermOverlapReranker()) if reranked else None,
    )
    return LibrarySearch(first, retriever, rosters=(Roster(first),))


def examples(folder: Path) -> ExampleSearch:
    """Return the search of the library of solved questions."""
    store = library(folder / "solved", solved())
    return ExampleSearch(LibrarySearch(store, Retriever(store, ENCODER)), ExampleSettings(k=2), 0)


def recorder(context_tokens: int = 1_000_000) -> ScriptedModel:
    """Return a model that answers every request and records the prompts."""

    def script(request: ChatRequest) -> str:
        messages = [{"role": message.role, "content": message.content} for message in request.messages]
        schema = {} if request.schema is None else {"response_format": {"json_schema": {"schema": request.schema}}}
        return schema_reply({"messages": messages, **schema})

    return ScriptedModel(script, context_tokens=context_tokens, probabilities=lambda _: {"A": 0.6, "B": 0.4})


@dataclass(frozen=True, slots=True)
class Seen:
    """Of every prompt the patients whose words stand in it, by the patient it was asked of."""

    own: set[int] = field(default_factory=set)
    """Patients who found their own words."""
    leaks: list[tuple[int, int]] = field(default_factory=list)
    """(asked of, found in the prompt) for each word of another."""


def looked_at(requests: Sequence[ChatRequest]) -> Seen:
    """Return the words in the prompts by patient. Every prompt identifies its question."""
    return find_words("\n".join(message.content for message in request.messages) for request in requests)


def find_words(texts: Iterable[str]) -> Seen:
    """Return the words in texts by patient. Every text identifies its question."""
    seen = Seen()
    for text in texts:
        numbers = {int(number) for number in _CASE.findall(text)}
        assert len(numbers) == 1, "a prompt is of one question"
        (patient,) = numbers
        for owner in sorted({int(number) for number in _WORD.findall(text)}):
            if owner == patient:
                seen.own.add(patient)
            elif owner != LITERATURE:
                seen.leaks.append((patient, owner))
    return seen
