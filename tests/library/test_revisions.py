"""Versions, deletions and ready-made vectors: the latest counts whatever the order, and nothing is encoded twice."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from epicrisis.core.errors import StorageError
from epicrisis.core.protocols import Vectors
from epicrisis.core.types import Document, Scope
from epicrisis.corpus.base.reader_base import DeletedDocument, EncodedDocument, FileFingerprint, ReaderItem
from epicrisis.library.core.journal import IngestedFile
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.core.repair import repair_library
from epicrisis.library.write.ingest import add_documents, content_hash
from epicrisis.library.write.ingest_batches import IngestReport
from epicrisis.testing.hashing_encoder import HashingEncoder
from tests.support.library_checks import discrepancies
from tests.support.library_documents import DIMENSIONS, contents, create, documents, encoder

LONG = (
    "Aspirin lowers the risk of stroke in older adults. Warfarin needs a close watch over its dose. "
    "Statins lower mortality in those at risk."
)


def version(name: str, revision: str | None, text: str = "", **more: object) -> Document:
    return Document(name, text or f"aspirin of {revision}", revision=revision, metadata=more)


class RecordingEncoder(HashingEncoder):
    """Notes every passage that it encodes."""

    def __init__(self) -> None:
        super().__init__(DIMENSIONS, 12)
        self.inputs: list[tuple[str, str]] = []

    def encode_passages(self, texts: Sequence[tuple[str, str]]) -> Vectors:
        self.inputs += texts
        return super().encode_passages(texts)


@pytest.fixture
def library(tmp_path: Path) -> Iterator[LibraryStore]:
    with create(tmp_path / "library") as one:
        yield one


def get_counts(report: IngestReport) -> dict[str, int]:
    """Return the counts of the report that are not 0."""
    fields = ("added", "replaced", "unchanged", "outdated", "deleted", "skipped")
    return {name: getattr(report, name) for name in fields if getattr(report, name)}


def read_texts(library: LibraryStore, document_id: str) -> list[str]:
    """Return the texts of the document's passages as a word search finds them."""
    ids = [hit.id for hit in library.search_words("aspirin", 1000, Scope())]
    return [passage.text for passage in library.fetch(ids, Scope()) if passage.document_id == document_id]


# -- the latest counts -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shared_library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LibraryStore]:
    """Return one library for all examples, each with documents of its own."""
    with create(tmp_path_factory.mktemp("shared") / "library") as one:
        yield one
        assert discrepancies(one, {}) == []


_numbers = itertools.count()
_REVISIONS = ("20200101", "20210101", "20220101")


@st.composite
def _histories(draw: st.DrawFn) -> list[list[ReaderItem]]:
    """Draw versions and deletions of two documents in any order over a few additions."""
    prefix = next(_numbers)
    items: list[ReaderItem] = []
    for name in (f"{prefix}:a", f"{prefix}:b"):
        for revision in draw(st.sets(st.sampled_from(_REVISIONS))):
            is_deleted = draw(st.booleans())
            items.append(DeletedDocument(name, revision) if is_deleted else version(name, revision))
        if draw(st.booleans()):
            items.append(version(name, None))
    items = draw(st.permutations(items))
    cuts = sorted(draw(st.lists(st.integers(0, len(items)), max_size=3)))
    return [items[start:end] for start, end in itertools.pairwise([0, *cuts, len(items)])]


@pytest.mark.long
@settings(deadline=None, max_examples=30)
@given(history=_histories())
def test_add_revisions_in_any_order_keeps_latest(shared_library: LibraryStore, history: list[list[ReaderItem]]) -> None:
    for items in history:
        add_documents(shared_library, items, encoder())
    everything = [item for items in history for item in items]
    latest: dict[str, ReaderItem] = {}
    for item in everything:
        assert isinstance(item, (Document, DeletedDocument))
        if item.id not in latest or (item.revision or "") > (getattr(latest[item.id], "revision", "") or ""):
            latest[item.id] = item
    present = {id_: item for id_, item in latest.items() if isinstance(item, Document)}
    assert shared_library.content_hashes(list(latest)) == {id_: content_hash(item) for id_, item in present.items()}
    for id_ in latest:
        assert read_texts(shared_library, id_) == ([present[id_].text] if id_ in present else [])
    again = add_documents(shared_library, reversed(everything), encoder())
    assert get_counts(again).keys() <= {"unchanged", "outdated"}
    assert shared_library.content_hashes(list(latest)) == {id_: content_hash(item) for id_, item in present.items()}


@pytest.mark.parametrize("apart", [False, True])
def test_add_revisions_report_counts_each_kind(library: LibraryStore, apart: bool) -> None:
    steps: list[tuple[ReaderItem, dict[str, int]]] = [
        (version("a", "2"), {"added": 1}),
        (version("a", "1"), {"outdated": 1}),
        (version("a", "2"), {"unchanged": 1}),
        (version("a", None), {"outdated": 1}),
        (version("a", "3"), {"replaced": 1}),
        (DeletedDocument("a", "2"), {"outdated": 1}),
        (DeletedDocument("a", "4"), {"deleted": 1}),
        (DeletedDocument("a", "4"), {}),
        (version("a", "3"), {"outdated": 1}),
        (version("a", None), {"outdated": 1}),
        (version("a", "5"), {"added": 1}),
        (DeletedDocument("never-there", "1"), {}),
    ]
    if apart:
        for item, expected in steps:
            assert get_counts(add_documents(library, [item], encoder())) == expected, item
    else:
        sums: Counter[str] = Counter()
        for _, expected in steps:
            sums.update(expected)
        assert get_counts(add_documents(library, [item for item, _ in steps], encoder())) == dict(sums)
    assert read_texts(library, "a") == ["aspirin of 5"]
    assert library.revisions(["a", "never-there", "b"]) == {"a": "5", "never-there": "1"}


def test_add_deletion_and_version_of_same_revision_deletes(library: LibraryStore) -> None:
    """Whichever comes first, the deletion counts."""
    add_documents(
        library, [version("a", "2"), DeletedDocument("a", "2"), DeletedDocument("b", "2"), version("b", "2")], encoder()
    )
    assert library.content_hashes(["a", "b"]) == {}


def test_add_version_with_revision_wins_over_version_without(library: LibraryStore) -> None:
    items = [version("a", "1"), version("a", None), version("b", None), version("b", "1")]
    add_documents(library, items, encoder())
    assert (read_texts(library, "a"), read_texts(library, "b")) == (["aspirin of 1"], ["aspirin of 1"])
    assert library.count() == (2, 2)


def test_add_newer_version_removes_all_old_passages(library: LibraryStore) -> None:
    add_documents(library, [version("a", "1", LONG), version("b", "1", LONG)], encoder())
    assert library.count()[1] >= 6
    add_documents(library, [version("a", "2")], encoder())
    assert read_texts(library, "a") == ["aspirin of 2"]
    assert library.search_words("warfarin statins", 9, Scope(hidden=frozenset({"b"}))) == ()
    assert discrepancies(library, {}) == []


def test_repair_keeps_revisions_and_sources(tmp_path: Path) -> None:
    mark = FileFingerprint("pubmed26n0001.xml.gz", "0" * 64, 12)
    items: list[ReaderItem] = [
        version("a", "1"),
        version("b", "3"),
        DeletedDocument("a", "2"),
        DeletedDocument("c", "9"),
        mark,
    ]
    with create(tmp_path / "l") as library:
        add_documents(library, items, encoder())
        revisions, sources = library.revisions(["a", "b", "c"]), library.sources()
    assert repair_library(tmp_path / "l").problems == ()
    with LibraryStore.open(tmp_path / "l", write=True) as library:
        assert library.revisions(["a", "b", "c"]) == revisions == {"a": "2", "b": "3", "c": "9"}
        assert [(source.name, source.sha256, source.bytes) for source in library.sources()] == [
            (mark.name, mark.sha256, mark.bytes)
        ]
        assert library.sources() == sources
        late = [version("a", "1"), version("b", "2"), version("c", "8")]
        assert get_counts(add_documents(library, late, encoder())) == {"outdated": 3}
        assert library.count()[0] == 1


# -- vectors are made once ---------------------------------------------------------------------------------------------


def read_vectors(library: LibraryStore, document_id: str) -> dict[str, bytes]:
    """Return the stored float16 vectors by text."""
    stored = library.vectors_of([document_id])
    return {text: np.asarray(vector, dtype=np.float16).tobytes() for (_, text), vector in stored.items()}


def test_add_changed_metadata_encodes_nothing(library: LibraryStore) -> None:
    counting = RecordingEncoder()
    add_documents(library, [version("a", "1", LONG, mesh=["Stroke"])], counting)
    assert len(counting.inputs) >= 3
    before = read_vectors(library, "a")
    counting.inputs.clear()
    changed = Document("a", LONG, source="pubmed", date="2021", revision="2", metadata={"mesh": ["Stroke", "Aged"]})
    assert get_counts(add_documents(library, [changed], counting)) == {"replaced": 1}
    assert counting.inputs == []
    assert read_vectors(library, "a") == before
    (first, *_) = library.fetch(["a#0"], Scope())
    assert (first.date, first.metadata, library.revisions(["a"])) == ("2021", changed.metadata, {"a": "2"})
    for passage, vector in zip(*_passages_and_vectors(library), strict=True):
        assert np.allclose(encoder().encode_passages([("", passage)])[0], vector, atol=2e-3)


def _passages_and_vectors(library: LibraryStore) -> tuple[list[str], list[Vectors]]:
    """Read from the table row by row: which vector stands beside which text."""
    texts: list[str] = []
    vectors: list[Vectors] = []
    for columns in library.open_table().read_columns(["text", "vector"]):
        texts += columns["text"]
        vectors += list(columns["vector"].astype(np.float32))
    return texts, vectors


def test_add_changed_text_encodes_only_new_passages(library: LibraryStore) -> None:
    counting = RecordingEncoder()
    add_documents(library, [version("a", "1", LONG)], counting)
    encoded = {text for _, text in counting.inputs}
    counting.inputs.clear()
    add_documents(
        library, [version("a", "2", LONG + " Placebo did nothing at all for any of these patients.")], counting
    )
    assert 1 <= len(counting.inputs) < len(encoded)
    assert not encoded & {text for _, text in counting.inputs}
    counting.inputs.clear()
    add_documents(library, [Document("a", LONG, title="A title", revision="3")], counting)
    assert len(counting.inputs) >= len(encoded), "a title is part of what is encoded"


def test_add_changed_whitespace_encodes_nothing(library: LibraryStore) -> None:
    counting = RecordingEncoder()
    add_documents(library, [version("a", "1", "aspirin for stroke")], counting)
    add_documents(library, [version("a", "2", "aspirin  for\nstroke")], counting)
    assert len(counting.inputs) == 1
    assert read_texts(library, "a") == ["aspirin  for\nstroke"]


def test_add_encoded_document_keeps_vector(library: LibraryStore) -> None:
    counting = RecordingEncoder()
    vector = np.random.default_rng(3).normal(size=DIMENSIONS).astype(np.float16).astype(np.float32)
    others = [version(f"other:{number}", "1") for number in range(5)]
    items: list[ReaderItem] = [*others[:3], EncodedDocument(version("a", "1", LONG), vector), *others[3:]]
    assert get_counts(add_documents(library, items, counting)) == {"added": 6}
    assert len(counting.inputs) == 5
    assert read_vectors(library, "a") == {LONG: vector.astype(np.float16).tobytes()}, (
        "one passage, its vector untouched"
    )
    assert library.search_vectors(vector, 1, Scope())[0].id == "a#0"
    counting.inputs.clear()
    # Other metadata from the XML leave a short text's vector as it came.
    add_documents(library, [EncodedDocument(version("b", "1", "aspirin"), -vector)], counting)
    add_documents(library, [version("b", "2", "aspirin", mesh=["Stroke"])], counting)
    assert counting.inputs == []
    assert read_vectors(library, "b") == {"aspirin": (-vector).astype(np.float16).tobytes()}
    assert get_counts(add_documents(library, [EncodedDocument(version("b", "1", "aspirin"), vector)], counting)) == {
        "outdated": 1
    }


@pytest.mark.parametrize(
    ("vector", "message"),
    [
        (np.zeros(DIMENSIONS + 1), f"{DIMENSIONS + 1} numbers"),
        (np.zeros(DIMENSIONS - 1), f"{DIMENSIONS - 1} numbers"),
        (np.full(DIMENSIONS, np.nan), "not finite"),
        (np.full(DIMENSIONS, 1e6), "float16"),
    ],
)
def test_add_encoded_document_with_invalid_vector_is_skipped(
    library: LibraryStore, vector: Vectors, message: str
) -> None:
    items: list[ReaderItem] = [EncodedDocument(version("a", "1"), vector.astype(np.float32)), version("b", "1")]
    report = add_documents(library, items, encoder())
    assert get_counts(report) == {"added": 1, "skipped": 1}
    (skipped,) = report.first_skipped
    assert skipped.path == "a"
    assert message in skipped.reason


# -- files that were added whole ---------------------------------------------------------------------------------------


def _files(sizes: Sequence[int]) -> Iterator[ReaderItem]:
    """Yield the documents of files of these sizes, each followed by its fingerprint."""
    corpus = documents(0, sum(sizes))
    for number, size in enumerate(sizes):
        yield from itertools.islice(corpus, size)
        yield FileFingerprint(f"part-{number}", f"{number:064}", size)


def list_sources(library: LibraryStore) -> list[str]:
    return [source.name for source in library.sources()]


@pytest.mark.slow
def test_add_file_is_recorded_after_its_documents(library: LibraryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = (3, 20, 0, 40, 1)
    before: list[int] = []
    original = LibraryStore.add_source

    def add_source(self: LibraryStore, source: IngestedFile) -> None:
        before.append(self.count()[0])
        original(self, source)

    monkeypatch.setattr(LibraryStore, "add_source", add_source)
    add_documents(library, _files(sizes), encoder(), passages_per_batch=12)
    recorded = [(file.name, file.sha256, file.bytes) for file in library.sources()]
    assert recorded == [(f"part-{number}", f"{number:064}", size) for number, size in enumerate(sizes)]
    assert all(stored >= sum(sizes[: number + 1]) for number, stored in enumerate(before))
    assert before[0] < sum(sizes), "a file is not kept waiting for all the others"
    assert library.info().sources == tuple(library.sources())


def test_add_reading_error_leaves_file_unrecorded(library: LibraryStore) -> None:
    def broken() -> Iterator[ReaderItem]:
        yield from itertools.islice(_files([3, 40]), 4)
        raise StorageError("the disk")

    with pytest.raises(StorageError, match="the disk"):
        add_documents(library, broken(), encoder())
    assert (list_sources(library), library.count()[0]) == ([], 0), "its documents still waited"
    add_documents(library, _files([3, 40]), encoder())
    assert (list_sources(library), library.count()[0]) == (["part-0", "part-1"], 43)


@pytest.mark.slow
def test_add_encoding_error_leaves_file_unrecorded(library: LibraryStore) -> None:
    class Broken(RecordingEncoder):
        def encode_passages(self, texts: Sequence[tuple[str, str]]) -> Vectors:
            if len(self.inputs) > 60:
                raise StorageError("the graphics card")
            return super().encode_passages(texts)

    with pytest.raises(StorageError, match="the graphics card"):
        add_documents(library, _files([20, 60, 60]), Broken(), passages_per_batch=12)
    stored = library.count()[0]
    assert 20 <= stored < 80
    assert list_sources(library) == ["part-0"]
    before = contents(library)
    add_documents(library, _files([20, 60, 60]), encoder())
    assert list_sources(library) == ["part-0", "part-1", "part-2"]
    after = contents(library)
    assert before.hashes.items() <= after.hashes.items()
    assert discrepancies(library, before.hashes, 0) == []
