"""Documents into a library: each once, the newest version, in time, and every one left out is told."""

from __future__ import annotations

import dataclasses
import itertools
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from epicrisis.core.errors import EncoderMismatch, InputError, LibraryError
from epicrisis.core.protocols import StoredDocument, Vectors
from epicrisis.core.types import Document, Scope
from epicrisis.corpus.base.reader_base import DeletedDocument, ReaderItem, Skipped
from epicrisis.library.base import passage_table
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.write import ingest, ingest_batches
from epicrisis.library.write.ingest import add_documents, content_hash
from epicrisis.library.write.ingest_batches import MAX_LISTED, IngestProgress, IngestReport
from epicrisis.testing.hashing_encoder import HashingEncoder
from tests.support.library_checks import discrepancies
from tests.support.library_documents import contents, create, documents, encoder


def get_counts(report: IngestReport) -> tuple[int, int, int, int]:
    return report.added, report.replaced, report.unchanged, report.skipped


@pytest.mark.slow
def test_add_documents_counts_new_unchanged_and_changed(tmp_path: Path) -> None:
    with create(tmp_path / "l") as library:
        first = add_documents(library, documents(0, 30), encoder())
        assert get_counts(first) == (30, 0, 0, 0)
        assert library.count() == (30, first.passages)
        before = contents(library)
        version = library.open_table().version
        again = add_documents(library, documents(0, 30), encoder())
        assert (*get_counts(again), again.passages) == (0, 0, 30, 0, 0)
        assert (contents(library), library.open_table().version) == (before, version), (
            "nothing is written where nothing changes"
        )
        changed = add_documents(library, documents(1, 36), encoder())
        assert get_counts(changed) == (6, 10, 20, 0)
        assert discrepancies(library, {}) == []


def test_add_documents_passage_keeps_offsets_and_scope(tmp_path: Path) -> None:
    with create(tmp_path / "l") as library:
        text = "Aspirin lowers the risk of stroke in adults. Warfarin needs a close watch over the dose."
        document = Document(
            "note:1", text, title="Visit", source="notes", date="2020-05", patient="anna", metadata={"type": "visit"}
        )
        add_documents(library, [document], encoder())
        scope = Scope(patient="anna", as_of="2021")
        (hit,) = library.search_words("warfarin", 9, scope)
        (passage,) = library.fetch([hit.id], scope)
        assert passage.text == text[passage.start : passage.end]
        assert "Warfarin" in passage.text
        assert (passage.title, passage.source, passage.metadata) == ("Visit", "notes", {"type": "visit"})
        assert library.search_words("warfarin", 9, Scope()) == ()


@pytest.mark.parametrize(
    "change",
    [{"text": "b"}, {"title": "t"}, {"source": "s"}, {"date": "2015"}, {"patient": "p"}, {"metadata": {"a": [1]}}],
    ids=str,
)
def test_content_hash_changes_with_any_field(change: dict[str, object]) -> None:
    document = Document("a", "a")
    assert content_hash(document) == content_hash(Document("a", "a", metadata={}))
    assert content_hash(dataclasses.replace(document, **change)) != content_hash(document)  # type: ignore[arg-type]


def test_add_documents_repeated_id_keeps_first(tmp_path: Path) -> None:
    items = [Document("a", "aspirin"), Document("b", "stroke"), Document("a", "warfarin"), Document("a", "aspirin")]
    with create(tmp_path / "l") as library:
        report = add_documents(library, items, encoder())
        assert get_counts(report) == (2, 0, 1, 1)
        assert report.first_skipped == (Skipped("a", "", "same id, different text"),)
        assert get_counts(add_documents(library, items, encoder())) == (0, 0, 3, 1), "and again when run again"
        (hit,) = library.search_words("aspirin warfarin", 9, Scope())
        assert library.fetch([hit.id], Scope())[0].text == "aspirin"


def test_add_documents_invalid_documents_are_reported_as_skipped(tmp_path: Path) -> None:
    elsewhere = Skipped("file.jsonl", "line 3", "not JSON")
    items: list[Document | Skipped] = [
        elsewhere,
        Document("a", " \n"),
        Document("", "no id"),
        Document("b", "aspirin", date="soon"),
        Document("c", "half \ud83d"),
        Document("d", "aspirin"),
    ]
    with create(tmp_path / "l") as library:
        report = add_documents(library, items, encoder())
        assert get_counts(report) == (1, 0, 0, 5)
        assert report.first_skipped[0] == elsewhere
        assert [skipped.path for skipped in report.first_skipped[1:]] == ["a", "", "b", "c"]
        assert all(skipped.reason for skipped in report.first_skipped)
        many = add_documents(library, [Document(f"e{i}", "") for i in range(MAX_LISTED + 5)], encoder())
        assert (many.skipped, len(many.first_skipped)) == (MAX_LISTED + 5, MAX_LISTED)


def test_add_documents_of_too_many_characters_are_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passage_table, "MAX_CHARACTERS", 7)
    with create(tmp_path / "l") as library:
        report = add_documents(library, [Document("a", "aspirin"), Document("b", "aspirins")], encoder())
    assert get_counts(report) == (1, 0, 0, 1)
    assert report.reasons[0].reason == "its text is longer than 7 characters; split it"


def test_add_documents_other_encoder_writes_nothing(tmp_path: Path) -> None:
    with create(tmp_path / "l") as library:
        with pytest.raises(EncoderMismatch):
            add_documents(library, documents(0, 3), HashingEncoder(32))
        assert library.count() == (0, 0)
    with LibraryStore.open(tmp_path / "l") as reader, pytest.raises(LibraryError, match="write=True"):
        add_documents(reader, documents(0, 3), encoder())


def test_add_documents_vectors_match_passages(tmp_path: Path) -> None:
    """They are encoded in the order of their length and must not stay in it."""
    with create(tmp_path / "l") as library:
        add_documents(library, documents(0, 40), encoder())
        for document in documents(0, 40):
            for passage in library.fetch([f"{document.id}#0"], Scope(patient=document.patient)):
                (vector,) = encoder().encode_passages([(passage.title, passage.text)])
                best = library.search_vectors(vector, 1, Scope(patient=document.patient))[0]
                assert best.score == pytest.approx(float(vector @ vector), abs=2e-3)


class _Clock:
    """Time that only the encoder spends."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


class _Slow(HashingEncoder):
    """Takes so many seconds a passage, and gets slower by half on the way."""

    def __init__(self, clock: _Clock, seconds: float) -> None:
        super().__init__(16, 12)
        self._clock, self._seconds = clock, seconds

    def encode_passages(self, texts: Sequence[tuple[str, str]]) -> Vectors:
        self._clock.now += self._seconds * len(texts) * (1.5 if self._clock.now > 30 else 1.0)
        return super().encode_passages(texts)


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.3, 0.05, 0.001])
def test_add_documents_slow_encoder_commits_regularly(
    seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = _Clock()
    monkeypatch.setattr(ingest_batches, "time", clock)
    steps: list[IngestProgress] = []
    with create(tmp_path / "l") as library:
        report = add_documents(
            library, documents(0, 150), _Slow(clock, seconds), on_progress=steps.append, passages_per_batch=100
        )
        assert library.count() == (150, report.passages)
    moments = [0.0, *(step.seconds for step in steps)]
    assert max(b - a for a, b in itertools.pairwise(moments)) <= 10.0
    assert steps[-1].saved == 150
    assert report.encode_seconds == pytest.approx(clock.now)
    assert len(steps) <= 2 * (3 + max(report.passages // 100, report.seconds / 5)), "and not in crumbs"


def test_add_documents_interrupt_finishes_running_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = LibraryStore.add
    commits = 0

    def add(self: LibraryStore, batch: Sequence[StoredDocument]) -> None:
        nonlocal commits
        commits += 1
        if commits == 2:
            os.kill(os.getpid(), signal.SIGINT)
        original(self, batch)

    monkeypatch.setattr(LibraryStore, "add", add)
    # A run in the background of a shell starts with Ctrl-C ignored.
    started_with = signal.signal(signal.SIGINT, signal.default_int_handler)
    before = signal.getsignal(signal.SIGINT)
    with create(tmp_path / "l") as library:
        with pytest.raises(KeyboardInterrupt):
            add_documents(library, documents(0, 60), encoder(), passages_per_batch=12)
        assert commits == 2
        assert signal.getsignal(signal.SIGINT) is before
        stored = library.count()[0]
        assert 2 <= stored < 60
        assert discrepancies(library, {}) == []
        assert get_counts(add_documents(library, documents(0, 60), encoder())) == (60 - stored, 0, stored, 0)
    signal.signal(signal.SIGINT, started_with)


NOTE = Document("note:1", "Aspirin was given.", patient="anna")
BERT = dataclasses.replace(NOTE, patient="bert", text="Warfarin was given.")


@pytest.mark.parametrize("other", [BERT, dataclasses.replace(BERT, patient=None)], ids=["patient", "nobody"])
def test_add_documents_same_id_of_other_patient_is_skipped(tmp_path: Path, other: Document) -> None:
    with create(tmp_path / "l") as library:
        add_documents(library, [NOTE], encoder())
        report = add_documents(library, [other, Document("note:2", "Statin.", patient="bert")], encoder())
        assert get_counts(report) == (1, 0, 0, 1)
        assert "--column note-id=NAME" in report.first_skipped[0].reason
        assert [note.text for note in library.fetch_record(Scope(patient="anna"))] == [NOTE.text]
        assert get_counts(add_documents(library, [dataclasses.replace(NOTE, text="Aspirin.")], encoder()))[1] == 1
        assert discrepancies(library, {}) == []


def test_add_documents_withdrawn_note_is_deleted_only_for_its_patient(tmp_path: Path) -> None:
    with create(tmp_path / "l") as library:
        add_documents(library, [NOTE], encoder())
        assert add_documents(library, [DeletedDocument("note:1", patient="bert")], encoder()).deleted == 0
        again = add_documents(library, [DeletedDocument("note:1", patient="anna"), NOTE], encoder())
        assert (again.deleted, *get_counts(again)) == (1, 0, 0, 0, 1), "nor does this addition bring it back"
        assert library.fetch_record(Scope(patient="anna")) == ()
        assert add_documents(library, [NOTE, DeletedDocument("note:1", patient="anna")], encoder()).deleted == 1
        assert discrepancies(library, {}) == []


@pytest.mark.slow
def test_add_documents_looks_many_documents_up_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lookups = []
    revisions = LibraryStore.revisions

    def record_lookup(library: LibraryStore, document_ids: Sequence[str]) -> Mapping[str, str | None]:
        lookups.append(len(document_ids))
        return revisions(library, document_ids)

    monkeypatch.setattr(LibraryStore, "revisions", record_lookup)
    monkeypatch.setattr(ingest, "_GROUP_SECONDS", 1e9)
    items = [Document(f"doc:{number}", f"aspirin {number}") for number in range(1200)]
    with create(tmp_path / "l") as library:
        assert get_counts(add_documents(library, items, encoder())) == (1200, 0, 0, 0)
    assert lookups == [500, 500, 200]


def test_add_documents_document_pending_at_the_look_up_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next group has a newer version of a document that waits to be written, and an older one."""
    monkeypatch.setattr(ingest, "_GROUP_SECONDS", 1e9)
    monkeypatch.setattr(ingest, "_GROUP_ITEMS", 2)
    items = [
        Document("filler", "stroke"),
        Document("new", "aspirin", revision="1"),
        Document("new", "warfarin", revision="2"),
        Document("other", "statin", revision="2"),
        Document("other", "placebo", revision="1"),
        Document("last", "dose"),
    ]
    with create(tmp_path / "l") as library:
        report = add_documents(library, items, encoder())
        assert (report.added, report.replaced, report.outdated) == (4, 1, 1)
        assert library.search_words("aspirin placebo", 9, Scope()) == ()
        assert len(library.search_words("warfarin statin", 9, Scope())) == 2


def test_add_documents_deleted_in_the_same_group_is_added_again(tmp_path: Path) -> None:
    with create(tmp_path / "l") as library:
        add_documents(library, [Document("a", "aspirin", patient="anna")], encoder())
        items: list[ReaderItem] = [DeletedDocument("a", patient="anna"), Document("b", "stroke", patient="anna")]
        assert add_documents(library, items, encoder()).deleted == 1
        withdrawn: list[ReaderItem] = [DeletedDocument("b", "1"), Document("b", "stroke", patient="anna", revision="2")]
        report = add_documents(library, withdrawn, encoder())
        assert (report.deleted, report.added, report.unchanged) == (1, 1, 0)
        assert library.count() == (1, 1)


def test_add_documents_failing_reader_keeps_what_it_read_before(tmp_path: Path) -> None:
    def read() -> Iterator[Document]:
        for number in range(100):
            yield Document(f"doc:{number}", f"aspirin {number}")
        raise InputError("line 101 is not JSON")

    with create(tmp_path / "l") as library:
        with pytest.raises(InputError, match="line 101"):
            add_documents(library, read(), encoder(), passages_per_batch=40)
        assert library.count()[0] >= 40


def test_deletion_of_every_version_deletes_the_patients_documents_of_the_id(tmp_path: Path) -> None:
    """Not those of another patient, or of a longer id."""
    notes = [Document(f"note:1{end}", "stroke", patient="anna") for end in ("@a", "@b", "1@a")]
    notes.append(Document("note:1@c", "stroke", patient="bert"))
    with create(tmp_path) as library:
        add_documents(library, notes, encoder())
        deletion = DeletedDocument("note:1", patient="anna", every_version=True)
        assert add_documents(library, [deletion], encoder()).deleted == 2
        assert sorted(library.content_hashes([note.id for note in notes])) == ["note:11@a", "note:1@c"]
