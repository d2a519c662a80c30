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

from epicrisis.corpus.reader_base import FileFingerprint, ReaderItem, Skipped
from epicrisis.corpus.readers import read_sources
from epicrisis.errors import StorageError
from epicrisis.library.ingest import add_documents
from epicrisis.library.library import Library
from epicrisis.library.vector_index import read_report
from epicrisis.protocols import StoredDocument
from epicrisis.types import Document
from tests.support.library_checks import broken_promises, discrepancies
from tests.support.library_documents import COUNT, SMALL, contents, create, encoder, revise
from tests.support.pubmed_xml import article, article_set

# -- a file that may not grow stands for a full disk: that needs no rights to mount one --------------------------------

_IN_A_SMALL_SPACE = """
import json, sys
from pathlib import Path
from tests.library.test_full_disk import attempt
sys.stdout.write(json.dumps(attempt(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])))
"""


def attempt(folder: Path, limit: int, step: str) -> tuple[dict[str, str | None], str]:
    """Revises, or optimizes where a step is named; files may not grow beyond `limit` bytes from the beginning, or from
    that step on. What was acknowledged, and the error's message, empty where there was none."""
    promised: dict[str, str | None] = {}
    add, delete = Library.add, Library.delete

    def noted_add(self: Library, documents: Sequence[StoredDocument]) -> None:
        add(self, documents)
        promised.update({each.id: each.content_hash for each in documents})

    def noted_delete(self: Library, ids: Sequence[str], revisions: Mapping[str, str] | None = None) -> None:
        delete(self, ids, revisions)
        promised.update(dict.fromkeys(ids))

    def on_step(name: str) -> None:
        if name.startswith(step):
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Library, "add", noted_add)
        patch.setattr(Library, "delete", noted_delete)
        for module, name, value in SMALL if step else ():
            patch.setattr(module, name, value)
        try:
            if not step:
                on_step("")
            with Library.open(folder, write=True) as library:
                if step:
                    library.optimize(recall=1.0, rebuild=True, on_step=on_step)
                else:
                    revise(library, 1, COUNT)
        except StorageError as error:
            return promised, error.message
    return promised, ""


def in_a_small_space(folder: Path, limit: int, step: str = "") -> tuple[dict[str, str | None], str]:
    """The same in a process of its own, as the limit is one of a process."""
    done = subprocess.run(
        [sys.executable, "-c", _IN_A_SMALL_SPACE, str(folder), str(limit), step],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    promised, said = json.loads(done.stdout)
    return promised, said


@pytest.mark.parametrize("limit", [60_000, 120_000])
def test_revise_full_disk_keeps_acknowledged_documents(limit: int, base: Path, folder: Path, tmp_path: Path) -> None:
    with Library.open(folder) as library:
        promised: dict[str, str | None] = dict(contents(library).hashes)
    acknowledged, said = in_a_small_space(folder, limit)
    assert acknowledged, "no room from the beginning: the test shows nothing"
    assert "free space" in said or "free disk space" in said
    assert "Everything acknowledged so far is saved" in said
    promised |= acknowledged
    with Library.open(folder, write=True) as library:
        assert broken_promises(library, promised, 1, COUNT) == []
        revise(library, 1, COUNT)
        with Library.open(shutil.copytree(base, tmp_path / "roomy"), write=True) as roomy:
            revise(roomy, 1, COUNT)
            assert contents(library) == contents(roomy)


@pytest.mark.parametrize("step", ["joining", "building", "finding"])
def test_optimize_full_disk_keeps_library_unchanged(step: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Library.open(folder) as library:
        before = contents(library)
    _, said = in_a_small_space(folder, 60, step)
    assert "free disk space" in said
    assert read_report(folder) is None
    for module, name, value in SMALL:
        monkeypatch.setattr(module, name, value)
    with Library.open(folder, write=True) as library:
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
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of citations that do not compress away, the last two of an earlier one taken back at its end."""
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


@pytest.mark.parametrize("share", [0.3, 0.8, 0.999])
def test_add_documents_truncated_file_is_completed_by_whole_file(share: float, whole: Path, tmp_path: Path) -> None:
    data = whole.read_bytes()
    part = tmp_path / "cut" / NAME
    part.parent.mkdir()
    part.write_bytes(data[: int(len(data) * share)])
    with create(tmp_path / "library") as library:
        add_documents(
            library, [Document(f"pubmed:{pmid}", "warfarin", revision="1") for pmid in (9001, 9002)], encoder()
        )
        read_before: list[str] = []
        report = add_documents(library, _noted(read_sources([part]), read_before), encoder())
        there = len(read_before)
        assert share * 0.7 * RECORDS <= there <= RECORDS
        assert read_before == [f"pubmed:{pmid}" for pmid in range(1, there + 1)]
        assert library.count()[0] == there + 2 - report.deleted
        assert library.content_hashes(read_before).keys() == set(read_before)
        (skipped,) = report.first_skipped
        assert (skipped.path, skipped.where) == (str(part), f"after record {there}")
        assert library.sources() == []
        # The same file again, whole.
        known = [FileFingerprint(each.name, each.sha256, each.bytes) for each in library.sources()]
        again = add_documents(library, read_sources([whole], previous=known), encoder())
        assert (again.added, again.unchanged, again.skipped, again.deleted + report.deleted) == (
            RECORDS - there,
            there,
            0,
            2,
        )
        assert [each.name for each in library.sources()] == [NAME]
        assert library.count()[0] == RECORDS
        # It is known now, the broken one still is not.
        known = [FileFingerprint(each.name, each.sha256, each.bytes) for each in library.sources()]
        assert list(read_sources([whole], previous=known)) == []
        assert any(isinstance(item, Skipped) for item in read_sources([part], previous=known))
        with create(tmp_path / "straight") as straight:
            add_documents(straight, read_sources([whole]), encoder())
            assert contents(straight) == contents(library)
        assert discrepancies(library, {}) == []


def _noted(items: Iterator[ReaderItem], ids: list[str]) -> Iterator[ReaderItem]:
    for item in items:
        if isinstance(item, Document):
            ids.append(item.id)
        yield item
