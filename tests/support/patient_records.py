"""Records of several patients, a word in each that no other patient's prompts may hold, and who looks for it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from epicrisis.components import ExampleSearch, LibrarySearch
from epicrisis.corpus.chunking import find_sentences
from epicrisis.library.ingest import add_documents, open_or_create
from epicrisis.library.library import Library
from epicrisis.library.patients import Roster
from epicrisis.protocols import ChatRequest
from epicrisis.retrieval.retriever import Retriever, SearchableStore
from epicrisis.settings import ExampleSettings
from epicrisis.testing.chat import ScriptedModel
from epicrisis.testing.encoders import HashingEncoder
from epicrisis.testing.replies import schema_reply
from epicrisis.testing.rerankers import TermOverlapReranker
from epicrisis.types import Document, Question

PATIENTS = ("P-100", "P-1001", "P-100/7", "o'br\"ien; --", "пациент ü", " x", "none", "null", "0", "%", "' OR 1=1 --")
"""Beginnings of each other, what SQL and JSON read otherwise, and what looks like nobody."""
LITERATURE = len(PATIENTS)
"""The number of the word in papers, which everybody may read."""
ENCODER, OTHER_ENCODER = HashingEncoder(32, max_tokens=24), HashingEncoder(48, max_tokens=12)
SHARED = "Aspirin was given for stroke on the ward, as on every other day."
OPTIONS = {"A": "aspirin", "B": "warfarin"}

_WORD = re.compile(r"kanary(\d+)q")
_CASE = re.compile(r"case (\d+)z")


def word(number: int) -> str:
    """What only prompts of that patient's questions may hold."""
    return f"kanary{number}q"


def question(number: int, case: str = "", **more: object) -> Question:
    """A question of patient `number`, which matches every note of every patient. Its prompts tell whose it is."""
    text = f"Which drug was given for stroke (case {number}z{case}) in the discharge summary and on the ward?"
    return Question(text, OPTIONS, "choice", id=f"q{number}{case}", patient=PATIENTS[number], **more)  # type: ignore[arg-type]


def notes() -> Iterator[Document]:
    """Three a patient, and a note that all share word for word; each cites the next patient by id."""
    for number, patient in enumerate(PATIENTS):
        other = PATIENTS[(number + 1) % len(PATIENTS)]
        told = {"note_type": "discharge", "encounter": f"e{number}"}
        for day in range(1, 4):
            yield Document(
                f"note:{other}:{patient}:{day}",
                f"Discharge summary. The drug that was given for stroke was aspirin, says {word(number)}. "
                f"See the record of {other}. On the ward {word(number)} had fever. The drug was stopped. " * 2,
                title=f"Note of {word(number)}",
                source="notes",
                date=f"2150-0{day}",
                patient=patient,
                metadata=told,
            )
        yield Document(f"shared:{patient}", SHARED, source="notes", date="2150-05", patient=patient, metadata=told)


def papers() -> Iterator[Document]:
    for number in range(4):
        text = f"Aspirin was the drug given for stroke in trial {number}, says {word(LITERATURE)}."
        yield Document(f"paper:{number}", text, title=f"Trial {number}", date="2015")


def solved() -> Iterator[Document]:
    """Solved questions, and a note that strayed among them."""
    for number in range(3):
        text = f"Which drug was given for stroke in the solved question number {number} of this set?"
        told = {"question": text, "options": OPTIONS, "choice": "A", "answer": "Aspirin.", "reasoning": "It is."}
        yield Document(f"solved:{number}", text, metadata=told)
    yield Document("strayed", f"Which drug was given for stroke? {word(0)}", patient=PATIENTS[0])


def library(path: Path, documents: Iterable[Document], encoder: HashingEncoder = ENCODER) -> Library:
    """A library of these, open for reading."""
    with open_or_create(path, encoder, "hashing", overlap=0) as made:
        add_documents(made, documents, encoder)
    return Library.open(path)


def ward(folder: Path, *, fused: bool = False, reranked: bool = False, beside: bool = False) -> LibrarySearch:
    """The records and the papers in one library, or the papers in one beside; and how it is searched."""
    everything = list(notes()) if beside else [*notes(), *papers()]
    first = library(folder / "ward", everything)
    also = [SearchableStore(library(folder / "other", everything, OTHER_ENCODER), OTHER_ENCODER)] if fused else []
    # Notes of the same ids as well: another person's, for all that anybody knows.
    literature = (
        [SearchableStore(library(folder / "papers", [*papers(), *notes()]), ENCODER, "papers")] if beside else []
    )
    retriever = Retriever(
        first,
        ENCODER,
        also=also,
        beside=literature,
        remedy="segments",
        sentences=find_sentences,
        reranker=("overlap", TermOverlapReranker()) if reranked else None,
    )
    return LibrarySearch(first, retriever, rosters=(Roster(first),))


def examples(folder: Path) -> ExampleSearch:
    """The library of solved questions and how it is searched."""
    made = library(folder / "solved", solved())
    return ExampleSearch(LibrarySearch(made, Retriever(made, ENCODER)), ExampleSettings(k=2), 0)


def recorder(context_tokens: int = 1_000_000) -> ScriptedModel:
    """A model that answers whatever it is asked, and keeps every prompt."""

    def script(request: ChatRequest) -> str:
        messages = [{"role": each.role, "content": each.content} for each in request.messages]
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
    """What stands in the prompts. Every one tells whose question it is of."""
    seen = Seen()
    for request in requests:
        text = "\n".join(message.content for message in request.messages)
        asked = {int(number) for number in _CASE.findall(text)}
        assert len(asked) == 1, "a prompt is of one question"
        (patient,) = asked
        for found in sorted({int(number) for number in _WORD.findall(text)}):
            if found == patient:
                seen.own.add(patient)
            elif found != LITERATURE:
                seen.leaks.append((patient, found))
    return seen
