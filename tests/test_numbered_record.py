"""Numbered sentences of a patient's record: the search selects them, not the order in which notes are shown."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast

import pytest

from epicrisis.answering.sentence_numbers import CANDIDATES
from epicrisis.core.prompts import unfence
from epicrisis.core.protocols import ChatRequest, StoredDocument
from epicrisis.core.types import Passage, Question
from epicrisis.corpus.base.chunking import find_sentences
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.engines.word_index import analyze_words
from epicrisis.pipeline.components import LibrarySearch
from epicrisis.pipeline.pipeline import Pipeline
from epicrisis.retrieval.retriever import Retriever
from epicrisis.settings.settings import ROLES, Settings
from epicrisis.testing.chat import ScriptedModel
from epicrisis.testing.stores import MemoryStore, hash_content
from tests.support.numbered_sentences import ENCODER
from tests.support.position_biased_reader import unfence_numbers

PATIENT = "P1"
DRUGS = ("aspirin", "heparin", "warfarin", "insulin", "metformin", "ramipril", "digoxin", "codeine", "zinc", "iron")
QUESTION = Question("Which drug was given on the ward for stroke?", patient=PATIENT, id="1")
N = 20


def notes(*, reverse: bool) -> list[Passage]:
    """Notes whose sentences are almost equally near to the question, from old to new or the other way round."""
    passages: list[Passage] = []
    for i in range(N):
        year = 2100 + (N - i if reverse else i)
        care = " and more" * (i * 7 % N)
        text = f"The drug {DRUGS[i % 10]} was given on ward {i}{care}. Stroke care of kind {i} went on{care}."
        passages.append(
            Passage(
                id=f"n{i}#0",
                document_id=f"n{i}",
                ordinal=0,
                start=0,
                end=len(text),
                text=text,
                date=f"{year}-01-01",
                patient=PATIENT,
            )
        )
    return passages


def offered_sentences(*, reverse: bool, **settings: Any) -> list[str]:
    """The first words of the numbered sentences of the first prompt, sorted."""

    def script(request: ChatRequest) -> str:
        return json.dumps({"result": {"found": False}})

    store = MemoryStore()
    rows: list[StoredDocument] = []
    for note in notes(reverse=reverse):
        vectors = ENCODER.encode_passages([(note.title, note.text)])
        rows.append(StoredDocument(note.document_id, hash_content(note.document_id, "1"), (note,), vectors))
    store.add(rows)
    search = LibrarySearch(
        cast("LibraryStore", None), Retriever(store, ENCODER, sentences=find_sentences, analyze=analyze_words)
    )
    model = ScriptedModel(script)
    values = {"k": N, "preflight": {"enabled": False}, "citing": "numbers", **settings}
    pipeline = Pipeline(Settings.model_validate(values), dict.fromkeys(ROLES, model), search)
    asyncio.run(pipeline.answer(QUESTION))
    prompt = model.requests[0].messages[-1].content
    sentences: list[str] = []
    for item, numbers in zip(unfence(prompt), unfence_numbers(prompt), strict=True):
        for start in numbers:
            sentences.append(item[start:].partition(". ")[0].removesuffix("."))
    return sorted(sentences)


@pytest.mark.parametrize(
    "settings",
    [
        {"strategy": "rag"},
        {"strategy": "rag", "rotations": 3},
        {"strategy": "brief-context", "partition": N},
        {"strategy": "full-context"},
    ],
)
def test_numbered_sentences_of_a_record_do_not_depend_on_the_dates_of_notes(settings: dict[str, Any]) -> None:
    oldest_first = offered_sentences(reverse=False, **settings)
    newest_first = offered_sentences(reverse=True, **settings)
    assert len(oldest_first) == CANDIDATES
    assert oldest_first == newest_first
