"""Where the disk is full, or a file breaks off, only what was not acknowledged is missing, and it is said where."""

from __future__ import annotations

import gzip
import json
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from epicrisis.core.errors import StorageError
from epicrisis.core.protocols import StoredDocument
from epicrisis.core.types import Document
from epicrisis.corpus.base.reader_base import FileFingerprint, ReaderItem, Skipped
from epicrisis.corpus.readers.sources import read_sources
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.engines.vector_index import read_report
from epicrisis.library.write.ingest import add_documents
from tests.support.library_checks import broken_promises, discrepancies
from tests.support.library_documents import COUNT, SMALL, contents, create, encoder, revise
from tests.support.pubmed_xml import article, article_set

# -- a file that may not grow stands for a full disk: that needs no rights to mount one --------------------------------

_CHILD_SCRIPT = """
import json, sys
from pathlib import Path
from tests.library.test_full_disk import attempt
sys.stdout.write(json.dumps(attempt(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])))
"""


def attempt(folder: Path, limit: int, step: str) -> tuple[dict[str, str | None], str]:
    """Revise the library, or optimize it if a step is named. Return what was acknowledged, and the error's message.

    Files may not grow beyond `limit` bytes from the beginning, or from that step on. Without an error the message is
    empty.
    """
    promised: dict[str, str | None] = {}
    add, delete = LibraryStore.add, LibraryStore.delete

    def add_and_note(self: LibraryStore, documents: Sequence[StoredDocument]) -> None:
        add(self, documents)
        promised.update({document.id: document.content_hash for document in documents})

    def delete_and_note(self: LibraryStore, ids: Sequence[str], revisions: Mapping[str, str] | None = None) -> None:
        delete(self, ids, revisions)
        promised.update(dict.fromkeys(ids))

    def on_step(name: str) -> None:
        if name.startswith(step):
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LibraryStore, "add", add_and_note)
        patch.setattr(LibraryStore, "delete", delete_and_note)
        for module, name, value in SMALL if step else ():
            patch.setattr(module, name, value)
        try:
            if not step:
                on_step("")
            with LibraryStore.open(folder, write=True) as library:
                if step:
                    library.optimize(recall=1.0, rebuild=True, on_step=on_step)
                else:
                    revise(library, 1, COUNT)
        except StorageError as error:
            return promised, error.message
    return promised, ""


def attempt_in_child(folder: Path, limit: int, step: str = "") -> tuple[dict[str, str | None], str]:
    """Run `attempt` in a child process, since the limit applies to a process."""
    done = subprocess.run(
        [sys.executable, "-c", _CHILD_SCRIPT, str(folder), str(limit), step],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    promised, message = json.loads(done.stdout)
    return promised, message


@pytest.mark.long
@pytest.mark.parametrize("limit", [60_000, 120_000])
def test_revise_full_disk_keeps_acknowledged_documents(limit: int, base: Path, folder: Path, tmp_path: Path) -> None:
    with LibraryStore.open(folder) as library:
        promised: dict[str, str | None] = dict(contents(library).hashes)
    acknowledged, message = attempt_in_child(folder, limit)
    assert acknowledged, "no room from the beginning: the test shows nothing"
    assert "free space" in message or "free disk space" in message
    assert "Everything acknowledged so far is saved" in message
    promised |= acknowledged
    with LibraryStore.open(folder, write=True) as library:
        assert broken_promises(library, promised, 1, COUNT) == []
        revise(library, 1, COUNT)
        with LibraryStore.open(shutil.copytree(base, tmp_path / "roomy"), write=True) as roomy:
            revise(roomy, 1, COUNT)
            assert contents(library) == contents(roomy)


@pytest.mark.long
@pytest.mark.parametrize("step", ["joining", "building", "finding"])
def test_optimize_full_disk_keeps_library_unchanged(step: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with LibraryStore.open(folder) as library:
        before = contents(library)
    _, message = attempt_in_child(folder, 60, step)
    assert "free disk space" in message
    assert read_report(folder) is None
    for module, name, value in SMALL:
        monkeypatch.setattr(module, name, value)
    with LibraryStore.open(folder, write=True) as library:
        assert discrepancies(library, dict(before.hashes)) == []
        assert contents(library) == before
        report = library.optimize(recall=1.0)
        assert report is not None
        assert report.good
        assert contents(library) == before


# -- a file of PubMed's that breaks off --------------------------------------------------------------------------------

RECORDS = 400
NAME = "pubmed26n1300.xml.gz"


@pytest.fixture(scope="module")
def whole_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file of citations that do not compress well. Its end deletes two earlier citations."""
    articles = (
        article(
            pmid,
            abstract=f"<Abstract><AbstractText>Aspirin {pmid * 7919} and {pmid**5}.</AbstractText></Abstract>",
        )
        for pmid in range(1, RECORDS + 1)
    )
    path = tmp_path_factory.mktemp("whole") / NAME
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.write(article_set(articles, deleted=[9001, 9002]))
    return path


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.3, 0.8, 0.999])
def test_add_documents_truncated_file_is_completed_by_whole_file(
    share: float, whole_file: Path, tmp_path: Path
) -> None:
    data = whole_file.read_bytes()
    part = tmp_path / "cut" / NAME
    part.parent.mkdir()
    part.write_bytes(data[: int(len(data) * share)])
    with create(tmp_path / "library") as library:
        add_documents(
            library, [Document(f"pubmed:{pmid}", "warfarin", revision="1") for pmid in (9001, 9002)], encoder()
        )
        read_before: list[str] = []
        report = add_documents(library, _note_ids(read_sources([part]), read_before), encoder())
        read_count = len(read_before)
        assert share * 0.7 * RECORDS <= read_count <= RECORDS
        assert read_before == [f"pubmed:{pmid}" for pmid in range(1, read_count + 1)]
        assert library.count()[0] == read_count + 2 - report.deleted
        assert library.content_hashes(read_before).keys() == set(read_before)
        (skipped,) = report.first_skipped
        assert (skipped.path, skipped.where) == (str(part), f"after record {read_count}")
        assert library.sources() == []
        # The same file again, whole.
        fingerprints = [FileFingerprint(source.name, source.sha256, source.bytes) for source in library.sources()]
        again = add_documents(library, read_sources([whole_file], previous=fingerprints), encoder())
        assert (again.added, again.unchanged, again.skipped, again.deleted + report.deleted) == (
            RECORDS - read_count,
            read_count,
            0,
            2,
        )
        assert [source.name for source in library.sources()] == [NAME]
        assert library.count()[0] == RECORDS
        # It is known now, the broken one still is not.
        fingerprints = [FileFingerprint(source.name, source.sha256, source.bytes) for source in library.sources()]
        assert list(read_sources([whole_file], previous=fingerprints)) == []
        assert any(isinstance(item, Skipped) for item in read_sources([part], previous=fingerprints))
        with create(tmp_path / "straight") as straight:
            add_documents(straight, read_sources([whole_file]), encoder())
            assert contents(straight) == contents(library)
        assert discrepancies(library, {}) == []


def _note_ids(items: Iterator[ReaderItem], ids: list[str]) -> Iterator[ReaderItem]:
    for item in items:
        if isinstance(item, Document):
            ids.append(item.id)
        yield item
