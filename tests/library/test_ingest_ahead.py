"""Additions whose encoder reads one batch while another is written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from epicrisis.core.errors import ClusterError
from epicrisis.core.protocols import Encoder, ParallelEncoder, Vectors
from epicrisis.core.types import Document, Scope
from epicrisis.corpus.base.reader_base import DeletedDocument, FileFingerprint, ReaderItem
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.write.ingest import add_documents, open_or_create
from epicrisis.testing.hashing_encoder import HashingEncoder


class AheadEncoder(HashingEncoder):
    """A parallel encoder that notes when blocks begin and end, and may fail at one of them."""

    def __init__(self, fails_at: int | None = None) -> None:
        super().__init__()
        self.events: list[str] = []
        self._fails_at = fails_at

    def start_passages(self, texts: Sequence[tuple[str, str]]) -> Callable[[], Vectors]:
        number = sum(event.startswith("begin") for event in self.events)
        self.events.append(f"begin {number}")

        def collect() -> Vectors:
            if number == self._fails_at:
                raise ClusterError("the connection to the cluster was lost")
            self.events.append(f"end {number}")
            return self.encode_passages(texts)

        return collect


def documents(count: int) -> list[Document]:
    items = []
    for number in range(count):
        items.append(Document(f"doc:{number}", f"Trial {number} of aspirin, arm {number % 7}.", revision=None))
    return items


def create(folder: Path, encoder: Encoder, items: Sequence[ReaderItem]) -> None:
    with open_or_create(folder, encoder, "hashing") as library:
        # Small batches, whatever the speed of this machine.
        add_documents(library, items, encoder, passages_per_batch=20)


def contents(folder: Path) -> tuple[dict[str, str], list[tuple[str, float]]]:
    """Return the hash of each document, and the ranking of a question."""
    with LibraryStore.open(folder) as library:
        hashes = library.content_hashes([f"doc:{number}" for number in range(200)])
        query = HashingEncoder().encode_queries(["aspirin arm 3"])[0]
        hits = library.search_vectors(query, 50, Scope())
        assert library.info().problems == ()
        return dict(hashes), [(hit.id, round(hit.score, 5)) for hit in hits]


@pytest.mark.slow
def test_parallel_encoder_gives_same_library(tmp_path: Path) -> None:
    encoder = AheadEncoder()
    assert isinstance(encoder, ParallelEncoder)
    assert not isinstance(HashingEncoder(), ParallelEncoder)
    create(tmp_path / "alone", HashingEncoder(), documents(150))
    create(tmp_path / "ahead", encoder, documents(150))
    assert contents(tmp_path / "ahead") == contents(tmp_path / "alone")
    assert len(contents(tmp_path / "ahead")[0]) == 150


@pytest.mark.slow
def test_next_batch_begins_before_last_is_written(tmp_path: Path) -> None:
    encoder = AheadEncoder()
    create(tmp_path, encoder, documents(150))
    assert encoder.events[:4] == ["begin 0", "begin 1", "end 0", "begin 2"]
    assert encoder.events[-1].startswith("end")


def test_document_repeated_while_encoded_is_stored_once(tmp_path: Path) -> None:
    """The second and third versions come while the first is being encoded; the last revision wins, and a deletion."""
    versions: list[ReaderItem] = []
    for revision in ("1", "2", "3"):
        versions += documents(20)
        versions.append(Document("pubmed:1", f"Version {revision} of the trial.", revision=revision))
    versions += [Document("pubmed:2", "Withdrawn.", revision="1"), DeletedDocument("pubmed:2", "2")]
    create(tmp_path, AheadEncoder(), versions)
    with LibraryStore.open(tmp_path) as library:
        assert library.count() == (21, 21)
        assert [passage.text for passage in library.fetch(["pubmed:1#0"], Scope())] == ["Version 3 of the trial."]


@pytest.mark.slow
def test_lost_cluster_keeps_written_batches_and_repeats_the_rest(tmp_path: Path) -> None:
    items: list[ReaderItem] = [*documents(100), FileFingerprint("a.jsonl", "0" * 64, 10)]
    with pytest.raises(ClusterError):
        create(tmp_path, AheadEncoder(fails_at=2), items)
    with LibraryStore.open(tmp_path) as library:
        assert 0 < library.count()[0] < 100
        assert library.sources() == [], "the file is not complete"
    create(tmp_path, AheadEncoder(), items)
    with LibraryStore.open(tmp_path) as library:
        assert library.count() == (100, 100)
        assert [file.name for file in library.sources()] == ["a.jsonl"]


def test_file_is_recorded_after_its_last_document(tmp_path: Path) -> None:
    """The file ends while its last batch is still being encoded, and that batch fails."""
    encoder = AheadEncoder(fails_at=1)
    items: list[ReaderItem] = [*documents(30), FileFingerprint("a.jsonl", "0" * 64, 10), *documents(90)[30:]]
    with pytest.raises(ClusterError):
        create(tmp_path, encoder, items)
    with LibraryStore.open(tmp_path) as library:
        assert library.sources() == []


def test_reused_vectors_need_no_encoder(tmp_path: Path) -> None:
    create(tmp_path, HashingEncoder(), documents(5))
    changed = [
        Document(f"doc:{number}", f"Trial {number} of aspirin, arm {number % 7}.", date="2021") for number in range(5)
    ]
    encoder = AheadEncoder(fails_at=0)
    create(tmp_path, encoder, changed)
    with LibraryStore.open(tmp_path) as library:
        (vector,) = library.vectors_of(["doc:3"]).values()
    assert np.allclose(vector, HashingEncoder().encode_passages([("", "Trial 3 of aspirin, arm 3.")])[0], atol=1e-3)
