"""What a library does when all is well, and what it says when it is not."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from epicrisis.core.errors import (
    EncoderMismatch,
    EpicrisisError,
    InputError,
    LibraryBusy,
    LibraryDamaged,
    LibraryError,
    LibraryMissing,
    StorageError,
)
from epicrisis.core.protocols import StoredDocument
from epicrisis.core.serialization import to_json
from epicrisis.core.types import Scope
from epicrisis.library.base.passage_table import PassageTable, StoredPassage
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.core.patients import holds_patients
from epicrisis.library.core.repair import repair_library
from epicrisis.library.engines.engine_choice import TableEngine
from epicrisis.library.engines.word_index import WordIndex
from epicrisis.testing.stores import DIMENSIONS, build_stored_document, hash_content
from tests.library.conftest import Killer
from tests.support.library_checks import discrepancies
from tests.support.library_documents import COUNT, LARGE, add, contents, create, encoder


@pytest.fixture
def library(tmp_path: Path) -> Iterator[LibraryStore]:
    """Return an empty library for the documents of `build_stored_document`."""
    with LibraryStore.create(
        tmp_path / "own",
        encoder_fingerprint="check",
        encoder_name="check",
        dimensions=DIMENSIONS,
        max_tokens=64,
        overlap=8,
    ) as new_library:
        yield new_library


# -- who may open it --------------------------------------------------------------------------------------------------


def test_open_second_writer_is_refused_and_reader_accepted(folder: Path) -> None:
    with LibraryStore.open(folder, write=True):
        with pytest.raises(LibraryBusy, match="another process is writing"):
            LibraryStore.open(folder, write=True)
        with pytest.raises(LibraryBusy):
            repair_library(folder)
        with LibraryStore.open(folder) as reader:
            assert reader.count()[0] == COUNT // 2
    with LibraryStore.open(folder, write=True) as library:
        assert library.count()[0] == COUNT // 2


def test_open_refused_writer_releases_lock(folder: Path) -> None:
    shutil.move(folder / "words", folder / "elsewhere")
    with pytest.raises(LibraryDamaged):
        LibraryStore.open(folder, write=True)
    shutil.move(folder / "elsewhere", folder / "words")
    LibraryStore.open(folder, write=True).close()


def test_reader_write_raises_library_error(folder: Path) -> None:
    with LibraryStore.open(folder) as reader:
        with pytest.raises(LibraryError, match="write=True"):
            reader.delete(["doc:1"])
        with pytest.raises(LibraryError, match="write=True"):
            reader.compact()
        with pytest.raises(LibraryError, match="write=True"):
            add(reader, 1, COUNT)
        assert reader.count()[0] == COUNT // 2


def test_closed_library_write_raises_library_error(folder: Path) -> None:
    library = LibraryStore.open(folder, write=True)
    library.close()
    library.close()
    with pytest.raises(LibraryError):
        library.delete(["doc:1"])


@pytest.mark.long
def test_reader_searches_during_concurrent_write(killer: Killer, folder: Path) -> None:
    question = np.asarray(encoder().encode_queries(["aspirin and stroke"])[0])
    with ThreadPoolExecutor(1) as pool, LibraryStore.open(folder) as reader:
        writing = pool.submit(killer.run, "add", folder, "never", 0, version=7, count=LARGE)
        counts = [reader.count()[0]]
        while not writing.done():
            assert len(reader.search_vectors(question, 5, Scope())) == 5
            hits = reader.search_words("aspirin stroke", 5, Scope())
            for passage in reader.fetch([hit.id for hit in hits], Scope()):
                assert {"aspirin", "stroke"} & set(passage.text.lower().replace(".", "").split())
            counts.append(reader.count()[0])
        assert writing.result() is False
        assert counts == sorted(counts)
        assert len(set(counts)) > 3
        assert reader.count()[0] == LARGE
        with LibraryStore.open(folder) as fresh:
            assert contents(reader) == contents(fresh)


def test_reader_during_replace_does_not_match_old_words(library: LibraryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the commit of the table and that of the words, the words still speak of the version before."""
    library.add([build_stored_document("a", "aspirin"), build_stored_document("b", "aspirin", patient="anna")])
    original = WordIndex.replace
    results: list[tuple[str, ...]] = []

    def replace(self: WordIndex, ids: list[str], passages: list[StoredPassage]) -> int:
        with LibraryStore.open(library.path) as reader:
            for query, scope in (("aspirin", Scope(patient="anna")), ("warfarin", Scope())):
                results.append(tuple(hit.id for hit in reader.search_words(query, 9, scope)))
        return original(self, ids, passages)

    monkeypatch.setattr(WordIndex, "replace", replace)
    library.add(
        [
            build_stored_document("a", "warfarin", version="2"),
            build_stored_document("b", "aspirin", patient="bert", version="2"),
        ]
    )
    assert results == [(), ()]
    assert [hit.id for hit in library.search_words("aspirin", 9, Scope(patient="bert"))] == ["b#0"]
    assert library.search_words("aspirin", 9, Scope(patient="anna")) == ()


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["sqlite", "lance"])
def test_search_words_reads_no_hash_while_words_and_table_are_in_step(
    engine: TableEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading the hashes of all hits takes a third of a search in a large library."""
    counts: list[int] = []
    original = PassageTable.hashes

    def hashes(self: PassageTable, passage_ids: Sequence[str]) -> dict[str, str]:
        counts.append(len(passage_ids))
        return original(self, passage_ids)

    monkeypatch.setattr(PassageTable, "hashes", hashes)
    with (
        LibraryStore.create(
            tmp_path / "l",
            encoder_fingerprint="check",
            encoder_name="check",
            dimensions=DIMENSIONS,
            max_tokens=64,
            overlap=8,
            engine=engine,
        ) as library,
        LibraryStore.open(tmp_path / "l") as reader,
    ):
        library.add([build_stored_document("a", "aspirin"), build_stored_document("b", "aspirin")])
        library.delete(["b"])
        library.optimize()
        for store in (library, reader):
            assert [hit.id for hit in store.search_words("aspirin", 9, Scope())] == ["a#0"]
        assert counts == []
        library._parts.table.write([build_stored_document("a", "warfarin", version="2")], ["a"])
        for store in (library, reader):
            assert store.search_words("aspirin", 9, Scope()) == ()
        assert counts == [1, 1], "the table is ahead of the words"


def test_open_other_encoder_raises_encoder_mismatch(folder: Path) -> None:
    with LibraryStore.open(folder, encoder_fingerprint=encoder().fingerprint) as library:
        assert library.manifest.encoder_name == "hashing"
    with pytest.raises(
        EncoderMismatch, match=r"was created with hashing .* and other-1 is selected: .*--encoder hashing"
    ):
        LibraryStore.open(folder, encoder_fingerprint="other-1")


def test_open_missing_library_raises_library_missing(tmp_path: Path) -> None:
    with pytest.raises(LibraryMissing, match="epicrisis library add"):
        LibraryStore.open(tmp_path / "nowhere")
    with pytest.raises(LibraryMissing):
        repair_library(tmp_path / "nowhere")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("Dear")
    with pytest.raises(LibraryMissing):
        LibraryStore.open(tmp_path / "full", write=True)
    with pytest.raises(LibraryError, match="not empty and no library"):
        create(tmp_path / "full")
    with pytest.raises(LibraryError, match="is a file"):
        create(tmp_path / "full" / "letter.txt")
    assert sorted(path.name for path in (tmp_path / "full").iterdir()) == ["letter.txt"]


def test_create_over_existing_library_is_refused(folder: Path) -> None:
    with pytest.raises(LibraryError, match="holds a library already"):
        create(folder)
    with LibraryStore.open(folder) as library:
        assert library.count()[0] == COUNT // 2


def test_create_folder_is_private(tmp_path: Path) -> None:
    create(tmp_path / "new").close()
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700


# -- half-copied and damaged ------------------------------------------------------------------------------------------


def _largest(folder: Path, pattern: str) -> Path:
    return max(folder.glob(pattern), key=lambda path: path.stat().st_size)


def _cut_short(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def _drop_newest_versions(folder: Path) -> None:
    # Lance counts its versions down, so that the newest comes first: here what was compacted after the last write.
    for path in sorted((folder / "passages.lance" / "_versions").glob("*.manifest"))[:3]:
        path.unlink()


def _empty(path: Path) -> None:
    path.write_bytes(b"")


DAMAGES: dict[str, Callable[[Path], None]] = {
    "no journal": lambda folder: (folder / "journal.sqlite").unlink(),
    "no words": lambda folder: shutil.rmtree(folder / "words"),
    "no words' meta": lambda folder: (folder / "words" / "meta.json").unlink(),
    "no segment of words": lambda folder: _largest(folder, "words/*.term").unlink(),
    "a segment of words cut short": lambda folder: _cut_short(_largest(folder, "words/*.store")),
    "a journal that is none": lambda folder: _overwrite(folder / "journal.sqlite"),
    "a journal cut short": lambda folder: _cut_short(folder / "journal.sqlite"),
    "a journal that is empty": lambda folder: _empty(folder / "journal.sqlite"),
}
SQLITE_DAMAGES: dict[str, Callable[[Path], None]] = {
    "no passages": lambda folder: (folder / "passages.sqlite").unlink(),
    "passages cut short": lambda folder: _cut_short(folder / "passages.sqlite"),
    "passages that are none": lambda folder: _overwrite(folder / "passages.sqlite"),
    "passages that are empty": lambda folder: _empty(folder / "passages.sqlite"),
}
LANCE_DAMAGES: dict[str, Callable[[Path], None]] = {
    "no passages": lambda folder: shutil.rmtree(folder / "passages.lance"),
    "no file of passages": lambda folder: _largest(folder, "passages.lance/data/*.lance").unlink(),
    "a file of passages cut short": lambda folder: _cut_short(_largest(folder, "passages.lance/data/*.lance")),
    "an older version of passages": _drop_newest_versions,
    "no version of passages": lambda folder: shutil.rmtree(folder / "passages.lance" / "_versions"),
}


def _overwrite(path: Path) -> None:
    path.write_bytes(b"not a database, not at all" * 100)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("engine", "damage"),
    [
        *(("sqlite", damage) for damage in (*DAMAGES.values(), *SQLITE_DAMAGES.values())),
        *(("lance", damage) for damage in LANCE_DAMAGES.values()),
    ],
    ids=[*DAMAGES, *SQLITE_DAMAGES, *(f"lance: {name}" for name in LANCE_DAMAGES)],
)
@pytest.mark.parametrize("write", [False, True])
def test_open_half_copied_library_is_refused(
    engine: TableEngine, damage: Callable[[Path], None], write: bool, folder: Path
) -> None:
    damage(folder)
    with pytest.raises(LibraryDamaged, match=r"copy the whole folder again|restore the folder"):
        LibraryStore.open(folder, write=write)


@pytest.mark.slow
@pytest.mark.parametrize("damage", [name for name in DAMAGES if "words" in name or "journal" in name])
def test_repair_rebuilds_words_and_journal(damage: str, base: Path, folder: Path) -> None:
    DAMAGES[damage](folder)
    info = repair_library(folder)
    assert (info.documents, info.problems) == (COUNT // 2, ())
    with LibraryStore.open(base) as whole, LibraryStore.open(folder, write=True) as mended:
        assert contents(mended) == contents(whole)
        add(mended, 1, COUNT)
        assert discrepancies(mended, {}) == []


@pytest.mark.parametrize(
    ("engine", "damage"),
    [
        ("sqlite", SQLITE_DAMAGES["no passages"]),
        ("lance", LANCE_DAMAGES["no passages"]),
        ("lance", LANCE_DAMAGES["no file of passages"]),
    ],
    ids=["sqlite", "lance", "lance: no file"],
)
def test_repair_missing_passages_raises_library_damaged(
    engine: TableEngine, damage: Callable[[Path], None], folder: Path
) -> None:
    damage(folder)
    with pytest.raises(LibraryDamaged, match="half-copied"):
        repair_library(folder)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "is not a valid manifest"),
        ('{"format": 3}', "is not a valid manifest"),
        ('{"format": 2, "more": 1}', "create it again"),
        ('{"format": 4, "more": 1}', "install a newer epicrisis"),
    ],
)
def test_open_invalid_manifest_raises_library_damaged(text: str, message: str, folder: Path) -> None:
    (folder / "manifest.json").write_text(text)
    with pytest.raises(LibraryDamaged, match=message):
        LibraryStore.open(folder)


def test_open_manifest_with_wrong_type_raises_library_damaged(folder: Path) -> None:
    values = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**values, "dimensions": "16"}))
    with pytest.raises(LibraryDamaged):
        LibraryStore.open(folder)


def test_info_reports_contents_and_problems(folder: Path) -> None:
    with LibraryStore.open(folder, write=True) as library:
        info = library.info()
        assert (info.documents, info.passages) == library.count()
        assert (info.problems, info.open_batches, info.exact) == ((), 0, True)
        assert json.loads(json.dumps(to_json(info)))["path"] == str(folder)
        assert set(info.bytes_on_disk) == {"journal.sqlite", "passages.sqlite", "words"}
        assert all(size > 1000 for size in info.bytes_on_disk.values())
        with closing(WordIndex(folder)) as words:
            words.replace(["doc:1"], [])
        (problem,) = library.info().problems
        assert problem.startswith("words has ")
        assert "epicrisis library repair" in problem
    assert repair_library(folder).problems == ()


# -- failures that leave it whole -------------------------------------------------------------------------------------


def test_add_failed_batch_is_settled_by_next_write(library: LibraryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    library.add([build_stored_document("a", "aspirin"), build_stored_document("b", "aspirin")])

    def refuse(self: WordIndex) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(WordIndex, "_commit", refuse)
        with pytest.raises(StorageError, match="no room left"):
            library.add([build_stored_document("a", "warfarin", "warfarin", version="2")])
        assert library.info().open_batches == 1
        assert library.count() == (2, 2)
    library.add([build_stored_document("c", "statin")])
    assert library.content_hashes(["a"]) == {"a": hash_content("a", "2")}
    assert sorted(hit.id for hit in library.search_words("warfarin", 9, Scope())) == ["a#0", "a#1"]
    assert (library.info().problems, library.count()) == ((), (3, 4))


def _fill(folder: Path) -> tuple[dict[str, str], int]:
    """Add versions until the disk is full. Return the acknowledged hashes and the version that failed."""
    promised: dict[str, str] = {}
    original = LibraryStore.add

    def add_and_note(self: LibraryStore, documents: Sequence[StoredDocument]) -> None:
        original(self, documents)
        promised.update({document.id: document.content_hash for document in documents})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LibraryStore, "add", add_and_note)
        for version in range(1, 60):
            try:
                with LibraryStore.open(folder, write=True) as library:
                    add(library, version, LARGE)
            except StorageError:
                return promised, version
    raise AssertionError("the disk never filled up")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[int], Path | None]]:
    """Return a function that mounts or resizes a file system. It returns None without permission to mount."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = False

    def mount(kilobytes: int) -> Path | None:
        nonlocal mounted
        options = f"{'remount,' if mounted else ''}size={kilobytes}k"
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)]
        try:
            done = subprocess.run(command, capture_output=True, check=False)
        except OSError:
            return None
        mounted = mounted or done.returncode == 0
        return place if done.returncode == 0 else None

    yield mount
    if mounted:
        subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("kilobytes", [900, 1100, 1700, 2300])
def test_add_full_disk_keeps_acknowledged_documents(
    kilobytes: int, base: Path, small_disk: Callable[[int], Path | None]
) -> None:
    place = small_disk(kilobytes)
    if place is None:
        pytest.skip("no small disk may be mounted here; the limit on the size of a file is tested everywhere")
    folder = place / "library"
    shutil.copytree(base, folder)
    promised, version = _fill(folder)
    small_disk(64_000)
    check_whole_again(folder, promised, version)


def check_whole_again(folder: Path, promised: dict[str, str], version: int) -> None:
    with LibraryStore.open(folder, write=True) as library:
        assert discrepancies(library, promised, version) == []
        add(library, version, LARGE)
        assert discrepancies(library, promised, version) == []
        assert library.count()[0] == LARGE


@pytest.mark.long
@pytest.mark.parametrize("limit", [5_000, 45_000])
def test_add_file_size_limit_keeps_acknowledged_documents(limit: int, folder: Path) -> None:
    """The limit is set in a process of its own; the smaller it is, the earlier a part is refused."""
    script = (
        "import json, resource, sys\n"
        "from pathlib import Path\n"
        "from tests.library.test_library import _fill\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))\n"
        "sys.stdout.write(json.dumps(_fill(Path(sys.argv[1]))))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(folder), str(limit)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    promised, version = json.loads(done.stdout)
    check_whole_again(folder, promised, version)


def test_create_below_file_raises_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EpicrisisError):
        create(tmp_path / "file" / "below")


def test_open_reader_works_with_locked_journal(folder: Path) -> None:
    """SQLite lets one transaction write at a time; a reader is not held up by one under way."""
    other = sqlite3.connect(folder / "journal.sqlite", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with LibraryStore.open(folder) as reader:
        assert reader.count()[0] == COUNT // 2
    other.close()


# -- what is refused --------------------------------------------------------------------------------------------------


def test_add_invalid_document_raises_value_error(library: LibraryStore) -> None:
    good = build_stored_document("a", "aspirin")
    for bad, message in (
        ([good, good], "contains a document twice"),
        ([build_stored_document("a")], "at least one"),
        ([build_stored_document("a", "b", vectors=[[1.0, 2.0]])], "vectors of that shape"),
        ([build_stored_document("a", "b", vectors=[[float("nan"), 0, 0, 0]])], "not finite"),
        ([build_stored_document("a", "b", vectors=[[1e6, 0, 0, 0]])], "too large for float16"),
        ([build_stored_document("a", "b", date="yesterday")], "its date"),
        ([build_stored_document("", "b")], "its id"),
        ([build_stored_document("a\0b", "b")], "its id"),
        ([build_stored_document("a", "\ud800")], "surrogate"),
        ([good, build_stored_document("b", " ")], "no text"),
    ):
        with pytest.raises(ValueError, match=message):
            library.add(bad)
    assert library.count() == (0, 0)
    assert library.info().open_batches == 0


def test_search_vectors_invalid_vector_raises_input_error(library: LibraryStore) -> None:
    for vector in (np.zeros(3, np.float32), np.full(DIMENSIONS, np.nan, np.float32), np.zeros((1, 4), np.float32)):
        with pytest.raises(InputError, match="4 finite numbers"):
            library.search_vectors(vector, 3, Scope())


def test_delete_without_revisions_removes_cached_replies(tmp_path: Path) -> None:
    """They may quote what goes. An update of the source, which comes with revisions, leaves them."""
    with create(tmp_path / "library") as library:
        add(library, 1, 8)
        assert holds_patients(library.path)
        for name in ("replies.sqlite", "replies.sqlite-wal"):
            (library.path / name).write_text("a reply about document 3")
        library.delete(["doc:3"], {"doc:3": "0002"})
        assert len(list(library.path.glob("replies.sqlite*"))) == 2
        library.delete(["doc:4"])
        assert not list(library.path.glob("replies.sqlite*"))


def test_holds_patients_empty_library_returns_false(tmp_path: Path) -> None:
    with create(tmp_path / "library") as library:
        assert not holds_patients(library.path)
