"""Whole documents: their sentences are ranked too that no passage of the search has."""

from __future__ import annotations

from pathlib import Path

from epicrisis import Document, Library
from epicrisis.core.protocols import StoredDocument
from epicrisis.core.types import Passage, Scope
from epicrisis.retrieval.id_rankings import SearchableStore
from epicrisis.retrieval.retriever import REACH, WHOLE_DOCUMENTS, Retriever
from epicrisis.testing.chat import ScriptedModel
from epicrisis.testing.hashing_encoder import HashingEncoder
from epicrisis.testing.stores import MemoryStore

ENCODER = HashingEncoder(8)


def make_document(name: str, count: int, word: str = "Part", date: str | None = None) -> StoredDocument:
    texts = [f"{word} {number:03}." for number in range(count)]
    passages = tuple(
        Passage(
            id=f"{name}#{number}",
            document_id=name,
            ordinal=number,
            start=20 * number,
            end=20 * number + len(text),
            text=text,
            date=date,
        )
        for number, text in enumerate(texts)
    )
    return StoredDocument(name, "0" * 32, passages, ENCODER.encode_passages([("", text) for text in texts]))


def fill(*documents: StoredDocument) -> MemoryStore:
    store = MemoryStore()
    store.add(documents)
    return store


def test_passages_around_a_found_one_are_read() -> None:
    book = make_document("book", 300)
    read = Retriever(fill(book), None).read_whole([book.passages[100]], Scope())
    assert sorted(passage.ordinal for passage in read) == list(range(100 - REACH, 101 + REACH))


def test_only_the_first_documents_are_read_whole() -> None:
    documents = [make_document(f"d{number:02}", 3) for number in range(WHOLE_DOCUMENTS + 2)]
    found = [document.passages[1] for document in documents]
    read = Retriever(fill(*documents), None).read_whole(found, Scope())
    assert len(read) == 3 * WHOLE_DOCUMENTS + 2
    assert all(passage in read for passage in found)


def test_passages_outside_the_scope_are_not_read() -> None:
    early, late = make_document("d", 2, date="2010"), make_document("d", 2, date="2020")
    mixed = StoredDocument("d", "0" * 32, (early.passages[0], late.passages[1]), early.vectors)
    read = Retriever(fill(mixed), None).read_whole([early.passages[0]], Scope(as_of="2015"))
    assert read == (early.passages[0],)


def test_document_of_another_library_with_the_same_id_is_not_mixed() -> None:
    own, other = make_document("d", 3, "Own"), make_document("d", 3, "Other")
    beside = SearchableStore(fill(other), None, "other")
    read = Retriever(fill(own), None, beside=[beside]).read_whole([own.passages[0]], Scope())
    assert [passage.text for passage in read] == ["Own 000.", "Own 001.", "Own 002."]


def test_notes_of_a_patient_are_not_read_whole() -> None:
    document = make_document("d", 3)
    assert (
        Retriever(fill(document), None).read_whole(document.passages[:1], Scope(patient="anna"))
        == document.passages[:1]
    )


CHAPTERS = 1200
"""More than the passages that a search gives, all nearer to the question than the result."""
RESULT = "RESULTS: Its duration was significantly shorter than with placebo (3.1 versus 4.2 days, p = 0.01)."
QUESTION = "What is the effect of zinc on the duration of diarrhoea in children?"


def write_trial(chapters: int) -> Document:
    """Return a document with the result at its end."""
    filler = "\n".join(f"Zinc and diarrhoea of children are the subject of chapter {i}." for i in range(chapters))
    return Document("trial", f"{filler}\n{'Nothing else follows. ' * 100}\n{RESULT}", title="Zinc")


def test_focused_reads_the_best_sentences_of_whole_documents(tmp_path: Path) -> None:
    model = ScriptedModel(lambda _: '{"sentences": [], "claims": []}')
    with Library.create(tmp_path / "library", encoder=HashingEncoder(64)) as library:
        library.add(write_trial(200))
    settings = {"cache": {"mode": "off"}, "keep_first": False}
    with Library.open(tmp_path / "library", encoder=HashingEncoder(64), model=model, **settings) as library:
        library.ask(QUESTION, strategy="rag", k=4)
        assert not any(RESULT in message.content for request in model.requests for message in request.messages)
        library.ask(QUESTION, strategy="focused", k=4)
    assert any(RESULT in message.content for request in model.requests for message in request.messages)


def test_evidence_is_of_whole_documents_and_three_sentences_of_one(tmp_path: Path) -> None:
    with Library.create(tmp_path / "library", encoder=HashingEncoder(64), keep_first=False) as library:
        library.add(write_trial(CHAPTERS))
        listed = library.evidence(QUESTION, sentences=8).sentences
        asked = library.ask(QUESTION, strategy="evidence", sentences=8).citations
        found = library.search(QUESTION, k=16, by="hybrid").passages
        kept = library.search(QUESTION, k=16, by="hybrid", keep_first=True).passages
    assert not any(RESULT in passage.text for passage in found), "the search must not find it"
    assert any(RESULT in passage.text for passage in kept), "one search has it first"
    for texts in ([sentence.text for sentence in listed], [citation.quotation for citation in asked]):
        assert len(texts) <= 3
        assert texts[0] == RESULT
